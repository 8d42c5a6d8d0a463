"""Proposal of a first model for tables without a schema: entity types, relations, a prediction target and templates."""
