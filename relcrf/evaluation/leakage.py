"""Leaks from training to test labels: factors, labelled neighbours, keys, twins, near-duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from relcrf.data.frame import Frame
from relcrf.evaluation.local_evidence import LocalEvidence
from relcrf.evaluation.near_duplicates import find_near_duplicates
from relcrf.evaluation.splits import Fold, labelled_in_grounding
from relcrf.graph.adjacency import cells_by_sample, iter_expanded_scopes
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import AbstractFeatures, Keyed, Sparse, Tiled
from relcrf.grounding.grounding import Grounding
from relcrf.kernels.distinct import distinct

MIN_FEATURES = 5
"""Features that a thing has at least, if another with the same ones is to be called its twin."""

WARNING_FRACTION = 0.05
"""Share from which the report speaks of a leak."""

GIANT_FRACTION = 0.5
"""Share of the labels in one component from which folds of whole components cannot be of like size."""


@dataclass(frozen=True)
class Leakage:
    """Leaks of all folds; counts are sums over them.

    Args:
        crossings: A row per template over several variables: `touching`, the factors over something that is held out, and
            `crossing`, those over a label of the training as well.
        keys: A row per template with `per`: the `keys` in factors of what is held out, and how many of these are `shared`,
            that is learned from, too.
        held_out: labels that are held out.
        labelled_neighbours: those with a neighbour whose label is in the training; what candidates may join are neighbours, too.
        distinctive: those of things with at least `MIN_FEATURES` features of their own.
        duplicates: those of them that share all their features with something in the training; alike: with the same label.
        near_duplicates: those of them without such a twin that have nearly the same features as something in the training (see
            `near_twins.py`); near_alike: with the same label.
        largest_component: share of the labels in the largest component of the ground graph.
        has_links: whether a factor joins any two variables, or a candidate may.
    """

    crossings: Frame
    keys: Frame
    held_out: int
    labelled_neighbours: int
    distinctive: int
    duplicates: int
    duplicates_same_label: int
    near_duplicates: int
    near_same_label: int
    largest_component: float
    has_links: bool

    @property
    def transductive(self) -> bool:
        """Whether labels of the training help with what is held out by more than what was learned from them."""
        return self.labelled_neighbours > 0

    @property
    def interpretation(self) -> tuple[str, ...]:
        """What it means, in words."""
        out = []
        if self.transductive:
            out.append(
                f"{self.labelled_neighbours / self.held_out:.0%} of what is held out has a labelled neighbour in the training: the figures are "
                "those of filling in values among known ones (transductive), not of new data without labels"
            )
            other = (
                "snowball, which cuts few links"
                if self.largest_component > GIANT_FRACTION
                else "component, which cuts none"
            )
            out.append(
                f"for figures of new data take --split {other}, or by=COLUMN where a column tells data sets apart"
            )
        elif not self.has_links:
            out.append(
                "no factor joins two labels: each is answered for itself, and labels beside it would change nothing"
            )
        else:
            out.append(
                "no factor joins the training with what is held out: the figures are those of new data (inductive); where known "
                "labels will stand beside the unknown ones, take --split random"
            )
            if self.largest_component > GIANT_FRACTION:
                out.append(
                    f"one component has {self.largest_component:.0%} of the labels, and so folds are of unequal size: --split snowball has "
                    "equal ones"
                )
        if self.distinctive and self.duplicates >= WARNING_FRACTION * self.distinctive:
            out.append(
                f"{self.duplicates:,} of {self.distinctive:,} held-out things have a twin in the training, the same in all features "
                f"({self.duplicates_same_label:,} with the same label): remove doubles, or split by a column that keeps them together"
            )
        if self.distinctive and self.near_duplicates >= WARNING_FRACTION * self.distinctive:
            out.append(
                f"{self.near_duplicates:,} of {self.distinctive:,} held-out things are nearly the same as one in the training "
                f"({self.near_same_label:,} with the same label): remove them, or split by a column that keeps them together"
            )
        for template, keys, shared in self.keys.rows():
            if shared < (1 - WARNING_FRACTION) * keys:
                out.append(
                    f"{keys - shared:,} of {keys:,} keys of '{template}' in what is held out were never learned from: their "
                    "weights are 0"
                )
        return tuple(out)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and what they mean for JSON."""
        tables = {"crossings": self.crossings.to_dicts(), "keys": self.keys.to_dicts()}
        return {**vars(self), **tables, "transductive": self.transductive, "in_words": self.interpretation}


def measure_leakage(grounding: Grounding, folds: Sequence[Fold]) -> Leakage:
    """Count what crosses from the training labels to the test labels of some folds."""
    labelled = labelled_in_grounding(grounding)
    component = grounding.component
    sizes = np.bincount(component[labelled])
    twins = _DuplicateIndex.from_grounding(grounding, labelled)
    crossings = {name: np.zeros(2, dtype=np.int64) for name in grounding.group_names}
    keys: dict[str, np.ndarray] = {}
    counts = np.zeros(7, dtype=np.int64)
    for fold in folds:
        training = fold.train_mask(labelled)
        near = np.zeros(len(labelled), dtype=bool)
        for name, group in zip(grounding.group_names, grounding.graph.groups, strict=True):
            crossings[name] += _count_crossings(group, fold, training, near)
        for space in grounding.candidates:
            sample, variable = cells_by_sample(space.pairs)
            there = np.bincount(sample[training[variable]], minlength=space.pairs.n_samples) > 0
            near[variable[there[sample]]] = True
        for name, found in _count_keys(grounding, fold, training).items():
            keys[name] = keys.get(name, np.zeros(2, dtype=np.int64)) + found
        counts += [fold.n_test, int((near & fold.test).sum()), *twins.count(fold.test, training)]
    names = ("held_out", "labelled_neighbours", "distinctive", "duplicates", "duplicates_same_label", "near_duplicates", "near_same_label")
    sums: dict[str, Any] = dict(zip(names, counts.tolist(), strict=True))
    return Leakage(
        crossings=_counts_frame("touching", "crossing", crossings),
        keys=_counts_frame("keys", "shared", keys),
        **sums,
        largest_component=float(sizes.max(initial=0) / max(sizes.sum(), 1)),
        has_links=bool((component != np.arange(len(component))).any()),
    )


