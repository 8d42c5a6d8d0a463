"""Prediction sets: how their calibration labels are collected, and how often sets contain the labels of an evaluation.

Source: Vovk, Cross-conformal predictors (2015): the labels of each fold are predicted by a model that was trained on the other
folds, and all of them calibrate the sets of the final model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtri

from relcrf.backends.base import Problem
from relcrf.backends.calibration_labels import CalibrationLabels, require_coverage, require_one_condition
from relcrf.backends.nearby_labels import nearby_min_probabilities
from relcrf.evaluation.intervals import Clusters, percentile_interval
from relcrf.evaluation.predictions import MAJORITY, Predictions
from relcrf.evaluation.splits import Fold
from relcrf.graph.components import label_components
from relcrf.graph.reduction import Role

MIN_LABELS = 10
"""Minimum number of labels of a value whose coverage is reported; that of fewer labels is mostly chance."""


def collect_calibration_labels(
    problem: Problem, folds: Sequence[Fold], predicted: Sequence[tuple[np.ndarray, np.ndarray]]
) -> CalibrationLabels:
    """Collect the held-out labels of folds, in exchangeable groups.

    If whole connected components were held out, a component is a group, unless the components are too few or too unequal in
    size (see `Clusters`). Otherwise, each label is a group.

    Args:
        predicted: For each fold, the variables of the held-out labels and the predicted probabilities of the labels.
    """
    variable, probabilities = (np.concatenate(arrays) for arrays in zip(*predicted, strict=True))
    order = np.argsort(variable, kind="stable")
    variable = variable[order]
    is_whole = all(fold.whole_components for fold in folds)
    component = np.arange(len(problem.roles))
    if is_whole:
        component = label_components(problem.whole_graph, np.full_like(problem.roles, Role.FREE))
    clusters = Clusters.from_variables(variable, component)
    is_component = is_whole and clusters.unit == "components"
    return CalibrationLabels(
        variable,
        problem.states[variable],
        np.clip(np.nan_to_num(probabilities[order], nan=0.0), 0.0, 1.0),  # diverged inference yields nan
        clusters.index if is_component else np.arange(len(variable)),
        "components" if is_component else "labels",
        is_whole,
    )


@dataclass(frozen=True)
class SetMeasures:
    """The prediction sets of one system for the held-out labels of one attribute.

    Args:
        coverage: The fraction of sets that contain the label.
        low, high: The limits of the 95 % bootstrap interval of `coverage`.
        lowest: The smallest coverage of the sets of a true value with at least `MIN_LABELS` labels; nan without such a value.
        mean_size: The mean number of states of a set, or the mean width of the interval of a number.
        fraction_certain: The fraction of sets with a single state; nan for numbers.
        n: The number of sets.
        n_calibration: The number of labels on which the sets were calibrated; with several folds, the smallest number.
        note: Why the coverage is not guaranteed; empty if it is.
        n_nearby: The number of sets that were calibrated on the nearest labels only.
    """

    coverage: float
    low: float
    high: float
    lowest: float
    mean_size: float
    fraction_certain: float
    n: int
    n_calibration: int
    note: str = ""
    n_nearby: int = 0


def measure_sets(
    predictions: Predictions,
    coverage: float,
    calibration_labels: Mapping[str, CalibrationLabels] | None = None,
    *,
    each_value: bool = False,
    adjacency: csr_array | None = None,
) -> dict[str, dict[str, SetMeasures]]:
    """Measure the prediction sets of all systems, by attribute and system.

    Args:
        coverage: The nominal coverage, between 0 and 1.
        calibration_labels: The labels on which a trained model calibrates its sets, by attribute; `MAJORITY` then has no sets.
            Default: the sets of each fold are calibrated on the labels of the other folds; a single fold has no sets.
        each_value: See `CalibrationLabels.prediction_sets`.
        adjacency: Adjacency matrix of the variables if sets are calibrated on the nearest labels, see `nearby_labels`.

    Raises:
        UsageError: If the coverage is not between 0 and 1, or `each_value` and `adjacency` are given (E376); or if labels were
            held out with their connected components (E375).
    """
    require_coverage(coverage)
    require_one_condition(each_value=each_value, nearby=adjacency is not None)
    systems = [name for name in predictions.systems if calibration_labels is None or name != MAJORITY]
    out: dict[str, dict[str, SetMeasures]] = {}
    for attribute in predictions.attributes:
        for system in systems:
            measured = _measure_system(
                predictions, system, attribute, coverage, calibration_labels, each_value, adjacency
            )
            if measured is not None:
                out.setdefault(attribute, {})[system] = measured
    return out


def _measure_system(
    predictions: Predictions,
    system: str,
    attribute: str,
    coverage: float,
    calibration_labels: Mapping[str, CalibrationLabels] | None,
    each_value: bool,
    adjacency: csr_array | None,
) -> SetMeasures | None:
    """Measure the prediction sets of a system for an attribute; None if no labels are left to calibrate them."""
    folds = predictions.scored_by_fold(system, attribute)
    whole, clusters = predictions.pooled(system, attribute), predictions.clusters(attribute)
    fold_of = np.repeat(np.arange(len(folds)), [len(fold.truth) for fold in folds])
    rows, is_numeric = np.arange(len(fold_of)), predictions.is_numeric(attribute)
    probabilities = whole.tail_probabilities() if is_numeric else whole.probabilities[rows, whole.truth]
    states = np.zeros_like(rows) if is_numeric else whole.truth
    variables = predictions.test_variables(attribute)
    labels = CalibrationLabels(variables, states, probabilities, clusters.index, clusters.unit, False)
    contains, sizes, n_calibration = np.empty(len(rows), dtype=bool), np.empty(len(rows)), []
    note, n_nearby = "", 0
    for number, fold in enumerate(folds):
        known = labels.select(fold_of != number) if calibration_labels is None else calibration_labels.get(attribute)
        if known is None or not len(known.variables):
            return None
        note, tested = known.note, variables[fold_of == number]
        nearest = None if adjacency is None else nearby_min_probabilities(known, adjacency, tested, coverage)
        n_nearby += 0 if nearest is None else int(np.isfinite(nearest).sum())
        if is_numeric:
            smallest = known.min_probability(coverage) if nearest is None else known.fill_nearby(nearest, coverage)
            contains[fold_of == number] = fold.tail_probabilities() >= smallest
            sizes[fold_of == number] = -2.0 * ndtri(0.5 * smallest) * fold.deviations
        else:
            sets = known.prediction_sets(fold.probabilities, coverage, each_value=each_value, nearby=nearest)
            contains[fold_of == number] = sets[np.arange(len(sets)), fold.truth]
            sizes[fold_of == number] = sets.sum(axis=1)
        n_calibration.append(len(known.variables))
    resampled = [float(w @ contains / w.sum()) for w in clusters.bootstrap_weights()]
    return SetMeasures(
        float(contains.mean()),
        *percentile_interval(resampled),
        float("nan") if is_numeric else _lowest_coverage(contains, whole.truth),
        float(sizes.mean()),
        float("nan") if is_numeric else float((sizes == 1).mean()),
        len(rows),
        min(n_calibration),
        note,
        n_nearby,
    )


def _lowest_coverage(contains: np.ndarray, truth: np.ndarray) -> float:
    counts = np.bincount(truth)
    covered = np.bincount(truth, weights=contains)
    frequent = counts >= MIN_LABELS
    return float((covered[frequent] / counts[frequent]).min()) if frequent.any() else float("nan")


def sets_as_dict(measures: Mapping[str, Mapping[str, SetMeasures]]) -> dict[str, Any]:
    """Return measures of prediction sets as a JSON object."""
    return {
        attribute: {system: asdict(one) for system, one in systems.items()} for attribute, systems in measures.items()
    }
