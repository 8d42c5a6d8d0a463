"""Updates that skip unchanged row groups of Parquet tables find the changes that a full read finds."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import relcrf
from relcrf.data.row_groups import RowGroup, scan_row_groups
from relcrf.updating import entity_rows
from relcrf.updating.entity_rows import EntityRows, KnownRows
from relcrf.updating.segments import CellTotals, Segment, TablePart, merge_segments, parse_segments, segment_arrays

MODEL = relcrf.parse(
    """
domain Kind = { a, b }
domain Word = open
entity Page { predict kind : Kind
    words : bag of Word }
entity Site { size : real }
relation Link(source: Page, target: Page)
relation On(page: Page, site: Site)
template prior(p: Page) over p.kind
"""
)
COLUMNS = {
    "page": ("id", "kind"),
    "site": ("id", "size"),
    "page_words": ("page", "word"),
    "link": ("source", "target"),
    "on": ("page", "site"),
}
N_PAGES, N_SITES = 60, 20


class Tables:
    """Random tables in Parquet files of small row groups, and random changes of them."""

    def __init__(self, seed, folder):
        self.rng, self.folder = np.random.default_rng(seed), folder
        self.page_type = [pa.string(), pa.int32(), pa.float64()][seed % 3]
        self.options = {name: self.draw_options() for name in COLUMNS}
        self.manifest = ""
        self.rows = {name: [] for name in COLUMNS}
        self.rows["page"] = [(k, self.draw_kind()) for k in range(N_PAGES)]
        self.rows["site"] = [(f"s{k}", float(k)) for k in range(N_SITES)]
        for name in ("page_words", "link", "on"):
            self.rows[name] = sorted(self.draw_row(name) for _ in range(100))
        self.next_page = N_PAGES

    def draw_options(self):
        return {
            "row_group_size": int(self.rng.integers(4, 40)),
            "compression": str(self.rng.choice(["NONE", "SNAPPY", "ZSTD"])),
            "use_dictionary": bool(self.rng.random() < 0.5),
        }

    def draw_kind(self):
        return str(self.rng.choice(["a", "b"])) if self.rng.random() < 0.5 else None

    def draw_row(self, name):
        page = int(self.rng.integers(N_PAGES))
        if name == "page":
            self.next_page += 1
            return self.next_page, self.draw_kind()
        if name == "site":
            return f"t{self.rng.integers(1000)}", float(self.rng.normal())
        if name == "page_words":
            return page, f"w{self.rng.integers(20)}"
        if name == "link":
            return page, min(page + int(self.rng.integers(3)), N_PAGES - 1)
        return page, f"s{page // 3}"

    def change(self):
        name = str(self.rng.choice([*COLUMNS]))
        rows = self.rows[name]
        k = int(self.rng.integers(len(rows)))
        match self.rng.integers(9):
            case 0 | 1 | 2:
                rows += [self.draw_row(name) for _ in range(self.rng.integers(1, 30))]
            case 3:
                del rows[k]
            case 4:
                rows[k] = self.draw_row(name)
            case 5:
                self.rng.shuffle(rows)
            case 6:
                rows.sort(key=str)
            case 7:
                self.options[name] = self.draw_options()
            case 8:
                rows[:] = rows[k:] + rows[:k]

    def write(self):
        self.folder.mkdir(exist_ok=True)
        for name, columns in COLUMNS.items():
            types = [self.page_type if name != "site" else pa.string(), pa.string()]
            if name == "site":
                types[1] = pa.float64()
            elif name == "link":
                types[1] = self.page_type
            cells = [pa.array([row[k] for row in self.rows[name]]).cast(types[k]) for k in range(2)]
            table = pa.Table.from_arrays(cells, names=list(columns))
            pq.write_table(table, self.folder / f"{name}.parquet", **self.options[name])
        return relcrf.Dataset(self.folder)


def entity_numbers(entities):
    return dict(zip(zip(entities.kind.tolist(), entities.key, strict=True), entities.digest.tolist(), strict=True))


def select(rows, changes):
    """Return the selected rows of each table, sorted: DuckDB reads row groups in parallel, and does not keep their order."""
    dataset = rows.select_rows(changes)
    scans = {name: dataset.find_table(name).scan for name in COLUMNS}
    return {
        name: sorted(dataset.connection.execute(f"FROM {scan}").fetchall(), key=str) for name, scan in scans.items()
    }


def next_rows(rows, changes):
    """Return the known rows after an update of the changed components."""
    subset = EntityRows(MODEL.spec, rows.select_rows(changes))
    part = subset.entities()
    known = rows.known.entities.take(changes.kept).append(part)
    component = np.concatenate([rows.known.component[changes.kept], 10_000 + subset.components(part)])
    return KnownRows(known, component, rows.shared_inputs(), rows.segments(known, changes.kept))


@pytest.mark.parametrize("seed", range(3))
def test_changes_equal_those_of_a_full_read(tmp_path, seed):
    tables = Tables(seed, tmp_path / "data")
    rows = EntityRows(MODEL.spec, tables.write())
    entities = rows.entities()
    known = KnownRows(entities, rows.components(entities), rows.shared_inputs(), rows.segments(entities))
    n_known = 0
    for _ in range(6):
        for _ in range(tables.rng.integers(1, 4)):
            tables.change()
        dataset = tables.write()
        rows = EntityRows(MODEL.spec, dataset, known)
        full = EntityRows(MODEL.spec, dataset, KnownRows(known.entities, known.component))
        changes, expected = rows.compare(), full.compare()
        assert changes.kept.tolist() == expected.kept.tolist()
        for name in ("n_added", "n_removed", "n_changed", "n_selected"):
            assert getattr(changes, name) == getattr(expected, name)
        assert select(rows, changes) == select(full, expected)
        assert rows.row_counts() == full.row_counts() == {name: len(part) for name, part in tables.rows.items()}
        n_known += len(known.segments)
        after_update = next_rows(rows, changes)
        digests = entity_numbers(full.entities())
        assert entity_numbers(after_update.entities) == digests
        if tables.rng.random() < 0.5:
            known = after_update
        else:
            entities = rows.entities()
            assert entity_numbers(entities) == digests
            assert [*entity_numbers(entities)] == [*digests]
            known = KnownRows(entities, full.components(entities), rows.shared_inputs(), rows.segments(entities))
            assert known.component.tolist() == rows.components(entities).tolist()
    assert n_known


def known_rows(dataset):
    """Return the rows of a first update of a dataset."""
    rows = EntityRows(MODEL.spec, dataset)
    entities = rows.entities()
    return KnownRows(entities, rows.components(entities), rows.shared_inputs(), rows.segments(entities))


@pytest.fixture
def tables(tmp_path):
    tables = Tables(0, tmp_path / "data")
    tables.options = {name: {"row_group_size": 10} for name in COLUMNS}
    return tables


def read_rows(monkeypatch, dataset, known):
    """Return the changes, and the number of rows of each table that the update reads to find them."""
    n_rows = dict.fromkeys(COLUMNS, 0)

    def scan(table, row_groups):
        n_rows[table.name] += sum(group.n_rows for group in row_groups)
        return scan_row_groups(table, row_groups)

    monkeypatch.setattr(entity_rows, "scan_row_groups", scan)
    rows = EntityRows(MODEL.spec, dataset, known)
    changes = rows.compare()
    select(rows, changes)
    return changes, n_rows


def test_unchanged_tables_are_not_read(tables, monkeypatch):
    known = known_rows(tables.write())
    changes, n_rows = read_rows(monkeypatch, tables.write(), known)
    assert changes.n_differences == 0
    assert not any(n_rows.values())


def test_only_new_row_groups_are_read(tables, monkeypatch):
    """Appended rows change the last row group; their components have rows in a few other row groups."""
    known = known_rows(tables.write())
    tables.rows["page"] += [(1000, "a")]
    tables.rows["page_words"] += [(1000, "w1"), (1000, "w2")]
    changes, n_rows = read_rows(monkeypatch, tables.write(), known)
    assert changes.n_added == changes.n_selected == 1
    assert n_rows["site"] == n_rows["link"] == n_rows["on"] == 0
    # Both tables end with a full row group, so that only new ones are read, twice: for the digests, and for the selected rows.
    assert 0 < n_rows["page"] <= 20 and 0 < n_rows["page_words"] <= 40


def test_moved_row_groups_are_not_read(tables, monkeypatch):
    known = known_rows(tables.write())
    tables.rows["link"] = tables.rows["link"][50:] + tables.rows["link"][:50]
    changes, n_rows = read_rows(monkeypatch, tables.write(), known)
    assert changes.n_differences == 0
    assert not any(n_rows.values())


def test_repeated_row_group_changes_its_entities(tables):
    known = known_rows(tables.write())
    tables.rows["on"] += tables.rows["on"][:10]
    dataset = tables.write()
    changes = EntityRows(MODEL.spec, dataset, known).compare()
    assert changes.n_changed == len({cell for row in tables.rows["on"][:10] for cell in row})
    assert EntityRows(MODEL.spec, dataset, known_rows(dataset)).compare().n_differences == 0


@pytest.mark.parametrize("key", [" 5", "5 "])
def test_table_with_padded_keys_is_read_as_a_whole(tables, key):
    """The key does not determine the cell, whose hash is part of the digest."""
    tables.rows["page_words"] = [(str(page), word) for page, word in tables.rows["page_words"]]
    tables.rows["page_words"] += [(key, "w1")]
    first = known_rows(tables.write())
    assert first.segments.keys() == COLUMNS.keys() - {"page_words"}
    tables.rows["page_words"][-1] = ("5", "w1")
    dataset = tables.write()
    assert EntityRows(MODEL.spec, dataset, first).compare().n_changed == 1
    second = known_rows(dataset)
    assert second.segments.keys() == COLUMNS.keys()
    tables.rows["page_words"][-1] = (key, "w1")
    rows = EntityRows(MODEL.spec, tables.write(), second)
    assert rows.compare().n_changed == 1
    assert entity_numbers(rows.entities()) == entity_numbers(first.entities)


def test_missing_key_in_a_new_row_group(tables):
    known = known_rows(tables.write())
    tables.rows["page_words"] += [(None, "w1")]
    rows = EntityRows(MODEL.spec, tables.write(), known)
    assert rows.global_reason() == "some rows lack the key of an entity"


def test_renamed_columns(tables):
    """A manifest that exchanges the columns of a table changes its rows, but not the file."""
    known = known_rows(tables.write())
    entries = [f'[tables.{name}]\nfile = "{name}.parquet"\n' for name in COLUMNS]
    exchanged = '[tables.link.columns]\nsource = "target"\ntarget = "source"\n'
    (tables.folder / "dataset.toml").write_text("".join(entries) + exchanged)
    dataset = tables.write()
    rows, full = (EntityRows(MODEL.spec, dataset, each) for each in (known, None))
    assert entity_numbers(rows.entities()) == entity_numbers(full.entities())
    assert entity_numbers(rows.entities()) != entity_numbers(known.entities)


def test_files_of_a_folder(tables, monkeypatch):
    """A new file is read; the others are not."""
    entries = [f'[tables.{name}]\nfile = "{name}*.parquet"\n' for name in COLUMNS if name != "page"]
    tables.write()
    (tables.folder / "page.parquet").rename(tables.folder / "all_page.parquet")
    (tables.folder / "dataset.toml").write_text("".join(entries) + '[tables.page]\nfile = "all_*.parquet"\n')
    known = known_rows(relcrf.Dataset(tables.folder))
    new = pa.table({name: pa.array([3 + k, 5]).cast(tables.page_type) for k, name in enumerate(COLUMNS["link"])})
    pq.write_table(new, tables.folder / "link2.parquet")
    changes, n_rows = read_rows(monkeypatch, relcrf.Dataset(tables.folder), known)
    assert changes.n_changed == 3
    assert n_rows["page"] < n_rows["link"] < 102


def make_segment(digests, *entities):
    columns = (CellTotals(np.array(e, dtype=np.int32), np.array(e, dtype=np.uint64) + 1) for e in entities)
    return Segment(tuple(digests), tuple(columns))


def make_parts(segments, n_rows):
    starts = np.cumsum([0, *n_rows])
    return [TablePart((RowGroup(0, int(s), n, "x"),)) for s, n in zip(starts, n_rows, strict=False) if n]


def test_segments_with_the_same_cells_are_merged():
    """Except the last one, to which writers append rows."""
    segments = [make_segment(name, range(100), range(5)) for name in "abcd"]
    merged = merge_segments(make_parts(segments, [50] * 4), segments)
    assert [segment.digests for segment in merged] == [("a", "b", "c"), ("d",)]
    assert merged[0].columns[0].entity.tolist() == [*range(100)]
    assert merged[0].columns[0].total.tolist() == [3 * (k + 1) for k in range(100)]


def test_segments_with_other_cells_are_not_merged():
    segments = [make_segment(name, range(k * 90, k * 90 + 100)) for k, name in enumerate("abcd")]
    assert [*merge_segments(make_parts(segments, [50] * 4), segments)] == segments


def test_small_segments_are_merged():
    """Otherwise, each update with few new rows would add a segment."""
    segments = [make_segment([str(k)], [k]) for k in range(21)]
    merged = merge_segments(make_parts(segments, [1000, *[1] * 20]), segments)
    assert [len(segment.digests) for segment in merged] == [1, 20]


def test_totals_are_sums_modulo_the_range_of_numbers():
    big = np.array([2**64 - 1], dtype=np.uint64)
    cells = CellTotals(np.array([0], dtype=np.int32), big)
    assert Segment(("a",), (cells,)).append(Segment(("b",), (cells,))).columns[0].total.tolist() == [2**64 - 2]


@pytest.mark.parametrize("damage", ["type", "length", "index", "negative", "sizes"])
def test_inconsistent_arrays(damage):
    plain, entity, total = segment_arrays({"link": [make_segment("a", [0, 2], [1])]})
    assert parse_segments(plain, entity, total, 3)["link"][0].columns[0].entity.tolist() == [0, 2]
    n_entities = 3
    match damage:
        case "type":
            total = total.astype(np.float64)
        case "length":
            total = total[:-1]
        case "index":
            n_entities = 2
        case "negative":
            entity = entity - 1
        case "sizes":
            plain["link"][0][1][0] = 3
    with pytest.raises(ValueError, match="inconsistent"):
        parse_segments(plain, entity.astype(np.int32), total, n_entities)
