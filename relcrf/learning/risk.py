"""Empirical risk of a few iterations of belief propagation with gates on factors, including the cost of messages.

The risk is the mean loss of the labelled variables' beliefs, plus the cost of the messages per query variable. The
gradient of the risk, for the weights of factors and of gates, is computed exactly by backpropagation through the
iterations (`kernels.gated_pairs`).

The gate of a factor is open with probability p. In prediction, the factor is omitted if p is below a threshold and
otherwise raised to the power p. In training, the power is p s, and each message of the factor counts as s messages;
s = sigmoid(steepness (logit p - logit threshold)) is a soft indicator of p > threshold.

Only *useful* messages count: those that can influence a query variable in the remaining iterations, over factors with
open gates (`kernels.gated_reach`). The message of a factor with a single free variable is the same in all iterations
and counts once. The cost of a message is proportional to the size of the factor's table over free variables. In
training, the numbers of useful messages are those of hard gates (p above the threshold); they are piecewise constant,
so that their derivative is 0.

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
from relcrf.gpu.gated_pairs import GpuGatedPairs
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
from relcrf.kernels.gated_reach import count_useful_messages
from relcrf.kernels.threads import freeze

CELLS_PER_UNIT_COST = 4
"""Size of a table over two binary variables; a message of such a factor has cost 1."""

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
        open_factors: Mask of the gated factors that were included, bool.
        messages: The number of useful messages of each gated factor; 0 if the factor was omitted.
        cost: Cost of the useful messages, relative to a message of a factor over two binary variables.
    """

    beliefs: np.ndarray
    open_factors: np.ndarray
    messages: np.ndarray
    cost: float

    @property
    def n_messages(self) -> int:
        return int(self.messages.sum())


@dataclass(frozen=True)
class RiskSettings:
    """The settings of a risk.

    Args:
        loss: `squared`: half the sum over states of (belief - truth)^2, where truth is 1 for the true state and 0 for
            other states. `cross-entropy`: minus the log belief of the true state. `f`: 1 minus the F measure of the
            beliefs of a batch. The F measure is that of state 1 for binary variables, and the mean of the F measures of
            all states for other variables.
        message_cost: Cost of one message of a factor over two binary variables, relative to the mean loss.
        iterations: Number of iterations of belief propagation.
        threshold: Probability threshold of the gates in training.
        has_gates: Whether factors have gates; otherwise all factors are included.
        real: Floating-point type of inference, if the kernels support this type.
        device: Device that runs belief propagation and its adjoint, `cpu` or `gpu`; a GPU uses float64.
    """

    loss: str = "squared"
    message_cost: float = 0.0
    iterations: int = 3
    threshold: float = 0.5
    has_gates: bool = True
    real: Precision = "float64"
    device: str = "cpu"


