"""The output of prediction sets, by predict and evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relcrf.backends.calibration_labels import require_coverage
from relcrf.cli.output import print_note, print_table
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.prediction_sets import SetMeasures
from relcrf.prediction import Prediction


def require_valid_sets(coverage: float | None, *, each_value: bool) -> None:
    """Validate the options of prediction sets.

    Raises:
        UsageError: The coverage is not between 0 and 1, or is missing (E376).
    """
    if coverage is not None:
        require_coverage(coverage)
    elif each_value:
        message = "--each-value has no effect without --coverage"
        raise UsageError(Diagnostic("E376", message, hint="add a coverage, e.g. --coverage 0.9"))


def describe_sets(
    prediction: Prediction, names: Sequence[str], coverage: float, each_value: bool
) -> dict[str, dict[str, Any]]:
    """Return the mean size of the prediction sets of each attribute, and the labels on which they are calibrated."""
    out: dict[str, dict[str, Any]] = {}
    for name in names:
        if prediction.block(name).is_numeric:
            out[prediction.block(name).name] = _describe_intervals(prediction, name, coverage)
            continue
        labels, sets = (
            prediction.calibration_labels(name),
            prediction.sets(name, coverage=coverage, each_value=each_value),
        )
        out[prediction.block(name).name] = {
            "coverage": coverage,
            "each_value": each_value,
            "mean_size": float(sets.sum(axis=1).mean()) if len(sets) else float("nan"),
            "labels": len(labels.variables),
            "unit": labels.unit,
            "note": labels.note,
        }
    return out


def _describe_intervals(prediction: Prediction, name: str, coverage: float) -> dict[str, Any]:
    low, high = prediction.intervals(name, coverage)
    labels = prediction.calibration.get(prediction.block(name).name)
    return {
        "coverage": coverage,
        "mean_width": float((high - low).mean()) if len(low) else float("nan"),
        "labels": 0 if labels is None else len(labels.variables),
    }


def print_sets_of_predictions(prediction: Prediction, names: Sequence[str], coverage: float, each_value: bool) -> None:
    """Print the guarantee and the mean size of the prediction sets of each attribute."""
    condition = ", whatever it is," if each_value else ""
    for name, sets in describe_sets(prediction, names, coverage, each_value).items():
        if prediction.block(name).is_numeric:
            source = f"calibrated on {sets['labels']:,} held-out numbers" if sets["labels"] else "if the model is right"
            print_note(
                f"each interval contains the true {name} with probability {coverage:g}, {source}; "
                f"mean width {sets['mean_width']:.4g}"
            )
            continue
        print_note(
            f"each set contains the true value of {name}{condition} with probability {coverage:g}, calibrated on "
            f"{sets['labels']:,} held-out labels; mean size {sets['mean_size']:.2f}"
        )
        if sets["note"]:
            print_note(sets["note"])


def print_set_measures(
    evaluation: Evaluation, coverage: float, measures: Mapping[str, Mapping[str, SetMeasures]]
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
        title = f"{attribute}, {kind} for a coverage of {coverage:g}, calibrated on {n_labels:,} labels"
        if is_numeric:
            print_table(title, ("", "contain the number", "mean width"), [(row[0], row[1], row[3]) for row in rows])
        else:
            print_table(title, columns, rows)
        for note in dict.fromkeys(one.note for one in measures[attribute].values() if one.note):
            print_note(note)
