"""The declarations of a model as frozen data classes, and the specification that contains them.

A `ModelSpec` is created by the parser (`language/parse.py`) or the builder (`builder/model.py`). It declares domains,
entities, relations, random variables (`predict`) and templates, and is independent of data, backends and optimisers.
The module `language/check.py` validates a specification.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias, TypeVar

from relcrf.errors import Source, Span
from relcrf.model.expressions import Atom, Expression, FunctionCall, Name, Spanned
from relcrf.model.nodes import walk
from relcrf.model.types import AttributeType, Bool, Real, ValueType


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """Return a name in lower case without underscores; names in a model and in the data are compared in this form.

    The names are cached, because requests to a service repeat the same few.
    """
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
    """`name : type` declares evidence; `predict name : D` and `latent name : D` declare a random variable per entity.

    Args:
        predicted: whether the attribute is random; its variables are observed where the data contain a value.
        latent: whether the attribute is random and never observed.
        is_time: whether the attribute, declared by `time name : date`, contains the time from which its row is known.
        type_span: the location of the type; of a bag, the location of its domain.
    """

    name: str
    type: AttributeType
    predicted: bool = False
    latent: bool = False
    is_time: bool = False
    type_span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def is_random(self) -> bool:
        return self.predicted or self.latent

    @property
    def is_number(self) -> bool:
        """Whether the attribute is a predicted number."""
        return self.is_random and isinstance(self.type, Real)

    @property
    def role(self) -> str:
        """The role keyword and a space; empty for evidence."""
        return "latent " if self.latent else "predict " if self.predicted else "time " if self.is_time else ""


@dataclass(frozen=True)
class Entity(Spanned):
    """An entity type. `key` is the column of its table whose values identify the entities."""

    name: str
    attributes: tuple[AttributeDeclaration, ...] = ()
    key: str = "id"


@dataclass(frozen=True)
class Parameter(Spanned):
    """`name: Type`: a parameter of a relation or a variable (*binder*) of a template, over an entity type or domain."""

    name: str
    type_name: str
    type_span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.name}: {self.type_name}"


@dataclass(frozen=True)
class Relation(Spanned):
    """An observed relation: a set of tuples, which may have attributes."""

    name: str
    parameters: tuple[Parameter, ...]
    attributes: tuple[AttributeDeclaration, ...] = ()


@dataclass(frozen=True)
class RandomRelation(Spanned):
    """`predict relation R(x: E, y: F) : D where CONDITION`: a random variable for each tuple that meets the condition.

    Args:
        type: the type of the variables; with `bool`, a variable is true if the tuple is in the relation.
    """

    name: str
    parameters: tuple[Parameter, ...]
    type: AttributeType = Bool()  # noqa: RUF009
    where: Expression | None = None
    type_span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class NearestNeighbours(Spanned):
    """`nearest K by cosine(a.v, b.v)`: for each entity a, the K other entities b with the largest similarity.

    `measure` is a call of `cosine`, `dot` or `distance` on the same vector attribute of a and b. For `distance`, the
    entities with the smallest distances are nearest. Ties are broken by the order of the keys.
    """

    count: int
    measure: Expression


@dataclass(frozen=True)
class DerivedRelation(Spanned):
    """`derive R(a: E, b: F) where CONDITION`: a relation defined by a condition or by nearest neighbours.

    Args:
        as_of: the parameter to whose time the relation is restricted; see `as_of.py`.
    """

    name: str
    parameters: tuple[Parameter, ...]
    definition: Expression | NearestNeighbours
    as_of: Name | None = None


@dataclass(frozen=True)
class FeaturePropagation(Spanned):
    """`propagate K VALUE along R normalised N`: values of entities, propagated K times along the tuples of a relation.

    Args:
        hops: the number of propagation steps.
        operand: an expression that is a number, a vector or a bag.
        relation: the name of a relation of two entities of the same type; its tuples are used in both directions.
        normalisation: `symmetric`, `mean`, or `` for sums.
    """

    hops: int
    operand: Expression
    relation: str
    normalisation: str = ""


@dataclass(frozen=True)
class LearnedDefinition(Spanned):
    """`classifier of p.category from p.length, p.words using E joint 3`: scores of an estimator that is trained on the labels.

    Args:
        kind: `classifier` or `regressor`.
        target: the attribute that the estimator predicts.
        inputs: expressions over evidence: numbers, categories, texts, dates, vectors and bags.
        estimator: the name of the estimator, which may have parameters; empty for the default.
        joint: number of rounds in which the estimator also learns from the marginals of the model; 0 for none.
    """

    kind: str
    target: Expression
    inputs: tuple[Expression, ...]
    estimator: str = ""
    joint: int = 0


@dataclass(frozen=True)
class Feature(Spanned):
    """`feature f(p: E) = VALUE`: a number, a vector or a bag for each entity, which is computed or learned from evidence.

    Args:
        type_name: the declared type of the values; empty if it is not declared.
        as_of: the parameter to whose time the values are restricted; see `as_of.py`.
    """

    name: str
    parameters: tuple[Parameter, ...]
    definition: Expression | FeaturePropagation | LearnedDefinition
    type_name: str = ""
    as_of: Name | None = None


def feature_operands(feature: Feature) -> tuple[Expression, ...]:
    """Return the expressions in the definition of a feature; the inputs and the target of a learned feature."""
    match feature.definition:
        case FeaturePropagation(_, operand):
            return (operand,)
        case LearnedDefinition(_, target, inputs):
            return (*inputs, target)
        case expression:
            return (expression,)


@dataclass(frozen=True)
class WeightOptions:
    """Options of the weights of a template; if an option is None, the setting of the backend applies.

    Args:
        init: initial value of all weights, or one value for each pattern (see `Template`).
        fixed: whether the weights keep their initial values.
        l1: strength of the L1 penalty.
        l2: strength of the L2 penalty.
        weights: name of the weights; templates that specify the same name share the weights.
    """

    init: float | tuple[float, ...] | None = None
    fixed: bool = False
    l1: float | None = None
    l2: float | None = None
    weights: str | None = None

    @property
    def initial_values(self) -> tuple[float, ...]:
        """The numbers of `init` as a tuple; empty if it is not set."""
        return self.init if isinstance(self.init, tuple) else () if self.init is None else (self.init,)


@dataclass(frozen=True)
class Template(Spanned):
    """A template of factors with shared weights; see the language reference.

    A *pattern* is a set of joint states with a common weight. If `over` is a list of random terms (attributes, atoms),
    each joint state is a pattern; if `over` is a formula, the states in which it is true are the only pattern. A single
    `a.x` is a list; a single `R(a)` of a boolean relation is a formula. If `by` is empty, the only feature is 1.

    Args:
        symmetric: whether the joint states (u, v) and (v, u) of the two random terms have the same weight.
        is_candidate: whether a structure learner selects which of the weights the model contains.
        is_hard: whether the formula must be true; a hard template has no weight.
        as_of: the binder to whose time the clauses are restricted; see `as_of.py`.
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
    as_of: Name | None = None

    @property
    def weights(self) -> str:
        """The name of the template's weights."""
        return self.options.weights or self.name


