"""What is told of two runs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.evaluation.run_differences import compare_runs, jaccard

TEXT = "domain D = { x, y } domain C = open entity E { predict d : D c : C } template t(e: E) over e.d per e.c"


def fitted(text=TEXT, keys="abab", backend="local", **settings):
    table = pd.DataFrame({"id": range(4), "d": list("xyxy"), "c": list(keys)})
    return relcrf.parse(text).fit(relcrf.Dataset({"e": table}), backend, **settings).learned


def test_a_run_does_not_differ_from_itself():
    one = fitted()
    found = compare_runs(one, one)
    assert not any(
        (found.settings, found.summary, found.bindings, found.vocabulary_sizes, found.model, *found.unique_weights)
    )
    np.testing.assert_array_equal(found.weights["first"], found.weights["second"])
    assert found.correlation == pytest.approx(1.0)
    assert found.candidate_jaccard is None


def test_weights_are_matched_by_their_names():
    """Key b has another place among the weights of the other run."""
    one, other = fitted(), fitted(keys="bcbc")
    shifted = replace(other, vectors={"weights": other.vectors["weights"] + np.array([0.0, 5.0, 0.0, 0.0])})
    found = compare_runs(one, shifted)
    assert set(found.weights["key"]) == {"b"}
    assert found.weights.rows(1)[0][:4] == ("t", "b", "1", "y")
    assert [set(alone["key"]) for alone in found.unique_weights] == [{"a"}, {"c"}]


def test_settings_models_and_data():
    changed = TEXT + "\ntemplate more(e: E) over e.d"
    table = pd.DataFrame({"id": range(5), "d": list("xyxyx"), "c": list("ababc")})
    other = relcrf.parse(changed).fit(relcrf.Dataset({"e": table}), "ess", l2=2.0).learned
    found = compare_runs(fitted(), other, ("one", "two"))
    assert found.settings["backend"] == ("local", "ess")
    assert found.settings["l2"] == (1.0, 2.0)
    assert found.settings["treewidth"] == (None, 1)
    assert found.bindings == {"t": (4, 5), "more": (None, 5)}
    assert found.vocabulary_sizes == {"C": (2, 3)}
    assert found.model[:2] == ("--- one", "+++ two")
    assert "+template more(e: E) over e.d" in found.model


def test_structure_in_common():
    assert jaccard({1, 2, 3}, {2, 3, 4}) == 0.5
    assert jaccard(set(), set()) is None
    text = """domain W = open entity E predict relation has(e: E, w: W)
    template prior(e: E, w: W) over has(e, w) per w
    candidates both(e: E, v: W, w: W) where v < w over has(e, v) and has(e, w) per v, w"""
    rng = np.random.default_rng(0)
    even = rng.random(60) < 0.5
    rows = [(e, w) for e in range(60) for w in "abcd" if (even[e] if w in "ab" else rng.random() < 0.5)]
    data = relcrf.Dataset({"e": pd.DataFrame({"id": range(60)}), "has": pd.DataFrame(rows, columns=["e", "w"])})
    one, other = (relcrf.parse(text).fit(data, "trmrf", l1=l1).learned for l1 in (0.5, 20.0))
    chosen = [{key for t in each.templates if t.name == "both" for key in t.keys.values} for each in (one, other)]
    assert compare_runs(one, other).candidate_jaccard == len(chosen[0] & chosen[1]) / len(chosen[0] | chosen[1])
    assert ("a", "b") in chosen[0]
