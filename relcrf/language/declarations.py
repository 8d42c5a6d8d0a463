"""Whether declarations are sound in themselves: names, domains, attributes, arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from relcrf.errors import Diagnostic, Span, listing, suggestion
from relcrf.language.keywords import KEYWORDS, is_reserved
from relcrf.model import spec as s
from relcrf.model.spec import fold_name
from relcrf.model.types import SCALARS, AttributeType, Bag, Bool, DomainType, Vector

_NamedDeclaration: TypeAlias = (
    s.Domain | s.Entity | s.Relation | s.RandomRelation | s.DerivedRelation | s.Template | s.Rule
)

MAX_RANGE_SIZE = 1_000_000


def check_names(spec: s.ModelSpec) -> Iterator[Diagnostic]:
    """Names that stand twice, and words of the language that stand for names."""
    exact: dict[tuple[bool, str], _NamedDeclaration] = {}
    alike: dict[tuple[bool, str], _NamedDeclaration] = {}
    for declaration in spec.all_declarations:
        if isinstance(declaration, s.Gate | s.Include) or declaration.name is None:
            continue
        weighs = isinstance(declaration, s.Template | s.Rule)
        name = declaration.name
        # Tables are found without case and underscores, so that names must differ in more than that.
        is_domain = isinstance(declaration, s.Domain)
        first = exact.setdefault((weighs, name), declaration)
        near = first if weighs else alike.setdefault((is_domain, fold_name(name)), declaration)
        if first is not declaration or near is not declaration:
            other = near if first is declaration else first
            reason = " (names are compared without case and underscores)" if other.name != name else ""
            notes = (f"the first stands in {_describe_line(other.span, declaration.span)}",) if other.span else ()
            hint = "give one of them another name" + ("; templates share weights by 'weights NAME'" if weighs else "")
            yield Diagnostic("E121", f"'{name}' is declared twice{reason}", declaration.span, hint, notes)
        if name in KEYWORDS or (not weighs and is_reserved(name)):
            yield _reserved_name(name, declaration.span)


def _describe_line(span: Span, other: Span | None) -> str:
    """A line, and the file where it is another one."""
    elsewhere = f" of {span.source.name}" if other and other.source is not span.source else ""
    return f"line {span.line}{elsewhere}"


def _reserved_name(name: str, span: Span | None) -> Diagnostic:
    return Diagnostic("E139", f"'{name}' is a word of the language and cannot be a name", span)


def check_domain(declared: s.Domain) -> Iterator[Diagnostic]:
    """An empty range, or a value that stands twice."""
    if isinstance(declared, s.RangeDomain):
        yield from _check_range(declared, declared.span)
    if isinstance(declared, s.EnumeratedDomain):
        yield from check_duplicates(((value, declared.span) for value in declared.values), "value")


def _check_range(declared: s.RangeDomain, span: Span | None) -> Iterator[Diagnostic]:
    if not 0 <= declared.high - declared.low < MAX_RANGE_SIZE:
        what = "is empty" if declared.high < declared.low else f"has more than {MAX_RANGE_SIZE:,} values"
        yield Diagnostic("E134", f"the range {declared.low}..{declared.high} {what}", span, "write low..high")


def check_duplicates(
    names: Iterable[tuple[str, Span | None]], noun: str, key: Callable[[str], str] = str
) -> Iterator[Diagnostic]:
    """Those of some names that have stood before."""
    seen: set[str] = set()
    for name, span in names:
        if key(name) in seen:
            yield Diagnostic("E122", f"the {noun} '{name}' stands twice", span, "each must be there once")
        seen.add(key(name))


def check_attributes(spec: s.ModelSpec, owner: s.Entity | s.Relation) -> Iterator[Diagnostic]:
    """The attributes of an entity, or of the tuples of a relation."""
    yield from check_duplicates(((a.name, a.span) for a in owner.attributes), "attribute", fold_name)
    if isinstance(owner, s.Entity):
        for attribute in owner.attributes:
            if attribute.is_random and fold_name(attribute.name) == fold_name(owner.key):
                message = f"'{attribute.name}' is the key of {owner.name} and cannot be predicted"
                yield Diagnostic("E123", message, attribute.span, "name another key: entity E(column)")
    arguments = {fold_name(p.name) for p in owner.parameters} if isinstance(owner, s.Relation) else set()
    for attribute in owner.attributes:
        if fold_name(attribute.name) in arguments:
            message = f"'{attribute.name}' is an argument and an attribute of {owner.name}"
            yield Diagnostic("E122", message, attribute.span, "they are columns of one table: rename one")
        unsound = list(_check_type(spec, attribute.type, attribute.span))
        yield from unsound
        if not unsound:
            yield from _check_attribute_use(owner, attribute)


def _check_attribute_use(owner: s.Entity | s.Relation, attribute: s.AttributeDeclaration) -> Iterator[Diagnostic]:
    """What an attribute of a known type cannot be."""
    if attribute.is_random and isinstance(owner, s.Relation):
        message = "attributes of tuples cannot be predicted"
        hint = f"predict a relation: predict relation {owner.name}(...) : {attribute.type}"
        yield Diagnostic("E123", message, attribute.span, hint)
    elif attribute.is_random and not isinstance(attribute.type, DomainType | Bool):
        message = f"an attribute of type {attribute.type} cannot be {'latent' if attribute.latent else 'predicted'}"
        yield Diagnostic("E123", message, attribute.span, "predict a value of a domain, or bool")
    elif isinstance(owner, s.Relation) and isinstance(attribute.type, Bag | Vector):
        message = f"attributes of tuples cannot be of type {attribute.type}"
        yield Diagnostic("E123", message, attribute.span, "give it to an entity")


def check_random_type(spec: s.ModelSpec, relation: s.RandomRelation) -> Iterator[Diagnostic]:
    """The type of a random relation's variables."""
    unsound = list(_check_type(spec, relation.type, relation.span))
    yield from unsound
    if not unsound and not isinstance(relation.type, DomainType | Bool):
        message = f"a relation of type {relation.type} cannot be predicted"
        yield Diagnostic("E123", message, relation.span, "predict a value of a domain, or whether it holds")


