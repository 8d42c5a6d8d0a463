"""Which candidates join a model next: those along which the objective is steepest.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
equation 13; Grafting: Perkins, Lacker & Theiler (2003).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from relcrf.graph.candidates import PairSpace, Side
from relcrf.kernels.induction import Sparse, all_products, top_products
from relcrf.learning.induced import AbstractGrowing, AbstractInduced, Chosen


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


Growing = TypeVar("Growing", bound=AbstractGrowing)


class AbstractScorer(ABC, Generic[Growing]):
    """Finds the candidates that are not in a model and whose gradients are the largest."""

    @abstractmethod
    def best(
        self, model: Growing, spaces: Sequence[PairSpace], point: np.ndarray, least: Sequence[float], n: int
    ) -> Choice:
        """The `n` best candidates.

        Args:
            spaces: of the model.
            point: its weights.
            least: for each space what a gradient must be larger than.
        """


@dataclass(frozen=True)
class Scorer(AbstractScorer[AbstractInduced]):
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
    _kept: dict[tuple[int, int | None], tuple[np.ndarray, Sparse, Side]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def best(
        self,
        model: AbstractInduced,
        spaces: Sequence[PairSpace],
        point: np.ndarray,
        least: Sequence[float],
        n: int,
    ) -> Choice:
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
        (error, signal), (other_error, other_signal) = (
            (self._errors(side, errors, n_samples), self._signals(side, holds, n_samples))
            for side, n_samples in zip(sides, (None, space.n_samples), strict=True)
        )
        return top_products(error, signal, other_error, other_signal, relation, least, n)

    def _errors(self, side: Side, errors: np.ndarray, n_samples: int | None) -> Sparse:
        """The large errors of a side, by key, or by sample where their number is given."""
        cells = side if n_samples is None else side.by_sample
        return _large(cells, errors[cells.variable], self.least_error, n_samples)

    def _signals(self, side: Side, holds: np.ndarray, n_samples: int | None) -> Sparse:
        """The large signals of a side, likewise. Those of labels stay the same from round to round, and are kept."""
        known = self._kept.get((id(side), n_samples))
        if known is not None and known[0] is holds:
            return known[1]
        cells, means = side, key_means(side, holds[side.variable])
        key = side.key
        if n_samples is not None:
            cells = side.by_sample
            key = cells.sample
        found = _large(cells, holds[cells.variable] - means[key], self.least_signal, n_samples)
        self._kept[id(side), n_samples] = holds, found, side
        return found


def _table(side: Side, values: np.ndarray, n_samples: int) -> np.ndarray:
    """The cells of a side as a dense matrix, shape (n_samples, n_keys)."""
    out = np.zeros((n_samples, side.n_keys))
    out[side.sample, side.key] = values
    return out


def key_means(side: Side, values: np.ndarray) -> np.ndarray:
    """The mean of the values of each key's cells, shape (n_keys,)."""
    sizes = np.diff(side.start)
    totals = np.add.reduceat(np.append(values, values.dtype.type(0)), np.minimum(side.start[:-1], len(values)))
    means = np.divide(totals, sizes, where=sizes > 0, out=np.zeros(len(sizes)))
    return means.astype(values.dtype)


def _large(cells: Side, values: np.ndarray, least: float, n_rows: int | None) -> Sparse:
    """The cells with larger values than the least, as a matrix.

    Args:
        n_rows: how many rows it has at least; rows beyond the cells' are empty.
    """
    kept = np.abs(values) > least
    start = np.concatenate(([0], np.cumsum(kept)))[cells.start].astype(np.int64)
    if n_rows is not None:
        start = np.append(start, np.full(n_rows + 1 - len(start), start[-1]))
    return Sparse(start, cells.sample[kept], values[kept])
