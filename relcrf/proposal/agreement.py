"""Priors of the agreement weights of proposed templates, estimated from the labels and the features of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relcrf.backends.weight_priors import agreement_templates
from relcrf.graph.agreement_prior import AgreementPrior, critical_agreement, estimate_agreement
from relcrf.grounding.grounding import Grounding
from relcrf.proposal.templates import ProposedTemplate

MIN_PAIRS_PER_WEIGHT = 3
"""Minimum number of labelled pairs per weight of a table; with fewer pairs, one weight for equal labels replaces it."""

FEATURES_LIMIT = 0.5
"""Maximum mean, relative to the critical weight, if few labels are linked. With five labels per topic of a block model, the
critical weight already leads to the prediction of one topic."""


def with_agreement_priors(templates: Sequence[ProposedTemplate], grounding: Grounding) -> list[ProposedTemplate]:
    """Return the templates with a declared prior (`init`, `l2`) for those with one weight for equal labels.

    The mean is the estimate, but at most the critical weight of the graph: with few labels, inference with a larger weight
    would predict one value for all entities. The variance decreases by the same factor, so that many labelled pairs are
    needed to increase the weight.

    Args:
        grounding: The ground graph of the active templates.
    """
    graph = grounding.graph
    by_block = agreement_templates(graph)
    priors = estimate_agreement(graph, by_block, grounding.states)
    chosen: dict[str, tuple[int, ProposedTemplate]] = {}
    for template in templates:
        number = next((k for k in priors if template.is_active and graph.layout.blocks[k].name == template.name), None)
        if number is None:
            continue
        block = graph.layout.blocks[number]
        if block.n_patterns == 1:
            chosen[template.name] = number, template
        elif template.equality is not None and priors[number].pairs < MIN_PAIRS_PER_WEIGHT * block.size:
            chosen[template.name] = number, template.equality
    if not chosen:
        return list(templates)
    groups = [group for number, _ in chosen.values() for group in by_block[number]]
    limit = critical_agreement(groups, graph.n_variables)
    return [
        _with_prior(chosen[p.name][1], priors[chosen[p.name][0]], limit) if p.name in chosen else p for p in templates
    ]


def _with_prior(template: ProposedTemplate, prior: AgreementPrior, limit: float) -> ProposedTemplate:
    """Return the template with the prior as its clauses `init` and `l2`, and with a comment that explains them."""
    source = "the features of linked pairs" if prior.from_features else f"{prior.pairs:,} labelled pairs"
    equal = f"{prior.fraction:.0%} equal, {prior.by_chance:.0%} by chance"
    comment = f"{template.comment}; prior from {source}: {equal}"
    limit *= FEATURES_LIMIT if prior.from_features else 1.0
    scale = min(1.0, limit / prior.mean) if prior.mean > 0.0 else 1.0
    mean = round(scale * prior.mean, 2) + 0.0  # no negative zero
    strength = float(f"{prior.l2 / scale:.2g}")
    clauses = f"\n    init {mean:g}\n    l2 {strength:g}"
    return replace(template, comment=comment, text=template.text + clauses)
