"""Empirical risk of a few iterations of belief propagation with gates on factors, including the cost of messages.

The risk is the mean loss of the labelled variables' beliefs, plus the cost of a message times the number of messages
per query variable. The gradient of the risk, for the weights of factors and of gates, is computed exactly by
backpropagation through the iterations (`kernels.gated_pairs`).

The gate of a factor is open with probability p. In prediction, the factor is omitted if p is below a threshold and
otherwise raised to the power p. In training, the power is p s, and each message of the factor counts as s messages;
s = sigmoid(steepness (logit p - logit threshold)) is a soft indicator of p > threshold.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012), sections 3 and 4;
Stoyanov, Ropson & Eisner (2011).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from relcrf.columns.offsets import offsets
from relcrf.graph.gated_graph import GatedGraph
from relcrf.graph.gates import GateFeatures
from relcrf.kernels.gated_losses import BeliefLoss, cross_entropy_loss, linear_loss, squared_error_loss
from relcrf.kernels.gated_pairs import (
    GatedLayout,
    LossGradient,
    Precision,
    build_layout,
    compute_loss_gradient,
    propagate,
)

LOSSES = ("squared", "cross-entropy", "f")


class GateActivations(NamedTuple):
    """The exponent of each gated factor, and the fraction of the factor's messages that the cost includes.

    The prefix `d_` marks the derivative with respect to the log odds of the factor's gate.
    """

    exponent: np.ndarray
    message_fraction: np.ndarray
    d_exponent: np.ndarray
    d_message_fraction: np.ndarray


class PropagationResult(NamedTuple):
    """The result of inference with hard gates: a factor is either included or omitted.

    Args:
        beliefs: Belief of each state of each node, flat.
        n_messages: The number of messages sent.
        open_factors: Mask of the gated factors that were included, bool.
    """

    beliefs: np.ndarray
    n_messages: int
    open_factors: np.ndarray


@dataclass(frozen=True)
class RiskSettings:
    """The settings of a risk.

    Args:
        loss: `squared`: half the sum over states of (belief - truth)^2, where truth is 1 for the true state and 0 for
            other states. `cross-entropy`: minus the log belief of the true state. `f`: 1 minus the F measure of the
            beliefs of a batch. The F measure is that of state 1 for binary variables, and the mean of the F measures of
            all states for other variables.
        message_cost: Cost of one message; the mean loss is increased by this cost times the number of messages per
            query variable.
        iterations: Number of iterations of belief propagation.
        threshold: Probability threshold of the gates in training.
        has_gates: Whether factors have gates; otherwise all factors are included.
        real: Floating-point type of inference, if the kernels support this type.
    """

    loss: str = "squared"
    message_cost: float = 0.0
    iterations: int = 3
    threshold: float = 0.5
    has_gates: bool = True
    real: Precision = "float64"


@dataclass(frozen=True, eq=False)
class Risk:
    """The risk of some examples as a function of a point: the weights of factors, followed by the weights of gates.

    A folded factor has one free variable and a pair has two; see `GatedGraph`.

    Args:
        gates: The features of the gates of folded factors, followed by those of the gates of pairs.
        states: The true state of each node, shape (n_nodes,).
        scored: Mask of the nodes whose beliefs have a term in the loss, shape (n_nodes,), bool.
        n_queries: Number of query variables, scored or not; the number of messages is divided by this number.
    """

    graph: GatedGraph
    gates: GateFeatures
    states: np.ndarray
    scored: np.ndarray
    n_queries: int
    settings: RiskSettings = RiskSettings()

    @property
    def n_weights(self) -> int:
        return self.graph.ungated.graph.layout.size

    @property
    def n_scored(self) -> int:
        return int(self.scored.sum())

    @cached_property
    def layout(self) -> GatedLayout:
        graph = self.graph
        return build_layout(
            graph.ungated.state_start, graph.pairs.edges, graph.pair_class, graph.distinct_pairs.table_start
        )

    @cached_property
    def _folded_entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the state index in flat node tables, and the factor index, of each entry of folded factors' tables."""
        folded, start = self.graph.folded, self.graph.ungated.state_start
        factor = np.repeat(np.arange(folded.n_nodes), folded.cardinality)
        return start[self.graph.folded_node[factor]] + np.arange(len(factor)) - folded.state_start[factor], factor

    @cached_property
    def messages_per_factor(self) -> np.ndarray:
        """Return the number of messages of each gated factor: one to each free end in each iteration."""
        ends = np.repeat((1, 2), (self.graph.n_folded, self.graph.n_pairs))
        return np.asarray(self.settings.iterations * ends, dtype=np.float64)

    def gate_activations(self, point: np.ndarray, steepness: float) -> GateActivations:
        """Return the gate activations during training for weights `point`, shape (n_weights + n_gate_weights,)."""
        if not self.settings.has_gates:
            one, zero = np.ones(len(self.messages_per_factor)), np.zeros(len(self.messages_per_factor))
            return GateActivations(one, one, zero, zero)
        z = self.gates.log_odds(point[self.n_weights :])
        p = expit(z)
        message_fraction = expit(steepness * (z - logit(self.settings.threshold)))
        d_message_fraction = steepness * message_fraction * (1.0 - message_fraction)
        return GateActivations(
            p * message_fraction,
            message_fraction,
            p * (1.0 - p) * message_fraction + p * d_message_fraction,
            d_message_fraction,
        )

    def __call__(self, point: np.ndarray, steepness: float = 1.0) -> tuple[float, np.ndarray]:
        """Return the risk and its gradient.

        Args:
            point: Weights of factors and of gates, shape (n_weights + n_gate_weights,).
            steepness: Steepness of the soft threshold; see the module docstring.
        """
        weights, graph = np.ascontiguousarray(point[: self.n_weights]), self.graph
        gates = self.gate_activations(point, steepness)
        folded, tables = graph.folded.node_log_potentials(weights), graph.distinct_pairs.edge_log_potentials(weights)
        nodes = self._node_potentials(weights, folded, gates.exponent)
        loss = self._backpropagate(nodes, tables, gates.exponent[graph.n_folded :])
        cost = self.settings.message_cost / max(self.n_queries, 1)
        value = loss.value + cost * float(self.messages_per_factor @ gates.message_fraction)
        d_nodes = loss.nodes.astype(np.float64)
        gradient = np.zeros(len(point))
        graph.ungated.add_node_counts(d_nodes, gradient[: self.n_weights])
        graph.distinct_pairs.add_edge_counts(loss.tables, gradient[: self.n_weights])
        cell, factor = self._folded_entries
        d_cell = d_nodes[cell]
        graph.folded.add_node_counts(gates.exponent[factor] * d_cell, gradient[: self.n_weights])
        if self.settings.has_gates:
            d_exponent = np.concatenate((np.bincount(factor, d_cell * folded, graph.n_folded), loss.gate))
            slope = d_exponent * gates.d_exponent + cost * self.messages_per_factor * gates.d_message_fraction
            gradient[self.n_weights :] = self.gates.gradient(slope)
        return value, gradient

    def _node_potentials(self, weights: np.ndarray, folded: np.ndarray, exponent: np.ndarray) -> np.ndarray:
        """Return the log potentials of the nodes, plus each folded factor's log potentials times its exponent."""
        nodes = self.graph.ungated.node_log_potentials(weights)
        cell, factor = self._folded_entries
        return nodes + np.bincount(cell, exponent[factor] * folded, len(nodes))

    def _backpropagate(self, nodes: np.ndarray, tables: np.ndarray, exponent: np.ndarray) -> LossGradient:
        """Return the mean loss of the beliefs and its derivatives."""
        options = (self.settings.iterations, self.settings.real)
        node_weights = self.scored / max(self.n_scored, 1)
        if self.settings.loss == "squared":
            return compute_loss_gradient(
                self.layout, nodes, tables, exponent, squared_error_loss(self.states, node_weights), *options
            )
        if self.settings.loss == "cross-entropy":
            return compute_loss_gradient(
                self.layout, nodes, tables, exponent, cross_entropy_loss(self.states, node_weights), *options
            )
        beliefs = propagate(self.layout, nodes, tables, exponent, *options)
        value, loss = self._f_loss(beliefs.astype(np.float64))
        return compute_loss_gradient(self.layout, nodes, tables, exponent, loss, *options)._replace(value=value)

    def _f_loss(self, beliefs: np.ndarray) -> tuple[float, BeliefLoss]:
        """Return the loss (1 minus the F measure of the beliefs), and the linearisation of the loss."""
        start, cardinality = self.graph.ungated.state_start, self.graph.ungated.cardinality
        slope, value = np.zeros(len(beliefs)), 0.0
        for k in np.unique(cardinality[self.scored]):
            nodes = np.flatnonzero(self.scored & (cardinality == k))
            fraction = len(nodes) / self.n_scored
            scored_states = range(1, 2) if k == 2 else range(k)
            for state in scored_states:
                cell, true = start[nodes] + state, self.states[nodes] == state
                total = max(float(beliefs[cell].sum() + true.sum()), 1e-12)
                f_measure = 2.0 * float(beliefs[cell][true].sum()) / total
                value += fraction / len(scored_states) * (1.0 - f_measure)
                slope[cell] = fraction / len(scored_states) * (f_measure - 2.0 * true) / total
        return value, linear_loss(slope)

    def infer_with_hard_gates(
        self, point: np.ndarray, threshold: float, *, skip_closed: bool = True
    ) -> PropagationResult:
        """Run inference without closed factors, whose gate probability is below `threshold` or whose potentials are 1.

        Args:
            point: Weights of factors and of gates.
            threshold: Minimum probability of an open gate.
            skip_closed: Whether to remove closed factors from the graph. Otherwise, closed factors send uniform
                messages, which is faster for a single run.
        """
        weights, graph = np.ascontiguousarray(point[: self.n_weights]), self.graph
        folded, tables = graph.folded.node_log_potentials(weights), graph.distinct_pairs.edge_log_potentials(weights)
        is_open = np.concatenate(
            (
                _find_nonzero_tables(folded, graph.folded.state_start),
                _find_nonzero_tables(tables, graph.distinct_pairs.table_start)[graph.pair_class],
            )
        )
        p = np.ones(len(self.messages_per_factor))
        if self.settings.has_gates:
            p = expit(self.gates.log_odds(point[self.n_weights :]))
            is_open &= p >= threshold
        exponent = np.where(is_open, p, 0.0)
        nodes = self._node_potentials(weights, folded, exponent)
        gate, open_pairs = exponent[graph.n_folded :], np.flatnonzero(is_open[graph.n_folded :])
        if skip_closed and len(open_pairs) < graph.n_pairs:
            pair_class, start = graph.pair_class[open_pairs], graph.distinct_pairs.table_start
            layout, gate = (
                build_layout(graph.ungated.state_start, graph.pairs.edges[open_pairs], pair_class, start),
                gate[open_pairs],
            )
        else:
            layout = self.layout
        beliefs = propagate(layout, nodes, tables, gate, self.settings.iterations, self.settings.real)
        return PropagationResult(beliefs.astype(np.float64), int(self.messages_per_factor[is_open].sum()), is_open)

    def factor_exponents(self, point: np.ndarray, threshold: float) -> dict[int, np.ndarray]:
        """Return the exponents that `infer_with_hard_gates` uses for the factors of each group with gates.

        Returns:
            Arrays of shape (n_factors,), by the index of the group in the graph; 0 for omitted factors.
        """
        is_open = self.infer_with_hard_gates(point, threshold).open_factors
        p = expit(self.gates.log_odds(point[self.n_weights :])) if self.settings.has_gates else np.ones(len(is_open))
        exponent, start = np.where(is_open, p, 0.0), 0
        exponents: dict[int, np.ndarray] = {}
        for group, factor in self.graph.factors:
            n_factors = self.graph.ungated.graph.groups[group].n_factors
            exponents.setdefault(group, np.zeros(n_factors))[factor] = exponent[start : start + len(factor)]
            start += len(factor)
        return exponents

    def evaluate(self, result: PropagationResult) -> tuple[float, float]:
        """Return the mean loss of the scored nodes in an inference result, and the messages per query variable."""
        start, n = self.graph.ungated.state_start, max(self.n_scored, 1)
        messages_per_query = result.n_messages / max(self.n_queries, 1)
        nodes = np.flatnonzero(self.scored)
        if self.settings.loss == "f":
            return self._f_loss(result.beliefs)[0], messages_per_query
        true_beliefs = result.beliefs[start[nodes] + self.states[nodes]]
        if self.settings.loss == "cross-entropy":
            return -float(np.log(np.maximum(true_beliefs, 1e-300)).sum()) / n, messages_per_query
        node = np.repeat(np.arange(len(self.scored)), self.graph.ungated.cardinality)
        squares = np.bincount(node, result.beliefs**2, len(self.scored))[nodes]
        return float((0.5 * (squares + 1.0) - true_beliefs).sum()) / n, messages_per_query


def _find_nonzero_tables(tables: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return a mask of the flat tables that have a nonzero entry, shape (n,), bool."""
    return np.asarray(np.diff(offsets(tables != 0.0)[start]) > 0)
