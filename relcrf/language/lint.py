"""Warnings about valid models that are probably not what the user intended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from relcrf.errors import Diagnostic, Span, suggestion
from relcrf.language.render import render_expression as render_expression
from relcrf.model import expressions as e
from relcrf.model.expressions import conjuncts, names_in, rename_names
from relcrf.model.nodes import children, walk
from relcrf.model.spec import DerivedRelation, EnumeratedDomain, ModelSpec, NearestNeighbours, Template
from relcrf.model.typing import NameScope


def check_connected_binders(
    scope: NameScope, name: str, span: Span | None, over: tuple[e.Expression, ...] = ()
) -> Iterator[Diagnostic]:
    """Report W201: two groups of binders (variables) are not connected; every combination of values is a binding.

    Args:
        over: the items of the template's `over` clause; an atom of a random relation connects its arguments.
    """
    groups = group_connected_binders(scope, over)
    if len(groups) > 1:
        formatted = ["{" + ", ".join(group) + "}" for group in groups]
        combined = " x ".join(sorted(formatted))
        message = f"nothing connects the binders of '{name}': it is grounded for every combination of {combined}"
        hint = "add a relation or an equality to 'where'; 'relcrf plan' counts the bindings"
        yield Diagnostic("W201", message, span, hint)


def group_connected_binders(scope: NameScope, over: tuple[e.Expression, ...] = ()) -> list[list[str]]:
    """Partition the binders (declared variables) into groups that conditions or random relations connect."""
    group = {binder: {binder} for binder in scope.type_names}

    def connect(node: e.Expression) -> None:
        connected = set().union(*(group[n] for n in names_in(node) if n in group))
        for n in connected:
            group[n] = connected

    for conjunct in conjuncts(scope.where):
        is_join = isinstance(conjunct, e.Comparison) and conjunct.operator == "=="
        is_disjunction = isinstance(conjunct, e.Connective) and conjunct.operator == "or"
        if is_join or is_disjunction or isinstance(conjunct, e.Atom | e.Membership):
            connect(conjunct)
        for node in walk(conjunct):
            if isinstance(node, e.TupleAttribute):
                connect(node)
    for item in over:
        for node in walk(item):
            if isinstance(node, e.Atom) and scope.is_random(node):
                connect(node)
    groups = {frozenset(g) for b, g in group.items() if b in scope.binders}
    return [[b for b in scope.binders if b in members] for members in groups]


MIN_VALUE_LENGTH = 3
"""Minimum length of a name that W207 compares with values; shorter names are usual for variables and similar to many values."""


def check_misspelt_values(scope: NameScope, expressions: Iterable[e.Expression]) -> Iterator[Diagnostic]:
    """Report W207: a name that occurs once, and therefore stands for any value of a domain, is similar to a value."""
    nodes = [pair for expression in expressions for pair in scope.walk(expression)]
    counts = Counter(name for _, node in nodes if isinstance(node, e.Name | e.Attribute) for name in names_in(node))
    for inner, node in nodes:
        if not isinstance(node, e.Name) or counts[node.name] > 1 or len(node.name) < MIN_VALUE_LENGTH:
            continue
        domain = scope.spec.domain(inner.existential_types.get(node.name, ""))
        hint = suggestion(node.name, domain.values) if isinstance(domain, EnumeratedDomain) else None
        if domain is not None and hint is not None:
            message = f"'{node.name}' is not a value of {domain.name} and therefore stands for any value"
            yield Diagnostic("W207", message, node.span, hint)


def check_duplicate_grounding(spec: ModelSpec, template: Template) -> Iterator[Diagnostic]:
    """Report W204: two binders (variables) are interchangeable, so that each pair of values has two equal factors."""
    names_in_over = set().union(*(names_in(item) for item in template.over))
    for first, second in combinations(template.parameters, 2):
        swap = {first.name: second.name, second.name: first.name}
        is_candidate = (
            first.type_name == second.type_name
            and first.name != second.name
            and {first.name, second.name} <= names_in_over
        )
        if is_candidate and _canonical_clauses(spec, template, swap) == _canonical_clauses(spec, template, {}):
            message = (
                f"'{template.name}' grounds every pair twice: '{first.name}' and '{second.name}' are interchangeable"
            )
            yield Diagnostic("W204", message, template.span, f"add {first.name} < {second.name} to 'where'")
            return


def _canonical_clauses(spec: ModelSpec, template: Template, names: Mapping[str, str]) -> tuple[object, ...]:
    """Rename names in a template's clauses; return a form in which the order of conjuncts and operands is canonical."""
    over = tuple(_canonical(spec, rename_names(item, names)) for item in template.over)
    rest = (tuple(_canonical(spec, rename_names(i, names)) for i in items) for items in (template.per, template.by))
    return _canonical_conjuncts(spec, template.where, names), frozenset(over) if template.symmetric else over, *rest


def _canonical_conjuncts(spec: ModelSpec, where: e.Expression | None, names: Mapping[str, str]) -> frozenset[str]:
    return frozenset(_canonical(spec, rename_names(part, names)) for part in conjuncts(where))


def _canonical(spec: ModelSpec, node: e.Expression) -> str:
    """Return the canonical text of an expression, in which the operands of commutative operators are sorted."""
    parts = [_canonical(spec, child) for child in children(node)]
    operator = getattr(node, "operator", "")
    relation = spec.relation(node.relation) if isinstance(node, e.Atom) else None
    if operator in ("==", "!=", "and", "or", "<=>", "+", "*") or (
        isinstance(relation, DerivedRelation) and is_symmetric(spec, relation)
    ):
        parts.sort()
    if operator in (">", ">="):
        operator, parts = operator.replace(">", "<"), parts[::-1]
    name = next((getattr(node, f) for f in ("relation", "name", "function", "attribute") if hasattr(node, f)), "")
    return f"{type(node).__name__} {name} {operator}({', '.join(parts)})" if parts else render_expression(node)


def is_symmetric(spec: ModelSpec, derived: DerivedRelation) -> bool:
    """Return True if the condition of a binary derived relation is syntactically symmetric in its parameters."""
    if len(derived.parameters) != 2 or isinstance(derived.definition, NearestNeighbours):
        return False
    first, second = derived.parameters
    uses_itself = any(
        isinstance(n, e.Atom) and isinstance(spec.relation(n.relation), DerivedRelation)
        for n in walk(derived.definition)
    )
    if first.type_name != second.type_name or uses_itself:
        return False
    swap = {first.name: second.name, second.name: first.name}
    return _canonical_conjuncts(spec, derived.definition, {}) == _canonical_conjuncts(spec, derived.definition, swap)
