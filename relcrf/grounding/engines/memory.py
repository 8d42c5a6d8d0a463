"""Plans on rows in memory, in plain Python: for a dozen rows, where a query's own start takes longer than its work.

A plan becomes a chain of closures once, and is run on any tables. Joins look rows up by what must be equal; conditions are
asked as soon as the rows that they speak of are there. Missing values are None, and mean what they mean in SQL.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from relcrf.data.names import FOREIGN
from relcrf.grounding.engines.base import AbstractEngine, Batch, dtypes
from relcrf.grounding.plan import (
    Call,
    Column,
    Combine,
    Compare,
    Component,
    Condition,
    Constant,
    Decided,
    Exists,
    Figure,
    Holds,
    Looked,
    Plan,
    Present,
    Term,
    columns_around,
    walk,
)
from relcrf.model.functions import foreign

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = dict[str, Row]
"""The rows that stand under the aliases of a plan and of those around it."""


@dataclass
class MemoryTables:
    """Tables as lists of rows, with what they were looked up by."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    _indices: dict[tuple[str, tuple[str, ...]], dict[tuple[Any, ...], list[Row]]] = field(default_factory=dict)

    def add(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds a table by its columns."""
        self.rows[table] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def where(self, table: str, columns: tuple[str, ...], values: tuple[Any, ...]) -> list[Row]:
        """The rows whose columns have these values; a missing one equals nothing."""
        index = self._indices.get((table, columns))
        if index is None:
            index = self._indices[table, columns] = {}
            for row in self.rows[table]:
                key = tuple(row[c] for c in columns)
                if None not in key:
                    index.setdefault(key, []).append(row)
        return index.get(values, [])


Value: TypeAlias = Callable[[MemoryTables, Rows], Any]
"""A term at work. Of a condition: True, or False, or None, which is neither."""


@dataclass(frozen=True)
class Step:
    """One scan at work.

    Args:
        columns, probes: own columns, and what they must be equal to.
        conditions: those that can be asked when its row is there.
    """

    table: str
    alias: str
    columns: tuple[str, ...]
    probes: tuple[Value, ...]
    conditions: tuple[Value, ...]

    def rows(self, tables: MemoryTables, rows: Rows) -> list[Row]:
        if not self.columns:
            return tables.rows[self.table]
        return tables.where(self.table, self.columns, tuple(probe(tables, rows) for probe in self.probes))


@dataclass(frozen=True)
class Program:
    """A plan as closures.

    Args:
        first: conditions that speak of nothing but what is around the plan.
        outputs: the value of each output with its fill, see `dialects.base`.
    """

    first: tuple[Value, ...]
    steps: tuple[Step, ...]
    bindings: tuple[Value, ...]
    outputs: tuple[tuple[Value, int | None], ...]

    def run(self, tables: MemoryTables, rows: Rows) -> Iterator[Rows]:
        """The joined rows, one after the other in the same mapping."""
        if all(condition(tables, rows) for condition in self.first):
            yield from self._join(tables, rows, 0)

    def _join(self, tables: MemoryTables, rows: Rows, k: int) -> Iterator[Rows]:
        if k == len(self.steps):
            yield rows
            return
        step = self.steps[k]
        for row in step.rows(tables, rows):
            rows[step.alias] = row
            for condition in step.conditions:
                if not condition(tables, rows):
                    break
            else:
                yield from self._join(tables, rows, k + 1)

    def distinct(self, tables: MemoryTables) -> list[tuple[Any, ...]]:
        """The distinct bindings."""
        found = (tuple(value(tables, rows) for value in self.bindings) for rows in self.run(tables, {}))
        return list(dict.fromkeys(found))


class MemoryEngine(AbstractEngine):
    """Grounds on tables in memory.

    Args:
        programs: kept for plans of one model; what is not there yet is added.
    """

    name = "memory"

    def __init__(self, tables: MemoryTables, programs: dict[Plan, Program]) -> None:
        self._tables, self._programs = tables, programs

    def rows(self, plan: Plan) -> Iterator[Batch]:
        if plan not in self._programs:
            self._programs[plan] = compiled(plan)
        program = self._programs[plan]
        found = []
        for rows in program.run(self._tables, {}):
            values = []
            for value, fill in program.outputs:
                answer = value(self._tables, rows)
                values.append(fill if answer is None else answer)
            found.append((tuple(values), tuple(b(self._tables, rows) for b in program.bindings)))
        if plan.is_distinct:
            found = list(dict.fromkeys(found))
        if found:
            columns = zip(*(values for values, _ in found), strict=True)
            yield {n: np.array(c, dtype=t) for c, (n, t) in zip(columns, dtypes(plan).items(), strict=True)}

    def close(self) -> None:
        """Nothing is held."""


def is_supported(plan: Plan) -> bool:
    """Whether a plan calls nothing but what is the same here as in a database, to the last letter."""
    return all(node.name in CALLS or node.name.startswith(FOREIGN) for node in walk(plan) if isinstance(node, Call))


def compiled(plan: Plan, around: frozenset[str] = frozenset()) -> Program:
    """A plan as closures.

    Args:
        around: the aliases of the plans around it.
    """
    seen = set(around)
    equalities, filters = list(plan.equalities), list(plan.filters)

    def ready() -> tuple[Value, ...]:
        """The conditions that can be asked now, and that were not before."""
        asked = []
        for pair in [p for p in equalities if {c.alias for c in p} <= seen]:
            equalities.remove(pair)
            asked.append(_condition(Compare("==", *pair), frozenset(seen)))
        for each in [f for f in filters if {c.alias for c in columns_around(f)} <= seen]:
            filters.remove(each)
            asked.append(_condition(each, frozenset(seen)))
        return tuple(asked)

    first = ready()
    steps = []
    scans = list(plan.scans)
    while scans:
        tied = (s for s in scans if any({a.alias, b.alias} - seen == {s.alias} for a, b in equalities))
        scan = next(tied, scans[0])
        scans.remove(scan)
        pairs = [
            pair
            for pair in equalities
            if {c.alias for c in pair} - seen == {scan.alias} and pair[0].alias != pair[1].alias
        ]
        for pair in pairs:
            equalities.remove(pair)
        own = tuple(next(c for c in pair if c.alias == scan.alias).name for pair in pairs)
        probes = tuple(_term(next(c for c in pair if c.alias != scan.alias), frozenset(seen)) for pair in pairs)
        seen.add(scan.alias)
        steps.append(Step(scan.table, scan.alias, own, probes, ready()))
    inside = frozenset(seen)
    outputs = tuple((_output(_term(t, inside), kind), {"e": -1, "f": 0}.get(name[0])) for name, t, kind in plan.outputs)
    return Program(first, tuple(steps), tuple(_term(c, inside) for _, c in plan.bindings), outputs)


def _output(value: Value, kind: str) -> Value:
    """A value of the type of an output."""
    if kind == "text":
        return value
    cast = float if kind == "double" else int
    return lambda tables, rows: None if (found := value(tables, rows)) is None else cast(found)


# Conditions

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _condition(node: Condition, inside: frozenset[str]) -> Value:
    match node:
        case Compare(sign, left, right):
            a, b, compare = _term(left, inside), _term(right, inside), _COMPARISONS[sign]

            def compared(tables: MemoryTables, rows: Rows) -> bool | None:
                x, y = a(tables, rows), b(tables, rows)
                return None if x is None or y is None else compare(x, y)

            return compared
        case Holds(inner):
            return _term(inner, inside)
        case Present(inner):
            present = _term(inner, inside)
            return lambda tables, rows: present(tables, rows) is not None
        case Combine("not", (part,)):
            negated = _condition(part, inside)
            return lambda tables, rows: not negated(tables, rows)
        case Combine(connective, parts):
            # Where it is not under `not`, what is missing does not hold; and `not` makes it two-valued first.
            each, several = [_condition(p, inside) for p in parts], any if connective == "or" else all
            return lambda tables, rows: several(condition(tables, rows) for condition in each)
        case Exists(plan):
            program = compiled(plan, inside)
            return lambda tables, rows: next(program.run(tables, dict(rows)), None) is not None
    raise AssertionError(f"{node} is no condition")


# Terms


def _term(node: Term, inside: frozenset[str]) -> Value:
    match node:
        case Column(alias, name):
            return lambda tables, rows: rows[alias][name]
        case Constant(value):
            return lambda tables, rows: value
        case Component(vector, index):
            numbers = _term(vector, inside)
            return lambda tables, rows: None if (found := numbers(tables, rows)) is None else found[index]
        case Call(name, arguments):
            own = foreign(name.removeprefix(FOREIGN)) if name.startswith(FOREIGN) else None
            return _called(own or CALLS[name], [_term(a, inside) for a in arguments])
        case Looked(table, column, where, equals):
            sought = _term(equals, inside)

            def looked(tables: MemoryTables, rows: Rows) -> Any:
                found = tables.where(table, (where,), (sought(tables, rows),))
                return found[0][column] if found else None

            return looked
        case Decided(condition):
            decided = _condition(condition, inside)
            return lambda tables, rows: int(bool(decided(tables, rows)))
        case Figure(function, terms, plan):
            return _figure(function, terms, plan, inside)
    raise AssertionError(f"{node} is no term")


def _called(function: Callable[..., Any], arguments: list[Value]) -> Value:
    def called(tables: MemoryTables, rows: Rows) -> Any:
        values = [argument(tables, rows) for argument in arguments]
        return None if None in values else function(*values)

    return called


def _figure(function: str, terms: tuple[Term, ...], plan: Plan, inside: frozenset[str]) -> Value:
    program = compiled(plan, inside)
    own = inside | {scan.alias for scan in plan.scans}
    values = [_term(term, own) for term in terms]

    def figure(tables: MemoryTables, rows: Rows) -> Any:
        found = [tuple(v(tables, joined) for v in values) for joined in program.run(tables, dict(rows))]
        if function == "count":
            return len({row for row in found if row != (None,)}) if values else len(found)
        present = sorted(float(row[0]) for row in found if row[0] is not None)
        if not present:
            return 0 if function == "sum" else None
        return _FIGURES[function](present)

    return figure


def _sum(values: Sequence[float]) -> float:
    return reduce(operator.add, values)


_FIGURES: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": _sum,
    "min": lambda values: values[0],
    "max": lambda values: values[-1],
    "mean": lambda values: _sum(values) / len(values),
}
"""Of numbers in ascending order."""


def _exp(x: float) -> float:
    return math.exp(x) if x < 709.78 else math.inf


CALLS: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: float(a) + float(b),
    "-": lambda a, b: float(a) - float(b),
    "*": lambda a, b: float(a) * float(b),
    "/": lambda a, b: float(a) / float(b) if b else None,
    "negative": lambda x: -float(x),
    "log": lambda x: math.log(x) if x > 0 else None,
    "log1p": lambda x: math.log(1 + x) if x > -1 else None,
    "exp": _exp,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else None,
    "abs": lambda x: abs(float(x)),
    "least": lambda a, b: min(float(a), float(b)),
    "greatest": lambda a, b: max(float(a), float(b)),
    "length": len,
    "contains": lambda text, part: part in text,
    "starts_with": lambda text, part: text.startswith(part),
    "date": datetime.date.fromisoformat,
}
"""The functions of the language that need no database to be the same; the others compare letters or add up vectors."""
