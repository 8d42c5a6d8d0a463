"""The model specification: frozen data classes of declarations, expressions and types, with name lookup and types."""
