"""Tests of the choice of a device: settings, options, and errors where there is no GPU."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import relcrf_command
from graphs import random_graph
from networks import LOOPS
from numba import cuda

from relcrf import api
from relcrf.backends.base import Problem
from relcrf.backends.registry import make_backend
from relcrf.cli.options import Device, with_device
from relcrf.errors import UsageError
from relcrf.gpu.device import DEVICES, load_kernels
from relcrf.graph.reduction import Role
from relcrf.inference.belief_propagation import BeliefPropagation

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_gpu(monkeypatch):
    load_kernels.cache_clear()
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    yield
    load_kernels.cache_clear()


def test_without_gpu(no_gpu):
    scopes, potentials = LOOPS["one loop"](np.random.default_rng(0))
    for method in (BeliefPropagation.marginals, BeliefPropagation.map_states):
        with pytest.raises(UsageError, match=r"no CUDA device was found(.|\n)*relcrf\[gpu\](.|\n)*--device cpu"):
            method(BeliefPropagation(scopes, device="gpu"), potentials)


def test_without_compiler(no_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    with pytest.raises(UsageError, match="no CUDA device was found"):
        load_kernels()


@pytest.mark.parametrize(
    ("name", "settings", "code", "message"),
    [
        ("dense", {"inference": "jt"}, "E305", "--set inference=bp"),
        ("pseudo", {"inference": "gibbs"}, "E305", "--device cpu"),
        ("dense", {"device": "tpu"}, "E305", "use one of cpu, gpu"),
        ("gated", {"device": "tpu"}, "E305", "use one of cpu, gpu"),
        ("auto", {}, "E304", "name a backend that has this setting, e.g. --backend dense"),
        ("ess", {}, "E304", "has no setting 'device'"),
    ],
)
def test_backends_that_cannot_use_a_gpu(name, settings, code, message):
    with pytest.raises(UsageError, match=message) as error:
        make_backend(name, **{"device": "gpu", **settings})
    assert error.value.diagnostics[0].code == code


@pytest.mark.parametrize("command", ["train MODEL --out run --backend dense", "evaluate MODEL --backend dense"])
def test_commands_without_gpu(no_gpu, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = command.replace("MODEL", str(ROOT / "models" / "webkb.rcrf")).split()
    code, _, errors = relcrf_command(capsys, monkeypatch, *words, "--data", "missing", "--device", "gpu")
    assert code == 2
    assert "E382" in errors and "no CUDA device was found" in errors
    assert not list(tmp_path.iterdir())


def test_device_of_infer(no_gpu, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.uai").write_text("MARKOV\n3\n2 2 2\n3\n2 0 1\n2 1 2\n2 0 2\n" + "4\n1 2 3 4\n" * 3)
    words = ("infer", "loop.uai", "--task", "MAR", "--method", "bp", "--device")
    code, output, _ = relcrf_command(capsys, monkeypatch, *words, "cpu")
    assert code == 0 and output.startswith("MAR\n3 2 ")
    code, output, errors = relcrf_command(capsys, monkeypatch, *words, "gpu")
    assert code == 2 and not output and "E382" in errors and "--device cpu" in errors


def test_larger_factors():
    rng = np.random.default_rng(0)
    graph = random_graph(rng, max_arity=3)
    roles, states = np.full(graph.n_variables, Role.FREE, dtype=np.int8), np.zeros(graph.n_variables, dtype=np.int32)
    backend = make_backend("dense", device="gpu")
    with pytest.raises(UsageError, match=r"E381(.|\n)*factors of two nodes only\n.*help: use --device cpu"):
        backend.infer(Problem(graph, roles, states), {"weights": rng.normal(size=graph.layout.size)})


@pytest.mark.parametrize("settings", [{"schedule": "residual"}, {"appearance": "trees"}, {"device": "tpu"}])
def test_settings_without_gpu_kernel(settings):
    scopes, _ = LOOPS["one loop"](np.random.default_rng(0))
    with pytest.raises(ValueError, match="device"):
        BeliefPropagation(scopes, **{"device": "gpu", **settings})


def test_devices_of_the_command():
    assert tuple(Device) == DEVICES


def test_settings_of_devices(no_gpu, monkeypatch):
    assert with_device(["l2=1"], None) == ["l2=1"]
    assert with_device(["l2=1", "device=gpu"], Device.CPU) == ["l2=1"]
    assert with_device(None, Device.CPU, overrides=True) == ["device=cpu"]
    with pytest.raises(UsageError, match="E382"):
        with_device(None, Device.GPU)
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    assert with_device(["device=cpu", "l2=1"], Device.GPU) == ["l2=1", "device=gpu"]


def test_run_of_another_machine(no_gpu, tmp_path, monkeypatch, capsys):
    """A run that was trained on a GPU predicts on the CPU if the command says so."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return relcrf_command(capsys, monkeypatch, *words)

    split = ("--data", "web", "--split", "site", "--holdout", "site4")
    assert run("example", "web")[0] == 0
    train = ("train", "web/webkb.rcrf", *split, "--out", "run", "--set", "max_iterations=1", "--device", "cpu")
    assert run(*train, "--backend", "dense")[0] == 0
    fit = api.load_fit("run")
    learned = replace(fit.learned, settings={**fit.learned.settings, "device": "gpu"})
    replace(fit, learned=learned).save("gpu")
    code, _, errors = run("predict", "gpu", *split)
    assert code == 2 and "E382" in errors
    assert run("predict", "gpu", *split, "--device", "cpu")[0] == 0
    assert run(*train, "--backend", "local", "--force")[0] == 0
    assert run("predict", "run", *split, "--device", "cpu")[0] == 0
