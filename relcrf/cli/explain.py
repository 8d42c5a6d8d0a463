"""The explain command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.cli.options import GroundingOptions, HoldoutOptions, JsonOption, OverrideSetOption, RunArgument
from relcrf.cli.output import parse_settings, print_json, print_line, print_note, print_table, show_progress
from relcrf.evaluation.explanation import Contribution, Explanation, FeatureContribution
from relcrf.evaluation.flips import FlipSearch
from relcrf.report import neighbourhood
from relcrf.report.plot import require_drawable

ROUNDING = 1e-9
"""Nats; a remainder below is none."""


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions:
    """What is explained of an answer, and how much of it is shown."""

    against: Annotated[
        str | None, typer.Option("--against", help="Compare the answer with this value. Default: the second best.")
    ] = None
    depth: Annotated[
        int, typer.Option("--depth", min=1, max=5, help="2 opens what neighbours say by their own sources, and so on.")
    ] = 1
    top: Annotated[
        int, typer.Option("--top", min=1, help="How many contributions, changes, and features are shown.")
    ] = 10
    with_flips: Annotated[
        bool, typer.Option("--flips/--no-flips", help="Look for the nearest change of evidence that flips the answer.")
    ] = True
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Where to draw the neighbourhood, a .png or .svg file.")
    ] = None


def explain(
    run: RunArgument,
    variable: Annotated[str, typer.Argument(help="What to explain: Page/17, Page/17.topic, or 'linked(a, b)'.")],
    tables: GroundingOptions,
    options: ExplanationOptions,
    holdout: HoldoutOptions,
    setting: OverrideSetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Divide the log odds of one answer into what templates and neighbours contribute, and find what would flip it.

    Example: relcrf explain runs/webkb Page/17 --data webkb/ --depth 2 --picture page17.png
    """
    picture = options.picture
    if picture is not None:
        require_drawable(picture)
    fit = api.load_fit(run)
    chosen: dict[str, Any] = dict(parse_settings(setting))
    with show_progress(quiet=as_json) as watch:
        grounding = tables.ground(fit, watch)
        watch.start_phase("explaining")
        chosen |= {"against": options.against, "hidden": holdout.hidden(grounding)}
        found = fit.explain(grounding, variable, depth=options.depth, **chosen)
        changes = fit.flips(grounding, variable, **chosen) if options.with_flips else None
    if picture is not None:
        neighbourhood.save_neighbourhood(found, picture)
    if as_json:
        facts = {**asdict(found), "by_template": found.by_template(), "flips": asdict(changes) if changes else None}
        print_json({"run": run, **facts, "picture": picture})
        return
    _print_explanation(found, options.top)
    if changes is not None:
        _print_flips(changes, found, options.top)
    seconds = found.seconds + (changes.seconds if changes else 0.0)
    print_line(f"explained in {seconds:.2f} s ({found.verdict})")
    if picture is not None:
        print_note(f"the picture is in {picture}")


def _print_explanation(found: Explanation, top: int) -> None:
    """The contributions, which add up to the last line."""
    probability, other = (found.probabilities[value] for value in (found.answer, found.against))
    truth = "" if found.truth is None else f"; in the data it is {found.truth}"
    headline = f"{found.variable} is {found.answer} ({probability:.4f}) and not {found.against} ({other:.4f}){truth}"
    print_line(headline)
    rows = [row for one in found.contributions[:top] for row in _contribution_rows(one, top, "")]
    left = found.contributions[top:]
    if left:
        rows.append((f"{len(left):,} more", "", f"{sum(one.amount for one in left):+.4f}", ""))
    if abs(found.remainder) > ROUNDING:
        rows.append(("interaction", "", f"{found.remainder:+.4f}", "of neighbours that depend on each other besides"))
    rows.append(("log odds", "", f"{found.log_odds:+.4f}", ""))
    print_table("what speaks for it, in nats", ("from", "template", "nats", "most of it"), rows)


def _contribution_rows(one: Contribution, top: int, indent: str) -> Iterator[tuple[str, str, str, str]]:
    """A contribution, and behind it its sources."""
    words = {"itself": "itself", "start": "whatever it is", "interaction": "interaction"}
    who = words.get(one.kind) or ", ".join(map(str, one.neighbours))
    templates, most = ", ".join(one.templates), ", ".join(_format_feature(part) for part in one.features[:top])
    yield indent + who, templates, f"{one.amount:+.4f}", most
    shown = [source for source in one.sources if abs(source.amount) > ROUNDING]
    for source in shown[: top + 1]:
        yield from _contribution_rows(source, top, indent + "  ")
    if left := shown[top + 1 :]:
        yield f"{indent}  {len(left):,} more", "", f"{sum(source.amount for source in left):+.4f}", ""


def _format_feature(part: FeatureContribution) -> str:
    name = part.key if part.feature == "1" else f"{part.key} {part.feature}".strip()
    return f"{name or part.template} {part.amount:+.3f}"


def _print_flips(found: FlipSearch, explained: Explanation, top: int) -> None:
    """What single changes do, and the fewest that flip the answer."""
    if found.single:
        rows: Sequence[tuple[str, str, str, str]] = [
            (
                str(flip.changes[0]),
                f"{flip.log_odds:+.4f}",
                flip.answer,
                f"{flip.probability:.4f}",
            )
            for flip in found.single[:top]
        ]
        title = f"single changes, inferred anew: {len(rows)} of {found.n_candidates:,}"
        print_table(title, ("change", "log odds then", "answer then", "probability"), rows)
    if found.nearest is None:
        text = f"no change of what is known around {explained.variable} that was tried gives another answer"
    else:
        changes = "; ".join(str(change) for change in found.nearest.changes)
        text = f"it becomes {found.nearest.answer} ({found.nearest.probability:.4f}) with {changes}"
    print_line(text)
