"""Generator of rows of binary states from a random sparse network of pairs, to test the learning of the pairs.

`make_bernoulli_network` returns the networks of section 4.1 of Lao & Zhu, Contrastive feature induction (2014). In those
of `make_network`, a state has 2.5 neighbours on average, and most states are rarely on. `P(row) ~ exp(sum of the biases
of the states that are on + sum of the weights of the pairs whose two states are on)`. Rows are drawn by Gibbs sampling
or, for networks with small components, exactly; exact sampling is feasible for 100,000 states.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

MEAN_DEGREE = 2.5
"""Mean number of neighbours of a state."""
WEIGHTS = (1.0, 2.0)
"""Range of the uniform magnitudes of weights; half of all weights are negative."""
BIAS, SPREAD = -2.0, 0.5
"""Mean and standard deviation of biases: if the neighbours of a state are off, the state is on in about 1 of 8 rows."""
BERNOULLI_DEGREE, BERNOULLI_WEIGHT = 5.0, 5.0
"""Mean number of neighbours and maximum magnitude of the weights in the networks of Lao & Zhu."""
MAX_BLOCK_STATES = 12
"""Maximum number of states of a component that is drawn exactly, from up to 4,096 joint states."""
CHUNK_CELLS = 1 << 24
"""Maximum number of array elements per chunk in exact draws."""

MODEL = """
domain State = open

entity Row

predict relation on(row: Row, state: State)

template prior(r: Row, s: State) over on(r, s) per s

candidates together(r: Row, s: State, t: State)
    where s < t
    over  on(r, s) and on(r, t)
    per   s, t
