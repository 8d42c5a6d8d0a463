"""Training of linear-chain CRFs, compared with CRFsuite: the same features, weights and penalised likelihood.

Both run L-BFGS for the same number of iterations, single-threaded, on sequences of tokens with sparse attributes. CRFsuite
has a weight for every attribute and state (`feature.possible_states`), as relcrf has. The results are CPU time per token and
iteration, and the difference of the losses. Install the rival with: pip install -r benchmarks/requirements.txt
"""

from __future__ import annotations

import json
import os
import tempfile
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from support import BenchmarkParser, sized  # noqa: E402

from relcrf.graph.factor_graph import FactorGraph, FactorGroup  # noqa: E402
from relcrf.graph.features import Ones, Sparse  # noqa: E402
from relcrf.graph.reduction import reduce_graph  # noqa: E402
from relcrf.graph.weights import WeightBlock, WeightLayout  # noqa: E402
from relcrf.learning.lbfgs import Lbfgs, OptimiserState  # noqa: E402
from relcrf.learning.likelihood import ForestLikelihood, add_l2_penalty  # noqa: E402

try:
    import pycrfsuite
except ImportError:
    pycrfsuite = None

L2 = 1.0
"""Strength of the penalty `L2 * |w|^2`; CRFsuite's `c2`."""


def corpus(n_sequences: int, length: int, n_states: int, n_attributes: int, per_token: int, seed: int = 0):
    """Return the tokens' attributes, shape (n_sequences, length, per_token), and labels that depend on them and on each other."""
    rng = np.random.default_rng(seed)
    attributes = rng.integers(n_attributes, size=(n_sequences, length, per_token))
    taste = rng.normal(size=(n_attributes, n_states))
    follow = rng.normal(size=(n_states, n_states))
    labels = np.zeros((n_sequences, length), dtype=np.int32)
    for t in range(length):
        score = taste[attributes[:, t]].sum(axis=1) / np.sqrt(per_token) + rng.gumbel(size=(n_sequences, n_states))
        labels[:, t] = (score + (follow[labels[:, t - 1]] if t else 0.0)).argmax(axis=1)
    return attributes, labels


class RelcrfChains:
    """The chains as one ground graph: a unary group of attributes and a pair group of transitions."""

    def __init__(self, attributes: np.ndarray, labels: np.ndarray, n_states: int, n_attributes: int) -> None:
        n_sequences, length, per_token = attributes.shape
        n = n_sequences * length
        token = np.arange(n, dtype=np.int32).reshape(n_sequences, length)
        row_start = np.arange(n + 1, dtype=np.int64) * per_token
        bag = Sparse(row_start, attributes.ravel().astype(np.int32), np.empty(0, dtype=np.float32), n_attributes)
        first, second = token[:, :-1].ravel().copy(), token[:, 1:].ravel().copy()
        groups = (
            FactorGroup((token.ravel(),), (n_states,), bag, None, 0),
            FactorGroup((first, second), (n_states, n_states), Ones(len(first)), None, 1),
        )
        blocks = (
            WeightBlock("attributes", n_attributes, n_states),
            WeightBlock("transitions", 1, n_states * n_states),
        )
        graph = FactorGraph(np.full(n, n_states, dtype=np.int32), groups, WeightLayout(blocks))
        self.layout = graph.layout
        reduced = reduce_graph(graph, np.zeros(n, dtype=np.int8), labels.ravel())
        self.likelihood = ForestLikelihood.build(reduced, labels.ravel())

    def train(self, iterations: int) -> OptimiserState:
        size = self.layout.size
        objective = add_l2_penalty(self.likelihood, np.full(size, 2.0 * L2), np.ones(size, dtype=bool))
        optimiser = Lbfgs(tolerance=0.0, value_tolerance=0.0, max_iterations=iterations, memory=6)
        return optimiser.minimise(objective, optimiser.start(objective, np.zeros(size)))


def crfsuite(attributes: np.ndarray, labels: np.ndarray, iterations: int) -> tuple[float, float, int]:
    """Return CPU seconds of training, the final loss, and the number of evaluations."""
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for tokens, states in zip(attributes.tolist(), labels.tolist(), strict=True):
        trainer.append([[str(a) for a in token] for token in tokens], [str(s) for s in states])
    trainer.set_params(
        {
            "c1": 0.0,
            "c2": L2,
            "max_iterations": iterations,
            "feature.possible_states": True,
            "feature.possible_transitions": True,
            "epsilon": 0.0,
            "delta": 0.0,
            "period": 10**6,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        trainer.train(os.path.join(folder, "model"))
        seconds = time.process_time() - start
    log = trainer.logparser
    return seconds, float(log.last_iteration["loss"]), int(log.last_iteration["num"])


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="fewer sequences and repetitions")
    parser.add_argument("--iterations", type=int, default=20, help="number of L-BFGS iterations")
    parser.add_argument("--until", type=int, default=150, help="iterations after which the losses are compared")
    options = parser.parse_args()
    if options.smallest:
        options.iterations = options.until = 3
    figures: dict[str, float | None] = {"ratio_crfsuite_k5": None, "ratio_crfsuite_k25": None, "loss_difference": None}
    if pycrfsuite is None:
        print("python-crfsuite is not installed; no comparison (pip install -r benchmarks/requirements.txt)")
    differences = []
    for k in (5, 25):
        n_sequences, length, n_attributes = sized(options, (400, 30, 2_000), (400, 30, 2_000), (10, 5, 20))
        attributes, labels = corpus(n_sequences, length, k, n_attributes, 20)
        chains = RelcrfChains(attributes, labels, k, n_attributes)
        chains.train(2)  # compile or load the kernels
        ours, theirs, state, loss = [], [], None, None
        for _ in range(3 if options.quick else 7):
            start = time.process_time()
            state = chains.train(options.iterations)
            ours.append((time.process_time() - start) / state.iteration)
            if pycrfsuite is not None:
                seconds, loss, done = crfsuite(attributes, labels, options.iterations)
                theirs.append(seconds / done)
        tokens = n_sequences * length
        per_token = np.median(ours) / tokens * 1e9
        figures[f"nanoseconds_k{k}"] = float(per_token)
        print(f"k = {k}: relcrf {per_token:,.0f} ns per token and iteration, loss {state.value:.9f}, "
              f"{state.iteration} iterations, {state.evaluations} evaluations")  # fmt: skip
        if theirs:
            ratio = float(np.median(theirs) / np.median(ours))
            figures[f"ratio_crfsuite_k{k}"] = ratio
            print(f"       CRFsuite {np.median(theirs) / tokens * 1e9:,.0f} ns, loss {loss:.9f}: {ratio:.1f} times")
            # The line searches differ, so only the final losses can be compared.
            end, (_, loss, done) = chains.train(options.until), crfsuite(attributes, labels, options.until)
            print(f"       after {end.iteration} and {done} iterations: {end.value:.9f}, CRFsuite {loss:.9f}")
            differences.append(abs(loss - end.value) / abs(loss))
        # With ten times the sequences, the cost per token should be the same.
        if not options.quick or k == 5:
            larger = RelcrfChains(*corpus(10 * n_sequences, length, k, n_attributes, 20, seed=1), k, n_attributes)
            larger.train(1)
            start = time.process_time()
            state = larger.train(5)
            grown = (time.process_time() - start) / state.iteration
            figures[f"growth_10x_k{k}"] = float(grown / np.median(ours))
            print(f"       10 times the tokens: {figures[f'growth_10x_k{k}']:.1f} times the CPU time per iteration")
    figures["loss_difference"] = max(differences) if differences else None
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
