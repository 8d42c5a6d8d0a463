"""What goes from training to what is held out: factors across the cut, labelled neighbours, shared keys, twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.evaluation.splits import Round
from relcrf.graph.adjacency import connected, expanded
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse, Tiled
from relcrf.grounding.grounding import Grounding
from relcrf.kernels.distinct import distinct

DISTINCTIVE = 5
"""Features that a thing has at least, if another with the same ones is to be called its twin."""

MANY = 0.05
"""Share from which the report speaks of a leak."""

GIANT = 0.5
"""Share of the labels in one component from which folds of whole components cannot be of like size."""


@dataclass(frozen=True)
class Crossing:
    """Of one template over several variables.

    Args:
        touching: factors over something that is held out. crossing: those over a label of the training as well.
    """

    template: str
    touching: int
    crossing: int


@dataclass(frozen=True)
class SharedKeys:
    """Of one template with `per`: how many of its keys stand in factors of what is held out, and how many of these were
    learned from, too."""

    template: str
    keys: int
    shared: int


@dataclass(frozen=True)
class Leaks:
    """All rounds together; what is counted is summed over them.

    Args:
        held: labels that are held out.
        beside: those with a neighbour whose label is in the training.
        distinctive: those of things with at least `DISTINCTIVE` features of their own.
        twins: those of them that share all their features with something in the training; alike: with the same label.
        largest: share of the labels in the largest component of the ground graph.
    """

    crossings: tuple[Crossing, ...]
    keys: tuple[SharedKeys, ...]
    held: int
    beside: int
    distinctive: int
    twins: int
    alike: int
    largest: float

    @property
    def transductive(self) -> bool:
        """Whether labels of the training help with what is held out by more than what was learned from them."""
        return any(one.crossing for one in self.crossings)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it means, in words."""
        out = []
        if self.transductive:
            out.append(
                f"{self.beside / self.held:.0%} of what is held out has a labelled neighbour in the training: the figures are "
                "those of filling in values among known ones (transductive), not of new data without labels"
            )
            other = "snowball, which cuts few links" if self.largest > GIANT else "component, which cuts none"
            out.append(
                f"for figures of new data take --split {other}, or by=COLUMN where a column tells data sets apart"
            )
        else:
            out.append(
                "no factor joins the training with what is held out: the figures are those of new data (inductive); where known "
                "labels will stand beside the unknown ones, take --split random"
            )
            if self.largest > GIANT:
                out.append(
                    f"one component has {self.largest:.0%} of the labels, and so folds are of unequal size: --split snowball has "
                    "equal ones"
                )
        if self.distinctive and self.twins >= MANY * self.distinctive:
            out.append(
                f"{self.twins:,} of {self.distinctive:,} held-out things have a twin in the training, the same in all features "
                f"({self.alike:,} with the same label): remove doubles, or split by a column that keeps them together"
            )
        for one in self.keys:
            if one.keys and one.shared < (1 - MANY) * one.keys:
                out.append(
                    f"{one.keys - one.shared:,} of {one.keys:,} keys of '{one.template}' in what is held out were never "
                    "learned from: their weights are 0"
                )
        return tuple(out)


def leaks_of(grounding: Grounding, rounds: Sequence[Round]) -> Leaks:
    """What crosses the cuts of a cross-validation."""
    labelled = (grounding.states >= 0) & ~grounding.latent
    component = connected(grounding.graph)
    sizes = np.bincount(component[labelled])
    signature, is_distinctive = _signatures(grounding)
    crossings = {name: np.zeros(2, dtype=np.int64) for name in grounding.group_names}
    keys: dict[str, np.ndarray] = {}
    counts = np.zeros(5, dtype=np.int64)
    for one in rounds:
        training = labelled & ~one.held & ~one.unused
        near = np.zeros(len(labelled), dtype=bool)
        for name, group in zip(grounding.group_names, grounding.graph.groups, strict=True):
            crossings[name] += _crossing(group, one, training, near)
        for name, found in _keys(grounding, one, training).items():
            keys[name] = keys.get(name, np.zeros(2, dtype=np.int64)) + found
        mine, theirs = one.held & is_distinctive, training & is_distinctive
        with_state = _mixed(signature, grounding.states.astype(np.uint64))
        twins = np.isin(signature[mine], signature[theirs])
        alike = np.isin(with_state[mine], with_state[theirs])
        counts += [
            int(one.held.sum()),
            int((near & one.held).sum()),
            int(mine.sum()),
            int(twins.sum()),
            int(alike.sum()),
        ]
    held, beside, distinctive, twins_in_all, alike_in_all = counts.tolist()
    return Leaks(
        tuple(Crossing(name, *found.tolist()) for name, found in crossings.items() if found[0]),
        tuple(SharedKeys(name, *found.tolist()) for name, found in keys.items() if found[0]),
        held,
        beside,
        distinctive,
        twins_in_all,
        alike_in_all,
        float(sizes.max(initial=0) / max(sizes.sum(), 1)),
    )


