"""Loops over flat arrays, compiled with Numba. `tests/kernels/` has a plain NumPy reference for each of them."""
