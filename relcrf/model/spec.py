"""What a model file says: frozen declarations, and the specification that holds them.

A `ModelSpec` is built by the parser (`language/parse.py`) or the builder (`language/builder.py`) and says what there is
(domains, entities, relations), what is unknown (`predict`), and which patterns may carry weight (templates). It names no
data, no backend and no optimiser. `language/check.py` says whether its parts fit together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, TypeVar

from relcrf.errors import Source
from relcrf.model.expressions import Expression, FunctionCall, Spanned
from relcrf.model.nodes import walk
from relcrf.model.types import AttributeType, Bool


def fold_name(name: str) -> str:
    """A name as names are compared between a model and its tables: case and underscores aside."""
    return name.replace("_", "").lower()


@dataclass(frozen=True)
class EnumeratedDomain(Spanned):
    """`domain D = { a, b, c }`: the values, in the order of their states."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class RangeDomain(Spanned):
    """`domain D = 1..5`: the integers from `low` to `high`, both included."""

    name: str
    low: int
    high: int

    @property
    def values(self) -> tuple[str, ...]:
        """The values as text, in the order of their states."""
        return tuple(str(v) for v in range(self.low, self.high + 1))


@dataclass(frozen=True)
class OpenDomain(Spanned):
    """`domain D = open`: the values are read from the data."""

    name: str


Domain: TypeAlias = EnumeratedDomain | RangeDomain | OpenDomain


@dataclass(frozen=True)
class AttributeDeclaration(Spanned):
    """`name : type`, evidence; or `predict name : D` and `latent name : D`, a random variable of each thing.

    Args:
        predicted: random, and observed where the data has a value.
        latent: random and never observed.
    """

    name: str
    type: AttributeType
    predicted: bool = False
    latent: bool = False

    @property
    def is_random(self) -> bool:
        return self.predicted or self.latent

    @property
    def role(self) -> str:
        """The word before it and a blank; empty for evidence."""
        return "latent " if self.latent else "predict " if self.predicted else ""


@dataclass(frozen=True)
class Entity(Spanned):
    """A type of thing. `key` is the column that identifies a thing in its table."""

    name: str
    attributes: tuple[AttributeDeclaration, ...] = ()
    key: str = "id"


@dataclass(frozen=True)
class Parameter(Spanned):
    """`name: Sort`: an argument of a relation, or a binder of a template. The sort is an entity or a domain."""

    name: str
    type_name: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type_name}"


@dataclass(frozen=True)
class Relation(Spanned):
    """Observed tuples, with attributes of the tuples."""

    name: str
    parameters: tuple[Parameter, ...]
    attributes: tuple[AttributeDeclaration, ...] = ()


@dataclass(frozen=True)
class RandomRelation(Spanned):
    """`predict relation R(x: E, y: F) : D where CONDITION`: a random variable for each tuple that the condition admits.

    Args:
        type: of the variables; `bool` says whether the tuple is in the relation.
    """

    name: str
    parameters: tuple[Parameter, ...]
    type: AttributeType = Bool()  # noqa: RUF009
    where: Expression | None = None


@dataclass(frozen=True)
class NearestNeighbours(Spanned):
    """`nearest K by cosine(a.v, b.v)`: for each a, the K other things b of the largest similarity.

    `measure` is a call of `cosine`, `dot` or `distance` on one vector attribute of both parameters; for
    `distance` nearest means smallest. Ties go to the thing whose key comes first.
    """

    count: int
    measure: Expression


@dataclass(frozen=True)
class DerivedRelation(Spanned):
    """A named observed relation computed from others, by a condition or as nearest neighbours."""

    name: str
    parameters: tuple[Parameter, ...]
    definition: Expression | NearestNeighbours


@dataclass(frozen=True)
class WeightOptions:
    """Settings of a template's weights; None leaves the choice to the backend.

    `init` is where learning starts, one number for all weights or one for each pattern, and `fixed` keeps it there. `l1` and `l2`
    are the strengths of the penalties.
    `weights` names the weights: templates that name the same ones share them.
    """

    init: float | tuple[float, ...] | None = None
    fixed: bool = False
    l1: float | None = None
    l2: float | None = None
    weights: str | None = None

    @property
    def initial_values(self) -> tuple[float, ...]:
        """The numbers of `init`."""
        return self.init if isinstance(self.init, tuple) else () if self.init is None else (self.init,)


@dataclass(frozen=True)
class Template(Spanned):
    """A pattern that may carry weight; see the language reference for its meaning.

    `over` is either random terms (a table over their joint states) or a single formula (one pattern: its truth).
    A lone `a.x` is a random term, a lone `R(a)` of a relation that holds or not is a formula. `by` empty means the
    constant feature 1.

    Args:
        symmetric: the table over two random terms is tied to its transpose.
        is_candidate: its weights start outside the model, for structure learners to choose among.
        is_hard: the formula must hold; it has no weight.
    """

    name: str
    parameters: tuple[Parameter, ...]
    over: tuple[Expression, ...]
    where: Expression | None = None
    per: tuple[Expression, ...] = ()
    by: tuple[Expression, ...] = ()
    options: WeightOptions = WeightOptions()
    symmetric: bool = False
    is_candidate: bool = False
    is_hard: bool = False

    @property
    def weights(self) -> str:
        """The name of its weights."""
        return self.options.weights or self.name


