"""Conditions that can hold in several ways, as relations of their own.

`where Link(a, b) or Link(b, a)` as a filter would try every pair of pages. Named as a derived relation it is the union of two
scans: the same meaning at the cost of its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relcrf.model import expressions as e
from relcrf.model.expressions import conjunction, conjuncts, disjuncts, names_in, optional_conjunction
from relcrf.model.rules import all_templates
from relcrf.model.spec import (
    Declaration,
    DerivedRelation,
    ModelSpec,
    NearestNeighbours,
    Parameter,
    RandomRelation,
    Rule,
    Template,
)
from relcrf.model.typing import NameScope


def extract_disjunctions(spec: ModelSpec) -> ModelSpec:
    """The model without rules and includes, and with a derived relation for each `or` that binds names."""
    declarations: list[Declaration] = []
    templates = iter(all_templates(spec))
    for declaration in spec.all_declarations:
        if isinstance(declaration, Template | Rule):
            declarations += _extract_from(spec, next(templates))
        elif isinstance(declaration, RandomRelation | DerivedRelation):
            declarations += _extract_from(spec, declaration)
        else:
            declarations.append(declaration)
    return ModelSpec(tuple(declarations), source=spec.source)


def _extract_from(spec: ModelSpec, declaration: Template | RandomRelation | DerivedRelation) -> Iterator[Declaration]:
    """A declaration without choices among its conjuncts, after the relations that stand for them."""
    where = declaration.definition if isinstance(declaration, DerivedRelation) else declaration.where
    if isinstance(where, NearestNeighbours):
        yield declaration
        return
    parts = list(conjuncts(where))
    if isinstance(declaration, DerivedRelation) and len(parts) == 1:
        yield declaration  # the cases of a derived relation are a union already
        return
    scope = NameScope(spec, declaration.parameters, where)
    for k, part in enumerate(parts):
        if isinstance(part, e.Connective) and part.operator == "or":
            others = parts[:k] + parts[k + 1 :]
            names = names_in(part) & ({*scope.binders} | set().union(*(names_in(p) for p in others)))
            shared = [name for name in scope.type_names if name in names]
            if _should_extract(part, others, set(shared)):
                hidden = f"{declaration.name}, or {k + 1}"
                given = tuple(Parameter(name, scope.type_names[name]) for name in shared)
                yield DerivedRelation(hidden, given, part, span=part.span)
                parts[k] = e.Atom(hidden, tuple(e.Name(name) for name in shared), span=part.span)
    if isinstance(declaration, DerivedRelation):
        yield replace(declaration, definition=conjunction(parts))
    else:
        yield replace(declaration, where=optional_conjunction(parts))


def _should_extract(choice: e.Expression, others: list[e.Expression], shared: set[str]) -> bool:
    """Whether every case binds all names, and nothing else does."""
    if len(shared) < 2 or any(shared <= _bound_names(p) for p in others):
        return False
    return all(shared <= set().union(*(_bound_names(p) for p in conjuncts(case))) for case in disjuncts(choice))


def _bound_names(node: e.Expression) -> set[str]:
    return names_in(node) if isinstance(node, e.Atom | e.Membership) else set()
