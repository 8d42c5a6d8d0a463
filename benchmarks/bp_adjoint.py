"""The adjoint of belief propagation on gated pairs, compared with PyTorch and JAX: one learning step of evidence-specific gates.

    python benchmarks/bp_adjoint.py

A complete graph of 50 binary variables and 1,000 examples with separate gates; three iterations of flooding; the mean squared
error of the beliefs, and its gradient with respect to the tables of the 1,225 pairs and all 1,225,000 gates. Float32, after
warm-up, measured alternately; medians. `ratio_torch` is a ratio of CPU seconds with one thread each; `ratio_torch_user`
excludes system time, which includes page faults. `ratio_jax` is a ratio of wall time with all cores. relcrf is timed from
arrays to arrays, with all checks; its layout is computed once.

Both rivals use log-odds messages, in two implementations, of which the faster counts: by pairs (gathers and sums at the
nodes) and dense (a matrix of messages without indices). Examples are the last axis, which is fastest for them. The gradient
difference is the largest difference divided by the largest component. "Scattered" numbers the variables of each example in a
random order, so that no two examples have the same layout.

PyTorch and JAX are installed from benchmarks/requirements.txt; without them, their results are null.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, is_installed

from relcrf.kernels import gated_losses, gated_pairs

N_VARIABLES, N_EXAMPLES, N_ITERATIONS = 50, 1_000, 3
FIRST, SECOND = np.triu_indices(N_VARIABLES, 1)
N_PAIRS = len(FIRST)
N_MESSAGES = 2 * N_PAIRS * N_EXAMPLES * N_ITERATIONS
console = Console()


class Step(NamedTuple):
    """The inputs of one learning step, all float64.

    Log potentials of the variables, shape (n_variables, n_examples), as log-odds; tables, shape (n_pairs, 4); gates, shape
    (n_pairs, n_examples); and the observed states as log-odds.
    """

    odds: np.ndarray
    tables: np.ndarray
    gates: np.ndarray
    observed: np.ndarray


def random_step(seed: int = 0) -> Step:
    rng = np.random.default_rng(seed)
    shape = (N_VARIABLES, N_EXAMPLES)
    gates = rng.uniform(size=(N_PAIRS, N_EXAMPLES))
    return Step(rng.normal(size=shape), 0.3 * rng.normal(size=(N_PAIRS, 4)), gates, 1.0 * rng.integers(2, size=shape))


class RelcrfStep:
    """relcrf's implementation of the step; the examples are connected components."""

    def __init__(self, step: Step, real: gated_pairs.Precision, scattered: bool = False) -> None:
        rng = np.random.default_rng(1)
        name = np.tile(np.arange(N_VARIABLES), (N_EXAMPLES, 1))
        if scattered:
            name = rng.permuted(name, axis=1)
        name += N_VARIABLES * np.arange(N_EXAMPLES)[:, None]
        ends = np.stack((name[:, FIRST], name[:, SECOND]), axis=-1).reshape(-1, 2)
        n_nodes = N_VARIABLES * N_EXAMPLES
        table_of = np.tile(np.arange(N_PAIRS), N_EXAMPLES)
        self.layout = gated_pairs.build_layout(2 * np.arange(n_nodes + 1), ends, table_of, 4 * np.arange(N_PAIRS + 1))
        nodes, observed = np.zeros((n_nodes, 2)), np.empty(n_nodes, dtype=np.int32)
        nodes[name, 1], observed[name] = step.odds.T, step.observed.T
        self.arrays = nodes.astype(real).ravel(), step.tables.ravel(), step.gates.T.astype(real).ravel()
        self.loss = gated_losses.squared_error_loss(observed, np.full(n_nodes, 1 / n_nodes))
        self.real: gated_pairs.Precision = real

    def run(self) -> gated_pairs.LossGradient:
        return gated_pairs.compute_loss_gradient(self.layout, *self.arrays, self.loss, N_ITERATIONS, self.real)

    def gradients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients of the tables, shape (n_pairs, 4), and of the gates, shape (n_pairs, n_examples)."""
        found = self.run()
        return found.tables.reshape(-1, 4), found.gate.reshape(N_EXAMPLES, N_PAIRS).T


Run = Callable[[], tuple[Any, Any]]


def torch_runs(step: Step, real: str) -> dict[str, Run]:
    """Return PyTorch's gradients with respect to tables and gates, by both implementations."""
    import torch

    torch.set_num_threads(1)
    kind = getattr(torch, real)
    odds, observed = (torch.tensor(values, dtype=kind) for values in (step.odds, step.observed))
    leaves = [torch.tensor(values, dtype=kind, requires_grad=True) for values in (step.tables, step.gates)]
    softplus = torch.nn.functional.softplus
    source, target = (torch.tensor(np.concatenate(ends)) for ends in ((FIRST, SECOND), (SECOND, FIRST)))
    back = torch.cat((torch.arange(N_PAIRS, 2 * N_PAIRS), torch.arange(N_PAIRS)))
    place = np.zeros((N_VARIABLES, N_VARIABLES), dtype=np.int64)
    place[FIRST, SECOND], place[SECOND, FIRST] = np.arange(N_PAIRS), np.arange(N_PAIRS) + N_PAIRS
    square = torch.tensor(place.ravel())
    apart = 1.0 - torch.eye(N_VARIABLES, dtype=kind)[:, :, None]

    def potentials(tables: Any, gates: Any) -> tuple[Any, Any, Any]:
        t00, t01, t10, t11 = tables.unbind(1)
        both = torch.cat((gates, gates))
        parts = ((t01 - t00, t10 - t00), (t11 - t01, t11 - t10), (t10 - t00, t01 - t00))
        return tuple(both * torch.cat(part)[:, None] for part in parts)

    def by_pairs(tables: Any, gates: Any) -> Any:
        base, high, low = potentials(tables, gates)
        message, total = torch.zeros_like(base), odds
        for _ in range(N_ITERATIONS):
            cavity = total.index_select(0, source) - message.index_select(0, back)
            message = base + softplus(cavity + high) - softplus(cavity + low)
            total = odds.index_add(0, target, message)
        return total

    def dense(tables: Any, gates: Any) -> Any:
        shape = (N_VARIABLES, N_VARIABLES, N_EXAMPLES)
        base, high, low = (p.index_select(0, square).reshape(shape) for p in potentials(tables, gates))
        message, total = torch.zeros(shape, dtype=kind), odds
        for _ in range(N_ITERATIONS):
            cavity = total[:, None] - message.transpose(0, 1)
            message = (base + softplus(cavity + high) - softplus(cavity + low)) * apart
            total = odds + message.sum(dim=0)
        return total

    def runner(propagate: Callable[[Any, Any], Any]) -> Run:
        def run() -> tuple[Any, Any]:
            for leaf in leaves:
                leaf.grad = None
            ((torch.sigmoid(propagate(*leaves)) - observed) ** 2).mean().backward()
            return leaves[0].grad, leaves[1].grad

        return run

    return {"by pairs": runner(by_pairs), "dense": runner(dense)}


