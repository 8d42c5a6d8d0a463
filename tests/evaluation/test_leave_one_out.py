"""Leave-one-out conditionals equal those of enumeration, and those of inference with one hidden label."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from graphs import all_states, joint_scores

import relcrf
from relcrf.api import Fit
from relcrf.backends.problems import query_problem
from relcrf.evaluation.explanation import ExplanationCase
from relcrf.evaluation.leave_one_out import assign_passes, leave_one_out
from relcrf.graph.reduction import Role

MODEL = """
domain Topic = { a, b, c }
domain Colour = { red, green }
entity Page {
    predict topic : Topic
    predict good : bool
    colour : Colour
}
relation Link(x: Page, y: Page)
template prior(p: Page) over p.topic
template colour(p: Page) over p.topic per p.colour
template quality(p: Page) over p.topic, p.good
template linked(p: Page, q: Page) where Link(p, q) over p.topic, q.topic
template alike(p: Page, q: Page) where Link(p, q) over p.good == q.good
"""
SINGLE = MODEL.replace("    predict good : bool\n", "").replace("over p.topic, p.good", "over p.topic")
SINGLE = SINGLE[: SINGLE.index("template alike")]


def tables(seed, n=6, n_links=8, labelled=0.6):
    rng = np.random.default_rng(seed)
    page = pd.DataFrame({"id": range(n), "colour": rng.choice(["red", "green"], size=n)})
    for column, values in (("topic", ["a", "b", "c"]), ("good", [True, False])):
        page[column] = pd.Series(rng.choice(np.array(values, dtype=object), size=n)).where(rng.random(n) < labelled)
    page.loc[0, ["topic", "good"]] = ["b", True]
    links = rng.integers(n, size=(n_links, 2))
    return {"page": page, "link": pd.DataFrame(links[links[:, 0] != links[:, 1]], columns=["x", "y"]).drop_duplicates()}


def random_fit(model, data, backend, seed=0, **settings):
    fit = relcrf.parse(model).fit(relcrf.Dataset(data), backend, **settings)
    weights = np.random.default_rng(seed).normal(size=len(fit.learned.vectors["weights"]))
    return Fit(replace(fit.learned, vectors={**fit.learned.vectors, "weights": weights}))


def left_out(fit, data, **options):
    grounding = fit.ground(relcrf.Dataset(data))
    extended, vectors, problem = query_problem(fit.learned, grounding)
    targets = grounding.states >= 0
    return extended, leave_one_out(fit.learned.configure_backend(), problem, vectors, targets, **options)


def rows(found):
    return [found.probabilities[a:b] for a, b in zip(found.state_start[:-1], found.state_start[1:], strict=True)]


def enumerated(grounding, weights, variable):
    """Return the distribution of a variable given all other labels, by enumeration."""
    graph, states = grounding.graph, grounding.states.copy()
    states[variable] = -1
    joint = all_states(graph.cardinality, states, np.flatnonzero(states < 0))
    scores = joint_scores(graph, weights, joint)
    share = np.exp(scores - np.logaddexp.reduce(scores))
    return np.bincount(joint[:, variable], share, graph.cardinality[variable])


@pytest.mark.parametrize("labelled", [1.0, 0.6])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("backend", ["dense", "pseudo"])
def test_conditionals_equal_enumeration(backend, seed, labelled):
    data = tables(seed, labelled=labelled)
    fit = random_fit(MODEL, data, backend, seed, max_iterations=2, inference="jt")
    grounding, found = left_out(fit, data, max_passes=20)
    weights = fit.learned.vectors_for(grounding)["weights"]
    assert found.variables.tolist() == np.flatnonzero(grounding.states >= 0).tolist()
    assert found.is_separate.all() and found.verdict.is_good
    assert (found.n_passes == 0) == (grounding.states >= 0).all()
    for variable, conditional in zip(found.variables, rows(found), strict=True):
        np.testing.assert_allclose(conditional, enumerated(grounding, weights, variable), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize(
    "backend", ["ess", "chow-liu", "local", "gated", "dense", "grafting", "trmrf", "propagate", "smooth"]
)
def test_conditionals_equal_inference_with_one_hidden_label(backend):
    data = tables(1, n=12, n_links=12)
    fit = relcrf.parse(SINGLE).fit(relcrf.Dataset(data), backend)
    grounding, found = left_out(fit, data, max_passes=40)
    propagates = backend in ("propagate", "smooth")
    assert found.is_separate.any() != propagates
    for variable, conditional in zip(found.variables, rows(found), strict=True):
        expected, _ = ExplanationCase.from_model(fit.learned, grounding, int(variable)).infer()
        np.testing.assert_allclose(conditional, expected, atol=0.05 if propagates else 1e-6)


def test_labels_of_one_component_share_passes_only_above_the_maximum():
    data = tables(0, n=40, n_links=160, labelled=0.5)
    fit = random_fit(SINGLE, data, "dense", max_iterations=2)
    _, exact = left_out(fit, data, max_passes=40)
    _, found = left_out(fit, data, max_passes=4)
    assert exact.is_separate.all() and exact.n_passes > 4
    assert found.n_passes == 4 and not found.is_separate.all()
    np.testing.assert_allclose(found.probabilities, exact.probabilities, atol=0.35)


def test_passes_separate_neighbours_and_spread_a_large_component():
    # A chain of 21 pages; the labels are at the even positions, and the pages between them are unlabelled.
    page = pd.DataFrame({"id": range(21), "topic": ["a", None] * 10 + ["b"], "colour": "red"})
    data = {"page": page, "link": pd.DataFrame({"x": range(20), "y": range(1, 21)})}
    grounding = relcrf.parse(SINGLE).ground(relcrf.Dataset(data))
    problem = query_problem(random_fit(SINGLE, data, "dense", max_iterations=2).learned, grounding)[2]
    targets = problem.roles == Role.CLAMPED
    passes = assign_passes(problem, targets, 8)
    assert (passes[~targets] == -1).all()
    # An unlabelled page is a component with two labels, so that two passes are enough.
    assert set(passes[targets]) == {0, 1}
    assert (np.diff(passes[targets]) != 0).all()
