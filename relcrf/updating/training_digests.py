"""Digests of the labels and factors from which a backend learns, by entity.

If the digests of all entities of the changed components are the same as before, learning would maximise the same function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.data.dataset import quoted
from relcrf.data.names import entity_table
from relcrf.graph.feature_scales import LIMIT_RATIO
from relcrf.grounding.bindings import count_bindings, read_bindings
from relcrf.grounding.grounding import Grounding

CHUNK_BINDINGS = 1 << 20
"""Number of bindings that are read at a time, so that the memory is bounded."""

MAX_MAGNITUDE_RATIO = LIMIT_RATIO / 16
"""Maximum ratio of two magnitudes of a feature for which learning certainly limits no value: the scale of the feature, a power
of 16 near its median magnitude, is at least a sixteenth of its smallest magnitude."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier of the mixing function. Source: Steele, Lea & Flood, Fast splittable pseudorandom number generators (2014)."""

Range = tuple[float, float]
"""The smallest and the largest magnitude of the nonzero values of a feature."""


@dataclass(frozen=True)
class TrainingDigests:
    """The training digests of the entities of a ground graph.

    Args:
        by_entity: Digest of each entity in the order of the entity's index, by entity type, shape (n_entities,), uint64; 0 for
            entities without labels.
        ranges: Magnitudes of each feature, by name of the weights and index of the feature.
    """

    by_entity: Mapping[str, np.ndarray]
    ranges: Mapping[str, Range]


def training_digests(grounding: Grounding) -> TrainingDigests:
    """Compute the digests of the labels, and of the factors whose variables all have labels."""
    labelled = grounding.states >= 0
    variable = np.concatenate(
        [np.empty(0, dtype=np.uint64), *(_key_hashes(grounding, b.owner, b.name) for b in grounding.blocks)]
    )
    state = _mix(variable ^ _mix(grounding.states.astype(np.uint64)))
    digest = np.where(labelled, state, np.uint64(0))
    ranges: dict[str, Range] = {}
    for name, group in zip(grounding.group_names, grounding.graph.groups, strict=True):
        info = grounding.templates[group.block]
        width = max(1, len(info.features))
        patterns = b"" if group.patterns is None else np.ascontiguousarray(group.patterns).tobytes()
        salt = _text_hash(f"{name} {info.features} {info.patterns}".encode() + patterns)
        keys = _texts_hashes(grounding, () if info.keys is None else info.keys.values)
        n_bindings = count_bindings(group.features, width)
        for start in range(0, n_bindings, CHUNK_BINDINGS):
            rows = read_bindings(group, np.arange(start, min(start + CHUNK_BINDINGS, n_bindings)), width)
            _add_ranges(ranges, info.name, rows.values)
            used = np.logical_and.reduce([labelled[variables] for variables in rows.scope])
            total = np.full(int(used.sum()), salt)
            for variables in rows.scope:
                total = _mix(total ^ state[variables[used]])
            if len(keys):
                total = _mix(total ^ keys[rows.keys[used]])
            for column in rows.values[used].T:
                total = _mix(total ^ (np.ascontiguousarray(column, dtype=np.float64) + 0.0).view(np.uint64))
            np.add.at(digest, rows.scope[0][used], total)
    by_entity: dict[str, np.ndarray] = {}
    for block in grounding.blocks:
        part = digest[block.start : block.start + block.count]
        by_entity[block.owner] = part if block.owner not in by_entity else by_entity[block.owner] + part
    return TrainingDigests(by_entity, ranges)


def merge_ranges(first: Mapping[str, Range], second: Mapping[str, Range]) -> dict[str, Range]:
    """Return the magnitudes of each feature in either of two graphs."""
    merged = dict(first)
    for name, (low, high) in second.items():
        known = merged.get(name, (low, high))
        merged[name] = (min(low, known[0]), max(high, known[1]))
    return merged


def has_ordinary_values(ranges: Mapping[str, Range]) -> bool:
    """Return True if learning limits no value of the features; see `graph/feature_scales.py`."""
    return all(high <= MAX_MAGNITUDE_RATIO * low for low, high in ranges.values())


def _add_ranges(ranges: dict[str, Range], weights: str, values: np.ndarray) -> None:
    magnitudes = np.abs(values)
    for k, column in enumerate(magnitudes.T):
        nonzero = column[column > 0]
        if len(nonzero):
            ranges |= merge_ranges(ranges, {f"{weights}.{k}": (float(nonzero.min()), float(nonzero.max()))})


def _key_hashes(grounding: Grounding, entity: str, salt: str) -> np.ndarray:
    """Return a hash of each key of an entity type, in the order of the entities, shape (n,), uint64."""
    query = f"SELECT hash(?, CAST(key AS VARCHAR)) AS h FROM {quoted(entity_table(entity))} ORDER BY vid"
    return np.asarray(grounding.bound.connection.execute(query, [salt]).fetchnumpy()["h"], dtype=np.uint64)


def _texts_hashes(grounding: Grounding, keys: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Return a hash of each key of a template, shape (n,), uint64."""
    connection = grounding.bound.connection
    connection.register("key_texts", {"key": np.array(["\x1f".join(key) for key in keys], dtype=object)})
    hashes = connection.execute("SELECT hash(key) AS h FROM key_texts").fetchnumpy()["h"]
    connection.unregister("key_texts")
    return np.asarray(hashes, dtype=np.uint64)


def _text_hash(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def _mix(values: np.ndarray) -> np.ndarray:
    """Return a bijective hash of 64-bit numbers, which differ in about half of the bits if the numbers differ in one."""
    mixed = values * _MULTIPLIER
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed)