"""


@dataclass(frozen=True)
class SparseNetwork:
    """A sparse network of pairs, from which rows are drawn.

    Args:
        bias, weight: The bias of each state, shape (n_states,), and the weight of each edge, shape (n_edges,).
        edges: Pairs of states s < t in ascending order, shape (n_edges, 2).
    """

    bias: np.ndarray
    edges: np.ndarray
    weight: np.ndarray

    def weight_matrix(self) -> csr_matrix:
        """Return the symmetric matrix of weights, shape (n_states, n_states)."""
        ends, n = np.concatenate((self.edges, self.edges[:, ::-1])), len(self.bias)
        return csr_matrix((np.tile(self.weight, 2), (ends[:, 0], ends[:, 1])), shape=(n, n))

    def restrict_to(self, states: np.ndarray) -> SparseNetwork:
        """Return the network of some states, given as a mask of shape (n_states,), and of the edges between them."""
        inside = states[self.edges].all(axis=1)
        return SparseNetwork(self.bias[states], (np.cumsum(states) - 1)[self.edges[inside]], self.weight[inside])


def make_network(n_states: int, rng: np.random.Generator, block: int | None = None) -> SparseNetwork:
    """Return a random network; if `block` is set, edges exist only within blocks of `block` consecutive states."""
    n_edges, size = round(n_states * MEAN_DEGREE / 2), block or n_states
    s = rng.integers(n_states, size=2 * n_edges)  # more than needed: repeated pairs and loops are removed
    t = s - s % size + rng.integers(size, size=len(s))
    pairs = np.column_stack((s, t))[(s != t) & (t < n_states)]
    edges = np.unique(np.sort(pairs, axis=1), axis=0)
    edges = edges[np.sort(rng.permutation(len(edges))[:n_edges])]
    weight = rng.choice((-1.0, 1.0), size=len(edges)) * rng.uniform(*WEIGHTS, size=len(edges))
    return SparseNetwork(rng.normal(BIAS, SPREAD, size=n_states), edges, weight)


def make_bernoulli_network(n_states: int, rng: np.random.Generator) -> SparseNetwork:
    """Return a network in which each pair is an edge with the same probability, with uniform weights and no biases."""
    pairs = np.column_stack(np.triu_indices(n_states, 1))
    edges = pairs[rng.random(len(pairs)) < BERNOULLI_DEGREE / (n_states - 1)]
    weight = rng.uniform(-BERNOULLI_WEIGHT, BERNOULLI_WEIGHT, size=len(edges))
    return SparseNetwork(np.zeros(n_states), edges, weight)


def draw_gibbs(network: SparseNetwork, n: int, rng: np.random.Generator, sweeps: int = 50) -> np.ndarray:
    """Draw rows, each by a separate Gibbs chain: an initial draw that ignores the edges, and `sweeps` Gibbs sweeps.

    The states of a colour class (states without edges between them) are drawn together, in all rows at once.

    Returns:
        Whether each state is on, shape (n, n_states).
    """
    graph = nx.Graph(network.edges.tolist())
    graph.add_nodes_from(range(len(network.bias)))
    colour = nx.greedy_color(graph)
    colours = np.array([colour[s] for s in range(len(colour))])
    weights = network.weight_matrix().astype(np.float32)
    colour_classes = [
        (states, weights[states]) for states in map(np.flatnonzero, colours == np.unique(colours)[:, None])
    ]
    on = (rng.random((len(network.bias), n)) < expit(network.bias)[:, None]).astype(np.float32)
    for _ in range(sweeps):
        for states, class_weights in colour_classes:
            probability = expit(network.bias[states, None] + class_weights @ on)
            on[states] = rng.random((len(states), n), dtype=np.float32) < probability
    return np.ascontiguousarray(on.T.astype(bool))


def draw_exact(network: SparseNetwork, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw each component of all rows from the table of its joint states; return an array like that of `draw_gibbs`.

    Raises:
        ValueError: A component has more than `MAX_BLOCK_STATES` states.
    """
    weights = network.weight_matrix()
    _, component = connected_components(weights, directed=False)
    size = np.bincount(component)
    if size.max() > MAX_BLOCK_STATES:
        raise ValueError(f"a component has {size.max()} states; exact sampling supports at most {MAX_BLOCK_STATES}")
    order = np.argsort(size[component] * len(component) + component, kind="stable")  # states by block, blocks by size
    on = np.empty((n, len(component)), dtype=bool)
    for k in range(1, MAX_BLOCK_STATES + 1):
        blocks = order[size[component[order]] == k].reshape(-1, k)
        joint = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1 == 1
        first, second = np.triu_indices(k, 1)
        both_on = (joint[:, first] & joint[:, second]).astype(float)
        step = max(CHUNK_CELLS // (len(joint) + n), 1)
        for lo in range(0, len(blocks), step):
            block = blocks[lo : lo + step]
            log_potential = network.bias[block] @ joint.T
            if k > 1:
                log_potential += weights[block[:, first], block[:, second]].toarray() @ both_on.T
            on[:, block] = joint[_choose(log_potential, n, rng)]
    return on


def tables(on: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return the tables of `MODEL` for the rows that `draw_gibbs` or `draw_exact` returns."""
    width = len(str(on.shape[1] - 1))
    names = np.array([f"s{k:0{width}}" for k in range(on.shape[1])], dtype=object)
    row, state = np.nonzero(on)
    return {"row": pd.DataFrame({"id": np.arange(len(on))}), "on": pd.DataFrame({"row": row, "state": names[state]})}


def _choose(log_potential: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n columns of each row, shape (n, n_rows), in proportion to exp(log_potential), shape (n_rows, n_columns)."""
    cumulative = np.cumsum(np.exp(log_potential - log_potential.max(axis=1, keepdims=True)), axis=1)
    cumulative /= cumulative[:, -1:]
    row = np.arange(len(cumulative))
    position = np.searchsorted(
        (cumulative + row[:, None]).ravel(), rng.random((n, len(cumulative))) + row, side="right"
    )
    return np.minimum(position - row * cumulative.shape[1], cumulative.shape[1] - 1)
