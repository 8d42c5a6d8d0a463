"""Statistics of the factors of each template in a training problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.backends.base import Problem
from relcrf.graph.labelled_factors import Homophily, count_seen_factors, measure_homophily
from relcrf.graph.numeric_graph import numeric_slots
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding


@dataclass(frozen=True)
class TemplateStatistics:
    """The factors of one template in a training problem.

    Args:
        name: Name of the template.
        factors: Number of factors.
        seen: Number of factors that training sees: a variable of the factor is a training target, and all others are
            targets, evidence or latent.
        is_relational: Whether a factor has at least two predicted variables.
        weights: Name of the template's weights, which several templates may share.
        is_learned: Whether the weights are learned, not fixed.
        homophily: The agreement of the labels of the two variables; None if the template is not over two variables of
            one domain, or without labels.
    """

    name: str
    factors: int
    seen: int
    is_relational: bool
    weights: str
    is_learned: bool
    homophily: Homophily | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a JSON object."""
        plain: dict[str, Any] = {"name": self.name, "factors": self.factors, "seen": self.seen}
        if self.homophily is not None:
            low, high = self.homophily.interval
            plain["homophily"] = {
                "pairs": self.homophily.pairs,
                "equal": self.homophily.fraction,
                "interval": [low, high],
                "by_chance": self.homophily.by_chance,
            }
        return plain


def template_statistics(grounding: Grounding, problem: Problem) -> tuple[TemplateStatistics, ...]:
    """Return the statistics of every template of a training problem, in the order of the model."""
    graph, domain = problem.graph, problem.graph.domains.number
    labels = np.where(problem.roles == Role.ABSENT, -1, problem.states)
    out = []
    for name in grounding.bindings:
        groups = grounding.groups(name)
        if not groups:
            continue
        block = graph.layout.blocks[groups[0].block]
        is_numeric = any(numeric_slots(grounding.graph, group) for group in groups)
        homophily = None if is_numeric else measure_homophily(groups, labels, domain)
        out.append(
            TemplateStatistics(
                name,
                factors=sum(group.n_factors for group in groups),
                seen=count_seen_factors(groups, problem.roles),
                is_relational=any(len(group.scope) > 1 for group in groups),
                weights=block.name,
                is_learned=not block.fixed,
                homophily=homophily if homophily is not None and homophily.pairs else None,
            )
        )
    return tuple(out)
