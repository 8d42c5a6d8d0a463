"""Thresholds of match probabilities, from the costs of the two kinds of errors."""

from __future__ import annotations

import math

import numpy as np

from relcrf.errors import Diagnostic, UsageError

COST_NAMES = ("fn", "fp")
"""Names of the costs: of a false negative (a separated match), and of a false positive (a joined non-match)."""


def cost_threshold(false_negative: float, false_positive: float) -> float:
    """Return the probability above which joining two records has a lower expected cost than separating them.

    Joining costs `false_positive` with probability 1 - p, and separating costs `false_negative` with probability p.

    Args:
        false_negative: Cost of two matching records in different clusters; positive.
        false_positive: Cost of two records in one cluster that do not match; positive.

    Raises:
        UsageError: A cost is not a positive finite number (E443).
    """
    ratio = false_negative / false_positive if false_positive > 0 else math.nan
    if not (0 < ratio < math.inf and false_negative < math.inf):
        message = f"the costs fn={false_negative:g} and fp={false_positive:g} are not positive finite numbers"
        raise UsageError(Diagnostic("E443", message, hint="use two positive numbers, e.g. fn=10,fp=1"))
    return 1.0 / (1.0 + ratio)


def parse_costs(text: str) -> float:
    """Return the threshold of costs such as `fn=10,fp=1`; see `cost_threshold`. For errors see `read_costs`."""
    return cost_threshold(*read_costs(text))


def read_costs(text: str) -> tuple[float, float]:
    """Return the costs of a false negative and of a false positive from a text such as `fn=10,fp=1`.

    Raises:
        UsageError: The text does not have this form, or a cost is not a positive finite number (E443).
    """
    pairs = [part.partition("=") for part in text.split(",")]
    costs = {name.strip(): value for name, _, value in pairs}
    try:
        if len(pairs) != len(COST_NAMES) or set(costs) != set(COST_NAMES):
            raise ValueError
        false_negative, false_positive = (float(costs[name]) for name in COST_NAMES)
    except ValueError:
        message = f"the costs '{text}' are not of the form fn=COST,fp=COST"
        raise UsageError(Diagnostic("E443", message, hint="use two positive numbers, e.g. fn=10,fp=1")) from None
    cost_threshold(false_negative, false_positive)
    return false_negative, false_positive


def log_odds(probability: float, name: str) -> float:
    """Return the log-odds of a probability, in nats.

    Args:
        name: Name of the probability, for the message.

    Raises:
        UsageError: The probability is not strictly between 0 and 1 (E444).
    """
    if not 0.0 < probability < 1.0:
        message = f"the {name} {probability:g} is not between 0 and 1"
        raise UsageError(Diagnostic("E444", message, hint=f"use a {name} above 0 and below 1, e.g. 0.5"))
    # The same expression as for pairs: the weight of a pair at the threshold is exactly 0.
    return float(np.log(probability) - np.log1p(-probability))
