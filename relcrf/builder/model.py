"""The model builder: its methods declare domains, entities, relations and templates, and return handles.

A *handle* refers to a declaration. A *binder* is a logical variable over entities of a type or values of a domain.
"""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

from relcrf.api import Model, parse
from relcrf.builder.terms import AttributedTerm, BinderTerm, Term, TermLike, builder_error, conjoin_terms, to_expression
from relcrf.errors import ModelError, listing, suggestion
from relcrf.language.format import format_text
from relcrf.language.render import render, render_declaration
from relcrf.model import spec as s
from relcrf.model.expressions import Atom, Expression, Name, TupleAttribute
from relcrf.model.types import AttributeType, Bag, Bool, Date, Datetime, DomainType, Integer, Real, String, Time, Vector
from relcrf.text.highlight import highlight_html

_TYPES: dict[Any, AttributeType] = {
    float: Real(),
    int: Integer(),
    bool: Bool(),
    str: String(),
    datetime.date: Date(),
    datetime.time: Time(),
    datetime.datetime: Datetime(),
}


@dataclass(frozen=True)
class DomainHandle:
    """A declared domain, used as the type of attributes and arguments; `Topic("t")` creates a binder."""

    name: str

    def __call__(self, name: str) -> BinderTerm:
        return BinderTerm(name, self.name)


AttributeTypeLike: TypeAlias = "DomainHandle | range | type | AttributeType | s.AttributeDeclaration"
"""A type of attributes: a domain, a range (`range(1, 6)`), a Python type, `vector`, `bag(Word)` or `predict(D)`."""

vector: AttributeType = Vector()
"""The type of vector attributes."""


def bag(domain: DomainHandle) -> AttributeType:
    """Return the type of an attribute with several values of a domain."""
    if not isinstance(domain, DomainHandle):
        raise builder_error(
            f"a bag contains values of a domain, and {domain!r} is not a domain", 'Word = m.domain("Word"); bag(Word)'
        )
    return Bag(domain.name)


def predict(kind: AttributeTypeLike) -> s.AttributeDeclaration:
    """Return a random attribute; a value in the data is observed, a missing value is a query variable."""
    return s.AttributeDeclaration("", _to_attribute_type(kind), predicted=True)


def latent(kind: AttributeTypeLike) -> s.AttributeDeclaration:
    """Return a random attribute that is never observed."""
    return s.AttributeDeclaration("", _to_attribute_type(kind), latent=True)


def time(kind: AttributeTypeLike) -> s.AttributeDeclaration:
    """Return the attribute that contains the time from which a row is known: `time(datetime.date)`."""
    return s.AttributeDeclaration("", _to_attribute_type(kind), is_time=True)


def propagate(value: TermLike, along: RelationHandle, hops: int = 1, normalised: str = "") -> s.FeaturePropagation:
    """Return the propagation of a value along a relation, which `ModelBuilder.feature` accepts.

    Args:
        normalised: `symmetric` or `mean`; if it is empty, values are summed.
    """
    return s.FeaturePropagation(hops, to_expression(value), along.name, normalised)


def classifier(target: TermLike, *inputs: TermLike, using: str = "", joint: int = 0) -> s.LearnedDefinition:
    """Return the scores of a classifier that is trained on the labels, which `ModelBuilder.feature` accepts.

    Args:
        target: the attribute to predict, such as `p.category`.
        inputs: evidence of the same entity.
        using: `linear`, `boosting`, or the class of an estimator of scikit-learn; empty for the best of both.
        joint: number of rounds of training with the marginals of the model.
    """
    return s.LearnedDefinition("classifier", to_expression(target), tuple(map(to_expression, inputs)), using, joint)


def regressor(target: TermLike, *inputs: TermLike, using: str = "") -> s.LearnedDefinition:
    """Return the predictions of a regressor that is trained on the known numbers; for the arguments see `classifier`."""
    return s.LearnedDefinition("regressor", to_expression(target), tuple(map(to_expression, inputs)), using)


