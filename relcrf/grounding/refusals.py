"""What is said of a plan's templates that are over the budget, in the words of grounding itself."""

from __future__ import annotations

from collections.abc import Sequence

from relcrf.data.bound import Bound, telling_failures
from relcrf.errors import Diagnostic
from relcrf.grounding.degrees import Degrees
from relcrf.grounding.derive import facts_of
from relcrf.grounding.estimate import Size, over_budget
from relcrf.grounding.lower import lower_template
from relcrf.grounding.preview import TemplatePlan
from relcrf.grounding.repeated import on_one_row


@telling_failures
def refusals(bound: Bound, rows: Sequence[TemplatePlan], budget: int) -> list[Diagnostic]:
    """A diagnostic for each template that grounding would refuse; candidates are not grounded and may be larger."""
    facts, degrees = facts_of(bound), Degrees(bound)
    over = {row.name: row for row in rows if row.held > budget and not row.is_candidate}
    found = []
    for template in facts.spec.templates:
        if template.name in over:
            row = over[template.name]
            lowered, _ = on_one_row(bound, facts, lower_template(template, facts))
            size = Size(row.held, row.is_exact, row.held)
            found.append(over_budget(degrees, lowered.plan, size, budget, row.name, template.span))
    return found
