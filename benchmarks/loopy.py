"""Loopy belief propagation on grids, compared with PGMax (flooding) and libDAI (residual), with a random table on every edge.

    python benchmarks/loopy.py --libdai libDAI

CPU nanoseconds per directed message and iteration, one core, float64, after warm-up, measured alternately; medians. PGMax is
timed in its compiled loop only; relcrf including conversion of tables, beliefs and Bethe free energy. Both run the same
iterations on the same potentials, and the beliefs must be equal. libDAI is timed in its `run` only, in microseconds per sent
message, and relcrf in total; unary potentials are folded into libDAI's tables, so that both send the same messages.

PGMax is installed from benchmarks/requirements.txt. libDAI (https://bitbucket.org/jorism/libdai) is built by `cp
Makefile.LINUX Makefile.conf && make lib DEBUG=`, which requires g++, GMP and Boost's headers. Pass its folder as `--libdai`
or in the environment variable LIBDAI.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, cpu_seconds, is_installed, medians, sized

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.belief_propagation import BeliefPropagation

RUNNER = r"""
#include <dai/alldai.h>
#include <cstdio>
#include <ctime>
// FILE.fg PASSES: seconds of CPU, passes, messages a pass; then the marginals of all nodes, a number a line.
int main(int argc, char **argv) {
    dai::FactorGraph graph;
    graph.ReadFromFile(argv[1]);
    dai::PropertySet options;
    options.set("updates", std::string("SEQMAX"));
    options.set("maxiter", (size_t)atol(argv[2]));
    options.set("tol", (dai::Real)0.0);
    options.set("logdomain", false);
    options.set("verbose", (size_t)0);
    dai::BP bp(graph, options);
    bp.init();
    clock_t started = clock();
    bp.run();
    printf("%.9f %zu %zu\n", double(clock() - started) / CLOCKS_PER_SEC, bp.Iterations(), graph.nrEdges());
    for (size_t i = 0; i < graph.nrVars(); ++i) {
        dai::Factor belief = bp.beliefV(i);
        for (size_t x = 0; x < belief.nrStates(); ++x) printf("%.17g\n", belief[x]);
    }
}
"""
console = Console()


def grid(side: int, k: int, seed: int = 0) -> tuple[Scopes, Potentials]:
    """Return standard normal log potentials of the nodes and edges of a square grid."""
    at = np.arange(side * side, dtype=np.int32).reshape(side, side)
    across = np.column_stack((at[:, :-1].ravel(), at[:, 1:].ravel()))
    edges = np.concatenate((across, np.column_stack((at[:-1].ravel(), at[1:].ravel()))))
    scopes = Scopes(np.full(at.size, k, dtype=np.int32), 2 * np.arange(len(edges) + 1), edges.ravel())
    rng = np.random.default_rng(seed)
    return scopes, Potentials(rng.normal(size=at.size * k), rng.normal(size=len(edges) * k * k))


def pgmax(scopes: Scopes, potentials: Potentials, iterations: int):
    """Return PGMax's compiled loop, and a function that returns its marginals."""
    import jax
    from pgmax import fgraph, fgroup, infer, vgroup

    k = int(scopes.cardinality[0])
    variables = vgroup.NDVarArray(num_states=k, shape=(scopes.n_nodes,))
    pairs = [[variables[i], variables[j]] for i, j in scopes.node.reshape(-1, 2).tolist()]
    graph = fgraph.FactorGraph(variable_groups=variables)
    tables = potentials.factors.reshape(-1, k, k)
    graph.add_factors(fgroup.PairwiseFactorGroup(variables_for_factors=pairs, log_potential_matrix=tables))
    method = infer.build_inferer(graph.bp_state, backend="bp")
    arrays = method.init(evidence_updates={variables: potentials.nodes.reshape(-1, k)})
    loop = jax.jit(lambda start: method.run(start, num_iters=iterations, damping=0.0, temperature=1.0))

    def marginals() -> np.ndarray:
        return np.asarray(infer.get_marginals(method.get_beliefs(loop(arrays)))[variables]).ravel()

    return lambda: jax.block_until_ready(loop(arrays)), marginals


def write_for_libdai(path: Path, scopes: Scopes, potentials: Potentials) -> None:
    """Write libDAI's format (the first variable changes fastest); each node's potentials are part of its first pair."""
    k = int(scopes.cardinality[0])
    edges, tables = scopes.node.reshape(-1, 2), potentials.factors.reshape(-1, k, k).copy()
    unary = potentials.nodes.reshape(-1, k).copy()
    lines = [f"{len(edges)}\n"]
    for (i, j), table in zip(edges.tolist(), tables, strict=True):
        table += unary[i][:, None] + unary[j][None, :]
        unary[[i, j]] = 0.0
        cells = [f"{cell} {value!r}" for cell, value in enumerate(np.exp(table).T.ravel().tolist())]
        lines.append("\n".join(["2", f"{i} {j}", f"{k} {k}", str(len(cells)), *cells, ""]))
    path.write_text("\n".join(lines))


def libdai_runner(folder: Path, root: str | None) -> Path | None:
    """Return the command that runs libDAI's residual propagation, or print why it is skipped and return None."""
    if not root:
        console.print("libDAI is skipped: neither --libdai nor LIBDAI is set")
        return None
    library, source, runner = Path(root) / "lib" / "libdai.a", folder / "runner.cpp", folder / "runner"
    if not library.exists():
        console.print(f"libDAI is skipped: {library} does not exist")
        return None
    source.write_text(RUNNER)
    include = f"-I{Path(root) / 'include'}"
    command = [
        "g++",
        "-O3",
        "-DNDEBUG",
        "-DDAI_WITH_BP",
        "-w",
        include,
        source,
        library,
        "-lgmpxx",
        "-lgmp",
        "-o",
        runner,
    ]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        console.print(f"libDAI is skipped: its runner does not compile: {made.stderr.splitlines()[0]}")
        return None
    return runner


