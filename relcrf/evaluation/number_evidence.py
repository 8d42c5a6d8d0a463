"""Known numbers in explanations: their texts, and their evidence about discrete variables."""

from __future__ import annotations

import math

import numpy as np

from relcrf.backends.number_inference import JointPosterior
from relcrf.evaluation.contributions import Neighbour, NumberEvidence
from relcrf.graph.numeric_graph import numeric_slots
from relcrf.grounding.bindings import find_factors
from relcrf.grounding.grounding import Grounding

SIGNIFICANT_DIGITS, MAX_DECIMALS, MAX_WRITTEN = 3, 9, 1e12
"""Digits of a standard deviation, maximum number of decimals, and limit of the numbers written without an exponent."""


def number_format(scale: float) -> str:
    """Return the format, without a sign, with which a number of the size `scale` has three significant digits."""
    if not 0.0 < scale < math.inf:
        return ",.0f"
    decimals = max(SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(scale)), 0)
    return f",.{decimals}f" if decimals <= MAX_DECIMALS else f".{SIGNIFICANT_DIGITS - 1}e"


def format_number(value: float, scale: float, *, sign: bool = False) -> str:
    """Format a number with as many decimals as a standard deviation `scale` has for three significant digits."""
    plus = "+" if sign else ""
    if 0.0 < scale < 10.0 ** (SIGNIFICANT_DIGITS - 1 - MAX_DECIMALS) or abs(value) >= MAX_WRITTEN:
        return format(value, f"{plus}.{SIGNIFICANT_DIGITS + 1}g")
    return format(value, f"{plus}{number_format(scale)}")


def known_number(grounding: Grounding, posterior: JointPosterior, row: int) -> Neighbour:
    """Return a known number of a posterior with its value."""
    text = format_number(float(posterior.values[row]), float(posterior.scales[row]))
    return Neighbour(grounding.variable_name(int(posterior.numeric.variables[row])), text, 1.0, is_observed=True)


def number_evidence(grounding: Grounding, posterior: JointPosterior) -> NumberEvidence:
    """Return the evidence of known numbers about discrete variables."""
    graph, numeric = grounding.graph, posterior.numeric
    mixed = [
        (name, group, slots[0])
        for name, group in zip(grounding.group_names, graph.groups, strict=True)
        if len(slots := numeric_slots(graph, group)) == 1 and len(group.scope) > 1
    ]

    def describe(variable: int) -> tuple[str, Neighbour]:
        templates = [name for name, group, slot in mixed if len(find_factors(group.scope, slot, variable))]
        row = int(np.searchsorted(numeric.variables, variable))
        return ", ".join(dict.fromkeys(templates)), known_number(grounding, posterior, row)

    return NumberEvidence(tuple(numeric.variables[rows] for rows in posterior.evidence), describe)
