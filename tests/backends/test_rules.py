"""Tests of rules in learning and inference, with results computed by hand."""

import numpy as np
import pandas as pd
import pytest

import relcrf

SMOKERS = """
entity Person
relation Friends(x: Person, y: Person)
predict relation Smokes(x: Person)
predict relation Cancer(x: Person)
rule: Smokes(x) => Cancer(x)
rule: Smokes(x)
rule company: Friends(x, y) and Smokes(x) => Smokes(y)
"""


@pytest.mark.parametrize("backend", ["ess", "local", "pseudo"])
def test_a_hard_rule_leaves_the_others_to_be_learned(backend):
    n, rng = 40, np.random.default_rng(0)
    smokes = rng.random(n) < 0.5
    cancer = smokes & (rng.random(n) < 0.8)
    data = relcrf.Dataset(
        {
            "person": pd.DataFrame({"id": np.arange(n)}),
            "smokes": pd.DataFrame({"x": np.flatnonzero(smokes)}),
            "cancer": pd.DataFrame({"x": np.flatnonzero(cancer)}),
            "friends": pd.DataFrame({"x": rng.integers(0, n, 60), "y": rng.integers(0, n, 60)}),
        }
    )
    fit = relcrf.parse(SMOKERS + "rule hard: Cancer(x) => Smokes(x)\n").fit(data, backend)
    weights = fit.weights().to_pandas().set_index("template")["weight"]
    assert np.isfinite(weights).all() and abs(weights["rule 2"]) > 0.01
    assert weights["rule 3"] == 1000.0


@pytest.mark.parametrize(("rule", "expected"), [("rule 3.0", 1 / (1 + np.exp(-3))), ("rule hard", 1.0)])
def test_a_rule_over_one_attribute_is_a_formula(rule, expected):
    model = relcrf.parse(f"entity P {{ predict spam : bool }} relation All(p: P)\n{rule}: All(p) => p.spam")
    data = relcrf.Dataset({"p": pd.DataFrame({"id": [1, 2], "spam": [True, None]}), "all": pd.DataFrame({"p": [1, 2]})})
    found = model.fit(data, "ess").predict(data).probabilities()
    np.testing.assert_allclose(found, [[1 - expected, expected]])


def test_fixed_weights_apply_to_unseen_keys():
    model = relcrf.parse(
        "domain W = open entity P { predict spam : bool  words : bag of W }\n"
        "template t(p: P, w: W) where w in p.words over p.spam == true per w fixed init 2"
    )
    train = pd.DataFrame({"id": [1, 2], "spam": [True, False], "words": [["u"], ["v"]]})
    test = pd.DataFrame({"id": [3, 4], "spam": [None, None], "words": [["u"], ["z"]]})
    found = model.fit(relcrf.Dataset({"p": train}), "ess").predict(relcrf.Dataset({"p": test})).probabilities()
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-2)))


def test_the_jaccard_of_an_empty_text_is_none():
    model = relcrf.parse(
        "entity A { predict c : bool  t : string }\ntemplate t(a: A) over a.c by jaccard(a.t, prefix(a.t, 0)), 1"
    )
    table = pd.DataFrame({"id": [1, 2], "c": [True, False], "t": ["ab", "cd"]})
    assert model.ground(relcrf.Dataset({"a": table})).bindings == {"t": 2}
