"""The extraction of disjunctions: an `or` in a condition becomes a derived relation.

A condition `Link(a, b) or Link(b, a)`, used as a filter, would be evaluated for every pair of pages. As a derived
relation, it is a union of two scans; the cost of the union is proportional to its number of rows. The same holds for
equalities of attributes, such as `a.name == b.name or a.town == b.town`, each of which is a join.
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
    """Inline includes, convert rules to templates, extract each `or` that binds names, and return the new model."""
    declarations: list[Declaration] = []
    templates, used_names = iter(all_templates(spec)), set[str]()
    for declaration in spec.all_declarations:
        if isinstance(declaration, Template | Rule):
            declarations += _extract_from(spec, next(templates), used_names)
        elif isinstance(declaration, RandomRelation | DerivedRelation):
            declarations += _extract_from(spec, declaration, used_names)
        else:
            declarations.append(declaration)
    return ModelSpec(tuple(declarations), source=spec.source)


def _extract_from(
    spec: ModelSpec, declaration: Template | RandomRelation | DerivedRelation, used_names: set[str]
) -> Iterator[Declaration]:
    """Yield the relations extracted from the disjunctions of a declaration, followed by the rewritten declaration.

    Args:
        used_names: names of the extracted relations in lower case, to which the new names are added.
    """
    where = declaration.definition if isinstance(declaration, DerivedRelation) else declaration.where
    if isinstance(where, NearestNeighbours):
        yield declaration
        return
    parts = list(conjuncts(where))
    if isinstance(declaration, DerivedRelation) and len(parts) == 1:
        yield declaration  # the definition is already a union
        return
    scope = NameScope(spec, declaration.parameters, where)
    for k, part in enumerate(parts):
        if isinstance(part, e.Connective) and part.operator == "or":
            others = parts[:k] + parts[k + 1 :]
            names = names_in(part) & ({*scope.binders} | set().union(*(names_in(p) for p in others)))
            shared = [name for name in scope.type_names if name in names]
            if _should_extract(part, others, set(shared)):
                relation_name = _unused_name(f"{declaration.name}, or {k + 1}", used_names)
                parameters = tuple(Parameter(name, scope.type_names[name]) for name in shared)
                yield DerivedRelation(relation_name, parameters, _with_order(part, others, set(shared)), span=part.span)
                parts[k] = e.Atom(relation_name, tuple(e.Name(name) for name in shared), span=part.span)
    if isinstance(declaration, DerivedRelation):
        yield replace(declaration, definition=conjunction(parts))
    else:
        yield replace(declaration, where=optional_conjunction(parts))


def _unused_name(name: str, used_names: set[str]) -> str:
    """Return a new name; a template may have the name of a relation, and DuckDB compares names of tables without case."""
    names = (name, *(f"{name} ({number})" for number in range(2, len(used_names) + 3)))
    unused = next(each for each in names if each.lower() not in used_names)
    used_names.add(unused.lower())
    return unused


def _should_extract(disjunction: e.Expression, others: list[e.Expression], shared: set[str]) -> bool:
    """Return True if every disjunct binds all names in `shared`, and no conjunct in `others` binds all of them."""
    if len(shared) < 2 or any(shared <= _bound_names(p) for p in others):
        return False
    return all(shared <= set().union(*(_bound_names(p) for p in conjuncts(case))) for case in disjuncts(disjunction))


def _with_order(disjunction: e.Expression, others: list[e.Expression], shared: set[str]) -> e.Expression:
    """Return the disjunction with the conditions in `others` that compare shared names, such as `a < b`, in each operand.

    The relation then contains only one of two symmetric tuples.
    """
    order = [p for p in others if isinstance(p, e.Comparison) and {p.left, p.right} <= {e.Name(n) for n in shared}]
    cases = [conjunction([case, *order]) for case in disjuncts(disjunction)]
    return e.disjunction(cases)


def _bound_names(node: e.Expression) -> set[str]:
    """Return the names that a condition binds: those in an atom, in a bag membership, or in an equality of two attributes."""
    is_equality = isinstance(node, e.Comparison) and node.operator == "==" and _attributes(node)
    return names_in(node) if is_equality or isinstance(node, e.Atom | e.Membership) else set()


def _attributes(comparison: e.Comparison) -> bool:
    return isinstance(comparison.left, e.Attribute) and isinstance(comparison.right, e.Attribute)
