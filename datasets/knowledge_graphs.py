"""Synthetic knowledge graphs: relations that are inherited in a hierarchy of types, and kinship terms of groups of people."""

from __future__ import annotations

import numpy as np

INHERITED_PAIRS = 4
"""Maximum number of pairs of types between which a relation of a hierarchy is declared."""


def draw_hierarchy(
    rng: np.random.Generator, n_types: int = 135, n_relations: int = 49, blocked: float = 0.05
) -> np.ndarray:
    """Draw relations between the types of a hierarchy, like those of the UMLS semantic network.

    The first relation is *is a*, between a type and its parent. Each other relation is declared for a few pairs of types.
    The descendants of both types inherit it, except that a fraction of the pairs is blocked.

    Returns:
        True facts, shape (n_types, n_types, n_relations), bool.
    """
    parent = np.array([-1, *(int(rng.integers(max((k - 1) // 5, 0), (k + 3) // 4)) for k in range(1, n_types))])
    below = np.eye(n_types, dtype=bool)
    for k in range(n_types - 1, 0, -1):
        below[parent[k]] |= below[k]
    facts = np.zeros((n_types, n_types, n_relations), dtype=bool)
    facts[np.arange(1, n_types), parent[1:], 0] = True
    sizes = below.sum(axis=1)
    declared = np.flatnonzero((sizes > 1) & (sizes < n_types // 5))
    for relation in range(1, n_relations):
        for a, b in rng.choice(declared, size=(int(rng.integers(1, INHERITED_PAIRS + 1)), 2)):
            facts[..., relation] |= np.outer(below[a], below[b])
    inherited = facts[..., 1:]
    inherited &= rng.random(inherited.shape) >= blocked
    return facts


def draw_kinship(rng: np.random.Generator, n_people: int = 104, n_terms: int = 26, noise: float = 0.1) -> np.ndarray:
    """Draw the term that each person uses for each other person, a function of the groups of both, with some noise.

    A person has one of four sections, a sex and one of three generations. The term depends on the sections of both people,
    on the sex of the second, and on the difference of the generations.

    Returns:
        True facts, shape (n_people, n_people, n_terms), bool.
    """
    section, sex, generation = (rng.integers(k, size=n_people) for k in (4, 2, 3))
    term_of = rng.integers(n_terms, size=(4, 4, 2, 3))
    difference = np.sign(generation[:, None] - generation) + 1
    term = term_of[section[:, None], section, sex, difference]
    is_noisy = rng.random(term.shape) < noise
    term = np.where(is_noisy, rng.integers(n_terms, size=term.shape), term)
    return np.asarray(term[..., None] == np.arange(n_terms))
