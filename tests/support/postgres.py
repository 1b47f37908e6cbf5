"""The PostgreSQL server of the benchmarks, for tests: a real one, on a free loopback port."""

from penstock.bench._postgres import PostgresServer

__all__ = ["PostgresServer"]
