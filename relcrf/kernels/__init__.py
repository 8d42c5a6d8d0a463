"""Compiled sweeps over flat arrays: no classes, no policy. `reference.py` has a plain twin of each, their oracle."""