@dataclass(frozen=True, eq=False)
class Risk:
    """The risk of some examples as a function of a point: the weights of factors, followed by the weights of gates.

    A folded factor has one free variable and a pair has two; see `GatedGraph`.

    Args:
        gates: The features of the gates of folded factors, followed by those of the gates of pairs.
        states: The true state of each node, shape (n_nodes,).
        scored: Mask of the nodes whose beliefs have a term in the loss, shape (n_nodes,), bool.
        is_query: Mask of the nodes of query variables, scored or not, shape (n_nodes,), bool.
    """

    graph: GatedGraph
    gates: GateFeatures
    states: np.ndarray
    scored: np.ndarray
    is_query: np.ndarray
    settings: RiskSettings = RiskSettings()

    @property
    def n_weights(self) -> int:
        return self.graph.ungated.graph.layout.size

    @property
    def n_scored(self) -> int:
        return int(self.scored.sum())

    @property
    def n_queries(self) -> int:
        return int(self.is_query.sum())

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
    def _unit_costs(self) -> np.ndarray:
        """Return the cost of one message of each gated factor."""
        graph = self.graph
        cells = np.concatenate((np.diff(graph.folded.state_start), np.diff(graph.pairs.table_start)))
        return cells / CELLS_PER_UNIT_COST

    def count_messages(self, is_open: np.ndarray) -> np.ndarray:
        """Return the number of useful messages of each gated factor if this factor and the open factors are included.

        Args:
            is_open: Mask of the gated factors whose gate is open, shape (n_factors,), bool.
        """
        graph = self.graph
        counts = np.empty(graph.n_pairs, dtype=np.int32)
        reaches_query = np.empty(len(self.is_query), dtype=bool)
        ends, is_query = freeze(self._ends, np.int32), freeze(self.is_query, np.bool_)
        pairs_open = freeze(is_open[graph.n_folded :], np.bool_)
        count_useful_messages(ends, pairs_open, is_query, self.settings.iterations, counts, reaches_query)
        return np.concatenate((reaches_query[graph.folded_node].astype(np.int32), counts))

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.ascontiguousarray(self.graph.pairs.edges, dtype=np.int32)

    def gate_activations(self, point: np.ndarray, steepness: float) -> GateActivations:
        """Return the gate activations during training for weights `point`, shape (n_weights + n_gate_weights,)."""
        if not self.settings.has_gates:
            one, zero = np.ones(self.graph.n_factors), np.zeros(self.graph.n_factors)
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
        cost = self._message_costs(gates.message_fraction)
        value = loss.value + float(cost @ gates.message_fraction)
        d_nodes = loss.nodes.astype(np.float64)
        gradient = np.zeros(len(point))
        graph.ungated.add_node_counts(d_nodes, gradient[: self.n_weights])
        graph.distinct_pairs.add_edge_counts(loss.tables, gradient[: self.n_weights])
        cell, factor = self._folded_entries
        d_cell = d_nodes[cell]
        graph.folded.add_node_counts(gates.exponent[factor] * d_cell, gradient[: self.n_weights])
        if self.settings.has_gates:
            d_exponent = np.concatenate((np.bincount(factor, d_cell * folded, graph.n_folded), loss.gate))
            slope = d_exponent * gates.d_exponent + cost * gates.d_message_fraction
            gradient[self.n_weights :] = self.gates.gradient(slope)
        return value, gradient

    def _message_costs(self, message_fraction: np.ndarray) -> np.ndarray:
        """Return the cost of the useful messages of each gated factor; a fraction of 0.5 or more is an open gate."""
        if not self.settings.message_cost:
            return np.zeros(len(message_fraction))
        messages = self.count_messages(message_fraction >= 0.5)
        costs: np.ndarray = self.settings.message_cost / max(self.n_queries, 1) * self._unit_costs * messages
        return costs

    def _node_potentials(self, weights: np.ndarray, folded: np.ndarray, exponent: np.ndarray) -> np.ndarray:
        """Return the log potentials of the nodes, plus each folded factor's log potentials times its exponent."""
        nodes = self.graph.ungated.node_log_potentials(weights)
        cell, factor = self._folded_entries
        return nodes + np.bincount(cell, exponent[factor] * folded, len(nodes))

    def _backpropagate(self, nodes: np.ndarray, tables: np.ndarray, exponent: np.ndarray) -> LossGradient:
        """Return the mean loss of the beliefs and its derivatives."""
        potentials = (nodes, tables, exponent)
        node_weights = self.scored / max(self.n_scored, 1)
        if self.settings.loss == "squared":
            return self._differentiate(*potentials, squared_error_loss(self.states, node_weights))
        if self.settings.loss == "cross-entropy":
            return self._differentiate(*potentials, cross_entropy_loss(self.states, node_weights))
        value, loss = self._f_loss(self._propagate(self.layout, self._ends, *potentials))
        return self._differentiate(*potentials, loss)._replace(value=value)

    def _differentiate(
        self, nodes: np.ndarray, tables: np.ndarray, exponent: np.ndarray, loss: BeliefLoss
    ) -> LossGradient:
        iterations = self.settings.iterations
        if self.settings.device == "gpu":
            return self._pairs_on_gpu.compute_loss_gradient(nodes, tables, exponent, loss, iterations)
        return compute_loss_gradient(self.layout, nodes, tables, exponent, loss, iterations, self.settings.real)

    def _propagate(
        self, layout: GatedLayout, ends: np.ndarray, nodes: np.ndarray, tables: np.ndarray, exponent: np.ndarray
    ) -> np.ndarray:
        """Return the beliefs for the pairs of a layout, which have the nodes `ends`; float64."""
        iterations = self.settings.iterations
        if self.settings.device == "gpu":
            pairs = self._pairs_on_gpu if layout is self.layout else GpuGatedPairs(layout, ends)
            return pairs.propagate(nodes, tables, exponent, iterations)
        beliefs = propagate(layout, nodes, tables, exponent, iterations, self.settings.real)
        return beliefs.astype(np.float64)

    @cached_property
    def _pairs_on_gpu(self) -> GpuGatedPairs:
        return GpuGatedPairs(self.layout, self._ends)

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
            skip_closed: Whether to remove closed factors, and factors without useful messages, from the graph.
                Otherwise, closed factors send uniform messages, which is faster for a single run. The beliefs of query
                variables are the same.
        """
        weights, graph = np.ascontiguousarray(point[: self.n_weights]), self.graph
        folded, tables = graph.folded.node_log_potentials(weights), graph.distinct_pairs.edge_log_potentials(weights)
        is_open = np.concatenate(
            (
                _find_nonzero_tables(folded, graph.folded.state_start),
                _find_nonzero_tables(tables, graph.distinct_pairs.table_start)[graph.pair_class],
            )
        )
        p = np.ones(graph.n_factors)
        if self.settings.has_gates:
            p = expit(self.gates.log_odds(point[self.n_weights :]))
            is_open &= p >= threshold
        exponent = np.where(is_open, p, 0.0)
        nodes = self._node_potentials(weights, folded, exponent)
        messages = np.where(is_open, self.count_messages(is_open), 0)
        gate, used_pairs = exponent[graph.n_folded :], np.flatnonzero(messages[graph.n_folded :])
        ends = self._ends
        if skip_closed and len(used_pairs) < graph.n_pairs:
            pair_class, start = graph.pair_class[used_pairs], graph.distinct_pairs.table_start
            ends, gate = ends[used_pairs], gate[used_pairs]
            layout = build_layout(graph.ungated.state_start, ends, pair_class, start)
        else:
            layout = self.layout
        beliefs = self._propagate(layout, ends, nodes, tables, gate)
        return PropagationResult(beliefs, is_open, messages, float(self._unit_costs @ messages))

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

    def evaluate(self, result: PropagationResult) -> float:
        """Return the mean loss of the scored nodes in an inference result."""
        start, n = self.graph.ungated.state_start, max(self.n_scored, 1)
        nodes = np.flatnonzero(self.scored)
        if self.settings.loss == "f":
            return self._f_loss(result.beliefs)[0]
        true_beliefs = result.beliefs[start[nodes] + self.states[nodes]]
        if self.settings.loss == "cross-entropy":
            return -float(np.log(np.maximum(true_beliefs, 1e-300)).sum()) / n
        node = np.repeat(np.arange(len(self.scored)), self.graph.ungated.cardinality)
        squares = np.bincount(node, result.beliefs**2, len(self.scored))[nodes]
        return float((0.5 * (squares + 1.0) - true_beliefs).sum()) / n


def _find_nonzero_tables(tables: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return a mask of the flat tables that have a nonzero entry, shape (n,), bool."""
    return np.asarray(np.diff(offsets(tables != 0.0)[start]) > 0)
