"""Tests of the splits, scores and differences of benchmarks/few_labels.py; no method receives the test labels."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def few_labels():
    folders = [str(ROOT / "benchmarks"), str(ROOT / "datasets")]
    sys.path[:0] = folders
    try:
        import few_labels

        yield few_labels
    finally:
        for folder in folders:
            sys.path.remove(folder)


@pytest.fixture(scope="module")
def papers(few_labels):
    model = few_labels.BlockModel(n_papers=300, n_topics=3)
    return few_labels.make_papers(model, np.random.default_rng(0))


@pytest.mark.parametrize("amount", [5, 0.4])
def test_splits_are_disjoint_and_seeded(few_labels, papers, amount):
    split = few_labels.draw_split(papers.topic, amount, 1, n_valid=50, n_test=100)
    parts = (split.train, split.valid, split.test)
    assert [len(part) for part in parts] == [15 if amount == 5 else 120, 50, 100]
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    if amount == 5:
        assert np.bincount(papers.topic[split.train]).tolist() == [5, 5, 5]
    again, other = (few_labels.draw_split(papers.topic, amount, seed, 50, 100) for seed in (1, 2))
    np.testing.assert_array_equal(split.test, again.test)
    assert not np.array_equal(split.test, other.test)


def test_no_method_receives_the_test_labels(few_labels, papers):
    """With other labels of the test papers, the probabilities are the same."""
    tables = papers.tables()
    split = few_labels.draw_split(papers.topic, 5, 0, n_valid=50, n_test=100)
    first = few_labels.PaperGraph.from_tables(tables)
    topics = tables["paper"]["topic"].to_numpy().copy()
    topics[split.test] = np.roll(topics[split.test], 1)
    assert (topics != tables["paper"]["topic"]).sum() > 50
    tables["paper"] = tables["paper"].assign(topic=topics)
    second = few_labels.PaperGraph.from_tables(tables)
    parts = (split.train, split.valid, split.test)
    found = [few_labels.relcrf_probabilities(g.model, g.grounding, *parts) for g in (first, second)]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0].sum(axis=1), 1.0)
    assert (found[0].argmax(axis=1) == papers.topic[split.test]).mean() > 0.5
    task = first.node_task(split)
    assert (task.label[split.test] == -1).all()
    assert (task.label >= 0).sum() == len(split.train) + len(split.valid)


def test_calibration_error(few_labels):
    table = np.array([[0.9, 0.1], [0.9, 0.1], [0.7, 0.3], [0.3, 0.7]])
    assert few_labels.calibration_error(table, np.array([0, 1, 0, 0])) == pytest.approx(0.5 * 0.4 + 0.5 * 0.2)


def test_paired_difference(few_labels):
    found = few_labels.paired_difference([0.5, 0.7, 0.6], [0.4, 0.4, 0.4])
    assert found["mean"] == pytest.approx(0.2)
    # 4.303 is the 97.5 % quantile of the t distribution with two degrees of freedom
    assert found["high"] - found["mean"] == pytest.approx(4.303 * 0.1 / np.sqrt(3), abs=1e-4)
    assert found["mean"] - found["low"] == pytest.approx(found["high"] - found["mean"])
    assert few_labels.paired_difference([0.5], [0.25]) == {"mean": 0.25, "low": None, "high": None}
