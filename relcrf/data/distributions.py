"""Distributions of the columns of a bound model: attributes, bags, and the numbers of tuples per entity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import attribute_column, bag_table, entity_table, relation_table
from relcrf.model.spec import AttributeDeclaration
from relcrf.model.types import BOOL_VALUES, Bag, Bool, Date, Datetime, DomainType, Integer, String, Time, Vector

MAX_VALUES = 20
"""Maximum number of values of a category that are counted separately; the others are counted together."""

QUANTILES = tuple(k / 10 for k in range(1, 10))
"""Quantiles of a column of numbers that separate its bins."""

ROWS_PER_CHUNK = 1 << 18
"""Number of rows of a bag that are read at a time; 2**18 rows take 8 MiB with the copies that `numpy.bincount` makes."""

MICROSECONDS_PER_SECOND = 1e6
_UNITS = {Time: "time", Datetime: "datetime"}


@dataclass(frozen=True)
class ColumnDistribution:
    """The number of rows of a column with each value or in each bin.

    Args:
        name: `Page.topic`; `number of Page.words` for the sizes of bags; `length of Page.title` for texts;
            `number of Link by source` for the tuples per entity.
        counts: The numbers of rows by value or bin.
        values: The most frequent values, if the column contains values of a domain.
        edges: The limits of the bins, if it contains numbers: below the first edge, from the first to the second edge,
            above the second up to the third edge, and so on; above the last edge. The first and the last edge are the
            minimum and the maximum. Days since 1970 for dates, seconds since midnight for times, seconds since 1970 for
            datetimes.
        unit: `integer`, `date`, `time`, `datetime`, or empty.
        n_others: The number of rows with other values.
        n_missing: The number of rows without a value.
        is_predicted: Whether the model predicts the column, so that missing values are expected.
    """

    name: str
    counts: tuple[int, ...]
    values: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    unit: str = ""
    n_others: int = 0
    n_missing: int = 0
    is_predicted: bool = False

    @property
    def n_rows(self) -> int:
        """The number of rows, including those without a value."""
        return sum(self.counts) + self.n_others + self.n_missing

    def require_valid(self) -> None:
        """Raise ValueError if the numbers of a distribution that was read from a file contradict each other."""
        n_bins = len(self.values) if self.values or not self.counts else len(self.edges) + 1
        if len(self.counts) != n_bins or min((0, *self.counts, self.n_others, self.n_missing)) < 0:
            raise ValueError(f"the counts of the column '{self.name}' are invalid")
        is_ordered = all(low < high for low, high in pairwise((-math.inf, *self.edges[1:], math.inf)))
        if not is_ordered or (self.edges and not -math.inf < self.edges[0] <= (*self.edges, math.nan)[1]):
            raise ValueError(f"the bins of the column '{self.name}' are invalid")


@dataclass(frozen=True)
class _Column:
    """A column to count: SQL of a value, of the table, and of the number of rows that a row of the table stands for."""

    name: str
    value: str
    table: str
    domain: Sequence[str] | None = None
    unit: str = ""
    weight: str = "1"
    is_predicted: bool = False


def measure_distributions(bound: BoundModel, like: Sequence[ColumnDistribution] = ()) -> tuple[ColumnDistribution, ...]:
    """Return the distributions of the columns that a model declares.

    Args:
        like: Distributions of other tables, whose values and bins are used, so that the counts can be compared.
    """
    known = {one.name: one for one in like}
    return tuple(_measure(bound, column, known.get(column.name)) for column in _iter_columns(bound))


def _iter_columns(bound: BoundModel) -> Iterator[_Column]:
    for entity in bound.spec.entities:
        for attribute in (a for a in entity.attributes if not a.latent):
            name, table = f"{entity.name}.{attribute.name}", quoted(entity_table(entity.name))
            if isinstance(attribute.type, Bag):
                values = bound.domains[attribute.type.domain]
                by_value, by_entity = _bag_totals(bound, entity.name, attribute.name, len(values))
                with _registered(bound, code=np.arange(len(values)), total=by_value) as view:
                    yield _Column(name, "code", view, values, weight="total")
                with _registered(bound, size=by_entity) as view:
                    yield _Column(f"number of {name}", "size", view, unit="integer")
            elif not isinstance(attribute.type, Vector):
                yield _attribute(name, attribute, table, bound.domains)
    for relation in bound.spec.relations:
        table = quoted(relation_table(relation.name))
        for k, parameter in enumerate(relation.parameters):
            if bound.spec.entity(parameter.type_name) is not None:
                entities = quoted(entity_table(parameter.type_name))
                sizes = _sizes_sql(entities, table, f"a{k}")
                yield _Column(f"number of {relation.name} by {parameter.name}", "size", sizes, unit="integer")
        for attribute in relation.attributes:
            if not isinstance(attribute.type, Vector | Bag):
                yield _attribute(f"{relation.name}.{attribute.name}", attribute, table, bound.domains)


def _sizes_sql(entities: str, rows: str, owner: str) -> str:
    """Return SQL of a table with the number of rows of each entity, in the column `size`."""
    counted = f"SELECT {owner} AS vid, count(*) AS n FROM {rows} GROUP BY ALL"
    return f"(SELECT coalesce(n, 0) AS size FROM {entities} LEFT JOIN ({counted}) USING (vid))"


def _bag_totals(bound: BoundModel, entity: str, attribute: str, n_values: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the total count of each value and of each entity; DuckDB would map all rows of the bag into memory."""
    columns = bound.external_tables[bag_table(entity, attribute)]
    by_value, by_entity = np.zeros(n_values), np.zeros(bound.sizes[entity])
    for start in range(0, len(columns["vid"]), ROWS_PER_CHUNK):
        vid, code, count = (
            read_rows(columns[name], start, start + ROWS_PER_CHUNK) for name in ("vid", "code", "count")
        )
        by_value += np.bincount(code, count, n_values)
        first = int(vid[0])  # the entities ascend, so that a chunk has few of them
        of_chunk = np.bincount(vid - first, count)
        by_entity[first : first + len(of_chunk)] += of_chunk
    return by_value, by_entity


