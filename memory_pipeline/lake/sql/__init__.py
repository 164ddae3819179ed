"""SQL over a lake, in DuckDB, in a process of its own."""
