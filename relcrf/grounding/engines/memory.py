"""An engine that joins integer columns in memory. For a dozen rows, this takes a tenth of the time of a DuckDB query."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from typing import TypeAlias

import numpy as np

from relcrf.grounding.engines.base import AbstractEngine, Batch
from relcrf.grounding.patterns import COMPARISONS
from relcrf.grounding.plan import (
    Column,
    Compare,
    Condition,
    Constant,
    IsNotNull,
    LogicalCondition,
    Plan,
    Scan,
    Term,
    find_columns,
)
from relcrf.model.nodes import walk

Columns: TypeAlias = Mapping[Column, np.ndarray]
"""Columns of vids and codes, with -1 for null."""

MAX_CONSTANT = 2**31
"""Maximum absolute value of integer constants, so that they can be compared with int32 columns."""


class MemoryEngine(AbstractEngine):
    """An engine that runs joins by equal integers in memory; another engine runs all other plans.

    Args:
        read_column: function of a table and a column that returns vids or codes with -1 for null, shape (n,), int32; None
            if the column has another type.
        other: function that returns the engine of the other plans.
    """

    name = "memory"

    def __init__(
        self, read_column: Callable[[str, str], np.ndarray | None], other: Callable[[], AbstractEngine]
    ) -> None:
        self._read_column, self._other = read_column, other

    def rows(self, plan: Plan) -> Iterator[Batch]:
        tables = {scan.alias: scan.table for scan in plan.scans}
        columns: dict[Column, np.ndarray] = {}
        for column in _columns_of_join(plan):
            values = self._read_column(tables[column.alias], column.name)
            if values is None:
                columns.clear()
                break
            columns[column] = values
        if not columns:
            yield from self._other().rows(plan)
            return
        batch = _join(plan, columns)
        if len(next(iter(batch.values()))):
            yield batch


@lru_cache
def _columns_of_join(plan: Plan) -> tuple[Column, ...]:
    """Return the columns that a plan reads if it only joins scans by equalities and compares integers, else no columns."""
    nodes, columns = list(walk(plan)), find_columns(plan)
    kinds = (Plan, Scan, Column, Compare, Constant, IsNotNull, LogicalCondition)
    constants = [node.value for node in nodes if isinstance(node, Constant)]
    joined = {plan.scans[0].alias, *(right.alias for _, right in _join_steps(plan))}
    is_join = (
        not plan.is_distinct
        and all(isinstance(node, kinds) for node in nodes)
        and all(type(value) is int and abs(value) < MAX_CONSTANT for value in constants)
        and all(isinstance(term, Column) and kind == "integer" for _, term, kind in plan.outputs)
        and joined == {scan.alias for scan in plan.scans} == {column.alias for column in columns}
    )
    return tuple(columns) if is_join else ()


@lru_cache
def _join_steps(plan: Plan) -> tuple[tuple[Column, Column], ...]:
    """Return equalities of a scan that is already joined and of another scan, in the order of the joins."""
    steps: list[tuple[Column, Column]] = []
    joined = {plan.scans[0].alias}
    pairs = [pair for a, b in plan.equalities for pair in ((a, b), (b, a))]
    while step := next((pair for pair in pairs if pair[0].alias in joined and pair[1].alias not in joined), None):
        steps.append(step)
        joined.add(step[1].alias)
    return tuple(steps)


def _join(plan: Plan, columns: Columns) -> Batch:
    """Return the outputs of a plan."""
    rows: dict[str, np.ndarray] | None = None
    for left, right in _join_steps(plan):
        known = {left.alias: np.arange(len(columns[left]))} if rows is None else rows
        left_rows, right_rows = _match(columns[left][known[left.alias]], columns[right])
        rows = {alias: found[left_rows] for alias, found in known.items()} | {right.alias: right_rows}
    if rows is not None:
        columns = {column: values[rows[column.alias]] for column, values in columns.items()}
    conditions: list[Condition] = [Compare("==", a, b) for a, b in plan.equalities]
    conditions += plan.filters
    if conditions:
        mask = np.ones(len(next(iter(columns.values()))), dtype=bool)
        for condition in conditions:
            mask &= _evaluate(condition, columns)
        columns = {column: values[mask] for column, values in columns.items()}
    return {name: columns[term] for name, term, _ in plan.outputs if isinstance(term, Column)}


def _match(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of all pairs of equal values that are not null."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first = np.searchsorted(ordered, left)
    counts = np.where(left >= 0, np.searchsorted(ordered, left, side="right") - first, 0)
    left_rows = np.repeat(np.arange(len(left)), counts)
    ends = np.cumsum(counts)
    right_rows = order[np.arange(len(left_rows)) + np.repeat(first - ends + counts, counts)]
    return left_rows, right_rows


def _evaluate(condition: Condition, columns: Columns) -> np.ndarray:
    """Return the mask of the rows that satisfy a condition; comparisons with null are false."""
    match condition:
        case Compare(name, left, right):
            mask = COMPARISONS[name](_value(left, columns), _value(right, columns))
            for term in (left, right):
                if isinstance(term, Column):
                    mask &= columns[term] >= 0
            return mask
        case IsNotNull(Column() as column):
            return np.asarray(columns[column] >= 0)
        case LogicalCondition("not", (operand,)):
            return ~_evaluate(operand, columns)
        case LogicalCondition(name, operands):
            masks = [_evaluate(operand, columns) for operand in operands]
            return reduce(operator.and_ if name == "and" else operator.or_, masks)
    raise AssertionError(f"{condition} is not a condition of a join")


def _value(term: Term, columns: Columns) -> np.ndarray:
    return columns[term] if isinstance(term, Column) else np.asarray(getattr(term, "value", None), dtype=np.int32)
