"""Datasets: reading tables, checking them against a model, and coding them as dense integers."""