def jax_runs(step: Step, real: str) -> dict[str, Run]:
    """Return JAX's gradients, compiled, by both implementations."""
    import jax
    import jax.numpy as jnp

    odds, observed, tables, gates = (jnp.asarray(v, dtype=real) for v in (step.odds, step.observed, *step[1:3]))
    source, target = np.concatenate((FIRST, SECOND)), np.concatenate((SECOND, FIRST))
    back = np.roll(np.arange(2 * N_PAIRS), N_PAIRS)
    square = np.zeros((N_VARIABLES, N_VARIABLES), dtype=np.int64)
    square[FIRST, SECOND], square[SECOND, FIRST] = np.arange(N_PAIRS), np.arange(N_PAIRS) + N_PAIRS
    apart = 1.0 - np.eye(N_VARIABLES, dtype=real)[:, :, None]
    softplus = jax.nn.softplus

    def potentials(tables: Any, gates: Any) -> tuple[Any, Any, Any]:
        t00, t01, t10, t11 = tables.T
        both = jnp.concatenate((gates, gates))
        parts = ((t01 - t00, t10 - t00), (t11 - t01, t11 - t10), (t10 - t00, t01 - t00))
        return tuple(both * jnp.concatenate(part)[:, None] for part in parts)

    def by_pairs(tables: Any, gates: Any) -> Any:
        base, high, low = potentials(tables, gates)
        message, total = jnp.zeros_like(base), odds
        for _ in range(N_ITERATIONS):
            cavity = total[source] - message[back]
            message = base + softplus(cavity + high) - softplus(cavity + low)
            total = odds.at[target].add(message)
        return total

    def dense(tables: Any, gates: Any) -> Any:
        base, high, low = (p[square] for p in potentials(tables, gates))
        message, total = jnp.zeros_like(base), odds
        for _ in range(N_ITERATIONS):
            cavity = total[:, None] - message.transpose(1, 0, 2)
            message = (base + softplus(cavity + high) - softplus(cavity + low)) * apart
            total = odds + message.sum(axis=0)
        return total

    def runner(propagate: Callable[[Any, Any], Any]) -> Run:
        def loss(tables: Any, gates: Any) -> Any:
            return jnp.mean((jax.nn.sigmoid(propagate(tables, gates)) - observed) ** 2)

        compiled = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

        def run() -> tuple[Any, Any]:
            found: tuple[Any, Any] = jax.block_until_ready(compiled(tables, gates))[1]
            return found

        return run

    return {"by pairs": runner(by_pairs), "dense": runner(dense)}


