"""Names in models and tables that equal internal names of relcrf, and rows that must not be lost."""

import pandas as pd
import pytest

import relcrf


def keys_where(where, tables, declarations):
    text = f"domain C = {{ a, b }}\n{declarations}\ntemplate t(p: Page) where {where} over p.c"
    grounding = relcrf.parse(text).ground(relcrf.Dataset(tables))
    return [int(grounding.argument_texts(grounding.blocks[0])[0][v]) for v in grounding.graph.groups[0].scope[0]]


def test_attributes_can_have_names_of_internal_columns():
    page = pd.DataFrame({"name": [1, 2, 3], "c": "a", "key": [10, 0, 5], "vid": [100, 200, 300], "code": [1, 2, 3]})
    declarations = "entity Page(name) { predict c : C  key : real  vid : integer  code : integer }"
    assert keys_where("p.vid > 150", {"page": page}, declarations) == [2, 3]
    assert keys_where("p.key > 6 and p.code < 2", {"page": page}, declarations) == [1]


def test_relation_attributes_can_have_names_of_argument_columns():
    tables = {
        "page": pd.DataFrame({"id": [1, 2], "c": "a"}),
        "link": pd.DataFrame({"x": [1, 2], "y": [2, 1], "a0": [0.0, 9.0]}),
    }
    declarations = "entity Page { predict c : C }\nrelation Link(x: Page, y: Page) { a0: real }"
    assert keys_where("Link(p, q) and Link(p, q).a0 > 5", tables, declarations) == [2]


def test_two_models_share_a_dataset():
    tables = {"page": pd.DataFrame({"id": [1, 2, 3], "name": ["x", "y", "z"], "c": ["a", None, None]})}
    data = relcrf.Dataset(tables)
    first = relcrf.parse("domain C = { a, b } entity Page { predict c : C }\ntemplate t(p: Page) over p.c")
    second = relcrf.parse("domain C = { a, b } entity Page(name) { predict c : C }\ntemplate t(p: Page) over p.c")
    one = first.fit(data, "ess").predict(data)
    two = second.fit(data, "ess").predict(data)
    assert one.table()["id"].tolist() == ["2", "3"]
    assert two.table()["name"].tolist() == ["y", "z"]


def test_prediction_columns_have_unique_names():
    model = relcrf.parse(
        "entity E { predict joint : bool  predict probability : bool }\ntemplate t(e: E) over e.joint, e.probability"
    )
    data = relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2], "joint": [True, None], "probability": [True, None]})})
    found = model.fit(data, "ess").predict(data)
    assert list(found.table("joint").columns) == ["id", "joint", "probability", "joint_", "p_false", "p_true"]
    assert list(found.table("probability").columns)[:4] == ["id", "probability", "probability_", "joint"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_files_have_a_column_for_each_of_two_values_that_differ_in_case(tmp_path, suffix):
    model = relcrf.parse("domain D = { Yes, yes, no } entity E { predict d : D }\ntemplate t(e: E) over e.d")
    rows = pd.DataFrame({"id": range(5), "d": ["Yes", "Yes", "yes", "no", None]})
    table = model.fit({"e": rows}, "local").predict({"e": rows}).table()
    names = ["id", "d", "probability", "joint", "p_Yes", "p_yes_", "p_no"]
    assert list(table.columns) == names and table["p_Yes"][0] > table["p_yes_"][0]
    path = tmp_path / f"found{suffix}"
    table.write(path)
    assert list((pd.read_csv(path) if suffix == ".csv" else pd.read_json(path, lines=True)).columns) == names


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("x,y\n1,2\n2,3\n3,4,5\n1,3\n", "E204"),
        ("x,y\n1,2.6\n", "E219"),
        ("x,y\n1,2e0\n", "E219"),
        ("x,y\n1,\n", "E213"),
        ("x,y\n#1,2\n", "E219"),
    ],
)
def test_bad_lines_are_errors(tmp_path, content, code):
    (tmp_path / "page.csv").write_text("id,c\n1,a\n2,b\n3,\n")
    (tmp_path / "link.csv").write_text(content)
    text = "domain C = { a, b } entity Page { predict c : C }\nrelation Link(x: Page, y: Page)\ntemplate t(p: Page) over p.c"
    with pytest.raises(relcrf.DataError) as found:
        relcrf.parse(text).ground(relcrf.Dataset(tmp_path))
    assert [d.code for d in found.value.diagnostics] == [code]


def test_fractional_label_of_range_domain_is_rejected():
    model = relcrf.parse("domain C = 1..5 entity E { predict c : C }\ntemplate t(e: E) over e.c")
    with pytest.raises(relcrf.DataError, match=r"'2\.5' is not a value of C"):
        model.ground(relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2], "c": [2.5, 3.0]})}))


def test_large_integers_are_exact_and_can_be_keys():
    model = relcrf.parse(
        "domain C = { a, b } entity E { predict c : C  n : integer }\ntemplate t(e: E) over e.c per e.n"
    )
    data = relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2], "c": ["a", "b"], "n": [2**60, 3_000_000_000]})})
    (info,) = model.ground(data).templates
    assert set(info.keys.values) == {(str(2**60),), ("3000000000",)}
