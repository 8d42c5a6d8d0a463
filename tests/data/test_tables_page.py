"""Tests of the examples in docs/reference/tables.md."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
from command import relcrf_command
from tables import write_tables

import relcrf

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
MODEL = """
domain Category = { course, faculty }
entity Page { predict category : Category }
relation Link(source: Page, target: Page)
relation Cocited(x: Page, y: Page)
predict relation Spam(page: Page)
template page(p: Page) over p.category
template link(p: Page, q: Page) where Link(p, q) over p.category == q.category
template cocited(p: Page, q: Page) where Cocited(p, q) over p.category == q.category
template spam(p: Page) over Spam(p)
"""


def example(language, start=""):
    (text,) = re.findall(rf"^```{language}\n({re.escape(start)}.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture
def web(tmp_path):
    folder = tmp_path / "web"
    keys = [f"p{k}" for k in range(12)]
    write_tables(folder, pages=[{"id": key, "label": ("course", "faculty")[k % 2]} for k, key in enumerate(keys)])
    write_tables(folder, spam=[{"page": keys[0]}])
    write_tables(folder / "links", all=[{"source": a, "target": b} for a in keys[:4] for b in keys[6:8]])
    (folder / "dataset.toml").write_text(example("toml", "[tables.page]"))
    (tmp_path / "web.rcrf").write_text(MODEL)
    return folder


def test_manifest_of_page_grounds(web):
    data = relcrf.Dataset(web)
    assert len(data.connection.execute(f"SELECT * FROM {data.find_table('cocited').scan}").fetchall()) == 6
    grounding = relcrf.parse(MODEL).ground(data)
    spam = [int(s) for v, s in enumerate(grounding.states) if grounding.variable_name(v).startswith("Spam")]
    assert spam == [1] + [-1] * 11


def test_csv_format_of_page_reads_a_spreadsheet(tmp_path):
    (tmp_path / "shop.csv").write_text("id;city;sales\n1;Zürich;1.234,5\n2;-;n/a\n", encoding="cp1252")
    (tmp_path / "dataset.toml").write_text(example("toml", "[tables.shop]"))
    data = relcrf.Dataset(tmp_path)
    rows = data.connection.execute(f"FROM {data.find_table('shop').scan}").fetchall()
    assert rows == [("1", "Zürich", "1234.5"), ("2", None, None)]


def test_commands_of_page_run(web, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = example("console").splitlines()
    for line in lines:
        code, _, err = relcrf_command(capsys, monkeypatch, *shlex.split(line.removeprefix("$ relcrf ")))
        assert code == 0, (line, err)
    assert len(lines) == 5
    assert len((tmp_path / "found.jsonl").read_text().splitlines()) >= 1


def test_program_of_page_runs(tmp_path, capsys):
    (tmp_path / "example.py").write_text(example("python"))
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out.count("bob") == 2
