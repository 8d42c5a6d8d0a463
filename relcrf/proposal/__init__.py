"""A first model for tables that nobody has described: what refers to what, what could be predicted, and from what."""
