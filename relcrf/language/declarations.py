"""Validation of single declarations: names, domains, attributes, parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from relcrf.errors import Diagnostic, Hint, MissingDeclaration, NameReplacement, Span, listing, suggestion
from relcrf.language.keywords import RESERVED, is_name, is_reserved
from relcrf.model import spec as s
from relcrf.model.spec import fold_name
from relcrf.model.types import SCALARS, AttributeType, Bag, Bool, DomainType, Real, Vector

_NamedDeclaration: TypeAlias = (
    s.Domain | s.Entity | s.Relation | s.RandomRelation | s.DerivedRelation | s.Feature | s.Template | s.Rule
)

MAX_RANGE_SIZE = 1_000_000

_TYPES_ELSEWHERE = {
    "boolean": "bool",
    "double": "real",
    "float": "real",
    "int": "integer",
    "number": "real",
    "numeric": "real",
    "str": "string",
    "text": "string",
    "timestamp": "datetime",
    "varchar": "string",
}
"""The names of types in Python, SQL and other languages, with the types that hints propose instead."""


def check_names(spec: s.ModelSpec) -> Iterator[Diagnostic]:
    """Report duplicate names and reserved names."""
    by_name: dict[tuple[bool, str], _NamedDeclaration] = {}
    by_folded_name: dict[tuple[bool, str], _NamedDeclaration] = {}
    for declaration in spec.all_declarations:
        if isinstance(declaration, s.Gate | s.Include) or declaration.name is None:
            continue
        has_weights = isinstance(declaration, s.Template | s.Rule)
        name = declaration.name
        # Names of tables are compared without case and underscores, so declared names must differ in other characters.
        is_domain = isinstance(declaration, s.Domain)
        same_name = by_name.setdefault((has_weights, name), declaration)
        similar_name = (
            same_name if has_weights else by_folded_name.setdefault((is_domain, fold_name(name)), declaration)
        )
        if same_name is not declaration or similar_name is not declaration:
            other = similar_name if same_name is declaration else same_name
            reason = " (names are compared without case and underscores)" if other.name != name else ""
            notes = (f"first declared in {_describe_line(other.span, declaration.span)}",) if other.span else ()
            hint = "rename one of them" + ("; to share weights use 'weights NAME'" if has_weights else "")
            yield Diagnostic("E121", f"'{name}' is declared twice{reason}", declaration.span, hint, notes)
        if name in RESERVED or (not has_weights and is_reserved(name)):
            yield _reserved_name(name, declaration.span)


def _describe_line(span: Span, other: Span | None) -> str:
    """Return the line of a span for a message; name the file of the span if `other` is in a different file."""
    elsewhere = f" of {span.source.name}" if other and other.source is not span.source else ""
    return f"line {span.line}{elsewhere}"


def _reserved_name(name: str, span: Span | None) -> Diagnostic:
    return Diagnostic("E139", f"'{name}' is reserved and cannot be a name", span)


def check_domain(declared: s.Domain) -> Iterator[Diagnostic]:
    """Report a range that is empty or too large, and duplicate values of an enumeration."""
    if isinstance(declared, s.RangeDomain):
        yield from _check_range(declared, declared.span)
    if isinstance(declared, s.EnumeratedDomain):
        yield from check_duplicates(((value, declared.span) for value in declared.values), "value")


def _check_range(declared: s.RangeDomain, span: Span | None) -> Iterator[Diagnostic]:
    if not 0 <= declared.high - declared.low < MAX_RANGE_SIZE:
        if declared.high < declared.low:
            problem, hint = "is empty", "write the lower bound first"
        else:
            problem = f"has more than {MAX_RANGE_SIZE:,} values"
            hint = "write a smaller range, or use the type 'integer' for evidence"
        yield Diagnostic("E134", f"the range {declared.low}..{declared.high} {problem}", span, hint)


def check_duplicates(
    names: Iterable[tuple[str, Span | None]], noun: str, key: Callable[[str], str] = str
) -> Iterator[Diagnostic]:
    """Report names that occur more than once.

    Args:
        key: function that returns the key of a name; names are equal if their keys are equal.
    """
    seen: set[str] = set()
    for name, span in names:
        if key(name) in seen:
            yield Diagnostic("E122", f"duplicate {noun} '{name}'", span, "remove or rename one of them")
        seen.add(key(name))


def check_attributes(spec: s.ModelSpec, owner: s.Entity | s.Relation) -> Iterator[Diagnostic]:
    """Validate the attributes of an entity type or of a relation."""
    yield from check_duplicates(((a.name, a.span) for a in owner.attributes), "attribute", fold_name)
    if isinstance(owner, s.Entity):
        for attribute in owner.attributes:
            if attribute.is_random and fold_name(attribute.name) == fold_name(owner.key):
                message = f"'{attribute.name}' is the key of {owner.name} and cannot be predicted"
                yield Diagnostic(
                    "E123", message, attribute.span, f"declare another key column: entity {owner.name}(COLUMN)"
                )
    arguments = {fold_name(p.name) for p in owner.parameters} if isinstance(owner, s.Relation) else set()
    for attribute in owner.attributes:
        if fold_name(attribute.name) in arguments:
            message = f"'{attribute.name}' is an argument and an attribute of {owner.name}"
            yield Diagnostic("E122", message, attribute.span, "rename one of them: both are columns of the same table")
        type_problems = list(_check_type(spec, attribute.type, attribute.type_span))
        yield from type_problems
        if not type_problems:
            yield from _check_attribute_use(owner, attribute)


def _check_attribute_use(owner: s.Entity | s.Relation, attribute: s.AttributeDeclaration) -> Iterator[Diagnostic]:
    """Report an attribute whose type is not supported for its role or owner."""
    if attribute.is_random and isinstance(owner, s.Relation):
        message = "attributes of tuples cannot be predicted"
        hint = f"predict a relation: predict relation {owner.name}(...) : {attribute.type}"
        yield Diagnostic("E123", message, attribute.span, hint)
    elif attribute.is_random and not _may_be_random(attribute):
        message = f"an attribute of type {attribute.type} cannot be {'latent' if attribute.latent else 'predicted'}"
        hint = f"use a domain{', bool or real' if attribute.predicted else ' or bool'} as its type"
        yield Diagnostic("E123", message, attribute.span, hint)
    elif isinstance(owner, s.Relation) and isinstance(attribute.type, Bag | Vector):
        message = f"attributes of tuples cannot have type {attribute.type}"
        yield Diagnostic("E123", message, attribute.span, "declare it as an attribute of an entity")


def _may_be_random(attribute: s.AttributeDeclaration) -> bool:
    """Return True if an attribute of the type can be predicted or latent; a latent variable has a list of states."""
    return isinstance(attribute.type, DomainType | Bool) or (attribute.predicted and isinstance(attribute.type, Real))


def check_random_type(spec: s.ModelSpec, relation: s.RandomRelation) -> Iterator[Diagnostic]:
    """Validate the type of the variables of a random relation."""
    type_problems = list(_check_type(spec, relation.type, relation.type_span))
    yield from type_problems
    if not type_problems and not isinstance(relation.type, DomainType | Bool):
        message = f"a relation of type {relation.type} cannot be predicted"
        yield Diagnostic("E123", message, relation.span, "use a domain or bool as its type")


def _check_type(spec: s.ModelSpec, kind: AttributeType, span: Span | None) -> Iterator[Diagnostic]:
    name = getattr(kind, "domain", None)
    if name is None:
        return
    domain = spec.domain(name)
    if domain is not None:
        if isinstance(domain, s.RangeDomain) and ".." in name:
            yield from _check_range(domain, span)
        return
    domains = [d.name for d in spec.domains]
    if spec.entity(name):
        message = f"'{name}' is an entity and cannot be the type of an attribute"
        yield Diagnostic("E120", message, span, "declare a relation instead")
    elif name in SCALARS:
        message = f"a bag contains values of a domain, and '{name}' is not a domain"
        yield Diagnostic("E120", message, span, "declare one: domain D = open")
    else:
        names = domains if isinstance(kind, Bag) else [*SCALARS, *domains]
        yield _unknown_type(spec, name, names, span)


def _unknown_type(
    spec: s.ModelSpec, name: str, types: Sequence[str], span: Span | None, keywords: Sequence[str] = ("domain",)
) -> Diagnostic:
    """Return the diagnostic of an unknown type; the hint proposes a similar type, and a declaration of the type.

    Args:
        types: the valid types.
        keywords: the keywords of the declarations that would make the type valid.
    """
    type_name = _TYPES_ELSEWHERE.get(name.lower(), "")
    is_known = type_name in types and fold_name(name) not in map(fold_name, types)
    similar = (
        Hint(f"did you mean '{type_name}'?", NameReplacement(name, type_name)) if is_known else suggestion(name, types)
    )
    listed = f"the types are {listing(types, 12)}" if types else ""
    used = {fold_name(d.name) for d in spec.all_declarations if not isinstance(d, s.Gate | s.Include) and d.name}
    if not is_name(name) or is_reserved(name) or fold_name(name) in used:
        return Diagnostic("E120", f"unknown type '{name}'", span, similar or listed or None)
    declarations = [f"domain {name} = open" if keyword == "domain" else f"{keyword} {name}" for keyword in keywords]
    hint = f"declare it: {' or '.join(declarations)}"
    hint = f"{similar} otherwise {hint}" if similar else f"{hint}; {listed}" if listed else hint
    fixes = (*(similar.fixes if similar else ()), *map(MissingDeclaration, declarations))
    return Diagnostic("E120", f"unknown type '{name}'", span, Hint(hint, *fixes))


def check_parameters(
    spec: s.ModelSpec, declaration: s.Relation | s.RandomRelation | s.DerivedRelation | s.Feature | s.Template
) -> Iterator[Diagnostic]:
    """Validate the parameters of a relation or the binders (declared variables) of a template."""
    if not declaration.parameters:
        yield Diagnostic("E136", f"'{declaration.name}' has no arguments", declaration.span)
    noun = "binder" if isinstance(declaration, s.Template) else "argument"
    yield from check_duplicates(((p.name, p.span) for p in declaration.parameters), noun)
    for parameter in declaration.parameters:
        declared = spec.domain(parameter.type_name)
        if spec.entity(parameter.type_name) is None and declared is None:
            names = [d.name for d in (*spec.entities, *spec.domains)]
            yield _unknown_type(spec, parameter.type_name, names, parameter.type_span, ("domain", "entity"))
        elif isinstance(declared, s.RangeDomain) and ".." in declared.name:
            yield from _check_range(declared, parameter.type_span)
        if is_reserved(parameter.name):
            yield _reserved_name(parameter.name, parameter.span)


def has_known_types(spec: s.ModelSpec, parameters: tuple[s.Parameter, ...]) -> bool:
    """Return True if there is at least one parameter and every parameter has a known type."""
    return len(parameters) > 0 and all(spec.entity(p.type_name) or spec.domain(p.type_name) for p in parameters)
