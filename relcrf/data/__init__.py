"""Tables: found, read, checked against a model, and coded to dense integers."""
