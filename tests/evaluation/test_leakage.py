"""The leakage report: crossing factors, duplicates and unseen keys."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.evaluation.leakage import held_out_label_warnings, measure_leakage
from relcrf.evaluation.splits import Fold, make_folds

MODEL = """
domain D = { red, blue }
domain W = open
entity E { predict colour : D  words : bag of W }
relation Near(a: E, b: E)
template word(e: E, w: W) where w in e.words over e.colour per w
template near(a: E, b: E) where Near(a, b) over a.colour, b.colour
"""


def ground(colours, words, near):
    e = pd.DataFrame({"id": range(len(colours)), "colour": colours})
    e_words = pd.DataFrame([(k, w) for k, bag in enumerate(words) for w in bag.split()], columns=["e", "word"])
    return relcrf.parse(MODEL).ground(
        relcrf.Dataset({"e": e, "e_words": e_words, "near": pd.DataFrame(near, columns=["a", "b"])})
    )


def fold_of(grounding, *variables):
    mask = np.zeros(len(grounding.states), dtype=bool)
    mask[list(variables)] = True
    return Fold.from_test("1", mask)


def test_crossing_factors_are_counted():
    near = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    grounding = ground(["red", "blue", "red", None, "blue", "red"], ["a"] * 6, near)
    found = measure_leakage(grounding, [fold_of(grounding, 1, 2)])
    # (0, 1) crosses; (1, 2) joins two test labels; (2, 3) joins an unlabelled variable
    assert found.crossings.rows() == [("near", 3, 1)]
    assert (found.held_out, found.labelled_neighbours, found.transductive) == (2, 1, True)
    assert "50% of the test labels have a training label as neighbour" in found.interpretation[0]
    assert "--split snowball" in found.interpretation[1], "there is a single component"
    both = measure_leakage(grounding, [fold_of(grounding, 1, 2), fold_of(grounding, 4)])
    assert both.crossings.rows() == [("near", 5, 2)] and both.held_out == 3


def test_excluded_variables_have_no_factors():
    grounding = ground(["red", "blue", "red"], ["a"] * 3, [(0, 1), (1, 2)])
    one = fold_of(grounding, 1)
    one.excluded[2] = True
    assert measure_leakage(grounding, [one]).crossings.rows() == [("near", 1, 1)]


def test_component_folds_are_inductive():
    near = [(2 * k, 2 * k + 1) for k in range(10)]
    grounding = ground(["red", "blue"] * 10, ["a"] * 20, near)
    found = measure_leakage(grounding, make_folds(grounding, "component,folds=5"))
    assert found.crossings.rows() == [("near", 10, 0)]
    assert not found.transductive and found.labelled_neighbours == 0 and "inductive" in found.interpretation[0]
    mixed = measure_leakage(grounding, make_folds(grounding, "random,folds=5"))
    assert mixed.transductive and "--split component" in mixed.interpretation[1]


def test_independent_labels_are_reported():
    grounding = ground(["red", "blue"] * 4, ["a"] * 8, [(0, 0)])
    (sentence,) = measure_leakage(grounding, make_folds(grounding, "random,folds=2")).interpretation
    assert sentence.startswith("no factor joins two labels")


def test_giant_component_is_reported():
    near = [(k, k + 1) for k in range(12)]
    grounding = ground(["red", "blue"] * 8, ["a"] * 16, near)
    found = measure_leakage(grounding, make_folds(grounding, "component,folds=2"))
    assert found.largest_component == pytest.approx(13 / 16)
    assert "81% of the labels" in found.interpretation[1]


def test_unseen_keys_are_reported():
    grounding = ground(["red", "blue", "red", "blue"], ["a b", "a", "c d e", "a e"], [(0, 1)])
    found = measure_leakage(grounding, [fold_of(grounding, 2)])
    assert found.keys.rows() == [("word", 3, 1)]
    assert "2 of 3 keys of 'word'" in found.interpretation[-1]


def test_duplicates_have_equal_features():
    words = ["a b c d e", "a b c d e", "a b c d", "a b c d", "f g h i j", "f g h i k"]
    grounding = ground(["red", "red", "red", "red", "blue", "blue"], words, [(0, 1)])
    found = measure_leakage(grounding, [fold_of(grounding, 1, 3, 5)])
    assert (found.distinctive, found.duplicates, found.duplicates_same_label) == (2, 1, 1), (
        "four words are too few for a comparison"
    )
    assert any("are duplicates of" in sentence for sentence in found.interpretation)
    other = ground(["red", "blue", "red", "red", "blue", "blue"], words, [(0, 1)])
    assert measure_leakage(other, [fold_of(other, 1, 3, 5)]).duplicates_same_label == 0


def test_duplicates_by_vectors():
    model = relcrf.parse("domain D = { x, y } entity E { predict d : D  v : vector } template t(e: E) over e.d by e.v")
    values = np.random.default_rng(0).normal(size=(6, 8))
    values[3] = values[0]
    table = pd.DataFrame({"id": range(6), "d": list("xyxxyy"), **{f"v_{k}": values[:, k] for k in range(8)}})
    grounding = model.ground(relcrf.Dataset({"e": table}))
    found = measure_leakage(grounding, [fold_of(grounding, 0, 1)])
    assert (found.distinctive, found.duplicates, found.duplicates_same_label) == (2, 1, 1)


def test_duplicates_of_numbers_have_the_same_label_if_they_are_equal():
    text = "entity E { predict y : real  v : vector } template t(e: E) over e.y by 1, e.v"
    values = np.repeat(np.random.default_rng(0).normal(size=(3, 8)), 2, axis=0)
    table = pd.DataFrame({"id": range(6), "y": [0.5, 0.5, 1.0, 2.0, -3.0, 0.5]})
    table[[f"v{k}" for k in range(8)]] = values
    grounding = relcrf.parse(text).ground(relcrf.Dataset({"e": table}))
    found = measure_leakage(grounding, [fold_of(grounding, 1, 3, 5)])
    assert (found.distinctive, found.duplicates, found.duplicates_same_label) == (3, 3, 1)


@pytest.mark.parametrize(
    ("summary", "warns"), [({"variables": 7}, True), ({"numbers": 7}, True), ({"variables": 4, "numbers": 3}, True),
                           ({"variables": 6}, False), ({"variables": 4, "numbers": 2}, False), ({}, False)]
)  # fmt: skip
def test_training_on_all_labels_gives_a_warning(summary, warns):
    """Categories and numbers are labels."""
    learned = SimpleNamespace(summary=summary)
    assert bool(held_out_label_warnings(learned, 7, "the run")) == warns


def test_duplicates_by_inputs_of_learned_features():
    model = relcrf.parse(
        "domain D = { x, y } domain Kind = open entity E { predict d : D  v : vector  kind : Kind  title : string } "
        "feature f(e: E) = classifier of e.d from e.v, e.kind, e.title template t(e: E) over e.d by 1, f(e)"
    )
    values = np.random.default_rng(0).normal(size=(8, 3))
    values[4:] = values[:4]
    kinds, titles = ["k"] * 8, ["a long title"] * 8
    kinds[5], titles[6], titles[7] = "other", "a short title", None
    table = pd.DataFrame({"id": range(8), "d": list("xyxyxyxy"), "kind": kinds, "title": titles})
    table = table.join(pd.DataFrame(values, columns=["v_0", "v_1", "v_2"]))
    grounding = model.ground(relcrf.Dataset({"e": table}))
    found = measure_leakage(grounding, [fold_of(grounding, 4, 5, 6, 7)])
    assert (found.duplicates, found.duplicates_same_label) == (1, 1), "only the first differs in nothing from its copy"


def test_crossing_factors_of_repeated_structure():
    """In a table of rows and items every row has the same factors."""
    model = relcrf.parse(
        "entity Row domain S = { a, b, c } predict relation on(row: Row, s: S)\n"
        "template pair(r: Row, s: S, t: S) where s < t over on(r, s), on(r, t) per s, t"
    )
    on = pd.DataFrame(
        [(k, s, (k + i) % 2 == 0) for k in range(4) for i, s in enumerate("abc")], columns=["row", "s", "value"]
    )
    grounding = model.ground(relcrf.Dataset({"row": pd.DataFrame({"id": range(4)}), "on": on}))
    found = measure_leakage(grounding, [fold_of(grounding, 0, 3, 4, 5)])
    # the first row has two crossing factors; the second row has three factors over test labels, none of which crosses
    assert found.crossings.rows() == [("pair", 5, 2)]
    assert found.keys.rows() == [("pair", 3, 3)]


TRAITS = """
entity Animal
domain Trait = open
predict relation has(animal: Animal, trait: Trait)
template prior(a: Animal, t: Trait) over has(a, t) per t
candidates together(a: Animal, s: Trait, t: Trait) where s < t over has(a, s) and has(a, t) per s, t
"""


def test_candidates_count_as_edges():
    rows = [(a, t, (a + k) % 2 == 0) for a in range(6) for k, t in enumerate("xyz")]
    rows.append((6, "x", True))
    grounding = relcrf.parse(TRAITS).ground(
        relcrf.Dataset(
            {
                "animal": pd.DataFrame({"id": range(7)}),
                "has": pd.DataFrame(rows, columns=["animal", "trait", "value"]),
            }
        )
    )
    whole = make_folds(grounding, "component,folds=3")
    for one in whole:
        assert set(np.bincount(np.flatnonzero(one.test) // 3)) <= {0, 3}, (
            "all variables of an animal are in the same fold"
        )
    found = measure_leakage(grounding, whole)
    assert (
        not found.transductive and found.labelled_neighbours == 0 and found.largest_component == pytest.approx(3 / 21)
    )
    mixed = measure_leakage(grounding, [fold_of(grounding, 0, 3, 4, 5)])
    assert mixed.transductive and (mixed.held_out, mixed.labelled_neighbours) == (4, 1)
    model = relcrf.parse(TRAITS.replace("candidates", "# "))
    alone = model.ground(grounding.bound.dataset)
    assert len(set(alone.component)) == 21 and len(set(grounding.component)) == 7
