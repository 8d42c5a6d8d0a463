"""Detection of structure that repeats for every row of a table, so that only one row is grounded.

In propositional data (sensors, ratings, recipes), a relation `R(row, item)` has a variable for every pair of a row and an
item, and a template may connect the variables of each row in the same way. The factors of this template are the factors of one
row, repeated for every row. The factors of one row are grounded by the plan without the row argument. The variable `R(row,
item)` has the index `row * n_items + item` within its block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relcrf.data.bound_model import BoundModel
from relcrf.data.names import type_table
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
    """The repetition of a template's factors for each row of a table.

    Args:
        n_rows: number of rows of the table.
        strides: for each slot of the scope, the distance between the variables of adjacent rows.
        offset_limits: for each slot, an exclusive upper bound of the offset of a variable from the first variable of the row.
    """

    n_rows: int
    strides: tuple[int, ...]
    offset_limits: tuple[int, ...]


def reduce_to_one_row(
    bound: BoundModel, context: LoweringContext, lowered: LoweredTemplate
) -> tuple[LoweredTemplate, RowRepetition | None]:
    """Restrict a template to one row of a table if the factors repeat for all rows; otherwise return it unchanged."""
    relations: dict[str, str] = {}
    columns = {name: term for name, term, _ in lowered.plan.outputs}
    for name, term in zip(lowered.variables, lowered.terms, strict=True):
        column = columns[name]
        if not isinstance(term, Atom) or term.relation not in bound.product_relations or not isinstance(column, Column):
            return lowered, None
        relations[column.alias] = term.relation
    for type_name in sorted((*bound.sizes, *bound.domains), key=lambda type_name: -bound.size(type_name)):
        row_arguments = _find_row_arguments(lowered.plan, relations, context.spec, type_name)
        if row_arguments is not None:
            return _rewrite_for_one_row(bound, lowered, relations, row_arguments, bound.size(type_name))
    return lowered, None


def _find_row_arguments(
    plan: Plan, relations: Mapping[str, str], spec: ModelSpec, type_name: str
) -> dict[str, int] | None:
    """Return, for each scan of a random relation, the index of the argument that is the row; None if there is no row.

    The row is one argument of each scan. The plan equates these arguments with each other and with no other column, and neither
    filters nor outputs refer to the arguments.
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
    replacements: dict[Column, Term] = {}
    strides, offset_limits = [], []
    for alias, relation in relations.items():
        offset: Term | None = None
        radix, limit = 1, 1
        for k, parameter in reversed([*enumerate(_relation_parameters(bound.spec, relation))]):
            if k == row_arguments[alias]:
                strides.append(radix)
            else:
                table, key_column, _ = type_table(bound.spec, parameter.type_name)
                item = Column(f"{alias}_{k}", key_column)
                scans.append(Scan(table, item.alias))
                replacements[Column(alias, f"a{k}")] = item
                term = item if radix == 1 else Call("*", (item, Constant(radix)))
                offset = term if offset is None else Call("+", (offset, term))
                limit += (bound.size(parameter.type_name) - 1) * radix
            radix *= bound.size(parameter.type_name)
        replacements[Column(alias, "vid")] = Constant(0) if offset is None else offset
        offset_limits.append(limit)
    row_columns = {Column(alias, f"a{k}") for alias, k in row_arguments.items()}
    row_plan = Plan(
        tuple(scans),
        substitute_columns(tuple(pair for pair in plan.equalities if row_columns.isdisjoint(pair)), replacements),
        substitute_columns(plan.filters, replacements),
        substitute_columns(tuple(binding for binding in plan.bindings if binding[1] not in row_columns), replacements),
        plan.is_distinct,
        substitute_columns(plan.outputs, replacements),
    )
    return replace(lowered, plan=row_plan), RowRepetition(n_rows, tuple(strides), tuple(offset_limits))
