"""Predicted numbers: sensors of which half are observed, compared with ridge regression, Gaussian processes and boosting.

    RELCRF_DATA=... python benchmarks/numbers.py

Two data sets: the temperatures of 52 sensors of the Intel laboratory (every ten minutes for two days) and the speeds at 207
places of Los Angeles (METR-LA, every 40 minutes for a week). A quarter of the time, in blocks, is the test period. At each of its
moments, a random half of the sensors is observed, and the others are predicted; in the remaining time, all sensors are known.
Each method also predicts a normal distribution, which the CRPS scores. Figures are means over `--seeds` test periods, with
standard errors.

- `relcrf`: the default backend on the model in `MODEL`: a mean and a precision for each sensor, and a factor for each pair of
  sensors at one moment, if one of them is among the eight most similar ones of the other in the known time.
- `ess`: the same model with backend `ess`: a spanning forest of the pairs of each moment.
- `local`: the same without pairs, i.e. the mean and the deviation of each sensor.
- `ridge`: a ridge regression for each sensor on all sensors, with the mean in place of missing readings and indicators of these,
  trained on copies of the known time in which random halves are missing. The penalty is chosen by cross-validation.
- `gp`: a Gaussian process over the positions of the sensors, at each moment, for the readings minus the mean of each sensor,
  divided by its deviation; length scale and noise are the medians of those that maximise the likelihood at 20 moments.
- `boosting`: HistGradientBoostingRegressor for each sensor, on the same copies with missing values.
- `refitted`: a ridge regression that is fitted again for each test moment on exactly the sensors that are observed then. This is
  the conditional mean of a Gaussian distribution with a full covariance matrix; it needs rows with all sensors.

Growth: CPU time of learning and inference on 200,000 houses, divided by that on 20,000 (like the example `prices`): `growth` if
the houses are linked to their neighbours, and `growth_random` if the same number of links connects random houses, so that a
Cholesky factor would be nearly dense; `growth_random_ess` is for the latter with backend `ess`.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV
from support import BenchmarkParser

import relcrf
from relcrf.datasets.houses import DISTRICT_DEVIATION, house_prices
from relcrf.evaluation.number_measures import ScoredNumbers

MODEL = """
entity Sensor { history : vector }

entity Reading {
    predict value : real
    moment        : integer
}

relation Of(r: Reading, s: Sensor)

derive Similar(s: Sensor, t: Sensor) = nearest 8 by cosine(s.history, t.history)

derive Pair(s: Sensor, t: Sensor)
    where s < t and (Similar(s, t) or Similar(t, s))

template level(r: Reading, s: Sensor)
    where Of(r, s)
    over  r.value
    per   s

template pair(a: Reading, b: Reading, s: Sensor, t: Sensor)
    where Pair(s, t) and Of(a, s) and Of(b, t) and a.moment == b.moment
    over  a.value, b.value
    per   s, t
