"""Spark beside one process: equal rows and weights, an executor killed in the middle, and what an iteration costs.

    python benchmarks/spark.py --shards 16

Needs the extra `spark` and Java. Two executors of Spark run on this machine, each a process of its own with one core. The
shards are a small logistic regression, slowed down; the overhead is that of an evaluation that computes nothing, with
weights and a gradient of a useful size.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import relcrf
from relcrf.data.binding import bind
from relcrf.errors import UsageError
from relcrf.execution.base import AbstractExecutor
from relcrf.execution.pool import PoolExecutor
from relcrf.execution.serial import SerialExecutor
from relcrf.execution.spark import SparkExecutor
from relcrf.execution.spark_session import demand_spark, spark_session
from relcrf.grounding.derive import facts_of
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.ground import prepare
from relcrf.grounding.lower import lower_template
from relcrf.learning.lbfgs import Lbfgs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "datasets"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from checksum import checksum
from executor_processes import executor_pids, gone
from logistic_shards import N_WEIGHTS, LogisticLoss, make_shards
from web import make_web

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
MANY_WEIGHTS = 50_000
"""Of the evaluations that measure the overhead."""
PAUSE = 0.02
"""Seconds that each shard takes at least, so that an executor can be killed in the middle of an evaluation."""
KILL_AT = 8
"""The evaluation in which an executor is killed."""


def ground(session: SparkSession, folder: Path, pages: int) -> bool:
    """Whether Spark and DuckDB ground the same rows of a synthetic web."""
    make_web(folder / "web", pages)
    bound = bind(relcrf.load(ROOT / "models" / "webkb.rcrf").spec, relcrf.Dataset(folder / "web"))
    prepare(bound)
    facts = facts_of(bound)
    engines = DuckDbEngine(bound.cursor), SparkEngine(session, bound.cursor, folder / "exchange")
    equal = True
    for template in facts.spec.templates:
        plan = lower_template(template, facts).plan
        sums, seconds = [], []
        for engine in engines:
            start = time.perf_counter()
            sums.append(checksum(engine.rows(plan), plan.outputs))
            seconds.append(time.perf_counter() - start)
        equal = equal and sums[0] == sums[1]
        found = "equal" if sums[0] == sums[1] else f"OTHER ROWS: {sums}"
        print(
            f"{template.name:24} {sums[0][0]:12,} rows, DuckDB {seconds[0]:6.2f} s, Spark {seconds[1]:6.2f} s, {found}",
            flush=True,
        )
    for engine in engines:
        engine.close()
    return equal


def nothing(shard: Path, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """What costs no time, with weights and a gradient of the same size."""
    return 0.0, weights


@dataclass
class Learnt:
    weights: np.ndarray
    seconds: list[float]
    """Of each evaluation."""


def learn(
    executor: AbstractExecutor, shards: list[Path], iterations: int, before: Callable[[int], None] = lambda n: None
) -> Learnt:
    seconds: list[float] = []

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        before(len(seconds))
        start = time.perf_counter()
        found = executor.map_reduce(LogisticLoss(PAUSE), shards, point)
        seconds.append(time.perf_counter() - start)
        return found

    optimiser = Lbfgs(tolerance=0.0, value_tolerance=0.0, max_iterations=iterations)
    state = optimiser.minimise(objective, optimiser.start(objective, np.zeros(N_WEIGHTS)))
    return Learnt(state.point, seconds)


def overhead(executor: AbstractExecutor, shards: list[Path], times: int) -> float:
    """Median seconds of an evaluation that computes nothing."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        executor.map_reduce(nothing, shards, np.zeros(MANY_WEIGHTS))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def kill(pid: int) -> Callable[[int], None]:
    """Kills the process 50 ms into evaluation KILL_AT."""

    def before(evaluation: int) -> None:
        if evaluation == KILL_AT:
            threading.Timer(0.05, os.kill, (pid, signal.SIGKILL)).start()

    return before


def say(name: str, learnt: Learnt) -> None:
    median, worst = statistics.median(learnt.seconds), max(learnt.seconds[1:])
    print(f"{name:24} median {median:6.3f} s an evaluation, worst but the first {worst:6.3f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--pages", type=int, default=100_000, help="of the web that is grounded")
    parser.add_argument("--quick", action="store_true", help="8 shards, 12 iterations, 5,000 pages")
    options = parser.parse_args()
    if options.quick:
        options.shards, options.iterations, options.pages = 8, 12, 5_000

    try:
        demand_spark()
    except UsageError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder:
        shards = make_shards(Path(folder), options.shards)
        start = time.perf_counter()
        session = spark_session("local-cluster[2,1,1024]")
        print(f"Spark starts in {time.perf_counter() - start:.1f} s", flush=True)
        equal = ground(session, Path(folder), options.pages)
        on_spark = SparkExecutor(session)

        serial = learn(SerialExecutor(), shards, options.iterations)
        say("one process", serial)
        with PoolExecutor(2) as pool:
            pooled = learn(pool, shards, options.iterations)
            say("2 processes", pooled)
            pool_overhead = overhead(pool, shards, 10)
        sparked = learn(on_spark, shards, options.iterations)
        say("Spark, 2 executors", sparked)
        spark_overhead = overhead(on_spark, shards, 10)
        victim = executor_pids()[0]
        killed = learn(on_spark, shards, options.iterations, kill(victim))
        say("Spark, one killed", killed)
        session.stop()

    others = (pooled, sparked, killed)
    result = {
        "shards": options.shards,
        "weights": MANY_WEIGHTS,
        "weight_difference": max(float(np.abs(other.weights - serial.weights).max()) for other in others),
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
