"""`forest.up` and `forest.down` where all nodes have the same few states, whose number is known when they are compiled.

Loops over 2 to 5 states are then written out, and nothing but products is left of them: half the time at k = 2, three
quarters at k = 5. Above that the loops of `forest.py` are as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import boolean, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.forest import BLOCK, FAST, FLAT, INDEX, LEAST, MOST, TABLES, U

GIVEN = (int32[::1], boolean[::1], INDEX, INDEX)


def _sweeps(k: int) -> tuple[Callable[..., Any], ...]:
    n_states = U(k)

    @kernel((*BLOCK, int64, *GIVEN, *TABLES), label=f"[{k}]", fastmath=FAST)
    def up(lo, hi, stop, first, origin, parent, parent_first, message_start, cell, tables, belief, message):
        message_base = message_start[first]
        log_scale = 0.0
        for v in range(lo, hi):
            p = parent[v]
            own = U(v - first) * n_states
            if p < 0:
                total = 0.0
                for x in range(n_states):
                    total += belief[own + x]
                if not (total > 0.0 and total < np.inf):
                    return log_scale, False
                log_scale += np.log(total)
                total = 1.0 / total
                for x in range(n_states):
                    belief[own + x] *= total
                continue
            above, out, c = U(p - first) * n_states, U(message_start[v] - message_base), U(cell[v] - origin)
            over_child = U(1) if parent_first[v] else n_states
            over_parent = n_states if parent_first[v] else U(1)
            for a in range(n_states):
                at = c
                total = 0.0
                for x in range(n_states):
                    total += tables[at] * belief[own + x]
                    at += over_child
                c += over_parent
                message[out + a] = total
            if p >= stop:
                continue
            high = 0.0
            low = 1e300
            for a in range(n_states):  # a loop of its own: within the other, its comparisons would become jumps
                total = belief[above + a] * message[out + a]
                belief[above + a] = total
                high = total if total > high else high
                low = total if total < low else low
            if high > MOST or low < LEAST:
                if not (high > 0.0 and high < np.inf):
                    return log_scale, False
                log_scale += np.log(high)
                for a in range(n_states):
                    belief[above + a] /= high
                    if belief[above + a] < LEAST and belief[above + a] > 0.0:
                        return log_scale, False
        return log_scale, True

    @kernel((*BLOCK, *GIVEN, *TABLES), label=f"[{k}]", fastmath=FAST)
    def down(lo, hi, first, origin, parent, parent_first, message_start, cell, tables, belief, message):
        message_base = message_start[first]
        for v in range(hi - 1, lo - 1, -1):
            p = parent[v]
            if p < 0:
                continue
            own, above = U(v - first) * n_states, U(p - first) * n_states
            ratio, c = U(message_start[v] - message_base), U(cell[v] - origin)
            for a in range(n_states):
                below = message[ratio + a]
                message[ratio + a] = belief[above + a] / below if below > 0.0 else 0.0
            over_child = U(1) if parent_first[v] else n_states
            over_parent = n_states if parent_first[v] else U(1)
            for x in range(n_states):
                at = c
                here = belief[own + x]
                total = 0.0
                for a in range(n_states):
                    joint = message[ratio + a] * tables[at] * here
                    tables[at] = joint
                    total += joint
                    at += over_parent
                belief[own + x] = total
                c += over_child

    @kernel((*BLOCK, *GIVEN, *TABLES, FLAT), label=f"[{k}]", fastmath=FAST)
    def down_shared(lo, hi, first, origin, parent, parent_first, message_start, cell, tables, belief, message, out):
        message_base = message_start[first]
        for v in range(hi - 1, lo - 1, -1):
            p = parent[v]
            if p < 0:
                continue
            own, above = U(v - first) * n_states, U(p - first) * n_states
            ratio, c = U(message_start[v] - message_base), U(cell[v] - origin)
            for a in range(n_states):
                below = message[ratio + a]
                message[ratio + a] = belief[above + a] / below if below > 0.0 else 0.0
            over_child = U(1) if parent_first[v] else n_states
            over_parent = n_states if parent_first[v] else U(1)
            for x in range(n_states):
                at = c
                here = belief[own + x]
                total = 0.0
                for a in range(n_states):
                    joint = message[ratio + a] * tables[at] * here
                    out[at] += joint
                    total += joint
                    at += over_parent
                belief[own + x] = total
                c += over_child

    return up, down, down_shared


SWEEPS = {k: _sweeps(k) for k in (2, 3, 4, 5)}
"""For each number of states that has kernels of its own, `up`, `down` and `down_shared`; for their arguments see `forest.py`."""
