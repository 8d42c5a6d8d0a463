"""Tests of the promise of `--memory`: estimates include every large array, and what does not fit is rejected, not killed."""

import json
import re
import subprocess
import sys
import tracemalloc

import duckdb
import numpy as np
import pytest

import relcrf
from relcrf.columns import texts
from relcrf.columns.storage import Storage
from relcrf.columns.texts import StoredTexts, TextRows, store_texts
from relcrf.data import column_coder
from relcrf.data.store import report_read_errors
from relcrf.errors import UsageError
from relcrf.execution import memory

LABELS = """domain Label = open
entity Page { a: real  predict label: Label }
template prior(p: Page) over p.label
template feat(p: Page) over p.label by p.a
"""
LINKED = LABELS.replace("\ntemplate prior", "\nrelation Link(p: Page, q: Page)\ntemplate prior")
WORDS = """domain Word = open
entity Page { w: Word  predict flag: bool }
template feat(p: Page) over p.flag per p.w
"""


def write_pages(folder, n_rows, n_labels):
    folder.mkdir()
    rows = (f"{k},{k % 7},L{k % n_labels}\n" for k in range(n_rows))
    (folder / "page.csv").write_text("id,a,label\n" + "".join(rows))
    model = folder.parent / "model.rcrf"
    model.write_text(LABELS)
    return model, folder


def test_plan_counts_classes_times_variables(relcrf_, tmp_path):
    model, data = write_pages(tmp_path / "data", 3000, 3000)
    code, out, _ = relcrf_("plan", model, "--data", data, "--memory", "100MB")
    size, unit = re.search(r"needs about ([\d.]+) (\w+) of memory", out).groups()
    needed = float(size) * {"MiB": 2**20, "GiB": 2**30}[unit]
    assert code == 0 and needed >= 5 * 8 * 3000 * 3000, "five arrays with a number for each variable and class"
    assert "9,000,000 states" in out and "works in shards" in out


@pytest.mark.parametrize("backend", ["auto", "local", "ess", "pseudo", "dense", "smooth", "gated", "trmrf", "grafting"])
def test_every_backend_counts_the_states(backend):
    from relcrf.backends.memory_needs import problem_memory
    from relcrf.backends.registry import make_backend

    model = relcrf.parse(LABELS)
    table = {"id": np.arange(40), "a": np.arange(40.0), "label": [f"L{k}" for k in range(40)]}
    problem = relcrf.api.training_problem(model.ground(relcrf.Dataset({"page": table})))
    for learning in (False, True):
        uses = problem_memory(problem, make_backend(backend), learning=learning)
        (states,) = (use for use in uses if "1,600 states" in use.name)
        assert states.n_bytes >= 8 * 40 * 40


def test_explicit_limit_rejects_connected_variables(relcrf_, tmp_path, monkeypatch):
    model, data = write_pages(tmp_path / "data", 300, 100)
    model.write_text(LINKED + "template link(p: Page, q: Page) where Link(p, q) over p.label, q.label\n")
    (data / "link.csv").write_text("p,q\n" + "".join(f"{k},{k + 1}\n" for k in range(299)))
    monkeypatch.setattr(memory, "MIN_LIMIT", 0)
    train = ("train", model, "--data", data, "--backend", "ess", "--out", tmp_path / "run", "-s", "max_iterations=1")
    code, _, err = relcrf_(*train, "--memory", "20MB")
    assert (code, err.count("error["), "E435" in err, "--memory allows" in err) == (2, 1, True, True), err
    assert not (tmp_path / "run").exists()
    assert relcrf_(*train, "--memory", "1GB")[0] in (0, 4)


def test_automatic_backend_names_what_does_not_fit(monkeypatch):
    model = relcrf.parse(LINKED + "template link(p: Page, q: Page) where Link(p, q) over p.label, q.label\n")
    n, k = 60, 12
    pages = {"id": np.arange(n), "a": np.arange(n) % 5.0, "label": [f"L{i % k}" for i in range(n)]}
    links = {"p": np.arange(n - 1), "q": np.arange(1, n)}
    grounding = model.ground(relcrf.Dataset({"page": pages, "link": links}))
    from relcrf.evaluation import automatic

    def require(uses, operation, limit=None):
        if operation == "backend 'ess'":
            memory.require_memory(uses, operation, 0)

    monkeypatch.setattr(automatic, "require_memory", require)
    monkeypatch.setattr(memory, "MIN_LIMIT", 0)
    learned = relcrf.api.fit(model, grounding, "auto").learned
    rejected = [trial["rejected"] for trial in learned.trials if trial["backend"] == "ess"]
    assert rejected and all("backend 'ess' would take about" in reason for reason in rejected)
    assert learned.backend != "ess"


