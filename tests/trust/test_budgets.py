"""Tests of time and size limits: work beyond them is rejected or ended, and partial results are stored."""

import multiprocessing
import re
import signal
import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from traits import TEXT, traits_world

import relcrf
from relcrf.backends.local import LocalBackend
from relcrf.data.store import unreadable_error
from relcrf.errors import UsageError
from relcrf.evaluation import pareto
from relcrf.inference import belief_propagation
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")
ENDLESS = ("--set", "max_iterations=1000000", "--set", "tolerance=0")


@pytest.mark.parametrize("time", ["soon", "-1", "0", "1d", "1e3", ""])
def test_invalid_time_limit_raises_e434(relcrf_, web, time):
    code, _, err = relcrf_("ground", MODEL, "--data", web, f"--time-limit={time}")
    assert (code, err.count("error["), "E434" in err) == (2, 1, True)


def test_training_resumes_after_the_time_limit(relcrf_, web, tmp_path, monkeypatch):
    from relcrf.backends import checkpoints
    from relcrf.cli.time_limit import TimeLimitReached, _reached_limits

    train = ("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run")
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "whole")[0] == 0
    step = checkpoints.CheckpointMonitor.step

    def late(self, stage, state, max_iterations):
        step(self, stage, state, max_iterations)
        if stage == "weights" and state.iteration == 3:
            _reached_limits.append("1s")
            raise TimeLimitReached

    monkeypatch.setattr(checkpoints.CheckpointMonitor, "step", late)
    code, _, err = relcrf_(*train, "--time-limit", "1h")
    assert (code, "E436" in err, "--resume" in err) == (4, True, True)
    monkeypatch.undo()
    assert relcrf_(*train, "--time-limit", "1h", "--resume")[0] == 0
    assert (tmp_path / "run" / "weights.npy").read_bytes() == (tmp_path / "whole" / "weights.npy").read_bytes()


def test_time_limit_ends_endless_training(relcrf_, web, tmp_path):
    relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "compiled")
    for limit in ("0.05", "2s"):
        code, _, err = relcrf_(
            "train",
            MODEL,
            "--backend",
            "ess",
            "--data",
            web,
            "--out",
            tmp_path / "run",
            "--force",
            *ENDLESS,
            "--time-limit",
            limit,
        )
        if code == 0:  # rounding of the objective may end even this search
            assert (tmp_path / "run" / "run.json").exists()
        else:
            assert (code, err.count("error["), "E436" in err, "Traceback" in err) == (4, 1, True, False), err


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGALRM, 4, "E436"), (signal.SIGINT, 130, "interrupted")]
)
def test_interrupted_reading_is_not_reported_as_damaged_file(
    relcrf_, web, monkeypatch, tmp_path, number, code, message
):
    """DuckDB converts an exception of a signal handler that runs inside of a query to an error of the query."""

    def read(self, problem, monitor):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise unreadable_error("page.csv") from None

    monkeypatch.setattr(LocalBackend, "fit", read)
    train = ("train", MODEL, "--backend", "local", "--data", web, "--out", tmp_path / "run", "--time-limit", "1h")
    found, _, err = relcrf_(*train)
    assert (found, message in err, "E204" in err) == (code, True, False), err


@pytest.fixture
def late(monkeypatch):
    """Raise the alarm of the time limit when the local backend learns for the second time."""
    fit, calls = LocalBackend.fit, []

    def late(self, problem, monitor):
        calls.append(self)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGALRM)
        return fit(self, problem, monitor)

    monkeypatch.setattr(LocalBackend, "fit", late)


def test_cross_validation_keeps_folds_after_the_time_limit(relcrf_, web, tmp_path, late):
    command = (
        "cv",
        MODEL,
        "--data",
        web,
        "--backend",
        "local",
        "--folds",
        "3",
        "--out",
        tmp_path / "folds",
        "--time-limit",
        "1h",
    )
    code, out, err = relcrf_(*command)
    assert (code, out, err.count("error[")) == (4, "", 1)
    assert "E436" in err and "the same command" in err
    code, _, err = relcrf_(*command)
    assert code == 0 and "1 folds were loaded from" in err


def test_evaluation_ends_at_the_time_limit(relcrf_, web, late):
    command = ("evaluate", MODEL, "--data", web, "--split", "folds=2", "--backend", "local")
    code, out, err = relcrf_(*command, "--time-limit", "1h")
    assert (code, out, err.count("error["), "E436" in err) == (4, "", 1, True)
    assert relcrf_(*command, "--time-limit", "1h")[0] == 0


