"""Generator of rows from a scale-free network with a weight table on each edge, for learning the edges from the rows.

    python datasets/scale_free.py --nodes 200 --rows 20000 --out /tmp/scale_free

`P(row) ~ exp(sum of each variable's bias of its state + sum over edges of the table's weight of the two states)`. The network
grows by preferential attachment (Barabasi & Albert 1999), `EDGES_PER_NODE` edges for each new variable; the tables are standard
normal, centred in both states so that they carry no information about single variables, times the strength of the edge.
Strengths are uniform in `STRENGTHS`. They were chosen so that a variable's neighbours explain about a quarter of its
entropy (50 nodes: 1.51 nats, 1.16 given the neighbours): the weakest tables cannot be distinguished from noise in some
thousand rows, the strongest can in a few hundred, and neighbours of neighbours are clearly dependent, so that not every
dependent pair is an edge. Tables of hubs are divided by a root of their degree: otherwise the many neighbours of a hub
freeze its state and no sampler mixes. With it, 20, 40 and 80 sweeps give the same entropies to 0.01.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd

EDGES_PER_NODE = 2
"""Number of edges of each new variable: a network of n variables has 2 (n - 2) edges."""
STRENGTHS = (0.1, 1.2)
"""Range of the standard deviations of the weights of tables."""
BIAS = 0.5
"""Standard deviation of biases."""

MODEL = """
domain Node = open

entity Row

predict relation value(r: Row, s: Node) : 0..{last}

template level(r: Row, s: Node) over value(r, s) per s

candidates edge(r: Row, s: Node, t: Node)
    where s < t
    over  value(r, s), value(r, t)
    per   s, t
"""


@dataclass(frozen=True)
class ScaleFreeNetwork:
    """A scale-free network, from which rows are drawn.

    Args:
        bias: Weights of states, shape (n_nodes, n_states).
        edges: Pairs of nodes s < t, ascending, shape (n_edges, 2).
        tables: Weights of the states of s and t, shape (n_edges, n_states, n_states).
    """

    bias: np.ndarray
    edges: np.ndarray
    tables: np.ndarray


def make_network(
    n_nodes: int, rng: np.random.Generator, n_states: int = 5, edges_per_node: int = EDGES_PER_NODE
) -> ScaleFreeNetwork:
    """Return a random network. Nodes are shuffled, so that their numbers do not reveal their degrees."""
    graph = nx.barabasi_albert_graph(n_nodes, edges_per_node, seed=int(rng.integers(1 << 31)))
    permutation = rng.permutation(n_nodes)
    edges = np.unique(np.sort(permutation[np.array(graph.edges)], axis=1), axis=0)
    tables = rng.normal(size=(len(edges), n_states, n_states))
    tables -= tables.mean(axis=1, keepdims=True)
    tables -= tables.mean(axis=2, keepdims=True)
    degree = np.bincount(edges.ravel(), minlength=n_nodes)
    degree_factor = np.sqrt(np.maximum(degree[edges].max(axis=1) / (5 * edges_per_node), 1.0))
    strength = rng.uniform(*STRENGTHS, size=len(edges)) / degree_factor
    return ScaleFreeNetwork(rng.normal(scale=BIAS, size=(n_nodes, n_states)), edges, tables * strength[:, None, None])


def draw_gibbs(network: ScaleFreeNetwork, n: int, rng: np.random.Generator, sweeps: int = 40) -> np.ndarray:
    """Draw rows, each with a separate Gibbs chain that starts without edges and visits all nodes `sweeps` times.

    Returns:
        States, shape (n, n_nodes), int8.
    """
    n_nodes = len(network.bias)
    neighbours: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(n_nodes)]
    for (s, t), table in zip(network.edges, network.tables.astype(np.float32), strict=True):
        neighbours[s].append((int(t), np.ascontiguousarray(table)))
        neighbours[t].append((int(s), np.ascontiguousarray(table.T)))
    bias = network.bias.astype(np.float32)
    states = np.empty((n_nodes, n), dtype=np.int8)
    for sweep in range(sweeps + 1):
        for node in range(n_nodes):
            scores = np.repeat(bias[node][:, None], n, axis=1)
            for other, table in neighbours[node] if sweep else ():
                scores += table[:, states[other]]
            cumulative = np.cumsum(np.exp(scores, out=scores), axis=0, out=scores)
            states[node] = (rng.random(n, dtype=np.float32) * cumulative[-1] >= cumulative[:-1]).sum(axis=0)
    return np.ascontiguousarray(states.T)


def load_or_draw(
    n_nodes: int, n: int, n_test: int, seed: int, folder: Path | None
) -> tuple[ScaleFreeNetwork, np.ndarray, np.ndarray]:
    """Return a network with rows for learning and for the test, loaded from the folder or rows and stored in it."""
    rng = np.random.default_rng([seed, n_nodes])
    network = make_network(n_nodes, rng)
    path = None if folder is None else folder / f"scale_free_{n_nodes}_{n}_{n_test}_{seed}.npz"
    if path is not None and path.exists():
        stored = np.load(path, allow_pickle=False)
        return network, stored["learned"], stored["test"]
    rows = draw_gibbs(network, n + n_test, rng)
    learned, test = rows[:n], rows[n:]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, learned=learned, test=test)
    return network, learned, test


def node_names(n_nodes: int) -> np.ndarray:
    """Return the names of the nodes; their numeric and alphabetic orders agree."""
    width = len(str(n_nodes - 1))
    return np.array([f"n{k:0{width}}" for k in range(n_nodes)], dtype=object)


def tables(states: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return tables for `MODEL`, of rows as `draw_gibbs` returns them."""
    n, n_nodes = states.shape
    return {
        "row": pd.DataFrame({"id": np.arange(n)}),
        "value": pd.DataFrame(
            {"r": np.repeat(np.arange(n), n_nodes), "s": np.tile(node_names(n_nodes), n), "value": states.ravel()}
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="Folder for the tables and the model.")
    options = parser.parse_args()
    network, states, _ = load_or_draw(options.nodes, options.rows, 0, options.seed, None)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, frame in tables(states).items():
        frame.to_csv(options.out / f"{name}.csv", index=False)
    ends = node_names(options.nodes)[network.edges]
    strength = np.sqrt((network.tables**2).mean(axis=(1, 2)))
    edges = pd.DataFrame({"s": ends[:, 0], "t": ends[:, 1], "strength": strength})
    edges.to_csv(options.out / "true_edges.csv", index=False)
    (options.out / "scale_free.rcrf").write_text(MODEL.format(last=network.bias.shape[1] - 1).lstrip())


if __name__ == "__main__":
    main()
