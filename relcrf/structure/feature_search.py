"""Grafting of single features: the rival of edge grafting, without groups.

Source: Perkins, Lacker & Theiler, Grafting (2003).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from relcrf.learning.group_lasso import Groups
from relcrf.learning.induced import Chosen
from relcrf.learning.lbfgs import State
from relcrf.structure.edge_search import EdgeSearch
from relcrf.structure.edge_tests import EdgeTests


@dataclass(frozen=True, eq=False)
class FeatureSearch(EdgeSearch):
    """Rounds in which single weights of edges join: those with the largest gradients of all that have not joined.

    The penalty is `l1 |weight|`. An edge is chosen with the first of its weights; `open`, which the state keeps besides, tells
    which weights of the chosen edges have joined.

    Args:
        activation: its kind does not matter; None lets nothing join.
        most: how many weights join in a round.
    """

    def begin(self, point: np.ndarray, chosen: Chosen, seconds: float = 0.0) -> State:
        state = super().begin(point, chosen, seconds)
        return replace(state, kept={**state.kept, "open": np.ones(int(self._sizes(chosen).sum()), dtype=bool)})

    def _activated(self, state: State, late: Callable[[], bool], *, surely: bool) -> State:
        chosen, opened = Chosen.of(state.kept["chosen"]), state.kept["open"]
        tests = self._tests(state, late, surely=surely)
        least = 1.0 + self.tolerance if surely else 1.0
        sizes = self._sizes(chosen)
        closed = np.flatnonzero(~opened)
        closed_ratio = (np.abs(state.gradient[self.model.n_base :]) / np.repeat(self._l1(chosen), sizes))[closed]
        number, weight, ratio, n_tests = self._best(tests, least)
        every = np.concatenate((closed_ratio, ratio))
        best = np.argsort(-every, kind="stable")[: self.most]
        best = best[every[best] > least]
        old, new = closed[best[best < len(closed)]], best[best >= len(closed)] - len(closed)
        pairs, of_new = np.unique(number[new], return_inverse=True)
        more = self.numbers.chosen(pairs)
        start = self.weight_start(more)
        joined = np.zeros(int(start[-1]), dtype=bool)
        joined[start[of_new] + weight[new]] = True
        kept_open = np.concatenate((opened, joined))
        kept_open[old] = True
        kept = {
            **state.kept,
            "tests": state.kept["tests"] + n_tests,
            "settled": np.array(not len(best) and not tests.late()),
            "open": kept_open,
        }
        return self._grown(replace(state, kept=kept), pairs, tests)

    def _best(self, tests: EdgeTests, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Of edges that are not chosen the best weights: the edge's number, the weight's in it, the ratio; and how many edges."""
        numbers, weights, ratios, n_tests = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0), 0
        for pairs in tests.every():
            place, weight, ratio = tests.weight_ratios(pairs)
            n_tests += len(pairs)
            passing = ratio > least
            numbers = np.concatenate((numbers, pairs[place[passing]]))
            weights, ratios = np.concatenate((weights, weight[passing])), np.concatenate((ratios, ratio[passing]))
            order = np.argsort(-ratios, kind="stable")[: self.most]
            numbers, weights, ratios = numbers[order], weights[order], ratios[order]
        return numbers, weights, ratios, n_tests

    def _groups(self, kept: Mapping[str, np.ndarray]) -> Groups:
        """Each weight by itself; those that have not joined stay 0."""
        chosen = Chosen.of(kept["chosen"])
        l1 = np.repeat(self._l1(chosen), self._sizes(chosen))
        # Those that are chosen when a search begins have joined with all that they have.
        strength = np.where(kept["open"], l1, np.inf) if "open" in kept else l1
        every = np.concatenate((self._base_l1, strength))
        return Groups(np.arange(len(every) + 1), every)