@dataclass(frozen=True)
class Rule(Spanned):
    """`rule WEIGHT NAME: FORMULA`: a weighted formula in the way of Markov logic; `rules.py` makes it a template.

    Args:
        name: None where the file gives none.
        weight: None where it is learned.
        is_hard: the formula must hold.
    """

    name: str | None
    formula: Expression
    weight: float | None = None
    is_hard: bool = False
    per: tuple[Expression, ...] = ()
    options: WeightOptions = WeightOptions()


@dataclass(frozen=True)
class Gate(Spanned):
    """`gate TEMPLATE by FEATURES`: the evidence that opens and closes a template's factors."""

    template: str
    by: tuple[Expression, ...]


@dataclass(frozen=True)
class Include(Spanned):
    """`include "common.rcrf"`: the declarations of another file."""

    path: str


Declaration: TypeAlias = (
    Domain | Entity | Relation | RandomRelation | DerivedRelation | Template | Rule | Gate | Include
)
AnyRelation: TypeAlias = Relation | RandomRelation | DerivedRelation


_INLINE_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})", re.ASCII)


_T = TypeVar("_T")


def _declarations_of(kind: type[_T]) -> cached_property[tuple[_T, ...]]:
    """Define a property of a specification: its declarations of one class, in the order of the text."""
    return cached_property(lambda spec: tuple(d for d in spec.all_declarations if isinstance(d, kind)))


@dataclass(frozen=True)
class ModelSpec:
    """The declarations of a model, in the order of the file.

    Look-ups take a name and return the declaration, or None; of two declarations of one name the first counts
    (the checker reports the second).

    Args:
        included: the declarations of the files that the model includes.
    """

    declarations: tuple[Declaration, ...]
    included: tuple[Declaration, ...] = field(default=(), compare=False, repr=False, kw_only=True)
    source: Source | None = field(default=None, compare=False, repr=False, kw_only=True)

    @cached_property
    def all_declarations(self) -> tuple[Declaration, ...]:
        """The declarations of the model and of all that it includes."""
        return tuple(d for d in (*self.included, *self.declarations) if not isinstance(d, Include))

    def flatten(self) -> ModelSpec:
        """The same model in one piece, without `include`."""
        return ModelSpec(self.all_declarations, source=self.source)

    @cached_property
    def functions(self) -> frozenset[str]:
        """The names of all functions that the model calls."""
        return frozenset(node.name for node in walk(self.all_declarations) if isinstance(node, FunctionCall))

    @cached_property
    def _by_name(self) -> dict[str, Declaration]:
        found: dict[str, Declaration] = {}
        for declaration in self.all_declarations:
            if not isinstance(declaration, Template | Rule | Gate | Include):
                found.setdefault(declaration.name, declaration)
        return found

    def domain(self, name: str) -> Domain | None:
        """A domain by its name, or by its text where it has none: `1..4`."""
        found = self._by_name.get(name)
        if found is None and (inline := _INLINE_RANGE.fullmatch(name)):
            return RangeDomain(name, int(inline[1]), int(inline[2]))
        return found if isinstance(found, Domain) else None

    def entity(self, name: str) -> Entity | None:
        found = self._by_name.get(name)
        return found if isinstance(found, Entity) else None

    def attribute(self, owner: str, name: str) -> AttributeDeclaration | None:
        """An attribute of an entity or of an observed relation."""
        found = self._by_name.get(owner)
        attributes = found.attributes if isinstance(found, Entity | Relation) else ()
        return next((a for a in attributes if a.name == name), None)

    def relation(self, name: str) -> AnyRelation | None:
        """An observed, random or derived relation."""
        found = self._by_name.get(name)
        return found if isinstance(found, AnyRelation) else None

    @cached_property
    def inline_domains(self) -> tuple[RangeDomain, ...]:
        """The ranges that attributes and random relations have as types without a name, once each."""
        owners = (d for d in self.all_declarations if isinstance(d, Entity | Relation))
        types = [a.type for d in owners for a in d.attributes] + [r.type for r in self.random_relations]
        names = dict.fromkeys(getattr(t, "domain", "") for t in types)
        names.update(dict.fromkeys(p.type_name for d in self.all_declarations for p in getattr(d, "parameters", ())))
        found = (self.domain(name) for name in names if name and name not in self._by_name)
        return tuple(d for d in found if isinstance(d, RangeDomain))

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        return tuple(d for d in self.all_declarations if isinstance(d, Domain))

    entities = _declarations_of(Entity)
    relations = _declarations_of(Relation)
    random_relations = _declarations_of(RandomRelation)
    derived_relations = _declarations_of(DerivedRelation)
    templates = _declarations_of(Template)
    rules = _declarations_of(Rule)
    gates = _declarations_of(Gate)

    @cached_property
    def constants(self) -> dict[str, tuple[str, ...]]:
        """For each value of an enumerated domain, the domains that have it."""
        found: dict[str, tuple[str, ...]] = {}
        for domain in self.domains:
            if isinstance(domain, EnumeratedDomain):
                for value in domain.values:
                    found[value] = (*found.get(value, ()), domain.name)
        return found
