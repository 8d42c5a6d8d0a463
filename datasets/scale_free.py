"""Generator of rows from a scale-free network with a weight table on each edge, to test the learning of the edges.

    python datasets/scale_free.py --nodes 200 --rows 20000 --out /tmp/scale_free

`P(row) ~ exp(sum over variables of the bias of the state + sum over edges of the weight of the two states)`. The
network grows by preferential attachment (Barabasi & Albert 1999), with `EDGES_PER_NODE` edges per new variable. Weights
are standard normal, centred in both states (so that a table has no information about single variables), and multiplied
by the strength of the edge, uniform in `STRENGTHS`. With this range, the neighbours explain about a quarter of a
variable's entropy (50 nodes: 1.51 nats, and 1.16 nats given the neighbours). A few hundred rows distinguish the
strongest tables from noise; several thousand rows do not suffice for the weakest tables. Neighbours of neighbours are
clearly dependent, so that not every dependent pair is an edge. At hubs (degree d > 10), tables are divided by
sqrt(d / 10); otherwise no sampler would mix. Entropies after 20, 40 and 80 sweeps agree within 0.01.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd

EDGES_PER_NODE = 2
"""Number of edges that each new variable adds: a network of n variables has 2 (n - 2) edges."""
STRENGTHS = (0.1, 1.2)
"""Range of the strengths of edges, i.e. of the standard deviations of the weights in a table."""
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
        bias: Weights of the states of single variables, shape (n_nodes, n_states).
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
    """Draw rows, each by a separate Gibbs chain. The first sweep ignores the edges; `sweeps` further sweeps follow.

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
    """Return a network, and rows for learning and for the test. Rows are loaded from `folder`, or drawn and stored."""
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
    """Return the names of the nodes; the alphabetic order of the names is the order of the nodes."""
    width = len(str(n_nodes - 1))
    return np.array([f"n{k:0{width}}" for k in range(n_nodes)], dtype=object)


def tables(states: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return the tables of `MODEL` for the rows that `draw_gibbs` returns."""
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
