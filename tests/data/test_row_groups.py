"""Row groups of Parquet tables: hashes of their content, and scans that read only some of them."""

import datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import relcrf
from relcrf.data.row_groups import read_row_groups, scan_row_groups

SIZE = 10


def write(path: Path, rows: list[tuple], names=("id", "word"), size=SIZE, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: [row[k] for row in rows] for k, name in enumerate(names)})
    pq.write_table(table, path, row_group_size=size, **options)


def make_rows(n: int) -> list[tuple]:
    rng = np.random.default_rng(0)
    return [(k, f"w{rng.integers(9)}") for k in range(n)]


def read_table(folder: Path):
    """Return the dataset of a folder, its only table and the row groups."""
    dataset = relcrf.Dataset(folder)
    (table,) = dataset.tables.values()
    return dataset, table, read_row_groups(dataset.connection, table)


def hashes(folder: Path) -> list[str]:
    return [group.digest for group in read_table(folder)[2]]


@pytest.fixture
def known(tmp_path):
    write(tmp_path / "known" / "page.parquet", make_rows(45))
    return hashes(tmp_path / "known")


def test_appended_rows_keep_full_row_groups(tmp_path, known):
    write(tmp_path / "new" / "page.parquet", make_rows(78))
    new = hashes(tmp_path / "new")
    assert (len(known), len(new), len({*known, *new})) == (5, 8, 9)
    assert new[:4] == known[:4]


def test_changed_cell(tmp_path, known):
    rows = make_rows(45)
    rows[23] = (23, "w9")
    write(tmp_path / "new" / "page.parquet", rows)
    assert [a == b for a, b in zip(known, hashes(tmp_path / "new"), strict=True)] == [True, True, False, True, True]


@pytest.mark.parametrize(
    "options",
    [{"compression": "zstd"}, {"use_dictionary": False}, {"names": ("id", "text")}, {"data_page_version": "2.0"}],
)
def test_other_metadata(tmp_path, known, options):
    write(tmp_path / "new" / "page.parquet", make_rows(45), **options)
    assert not {*known} & {*hashes(tmp_path / "new")}


def test_other_type_with_the_same_bytes(tmp_path):
    found = []
    for kind in (pa.int32(), pa.date32(), pa.uint32()):
        folder = tmp_path / str(kind)
        folder.mkdir()
        pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int32()).cast(kind)}), folder / "page.parquet")
        found += hashes(folder)
    assert len({*found}) == 3


def test_scan_reads_only_its_row_groups(tmp_path):
    """The other row groups are damaged after they were hashed."""
    path, rows = tmp_path / "page.parquet", make_rows(45)
    write(path, rows, use_dictionary=False, compression="zstd")
    *_, groups = read_table(tmp_path)
    metadata = pq.ParquetFile(path).metadata
    content = bytearray(path.read_bytes())
    for k in (0, 1, 3, 4):
        column = metadata.row_group(k).column(1)
        start = column.data_page_offset
        content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)
    dataset = relcrf.Dataset(tmp_path)
    (table,) = dataset.tables.values()
    scan = scan_row_groups(table, [groups[2]])
    assert dataset.connection.execute(f"FROM {scan}").fetchall() == rows[20:30]
    with pytest.raises(duckdb.Error):
        dataset.connection.execute(f"FROM {table.scan}").fetchall()


@pytest.mark.parametrize("seed", range(5))
def test_scans_of_row_groups_are_parts_of_the_table(tmp_path, seed):
    """The table is a union of files in folders, with renamed columns and texts that are read as missing."""
    rng = np.random.default_rng(seed)
    for year in (2023, 2024):
        for part in range(2):
            rows = [(k, f"w{rng.integers(9)}", datetime.time(k % 24)) for k in range(rng.integers(1, 60))]
            path = tmp_path / f"year={year}" / f"{part}.parquet"
            write(path, rows, ("id", "word", "hour"), size=int(rng.integers(1, 20)))
    (tmp_path / "dataset.toml").write_text(
        '[tables.page]\nfile = "**/*.parquet"\nmissing = ["w3"]\n[tables.page.columns]\nterm = "word"\n'
    )
    dataset, table, groups = read_table(tmp_path)
    everything = dataset.connection.execute(f"FROM {table.scan}").fetchall()
    assert sum(group.n_rows for group in groups) == len(everything)
    ends = np.cumsum([group.n_rows for group in groups]).tolist()
    selected = np.flatnonzero(rng.random(len(groups)) < 0.4).tolist()
    expected = [row for k in selected for row in everything[ends[k] - groups[k].n_rows : ends[k]]]
    scan = scan_row_groups(table, [groups[k] for k in selected])
    assert sorted(dataset.connection.execute(f"FROM {scan}").fetchall(), key=str) == sorted(expected, key=str)


def test_values_of_folders_are_part_of_the_hash(tmp_path):
    (tmp_path / "dataset.toml").write_text('[tables.page]\nfile = "**/*.parquet"\n')
    for year in (2023, 2024):
        write(tmp_path / f"year={year}" / "page.parquet", make_rows(5))
    first, second = hashes(tmp_path)
    assert first != second


@pytest.mark.parametrize("name", ["file_row_number", "File_Row_Number"])
def test_column_with_the_name_of_the_row_number(tmp_path, name):
    write(tmp_path / "page.parquet", make_rows(5), ("id", name))
    assert read_table(tmp_path)[2] == ()


def test_other_formats_have_no_row_groups(tmp_path):
    (tmp_path / "page.csv").write_text("id,word\n1,a\n")
    assert read_table(tmp_path)[2] == ()


def test_repaired_rows_have_no_row_groups(tmp_path):
    write(tmp_path / "page.parquet", [(1, "a"), (1, "b")])
    (tmp_path / "dataset.toml").write_text('[tables.page]\nfile = "page.parquet"\nkey = "id"\nduplicates = "first"\n')
    assert read_table(tmp_path)[2] == ()
