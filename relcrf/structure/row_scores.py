"""Which pairs of states join a model of sparse rows next: contrastive feature induction without a table of all cells.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
equation 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from relcrf.graph.candidates import PairSpace
from relcrf.graph.triples import Space
from relcrf.kernels.induction import Sparse, top_products
from relcrf.learning.induced import Chosen
from relcrf.learning.rows import RowsLikelihood
from relcrf.structure.candidate_scores import AbstractScorer, Choice


@dataclass(frozen=True)
class RowScorer(AbstractScorer[RowsLikelihood]):
    """As `Scorer`; fast where most states are off in most rows, with a small error and a small signal there.

    Args:
        space: of the model.
        least_error, least_signal: what is no larger is left out.
    """

    space: PairSpace
    least_error: float
    least_signal: float

    @cached_property
    def _signals(self) -> Sparse:
        """Of each state, by row."""
        side, n_rows = self.space.first, self.space.n_samples
        share = np.diff(side.start) / n_rows
        signal = csr_array((1.0 - share[side.key], side.sample, side.start), shape=(side.n_keys, n_rows))
        signal.data[signal.data <= self.least_signal] = 0.0
        # States that are on so often that where they are off is a large signal, too.
        frequent = np.flatnonzero(share > self.least_signal)
        on = csr_array((np.ones(len(side.sample)), side.sample, side.start), shape=signal.shape)[frequent]
        off = csr_array((on.toarray() - 1.0) * share[frequent, None])
        place = csr_array(
            (np.ones(len(frequent)), (frequent, np.arange(len(frequent)))), shape=(side.n_keys, len(frequent))
        )
        signal = csr_array(signal + place @ off)
        signal.eliminate_zeros()
        signal.sort_indices()
        return Sparse(signal.indptr.astype(np.int64), signal.indices.astype(np.int32), signal.data)

    @cached_property
    def _signals_by_row(self) -> Sparse:
        return _turned(self._signals, self.space.n_samples)

    def best(
        self, model: RowsLikelihood, spaces: Sequence[Space], point: np.ndarray, least: Sequence[float], n: int
    ) -> Choice:
        errors = model.large_errors(point, self.least_error)
        by_row = _turned(errors, self.space.n_samples)
        known = model.chosen
        first, second, gradient = top_products(
            errors, self._signals, by_row, self._signals_by_row, int(self.space.relation), least[0], n + len(known)
        )
        width = model.n_base
        new = np.flatnonzero(~np.isin(first * width + second, known.first * width + known.second))[:n]
        return Choice(Chosen.of(np.stack((np.zeros_like(new), first[new], second[new]))), gradient[new])


def _turned(table: Sparse, n_columns: int) -> Sparse:
    """The transposed matrix."""
    turned = csr_array((table.value, table.column, table.start), shape=(len(table.start) - 1, n_columns)).tocsc()
    return Sparse(turned.indptr.astype(np.int64), turned.indices.astype(np.int32), turned.data)
