"""Structure that is the same for every row of a table: found in a plan, so that one row is grounded and not all.

In propositional data (sensors, ratings, recipes) a relation `R(row, item)` has a variable for every pair of a row and an
item, and a template joins variables of one row whatever row it is. Its factors are rows x patterns: the patterns come
from the plan without the row, and variable `(row, item)` is `row * n_items + item`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relcrf.data.bound import Bound
from relcrf.data.names import sort_table
from relcrf.grounding.lower import Facts, LoweredTemplate
from relcrf.grounding.plan import Call, Column, Constant, Plan, Scan, Term, column_classes, columns_in, substituted
from relcrf.model.expressions import Atom
from relcrf.model.spec import ModelSpec, Parameter


@dataclass(frozen=True)
class Repeated:
    """A table whose rows all have the same factors.

    Args:
        strides: for each place of the scope, how many variables lie between those of two rows.
        counts: for each place, more than any offset from the first variable of the row.
    """

    n_rows: int
    strides: tuple[int, ...]
    counts: tuple[int, ...]


def on_one_row(bound: Bound, facts: Facts, lowered: LoweredTemplate) -> tuple[LoweredTemplate, Repeated | None]:
    """Return a template on one row of a table whose rows all have the same factors; as it is where there is no such table."""
    atoms: dict[str, str] = {}
    columns = {name: term for name, term, _ in lowered.plan.outputs}
    for name, term in zip(lowered.variables, lowered.terms, strict=True):
        column = columns[name]
        if not isinstance(term, Atom) or term.relation not in bound.products or not isinstance(column, Column):
            return lowered, None
        atoms[column.alias] = term.relation
    for sort in sorted((*bound.sizes, *bound.domains), key=lambda sort: -bound.size(sort)):
        rows = _row_columns(lowered.plan, atoms, facts.spec, sort)
        if rows is not None:
            return _on_one_row(bound, lowered, atoms, rows, bound.size(sort))
    return lowered, None


def _row_columns(plan: Plan, atoms: Mapping[str, str], spec: ModelSpec, sort: str) -> dict[str, int] | None:
    """For each scan of a random relation, which of its arguments is the row; None where there is none that fits.

    The row is one argument of each scan, all equal to each other and to nothing else, of which nothing else speaks.
    """
    arguments = {
        Column(alias, f"a{k}")
        for alias, name in atoms.items()
        for k, parameter in enumerate(_parameters(spec, name))
        if parameter.sort == sort
    }
    free = arguments - columns_in((plan.filters, tuple(term for _, term, _ in plan.outputs)))
    classes = column_classes(plan)
    joined = set().union(*classes) if classes else set()
    for members in (*classes, *([{c} for c in sorted(free - joined, key=str)] if len(atoms) == 1 else [])):
        aliases = [c.alias for c in members]
        if members <= free and sorted(aliases) == sorted(atoms):
            return {c.alias: int(c.name[1:]) for c in members}
    return None


def _parameters(spec: ModelSpec, relation: str) -> tuple[Parameter, ...]:
    declared = spec.relation(relation)
    assert declared is not None
    return declared.parameters


def _on_one_row(
    bound: Bound, lowered: LoweredTemplate, atoms: Mapping[str, str], rows: Mapping[str, int], n_rows: int
) -> tuple[LoweredTemplate, Repeated]:
    plan = lowered.plan
    scans = [s for s in plan.scans if s.alias not in atoms]
    terms_of: dict[Column, Term] = {}
    strides, counts = [], []
    for alias, relation in atoms.items():
        offset: Term | None = None
        radix, count = 1, 1
        for k, parameter in reversed([*enumerate(_parameters(bound.spec, relation))]):
            if k == rows[alias]:
                strides.append(radix)
            else:
                table, number, _ = sort_table(bound.spec, parameter.sort)
                item = Column(f"{alias}_{k}", number)
                scans.append(Scan(table, item.alias))
                terms_of[Column(alias, f"a{k}")] = item
                term = item if radix == 1 else Call("*", (item, Constant(radix)))
                offset = term if offset is None else Call("+", (offset, term))
                count += (bound.size(parameter.sort) - 1) * radix
            radix *= bound.size(parameter.sort)
        terms_of[Column(alias, "vid")] = Constant(0) if offset is None else offset
        counts.append(count)
    row_columns = {Column(alias, f"a{k}") for alias, k in rows.items()}
    on_row = Plan(
        tuple(scans),
        substituted(tuple(pair for pair in plan.equalities if row_columns.isdisjoint(pair)), terms_of),
        substituted(plan.filters, terms_of),
        substituted(tuple(binding for binding in plan.bindings if binding[1] not in row_columns), terms_of),
        plan.is_distinct,
        substituted(plan.outputs, terms_of),
    )
    return replace(lowered, plan=on_row), Repeated(n_rows, tuple(strides), tuple(counts))
