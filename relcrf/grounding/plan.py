"""The relational plan of a template or a derived relation: scans, equalities, filters and outputs.

The set of node types is closed. Every plan can therefore be rendered in every SQL dialect (`dialects/`), and its result
size can be estimated (`estimate.py`). Nodes are data without behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from relcrf.model.nodes import children, map_children, walk


@dataclass(frozen=True)
class Column:
    """A column of a scan."""

    alias: str
    name: str


@dataclass(frozen=True)
class Constant:
    """A constant: a number, text or truth value."""

    value: int | float | str | bool


@dataclass(frozen=True)
class Call:
    """A call of a function of the modelling language.

    The modules in `dialects/` define the SQL of each function; the result is null for arguments outside the function's domain.
    """

    name: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True)
class DefinedCall:
    """A call of a SQL function that only DuckDB has.

    Args:
        name: function in the schema of the bound model.
        definition: an equal term without the function, for other engines.
    """

    name: str
    arguments: tuple[Term, ...]
    definition: Term


@dataclass(frozen=True)
class VectorComponent:
    """A component of a vector; indices start at 0."""

    vector: Term
    index: int


@dataclass(frozen=True)
class Lookup:
    """The value of `column` in the row of `table` in which `key_column` equals `key`; null if there is no such row."""

    table: str
    column: str
    key_column: str
    key: Term


@dataclass(frozen=True)
class Indicator:
    """An indicator term: 1 if a condition is true, else 0."""

    condition: Condition


@dataclass(frozen=True)
class AggregateTerm:
    """An aggregate over the rows of a subplan; the subplan may refer to columns of the outer plan (a correlated subquery).

    Args:
        function: `count`, `sum`, `min`, `max` or `mean`.
        terms: for `count`, the terms whose distinct combinations are counted (if empty, rows are counted); for all
            other functions, a single term.
        outer_keys: the outer columns to which the subplan refers, if there are several and `outer_plan` provides them.
            DuckDB then runs a grouped join instead of a correlated subquery for each row, because it would ignore the keys
            when it orders the joins of the subquery. To count the words shared by both ends of 800,000 links, the grouped
            join takes 0.3 s and the subquery 150 s.
        outer_plan: the plan that provides `outer_keys`.
    """

    function: str
    terms: tuple[Term, ...]
    plan: Plan
    outer_keys: tuple[Column, ...] = ()
    outer_plan: Plan | None = None

    @property
    def is_zero_if_empty(self) -> bool:
        """Whether the value is 0, and not missing, if the subplan has no rows."""
        return self.function in ("count", "sum")


Term: TypeAlias = Column | Constant | Call | DefinedCall | VectorComponent | Lookup | Indicator | AggregateTerm


@dataclass(frozen=True)
class Compare:
    """A comparison `left OP right`, where OP is one of `== != < <= > >=`; false if either operand is null."""

    operator: str
    left: Term
    right: Term


@dataclass(frozen=True)
class IsTrue:
    """A condition that a Boolean term is true; false if the term is null."""

    term: Term


@dataclass(frozen=True)
class IsNotNull:
    """A condition that a term is not null."""

    term: Term


@dataclass(frozen=True)
class LogicalCondition:
    """A conjunction (`and`), disjunction (`or`) or negation (`not`) of conditions."""

    operator: str
    operands: tuple[Condition, ...]


@dataclass(frozen=True)
class Exists:
    """A condition that a subplan has a row; the subplan may refer to columns of the outer plan."""

    plan: Plan


Condition: TypeAlias = Compare | IsTrue | IsNotNull | LogicalCondition | Exists


@dataclass(frozen=True)
class Scan:
    """A scan of a table under an alias.

    Args:
        is_lookup: True if the table is joined on its primary key (vid or code) only to read attributes. The join then has
            one row for each row of the other scans.
    """

    table: str
    alias: str
    is_lookup: bool = False


@dataclass(frozen=True)
class Plan:
    """A query for the rows of the joined scans that satisfy all equalities and filters.

    Args:
        equalities: pairs of equal columns: the join conditions.
        filters: further conditions.
        bindings: name and column of each binder (logical variable); the columns identify a binding.
        is_distinct: True if rows with equal bindings count once; `where` then has names that are not binders.
        outputs: the selected terms.
    """

    scans: tuple[Scan, ...]
    equalities: tuple[tuple[Column, Column], ...] = ()
    filters: tuple[Condition, ...] = ()
    bindings: tuple[tuple[str, Column], ...] = ()
    is_distinct: bool = False
    outputs: tuple[tuple[str, Term, str], ...] = ()
    """Name, term and type of each output; the types are `integer`, `bigint`, `double` and `text`."""


def find_columns(node: Any) -> set[Column]:
    """Return all columns that a plan, condition or term refers to, including the columns in subplans."""
    return {part for part in walk(node) if isinstance(part, Column)}


def find_outer_columns(node: Any) -> set[Column]:
    """Return the columns of outer plans to which a plan, condition or term refers."""
    match node:
        case Column():
            return {node}
        case AggregateTerm(_, terms, plan):
            return find_outer_columns(replace(plan, outputs=tuple(("", term, "") for term in terms)))
    columns = set[Column]().union(*map(find_outer_columns, children(node)))
    scanned = {scan.alias for scan in node.scans} if isinstance(node, Plan) else set()
    return {column for column in columns if column.alias not in scanned}


def substitute_columns(node: Any, terms: Mapping[Column, Term]) -> Any:
    """Return a copy of a plan, condition or term with some columns replaced by other terms."""
    if isinstance(node, Column):
        return terms.get(node, node)
    return map_children(node, lambda part: substitute_columns(part, terms))


def scans_affecting_count(plan: Plan) -> list[Scan]:
    """Return the scans that may change the number of rows.

    A lookup without further conditions is excluded: it has exactly one row for each row of the other scans.
    """
    used = {c.alias for pair in plan.equalities for c in pair if c.name != "vid"}
    used |= {c.alias for c in find_columns(plan.filters)}
    return [scan for scan in plan.scans if not scan.is_lookup or scan.alias in used]


def equivalence_classes(plan: Plan) -> list[set[Column]]:
    """Return the equivalence classes of columns that the equalities of a plan imply."""
    classes: list[set[Column]] = []
    for a, b in plan.equalities:
        merged = [c for c in classes if a in c or b in c]
        classes = [c for c in classes if c not in merged]
        classes.append({a, b}.union(*merged))
    return classes