@pytest.mark.parametrize("over", ["p.label == q.label", "symmetric p.label, q.label"])
def test_huge_domain_with_pairs_is_rejected(over, relcrf_, tmp_path, monkeypatch):
    model, data = write_pages(tmp_path / "data", 1200, 1200)
    model.write_text(LINKED + f"template link(p: Page, q: Page) where Link(p, q) over {over}\n")
    (data / "link.csv").write_text("p,q\n0,1\n")
    monkeypatch.setattr(memory, "MIN_LIMIT", 0)
    for command in ("plan", "ground"):
        code, _, err = relcrf_(command, model, "--data", data, "--memory", "40MB")
        assert (code, "E435" in err, "joint states of 'link' (1,200 x 1,200)" in err) == (2, True, True), err


def test_memory_error_names_the_largest_part(relcrf_, tmp_path, monkeypatch):
    from relcrf.backends.local import LocalBackend

    def fail(self, problem, monitor):
        raise MemoryError("Unable to allocate 625. MiB for an array")

    monkeypatch.setattr(LocalBackend, "fit", fail)
    model, data = write_pages(tmp_path / "data", 60, 30)
    code, out, err = relcrf_("train", model, "--data", data, "--backend", "local", "--out", tmp_path / "run")
    assert (code, err.count("error["), "E435" in err) == (2, 1, True)
    assert "unable to allocate 625. MiB" in err and "probabilities of 60 variables with 1,800 states" in err
    assert "bug" not in out + err and not (tmp_path / "run").exists()


