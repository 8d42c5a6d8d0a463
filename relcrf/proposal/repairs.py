"""Repairs of tables in which a few invalid rows prevent a key or a reference, by policies of the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from relcrf.data.coding import datetime_sql, find_bad_rows, scan_with_row_numbers, text_sql
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.readers.base import SourceTable
from relcrf.data.readers.cell_formats import convert_formats, find_formats
from relcrf.data.readers.csv_values import WHOLE_FORMAT, WHOLE_NUMBER
from relcrf.data.readers.leading_zeros import pad_with_zeros
from relcrf.data.readers.missing_texts import replace_missing_texts
from relcrf.data.row_policies import distinct_rows_sql, orphan_sql, repaired_rows_sql, with_repaired_rows
from relcrf.data.store import literal
from relcrf.errors import listing
from relcrf.proposal.entity_candidates import (
    MIN_DISTINCT,
    EntityCandidate,
    find_candidates,
    find_key,
    find_number_links,
    max_invalid_rows,
    may_be_key,
    name_affinity,
)
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.near_misses import (
    NearMiss,
    describe_duplicates,
    describe_orphans,
    find_almost_key,
    find_duplicates,
)
from relcrf.proposal.profile import (
    MAX_SAMPLE_ROWS,
    ColumnProfile,
    TableProfile,
    count_unmatched_rows,
    profile_table,
)

MIN_AFFINITY = 2
"""Minimum value of `name_affinity` for columns whose numbers are compared with codes; numbers equal codes by chance."""

MISSING_TEXTS = ("na", "n/a", "#n/a", "nan", "null", "none", "nil", "unknown", "missing", "-", "--", ".", "?")
"""Texts, in lower case, that usually stand for a missing value in a column of numbers or dates."""

MISSING_CATEGORIES = ("n/a", "#n/a", "nan", "null", "-", "--", "?", ".")
"""Texts, in lower case, that usually stand for a missing value among categories. `none` and `unknown` may be categories."""

MIN_CATEGORIES, MAX_CATEGORIES = 2, 10_000
"""Limits of the number of distinct texts of a column of categories; a column with more texts consists of names or keys."""


def repair_tables(
    dataset: Dataset, tables: Sequence[TableProfile], manifest: ManifestBuilder
) -> tuple[list[TableProfile], list[NearMiss]]:
    """Add policies for the invalid rows of tables to a manifest, and return the repaired tables and notes on them.

    Tables for which no manifest can be written remain unchanged.
    """
    repairer = _TableRepairer(dataset, manifest)
    tables = [repairer.replace_missing_texts(table) if manifest.can_query(table) else table for table in tables]
    tables = [repairer.convert_formats(table) if manifest.can_query(table) else table for table in tables]
    tables = repairer.read_whole_numbers(tables)
    repaired = [repairer.repair_key(table, tables) if manifest.can_query(table) else table for table in tables]
    repaired = repairer.pad_numbers(repaired)
    candidates = find_candidates(repaired)
    targets = [
        c for c in candidates if c.table is not None and c.key is not None and find_key(c.table, repaired) == c.key
    ]
    return [
        repairer.repair_references(table, candidates, targets) if manifest.can_query(table) else table
        for table in repaired
    ], repairer.notes


class _TableRepairer:
    def __init__(self, dataset: Dataset, manifest: ManifestBuilder) -> None:
        self.dataset = dataset
        self.manifest = manifest
        self.notes: list[NearMiss] = []

    def replace_missing_texts(self, table: TableProfile) -> TableProfile:
        """Return a table without the texts that stand for missing values, such as `n/a`."""
        columns = [column for column in table.columns.values() if column.kind == "text"]
        typed = [c for c in columns if c.distinct >= MIN_DISTINCT]
        by_column = {column.name: _missing_texts(table, column.name) for column in typed}
        found = {text: name for name, texts in by_column.items() for text in texts}
        shown, names = listing(map(repr, sorted(found))), listing(dict.fromkeys(found.values()))
        if found:
            note = f"contains numbers or dates and {shown}: the manifest reads {shown} as missing"
            self.notes.append(NearMiss(f"{table.name}.{names}", note))
        others = [column for column in columns if not by_column.get(column.name)]
        categories = _missing_categories(table, others)
        categories = {text: names for text, names in categories.items() if text not in found}
        for text, names in categories.items():
            self.notes.append(
                NearMiss(f"{table.name}.{names}", f"contains {text!r}, which the manifest reads as missing")
            )
        texts = sorted({*found, *categories})
        if not texts:
            return table
        kept: dict[str, list[str]] = {}
        for column in others:
            by_column[column.name], values = _split_by_meaning(table, column, texts)
            for text in values:
                kept.setdefault(text, []).append(column.name)
        for text, columns_of_text in kept.items():
            reason = "which remains a value there; if it means that the value is unknown, add it to 'missing' in the manifest"
            self.notes.append(NearMiss(f"{table.name}.{listing(columns_of_text)}", f"contains {text!r}, {reason}"))
        # Texts that mean the same in all columns are stated once, so that they apply to all columns of later tables.
        stated = {c.name: by_column[c.name] for c in columns if by_column[c.name]} if kept else texts
        self.manifest.missing_texts[self.manifest.file_of(table)] = stated
        return self._with_cells(table, replace_missing_texts(_source(table), stated, table.connection))

    def convert_formats(self, table: TableProfile) -> TableProfile:
        """Return a table with numbers and dates instead of texts such as `1.234,50` and `31.12.2024`.

        The reader of CSV files converts them itself, if no text of a missing value is beside them.
        """
        if table.raw.is_csv and self.manifest.file_of(table) not in self.manifest.missing_texts:
            return table
        texts = [name for name, column in table.columns.items() if column.kind == "text"]
        texts = [name for name in texts if table.raw.column_type(name) == "VARCHAR"]
        found = find_formats(f"{table.raw.scan} AS raw", texts, self.dataset.store, _delimiter(table))
        if not found:
            return table
        formats = {each.column: each.format for each in found}
        if not table.raw.is_csv:
            self.manifest.formats[self.manifest.file_of(table)] = formats
        for description in dict.fromkeys(each.description for each in found if not table.raw.is_csv):
            names = listing(each.column for each in found if each.description == description)
            note = f"contains {description}, which the manifest converts (formats)"
            self.notes.append(NearMiss(f"{table.name}.{names}", note))
        return self._with_cells(table, convert_formats(_source(table), formats, None, table.connection))

    def read_whole_numbers(self, tables: Sequence[TableProfile]) -> list[TableProfile]:
        """Return the tables with `12` instead of texts such as `12.0`, as which pandas writes integers beside missing values.

        The numbers are those of columns with few values, or whose names suggest references.
        """
        found = [
            [
                column
                for column in table.columns.values()
                if column.kind == "real" and column.present < column.rows and self.manifest.can_query(table)
                if table.raw.column_type(column.name) == "VARCHAR" and _are_whole(table, column.name)
            ]
            for table in tables
        ]
        candidates = find_candidates([*tables]) if any(found) else []
        return [
            self._read_whole_numbers(
                table,
                [
                    column.name
                    for column in columns
                    if column.values or any(name_affinity(column, c, table) >= MIN_AFFINITY for c in candidates)
                ],
            )
            for table, columns in zip(tables, found, strict=True)
        ]

    def _read_whole_numbers(self, table: TableProfile, columns: Sequence[str]) -> TableProfile:
        """Return a table with whole numbers in some columns."""
        if not columns:
            return table
        formats = dict.fromkeys(columns, WHOLE_FORMAT)
        self.manifest.formats.setdefault(self.manifest.file_of(table), {}).update(formats)
        note = "contains whole numbers such as 1.0, which the manifest reads as 1 (formats)"
        self.notes.append(NearMiss(f"{table.name}.{listing(columns)}", note))
        return self._with_cells(table, convert_formats(_source(table), formats, None, table.connection))

    def pad_numbers(self, tables: Sequence[TableProfile]) -> list[TableProfile]:
        """Return the tables with leading zeros in the numbers that another table has as codes, such as `000123`.

        Either the key consists of codes or a column that refers to it, which its name shows.
        """
        found: dict[int, dict[str, tuple[int, str]]] = {}
        for candidate in find_candidates([*tables]):
            if (target := candidate.table) is None or candidate.key is None:
                continue
            key = target.columns[candidate.key]
            for table in tables:
                for column in table.columns.values() if table is not target else ():
                    if not may_be_key(column) or name_affinity(column, candidate, table) < MIN_AFFINITY:
                        continue
                    for (owner, numbers), (other, codes) in permutations(((table, column), (target, key))):
                        digits = _find_digits(other, codes) if numbers.kind == "whole" else 0
                        n_unmatched = (
                            count_unmatched_rows(table, column.name, target, key.name, digits) if digits else 0
                        )
                        if digits and n_unmatched <= max_invalid_rows(column.present):
                            found.setdefault(id(owner), {})[numbers.name] = digits, f"{other.name}.{codes.name}"
        return [
            self._pad(table, found[id(table)]) if id(table) in found and self.manifest.can_query(table) else table
            for table in tables
        ]

    def _pad(self, table: TableProfile, columns: Mapping[str, tuple[int, str]]) -> TableProfile:
        """Return a table with leading zeros in some columns: the number of digits and the column of codes, by column."""
        digits = {name: count for name, (count, _) in columns.items()}
        self.manifest.digits[self.manifest.file_of(table)] = digits
        self.notes += [
            NearMiss(
                f"{table.name}.{name}",
                f"lacks the leading zeros of {codes}: the manifest adds them, up to {count} digits (digits)",
            )
            for name, (count, codes) in columns.items()
        ]
        return self._with_cells(table, pad_with_zeros(_source(table), digits, None, table.connection))

    def repair_key(self, table: TableProfile, tables: Sequence[TableProfile]) -> TableProfile:
        """Return a table without the rows that repeat a key, if it has few such rows and no other key."""
        key = find_almost_key(table, tables)
        duplicates = None if key is None or key.present < key.rows else find_duplicates(table, key)
        if key is None or duplicates is None:
            return table
        counted = f"{duplicates.count:,} of {table.rows:,} rows with the {key.name} of another row"
        self.manifest.add_policy(table.name, "duplicates", "first", counted)
        self.manifest.repeated_keys[table.name] = key.name
        reason = 'the manifest keeps the first row (duplicates = "first")'
        note = f"is the key although {describe_duplicates(table.raw, duplicates)}: {reason}"
        self.notes.append(NearMiss(f"{table.name}.{key.name}", note, "", table.rows, 0, duplicates.count))
        return self._with_rows(table, distinct_rows_sql(table.raw, [key.name], "first"))

    def repair_references(
        self, table: TableProfile, candidates: Sequence[EntityCandidate], targets: Sequence[EntityCandidate]
    ) -> TableProfile:
        """Return a table in which the columns with few invalid references refer only to known entities.

        A row with an invalid reference is dropped or, if it is the row of an entity, its reference is removed.
        """
        own_key = next((target.key for target in targets if target.table is table), None)
        repaired, links = table, find_number_links(table, candidates)
        for column in table.columns.values():
            if column.name not in repaired.columns or column.name == own_key:
                continue
            if not may_be_key(column) or column.distinct < MIN_DISTINCT:
                continue
            known = [c for c in candidates if column.name in c.referring_columns(table)]
            others = [c for c in known or targets if c in targets and c.table is not table]
            found = [
                (-name_affinity(column, target, table), count, k)
                for k, target in enumerate(others)
                if (name_affinity(column, target, table) or links.get(column.name) is target)
                and (count := _count_invalid_rows(repaired, column.name, target, is_entity=own_key is not None))
                and count <= max_invalid_rows(table.rows)
            ]
            if found:
                target = others[min(found)[2]]
                repaired = self._repair_reference(
                    repaired, column, target, is_entity=own_key is not None, is_link=column.name in links
                )
        return repaired

    def _repair_reference(
        self, table: TableProfile, column: ColumnProfile, target: EntityCandidate, *, is_entity: bool, is_link: bool
    ) -> TableProfile:
        """Return a table without the invalid references of a column, or the same table if this were a coincidence.

        Args:
            is_entity: Whether the rows of the table are entities.
            is_link: Whether the numbers of the table are links, see `find_number_links`.
        """
        assert target.table is not None and target.key is not None
        condition = orphan_sql(table.raw, column.name, target.table.raw, target.key)
        if not is_entity:
            condition = f"({text_sql(table.raw, column.name)} IS NULL OR {condition})"
        bad = find_bad_rows(table.connection, table.raw, column.name, condition)
        assert bad is not None
        rows = scan_with_row_numbers(table.raw)
        if is_entity:
            name = quoted(column.name)
            sql = f"SELECT raw.* REPLACE (CASE WHEN NOT ({condition}) THEN raw.{name} END AS {name}) FROM {rows}"
        else:
            sql = f"SELECT raw.* FROM {rows} WHERE NOT ({condition})"
        repaired = self._with_rows(table, sql)
        # Without the invalid cells, the column may contain numbers, which equal unrelated keys by chance.
        if column.name not in repaired.columns:
            return table
        if not is_link and not name_affinity(repaired.columns[column.name], target, table):
            return table
        counted = f"{bad.count:,} of {table.rows:,} rows without a known {column.name}"
        owner = f"{table.name}.{column.name}" if is_entity else table.name
        self.manifest.add_policy(owner, "orphans", "drop", counted)
        dropped = ("link" if is_entity else "row") + "s" * (bad.count > 1)
        reason = f'the manifest drops {"this" if bad.count == 1 else "these"} {dropped} (orphans = "drop")'
        key, missing = f"{target.table.name}.{target.key}", table.rows - table.columns[column.name].present
        note = f"refers to {key} although {describe_orphans(table.raw, bad)}: {reason}"
        orphans = bad.count - (0 if is_entity else missing)
        self.notes.append(NearMiss(f"{table.name}.{column.name}", note, key, table.rows, missing, orphans))
        return repaired

    def _with_cells(self, table: TableProfile, source: SourceTable) -> TableProfile:
        """Return the profile of a table after its cells were converted."""
        columns = table.connection.execute(f"DESCRIBE SELECT * FROM {source.scan}").fetchall()
        types = tuple(str(kind) for _, kind, *_ in columns)
        raw = replace(table.raw, scan=source.scan, numbered_scan=source.numbered_scan, types=types)
        return profile_table(self.dataset, raw)

    def _with_rows(self, table: TableProfile, sql: str) -> TableProfile:
        """Return the profile of a table after its rows were replaced by those of a query, which start with a number."""
        rows = self.dataset.store.add_query(repaired_rows_sql(table.raw, sql))
        return profile_table(self.dataset, with_repaired_rows(table.raw, rows))


def _source(table: TableProfile) -> SourceTable:
    return SourceTable(table.name, table.raw.location, table.raw.scan, table.raw.numbered_scan)


def _delimiter(table: TableProfile) -> str:
    """Return a comma if the cells of the table's file are separated by commas, and otherwise a semicolon."""
    return "," if table.raw.is_csv and "delimiter ','" in table.raw.format else ";"


