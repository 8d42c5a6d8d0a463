"""Solutions of linear equations with a sparse symmetric positive definite matrix and several multiples of the identity.

Source: Jegerlehner, Krylov space solvers for shifted linear systems (1996): the conjugate gradients of all shifts span the same
space, so that one multiplication with the matrix serves all of them.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel


@kernel((int64[::1], int32[::1], float64[::1], float64[::1], float64[::1], float64, int64, float64[:, ::1]))
def solve_shifted(row_start, column, value, right, shifts, tolerance, max_iterations, solution):
    """Solve (A + shift I) x = right for each shift.

    Args:
        row_start, column, value: the matrix A without its diagonal, in compressed rows with both directions of each entry. Its
            diagonal is 1.
        right: right-hand side, shape (n,).
        shifts: the shifts, ascending and at least 0, shape (n_shifts,).
        tolerance: maximum norm of the residual, relative to that of `right`.
        solution: output, shape (n_shifts, n).

    Returns:
        The number of iterations, and the relative residual of the first shift, the largest of all.
    """
    n, n_shifts = len(right), len(shifts)
    residual, direction, product = right.copy(), right.copy(), np.empty(n)
    directions = np.empty((n_shifts, n))
    for q in range(1, n_shifts):
        directions[q] = right
    solution[:] = 0.0
    # `ratio[q]` is the residual of shift q, divided by that of the first one; both are parallel.
    ratio, ratio_before = np.ones(n_shifts), np.ones(n_shifts)
    step_before, growth_before = 1.0, 0.0
    squares = 0.0
    for i in range(n):
        squares += right[i] * right[i]
    limit = tolerance * tolerance * squares
    squares_at_start = squares
    n_active, iteration = n_shifts, 0
    while squares > limit and iteration < max_iterations:
        curvature = 0.0
        for i in range(n):
            total = (1.0 + shifts[0]) * direction[i]
            for e in range(row_start[i], row_start[i + 1]):
                total += value[e] * direction[column[e]]
            product[i] = total
            curvature += total * direction[i]
        step = squares / curvature
        before, squares = squares, 0.0
        for i in range(n):
            solution[0, i] += step * direction[i]
            residual[i] -= step * product[i]
            squares += residual[i] * residual[i]
        growth = squares / before
        for i in range(n):
            direction[i] = residual[i] + growth * direction[i]
        while n_active > 1 and ratio[n_active - 1] * ratio[n_active - 1] * before <= limit:
            n_active -= 1
        for q in range(1, n_active):
            shift = shifts[q] - shifts[0]
            now, last = ratio[q], ratio_before[q]
            divisor = step_before * last * (1.0 + step * shift) + step * growth_before * (last - now)
            following = now * last * step_before / divisor
            own_step, own_growth = step * following / now, growth * (following / now) ** 2
            for i in range(n):
                solution[q, i] += own_step * directions[q, i]
                directions[q, i] = following * residual[i] + own_growth * directions[q, i]
            ratio[q], ratio_before[q] = following, now
        step_before, growth_before = step, growth
        iteration += 1
    return iteration, np.sqrt(squares / squares_at_start) if squares_at_start > 0.0 else 0.0
