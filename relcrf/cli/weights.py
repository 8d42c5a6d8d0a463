"""Commands that show learned weights and compare runs: weights, moments, diff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relcrf import api
from relcrf.backends.weight_names import largest_indices
from relcrf.cli.flat_options import JsonOption, ManifestOption
from relcrf.cli.options import HoldoutOptions, LimitOptions, RunArgument, run_manifest
from relcrf.cli.output import print_json, print_line, print_note, print_table
from relcrf.cli.progress import show_progress
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame, require_writable
from relcrf.evaluation.named_weights import named_weights, select_rows, sort_rows, standard_errors_from_data
from relcrf.evaluation.run_differences import Pair, RunDifferences, compare_runs, jaccard
from relcrf.evaluation.standard_errors import StandardErrors


class SortKey(StrEnum):
    """The order of the weights: by the magnitude of a column, or as in the model."""

    weight = "weight"
    z = "z"
    support = "support"
    model = "model"


@dataclass(frozen=True, kw_only=True)
class WeightSelectionOptions:
    """The weights to print or write, and their order."""

    template: Annotated[
        str | None, typer.Option("--template", "-t", metavar="NAME", help="Only weights of this template.")
    ] = None
    key: Annotated[
        str | None, typer.Option("--key", metavar="PATTERN", help="Only keys that match a pattern, e.g. 'neur*'.")
    ] = None
    min_support: Annotated[
        float, typer.Option("--min-support", metavar="FLOAT", min=0, help="Only weights with at least this support.")
    ] = 0.0
    sort: Annotated[
        SortKey,
        typer.Option(
            "--sort", metavar="COLUMN", help="Sort by weight, z or support, largest first, or as in the model."
        ),
    ] = SortKey.weight
    top: Annotated[int, typer.Option("--top", metavar="INT", min=1, help="Number of weights to print.")] = 20
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Write all selected weights: .csv, .tsv, .jsonl or .parquet.",
        ),
    ] = None


def weights(
    run: RunArgument,
    options: WeightSelectionOptions,
    holdout: HoldoutOptions,
    limits: LimitOptions,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", metavar="SOURCE", help="Training tables, for standard errors and z."),
    ] = None,
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show learned weights by name, with their support and, with --data, standard errors.

    Example: relcrf weights runs/webkb --data webkb/ --template word --key 'stud*' --sort z
    """
    out = options.out
    if out is not None:
        require_writable(out)
    fit = api.load_fit(run)
    learned, errors = fit.learned, None
    frame = named_weights(learned)
    mask = select_rows(learned, frame, options.template, options.key, options.min_support)
    if data is not None:
        with show_progress(quiet=as_json) as display:
            display.start_phase("reading tables")
            dataset = Dataset(data, manifest=run_manifest(run, data, manifest), memory=limits.memory)
            grounding = fit.ground(dataset, limits.budget, display.report_grounding)
            display.start_phase("computing standard errors")
            errors = standard_errors_from_data(learned, grounding, holdout.hidden(grounding), mask)
        frame = named_weights(learned, errors)
    selected = frame.take_rows(sort_rows(frame, mask, options.sort.value))
    if out is not None:
        selected.write(out)
    if as_json:
        counts = {"weights": len(frame), "selected": len(selected), "shown": selected.to_dicts(options.top)}
        counts |= {"numbers": learned.number_offsets} if learned.number_offsets else {}
        print_json({"run": run, **counts, "gradient": None if errors is None else errors.gradient_fraction, "out": out})
        return
    shown = selected.take_rows(np.arange(min(options.top, len(selected))))
    _print_weights(f"weights: {len(shown):,} of {len(selected):,} selected, {len(frame):,} in total", shown)
    for name, (mean, log_precision) in learned.number_offsets.items():
        print_note(f"{name}: the weights are added to a mean of {mean:.4g} and a log precision of {log_precision:.4g}")
    if errors is not None:
        _note_errors(errors, mask)
    if out is not None:
        print_note(f"wrote {len(selected):,} weights to {out}")