def _are_whole(table: TableProfile, column: str) -> bool:
    """Return True if all cells of a column are numbers such as `12.0`, or missing."""
    cell = f"trim({quoted(column)})"
    condition = f"bool_and(regexp_full_match({cell}, {literal(WHOLE_NUMBER)})) FILTER ({cell} <> '')"
    return bool(table.query_number(f"SELECT CAST(coalesce({condition}, false) AS INTEGER) FROM this"))


def _find_digits(table: TableProfile, column: ColumnProfile) -> int:
    """Return the number of digits of the codes in a column; 0 if they do not all have as many, or none begins with 0."""
    if column.kind != "text" or column.distinct < MIN_DISTINCT:
        return 0
    cell = quoted(column.name)
    is_code = f"bool_and(regexp_full_match({cell}, '[0-9]+')) AND min(length({cell})) = max(length({cell}))"
    has_zero = f"bool_or(starts_with({cell}, '0'))"
    return table.query_number(f"SELECT CASE WHEN {is_code} AND {has_zero} THEN min(length({cell})) END FROM this")


def _count_invalid_rows(table: TableProfile, column: str, target: EntityCandidate, *, is_entity: bool) -> int:
    """Return the number of rows whose reference names no key of a target or, unless they are entities, is missing."""
    assert target.table is not None and target.key is not None
    profile = table.columns[column]
    n_missing = 0 if is_entity else profile.rows - profile.present
    return n_missing + count_unmatched_rows(table, column, target.table, target.key)


