"""Tests of the backend `pseudo`: its two kinds of inference, and rejected input."""

import re

import numpy as np
import pandas as pd
import pytest
from tables import small_web

import relcrf
from relcrf import api
from relcrf.backends.memory_needs import problem_memory
from relcrf.backends.registry import make_backend
from relcrf.errors import UsageError
from relcrf.graph import edge_classes, scopes
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return relcrf.Dataset(small_web(tmp_path_factory.mktemp("web")))


@pytest.fixture(scope="module")
def model():
    return relcrf.load(resource_path("models", "webkb.rcrf"))


def test_mean_field_and_sampling_agree(web, model):
    gibbs, field = (model.fit(web, "pseudo", inference=name).predict(web) for name in ("gibbs", "mf"))
    assert gibbs.inferred.verdict.is_good and field.inferred.verdict.is_good
    np.testing.assert_allclose(gibbs.probabilities(), field.probabilities(), atol=0.2)
    assert (gibbs.probabilities() != field.probabilities()).any()
    assert np.isnan(gibbs.inferred.log_partition) and np.isfinite(field.inferred.log_partition)


def test_unknown_inference_raises_before_work(web, model):
    with pytest.raises(UsageError, match=r"E305[\s\S]*cannot be 'gibs'[\s\S]*gibbs"):
        model.fit(web, "pseudo", inference="gibs")


def test_tables_beyond_memory_raise_error(web, model, monkeypatch):
    fit = model.fit(web, "pseudo")
    monkeypatch.setattr(scopes, "MAX_TABLE_CELLS", 10)
    with pytest.raises(UsageError, match=r"E308[\s\S]*'pseudo'[\s\S]*more than 10 cells"):
        fit.predict(web)


LINKED = """
entity Page {
    predict topic : 1..3
    size : real
}
relation Link(source: Page, target: Page)
template sizes(p: Page)
    over p.topic
    by   1, p.size
template linked(a: Page, b: Page)
    where Link(a, b)
    over  a.topic, b.topic
"""


def linked_pages(n, spread=1.0):
    """Return pages with random links, whose sizes depend on their topics."""
    rng = np.random.default_rng(0)
    topic = rng.integers(3, size=n)
    links = rng.integers(n, size=(3 * n, 2))
    links = links[
        (links[:, 0] != links[:, 1]) & ((topic[links[:, 0]] == topic[links[:, 1]]) | (rng.random(3 * n) < 0.4))
    ]
    page = pd.DataFrame({"id": np.arange(n), "topic": topic + 1, "size": rng.normal(topic, spread)})
    return relcrf.Dataset({"page": page, "link": pd.DataFrame(links, columns=["source", "target"])})


@pytest.mark.parametrize("backend", ["pseudo", "dense"])
def test_equal_tables_count_once(monkeypatch, backend):
    """With a limit that separate tables exceed, learning and prediction do not change; other methods raise E308."""
    model = relcrf.parse(LINKED)
    grounding = model.ground(linked_pages(200))
    hidden = np.ones(200, dtype=bool)
    wanted = api.predict(api.fit(model, grounding, backend), grounding, hidden=hidden, inference="bp")
    monkeypatch.setattr(edge_classes, "MIN_CLASSIFIED_EDGES", 1)
    monkeypatch.setattr(scopes, "MAX_TABLE_CELLS", 100)
    fit = api.fit(model, grounding, backend)
    for inference in ("bp", "auto"):
        found = api.predict(fit, grounding, hidden=hidden, inference=inference)
        np.testing.assert_allclose(found.probabilities(), wanted.probabilities(), atol=1e-6)
        with pytest.raises(UsageError, match=r"E308[\s\S]*joint states[\s\S]*more than 100 cells"):
            _ = found.inferred.map_states
    with pytest.raises(UsageError, match=rf"E308[\s\S]*'{backend}'[\s\S]*more than 100 cells"):
        api.predict(fit, grounding, hidden=hidden, inference="mf")


def test_separate_tables_of_log_messages_raise_error(monkeypatch):
    """Large weights need messages in logs, for which each factor has a table."""
    model = relcrf.parse(LINKED)
    grounding = model.ground(linked_pages(200))
    monkeypatch.setattr(edge_classes, "MIN_CLASSIFIED_EDGES", 1)
    fit = api.fit(model, grounding, "pseudo", inference="bp")
    fit.learned.vectors["weights"][-9:] *= 1000.0
    monkeypatch.setattr(scopes, "MAX_TABLE_CELLS", 100)
    with pytest.raises(UsageError, match=r"E308[\s\S]*'pseudo'[\s\S]*more than 100 cells"):
        api.predict(fit, grounding, hidden=np.ones(200, dtype=bool))


@pytest.mark.parametrize(
    ("backend", "settings", "part"),
    [
        ("pseudo", {}, "messages of 'linked'"),
        ("pseudo", {"inference": "mf"}, r"tables of 'linked' \("),
        ("pseudo", {"device": "gpu"}, r"tables of 'linked' \("),
        ("dense", {}, "messages of 'linked'"),
        ("dense", {"objective": "piecewise"}, r"tables of 'linked' \("),
        ("ess", {}, "messages of 'linked'"),
        ("ess", {"treewidth": 2}, r"tables of 'linked' \("),
    ],
)
def test_memory_of_shared_tables(backend, settings, part):
    problem = api.training_problem(relcrf.parse(LINKED).ground(linked_pages(200)))
    uses = problem_memory(problem, make_backend(backend, **settings), learning=False)
    (found,) = (use for use in uses if re.match(part, use.name))
    n_links = problem.graph.groups[-1].n_factors
    assert found.n_bytes == n_links * (8 * 9 * 10 if part.startswith("tables") else 128 + 16 * 6)
