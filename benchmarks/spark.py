"""Spark, compared with one process: equal rows and weights, an executor killed during training, and the cost of an iteration.

    python benchmarks/spark.py --pages 50000

Requires the extra `spark` and Java. Two Spark executors run on this machine, each a process with one core. An ESS-CRF is
trained on a synthetic web graph of many sites, partitioned into shards, in one process, by two processes and on Spark, once
with an executor killed. The overhead is that of an evaluation that computes nothing, with the same number of weights.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from support import ROOT, BenchmarkParser, no_work, sized

import relcrf
from relcrf import api
from relcrf.backends.base import Monitor, Problem
from relcrf.backends.registry import make_backend
from relcrf.backends.sharded import shard_problem, unload_shards
from relcrf.data.binding import bind
from relcrf.errors import UsageError
from relcrf.execution.base import AbstractExecutor
from relcrf.execution.pool import PoolExecutor
from relcrf.execution.serial import SerialExecutor
from relcrf.execution.spark import SparkExecutor
from relcrf.execution.spark_session import require_spark, spark_session
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.ground import create_relation_tables
from relcrf.grounding.lower import lower_template
from relcrf.learning.lbfgs import OptimiserState

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from checksum import checksum
from executor_processes import executor_pids, gone

sys.path.insert(0, str(ROOT / "datasets"))
from web import make_web

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARD_MEMORY = 10_000_000
"""Memory per worker in bytes; small, so that there are many shards."""
KILL_AT = 2
"""Iteration in which an executor is killed."""


def ground(session: SparkSession, folder: Path) -> bool:
    """Return whether Spark and DuckDB ground the same rows of a synthetic web graph."""
    bound = bind(relcrf.load(ROOT / "models" / "webkb.rcrf").spec, relcrf.Dataset(folder / "web"))
    create_relation_tables(bound)
    facts = make_lowering_context(bound)
    engines = DuckDbEngine(bound.cursor), SparkEngine(session, bound.cursor)
    equal = True
    for template in facts.spec.templates:
        plan = lower_template(template, facts).plan
        sums, seconds = [], []
        for engine in engines:
            start = time.perf_counter()
            sums.append(checksum(engine.rows(plan), plan.outputs))
            seconds.append(time.perf_counter() - start)
        equal = equal and sums[0] == sums[1]
        found = "equal" if sums[0] == sums[1] else f"DIFFERENT ROWS: {sums}"
        print(
            f"{template.name:24} {sums[0][0]:12,} rows, DuckDB {seconds[0]:6.2f} s, Spark {seconds[1]:6.2f} s, {found}",
            flush=True,
        )
    for engine in engines:
        engine.close()
    return equal


@dataclass
class TrainingResult:
    """The result of a training: the concatenated weight vectors, and the seconds of each iteration."""

    weights: np.ndarray
    seconds: list[float]


class Clock(Monitor):
    """A callback that measures each iteration, and kills a process during one of them."""

    def __init__(self, victim: int | None) -> None:
        self.victim, self.last, self.seconds = victim, time.perf_counter(), []

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now
        if self.victim is not None and len(self.seconds) == KILL_AT:
            threading.Timer(0.05, os.kill, (self.victim, signal.SIGKILL)).start()


def learn(
    problem: Problem, executor: AbstractExecutor | None, folder: Path, iterations: int, victim: int | None = None
) -> TrainingResult:
    """Train an ESS-CRF in shards, or as a whole without an executor."""
    clock = Clock(victim)
    pieces = problem
    if executor is not None:
        folder.mkdir()
        pieces = shard_problem(problem, executor, folder, SHARD_MEMORY)
        clock.last = time.perf_counter()
    learned = make_backend("ess", max_iterations=iterations, tolerance=1e-12, edges="tree").fit(pieces, clock)
    unload_shards()
    return TrainingResult(np.concatenate([learned.vectors[name] for name in sorted(learned.vectors)]), clock.seconds)


def overhead(executor: AbstractExecutor, shards: list[Path], n_weights: int, times: int) -> float:
    """Return the median seconds of an evaluation that computes nothing."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        executor.map_reduce(partial(no_work, weights=np.zeros(n_weights)), shards)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def print_times(name: str, learnt: TrainingResult) -> None:
    median, worst = statistics.median(learnt.seconds), max(learnt.seconds[1:])
    print(f"{name:24} median {median:6.3f} s per iteration, maximum after the first {worst:6.3f} s", flush=True)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="4 iterations, 2,000 pages")
    parser.add_argument("--iterations", type=int, default=20, help="iterations of each of the two optimisations")
    parser.add_argument("--pages", type=int, default=50_000)
    options = parser.parse_args()
    if options.quick:
        options.iterations, options.pages = sized(options, None, (4, 2_000), (2, 200))

    try:
        require_spark()
    except UsageError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_web(place / "web", options.pages, sites=100)
        grounding = relcrf.load(ROOT / "models" / "webkb.rcrf").ground(relcrf.Dataset(place / "web"))
        problem = api.training_problem(grounding)
        n_weights = problem.graph.layout.size
        start = time.perf_counter()
        session = spark_session("local-cluster[2,1,1024]")
        print(f"Spark starts in {time.perf_counter() - start:.1f} s", flush=True)
        equal = ground(session, place)
        on_spark = SparkExecutor(session)

        whole = learn(problem, None, place / "whole", options.iterations)
        print_times("in one piece", whole)
        serial = learn(problem, SerialExecutor(), place / "serial", options.iterations)
        print_times("in shards", serial)
        shards = sorted((place / "serial").glob("shard*"))
        with PoolExecutor(2) as pool:
            pooled = learn(problem, pool, place / "pool", options.iterations)
            print_times("2 processes", pooled)
            pool_overhead = overhead(pool, shards, n_weights, 10)
        sparked = learn(problem, on_spark, place / "spark", options.iterations)
        print_times("Spark, 2 executors", sparked)
        spark_overhead = overhead(on_spark, shards, n_weights, 10)
        victim = executor_pids()[0]
        killed = learn(problem, on_spark, place / "killed", options.iterations, victim)
        print_times("Spark, one killed", killed)
        session.stop()

    others = (pooled, sparked, killed)
    result = {
        "pages": options.pages,
        "shards": len(shards),
        "weights": n_weights,
        "weight_difference": max(float(np.abs(other.weights - serial.weights).max()) for other in others),
        "weight_difference_in_one_piece": float(np.abs(whole.weights - serial.weights).max()),
        "checksums_equal": equal,
        "survived_kill": gone([victim]) and np.array_equal(killed.weights, serial.weights),
        "overhead_seconds_per_iteration": spark_overhead,
        "overhead_seconds_per_iteration_pool": pool_overhead,
        "seconds_serial": statistics.median(serial.seconds),
        "seconds_pool": statistics.median(pooled.seconds),
        "seconds_spark": statistics.median(sparked.seconds),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
