"""Shared by all tests: the folder of helpers is importable, and the server of tests/support/postgres.py is a fixture."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

from postgres import postgres  # noqa: F401