def flooding(result: dict, sides: dict[int, int], iterations: int, repeats: int) -> None:
    has_pgmax = is_installed("PGMax")
    table = Table("k", "grid", "relcrf", "PGMax", "ratio", "difference", title="flooding, ns per message")
    for k, side in sides.items():
        scopes, potentials = grid(side, k)
        method = BeliefPropagation(scopes, max_iterations=iterations, tolerance=0.0)
        works = [lambda method=method, potentials=potentials: method.marginals(potentials)]
        if has_pgmax:
            loop, marginals = pgmax(scopes, potentials, iterations)
            works.append(loop)
        messages = iterations * len(scopes.node)
        seconds = medians(repeats, *works)
        nanoseconds = [s / messages * 1e9 for s in seconds]
        ratio = difference = None
        if has_pgmax:
            ratio = round(seconds[1] / seconds[0], 2)
            difference = float(np.abs(method.marginals(potentials).nodes - marginals()).max())
        result[f"ns_k{k}"], result[f"ratio_pgmax_k{k}"] = round(nanoseconds[0], 2), ratio
        result[f"difference_pgmax_k{k}"] = difference
        shown = [f"{x:.1f}" for x in nanoseconds] + ["-"] * (2 - len(nanoseconds))
        table.add_row(str(k), f"{side} x {side}", *shown, str(ratio), str(difference))
    console.print(table)


def growth(result: dict, side: int, repeats: int) -> None:
    table = Table("k", "grid", "ns per message", "with a tenth of the nodes", title="flooding, growth")
    small, iterations = round(side / 10**0.5), 20
    for k in (2, 5, 10):
        works, messages = [], []
        for n in (side, small):
            scopes, potentials = grid(n, k)
            method = BeliefPropagation(scopes, max_iterations=iterations, tolerance=0.0)
            works.append(lambda method=method, potentials=potentials: method.marginals(potentials))
            messages.append(iterations * len(scopes.node))
        large, tenth = (s / m * 1e9 for s, m in zip(medians(repeats, *works), messages, strict=True))
        result[f"ns_large_k{k}"], result[f"growth_10x_k{k}"] = round(large, 2), round(10 * large / tenth, 2)
        table.add_row(str(k), f"{side} x {side}", f"{large:.1f}", f"{tenth:.1f}")
    console.print(table)


def residual(result: dict, side: int, passes: int, repeats: int, root: str | None) -> None:
    table = Table("k", "grid", "relcrf", "libDAI", "ratio", "difference", title="residual, us per sent message")
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runner = libdai_runner(folder, root)
        for k in (2, 5, 10):
            scopes, potentials = grid(side, k)
            method = BeliefPropagation(scopes, schedule="residual", max_iterations=passes, tolerance=0.0)
            found = method.marginals(potentials)
            if runner:
                write_for_libdai(folder / "grid.fg", scopes, potentials)
            ours, theirs, beliefs = [], [], np.empty(0)
            for _ in range(repeats):
                ours.append(cpu_seconds(lambda method=method, potentials=potentials: method.marginals(potentials)))
                if runner:
                    command = [runner, folder / "grid.fg", str(passes)]
                    head, *rest = subprocess.run(
                        command, check=True, capture_output=True, text=True
                    ).stdout.splitlines()
                    seconds, done, sent = head.split()
                    assert (int(done), int(sent)) == (found.verdict.iterations, len(scopes.node))
                    theirs.append(float(seconds))
                    beliefs = np.array(rest, dtype=np.float64)
            each = statistics.median(ours) / passes / len(scopes.node) * 1e6
            result[f"us_residual_k{k}"] = round(each, 3)
            row = ["-", "-", "-"]
            if runner:
                ratios.append(statistics.median(theirs) / statistics.median(ours))
                result[f"ratio_libdai_residual_k{k}"] = round(ratios[-1], 2)
                # libDAI's beliefs include the pending messages
                difference = f"{np.abs(beliefs - found.nodes).max():.1e}"
                row = [f"{ratios[-1] * each:.2f}", f"{ratios[-1]:.2f}", difference]
            table.add_row(str(k), f"{side} x {side}", f"{each:.2f}", *row)
    result["ratio_libdai_residual"] = round(min(ratios), 2) if ratios else None
    console.print(table)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="smaller grids, fewer repetitions")
    parser.add_argument("--side", type=int, default=300, help="side of the grid of the growth test")
    parser.add_argument("--libdai", default=os.environ.get("LIBDAI"), help="folder of the built libDAI")
    arguments = parser.parse_args()
    os.environ["JAX_ENABLE_X64"] = "1"
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # otherwise JAX uses all cores
    result: dict = {}
    sides = sized(arguments, {2: 70, 5: 70, 10: 70}, {2: 40, 5: 40, 10: 30}, {2: 4, 5: 4, 10: 4})
    flooding(result, sides, sized(arguments, 100, 100, 5), sized(arguments, 7, 3, 1))
    growth(result, sized(arguments, arguments.side, 150, 8), sized(arguments, 3, 3, 1))
    residual(result, sized(arguments, 50, 50, 5), 10, sized(arguments, 5, 3, 1), arguments.libdai)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
