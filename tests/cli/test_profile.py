"""The profile command: a page on tables, checked against values that are computed in Python."""

import re
import statistics
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from tables import small_web, write_tables

import relcrf
from relcrf.proposal.profile import profile_tables
from relcrf.proposal.proposal import propose
from relcrf.proposal.schema_diagram import schema_lines, schema_svg
from relcrf.proposal.table_statistics import N_BARS, describe_table, find_leaks


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    rng = np.random.default_rng(0)
    shop = [
        {
            "id": k,
            "city": "ABBCCC"[k % 6],
            "sales": "" if k % 10 == 3 else round(float(rng.normal(50, 10)), 3),
            "opened": f"20{10 + k % 10}-03-{1 + k % 28:02}",
            "note": "" if k else "x",
            "closed": ("no", "yes")[k % 4 == 0],
            "reason": ("", "debt")[k % 4 == 0] or "open",
        }
        for k in range(120)
    ]
    near = [{"source": int(rng.integers(120)), "target": int(rng.integers(120))} for _ in range(200)]
    return write_tables(tmp_path_factory.mktemp("shops"), shop=shop, near=near), shop


def columns(folder):
    tables = {table.name: describe_table(table) for table in profile_tables(relcrf.Dataset(folder))}
    return tables, {column.name: column for column in tables["shop"].columns}


def test_statistics_are_those_of_the_values(shops):
    folder, rows = shops
    tables, found = columns(folder)
    assert (tables["shop"].rows, tables["shop"].n_columns, tables["near"].rows) == (120, 7, 200)
    sales = [row["sales"] for row in rows if row["sales"] != ""]
    column = found["sales"]
    assert (column.present, column.distinct) == (len(sales), len(set(sales)))
    assert [float(x) for x in (column.low, column.median, column.high)] == pytest.approx(
        [min(sales), statistics.median(sales), max(sales)], rel=1e-5
    )
    counts, _ = np.histogram(sales, bins=N_BARS)
    assert [bar.count for bar in column.bars] == counts.tolist()
    assert [(bar.label, bar.count) for bar in found["city"].bars] == Counter(row["city"] for row in rows).most_common()
    assert (found["opened"].low, found["opened"].high) == (
        min(row["opened"] for row in rows), max(row["opened"] for row in rows),
    )  # fmt: skip
    assert any("missing in 99%" in remark for remark in found["note"].remarks)


def test_leaks_are_attributes_that_determine_the_label(shops):
    draft = propose(str(shops[0]), shops[0] / "m.rcrf", "shop.closed", "1GB").draft
    assert [name for name, _ in find_leaks(draft)] == ["Shop.reason"]


def test_page_and_json(shops, tmp_path, relcrf_, relcrf_json):
    out = tmp_path / "page" / "shops.html"
    code, text, err = relcrf_("profile", shops[0], "--out", out, "--predict", "shop.closed")
    assert code == 0 and "Shop 1 ─── n Near" in text and "Shop.reason may contain the label" in err
    page = out.read_text()
    assert "<script" not in page and "http-equiv" in page and "Shop.reason may contain the label" in page
    assert re.search(r"Target: Shop.closed", page)
    code, found = relcrf_json("profile", shops[0], "--out", out)
    assert code == 0 and {table["name"] for table in found["tables"]} == {"shop", "near"}


def test_texts_of_tables_are_escaped(tmp_path, relcrf_):
    rows = [{"id": k, "kind": ("<img src=x onerror=alert(1)>", "b")[k % 2], "label": "xy"[k % 2]} for k in range(30)]
    folder = write_tables(tmp_path / "d", page=rows)
    assert relcrf_("profile", folder, "--out", tmp_path / "p.html")[0] == 0
    page = (tmp_path / "p.html").read_text()
    assert "<img" not in page and "&lt;img" in page
    (folder / "page.csv").rename(folder / "<b>x.csv")
    (folder / "<b>x.csv").write_text((folder / "<b>x.csv").read_text().replace("kind", "<i>kind", 1))
    assert relcrf_("profile", folder, "--out", tmp_path / "p.html")[0] == 0
    page = (tmp_path / "p.html").read_text()
    assert "<b>" not in page and "<i>" not in page and "&lt;b&gt;x" in page


def test_tables_without_a_target(tmp_path, relcrf_):
    folder = write_tables(tmp_path / "d", number=[{"id": k, "x": k / 7} for k in range(40)])
    code, _, err = relcrf_("profile", folder, "--out", tmp_path / "p.html")
    assert code == 0 and "nothing that could be predicted" in err
    page = (tmp_path / "p.html").read_text()
    assert "nothing that could be predicted" in page and "number" in page
    code, _, err = relcrf_("profile", folder, "--out", tmp_path / "p.html", "--predict", "number.y")
    assert code == 2 and "E373" in err
    code, _, err = relcrf_("profile", folder, "--out", tmp_path / "p.txt")
    assert code == 2 and "E312" in err


def test_diagram_shows_all_entities_and_relations(tmp_path):
    schema = propose(str(small_web(tmp_path / "web")), tmp_path / "m.rcrf", None, "1GB").draft.analysis.schema
    assert schema_lines(schema)[0].startswith("Page 1 ─── n Link (")
    root = ElementTree.fromstring(schema_svg(schema))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Page (60)" in texts and any(text.startswith("Link (") for text in texts)
