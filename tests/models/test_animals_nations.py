"""Tests of the benchmark `animals_nations`: its folds, scores and settings, and the plans of the real tables."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
import relcrf

ROOT = Path(__file__).parents[2]
needs_data = pytest.mark.skipif(not os.environ.get("RELCRF_DATA"), reason="RELCRF_DATA is not set")


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        patch.syspath_prepend(ROOT / "datasets")
        yield importlib.import_module("animals_nations")


def test_folds_partition_the_known_cells(benchmark):
    known = np.random.default_rng(0).random(1_000) < 0.9
    parts = np.array(benchmark.folds(known))
    assert (parts.sum(axis=0) == known).all()
    assert np.ptp(parts.sum(axis=1)) <= 1
    inner = benchmark.held_out(known & ~parts[0], 0)
    assert not (inner & (parts[0] | ~known)).any()
    assert abs(int(inner.sum()) - int(parts[0].sum())) <= 1


def test_scores_of_a_small_example(benchmark):
    """The predictions in order: 0.9 true, 0.8 false, 0.7 true, 0.3 false, 0.2 true, 0.1 false."""
    probabilities = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    found = benchmark.scores(probabilities, np.array([1, 1, 1]))
    assert found["auc"] == pytest.approx(100 * (1 / 1 + 2 / 3 + 3 / 5) / 3)
    assert found["cll"] == pytest.approx(np.log([0.9, 0.2, 0.7]).mean())
    assert found["error"] == pytest.approx(100 / 3)


def test_summary_separates_the_spread_over_folds_from_that_over_partitions(benchmark):
    rows = [[{**dict.fromkeys(benchmark.MEASURES, 0.0), "auc": auc} for auc in part] for part in ([1, 3], [5, 7])]
    found = benchmark.summary(rows)
    assert found["auc"] == 4
    assert found["auc_spread"] == pytest.approx(np.std([1, 3, 5, 7], ddof=1))
    assert found["auc_partition_spread"] == pytest.approx(np.sqrt(8))
    assert benchmark.differences(found, (1.0,), 2) == [f"+3.000 ± {np.sqrt(8 * 1.5):.3f}"]


@needs_data
def test_nations_false_has_no_missing_cells(benchmark):
    unknown, false = (benchmark.TASKS[name].tables() for name in ("nations", "nations_false"))
    for name, missing in (("trait", 120), ("verb", 435)):
        assert unknown[name]["value"].isna().sum() == missing
        assert false[name]["value"].notna().all()
        assert false[name]["value"].sum() == unknown[name]["value"].sum()


@needs_data
def test_reversed_candidates_are_all_pairs_of_verbs(benchmark):
    task = benchmark.TASKS["nations_reversed"]
    planned = {t.name: (t.weights, t.bindings) for t in task.model().plan(relcrf.Dataset(task.tables()))}
    assert planned["answers"] == (1_540, 1_540 * 14 * 13)
    assert planned["mutual"] == (56, 56 * 14 * 13 // 2)


@needs_data
def test_selection_does_not_use_the_test_fold(benchmark, monkeypatch):
    """While settings are selected, the test fold is hidden and not used for evaluation."""
    task, calls = benchmark.TASKS["animals"], []
    model = task.model()
    grounding = model.ground(relcrf.Dataset(task.tables()))
    original = benchmark.run

    def watched(model, grounding, method, choice, hidden, evaluated):
        calls.append((hidden, evaluated))
        return original(model, grounding, method, choice, hidden, evaluated)

    monkeypatch.setattr(benchmark, "run", watched)
    method = benchmark.Method("local", grid={"tolerance": (1e-5, 1e-2)})
    figures = benchmark.measure(model, grounding, method, 1, 0, choose=True)
    fold = benchmark.folds(grounding.states >= 0)[0]
    *selection_calls, (hidden, evaluated) = calls
    assert len(selection_calls) == 2
    assert all((fold <= h).all() and not (fold & j).any() for h, j in selection_calls)
    assert (hidden == fold).all()
    assert (evaluated == fold).all()
    assert figures["error"] == pytest.approx(29.0, abs=4.0)


@needs_data
def test_pairs_of_nations_are_weight_keys(benchmark):
    task = benchmark.TASKS["nations_alike"]
    planned = {t.name: (t.weights, t.bindings) for t in task.model().plan(relcrf.Dataset(task.tables()))}
    assert planned["alike"] == (91, 91 * 111)
    assert planned["alike_as_subjects"] == planned["alike_as_objects"] == (91, 91 * 12 * 56)
    assert planned["alike_to_each_other"] == (91, 91 * 56)
