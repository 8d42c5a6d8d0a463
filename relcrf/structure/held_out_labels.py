"""When to stop, by labels that learning does not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.learning.induced import AbstractGrowing, Chosen
from relcrf.learning.lbfgs import State


def judged_by_held_out(state: State, held: AbstractGrowing | None, patience: int) -> State:
    """With what held-out labels say: where patience is at its end, the state is the best there was.

    Args:
        state: with the candidates of its point as `chosen` among what it keeps. It comes to keep `best`, how probable the labels
            were at the most, `best_point` and `best_chosen`, the model under which they were, and `stalled`, rounds since.
        held: their likelihood; None where there are none.
        patience: rounds without progress.
    """
    if held is None:
        return state
    chosen = Chosen.of(state.kept["chosen"])
    value = -held.having(chosen)(state.point)[0]
    kept = dict(state.kept)
    if value > kept.get("best", -np.inf):
        kept |= {"best": np.array(value), "best_point": state.point, "best_chosen": chosen.rows}
        kept["stalled"] = np.array(0)
    else:
        kept["stalled"] = kept["stalled"] + 1
    if state.status == "running" and kept["stalled"] < patience:
        return replace(state, kept=kept)
    status = "stopped early" if state.status == "running" else state.status
    return replace(state, point=kept["best_point"], status=status, kept={**kept, "chosen": kept["best_chosen"]})
