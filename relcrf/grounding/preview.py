"""What each template will ground into, counted and not grounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding import sql
from relcrf.grounding.candidate_split import split_candidates
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
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
from relcrf.grounding.patterns import count_patterns, state_patterns
from relcrf.grounding.row_repetition import RowRepetition, reduce_to_one_row
from relcrf.grounding.variables import domain_values
from relcrf.model.spec import Template
from relcrf.model.typing import NameScope

MAX_COUNTED_BINDINGS = 10_000_000
"""Joins of at most so many rows are counted by running them, which takes a second; larger ones only where asked."""


@dataclass(frozen=True)
class TemplatePlan:
    """What a template will ground into; see `relcrf plan`.

    Args:
        weights: how many it uses; templates may share them.
        is_exact: whether the figures are exact, or bounds from above.
        hub: the value that its joins meet most often, as people read it; empty without a join.
        is_candidate: not a part of the model until a structure learner chooses from it.
        cells: of candidates, the literals that are held in the place of the factors: one for each key and sample.
        rows: where the factors are the same for every row of a table, its number of rows; `bytes` are those of one row.
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

    @property
    def stored_bindings(self) -> int:
        """The bindings that are held: those of one row where all rows are the same."""
        return self.bindings // self.rows


@reraises_plugin_errors
def plan_templates(bound: BoundModel, budget: int = DEFAULT_BUDGET, *, exact: bool = False) -> list[TemplatePlan]:
    """What each template will ground into, without grounding it. Derived and random relations must be there (`prepare`).

    Templates over the budget are told with what is known, and not refused.

    Args:
        exact: count every join that may be within the budget, however long that takes.
    """
    facts, degrees = make_lowering_context(bound), DegreeCache(bound)
    lowered = [reduce_to_one_row(bound, facts, lower_template(template, facts)) for template in facts.spec.templates]
    sharing: dict[str, list[LoweredTemplate]] = {}
    for one, _ in lowered:
        sharing.setdefault(one.template.weights, []).append(one)
    return [
        _plan_template(
            degrees, one, repeated, _estimate_template(degrees, one, budget, exact=exact), sharing[one.template.weights]
        )
        for one, repeated in lowered
    ]


@reraises_plugin_errors
def budget_errors(bound: BoundModel, plans: Sequence[TemplatePlan], budget: int) -> list[Diagnostic]:
    """Return the error of each template that grounding would reject; candidates are not grounded and may be larger."""
    facts, degrees = make_lowering_context(bound), DegreeCache(bound)
    over = {row.name: row for row in plans if row.stored_bindings > budget and not row.is_candidate}
    found = []
    for template in facts.spec.templates:
        if template.name in over:
            row = over[template.name]
            lowered, _ = reduce_to_one_row(bound, facts, lower_template(template, facts))
            size = PlanSize(row.stored_bindings, row.is_exact, row.stored_bindings)
            found.append(budget_diagnostic(degrees, lowered.plan, size, budget, row.name, template.span))
    return found


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
) -> TemplatePlan:
    bound = degrees.bound
    values = [domain_values(bound, kind) for kind in lowered.term_types]
    is_small = size.is_exact and size.bindings <= MAX_COUNTED_BINDINGS
    n_keys = count_keys(bound, weight_group) if is_small else _max_keys(bound, lowered, size.bindings)
    weights = n_keys * max(1, len(lowered.features)) * count_patterns(lowered, values)
    parts = _count_groups(bound, lowered, size.bindings, values) if size.is_exact else [(size.bindings, size.bindings)]
    arity, width, has_keys = len(lowered.variables), len(lowered.features), bool(lowered.keys)
    n_bytes = sum(count_group_bytes(n, variables, arity, width, has_keys=has_keys) for variables, n in parts)
    rows = repetition.n_rows if repetition else 1
    return TemplatePlan(
        lowered.template.name,
        size.bindings * rows,
        sum(variables for variables, _ in parts) * rows,
        weights,
        n_bytes + (4 * rows if repetition else 0),
        size.is_exact,
        describe_worst_hub(degrees, lowered.plan),
        lowered.template.is_candidate,
        _count_cells(degrees, lowered.template) if lowered.template.is_candidate else 0,
        rows,
    )


def _count_cells(degrees: DegreeCache, template: Template) -> int:
    """The cells of the sides of candidates, or a bound from above; 0 where no backend could choose from them (E391)."""
    facts = make_lowering_context(degrees.bound)
    try:
        sides = split_candidates(template, NameScope(facts.spec, template.parameters, template.where)).literal_templates
    except UsageError:
        return 0
    return sum(estimate_size(degrees, lower_template(side, facts).plan).bindings for side in sides)


def _max_keys(bound: BoundModel, lowered: LoweredTemplate, bindings: int) -> int:
    """No fewer than the keys that there will be."""
    known = [fixed_key_values(bound, key) for key in lowered.keys]
    most = math.prod(bindings if texts is None else len(texts) for texts in known)
    is_known = len(known) == 1 and known[0] is not None
    return most if is_known else min(most, max(bindings, 1))


def _count_groups(
    bound: BoundModel, lowered: LoweredTemplate, bindings: int, values: list[tuple[str, ...]]
) -> list[tuple[int, int]]:
    """The groups that a template grounds into: factors and bindings of each."""
    is_unary = len(lowered.variables) == 1
    if not lowered.evidence:
        patterns = None if lowered.is_table else state_patterns(lowered, values, {})
        if patterns is not None and patterns.min() == patterns.max():
            return []
        if not is_unary:
            return [(bindings, bindings)]
        ((n,),) = bound.connection.execute(sql.count_distinct(lowered.plan, ["v0"])).fetchall() if bindings else ((0,),)
        return [(int(n), bindings)]
    found = bound.connection.execute(
        sql.count_by(lowered.plan, [name for _, name in lowered.evidence], "v0")
    ).fetchall()
    parts = []
    for *codes, variables, n in found:
        assignment = {
            node: -1 if code is None else int(code) for (node, _), code in zip(lowered.evidence, codes, strict=True)
        }
        patterns = state_patterns(lowered, values, assignment)
        if patterns is not None and patterns.min() < patterns.max():
            parts.append((int(variables) if is_unary else int(n), int(n)))
    return parts
