"""Learning with candidates that join the model a few at a time.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
section 3; Perkins, Lacker & Theiler, Grafting (2003).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from relcrf.graph.triples import Space
from relcrf.learning.induced import Chosen
from relcrf.learning.lbfgs import Objective, State
from relcrf.learning.likelihood import penalised
from relcrf.learning.owlqn import Owlqn
from relcrf.learning.proximal import Proximal
from relcrf.structure.candidate_scores import AbstractScorer, Growing
from relcrf.structure.held_out_labels import judged_by_held_out


@dataclass(frozen=True)
class Strengths:
    """Penalties: of each weight of the base, shape (n_base,), and of the candidates of each space.

    Args:
        learned: which weights of the base learning may move, bool.
    """

    base_l1: np.ndarray
    base_l2: np.ndarray
    learned: np.ndarray
    l1: Sequence[float]
    l2: Sequence[float]

    def of(self, chosen: Chosen) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """L1, L2 and which are learned, of all weights of a model, shape (n_base + n_chosen,)."""
        l1, l2 = (np.asarray(each, dtype=np.float64)[chosen.space] for each in (self.l1, self.l2))
        return (
            np.concatenate((np.where(self.learned, self.base_l1, 0.0), l1)),
            np.concatenate((self.base_l2, l2)),
            np.concatenate((self.learned, np.ones(len(chosen), dtype=bool))),
        )


@dataclass(frozen=True)
class Induction(Generic[Growing]):
    """Rounds of choosing candidates and of moving the weights.

    The optimiser's state keeps what a run needs to go on: `chosen`, the candidates of the last weights; `settled`, whether
    none was left when it was last asked for; and what `judged_by_held_out` keeps.

    Args:
        model: with nothing chosen.
        spaces: of it.
        batch: how many candidates join in a round; None chooses no more than there are to begin with.
        steps: iterations of the optimiser in a round.
        patience: see `judged_by_held_out`.
    """

    model: Growing
    spaces: tuple[Space, ...]
    scorer: AbstractScorer[Growing]
    strengths: Strengths
    batch: int | None = 50
    steps: int = 1
    patience: int = 5
    tolerance: float = 1e-4
    max_iterations: int = 500

    def begin(self, point: np.ndarray, chosen: Chosen) -> State:
        """Before the first round, at weights of the base and of what is chosen already."""
        optimiser, objective = self._problem(chosen)
        kept = {"chosen": chosen.rows, "settled": np.array(self.batch is None)}
        return replace(optimiser.start(objective, point), kept=kept)

    def run(self, state: State, observe: Callable[[State], None] = lambda state: None) -> State:
        """Goes on to the end; `observe` sees the state after each round."""
        while state.status == "running":
            state = judged_by_held_out(self._round(state), self.model.held_out(), self.patience)
            observe(state)
        return state

    def _round(self, state: State) -> State:
        """Chooses, unless none was left, and moves the weights; at the minimum it looks for candidates once more."""
        chosen, settled = Chosen.of(state.kept["chosen"]), bool(state.kept["settled"])
        if not settled:
            more = self._choice(state, chosen)
            settled, chosen = not len(more), chosen.joined(more)
        optimiser, objective = self._problem(chosen)
        if len(state.point) < self.model.n_base + len(chosen):
            point = np.concatenate((state.point, np.zeros(self.model.n_base + len(chosen) - len(state.point))))
            grown = optimiser.grown(state, objective, point)
            state = replace(grown, iteration=state.iteration, evaluations=state.evaluations + 1, kept=state.kept)
        for _ in range(self.steps):
            if state.status == "running":
                state = optimiser.step(objective, state)
        if state.status == "converged" and not (settled and self.batch is None):
            # At this minimum others may have become worth their penalty.
            settled = not len(self._choice(state, chosen))
            state = replace(state, status="converged" if settled else "running")
        return replace(state, kept={**state.kept, "chosen": chosen.rows, "settled": np.array(settled)})

    def _choice(self, state: State, chosen: Chosen) -> Chosen:
        assert self.batch is not None
        found = self.scorer.best(self.model.having(chosen), self.spaces, state.point, self.strengths.l1, self.batch)
        return found.candidates

    def _problem(self, chosen: Chosen) -> tuple[Owlqn | Proximal, Objective]:
        model = self.model.having(chosen)
        l1, l2, learned = self.strengths.of(chosen)
        if not model.exact_gradient:
            return Proximal(self.tolerance, self.max_iterations, l1=l1), penalised(model, l2, learned)
        diagonal = np.sqrt(model.curvature() + l2)
        inverse = 1.0 / np.maximum(diagonal, 1e-6 * diagonal.max(initial=1e-300))
        optimiser = Owlqn(self.tolerance, max_iterations=self.max_iterations, inverse_diagonal=inverse, l1=l1)
        return optimiser, penalised(model, l2, learned)
