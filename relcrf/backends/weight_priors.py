"""Gaussian priors of weights that a backend's settings choose: their means and their precisions (the L2 strengths)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from relcrf.graph.adjacency import iter_expanded_scopes
from relcrf.graph.agreement_prior import critical_agreement, estimate_agreement
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.feature_scales import column_scales, ordinary_values, scale_key
from relcrf.graph.features import Keyed, Ones
from relcrf.graph.weights import WeightLayout
from relcrf.kernels.distinct import distinct

CRITICAL_L2 = 30.0
"""L2 strength that keeps weights near the critical one: neither labels nor features determine it."""


def with_weight_priors(graph: FactorGraph, unary_l2: float, agreement: float) -> FactorGraph:
    """Return the graph with other priors for the weights whose templates declare none.

    Args:
        unary_l2: L2 strength of the weights of factors over one variable, relative to the mean squared norm of a
            variable's features in the template; 0 leaves it to the backend's `l2`.
        agreement: Mean of the weights of agreement: of the patterns that are nonzero only if two variables of one
            domain have the same state, and of features that are constant; 0 changes nothing.
    """
    blocks = list(graph.layout.blocks)
    for number, block in enumerate(blocks):
        groups = [group for group in graph.groups if group.block == number]
        if block.fixed or not groups:
            continue
        if unary_l2 and block.l2 is None and all(len(group.scope) == 1 for group in groups):
            blocks[number] = replace(block, l2=unary_l2 * mean_squared_norm(groups))
        elif agreement and not np.any(block.initial) and (patterns := agreement_patterns(graph, groups)) is not None:
            blocks[number] = replace(block, initial=tuple(np.where(patterns, agreement, 0.0).tolist()))
    return replace(graph, layout=WeightLayout(tuple(blocks)))


def agreement_patterns(graph: FactorGraph, groups: Sequence[FactorGroup]) -> np.ndarray | None:
    """Return a mask of the patterns of agreement, shape (n_patterns,), bool; None if a template has no such pattern.

    Args:
        groups: The groups that share a weight block.
    """
    masks = []
    for group in groups:
        if len(group.scope) != 2 or group.cardinalities[0] != group.cardinalities[1] or not _is_constant(group):
            return None
        domain = graph.domains.number
        if any((domain[first] != domain[second]).any() for first, second in iter_expanded_scopes(group)):
            return None
        k = group.cardinalities[0]
        differs = ~np.eye(k, dtype=bool).ravel()
        masks.append(np.eye(k, dtype=bool).ravel() if group.patterns is None else ~group.patterns[differs].any(axis=0))
    mask = np.logical_and.reduce(masks)
    return mask if mask.any() else None


def agreement_templates(graph: FactorGraph) -> dict[int, list[FactorGroup]]:
    """Return the groups of each template whose weights of agreement cover all states, by block.

    Templates with fixed weights or a declared prior mean are omitted.
    """
    by_block: dict[int, list[FactorGroup]] = {}
    for group in graph.groups:
        by_block.setdefault(group.block, []).append(group)
    found = {}
    for number, groups in sorted(by_block.items()):
        block, patterns = graph.layout.blocks[number], agreement_patterns(graph, groups)
        if block.fixed or np.any(block.initial) or patterns is None:
            continue
        if all(group.is_agreement or patterns.sum() == group.cardinalities[0] for group in groups):
            found[number] = groups
    return found


def agreement_settings(graph: FactorGraph, labels: np.ndarray) -> tuple[dict[str, float], ...]:
    """Return values of the settings `agreement` and `l2` that are worth a comparison if few labels are linked.

    They are half the critical weight of the graph, the critical weight, and the estimate from labels or features; twice the
    critical weight replaces an estimate that is missing or not positive. Far below the critical weight, belief propagation
    cannot predict one state for all variables; the estimate is better if many labels or features determine the states.

    Args:
        labels: State of each labelled variable, and -1 for other variables, shape (n_variables,).
    """
    templates = agreement_templates(graph)
    if not templates:
        return ()
    priors = list(estimate_agreement(graph, templates, labels).values())
    groups = [group for each in templates.values() for group in each]
    critical = critical_agreement(groups, graph.n_variables)
    settings = [{"agreement": factor * critical, "l2": CRITICAL_L2} for factor in (0.5, 1.0, 2.0)]
    strengths = [prior.l2 for prior in priors]
    mean = float(np.average([prior.mean for prior in priors], weights=strengths)) if priors else 0.0
    if mean > 0.0:
        settings[-1] = {"agreement": mean, "l2": min(strengths)}
    return tuple(settings)


def mean_squared_norm(groups: Sequence[FactorGroup]) -> float:
    """Return the mean over variables of the sum of squared features, for groups over one variable; 1 if it is 0.

    Extreme values (see `graph/feature_scales.py`) count as ordinary ones.
    """
    total, scales = 0.0, column_scales(groups)
    for group in groups:
        squares = np.zeros((group.features.n_features, 1))
        n_rows = 1 if group.features.rows_are_equal else group.n_factors
        ordinary = ordinary_values(group.features, scales[scale_key(group)])
        ordinary.squared().accumulate(np.ones((n_rows, 1)), slice(0, group.n_factors), squares)
        total += float(squares.sum()) * (group.n_factors if group.features.rows_are_equal else 1)
    n_variables = len(distinct(np.concatenate([group.scope[0] for group in groups])))
    return total / max(n_variables, 1) or 1.0


def with_scaled_l2(graph: FactorGraph, factor: float) -> FactorGraph:
    """Return the graph with each declared L2 strength multiplied by a factor."""
    blocks = (block if block.l2 is None else replace(block, l2=factor * block.l2) for block in graph.layout.blocks)
    return replace(graph, layout=WeightLayout(tuple(blocks)))


def unary_blocks(graph: FactorGraph) -> set[int]:
    """Return the indices of the weight blocks that a factor over one variable uses."""
    return {group.block for group in graph.groups if len(group.scope) == 1}


def unary_weight_mask(graph: FactorGraph, latent: np.ndarray) -> np.ndarray:
    """Return a mask of the weights in `unary_blocks` that no factor over one latent variable uses.

    Args:
        latent: Mask of the latent variables, shape (n_variables,), bool.

    Returns:
        Shape (layout.size,), bool.
    """
    unary = unary_blocks(graph)
    unary -= {group.block for group in graph.groups if len(group.scope) == 1 and latent[group.scope[0]].any()}
    sizes = [block.size for block in graph.layout.blocks]
    return np.repeat([number in unary for number in range(len(sizes))], sizes).astype(bool)


def _is_constant(group: FactorGroup) -> bool:
    """Return True if each factor's only feature is 1; a factor may have a key."""
    features = group.features
    if isinstance(features, Ones):
        return features.n_features == 1
    return isinstance(features, Keyed) and not len(features.values)
