"""Tests of `trmrf`'s histograms of errors and signals against NumPy on a small world, and of histograms alone."""

import numpy as np
import pytest
from scipy.special import expit

import relcrf
from relcrf import api
from relcrf.learning.histogram import Histogram

ROWS, TRAITS = 47, 5
"""A prime number of entities, so that no mean is at the edge of a bin."""
MODEL = """
domain Trait = open
entity Thing
predict relation has(x: Thing, t: Trait)
template prior(x: Thing, t: Trait) over has(x, t) per t
candidates together(x: Thing, s: Trait, t: Trait) where s < t over has(x, s) and has(x, t) per s, t
"""


@pytest.fixture(scope="module")
def world():
    """Return which entity has which trait, shape (ROWS, TRAITS), and its ground graph."""
    rng = np.random.default_rng(3)
    cause = rng.random((ROWS, 1)) < 0.5
    holds = np.where(rng.random((ROWS, TRAITS)) < 0.8, cause, rng.random((ROWS, TRAITS)) < 0.3)
    cells = [(f"x{r}", f"t{t}", bool(holds[r, t])) for r in range(ROWS) for t in range(TRAITS)]
    x, t, value = map(list, zip(*cells, strict=True))
    model = relcrf.parse(MODEL)
    tables = {"thing": {"id": [f"x{r}" for r in range(ROWS)]}, "has": {"x": x, "t": t, "value": value}}
    return holds.astype(float), model, model.ground(relcrf.Dataset(tables))


def same(found, values, threshold):
    """Return True if a histogram contains these values, each once for each side of the space."""
    np.testing.assert_array_equal(found.counts, 2 * np.histogram(values, found.edges)[0])
    assert (found.threshold, found.n_beyond) == (threshold, 2 * int((np.abs(values) > threshold).sum()))


def test_errors_and_signals_of_every_cell(world):
    holds, model, grounding = world
    settings = {"l1": 0.5, "l2": 0.0, "tolerance": 1e-7, "error_threshold": 0.3, "signal_threshold": 0.4}
    fit = api.fit(model, grounding, "trmrf", **settings)
    assert fit.summary["chosen"] > 2
    figures = fit.learned.histograms
    means = holds.mean(axis=0)
    for found in figures["signals"].values():
        same(found, holds - means, 0.4)
    first, last = (figures["errors"][when] for when in ("before candidates are added", "at the end"))
    same(first, np.broadcast_to(means, holds.shape) - holds, 0.3)
    frame = fit.weights()
    prior, pairs = np.zeros(TRAITS), np.zeros((TRAITS, TRAITS))
    for template, key, weight in zip(frame["template"], frame["key"], frame["weight"], strict=True):
        places = tuple(int(name[1:]) for name in key.split(", "))
        if template == "prior":
            prior[places] = weight
        else:
            pairs[places] = pairs[places[::-1]] = weight
    same(last, expit(prior + holds @ pairs) - holds, 0.3)
    assert last.n_beyond < first.n_beyond


@pytest.mark.parametrize("structure", ["grafting", "full"])
def test_unused_thresholds_are_omitted(world, structure):
    _, model, grounding = world
    figures = api.fit(model, grounding, "trmrf", structure=structure, l1=2.0).learned.histograms
    for found in (*figures["errors"].values(), *figures["signals"].values()):
        assert (found.threshold, found.n_beyond, found.total) == (None, 0, 2 * ROWS * TRAITS)


def test_contrastive_divergence_has_histograms(world):
    _, model, grounding = world
    figures = api.fit(model, grounding, "trmrf", objective="cd", l1=2.0, max_iterations=30).learned.histograms
    assert figures["errors"]["at the end"].total == 2 * ROWS * TRAITS
    # Its signals are means of the labels and of the updated distributions, so they change.
    before, after = figures["signals"].values()
    assert (before.counts != after.counts).any()


def test_run_folder_stores_histograms(world, tmp_path):
    _, model, grounding = world
    fit = api.fit(model, grounding, "trmrf", l1=2.0)
    fit.save(tmp_path / "run")
    again = api.load_fit(tmp_path / "run").learned.histograms
    for figure, histograms in fit.learned.histograms.items():
        for name, found in histograms.items():
            assert found.as_dict() == again[figure][name].as_dict()
    fit = api.fit(model, grounding, "local")
    assert fit.learned.histograms == {}
    fit.save(tmp_path / "local")
    assert not (tmp_path / "local" / "histograms.json").exists()


def test_histogram_counts_all_chunks():
    parts = [np.array([-1.0, 0.1, 1.0 + 1e-12]), np.array([0.3, -0.3])]
    found = Histogram.from_chunks(parts, np.array([-1.0, 0.0, 0.2, 1.0]), 0.25)
    assert (found.counts.tolist(), found.total, found.n_beyond) == ([2, 1, 2], 5, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"edges": [0, 0, 1]},
        {"edges": [0, 1]},
        {"counts": [-1, 2]},
        {"n_beyond": 9},
        {"threshold": "much"},
        {"edges": [0, 1, 1e308]},
    ],
)
def test_invalid_histograms_raise_error(changes):
    plain = {"edges": [0, 0.5, 1], "counts": [1, 2], "threshold": 0.5, "n_beyond": 1}
    assert Histogram.from_dict(plain).total == 3
    with pytest.raises(ValueError):
        Histogram.from_dict({**plain, **changes})
