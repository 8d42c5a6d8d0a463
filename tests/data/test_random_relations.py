"""Tables of random relations: listed and unlisted tuples, and invalid tables."""

import pandas as pd
import pytest

import relcrf
from relcrf.errors import DataError
from relcrf.evaluation.splits import partition_variables

MODEL = """
domain D = { red, blue }
entity E
relation R(a: E, b: E)
predict relation P(x: E, y: E) where R(x, y)
predict relation Q(x: E) : D
template p(x: E, y: E) over P(x, y)
template q(x: E) over Q(x)
"""
E = pd.DataFrame({"id": ["a", "b", "c"], "side": ["left", "left", "right"]})
R = pd.DataFrame({"a": ["a", "b", "c"], "b": ["b", "c", "a"]})


def ground(**tables):
    return relcrf.parse(MODEL).ground(relcrf.Dataset({"e": E, "r": R, **tables}))


def states(grounding):
    return {grounding.variable_name(v): int(s) for v, s in enumerate(grounding.states)}


def test_without_table_all_tuples_are_queries():
    found = ground()
    assert states(found) == {f"P({a}, {b})": -1 for a, b in R.to_numpy()} | {f"Q({e})": -1 for e in "abc"}
    assert [n for n in found.bound.notes if "every tuple is a query variable" in n]


def test_listed_tuples_are_true_and_others_false():
    found = states(ground(p=pd.DataFrame({"x": ["a"], "y": ["b"]}), q=pd.DataFrame({"x": ["a"], "value": ["blue"]})))
    assert found == {"P(a, b)": 1, "P(b, c)": 0, "P(c, a)": 0, "Q(a)": 1, "Q(b)": -1, "Q(c)": -1}


@pytest.mark.parametrize("name", ["value", "P", "p"])
def test_value_column_sets_truth_and_missing_value_is_query(name):
    table = pd.DataFrame({"x": ["a", "b"], "y": ["b", "c"], name: [False, None]})
    assert list(states(ground(p=table)).values())[:3] == [0, -1, 0]


def test_value_column_is_found_by_domain_name_or_as_only_column():
    for name in ("D", "colour"):
        found = ground(q=pd.DataFrame({"x": ["c"], name: ["red"]}))
        assert states(found)["Q(c)"] == 0
    assert any("using 'colour' as the value of Q" in n for n in found.bound.notes)


def test_tuples_rejected_by_where_are_left_out_with_note():
    found = ground(p=pd.DataFrame({"x": ["a", "a"], "y": ["b", "a"]}))
    assert list(states(found).values())[:3] == [1, 0, 0]
    assert "1 tuples of P do not satisfy its 'where' and are ignored" in found.bound.notes


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ({"q": pd.DataFrame({"x": ["a"], "value": ["green"]})}, "E216"),
        ({"q": pd.DataFrame({"x": ["a"]})}, "E212"),
        ({"q": pd.DataFrame({"x": ["z"], "value": ["red"]})}, "E219"),
        ({"q": pd.DataFrame({"x": [None], "value": ["red"]})}, "E213"),
        ({"q": pd.DataFrame({"x": ["a", "a"], "value": ["red", "blue"]})}, "E220"),
        ({"p": pd.DataFrame({"x": ["a"], "z": ["b"], "value": [True]})}, "E212"),
        ({"p": pd.DataFrame({"x": ["a"], "y": ["b"], "value": ["maybe"]})}, "E215"),
    ],
)
def test_invalid_table_raises_data_error(tables, code):
    with pytest.raises(DataError) as caught:
        ground(**tables)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_split_uses_first_argument_with_the_column():
    split = partition_variables(ground(), "side")
    assert [split.fold_names[f] for f in split.fold] == ["left", "left", "right"] * 2
    with pytest.raises(DataError, match="no column 'nothing'"):
        partition_variables(ground(), "nothing")


def test_predictions_of_relation_have_argument_columns():
    found = relcrf.parse(MODEL)
    data = relcrf.Dataset(
        {"e": E, "r": R, "p": pd.DataFrame({"x": ["a", "b"], "y": ["b", "c"], "value": [True, None]})}
    )
    prediction = found.fit(data, "ess").predict(data)
    table = prediction.table("P")
    assert list(table.columns) == ["x", "y", "value", "probability", "joint", "p_false", "p_true"]
    assert [row[:2] for row in table.rows()] == [("b", "c")]
    assert len(prediction.table("Q")) == 3


def test_list_column_equals_bag_table():
    model = relcrf.parse(
        "domain W = open\nentity E { predict s : bool  words : bag of W }\ntemplate t(e: E) over e.s by e.words"
    )
    listed = pd.DataFrame({"id": ["a", "b"], "s": [True, False], "words": [["x", "y", "x"], []]})
    rows = pd.DataFrame({"e": ["a", "a", "a"], "word": ["x", "y", "x"]})
    one = model.ground(relcrf.Dataset({"e": listed}))
    other = model.ground(relcrf.Dataset({"e": listed.drop(columns="words"), "e_words": rows}))
    for grounding in (one, other):
        (group,) = grounding.graph.groups
        info = grounding.templates[0]
        assert {info.feature_name(f)[0][0]: v for f, v in group.features.row(0)} == {"x": 2.0, "y": 1.0}


def test_warnings_that_need_data():
    text = MODEL + "template all(x: E, y: E) where x != y over Q(x) == Q(y)\n"
    data = relcrf.Dataset({"e": E, "r": R, "q": pd.DataFrame({"x": ["a"], "value": ["red"]})})
    warnings, notes = relcrf.parse(text).check(data)
    assert [w.code for w in warnings] == ["W201", "W203"]
    assert warnings[0].notes == ("6 bindings on this data",)
    assert warnings[1].message == "value 'blue' of domain D never occurs in the data"
    assert notes
