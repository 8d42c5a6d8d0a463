"""E221 names the column of the labels that is missing, and prints the line of a manifest that works."""

import duckdb
import pytest

import relcrf
from relcrf.errors import DataError

MODEL = """
domain Topic = open
domain Word = open
entity Paper { predict topic : Topic  year : integer  words : bag of Word  place : vector }
relation Cites(source: Paper, target: Paper)
template prior(p: Paper) over p.topic by p.year
"""
PAPERS = "Id,year,place_0,place_1,{columns}\n1,2001,0,1,{a}\n2,2002,1,0,{b}\n3,2003,1,1,{a}\n4,2004,0,0,{b}\n"
FILES = {"cites.csv": "source,target\n1,2\n", "paper_word.csv": "paper,word\n1,a\n", "other.csv": "x\n1\n"}


def write_folder(folder, columns, a, b):
    for name, text in {**FILES, "paper.csv": PAPERS.format(columns=columns, a=a, b=b)}.items():
        (folder / name).write_text(text)
    return folder


def problem_of(data, model=MODEL, **options):
    with pytest.raises(DataError) as caught:
        relcrf.parse(model).ground(relcrf.Dataset(data, **options))
    (problem,) = caught.value.diagnostics
    assert problem.code == "E221"
    return problem


def values(data, **options):
    return relcrf.parse(MODEL).ground(relcrf.Dataset(data, **options)).bound.domains["Topic"]


def test_missing_column_of_labels_is_guessed(tmp_path):
    folder = write_folder(tmp_path, "code,category,when,lone", "7,x,2001-01-01,first", "8,y,2001-01-02,second")
    for number, name in enumerate("abcd"):  # distinct texts are not labels
        text = (folder / "paper.csv").read_text().split("\n")
        text[number + 1] = text[number + 1].rsplit(",", 1)[0] + f",{name}"
        (folder / "paper.csv").write_text("\n".join(text))
    problem = problem_of(folder)
    assert problem.message == f"the domain of Paper.topic has no values: {folder / 'paper.csv'} has no column 'topic'"
    assert problem.notes == ("its columns are Id, year, place_0, place_1, code, category, when, lone",)
    advice, _, line = problem.hint.partition("columns.toml: ")
    assert advice == "if 'category' has the labels, write this line to a file columns.toml and add --manifest "
    assert line == 'tables.paper.columns.topic = "category"'
    (folder / "columns.toml").write_text(line)
    assert values(folder, manifest=folder / "columns.toml") == ("x", "y")


def test_unused_columns_are_listed_without_a_guess(tmp_path):
    problem = problem_of(write_folder(tmp_path, "kind,section", "x,s", "y,t"))
    assert problem.notes[-1] == "the model does not use kind, section"
    assert problem.hint.startswith("if the column NAME has the labels, ") and 'topic = "NAME"' in problem.hint


def test_column_with_a_similar_name_is_guessed(tmp_path):
    assert problem_of(write_folder(tmp_path, "topics,section", "1,s", "2,t")).hint.startswith(
        "if 'topics' has the labels"
    )


def test_manifest_with_tables_and_columns_is_extended(tmp_path):
    folder = write_folder(tmp_path, "category,y", "x,1", "y,2")
    lines = [
        f'[tables.{name.removesuffix(".csv")}]\nfile = "{name}"'
        for name in ("cites.csv", "paper_word.csv", "paper.csv")
    ]
    text = "\n".join(lines) + '\ncolumns = { kind = "category", Year2 = "y" }\n'
    (folder / "dataset.toml").write_text(text)
    hint = problem_of(folder).hint
    line = 'columns = { Year2 = "y", topic = "category" }'
    assert hint == f"if 'kind' has the labels, write {line} below [tables.paper] in the manifest"
    (folder / "dataset.toml").write_text("\n".join([*lines, line]))
    assert values(folder) == ("x", "y")


def test_manifest_with_a_split_is_extended(tmp_path):
    folder = write_folder(tmp_path, "category,school", "x,s", "y,t")
    (folder / "dataset.toml").write_text('[split]\ncolumn = "school"\n')
    advice, _, line = problem_of(folder).hint.partition("manifest: ")
    assert advice == "if 'category' has the labels, write this line at the beginning of the "
    (folder / "dataset.toml").write_text(f'{line}\n[split]\ncolumn = "school"\n')
    assert values(folder) == ("x", "y")


@pytest.mark.parametrize("kind", ["folder", "file", "frames"])
def test_line_for_other_sources(tmp_path, kind):
    model = "domain T = open\nentity Paper { predict topic : T }\ntemplate t(p: Paper) over p.topic"
    rows = {"id": [1, 2, 3, 4], "label": ["x", "y", "x", "y"]}
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE paper AS SELECT unnest([1, 2, 3, 4]) AS id, unnest(['x', 'y', 'x', 'y']) AS label"
        )
    data = {"folder": tmp_path, "file": tmp_path / "shop.duckdb", "frames": {"paper": rows}}[kind]
    manifest = tmp_path / "m.toml"
    manifest.write_text(problem_of(data, model).hint.partition("columns.toml: ")[2])
    assert relcrf.parse(model).ground(relcrf.Dataset(data, manifest=manifest)).bound.domains["T"] == ("x", "y")


def test_empty_column_and_missing_table_are_reported():
    model = "domain T = open\nentity Paper { predict topic : T }\ntemplate t(p: Paper) over p.topic"
    problem = problem_of({"paper": {"id": [1, 2], "topic": [None, ""]}}, model)
    assert problem.message == "the domain of Paper.topic has no values in the data"
    assert problem.hint == "label some rows of table 'paper', or list the values of the domain in the model"
    assert problem_of({"paper": {"id": [1, 2]}}, model).hint.startswith(
        "add a column 'topic' with the labels of some rows"
    )
    model = "domain T = open\nentity Paper\npredict relation Topic(p: Paper) : T\ntemplate t(p: Paper) over Topic(p)"
    problem = problem_of({"paper": {"id": [1, 2]}, "topics": {"p": [1], "value": ["x"]}}, model)
    assert problem.message == "the domain of Topic has no values: the table 'topic' is missing"
    assert problem.hint == "did you mean 'topics'?"
