"""Synthetic circles of friends, for models/smokers.rcrf."""

from __future__ import annotations

import numpy as np

PEOPLE = 80
CIRCLE_SIZE = 5
SMOKING_FRACTION = 0.4
"""Fraction of the circles in which most people smoke."""


def friends(seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the tables `person`, `friends` (each pair in both orders), and `smokes` and `cancer` (truth values)."""
    rng = np.random.default_rng(seed)
    people = np.array([f"p{k:02}" for k in range(PEOPLE)], dtype=object)
    circle = np.arange(PEOPLE) // CIRCLE_SIZE
    is_smoking_circle = rng.random(PEOPLE // CIRCLE_SIZE) < SMOKING_FRACTION
    smokes = rng.random(PEOPLE) < np.where(is_smoking_circle[circle], 0.85, 0.1)
    has_cancer = rng.random(PEOPLE) < np.where(smokes, 0.6, 0.1)
    first, second = np.triu_indices(PEOPLE, 1)
    linked = rng.random(len(first)) < np.where(circle[first] == circle[second], 0.6, 0.005)
    x, y = np.concatenate([first[linked], second[linked]]), np.concatenate([second[linked], first[linked]])
    return {
        "person": {"id": people},
        "friends": {"x": people[x], "y": people[y]},
        "smokes": {"x": people, "value": smokes},
        "cancer": {"x": people, "value": has_cancer},
    }
