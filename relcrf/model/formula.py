"""The `over` clause: its random terms, and what evidence its formula looks at."""

from __future__ import annotations

import math
from collections.abc import Iterator

from relcrf.errors import Diagnostic
from relcrf.model import expressions as e
from relcrf.model.spec import EnumeratedDomain, ModelSpec, RangeDomain, Template
from relcrf.model.types import Bool, DomainType, ValueType
from relcrf.model.typing import NameScope


def is_table(over: tuple[e.Expression, ...], scope: NameScope) -> bool:
    """Whether `over` lists random terms, a weight for each of their joint states; else it is one formula."""
    if len(over) == 1 and isinstance(over[0], e.Atom) and isinstance(scope.type_of(over[0]), Bool):
        return False  # a relation that holds or not is a proposition
    return all(scope.is_random(item) for item in over)


def n_states(kind: ValueType, spec: ModelSpec) -> int:
    """How many states a random term of a type has; 0 where the data says."""
    if isinstance(kind, Bool):
        return 2
    declared = spec.domain(kind.domain) if isinstance(kind, DomainType) else None
    if isinstance(declared, RangeDomain):
        return declared.high - declared.low + 1
    return len(declared.values) if isinstance(declared, EnumeratedDomain) else 0


def n_patterns(template: Template, scope: NameScope) -> int:
    """How many patterns a sound template has; 0 where the data says."""
    if not is_table(template.over, scope):
        return 1
    sizes = [n_states(scope.type_of(item), scope.spec) for item in template.over]
    return sizes[0] * (sizes[0] + 1) // 2 if template.symmetric else math.prod(sizes)


def initial_values_error(template: Template, n_patterns: int) -> Diagnostic:
    """What is said of an `init` with some numbers, but not one for each pattern."""
    are = f"there are {n_patterns} patterns" if n_patterns > 1 else "a formula has one weight"
    message = f"'init' of '{template.name}' has {len(template.options.initial_values)} numbers, and {are}"
    hint = "give one number for each pattern, in the order of the states, or one for all"
    return Diagnostic("E145", message, template.span, hint)


def scope_terms(over: tuple[e.Expression, ...], scope: NameScope) -> list[e.Attribute | e.Atom]:
    """The random terms at the places of a factor's scope: as listed, or as a formula first mentions them."""
    found = [term for item in over for term in scope.random_terms(item)]
    return list(dict.fromkeys(found))


def evidence_parts(formula: e.Expression, scope: NameScope) -> tuple[e.Expression, ...]:
    """The largest parts of a formula that speak of evidence alone, once each: conditions, and sides of comparisons."""
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