def test_pareto_prints_finished_costs_at_the_time_limit(relcrf_json, web, monkeypatch):
    point = pareto._evaluate_fold

    def late(system, *rest):
        if system.message_cost:
            signal.raise_signal(signal.SIGALRM)
        return point(system, *rest)

    monkeypatch.setattr(pareto, "_evaluate_fold", late)
    command = (
        "pareto",
        MODEL,
        "--data",
        web,
        "--split",
        "hide=0.3",
        "--message-costs",
        "0,0.01",
        "--set",
        "max_iterations=3",
    )
    code, found = relcrf_json(*command, "--time-limit", "1h")
    assert (code, found["interrupted"], len(found["points"])) == (4, True, 1)


def test_comparison_ends_its_processes_at_the_time_limit(relcrf_, web):
    command = ("compare", MODEL, "--data", web, "--backend", "local,ess", "--split", "hide=0.3")
    code, out, err = relcrf_(*command, "--time-limit", "0.6s")
    assert (code, out, err.count("error["), "E436" in err) == (4, "", 1, True)
    assert not multiprocessing.active_children()


def test_inference_writes_current_result_at_the_time_limit(relcrf_, tmp_path, monkeypatch):
    iterate = belief_propagation.iterate

    def late(step, *settings):
        calls = count()
        return iterate(
            lambda n_iterations: signal.raise_signal(signal.SIGALRM) if next(calls) == 5 else step(n_iterations),
            *settings,
        )

    monkeypatch.setattr(belief_propagation, "iterate", late)
    rng, side = np.random.default_rng(0), 60
    nodes = np.arange(side * side).reshape(side, side)
    pairs = [*zip(nodes[:, :-1].flat, nodes[:, 1:].flat), *zip(nodes[:-1].flat, nodes[1:].flat)]  # noqa: B905
    scopes = "".join(f"2 {a} {b}\n" for a, b in pairs)
    tables = "".join(f"4 {' '.join(map(str, np.exp(rng.normal(0, 3, 4))))}\n" for _ in pairs)
    head = f"MARKOV\n{nodes.size}\n{'2 ' * nodes.size}\n{len(pairs)}\n"
    (tmp_path / "grid.uai").write_text(head + scopes + tables)
    endless = ("--method", "bp", "--set", "max_iterations=100000000", "--set", "tolerance=0")
    command = ("infer", tmp_path / "grid.uai", "--task", "MAR", *endless, "--out", tmp_path / "grid.MAR")
    code, _, err = relcrf_(*command, "--time-limit", "1h")
    assert (code, err.count("error["), "E436" in err, "the result is incomplete" in err) == (4, 1, True, True), err
    assert (tmp_path / "grid.MAR").read_text().startswith("MAR\n3600 2 ")


DROPPED = """
import ctypes, signal, time
from relcrf.cli.dropped_signals import resend_dropped_signals
from relcrf.cli.time_limit import TimeLimitReached, limit_time, time_limit_error


class Removed:
    def __del__(self):
        time.sleep(0.3)  # the alarm is raised here, where exceptions are dropped


def compare(one, other):
    global calls
    calls += 1
    if calls == 1:
        signal.raise_signal(signal.SIGINT)  # ctypes drops exceptions of callbacks, so a training would continue
    return 0


def wait():
    end = time.monotonic() + 600
    while time.monotonic() < end:
        pass


calls = 0
try:
    with limit_time("0.1s"):
        Removed()
        wait()
except TimeLimitReached:
    print("the clock", time_limit_error() is not None, time_limit_error())
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
try:
    with resend_dropped_signals(signal.SIGINT, KeyboardInterrupt):
        ctypes.CDLL(None).qsort((ctypes.c_int * 2)(), 2, ctypes.sizeof(ctypes.c_int), kind(compare))
        wait()
except KeyboardInterrupt:
    print("Ctrl-C", calls > 0)
"""


def test_dropped_signals_are_resent():
    """This test runs in a separate process, because pytest also handles dropped exceptions."""
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=1200)
    assert (done.stdout, done.stderr) == ("the clock True None\nCtrl-C True\n", "")


CLEARED = """
import signal
import numpy as np
from relcrf.cli.dropped_signals import resend_dropped_signals
from relcrf.cli.progress import show_progress


class Interrupted(type):
    def __getattr__(cls, name):
        signal.raise_signal(signal.SIGINT)  # NumPy clears exceptions of such functions, like those of `enum.EnumMeta`
        raise AttributeError(name)


class Removed:
    def __del__(self):
        raise ValueError("half-initialized")


with show_progress() as display:
    for step in ("start_phase", "report_grounding"):
        try:
            with resend_dropped_signals(signal.SIGINT, KeyboardInterrupt) as received:
                display.start_phase("before")
                np.zeros(1) == Interrupted("Value", (), {})()
                print(len(received) > 0)
                Removed()  # not reported: the interrupt may be the cause
                getattr(display, step)("after")
                print("not reached")
        except KeyboardInterrupt:
            print("Ctrl-C")
    display.start_phase("later")
"""


