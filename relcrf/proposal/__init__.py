"""Proposal of a first model for tables without a schema: keys and references, a prediction target, and templates."""
