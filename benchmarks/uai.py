"""`relcrf infer` on the models of the UAI inference competitions, compared with the published answers and with pyAgrum.

    python benchmarks/uai.py uai2014 --seconds 60 1200

The folder has the competition's layout: `MAR/X.uai` with the evidence `X.uai.evid` and the published marginals `X.uai.MAR`,
and `PR/X.uai.PR` with the published base-10 logarithm of the partition function. The repository
mroavi/uai-2014-inference-competition on GitHub contains the 142 models of 2014. Without a folder, small random models are
written and solved by enumeration.

Each task runs in its own process with the command `relcrf infer X.uai --evidence X.uai.evid --task TASK --time-limit SECONDS`.
A model is solved (`within_1e4_...`) if the partition function and all marginals differ from the published numbers by at most
1e-4, or by half a unit of the last published digit. `exact_and_wrong` counts models whose verdict is exact but whose result
differs; `false_impossible` counts models that are called impossible although the published partition function is positive.
`median_error_by_family` is the median of the mean absolute errors of the marginals of the models that are not solved.

pyAgrum (Shafer & Shenoy) computes the marginals of the same models, in a process with the same time limit, if it is installed.

    python benchmarks/uai.py uai2014 --best-states

compares most probable states (`--task MPE`) of models in the folder `MAP` with toulbar2 (pytoulbar2), with 8 seconds each.
toulbar2 reads the model given the evidence. `as_good` counts models on which relcrf's score is at least that of toulbar2, up
to a relative difference of 1e-6; `above_optimum` counts scores above an optimum that toulbar2 has proved.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from support import ROOT, BenchmarkParser, sized

from relcrf.execution.memory import available_bytes
from relcrf.graph.conditioning import condition
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.graph.uai import (
    UaiModel,
    format_marginals,
    format_model,
    format_partition,
    read_evidence,
    read_model,
)
from relcrf.inference.enumeration import Enumeration

TOLERANCE = 1e-4
BEST_STATES = (
    *(f"Promedas_{number}" for number in (11, 15, 20, 25, 30, 35, 40, 45, 50, 60)),
    *(f"Grids_{number}" for number in range(18, 23)),
    *("ProteinFolding_11", "ProteinFolding_19", "wcsp_11", "wcsp_12", "wcsp_15"),
    *("ObjectDetection_11", "ObjectDetection_12", "ObjectDetection_14"),
)
"""Models whose most probable states are compared."""

BEST_STATES_SECONDS = 8
GRACE_SECONDS = 30
"""Additional time after the time limit, for the start of the process and for the output, before it is killed."""

PYAGRUM = """
import json, resource, sys
import pyagrum
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
model = pyagrum.loadMRF(sys.argv[1])
inference = pyagrum.ShaferShenoyMRFInference(model)
inference.setEvidence({model.variable(int(v)).name(): x for v, x in json.loads(sys.argv[2]).items()})
inference.makeInference()
print(json.dumps({"marginals": [inference.posterior(v).tolist() for v in range(model.size())]}))
"""
"""A program that prints the marginals of the model of its first argument, given the evidence of its second argument.

