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
from relcrf.cli.output import parse_settings, print_json, print_line, print_note, print_notes, print_table
from relcrf.cli.progress import show_progress
from relcrf.evaluation.contributions import SOURCES, Contribution
from relcrf.evaluation.explanation import MAX_DEPTH, CategoryExplanation, Explanation
from relcrf.evaluation.flips import FlipSearch
from relcrf.evaluation.number_explanation import NumberExplanation
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
            "--depth", metavar="INT", min=1, max=MAX_DEPTH, help="Number of hops over which contributions are traced."
        ),
    ] = 1
    top: Annotated[
        int, typer.Option("--top", metavar="INT", min=1, help="Number of contributions, changes and features to print.")
    ] = 10
    with_flips: Annotated[
        bool,
        typer.Option(
            "--flips/--no-flips", help="Find the smallest change of evidence that flips the prediction of a category."
        ),
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
    """Explain one prediction by the contributions of templates and neighbours to its log odds, its score or its mean.

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
        has_flips = options.with_flips and isinstance(explanation, CategoryExplanation)
        flips = fit.flips(grounding, variable, **chosen) if has_flips else None
    print_notes(grounding.bound.dataset.notes)
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
    truth = f"; {explanation.truth_text}" if explanation.truth_text else ""
    print_line(f"{explanation.variable} is {explanation.summary}{truth}")
    rows = [row for one in explanation.contributions[:top] for row in _contribution_rows(explanation, one, top, "")]
    omitted, format_amount = explanation.contributions[top:], explanation.format_amount
    if omitted:
        rows.append((f"{len(omitted):,} more", "", format_amount(sum(one.amount for one in omitted)), ""))
    if isinstance(explanation, CategoryExplanation) and abs(explanation.remainder) > ROUNDING:
        rows.append(("interaction", "", format_amount(explanation.remainder), "dependence between neighbours"))
    rows.append((explanation.quantity, "", format_amount(explanation.total), ""))
    print_table(explanation.title, ("source", "template", explanation.unit, "largest parts"), rows)
    if isinstance(explanation, NumberExplanation) and explanation.gain_text:
        print_line(explanation.gain_text)


def _contribution_rows(
    explanation: Explanation, contribution: Contribution, top: int, indent: str
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the row of a contribution, followed by the rows of its sources."""
    source = SOURCES.get(contribution.kind) or ", ".join(map(str, contribution.neighbours)) or "itself"
    templates, parts = ", ".join(contribution.templates), explanation.parts_text(contribution, top)
    yield indent + source, templates, explanation.format_amount(contribution.amount), parts
    sources = [nested for nested in contribution.sources if abs(nested.amount) > ROUNDING]
    for nested in sources[: top + 1]:
        yield from _contribution_rows(explanation, nested, top, indent + "  ")
    if omitted := sources[top + 1 :]:
        amount = explanation.format_amount(sum(nested.amount for nested in omitted))
        yield f"{indent}  {len(omitted):,} more", "", amount, ""


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