@contextmanager
def _registered(bound: BoundModel, **columns: np.ndarray) -> Iterator[str]:
    """Provide a table of columns in memory under a name in SQL."""
    name = "bag_totals"
    bound.connection.register(name, columns)
    try:
        yield name
    finally:
        bound.connection.unregister(name)


def _attribute(name: str, attribute: AttributeDeclaration, table: str, domains: Mapping[str, Sequence[str]]) -> _Column:
    column, kind, predicted = quoted(attribute_column(attribute.name)), attribute.type, attribute.predicted
    match kind:
        case DomainType(domain):
            return _Column(name, f"{column}::INTEGER", table, domains[domain], is_predicted=predicted)
        case Bool():
            return _Column(name, f"{column}::INTEGER", table, BOOL_VALUES, is_predicted=predicted)
        case String():
            return _Column(f"length of {name}", f"length({column})", table, unit="integer")
        case Integer():
            return _Column(name, column, table, unit="integer", is_predicted=predicted)
        case Date():
            return _Column(name, f"epoch({column}) / 86400", table, unit="date")
        case Time() | Datetime():
            return _Column(name, f"{column} / {MICROSECONDS_PER_SECOND}", table, unit=_UNITS[type(kind)])
    return _Column(name, column, table, is_predicted=predicted)


def _measure(bound: BoundModel, column: _Column, like: ColumnDistribution | None) -> ColumnDistribution:
    if column.domain is not None:
        return _count_values(bound, column, column.domain, like)
    number = f"({column.value})::DOUBLE"
    edges = _find_edges(bound, number, column.table) if like is None else like.edges
    comparisons = [f"({number} {'>' if k else '>='} {edge!r})::INTEGER" for k, edge in enumerate(edges)]
    bin_sql = " + ".join(comparisons) or f"0 * ({number} > 0)::INTEGER"
    query = f"SELECT coalesce({bin_sql}, -1) AS bin, count(*) FROM {column.table} GROUP BY 1"
    rows = {int(bin_): int(n) for bin_, n in bound.connection.execute(query).fetchall()}
    counts = tuple(rows.get(k, 0) for k in range(len(edges) + 1))
    return ColumnDistribution(
        column.name,
        counts,
        edges=edges,
        unit=column.unit,
        n_missing=rows.get(-1, 0),
        is_predicted=column.is_predicted,
    )


def _find_edges(bound: BoundModel, number: str, table: str) -> tuple[float, ...]:
    """Return the minimum, the distinct quantiles and the maximum of a column; empty if it has no numbers."""
    query = f"SELECT quantile_disc({number}, {[*QUANTILES, 1.0]}), min({number}) FROM {table}"
    ((quantiles, minimum),) = bound.connection.execute(query).fetchall()
    return () if minimum is None else (float(minimum), *sorted({float(each) for each in quantiles}))


def _count_values(
    bound: BoundModel, column: _Column, domain: Sequence[str], like: ColumnDistribution | None
) -> ColumnDistribution:
    query = f"SELECT {column.value} AS code, sum({column.weight})::BIGINT AS n FROM {column.table} GROUP BY 1"
    found = bound.connection.execute(f"SELECT coalesce(code, -1)::BIGINT AS code, n FROM ({query})").fetchnumpy()
    counts = np.zeros(len(domain) + 1, dtype=np.int64)
    counts[np.asarray(found["code"], dtype=np.int64)] = np.asarray(found["n"], dtype=np.int64)
    by_code, n_missing = counts[:-1], int(counts[-1])
    if like is None:
        codes = [int(code) for code in np.argsort(-by_code, kind="stable")[:MAX_VALUES] if by_code[code]]
        values = tuple(domain[code] for code in codes)
    else:
        values, wanted = like.values, set(like.values)
        places = {value: code for code, value in enumerate(domain) if value in wanted}
        codes = [places.get(value, -1) for value in values]
    shown = tuple(int(by_code[code]) if code >= 0 else 0 for code in codes)
    others = int(by_code.sum()) - sum(shown)
    return ColumnDistribution(
        column.name, shown, values, n_others=others, n_missing=n_missing, is_predicted=column.is_predicted
    )
