"""The explain command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.cli.flat_options import JsonOption
from relcrf.cli.options import GroundingOptions, HoldoutOptions, OverrideSetOption, RunArgument
from relcrf.cli.output import parse_settings, print_json, print_line, print_note, print_table
from relcrf.cli.progress import show_progress
from relcrf.evaluation.contributions import Contribution, FeatureContribution
from relcrf.evaluation.explanation import Explanation
from relcrf.evaluation.flips import FlipSearch
from relcrf.report import neighbourhood, waterfall
from relcrf.report.plot import require_drawable

ROUNDING = 1e-9
"""Magnitude below which nested contributions and the remainder are rounding errors, which are not printed."""


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions:
    """The scope of an explanation, and the number of rows printed."""

    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="VALUE",
            help="Value to compare the prediction with. Default: the second most probable.",
        ),
    ] = None
    depth: Annotated[
        int,
        typer.Option(
            "--depth", metavar="INT", min=1, max=5, help="Number of hops over which contributions are traced."
        ),
    ] = 1
    top: Annotated[
        int, typer.Option("--top", metavar="INT", min=1, help="Number of contributions, changes and features to print.")
    ] = 10
    with_flips: Annotated[
        bool,
        typer.Option("--flips/--no-flips", help="Find the smallest change of evidence that flips the prediction."),
    ] = True
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="PATH", help="Draw the neighbourhood to a .png or .svg file."),
    ] = None
    waterfall: Annotated[
        Path | None,
        typer.Option("--waterfall", metavar="PATH", help="Draw how the contributions add up, to a .png or .svg file."),
    ] = None


def explain(
    run: RunArgument,
    variable: Annotated[
        str, typer.Argument(metavar="VARIABLE", help="Variable: Page/17, Page/17.topic or 'linked(a, b)'.")
    ],
    tables: GroundingOptions,
    options: ExplanationOptions,
    holdout: HoldoutOptions,
    setting: OverrideSetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain one prediction by the contributions of templates and neighbours to its log odds, or to its score.

    Example: relcrf explain runs/webkb Page/17 --data webkb/ --depth 2 --picture page17.png
    """
    pictures = [path for path in (options.picture, options.waterfall) if path is not None]
    for path in pictures:
        require_drawable(path)
    fit, tables = api.load_fit(run), tables.for_run(run)
    chosen: dict[str, Any] = dict(parse_settings(setting))
    with show_progress(quiet=as_json) as display:
        grounding = tables.ground(fit, display)
        display.start_phase("explaining")
        chosen |= {"against": options.against, "hidden": holdout.hidden(grounding)}
        explanation = fit.explain(grounding, variable, depth=options.depth, **chosen)
        flips = fit.flips(grounding, variable, **chosen) if options.with_flips else None
    if options.picture is not None:
        neighbourhood.save_neighbourhood(explanation, options.picture)
    if options.waterfall is not None:
        waterfall.save_waterfall(explanation, options.waterfall)
    if as_json:
        by_template = explanation.by_template()
        facts = {**asdict(explanation), "by_template": by_template, "flips": asdict(flips) if flips else None}
        print_json({"run": run, **facts, "picture": options.picture, "waterfall": options.waterfall})
        return
    _print_explanation(explanation, options.top)
    if flips is not None:
        _print_flips(flips, explanation, options.top)
    seconds = explanation.seconds + (flips.seconds if flips else 0.0)
    print_line(f"explained in {seconds:.2f} s ({explanation.verdict})")
    for path in pictures:
        print_note(f"wrote {path}")


def _print_explanation(explanation: Explanation, top: int) -> None:
    """Print a table of the contributions; the last row is the sum of all contributions."""
    answer, against = explanation.answer, explanation.against
    probability, other = (explanation.probabilities[value] for value in (answer, against))
    truth = "" if explanation.truth is None else f"; its label is {explanation.truth}"
    print_line(f"{explanation.variable} is {answer} ({probability:.4f}), not {against} ({other:.4f}){truth}")
    rows = [row for one in explanation.contributions[:top] for row in _contribution_rows(one, top, "")]
    omitted = explanation.contributions[top:]
    if omitted:
        rows.append((f"{len(omitted):,} more", "", f"{sum(one.amount for one in omitted):+.4f}", ""))
    if abs(explanation.remainder) > ROUNDING:
        rows.append(("interaction", "", f"{explanation.remainder:+.4f}", "dependence between neighbours"))
    rows.append((explanation.quantity, "", f"{explanation.total:+.4f}", ""))
    if explanation.score is None:
        title, unit = "contributions to the log odds, in nats", "nats"
    else:
        title, unit = f"contributions to the score of {answer} minus the score of {against}", "score"
    print_table(title, ("source", "template", unit, "largest parts"), rows)


def _contribution_rows(contribution: Contribution, top: int, indent: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the row of a contribution, followed by the rows of its sources."""
    labels = {"itself": "itself", "start": "without evidence", "interaction": "interaction"}
    source = labels.get(contribution.kind) or ", ".join(map(str, contribution.neighbours))
    features = ", ".join(_format_feature(feature) for feature in contribution.features[:top])
    yield indent + source, ", ".join(contribution.templates), f"{contribution.amount:+.4f}", features
    sources = [nested for nested in contribution.sources if abs(nested.amount) > ROUNDING]
    for nested in sources[: top + 1]:
        yield from _contribution_rows(nested, top, indent + "  ")
    if omitted := sources[top + 1 :]:
        yield f"{indent}  {len(omitted):,} more", "", f"{sum(nested.amount for nested in omitted):+.4f}", ""


def _format_feature(contribution: FeatureContribution) -> str:
    key, feature = contribution.key, contribution.feature
    name = key if feature == "1" else f"{key} {feature}".strip()
    return f"{name or contribution.template} {contribution.amount:+.3f}"


def _print_flips(search: FlipSearch, explanation: Explanation, top: int) -> None:
    """Print the effects of single changes, and the smallest set of changes that flips the prediction."""
    if search.single:
        rows: Sequence[tuple[str, str, str, str]] = [
            (
                str(flip.changes[0]),
                f"{flip.log_odds:+.4f}",
                flip.answer,
                f"{flip.probability:.4f}",
            )
            for flip in search.single[:top]
        ]
        title = f"effects of single changes of evidence: {len(rows)} of {search.n_candidates:,}"
        print_table(title, ("change", "new log odds", "new prediction", "probability"), rows)
    if search.nearest is None:
        text = f"no tested change of the evidence around {explanation.variable} flips the prediction"
    else:
        changes = "; ".join(str(change) for change in search.nearest.changes)
        text = (
            f"the prediction changes to {search.nearest.answer} ({search.nearest.probability:.4f}) "
            f"if all of these change: {changes}"
        )
    print_line(text)
