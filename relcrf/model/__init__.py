"""The model specification: data classes for declarations, expressions and types; name lookup and type inference."""
