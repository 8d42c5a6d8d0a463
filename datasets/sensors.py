"""Readings of sensors as tables of models/sensors_evidence.rcrf: temperatures of a laboratory, and speeds on roads.

The raw readings come from the folder that `RELCRF_DATA` names. A few sensors are evidence; the others are to be
predicted, in four levels that are equally frequent in the rows that are free for training.
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
    """A table of readings, in the order of time.

    Args:
        values: shape (n_rows, n_sensors).
        evidence: the columns that are known.
        block, gap: rows of a block, and of what is left out between a test block and the training; see `split`.
    """

    name: str
    values: np.ndarray
    evidence: tuple[int, ...]
    block: int
    gap: int

    @property
    def targets(self) -> list[int]:
        """The columns that are to be predicted."""
        return [k for k in range(self.values.shape[1]) if k not in self.evidence]

    def with_targets(self, n: int) -> Readings:
        """The evidence, and only the first `n` of the sensors that are to be predicted."""
        columns = [*self.evidence, *self.targets[:n]]
        known = tuple(range(len(self.evidence)))
        return Readings(self.name, self.values[:, columns], known, self.block, self.gap)


def temperature() -> Readings:
    """Two days of 52 thermometers, each 30 s; five that are far from each other are evidence.

    Sensor 14's zeros are drop-outs: the reading before stands in their place. Blocks are of half an hour.
    """
    wide = read_table("intel_lab", "temperature_30s.csv.gz").drop(columns="t")
    return Readings("temperature", wide.mask(wide == 0.0).ffill().to_numpy(), (0, 10, 20, 30, 40), block=60, gap=10)


def traffic() -> Readings:
    """A week of 32 sensors on neighbouring roads, each five minutes; four are evidence. Blocks are days.

    The sensors are a connected neighbourhood: the one with the most neighbours, and then always the one with the
    strongest tie to those that are in.
    """
    wide, near = read_table("metr_la_week", "speed.csv.gz").drop(columns="t"), read_table("metr_la_week", "near.csv")
    tie = np.zeros((wide.shape[1], wide.shape[1]))
    tie[near["src"], near["dst"]] = near["weight"]
    tie = np.maximum(tie, tie.T)
    np.fill_diagonal(tie, 0.0)
    chosen = [int((tie > 0).sum(axis=1).argmax())]
    while len(chosen) < 32:
        strongest = tie[chosen].max(axis=0)
        strongest[chosen] = -1.0
        chosen.append(int(strongest.argmax()))
    return Readings("traffic", wide.to_numpy()[:, chosen], (0, 8, 16, 24), block=288, gap=0)


def split(readings: Readings, seed: int, *, in_blocks: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for the test, each in random order.

    Args:
        in_blocks: whole blocks of time are for the test, and the rows within a gap of them for nothing; else single rows,
            most of which have the training's next to them.
    """
    rng = np.random.default_rng(seed)
    n = len(readings.values)
    if not in_blocks:
        rows = rng.permutation(n)
        return rows[round(TEST_FRACTION * n) :], rows[: round(TEST_FRACTION * n)]
    block = np.arange(n) // readings.block
    held = rng.permutation(block[-1] + 1)[: max(1, round(TEST_FRACTION * (block[-1] + 1)))]
    test = np.isin(block, held)
    near = np.convolve(test, np.ones(2 * readings.gap + 1), mode="same") > 0
    return rng.permutation(np.flatnonzero(~near)), rng.permutation(np.flatnonzero(test))


def validation_rows(readings: Readings, training: np.ndarray, seed: int) -> np.ndarray:
    """Which rows of the training, ascending, are in a fifth of its blocks of time; shape (n,), bool."""
    block = np.sort(training) // readings.block
    blocks = np.random.default_rng(seed).permutation(np.unique(block))
    return np.isin(block, blocks[: max(1, round(len(blocks) / 5))])


def levels(readings: Readings, training: np.ndarray) -> np.ndarray:
    """The level of every target in every row, 0 to 3, by the quartiles of the training's rows; shape (n_rows, n_targets)."""
    values = readings.values[:, readings.targets]
    cuts = np.quantile(values[training], np.arange(1, LEVELS) / LEVELS, axis=0)
    return np.asarray((values[:, None, :] > cuts).sum(axis=1))


def tables(readings: Readings, training: np.ndarray, rows: np.ndarray) -> dict[str, pd.DataFrame]:
    """Some rows as tables; the evidence is centred and scaled as in the training's rows."""
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