def _missing_categories(table: TableProfile, columns: Sequence[ColumnProfile]) -> dict[str, str]:
    """Return the texts of missing values among categories, with the names of the columns that contain them.

    A text must stand for missing values in all columns that contain it: the other cells are words or numbers, and not signs
    such as `+`.
    """
    tokens = ", ".join(map(literal, MISSING_CATEGORIES))
    found: dict[str, list[str]] = {}
    excluded: set[str] = set()
    for column in columns:
        if not MIN_CATEGORIES < column.distinct <= MAX_CATEGORIES:
            continue
        if column.values and not any(value.lower() in MISSING_CATEGORIES for value in column.values):
            continue
        cell = quoted(column.name)
        ((texts, are_words),) = table.connection.execute(
            f"SELECT coalesce(list(DISTINCT {cell}) FILTER (is_token), []), "
            f"bool_and(regexp_matches({cell}, '[\\pL\\pN]')) FILTER (NOT is_token) "
            f"FROM (SELECT {cell}, lower({cell}) IN ({tokens}) AS is_token FROM {table.scan} WHERE {cell} IS NOT NULL)"
        ).fetchall()
        excluded.update(texts if not are_words else ())
        for text in texts:
            found.setdefault(text, []).append(column.name)
    return {text: listing(names) for text, names in sorted(found.items()) if text not in excluded}


