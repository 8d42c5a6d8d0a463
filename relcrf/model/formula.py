"""Properties of the `over` clause: its random terms (attributes and atoms), its evidence and its patterns.

A pattern is a set of joint states with a common weight. If `over` lists random terms (a *table*), each joint state is a
pattern; if `over` is a formula, the joint states that make the formula true are its only pattern.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from relcrf.errors import Diagnostic
from relcrf.model import expressions as e
from relcrf.model.spec import EnumeratedDomain, ModelSpec, RangeDomain, Template
from relcrf.model.types import Bool, DomainType, Real, ValueType
from relcrf.model.typing import NameScope


def is_table(over: tuple[e.Expression, ...], scope: NameScope) -> bool:
    """Return True if `over` is a list of random terms, and False if it is a formula."""
    if len(over) == 1 and isinstance(over[0], e.Atom) and isinstance(scope.type_of(over[0]), Bool):
        return False  # a single atom of a boolean relation is a formula
    return all(scope.is_random(item) for item in over)


def is_number(item: e.Expression, scope: NameScope) -> bool:
    """Return True if an item of `over` is a predicted attribute of type real."""
    return scope.is_random(item) and isinstance(scope.type_of(item), Real)


def numeric_terms(over: tuple[e.Expression, ...], scope: NameScope) -> list[e.Attribute | e.Atom]:
    """Return the predicted numbers in `over`, in the order of their first occurrence."""
    return [term for term in scope_terms(over, scope) if is_number(term, scope)]


def n_states(kind: ValueType, spec: ModelSpec) -> int:
    """Return the number of states of a type; 0 if the number depends on the data."""
    if isinstance(kind, Bool):
        return 2
    declared = spec.domain(kind.domain) if isinstance(kind, DomainType) else None
    if isinstance(declared, RangeDomain):
        return declared.high - declared.low + 1
    return len(declared.values) if isinstance(declared, EnumeratedDomain) else 0


def n_patterns(template: Template, scope: NameScope) -> int:
    """Return the number of patterns of a valid template; 0 if the number depends on the data."""
    if not is_table(template.over, scope):
        return 1
    sizes = [n_states(scope.type_of(item), scope.spec) for item in template.over]
    if numeric_terms(template.over, scope):
        return 2 * math.prod(
            size for item, size in zip(template.over, sizes, strict=True) if not is_number(item, scope)
        )
    return sizes[0] * (sizes[0] + 1) // 2 if template.symmetric else math.prod(sizes)


def initial_values_error(template: Template, n_patterns: int) -> Diagnostic:
    """Return the diagnostic for an `init` that has several numbers but not exactly one for each pattern."""
    expected = f"there are {n_patterns} patterns" if n_patterns > 1 else "a formula has one weight"
    message = f"'init' of '{template.name}' has {len(template.options.initial_values)} numbers, but {expected}"
    hint = "write one number for all patterns, or one for each pattern in the order of the states"
    return Diagnostic("E145", message, template.span, hint)


def scope_terms(over: tuple[e.Expression, ...], scope: NameScope) -> list[e.Attribute | e.Atom]:
    """Return the random terms of a factor's scope, in the order of their first occurrence in `over`."""
    terms = [term for item in over for term in scope.random_terms(item)]
    return list(dict.fromkeys(terms))


def evidence_parts(formula: e.Expression, scope: NameScope) -> tuple[e.Expression, ...]:
    """Return the distinct maximal evidence expressions in a formula: conditions and operands of comparisons."""
    return tuple(dict.fromkeys(_iter_evidence_parts(formula, scope)))


def _iter_evidence_parts(node: e.Expression, scope: NameScope) -> Iterator[e.Expression]:
    if not scope.random_terms(node):
        if not scope.is_constant(node):
            yield node
    elif isinstance(node, e.Not):
        yield from _iter_evidence_parts(node.operand, scope)
    elif isinstance(node, e.Connective | e.Comparison):
        yield from _iter_evidence_parts(node.left, scope)
        yield from _iter_evidence_parts(node.right, scope)