def difference(ours: tuple[np.ndarray, np.ndarray], theirs: tuple[Any, Any]) -> float:
    """Return the largest difference of tables and gates, each divided by its largest component."""
    pairs = [(mine, np.asarray(other)) for mine, other in zip(ours, theirs, strict=True)]
    return max(float(np.abs(mine - other).max() / np.abs(other).max()) for mine, other in pairs)


RUNS_PER_BLOCK = 3
PAUSE_SECONDS = 0.2
"""Seconds to wait before each block: JAX's threads remain active for a while and would use a core of the next block."""


def clocks() -> np.ndarray:
    """Return CPU seconds, CPU seconds without system time, and wall seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array((used.ru_utime + used.ru_stime, used.ru_utime, time.perf_counter()))


def medians(rounds: int, works: list[Callable[[], Any]]) -> list[np.ndarray]:
    """Return the medians of `clocks` for each function.

    After one warm-up run, the functions alternate in blocks of several runs, because learning runs consecutive steps.
    """
    seconds: list[list[np.ndarray]] = [[] for _ in works]
    for _ in range(RUNS_PER_BLOCK):
        for work, found in zip(works, seconds, strict=True):
            time.sleep(PAUSE_SECONDS)
            work()
            for _ in range(-(-rounds // RUNS_PER_BLOCK)):
                start = clocks()
                work()
                found.append(clocks() - start)
    return [np.median(found, axis=0) for found in seconds]


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="three repetitions")
    parser.add_argument("--rounds", type=int, default=15, help="number of repetitions; the median is reported")
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    step = random_step()
    ours, ours64, scattered = (
        RelcrfStep(step, "float32"),
        RelcrfStep(step, "float64"),
        RelcrfStep(step, "float32", scattered=True),
    )
    n_threads = numba.config.NUMBA_NUM_THREADS
    result: dict[str, float | None] = dict.fromkeys(("ratio_torch", "ratio_jax", "gradient_difference"))
    columns = ("", "", "CPU ms", "without system", "wall ms", "CPU ns per message")
    table = Table(*columns, title=f"{N_MESSAGES:,} messages, forward and backward")

    def row(name: str, kind: str, seconds: np.ndarray) -> None:
        table.add_row(name, kind, *(f"{1e3 * s:.1f}" for s in seconds), f"{1e9 * seconds[0] / N_MESSAGES:.2f}")

    numba.config.NUMBA_NUM_THREADS = 1
    torch_there = is_installed("torch")
    theirs = torch_runs(step, "float32") if torch_there else {}
    works = [ours.run, ours64.run, scattered.run, *theirs.values()]
    one, one64, apart, *found = medians(rounds, works)
    for name, seconds in (("float32", one), ("float32, scattered", apart), ("float64", one64)):
        row("relcrf, one thread", name, seconds)
    for name, seconds in zip(theirs, found, strict=True):
        row("PyTorch, one thread", name, seconds)
    differences = []
    if torch_there:
        cpu, user, _ = np.min(found, axis=0)
        result["ratio_torch"], result["ratio_torch_scattered"] = cpu / one[0], cpu / apart[0]
        result["ratio_torch_user"] = user / one[1]
        differences.append(difference(ours.gradients(), theirs["by pairs"]()))
        exact = torch_runs(step, "float64")["by pairs"]()
        result["gradient_difference_float64"] = difference(ours64.gradients(), exact)

    jax_there = is_installed("jax")
    compiled = jax_runs(step, "float32") if jax_there else {}
    alone = medians(rounds, [ours.run])[0]
    numba.config.NUMBA_NUM_THREADS = n_threads
    together, *found = medians(rounds, [ours.run, *compiled.values()])
    row(f"relcrf, {n_threads} threads", "float32", together)
    for name, seconds in zip(compiled, found, strict=True):
        row("JAX, all cores", name, seconds)
    if jax_there:
        cpu, _, wall = np.min(found, axis=0)
        result["ratio_jax"], result["ratio_jax_cpu"] = wall / together[2], cpu / together[0]
        differences.append(difference(ours.gradients(), compiled["by pairs"]()))
    if differences:
        result["gradient_difference"] = max(differences)
    result |= {
        "ns_a_message": 1e9 * one[0] / N_MESSAGES,
        "ns_a_message_scattered": 1e9 * apart[0] / N_MESSAGES,
        "ns_a_message_float64": 1e9 * one64[0] / N_MESSAGES,
        "speed_up_threads": alone[2] / together[2],
    }
    console.print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
