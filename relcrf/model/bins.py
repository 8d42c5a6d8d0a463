"""The function `bin`, which converts a number to the index of an interval between constant thresholds."""

from __future__ import annotations

from itertools import pairwise

from relcrf.model import expressions as e
from relcrf.model.literals import number_value


def bin_labels(node: e.Expression) -> tuple[str, ...]:
    """Return the names of the intervals of a valid call of `bin`, such as `0.5 to 0.9`; no names for other expressions."""
    if not isinstance(node, e.FunctionCall) or node.name != "bin":
        return ()
    limits = [str(number_value(argument)) for argument in node.arguments[1:]]
    between = (f"{low} to {high}" for low, high in pairwise(limits))
    return (f"below {limits[0]}", *between, f"{limits[-1]} or more")


def invalid_threshold(node: e.FunctionCall) -> tuple[str, e.Expression] | None:
    """Return the first threshold of a call of `bin` that is not a number above the one before it, with the error message."""
    below: float | None = None
    for argument in node.arguments[1:]:
        threshold = number_value(argument)
        if threshold is None:
            return "a threshold of 'bin' is not a number", argument
        if below is not None and threshold <= below:
            return "the thresholds of 'bin' do not increase", argument
        below = threshold
    return None
