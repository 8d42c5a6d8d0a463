"""Conditions that can hold in several ways, as relations of their own.

`where Link(a, b) or Link(b, a)` as a filter would try every pair of pages. Named as a derived relation it is the union of two
scans: the same meaning at the cost of its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relcrf.model import expressions as e
from relcrf.model.expressions import conjoined, conjunction, conjuncts, disjuncts, names_in
from relcrf.model.rules import all_templates
from relcrf.model.spec import Declaration, Derived, ModelSpec, Nearest, Parameter, RandomRelation, Rule, Template
from relcrf.model.typing import Scope


def with_named_choices(spec: ModelSpec) -> ModelSpec:
    """The model without rules and includes, and with a derived relation for each `or` that binds names."""
    declarations: list[Declaration] = []
    templates = iter(all_templates(spec))
    for declaration in spec.everything:
        if isinstance(declaration, Template | Rule):
            declarations += _named(spec, next(templates))
        elif isinstance(declaration, RandomRelation | Derived):
            declarations += _named(spec, declaration)
        else:
            declarations.append(declaration)
    return ModelSpec(tuple(declarations), source=spec.source)


def _named(spec: ModelSpec, declaration: Template | RandomRelation | Derived) -> Iterator[Declaration]:
    """A declaration without choices among its conjuncts, after the relations that stand for them."""
    where = declaration.definition if isinstance(declaration, Derived) else declaration.where
    if isinstance(where, Nearest):
        yield declaration
        return
    parts = list(conjuncts(where))
    if isinstance(declaration, Derived) and len(parts) == 1:
        yield declaration  # the cases of a derived relation are a union already
        return
    scope = Scope(spec, declaration.parameters, where)
    for k, part in enumerate(parts):
        if isinstance(part, e.Connective) and part.operator == "or":
            others = parts[:k] + parts[k + 1 :]
            names = names_in(part) & ({*scope.binders} | set().union(*(names_in(p) for p in others)))
            shared = [name for name in scope.sorts if name in names]
            if _is_worth_it(part, others, set(shared)):
                hidden = f"{declaration.name}, or {k + 1}"
                given = tuple(Parameter(name, scope.sorts[name]) for name in shared)
                yield Derived(hidden, given, part, span=part.span)
                parts[k] = e.Atom(hidden, tuple(e.Name(name) for name in shared), span=part.span)
    if isinstance(declaration, Derived):
        yield replace(declaration, definition=conjunction(parts))
    else:
        yield replace(declaration, where=conjoined(parts))


def _is_worth_it(choice: e.Expression, others: list[e.Expression], shared: set[str]) -> bool:
    """Whether every case binds all names, and nothing else does."""
    if len(shared) < 2 or any(shared <= _bound(p) for p in others):
        return False
    return all(shared <= set().union(*(_bound(p) for p in conjuncts(case))) for case in disjuncts(choice))


def _bound(node: e.Expression) -> set[str]:
    return names_in(node) if isinstance(node, e.Atom | e.Member) else set()
