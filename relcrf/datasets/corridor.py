"""Synthetic readings of sensors along a corridor, for models/sensors.rcrf."""

from __future__ import annotations

import numpy as np

MOMENTS, SENSORS, LEVELS = 300, 8, 5
SAME_LEVEL_PROBABILITY = 0.7
"""Probability that a sensor has the same level as the previous sensor in the corridor."""


def sensor_readings(seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the tables `moment` and `reading`; the levels of adjacent sensors differ by at most one."""
    rng = np.random.default_rng(seed)
    level = np.empty((MOMENTS, SENSORS), dtype=np.int64)
    level[:, 0] = rng.integers(1, LEVELS + 1, MOMENTS)
    for s in range(1, SENSORS):
        step = np.where(rng.random(MOMENTS) < SAME_LEVEL_PROBABILITY, 0, rng.choice((-1, 1), MOMENTS))
        level[:, s] = np.clip(level[:, s - 1] + step, 1, LEVELS)
    sensor = np.array([f"s{s + 1}" for s in range(SENSORS)], dtype=object)
    reading = {
        "m": np.repeat(np.arange(MOMENTS), SENSORS),
        "s": np.tile(sensor, MOMENTS),
        "value": level.ravel(),
    }
    return {"moment": {"id": np.arange(MOMENTS)}, "reading": reading}
