"""Tests of `relcrf reproduce`: identical bytes for shuffled rows and any number of threads, and reports of differences."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from tables import small_web

from relcrf import Dataset, parse
from relcrf.backends.problems import training_problem
from relcrf.backends.provenance import file_hashes, fingerprint
from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.serial import SerialExecutor
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def shuffled(web, tmp_path_factory):
    """Return the same tables with shuffled rows."""
    folder = tmp_path_factory.mktemp("shuffled")
    for path in web.iterdir():
        pd.read_csv(path, dtype=str).sample(frac=1.0, random_state=1).to_csv(folder / path.name, index=False)
    return folder


@pytest.mark.parametrize("backend", ["local", "ess", "dense", "pseudo", "gated", "chow-liu"])
def test_row_order_does_not_affect_the_result(relcrf_, web, shuffled, tmp_path, backend):
    options = ("--backend", backend, "--split", "hide=0.2,seed=3", "--holdout", "hidden", "--set", "max_iterations=20")
    assert relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "run", *options)[0] == 0
    code, out, err = relcrf_("reproduce", tmp_path / "run", "--data", shuffled)
    assert code == 0, err
    assert "files are identical" in out


def test_calibrated_and_selected_runs_are_reproduced(relcrf_, relcrf_json, web, tmp_path):
    options = ("--calibrate", "3", "--select", "l2=0.5,2", "--set", "max_iterations=20", "--workers", "1")
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run", *options)[0] == 0
    code, found = relcrf_json("reproduce", tmp_path / "run", "--data", web)
    assert (code, found["same"], found["versions"]) == (0, True, {})
    assert set(found["files"]) >= {"weights.npy", "run.json", "log.jsonl"}


WIDE = """
import sys
import numpy as np
import relcrf
model = relcrf.parse(\"\"\"
domain W = open
domain C = {a, b}
entity T { predict c : C
words : bag of W }
relation Near(s: T, t: T)
template word(t: T, w: W) where w in t.words over t.c per w
template near(s: T, t: T) where Near(s, t) over s.c, t.c
\"\"\")
rng = np.random.default_rng(0)
n, m = 400, 40_000
bags = {"t": np.repeat(np.arange(n), 100), "word": rng.integers(m, size=100 * n)}
near = {"s": rng.integers(n, size=3 * n), "t": rng.integers(n, size=3 * n)}
data = {"t": {"id": np.arange(n), "c": rng.choice(["a", "b"], n)}, "t_words": bags, "near": near}
for backend in ("ess", "pseudo"):
    model.fit(relcrf.Dataset(data), backend=backend, max_iterations=8).save(f"{sys.argv[1]}/{backend}")
"""


def test_number_of_threads_does_not_affect_the_result(tmp_path):
    """The model has enough weights for multithreaded linear algebra."""
    found = []
    for threads in ("1", "4"):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads)}
        folder = tmp_path / threads
        subprocess.run([sys.executable, "-c", WIDE, folder], env=environment, check=True, timeout=600)
        written = [
            f"{backend}/{name}"
            for backend in ("ess", "pseudo")
            for name in ("weights.npy", "run.json", "dictionaries.json")
        ]
        found.append(file_hashes(folder, written))
    assert found[0] == found[1]


def test_changed_data_and_changed_files_are_reported(relcrf_, relcrf_json, web, tmp_path):
    data, run = tmp_path / "web", tmp_path / "run"
    shutil.copytree(web, data)
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", data, "--out", run)[0] == 0
    links = (data / "link.csv").read_text().splitlines()
    (data / "link.csv").write_text("\n".join(links[:-1]))
    code, _, err = relcrf_("reproduce", run, "--data", data)
    assert (code, err.count("error["), "E431" in err, "link changed" in err) == (3, 1, True, True)

    # A run with other weights and matching hashes, as if another machine added in another order.
    weights = np.load(run / "weights.npy")
    weights[3] += 1e-9
    np.save(run / "weights.npy", weights)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["files"] |= file_hashes(run, ["weights.npy"])
    manifest["provenance"]["versions"]["numpy"] = "1.0"
    (run / "manifest.json").write_text(json.dumps(manifest))
    code, found = relcrf_json("reproduce", run, "--data", web)
    (error,) = found["errors"]
    notes = ["weights.npy: maximum difference 1.00e-09", f"numpy: version 1.0 in the run, {np.__version__} now"]
    assert (code, error["code"], error["notes"]) == (3, "E432", notes)
    code, out, err = relcrf_("reproduce", run, "--data", web)
    assert code == 3 and "1.00e-09" in out and "numpy: version 1.0 in the run" in err and err.count("error[") == 1


def test_split_column_with_an_equals_sign(relcrf_, web, tmp_path):
    data, run = tmp_path / "web", tmp_path / "run"
    shutil.copytree(web, data)
    pages = pd.read_csv(data / "page.csv", dtype=str).rename(columns={"school": "a=b"})
    pages.to_csv(data / "page.csv", index=False)
    (data / "dataset.toml").write_text('[split]\ncolumn = "a=b"\nholdout = ["s1"]\n')
    assert (
        relcrf_("train", MODEL, "--backend", "ess", "--data", data, "--out", run, "--set", "max_iterations=3")[0] == 0
    )
    code, _, err = relcrf_("reproduce", run, "--data", data)
    assert code == 0, err
    code, _, err = relcrf_("evaluate", run, "--data", data, "--split", "column=a=b", "--holdout", "s1")
    assert code == 0, err


def test_renamed_values_are_reported(relcrf_, web, tmp_path):
    """The ground graph has equal arrays, but its codes have other values."""
    data, run = tmp_path / "web", tmp_path / "run"
    shutil.copytree(web, data)
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", data, "--out", run)[0] == 0
    words = (data / "page_words.csv").read_text()
    (data / "page_words.csv").write_text(words.replace(",x8\n", ",x8a\n").replace(",x8\r\n", ",x8a\r\n"))
    assert (data / "page_words.csv").read_text() != words
    code, _, err = relcrf_("reproduce", run, "--data", data)
    assert (code, err.count("error["), "E431" in err, "page_words changed" in err) == (3, 1, True, True)


MEANT = """
domain W = open
domain C = {a, b}
entity T { predict c : C  k : string  n : integer }
predict relation has(t: T, w: W)
template by_thing(t: T) over t.c per t
template by_text(t: T) over t.c per t.k, t.n
template words(t: T, w: W) over has(t, w) per w
candidates pairs(t: T, v: W, w: W) where v < w and t.n > 0 over has(t, v) and has(t, w) per v, w
"""


def test_fingerprint_includes_keys_and_values():
    rows = [{"id": f"t{k}", "c": "ab"[k % 2], "k": f"k{k % 3}", "n": 1 + k % 2} for k in range(6)]
    has = [{"t": f"t{k}", "w": f"w{k % 3}"} for k in range(6)]

    def identity(t=rows, has=has, text=MEANT):
        grounding = parse(text).ground(Dataset({"t": pd.DataFrame(t), "has": pd.DataFrame(has)}))
        problem = training_problem(grounding, with_candidates=True)
        return fingerprint("", "trmrf", {}, problem, grounding)

    assert identity() == identity(t=rows[::-1], has=has[::-1])
    changed = [
        identity(t=[{**row, "k": row["k"].replace("k2", "k2a")} for row in rows]),
        identity(has=[{**row, "w": row["w"].replace("w2", "w2a")} for row in has]),
        identity(
            t=[{**row, "id": row["id"].replace("t5", "t5a")} for row in rows],
            has=[{**row, "t": row["t"].replace("t5", "t5a")} for row in has],
        ),
        identity(text=MEANT.replace("t.n > 0", "t.n > 1")),
    ]
    assert len({identity(), *changed}) == 5


def test_memory_limit_of_a_stranger_is_not_used(relcrf_, web, tmp_path):
    run = tmp_path / "run"
    assert relcrf_("train", MODEL, "--backend", "local", "--data", web, "--out", run)[0] == 0
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["provenance"]["protocol"]["memory"] = "8000000TB"
    (run / "manifest.json").write_text(json.dumps(manifest))
    code, _, err = relcrf_("reproduce", run, "--data", web)
    assert code == 0 and "the run was trained with --memory 8000000TB, which exceeds the available memory" in err


def test_run_saved_from_python_raises_e430(relcrf_, web, tmp_path):
    import relcrf

    relcrf.load(MODEL).fit(relcrf.Dataset(web), "ess", max_iterations=2).save(tmp_path / "run")
    code, _, err = relcrf_("reproduce", tmp_path / "run", "--data", web)
    assert (code, "E430" in err) == (2, True)


def test_changed_file_raises_e336(relcrf_, tmp_path):
    data = small_web(tmp_path / "web")
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", data, "--out", tmp_path / "run")[0] == 0
    weights = bytearray((tmp_path / "run" / "weights.npy").read_bytes())
    weights[-3] ^= 1
    (tmp_path / "run" / "weights.npy").write_bytes(weights)
    code, _, err = relcrf_("predict", tmp_path / "run", "--data", data)
    assert (code, "E336" in err, "weights.npy" in err) == (3, True, True)


@pytest.fixture
def make_foreign_run(relcrf_, web, tmp_path):
    """Return a function that makes a run whose manifest has other options."""

    def make(**said):
        run = tmp_path / "stranger"
        if not run.exists():
            assert (
                relcrf_("train", MODEL, "--backend", "ess", "--data", web, "--out", run, "--set", "max_iterations=3")[0]
                == 0
            )
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["provenance"]["protocol"] |= said
        (run / "manifest.json").write_text(json.dumps(manifest))
        return run

    return make


def test_master_of_a_run_folder_is_not_trusted(relcrf_, web, make_foreign_run, monkeypatch):
    masters = []

    def connect(master, **_):
        masters.append(master)
        raise UsageError(Diagnostic("E361", "no Spark in this test"))

    monkeypatch.setattr("relcrf.grounding.engines.choice.require_spark", lambda: None)
    for module in ("relcrf.grounding.engines.choice", "relcrf.training"):
        monkeypatch.setattr(f"{module}.spark_session", connect)
    for master in ("spark://203.0.113.7:7077", "k8s://https://203.0.113.7", "localhost:7077", "local[99999999]", ""):
        run = make_foreign_run(spark_master=master)
        code, out, err = relcrf_("reproduce", run, "--data", web)
        assert (code, out, err.count("error["), "E424" in err, "--spark-master" in err) == (2, "", 1, True, True)
    assert not masters
    relcrf_("reproduce", make_foreign_run(spark_master="spark://203.0.113.7:7077"), "--data", web, "--spark-master", "")
    assert masters.pop() == ""
    for options, used in ((("--spark-master", "spark://mine:7077"), "spark://mine:7077"), ((), "local[2]")):
        run = make_foreign_run(spark_master="local[2]")
        code, _, err = relcrf_("reproduce", run, "--data", web, *options)
        assert (code, "E361" in err, masters.pop()) == (2, True, used)


def test_workers_of_a_run_folder_are_limited_to_the_cores(relcrf_, web, make_foreign_run, monkeypatch):
    n_workers = []
    monkeypatch.setattr("relcrf.training.PoolExecutor", lambda workers: n_workers.append(workers) or SerialExecutor())
    run = make_foreign_run(workers=10**9, memory="nonsense")
    code, _, err = relcrf_("reproduce", run, "--data", web, "--memory", "500MB")
    assert code == 0, err
    code, _, err = relcrf_("reproduce", run, "--data", web, "--memory", "500MB", "--workers", "3")
    assert code == 0, err
    assert n_workers == [os.cpu_count(), 3]
    code, _, err = relcrf_("reproduce", run, "--data", web)
    assert (code, err.count("error["), "nonsense" in err) == (2, 1, True)


def test_unused_columns_may_change(relcrf_, relcrf_json, web, tmp_path):
    run, data = tmp_path / "run", tmp_path / "web"
    shutil.copytree(web, data)
    assert (
        relcrf_("train", MODEL, "--backend", "ess", "--data", data, "--out", run, "--set", "max_iterations=2")[0] == 0
    )
    heads, *rows = (data / "page.csv").read_text().splitlines()
    (data / "page.csv").write_text("\n".join([f"{heads},colour", *(f"{row},{k}" for k, row in enumerate(rows))]))
    code, _, err = relcrf_("reproduce", run, "--data", data)
    assert code == 0 and "page changed, but not in the columns that the model reads" in err
    assert relcrf_json("reproduce", run, "--data", data)[1]["same"]
