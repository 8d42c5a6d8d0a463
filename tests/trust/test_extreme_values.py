"""Numbers of any unit and extreme numbers, such as 1e20 for a missing value: training learns, or says that it did not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import relcrf
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.feature_scales import LIMIT_RATIO, column_scales, limit_extremes, ordinary_values, weight_scales
from relcrf.graph.features import Dense, Keyed, Ones, Sparse, Tiled
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.learning.conjugate_gradient import ConjugateGradient
from relcrf.learning.feature_units import in_feature_units
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.newton_cg import NewtonCg

MODEL = """
domain Label = {{a, b}}
entity Item {{
    x : real
    predict y : Label
}}
template bias(i: Item) over i.y
template slope(i: Item)
    over i.y
    by   i.x{l2}
"""
BACKENDS = ("auto", "local", "smooth", "dense", "pseudo", "ess", "chow-liu", "gated", "grafting", "trmrf")


def table(*extremes, unit=1.0):
    """Return 40 rows with the feature `unit` or `-unit`, the given pairs (feature, label), and two rows to predict."""
    signs = [1.0 if k % 2 else -1.0 for k in range(40)]
    labels = ["a" if (sign > 0) != (k == 3) else "b" for k, sign in enumerate(signs)]
    return {
        "item": {
            "id": [f"i{k}" for k in range(42 + len(extremes))],
            "x": [*(unit * sign for sign in signs), *(x for x, _ in extremes), unit, -unit],
            "y": [*labels, *(label for _, label in extremes), None, None],
        }
    }


def fit_and_predict(tables, backend, l2="", **settings):
    """Return the learned model and the probabilities of `a` for the last two rows; a warning of NumPy is an error."""
    data = relcrf.Dataset(tables)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = relcrf.parse(MODEL.format(l2=l2)).fit(data, backend=backend, **settings)
        return fit.learned, fit.predict(data).probabilities()[-2:, 0]


@pytest.mark.parametrize(("backend", "extreme"), [*((backend, 1e20) for backend in BACKENDS), ("dense", 1e155)])
def test_one_extreme_number_does_not_prevent_learning(backend, extreme):
    learned, (high, low) = fit_and_predict(table((extreme, "a")), backend)
    assert learned.converged
    assert high > 0.8 and low < 0.2


@pytest.mark.parametrize("backend", ["local", "dense", "pseudo", "ess", "trmrf"])
def test_model_that_an_extreme_number_contradicts_is_called_converged_only_at_the_optimum(backend):
    """The extreme number leaves only a tiny slope, with which the probability is the frequency of `a`, 19 of 40."""
    learned, probabilities = fit_and_predict(table((1e20, "b")), backend)
    assert np.isfinite(probabilities).all()
    assert not learned.converged or np.allclose(probabilities, 19 / 40, atol=0.005)


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_unit_of_a_feature_changes_only_the_unit_of_its_weight(backend, unit):
    """With a penalty in the same unit, the minimum is the same; `auto` chooses penalties relative to the features."""
    expected, probabilities = fit_and_predict(table(), backend, "" if backend == "auto" else "\n    l2 1.0")
    l2 = "" if backend == "auto" else f"\n    l2 {unit**2!r}"
    learned, rescaled_probabilities = fit_and_predict(table(unit=unit), backend, l2)
    assert learned.converged
    np.testing.assert_allclose(rescaled_probabilities, probabilities, atol=1e-3)
    np.testing.assert_allclose(learned.vectors["weights"][2:] * unit, expected.vectors["weights"][2:], rtol=1e-2)


def test_penalty_in_user_units_that_dominates_is_the_exact_minimum():
    """A feature of 1e-12 with l2 = 1 has the weight `sum of residuals * feature`, to first order."""
    learned, _ = fit_and_predict(table(unit=1e-12), "dense", tolerance=1e-10)
    labels = np.array([1.0 if y == "a" else 0.0 for y in table()["item"]["y"][:40]])
    signs = np.array(table()["item"]["x"][:40])
    bias = learned.vectors["weights"][:2]
    residual = labels - 1.0 / (1.0 + np.exp(bias[1] - bias[0]))
    assert learned.converged
    np.testing.assert_allclose(learned.vectors["weights"][2], 1e-12 * (signs @ residual), rtol=1e-2)


def test_extreme_numbers_are_reported_with_column_and_row():
    _, notes = relcrf.parse(MODEL.format(l2="")).check(relcrf.Dataset(table((1e20, "a"), (-1e21, "b"))))
    (note,) = notes
    assert "row 41, column 'x': 1e+20 is extreme, as is another value" in note
    assert 'declare missing = ["1e+20"]' in note
    assert relcrf.parse(MODEL.format(l2="")).check(relcrf.Dataset(table((1e5, "a"))))[1] == []


def test_column_of_the_largest_numbers_is_checked():
    tables = table(unit=1e301)
    assert relcrf.parse(MODEL.format(l2="")).check(relcrf.Dataset(tables))[1] == []


def test_feature_near_the_largest_number_is_a_diagnostic():
    with pytest.raises(relcrf.DataError) as caught:
        fit_and_predict(table((1.7e308, "a")), "dense")
    assert caught.value.diagnostics[0].code == "E222"


def graph_of(*features):
    groups = tuple(FactorGroup((np.zeros(f.n_rows, np.int32),), (2,), f, None, k) for k, f in enumerate(features))
    blocks = tuple(WeightBlock(f"t{k}", f.n_features, 2) for k, f in enumerate(features))
    return FactorGraph(np.array([2], np.int32), groups, WeightLayout(blocks))


def test_scale_is_a_power_of_16_near_the_median_magnitude():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(501, 4)) * [1e-12, 1.0, 37.0, 1e12]
    values[rng.random(501) < 0.3] = [1e300, 0.0, -1e20, 1e-300]
    dense = Dense(values)
    scales = column_scales(graph_of(dense).groups)[0, 4]
    magnitudes = np.where(values == 0.0, np.nan, np.abs(values))
    ratio = np.nanmedian(magnitudes, axis=0) / scales
    assert ((ratio > 0.2) & (ratio < 5.0)).all()
    assert (np.log2(scales) % 4 == 0).all()
    shuffled = Dense(values[rng.permutation(501)])
    np.testing.assert_array_equal(column_scales(graph_of(shuffled).groups)[0, 4], scales)


def test_scales_of_all_kinds_of_features():
    dense = Dense(np.array([[1e6, 1.0], [-1e6, 1.0], [1e30, 1.0]]))
    keyed = Keyed(np.array([0, 1, 1], np.int32), np.array([[1e-6], [1e-6], [1e-6]]), 2)
    sparse = Sparse(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([16.0, 16.0, 16.0]), 2)
    graph = graph_of(dense, keyed, sparse, Ones(3), Tiled(dense, 2))
    scales = weight_scales(graph)
    assert (
        scales.tolist()
        == [2.0**20] * 2 + [1.0] * 2 + [2.0**-20] * 4 + [16.0] * 4 + [1.0] * 2 + [2.0**20] * 2 + [1.0] * 2
    )
    limited = limit_extremes(graph).groups
    assert limited[0].features.values[:, 0].tolist() == [1e6, -1e6, LIMIT_RATIO * 2.0**20]
    assert limited[1].features.values is keyed.values
    assert ordinary_values(dense, np.array([2.0**20, 1.0])).values[2, 0] == 2.0**20


@pytest.mark.parametrize("method", [Lbfgs, ConjugateGradient, NewtonCg])
def test_run_that_cannot_move_is_stalled_not_converged(method):
    """The gradient points uphill, so that no step decreases the value although the gradient is large."""

    def objective(point):
        return float(point @ point), -2.0 * point - 10.0

    optimiser = method(curvature=np.full(2, 2.0))
    state = optimiser.minimise(objective, optimiser.start(objective, np.zeros(2)))
    assert state.status == "stalled"
    assert method().minimise(objective, method().start(objective, np.zeros(2))).status == "converged"


def test_rescaled_minimiser_takes_the_same_steps():
    """A minimiser in feature units takes the steps of the plain minimiser on the rescaled problem, bit by bit."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(6, 6))
    hessian, centre, scale = factor @ factor.T + np.eye(6), rng.normal(size=6), np.ldexp(1.0, rng.integers(-40, 40, 6))

    def plain(point):
        gradient = hessian @ (point - centre)
        return 0.5 * float((point - centre) @ gradient), gradient

    def in_user_units(point):
        value, gradient = plain(point * scale)
        return value, gradient * scale

    optimiser = Lbfgs(tolerance=1e-12, value_tolerance=0.0)
    expected = optimiser.minimise(plain, optimiser.start(plain, np.zeros(6)))
    rescaled = in_feature_units(optimiser, scale)
    state = rescaled.minimise(in_user_units, rescaled.start(in_user_units, np.zeros(6)))
    np.testing.assert_array_equal(state.point * scale, expected.point)
    assert (state.status, state.iteration) == (expected.status, expected.iteration)
