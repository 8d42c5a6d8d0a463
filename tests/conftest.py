"""Shared by all tests: the folder of helpers is importable, and its servers are fixtures."""

import os
import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

# Several threads of BLAS or OpenMP in each of several processes wait for each other more than they work: on two busy cores,
# benchmarks/unaries.py --smallest --task rings takes 36 s of CPU with two threads of OpenMP, and 7 s with one.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# The command asks for the width when it is imported, whichever test comes first.
os.environ["COLUMNS"] = "200"

# A shell ignores SIGINT in background jobs and in their children; tests send Ctrl-C to processes.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An example takes as long as the machine needs for it.
settings.register_profile("relcrf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("relcrf")

pytest_plugins = ("command_fixtures", "kernel_signatures", "packages", "postgres", "skips", "spark", "order")
