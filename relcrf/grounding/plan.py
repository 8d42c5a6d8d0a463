"""The relational plan of a template or a derived relation: scans, equalities, filters, outputs. Data only.

A closed set of nodes, so that every plan prints in every dialect (`sql.py`) and its size can be told before it
runs (`estimate.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


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
    """A function of the language on terms; `sql.py` knows how each prints, and what it does outside its domain."""

    name: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True)
class Component:
    """One number of a vector, counted from 0."""

    vector: Term
    index: int


Term: TypeAlias = Column | Constant | Call | Component


@dataclass(frozen=True)
class Compare:
    """`left OP right`, OP one of `== != < <= > >=`; a missing side makes it not hold."""

    operator: str
    left: Term
    right: Term


@dataclass(frozen=True)
class Holds:
    """A truth-valued term holds; a missing one does not."""

    term: Term


@dataclass(frozen=True)
class Present:
    """A term is not missing."""

    term: Term


@dataclass(frozen=True)
class Combine:
    """`and`, `or`, or `not` of conditions."""

    operator: str
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Exists:
    """The plan has a row; its equalities may name columns of the plan around it."""

    plan: Plan


Condition: TypeAlias = Compare | Holds | Present | Combine | Exists


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