@dataclass(frozen=True)
class Rule(Spanned):
    """`rule WEIGHT NAME: FORMULA`: a weighted formula of Markov logic; `rules.py` converts it to a template.

    Args:
        name: the name; None if the rule has no name.
        weight: the fixed weight; None if the weight is learned.
        is_hard: whether the formula must be true.
        as_of: the name to whose time the formula is restricted; see `as_of.py`.
    """

    name: str | None
    formula: Expression
    weight: float | None = None
    is_hard: bool = False
    per: tuple[Expression, ...] = ()
    options: WeightOptions = WeightOptions()
    as_of: Name | None = None


@dataclass(frozen=True)
class Gate(Spanned):
    """`gate TEMPLATE by FEATURES`: evidence features that determine whether a factor of the template is active."""

    template: str
    by: tuple[Expression, ...]


@dataclass(frozen=True)
class Include(Spanned):
    """`include "common.rcrf"`: the declarations of another file."""

    path: str


Declaration: TypeAlias = (
    Domain | Entity | Relation | RandomRelation | DerivedRelation | Feature | Template | Rule | Gate | Include
)
AnyRelation: TypeAlias = Relation | RandomRelation | DerivedRelation


_INLINE_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})", re.ASCII)


_T = TypeVar("_T")


def _declarations_of(kind: type[_T]) -> cached_property[tuple[_T, ...]]:
    """Return a property that contains the declarations of one class, in the order of the text."""
    return cached_property(lambda spec: tuple(d for d in spec.all_declarations if isinstance(d, kind)))


