"""Cross-validation splits, from their text to the folds."""

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.data.split_plan import ALL_ATTRIBUTES, SplitPlan, parse_hide, parse_split
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.splits import make_folds, partition_variables

MODEL = """
domain D = { red, blue }
entity E { predict colour : D }
entity F { predict shade : D }
relation Near(a: E, b: E)
predict relation Likes(x: E, y: F)
template c(e: E) over e.colour
template s(f: F) over f.shade
template near(a: E, b: E) where Near(a, b) over a.colour == b.colour
template likes(x: E, y: F) over Likes(x, y)
"""


@pytest.fixture(scope="module")
def grounding():
    """Ten chains of six entities; every seventh entity has no colour."""
    n = 60
    colour = np.where(np.arange(n) % 3 == 0, "red", "blue").astype(object)
    colour[::7] = None
    e = pd.DataFrame({"id": [f"e{k:02d}" for k in range(n)], "colour": colour})
    e["year"] = 2000 + np.arange(n) // 12
    e["day"] = pd.date_range("2026-01-01", periods=n).strftime("%Y-%m-%d")
    e["town"] = [f"t{k % 4}" for k in range(n)]
    f = pd.DataFrame({"id": ["f0", "f1", "f2"], "shade": ["red", "blue", "red"]})
    near = pd.DataFrame([(f"e{k:02d}", f"e{k + 1:02d}") for k in range(n - 1) if k % 6 != 5], columns=["a", "b"])
    likes = pd.DataFrame({"x": [f"e{k:02d}" for k in range(0, n, 2)], "y": "f0"})
    return relcrf.parse(MODEL).ground(relcrf.Dataset({"e": e, "f": f, "near": near, "likes": likes}))


def block(grounding, name):
    (found,) = [b for b in grounding.blocks if b.name == name]
    return np.arange(found.start, found.start + found.count)


@pytest.mark.parametrize(
    ("text", "folds", "plan"),
    [
        ("random", None, SplitPlan("random", folds=5, seed=3)),
        ("component", 4, SplitPlan("component", folds=4, seed=3)),
        ("snowball", None, SplitPlan("snowball", folds=5, seed=3)),
        ("by=Page.university", None, SplitPlan("column", "Page.university", seed=3)),
        ("by = university", 4, SplitPlan("column", "university", folds=4, seed=3)),
        ("time=year", None, SplitPlan("time", "year", folds=5, seed=3)),
        ("time=year", 2, SplitPlan("time", "year", folds=2, seed=3)),
        ("school", None, SplitPlan("column", "school", seed=3)),
        ("folds=10", None, SplitPlan("folds", folds=10, seed=3)),
        ("hide=0.1,seed=7", None, SplitPlan("hide", fraction=0.1, seed=7)),
    ],
)
def test_split_text_is_parsed(text, folds, plan):
    assert parse_split(text, folds, 3) == plan


@pytest.mark.parametrize(
    ("text", "folds"),
    [("by=", None), ("time=", None), ("random=5", None), ("folds=5", 4), ("random", 1), ("page=3", None)],
)
def test_invalid_split_raises_e349(text, folds):
    with pytest.raises(UsageError, match="E349"):
        parse_split(text, folds)


def test_hide_text_is_parsed():
    assert parse_hide("0.1", 2) == SplitPlan("hide", fraction=0.1, attribute=ALL_ATTRIBUTES, seed=2)
    assert parse_hide("Likes = 0.25") == SplitPlan("hide", fraction=0.25, attribute="Likes")
    for text in ("all", "1", "0", "=0.1", "nan"):
        with pytest.raises(UsageError, match="E349"):
            parse_hide(text)


@pytest.mark.parametrize("text", ["random", "snowball", "component"])
def test_every_label_is_held_out_once(grounding, text):
    rounds = make_folds(grounding, parse_split(text, 3))
    labelled = grounding.states >= 0
    assert len(rounds) == 3
    np.testing.assert_array_equal(np.sum([one.test for one in rounds], axis=0), labelled)
    sizes = [int(one.test.sum()) for one in rounds]
    assert max(sizes) - min(sizes) <= 5
    assert not any(one.excluded.any() for one in rounds)


def test_components_stay_whole(grounding):
    split = partition_variables(grounding, "component,folds=3")
    colours = block(grounding, "E.colour")
    for chain in np.split(split.fold[colours], 10):
        assert len(set(chain)) == 1


