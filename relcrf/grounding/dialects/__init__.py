"""SQL dialects of DuckDB, PostgreSQL and Spark: plans are rendered by SQLGlot from a closed set of nodes."""
