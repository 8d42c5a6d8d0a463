"""What is legal in a model and still looks like a slip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from relcrf.errors import Diagnostic, Span
from relcrf.language.render import render_expression as render_expression
from relcrf.model import expressions as e
from relcrf.model.expressions import conjuncts, names_in, rename_names
from relcrf.model.nodes import children, walk
from relcrf.model.spec import DerivedRelation, ModelSpec, NearestNeighbours, Template
from relcrf.model.typing import NameScope


def check_connected_binders(
    scope: NameScope, name: str, span: Span | None, over: tuple[e.Expression, ...] = ()
) -> Iterator[Diagnostic]:
    """W201: binders that nothing connects, so that every combination of their values is taken.

    Args:
        over: what the factors are about: a random relation ties its arguments, for only its tuples have variables.
    """
    groups = group_connected_binders(scope, over)
    if len(groups) > 1:
        names_of = ["{" + ", ".join(group) + "}" for group in groups]
        combined = " x ".join(sorted(names_of))
        message = f"nothing ties the binders of '{name}' together: it grounds on every combination of {combined}"
        hint = "name a relation in 'where', or an equality; 'relcrf plan' counts the groundings"
        yield Diagnostic("W201", message, span, hint)


def group_connected_binders(scope: NameScope, over: tuple[e.Expression, ...] = ()) -> list[list[str]]:
    """The binders, in groups that a condition or a random relation ties together."""
    group = {binder: {binder} for binder in scope.type_names}

    def tie(node: e.Expression) -> None:
        joined = set().union(*(group[n] for n in names_in(node) if n in group))
        for n in joined:
            group[n] = joined

    for part in conjuncts(scope.where):
        is_join = isinstance(part, e.Comparison) and part.operator == "=="
        is_choice = isinstance(part, e.Connective) and part.operator == "or"
        if is_join or is_choice or isinstance(part, e.Atom | e.Membership):
            tie(part)
        for node in walk(part):
            if isinstance(node, e.TupleAttribute):
                tie(node)
    for item in over:
        for node in walk(item):
            if isinstance(node, e.Atom) and scope.is_random(node):
                tie(node)
    parts = {frozenset(g) for b, g in group.items() if b in scope.binders}
    return [[b for b in scope.binders if b in part] for part in parts]


def check_duplicate_grounding(spec: ModelSpec, template: Template) -> Iterator[Diagnostic]:
    """W204: two binders that may change places, so that each pair stands in two equal factors."""
    spoken = set().union(*(names_in(item) for item in template.over))
    for one, other in combinations(template.parameters, 2):
        swap = {one.name: other.name, other.name: one.name}
        is_candidate = one.type_name == other.type_name and one.name != other.name and {one.name, other.name} <= spoken
        if is_candidate and _canonical_clauses(spec, template, swap) == _canonical_clauses(spec, template, {}):
            message = f"'{template.name}' grounds every pair twice: '{one.name}' and '{other.name}' may change places"
            yield Diagnostic("W204", message, template.span, f"say {one.name} < {other.name} in 'where'")
            return


def _canonical_clauses(spec: ModelSpec, template: Template, names: Mapping[str, str]) -> tuple[object, ...]:
    """A template's clauses with other names, without regard to the order of what has none."""
    over = tuple(_canonical(spec, rename_names(item, names)) for item in template.over)
    rest = (tuple(_canonical(spec, rename_names(i, names)) for i in items) for items in (template.per, template.by))
    return _canonical_conjuncts(spec, template.where, names), frozenset(over) if template.symmetric else over, *rest


def _canonical_conjuncts(spec: ModelSpec, where: e.Expression | None, names: Mapping[str, str]) -> frozenset[str]:
    return frozenset(_canonical(spec, rename_names(part, names)) for part in conjuncts(where))


def _canonical(spec: ModelSpec, node: e.Expression) -> str:
    """An expression as text in which whatever has no order is in that of the alphabet."""
    parts = [_canonical(spec, child) for child in children(node)]
    operator = getattr(node, "operator", "")
    declared = spec.relation(node.relation) if isinstance(node, e.Atom) else None
    if operator in ("==", "!=", "and", "or", "<=>", "+", "*") or (
        isinstance(declared, DerivedRelation) and is_symmetric(spec, declared)
    ):
        parts.sort()
    if operator in (">", ">="):
        operator, parts = operator.replace(">", "<"), parts[::-1]
    name = next((getattr(node, f) for f in ("relation", "name", "function", "attribute") if hasattr(node, f)), "")
    return f"{type(node).__name__} {name} {operator}({', '.join(parts)})" if parts else render_expression(node)


def is_symmetric(spec: ModelSpec, derived: DerivedRelation) -> bool:
    """Whether a derived relation of two things holds both ways, as far as its condition shows."""
    if len(derived.parameters) != 2 or isinstance(derived.definition, NearestNeighbours):
        return False
    one, other = derived.parameters
    uses_itself = any(
        isinstance(n, e.Atom) and isinstance(spec.relation(n.relation), DerivedRelation)
        for n in walk(derived.definition)
    )
    if one.type_name != other.type_name or uses_itself:
        return False
    swap = {one.name: other.name, other.name: one.name}
    return _canonical_conjuncts(spec, derived.definition, {}) == _canonical_conjuncts(spec, derived.definition, swap)