The third argument limits its memory in bytes; without a limit, the clique trees of pyAgrum fill the memory of the machine.
"""

TOULBAR2 = """
import json, sys
import pytoulbar2
network = pytoulbar2.CFN(verbose=-1)
network.Read(sys.argv[1])
best = network.Solve(timeLimit=int(sys.argv[2]), showSolutions=0)
states, cost = best[0], best[1]
is_proved = network.GetDDualBound() >= cost - 1e-6 * max(1.0, abs(cost))
print(json.dumps({"states": [int(x) for x in states], "is_proved": is_proved}))
"""
"""A program that prints the best joint state of the model of its first argument, found in the seconds of its second argument."""


@dataclass
class Outcome:
    """The results of a program on a model.

    Args:
        partition_error, marginal_error: Largest absolute error; inf without a result.
        mean_error: Mean absolute error of the marginals; nan without a result.
    """

    family: str
    partition_error: float = np.inf
    marginal_error: float = np.inf
    mean_error: float = np.nan
    seconds: float = 0.0
    verdicts: list[str] = field(default_factory=list)
    is_called_impossible: bool = False

    @property
    def is_solved(self) -> bool:
        return self.partition_error <= TOLERANCE and self.marginal_error <= TOLERANCE  # False for nan

    @property
    def is_exact_and_wrong(self) -> bool:
        errors = (self.partition_error, self.marginal_error)
        return any(
            verdict == "exact" and TOLERANCE < error < np.inf
            for verdict, error in zip(self.verdicts, errors, strict=False)
        )


@dataclass(frozen=True)
class Instance:
    """A model of a competition with the published answers."""

    folder: Path
    name: str

    @property
    def family(self) -> str:
        return self.name.partition("_")[0]

    @property
    def model(self) -> Path:
        return self.folder / "MAR" / f"{self.name}.uai"

    @property
    def evidence_file(self) -> Path:
        return self.model.with_name(f"{self.name}.uai.evid")

    def evidence(self) -> dict[int, int]:
        """Return the observed states."""
        numbers = [int(word) for word in self.evidence_file.read_text().split()]
        if len(numbers) % 2 == 0:  # the number of evidence sets comes first
            numbers = numbers[1:]
        return dict(zip(numbers[1::2], numbers[2::2], strict=True))

    def partition_error(self, value: float) -> float:
        """Return the distance to the published partition function, less half a unit of its last digit."""
        published = (self.folder / "PR" / f"{self.name}.uai.PR").read_text().split()[-1]
        exponent = Decimal(published).as_tuple().exponent
        assert isinstance(exponent, int)
        return max(0.0, abs(value - float(published)) - 0.5 * 10.0**exponent)

    def marginal_errors(self, marginals: list[list[float]]) -> np.ndarray:
        """Return the absolute errors of all probabilities."""
        words = (self.folder / "MAR" / f"{self.name}.uai.MAR").read_text().split()
        numbers = iter(words[words.index("MAR") + 2 :])
        published = [float(next(numbers)) for table in marginals for _ in range(1 + len(table))]
        found = [number for table in marginals for number in (len(table), *table)]
        return np.abs(np.array(published) - np.array(found))


def run(command: list[str], seconds: float) -> tuple[dict[str, Any] | None, float]:
    """Run a program that prints JSON; return what it prints, None if it fails, and the elapsed seconds."""
    start = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return None, time.perf_counter() - start
    elapsed = time.perf_counter() - start
    try:
        return json.loads(done.stdout), elapsed
    except json.JSONDecodeError:
        return None, elapsed


def solve(instance: Instance, seconds: float) -> Outcome:
    """Run both tasks of relcrf on a model."""
    outcome = Outcome(instance.family)
    command = [sys.executable, "-m", "relcrf", "infer", str(instance.model), "--evidence", str(instance.evidence_file)]
    for task in ("PR", "MAR"):
        found, elapsed = run([*command, "--task", task, "--time-limit", f"{seconds:g}s", "--json"], seconds)
        outcome.seconds += elapsed
        if found is None or "verdict" not in found:
            errors = [] if found is None else [each["code"] for each in found.get("errors", [])]
            outcome.is_called_impossible |= "E242" in errors
            outcome.verdicts.append(" ".join(errors) or "no result")
            continue
        outcome.verdicts.append(found["verdict"]["status"])
        outcome.is_called_impossible |= not found["possible"]
        if task == "PR" and found["possible"]:
            outcome.partition_error = instance.partition_error(found["log10_partition"])
        elif task == "MAR":
            errors = instance.marginal_errors(found["marginals"])
            outcome.marginal_error, outcome.mean_error = float(errors.max()), float(errors.mean())
    return outcome


def write_for_pyagrum(path: Path, out: Path) -> None:
    """Write a model with at least two states per variable, one factor per scope, and scopes in descending order.

    pyAgrum requires this: in a table of the UAI format, the last variable of the scope varies fastest; in pyAgrum, the variable
    with the lowest index. Additional states have the potential 0.
    """
    model = read_model(path)
    scopes, potentials = model.scopes.expand_agreements(model.potentials)
    states, cells = scopes.state_start, scopes.table_start
    tables: dict[tuple[int, ...], np.ndarray] = {}
    factors = [([v], potentials.nodes[states[v] : states[v + 1]]) for v in range(scopes.n_nodes)]
    for f in range(scopes.n_factors):
        scope = scopes.node[scopes.start[f] : scopes.start[f + 1]].tolist()
        factors.append((scope, potentials.factors[cells[f] : cells[f + 1]]))
    for scope, table in factors:
        shape = scopes.cardinality[scope]
        padding = [(0, max(0, 2 - int(size))) for size in shape]
        padded = np.pad(table.reshape(shape), padding, constant_values=-np.inf)
        key = tuple(sorted(scope, reverse=True))
        tables[key] = tables.get(key, 0.0) + padded.transpose(np.argsort(scope)[::-1]).ravel()
    cardinality = np.maximum(scopes.cardinality, 2)
    lines = ["MARKOV", str(scopes.n_nodes), " ".join(map(str, cardinality)), str(len(tables))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope in tables]
    lines += [f"{len(table)}\n{' '.join(map(repr, np.exp(table).tolist()))}" for table in tables.values()]
    out.write_text("\n".join(lines) + "\n")


def solve_by_pyagrum(instance: Instance, seconds: float) -> Outcome:
    """Run pyAgrum on a model; it computes no partition function."""
    outcome = Outcome(instance.family, partition_error=0.0)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.uai"
        write_for_pyagrum(instance.model, model)
        arguments = [str(model), json.dumps(instance.evidence()), str(available_bytes() // 2)]
        found, outcome.seconds = run([sys.executable, "-c", PYAGRUM, *arguments], seconds - GRACE_SECONDS)
    if found is not None:
        cardinality = read_model(instance.model).scopes.cardinality.tolist()
        errors = instance.marginal_errors([row[:k] for row, k in zip(found["marginals"], cardinality, strict=True)])
        outcome.marginal_error, outcome.mean_error = float(errors.max()), float(errors.mean())
    return outcome


def write_random_models(folder: Path, n: int) -> None:
    """Write random models with evidence and answers by enumeration."""
    (folder / "MAR").mkdir()
    (folder / "PR").mkdir()
    for seed in range(n):
        rng = np.random.default_rng(seed)
        n_nodes = 8
        scope = [sorted(rng.choice(n_nodes, size=rng.integers(2, 4), replace=False)) for _ in range(12)]
        start = np.cumsum([0, *map(len, scope)])
        scopes = Scopes(rng.integers(2, 4, size=n_nodes), start, np.concatenate(scope))
        factors = rng.normal(size=int(scopes.table_start[-1]))
        potentials = Potentials(rng.normal(size=int(scopes.state_start[-1])), factors)
        states = np.full(n_nodes, -1)
        states[0] = 1
        name = folder / "MAR" / f"random_{seed}.uai"
        name.write_text(format_model(UaiModel(scopes, potentials, 0.0)))
        name.with_name(f"{name.name}.evid").write_text("1 0 1")
        exact = Enumeration(scopes).marginals(potentials.clamp(scopes, states))
        left = condition(scopes, potentials, states)
        assert np.isfinite(left.constant)
        (folder / "PR" / f"{name.name}.PR").write_text(format_partition(exact.log_partition))
        name.with_name(f"{name.name}.MAR").write_text(format_marginals(scopes.cardinality, exact.nodes))


def find_instances(folder: Path, families: list[str]) -> Iterator[Instance]:
    """Find the models of a folder that have both published answers."""
    for path in sorted((folder / "MAR").glob("*.uai")):
        instance = Instance(folder, path.stem)
        is_complete = (folder / "PR" / f"{path.name}.PR").exists() and path.with_name(f"{path.name}.MAR").exists()
        if is_complete and (not families or instance.family in families):
            yield instance


def compare_best_states(folder: Path, console: Console) -> dict[str, Any]:
    """Compare the scores of the most probable states with those of toulbar2."""
    n, as_good, above_optimum = 0, 0, 0
    for name in BEST_STATES:
        path = folder / "MAP" / f"{name}.uai"
        if not path.exists():
            continue
        model = read_model(path)
        states = read_evidence(path.with_name(f"{name}.uai.evid"), model.scopes.cardinality)
        left = condition(model.scopes, model.potentials, states)
        limit = ("--time-limit", f"{BEST_STATES_SECONDS}s")
        evidence = ("--evidence", f"{path}.evid")
        command = [sys.executable, "-m", "relcrf", "infer", str(path), *evidence, "--task", "MPE", *limit, "--json"]
        found, seconds = run(command, BEST_STATES_SECONDS)
        score = -np.inf if found is None else found.get("log10_score", -np.inf)
        with tempfile.TemporaryDirectory() as scratch:
            reduced = Path(scratch) / "model.uai"
            reduced.write_text(format_model(UaiModel(left.scopes, left.potentials, 0.0)))
            rival, rival_seconds = run([sys.executable, "-c", TOULBAR2, str(reduced), str(BEST_STATES_SECONDS)], 60)
        n += 1
        constant = model.constant + left.constant
        rival_score = -np.inf
        if rival is not None:
            rival_score = left.scopes.score(left.potentials, np.array(rival["states"])) + constant
        slack = 1e-6 * max(1.0, abs(score))
        rival_score /= np.log(10)
        as_good += score >= rival_score - slack
        is_proved = rival is not None and rival["is_proved"]
        above_optimum += is_proved and score > rival_score + slack
        console.print(
            f"{name}: relcrf {score:.6g} ({seconds:.1f} s), toulbar2 {rival_score:.6g} ({rival_seconds:.1f} s)"
            + (", proved" if is_proved else "")
        )
    return {"instances": n, "as_good": int(as_good), "above_optimum": int(above_optimum)}


def summarise(outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """Return the figures of a program at a time limit."""
    families = sorted({outcome.family for outcome in outcomes})
    errors = {
        family: [
            o.mean_error for o in outcomes if o.family == family and not o.is_solved and not np.isnan(o.mean_error)
        ]
        for family in families
    }
    return {
        f"within_1e4_{seconds:g}s": sum(o.is_solved for o in outcomes),
        "exact_and_wrong": sum(o.is_exact_and_wrong for o in outcomes),
        "false_impossible": sum(o.is_called_impossible for o in outcomes),
        "median_error_by_family": {family: statistics.median(each) for family, each in errors.items() if each},
        "no_result": sum(o.marginal_error == np.inf for o in outcomes),
        "seconds": sum(o.seconds for o in outcomes),
    }


def tabulate(title: str, outcomes: list[Outcome]) -> Table:
    """Return a table with one row per family."""
    table = Table(title=title)
    for heading in ("family", "models", "solved", "Z solved", "marginals solved", "exact", "median error", "seconds"):
        table.add_column(heading, justify="left" if heading == "family" else "right")
    for family in sorted({outcome.family for outcome in outcomes}):
        members = [outcome for outcome in outcomes if outcome.family == family]
        errors = [o.mean_error for o in members if not np.isnan(o.mean_error)]
        table.add_row(
            family,
            str(len(members)),
            str(sum(o.is_solved for o in members)),
            str(sum(o.partition_error <= TOLERANCE for o in members)),
            str(sum(o.marginal_error <= TOLERANCE for o in members)),
            str(sum(o.verdicts == ["exact", "exact"] for o in members)),
            f"{statistics.median(errors):.2g}" if errors else "",
            f"{sum(o.seconds for o in members):.0f}",
        )
    return table


def main() -> None:
    parser = BenchmarkParser(__doc__, "solve only models of the families Grids, Promedus and Pedigree")
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the models and the published answers")
    parser.add_argument("--seconds", nargs="+", type=float, help="time limits; default 60")
    parser.add_argument("--families", nargs="+", default=[], help="families to solve; default all")
    parser.add_argument("--jobs", type=int, default=1, help="number of models that are solved at the same time")
    parser.add_argument("--best-states", action="store_true", help="compare most probable states with toulbar2")
    parser.add_argument("--no-rivals", action="store_true", help="do not run pyAgrum")
    options = parser.parse_args()
    console = Console(width=120)
    if options.best_states:
        if options.folder is None or not importlib.util.find_spec("pytoulbar2"):
            parser.error("--best-states needs a folder and the package pytoulbar2")
        print(json.dumps(compare_best_states(options.folder.resolve(), console)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder
        if folder is None:
            folder = Path(scratch)
            write_random_models(folder, sized(options, 20, 6, 1))
            options.families = []
        elif options.quick:
            options.families = options.families or ["Grids", "Promedus", "Pedigree"]
        instances = list(find_instances(folder.resolve(), options.families))
        if not instances:
            parser.error(f"'{folder}' has no folders MAR and PR with models and answers")
        figures: dict[str, Any] = {"instances": len(instances)}
        programs = {"relcrf": solve}
        if not options.no_rivals and importlib.util.find_spec("pyagrum"):
            programs["pyagrum"] = solve_by_pyagrum
        for seconds in options.seconds or sized(options, [60.0], [60.0], [20.0]):
            for name, program in programs.items():
                with ThreadPoolExecutor(options.jobs) as pool:
                    outcomes = []
                    for instance, outcome in zip(
                        instances, pool.map(partial(program, seconds=seconds), instances), strict=True
                    ):
                        outcomes.append(outcome)
                        console.print(
                            f"{name} {instance.name}: errors {outcome.partition_error:.2g} and "
                            f"{outcome.marginal_error:.2g}, {', '.join(outcome.verdicts)}, {outcome.seconds:.1f} s"
                        )
                console.print(tabulate(f"{name}, {seconds:g} s", outcomes))
                summary = summarise(outcomes, seconds)
                if name == "relcrf":
                    figures |= summary
                else:
                    figures[name] = {**figures.get(name, {}), **summary}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
