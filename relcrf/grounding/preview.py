"""Sizes of ground templates, computed without grounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.data.names import relation_table
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding import sql
from relcrf.grounding.candidate_split import split_candidates
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.entity_values import create_value_tables
from relcrf.grounding.estimate import (
    DEFAULT_BUDGET,
    PlanSize,
    budget_diagnostic,
    count_exact_size,
    estimate_size,
    resolve_size,
)
from relcrf.grounding.group_builder import count_group_bytes
from relcrf.grounding.hubs import describe_worst_hub
from relcrf.grounding.keys import count_keys, fixed_key_values
from relcrf.grounding.lower import LoweredTemplate, lower_template
from relcrf.grounding.patterns import count_patterns, is_agreement, require_pattern_memory, state_patterns
from relcrf.grounding.row_repetition import RowRepetition, reduce_to_one_row
from relcrf.grounding.variables import domain_values
from relcrf.model.expressions import Attribute
from relcrf.model.spec import Template
from relcrf.model.typing import NameScope

MAX_COUNTED_BINDINGS = 10_000_000
"""Maximum estimated number of rows of a join that is run to count its rows (about a second); `exact` lifts this limit."""


@dataclass(frozen=True)
class TemplatePlan:
    """The size of a ground template; see `relcrf plan`.

    Args:
        bindings: number of bindings.
        factors: number of factors.
        weights: number of weights that the template uses; several templates may share weights.
        bytes: memory for the factors, in bytes.
        is_exact: False if the numbers are upper bounds. If a template exceeds the budget, its join is not run, and all
            numbers except `bindings` are upper bounds.
        hub: description of the value with the most combinations of rows in the joins; empty without a join.
        is_candidate: True for candidates, which are not in the graph until structure learning selects them.
        cells: for candidates, the number of cells (see `candidates.py`), which are stored instead of factors.
        rows: number of table rows if the factors repeat for each row (see `row_repetition.py`), else 1; `bytes` is the
            memory for one row.
        table_cells: number of entries of the tables of the factors over two or more variables; the table of an agreement is
            a single number.
    """

    name: str
    bindings: int
    factors: int
    weights: int
    bytes: int
    is_exact: bool
    hub: str = ""
    is_candidate: bool = False
    cells: int = 0
    rows: int = 1
    table_cells: int = 0

    @property
    def stored_bindings(self) -> int:
        """The number of stored bindings: the bindings of a single row if the factors repeat for every row."""
        return self.bindings // max(self.rows, 1)  # a relation without entities has no rows


@reraises_plugin_errors
def plan_templates(bound: BoundModel, budget: int = DEFAULT_BUDGET, *, exact: bool = False) -> list[TemplatePlan]:
    """Return the size of each ground template without grounding; call `create_relation_tables` first.

    Templates over the budget are included with upper bounds and are not rejected.

    Args:
        exact: if True, count the rows of every join that may be within the budget, even if this takes long.
    """
    context, degrees = make_lowering_context(bound), DegreeCache(bound)
    create_value_tables(bound, context, [(template, template.by) for template in context.spec.templates], budget)
    reduced = [reduce_to_one_row(bound, context, lower_template(t, context)) for t in context.spec.templates]
    weight_groups: dict[str, list[LoweredTemplate]] = {}
    for lowered, _ in reduced:
        weight_groups.setdefault(lowered.template.weights, []).append(lowered)
    sizes = [_estimate_template(degrees, lowered, budget, exact=exact) for lowered, _ in reduced]
    return [
        _plan_template(degrees, lowered, repetition, size, weight_groups[lowered.template.weights], budget)
        for (lowered, repetition), size in zip(reduced, sizes, strict=True)
    ]


@reraises_plugin_errors
def budget_errors(bound: BoundModel, plans: Sequence[TemplatePlan], budget: int) -> list[Diagnostic]:
    """Return an error for each template that exceeds the budget, except candidates, which are not grounded."""
    context, degrees = make_lowering_context(bound), DegreeCache(bound)
    rejected = {row.name: row for row in plans if row.stored_bindings > budget and not row.is_candidate}
    diagnostics = []
    for template in context.spec.templates:
        if template.name in rejected:
            row = rejected[template.name]
            lowered, _ = reduce_to_one_row(bound, context, lower_template(template, context))
            size = PlanSize(row.stored_bindings, row.is_exact, row.stored_bindings)
            diagnostics.append(budget_diagnostic(degrees, lowered.plan, size, budget, row.name, template.span))
    return diagnostics


def _estimate_template(degrees: DegreeCache, lowered: LoweredTemplate, budget: int, *, exact: bool) -> PlanSize:
    connection = degrees.bound.connection
    size = estimate_size(degrees, lowered.plan)
    if size.bindings <= (budget if exact else min(budget, MAX_COUNTED_BINDINGS)):
        return count_exact_size(connection, lowered.plan, size)
    return resolve_size(connection, lowered.plan, size, budget)


def _plan_template(
    degrees: DegreeCache,
    lowered: LoweredTemplate,
    repetition: RowRepetition | None,
    size: PlanSize,
    weight_group: list[LoweredTemplate],
    budget: int,
) -> TemplatePlan:
    bound = degrees.bound
    values = [domain_values(bound, kind) for kind in lowered.term_types]
    require_pattern_memory(lowered, values, bound.dataset.store.working_bytes)
    is_small = size.is_exact and size.bindings <= MAX_COUNTED_BINDINGS
    n_keys = count_keys(bound, weight_group) if is_small else _max_keys(bound, lowered, size.bindings)
    weights = n_keys * max(1, len(lowered.features)) * count_patterns(lowered, values)
    if size.is_exact and size.bindings <= budget:
        groups = _count_groups(bound, lowered, size.bindings, values)
    else:
        groups = [(_max_factors(bound, lowered, size.bindings), size.bindings)]
    arity, width, has_keys = len(lowered.variables), len(lowered.features), bool(lowered.keys)
    n_bytes = sum(count_group_bytes(n_bindings, n, arity, width, has_keys=has_keys) for n, n_bindings in groups)
    rows = repetition.n_rows if repetition else 1
    n_factors = sum(n for n, _ in groups) * rows
    return TemplatePlan(
        lowered.template.name,
        size.bindings * rows,
        n_factors,
        weights,
        n_bytes + (4 * rows if repetition else 0),
        size.is_exact,
        describe_worst_hub(degrees, lowered.plan),
        lowered.template.is_candidate,
        _count_cells(degrees, lowered.template) if lowered.template.is_candidate else 0,
        rows,
        n_factors * (1 if is_agreement(lowered) else math.prod(map(len, values))) if arity > 1 else 0,
    )


def count_states(bound: BoundModel) -> tuple[int, int]:
    """Return the number of random variables and the sum of their numbers of states."""
    blocks = [
        (bound.sizes[entity.name], attribute.type)
        for entity in bound.spec.entities
        for attribute in entity.attributes
        if attribute.is_random
    ]
    blocks += [(bound.count_rows(relation_table(r.name)), r.type) for r in bound.spec.random_relations]
    return sum(n for n, _ in blocks), sum(n * len(domain_values(bound, kind)) for n, kind in blocks)


def _count_cells(degrees: DegreeCache, template: Template) -> int:
    """Count the cells of the literals of candidates, or return an upper bound; 0 if the declaration is invalid (E391)."""
    context = make_lowering_context(degrees.bound)
    try:
        literals = split_candidates(
            template, NameScope(context.spec, template.parameters, template.where)
        ).literal_templates
    except UsageError:
        return 0
    return sum(estimate_size(degrees, lower_template(literal, context).plan).bindings for literal in literals)


def _max_keys(bound: BoundModel, lowered: LoweredTemplate, bindings: int) -> int:
    """Return an upper bound of the number of keys."""
    key_values = [fixed_key_values(bound, key) for key in lowered.keys]
    n_combinations = math.prod(bindings if texts is None else len(texts) for texts in key_values)
    is_fixed = len(key_values) == 1 and key_values[0] is not None
    return n_combinations if is_fixed else min(n_combinations, max(bindings, 1))


def _max_factors(bound: BoundModel, lowered: LoweredTemplate, bindings: int) -> int:
    """Return an upper bound of the number of factors; an attribute of an entity has at most one unary factor per case."""
    (term, *others) = lowered.terms
    if others or lowered.evidence or not isinstance(term, Attribute):
        return bindings
    return min(bindings, bound.size(lowered.scope.type_names[term.binder]))


def _count_groups(
    bound: BoundModel, lowered: LoweredTemplate, bindings: int, values: Sequence[Sequence[str]]
) -> list[tuple[int, int]]:
    """Return the numbers of factors and bindings of each group of a template."""
    is_unary = len(lowered.variables) == 1
    if not lowered.evidence:
        patterns = None if lowered.is_table else state_patterns(lowered, values, {})
        if patterns is not None and patterns.min() == patterns.max():
            return []
        if not is_unary:
            return [(bindings, bindings)]
        ((n,),) = bound.connection.execute(sql.count_distinct(lowered.plan, ["v0"])).fetchall() if bindings else ((0,),)
        return [(int(n), bindings)]
    rows = bound.connection.execute(sql.count_by(lowered.plan, [name for _, name in lowered.evidence], "v0")).fetchall()
    groups = []
    for *codes, variables, n in rows:
        evidence = {
            node: -1 if code is None else int(code) for (node, _), code in zip(lowered.evidence, codes, strict=True)
        }
        patterns = state_patterns(lowered, values, evidence)
        if patterns is not None and patterns.min() < patterns.max():
            groups.append((int(variables) if is_unary else int(n), int(n)))
    return groups
