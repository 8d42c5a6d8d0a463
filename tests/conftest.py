"""Shared by all tests: the folder of helpers is importable, and its servers are fixtures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

pytest_plugins = ("postgres", "spark")
