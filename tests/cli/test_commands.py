"""Tests of the command line on a small web: check, plan, ground, train, predict, evaluate, and errors."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout

import numpy as np
import pytest
from command import json_command, relcrf_command
from tables import small_web, write_tables

import relcrf
from relcrf.cli.commands import app
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def trained(web, tmp_path_factory):
    """Return a run folder, which tests must not change."""
    run = tmp_path_factory.mktemp("trained") / "run"
    with redirect_stdout(io.StringIO()):
        app(["train", str(MODEL), "--backend", "ess", "--data", str(web), "--out", str(run)], standalone_mode=False)
    return run


@pytest.mark.parametrize(
    "command", ["check", "plan", "ground", "train", "predict", "evaluate", "infer", "report", "demo"]
)
def test_every_command_has_help_with_an_example(relcrf_, command):
    code, out, _ = relcrf_(command, "--help")
    assert code == 0
    assert f"Example: relcrf {command}" in out


def test_help_is_grouped_and_short(relcrf_, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = relcrf_("--help")
    panels = ("Start", "Data and model", "Train and predict", "Evaluate", "Understand", "Tools")
    positions = [out.index(f"─ {panel} ─") for panel in panels]
    assert code == 0 and positions == sorted(positions)
    code, out, _ = relcrf_("train", "--help")
    assert code == 0 and len(out.splitlines()) <= 60 and "…" not in out


def test_check(relcrf_, relcrf_json, web):
    code, out, _ = relcrf_("check", MODEL, "--data", web)
    assert code == 0
    assert "is valid" in out
    assert relcrf_json("check", MODEL) == (0, {"errors": [], "warnings": [], "notes": []})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("where s < t over on(m, s) or on(m, t) per s, t", "E391"),
        ('where t != "a" over on(m, s) and on(m, t) per s, t', "E391"),
        ("where s < t over on(m, s) and on(m, t) per s, t", None),
    ],
)
def test_check_grounds_candidates(relcrf_, tmp_path, line, code):
    """`check --data` reports the errors that a backend with candidates would report before training."""
    model = tmp_path / "m.rcrf"
    model.write_text(
        "domain S = open\nentity M\npredict relation on(m: M, s: S)\ntemplate t(m: M, s: S) over on(m, s) per s\n"
        f"candidates c(m: M, s: S, t: S) {line}\n"
    )
    on = [{"m": m, "s": s, "value": "true"} for m in "xy" for s in "abc"]
    data = write_tables(tmp_path / "data", m=[{"id": "x"}, {"id": "y"}], on=on)
    found, _, err = relcrf_("check", model, "--data", data)
    assert found == (2 if code else 0), err
    if code:
        train = relcrf_("train", model, "--data", data, "--backend", "trmrf", "--out", tmp_path / "run")
        assert code in err and train[2].splitlines()[0] == err.splitlines()[0]


def test_plan_and_ground_agree(relcrf_, relcrf_json, web):
    _, plan = relcrf_json("plan", MODEL, "--data", web)
    code, grounded = relcrf_json("ground", MODEL, "--data", web)
    assert code == 0
    assert set(plan["templates"]) == {"prior", "word", "linked"}
    for name, row in grounded["templates"].items():
        assert {k: plan["templates"][name][k] for k in row} == row
    code, out, _ = relcrf_("plan", MODEL, "--data", web, "--exact")
    assert code == 0 and "largest hub" in out and "rows x bindings" not in out


def test_plan_reports_hubs_and_repeated_rows(relcrf_, relcrf_json, tmp_path):
    model = tmp_path / "m.rcrf"
    model.write_text(
        "domain S = { a, b, c, d }\nentity M\nentity N { predict d : bool }\nrelation R(x: N, y: N)\n"
        "predict relation warm(m: M, s: S)\n"
        "template pair(m: M, s: S, t: S) where s < t over warm(m, s), warm(m, t)\n"
        "template near(x: N, y: N) where R(x, z) and R(y, z) over x.d, y.d\n"
    )
    names = [f"n{k}" for k in range(6)]
    tables = {"n": [{"id": k} for k in (*names, "hub")], "r": [{"x": x, "y": "hub"} for x in names]}
    data = write_tables(tmp_path / "data", m=[{"id": k} for k in range(7)], **tables)
    code, out, _ = relcrf_("plan", model, "--data", data)
    assert code == 0 and "7 x 6" in out and "N 'hub', 6 x 6 rows" in out
    code, found = relcrf_json("plan", model, "--data", data)
    pair = found["templates"]["pair"]
    assert (pair["bindings"], pair["rows"], pair["stored_bindings"], pair["hub"]) == (42, 7, 6, "")
    assert found["templates"]["near"]["hub"] == "N 'hub', 6 x 6 rows"
    # The budget limits stored bindings: 42 bindings are 6 per row. The error names the hub, as in grounding.
    for command in ("plan", "ground"):
        code, _, err = relcrf_(command, model, "--data", data, "--budget", 30)
        assert code == 2 and err.count("error[E320]") == 1 and "'near'" in err and "worst hub is N 'hub'" in err


def test_ground_lists_factors_of_variable(relcrf_, relcrf_json, web, tmp_path):
    command = ("ground", MODEL, "--data", web, "--show", "Page(p3).category")
    code, found = relcrf_json(*command)
    assert code == 0 and found["total"] == len(found["factors"])
    by_template = {f["template"] for f in found["factors"]}
    assert by_template == {"prior", "word", "linked"}
    assert all("Page(p3).category" in f["scope"] for f in found["factors"])
    code, some = relcrf_json(*command, "--limit", 2)
    assert (some["factors"], some["total"]) == (found["factors"][:2], found["total"])
    assert relcrf_(*command, "--out", tmp_path / "f.csv")[0] == 0
    with (tmp_path / "f.csv").open() as file:
        assert [r["scope"] for r in csv.DictReader(file)] == [f["scope"] for f in found["factors"]]


def test_ground_lists_instances_of_template(relcrf_, relcrf_json, web, tmp_path):
    command = ("ground", MODEL, "--data", web, "--show", "linked")
    code, found = relcrf_json(*command)
    assert code == 0 and len(found["instances"]) == 20 < found["total"]
    assert set(found["instances"][0]) == {"a", "b", "a.category", "b.category", "1"}
    code, out, _ = relcrf_(*command, "--limit", 3)
    assert code == 0 and f"first 3 of {found['total']} rows" in out and "None" not in out
    for limit, rows in (((), found["total"]), (("--limit", 5), 5)):
        assert relcrf_(*command, *limit, "--out", tmp_path / "links.csv")[0] == 0
        with (tmp_path / "links.csv").open() as file:
            written = list(csv.DictReader(file))
        assert len(written) == rows
    assert [(r["a"], r["b"]) for r in written] == [(r["a"], r["b"]) for r in found["instances"][:5]]
    code, found = relcrf_json(*command, "--out", tmp_path / "links.parquet")
    assert (code, found["instances"], found["out"]) == (0, [], str(tmp_path / "links.parquet"))


def test_ground_blocks_are_cached(relcrf_, relcrf_json, web, trained, tmp_path):
    cache = ("--cache", tmp_path / "blocks")
    code, first = relcrf_json("ground", MODEL, "--data", web, *cache)
    assert (code, first["cache"]) == (0, {"loaded": [], "computed": ["prior", "word", "linked"]})
    _, again = relcrf_json("ground", MODEL, "--data", web, *cache)
    assert again["cache"] == {"loaded": ["prior", "word", "linked"], "computed": []}
    assert again["templates"] == first["templates"]
    run = tmp_path / "run"
    for command in (
        ("train", MODEL, "--backend", "ess", "--out", run),
        ("ground", MODEL),
        ("evaluate", MODEL, "--backend", "ess", "--split", "school"),
    ):
        code, _, err = relcrf_(*command, "--data", web, *cache)
        assert code == 0 and "loaded prior, word, linked" in err, err
    assert (run / "weights.npy").read_bytes() == (trained / "weights.npy").read_bytes()
    code, _, err = relcrf_("predict", run, "--data", web, *cache)
    assert code == 0 and "blocks: " in err
    (tmp_path / "file").write_text("")
    code, _, err = relcrf_("ground", MODEL, "--data", web, "--cache", tmp_path / "file")
    assert code == 2 and "E314" in err


def test_ground_on_a_server(relcrf_json, web, postgres):
    _, here = relcrf_json("ground", MODEL, "--data", web)
    url = postgres.new_database()
    code, there = relcrf_json("ground", MODEL, "--data", web, "--engine", "postgres", "--url", url)
    assert code == 0 and there["templates"] == here["templates"]


@pytest.mark.slow
def test_ground_on_spark_with_a_space_in_temporary_folder(spark_installed, web, tmp_path, relcrf_):
    """The path occurs in the tables and rows that DuckDB and Spark exchange, and in the files that Spark writes.

    The command does not stop the session, and leaves no files and little output.
    """
    temporary = tmp_path / "a b%20c"
    temporary.mkdir()
    ground = ["ground", str(MODEL), "--data", str(web), "--show", "linked", "--json"]
    code, here, _ = relcrf_(*ground)
    there = subprocess.run(
        [sys.executable, "-m", "relcrf", *ground, "--engine", "spark", "--spark-master", "local[1]"],
        env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert (there.returncode, there.stdout) == (code, here) and code == 0, there.stderr
    assert len(there.stderr.splitlines()) <= 1, there.stderr
    assert not list(temporary.iterdir())


def test_closed_pipe_exits_silently_with_141(web):
    """Print no message, as in `relcrf ... | head`, and exit with the code of a process that SIGPIPE terminates."""
    ground = ["ground", str(MODEL), "--data", str(web)]
    missing = ["plan", str(MODEL), "--data", "nowhere", "--json"]
    read, write = os.pipe()
    os.close(read)
    started = {
        " ".join(words): subprocess.Popen(
            [sys.executable, "-m", "relcrf", *words], stdout=write, stderr=subprocess.PIPE, text=True
        )
        for words in (["explain-error", "E101"], ground, [*ground, "--json"], ["--version"], missing)
    }
    os.close(write)
    ended = {words: (process.communicate(timeout=600)[1], process.returncode) for words, process in started.items()}
    assert ended == dict.fromkeys(started, ("", 141))


def in_shell(redirection, *words):
    """Start the command with its streams redirected by a shell."""
    line = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "relcrf", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_closed_standard_streams(tmp_path):
    started = [
        (in_shell(">&-", "--version"), (0, "", "")),
        (in_shell(">&-", "check", str(MODEL), "--json"), (0, "", "")),
        (in_shell("<&- >&- 2>&-", "check", str(tmp_path / "nowhere.rcrf")), (2, "", "")),
    ]
    for process, expected in started:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out, err) == expected


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_full_output_device_raises_e314(tmp_path):
    """There is one diagnostic, whichever part of the output cannot be written."""
    missing = str(tmp_path / "nowhere.rcrf")
    started = [
        (in_shell("> /dev/full", *words), code)
        for words, code in (
            (["--version"], "E314"),
            (["check", str(MODEL), "--json"], "E314"),
            (["check", missing, "--json"], "E004"),
        )
    ]
    for process, code in started:
        _, err = process.communicate(timeout=600)
        assert (process.returncode, err.count("error[")) == (2, 1) and err.startswith(f"error[{code}]"), err


def test_cross_product_over_budget_raises_e320(relcrf_, web, tmp_path):
    model = tmp_path / "cross.rcrf"
    model.write_text(MODEL.read_text() + "\ntemplate every(a: Page, b: Page)\n    over a.category == b.category\n")
    code, out, err = relcrf_("plan", model, "--data", web, "--budget", "2000")
    assert code == 2
    assert "warning[W201]" in err
    assert "error[E320]: 'every' would have 3,600 bindings, more than the budget of 2,000" in err
    assert "3,600" in out
    assert (
        relcrf_("train", model, "--backend", "ess", "--data", web, "--budget", "2000", "--out", tmp_path / "run")[0]
        == 2
    )


def test_train_predict_evaluate(relcrf_, relcrf_json, web, tmp_path):
    run, out = tmp_path / "run", tmp_path / "predictions.csv"
    code, text, err = relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", run)
    assert (code, err) == (0, "")
    assert "forest edges" in text and "factors seen in training" in text
    code, text, err = relcrf_("predict", run, "--data", web, "--out", out)
    assert (code, err) == (0, "")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [r["id"] for r in rows] == sorted(f"p{k}" for k in range(0, 60, 5))
    assert {r["category"] for r in rows} <= {"course", "faculty", "student", "project", "staff"}
    for row in rows:
        probabilities = [float(v) for k, v in row.items() if k.startswith("p_")]
        assert sum(probabilities) == pytest.approx(1)
        assert max(probabilities) == pytest.approx(float(row["probability"]))
    code, found = relcrf_json("evaluate", MODEL, "--backend", "ess", "--data", web, "--split", "school")
    assert code == 0
    assert found["backend"] == "ess"
    score = found["attributes"]["Page.category"]
    assert score["n"] == 48
    assert score["accuracy"] > found["backends"]["local"]["Page.category"]["accuracy"]
    assert len(found["folds"]) == 6
    code, found = relcrf_json("evaluate", run, "--data", web, "--split", "school", "--holdout", "s1")
    assert code == 0
    assert found["attributes"]["Page.category"]["n"] == 16


def test_train_reports_the_factors_of_each_template(relcrf_, relcrf_json, web, tmp_path):
    code, found = relcrf_json("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run")
    by_name = {each.pop("name"): each for each in found["templates"]}
    assert code == 0 and by_name["prior"] == {"factors": 60, "seen": 48}
    linked = by_name["linked"]
    assert linked["seen"] == linked["homophily"]["pairs"] < linked["factors"] and linked["homophily"]["equal"] == 1.0
    page = tmp_path / "few" / "page.csv"
    rows = small_web(page.parent, pages=120).joinpath("page.csv").read_text().splitlines()
    rows = [row if k < 12 else ",".join((row.split(",")[0], "", "s1")) for k, row in enumerate(rows)]
    page.write_text("\n".join(rows) + "\n")
    command = ("train", MODEL, "--data", page.parent, "--out", tmp_path / "few_run")
    code, text, err = relcrf_(*command, "--backend", "ess")
    assert code == 0 and "warning[W206]" in err and "factors of 'linked'" in err
    assert max(map(len, text.splitlines()[-12:-1])) <= 80
    code, _, err = relcrf_(*command, "--force", "--backend", "local")
    assert code == 0 and "W206" not in err


def test_same_input_gives_identical_files(relcrf_, web, trained, tmp_path):
    again = tmp_path / "again"
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", again)[0] == 0
    for run, name in ((trained, "one"), (again, "two")):
        assert relcrf_("predict", run, "--data", web, "--out", tmp_path / f"{name}.parquet")[0] == 0
    files = sorted(p.name for p in again.iterdir())
    assert "checkpoint" not in files and files == sorted(p.name for p in trained.iterdir())
    for name in files:
        if name != "timings.json":
            assert (trained / name).read_bytes() == (again / name).read_bytes(), name
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_held_out_labels_do_not_affect_training(relcrf_, web, tmp_path):
    folder = small_web(tmp_path / "web")
    page = folder / "page.csv"
    lines = page.read_text().splitlines()
    changed = [line.replace("course", "staff") if line.endswith(",s1") else line for line in lines]
    page.write_text("\n".join(changed) + "\n")
    for name, data in (("one", web), ("two", folder)):
        command = (
            "train",
            MODEL,
            "--backend",
            "ess",
            "--data",
            data,
            "--out",
            tmp_path / name,
            "--split",
            "school",
            "--holdout",
            "s1",
        )
        assert relcrf_(*command)[0] == 0
    first, second = (np.load(tmp_path / name / "weights.npy") for name in ("one", "two"))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("check", "nowhere.rcrf"), 2, "E004"),
        (("plan", MODEL, "--data", "nowhere"), 3, "E201"),
        (("train", MODEL, "--data", "WEB", "--out", "run", "--backend", "es"), 2, "unknown backend 'es'"),
        (
            ("train", MODEL, "--backend", "ess", "--data", "WEB", "--out", "run", "--set", "l3=1"),
            2,
            "valid settings: l2,",
        ),
        (("train", MODEL, "--backend", "ess", "--data", "WEB", "--out", "run", "--set", "l2=-1"), 2, "E305"),
        (("train", MODEL, "--backend", "ess", "--data", "WEB", "--out", "run", "--set", "l2=inf"), 2, "E305"),
        (("plan", MODEL, "--data", "WEB", "--memory", "99999999999999999999TB"), 2, "E311"),
        (("train", MODEL, "--backend", "ess", "--data", "WEB", "--out", "run", "--set", "l2"), 2, "E306"),
        (("train", MODEL, "--backend", "ess", "--data", "WEB", "--out", "run", "--split", "school"), 2, "E341"),
        (("train", MODEL, "--backend", "ess", "--data", "WEB", "--out", "run", "--resume"), 2, "E332"),
        (
            (
                "train",
                MODEL,
                "--backend",
                "ess",
                "--data",
                "WEB",
                "--out",
                "run",
                "--strict",
                "--set",
                "max_iterations=1",
            ),
            4,
            "E401",
        ),
        (("predict", "run", "--data", "WEB"), 3, "E334"),
        (("evaluate", MODEL, "--backend", "ess", "--data", "WEB", "--split", "scool"), 3, "did you mean 'school'?"),
        (("evaluate", MODEL, "--backend", "ess", "--data", "WEB", "--split", "school", "--holdout", "s9"), 2, "E340"),
        (("ground", MODEL, "--data", "WEB", "--show", "Page(zz).category"), 2, "E313"),
        (("ground", MODEL, "--data", "WEB", "--show", "lined"), 2, "did you mean 'linked'?"),
        (("ground", MODEL, "--data", "WEB", "--show", "linked", "--out", "x.txt"), 2, "E312"),
        (("ground", MODEL, "--data", "WEB", "--out", "x.csv"), 2, "E300"),
        (("ground", MODEL, "--data", "WEB", "--show", "linked", "--limit", "-1"), 2, "E300"),
        (("ground", MODEL, "--data", "nowhere", "--engine", "postgres"), 2, "requires the URL"),
        (("ground", MODEL, "--data", "WEB", "--engine", "postgrs"), 2, "did you mean 'postgres'?"),
        (("ground", MODEL, "--data", "WEB", "--url", "postgresql://a@b/c"), 2, "--engine postgres"),
        (("ground", MODEL, "--data", "WEB", "--engine", "postgres", "--spark-master", "local[2]"), 2, "E372"),
        (
            ("ground", MODEL, "--data", "WEB", "--engine", "postgres", "--url", "postgresql://a@127.0.0.1:1/c"),
            3,
            "E371",
        ),
        (("plan", MODEL, "--data", "WEB", "--memory", "much"), 2, "E311"),
        (("plan", MODEL, "--data", "WEB", "--memory", f"{'9' * 400}GB"), 2, "E311"),
        (("plan", MODEL), 2, "--data"),
        (("fly",), 2, "fly"),
    ],
)
def test_mistakes(relcrf_, web, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    found, _, err = relcrf_(*(web if a == "WEB" else a for a in arguments))
    assert found == code, err
    assert message in err
    assert "Traceback" not in err
    assert err.count("error[") <= 1


def test_misspelt_attribute_has_suggestion(relcrf_, relcrf_json, tmp_path):
    model = tmp_path / "wrong.rcrf"
    model.write_text(MODEL.read_text().replace("over page.category", "over page.categry"))
    code, _, err = relcrf_("check", model)
    assert code == 2
    assert err.count("error[") == 1
    assert "unknown attribute 'categry' of Page" in err
    assert "did you mean 'category'?" in err
    code, found = relcrf_json("check", model)
    assert code == 2
    (error,) = found["errors"]
    assert (error["code"], error["location"]["line"], error["location"]["column"]) == ("E101", 14, 10)


def test_damaged_run_folders_are_rejected(relcrf_, web, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    code, _, err = relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", run)
    assert (code, "E330" in err) == (2, True)
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", run, "--force")[0] == 0
    facts = json.loads((run / "run.json").read_text())
    weights = (run / "weights.npy").read_bytes()
    for name, content, code in [
        ("weights.npy", weights[:-9], "E336"),
        ("weights.npy", b"", "E336"),
        ("structure.npy", None, "E336"),
        ("dictionaries.json", b"{", "E336"),
        ("run.json", json.dumps(facts | {"format": 99}).encode(), "E335"),
        ("run.json", b"[]", "E336"),
        ("model.rcrf", b"\xff\xfe", "E336"),
    ]:
        before = (run / name).read_bytes()
        if content is None:
            (run / name).unlink()
        else:
            (run / name).write_bytes(content)
        found, _, err = relcrf_("predict", run, "--data", web)
        assert (found, code in err, "Traceback" in err) == (3, True, False), (name, err)
        (run / name).write_bytes(before)
    assert relcrf_("predict", run, "--data", web)[0] == 0


def test_force_replaces_only_run_folders(relcrf_, web, tmp_path, monkeypatch):
    folder = small_web(tmp_path / "precious")
    (tmp_path / "file").write_text("precious")
    monkeypatch.chdir(folder)
    for out in (folder, tmp_path / "file", "..", ".", "/", tmp_path / "file" / "x"):
        code, _, err = relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", out, "--force")
        assert (code, "error[E3" in err) == (2, True), err
    assert sorted(p.name for p in folder.iterdir()) == ["link.csv", "page.csv", "page_words.csv"]
    assert (tmp_path / "file").read_text() == "precious"


def test_interrupted_run_is_not_overwritten_by_accident(relcrf_, web, tmp_path):
    checkpoint = tmp_path / "run.partial" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "identity").write_text("of an earlier run")
    code, _, err = relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run")
    assert (code, "E337" in err) == (2, True)
    assert (
        relcrf_(
            "train", MODEL, "--backend", "ess", "--data", tmp_path / "nowhere", "--out", tmp_path / "run", "--force"
        )[0]
        == 3
    )
    assert (checkpoint / "identity").exists(), "no folder is removed before the tables are read"


def test_ctrl_c_converted_to_other_exception_by_compiler(relcrf_, web, monkeypatch):
    def ground_with_late_compilation(*arguments, **settings):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("no compiled object yet for <Library>") from None

    monkeypatch.setattr(relcrf.Model, "ground", ground_with_late_compilation)
    code, out, err = relcrf_("ground", MODEL, "--data", web)
    assert (code, out, err.split()) == (130, "", ["interrupted"])
    monkeypatch.setattr(relcrf.Model, "ground", lambda *arguments, **settings: 1 / 0)
    assert relcrf_("ground", MODEL, "--data", web)[0] == 70


def test_ctrl_c_outside_of_a_phase_is_reported(web, tmp_path, monkeypatch, relcrf_):
    """Between two phases, as before learning starts, no other code reports the interruption."""

    def interrupt(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("relcrf.cli.learn.CheckpointMonitor", interrupt)
    code, _, err = relcrf_("train", MODEL, "--backend", "local", "--data", web, "--out", tmp_path / "run")
    assert (code, err) == (130, "interrupted\n")


def test_ctrl_c_exits_process_with_130(web, tmp_path):
    """Ctrl-C at any time ends the command with one word and exit code 130."""
    command = [
        sys.executable,
        "-c",
        "from relcrf.cli.main import run; run()",
        "train",
        str(MODEL),
        "--backend",
        "ess",
        "--data",
        str(web),
    ]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run"), "--set", "max_iterations=1000000", "--set", "tolerance=0"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (tmp_path / "run.partial" / "checkpoint" / "identity").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    # A training this small can end before the signal arrives; then the run is complete.
    assert (process.returncode, "interrupted" in err) == (130, True) or (tmp_path / "run" / "run.json").exists()
    assert "Traceback" not in err


def test_unwritable_output_paths(relcrf_, web, trained, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "z.txt", tmp_path / "folder.csv", tmp_path / "file" / "z.csv"):
        code, _, err = relcrf_("predict", trained, "--data", web, "--out", out)
        assert (code, "error[E31" in err) == (2, True), err
    assert relcrf_("predict", trained, "--data", web, "--out", tmp_path / "new" / "z.csv")[0] == 0


def test_pickle_in_run_folder_is_rejected(relcrf_, web, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    np.save(run / "weights.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    code, _, err = relcrf_("predict", run, "--data", web)
    assert (code, "E336" in err) == (3, True)


def test_resumed_training_gives_same_result(relcrf_, web, trained, tmp_path, interrupted_training):
    broken = tmp_path / "broken"
    with interrupted_training():
        code, _, err = relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", broken)
    assert code == 130
    assert "--resume" in err
    assert not broken.exists()
    code, _, err = relcrf_("predict", broken, "--data", web)
    assert (code, "interrupted" in err) == (3, True)
    code, _, err = relcrf_(
        "train", MODEL, "--backend", "ess", "--data", web, "--out", broken, "--resume", "--set", "l2=2"
    )
    assert (code, "to another model, other settings" in err, "E333" in err) == (2, True, True)
    identity = tmp_path / "broken.partial" / "checkpoint" / "identity"
    mine = identity.read_text()
    identity.write_text(f"0 {mine.split()[1]}")
    code, _, err = relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", broken, "--resume")
    assert (code, "belongs to another version of relcrf" in err, "E333" in err) == (2, True, True)
    identity.write_text(mine)
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", broken, "--resume")[0] == 0
    for name in ("weights.npy", "structure.npy", "log.jsonl", "run.json"):
        assert (trained / name).read_bytes() == (broken / name).read_bytes(), name


def test_prediction_on_tables_with_unseen_words(relcrf_json, trained, tmp_path):
    other = small_web(tmp_path / "other", pages=20, seed=5)
    words = other / "page_words.csv"
    words.write_text(words.read_text() + "p3,neverseen\n")
    code, found = relcrf_json("predict", trained, "--data", other)
    assert code == 0
    assert found["unseen_keys"] == {"word": 1}
    assert found["queries"] == {"Page.category": 4}


def test_internal_error_exits_with_70(relcrf_, web, monkeypatch):
    from relcrf.cli import plan

    def broken(*_):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(plan, "plan_templates", broken)
    code, _, err = relcrf_("plan", MODEL, "--data", web)
    assert code == 70
    assert "this is a bug in relcrf" in err


def test_version(relcrf_):
    assert relcrf_("--version")[1] == f"relcrf {relcrf.__version__}\n"


def test_fmt_formats_in_place_and_checks(capsys, monkeypatch, tmp_path):
    path = tmp_path / "m.rcrf"
    path.write_text("entity  E{predict s:bool}# things\ntemplate t(e:E)over e.s")
    code, _, err = relcrf_command(capsys, monkeypatch, "fmt", "--check", path)
    assert code == 2 and "E343" in err
    assert path.read_text().startswith("entity  E{")
    code, found = json_command(capsys, monkeypatch, "fmt", path)
    assert (code, found) == (0, {"changed": [str(path)]})
    assert path.read_text() == "entity E { predict s : bool }  # things\ntemplate t(e: E) over e.s\n"
    assert json_command(capsys, monkeypatch, "fmt", "--check", path) == (0, {"changed": []})
    assert list(tmp_path.iterdir()) == [path]


def test_fmt_formats_the_target_of_a_link(capsys, monkeypatch, tmp_path):
    (tmp_path / "real.rcrf").write_text("entity   E {predict t:bool}\n")
    (tmp_path / "link.rcrf").symlink_to("real.rcrf")
    assert json_command(capsys, monkeypatch, "fmt", tmp_path / "link.rcrf")[0] == 0
    assert (tmp_path / "real.rcrf").read_text() == "entity E { predict t : bool }\n"
    assert (tmp_path / "link.rcrf").is_symlink() and len(list(tmp_path.iterdir())) == 2


def test_fmt_does_not_change_invalid_file(capsys, monkeypatch, tmp_path):
    path = tmp_path / "m.rcrf"
    path.write_text("entity E {\ntemplate t(e: E) over e.s")
    code, _, err = relcrf_command(capsys, monkeypatch, "fmt", path)
    assert code == 2 and "m.rcrf:1" in err
    assert path.read_text().startswith("entity E {\n")
    code, _, err = relcrf_command(capsys, monkeypatch, "fmt", tmp_path / "none.rcrf")
    assert code == 2 and "E004" in err


def test_explain_error(capsys, monkeypatch):
    code, out, _ = relcrf_command(capsys, monkeypatch, "explain-error", "e101")
    assert code == 0 and "unknown attribute" in out and "-->" in out
    code, found = json_command(capsys, monkeypatch, "explain-error", "E201")
    assert code == 0 and found["code"] == "E201" and found["message"] == ""
    code, _, err = relcrf_command(capsys, monkeypatch, "explain-error", "E999")
    assert code == 2 and "E344" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", MODEL, "--nothing"), "no such option: --nothing"),
        (("check",), "missing argument"),
        (("plan", MODEL), "missing option '--data'"),
        (("demo", "--splits", "many"), "invalid value for '--splits'"),
        (("chek", MODEL), "no such command 'chek'"),
    ],
)
def test_invalid_command_line_raises_e300(capsys, monkeypatch, arguments, message):
    code, _, err = relcrf_command(capsys, monkeypatch, *arguments)
    assert code == 2 and "error[E300]" in err and message in err
    code, found = json_command(capsys, monkeypatch, *arguments)
    assert code == 2 and found["errors"][0]["code"] == "E300"


def test_missing_command_prints_help(capsys, monkeypatch):
    code, out, err = relcrf_command(capsys, monkeypatch)
    assert code == 2 and "Usage:" in out + err and "E300" not in out + err


def test_train_with_worker_processes(relcrf_, relcrf_json, web, tmp_path):
    code, alone = relcrf_json("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "alone")
    assert code == 0
    code, pooled = relcrf_json(
        "train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "pooled", "--workers", "2"
    )
    assert code == 0 and pooled["summary"]["forest_edges"] == alone["summary"]["forest_edges"]
    code, _, err = relcrf_(
        "train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "none", "--workers", "-1"
    )
    assert code == 2 and "E362" in err