def test_process_limit_ends_in_an_error(tmp_path):
    """Under `ulimit -v`, the estimate of learning exceeds what the process may still allocate."""
    model, data = write_pages(tmp_path / "data", 4000, 4000)
    limited = (
        "import psutil, resource, relcrf.api; from relcrf.cli.main import run; "
        "resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 1_000_000_000,) * 2); run()"
    )
    arguments = ("train", model, "--data", data, "--backend", "gated", "--out", tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-c", limited, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, "E435" in done.stderr) == (2, True), done.stderr
    assert "bug" not in done.stderr


def test_release_of_buffers_keeps_the_tables():
    store = relcrf.Dataset({"page": {"id": np.arange(100_000)}}, memory="60MB").store
    store.connection.execute("CREATE TABLE numbers AS SELECT i FROM range(1_000_000) AS t(i)")
    before = store.connection.execute("SELECT current_setting('memory_limit')").fetchall()
    store.release_buffers()
    assert store.connection.execute("SELECT current_setting('memory_limit')").fetchall() == before
    assert store.connection.execute("SELECT sum(i) FROM numbers").fetchall() == [(499_999_500_000,)]
    ((used,),) = store.connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
    assert used <= 60_000_000


@pytest.mark.parametrize("max_bytes", [0, 1 << 20])
def test_stored_texts_equal_a_tuple(tmp_path, monkeypatch, max_bytes):
    monkeypatch.setattr(texts, "MAX_HELD_TEXTS", 2)
    monkeypatch.setattr(texts, "BLOCK_TEXTS", 3)
    words = ("", "a", "Ärger", "日本", "b" * 50, "a", "z")
    batches = [np.array(words[:4], dtype=object), np.array(words[4:], dtype=object)]
    stored = store_texts(batches, len(words), Storage(tmp_path, max_bytes))
    assert isinstance(stored, StoredTexts) and (list(tmp_path.iterdir()) == []) == (max_bytes > 0)
    assert tuple(stored) == words == stored and stored == stored[:] and hash(stored) == hash(stored[:])
    assert (stored != words[1:], stored == ["a"], stored[-1], stored[2]) == (True, False, "z", "Ärger")
    assert [*stored[2:5]] == [*words[2:5]] and [*stored[::2]] == [*words[::2]] and [*stored[5:2]] == []
    assert ("日本" in stored, "x" in stored, stored.index("a"), stored.index("a", 2)) == (True, False, 1, 5)
    with pytest.raises(IndexError):
        stored[7]
    with pytest.raises(ValueError, match="not in the sequence"):
        stored.index("x")
    assert [*stored.take(np.array([6, 0, 2, 2]))] == ["z", "", "Ärger", "Ärger"]
    monkeypatch.setattr(texts, "MAX_SINGLE_READS", 1)
    assert [*stored.take(np.array([6, 0]))] == ["z", ""]
    rows = TextRows((stored, words), [np.array([1, 2, 0, 6]), np.array([0, 3, 6, 6])])
    expected = (("a", ""), ("Ärger", "日本"), ("", "z"), ("z", "z"))
    assert (tuple(rows), rows[1:3] == expected[1:3], rows == expected, rows[1]) == (expected, True, True, expected[1])
    assert json.loads(json.dumps(rows, default=list))[1] == ["Ärger", "日本"]


def test_stored_dictionaries_change_no_result(relcrf_, tmp_path, monkeypatch):
    data, model = tmp_path / "data", tmp_path / "model.rcrf"
    data.mkdir()
    rows = (f"{k},w{k * 7 % 50},{k % 3 == 0}\n" for k in range(90))
    (data / "page.csv").write_text("id,w,flag\n" + "".join(rows))
    model.write_text(WORDS + "template both(p: Page) over p.flag per p.w, p\n")
    results = []
    for name in ("held", "stored"):
        run = tmp_path / name
        assert relcrf_("train", model, "--data", data, "--backend", "local", "--out", run)[0] == 0
        shown = relcrf_("ground", model, "--data", data, "--show", "both", "--limit", "3")
        assert relcrf_("predict", run, "--data", data, "--out", run / "p.csv")[0] == 0
        results.append([(run / file).read_bytes() for file in ("dictionaries.json", "weights.npy", "p.csv")] + [shown])
        monkeypatch.setattr(texts, "MAX_HELD_TEXTS", 2)
        monkeypatch.setattr("relcrf.grounding.keys.MAX_HELD_TEXTS", 2)
        monkeypatch.setattr(column_coder, "ENUM_FRACTION", 0)
        monkeypatch.setattr("relcrf.data.binding.ENUM_FRACTION", 0)
    assert results[0] == results[1]


def test_many_words_are_not_held_as_strings(tmp_path):
    """200,000 words of 40 bytes take 20 MB as Python strings, and 10 MB in files."""
    query = "SELECT i AS id, md5(i::VARCHAR) || 'filling' AS w, true AS flag FROM range(200000) AS t(i)"
    duckdb.execute(f"COPY ({query}) TO '{tmp_path / 'page.csv'}' (HEADER)")
    dataset = relcrf.Dataset(tmp_path, memory="100MB")
    tracemalloc.start()
    try:
        grounding = relcrf.parse(WORDS).ground(dataset)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (template,) = grounding.templates
    assert len(template.keys.values) == 200_000 and template.keys.values[5] == (grounding.domains["Word"][5],)
    assert held < 12_000_000


def test_memory_estimate_rejects_before_shards_are_written(tmp_path, monkeypatch):
    model = relcrf.parse(LABELS)
    table = {"id": np.arange(40), "a": np.arange(40.0), "label": [f"L{k}" for k in range(40)]}
    grounding = model.ground(relcrf.Dataset({"page": table}, memory="20MB"))
    monkeypatch.setattr(memory, "MIN_LIMIT", 0)
    monkeypatch.setattr(grounding.bound.dataset.store, "working_bytes", 1000)
    with pytest.raises(UsageError, match="E435"):
        relcrf.api.fit(model, grounding, "local")


def test_denied_memory_of_a_reader_is_not_a_damaged_file():
    with pytest.raises(UsageError, match="E315"), report_read_errors("page.csv"):
        raise duckdb.Error("Out of Memory Error: Allocation failure")


def test_long_texts_beyond_the_limit_are_not_a_damaged_file(tmp_path):
    row = "text " * 200_000
    (tmp_path / "page.csv").write_text("id,t\n" + "".join(f"{k},{row}\n" for k in range(20)))
    with pytest.raises(UsageError, match="E315"):
        relcrf.Dataset(tmp_path, memory="10MB")
