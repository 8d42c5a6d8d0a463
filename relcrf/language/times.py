"""Validation of the times of rows, and of declarations that `as of` restricts to earlier rows."""

from __future__ import annotations

from collections.abc import Iterator

from relcrf.errors import Diagnostic
from relcrf.language import clauses
from relcrf.model import spec as s
from relcrf.model import types as t
from relcrf.model.as_of import AsOfError, restrict, restrict_gate


def check_times(spec: s.ModelSpec) -> Iterator[Diagnostic]:
    """Validate the attributes with the times of entity types and relations."""
    owners: tuple[s.Entity | s.Relation, ...] = (*spec.entities, *spec.relations)
    first: tuple[str, t.AttributeType] | None = None
    for owner in owners:
        times = [attribute for attribute in owner.attributes if attribute.is_time]
        for attribute in times[1:]:
            message = f"{owner.name} already declares the time '{times[0].name}'"
            hint = "remove 'time' before one of them; the time of a row is when all its values are known"
            yield Diagnostic("E155", message, attribute.span, hint)
        for attribute in times[:1]:
            span = attribute.type_span or attribute.span
            if not isinstance(attribute.type, t.Date | t.Datetime | t.Integer | t.Real):
                message = f"an attribute of type {attribute.type} cannot be the time of {owner.name}"
                yield Diagnostic("E155", message, span, "use date or datetime, or integer or real, as its type")
                continue
            first = first or (owner.name, attribute.type)
            if not _are_comparable(attribute.type, first[1]):
                message = (
                    f"the time of {owner.name} is of type {attribute.type}, but that of {first[0]} of type {first[1]}"
                )
                hint = "declare all times with the same type; a datetime column may contain dates"
                yield Diagnostic("E155", message, span, hint)


def _are_comparable(one: t.AttributeType, other: t.AttributeType) -> bool:
    return one == other or all(isinstance(kind, t.Integer | t.Real) for kind in (one, other))


def check_as_of(spec: s.ModelSpec, declaration: s.Template | s.DerivedRelation | s.Feature) -> Iterator[Diagnostic]:
    """Validate the clause `as of` of a declaration that is valid without this clause."""
    if declaration.as_of is None:
        return
    try:
        restricted = restrict(spec, declaration)
    except AsOfError as error:
        yield error.diagnostic
        return
    if any(check_times(spec)):  # the comparisons of times have the same errors
        return
    if isinstance(restricted, s.Template):
        yield from clauses.check_template(spec, restricted)
    elif isinstance(restricted, s.Feature):
        yield from clauses.check_feature_definition(spec, restricted)


def check_gate_as_of(spec: s.ModelSpec, gate: s.Gate, template: s.Template) -> Iterator[Diagnostic]:
    """Validate the features of a gate, which the clause `as of` of its template restricts."""
    try:
        restrict_gate(spec, gate, template)
    except AsOfError as error:
        if error.diagnostic.code == "E157":  # other errors are reported at the template
            yield error.diagnostic
