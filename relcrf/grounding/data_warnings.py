"""Warnings that depend on the data: values that never occur, and the sizes of cross products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.data.dataset import quoted
from relcrf.data.names import attribute_column, bag_table, entity_table, listed_table, relation_table
from relcrf.errors import Diagnostic, Span, listing
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.extreme_values import note_extreme_values
from relcrf.grounding.preview import plan_templates
from relcrf.grounding.similar_values import note_similar_values
from relcrf.model.rules import all_templates
from relcrf.model.spec import EnumeratedDomain
from relcrf.model.types import Bag, DomainType


@reraises_plugin_errors
def add_data_warnings(
    bound: BoundModel, warnings: Iterable[Diagnostic], budget: int = DEFAULT_BUDGET
) -> list[Diagnostic]:
    """Return a model's warnings and the warnings that depend on the data; call `create_relation_tables` first.

    Notes on extreme and similar values are added to the bound model.

    Args:
        warnings: warnings of the model alone. A note with the number of bindings is added to cross product warnings.
    """
    note_extreme_values(bound)
    note_similar_values(bound)
    warnings = list(warnings)
    spans = {id(w.location) for w in warnings if w.code == "W201"}
    cross_products = {t.name: t.span for t in all_templates(bound.spec) if id(t.span) in spans}
    sizes = {t.name: t for t in plan_templates(bound, budget)} if cross_products else {}
    notes = {
        id(span): f"{'' if sizes[name].is_exact else 'up to '}{sizes[name].bindings:,} bindings on this data"
        for name, span in cross_products.items()
    }
    annotated = [
        replace(w, notes=(*w.notes, notes[id(w.location)])) if id(w.location) in notes else w for w in warnings
    ]
    return [*annotated, *_unused_value_warnings(bound)]


def _unused_value_warnings(bound: BoundModel) -> Iterator[Diagnostic]:
    for domain in bound.spec.domains:
        columns = list(_domain_columns(bound, domain.name)) if isinstance(domain, EnumeratedDomain) else []
        if not columns:
            continue
        union = " UNION ".join(f"SELECT {column} AS code FROM {table}" for table, column in columns)
        codes = {row[0] for row in bound.connection.execute(union).fetchall()}
        unused = [value for code, value in enumerate(bound.domains[domain.name]) if code not in codes]
        if unused:
            values = f"value{'s' * (len(unused) > 1)} {listing(repr(v) for v in unused)}"
            message = f"{values} of domain {domain.name} never occur{'s' * (len(unused) == 1)} in the data"
            hint = "check the spelling; nothing can be learned about a value without data"
            span = domain.span if isinstance(domain.span, Span) else None
            yield Diagnostic("W203", message, span, hint)


def _domain_columns(bound: BoundModel, domain: str) -> Iterator[tuple[str, str]]:
    """Yield the quoted table and column names of the coded columns with values of a domain."""
    spec = bound.spec
    for entity in spec.entities:
        for attribute in entity.attributes:
            if attribute.type == DomainType(domain) and not attribute.latent:
                yield quoted(entity_table(entity.name)), quoted(attribute_column(attribute.name))
            elif attribute.type == Bag(domain):
                yield quoted(bag_table(entity.name, attribute.name)), "code"
    for relation in spec.relations:
        for attribute in relation.attributes:
            if attribute.type == DomainType(domain):
                yield quoted(relation_table(relation.name)), quoted(attribute_column(attribute.name))
        for k, parameter in enumerate(relation.parameters):
            if parameter.type_name == domain:
                yield quoted(relation_table(relation.name)), f"a{k}"
    for random in spec.random_relations:
        listed = quoted(listed_table(random.name))
        if random.type == DomainType(domain):
            yield listed, "state"
        for k, parameter in enumerate(random.parameters):
            if parameter.type_name == domain:
                yield listed, f"a{k}"
