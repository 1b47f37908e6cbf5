"""L1 without an engine: telemetry tables in, mergeable partial states out, all of it in Arrow."""
