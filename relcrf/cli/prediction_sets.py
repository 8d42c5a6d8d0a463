"""The output of prediction sets, by predict and evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relcrf.cli.output import print_note, print_table
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.prediction_sets import SetMeasures
from relcrf.prediction import Prediction


def describe_sets(prediction: Prediction, names: Sequence[str], coverage: float) -> dict[str, dict[str, Any]]:
    """Return the mean size of the prediction sets of each attribute, and the labels on which they are calibrated."""
    out: dict[str, dict[str, Any]] = {}
    for name in names:
        labels, sets = prediction.calibration_labels(name), prediction.sets(name, coverage=coverage)
        out[prediction.block(name).name] = {
            "coverage": coverage,
            "mean_size": float(sets.sum(axis=1).mean()) if len(sets) else float("nan"),
            "labels": len(labels.variables),
            "unit": labels.unit,
            "note": labels.note,
        }
    return out


def print_sets_of_predictions(prediction: Prediction, names: Sequence[str], coverage: float) -> None:
    """Print the guarantee and the mean size of the prediction sets of each attribute."""
    for name, sets in describe_sets(prediction, names, coverage).items():
        print_note(
            f"each set contains the true value of {name} with probability {coverage:g}, calibrated on "
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
        rows = [
            (
                system,
                f"{one.coverage:.4f} [{one.low:.3f}, {one.high:.3f}]",
                f"{one.mean_size:.2f}",
                f"{one.fraction_certain:.1%}",
                f"{one.n_calibration:,}",
            )
            for system, one in measures[attribute].items()
        ]
        columns = ("", "contain the label", "mean size", "single value", "calibrated on")
        print_table(f"{attribute}, prediction sets for a coverage of {coverage:g}", columns, rows)
        for note in dict.fromkeys(one.note for one in measures[attribute].values() if one.note):
            print_note(note)
