"""Which candidates join a model next: those along which the objective is steepest.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
equation 13; Grafting: Perkins, Lacker & Theiler (2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.graph.candidates import PairSpace, Side
from relcrf.kernels.induction import Sparse, all_products, top_products
from relcrf.learning.induced import AbstractInduced, Chosen


@dataclass(frozen=True)
class Choice:
    """Candidates that are not in the model, by the size of their gradients, the largest first.

    Args:
        gradient: of each, shape (n,).
    """

    candidates: Chosen
    gradient: np.ndarray

    def first(self, n: int) -> Choice:
        return Choice(self.candidates.only(np.arange(len(self.gradient)) < n), self.gradient[:n])


@dataclass(frozen=True)
class Scorer:
    """Gradients of candidates from the errors and the signals of literals.

    A literal's error is its probability less whether it holds; its signal is whether it holds, less how often it does among the
    samples of its key. The gradient of a pair is `sum over samples of signal_A error_B + error_A signal_B` where the errors
    of each key add up to 0, as they do once the weights of single literals have converged without a penalty. So only
    samples count in which one literal has a large error and the other a large signal, and the rest is left out.

    Args:
        least_error, least_signal: what is no larger is left out. With both 0 nothing is, and gradients are exact.
        exhaustive: as dense products, all that there are; thresholds do not act.
    """

    least_error: float = 0.0
    least_signal: float = 0.0
    exhaustive: bool = False

    def best(
        self,
        model: AbstractInduced,
        spaces: Sequence[PairSpace],
        point: np.ndarray,
        least: Sequence[float],
        n: int,
    ) -> Choice:
        """The `n` best candidates.

        Args:
            spaces: of the model.
            point: its weights.
            least: for each space what a gradient must be larger than.
        """
        errors, holds = model.errors_and_signals(point)
        found, gradients = [], []
        for number, (space, sides) in enumerate(zip(spaces, model.sides, strict=True)):
            known = model.chosen.pairs(model.chosen.places(number))
            first, second, gradient = self._of_space(space, sides, errors, holds, least[number], n + len(known))
            width = space.second.n_keys
            new = ~np.isin(first * width + second, known[:, 0] * width + known[:, 1])
            found.append(np.stack((np.full(int(new.sum()), number), first[new], second[new])))
            gradients.append(gradient[new])
        rows = np.concatenate([np.empty((3, 0), dtype=np.int64), *found], axis=1)
        gradient = np.concatenate([np.empty(0), *gradients])
        order = np.lexsort((*rows[::-1], -np.abs(gradient)))[:n]
        return Choice(Chosen.of(rows[:, order]), gradient[order])

    def _of_space(
        self,
        space: PairSpace,
        sides: tuple[Side, Side],
        errors: np.ndarray,
        holds: np.ndarray,
        least: float,
        n: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The keys of the best candidates of a space, those in the model among them, and their gradients."""
        relation = int(space.relation)
        if self.exhaustive:
            a, b, c, d = (
                _table(side, values[side.variable], space.n_samples) for side in sides for values in (errors, holds)
            )
            return all_products(a, b, c, d, relation, least, n)
        error, signal = self._entries(sides[0], errors, holds, None)
        other_error, other_signal = self._entries(sides[1], errors, holds, space.n_samples)
        return top_products(error, signal, other_error, other_signal, relation, least, n)

    def _entries(
        self, side: Side, errors: np.ndarray, holds: np.ndarray, n_samples: int | None
    ) -> tuple[Sparse, Sparse]:
        """The large errors and the large signals of a side, by key, or by sample where their number is given."""
        error, held = errors[side.variable], holds[side.variable]
        signal = held - _key_means(side, held)
        return (
            _matrix(side, error, np.abs(error) > self.least_error, n_samples),
            _matrix(side, signal, np.abs(signal) > self.least_signal, n_samples),
        )


def _table(side: Side, values: np.ndarray, n_samples: int) -> np.ndarray:
    """The cells of a side as a dense matrix, shape (n_samples, n_keys)."""
    out = np.zeros((n_samples, side.n_keys))
    out[side.sample, side.key] = values
    return out


def _key_means(side: Side, values: np.ndarray) -> np.ndarray:
    """For each cell the mean of the values of its key, shape (n_cells,)."""
    sizes = np.diff(side.start)
    totals = np.add.reduceat(np.append(values, values.dtype.type(0)), np.minimum(side.start[:-1], len(values)))
    means = np.divide(totals, sizes, where=sizes > 0, out=np.zeros(len(sizes)))
    return np.repeat(means.astype(values.dtype), sizes)


def _matrix(side: Side, values: np.ndarray, kept: np.ndarray, n_samples: int | None) -> Sparse:
    """Some cells of a side as a matrix by key, or by sample where their number is given."""
    if n_samples is None:
        start = np.concatenate(([0], np.cumsum(kept)))[side.start]
        return Sparse(start.astype(np.int64), side.sample[kept], values[kept])
    sample = side.sample[kept]
    order = np.argsort(sample, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(sample, minlength=n_samples), dtype=np.int64)))
    return Sparse(start, side.key[kept][order], values[kept][order])