def _counts_frame(first: str, second: str, counts: Mapping[str, np.ndarray]) -> Frame:
    """Return a row for each template with its two counts, without those whose first is 0."""
    rows = [(name, *found.tolist()) for name, found in counts.items() if found[0]]
    return Frame.from_rows({"template": object, first: int, second: int}, rows)


@dataclass(frozen=True, eq=False)
class _DuplicateIndex:
    """Kinds of things with the same evidence, and which kinds are nearly the same.

    Args:
        group: of each distinctive labelled variable a number, the same for equal evidence; -1 of all others.
        states: of each variable.
        near: which kinds are nearly the same, shape (n_kinds, n_kinds), symmetric.
    """

    group: np.ndarray
    states: np.ndarray
    near: csr_array

    @classmethod
    def from_grounding(cls, grounding: Grounding, labelled: np.ndarray) -> _DuplicateIndex:
        evidence = LocalEvidence(grounding)
        among = np.flatnonzero(labelled & (evidence.n_features >= MIN_FEATURES))
        kind = np.full(len(labelled), -1)
        _, first, kind[among] = np.unique(evidence.signature[among], return_index=True, return_inverse=True)
        ones = np.sort(among[first])
        pairs = [find_near_duplicates(evidence, ones[block.index_slice(ones)]) for block in grounding.blocks]
        one, other = kind[np.concatenate([np.empty((0, 2), dtype=np.int64), *pairs])].T
        near = csr_array((np.ones(len(one)), (one, other)), shape=(len(first), len(first)))
        return cls(kind, grounding.states, near + near.T)

    def count(self, test: np.ndarray, training: np.ndarray) -> tuple[int, int, int, int, int]:
        """Count the distinctive things that are held out, those with a twin in the training, those with a twin of the same
        label, and among things without a twin those with a near thing in the training, and with one of the same label."""
        mine, theirs = (np.flatnonzero(some & (self.group >= 0)) for some in (test, training))
        if not len(mine):
            return 0, 0, 0, 0, 0
        kind, state = self.group[mine], self.states[mine]
        shape = (self.near.shape[0], int(self.states.max(initial=0)) + 1)
        labels = csr_array((np.ones(len(theirs)), (self.group[theirs], self.states[theirs])), shape=shape)
        found = []
        for table in (labels, self.near @ labels):
            found += [np.asarray(table.sum(axis=1))[kind] > 0, np.asarray(table[kind, state]) > 0]
        is_twin, alike, is_near, near_alike = found
        alone = ~is_twin
        return (
            len(mine),
            int(is_twin.sum()),
            int(alike.sum()),
            int((is_near & alone).sum()),
            int((near_alike & alone).sum()),
        )


def _count_crossings(group: FactorGroup, fold: Fold, training: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Count the factors that touch a test label, and those that touch a training label as well; mark the neighbours of these."""
    found = np.zeros(2, dtype=np.int64)
    if len(group.scope) < 2:
        return found
    for scope in iter_expanded_scopes(group):
        here = ~np.logical_or.reduce([fold.excluded[place] for place in scope])
        touching = here & np.logical_or.reduce([fold.test[place] for place in scope])
        crossing = touching & np.logical_or.reduce([training[place] for place in scope])
        found += [int(touching.sum()), int(crossing.sum())]
        for place in scope:
            near[place[crossing]] = True
    return found


def _count_keys(grounding: Grounding, fold: Fold, training: np.ndarray) -> dict[str, np.ndarray]:
    """Count for each template the keys in factors of test labels, and those of them in factors of training labels."""
    asked: dict[str, list[np.ndarray]] = {}
    learned: dict[str, list[np.ndarray]] = {}
    for group in grounding.graph.groups:
        info = grounding.templates[group.block]
        if info.keys is None:
            continue
        start = 0
        for scope in iter_expanded_scopes(group):
            held = np.logical_or.reduce([fold.test[place] for place in scope])
            known = np.logical_and.reduce([training[place] for place in scope])
            for rows, into in ((held, asked), (known, learned)):
                used = _used_features(group.features, start + np.flatnonzero(rows)) // len(info.features)
                into.setdefault(info.name, []).append(distinct(used))
            start += len(scope[0])
    out = {}
    for name, parts in asked.items():
        mine = distinct(np.concatenate(parts))
        out[name] = np.array([len(mine), int(np.isin(mine, np.concatenate(learned[name])).sum())])
    return out


def _used_features(features: AbstractFeatures, rows: np.ndarray) -> np.ndarray:
    """The features that are not 0 in some rows, with repetitions, shape (n,)."""
    match features:
        case Tiled(tile, _):
            return _used_features(tile, distinct(rows % tile.n_rows))
        case Keyed(key, values, _):
            return np.asarray(key[rows].astype(np.int64) * values.shape[1])
        case Sparse():
            return np.asarray(features.take(rows).column)
    return np.arange(features.n_features if len(rows) else 0)
