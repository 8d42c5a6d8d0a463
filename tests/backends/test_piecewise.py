"""Piecewise training on rules that help, on rules that do not transfer, and on one connected component."""

import itertools

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.backends.local import LocalBackend
from relcrf.backends.piecewise import LOCAL_SCALES, SCALES, UNARY_SCALES, choose_scales
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import make_backend
from relcrf.errors import DataError, UsageError

RECORDS = """
entity Record { block : string }
relation looks(a: Record, b: Record)
derive Pair(a: Record, b: Record) where a.block == b.block and a < b
predict relation same(a: Record, b: Record) where Pair(a, b)
template prior(a: Record, b: Record) over same(a, b)
template seen(a: Record, b: Record) where looks(a, b) over same(a, b)
rule transitive: (same(x, y) and same(y, z) => same(x, z))
    and (same(x, y) and same(x, z) => same(y, z)) and (same(x, z) and same(y, z) => same(x, y))
"""

CHAINS = """
entity Cell { predict on : bool  hint : bool }
relation next(a: Cell, b: Cell)
template prior(c: Cell) over c.on by 1, c.hint
template equal(a: Cell, b: Cell) where next(a, b) over a.on == b.on
"""


def records(seed, blocks=40, size=8, noise=0.15):
    """Return blocks of records of three entities; `looks` is `same` with noise."""
    rng = np.random.default_rng(seed)
    rows, same, looks = [], [], []
    for block in range(blocks):
        entity = rng.integers(3, size=size)
        names = [f"r{block:02}{k}" for k in range(size)]
        rows += [(name, f"b{block}") for name in names]
        for a, b in itertools.combinations(range(size), 2):
            is_same = entity[a] == entity[b]
            same += [(names[a], names[b])] * int(is_same)
            looks += [(names[a], names[b])] * int(is_same ^ (rng.random() < noise))
    return relcrf.Dataset(
        {
            "record": pd.DataFrame(rows, columns=["id", "block"]),
            "same": pd.DataFrame(same, columns=["a", "b"]),
            "looks": pd.DataFrame(looks, columns=["a", "b"]),
        }
    )


def chains(flips, length=60):
    """Return chains in which the state of a cell is usually that of the previous cell or, in `flips`, the opposite."""
    rng = np.random.default_rng(0)
    rows, following = [], []
    for number, flip in enumerate(flips):
        names = [f"c{number}_{k:03}" for k in range(length)]
        states = np.cumsum((rng.random(length) < 0.2) ^ flip) % 2 == 1
        rows += zip(names, states, states ^ (rng.random(length) < 0.2), strict=True)
        following += itertools.pairwise(names)
    cells = pd.DataFrame(rows, columns=["id", "on", "hint"])
    return relcrf.Dataset({"cell": cells, "next": pd.DataFrame(following, columns=["a", "b"])})


def fit_both(text, data, **settings):
    """Return the fit results of `local` and of piecewise training."""
    problem = training_problem(relcrf.parse(text).ground(data))
    piecewise = make_backend("dense", objective="piecewise", **settings)
    return LocalBackend().fit(problem, Monitor()), piecewise.fit(problem, Monitor())


def test_transitivity_improves_predictions():
    model = relcrf.parse(RECORDS)
    grounding = model.ground(records(seed=1))
    names = grounding.argument_texts(grounding.blocks[0])[0]
    hidden = np.array([name < "r10" for name in names])
    scores = {}
    for backend, settings in (("local", {}), ("dense", {"objective": "piecewise"})):
        fit = api.fit(model, grounding, backend, hidden=hidden, **settings)
        scores[backend] = api.predict(fit, grounding, hidden=hidden).score(subset=hidden)
    assert scores["dense"].accuracy > scores["local"].accuracy + 0.04, scores
    assert scores["dense"].log_likelihood > scores["local"].log_likelihood + 0.02, scores


def test_weights_of_unary_factors_are_proportional_to_those_of_local():
    local, piecewise = fit_both(RECORDS, records(seed=2, blocks=30))
    weights, summary = piecewise.vectors["weights"], piecewise.summary
    np.testing.assert_allclose(weights[:2], summary["unary_scale"] * local.vectors["weights"][:2], rtol=1e-9)
    assert summary["scale"] > 0 and weights[2] > 0
    assert summary["held_out"] > summary["held_out_local"]


def test_a_rule_that_does_not_transfer_has_scale_0():
    """Each half of the six chains has a surplus of one kind, so its weight has the wrong sign for the other half."""
    local, piecewise = fit_both(CHAINS, chains([True, True, True, False, False, False]), folds=2)
    assert piecewise.summary["scale"] == 0.0 and piecewise.summary["unary_scale"] == 1.0
    assert piecewise.summary["held_out"] == piecewise.summary["held_out_local"]
    np.testing.assert_array_equal(piecewise.vectors["weights"], local.vectors["weights"])
    _, helpful = fit_both(CHAINS, chains([False] * 6), folds=2)
    assert helpful.summary["scale"] > 0.1


def test_one_component_is_divided():
    """The cells of one chain are held out singly, given the labels of the other cells."""
    _, piecewise = fit_both(CHAINS, chains([False], length=200))
    assert piecewise.summary["scale"] > 0.1 and piecewise.summary["held_out"] > piecewise.summary["held_out_local"]


def test_invalid_input_raises_error():
    with pytest.raises(UsageError, match=r"E305[\s\S]*folds"):
        make_backend("dense", folds=1)
    with pytest.raises(DataError, match=r"E226[\s\S]*50 folds"):
        fit_both(RECORDS, records(seed=0, blocks=2, size=3), folds=50)


@pytest.mark.parametrize("unary", UNARY_SCALES)
@pytest.mark.parametrize("scale", [SCALES[0], SCALES[4], 1.0])
def test_the_best_scales_are_chosen(unary, scale):
    """The loss has one minimum; the best scale increases if the unary scale decreases."""
    chosen, losses = choose_scales(lambda u, s: abs(np.log2(max(s, 1e-9) / scale)) + 9 * abs(u - unary))
    assert chosen == (unary, scale) and len(losses) <= len(SCALES) + 6


def test_larger_factors_without_gain_are_left_out():
    chosen, losses = choose_scales(lambda u, s: 1.0 + s)
    assert chosen == LOCAL_SCALES and len(losses) == 3


def test_diverged_inference_is_not_chosen():
    chosen, _ = choose_scales(lambda u, s: np.nan if s > 0.01 else u - s)
    assert chosen == (UNARY_SCALES[-1], SCALES[3])
