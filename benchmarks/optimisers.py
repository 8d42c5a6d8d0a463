"""The optimisers of maximum likelihood on four problems: iterations, gradient evaluations and CPU time to the same value.

    RELCRF_DATA=... python benchmarks/optimisers.py

Synthetic web pages and images of digits (`ess`, the models of pairs), thermometers (`chow-liu`), and recipes on a graph with
loops (`dense`). A run has reached the value when its objective exceeds the best of all optimisers by at most a millionth.
Seconds are CPU time without compilation. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import classical  # noqa: E402
import pandas as pd  # noqa: E402
from support import ROOT, BenchmarkParser, sized  # noqa: E402

import relcrf  # noqa: E402
from relcrf import api  # noqa: E402
from relcrf.backends.base import Monitor  # noqa: E402
from relcrf.backends.likelihood_backend import LIKELIHOOD_OPTIMISERS  # noqa: E402
from relcrf.learning.lbfgs import OptimiserState  # noqa: E402

sys.path.insert(0, str(ROOT / "datasets"))
import sensors  # noqa: E402
from faces import digits  # noqa: E402
from web import make_web  # noqa: E402

RELATIVE_EXCESS = 1e-6
"""Excess over the best value, relative to this value, at which a run has reached it."""

SETTINGS = {"dense": {"inference": "auto"}, "ess": {"weights": "pairs", "edges": "tree"}}
"""Settings of backends: exact inference, so that the objective is convex; and only the models of pairs of `ess`."""

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Progress:
    """An optimiser's progress after an iteration; seconds are CPU time since the start of training."""

    value: float
    iterations: int
    evaluations: int
    seconds: float


class Trace(Monitor):
    """A monitor that records the progress of the first stage."""

    def __init__(self) -> None:
        self.rows: list[Progress] = []
        self._stage, self._start = "", time.process_time()

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        self._stage = self._stage or stage
        if stage == self._stage:
            seconds = time.process_time() - self._start
            self.rows.append(Progress(state.value, state.iteration, state.evaluations, seconds))


def web_pages(pages: int) -> tuple[api.Model, Tables]:
    with tempfile.TemporaryDirectory() as folder:
        make_web(Path(folder), pages)
        tables = {path.stem: pd.read_parquet(path) for path in Path(folder).glob("*.parquet")}
    return relcrf.load(ROOT / "models" / "webkb.rcrf"), tables


def thermometers(rows: int) -> tuple[api.Model, Tables]:
    readings = sensors.temperature()
    pool, _ = sensors.split(readings, 0, in_blocks=False)
    return relcrf.load(ROOT / "models" / "sensors_evidence.rcrf"), sensors.tables(readings, pool, pool[:rows])


def measure(model: api.Model, tables: Tables, backend: str, max_iterations: int) -> dict[str, dict[str, Any]]:
    """Return figures of each optimiser: to the value (None if it was not reached), and to convergence (`all_...`)."""
    grounding = model.ground(relcrf.Dataset(tables))

    def run(optimiser: str, max_iterations: int) -> list[Progress]:
        trace = Trace()
        options = {"tolerance": 1e-7, "max_iterations": max_iterations, "optimiser": optimiser}
        api.fit(model, grounding, backend, monitor=trace, **options, **SETTINGS.get(backend, {}))
        return trace.rows

    run("lbfgs", 1)  # compile the kernels
    runs = {name: run(name, max_iterations) for name in LIKELIHOOD_OPTIMISERS}
    best = min(rows[-1].value for rows in runs.values())
    found = {}
    for name, rows in runs.items():
        reached = next((row for row in rows if row.value <= best + RELATIVE_EXCESS * abs(best)), None)
        final = {f"all_{key}": value for key, value in asdict(rows[-1]).items() if key != "value"}
        at_value = dict.fromkeys(asdict(rows[-1])) if reached is None else asdict(reached)
        found[name] = {**at_value, **final, "excess": rows[-1].value / best - 1.0}
    return found


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="500 pages, 100 rows, 500 recipes")
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=300, help="number of rows of thermometers")
    parser.add_argument("--recipes", type=int, default=2_000)
    options = parser.parse_args()
    if options.quick:
        options.pages, options.rows, options.recipes = sized(options, None, (500, 100, 500), (60, 20, 100))
    tasks = {
        "web": (*web_pages(options.pages), "ess"),
        "thermometers": (*thermometers(options.rows), "chow-liu"),
        "digits": (relcrf.load(ROOT / "models" / "digits.rcrf"), digits(0), "ess"),
        "recipes": (relcrf.parse(classical.MODEL), classical.tables(options.recipes, 10, 6), "dense"),
    }
    found = {}
    for name, task in tasks.items():
        found[name] = measure(*task, sized(options, 3000, 3000, 3))
        for optimiser, figures in found[name].items():
            print(name, optimiser, {k: value and round(value, 9) for k, value in figures.items()}, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