def test_links_and_non_links_are_hidden_equally(grounding):
    (one,) = make_folds(grounding, parse_hide("Likes=0.2"))
    likes = block(grounding, "Likes")
    assert not np.delete(one.test, likes).any()
    for state in (0, 1):
        of_state = grounding.states[likes] == state
        assert one.test[likes][of_state].mean() == pytest.approx(0.2)
    (every,) = make_folds(grounding, parse_hide("0.2"))
    assert every.test[block(grounding, "E.colour")].any()


def test_qualified_column_holds_out_only_that_entity(grounding):
    rounds = make_folds(grounding, parse_split("by=E.town"))
    assert [one.name for one in rounds] == ["t0", "t1", "t2", "t3"]
    assert not any(one.test[block(grounding, "F.shade")].any() for one in rounds)
    assert rounds[0].test[block(grounding, "Likes")].sum() == 15 * 3  # a tuple belongs to its entity argument
    assert len(make_folds(grounding, parse_split("by=E.town", 2))) == 2
    with pytest.raises(DataError, match="E212"):
        make_folds(grounding, parse_split("by=town"))  # F does not have the column


@pytest.mark.parametrize("column", ["E.year", "E.day"])
def test_time_folds_train_on_the_past(grounding, column):
    rounds = make_folds(grounding, f"folds=3,time={column}")
    colours, others = block(grounding, "E.colour"), block(grounding, "F.shade")
    labelled = grounding.states >= 0
    assert len(rounds) == 3
    for number, one in enumerate(rounds):
        when = np.arange(60)
        held, unused = one.test[colours], one.excluded[colours]
        training = labelled[colours] & ~held & ~unused
        assert when[training].max() < when[held].min()
        assert not unused.any() or when[held].max() < when[unused].min()
        assert not one.test[others].any() and not one.excluded[others].any()
        assert unused.any() == (number < 2)
    assert rounds[-1].name.startswith(("2004", "2026-02"))


def test_repeats_are_different_splits(grounding):
    rounds = make_folds(grounding, "random,folds=2,repeats=2")
    assert [one.name for one in rounds] == ["1.1", "1.2", "2.1", "2.2"]
    assert not np.array_equal(rounds[0].test, rounds[2].test)
    for plan in ("repeats=2,folds=2,time=E.year", "repeats=2,by=E.town"):
        with pytest.raises(UsageError, match="E352"):
            make_folds(grounding, plan)


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ("component,folds=400", "E352"),
        ("random,folds=1000", "E352"),
        ("snowball,folds=1000", "E352"),
        ("folds=5,by=E.town", "E352"),
        ("folds=5,time=E.year", "E352"),
        ("folds=2,time=E.town", "E352"),
        ("folds=2,time=F.year", "E212"),
        ("by=Near.year", "E212"),
        ("hide=0.001,of=*", "E226"),
    ],
)
def test_impossible_splits_raise_error(grounding, plan, code):
    with pytest.raises(DataError, match=code):
        make_folds(grounding, plan)


def test_single_label_raises_error():
    model = relcrf.parse("entity E { predict d : bool } template t(e: E) over e.d")
    one = model.ground(relcrf.Dataset({"e": {"id": [1, 2], "d": [True, None]}}))
    with pytest.raises(DataError, match="label more entities"):
        make_folds(one, "random,folds=2")


def test_unknown_attribute_raises_e310(grounding):
    with pytest.raises(UsageError, match="E310"):
        make_folds(grounding, "hide=0.1,of=Colours")


def test_missing_times_raise_e352():
    model = relcrf.parse("domain D = { x, y } entity E { predict d : D } template t(e: E) over e.d")
    data = pd.DataFrame({"id": [1, 2, 3], "d": ["x", "y", "x"], "year": ["2001", None, "2003"]})
    grounding = model.ground(relcrf.Dataset({"e": data}))
    with pytest.raises(DataError, match=r"E352.*1 labels have no time"):
        make_folds(grounding, "folds=2,time=year")


def test_group_with_all_labels_raises_e226():
    model = relcrf.parse("domain D = { x, y } entity E { predict d : D } template t(e: E) over e.d")
    data = pd.DataFrame({"id": [1, 2, 3], "d": ["x", "y", None], "part": ["a", "a", "b"]})
    grounding = model.ground(relcrf.Dataset({"e": data}))
    with pytest.raises(DataError, match="E226"):
        make_folds(grounding, "part")


def test_entity_without_predictions_raises_e342():
    model = relcrf.parse(
        "domain D = { x, y } entity E { predict d : D } entity F { size : integer } template t(e: E) over e.d"
    )
    data = {"e": pd.DataFrame({"id": [1, 2], "d": ["x", "y"]}), "f": pd.DataFrame({"id": [1], "size": [1]})}
    with pytest.raises(DataError, match="E342"):
        make_folds(model.ground(relcrf.Dataset(data)), "by=F.size")