@dataclass(frozen=True)
class ModelSpec:
    """The specification of a model: its declarations, in the order of the text.

    Lookup methods take a name and return the declaration, or None. If two declarations have the same name, the methods
    return the first declaration (the checker reports the second).

    Args:
        included: the declarations of the included files.
        source: the text of the model, if it was parsed.
        feature_types: the cached types of features, by name.
        feature_errors: whether a feature or a feature that it uses has errors, cached by name.
    """

    declarations: tuple[Declaration, ...]
    included: tuple[Declaration, ...] = field(default=(), compare=False, repr=False, kw_only=True)
    source: Source | None = field(default=None, compare=False, repr=False, kw_only=True)
    feature_types: dict[str, ValueType] = field(default_factory=dict, init=False, compare=False, repr=False)
    feature_errors: dict[str, bool] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def all_declarations(self) -> tuple[Declaration, ...]:
        """The declarations of the model and of all included files."""
        return tuple(d for d in (*self.included, *self.declarations) if not isinstance(d, Include))

    def flatten(self) -> ModelSpec:
        """Return the model with the included declarations in place of `include`."""
        return ModelSpec(self.all_declarations, source=self.source)

    @cached_property
    def functions(self) -> frozenset[str]:
        """The names of all functions that the model calls."""
        return frozenset(node.name for node in walk(self.all_declarations) if isinstance(node, FunctionCall))

    @cached_property
    def _by_name(self) -> dict[str, Declaration]:
        by_name: dict[str, Declaration] = {}
        for declaration in self.all_declarations:
            if not isinstance(declaration, Template | Rule | Gate | Include):
                by_name.setdefault(declaration.name, declaration)
        return by_name

    def domain(self, name: str) -> Domain | None:
        """Return a domain by name; the name of an inline range is its text, such as `1..4`."""
        declaration = self._by_name.get(name)
        if declaration is None and (inline := _INLINE_RANGE.fullmatch(name)):
            return RangeDomain(name, int(inline[1]), int(inline[2]))
        return declaration if isinstance(declaration, Domain) else None

    def entity(self, name: str) -> Entity | None:
        declaration = self._by_name.get(name)
        return declaration if isinstance(declaration, Entity) else None

    def attribute(self, owner: str, name: str) -> AttributeDeclaration | None:
        """Return an attribute of an entity or of an observed relation, or None."""
        declaration = self._by_name.get(owner)
        attributes = declaration.attributes if isinstance(declaration, Entity | Relation) else ()
        return next((a for a in attributes if a.name == name), None)

    def time_attribute(self, owner: str) -> AttributeDeclaration | None:
        """Return the attribute with the time of an entity type or of an observed relation, or None."""
        declaration = self._by_name.get(owner)
        attributes = declaration.attributes if isinstance(declaration, Entity | Relation) else ()
        return next((a for a in attributes if a.is_time), None)

    def relation(self, name: str) -> AnyRelation | None:
        """Return an observed, random or derived relation, or None."""
        declaration = self._by_name.get(name)
        return declaration if isinstance(declaration, AnyRelation) else None

    def feature(self, name: str) -> Feature | None:
        """Return a feature declaration, or None."""
        declaration = self._by_name.get(name)
        return declaration if isinstance(declaration, Feature) else None

    @cached_property
    def used_features(self) -> dict[str, set[str]]:
        """The names of the features that each feature uses directly, by its name."""
        names = {feature.name for feature in self.features}
        atoms = {f.name: (n.relation for n in walk(f.definition) if isinstance(n, Atom)) for f in self.features}
        return {name: names.intersection(used) for name, used in atoms.items()}

    @cached_property
    def inline_domains(self) -> tuple[RangeDomain, ...]:
        """The distinct unnamed ranges that are types of attributes, parameters and random relations."""
        owners = (d for d in self.all_declarations if isinstance(d, Entity | Relation))
        types = [a.type for d in owners for a in d.attributes] + [r.type for r in self.random_relations]
        names = dict.fromkeys(getattr(t, "domain", "") for t in types)
        names.update(dict.fromkeys(p.type_name for d in self.all_declarations for p in getattr(d, "parameters", ())))
        domains = (self.domain(name) for name in names if name and name not in self._by_name)
        return tuple(d for d in domains if isinstance(d, RangeDomain))

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        return tuple(d for d in self.all_declarations if isinstance(d, Domain))

    entities = _declarations_of(Entity)
    relations = _declarations_of(Relation)
    random_relations = _declarations_of(RandomRelation)
    derived_relations = _declarations_of(DerivedRelation)
    features = _declarations_of(Feature)
    templates = _declarations_of(Template)
    rules = _declarations_of(Rule)
    gates = _declarations_of(Gate)

    @cached_property
    def constants(self) -> dict[str, tuple[str, ...]]:
        """For each value of an enumerated domain, the names of all enumerated domains that contain the value."""
        domain_names: dict[str, tuple[str, ...]] = {}
        for domain in self.domains:
            if isinstance(domain, EnumeratedDomain):
                for value in domain.values:
                    domain_names[value] = (*domain_names.get(value, ()), domain.name)
        return domain_names
