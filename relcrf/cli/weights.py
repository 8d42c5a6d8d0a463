"""Commands about learned weights: weights, moments, diff."""

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
from relcrf.cli.options import HoldoutOptions, JsonOption, LimitOptions, RunArgument
from relcrf.cli.output import print_json, print_line, print_note, print_table, show_progress
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame, require_writable
from relcrf.evaluation.named_weights import named_weights, select_rows, sort_rows, standard_errors_from_data
from relcrf.evaluation.run_differences import Pair, RunDifferences, compare_runs, jaccard
from relcrf.evaluation.standard_errors import StandardErrors


class SortKey(StrEnum):
    """What weights are sorted by."""

    weight = "weight"
    z = "z"
    support = "support"


@dataclass(frozen=True, kw_only=True)
class WeightSelectionOptions:
    """The weights that are shown or written, and their order."""

    template: Annotated[str | None, typer.Option("--template", "-t", help="Only weights of this template.")] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only keys like this: 'neur*'.")] = None
    min_support: Annotated[float, typer.Option("--min-support", min=0, help="Only weights seen so often.")] = 0.0
    sort: Annotated[SortKey, typer.Option("--sort", help="What comes first: the largest of these.")] = SortKey.weight
    top: Annotated[int, typer.Option("--top", min=1, help="How many are shown.")] = 20
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Where to write all that are selected: .csv, .tsv, .jsonl, .parquet.")
    ] = None


