"""Limits of time and size: what is over them is refused or ended, and nothing is lost."""

import re

import pytest

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
    assert (code, "E403" in err, "--resume" in err) == (4, True, True)
    monkeypatch.undo()
    assert relcrf_(*train, "--time", "1h", "--resume")[0] == 0
    assert (tmp_path / "run" / "weights.npy").read_bytes() == (tmp_path / "whole" / "weights.npy").read_bytes()


def test_the_clock_ends_a_training_that_would_not(relcrf_, web, tmp_path):
    relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "compiled")
    for time in ("0.05", "2s"):
        code, _, err = relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "run", "--force", *ENDLESS, "--time", time)
        if code == 0:  # the value's rounding ends even this search
            assert (tmp_path / "run" / "run.json").exists()
        else:
            assert (code, err.count("error["), "E403" in err, "Traceback" in err) == (4, 1, True, False), err


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
