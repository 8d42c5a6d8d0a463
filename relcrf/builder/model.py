"""A model in the making: declarations one after the other, each of which gives the names that the next ones use."""

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
from relcrf.model.expressions import Atom, Expression, TupleAttribute
from relcrf.model.types import AttributeType, Bag, Bool, Date, DomainType, Integer, Real, String, Vector
from relcrf.text.highlight import highlight_html

_TYPES: dict[Any, AttributeType] = {
    float: Real(),
    int: Integer(),
    bool: Bool(),
    str: String(),
    datetime.date: Date(),
}


@dataclass(frozen=True)
class DomainHandle:
    """A declared domain: a type of attributes, a sort of arguments, and a maker of names for its values."""

    name: str

    def __call__(self, name: str) -> BinderTerm:
        return BinderTerm(name, self.name)


AttributeTypeLike: TypeAlias = "DomainHandle | range | type | AttributeType | s.AttributeDeclaration"
"""What an attribute can be: a domain, a range such as `range(1, 6)`, a Python type, `vector`, `bag(Word)`, `predict(D)`."""

vector: AttributeType = Vector()
"""The type of vector attributes."""


def bag(domain: DomainHandle) -> AttributeType:
    """The type of an attribute with many values of a domain."""
    if not isinstance(domain, DomainHandle):
        raise builder_error(
            f"a bag holds values of a domain, and {domain!r} is none", 'Word = m.domain("Word"); bag(Word)'
        )
    return Bag(domain.name)


def predict(kind: AttributeTypeLike) -> s.AttributeDeclaration:
    """Return a random attribute without a name yet: observed where the data has a value, else a query."""
    return s.AttributeDeclaration("", _to_attribute_type(kind), predicted=True)


def latent(kind: AttributeTypeLike) -> s.AttributeDeclaration:
    """Return a random attribute without a name yet that is never observed."""
    return s.AttributeDeclaration("", _to_attribute_type(kind), latent=True)


def _to_attribute_type(kind: AttributeTypeLike) -> AttributeType:
    match kind:
        case DomainHandle(name):
            return DomainType(name)
        case range():
            return DomainType(_range_name(kind))
        case s.AttributeDeclaration():
            raise builder_error("an attribute has one role", "write predict(Category)")
        case type() if kind in _TYPES:
            return _TYPES[kind]
        case type():
            message = f"'{kind.__name__}' is no type of attributes"
            raise builder_error(message, "use float, int, bool, str, date, vector, bag(D) or a domain")
    return kind


def _range_name(values: range) -> str:
    if values.step != 1 or not values:
        raise builder_error(
            f"{values!r} is no range of whole numbers without gaps", "range(1, 6) are the values 1 to 5"
        )
    return f"{values.start}..{values.stop - 1}"


class EntityHandle:
    """A declared entity: `Page("a")` is a name for a page."""

    def __init__(self, builder: ModelBuilder, name: str) -> None:
        self._builder, self.name = builder, name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, name: str) -> BinderTerm:
        entity = self._builder.spec.entity(self.name)
        return BinderTerm(name, self.name, [a.name for a in entity.attributes] if entity else ())

    def names(self, names: str) -> tuple[BinderTerm, ...]:
        """Several names at once: `a, b = Page.names("a b")`."""
        return tuple(self(name) for name in names.split())


ArgumentType: TypeAlias = EntityHandle | DomainHandle | range


class RelationHandle:
    """A declared relation: `Link(a, b)` is one of its tuples."""

    def __init__(self, builder: ModelBuilder, name: str) -> None:
        self._builder, self.name = builder, name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *arguments: TermLike) -> AttributedTerm:
        relation = self._builder.spec.relation(self.name)
        known = [a.name for a in relation.attributes] if isinstance(relation, s.Relation) else ()
        atom = Atom(self.name, _to_expressions(arguments))
        return AttributedTerm(atom, self.name, known, partial(TupleAttribute, atom))

    def with_attributes(self, **attributes: AttributeTypeLike) -> RelationHandle:
        """Attributes of the tuples: `m.relation("Link", a=Page, b=Page).having(score=float)`."""
        declared = tuple(s.AttributeDeclaration(name, _to_attribute_type(kind)) for name, kind in attributes.items())
        declarations = self._builder._declarations
        place = next(k for k, d in enumerate(declarations) if getattr(d, "name", None) == self.name)
        declarations[place] = replace(declarations[place], attributes=declared)  # type: ignore[arg-type]
        return self


