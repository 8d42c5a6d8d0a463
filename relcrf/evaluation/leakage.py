"""Leakage from training labels to test labels: shared factors and keys, labelled neighbours, and (near-)duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from relcrf.backends.learned_model import LearnedModel
from relcrf.data.frame import Frame
from relcrf.evaluation.later_rows import LaterRows, count_later_rows
from relcrf.evaluation.local_evidence import LocalEvidence
from relcrf.evaluation.near_duplicates import find_near_duplicates
from relcrf.evaluation.splits import Fold, labelled_in_grounding
from relcrf.graph.adjacency import cells_by_sample, iter_expanded_scopes
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import AbstractFeatures, Keyed, Sparse, Tiled
from relcrf.grounding.grounding import Grounding
from relcrf.kernels.distinct import distinct

MIN_FEATURES = 5
"""Minimum number of nonzero local features in the search for duplicates; fewer features often agree by chance."""

WARNING_FRACTION = 0.05
"""Minimum fraction of the test labels for a leak, or of the keys without training labels, to be reported."""

GIANT_FRACTION = 0.5
"""Fraction of the labels in one component above which folds of whole components have unequal sizes."""


@dataclass(frozen=True)
class Leakage:
    """The leakage from training to test labels; counts are sums over all folds.

    Args:
        crossings: One row per template over several variables. `touching` is the number of factors with a test label;
            `crossing` is the number of factors with both a test label and a training label.
        keys: One row per template with keys (clause `per`). `keys` is the number of keys in factors of test labels;
            `shared` is the number of these keys that also occur in factors of training labels.
        held_out: The number of test labels.
        labelled_neighbours: The number of test labels with a training label as neighbour; candidates count as factors.
        distinctive: The number of test labels whose variables have at least `MIN_FEATURES` nonzero local features.
        duplicates: The number of distinctive test labels with the same local features as a training label;
            `duplicates_same_label` is the number of test labels that also have the same state as such a training label.
        near_duplicates: The number of further distinctive test labels with nearly the same local features as a training
            label (see `near_duplicates.py`); `near_same_label` is the number of these that also have the same state.
        largest_component: The fraction of the labels that are in the component with most labels.
        has_links: Whether any two variables share a factor or a candidate factor.
        later_rows: For each declaration of a model with times, the number of results that use rows which are not earlier than
            their target (see `later_rows.py`).
        is_split_by_time: Whether labels of later periods are excluded from some fold.
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
    later_rows: tuple[LaterRows, ...] = ()
    is_split_by_time: bool = False

    @property
    def transductive(self) -> bool:
        """Whether training labels are evidence for test labels; otherwise they influence only the learned weights."""
        return self.labelled_neighbours > 0

    @property
    def interpretation(self) -> tuple[str, ...]:
        """Sentences that interpret the counts and recommend a split."""
        out = []
        if self.transductive and self.is_split_by_time:
            out.append(
                f"{self.labelled_neighbours / self.held_out:.0%} of the test labels have a training label of an earlier period "
                "as neighbour: the scores estimate predictions of the future next to known labels"
            )
        elif self.transductive:
            out.append(
                f"{self.labelled_neighbours / self.held_out:.0%} of the test labels have a training label as neighbour: the "
                "scores estimate how well missing labels are filled in (transductive), not the performance on new data"
            )
            other = (
                "snowball, which cuts few links"
                if self.largest_component > GIANT_FRACTION
                else "component, which cuts none"
            )
            out.append(
                f"to estimate the performance on new data, use --split {other}, or --split by=COLUMN if a column "
                "identifies independent groups"
            )
        elif not self.has_links:
            out.append("no factor joins two labels: each label is predicted independently of the others")
        else:
            out.append(
                "no factor joins a training label and a test label: the scores estimate the performance on new data (inductive); "
                "if predictions will be made next to known labels, use --split random"
            )
            if self.largest_component > GIANT_FRACTION:
                out.append(
                    f"one component contains {self.largest_component:.0%} of the labels, so that folds have unequal sizes: "
                    "--split snowball makes folds of equal size"
                )
        if self.distinctive and self.duplicates >= WARNING_FRACTION * self.distinctive:
            out.append(
                f"{self.duplicates:,} of {self.distinctive:,} test entities are duplicates of a training entity, with equal "
                f"values of all features ({self.duplicates_same_label:,} with the same label): remove duplicates, or split by a "
                "column that keeps them in one fold"
            )
        if self.distinctive and self.near_duplicates >= WARNING_FRACTION * self.distinctive:
            out.append(
                f"{self.near_duplicates:,} of {self.distinctive:,} test entities are near-duplicates of a training entity "
                f"({self.near_same_label:,} with the same label): remove them, or split by a column that keeps them in one fold"
            )
        for template, keys, shared in self.keys.rows():
            if shared < (1 - WARNING_FRACTION) * keys:
                out.append(
                    f"{keys - shared:,} of {keys:,} keys of '{template}' in factors of test labels do not occur in factors of "
                    "training labels: the weights of these keys are 0"
                )
        return (*out, *self._interpret_times())

    def _interpret_times(self) -> Iterator[str]:
        """Yield sentences about rows that are not earlier than their target."""
        leaks = [counts for counts in self.later_rows if counts.later]
        yield from map(str, leaks)
        if self.later_rows and not leaks:
            total = sum(counts.total for counts in self.later_rows)
            yield f"none of {total:,} bindings, tuples and values uses a row that is not earlier than its target"
        elif self.is_split_by_time and not self.later_rows:
            yield (
                "the split is by time, but the model declares no times: mark the time of each row with 'time', to count the "
                "factors that use later rows, and to exclude these rows with 'as of'"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and their interpretation as a JSON object."""
        tables = {"crossings": self.crossings.to_dicts(), "keys": self.keys.to_dicts()}
        tables["later_rows"] = [vars(counts) for counts in self.later_rows]
        return {**vars(self), **tables, "transductive": self.transductive, "interpretation": self.interpretation}


def measure_leakage(grounding: Grounding, folds: Sequence[Fold]) -> Leakage:
    """Count factors, keys and duplicates shared by the training labels and the test labels of folds."""
    labelled = labelled_in_grounding(grounding)
    component = grounding.component
    sizes = np.bincount(component[labelled])
    duplicates = _DuplicateIndex.from_grounding(grounding, labelled)
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
            has_training_label = np.bincount(sample[training[variable]], minlength=space.pairs.n_samples) > 0
            near[variable[has_training_label[sample]]] = True
        for name, fold_counts in _count_keys(grounding, fold, training).items():
            keys[name] = keys.get(name, np.zeros(2, dtype=np.int64)) + fold_counts
        counts += [fold.n_test, int((near & fold.test).sum()), *duplicates.count(fold.test, training)]
    names = (
        "held_out",
        "labelled_neighbours",
        "distinctive",
        "duplicates",
        "duplicates_same_label",
        "near_duplicates",
        "near_same_label",
    )
    sums: dict[str, Any] = dict(zip(names, counts.tolist(), strict=True))
    return Leakage(
        crossings=_counts_frame("touching", "crossing", crossings),
        keys=_counts_frame("keys", "shared", keys),
        **sums,
        largest_component=float(sizes.max(initial=0) / max(sizes.sum(), 1)),
        has_links=bool((component != np.arange(len(component))).any()),
        later_rows=count_later_rows(grounding),
        is_split_by_time=any(bool(fold.excluded.any()) for fold in folds),
    )


def _counts_frame(first: str, second: str, counts: Mapping[str, np.ndarray]) -> Frame:
    """Return one row per template with the template's two counts; omit templates whose first count is 0."""
    rows = [(name, *pair.tolist()) for name, pair in counts.items() if pair[0]]
    return Frame.from_rows({"template": object, first: int, second: int}, rows)


@dataclass(frozen=True, eq=False)
class _DuplicateIndex:
    """Groups of variables with equal local evidence, and the pairs of groups with nearly equal evidence.

    Args:
        group: The group of each labelled variable with at least `MIN_FEATURES` features, shape (n_variables,); -1 for
            other variables.
        labels: The label of each labelled variable, shape (n_variables,): its state, or the rank of a number.
        near: The symmetric adjacency matrix of groups with nearly equal evidence, shape (n_groups, n_groups).
    """

    group: np.ndarray
    labels: np.ndarray
    near: csr_array

    @classmethod
    def from_grounding(cls, grounding: Grounding, labelled: np.ndarray) -> _DuplicateIndex:
        evidence = LocalEvidence(grounding)
        distinctive = np.flatnonzero(labelled & (evidence.n_features >= MIN_FEATURES))
        group = np.full(len(labelled), -1)
        _, first, group[distinctive] = np.unique(
            evidence.signature[distinctive], return_index=True, return_inverse=True
        )
        representatives = np.sort(distinctive[first])
        pairs = [
            find_near_duplicates(evidence, representatives[block.index_slice(representatives)])
            for block in grounding.blocks
        ]
        one, other = group[np.concatenate([np.empty((0, 2), dtype=np.int64), *pairs])].T
        near = csr_array((np.ones(len(one)), (one, other)), shape=(len(first), len(first)))
        labels, is_number = grounding.states.astype(np.int64), ~np.isnan(grounding.numbers)
        labels[is_number] = np.unique(grounding.numbers[is_number], return_inverse=True)[1]
        return cls(group, labels, near + near.T)

    def count(self, test: np.ndarray, training: np.ndarray) -> tuple[int, int, int, int, int]:
        """Count test variables that have duplicates or near-duplicates among the training variables.

        Returns:
            Five numbers of test variables that have a group: in total; with a duplicate; with a duplicate that has the
            same label; with a near-duplicate but no duplicate; with a near-duplicate that has the same label, but no
            duplicate.
        """
        test, training_rows = (np.flatnonzero(some & (self.group >= 0)) for some in (test, training))
        if not len(test):
            return 0, 0, 0, 0, 0
        group, label = self.group[test], self.labels[test]
        shape = (self.near.shape[0], int(self.labels.max(initial=0)) + 1)
        labels = csr_array(
            (np.ones(len(training_rows)), (self.group[training_rows], self.labels[training_rows])), shape=shape
        )
        masks = []
        for table in (labels, self.near @ labels):
            masks += [np.asarray(table.sum(axis=1))[group] > 0, np.asarray(table[group, label]) > 0]
        is_duplicate, same_label, is_near, near_same_label = masks
        is_unique = ~is_duplicate
        return (
            len(test),
            int(is_duplicate.sum()),
            int(same_label.sum()),
            int((is_near & is_unique).sum()),
            int((near_same_label & is_unique).sum()),
        )


def _count_crossings(group: FactorGroup, fold: Fold, training: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return `touching` and `crossing` (see `Leakage`) of a group; set `near` for the variables of crossing factors."""
    counts = np.zeros(2, dtype=np.int64)
    if len(group.scope) < 2:
        return counts
    for scope in iter_expanded_scopes(group):
        is_included = ~np.logical_or.reduce([fold.excluded[variables] for variables in scope])
        touching = is_included & np.logical_or.reduce([fold.test[variables] for variables in scope])
        crossing = touching & np.logical_or.reduce([training[variables] for variables in scope])
        counts += [int(touching.sum()), int(crossing.sum())]
        for variables in scope:
            near[variables[crossing]] = True
    return counts


def _count_keys(grounding: Grounding, fold: Fold, training: np.ndarray) -> dict[str, np.ndarray]:
    """Return the counts `keys` and `shared` (see `Leakage`) of each template with keys."""
    test_keys: dict[str, list[np.ndarray]] = {}
    training_keys: dict[str, list[np.ndarray]] = {}
    for group in grounding.graph.groups:
        info = grounding.templates[group.block]
        if info.keys is None:
            continue
        start = 0
        for scope in iter_expanded_scopes(group):
            is_test = np.logical_or.reduce([fold.test[variables] for variables in scope])
            is_training = np.logical_and.reduce([training[variables] for variables in scope])
            for rows, keys in ((is_test, test_keys), (is_training, training_keys)):
                used = _used_features(group.features, start + np.flatnonzero(rows)) // len(info.features)
                keys.setdefault(info.name, []).append(distinct(used))
            start += len(scope[0])
    out = {}
    for name, parts in test_keys.items():
        test = distinct(np.concatenate(parts))
        out[name] = np.array([len(test), int(np.isin(test, np.concatenate(training_keys[name])).sum())])
    return out


def _used_features(features: AbstractFeatures, rows: np.ndarray) -> np.ndarray:
    """Return indices of nonzero features of the given rows; each key of a row has one or more of them, shape (n,)."""
    match features:
        case Tiled(tile, _):
            return _used_features(tile, distinct(rows % tile.n_rows))
        case Keyed(key, values, _):
            return np.asarray(key[rows].astype(np.int64) * values.shape[1])
        case Sparse():
            return np.asarray(features.take(rows).column)
    return np.arange(features.n_features if len(rows) else 0)


def held_out_label_warnings(learned: LearnedModel, n_labelled: int, run: str) -> list[str]:
    """Return a warning if a run was trained on as many labels and numbers as there are, including the held-out ones.

    Args:
        run: The subject of the sentence.
    """
    if learned.summary.get("variables", 0) + learned.summary.get("numbers", 0) != n_labelled:
        return []
    return [
        f"{run} was trained on {n_labelled:,} labels, which is the number of all labels in the data, including the held-out "
        "ones: it has probably used the held-out labels, and its scores are too optimistic. Train with the same --split "
        "and --holdout."
    ]