def _split_by_meaning(table: TableProfile, column: ColumnProfile, texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return those of some texts that occur in a column and stand for missing values, and those that are other values.

    Words such as `none` are values if there are other values, and so is `-` among signs.
    """
    cell, tokens = quoted(column.name), ", ".join(map(literal, texts))
    ((found, are_words),) = table.connection.execute(
        f"SELECT coalesce(list(DISTINCT {cell}) FILTER (is_token), []), "
        f"bool_and(regexp_matches({cell}, '[\\pL\\pN]')) FILTER (NOT is_token) "
        f"FROM (SELECT {cell}, {cell} IN ({tokens}) AS is_token FROM {table.scan} WHERE {cell} IS NOT NULL)"
    ).fetchall()
    missing = [t for t in sorted(found) if column.distinct == 1 or (are_words and t.lower() in MISSING_CATEGORIES)]
    return missing, [t for t in sorted(found) if t not in missing]


def _missing_texts(table: TableProfile, column: str) -> list[str]:
    """Return the texts of missing values in a column; none if the other cells are not all numbers, or all dates."""
    cell, tokens = quoted(column), ", ".join(map(literal, MISSING_TEXTS))
    for limit in (f"LIMIT {MAX_SAMPLE_ROWS}", ""):  # to test the first cells is fast, and rules out most columns
        cells = f"(SELECT {cell} FROM {table.scan} WHERE {cell} IS NOT NULL {limit})"
        rows = table.connection.execute(
            f"SELECT coalesce(list(DISTINCT {cell}) FILTER (is_missing), []), count(*) FILTER (NOT is_missing), "
            f"count(TRY_CAST({cell} AS DOUBLE)) FILTER (NOT is_missing), count({datetime_sql(cell)}) FILTER (NOT is_missing) "
            f"FROM (SELECT {cell}, lower({cell}) IN ({tokens}) AS is_missing FROM {cells})"
        ).fetchall()
        ((texts, others, numbers, dates),) = rows
        if others not in (numbers, dates):
            values = f"(SELECT {cell} FROM {cells} WHERE lower({cell}) NOT IN ({tokens}))"
            if not find_formats(values, [column], table.dataset.store, _delimiter(table)):
                return []
    return sorted(texts) if others else []
