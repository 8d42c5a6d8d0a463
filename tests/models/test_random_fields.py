"""Tests of `datasets/random_fields.py`: samples of all modes, reference predictions, and tables with observed values."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.resources import resource_path

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
import random_fields
from random_fields import HIDDEN, INPUT, OUTPUT, FieldRows, RandomField


def enumerate_states(field):
    """Return all joint states, shape (2**n, n), in the order of `itertools.product`, and their probabilities."""
    states = np.array(list(itertools.product((0, 1), repeat=field.n_variables)))
    score = np.zeros(len(states))
    for scope, table in zip(field.scopes, field.log_potentials, strict=True):
        score += table.reshape((2,) * len(scope))[tuple(states[:, v] for v in scope)]
    potential = np.exp(score)
    return states, potential / potential.sum()


def conditional_probabilities(field, rows):
    """Return the probability that each variable is on, given the inputs of its row, by enumeration; shape (n, n_variables)."""
    every, chance = enumerate_states(field)
    out = []
    for values, statuses in zip(rows.values, rows.statuses, strict=True):
        fits = (every == values)[:, statuses == INPUT].all(axis=1)
        out.append(chance[fits] @ every[fits] / chance[fits].sum())
    return np.array(out)


@pytest.fixture(scope="module")
def field():
    return random_fields.make_field(np.random.default_rng(3), n_variables=7, n_factors=9, arity=3)


def bimodal_field():
    """Return a ring of eight variables with 4 nats per edge for equal states, and mode odds of e^1.6 in favour of on."""
    scopes = np.array([(k, (k + 1) % 8) for k in range(8)])
    return RandomField(8, scopes, np.tile([4.0, 0.0, 0.0, 4.2], (8, 1)))


def test_field_has_the_dimensions_of_the_paper():
    field = random_fields.make_field(np.random.default_rng(0))
    assert field.scopes.shape == (200, 4)
    assert all(len(set(scope)) == 4 for scope in field.scopes.tolist())
    assert set(field.scopes.ravel()) == set(range(50))
    assert field.log_potentials.shape == (200, 16)
    assert abs(field.log_potentials.mean()) < 0.05
    assert field.log_potentials.std() == pytest.approx(1.0, abs=0.04)


def test_score_is_the_sum_of_log_potentials(field):
    states, probabilities = enumerate_states(field)
    potential = np.exp(field.score(states.T))
    assert potential / potential.sum() == pytest.approx(probabilities)


def test_sample_frequencies_match_the_distribution(field):
    _, expected = enumerate_states(field)
    sample = random_fields.draw(field, 20_000, np.random.default_rng(4), sweeps=15)
    assert sample.shape == (20_000, 7)
    assert sample.dtype == bool
    frequencies = np.bincount(sample @ (1 << np.arange(6, -1, -1)), minlength=128) / len(sample)
    assert frequencies == pytest.approx(expected, abs=5 * np.sqrt(expected.max() / len(sample)))


def test_replica_exchange_samples_both_modes():
    field = bimodal_field()
    states, probabilities = enumerate_states(field)
    expected = probabilities @ (states.mean(axis=1) > 0.5)
    assert expected > 0.8
    fraction = {}
    for name, ladder in (("exchange", random_fields.LADDER), ("plain", random_fields.PLAIN_GIBBS)):
        sample = random_fields.draw(field, 3000, np.random.default_rng(5), 60, ladder)
        fraction[name] = (sample.mean(axis=1) > 0.5).mean()
    assert fraction["exchange"] == pytest.approx(expected, abs=0.025)
    assert fraction["plain"] < expected - 0.1


def test_probabilities_are_conditional_on_the_inputs(field):
    rows = random_fields.make_rows(field, 300, np.random.default_rng(6), sweeps=15)
    estimate = random_fields.probabilities(field, rows, np.random.default_rng(7), sweeps=800, burn_in=20)
    np.testing.assert_allclose(estimate, conditional_probabilities(field, rows), atol=0.08)
    assert np.abs(estimate - conditional_probabilities(field, rows)).mean() < 0.008
    is_input = rows.statuses == INPUT
    np.testing.assert_array_equal(estimate[is_input], rows.values[is_input])


def test_reference_error_is_that_of_exact_predictions(field):
    """The estimate is unbiased even if its two Gibbs runs are short, because their noise does not enter the error."""
    rows = random_fields.make_rows(field, 2000, np.random.default_rng(8), sweeps=15)
    exact = conditional_probabilities(field, rows)
    estimate = random_fields.estimate_bayes_error(field, rows, np.random.default_rng(9), sweeps=10)
    expected = random_fields.squared_error_loss(rows, exact)
    assert estimate.noise > 0.004
    assert estimate.error == pytest.approx(expected, abs=0.002)
    assert estimate.expected == pytest.approx(expected, abs=3 * estimate.standard_error)
    is_output = rows.statuses == OUTPUT
    from_rows = [((p - v)[a] ** 2).mean() for p, v, a in zip(exact, rows.values, is_output, strict=True) if a.any()]
    assert expected == pytest.approx(np.mean(from_rows))
    assert estimate.standard_error == pytest.approx(np.std(from_rows) / np.sqrt(len(from_rows)), rel=0.15)


def test_each_status_has_a_third_of_the_variables(field):
    rows = random_fields.make_rows(field, 3000, np.random.default_rng(10), sweeps=1)
    assert rows.statuses.dtype == np.int8
    fractions = [(rows.statuses == s).mean(axis=0) for s in (INPUT, OUTPUT, HIDDEN)]
    np.testing.assert_allclose(fractions, 1 / 3, atol=0.04)


def test_constant_uses_only_observed_values():
    values = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0]], dtype=bool)
    statuses = np.array([[INPUT, HIDDEN, HIDDEN], [OUTPUT, INPUT, HIDDEN], [HIDDEN, OUTPUT, HIDDEN]], dtype=np.int8)
    rows = FieldRows(values, statuses)
    assert random_fields.constant_prediction(rows) == pytest.approx([0.5, 0.5, 0.5])
    assert random_fields.squared_error_loss(rows, np.array([0.1, 0.8, 0.3])) == pytest.approx((0.01 + 0.64) / 2)


@pytest.mark.parametrize("answered", [False, True])
def test_grounding_preserves_the_order_of_the_arrays(answered):
    rng = np.random.default_rng(11)
    values = rng.random((13, 11)) < 0.5
    rows = FieldRows(values, rng.integers(3, size=values.shape, dtype=np.int8))
    model = relcrf.load(resource_path("models", "random_field.rcrf"))
    data = relcrf.Dataset(random_fields.tables(rows, with_outputs=answered))
    assert {t.name: (t.bindings, t.weights) for t in model.plan(data)} == {
        "alone": (13 * 11, 11),
        "pair": (13 * 55, 4 * 55),
    }
    grounding = model.ground(data)
    is_observed = rows.statuses != HIDDEN if answered else rows.statuses == INPUT
    np.testing.assert_array_equal(grounding.states, np.where(is_observed, values, -1).ravel())
    assert grounding.graph.nbytes < 8000  # the structure is stored once and not for each row


def test_script_writes_readable_datasets(monkeypatch, tmp_path, capsys):
    arguments = ["--rows", "20", "--sweeps", "2", "--out", str(tmp_path / "fields")]
    monkeypatch.setattr(sys, "argv", ["random_fields.py", *arguments])
    random_fields.main()
    assert "20 rows" in capsys.readouterr().out
    model = relcrf.load(resource_path("models", "random_field.rcrf"))
    for part, observed_statuses in (("training", ("input", "output")), ("test", ("input",))):
        grounding = model.ground(relcrf.Dataset(tmp_path / "fields" / part))
        truth = pd.read_parquet(tmp_path / "fields" / f"{part}_truth.parquet")
        assert list(truth.columns) == ["row", "state", "status", "value"]
        is_observed = truth["status"].isin(observed_statuses)
        assert 0.1 < is_observed.mean() < 0.9
        np.testing.assert_array_equal(grounding.states, truth["value"].astype(int).where(is_observed, -1))
