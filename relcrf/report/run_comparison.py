"""The HTML page that compares several runs: scores on the same held-out labels, settings, models and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relcrf.backends import run_folder
from relcrf.backends.learned_model import LearnedModel
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.leakage import held_out_label_warnings
from relcrf.evaluation.predictions import MAJORITY, Predictions
from relcrf.evaluation.run_comparison import RunScores
from relcrf.evaluation.run_differences import RunDifferences, compare_runs
from relcrf.files import write_text
from relcrf.printable import escape_unprintable
from relcrf.report.headline import BaselineComparison, compare_systems
from relcrf.report.page import PURPOSE, page_environment, read_resource
from relcrf.report.plot import Plot
from relcrf.report.results import PLOTTED, MeasureRow, measure_rows, plot_systems

MAX_WEIGHTS = 20
"""Maximum number of weights that are compared with those of the first run."""


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """A run of a comparison: its name on the page, its folder, its model and the seconds of its phases."""

    name: str
    folder: Path
    learned: LearnedModel
    phases: Mapping[str, float]


@dataclass(frozen=True)
class ScoredAttribute:
    """The scores of the runs on one attribute.

    Args:
        verdicts: The comparison of each run but the first with the first run, by the name of the run.
    """

    name: str
    n_labels: int
    systems: tuple[str, ...]
    measures: tuple[MeasureRow, ...]
    verdicts: Mapping[str, BaselineComparison]
    plots: tuple[Plot, ...]

    def verdict_texts(self) -> list[str]:
        """Return one sentence per run but the first."""
        texts = []
        for run, verdict in self.verdicts.items():
            _, probabilities = verdict.probability_verdict
            texts.append(f"{run}: {verdict.text}{', but ' if probabilities else ''}{probabilities}")
        return texts


@dataclass(frozen=True)
class ComparisonPage:
    """A rendered comparison: the page, its warnings, and the verdicts on each attribute."""

    html: str
    warnings: tuple[str, ...]
    attributes: tuple[ScoredAttribute, ...]


def load_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """Load several runs. The name of a run is that of its folder, or the path if several folders have this name.

    Raises:
        UsageError: A folder occurs twice (E465).
        DataError: A folder is not a run folder, or is damaged.
    """
    resolved = [folder.resolve() for folder in folders]
    repeated = [f"'{folder}'" for k, folder in enumerate(folders) if resolved[k] in resolved[:k]]
    if repeated:
        message = f"{listing(repeated)} is named more than once"
        raise UsageError(Diagnostic("E465", message, hint="name different run folders"))
    names = [folder.name for folder in resolved]
    if len({*names, MAJORITY}) <= len(names):
        names = [str(folder) for folder in (resolved if Path(MAJORITY) in folders else folders)]
    return [
        ReportedRun(name, folder, run_folder.load(folder), run_folder.load_timings(folder).phases)
        for name, folder in zip(names, folders, strict=True)
    ]


def write_comparison(
    runs: Sequence[ReportedRun], out: Path, scores: RunScores | None = None, n_labelled: int = 0
) -> ComparisonPage:
    """Write the page atomically; create the parent folder.

    Args:
        scores: The scores on held-out labels; None without data.
        n_labelled: The number of all labels in the data.
    """
    page = render_comparison(runs, scores, n_labelled)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page.html)
    return page


def render_comparison(
    runs: Sequence[ReportedRun], scores: RunScores | None = None, n_labelled: int = 0
) -> ComparisonPage:
    """Render the page. For the arguments see `write_comparison`."""
    first, others = runs[0], runs[1:]
    attributes = () if scores is None else tuple(_score_attributes(scores.predictions, first.name))
    differences = {run.name: compare_runs(first.learned, run.learned, (first.name, run.name)) for run in others}
    warnings = [f"{run.name}: learning did not converge." for run in runs if not run.learned.converged]
    if scores is not None:
        warnings += _score_warnings(runs, scores, n_labelled)
    html = (
        page_environment(PURPOSE)
        .get_template("comparison.html")
        .render(
            css=read_resource("page.css"),
            name=f"{len(runs)} runs",
            runs=runs,
            first=first,
            attributes=attributes,
            warnings=warnings,
            settings=_differing_values([{"backend": run.learned.backend, **run.learned.settings} for run in runs]),
            summaries=_differing_values([run.learned.summary for run in runs]),
            differences=differences,
            weights={name: _largest_differences(each) for name, each in differences.items()},
            max_weights=MAX_WEIGHTS,
        )
    )
    return ComparisonPage(escape_unprintable(html, allowed="\n\t"), tuple(warnings), attributes)


def _score_attributes(results: Predictions, first: str) -> list[ScoredAttribute]:
    scored = []
    for name in results.attributes:
        estimates = {system: results.estimates(system, name) for system in results.systems}
        others = [system for system in results.systems if system not in (MAJORITY, first)]
        scored.append(
            ScoredAttribute(
                name,
                results.score(first, name).n,
                results.systems,
                tuple(measure_rows(estimates)),
                {other: compare_systems(results, other, first, name, first) for other in others},
                tuple(plot_systems(name, estimates, measure) for measure in PLOTTED[results.is_numeric(name)]),
            )
        )
    return scored


def _score_warnings(runs: Sequence[ReportedRun], scores: RunScores, n_labelled: int) -> list[str]:
    out = [
        f"{name}: inference did not converge: {verdict}. The probabilities are approximate."
        for name, verdict in scores.verdicts.items()
        if not verdict.is_good
    ]
    for run in runs:
        out += held_out_label_warnings(run.learned, n_labelled, f"The run {run.name}")
    if scores.n_unmatched:
        out.append(
            f"{scores.n_unmatched:,} held-out labels of the first run are not scored, because another run does not predict "
            "them or was trained with them."
        )
    return out


def _differing_values(by_run: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return, for each name whose values differ between the runs, the value of each run as text."""
    rows = {name: [_format_value(values.get(name, "")) for values in by_run] for values in by_run for name in values}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _format_value(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _largest_differences(differences: RunDifferences) -> list[dict[str, Any]]:
    """Return the weights that differ most, with their names."""
    rows = differences.weights.to_dicts()[:MAX_WEIGHTS]
    return [row for row in rows if row["first"] != row["second"]]
