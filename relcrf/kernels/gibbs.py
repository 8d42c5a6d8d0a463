"""Gibbs sampling and coordinate ascent on flat factor tables of any arity."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def conditional(  # type: ignore[no-untyped-def]
    variable, states, cardinality, touch_start, touch, factor_start, scope, stride, table_start, tables, out
):
    """Unnormalised log conditional of a variable given all others, into out[:cardinality].

    Args:
        touch_start, touch: the factors that touch each variable, as CSR; a factor once for each variable.
        factor_start, scope, stride: the variables of each factor and their strides in its table, as CSR.
        table_start, tables: where each factor's table begins; log potentials.
    """
    n = cardinality[variable]
    for x in range(n):
        out[x] = 0.0
    for t in range(touch_start[variable], touch_start[variable + 1]):
        f = touch[t]
        cell = table_start[f]
        step = 0
        for p in range(factor_start[f], factor_start[f + 1]):
            if scope[p] == variable:
                step += stride[p]
            else:
                cell += states[scope[p]] * stride[p]
        for x in range(n):
            out[x] += tables[cell + x * step]


@njit(cache=True, nogil=True)
def sweeps(  # type: ignore[no-untyped-def]
    n_sweeps, uniform, order, states, cardinality, largest, touch_start, touch,
    factor_start, scope, stride, table_start, tables, mass_start, mass,
):  # fmt: skip
    """Samples every variable of `order` in turn, `n_sweeps` times, and adds its conditionals to `mass`.

    Args:
        uniform: random numbers in [0, 1), shape (n_sweeps, n).
        states: of all variables; changed.
        mass_start: where each variable of `order` has its states in `mass`, shape (n,).
    """
    out = np.empty(largest)
    for s in range(n_sweeps):
        for k in range(len(order)):
            v = order[k]
            conditional(
                v, states, cardinality, touch_start, touch, factor_start, scope, stride, table_start, tables, out
            )
            n = cardinality[v]
            top = -np.inf
            for x in range(n):
                top = max(top, out[x])
            total = 0.0
            for x in range(n):
                out[x] = np.exp(out[x] - top)
                total += out[x]
            left = uniform[s, k] * total
            chosen = n - 1
            for x in range(n):
                mass[mass_start[k] + x] += out[x] / total
                if left >= 0.0:
                    left -= out[x]
                    if left < 0.0:
                        chosen = x
            states[v] = chosen


@njit(cache=True, nogil=True)
def ascend(  # type: ignore[no-untyped-def]
    most, order, states, cardinality, largest, touch_start, touch, factor_start, scope, stride, table_start, tables
):
    """Sets each variable to its best state given the others until none changes (iterated conditional modes)."""
    out = np.empty(largest)
    for _ in range(most):
        changed = False
        for k in range(len(order)):
            v = order[k]
            conditional(
                v, states, cardinality, touch_start, touch, factor_start, scope, stride, table_start, tables, out
            )
            best = states[v]
            for x in range(cardinality[v]):
                if out[x] > out[best]:
                    best = x
            if best != states[v]:
                states[v] = best
                changed = True
        if not changed:
            break
