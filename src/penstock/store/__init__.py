"""Where metrics are kept: SQLite by default, PostgreSQL when that is outgrown."""
