"""Tests of the kernels for GPUs: they agree with the CPU in Numba's simulator of CUDA and, where there is one, on a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu_cases import CASES, NETWORKS, run
from numba import cuda

from relcrf.errors import UsageError
from relcrf.gpu.device import load_kernels
from relcrf.inference.belief_propagation import BeliefPropagation

SCRIPT = Path(__file__).parents[1] / "support" / "gpu_cases.py"


@pytest.fixture(scope="session")
def simulated():
    """The error of each case in the simulator, which a process enables before it imports Numba."""
    done = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
def test_in_simulator(case, simulated):
    assert simulated[case] == ""


@pytest.mark.parametrize("case", CASES)
def test_on_gpu(case):
    if not cuda.is_available():
        pytest.skip("needs a CUDA device")
    assert run(case) == ""


@pytest.fixture
def no_gpu(monkeypatch):
    load_kernels.cache_clear()
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    yield
    load_kernels.cache_clear()


def test_without_gpu(no_gpu):
    scopes, potentials = NETWORKS["one loop"](np.random.default_rng(0))
    for method in (BeliefPropagation.marginals, BeliefPropagation.map_states):
        with pytest.raises(UsageError, match=r"no CUDA device was found(.|\n)*relcrf\[gpu\](.|\n)*--device cpu"):
            method(BeliefPropagation(scopes, device="gpu"), potentials)


def test_without_compiler(no_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    with pytest.raises(UsageError, match="no CUDA device was found"):
        load_kernels()


@pytest.mark.parametrize("settings", [{"schedule": "residual"}, {"appearance": "trees"}, {"device": "tpu"}])
def test_settings_without_gpu_kernel(settings):
    scopes, _ = NETWORKS["one loop"](np.random.default_rng(0))
    with pytest.raises(ValueError, match="device"):
        BeliefPropagation(scopes, **{"device": "gpu", **settings})
