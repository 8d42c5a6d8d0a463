"""Validation of the times of rows, and of declarations that `as of` restricts to earlier rows."""

from __future__ import annotations

from collections.abc import Iterator

from relcrf.errors import Diagnostic
from relcrf.language import clauses
from relcrf.model import spec as s
from relcrf.model import types as t
from relcrf.model.as_of import AsOfError, restrict, restrict_gate


def check_times(owner: s.Entity | s.Relation) -> Iterator[Diagnostic]:
    """Validate the attribute with the time of an entity type or of a relation."""
    times = [attribute for attribute in owner.attributes if attribute.is_time]
    for attribute in times[1:]:
        message = f"{owner.name} already declares the time '{times[0].name}'"
        hint = "remove 'time' before one of them; the time of a row is when all its values are known"
        yield Diagnostic("E155", message, attribute.span, hint)
    for attribute in times:
        if not isinstance(attribute.type, t.Date | t.Datetime | t.Integer | t.Real):
            message = f"an attribute of type {attribute.type} cannot be the time of {owner.name}"
            hint = "use date or datetime, or integer or real, as its type"
            yield Diagnostic("E155", message, attribute.type_span or attribute.span, hint)


def check_as_of(spec: s.ModelSpec, declaration: s.Template | s.DerivedRelation | s.Feature) -> Iterator[Diagnostic]:
    """Validate the clause `as of` of a declaration that is valid without this clause."""
    if declaration.as_of is None:
        return
    try:
        restricted = restrict(spec, declaration)
    except AsOfError as error:
        yield error.diagnostic
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
