"""Active learning of numbers: error with numbers that `relcrf ask` chooses, compared with random choice and large deviations.

    RELCRF_DATA=... python benchmarks/ask_numbers.py

Three tasks:

- `prices`: 400 houses of the example `prices`. The prices of ten random houses are known at first; relcrf (backend `auto`) is
  trained again in each step.
- `temperature` and `speed`: the sensors of `numbers.py`. All readings of the known time are training data; in the test period, no
  reading is known at first, and the numbers of labels are readings per moment, on average. The weights are not learned again.

In each step, the methods choose further numbers among two thirds of the unknown ones; nobody asks for the others, the test
numbers.

- `ask`: `relcrf ask` with default settings;
- `random`: numbers drawn at random, of sensors the same number at each moment;
- `deviation`: the numbers with the largest predicted deviations (uncertainty sampling).

`test` is the RMSE of the test numbers, and `all` that of all numbers that are unknown at first, where the error of a chosen
number is 0. Figures are means over the seeds; `ratio` is the mean ratio of the test RMSE to that of random choice over the steps
after the first, with its standard error over the seeds (smaller is better).

The growth is that of the CPU seconds of one `ask` for 20 of all unknown prices in neighbouring houses, from a tenth of `--houses`
to `--houses`; `random` is the same with links between random houses, for which gains are estimated.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from number_targets import MODEL, make_task, read_speeds, read_temperatures, repeated_houses, sensor_tables  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support import BenchmarkParser, ResultCache, sized  # noqa: E402

import relcrf  # noqa: E402
from relcrf import api  # noqa: E402
from relcrf.datasets.houses import house_prices  # noqa: E402
from relcrf.grounding.grounding import Grounding  # noqa: E402

HOUSE_LABELS = (10, 20, 30, 40, 60, 80, 120)
READINGS_PER_MOMENT = (0, 1, 2, 4, 8)


@dataclass(frozen=True)
class NumberTask:
    """Numbers of which few are known.

    Args:
        unknown: Mask of the numbers that are unknown at first.
        group: Group of each number; random choice takes the same number from each group.
        labels: Number of chosen numbers after each step.
        retrain: Whether the weights are learned again in each step.
    """

    model: api.Model
    grounding: Grounding
    unknown: np.ndarray
    group: np.ndarray
    labels: tuple[int, ...]
    retrain: bool


def house_task(seed: int, n_steps: int) -> NumberTask:
    model = relcrf.datasets.load("prices").model
    grounding = model.ground(relcrf.Dataset(house_prices(seed)))
    known = np.flatnonzero(~np.isnan(grounding.numbers))
    unknown = np.zeros(len(grounding.numbers), dtype=bool)
    unknown[np.random.default_rng(seed).permutation(known)[HOUSE_LABELS[0] :]] = True
    labels = tuple(k - HOUSE_LABELS[0] for k in HOUSE_LABELS[:n_steps])
    return NumberTask(model, grounding, unknown, np.zeros(len(unknown), dtype=np.int64), labels, retrain=True)


def sensor_task(read: Callable[[], tuple[np.ndarray, np.ndarray]], small: bool, seed: int, n_steps: int) -> NumberTask:
    readings, positions = read()
    if small:
        readings, positions = readings[:72, :10], positions[:10]
    task = make_task(readings, positions, seed, readings.shape[1])
    model = relcrf.parse(MODEL)
    grounding = model.ground(relcrf.Dataset(sensor_tables(task, readings)))
    (block,) = grounding.blocks
    reading = grounding.argument_texts(block)[0].astype(np.int64)
    moment, n_moments = reading // readings.shape[1], int(task.is_test.sum())
    labels = tuple(n_moments * k for k in READINGS_PER_MOMENT[:n_steps])
    return NumberTask(model, grounding, task.is_test[moment], moment, labels, retrain=False)


def choose_at_random(pool: np.ndarray, group: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n numbers in a mask, the same number from each group as far as possible."""
    numbers = rng.permutation(np.flatnonzero(pool))
    by_group = np.argsort(group[numbers], kind="stable")
    sizes = np.unique(group[numbers], return_counts=True)[1]
    rank = np.empty(len(numbers))
    rank[by_group] = np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return numbers[np.argsort(rank, kind="stable")[:n]]