def _to_attribute_type(kind: AttributeTypeLike) -> AttributeType:
    match kind:
        case DomainHandle(name):
            return DomainType(name)
        case range():
            return DomainType(_range_name(kind))
        case s.AttributeDeclaration():
            raise builder_error("an attribute cannot have two roles", "write predict(Category)")
        case type() if kind in _TYPES:
            return _TYPES[kind]
        case type():
            message = f"'{kind.__name__}' is not a type of attributes"
            raise builder_error(message, "use float, int, bool, str, date, time, datetime, vector, bag(D) or a domain")
    return kind


def _range_name(values: range) -> str:
    if values.step != 1 or not values:
        raise builder_error(
            f"{values!r} is empty or has a step other than 1", "use a range such as range(1, 6), the values 1 to 5"
        )
    return f"{values.start}..{values.stop - 1}"


class EntityHandle:
    """A declared entity type: `Page("a")` creates a binder over the pages."""

    def __init__(self, builder: ModelBuilder, name: str) -> None:
        self._builder, self.name = builder, name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, name: str) -> BinderTerm:
        entity = self._builder.spec.entity(self.name)
        return BinderTerm(name, self.name, [a.name for a in entity.attributes] if entity else ())

    def names(self, names: str) -> tuple[BinderTerm, ...]:
        """Return several binders: `a, b = Page.names("a b")`."""
        return tuple(self(name) for name in names.split())


ArgumentType: TypeAlias = EntityHandle | DomainHandle | range


class RelationHandle:
    """A declared relation: `Link(a, b)` creates an atom."""

    def __init__(self, builder: ModelBuilder, name: str) -> None:
        self._builder, self.name = builder, name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *arguments: TermLike) -> AttributedTerm:
        relation = self._builder.spec.relation(self.name)
        attributes = [a.name for a in relation.attributes] if isinstance(relation, s.Relation) else ()
        atom = Atom(self.name, _to_expressions(arguments))
        return AttributedTerm(atom, self.name, attributes, partial(TupleAttribute, atom))

    def with_attributes(self, **attributes: AttributeTypeLike) -> RelationHandle:
        """Declare attributes of the tuples: `m.relation("Link", a=Page, b=Page).with_attributes(score=float)`."""
        declared = tuple(_to_attribute(*each) for each in attributes.items())
        declarations = self._builder._declarations
        for k, declaration in enumerate(declarations):
            if isinstance(declaration, s.Relation) and declaration.name == self.name:
                declarations[k] = replace(declaration, attributes=declared)
                return self
        raise builder_error(f"'{self.name}' is not an observed relation", "only observed relations have attributes")


@dataclass(frozen=True)
class FeatureHandle:
    """A declared feature: `smooth(p)` is its value for the entity p."""

    name: str

    def __call__(self, entity: TermLike) -> Term:
        return Term(Atom(self.name, _to_expressions((entity,))))


