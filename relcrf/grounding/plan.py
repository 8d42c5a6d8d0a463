"""The relational plan of a template or a derived relation: scans, equalities, filters, outputs. Data only.

A closed set of nodes, so that every plan prints in every dialect (`dialects`) and its size can be told before it
runs (`estimate.py`).
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
    """A number, text or truth value."""

    value: int | float | str | bool


@dataclass(frozen=True)
class Call:
    """A function of the language on terms; `dialects` know how each prints, and what it does outside its domain."""

    name: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True)
class VectorComponent:
    """One number of a vector, counted from 0."""

    vector: Term
    index: int


@dataclass(frozen=True)
class Lookup:
    """A column of the row of a table in which another column has a value; missing where there is none."""

    table: str
    column: str
    key_column: str
    key: Term


@dataclass(frozen=True)
class Indicator:
    """1 where a condition holds, else 0."""

    condition: Condition


@dataclass(frozen=True)
class AggregateTerm:
    """`count`, `sum`, `min`, `max` or `mean` over the rows of a plan, whose equalities may name columns around it.

    Args:
        terms: what is counted, each distinct combination once (none: the rows); or the one term of the others.
        outer_keys: the columns around it that it names, where there are several and `outer_plan` is the plan that has them. Then the
            figure is a grouped join beside that plan and no subquery for each of its rows, whose joins DuckDB would order
            without regard to the keys (800,000 links, words in common of both ends: 0.3 s and not 150).
    """

    function: str
    terms: tuple[Term, ...]
    plan: Plan
    outer_keys: tuple[Column, ...] = ()
    outer_plan: Plan | None = None


Term: TypeAlias = Column | Constant | Call | VectorComponent | Lookup | Indicator | AggregateTerm


@dataclass(frozen=True)
class Compare:
    """`left OP right`, OP one of `== != < <= > >=`; a missing side makes it not hold."""

    operator: str
    left: Term
    right: Term


@dataclass(frozen=True)
class IsTrue:
    """A truth-valued term holds; a missing one does not."""

    term: Term


@dataclass(frozen=True)
class IsNotNull:
    """A term is not missing."""

    term: Term


@dataclass(frozen=True)
class LogicalCondition:
    """`and`, `or`, or `not` of conditions."""

    operator: str
    operands: tuple[Condition, ...]


@dataclass(frozen=True)
class Exists:
    """The plan has a row; its equalities may name columns of the plan around it."""

    plan: Plan


Condition: TypeAlias = Compare | IsTrue | IsNotNull | LogicalCondition | Exists


@dataclass(frozen=True)
class Scan:
    """A table under an alias. `is_lookup`: joined by its dense `vid` only to read attributes, one row for each."""

    table: str
    alias: str
    is_lookup: bool = False


@dataclass(frozen=True)
class Plan:
    """Rows of the joined scans that fulfil everything.

    Args:
        equalities: pairs of columns that are equal; the join.
        filters: further conditions.
        bindings: the columns that tell bindings apart, one a binder.
        is_distinct: several rows may give one binding, which counts once (`where` has existential names).
        outputs: what is fetched, by name.
    """

    scans: tuple[Scan, ...]
    equalities: tuple[tuple[Column, Column], ...] = ()
    filters: tuple[Condition, ...] = ()
    bindings: tuple[tuple[str, Column], ...] = ()
    is_distinct: bool = False
    outputs: tuple[tuple[str, Term, str], ...] = ()
    """Name, term, and type: `integer`, `bigint`, `double` or `text`."""


def find_columns(node: Any) -> set[Column]:
    """Return all columns that a plan, condition or term names, also inside the plans in it."""
    return {part for part in walk(node) if isinstance(part, Column)}


def find_outer_columns(node: Any) -> set[Column]:
    """Return the columns that a plan, condition or term names and that no plan inside it scans."""
    match node:
        case Column():
            return {node}
        case AggregateTerm(_, terms, plan):
            return find_outer_columns(replace(plan, outputs=tuple(("", term, "") for term in terms)))
    found = set[Column]().union(*map(find_outer_columns, children(node)))
    own = {scan.alias for scan in node.scans} if isinstance(node, Plan) else set()
    return {column for column in found if column.alias not in own}


def substitute_columns(node: Any, terms: Mapping[Column, Term]) -> Any:
    """Return a plan, condition or term with other terms in the places of some columns."""
    if isinstance(node, Column):
        return terms.get(node, node)
    return map_children(node, lambda part: substitute_columns(part, terms))


def scans_affecting_count(plan: Plan) -> list[Scan]:
    """Return scans that multiply rows or filter them: a lookup has exactly one row for each, unless it is filtered."""
    used = {c.alias for pair in plan.equalities for c in pair if c.name != "vid"}
    used |= {c.alias for c in find_columns(plan.filters)}
    return [scan for scan in plan.scans if not scan.is_lookup or scan.alias in used]


def equivalence_classes(plan: Plan) -> list[set[Column]]:
    """The columns that the equalities of a plan make equal, class by class."""
    classes: list[set[Column]] = []
    for a, b in plan.equalities:
        touching = [c for c in classes if a in c or b in c]
        classes = [c for c in classes if c not in touching]
        classes.append({a, b}.union(*touching))
    return classes
