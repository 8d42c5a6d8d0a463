"""Shared code of induction.py and random_networks.py: rows of a random network, of which some states are predicted."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from support import ROOT

import relcrf
from relcrf import api

sys.path.insert(0, str(ROOT / "datasets"))
import sparse_networks

Figures = dict[str, Any]
TRUE_MODEL = sparse_networks.MODEL.split("candidates")[0] + (
    "relation Edge(s: State, t: State)\n"
    "template together(r: Row, s: State, t: State) where Edge(s, t) over on(r, s) and on(r, t) per s, t\n"
)
"""The model that has the pairs of a table as templates instead of candidates."""


def average_precision(truth: np.ndarray, probability: np.ndarray) -> float:
    """Return the average precision over all states of all variables, sorted by probability."""
    order = np.argsort(-np.concatenate((probability, 1.0 - probability)), kind="stable")
    relevant = np.concatenate((truth, ~truth))[order]
    precision = np.cumsum(relevant) / np.arange(1, len(relevant) + 1)
    return float(precision[relevant].mean())


def test_scores(fit: api.Fit, grounding: api.Grounding, hidden: np.ndarray) -> dict[str, float]:
    """Return error and AUC in percent, and the mean log-probability of the hidden states."""
    found = api.predict(fit, grounding, hidden=hidden)
    truth, probability = grounding.states[found.variables()] == 1, found.probabilities()[:, 1]
    likelihood = np.where(truth, probability, 1.0 - probability)
    return {
        "error": 100.0 * float(((probability > 0.5) != truth).mean()),
        "cll": float(np.log(np.maximum(likelihood, 1e-9)).mean()),
        "auc": 100.0 * average_precision(truth, probability),
    }


@dataclass(frozen=True)
class NetworkTask:
    """Rows of a random network, of which the last are test rows: a fifth of their states is predicted from the rest.

    Args:
        edges: The pairs of names of states that are connected.
        groundings: Groundings of the models `sparse_networks.MODEL` and `TRUE_MODEL`, by the text of the model.
        test, queried: Masks of the variables of test rows and of the predicted ones among these, shape (n_variables,).
    """

    edges: set[tuple[str, str]]
    groundings: Mapping[str, api.Grounding]
    test: np.ndarray
    queried: np.ndarray

    @classmethod
    def from_rows(
        cls, network: sparse_networks.SparseNetwork, on: np.ndarray, n_test: int, rng: np.random.Generator
    ) -> NetworkTask:
        """Build the task from rows, shape (n_rows, n_states)."""
        tables = sparse_networks.tables(on)
        names = np.unique(tables["on"]["state"])
        edges = {(names[s], names[t]) for s, t in network.edges}
        ends = [list(column) for column in zip(*sorted(edges), strict=True)]
        dataset = relcrf.Dataset({**tables, "edge": {"s": ends[0], "t": ends[1]}})
        groundings = {text: relcrf.parse(text).ground(dataset) for text in (sparse_networks.MODEL, TRUE_MODEL)}
        test = np.arange(on.size) // on.shape[1] >= len(on) - n_test
        return cls(edges, groundings, test, test & (rng.random(on.size) < 0.2))

    def measure(self, settings: Mapping[str, Any], text: str = sparse_networks.MODEL) -> tuple[api.Fit, Figures]:
        """Return a fit and its CPU seconds, numbers of features and of true features, and test scores."""
        started = time.process_time()
        fit = api.fit(relcrf.parse(text), self.groundings[text], hidden=self.test, **settings)
        seconds = time.process_time() - started
        info = next((t for t in fit.learned.templates if t.name == "together"), None)
        keys = set(info.keys.values) if info is not None and info.keys is not None else set()
        counts = {"features": len(keys), "true": len(keys & self.edges), "edges": len(self.edges)}
        counts["converged"] = fit.learned.converged
        return fit, {"seconds": seconds, **counts, **test_scores(fit, self.groundings[text], self.queried)}