class ModelBuilder:
    """A builder that collects the declarations of a model. `build()` validates the model like a model file.

    m = ModelBuilder()
    Category = m.domain("Category", ["course", "student"])
    Page = m.entity("Page", category=predict(Category), length=float)
    Link = m.relation("Link", source=Page, target=Page)
    a, b = Page.names("a b")
    m.template("linked", a, b).where(Link(a, b), a != b).over(a.category, b.category)
    model = m.build()
    """

    def __init__(self) -> None:
        self._declarations: list[s.Declaration] = []

    @property
    def spec(self) -> s.ModelSpec:
        """The declarations so far, without validation."""
        return s.ModelSpec(tuple(self._declarations))

    def build(self) -> Model:
        """Return the validated model.

        Raises:
            ModelError: if the model is invalid; the exception contains all errors with their locations in the model's text.
        """
        return parse(str(self), "<builder>")

    def __str__(self) -> str:
        text = render(self.spec) if self._declarations else ""
        try:
            return format_text(text)
        except ModelError:  # such as an invalid name, which `build` reports
            return text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return highlight_html(str(self))

    def drop(self, name: str) -> ModelBuilder:
        """Remove all declarations with a name, for example before a notebook cell declares the name again."""
        self._declarations = [d for d in self._declarations if getattr(d, "name", None) != name]
        return self

    def _add(self, declaration: s.Declaration) -> None:
        self._declarations.append(declaration)

    # Data
    def domain(self, name: str, values: Iterable[str] | range | None = None) -> DomainHandle:
        """Declare a domain: strings in the order of the states, a range, or None for the values in the data."""
        if isinstance(values, str):
            raise builder_error(f"the values of the domain '{name}' are a single string", f'write ["{values}"]')
        if values is None:
            self._add(s.OpenDomain(name))
        elif isinstance(values, range):
            _range_name(values)
            self._add(s.RangeDomain(name, values.start, values.stop - 1))
        else:
            self._add(s.EnumeratedDomain(name, tuple(str(v) for v in values)))
        return DomainHandle(name)

    def entity(self, name: str, key: str = "id", /, **attributes: AttributeTypeLike) -> EntityHandle:
        """Declare an entity type: `m.entity("Page", category=predict(Category), words=bag(Word), length=float)`."""
        self._add(s.Entity(name, tuple(_to_attribute(*each) for each in attributes.items()), key))
        return EntityHandle(self, name)

    def relation(self, name: str, /, **arguments: ArgumentType) -> RelationHandle:
        """Declare an observed relation: `m.relation("Link", source=Page, target=Page)`."""
        self._add(s.Relation(name, _to_parameters(arguments)))
        return RelationHandle(self, name)

    def predict_relation(
        self, name: str, type: AttributeTypeLike = bool, where: TermLike | None = None, /, **arguments: ArgumentType
    ) -> RelationHandle:
        """Declare a random relation, which has a variable for each tuple of arguments that satisfies `where`."""
        condition = None if where is None else to_expression(where)
        self._add(s.RandomRelation(name, _to_parameters(arguments), _to_attribute_type(type), condition))
        return RelationHandle(self, name)

    def derive(self, name: str, /, *binders: BinderTerm) -> DerivedRelationHandle:
        """Declare a derived relation; complete it with `.where(...)` or `.nearest(5, fn.cosine(a.v, b.v))`."""
        return DerivedRelationHandle(self, name, binders)

    def feature(
        self,
        name: str,
        binder: BinderTerm,
        value: Term | s.FeaturePropagation | s.LearnedDefinition,
        /,
        *,
        as_of: BinderTerm | None = None,
    ) -> FeatureHandle:
        """Declare a value of each entity: `m.feature("smooth", p, propagate(p.words, Link, hops=2))`.

        Args:
            as_of: the binder, if the value uses only rows that are earlier than its time.
        """
        definition = value if isinstance(value, s.FeaturePropagation | s.LearnedDefinition) else to_expression(value)
        self._add(s.Feature(name, _binder_parameters([binder]), definition, as_of=_binder_name(as_of)))
        return FeatureHandle(name)

    # Weights
    def template(self, name: str, /, *binders: BinderTerm) -> TemplateHandle:
        """Declare a template; complete it with `where`, `over`, `per`, `by`, `as_of` and options, in any order."""
        return TemplateHandle(self, s.Template(name, _binder_parameters(binders), ()))

    def candidates(self, name: str, /, *binders: BinderTerm) -> TemplateHandle:
        """Declare candidates: a template whose factors are in the model only if structure learning selects them."""
        return TemplateHandle(self, s.Template(name, _binder_parameters(binders), (), is_candidate=True))

    def rule(
        self,
        formula: Term,
        weight: float | None = None,
        *,
        name: str | None = None,
        hard: bool = False,
        per: Iterable[Term] = (),
        as_of: BinderTerm | None = None,
        **options: Any,
    ) -> ModelBuilder:
        """Declare a formula, universally quantified over its binders: `m.rule((Friends(x, y) & Smokes(x)) >> Smokes(y))`.

        Args:
            as_of: a binder, if the formula uses only rows that are earlier than its time.
        """
        if hard and weight is not None:
            raise builder_error("a hard rule has no weight", "remove 'hard' or 'weight'")
        value = None if weight is None else _require_finite("weight", weight)
        self._add(
            s.Rule(
                name,
                to_expression(formula),
                value,
                hard,
                _to_expressions(per),
                s.WeightOptions(**_validate_options(options)),
                _binder_name(as_of),
            )
        )
        return self

    def gate(self, template: str, /, *by: TermLike) -> ModelBuilder:
        """Declare the evidence features of the gates of a template. A gate selects whether inference uses a factor."""
        self._add(s.Gate(template, _to_expressions(by)))
        return self