class ModelBuilder:
    """Declares a model, piece by piece. `build()` checks it as a file is checked.

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
        """What is declared so far, not checked."""
        return s.ModelSpec(tuple(self._declarations))

    def build(self) -> Model:
        """The checked model.

        Raises:
            ModelError: with all mistakes, at their places in the text of the model.
        """
        return parse(str(self), "<builder>")

    def __str__(self) -> str:
        text = render(self.spec) if self._declarations else ""
        try:
            return format_text(text)
        except ModelError:  # a name that is no name, say: `build` will tell
            return text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return highlight_html(str(self))

    def drop(self, name: str) -> ModelBuilder:
        """Takes the declarations of a name back, as when a cell of a notebook runs again."""
        self._declarations = [d for d in self._declarations if getattr(d, "name", None) != name]
        return self

    def _add(self, declaration: s.Declaration) -> None:
        self._declarations.append(declaration)

    # What there is

    def domain(self, name: str, values: Iterable[str] | range | None = None) -> DomainHandle:
        """A domain: texts in the order of their states, a range of whole numbers, or None for what the data has."""
        if values is None:
            self._add(s.OpenDomain(name))
        elif isinstance(values, range):
            _range_name(values)
            self._add(s.RangeDomain(name, values.start, values.stop - 1))
        else:
            self._add(s.EnumeratedDomain(name, tuple(str(v) for v in values)))
        return DomainHandle(name)

    def entity(self, name: str, key: str = "id", /, **attributes: AttributeTypeLike) -> EntityHandle:
        """A type of thing: `m.entity("Page", category=predict(Category), words=bag(Word), length=float)`."""
        self._add(s.Entity(name, tuple(_to_attribute(*each) for each in attributes.items()), key))
        return EntityHandle(self, name)

    def relation(self, name: str, /, **arguments: ArgumentType) -> RelationHandle:
        """An observed relation: `m.relation("Link", source=Page, target=Page)`."""
        self._add(s.Relation(name, _to_parameters(arguments)))
        return RelationHandle(self, name)

    def predict_relation(
        self, name: str, type: AttributeTypeLike = bool, where: TermLike | None = None, /, **arguments: ArgumentType
    ) -> RelationHandle:
        """A random relation: a variable for each tuple that `where`, over names called as the arguments, admits."""
        condition = None if where is None else to_expression(where)
        self._add(s.RandomRelation(name, _to_parameters(arguments), _to_attribute_type(type), condition))
        return RelationHandle(self, name)

    def derive(self, name: str, /, *binders: BinderTerm) -> DerivedRelationHandle:
        """A relation computed from others; go on with `.where(...)` or `.nearest(5, fn.cosine(a.v, b.v))`."""
        return DerivedRelationHandle(self, name, binders)

    # What may carry weight

    def template(self, name: str, /, *binders: BinderTerm) -> TemplateHandle:
        """A template; go on with `.where(...)`, `.over(...)`, `.per(...)`, `.by(...)` and options, in any order."""
        return TemplateHandle(self, s.Template(name, _binder_parameters(binders), ()))

    def candidates(self, name: str, /, *binders: BinderTerm) -> TemplateHandle:
        """A template whose weights structure learners choose among."""
        return TemplateHandle(self, s.Template(name, _binder_parameters(binders), (), is_candidate=True))

    def rule(
        self,
        formula: Term,
        weight: float | None = None,
        *,
        name: str | None = None,
        hard: bool = False,
        per: Iterable[Term] = (),
        **options: Any,
    ) -> ModelBuilder:
        """A weighted formula over all values of its names: `m.rule((Friends(x, y) & Smokes(x)) >> Smokes(y))`."""
        if hard and weight is not None:
            raise builder_error("a hard rule has no weight", "leave one of them out")
        value = None if weight is None else _require_finite("weight", weight)
        self._add(
            s.Rule(
                name,
                to_expression(formula),
                value,
                hard,
                _to_expressions(per),
                s.WeightOptions(**_validate_options(options)),
            )
        )
        return self

    def gate(self, template: str, /, *by: TermLike) -> ModelBuilder:
        """The evidence features of a template's gates."""
        self._add(s.Gate(template, _to_expressions(by)))
        return self


class DerivedRelationHandle:
    """A derived relation that still needs its definition."""

    def __init__(self, builder: ModelBuilder, name: str, binders: tuple[BinderTerm, ...]) -> None:
        self._builder, self._name, self._binders = builder, name, binders

    def where(self, *conditions: TermLike) -> RelationHandle:
        """By conditions, which must all hold; a name that is no binder says that there is one."""
        condition = conjoin_terms(conditions)
        if condition is None:
            raise builder_error(f"'{self._name}' is derived from nothing", "give a condition")
        return self._define(condition)

    def nearest(self, count: int, measure: Term) -> RelationHandle:
        """As the `count` nearest neighbours by a measure of vectors."""
        return self._define(s.NearestNeighbours(count, to_expression(measure)))

    def self_reference(self) -> RelationHandle:
        """The relation before it is defined, for a recursive definition."""
        return RelationHandle(self._builder, self._name)

    def _define(self, definition: Any) -> RelationHandle:
        self._builder._add(s.DerivedRelation(self._name, _binder_parameters(self._binders), definition))
        return RelationHandle(self._builder, self._name)


