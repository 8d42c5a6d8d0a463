"""Who grounds: the same relational plan on DuckDB, PostgreSQL or Spark."""