def test_cleared_exceptions_are_raised_at_next_report():
    """C code can clear the exception of Ctrl-C without a trace; a training would continue to its last iteration."""
    done = subprocess.run([sys.executable, "-c", CLEARED], capture_output=True, text=True, timeout=1200)
    assert (done.stdout, done.stderr) == ("True\nCtrl-C\n" * 2, "")


def test_too_many_factors_raise_e433(relcrf_, relcrf_json, web, tmp_path):
    _, found = relcrf_json("ground", MODEL, "--data", web)
    total = sum(template["factors"] for template in found["templates"].values())
    for command in (
        ("ground", MODEL, "--data", web),
        ("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run"),
    ):
        code, _, err = relcrf_(*command, "--max-factors", total - 1)
        assert (code, err.count("error["), "E433" in err) == (2, 1, True)
        named = {name: int(count.replace(",", "")) for name, count in re.findall(r"'(\w+)' has ([\d,]+)", err)}
        assert named == {name: found["templates"][name]["factors"] for name in named} and named
        assert not (tmp_path / "run").exists()
        assert relcrf_(*command, "--max-factors", total)[0] == 0


def test_insufficient_memory_raises_e435(relcrf_, web, tmp_path, monkeypatch):
    from relcrf.execution import memory

    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    code, _, err = relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run")
    assert (code, err.count("error["), "E435" in err) == (2, 1, True)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run")[0] == 0
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    code, _, err = relcrf_("predict", tmp_path / "run", "--data", web)
    assert (code, err.count("error["), "E435" in err) == (2, 1, True)


def test_memory_estimate_includes_candidates(monkeypatch):
    from relcrf.backends import memory_needs
    from relcrf.execution import memory
    from relcrf.learning.lbfgs import MAX_MEMORY

    model = relcrf.parse(TEXT)
    grounding = model.ground(relcrf.Dataset(traits_world()))
    cells = sum(space.pairs.nbytes for space in grounding.candidates)
    n_vectors = memory_needs.SCRATCH_VECTORS + 2 * MAX_MEMORY
    required = memory.SCRATCH_FACTOR * (grounding.graph.nbytes + cells) + 8 * n_vectors * grounding.graph.layout.size
    monkeypatch.setattr(memory, "available_bytes", lambda: required - 1)
    with pytest.raises(UsageError, match="E435"):
        relcrf.api.fit(model, grounding, "trmrf")
    relcrf.api.fit(model, grounding, "pseudo", max_iterations=2)


def test_available_memory_is_the_minimum_of_limits(tmp_path, monkeypatch):
    from relcrf.execution import memory

    files, limits = {}, {"most": memory.psutil.RLIM_INFINITY}
    process = SimpleNamespace(
        rlimit=lambda kind: (limits["most"], 0), memory_info=lambda: SimpleNamespace(vms=10 << 10)
    )
    monkeypatch.setattr(memory, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=5000 << 10))
    monkeypatch.setattr(memory.psutil, "Process", lambda: process)
    assert memory.available_bytes() == 5000 << 10
    files |= {"/sys/fs/cgroup/memory.max": "9000\n", "/sys/fs/cgroup/memory.current": "2000\n"}
    assert memory.available_bytes() == 7000
    files["/sys/fs/cgroup/memory.stat"] = "anon 900\ninactive_file 500\nactive_file 40\n"
    assert memory.available_bytes() == 7500, "pages of files can go"
    files["/proc/self/cgroup"] = "0::/user.slice/job.scope\n"
    job = "/sys/fs/cgroup/user.slice/job.scope"
    files |= {f"{job}/memory.max": "3000\n", f"{job}/memory.current": "1000\n"}
    assert memory.available_bytes() == 2000
    files["/proc/self/cgroup"] = "7:cpu,memory:/job\n3:pids:/x\n"
    files |= {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "900\n"}
    files |= {"/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "200\n"}
    assert memory.available_bytes() == 700
    files["/proc/self/cgroup"] = ""
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert memory.available_bytes() == 5000 << 10
    limits["most"] = 12 << 10
    assert memory.available_bytes() == 2 << 10


def test_plan_prints_the_memory_of_learning(relcrf_, web):
    code, out, _ = relcrf_("plan", MODEL, "--data", web)
    assert code == 0 and re.search(
        r"learning from the whole graph needs about [\d.]+ \wi?B of memory; [\d.]+ \wiB are available", out
    )
