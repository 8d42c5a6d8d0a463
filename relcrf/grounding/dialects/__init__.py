"""How plans print for DuckDB, PostgreSQL and Spark: SQLGlot writes, from a closed set of nodes."""
