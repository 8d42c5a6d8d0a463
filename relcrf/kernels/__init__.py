"""Compiled sweeps over flat arrays: no classes, no policy. `tests/kernels/` holds a plain NumPy twin of each."""
