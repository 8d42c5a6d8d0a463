"""What each template will ground into, counted and not grounded."""

from __future__ import annotations

from dataclasses import dataclass

from relcrf.data.bound import Bound
from relcrf.grounding import sql
from relcrf.grounding.derive import facts_of
from relcrf.grounding.estimate import DEFAULT_BUDGET, Size, measure
from relcrf.grounding.keys import count_keys
from relcrf.grounding.lower import LoweredTemplate, lower_template
from relcrf.grounding.patterns import pattern_count, state_patterns
from relcrf.grounding.rows import unary_bytes
from relcrf.grounding.variables import values_of


@dataclass(frozen=True)
class TemplatePlan:
    """What a template will ground into; see `relcrf plan`.

    Args:
        weights: how many it uses; templates may share them.
        is_candidate: not a part of the model until a structure learner chooses from it.
    """

    name: str
    bindings: int
    factors: int
    weights: int
    bytes: int
    is_exact: bool
    is_candidate: bool = False


def plan(bound: Bound, budget: int = DEFAULT_BUDGET) -> list[TemplatePlan]:
    """What each template will ground into, without grounding it. Derived and random relations must be there (`prepare`).

    Templates over the budget are told with what is known, and not refused.
    """
    facts = facts_of(bound)
    lowered = [lower_template(template, facts) for template in facts.spec.templates]
    sharing: dict[str, list[LoweredTemplate]] = {}
    for one in lowered:
        sharing.setdefault(one.template.weights, []).append(one)
    return [
        _plan_one(bound, one, measure(bound.connection, one.plan, budget), sharing[one.template.weights])
        for one in lowered
    ]


def _plan_one(bound: Bound, lowered: LoweredTemplate, size: Size, sharing: list[LoweredTemplate]) -> TemplatePlan:
    values = [values_of(bound, kind) for kind in lowered.kinds]
    width = max(1, len(lowered.features))
    n_keys = count_keys(bound, sharing) if size.is_exact else 0
    weights = n_keys * width * pattern_count(lowered, values)
    factors, n_bytes = 0, 0
    parts = _parts(bound, lowered, size.bindings, values) if size.is_exact else [(size.bindings, size.bindings)]
    for variables, n in parts:
        factors += variables
        if len(lowered.variables) > 1:
            n_bytes += 4 * len(lowered.variables) * n + (4 * n if lowered.keys else 0) + 8 * len(lowered.features) * n
        else:
            has = {"has_keys": bool(lowered.keys), "has_values": bool(lowered.features)}
            n_bytes += unary_bytes(n, variables, width, **has)
    template = lowered.template
    return TemplatePlan(
        template.name, size.bindings, factors, weights, n_bytes, size.is_exact, is_candidate=template.is_candidate
    )


def _parts(
    bound: Bound, lowered: LoweredTemplate, bindings: int, values: list[tuple[str, ...]]
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
