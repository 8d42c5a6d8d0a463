"""Limits of time and size: what is over them is refused or ended, and nothing is lost."""

import ctypes
import re
import signal
import time

import pytest

from relcrf.cli.dropped_signals import sent_again
from relcrf.cli.time_limit import OutOfTime, limited, out_of_time
from relcrf.resources import shipped

MODEL = shipped("models", "webkb.rcrf")
ENDLESS = ("--set", "max_iterations=1000000", "--set", "tolerance=0")


@pytest.mark.parametrize("time", ["soon", "-1", "0", "1d", "1e3", ""])
def test_times_that_are_none(relcrf_, web, time):
    code, _, err = relcrf_("ground", MODEL, "--data", web, f"--time={time}")
    assert (code, err.count("error["), "E434" in err) == (2, 1, True)


def test_a_training_whose_time_is_over_goes_on(relcrf_, web, tmp_path, monkeypatch):
    from relcrf.backends import checkpoints
    from relcrf.cli.time_limit import OutOfTime, _over

    train = ("train", MODEL, "--data", web, "--out", tmp_path / "run")
    assert relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "whole")[0] == 0
    step = checkpoints.Checkpoints.step

    def late(self, stage, state, most):
        step(self, stage, state, most)
        if stage == "weights" and state.iteration == 3:
            _over.append("1s")
            raise OutOfTime

    monkeypatch.setattr(checkpoints.Checkpoints, "step", late)
    code, _, err = relcrf_(*train, "--time", "1h")
    assert (code, "E436" in err, "--resume" in err) == (4, True, True)
    monkeypatch.undo()
    assert relcrf_(*train, "--time", "1h", "--resume")[0] == 0
    assert (tmp_path / "run" / "weights.npy").read_bytes() == (tmp_path / "whole" / "weights.npy").read_bytes()


def test_the_clock_ends_a_training_that_would_not(relcrf_, web, tmp_path):
    relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "compiled")
    for limit in ("0.05", "2s"):
        code, _, err = relcrf_(
            "train", MODEL, "--data", web, "--out", tmp_path / "run", "--force", *ENDLESS, "--time", limit
        )
        if code == 0:  # the value's rounding ends even this search
            assert (tmp_path / "run" / "run.json").exists()
        else:
            assert (code, err.count("error["), "E436" in err, "Traceback" in err) == (4, 1, True, False), err


def test_what_python_drops_comes_again():
    class Removed:
        def __del__(self):
            time.sleep(0.1)  # the alarm comes here, where nothing can be raised

    began = time.monotonic()
    with pytest.raises(OutOfTime), limited("0.05s"):
        Removed()
        while time.monotonic() < began + 20:
            pass
    assert out_of_time() is not None and out_of_time() is None


def test_ctrl_c_that_python_drops_comes_again():
    """ctypes drops what a callback raises, and a training that looks for its libraries would go on."""

    def compare(one: object, other: object) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            signal.raise_signal(signal.SIGINT)
        return 0

    calls = 0
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    array, began = (ctypes.c_int * 2)(), time.monotonic()
    with pytest.raises(KeyboardInterrupt), sent_again(signal.SIGINT, KeyboardInterrupt):
        ctypes.CDLL(None).qsort(array, 2, ctypes.sizeof(ctypes.c_int), kind(compare))
        while time.monotonic() < began + 20:
            pass
    assert calls and time.monotonic() < began + 10


def test_too_many_factors(relcrf_, relcrf_json, web, tmp_path):
    _, found = relcrf_json("ground", MODEL, "--data", web)
    total = sum(template["factors"] for template in found["templates"].values())
    for command in (("ground", MODEL, "--data", web), ("train", MODEL, "--data", web, "--out", tmp_path / "run")):
        code, _, err = relcrf_(*command, "--max-factors", total - 1)
        assert (code, err.count("error["), "E433" in err) == (2, 1, True)
        named = {name: int(count.replace(",", "")) for name, count in re.findall(r"'(\w+)' has ([\d,]+)", err)}
        assert named == {name: found["templates"][name]["factors"] for name in named} and named
        assert not (tmp_path / "run").exists()
        assert relcrf_(*command, "--max-factors", total)[0] == 0


def test_what_would_be_killed_is_refused(relcrf_, web, tmp_path, monkeypatch):
    from relcrf.execution import memory

    monkeypatch.setattr(memory, "available", lambda: 1000)
    code, _, err = relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "run")
    assert (code, err.count("error["), "E435" in err) == (2, 1, True)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "run")[0] == 0
    monkeypatch.setattr(memory, "available", lambda: 1000)
    code, _, err = relcrf_("predict", tmp_path / "run", "--data", web)
    assert (code, err.count("error["), "E435" in err) == (2, 1, True)


def test_the_least_of_what_is_known_is_free(tmp_path, monkeypatch):
    from relcrf.execution import memory

    files = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 5000 kB\n", "/proc/self/status": "VmSize: 10 kB\n"}
    monkeypatch.setattr(memory, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(memory.resource, "getrlimit", lambda kind: (memory.resource.RLIM_INFINITY, 0))
    assert memory.available() == 5000 << 10
    files |= {"/sys/fs/cgroup/memory.max": "9000\n", "/sys/fs/cgroup/memory.current": "2000\n"}
    assert memory.available() == 7000
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert memory.available() == 5000 << 10
    monkeypatch.setattr(memory.resource, "getrlimit", lambda kind: (12 << 10, 0))
    assert memory.available() == 2 << 10


def test_plan_tells_what_learning_takes(relcrf_, web):
    code, out, _ = relcrf_("plan", MODEL, "--data", web)
    assert code == 0 and re.search(
        r"learning in one piece takes about [\d.]+ \wi?B of memory; [\d.]+ \wiB are free", out
    )
