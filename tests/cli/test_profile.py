"""The profile command: a page on tables, checked against values that are computed in Python."""

import html
import re
import statistics
from collections import Counter
from xml.etree import ElementTree

import browser
import duckdb
import numpy as np
import pytest
from html_page import Page
from tables import small_web, write_tables

import relcrf
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal.data_profile import profile_data
from relcrf.proposal.leaks import MAX_LEAK_ROWS
from relcrf.proposal.profile import profile_tables
from relcrf.proposal.profile_page import write_profile
from relcrf.proposal.proposal import propose
from relcrf.proposal.schema import ProposedAttribute, ProposedEntity, ProposedRelation, ProposedSchema, RelationArgument
from relcrf.proposal.schema_diagram import schema_lines
from relcrf.proposal.schema_picture import schema_svg
from relcrf.proposal.table_statistics import N_BARS, describe_table
from relcrf.report.page import read_resource


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
    found = profile_data(str(shops[0]), "shop.closed", DEFAULT_MEMORY)
    assert [name for name, _ in found.leaks] == ["Shop.reason"]
    (balance,) = found.labels
    assert (balance.known, balance.missing) == (120, 0)
    assert [(bar.label, bar.count) for bar in balance.labels] == [("no", 90), ("yes", 30)]


def test_leaks_of_every_target_in_a_sample_of_a_large_table(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    n = MAX_LEAK_ROWS + 5000
    duckdb.sql(
        f"COPY (SELECT i AS id, hash(i) % 100 AS a, hash(i) % 7 % 3 AS b, hash(i + 1) % 5 / 3 AS c, "
        f"CAST(a < 30 AS INTEGER) AS label0, CAST(c > 0.7 AS INTEGER) AS label1, i % 3 % 2 AS label2 FROM range({n}) AS t(i)) "
        f"TO '{folder / 'item.csv'}'"
    )
    found = profile_data(str(folder), None, DEFAULT_MEMORY)
    assert [balance.name for balance in found.labels] == ["Item.label0", "Item.label1", "Item.label2"]
    assert {(name, re.search(r"label\d", reason)[0]) for name, reason in found.leaks} == {
        ("Item.a", "label0"), ("Item.c", "label1"),
    }  # fmt: skip
    assert all(f"a sample of {n // 2:,} rows" in reason for _, reason in found.leaks)


def test_leaks_in_another_table_and_in_events(tmp_path):
    customers = [{"id": f"c{k}", "churned": ("no", "yes")[k % 3 == 0]} for k in range(90)]
    payments = [
        {"id": f"p{k}-{j}", "customer_id": f"c{k}", "time": f"2024-01-{1 + j:02} 10:00:00", "fee": 9 if k % 3 else 1}
        for k in range(90)
        for j in range(4)
    ]
    folder = write_tables(tmp_path / "d", customer=customers, payment=payments)
    assert "Customer.mean_fee" in dict(profile_data(str(folder), "customer.churned", DEFAULT_MEMORY).leaks)


def test_keys_and_links_count_the_invalid_rows(tmp_path, relcrf_json):
    shop = [{"id": f"s{k}", "label": "xy"[k % 2]} for k in (*range(200), 7)]
    visit = [{"shop": f"s{k % 200}", "guest": f"g{k % 90}", "day": k % 7} for k in range(600)]
    visit[5]["shop"] = visit[6]["shop"] = "s999"
    visit[8]["shop"] = None
    guest = [{"id": f"g{k}", "shop": None if k == 3 else f"s{k}"} for k in range(100)]
    folder = write_tables(tmp_path / "d", shop=shop, visit=visit, guest=guest)
    code, found = relcrf_json("profile", folder, "--out", tmp_path / "p.html", "--predict", "shop.label")
    assert code == 0
    assert found["keys"] == [
        {"column": "guest.id", "rows": 100, "duplicates": 0, "missing": 0},
        {"column": "shop.id", "rows": 201, "duplicates": 1, "missing": 0},
    ]
    links = {link.pop("column"): link for link in found["links"]}
    assert links["visit.shop"] == {
        "target": "shop.id", "cardinality": "n : 1", "rows": 600, "matched": 597, "missing": 1, "orphans": 2,
    }  # fmt: skip
    assert (links["guest.shop"]["cardinality"], links["guest.shop"]["missing"]) == ("1 : 1", 1)
    assert links["visit.guest"]["matched"] == 597  # of the rows that remain
    page = (tmp_path / "p.html").read_text()
    assert re.search(r"<td>visit.shop</td><td>shop.id</td>.*99.5%", page)


def test_agreement_is_that_of_the_linked_pairs(tmp_path):
    rng = np.random.default_rng(1)
    kind = ["abc"[k] for k in rng.integers(3, size=100)]
    page = [{"id": f"p{k}", "kind": None if k % 10 == 0 else kind[k], "host": f"h{k % 25}"} for k in range(100)]
    host = [{"id": f"h{k}", "country": f"c{k % 3}"} for k in range(25)]
    link = [{"source": f"p{a}", "target": f"p{b}"} for a, b in rng.integers(100, size=(300, 2))]
    folder = write_tables(tmp_path / "d", page=page, host=host, link=link)
    found = {link: homophily for _, link, homophily in profile_data(str(folder), "page.kind", DEFAULT_MEMORY).agreement}
    label = {row["id"]: row["kind"] for row in page if row["kind"]}
    ends = [(row["source"], row["target"]) for row in link if row["source"] != row["target"]]
    shared = [(a["id"], b["id"]) for k, a in enumerate(page) for b in page[:k] if a["host"] == b["host"]]
    for name, pairs in (("link: source, target", ends), ("same page.host", shared)):
        known = [(label[a], label[b]) for a, b in pairs if a in label and b in label]
        frequencies = Counter(value for pair in known for value in pair)
        assert (found[name].pairs, found[name].equal) == (len(known), sum(a == b for a, b in known))
        assert found[name].by_chance == pytest.approx(sum((n / 2 / len(known)) ** 2 for n in frequencies.values()))


def test_duplicate_rows_and_mixed_types_are_remarks(tmp_path, relcrf_):
    rows = [{"shop": "abc"[k % 3], "price": k % 50, "day": f"2024-03-{1 + k % 28:02}"} for k in range(400)]
    rows += [dict(rows[0]), dict(rows[1])]
    rows[10]["price"], rows[11]["price"], rows[12]["day"] = "12 EUR", "free", "soon"
    folder = write_tables(tmp_path / "d", sale=rows, shop=[{"id": "abc"[k], "open": k % 2} for k in range(3)])
    code, _, err = relcrf_("profile", folder, "--out", tmp_path / "p.html")
    page = html.unescape((tmp_path / "p.html").read_text())
    distinct = len({tuple(row.values()) for row in rows})
    for text in (
        f"sale: {402 - distinct:,} of 402 rows repeat earlier rows",
        "sale.price contains numbers, except in 2 of 402 cells (0.5%), such as '12 EUR', 'free'",
        "sale.day contains dates, except in 1 of 402 cells (0.25%), such as 'soon'",
    ):
        assert text in page and text in err, text
    assert code == 0


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


SVG = "{http://www.w3.org/2000/svg}"


def test_diagram_shows_all_entities_and_relations(tmp_path):
    analysis = propose(str(small_web(tmp_path / "web")), tmp_path / "m.rcrf", None, "1GB").draft.analysis
    assert schema_lines(analysis.schema, 78)[0].startswith("Page 1 ─── n Link (")
    root = ElementTree.fromstring(schema_svg(analysis.schema, analysis.target.names))
    styles = {element.text: element.get("fill") for element in root.iter(f"{SVG}text")}
    assert "Page (60)" in styles and any(text.startswith("↻ Link (") for text in styles)
    coloured = [text for text, fill in styles.items() if fill == "var(--mark)"]
    assert coloured == [f"{analysis.target.name.removeprefix('Page.')}: enumeration"]


def schema_of(n_types, relations):
    """Return a schema with types of 0 to 11 attributes, and a relation for each list of indices of types."""
    entities = [ProposedEntity(f"Type{k}", "id", 10, "", "") for k in range(n_types)]
    for k, entity in enumerate(entities):
        entity.attributes += [ProposedAttribute(f"x{j}", "real", "", "") for j in range(5 * k % 12)]
    proposed = [
        ProposedRelation(
            f"Relation{k}", [RelationArgument(f"a{j}", f"Type{t}", entities[t], "", 10) for j, t in enumerate(types)], 20, "", "r"
        )
        for k, types in enumerate(relations)
    ]  # fmt: skip
    return ProposedSchema(entities, proposed)


def rectangles(root):
    """Return the rectangles (left, top, right, bottom) of the boxes and of the labels of relations."""
    groups = {"box": [], "relation": []}
    for group in root.iter(f"{SVG}g"):
        x, y, width, height = (float(group.find(f"{SVG}rect").get(name)) for name in ("x", "y", "width", "height"))
        groups[group.get("class")].append((x, y, x + width, y + height))
    return groups["box"], groups["relation"]


@pytest.mark.parametrize("n_types", range(2, 16))
def test_diagram_has_no_overlaps(n_types):
    """Boxes and labels do not overlap, and lines run only in the gaps between the columns of boxes and labels."""
    rng = np.random.default_rng(n_types)
    relations = [[0, k] for k in range(1, n_types)]
    relations += [rng.integers(n_types, size=rng.integers(1, 5)).tolist() for _ in range(n_types // 2)]
    root = ElementTree.fromstring(schema_svg(schema_of(n_types, relations)))
    width, height = map(float, root.get("viewBox").split()[2:])
    boxes, labels = rectangles(root)
    linking = [types for types in relations if len({*types}) > 1]
    assert (len(boxes), len(labels)) == (n_types, len(linking))
    for k, (left, top, right, bottom) in enumerate(found := boxes + labels):
        assert left >= 0 and right <= width and top >= 0 and bottom <= height
        assert all(right <= x or u <= left or bottom <= y or v <= top for x, y, u, v in found[:k])
    paths = [
        path.get("d") for path in root.iter(f"{SVG}path") if path.get("d").startswith("M") and "C" in path.get("d")
    ]
    assert len(paths) == sum(map(len, linking))
    for path in paths:
        start_x, start_y, *_, end_x, end_y = map(float, re.findall(r"[\d.]+", path))
        assert any(start_x in (x, u) and y < start_y < v for x, y, u, v in labels)
        assert any(end_x in (x, u) and y < end_y < v for x, y, u, v in boxes)
        left, right = sorted((start_x, end_x))
        assert all(u <= left or right <= x for x, _, u, _ in found)


def test_diagram_joins_relations_to_all_arguments():
    schema = schema_of(9, [[0, 1, 2], [*range(9)], [3, 3, 4]])
    root = ElementTree.fromstring(schema_svg(schema))
    _, labels = rectangles(root)
    paths = [path.get("d") for path in root.iter(f"{SVG}path")]
    starts = [tuple(map(float, path.split()[1:3])) for path in paths if "C" in path]
    assert [sum(x in (left, right) and top < y < bottom for x, y in starts) for left, top, right, bottom in labels] == [
        3,
        9,
        3,
    ]
    first, second, _ = schema_lines(schema, 78)[:3]
    assert first == "Type0 1 ─── n Relation0 (20) n ─── 1 Type1, n ─── 1 Type2"
    assert len(second) <= 78 and second.endswith(" more")


def test_diagram_shortens_long_names_and_lists():
    schema = schema_of(2, [[0, 1], [0, 0]])
    schema.entities[0].attributes += [ProposedAttribute(f"{'long' * 12}{k}", "real", "", "") for k in range(12)]
    schema.entities[1].attributes.append(ProposedAttribute("数据" * 12, "real", "", ""))
    schema.relations[0].name = "Relation" * 9
    root = ElementTree.fromstring(schema_svg(schema, ["Type0." + "long" * 12 + "9"]))
    texts = [(element.text, element.findtext(f"{SVG}title")) for element in root.iter(f"{SVG}text")]
    lines = [text for text, _ in texts]
    assert lines.count("6 more") == 0 and "5 more" in lines
    assert (f"{'long' * 7}l…", f"{'long' * 12}9: real") in texts  # the target comes first
    assert ("数据" * 7 + "…", f"{'数据' * 12}: real") in texts
    assert any(whole == "Relation" * 9 for _, whole in texts)


def test_page_describes_columns(tmp_path, relcrf_):
    note = ("word " * 30).strip()
    rows = [
        {"id": f"i{k}", "kind": "abcdefg"[k % 7], "size": 12345.5 + 1000 * k, "year": 1990 + k % 40, "note": note,
         "shop": f"s{k % 50}", "label": "xy"[k % 2]}
        for k in range(2000)
    ]  # fmt: skip
    rows[5]["kind"] = None
    shops = [{"id": f"s{k}", "city": f"c{k % 3}"} for k in range(50)]
    folder = write_tables(tmp_path / "d", item=rows, shop=shops)
    assert relcrf_("profile", folder, "--out", tmp_path / "p.html", "--predict", "item.label")[0] == 0
    page = (tmp_path / "p.html").read_text()
    Page(page).require_closed()
    cells = {
        name: re.search(rf'<td class="name">{name}.*?</tr>', page, re.DOTALL)[0]
        for name in ("id", "kind", "size", "year", "note", "shop")
    }
    assert "key" in cells["id"] and "→ shop.id" in cells["shop"]
    assert 'title="1 of 2,000">0.1%' in cells["kind"] and "2 other values" in cells["kind"]
    assert "12,345.5" in cells["size"] and ">1990</small>" in cells["year"]
    assert f'<span title="{note}">' in cells["note"]
    for heading in ("Tables", "Keys and links", "Entities and relations", "Target: Item.label"):
        assert heading in Page(page).text("h2")
    assert "No attribute is suspected to contain the label." in page
    tables = re.findall(r"<table>", page)
    captions = re.findall(r'(?:</p>|</h3>|figure>)\s*<div class="table"', page)
    assert len(captions) == len(tables)  # each table follows a paragraph that explains it


@pytest.mark.skipif(browser.PROGRAM is None, reason="needs Chromium")
def test_page_fits_narrow_and_wide_windows(shops, tmp_path):
    schema = schema_of(15, [[0, k] for k in range(1, 15)])
    name = "customer_account_history_records"
    for k, entity in enumerate(schema.entities):
        entity.attributes.append(ProposedAttribute(name[: 12 + k], "enumeration", "", ""))
        schema.relations[k - 1].name = name[: 12 + k].title()
    (tmp_path / "d.html").write_text(
        f"<meta charset=utf-8><style>{read_resource('page.css')}</style>{schema_svg(schema)}"
    )
    write_profile(tmp_path / "p.html", profile_data(str(shops[0]), "shop.closed", DEFAULT_MEMORY))
    measure = (
        "[...document.querySelectorAll('g.box svg text, g.relation text')].filter(t => t.getBBox().width > 240).length"
    )
    with browser.browser(tmp_path / "b") as page:
        page.open(tmp_path / "d.html", 1200)
        assert page.ask("document.querySelectorAll('g.box svg text').length") > 15 and page.ask(measure) == 0
        for width in (360, 1200):
            page.open(tmp_path / "p.html", width)
            assert page.ask("document.documentElement.scrollWidth") <= width