"""

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
COPIES, FOLDS, BLOCKS = 5, 5, 24


@dataclass(frozen=True, eq=False)
class SensorTask:
    """Readings with missing values in a test period.

    Args:
        readings: Shape (n_moments, n_sensors).
        positions: Position of each sensor, in metres or kilometres, shape (n_sensors, 2).
        is_test: Mask of the moments of the test period.
        is_observed: Mask of the readings that are known, shape (n_moments, n_sensors).
        scored: The sensors whose missing readings are scored.
    """

    readings: np.ndarray
    positions: np.ndarray
    is_test: np.ndarray
    is_observed: np.ndarray
    scored: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """The readings of the time in which all sensors are known."""
        return np.asarray(self.readings[~self.is_test])

    @property
    def location(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of each sensor in the known time."""
        return self.known.mean(axis=0), self.known.std(axis=0) + 1e-9

    def masked_copies(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the known rows, standardised, and the masks of their observed halves."""
        mean, deviation = self.location
        rows = np.tile((self.known - mean) / deviation, (COPIES, 1))
        return rows, random_halves(len(rows), rows.shape[1], np.random.default_rng(1))

    def score(self, means: np.ndarray, deviations: np.ndarray) -> ScoredNumbers:
        """Score predictions of shape (n_moments, n_sensors)."""
        chosen = ~self.is_observed
        chosen[:, np.setdiff1d(np.arange(chosen.shape[1]), self.scored)] = False
        return ScoredNumbers(means[chosen], deviations[chosen], self.readings[chosen])


def random_halves(n_rows: int, n_columns: int, rng: np.random.Generator) -> np.ndarray:
    """Return masks of random halves of the columns, one for each row."""
    return np.argsort(rng.random((n_rows, n_columns)), axis=1) < n_columns // 2


def read_temperatures() -> tuple[np.ndarray, np.ndarray]:
    """Return the readings and positions of the Intel laboratory; two of the 54 motes have no column, here 5 and 15."""
    folder = Path(os.environ["RELCRF_DATA"]) / "intel_lab"
    with gzip.open(folder / "temperature_30s.csv.gz", "rt") as file:
        readings = np.array(list(csv.reader(file))[1:], dtype=np.float64)[:, 1:]
    for moment in range(1, len(readings)):
        if readings[moment, 14] == 0.0:  # drop-outs
            readings[moment, 14] = readings[moment - 1, 14]
    with (folder / "mote.csv").open() as file:
        motes = np.array(list(csv.reader(file))[1:], dtype=np.float64)
    return readings[::20], motes[~np.isin(motes[:, 0], (5, 15)), 1:3]


def read_speeds() -> tuple[np.ndarray, np.ndarray]:
    """Return the readings and positions of METR-LA."""
    folder = Path(os.environ["RELCRF_DATA"]) / "metr_la_week"
    with gzip.open(folder / "speed.csv.gz", "rt") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=np.float64)
    with (folder / "sensor.csv").open() as file:
        places = [(111.0 * float(row["latitude"]), 92.0 * float(row["longitude"])) for row in csv.DictReader(file)]
    return rows[::8, -len(places) :], np.array(places)


def make_task(readings: np.ndarray, positions: np.ndarray, seed: int, n_scored: int) -> SensorTask:
    """Choose a quarter of the blocks of time as test period, and the observed half at each of its moments."""
    rng, (n_moments, n_sensors) = np.random.default_rng(seed), readings.shape
    block = np.arange(n_moments) * BLOCKS // n_moments
    is_test = np.isin(block, rng.permutation(BLOCKS)[: BLOCKS // 4])
    is_observed = np.where(is_test[:, None], random_halves(n_moments, n_sensors, rng), True)
    scored = np.sort(rng.permutation(n_sensors)[:n_scored])
    return SensorTask(readings, positions, is_test, is_observed, scored)


def sensor_tables(task: SensorTask, readings: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return the tables of `MODEL`.

    Args:
        readings: Readings, nan if they are missing, shape (n_moments, n_sensors).
    """
    mean, deviation = task.location
    number, n_sensors = np.arange(readings.size), readings.shape[1]
    values = [None if value != value else value for value in readings.ravel().tolist()]
    return {
        "sensor": {"id": np.arange(n_sensors), "history": list(((task.known - mean) / deviation).T)},
        "reading": {"id": number, "value": values, "moment": number // n_sensors},
        "of": {"r": number, "s": number % n_sensors},
    }


def predict_with_relcrf(task: SensorTask, backend: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and deviations of all readings; those of observed readings are nan."""
    n_moments, n_sensors = task.readings.shape
    tables = sensor_tables(task, np.where(task.is_observed, task.readings, np.nan))
    data = relcrf.Dataset(tables)
    prediction = relcrf.parse(MODEL).fit(data, backend).predict(data)
    keys = prediction.grounding.argument_texts(prediction.block(None))[0].astype(np.int64)
    out = np.full((2, n_moments * n_sensors), np.nan)
    out[:, keys[prediction.variables()]] = prediction.means(), prediction.deviations()
    means, deviations = out.reshape(2, n_moments, n_sensors)
    return means, deviations


def predict_columns(
    task: SensorTask, fit: Callable[[np.ndarray, np.ndarray], Any], fill: float
) -> tuple[np.ndarray, np.ndarray]:
    """Predict each scored sensor from the others with a regression model.

    Args:
        fit: Function of inputs and targets that returns a fitted model.
        fill: Value of missing inputs; with a number, the inputs also contain the masks.
    """
    mean, deviation = task.location
    rows, masks = task.masked_copies()
    queries = (task.readings - mean) / deviation

    def inputs(values: np.ndarray, known: np.ndarray, sensor: int) -> np.ndarray:
        others, known = np.delete(values, sensor, axis=1), np.delete(known, sensor, axis=1)
        filled = np.where(known, others, fill)
        return filled if math.isnan(fill) else np.hstack((filled, known))

    means, deviations = np.full(queries.shape, np.nan), np.full(queries.shape, np.nan)
    n_known = len(task.known)
    for sensor in task.scored:
        missing = ~masks[:, sensor]
        fold = (np.arange(len(rows)) % n_known) * FOLDS // n_known  # copies of a row are in one fold
        residuals = []
        for held_out in range(2):  # two folds suffice for one deviation
            is_test = fold[missing] == held_out
            model = fit(inputs(rows, masks, sensor)[missing][~is_test], rows[missing, sensor][~is_test])
            residuals.append(
                rows[missing, sensor][is_test] - model.predict(inputs(rows, masks, sensor)[missing][is_test])
            )
        model = fit(inputs(rows, masks, sensor)[missing], rows[missing, sensor])
        means[:, sensor] = model.predict(inputs(queries, task.is_observed, sensor))
        deviations[:, sensor] = np.sqrt((np.concatenate(residuals) ** 2).mean()) + 1e-6
    return means * deviation + mean, deviations * deviation


def predict_with_ridge(task: SensorTask) -> tuple[np.ndarray, np.ndarray]:
    return predict_columns(task, lambda inputs, targets: RidgeCV(PENALTIES).fit(inputs, targets), 0.0)


def predict_with_boosting(task: SensorTask) -> tuple[np.ndarray, np.ndarray]:
    def fit(inputs: np.ndarray, targets: np.ndarray) -> Any:
        return HistGradientBoostingRegressor(random_state=0).fit(inputs, targets)

    return predict_columns(task, fit, float("nan"))


def predict_with_gp(task: SensorTask) -> tuple[np.ndarray, np.ndarray]:
    mean, deviation = task.location
    scaled = (task.readings - mean) / deviation
    extent = task.positions.std()
    kernel = ConstantKernel(1.0) * RBF(extent / 3.0, (extent / 100.0, extent * 100.0)) + WhiteKernel(0.1)
    known = np.flatnonzero(~task.is_test)
    chosen = known[np.linspace(0, len(known) - 1, 20).astype(np.int64)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hyperparameters at their bounds
        found = [
            GaussianProcessRegressor(kernel).fit(task.positions, scaled[moment]).kernel_.theta for moment in chosen
        ]
    kernel = kernel.clone_with_theta(np.median(found, axis=0))
    means, deviations = np.full(scaled.shape, np.nan), np.full(scaled.shape, np.nan)
    for moment in np.flatnonzero(task.is_test):
        is_known = task.is_observed[moment]
        process = GaussianProcessRegressor(kernel, optimizer=None).fit(
            task.positions[is_known], scaled[moment, is_known]
        )
        means[moment], deviations[moment] = process.predict(task.positions, return_std=True)
    return means * deviation + mean, deviations * deviation


def predict_with_refitted_ridge(task: SensorTask) -> tuple[np.ndarray, np.ndarray]:
    mean, deviation = task.location
    rows, rng = (task.known - mean) / deviation, np.random.default_rng(2)
    fold = np.arange(len(rows)) * FOLDS // len(rows)
    masks = random_halves(len(rows), rows.shape[1], rng)
    squares = np.zeros((len(PENALTIES), rows.shape[1]))
    counts = np.zeros(rows.shape[1])
    sampled = rng.permutation(len(rows))[:50]

    def regress(train: np.ndarray, row: np.ndarray, known: np.ndarray, penalty: float) -> np.ndarray:
        gram = train[:, known].T @ train[:, known] + penalty * np.eye(int(known.sum()))
        return row[known] @ np.linalg.solve(gram, train[:, known].T @ train[:, ~known])

    for number in sampled:
        known = masks[number]
        counts[~known] += 1
        for k, penalty in enumerate(PENALTIES):
            error = rows[number, ~known] - regress(rows[fold != fold[number]], rows[number], known, penalty)
            squares[k, ~known] += error**2
    best = int(squares.sum(axis=1).argmin())
    spread = np.sqrt((squares[best] + 1e-6) / np.maximum(counts, 1.0))
    means = np.full(task.readings.shape, np.nan)
    for moment in np.flatnonzero(task.is_test):
        known = task.is_observed[moment]
        row = (task.readings[moment] - mean) / deviation
        means[moment, ~known] = regress(rows, row, known, PENALTIES[best])
    return means * deviation + mean, np.broadcast_to(spread * deviation, means.shape)


METHODS: dict[str, Callable[[SensorTask], tuple[np.ndarray, np.ndarray]]] = {
    "relcrf": lambda task: predict_with_relcrf(task, "auto"),
    "ess": lambda task: predict_with_relcrf(task, "ess"),
    "local": lambda task: predict_with_relcrf(task, "local"),
    "ridge": predict_with_ridge,
    "gp": predict_with_gp,
    "boosting": predict_with_boosting,
    "refitted": predict_with_refitted_ridge,
}


def repeated_houses(n: int, *, random_links: bool) -> relcrf.Dataset:
    """Return n houses like those of the example `prices`, which are linked to their neighbours or to random houses."""
    parts = [house_prices(seed) for seed in range(n // 400)]
    shift = [f"{number}-" for number in range(len(parts))]
    house = {name: np.concatenate([part["house"][name] for part in parts]) for name in parts[0]["house"]}
    house["id"] = np.concatenate([s + part["house"]["id"] for s, part in zip(shift, parts, strict=True)])
    place = np.stack((house["x"], house["y"]), axis=1) + 0.9 * np.repeat(
        np.stack(np.divmod(np.arange(len(parts)), math.isqrt(len(parts)) + 1), axis=1), 400, axis=0
    )
    near = cKDTree(place).query(place, k=5)[1][:, 1:]
    pairs = np.unique(np.sort(np.stack((np.repeat(np.arange(len(near)), 4), near.ravel()), axis=1), axis=1), axis=0)
    if random_links:
        rng = np.random.default_rng(0)
        pairs, surcharge = rng.integers(n, size=pairs.shape), rng.normal(scale=DISTRICT_DEVIATION, size=n)
        for _ in range(2):  # linked houses have similar surcharges
            surcharge = surcharge + 0.3 * sum(np.bincount(a, surcharge[b], n) for a, b in (pairs.T, pairs.T[::-1]))
        known = np.array([price is not None for price in house["price"]])
        house["price"][known] += surcharge[known]
    house["x"], house["y"] = place.T
    return relcrf.Dataset({"house": house, "adjoins": {"a": house["id"][pairs[:, 0]], "b": house["id"][pairs[:, 1]]}})


def measure_growth(n: int, *, random_links: bool, backend: str = "auto") -> float:
    """Return the CPU seconds of learning and inference for n houses."""
    data = repeated_houses(n, random_links=random_links)
    model = relcrf.datasets.load("prices").model
    started = time.process_time()
    model.fit(data, backend).predict(data)
    return time.process_time() - started


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one test period of the temperatures, without boosting, small growth")
    parser.add_argument("--seeds", type=int, default=3, help="number of test periods (default: 3)")
    options = parser.parse_args()
    sources = {"temperature": (read_temperatures, 52), "speed": (read_speeds, 40)}
    if options.quick:
        sources.pop("speed")
    figures: dict[str, dict[str, dict[str, list[float]]]] = {"crps": {}, "rmse": {}, "seconds": {}}
    for name, (read, n_scored) in sources.items():
        readings, positions = read()
        if options.smallest:
            readings, positions, n_scored = readings[:72, :10], positions[:10], 10
        for seed in range(1 if options.quick else options.seeds):
            task = make_task(readings, positions, seed, n_scored)
            for method, predict in METHODS.items():
                if options.quick and method == "boosting":
                    continue
                started = time.process_time()
                measures = task.score(*predict(task)).measures()
                seconds = time.process_time() - started
                row = {"crps": measures["crps"], "rmse": measures["rmse"], "seconds": seconds}
                for key, value in row.items():
                    figures[key].setdefault(name, {}).setdefault(method, []).append(value)
                print(
                    f"{name:12} {seed} {method:9}",
                    *(f"{k} {v:8.4f}" for k, v in {**measures, **row}.items()),
                    flush=True,
                )
    summary: dict[str, Any] = {
        key: {
            name: {method: _summarise(values) for method, values in methods.items()} for name, methods in named.items()
        }
        for key, named in figures.items()
    }
    sizes = (400, 800) if options.smallest else (2_000, 20_000) if options.quick else (20_000, 200_000)
    if not options.smallest:
        measure_growth(400, random_links=False)  # loads the kernels
    growths = (("growth", False, "auto"), ("growth_random", True, "auto"), ("growth_random_ess", True, "ess"))
    for key, random_links, backend in growths:
        small, large = (measure_growth(n, random_links=random_links, backend=backend) for n in sizes)
        print(f"{key}: {sizes[0]:,} houses {small:.2f} s, {sizes[1]:,} houses {large:.2f} s", flush=True)
        summary[key] = large / small
    print(json.dumps(summary))


def _summarise(values: list[float]) -> dict[str, float]:
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "error": error}


if __name__ == "__main__":
    main()
