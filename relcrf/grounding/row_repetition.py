"""Structure that is the same for every row of a table: found in a plan, so that one row is grounded and not all.

In propositional data (sensors, ratings, recipes) a relation `R(row, item)` has a variable for every pair of a row and an
item, and a template joins variables of one row whatever row it is. Its factors are rows x patterns: the patterns come
from the plan without the row, and variable `(row, item)` is `row * n_items + item`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relcrf.data.bound_model import BoundModel
from relcrf.data.names import sort_table
from relcrf.grounding.lower import LoweredTemplate, LoweringContext
from relcrf.grounding.plan import (
    Call,
    Column,
    Constant,
    Plan,
    Scan,
    Term,
    equivalence_classes,
    find_columns,
    substitute_columns,
)
from relcrf.model.expressions import Atom
from relcrf.model.spec import ModelSpec, Parameter


@dataclass(frozen=True)
class RowRepetition:
    """A table whose rows all have the same factors.

    Args:
        strides: for each place of the scope, how many variables lie between those of two rows.
        offset_limits: for each place, more than any offset from the first variable of the row.
    """

    n_rows: int
    strides: tuple[int, ...]
    offset_limits: tuple[int, ...]


def reduce_to_one_row(
    bound: BoundModel, context: LoweringContext, lowered: LoweredTemplate
) -> tuple[LoweredTemplate, RowRepetition | None]:
    """Return a template on one row of a table whose rows all have the same factors; as it is where there is no such table."""
    atoms: dict[str, str] = {}
    columns = {name: term for name, term, _ in lowered.plan.outputs}
    for name, term in zip(lowered.variables, lowered.terms, strict=True):
        column = columns[name]
        if not isinstance(term, Atom) or term.relation not in bound.product_relations or not isinstance(column, Column):
            return lowered, None
        atoms[column.alias] = term.relation
    for sort in sorted((*bound.sizes, *bound.domains), key=lambda sort: -bound.size(sort)):
        rows = _find_row_arguments(lowered.plan, atoms, context.spec, sort)
        if rows is not None:
            return _rewrite_for_one_row(bound, lowered, atoms, rows, bound.size(sort))
    return lowered, None


def _find_row_arguments(
    plan: Plan, relations: Mapping[str, str], spec: ModelSpec, type_name: str
) -> dict[str, int] | None:
    """For each scan of a random relation, which of its arguments is the row; None where there is none that fits.

    The row is one argument of each scan, all equal to each other and to nothing else, of which nothing else speaks.
    """
    arguments = {
        Column(alias, f"a{k}")
        for alias, name in relations.items()
        for k, parameter in enumerate(_relation_parameters(spec, name))
        if parameter.type_name == type_name
    }
    free = arguments - find_columns((plan.filters, tuple(term for _, term, _ in plan.outputs)))
    classes = equivalence_classes(plan)
    joined = set().union(*classes) if classes else set()
    for members in (*classes, *([{c} for c in sorted(free - joined, key=str)] if len(relations) == 1 else [])):
        aliases = [c.alias for c in members]
        if members <= free and sorted(aliases) == sorted(relations):
            return {c.alias: int(c.name[1:]) for c in members}
    return None


def _relation_parameters(spec: ModelSpec, relation: str) -> tuple[Parameter, ...]:
    declared = spec.relation(relation)
    assert declared is not None
    return declared.parameters


def _rewrite_for_one_row(
    bound: BoundModel,
    lowered: LoweredTemplate,
    relations: Mapping[str, str],
    row_arguments: Mapping[str, int],
    n_rows: int,
) -> tuple[LoweredTemplate, RowRepetition]:
    plan = lowered.plan
    scans = [s for s in plan.scans if s.alias not in relations]
    terms_of: dict[Column, Term] = {}
    strides, counts = [], []
    for alias, relation in relations.items():
        offset: Term | None = None
        radix, count = 1, 1
        for k, parameter in reversed([*enumerate(_relation_parameters(bound.spec, relation))]):
            if k == row_arguments[alias]:
                strides.append(radix)
            else:
                table, number, _ = sort_table(bound.spec, parameter.type_name)
                item = Column(f"{alias}_{k}", number)
                scans.append(Scan(table, item.alias))
                terms_of[Column(alias, f"a{k}")] = item
                term = item if radix == 1 else Call("*", (item, Constant(radix)))
                offset = term if offset is None else Call("+", (offset, term))
                count += (bound.size(parameter.type_name) - 1) * radix
            radix *= bound.size(parameter.type_name)
        terms_of[Column(alias, "vid")] = Constant(0) if offset is None else offset
        counts.append(count)
    row_columns = {Column(alias, f"a{k}") for alias, k in row_arguments.items()}
    on_row = Plan(
        tuple(scans),
        substitute_columns(tuple(pair for pair in plan.equalities if row_columns.isdisjoint(pair)), terms_of),
        substitute_columns(plan.filters, terms_of),
        substitute_columns(tuple(binding for binding in plan.bindings if binding[1] not in row_columns), terms_of),
        plan.is_distinct,
        substitute_columns(plan.outputs, terms_of),
    )
    return replace(lowered, plan=on_row), RowRepetition(n_rows, tuple(strides), tuple(counts))
