"""Predictions of held-out labels by several systems on the same folds, and the measures of these predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from relcrf.backends.inference_result import InferenceResult
from relcrf.columns.offsets import offsets
from relcrf.data.frame import Frame
from relcrf.evaluation.intervals import Clusters, Interval, bias_corrected_interval, fold_interval, percentile_interval
from relcrf.evaluation.measures import MIN_PROBABILITY, RANKING_MEASURES, Score, ScoredLabels
from relcrf.evaluation.number_measures import NumberPredictions, ScoredNumbers
from relcrf.evaluation.splits import Fold, labelled_in_grounding
from relcrf.graph.numeric_graph import NumericTargets
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock

MAJORITY = "majority"
"""The baseline that predicts the frequencies of the training labels."""

LOCAL = "local"
"""The backend that ignores relations; other backends are compared with it."""


@dataclass(frozen=True, eq=False)
class FoldPrediction:
    """The state probabilities of the test variables of one fold, predicted by one system (a backend or `MAJORITY`).

    Args:
        fold: The name of the fold.
        variables: The test variables in ascending order, shape (n,).
        state_start: The offset of each variable's states in `probabilities`, shape (n + 1,).
        probabilities: The marginals of all test variables, concatenated.
        truth: The label of each test variable, shape (n,).
        seconds_learn, seconds_infer: CPU seconds of all threads; wall-clock time is unreliable on a shared machine.
        converged: Whether learning and inference converged.
        learning_converged: Whether learning converged.
        chosen: The name of the backend that `auto` chose; empty for other systems.
        numbers: The predictions of the test variables that are numbers; None without numbers.
    """

    fold: str
    variables: np.ndarray
    state_start: np.ndarray
    probabilities: np.ndarray
    truth: np.ndarray
    seconds_learn: float = 0.0
    seconds_infer: float = 0.0
    converged: bool = True
    learning_converged: bool = True
    chosen: str = ""
    numbers: NumberPredictions | None = None

    @classmethod
    def from_inferred(
        cls,
        fold: Fold,
        inferred: InferenceResult,
        states: np.ndarray,
        seconds: tuple[float, float] = (0.0, 0.0),
        *,
        converged: bool = True,
        targets: NumericTargets | None = None,
    ) -> FoldPrediction:
        """Return the marginals of the test variables from an inference result.

        Args:
            states: Labels, shape (n_variables,).
            seconds: The CPU seconds of learning and of inference.
            converged: Whether learning converged.
            targets: The numbers of the problem.
        """
        inferred.verdict.raise_if_interrupted()
        numbers = None
        if inferred.numbers is not None and targets is not None:
            marginals = inferred.numbers.select(fold.test)
            numbers = NumberPredictions(marginals, targets.values[marginals.variables])
        selected = inferred.select_variables(fold.test[inferred.variables])
        has_converged = converged and selected.verdict.is_good
        return cls(
            fold.name,
            selected.variables,
            selected.state_start,
            selected.marginals,
            states[selected.variables],
            *seconds,
            has_converged,
            converged,
            numbers=numbers,
        )

    @classmethod
    def from_tables(cls, fold: Fold, grounding: Grounding, tables: Sequence[np.ndarray]) -> FoldPrediction:
        """Build the predictions of a fold from one table of probabilities per discrete block, shape (n, n_values)."""
        test = np.flatnonzero(fold.test & np.isnan(grounding.numbers))
        start = offsets(grounding.graph.cardinality[test])
        probabilities = np.concatenate([np.empty(0), *(table.ravel() for table in tables)])
        return cls(fold.name, test, start, probabilities, grounding.states[test])

    def block_variables(self, block: VariableBlock) -> np.ndarray:
        """Return the test variables of one attribute or relation, ascending."""
        if block.is_numeric:
            variables = np.empty(0, dtype=np.int64) if self.numbers is None else self.numbers.marginals.variables
        else:
            variables = self.variables
        return variables[block.index_slice(variables)]

    def block_labels(self, block: VariableBlock, groups: np.ndarray | None = None) -> ScoredLabels | ScoredNumbers:
        """Return the predictions of one attribute or relation.

        Args:
            groups: Groups of the block's variables that are ranked together, shape (n_partitions, block.count).
        """
        if block.is_numeric and self.numbers is not None:
            return self.numbers.select(block.index_slice(self.numbers.marginals.variables))
        items = block.index_slice(self.variables)
        table = self.probabilities[self.state_start[items.start] : self.state_start[items.stop]]
        test_groups = None if groups is None else groups[:, self.variables[items] - block.start]
        return ScoredLabels(table.reshape(-1, len(block.values)), self.truth[items], test_groups)

    def score(self) -> Score:
        """Return accuracy of labels, absolute error of numbers, and log-likelihood of both, over all attributes together."""
        if self.numbers is None:
            return self._label_score()
        numbers = self.numbers.select(slice(None)).score()
        if not len(self.truth):
            return numbers
        labels, n = self._label_score(), len(self.truth) + numbers.n
        total = labels.n * labels.log_likelihood + (numbers.n * numbers.log_likelihood if numbers.n else 0.0)
        return Score(labels.accuracy, total / n, n, numbers.mae)

    def _label_score(self) -> Score:
        """Return accuracy and log-likelihood of the labels."""
        sizes, correct = np.diff(self.state_start), np.empty(len(self.truth))
        for k in np.unique(sizes):
            same_size = np.flatnonzero(sizes == k)
            table = self.probabilities[self.state_start[same_size, None] + np.arange(k)]
            correct[same_size] = table.argmax(axis=1) == self.truth[same_size]
        losses = np.log(np.maximum(self.label_probabilities, MIN_PROBABILITY))
        return Score(float(correct.mean()), float(losses.mean()), len(self.truth))

    @cached_property
    def label_probabilities(self) -> np.ndarray:
        """The predicted probability of each label, shape (n,)."""
        return np.asarray(self.probabilities[self.state_start[:-1] + self.truth])


@dataclass(frozen=True)
class MeasureEstimate:
    """One measure of one system, with its uncertainty.

    Args:
        value: The measure over all test labels; a measure of `RANKING_MEASURES` is the mean over folds, weighted by
            fold size.
        low, high: The limits of the 95 % bootstrap interval; components or labels are resampled, see `Clusters`.
        spread: The standard deviation over folds; nan for a single fold.
    """

    value: float
    low: float
    high: float
    spread: float


@dataclass(frozen=True)
class MeasureDifference:
    """The paired difference of one measure between two systems.

    Args:
        low, high: The limits of the 95 % bootstrap interval, see `MeasureEstimate`.
        fold_interval: The 95 % interval computed from one mean per fold, see `intervals.fold_interval`.
    """

    value: float
    low: float
    high: float
    fold_interval: Interval


@dataclass(frozen=True)
class FoldScore:
    """The scores of one system on one fold, by predicted attribute, and the CPU seconds of the system.

    Args:
        chosen: See `FoldPrediction`.
    """

    fold: str
    backend: str
    scores: Mapping[str, Score]
    seconds_learn: float
    seconds_infer: float
    chosen: str = ""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of several systems on the same folds.

    Args:
        blocks: The predicted attributes and relations.
        component: The connected component of each variable of the ground graph, shape (n_variables,).
        n_train: The number of training labels of each fold and block, shape (n_folds, n_blocks).
        by_system: One prediction per fold for each system, by the system's name.
        groups: Groups of tuples that are ranked together, by the name of the relation; see `ranking.group_tuples`.
    """

    blocks: tuple[VariableBlock, ...]
    component: np.ndarray
    n_train: np.ndarray
    by_system: Mapping[str, Sequence[FoldPrediction]]
    groups: Mapping[str, np.ndarray]

    @classmethod
    def from_folds(
        cls,
        grounding: Grounding,
        folds: Sequence[Fold],
        by_system: Mapping[str, Sequence[FoldPrediction]],
        groups: Mapping[str, np.ndarray],
    ) -> Predictions:
        """Collect the predictions of folds of a ground graph; for `groups` see the class."""
        blocks, labelled = predicted_blocks(grounding), labelled_in_grounding(grounding)
        counts = [[int(fold.train_mask(labelled)[b.start : b.start + b.count].sum()) for b in blocks] for fold in folds]
        return cls(blocks, grounding.component, np.array(counts), by_system, groups)

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """The names of the systems."""
        return tuple(self.by_system)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes and relations with test labels."""
        return tuple(block.name for block in self.blocks if len(self._variables(block)))

    def is_numeric(self, attribute: str) -> bool:
        """Return True if an attribute is a number."""
        return self._block(attribute).is_numeric

    def _block(self, attribute: str) -> VariableBlock:
        return next(block for block in self.blocks if block.name == attribute)

    def _variables(self, block: VariableBlock) -> np.ndarray:
        first = next(iter(self.by_system.values()), ())
        parts = [one.block_variables(block) for one in first]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def test_variables(self, attribute: str) -> np.ndarray:
        """Return the variables of the attribute's test labels, in the order of `pooled`."""
        return self._variables(self._block(attribute))

    def scored_by_fold(self, system: str, attribute: str) -> list[Any]:
        """Return the predictions of each fold that has test labels of an attribute."""
        block, groups = self._block(attribute), self.groups.get(attribute)
        parts = [one.block_labels(block, groups) for one in self.by_system[system]]
        return [part for part in parts if len(part.truth)]

    def pooled(self, system: str, attribute: str) -> Any:
        """Return the predictions of one attribute in all folds, concatenated: `ScoredLabels` or `ScoredNumbers`."""
        parts = self.scored_by_fold(system, attribute)
        return type(parts[0]).concatenate(parts)

    def clusters(self, attribute: str) -> Clusters:
        """Return the clusters of the attribute's test labels that the bootstrap resamples."""
        return Clusters.from_variables(self.test_variables(attribute), self.component)

    def score(self, system: str, attribute: str) -> Score:
        """Return accuracy and log-likelihood of one attribute over all folds."""
        score: Score = self.pooled(system, attribute).score()
        return score

    def fold_scores(self, system: str) -> list[FoldScore]:
        """Return the scores of a system on each fold."""
        return [
            FoldScore(
                one.fold,
                system,
                {name: one.block_labels(self._block(name)).score() for name in self.attributes},
                one.seconds_learn,
                one.seconds_infer,
                one.chosen,
            )
            for one in self.by_system[system]
        ]

    def fold_measures(self, system: str, attribute: str, names: Sequence[str]) -> list[dict[str, float]]:
        """Return some measures of an attribute on each fold; nan for a fold without its labels."""
        block = self._block(attribute)
        return [one.block_labels(block).measures(names=names) for one in self.by_system[system]]

    def estimates(self, system: str, attribute: str) -> dict[str, MeasureEstimate]:
        """Return all measures of a system on an attribute, with intervals."""
        return self._estimates[system, attribute]

    @cached_property
    def _estimates(self) -> Mapping[tuple[str, str], dict[str, MeasureEstimate]]:
        return {(s, a): self._compute_estimates(s, a) for s in self.systems for a in self.attributes}

    def _compute_estimates(self, system: str, attribute: str) -> dict[str, MeasureEstimate]:
        parts, whole = self.scored_by_fold(system, attribute), self.pooled(system, attribute)
        values = _pooled_measures(whole, parts, np.ones(len(whole.truth)))
        resampled = [
            _pooled_measures(whole, parts, weights) for weights in self.clusters(attribute).bootstrap_weights()
        ]
        fold_values = [part.measures() for part in parts]
        out = {}
        for name in values:
            resampled_values = [one[name] for one in resampled]
            interval = (
                bias_corrected_interval(resampled_values, values[name])
                if name == "calibration_error"
                else percentile_interval(resampled_values)
            )
            out[name] = MeasureEstimate(values[name], *interval, _spread([one[name] for one in fold_values]))
        return out

    def differences(self, system: str, other: str, attribute: str) -> dict[str, MeasureDifference]:
        """Return, for each of the attribute's `compared_measures`, the value of `system` minus the value of `other`."""
        values, other_values = (self.pooled(name, attribute).item_measures for name in (system, other))
        folds = [
            (one.item_measures, two.item_measures)
            for one, two in zip(
                self.scored_by_fold(system, attribute), self.scored_by_fold(other, attribute), strict=True
            )
        ]
        n_test = np.mean([len(one.truth) for one in self.scored_by_fold(system, attribute)])
        n_train = float(self.n_train[:, self.blocks.index(self._block(attribute))].mean())
        out = {}
        for name in self.pooled(system, attribute).compared_measures:
            gaps = values[name] - other_values[name]
            resampled = [float(w @ gaps / w.sum()) for w in self.clusters(attribute).bootstrap_weights()]
            fold_values = [float((one[name] - two[name]).mean()) for one, two in folds]
            interval = fold_interval(fold_values, float(n_test / max(n_train, 1.0)))
            out[name] = MeasureDifference(float(gaps.mean()), *percentile_interval(resampled), interval)
        return out

    def best_system(self, attribute: str) -> str:
        """Return the system with the lowest log-loss; `MAJORITY` is excluded unless it is the only system."""
        losses = {name: -self.score(name, attribute).log_likelihood for name in self.systems if name != MAJORITY}
        return min(losses, key=losses.__getitem__, default=MAJORITY)

    def seconds(self, system: str) -> tuple[float, float]:
        """Return the CPU seconds of learning and of inference, summed over the folds."""
        folds = self.by_system[system]
        return sum(one.seconds_learn for one in folds), sum(one.seconds_infer for one in folds)

    def converged(self, system: str) -> bool:
        """Return True if learning and inference converged in every fold."""
        return all(one.converged for one in self.by_system[system])

    def learning_converged(self, system: str) -> bool:
        """Return True if learning converged in every fold."""
        return all(one.learning_converged for one in self.by_system[system])

    def measure_table(self) -> Frame:
        """Return one row per attribute, system and measure."""
        rows = [
            (attribute, system, name, *astuple(one))
            for attribute in self.attributes
            for system in self.systems
            for name, one in self.estimates(system, attribute).items()
        ]
        figures = dict.fromkeys(("value", "low", "high", "spread"), float)
        return Frame.from_rows({"attribute": object, "system": object, "measure": object, **figures}, rows)

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object: all measures, and the differences of systems from `LOCAL` and from the best system."""
        return {attribute: self._attribute_as_dict(attribute) for attribute in self.attributes}

    def _attribute_as_dict(self, attribute: str) -> dict[str, Any]:
        best, last = self.best_system(attribute), self.systems[-1]
        measures = {system: _measures_as_dict(self.estimates(system, attribute)) for system in self.systems}
        gains = {
            (system, other): _measures_as_dict(self.differences(system, other, attribute))
            for system in self.systems
            for other in {best, LOCAL} & {*self.systems}
        }
        relational_systems = [s for s in self.systems if LOCAL in self.systems and s not in (MAJORITY, LOCAL)]
        return {
            **self.score(last, attribute).as_dict(),
            "resampled": self.clusters(attribute).unit,
            "best": best,
            "systems": measures,
            "backends": {s: {**measures[s], "against_best": gains[s, best]} for s in self.systems},
            "relational_gain": {s: gains[s, LOCAL] for s in relational_systems},
        }


def _measures_as_dict(measures: Mapping[str, MeasureEstimate] | Mapping[str, MeasureDifference]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in measures.items()}


def predicted_blocks(grounding: Grounding) -> tuple[VariableBlock, ...]:
    """Return the blocks of variables whose labels can be held out: all blocks that are not latent."""
    return tuple(block for block in grounding.blocks if not block.is_latent)


def _pooled_measures(whole: Any, parts: Sequence[Any], weights: np.ndarray) -> dict[str, float]:
    """Return the measures over all folds, with one weight per item."""
    names = parts[0].measure_names
    ranking_names = [name for name in names if name in RANKING_MEASURES]
    measures = whole.measures(weights, [name for name in names if name not in RANKING_MEASURES])
    ends = np.cumsum([len(part.truth) for part in parts])
    of_parts = np.split(weights, ends[:-1])
    ranked = [part.measures(own, ranking_names) for part, own in zip(parts, of_parts, strict=True)]
    for name in ranking_names:
        known = [(own.sum(), one[name]) for own, one in zip(of_parts, ranked, strict=True) if one[name] == one[name]]
        total = sum(size for size, _ in known)
        measures[name] = float(sum(size * value for size, value in known) / total) if total else float("nan")
    return {name: measures[name] for name in names}


def _spread(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return float(np.std(known, ddof=1)) if len(known) > 1 else float("nan")
