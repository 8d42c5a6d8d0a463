"""Loops over flat arrays, compiled with Numba. `tests/kernels/` has a NumPy reference for each loop."""