def _check_type(spec: s.ModelSpec, kind: AttributeType, span: Span | None) -> Iterator[Diagnostic]:
    name = getattr(kind, "domain", None)
    if name is None:
        return
    found = spec.domain(name)
    if found is not None:
        if isinstance(found, s.RangeDomain) and ".." in name:
            yield from _check_range(found, span)
        return
    domains = [d.name for d in spec.domains]
    known = domains if isinstance(kind, Bag) else [*SCALARS, *domains]
    message = f"unknown type '{name}'"
    hint = suggestion(name, known) or f"the types are {listing(known, 12)}"
    if spec.entity(name):
        message, hint = f"'{name}' is an entity, and attributes hold values", "tie things by a relation"
    elif name in SCALARS:
        message, hint = f"a bag holds values of a domain, and '{name}' is none", "declare one: domain D = open"
    yield Diagnostic("E120", message, span, hint)


def check_parameters(
    spec: s.ModelSpec, declaration: s.Relation | s.RandomRelation | s.DerivedRelation | s.Template
) -> Iterator[Diagnostic]:
    """The arguments of a relation, or the binders of a template."""
    if not declaration.parameters:
        yield Diagnostic("E136", f"'{declaration.name}' has no arguments", declaration.span)
    what = "binder" if isinstance(declaration, s.Template) else "argument"
    yield from check_duplicates(((p.name, p.span) for p in declaration.parameters), what)
    for parameter in declaration.parameters:
        declared = spec.domain(parameter.type_name)
        if spec.entity(parameter.type_name) is None and declared is None:
            known = [d.name for d in (*spec.entities, *spec.domains)]
            hint = suggestion(parameter.type_name, known) or f"the types are {listing(known)}"
            yield Diagnostic("E120", f"unknown type '{parameter.type_name}'", parameter.span, hint)
        elif isinstance(declared, s.RangeDomain) and ".." in declared.name:
            yield from _check_range(declared, parameter.span)
        if is_reserved(parameter.name):
            yield _reserved_name(parameter.name, parameter.span)


def has_known_types(spec: s.ModelSpec, parameters: tuple[s.Parameter, ...]) -> bool:
    """Whether there are parameters, all of known sorts."""
    return len(parameters) > 0 and all(spec.entity(p.type_name) or spec.domain(p.type_name) for p in parameters)
