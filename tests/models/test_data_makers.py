"""Tests of synthetic data and sensor readings: samples have the declared distribution, and splits do not leak."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import relcrf
from relcrf import api

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
import sensors
import switching


@pytest.fixture(scope="module")
def world():
    return switching.make_switching_trees(np.random.default_rng(0))


def test_each_level_has_a_different_spanning_tree(world):
    edges = []
    for tree in world.trees:
        reached = {tree[0, 0]}
        for parent, child in tree:
            assert parent in reached
            assert child not in reached
            reached.add(child)
        assert len(reached) == switching.VARIABLES
        edges.append({tuple(sorted(edge)) for edge in tree.tolist()})
    assert all(a != b for a, b in itertools.combinations(edges, 2))


def test_likelihoods_of_three_variables_sum_to_one(monkeypatch):
    monkeypatch.setattr(switching, "VARIABLES", 3)
    world = switching.make_switching_trees(np.random.default_rng(1))
    all_states = np.array(list(itertools.product(range(switching.STATES), repeat=3)))
    for levels in ([0, 0, 0, 0, 0], [1, 1, 0, 1, 0], [2, 0, 1, 1, 1]):
        rows = [switching.SwitchingRows(np.array([levels]), states[None]) for states in all_states]
        assert sum(np.exp(switching.log_likelihood(world, row)) for row in rows) == pytest.approx(1.0)


def test_sample_frequencies_match_the_likelihood(monkeypatch):
    monkeypatch.setattr(switching, "VARIABLES", 3)
    monkeypatch.setattr(switching, "ATTRIBUTES", (3,))
    world = switching.make_switching_trees(np.random.default_rng(1))
    sample = switching.draw_rows(world, 60_000, np.random.default_rng(2))
    for level in range(switching.LEVELS):
        level_states = sample.states[sample.levels[:, 0] == level]
        for states in itertools.product(range(switching.STATES), repeat=3):
            row = switching.SwitchingRows(np.array([[level]]), np.array([states]))
            expected = np.exp(switching.log_likelihood(world, row))
            assert (level_states == states).all(axis=1).mean() == pytest.approx(expected, abs=0.012)


def test_evidence_dependent_trees_beat_one_tree(world):
    """With the true edges as candidates, ESS-CRF has a higher likelihood than a single Chow-Liu tree."""
    rng = np.random.default_rng(3)
    rows, test = switching.draw_rows(world, 600, rng), switching.draw_rows(world, 200, rng)
    model = relcrf.parse(switching.MODEL)
    assert model.warnings == ()
    log_likelihood = {}
    pairs = np.array(list(itertools.combinations(range(switching.VARIABLES), 2)))
    all_pairs = np.broadcast_to(pairs, (switching.LEVELS, *pairs.shape))
    for backend, candidates in (("ess", world.trees), ("chow-liu", all_pairs)):
        fit = model.fit(relcrf.Dataset(switching.tables(rows, candidates)), backend, l2=3.0, max_iterations=30)
        grounding = fit.ground(relcrf.Dataset(switching.tables(test, candidates)))
        log_likelihood[backend] = api.joint_log_likelihood(fit, grounding) / len(test.states)
    assert switching.log_likelihood(world, test) > log_likelihood["ess"] > log_likelihood["chow-liu"] + 0.2


def readings(n=400):
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(size=(n, 6)), axis=0)
    return sensors.Readings("made", values, (0, 3), block=40, gap=5)


def test_test_blocks_are_separated_from_training():
    training, test = sensors.split(readings(), 0, in_blocks=True)
    assert set(test // 40) == {b for b in range(10) if (b * 40 + np.arange(40))[0] in set(test)}
    assert len(test) == 80 == len(set(test))
    assert np.abs(training[:, None] - test).min() == 6
    unordered = sensors.split(readings(), 0, in_blocks=False)
    assert sorted(np.concatenate(unordered)) == list(range(400))


def test_levels_are_quartiles_of_the_training_rows():
    data = readings()
    training, test = sensors.split(data, 0, in_blocks=True)
    levels = sensors.levels(data, training)
    assert np.bincount(levels[training, 0]) == pytest.approx(np.full(4, len(training) / 4), abs=1)
    changed = data.values.copy()
    changed[test] += 100.0
    changed_levels = sensors.levels(sensors.Readings("made", changed, data.evidence, 40, 5), training)
    assert (changed_levels[training] == levels[training]).all()
    assert (changed_levels[test] == 3).all()


def test_tables_separate_evidence_from_targets():
    data = readings()
    training, test = sensors.split(data, 0, in_blocks=False)
    tables = sensors.tables(data, training, test[:7])
    assert data.targets == [1, 2, 4, 5]
    assert len(tables["reading"]) == 7 * 4
    evidence = np.stack(sensors.tables(data, training, training)["moment"]["known"])
    assert evidence.shape == (300, 2)
    assert evidence.mean(axis=0) == pytest.approx(np.zeros(2), abs=1e-12)