class DerivedRelationHandle:
    """A derived relation that is not defined yet; `where` or `nearest` defines it."""

    def __init__(self, builder: ModelBuilder, name: str, binders: tuple[BinderTerm, ...]) -> None:
        self._builder, self._name, self._binders = builder, name, binders
        self._as_of: Name | None = None

    def as_of(self, binder: BinderTerm) -> DerivedRelationHandle:
        """Use only rows that are earlier than the time of a binder: `m.derive("Earlier", a, b).as_of(a).where(...)`."""
        self._as_of = _binder_name(binder)
        return self

    def where(self, *conditions: TermLike) -> RelationHandle:
        """Define the relation by a conjunction; binders that are not arguments are existentially quantified."""
        condition = conjoin_terms(conditions)
        if condition is None:
            raise builder_error(f"the derived relation '{self._name}' has no condition", "pass a condition")
        return self._define(condition)

    def nearest(self, count: int, measure: Term) -> RelationHandle:
        """Define the relation by the `count` nearest neighbours of each entity, by a measure such as `fn.cosine(a.v, b.v)`."""
        return self._define(s.NearestNeighbours(count, to_expression(measure)))

    def self_reference(self) -> RelationHandle:
        """Return the relation before `where` defines it, for use in a recursive definition."""
        return RelationHandle(self._builder, self._name)

    def _define(self, definition: Any) -> RelationHandle:
        parameters = _binder_parameters(self._binders)
        self._builder._add(s.DerivedRelation(self._name, parameters, definition, self._as_of))
        return RelationHandle(self._builder, self._name)


class TemplateHandle:
    """A declared template; each method changes the declaration and returns the handle."""

    def __init__(self, builder: ModelBuilder, template: s.Template) -> None:
        self._builder = builder
        builder._add(template)
        self._template = template

    def _replace(self, **changes: Any) -> TemplateHandle:
        declarations = self._builder._declarations
        changed = replace(self._template, **changes)
        index = next((k for k, d in enumerate(declarations) if d is self._template), None)
        if index is None:
            raise builder_error(f"the template '{self._template.name}' has been dropped", "declare it again")
        declarations[index] = changed
        self._template = changed
        return self

    def __repr__(self) -> str:
        template = self._template
        return format_text(render_declaration(template)).rstrip() if template.over else f"template {template.name}"

    def where(self, *conditions: TermLike) -> TemplateHandle:
        """Add conditions on the evidence; a binding must satisfy the conditions of all calls."""
        previous = () if self._template.where is None else (Term(self._template.where),)
        return self._replace(where=conjoin_terms((*previous, *conditions)))

    def over(self, *terms: TermLike, symmetric: bool = False) -> TemplateHandle:
        """Set random terms, which have one weight for each joint state, or a single formula, which has one weight."""
        return self._replace(over=_to_expressions(terms), symmetric=symmetric)

    def per(self, *keys: TermLike) -> TemplateHandle:
        """Set the keys; each combination of their values has separate weights."""
        return self._replace(per=_to_expressions(keys))

    def by(self, *features: TermLike) -> TemplateHandle:
        """Set the evidence features; each feature has a separate weight for each pattern.

        The patterns are the joint states of the random terms in `over`. A formula has one pattern, in which it is true.
        """
        return self._replace(by=_to_expressions(features))

    def as_of(self, binder: BinderTerm) -> TemplateHandle:
        """Use only rows that are earlier than the time of a binder."""
        return self._replace(as_of=_binder_name(binder))

    def options(self, **options: Any) -> TemplateHandle:
        """Set options: `init=0.5`, `fixed=True`, `l1=0.1`, `l2=1.0`, `weights="shared"`."""
        return self._replace(options=replace(self._template.options, **_validate_options(options)))

    def init(self, *values: float) -> TemplateHandle:
        """Set the initial value of all weights, or one value for each pattern (see `by`)."""
        return self.options(init=values)

    def fixed(self) -> TemplateHandle:
        """Keep the weights at their initial values."""
        return self.options(fixed=True)

    def l1(self, strength: float) -> TemplateHandle:
        """Set the strength of the L1 penalty."""
        return self.options(l1=strength)

    def l2(self, strength: float) -> TemplateHandle:
        """Set the strength of the L2 penalty."""
        return self.options(l2=strength)

    def weights(self, name: str) -> TemplateHandle:
        """Set the name of the weights; templates whose weights have the same name share the weights."""
        return self.options(weights=name)


