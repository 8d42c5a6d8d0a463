"""Segments of Parquet tables: row groups with the totals of their cells, from which updates detect rows that did not change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from relcrf.data.row_groups import RowGroup

MAX_NEW_SEGMENTS = 32
"""Approximate number of segments into which a table is divided. Appended rows change the last row group, so an update reads one
segment, 3 % of the table, again. With a segment for each of 814 row groups, the first update of a run reads 100 million rows in
13 CPU seconds instead of 4.7."""

MIN_REMAINING_FRACTION = 0.5
"""Minimum fraction of the known row groups that remain, for a table to be divided. Otherwise, the table is probably written anew
for each update, and a query of 100 million rows takes 3.8 CPU seconds, but queries of 33 parts 4.7."""

MERGED_FRACTION = 0.75
"""Maximum ratio of the cells of a merged segment to those of its two parts. Merging bounds the size of the state if the rows are
not in the order of the keys, so that most segments contain most cells."""


@dataclass(frozen=True)
class CellTotals:
    """The cells of a key column in a segment.

    Args:
        entity: Index of the entity of each cell, shape (n_cells,), int32.
        total: Sum of the hashes of the other columns over the rows with the cell, shape (n_cells,), uint64.
    """

    entity: np.ndarray
    total: np.ndarray


@dataclass(frozen=True)
class EntityTotals:
    """The totals of a key column by entity.

    Args:
        total: Sum of the totals of the entity's cells, shape (n_entities,), uint64.
        is_present: Mask of the entities with a cell, shape (n_entities,).
    """

    total: np.ndarray
    is_present: np.ndarray


@dataclass(frozen=True)
class Segment:
    """Row groups of a table.

    Args:
        digests: Hash of each row group; see `RowGroup`.
        columns: The cells of each key column of the table.
    """

    digests: tuple[str, ...]
    columns: tuple[CellTotals, ...]

    @property
    def n_cells(self) -> int:
        """The number of cells in all key columns."""
        return sum(len(column.entity) for column in self.columns)

    def renumber(self, index: np.ndarray) -> Segment:
        """Return the segment with other indices of the entities.

        Args:
            index: New index of each entity.
        """
        return Segment(self.digests, tuple(CellTotals(index[c.entity], c.total) for c in self.columns))

    def append(self, other: Segment) -> Segment:
        """Return a segment with the row groups of this segment, followed by those of another."""
        pairs = zip(self.columns, other.columns, strict=True)
        return Segment((*self.digests, *other.digests), tuple(_add_totals(*pair) for pair in pairs))


@dataclass(frozen=True)
class TablePart:
    """A part of a table: a known segment, or rows that an update reads.

    Args:
        row_groups: The row groups of the part; empty if the table has none.
        known: The segment of the run with the same row groups; None if there is none.
    """

    row_groups: tuple[RowGroup, ...]
    known: Segment | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows in the row groups."""
        return sum(group.n_rows for group in self.row_groups)


def divide_table(row_groups: Sequence[RowGroup], known: Sequence[Segment]) -> tuple[list[TablePart], list[Segment]]:
    """Divide a table into known segments and new parts; return the parts, and the known segments that it lacks.

    The row groups of a segment may have another order, because programs that write files in parallel do not keep the order.
    """
    if not row_groups:
        return [TablePart(())], [*known]
    known_digests = {digest for segment in known for digest in segment.digests}
    remaining_digests = known_digests & {group.digest for group in row_groups}
    if len(remaining_digests) < MIN_REMAINING_FRACTION * len(known_digests):
        return [TablePart(tuple(row_groups))], [*known]
    unused: defaultdict[str, list[RowGroup]] = defaultdict(list)
    for group in reversed(row_groups):
        unused[group.digest].append(group)
    parts, missing = [], []
    for segment in known:
        if all(len(unused[digest]) >= n for digest, n in Counter(segment.digests).items()):
            parts.append(TablePart(tuple(unused[digest].pop() for digest in segment.digests), segment))
        else:
            missing.append(segment)
    remaining = {group for groups in unused.values() for group in groups}
    limit = max_segment_rows(sum(group.n_rows for group in row_groups))
    parts += _divide_rows([group for group in row_groups if group in remaining], limit)
    return parts, missing