def simulate(
    make: Callable[[int, int], NumberTask], method: str, seed: int, n_steps: int, backend: str
) -> dict[str, Any]:
    """Return the RMSE of test numbers and of all numbers at each number of labels, and the CPU seconds of the choices."""
    task, rng = make(seed, n_steps), np.random.default_rng(seed + 1000)
    grounding, values = task.grounding, task.grounding.numbers
    is_test = task.unknown & (np.random.default_rng(seed).random(len(values)) < 1 / 3)
    hidden, seconds = task.unknown.copy(), 0.0
    fit = api.fit(task.model, grounding, backend, hidden=hidden)
    test, everywhere = [], []
    for step, n in enumerate(task.labels):
        if step and task.retrain:
            fit = api.fit(task.model, grounding, backend, hidden=hidden)
        prediction = api.predict(fit, grounding, hidden=hidden)
        variables = prediction.variables()
        error, deviation = np.zeros(len(values)), np.zeros(len(values))
        error[variables], deviation[variables] = prediction.means() - values[variables], prediction.deviations()
        test.append(float(np.sqrt((error[is_test] ** 2).mean())))
        everywhere.append(float(np.sqrt((error[task.unknown] ** 2).mean())))
        if step + 1 == len(task.labels):
            break
        pool, n_new = hidden & ~is_test, task.labels[step + 1] - n
        start = time.process_time()
        if method == "ask":
            chosen = api.ask(fit, grounding, n_new, hidden=hidden, candidates=pool).variables
        elif method == "random":
            chosen = choose_at_random(pool, task.group, n_new, rng)
        else:
            chosen = np.argsort(-np.where(pool, deviation, -1.0), kind="stable")[:n_new]
        seconds += time.process_time() - start
        hidden = hidden.copy()
        hidden[chosen] = False
    return {"test": test, "all": everywhere, "seconds_choosing": seconds}


def run_task(
    name: str,
    make: Callable[[int, int], NumberTask],
    labels: tuple[int, ...],
    seeds: int,
    backend: str,
    cache: ResultCache,
    console: Console,
) -> dict[str, Any]:
    """Simulate the methods, print their mean errors, and return their figures."""
    runs = {
        method: [
            cache.get([name, method, seed, len(labels)], partial(simulate, make, method, seed, len(labels), backend))
            for seed in range(seeds)
        ]
        for method in ("ask", "random", "deviation")
    }
    result: dict[str, Any] = {"labels": labels, "seeds": seeds}
    table = Table("method", "numbers", *map(str, labels), "ratio to random", title=f"{name}: mean RMSE of {seeds} runs")
    for method, found in runs.items():
        ratios = [
            np.divide(run["test"][1:], other["test"][1:]).mean()
            for run, other in zip(found, runs["random"], strict=True)
        ]
        error = float(np.std(ratios, ddof=1) / np.sqrt(seeds)) if seeds > 1 else 0.0
        means = {kind: np.mean([run[kind] for run in found], axis=0) for kind in ("test", "all")}
        result[method] = {
            **{kind: mean.tolist() for kind, mean in means.items()},
            "ratio": float(np.mean(ratios)),
            "ratio_error": error,
            "seconds_choosing": float(np.mean([run["seconds_choosing"] for run in found])),
        }
        for kind, mean in means.items():
            ratio = f"{np.mean(ratios):.3f} ± {error:.3f}" if kind == "test" else ""
            table.add_row(method, kind, *(f"{value:.3f}" for value in mean), ratio)
    console.print(table)
    return result


def measure_growth(sizes: tuple[int, int], backend: str, repeats: int, *, random_links: bool) -> dict[str, float]:
    """Return the CPU seconds of `ask` on two numbers of houses, and their ratio."""
    model, seconds = relcrf.datasets.load("prices").model, []
    for size in sizes:
        grounding = model.ground(repeated_houses(size, random_links=random_links))
        fit, runs = api.fit(model, grounding, backend), []
        for _ in range(repeats):
            start = time.process_time()
            api.ask(fit, grounding, 20)
            runs.append(time.process_time() - start)
        seconds.append(min(runs))
    return {"seconds_small": seconds[0], "seconds_ask": seconds[1], "growth_10x": seconds[1] / seconds[0]}


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one seed, prices and temperatures, and 8,000 houses")
    parser.add_argument("--tasks", nargs="*", default=["prices", "temperature", "speed"], help="names of tasks")
    parser.add_argument("--seeds", type=int, help="number of runs (default: 10 of prices, 3 of sensors)")
    parser.add_argument(
        "--houses", type=int, default=320_000, help="houses with known and unknown prices; 0 omits them"
    )
    parser.add_argument("--cache", type=Path, help="file of cached results")
    options = parser.parse_args()
    small = bool(options.smallest)
    makers: Mapping[str, tuple[Callable[[int, int], NumberTask], tuple[int, ...], int]] = {
        "prices": (house_task, HOUSE_LABELS, 10),
        "temperature": (partial(sensor_task, read_temperatures, small), READINGS_PER_MOMENT, 3),
        "speed": (partial(sensor_task, read_speeds, small), READINGS_PER_MOMENT, 3),
    }
    console, cache = Console(width=160), ResultCache(options.cache)
    backend = sized(options, "auto", "auto", "pseudo")
    tasks = [name for name in options.tasks if not options.quick or name != "speed"]
    result: dict[str, Any] = {}
    for name in tasks:
        make, labels, seeds = makers[name]
        n_steps = sized(options, len(labels), len(labels), 2)
        n_seeds = 1 if options.quick else options.seeds or seeds
        result[name] = run_task(name, make, labels[:n_steps], n_seeds, backend, cache, console)
    houses = sized(options, options.houses, 8_000, 800)
    if houses:
        sizes = (houses // sized(options, 10, 10, 2), houses)
        for key, random_links in (("growth", False), ("growth_random", True)):
            found = measure_growth(sizes, backend, sized(options, 3, 1, 1), random_links=random_links)
            result[key] = found
            console.print(key, found)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
