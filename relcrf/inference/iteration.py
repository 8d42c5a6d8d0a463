"""The loop of iterative methods, which ends at convergence, at a maximum number of rounds, or at Ctrl-C."""

from __future__ import annotations

import math
from collections.abc import Callable

from relcrf.inference.result import Observer, Verdict


def iterate(
    step: Callable[[int], float], tolerance: float, max_iterations: int, observe: Observer, rounds_per_step: int = 1
) -> Verdict:
    """Run rounds until convergence.

    Ctrl-C stops the loop, and the current state is the result. Each step must therefore be short and leave all arrays
    consistent; use fewer rounds per step for large graphs.

    Args:
        step: Function that runs a given number of rounds and returns the last residual, which is nan or inf after divergence.
        tolerance: Residual at which the method has converged.
        max_iterations: Maximum number of rounds.
        observe: Callback that receives a verdict after each step.
        rounds_per_step: Number of rounds per step.
    """
    n_rounds, residual = 0, math.inf
    try:
        while n_rounds < max_iterations:
            rounds = min(rounds_per_step, max_iterations - n_rounds)
            residual = step(rounds)
            n_rounds += rounds
            if not math.isfinite(residual):
                return Verdict("diverged", n_rounds, residual)
            if residual <= tolerance:
                return Verdict("converged", n_rounds, residual)
            observe(Verdict("running", n_rounds, residual))
    except KeyboardInterrupt:
        return Verdict("interrupted", n_rounds, residual)
    return Verdict("not converged", n_rounds, residual)
