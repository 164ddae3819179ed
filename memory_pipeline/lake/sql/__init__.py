"""SQL over a lake, in DuckDB, in a separate process."""

from memory_pipeline.errors import require

require("run", "duckdb")
