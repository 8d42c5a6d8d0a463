"""What a model file says: frozen declarations, and the specification that holds them.

A `ModelSpec` is built by the parser (`language/parse.py`) or by hand and says what there is (domains, entities,
relations), what is unknown (`predict`), and which patterns may carry weight (templates). It names no data,
no backend and no optimiser. `language/check.py` says whether its parts fit together.
"""

# ruff: noqa: RUF009  # `_span()` makes a new `field` for each class
from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from relcrf.errors import Source, Span
from relcrf.model.expressions import Expression
from relcrf.model.types import AttributeType


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False, kw_only=True)


def folded(name: str) -> str:
    """A name as names are compared between a model and its tables: case and underscores aside."""
    return name.replace("_", "").lower()


@dataclass(frozen=True)
class EnumeratedDomain:
    """`domain D = { a, b, c }`: the values, in the order of their states."""

    name: str
    values: tuple[str, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class RangeDomain:
    """`domain D = 1..5`: the integers from `low` to `high`, both included."""

    name: str
    low: int
    high: int
    span: Span | None = _span()

    @property
    def values(self) -> tuple[str, ...]:
        """The values as text, in the order of their states."""
        return tuple(str(v) for v in range(self.low, self.high + 1))


@dataclass(frozen=True)
class OpenDomain:
    """`domain D = open`: the values are read from the data."""

    name: str
    span: Span | None = _span()


Domain: TypeAlias = EnumeratedDomain | RangeDomain | OpenDomain


@dataclass(frozen=True)
class AttributeDeclaration:
    """`name : type`, evidence; or `predict name : D`, a random variable of each thing."""

    name: str
    type: AttributeType
    predicted: bool = False
    span: Span | None = _span()


@dataclass(frozen=True)
class Entity:
    """A type of thing. `key` is the column that identifies a thing in its table."""

    name: str
    attributes: tuple[AttributeDeclaration, ...] = ()
    key: str = "id"
    span: Span | None = _span()

    def attribute(self, name: str) -> AttributeDeclaration | None:
        return next((a for a in self.attributes if a.name == name), None)


@dataclass(frozen=True)
class Parameter:
    """`name: Sort`: an argument of a relation, or a binder of a template. The sort is an entity or a domain."""

    name: str
    sort: str
    span: Span | None = _span()


@dataclass(frozen=True)
class Relation:
    """Observed tuples, with attributes of the tuples."""

    name: str
    parameters: tuple[Parameter, ...]
    attributes: tuple[AttributeDeclaration, ...] = ()
    span: Span | None = _span()

    def attribute(self, name: str) -> AttributeDeclaration | None:
        return next((a for a in self.attributes if a.name == name), None)


@dataclass(frozen=True)
class Nearest:
    """`nearest K by cosine(a.v, b.v)`: for each a, the K other things b of the largest similarity.

    `measure` is a call of `cosine`, `dot` or `distance` on one vector attribute of both parameters; for
    `distance` nearest means smallest. Ties go to the thing whose key comes first.
    """

    count: int
    measure: Expression
    span: Span | None = _span()


@dataclass(frozen=True)
class Derived:
    """A named observed relation computed from others, by a condition or as nearest neighbours."""

    name: str
    parameters: tuple[Parameter, ...]
    definition: Expression | Nearest
    span: Span | None = _span()


@dataclass(frozen=True)
class Options:
    """Settings of a template's weights; None leaves the choice to the backend.

    `init` is where learning starts, `fixed` keeps it there, `l1` and `l2` are the strengths of the penalties.
    """

    init: float | None = None
    fixed: bool = False
    l1: float | None = None
    l2: float | None = None


@dataclass(frozen=True)
class Template:
    """A pattern that may carry weight; see the language reference for its meaning.

    `over` is either random terms (a table over their joint states) or a single formula (one pattern: its truth).
    A lone `a.x` is a random term. `by` empty means the constant feature 1.
    """

    name: str
    parameters: tuple[Parameter, ...]
    over: tuple[Expression, ...]
    where: Expression | None = None
    per: tuple[Expression, ...] = ()
    by: tuple[Expression, ...] = ()
    options: Options = Options()
    span: Span | None = _span()


Declaration: TypeAlias = Domain | Entity | Relation | Derived | Template


@dataclass(frozen=True)
class ModelSpec:
    """The declarations of a model, in the order of the file.

    Look-ups take a name and return the declaration, or None; of two declarations of one name the first counts
    (the checker reports the second).
    """

    declarations: tuple[Declaration, ...]
    source: Source | None = field(default=None, compare=False, repr=False, kw_only=True)

    @cached_property
    def _by_name(self) -> dict[str, Declaration]:
        found: dict[str, Declaration] = {}
        for declaration in self.declarations:
            if not isinstance(declaration, Template):
                found.setdefault(declaration.name, declaration)
        return found

    def domain(self, name: str) -> Domain | None:
        found = self._by_name.get(name)
        return found if isinstance(found, Domain) else None

    def entity(self, name: str) -> Entity | None:
        found = self._by_name.get(name)
        return found if isinstance(found, Entity) else None

    def relation(self, name: str) -> Relation | Derived | None:
        """An observed or derived relation."""
        found = self._by_name.get(name)
        return found if isinstance(found, Relation | Derived) else None

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        return tuple(d for d in self.declarations if isinstance(d, Domain))

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        return tuple(d for d in self.declarations if isinstance(d, Entity))

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        return tuple(d for d in self.declarations if isinstance(d, Relation))

    @cached_property
    def derived(self) -> tuple[Derived, ...]:
        return tuple(d for d in self.declarations if isinstance(d, Derived))

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        return tuple(d for d in self.declarations if isinstance(d, Template))

    @cached_property
    def constants(self) -> dict[str, tuple[str, ...]]:
        """For each value of an enumerated domain, the domains that have it."""
        found: dict[str, tuple[str, ...]] = {}
        for domain in self.domains:
            if isinstance(domain, EnumeratedDomain):
                for value in domain.values:
                    found[value] = (*found.get(value, ()), domain.name)
        return found