def weights(
    run: RunArgument,
    options: WeightSelectionOptions,
    holdout: HoldoutOptions,
    limits: LimitOptions,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="The tables of the training, for standard errors and z.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show learned weights by name, with how often each was seen and, with --data, its standard error.

    Example: relcrf weights runs/webkb --data webkb/ --template word --key 'stud*' --sort z
    """
    csv = options.csv
    if csv is not None:
        require_writable(csv)
    fit = api.load_fit(run)
    learned, errors = fit.learned, None
    frame = named_weights(learned)
    kept = select_rows(learned, frame, options.template, options.key, options.min_support)
    if data is not None:
        with show_progress(quiet=as_json) as watch:
            watch.start_phase("reading tables")
            grounding = fit.ground(Dataset(data, memory=limits.memory), limits.budget, watch.report_grounding)
            watch.start_phase("standard errors")
            errors = standard_errors_from_data(learned, grounding, holdout.hidden(grounding), kept)
        frame = named_weights(learned, errors)
    found = frame.take_rows(sort_rows(frame, kept, options.sort.value))
    if csv is not None:
        found.write(csv)
    if as_json:
        counts = {"weights": len(frame), "selected": len(found), "shown": found.to_dicts(options.top)}
        print_json({"run": run, **counts, "gradient": None if errors is None else errors.gradient_fraction, "csv": csv})
        return
    shown = found.take_rows(np.arange(min(options.top, len(found))))
    _print_weights(f"weights: {len(shown):,} of {len(found):,} selected, {len(frame):,} in all", shown)
    if errors is not None:
        _note_errors(errors, kept)
    if csv is not None:
        print_note(f"{len(found):,} weights are in {csv}")


def _print_weights(title: str, frame: Frame, digits: str = ",.4g") -> None:
    """Print a frame of named weights; nothing for a number that is not known."""
    rows = [[cell if isinstance(cell, str) else _format_number(cell, digits) for cell in row] for row in frame.rows()]
    print_table(title, [name.replace("_", " ") for name in frame.columns], rows)


def _format_number(value: float, digits: str) -> str:
    return "" if np.isnan(value) else format(value, digits)


def _note_errors(errors: StandardErrors, kept: np.ndarray) -> None:
    known = int((kept & ~np.isnan(errors.values)).sum())
    print_note(f"standard errors by {errors.source}, of {known:,} weights")
    if not errors.is_maximum:
        print_note(
            f"{errors.gradient_fraction:.0%} of the gradient is left: these are not the data that it was trained on, or training "
            "ended early, and the standard errors mean little"
        )


def moments(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write all: .csv, .tsv, .jsonl, .parquet, .arrow.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="How many to show, the farthest apart first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Compare how often each feature is in the labels with how often the trained model expects it.

    Example: relcrf moments runs/webkb --out moments.csv
    """
    if out is not None:
        require_writable(out)
    frame = api.load_fit(run).moments()
    if out is not None:
        frame.write(out)
    apart = np.abs(np.nan_to_num(frame["standard_errors"]))
    worst = frame.take_rows(largest_indices(apart, top))
    if as_json:
        print_json({"run": run, "moments": len(apart), "worst": worst.to_dicts(), "out": out})
        return
    _print_weights(f"moments: {len(worst):,} of {len(apart):,}, the farthest apart", worst, ",.6g")
    print_line(f"the largest difference is {apart.max(initial=0.0):.3g} standard errors")


def diff(
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    limits: LimitOptions,
    top: Annotated[int, typer.Option("--top", min=1, help="How many weights are shown.")] = 10,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="Tables: compare what both predict there, and the edges that act."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how two runs differ: settings, model, data, figures, weights, structure, and with --data what they predict.

    Example: relcrf diff runs/first runs/second --data webkb/
    """
    fits = [api.load_fit(run) for run in (first, second)]
    found = compare_runs(fits[0].learned, fits[1].learned, (str(first), str(second)))
    answers = None
    if data is not None:
        with show_progress(quiet=as_json) as watch:
            answers = _compare_predictions(
                fits, Dataset(data, memory=limits.memory), limits.budget, watch.report_grounding
            )
    if as_json:
        facts = asdict(found) | {
            "weights": found.weights.to_dicts(top),
            "only": [alone.to_dicts(top) for alone in found.unique_weights],
            "shared_weights": len(found.weights),
            "weights_of_one": [len(alone) for alone in found.unique_weights],
        }
        print_json({"runs": [first, second], **facts, "answers": answers})
        return
    _print_differences(found, answers, top)


def _compare_predictions(fits: list[api.Fit], data: Dataset, budget: int, progress: Any) -> dict[str, Any]:
    """How often the answers for all queries are the same, and what the edges that act share."""
    found = [fit.ground(data, budget, progress) for fit in fits]
    one, other = (api.predict(fit, grounding) for fit, grounding in zip(fits, found, strict=True))
    names = [
        {name: dict(zip(p.variables(name).tolist(), _predicted_values(p, name), strict=True)) for name in p.attributes}
        for p in (one, other)
    ]
    same = {
        name: [names[0][name][v] == names[1][name][v] for v in names[0][name].keys() & names[1][name].keys()]
        for name in names[0].keys() & names[1].keys()
    }
    edges = [{tuple(sorted(edge)) for edge in p.inferred.edges.tolist()} for p in (one, other)]
    shares = {name: sum(agree) / len(agree) if agree else None for name, agree in same.items()}
    return {"same": shares, "queries": {name: len(agree) for name, agree in same.items()}, "edges": jaccard(*edges)}


def _predicted_values(prediction: api.Prediction, name: str) -> list[str]:
    values = np.asarray(prediction.block(name).values, dtype=object)
    return list(values[prediction.probabilities(name).argmax(axis=1)]) if len(prediction.variables(name)) else []


def _print_differences(found: RunDifferences, answers: Mapping[str, Any] | None, top: int) -> None:
    for title, pairs in (
        ("settings", found.settings),
        ("bindings of templates", found.bindings),
        ("values of open domains", found.vocabulary_sizes),
        ("figures of the training", found.summary),
    ):
        if pairs:
            print_table(title, ("", "first", "second"), [_format_pair(name, pair) for name, pair in pairs.items()])
        else:
            print_line(f"{title}: the same")
    if found.model:
        for line in found.model:
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            print_line(line, style=colour)
    else:
        print_line("model: the same")
    rows = [
        [*name, f"{one:+.4f}", f"{other:+.4f}", f"{other - one:+.4f}"] for *name, one, other in found.weights.rows(top)
    ]
    columns = (*found.weights.columns, "difference")
    print_table(f"weights of both, those that differ most: {len(rows):,} of {len(found.weights):,}", columns, rows)
    for run, alone in zip(("first", "second"), found.unique_weights, strict=True):
        if alone:
            shown = [[*name, f"{value:+.4f}"] for *name, value in alone.rows(top)]
            print_table(f"weights of the {run} alone: {len(shown):,} of {len(alone):,}", [*alone.columns], shown)
    if not np.isnan(found.correlation):
        print_line(f"the weights of both correlate by {found.correlation:.4f}")
    if found.candidate_jaccard is not None:
        print_line(f"chosen candidates in common: {found.candidate_jaccard:.1%} (Jaccard)")
    if answers is not None:
        for name, share in answers["same"].items():
            if share is not None:
                print_line(f"{name}: {share:.1%} of {answers['queries'][name]:,} answers are the same")
        if answers["edges"] is not None:
            print_line(f"edges that act, in common: {answers['edges']:.1%} (Jaccard)")


def _format_pair(name: str, pair: Pair) -> tuple[str, str, str]:
    first, second = ("" if value is None else str(value) for value in pair)
    return name, first, second
