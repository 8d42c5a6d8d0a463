"""Updates of runs have the weights and predictions of new runs on the same tables."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import relcrf
from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.automatic_sharding import infer_with_sharding
from relcrf.backends.inference_result import JointStates
from relcrf.backends.provenance import Provenance, TrainingProtocol
from relcrf.inference.result import Verdict
from relcrf.training import TrainingRequest
from relcrf.updating.locality import global_model_reason
from relcrf.updating.state import read_state
from relcrf.updating.update import update

MODEL = """
domain Kind = { a, b, c }
domain Word = open

entity Page {
    predict kind : Kind
    words        : bag of Word
    size         : real
}
entity Site { region : Kind }

relation Link(source: Page, target: Page)
relation On(page: Page, site: Site)

template prior(p: Page) over p.kind
template word(p: Page, w: Word) where w in p.words over p.kind per w
template size(p: Page) over p.kind by p.size, count { q where Link(p, q) }
template linked(p: Page, q: Page) where Link(p, q) and p != q over p.kind, q.kind
template region(p: Page, s: Site) where On(p, s) over p.kind per s.region
"""

EXACT = {"tolerance": 1e-10, "max_iterations": 5000}


class Tables:
    """Random tables, and random changes of them."""

    folder: Path | None = None
    """Folder of Parquet files with small row groups; None for tables in memory."""

    def __init__(self, seed: int, n_pages: int = 40) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_groups = n_pages // 5
        self.kind, self.size, self.group = {}, {}, {}
        self.words, self.links, self.on = set(), set(), set()
        self.region = {f"s{g}": "abc"[g % 3] for g in range(self.n_groups)}
        for _ in range(n_pages):
            self.add_page(labelled=self.rng.random() < 0.6)
        for _ in range(n_pages // 2):
            self.add_link()

    def pick(self, values):
        ordered = sorted(values)
        return ordered[self.rng.integers(len(ordered))]

    def add_page(self, *, labelled: bool) -> str:
        name = f"p{len(self.size) + self.rng.integers(10**6)}"
        group = int(self.rng.integers(self.n_groups))
        kind = str(self.rng.choice(list("abc")))
        self.kind[name] = kind if labelled else None
        self.size[name], self.group[name] = float(self.rng.normal() + "abc".index(kind)), group
        for _ in range(3):
            self.words.add((name, f"{kind if self.rng.random() < 0.5 else 'x'}{self.rng.integers(6)}"))
        if self.rng.random() < 0.8:
            self.on.add((name, f"s{group}"))
        return name

    def add_link(self, page: str | None = None) -> None:
        page = page or self.pick(self.size)
        other = self.pick(p for p in self.size if self.group[p] == self.group[page])
        self.links.add((page, other))

    def remove_page(self) -> None:
        page = self.pick(self.size)
        for column in (self.kind, self.size, self.group):
            del column[page]
        for name in ("words", "links", "on"):
            setattr(self, name, {row for row in getattr(self, name) if page not in row})

    def change(self, what: str) -> None:
        unlabelled = [page for page in self.size if self.kind[page] is None]
        match what:
            case "page":
                self.add_link(self.add_page(labelled=False))
            case "labelled page":
                self.add_link(self.add_page(labelled=True))
            case "removed page":
                self.remove_page()
            case "link":
                self.add_link()
            case "removed link" if self.links:
                self.links.remove(self.pick(self.links))
            case "label" if unlabelled:
                self.kind[self.pick(unlabelled)] = "b"
            case "changed label":
                self.kind[self.pick(set(self.size) - set(unlabelled))] = "c"
            case "word":
                self.words.add((self.pick(unlabelled or self.size), f"new{self.rng.integers(5)}"))
            case "size":
                self.size[self.pick(unlabelled or self.size)] += 0.5

    def dataset(self) -> relcrf.Dataset:
        pages = list(self.size)
        if self.folder is None:
            self.rng.shuffle(pages)
        columns = {
            "page": {"id": pages, "kind": [self.kind[p] for p in pages], "size": [self.size[p] for p in pages]},
            "site": {"id": list(self.region), "region": list(self.region.values())},
        }
        for name, rows, names in (
            ("page_words", self.words, ("page", "word")),
            ("link", self.links, ("source", "target")),
            ("on", self.on, ("page", "site")),
        ):
            ordered = sorted(rows)
            columns[name] = {column: [row[k] for row in ordered] for k, column in enumerate(names)}
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True)
            for name, table in columns.items():
                pq.write_table(pa.table(table), self.folder / f"{name}.parquet", row_group_size=10)
            return relcrf.Dataset(self.folder)
        return relcrf.Dataset({n: {c: np.array(v, dtype=object) for c, v in t.items()} for n, t in columns.items()})


CHANGES = ("page", "labelled page", "removed page", "link", "removed link", "label", "changed label", "word", "size")


def train(model, dataset, folder: Path | None, backend: str, settings, protocol=None):
    """Train as `relcrf train` does, and predict; write the run if a folder is given."""
    request = TrainingRequest(model.spec, backend, settings, dataset, protocol or TrainingProtocol())
    training = request.ground()
    learned = training.run()
    if folder is not None:
        provenance = Provenance.collect(training.identity, request.protocol, training.grounding.bound)
        run_folder.save(learned, folder, {}, provenance=provenance, sync=False)
    fit = api.Fit(learned)
    return fit, fit.predict(dataset)


def named(learned) -> dict:
    """Return the weights that are not at their initial value of 0, by template, key, feature and state."""
    frame = api.Fit(learned).weights()
    names = [name for name in frame.columns if name in ("template", "key", "feature", "pattern", "states")]
    values = zip(*(frame[name].tolist() for name in names), frame["weight"].tolist(), strict=True)
    return {row[:-1]: row[-1] for row in values if row[-1] != 0.0}


def require_equal(updated, fit, predicted, tolerance=1e-6) -> None:
    ours, theirs = named(updated.learned), named(fit.learned)
    assert max(abs(ours.get(key, 0.0) - theirs.get(key, 0.0)) for key in {*ours, *theirs, ()}) < tolerance
    for name, table in updated.tables.items():
        expected = predicted.table(name)
        assert list(table.columns) == list(expected.columns)
        assert table["id"].tolist() == expected["id"].tolist()
        for column in expected.columns:
            if column.startswith("p_"):
                assert np.abs(table[column] - expected[column]).max(initial=0.0) < tolerance


BACKENDS = {
    "local": EXACT,
    "pseudo": EXACT,
    "dense": {**EXACT, "inference": "jt"},
    "ess": EXACT,
    "chow-liu": EXACT,
}


def order_changes(rng, n_at_once) -> list[list[str]]:
    """Return the changes of successive updates: a page without a label, and then all others in random order."""
    return [["page"], *rng.permutation(CHANGES[1:]).reshape(-1, n_at_once).tolist()]


def require_equal_after_changes(run, model, backend, settings, seed, n_at_once=4, folder=None) -> None:
    """Update a new run several times after random changes, and compare each update with a new run."""
    tables = Tables(seed)
    tables.folder = folder
    train(model, tables.dataset(), run, backend, settings)
    update(run, tables.dataset()).save(run, force=True, sync=False)
    for changes in order_changes(np.random.default_rng(seed), n_at_once):
        for what in changes:
            tables.change(what)
        dataset = tables.dataset()
        updated = update(run, dataset)
        require_equal(updated, *train(model, dataset, None, backend, settings))
        updated.save(run, force=True, sync=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_updates_equal_new_runs(tmp_path, backend):
    """Each backend has other tables, and every kind of change."""
    seed, n_at_once = list(BACKENDS).index(backend), 2 if backend == "dense" else 4
    require_equal_after_changes(tmp_path / "run", relcrf.parse(MODEL), backend, BACKENDS[backend], seed, n_at_once)


def test_updates_from_row_groups_equal_new_runs(tmp_path):
    run = tmp_path / "run"
    require_equal_after_changes(run, relcrf.parse(MODEL), "dense", BACKENDS["dense"], 5, folder=tmp_path / "data")
    assert {"page", "link"} <= read_state(run).components.segments.keys()


TEMPLATES = (
    "template bagged(p: Page) over p.kind by p.words",
    "template mates(p: Page, q: Page, s: Site) where On(p, s) and On(q, s) and p < q over p.kind, q.kind per s.region",
    "template either(p: Page, q: Page, s: Site) where Link(p, q) and On(q, s) over p.kind == q.kind or s.region == a",
    "template per_site(p: Page, s: Site) where On(p, s) over p.kind per s",
    "template lonely(p: Page) where not exists { q where Link(p, q) } over p.kind",
    "derive near(p: Page, q: Page) where Link(p, q) or Link(q, p)\n"
    "template near(p: Page, q: Page) where near(p, q) and p < q over p.kind, q.kind weights shared\n"
    "template back(p: Page, q: Page) where Link(q, p) and p != q over p.kind, q.kind weights shared",
)


@pytest.mark.parametrize("templates", [TEMPLATES[::2], TEMPLATES[1::2]], ids=["even", "odd"])
def test_updates_of_other_templates_equal_new_runs(tmp_path, templates):
    for template in templates:
        assert global_model_reason(relcrf.parse(f"{MODEL}\n{template}\n").spec) == ""
    model = relcrf.parse("\n".join([MODEL, *templates]))
    require_equal_after_changes(tmp_path / "run", model, "dense", BACKENDS["dense"], 0)


def test_belief_propagation(tmp_path):
    """Components that propagation infers separately converge to its tolerance."""
    model, tables, run = relcrf.parse(MODEL), Tables(6), tmp_path / "run"
    train(model, tables.dataset(), run, "dense", EXACT)
    update(run, tables.dataset()).save(run, force=True, sync=False)
    tables.change("page")
    dataset = tables.dataset()
    updated = update(run, dataset)
    assert updated.report.weights == "kept" and updated.report.kept > 0
    require_equal(updated, *train(model, dataset, None, "dense", EXACT), tolerance=1e-5)


@pytest.mark.parametrize("backend", ["propagate", "smooth", "gated"])
def test_other_backends_learn_again(tmp_path, backend):
    """Backends without separate components ground, learn and infer as a new run does."""
    model, tables, run = relcrf.parse(MODEL), Tables(3), tmp_path / "run"
    train(model, tables.dataset(), run, backend, {})
    for what in ("page", "labelled page"):
        tables.change(what)
    dataset = tables.dataset()
    updated = update(run, dataset)
    assert updated.report.weights == "learned"
    assert "learn from each component separately" in updated.report.reason
    require_equal(updated, *train(model, dataset, None, backend, {}))


GLOBAL_MODELS = {
    "standardise may depend on all rows": MODEL.replace("by p.size,", "by standardise(p.size),"),
    "tfidf may depend on all rows": MODEL + "template idf(p: Page) over p.kind by tfidf(p.words)\n",
    "the values of 'kind' are read from the data": MODEL.replace("domain Kind = { a, b, c }", "domain Kind = open"),
    "no row connects the entities of 'near'": MODEL
    + "template near(p: Page, q: Page) where p < q and abs(p.size - q.size) < 0.05 over p.kind, q.kind\n",
    "no row connects the entities of 'total'": MODEL
    + "template total(p: Page) over p.kind by count { q where On(q, s) }\n",
    "'twins' predicts tuples": MODEL
    + "predict relation twins(p: Page, q: Page) where Link(p, q) and p != q\ntemplate twin(p: Page, q: Page) over twins(p, q)\n",
    "'group' is latent": MODEL.replace("predict kind : Kind", "predict kind : Kind\n    latent group : 1..2")
    + "template grouped(p: Page) over p.kind, p.group\n",
}


@pytest.mark.parametrize("reason", GLOBAL_MODELS)
def test_models_with_global_values(tmp_path, reason):
    """Rows without labels change statistics, values or neighbours elsewhere, so everything is grounded again."""
    model, tables, run = relcrf.parse(GLOBAL_MODELS[reason]), Tables(5, n_pages=30), tmp_path / "run"
    settings = {**EXACT, "inference": "jt"} if "latent" not in reason else {"inference": "jt"}
    train(model, tables.dataset(), run, "dense", settings)
    update(run, tables.dataset()).save(run, force=True, sync=False)
    for what in ("page", "size", "link"):
        tables.change(what)
    dataset = tables.dataset()
    updated = update(run, dataset)
    assert reason in updated.report.reason
    fit, predicted = train(model, dataset, None, "dense", settings)
    ours, theirs = named(updated.learned), named(fit.learned)
    assert max(abs(ours.get(key, 0.0) - theirs.get(key, 0.0)) for key in {*ours, *theirs, ()}) < 1e-6
    for name, table in updated.tables.items():
        for column in (column for column in table.columns if column.startswith("p_")):
            assert np.abs(table[column] - predicted.table(name)[column]).max(initial=0.0) < 1e-6


def train_and_update(folder, backend, table_folder=None):
    """Return a run with the state of its first update, its model, and its tables."""
    model, tables, run = relcrf.parse(MODEL), Tables(1), folder / "run"
    tables.folder = table_folder
    train(model, tables.dataset(), run, backend, EXACT)
    update(run, tables.dataset()).save(run, force=True, sync=False)
    return run, model, tables


def copy_run(trained, folder):
    run, model, tables = trained
    return shutil.copytree(run, folder / "run"), model, copy.deepcopy(tables)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    return train_and_update(tmp_path_factory.mktemp("trained"), "ess")


@pytest.fixture
def trained(trained_once, tmp_path):
    """A run with the state of its first update, its model, and its tables."""
    return copy_run(trained_once, tmp_path)


@pytest.fixture(scope="module")
def trained_once_from_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained_from_files")
    return train_and_update(folder, "local", folder / "data")


@pytest.fixture
def trained_from_files(trained_once_from_files, tmp_path):
    """A run with the state of its first update, its model, and its tables, which are in files."""
    return copy_run(trained_once_from_files, tmp_path)


def test_first_update_keeps_the_weights(tmp_path):
    model, tables, run = relcrf.parse(MODEL), Tables(1), tmp_path / "run"
    fit, predicted = train(model, tables.dataset(), run, "ess", {})
    updated = update(run, tables.dataset())
    assert updated.report.weights == "kept"
    assert np.array_equal(updated.learned.vectors["weights"], fit.learned.vectors["weights"])
    assert updated.report.inferred == len(predicted.table())


def test_unchanged_rows(trained):
    run, _, tables = trained
    before = run_folder.manifest_hashes(run)
    updated = update(run, tables.dataset())
    assert updated.report.inferred == 0
    assert updated.report.entities["grounded"] == 0
    updated.save(run, force=True, sync=False)
    assert run_folder.manifest_hashes(run) == before


def test_only_changed_components_are_grounded(trained):
    run, _, tables = trained
    tables.change("page")
    updated = update(run, tables.dataset())
    report = updated.report
    assert report.weights == "kept" and report.reason == ""
    assert report.entities["added"] == 1
    assert 0 < report.entities["grounded"] < report.entities["total"] / 2
    assert 0 < report.inferred < report.kept
    assert report.rows["page"] == (40, 41)


def test_labels_are_learned_from_the_weights_of_the_run(trained):
    run, model, tables = trained
    tables.change("label")
    dataset = tables.dataset()
    updated = update(run, dataset)
    assert updated.report.weights == "warm start"
    assert "labels changed" in updated.report.reason
    assert updated.report.weight_change > 0
    fit, _ = train(model, dataset, None, "ess", EXACT)
    steps = [model.summary["weights_iterations"] for model in (updated.learned, fit.learned)]
    assert steps[0] <= steps[1]


def test_runs_with_calibration_and_held_out_labels(tmp_path):
    model, tables = relcrf.parse(MODEL), Tables(2)
    protocol = TrainingProtocol(calibrate=3, split="hide=0.2")
    train(model, tables.dataset(), tmp_path / "run", "local", EXACT, protocol)
    tables.change("page")
    dataset = tables.dataset()
    updated = update(tmp_path / "run", dataset)
    assert updated.report.reason == "the run holds out labels"
    require_equal(updated, *train(model, dataset, None, "local", EXACT, protocol))


def test_auto_keeps_its_choice(tmp_path):
    model, tables, run = relcrf.parse(MODEL), Tables(4), tmp_path / "run"
    fit, _ = train(model, tables.dataset(), run, "auto", {})
    tables.change("label")
    updated = update(run, tables.dataset())
    assert updated.learned.backend == fit.learned.backend
    assert updated.learned.settings == fit.learned.settings
    assert not updated.learned.trials


def test_run_without_provenance(tmp_path):
    tables = Tables(1)
    relcrf.parse(MODEL).fit(tables.dataset(), "local").save(tmp_path / "run")
    with pytest.raises(relcrf.UsageError, match="E430"):
        update(tmp_path / "run", tables.dataset())


def test_missing_table(trained):
    run, _, tables = trained
    dataset = tables.dataset()
    del dataset.tables["link"]
    with pytest.raises(relcrf.DataError, match="Link"):
        update(run, dataset)


def test_invalid_row_is_reported_as_in_training(trained):
    run, model, tables = trained
    tables.links.add((tables.pick(tables.size), "unknown"))
    dataset = tables.dataset()
    messages = []
    for call in (lambda: update(run, dataset), lambda: model.fit(dataset, "local")):
        with pytest.raises(relcrf.DataError) as caught:
            call()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_unchanged_row_groups(trained_from_files):
    """An update without changes keeps the segments: the run folder remains the same."""
    run, _, tables = trained_from_files
    before = run_folder.manifest_hashes(run)
    assert {"segment_entities.npy", "segment_totals.npy"} <= before.keys()
    update(run, tables.dataset()).save(run, force=True, sync=False)
    assert run_folder.manifest_hashes(run) == before


def test_file_that_changes_during_an_update_has_no_segments(tmp_path):
    model, tables, run = relcrf.parse(MODEL), Tables(1), tmp_path / "run"
    tables.folder = tmp_path / "data"
    train(model, tables.dataset(), run, "local", EXACT)
    dataset = tables.dataset()
    (tables.folder / "link.parquet").touch()
    assert not update(run, dataset).state.components.segments


@pytest.mark.parametrize(
    "name", ["update.json", "entities.parquet", "predicted_0.npy", "segment_entities.npy", "segment_totals.npy"]
)
def test_damaged_state(trained_from_files, name):
    run, _, tables = trained_from_files
    (run / name).write_bytes(b"damaged")
    with pytest.raises(relcrf.DataError, match="E336"):
        update(run, tables.dataset())


def test_interrupted_update_keeps_the_run(trained, monkeypatch):
    run, _, tables = trained
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    tables.change("page")

    def infer_with_interrupted_search(*arguments):
        found = JointStates(np.empty(0, dtype=np.int32), Verdict("interrupted"))
        return replace(infer_with_sharding(*arguments), find_joint_states=lambda: found)

    with monkeypatch.context() as patched:
        patched.setattr("relcrf.updating.update.infer_with_sharding", infer_with_interrupted_search)
        with pytest.raises(KeyboardInterrupt):
            update(run, tables.dataset())
    updated = update(run, tables.dataset())
    assert (updated.report.verdict, updated.report.joint_verdict) == ("exact", "exact")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_folder, "replace_folder", interrupt)
        with pytest.raises(KeyboardInterrupt):
            updated.save(run, force=True, sync=False)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    updated.save(run, force=True, sync=False)
    assert update(run, tables.dataset()).report.inferred == 0


def test_existing_folder_is_not_replaced(trained):
    run, _, tables = trained
    with pytest.raises(relcrf.UsageError, match="E330"):
        update(run, tables.dataset()).save(run)
