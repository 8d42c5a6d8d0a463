"""The main job reaches what it promises, and its tables work from the command line."""

from dataclasses import replace
from functools import cache

from command import json_command, relcrf_command

from relcrf.backends.registry import make_backend
from relcrf.cli import demo
from relcrf.demo.run import run_split
from relcrf.evaluation.automatic import AutoBackend


def test_demo(tmp_path, monkeypatch, capsys):
    out = tmp_path / "demo"
    code, found = json_command(capsys, monkeypatch, "demo", "--out", out)
    assert code == 0
    splits = found["splits"]
    assert [s["seed"] for s in splits] == [0, 1, 2, 3, 4]
    for split in splits:
        assert split["n"] == 1697
        assert split["ess"]["accuracy"] > split["local"]["accuracy"]
        assert set(split["seconds"]) == {"ground", "learn", "infer"}
    assert sum(s["ess"]["accuracy"] for s in splits) / 5 >= 0.94
    assert (out / "changes.png").read_bytes().startswith(b"\x89PNG")
    arguments = (
        "evaluate",
        out / "digits.rcrf",
        "--backend",
        "ess",
        "--data",
        out / "split0",
        "--split",
        "part",
        "--holdout",
        "rest",
    )
    code, again = json_command(capsys, monkeypatch, *arguments)
    assert code == 0
    assert again["attributes"]["Image.digit"]["accuracy"] == splits[0]["ess"]["accuracy"]


def test_demo_with_auto_names_the_chosen_backend(tmp_path, monkeypatch, capsys):
    def train_local(self, problem, monitor):
        local = make_backend("local")
        return replace(local.fit(problem, monitor), system=local)

    @cache
    def result(seed, with_auto):
        return run_split(seed, with_auto=with_auto)

    monkeypatch.setattr(AutoBackend, "fit", train_local)  # the comparison takes too long for a test
    monkeypatch.setattr(demo, "run_split", lambda seed, phase, *, with_auto: result(seed, with_auto))
    arguments = ("demo", "--splits", "1", "--auto", "--out", tmp_path / "demo")
    code, found = json_command(capsys, monkeypatch, *arguments)
    (split,) = found["splits"]
    assert code == 0 and split["auto"]["backend"] == "local"
    assert set(split["auto"]) == {"accuracy", "log_likelihood", "backend", "seconds"}
    code, out, _ = relcrf_command(capsys, monkeypatch, *arguments)
    assert code == 0 and "auto: local" in out
