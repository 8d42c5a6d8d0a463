"""Compiled loops over flat arrays, without classes or policy. `tests/kernels/` has a plain NumPy reference for each."""
