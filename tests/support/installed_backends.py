"""The installed backends by the values that they predict."""

from relcrf.backends import registry

ALL = registry.backend_names()

BOOLEAN_ONLY = ("fellegi-sunter",)
"""Backends that predict Boolean values only."""

GENERAL = [name for name in ALL if name not in BOOLEAN_ONLY]
