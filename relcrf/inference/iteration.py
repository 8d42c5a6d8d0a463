"""Rounds of an iterative method, until they change nothing, or there were enough, or Ctrl-C."""

from __future__ import annotations

import math
from collections.abc import Callable

from relcrf.inference.result import Observer, Verdict


def iterate(
    step: Callable[[int], float], tolerance: float, most: int, observe: Observer, at_a_time: int = 1
) -> Verdict:
    """Runs rounds.

    Ctrl-C ends them; what is there then is the result. So a step must leave its arrays whole, and last no longer
    than a person waits: give fewer rounds at a time where the graph is large.

    Args:
        step: runs so many rounds and returns the residual of the last; nan or inf where the method has diverged.
        tolerance: the residual at which it has converged.
        most: rounds, after which it has not.
        at_a_time: rounds that a step runs.
    """
    done, residual = 0, math.inf
    try:
        while done < most:
            rounds = min(at_a_time, most - done)
            residual = step(rounds)
            done += rounds
            if not math.isfinite(residual):
                return Verdict("diverged", done, residual)
            if residual <= tolerance:
                return Verdict("converged", done, residual)
            observe(Verdict("running", done, residual))
    except KeyboardInterrupt:
        return Verdict("interrupted", done, residual)
    return Verdict("not converged", done, residual)
