"""Rounds of an iterative method, until they change nothing, or there were enough, or Ctrl-C."""

from __future__ import annotations

import math
from collections.abc import Callable

from relcrf.inference.result import Observer, Verdict


def iterate(
    step: Callable[[int], float], tolerance: float, max_iterations: int, observe: Observer, rounds_per_step: int = 1
) -> Verdict:
    """Runs rounds.

    Ctrl-C ends them; what is there then is the result. So a step must leave its arrays whole, and last no longer
    than a person waits: give fewer rounds at a time where the graph is large.

    Args:
        step: runs so many rounds and returns the residual of the last; nan or inf where the method has diverged.
        tolerance: the residual at which it has converged.
        max_iterations: rounds, after which it has not.
        rounds_per_step: rounds that a step runs.
    """
    done, residual = 0, math.inf
    try:
        while done < max_iterations:
            rounds = min(rounds_per_step, max_iterations - done)
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
