"""Gaussian distributions on forests, in which links change neither the means nor the variances of their ends.

The density of standardised deviations u on a forest is that of Chow & Liu (1968),

    p(u) = prod_i p(u_i) prod_(a, b) p(u_a, u_b) / (p(u_a) p(u_b)),

with variances of 1 and the correlation r = (D - S) / (1 + D + S) for each link. D and S are the sums of the weights d and s of
its pairs, and r is the correlation of its ends in the distribution of `graph/numeric_graph.py` without other links. The precision
matrix is I + sum over links of [[r^2, -r], [-r, r^2]] / (1 - r^2). It has the form of `PairWeights`, with the weights

    (d - s) / (2 (1 + 2 S)) of the difference and (s - d) / (2 (1 + 2 D)) of the sum

for each pair, of which one is negative. The variances do not depend on the links that a structure contains, so that the weights
of one structure are also valid for another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.inference.gaussian import PairWeights


@dataclass(frozen=True, eq=False)
class LinkCorrelations:
    """The correlations of links in a forest; see the module.

    Args:
        pairs: The weights d and s.
        link: Index of the link of each pair, shape (n_pairs,).
        n_links: Number of links.
    """

    pairs: PairWeights
    link: np.ndarray
    n_links: int

    @cached_property
    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """D and S of each link, shape (n_links,) each."""
        difference, total = (
            np.bincount(self.link, weight, self.n_links) for weight in (self.pairs.difference, self.pairs.sum)
        )
        return difference, total

    @property
    def correlation(self) -> np.ndarray:
        """The correlation of the ends of each link, shape (n_links,)."""
        difference, total = self._sums
        return np.asarray((difference - total) / (1.0 + difference + total))

    @property
    def information(self) -> np.ndarray:
        """The mutual information of the ends of each link, -1/2 log(1 - r^2), in nats, shape (n_links,)."""
        difference, total = self._sums
        return np.asarray(np.log1p(difference + total) - 0.5 * (np.log1p(2.0 * difference) + np.log1p(2.0 * total)))

    @cached_property
    def forest_weights(self) -> PairWeights:
        """The precision matrix of the forest."""
        scale_difference, scale_sum = self._scales
        d, s = self.pairs.difference, self.pairs.sum
        return replace(self.pairs, difference=scale_difference * (d - s), sum=scale_sum * (s - d))

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        """The factors of d - s and of s - d in the weights of each pair, shape (n_pairs,) each."""
        difference, total = self._sums
        return (0.5 / (1.0 + 2.0 * total))[self.link], (0.5 / (1.0 + 2.0 * difference))[self.link]

    def gradient(self, by_difference: np.ndarray, by_sum: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of a function with respect to d and s, given those with respect to the forest's weights.

        The shapes of all arrays are (n_pairs,).
        """
        scale_difference, scale_sum = self._scales
        weights = self.forest_weights
        direct = scale_difference * by_difference - scale_sum * by_sum
        # The scale of the difference depends on S, and that of the sum on D.
        through_sum = np.bincount(self.link, 4.0 * by_difference * weights.difference * scale_difference, self.n_links)
        through_difference = np.bincount(self.link, 4.0 * by_sum * weights.sum * scale_sum, self.n_links)
        return direct - through_difference[self.link], -direct - through_sum[self.link]
