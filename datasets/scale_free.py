"""Makes rows of variables that a scale-free network joins, with a table of weights on each edge: which those are is to be found.

    python datasets/scale_free.py --nodes 200 --rows 20000 --out /tmp/scale_free

`P(row) ~ exp(sum of each variable's bias of its state + sum over edges of the table's weight of the two states)`. The network
grows by preferential attachment (Barabasi & Albert 1999), `EDGES_PER_NODE` edges for each new variable; the tables are standard
normal, centred in both states so that they say nothing of one variable alone, times a strength of each edge. Strengths are
drawn evenly from `STRENGTHS`. They were chosen so that a variable's neighbours tell about a quarter of its entropy (50
nodes: 1.51 nats alone, 1.16 given the neighbours): the weakest tables differ from chance by no more than chance does in
some thousand rows, the strongest stand out in a few hundred, and neighbours of neighbours depend on each other visibly, so
that not every dependent pair is an edge. Tables of hubs are divided by a root of their degree, without which the many
neighbours of a hub freeze its state and no sampler mixes; as it is, 20, 40 and 80 sweeps give the same entropies to 0.01.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd

EDGES_PER_NODE = 2
"""Edges of each new variable: a network of n has 2 (n - 2)."""
STRENGTHS = (0.1, 1.2)
"""The standard deviations of the weights of tables lie between these."""
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
    """The model that rows are drawn from.

    Args:
        bias: shape (n_nodes, n_states).
        edges: pairs of nodes s < t, ascending, shape (n_edges, 2).
        tables: weights of the states of s and t, shape (n_edges, n_states, n_states).
    """

    bias: np.ndarray
    edges: np.ndarray
    tables: np.ndarray


def make_network(
    n_nodes: int, rng: np.random.Generator, n_states: int = 5, edges_per_node: int = EDGES_PER_NODE
) -> ScaleFreeNetwork:
    """A random network. Nodes are shuffled, so that their numbers do not tell their degrees."""
    graph = nx.barabasi_albert_graph(n_nodes, edges_per_node, seed=int(rng.integers(1 << 31)))
    place = rng.permutation(n_nodes)
    edges = np.unique(np.sort(place[np.array(graph.edges)], axis=1), axis=0)
    tables = rng.normal(size=(len(edges), n_states, n_states))
    tables -= tables.mean(axis=1, keepdims=True)
    tables -= tables.mean(axis=2, keepdims=True)
    degree = np.bincount(edges.ravel(), minlength=n_nodes)
    crowd = np.sqrt(np.maximum(degree[edges].max(axis=1) / (5 * edges_per_node), 1.0))
    strength = rng.uniform(*STRENGTHS, size=len(edges)) / crowd
    return ScaleFreeNetwork(rng.normal(scale=BIAS, size=(n_nodes, n_states)), edges, tables * strength[:, None, None])


def draw_gibbs(network: ScaleFreeNetwork, n: int, rng: np.random.Generator, sweeps: int = 40) -> np.ndarray:
    """Draws rows, each by a Gibbs chain of its own that starts without edges and goes through all nodes `sweeps` times.

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
            below = np.cumsum(np.exp(scores, out=scores), axis=0, out=scores)
            states[node] = (rng.random(n, dtype=np.float32) * below[-1] >= below[:-1]).sum(axis=0)
    return np.ascontiguousarray(states.T)


def load_or_draw(
    n_nodes: int, n: int, n_test: int, seed: int, folder: Path | None
) -> tuple[ScaleFreeNetwork, np.ndarray, np.ndarray]:
    """A network, and rows of it for learning and for the test; from the folder if they are there, else put into it."""
    rng = np.random.default_rng([seed, n_nodes])
    network = make_network(n_nodes, rng)
    path = None if folder is None else folder / f"scale_free_{n_nodes}_{n}_{n_test}_{seed}.npz"
    if path is not None and path.exists():
        found = np.load(path, allow_pickle=False)
        return network, found["learned"], found["test"]
    drawn = draw_gibbs(network, n + n_test, rng)
    learned, test = drawn[:n], drawn[n:]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, learned=learned, test=test)
    return network, learned, test


def node_names(n_nodes: int) -> np.ndarray:
    """Of the nodes, in the order of their numbers and of their letters alike."""
    width = len(str(n_nodes - 1))
    return np.array([f"n{k:0{width}}" for k in range(n_nodes)], dtype=object)


def tables(states: np.ndarray) -> dict[str, pd.DataFrame]:
    """Tables for `MODEL`, of rows as `gibbs` draws them."""
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
    parser.add_argument("--out", type=Path, required=True, help="a folder for the tables and the model")
    chosen = parser.parse_args()
    network, states, _ = load_or_draw(chosen.nodes, chosen.rows, 0, chosen.seed, None)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, frame in tables(states).items():
        frame.to_csv(chosen.out / f"{name}.csv", index=False)
    ends = node_names(chosen.nodes)[network.edges]
    strength = np.sqrt((network.tables**2).mean(axis=(1, 2)))
    edges = pd.DataFrame({"s": ends[:, 0], "t": ends[:, 1], "strength": strength})
    edges.to_csv(chosen.out / "true_edges.csv", index=False)
    (chosen.out / "scale_free.rcrf").write_text(MODEL.format(last=network.bias.shape[1] - 1).lstrip())


if __name__ == "__main__":
    main()
