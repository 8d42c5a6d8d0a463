"""Engines that run relational plans: DuckDB, PostgreSQL and Spark."""
