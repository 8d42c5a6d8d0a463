"""Synthetic prices of houses for models/prices.rcrf; neighbours have similar prices for unknown reasons."""

from __future__ import annotations

import numpy as np

HOUSES, NEIGHBOURS, KNOWN_FRACTION = 400, 4, 0.7
KINDS = ("flat", "terraced", "detached")
KIND_PRICE, KIND_NOISE = (0.0, 15.0, 60.0), (12.0, 15.0, 30.0)
"""Surcharge and standard deviation of each kind, in thousands."""
AREA_PRICE, ROOM_PRICE, BASE_PRICE = 2.1, 8.0, 60.0
"""Price per square metre and per room, and the price of a flat without either, in thousands."""
DISTRICT_DEVIATION = 35.0
"""Standard deviation of the surcharge of a place, in thousands."""


def house_prices(seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the tables `house`, in which 30 % of the prices are missing, and `adjoins` with the nearest houses."""
    rng = np.random.default_rng(seed)
    place = rng.random((HOUSES, 2))
    kind = rng.integers(len(KINDS), size=HOUSES)
    area = np.round(rng.gamma(9.0, 9.0 + 3.0 * kind), 1)
    rooms = np.clip(np.round(area / 25.0 + rng.normal(scale=0.7, size=HOUSES)), 1, None).astype(np.int64)
    centers, surcharges = rng.random((30, 2)), rng.normal(scale=DISTRICT_DEVIATION, size=30)
    near = np.exp(-((place[:, None] - centers) ** 2).sum(axis=2) / 0.01)
    district = (near @ surcharges) / np.sqrt((near**2).sum(axis=1) + 1e-9)
    noise = rng.normal(size=HOUSES) * np.array(KIND_NOISE)[kind]
    price = BASE_PRICE + np.array(KIND_PRICE)[kind] + AREA_PRICE * area + ROOM_PRICE * rooms + district + noise
    known = rng.random(HOUSES) < KNOWN_FRACTION
    distance = ((place[:, None] - place) ** 2).sum(axis=2)
    neighbours = np.argsort(distance, axis=1, kind="stable")[:, 1 : NEIGHBOURS + 1]
    pairs = np.unique(
        np.sort(np.stack((np.repeat(np.arange(HOUSES), NEIGHBOURS), neighbours.ravel()), 1), axis=1), axis=0
    )
    name = np.array([f"h{k:03}" for k in range(HOUSES)], dtype=object)
    return {
        "house": {
            "id": name,
            "price": np.array(
                [value if k else None for value, k in zip(np.round(price, 1), known, strict=True)], dtype=object
            ),
            "kind": np.array(KINDS, dtype=object)[kind],
            "area": area,
            "rooms": rooms,
            "x": np.round(place[:, 0], 4),
            "y": np.round(place[:, 1], 4),
        },
        "adjoins": {"a": name[pairs[:, 0]], "b": name[pairs[:, 1]]},
    }