def max_segment_rows(n_rows: int) -> int:
    """Return the number of rows up to which row groups of a table are combined."""
    return n_rows // MAX_NEW_SEGMENTS


def _divide_rows(row_groups: Sequence[RowGroup], limit: int) -> Iterator[TablePart]:
    """Yield parts with at most `limit` rows, or with one row group."""
    part: list[RowGroup] = []
    for group in row_groups:
        if part and sum(g.n_rows for g in part) + group.n_rows > limit:
            yield TablePart(tuple(part))
            part = []
        part.append(group)
    if part:
        yield TablePart(tuple(part))


def merge_segments(parts: Sequence[TablePart], segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Merge segments with the next one if both are small, or contain the same cells.

    Writers append rows to the last row group, so that its segment is merged only if it remains small.

    Args:
        parts: The part of the table in each segment.
    """
    limit = max_segment_rows(sum(part.n_rows for part in parts))
    last = max(group for part in parts for group in part.row_groups)
    merged: list[tuple[Segment, int, bool]] = []
    for part, segment in zip(parts, segments, strict=True):
        n_rows, is_known = part.n_rows, part.known is not None
        while merged:
            before, n_before, was_known = merged[-1]
            is_small = n_before + n_rows <= limit
            if not is_small and (last in part.row_groups or (is_known and was_known)):
                break
            both = before.append(segment)
            if not is_small and both.n_cells > MERGED_FRACTION * (before.n_cells + segment.n_cells):
                break
            merged.pop()
            segment, n_rows, is_known = both, n_before + n_rows, False
        merged.append((segment, n_rows, is_known))
    return tuple(segment for segment, *_ in merged)


def _add_totals(first: CellTotals, second: CellTotals) -> CellTotals:
    """Return the sums of the totals of two segments, in the order of the entities."""
    entity, position = np.unique(np.concatenate([first.entity, second.entity]), return_inverse=True)
    total = np.zeros(len(entity), dtype=np.uint64)
    for part, start in ((first, 0), (second, len(first.entity))):
        total[position[start : start + len(part.entity)]] += part.total
    return CellTotals(entity.astype(np.int32), total)


def sum_segments(segments: Sequence[Segment], column: int, n_entities: int) -> EntityTotals:
    """Sum the totals of a key column."""
    total, is_present = np.zeros(n_entities, dtype=np.uint64), np.zeros(n_entities, dtype=bool)
    for segment in segments:
        cells = segment.columns[column]
        total[cells.entity] += cells.total
        is_present[cells.entity] = True
    return EntityTotals(total, is_present)


def segment_arrays(segments: Mapping[str, Sequence[Segment]]) -> tuple[dict[str, list[object]], np.ndarray, np.ndarray]:
    """Return the plain description of segments by table, and the concatenated arrays of their cells."""
    plain: dict[str, list[object]] = {}
    entity, total = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.uint64)]
    for name, each in segments.items():
        plain[name] = [[[*segment.digests], [len(c.entity) for c in segment.columns]] for segment in each]
        entity += [column.entity for segment in each for column in segment.columns]
        total += [column.total for segment in each for column in segment.columns]
    return plain, np.concatenate(entity), np.concatenate(total)


def parse_segments(
    plain: Mapping[str, Sequence[tuple[list[str], list[int]]]], entity: np.ndarray, total: np.ndarray, n_entities: int
) -> dict[str, tuple[Segment, ...]]:
    """Return the segments that `segment_arrays` described.

    Raises:
        ValueError: The arrays do not match the description, or the number of entities.
    """
    is_valid = entity.dtype == np.int32 and total.dtype == np.uint64 and entity.shape == total.shape
    n_cells = sum(sum(sizes) for each in plain.values() for _, sizes in each)
    if not is_valid or entity.shape != (n_cells,) or (n_cells and not 0 <= entity.min() <= entity.max() < n_entities):
        raise ValueError("the cells of the segments are inconsistent")
    segments: dict[str, tuple[Segment, ...]] = {}
    start = 0
    for name, each in plain.items():
        parsed = []
        for digests, sizes in each:
            bounds = [*accumulate(sizes, initial=start)]
            columns = tuple(CellTotals(entity[a:b], total[a:b]) for a, b in pairwise(bounds))
            parsed.append(Segment(tuple(map(str, digests)), columns))
            start = bounds[-1]
        segments[str(name)] = tuple(parsed)
    return segments
