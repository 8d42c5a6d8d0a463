"""Proposal of a first model for tables without a schema: its entity types and relations, a prediction target, and templates."""
