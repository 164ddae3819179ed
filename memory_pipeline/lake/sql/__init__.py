"""SQL over a lake, in DuckDB, in a separate process."""