class TemplateHandle:
    """A template in the making; each call adds to it and gives it back."""

    def __init__(self, builder: ModelBuilder, template: s.Template) -> None:
        self._builder = builder
        builder._add(template)
        self._template = template

    def _replace(self, **changes: Any) -> TemplateHandle:
        declarations = self._builder._declarations
        changed = replace(self._template, **changes)
        place = next((k for k, d in enumerate(declarations) if d is self._template), None)
        if place is None:
            raise builder_error(f"the template '{self._template.name}' has been dropped", "declare it again")
        declarations[place] = changed
        self._template = changed
        return self

    def __repr__(self) -> str:
        template = self._template
        return format_text(render_declaration(template)).rstrip() if template.over else f"template {template.name}"

    def where(self, *conditions: TermLike) -> TemplateHandle:
        """Conditions on the evidence, which must all hold, beside those given before."""
        before = () if self._template.where is None else (Term(self._template.where),)
        return self._replace(where=conjoin_terms((*before, *conditions)))

    def over(self, *terms: TermLike, symmetric: bool = False) -> TemplateHandle:
        """Random terms, a weight for each of their joint states; or one formula."""
        return self._replace(over=_to_expressions(terms), symmetric=symmetric)

    def per(self, *keys: TermLike) -> TemplateHandle:
        """Separate weights for each value of the keys."""
        return self._replace(per=_to_expressions(keys))

    def by(self, *features: TermLike) -> TemplateHandle:
        """Evidence that the patterns are multiplied with."""
        return self._replace(by=_to_expressions(features))

    def options(self, **options: Any) -> TemplateHandle:
        """`init=0.5`, `fixed=True`, `l1=0.1`, `l2=1.0`, `weights="shared"`."""
        return self._replace(options=replace(self._template.options, **_validate_options(options)))

    def init(self, *values: float) -> TemplateHandle:
        """Where learning starts: a number for all weights, or one for each pattern."""
        return self.options(init=values)

    def fixed(self) -> TemplateHandle:
        """Learning leaves the weights where they start."""
        return self.options(fixed=True)

    def l1(self, strength: float) -> TemplateHandle:
        """The strength of the L1 penalty."""
        return self.options(l1=strength)

    def l2(self, strength: float) -> TemplateHandle:
        """The strength of the L2 penalty."""
        return self.options(l2=strength)

    def weights(self, name: str) -> TemplateHandle:
        """The name of the weights: templates that name the same ones share them."""
        return self.options(weights=name)


def _to_expressions(terms: Iterable[TermLike]) -> tuple[Expression, ...]:
    return tuple(to_expression(term) for term in terms)


def _to_attribute(name: str, kind: AttributeTypeLike) -> s.AttributeDeclaration:
    if isinstance(kind, s.AttributeDeclaration):
        return replace(kind, name=name)
    return s.AttributeDeclaration(name, _to_attribute_type(kind))


def _to_parameters(arguments: dict[str, ArgumentType]) -> tuple[s.Parameter, ...]:
    return tuple(s.Parameter(name, _argument_type_name(name, sort)) for name, sort in arguments.items())


def _argument_type_name(name: str, sort: ArgumentType) -> str:
    if isinstance(sort, range):
        return _range_name(sort)
    if not isinstance(sort, EntityHandle | DomainHandle):
        raise builder_error(f"the argument '{name}' is of {sort!r}", "arguments are of an entity, a domain or a range")
    return sort.name


def _binder_parameters(things: Iterable[BinderTerm]) -> tuple[s.Parameter, ...]:
    found = []
    for thing in things:
        if not isinstance(thing, BinderTerm):
            raise builder_error(f"{thing!r} is no binder", 'binders are names of things or values: a = Page("a")')
        found.append(s.Parameter(thing._name, thing._owner))
    return tuple(found)


def _validate_options(given: dict[str, Any]) -> dict[str, Any]:
    known = [f.name for f in fields(s.WeightOptions)]
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise builder_error(
                f"a template has no option '{name}'", suggestion(name, known) or f"there is {listing(known)}"
            )
        if name == "init" and isinstance(value, list | tuple):
            out[name] = _validate_init(value)
            continue
        is_right = isinstance(value, {"fixed": bool, "weights": str}.get(name, numbers.Real))
        if not is_right and value is not None:
            raise builder_error(f"the option '{name}' cannot be {value!r}", "see 'options' in docs/reference/language.md")
        out[name] = _require_finite(name, value) if name in ("init", "l1", "l2") and value is not None else value
    return out


def _validate_init(values: Sequence[Any]) -> float | tuple[float, ...]:
    """The numbers of `init`."""
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        raise builder_error(f"the option 'init' cannot be {values!r}", "give a number, or one for each pattern")
    found = tuple(_require_finite("init", value) for value in values)
    return found if len(found) > 1 else found[0]


def _require_finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise builder_error(f"'{name}' cannot be {value}", "give a finite number")
    return float(value)
