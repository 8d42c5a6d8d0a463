"""Tests of the kernels for GPUs: they agree with the CPU in Numba's simulator of CUDA and, where there is one, on a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_cases import CASES, run
from numba import cuda

SCRIPT = Path(__file__).parents[1] / "support" / "simulated_gpu.py"


@pytest.mark.slow
def test_in_simulator():
    """The simulator is enabled before Numba is imported, so that one process runs all cases."""
    done = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT],
        env={
            **os.environ,
            "NUMBA_ENABLE_CUDASIM": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(SCRIPT.parent), os.environ.get("PYTHONPATH")))),
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(CASES, "")


@pytest.mark.parametrize("case", CASES)
def test_on_gpu(case):
    if not cuda.is_available():
        pytest.skip("needs a CUDA device")
    assert run(case) == ""
