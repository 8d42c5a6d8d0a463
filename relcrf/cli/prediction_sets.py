"""The output of prediction sets, by predict and evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from relcrf.backends.calibration_labels import require_coverage, require_one_condition
from relcrf.backends.nearby_labels import count_nearest
from relcrf.cli.output import print_note, print_table
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.prediction_sets import SetMeasures
from relcrf.prediction import Prediction


@dataclass(frozen=True)
class SetOptions:
    """Options of prediction sets; for their meaning see `Prediction.sets`."""

    coverage: float
    each_value: bool
    nearby: bool


def set_options(coverage: float | None, *, each_value: bool, nearby: bool) -> SetOptions | None:
    """Return the options of prediction sets; None if no sets are requested.

    Raises:
        UsageError: The coverage is not between 0 and 1, or is missing; or both conditions are requested (E376).
    """
    if coverage is None:
        if each_value or nearby:
            message = f"{'--each-value' if each_value else '--nearby'} has no effect without --coverage"
            raise UsageError(Diagnostic("E376", message, hint="add a coverage, e.g. --coverage 0.9"))
        return None
    require_coverage(coverage)
    require_one_condition(each_value=each_value, nearby=nearby)
    return SetOptions(coverage, each_value, nearby)


def describe_sets(prediction: Prediction, names: Sequence[str], options: SetOptions) -> dict[str, dict[str, Any]]:
    """Return the mean size of the prediction sets of each attribute, and the labels on which they are calibrated."""
    out: dict[str, dict[str, Any]] = {}
    for name in names:
        if prediction.block(name).is_numeric:
            out[prediction.block(name).name] = _describe_intervals(prediction, name, options)
            continue
        labels, sets = prediction.calibration_labels(name), prediction.sets(name, **asdict(options))
        out[prediction.block(name).name] = {
            **asdict(options),
            "mean_size": float(sets.sum(axis=1).mean()) if len(sets) else float("nan"),
            "labels": len(labels.variables),
            **_count_nearby(prediction, name, options),
            "unit": labels.unit,
            "note": labels.note,
        }
    return out


def _describe_intervals(prediction: Prediction, name: str, options: SetOptions) -> dict[str, Any]:
    low, high = prediction.intervals(name, options.coverage, nearby=options.nearby)
    labels = prediction.calibration.get(prediction.block(name).name)
    return {
        "coverage": options.coverage,
        "nearby": options.nearby,
        "mean_width": float((high - low).mean()) if len(low) else float("nan"),
        "labels": 0 if labels is None else len(labels.variables),
        **_count_nearby(prediction, name, options),
    }


def _count_nearby(prediction: Prediction, name: str, options: SetOptions) -> dict[str, int]:
    """Return how many sets are calibrated on the nearest labels, and how many on all, if the nearest ones are requested."""
    if not options.nearby:
        return {}
    is_nearby = np.isfinite(prediction.nearby_min_probabilities(name, options.coverage))
    return {"n_nearby": int(is_nearby.sum()), "n_others": int((~is_nearby).sum())}


def print_sets_of_predictions(prediction: Prediction, names: Sequence[str], options: SetOptions) -> None:
    """Print the guarantee and the mean size of the prediction sets of each attribute."""
    coverage, condition = options.coverage, ", whatever it is," if options.each_value else ""
    for name, sets in describe_sets(prediction, names, options).items():
        if prediction.block(name).is_numeric:
            numbers = f"calibrated on {_calibration_count(sets['labels'], options)} held-out numbers"
            source = numbers if sets["labels"] else "if the model is right"
            print_note(
                f"each interval contains the true {name} with probability {coverage:g}, {source}; "
                f"mean width {sets['mean_width']:.4g}"
            )
            _print_count_of_others(sets.get("n_others", 0))
            continue
        print_note(
            f"each set contains the true value of {name}{condition} with probability {coverage:g}, calibrated on "
            f"{_calibration_count(sets['labels'], options)} held-out labels; mean size {sets['mean_size']:.2f}"
        )
        _print_count_of_others(sets.get("n_others", 0))
        if sets["note"]:
            print_note(sets["note"])


def _calibration_count(n_labels: int, options: SetOptions) -> str:
    """Return how many of the held-out labels calibrate a set, as a text."""
    n_nearest = count_nearest(options.coverage)
    return f"the nearest {n_nearest:,} of {n_labels:,}" if options.nearby and n_nearest <= n_labels else f"{n_labels:,}"


def _print_count_of_others(n_others: int) -> None:
    """Print how many sets are calibrated on all labels although the nearest ones are requested."""
    if n_others:
        print_note(f"{n_others:,} sets are calibrated on all held-out labels, because too few are near")


def print_set_measures(
    evaluation: Evaluation, options: SetOptions, measures: Mapping[str, Mapping[str, SetMeasures]]
) -> None:
    """Print the coverage and the size of the prediction sets of each attribute, or why there are none."""
    for attribute in evaluation.predictions.attributes:
        if attribute not in measures:
            source = (
                "the run has no held-out labels"
                if evaluation.calibration_labels is not None
                else "there is a single fold"
            )
            hint = (
                "train the run with --calibrate 5"
                if evaluation.calibration_labels is not None
                else "evaluate several folds"
            )
            print_note(f"prediction sets of {attribute} cannot be calibrated, because {source}; {hint}")
            continue
        is_numeric = evaluation.predictions.is_numeric(attribute)
        rows = [
            (
                system,
                f"{one.coverage:.4f} [{one.low:.3f}, {one.high:.3f}]",
                "" if one.lowest != one.lowest else f"{one.lowest:.4f}",
                f"{one.mean_size:.4g}" if is_numeric else f"{one.mean_size:.2f}",
                "" if is_numeric else f"{one.fraction_certain:.1%}",
            )
            for system, one in measures[attribute].items()
        ]
        columns = ("", "contain the label", "worst value", "mean size", "single value")
        n_labels = min(one.n_calibration for one in measures[attribute].values())
        kind = "intervals" if is_numeric else "prediction sets"
        nearest = f"the nearest {count_nearest(options.coverage):,} of " if options.nearby else ""
        title = (
            f"{attribute}, {kind} for a coverage of {options.coverage:g}, calibrated on {nearest}{n_labels:,} labels"
        )
        if is_numeric:
            print_table(title, ("", "contain the number", "mean width"), [(row[0], row[1], row[3]) for row in rows])
        else:
            print_table(title, columns, rows)
        if options.nearby:
            _print_count_of_others(max(one.n - one.n_nearby for one in measures[attribute].values()))
        for note in dict.fromkeys(one.note for one in measures[attribute].values() if one.note):
            print_note(note)
