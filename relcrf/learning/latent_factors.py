"""Latent factors of Boolean tensors: a complex vector for each entity and each slot predicts the entries.

The log-odds of entry (s, i, j) are `bias_s + Re(sum_k u_ik w_sk conj(v_jk))` with complex vectors u of the entities i, v of
the entities j, and w of the *slots* s, such as the kinds of relations. If i and j are entities of one type, u and v are
equal. The vectors minimise the negative log-likelihood of the known entries plus an L2 penalty.

Source: Trouillon, Welbl, Riedel, Gaussier & Bouchard, Complex embeddings for simple link prediction (2016), equations 9 to
11. Deviations: a bias for each slot, all entries instead of sampled false ones, and L-BFGS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from relcrf.learning.lbfgs import Lbfgs, initial_state

INITIAL_SCALE = 0.3
"""Standard deviation of the initial vectors; at 0, all gradients of the vectors would be 0."""


@dataclass(frozen=True, eq=False)
class LatentFactorObjective:
    """The penalised negative log-likelihood of the known entries of a Boolean tensor.

    Args:
        truth: Entries, 0 or 1, shape (n_slots, n_first, n_second), float32.
        known: 1 for the entries of known value, otherwise 0, of the same shape, float32.
        is_shared: True if the first and the second entities are the same.
        rank: Number of complex components of each vector.
        l2: Strength of the L2 penalty on the vectors; biases have no penalty.
    """

    truth: np.ndarray
    known: np.ndarray
    is_shared: bool
    rank: int
    l2: float

    def initial_point(self, rng: np.random.Generator) -> np.ndarray:
        """Return random vectors, and biases that are the log-odds of the frequencies of true entries."""
        n_slots, n_first, n_second = self.truth.shape
        n_vectors = n_first + n_slots + (0 if self.is_shared else n_second)
        counts, totals = (self.truth * self.known).sum(axis=(1, 2)), self.known.sum(axis=(1, 2))
        frequency = (counts + 0.5) / (totals + 1.0)
        vectors = rng.normal(scale=INITIAL_SCALE, size=n_vectors * 2 * self.rank)
        return np.concatenate((vectors, np.log(frequency) - np.log1p(-frequency)))

    def scores(self, point: np.ndarray) -> np.ndarray:
        """Return the log-odds of all entries, shape (n_slots, n_first, n_second), float32."""
        first, second, slot, bias = self._unpack(point)
        out: np.ndarray = _multiply(first, slot[:, None]) @ second.T
        out += bias[:, None, None]
        return out

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient at a point."""
        first, second, slot, _ = self._unpack(point)
        scores = self.scores(point)
        losses = np.logaddexp(np.float32(0.0), scores) - self.truth * scores
        value = float(np.vdot(self.known, losses).real) if losses.size else 0.0
        residual = self.known * (expit(scores) - self.truth)
        # The product of residuals and second vectors is the gradient with respect to `first * slot`.
        outer = residual @ second
        gradient_first = _multiply(outer, _conjugate(slot)[:, None]).sum(axis=0)
        gradient_slot = _multiply(outer, _conjugate(first)).sum(axis=1)
        gradient_second = (residual.swapaxes(1, 2) @ _multiply(first, slot[:, None])).sum(axis=0)
        parts = [gradient_first + gradient_second] if self.is_shared else [gradient_first, gradient_second]
        gradient = np.concatenate([part.ravel() for part in (*parts, gradient_slot, residual.sum(axis=(1, 2)))]).astype(
            float
        )
        n_vectors = len(point) - len(self.truth)
        gradient[:n_vectors] += self.l2 * point[:n_vectors]
        return value + 0.5 * self.l2 * float(point[:n_vectors] @ point[:n_vectors]), gradient

    def _unpack(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the vectors of the first and second entities and of the slots (real parts, then imaginary), and biases."""
        n_slots, n_first, n_second = self.truth.shape
        n_entities = n_first if self.is_shared else n_first + n_second
        vectors = point[: len(point) - n_slots].astype(self.truth.dtype).reshape(-1, 2 * self.rank)
        second = vectors[:n_first] if self.is_shared else vectors[n_first:n_entities]
        return vectors[:n_first], second, vectors[n_entities:], point[len(point) - n_slots :].astype(self.truth.dtype)


def _multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of complex vectors, each stored as its real parts followed by its imaginary parts."""
    a, b = np.split(left, 2, axis=-1)
    c, d = np.split(right, 2, axis=-1)
    return np.concatenate((a * c - b * d, a * d + b * c), axis=-1)


def _conjugate(vectors: np.ndarray) -> np.ndarray:
    real, imaginary = np.split(vectors, 2, axis=-1)
    return np.concatenate((real, -imaginary), axis=-1)


L2_STRENGTHS = (1.0, 3.0, 9.0)
"""L2 strengths from which `LatentFactors` selects; with weaker penalties, the log-odds of unknown entries diverge."""


@dataclass(frozen=True)
class LatentFactors:
    """A learner of latent factors.

    Args:
        rank: Number of complex components of each vector.
        l2: Strength of the L2 penalty on the vectors. None selects one of `L2_STRENGTHS` by the loss of the first fold.
        folds: Number of folds of the known entries; an entry is scored by vectors learned from the other folds.
        max_iterations, tolerance: See `Lbfgs`.
        seed: Seed of the folds and of the initial vectors.
    """

    rank: int = 32
    l2: float | None = None
    folds: int = 5
    max_iterations: int = 200
    tolerance: float = 1e-3
    seed: int = 0

    def out_of_fold_scores(self, truth: np.ndarray, known: np.ndarray, *, is_shared: bool) -> np.ndarray:
        """Return the log-odds of all entries; the vectors that score a known entry are learned without this entry.

        Scores of known entries are therefore as accurate as those of unknown entries, and can be a feature of a model
        that is learned from the known entries. For the arguments, see `LatentFactorObjective`.
        """
        fold = np.random.default_rng(self.seed).integers(self.folds, size=truth.shape)
        in_fold = [(fold == number) & (known > 0) for number in range(self.folds)]

        def score_fold(number: int, l2: float) -> np.ndarray:
            scores = self._scores(truth, known * ~in_fold[number], l2, is_shared=is_shared)
            return np.asarray(scores[in_fold[number]])

        l2 = self.l2
        if l2 is None:
            labels = truth[in_fold[0]]
            losses = [_mean_loss(labels, score_fold(0, strength)) for strength in L2_STRENGTHS]
            l2 = L2_STRENGTHS[int(np.argmin(losses))]
        out = self._scores(truth, known, l2, is_shared=is_shared)
        for number in range(self.folds):
            out[in_fold[number]] = score_fold(number, l2)
        return out

    def _scores(self, truth: np.ndarray, known: np.ndarray, l2: float, *, is_shared: bool) -> np.ndarray:
        """Return the log-odds of all entries under vectors learned from the known entries."""
        objective = LatentFactorObjective(truth, known, is_shared, self.rank, l2)
        minimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        start = objective.initial_point(np.random.default_rng(self.seed))
        return objective.scores(minimiser.minimise(objective, initial_state(minimiser, objective, start)).point)


def _mean_loss(truth: np.ndarray, scores: np.ndarray) -> float:
    return float((np.logaddexp(0.0, scores.astype(float)) - truth * scores).mean())
