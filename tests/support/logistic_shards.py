"""Shards of a logistic regression, and tasks on them that a worker can import."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from relcrf.errors import DataError, DataLocation, Diagnostic

N_WEIGHTS = 30


def make_shards(folder: Path, n_shards: int) -> list[Path]:
    """Write shards of 50 to 250 rows with features of very different scales, so that the order of summation affects the bits."""
    random = np.random.default_rng(7)
    truth = random.normal(size=N_WEIGHTS)
    shards = []
    for k in range(n_shards):
        rows = random.normal(size=(random.integers(50, 250), N_WEIGHTS)) * np.logspace(-1, 1, N_WEIGHTS)
        labels = random.random(len(rows)) < 1 / (1 + np.exp(-rows @ truth))
        shards.append(folder / f"shard-{k}")
        shards[-1].mkdir(parents=True)
        np.save(shards[-1] / "rows.npy", rows)
        np.save(shards[-1] / "labels.npy", labels)
    return shards


@lru_cache(maxsize=64)
def load(shard: Path) -> tuple[np.ndarray, np.ndarray]:
    return np.load(shard / "rows.npy", mmap_mode="r"), np.load(shard / "labels.npy")


@dataclass(frozen=True)
class LogisticLoss:
    """The negative log-likelihood with a penalty on each shard; uses einsum, because the bits of BLAS depend on its threads.

    Args:
        pause: minimum number of seconds per shard; a file `started` marks the beginning.
        victim: process that the seventh shard kills.
    """

    pause: float = 0.0
    victim: int | None = None

    def __call__(self, shard: Path, weights: np.ndarray) -> tuple[float, np.ndarray]:
        if self.pause:
            (shard / "started").touch()
            time.sleep(self.pause)
        if self.victim is not None and shard.name == "shard-6":
            with suppress(ProcessLookupError):  # the shard is evaluated again where its own worker died
                os.kill(self.victim, signal.SIGKILL)
        rows, labels = load(shard)
        scores = np.einsum("ij,j->i", rows, weights)
        value = float(np.sum(np.logaddexp(0.0, scores) - labels * scores) + 0.01 * np.sum(weights**2))
        rest = 1 / (1 + np.exp(-scores)) - labels
        return value, np.einsum("ij,i->j", rows, rest) + 0.02 * weights


def process(shard: Path) -> tuple[str, int]:
    """Return the name of the shard and the process ID of its worker."""
    return shard.name, os.getpid()


def threads(shard: Path) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def fail(shard: Path) -> int:
    if shard.name == "shard-3":
        raise ZeroDivisionError("three")
    return 1


def refuse(shard: Path) -> int:
    """Raise a user error in a worker."""
    if shard.name == "shard-3":
        raise DataError(Diagnostic("E336", "damaged", location=DataLocation(shard.name, 5), hint="copy it again"))
    return 1


def die(shard: Path) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


def growing(shard: Path) -> tuple[float, np.ndarray]:
    return 1.0, np.ones(1 + int(shard.name.removeprefix("shard-")))
