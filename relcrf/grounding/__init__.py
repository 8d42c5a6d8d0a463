"""Grounding: from templates and tables to a factor graph (template -> relational plan -> SQL -> flat arrays)."""