def _print_weights(title: str, frame: Frame, digits: str = ",.4g") -> None:
    """Print a frame of named weights; NaN and the constant feature are printed as empty cells."""
    if "feature" in frame.columns:
        features = ["" if name == "1" else name for name in frame["feature"]]
        frame = Frame({**frame.columns, "feature": np.array(features, dtype=object)})
    rows = [[cell if isinstance(cell, str) else _format_number(cell, digits) for cell in row] for row in frame.rows()]
    print_table(title, [name.replace("_", " ") for name in frame.columns], rows)


def _format_number(value: float, digits: str) -> str:
    return "" if np.isnan(value) else format(value, digits)


def _note_errors(errors: StandardErrors, mask: np.ndarray) -> None:
    known = int((mask & ~np.isnan(errors.values)).sum())
    print_note(f"standard errors of {known:,} weights, from {errors.source}")
    if not errors.is_maximum:
        print_note(
            f"the gradient norm is {errors.gradient_fraction:.0%} of its initial value, so these are not the training "
            "data or training did not converge; the standard errors are unreliable"
        )


def moments(
    run: RunArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Write all moments: .csv, .tsv, .jsonl, .parquet or .arrow.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="INT", min=0, help="Number of moments to print, largest difference first.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Compare the empirical moments of features with the moments that the model expects.

    Example: relcrf moments runs/webkb --out moments.csv
    """
    if out is not None:
        require_writable(out)
    frame = api.load_fit(run).moments()
    if out is not None:
        frame.write(out)
    differences = np.abs(np.nan_to_num(frame["standard_errors"]))
    worst = frame.take_rows(largest_indices(differences, top))
    if as_json:
        print_json({"run": run, "moments": len(differences), "worst": worst.to_dicts(), "out": out})
        return
    _print_weights(f"moments: {len(worst):,} of {len(differences):,}, largest difference first", worst, ",.6g")
    print_line(f"the largest difference is {differences.max(initial=0.0):.3g} standard errors")


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN1", help="First run folder.")],
    second: Annotated[Path, typer.Argument(metavar="RUN2", help="Second run folder.")],
    limits: LimitOptions,
    top: Annotated[int, typer.Option("--top", metavar="INT", min=1, help="Number of weights to print.")] = 10,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="SOURCE",
            help="Tables on which to compare predictions and active edges.",
        ),
    ] = None,
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how two runs differ in settings, model, data, weights, structure and, with --data, predictions.

    Example: relcrf diff runs/first runs/second --data webkb/
    """
    fits = [api.load_fit(run) for run in (first, second)]
    differences = compare_runs(fits[0].learned, fits[1].learned, (str(first), str(second)))
    answers = None
    if data is not None:
        with show_progress(quiet=as_json) as display:
            dataset = Dataset(data, manifest=run_manifest(first, data, manifest), memory=limits.memory)
            answers = _compare_predictions(fits, dataset, limits.budget, display.report_grounding)
    if as_json:
        facts = asdict(differences) | {
            "weights": differences.weights.to_dicts(top),
            "unique_weights": [unique.to_dicts(top) for unique in differences.unique_weights],
            "n_shared_weights": len(differences.weights),
            "n_unique_weights": [len(unique) for unique in differences.unique_weights],
        }
        print_json({"runs": [first, second], **facts, "answers": answers})
        return
    _print_differences(differences, answers, top)


def _compare_predictions(fits: list[api.Fit], data: Dataset, budget: int, progress: Any) -> dict[str, Any]:
    """Return the fraction of equal predictions of each attribute, and the Jaccard index of the active edges.

    The predictions of numbers have a mean absolute difference instead of the fraction.
    """
    groundings = [fit.ground(data, budget, progress) for fit in fits]
    one, other = (api.predict(fit, grounding) for fit, grounding in zip(fits, groundings, strict=True))
    # The graphs of two models have other variables in another order, so that only names identify the entities.
    names = [
        {
            name: dict(zip(_names(p, p.variables(name)), _predicted_values(p, name), strict=True))
            for name in p.attributes
        }
        for p in (one, other)
    ]
    numeric = [{name for name in p.attributes if p.block(name).is_numeric} for p in (one, other)]
    pairs = {
        name: [(names[0][name][v], names[1][name][v]) for v in sorted(names[0][name].keys() & names[1][name].keys())]
        for name in sorted(names[0].keys() & names[1].keys())
        if (name in numeric[0]) == (name in numeric[1])
    }
    edges = [
        {tuple(sorted(edge)) for edge in zip(*(_names(p, ends) for ends in p.inferred.edges.T), strict=True)}
        for p in (one, other)
    ]
    distances = {
        name: [abs(a - b) if name in numeric[0] else float(a == b) for a, b in compared]
        for name, compared in pairs.items()
    }
    means = {name: sum(values) / len(values) if values else None for name, values in distances.items()}
    return {
        "same": {name: mean for name, mean in means.items() if name not in numeric[0]},
        "mean_differences": {name: mean for name, mean in means.items() if name in numeric[0]},
        "queries": {name: len(compared) for name, compared in pairs.items()},
        "edges": jaccard(*edges),
    }


def _names(prediction: api.Prediction, variables: np.ndarray) -> list[str]:
    names: list[str] = prediction.grounding.variable_names(variables).tolist()
    return names


def _predicted_values(prediction: api.Prediction, name: str) -> list[Any]:
    """Return the most probable value, or the mean of a number, of each query variable."""
    if prediction.block(name).is_numeric:
        return list(prediction.means(name).tolist())
    values = np.asarray(prediction.block(name).values, dtype=object)
    return list(values[prediction.probabilities(name).argmax(axis=1)]) if len(prediction.variables(name)) else []


def _print_differences(differences: RunDifferences, answers: Mapping[str, Any] | None, top: int) -> None:
    for title, pairs in (
        ("settings", differences.settings),
        ("bindings by template", differences.bindings),
        ("sizes of vocabularies", differences.vocabulary_sizes),
        ("training summary", differences.summary),
    ):
        if pairs:
            print_table(title, ("", "first", "second"), [_format_pair(name, pair) for name, pair in pairs.items()])
        else:
            print_line(f"{title}: identical")
    if differences.model:
        for line in differences.model:
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            print_line(line, style=colour)
    else:
        print_line("model: identical")
    rows = [
        [*name, f"{one:+.4f}", f"{other:+.4f}", f"{other - one:+.4f}"]
        for *name, one, other in differences.weights.rows(top)
    ]
    columns = (*differences.weights.columns, "difference")
    print_table(
        f"shared weights, largest difference first: {len(rows):,} of {len(differences.weights):,}", columns, rows
    )
    for run, unique in zip(("first", "second"), differences.unique_weights, strict=True):
        if unique:
            shown = [[*name, f"{value:+.4f}"] for *name, value in unique.rows(top)]
            print_table(f"weights only in the {run} run: {len(shown):,} of {len(unique):,}", [*unique.columns], shown)
    if not np.isnan(differences.correlation):
        print_line(f"correlation of the shared weights: {differences.correlation:.4f}")
    if differences.candidate_jaccard is not None:
        print_line(f"selected candidates in common: {differences.candidate_jaccard:.1%} (Jaccard)")
    if answers is not None:
        for name, fraction in answers["same"].items():
            if fraction is not None:
                print_line(f"{name}: {fraction:.1%} of {answers['queries'][name]:,} predictions are equal")
        for name, difference in answers["mean_differences"].items():
            if difference is not None:
                number = f"{answers['queries'][name]:,} predictions"
                print_line(f"{name}: the mean absolute difference of {number} is {difference:.4g}")
        if answers["edges"] is not None:
            print_line(f"active edges in common: {answers['edges']:.1%} (Jaccard)")


def _format_pair(name: str, pair: Pair) -> tuple[str, str, str]:
    first, second = ("" if value is None else str(value) for value in pair)
    return name, first, second
