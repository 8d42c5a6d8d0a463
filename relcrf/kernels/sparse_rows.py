"""Conditionals of binary states in rows of which few are on: only rows in which a state or a partner of it is on are looked at.

In all other rows a state has the conditional of its bias, and so they are counted and not visited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int32, int64, types

from relcrf.kernels.compile import kernel, read_only

U = np.uint64
"""Indices without a sign; see `forest.py`."""

ONE = U(1)


class Rows(NamedTuple):
    """Where states are on, and their partners.

    Args:
        start, row: the rows in which each state is on, ascending: int64 of shape (n_states + 1,), int32.
        incident: where each state's partners begin, shape (n_states + 1,), int64.
        partner, weight: of each its state, int32, and the weight of both being on.
    """

    start: np.ndarray
    row: np.ndarray
    incident: np.ndarray
    partner: np.ndarray
    weight: np.ndarray


INDEX, SHORT, FLAT = int64[::1], int32[::1], float64[::1]
ROWS = types.NamedTuple([read_only(a) for a in (INDEX, SHORT, INDEX, SHORT, FLAT)], Rows)


@kernel(error_model="numpy")
def _touch(rows, state, score, touched, own):
    """Adds up what the partners of a state say in each row.

    Args:
        score: by row; nan in rows that are not touched, before and after (see `_leave`).
        touched: overwritten: the rows in which the state or a partner is on.
        own: by row; set where the state is on.

    Returns:
        how many rows are touched.
    """
    n = 0
    for entry in range(U(rows.start[state]), U(rows.start[state + ONE])):
        z = U(rows.row[entry])
        score[z], own[z], touched[n] = 0.0, 1.0, rows.row[entry]
        n += 1
    for at in range(U(rows.incident[state]), U(rows.incident[state + ONE])):
        other, weight = U(rows.partner[at]), rows.weight[at]
        for entry in range(U(rows.start[other]), U(rows.start[other + ONE])):
            z = U(rows.row[entry])
            if np.isnan(score[z]):
                score[z], touched[n] = weight, rows.row[entry]
                n += 1
            else:
                score[z] += weight
    return n


@kernel(error_model="numpy")
def _leave(n, score, touched, own):
    for i in range(n):
        score[U(touched[i])], own[U(touched[i])] = np.nan, 0.0


@kernel(error_model="numpy")
def _probability(score):
    small = np.exp(-abs(score))
    return (1.0 if score >= 0.0 else small) / (1.0 + small)


@kernel(error_model="numpy")
def _log_partition(score):
    return max(score, 0.0) + np.log1p(np.exp(-abs(score)))


@kernel((ROWS, FLAT, int64, int64, int64, FLAT, FLAT, FLAT), error_model="numpy")
def value_and_gradient(rows, bias, n_rows, lo, hi, value, of_bias, of_incident):
    """Minus the log-probability of the states lo..hi-1 in all rows, each given all others.

    Args:
        bias: shape (n_states,).
        value, of_bias: overwritten from lo to hi - 1, shape (n_states,).
        of_incident: overwritten for their partners: of the value by the weight, as far as it acts on this state.
    """
    score, own = np.full(n_rows, np.nan), np.zeros(n_rows)
    touched = np.empty(n_rows, dtype=np.int32)
    for state in range(U(lo), U(hi)):
        b, n = bias[state], _touch(rows, state, score, touched, own)
        error = (n_rows - n) * _probability(b)
        loss = (n_rows - n) * _log_partition(b)
        for i in range(n):
            z = U(touched[i])
            s, x = b + score[z], own[z]
            loss += _log_partition(s) - x * s
            score[z] = _probability(s) - x
            error += score[z]
        value[state], of_bias[state] = loss, error
        for at in range(U(rows.incident[state]), U(rows.incident[state + ONE])):
            other, total = U(rows.partner[at]), 0.0
            for entry in range(U(rows.start[other]), U(rows.start[other + ONE])):
                total += score[U(rows.row[entry])]
            of_incident[at] = total
        _leave(n, score, touched, own)


@kernel((ROWS, FLAT, int64, float64, int64, int64, INDEX, SHORT, FLAT), error_model="numpy")
def large_errors(rows, bias, n_rows, least, lo, hi, place, row, error):
    """The errors, probability less whether it is on, of the states lo..hi-1 that are larger than the least.

    Those of rows that are not touched are one number a state, so that all of them are large or none.

    Args:
        place: of each state where its errors begin, which is moved behind them, shape (n_states,).
        row, error: overwritten there; where they are empty, errors are only counted.
    """
    score, own = np.full(n_rows, np.nan), np.zeros(n_rows)
    touched = np.empty(n_rows, dtype=np.int32)
    for state in range(U(lo), U(hi)):
        n = _touch(rows, state, score, touched, own)
        if _probability(bias[state]) > least:
            for other in range(n_rows):
                if np.isnan(score[U(other)]):
                    score[U(other)], touched[n] = 0.0, other
                    n += 1
        touched[:n].sort()
        at = place[state]
        for i in range(n):
            z = U(touched[i])
            e = _probability(bias[state] + score[z]) - own[z]
            if abs(e) > least:
                if len(row):
                    row[U(at)], error[U(at)] = touched[i], e
                at += 1
        place[state] = at
        _leave(n, score, touched, own)