def _to_expressions(terms: Iterable[TermLike]) -> tuple[Expression, ...]:
    return tuple(to_expression(term) for term in terms)


def _to_attribute(name: str, kind: AttributeTypeLike) -> s.AttributeDeclaration:
    if isinstance(kind, s.AttributeDeclaration):
        return replace(kind, name=name)
    return s.AttributeDeclaration(name, _to_attribute_type(kind))


def _to_parameters(arguments: dict[str, ArgumentType]) -> tuple[s.Parameter, ...]:
    return tuple(
        s.Parameter(name, _argument_type_name(name, argument_type)) for name, argument_type in arguments.items()
    )


def _argument_type_name(name: str, argument_type: ArgumentType) -> str:
    if isinstance(argument_type, range):
        return _range_name(argument_type)
    if not isinstance(argument_type, EntityHandle | DomainHandle):
        raise builder_error(
            f"argument '{name}' has the invalid type {argument_type!r}", "use an entity, a domain or a range"
        )
    return argument_type.name


def _binder_name(binder: BinderTerm | None) -> Name | None:
    return None if binder is None else Name(_binder_parameters([binder])[0].name)


def _binder_parameters(binders: Iterable[BinderTerm]) -> tuple[s.Parameter, ...]:
    parameters = []
    for binder in binders:
        if not isinstance(binder, BinderTerm):
            raise builder_error(f"{binder!r} is not a binder", 'create a binder: a = Page("a")')
        parameters.append(s.Parameter(binder._name, binder._owner))
    return tuple(parameters)


def _validate_options(options: dict[str, Any]) -> dict[str, Any]:
    names = [f.name for f in fields(s.WeightOptions)]
    validated: dict[str, Any] = {}
    for name, value in options.items():
        if name not in names:
            raise builder_error(
                f"unknown option '{name}'", suggestion(name, names) or f"the options are {listing(names)}"
            )
        if name == "init" and isinstance(value, list | tuple):
            validated[name] = _validate_init(value)
            continue
        is_valid = isinstance(value, {"fixed": bool, "weights": str}.get(name, numbers.Real))
        if not is_valid and value is not None:
            raise builder_error(
                f"invalid value {value!r} of option '{name}'", "see 'options' in docs/reference/language.md"
            )
        validated[name] = _require_finite(name, value) if name in ("init", "l1", "l2") and value is not None else value
    return validated


def _validate_init(values: Sequence[Any]) -> float | tuple[float, ...]:
    """Return the value of `init` as one number or as a tuple."""
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        raise builder_error(
            f"invalid value {values!r} of option 'init'", "pass one number, or one for each joint state of 'over'"
        )
    floats = tuple(_require_finite("init", value) for value in values)
    return floats if len(floats) > 1 else floats[0]


def _require_finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise builder_error(f"'{name}' is not finite: {value}", "pass a finite number")
    return float(value)
