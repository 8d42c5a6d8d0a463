"""Backends: named combinations of structure, objective, optimiser and inference method."""