def _crossing(group: FactorGroup, one: Round, training: np.ndarray, near: np.ndarray) -> np.ndarray:
    """How many factors touch what is held out, and how many a training label as well; marks who stands beside one."""
    found = np.zeros(2, dtype=np.int64)
    if len(group.scope) < 2:
        return found
    for scope in expanded(group):
        here = ~np.logical_or.reduce([one.unused[place] for place in scope])
        touching = here & np.logical_or.reduce([one.held[place] for place in scope])
        crossing = touching & np.logical_or.reduce([training[place] for place in scope])
        found += [int(touching.sum()), int(crossing.sum())]
        for place in scope:
            near[place[crossing]] = True
    return found


def _keys(grounding: Grounding, one: Round, training: np.ndarray) -> dict[str, np.ndarray]:
    """For each template with keys, how many of them stand in factors of what is held out, and how many of these in others."""
    asked: dict[str, list[np.ndarray]] = {}
    learned: dict[str, list[np.ndarray]] = {}
    for group in grounding.graph.groups:
        info = grounding.templates[group.block]
        if info.keys is None:
            continue
        start = 0
        for scope in expanded(group):
            held = np.logical_or.reduce([one.held[place] for place in scope])
            known = np.logical_and.reduce([training[place] for place in scope])
            for rows, into in ((held, asked), (known, learned)):
                used = _used(group.features, start + np.flatnonzero(rows)) // len(info.features)
                into.setdefault(info.name, []).append(distinct(used))
            start += len(scope[0])
    out = {}
    for name, parts in asked.items():
        mine = distinct(np.concatenate(parts))
        out[name] = np.array([len(mine), int(np.isin(mine, np.concatenate(learned[name])).sum())])
    return out


def _used(features: AbstractFeatures, rows: np.ndarray) -> np.ndarray:
    """The features that are not 0 in some rows, with repetitions, shape (n,)."""
    match features:
        case Tiled(tile, _):
            return _used(tile, distinct(rows % tile.n_rows))
        case Keyed(key, values, _):
            return np.asarray(key[rows].astype(np.int64) * values.shape[1])
        case Sparse():
            return np.asarray(features.take(rows).column)
    return np.arange(features.n_features if len(rows) else 0)


def _signatures(grounding: Grounding) -> tuple[np.ndarray, np.ndarray]:
    """A number for each variable that is the same for equal evidence of its own, shape (n_variables,), uint64, and whether it
    has enough of it; from the factors over one variable."""
    signature = np.repeat(np.arange(1, len(grounding.blocks) + 1), [b.count for b in grounding.blocks]).astype(
        np.uint64
    )
    count = np.zeros(len(signature), dtype=np.int64)
    for number, group in enumerate(grounding.graph.groups):
        if len(group.scope) != 1:
            continue
        for row_start, column, values in _entries(group.features):
            hashed = _mixed(
                _mixed(column.astype(np.uint64), np.uint64(number)), values.astype(np.float64).view(np.uint64)
            )
            total = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(hashed, dtype=np.uint64)))
            variables = np.asarray(group.scope[0])
            signature[variables] += total[row_start[1:]] - total[row_start[:-1]]
            count[variables] += np.diff(row_start)
    return signature, count >= DISTINCTIVE


def _entries(features: AbstractFeatures) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The entries of a matrix that are not 0: where each row begins, columns, values; none of one that is the same everywhere."""
    match features:
        case Sparse(row_start, column, values, _):
            return [(np.asarray(row_start), column, values if len(values) else np.ones(len(column)))]
        case Dense(values):
            rows, columns = np.nonzero(values)
            start = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(values)))))
            return [(start, columns, values[rows, columns])]
        case Keyed(key, values, _):
            width = values.shape[1]
            entries = values.ravel() if len(values) else np.ones(len(key))
            columns = (key[:, None].astype(np.int64) * width + np.arange(width)).ravel()
            return [(np.arange(0, len(columns) + 1, width), columns, entries)]
    return []


def _mixed(value: np.ndarray, salt: np.ndarray | np.uint64) -> np.ndarray:
    """A hash of pairs of numbers, uint64: the finaliser of splitmix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        out = value * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019) * salt
        out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(out ^ (out >> np.uint64(31)))
