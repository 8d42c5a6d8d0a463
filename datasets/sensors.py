"""Sensor readings as tables for models/sensors_evidence.rcrf: temperatures of a laboratory, and speeds on roads.

The raw readings are in the folder `RELCRF_DATA`. A few sensors are evidence; the others are predicted, in four levels
that are equally frequent in the training rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from real import read_table

LEVELS = 4
TEST_FRACTION = 0.25


@dataclass(frozen=True)
class Readings:
    """A table of readings in temporal order.

    Args:
        values: Readings, shape (n_rows, n_sensors).
        evidence: The observed columns.
        block: Number of consecutive rows of a block, the unit that `split` holds out.
        gap: Number of rows on each side of a test block that are not used for training.
    """

    name: str
    values: np.ndarray
    evidence: tuple[int, ...]
    block: int
    gap: int

    @property
    def targets(self) -> list[int]:
        """The predicted columns."""
        return [k for k in range(self.values.shape[1]) if k not in self.evidence]

    def with_targets(self, n: int) -> Readings:
        """Return the readings of the evidence and of the first `n` predicted sensors."""
        columns = [*self.evidence, *self.targets[:n]]
        known = tuple(range(len(self.evidence)))
        return Readings(self.name, self.values[:, columns], known, self.block, self.gap)


def temperature() -> Readings:
    """Return the readings of 52 thermometers over two days, every 30 s; five distant thermometers are evidence.

    Zeros of sensor 14 are drop-outs and are replaced by the previous reading. A block is half an hour.
    """
    wide = read_table("intel_lab", "temperature_30s.csv.gz").drop(columns="t")
    return Readings("temperature", wide.mask(wide == 0.0).ffill().to_numpy(), (0, 10, 20, 30, 40), block=60, gap=10)


def traffic() -> Readings:
    """Return the readings of 32 traffic sensors over a week, every five minutes; five are evidence. A block is a day.

    The sensors are a connected neighbourhood: the first has the most neighbours, and each further sensor has the
    strongest link to the sensors already selected.
    """
    wide, links = read_table("metr_la_week", "speed.csv.gz").drop(columns="t"), read_table("metr_la_week", "near.csv")
    link_weight = np.zeros((wide.shape[1], wide.shape[1]))
    link_weight[links["src"], links["dst"]] = links["weight"]
    link_weight = np.maximum(link_weight, link_weight.T)
    np.fill_diagonal(link_weight, 0.0)
    selected = [int((link_weight > 0).sum(axis=1).argmax())]
    while len(selected) < 32:
        strongest = link_weight[selected].max(axis=0)
        strongest[selected] = -1.0
        selected.append(int(strongest.argmax()))
    return Readings("traffic", wide.to_numpy()[:, selected], (0, 7, 14, 21, 28), block=288, gap=0)


def split(readings: Readings, seed: int, *, in_blocks: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows and test rows, each in random order.

    Args:
        in_blocks: Whether to hold out whole blocks of time, separated from the training rows by `gap` rows. Otherwise
            single rows are held out, and most of these rows are adjacent to training rows.
    """
    rng = np.random.default_rng(seed)
    n = len(readings.values)
    if not in_blocks:
        rows = rng.permutation(n)
        return rows[round(TEST_FRACTION * n) :], rows[: round(TEST_FRACTION * n)]
    block = np.arange(n) // readings.block
    test_blocks = rng.permutation(block[-1] + 1)[: max(1, round(TEST_FRACTION * (block[-1] + 1)))]
    test = np.isin(block, test_blocks)
    is_near_test = np.convolve(test, np.ones(2 * readings.gap + 1), mode="same") > 0
    return rng.permutation(np.flatnonzero(~is_near_test)), rng.permutation(np.flatnonzero(test))


def validation_rows(readings: Readings, training: np.ndarray, seed: int) -> np.ndarray:
    """Return a mask of the sorted training rows that selects a random fifth of the blocks of time; shape (n,), bool."""
    block = np.sort(training) // readings.block
    blocks = np.random.default_rng(seed).permutation(np.unique(block))
    return np.isin(block, blocks[: max(1, round(len(blocks) / 5))])


def levels(readings: Readings, training: np.ndarray) -> np.ndarray:
    """Return the level, 0 to 3, of every target in every row, by quartiles of training rows; shape (n_rows, n_targets)."""
    values = readings.values[:, readings.targets]
    cuts = np.quantile(values[training], np.arange(1, LEVELS) / LEVELS, axis=0)
    return np.asarray((values[:, None, :] > cuts).sum(axis=1))


def tables(readings: Readings, training: np.ndarray, rows: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return some rows as tables; the evidence is standardised with the means and deviations of the training rows."""
    rows = np.sort(rows)
    known = readings.values[:, readings.evidence]
    known = (known - known[training].mean(axis=0)) / known[training].std(axis=0)
    names = [f"s{k:03}" for k in readings.targets]
    reading = {
        "m": np.repeat(rows, len(names)),
        "s": np.tile(names, len(rows)),
        "value": 1 + levels(readings, training)[rows].ravel(),
    }
    return {"moment": pd.DataFrame({"id": rows, "known": list(known[rows])}), "reading": pd.DataFrame(reading)}
