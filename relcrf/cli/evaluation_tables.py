"""The output of evaluations: tables of measures and folds, and the leakage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from relcrf.backends.base import MORE_ITERATIONS
from relcrf.cli.output import print_line, print_note, print_table, print_wide_table
from relcrf.data.split_plan import SplitPlan
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.leakage import Leakage
from relcrf.evaluation.predictions import LOCAL, MAJORITY, MeasureDifference, MeasureEstimate, Predictions
from relcrf.evaluation.splits import Fold, PartSizes

MAX_PRINTED_FOLDS = 20
"""Maximum number of folds for which the scores of each fold are printed."""


def note_part_sizes(plan: SplitPlan, folds: Sequence[Fold], part_sizes: Sequence[PartSizes]) -> None:
    """Print the number of labels of each part if the split names parts, or a single value of a column to hold out."""
    if plan.has_parts or (plan.kind == "column" and len(plan.holdout) == 1):
        for fold, sizes in zip(folds, part_sizes, strict=True):
            print_note(str(sizes) if len(folds) == 1 else f"fold {fold.name}: {sizes}")


def print_evaluation(evaluation: Evaluation) -> None:
    """For each attribute, print a table of measures by backend and a table of scores by fold."""
    results = evaluation.predictions
    systems = [name for name in results.systems if name not in (MAJORITY, LOCAL)]
    compared = systems if LOCAL in results.systems else []
    for attribute in results.attributes:
        estimates = {name: results.estimates(name, attribute) for name in results.systems}
        gains = {name: results.differences(name, LOCAL, attribute) for name in compared}
        rows = [
            (
                measure.replace("_", " "),
                *(_format_estimate(by_measure[measure]) for by_measure in estimates.values()),
                *(_format_difference(by_measure, measure) for by_measure in gains.values()),
            )
            for measure in next(iter(estimates.values()))
            if any(by_measure[measure].value == by_measure[measure].value for by_measure in estimates.values())
        ]
        n = results.score(results.systems[0], attribute).n
        n_folds = len(evaluation.folds)
        title = f"{attribute}, split {evaluation.split}: {n:,} labels held out in {n_folds} fold{'s' * (n_folds > 1)}"
        print_wide_table(title, ("", *estimates, *(f"{name} - {LOCAL}" for name in gains)), rows)
        unit = results.clusters(attribute).unit
        print_note(f"[low, high]: 95 % bootstrap interval over {unit}; ±: standard deviation over folds")
        if unit == "labels":
            print_note(
                "too few components to resample: connected labels are not independent, so the intervals are too narrow"
            )
        if 1 < len(evaluation.folds) <= MAX_PRINTED_FOLDS:
            _print_fold_scores(evaluation, attribute)
    for name in results.systems:
        if not results.converged(name):
            print_note(_convergence_note(name, evaluation.predictions))
    seconds = {name: results.seconds(name) for name in evaluation.results}
    print_line(
        "; ".join(f"{name}: {a:.2f} s CPU time to learn, {b:.2f} s to infer" for name, (a, b) in seconds.items())
    )


def _convergence_note(name: str, results: Predictions) -> str:
    """Return a note on a system whose learning or inference did not converge, with what to do."""
    chosen = sorted({one.chosen for one in results.by_system[name] if one.chosen})
    if not results.learning_converged(name):
        option = f"--set {name}.{MORE_ITERATIONS}" if not chosen else f"--backend {chosen[0]} --set {MORE_ITERATIONS}"
        return f"{name} did not converge in at least one fold; raise the limit with {option}"
    option = f"--set {name}.inference=..." if not chosen else f"--backend {chosen[0]} --set inference=..."
    return (
        f"inference of {name} did not converge in at least one fold; select another method with {option}, see "
        "docs/explanation/inference"
    )


def _print_fold_scores(evaluation: Evaluation, attribute: str) -> None:
    predictions = evaluation.predictions
    measures = ("mae", "crps") if predictions.is_numeric(attribute) else ("accuracy", "log_loss")
    scores = [
        (one, values)
        for name in evaluation.results
        for one, values in zip(
            predictions.fold_scores(name), predictions.fold_measures(name, attribute, measures), strict=True
        )
    ]
    rows = [
        (
            one.fold,
            f"{one.backend} ({one.chosen})" if one.chosen else one.backend,
            *(values[name] for name in measures),
            one.scores[attribute].n,
            one.seconds_learn + one.seconds_infer,
        )
        for fold in evaluation.folds
        for one, values in scores
        if one.fold == fold.name
    ]
    columns = ("held-out fold", "backend", *(name.replace("_", " ") for name in measures), "n", "seconds")
    print_table(f"{attribute}, by fold", columns, rows)


def _format_estimate(estimate: MeasureEstimate) -> Text:
    """Format an estimate with its standard deviation over folds and, on a second line, its interval."""
    if estimate.value != estimate.value:
        return Text()
    spread = f" ±{estimate.spread:.3f}" if estimate.spread == estimate.spread else ""
    return Text(f"{estimate.value:.4f}{spread}\n[{estimate.low:.3f}, {estimate.high:.3f}]")


def _format_difference(by_measure: Mapping[str, MeasureDifference], measure: str) -> Text:
    """Format the difference of a measure, with its interval on a second line; return an empty text if it is unknown."""
    if measure not in by_measure:
        return Text()
    difference = by_measure[measure]
    return Text(f"{difference.value:+.4f}\n[{difference.low:+.3f}, {difference.high:+.3f}]")


def print_leaks(leakage: Leakage) -> None:
    """Print how many factors of each template connect test labels with training labels, and an interpretation."""
    rows = [(*row, f"{row[2] / row[1]:.0%}") for row in leakage.crossings.rows()]
    if rows:
        columns = ("template", "factors", "with training labels", "fraction")
        print_table("factors of held-out variables", columns, rows)
    for sentence in leakage.interpretation:
        print_line(f"- {sentence}")
