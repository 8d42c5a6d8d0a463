"""The report of a run folder: one HTML file that needs nothing else and runs nothing."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from pygments import highlight  # type: ignore[import-untyped, unused-ignore]  # no types of its own
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped, unused-ignore]

from relcrf.backends import run_folder
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.provenance import TrainingProtocol
from relcrf.data.extras import import_extra
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.learned_graph import build_learned_graph
from relcrf.evaluation.standard_errors import StandardErrors
from relcrf.files import write_text
from relcrf.language.render import model_text
from relcrf.printable import escape_unprintable
from relcrf.report import advice, distributions, moments, network, optimisation, reproduction, weights
from relcrf.report.holdout import HoldoutEvaluation
from relcrf.report.plot import EXTRA, Plot
from relcrf.report.results import build_sections
from relcrf.text.highlight import RcrfLexer

PURPOSE = "relcrf report"
"""Argument of `require` for the packages that make the page."""

_LIGHT, _DARK = (
    HtmlFormatter(style=style, cssclass="model", nobackground=True) for style in ("default", "github-dark")
)
"""Formatters of the model's text for light and for dark paper; what is around its words is the page's."""


@dataclass(frozen=True)
class ReportPage:
    """A report.

    Args:
        html: the page.
        plots: the titles of its plots.
        warnings: what its readers are warned of.
    """

    html: str
    plots: tuple[str, ...]
    warnings: tuple[str, ...]


def require_writable(out: Path) -> None:
    """Refuses a place where no report can be, before any work is done.

    Raises:
        UsageError: for a folder or another ending than `.html`; where a package of the extra `report` is missing.
    """
    if out.suffix != ".html" or out.is_dir():
        raise UsageError(Diagnostic("E312", f"'{out}' is no .html file", hint="name a file such as report.html"))
    for package in ("jinja2", "matplotlib.figure"):
        import_extra(package, EXTRA, PURPOSE)


def write_report(run: Path, out: Path, trial: HoldoutEvaluation | None = None) -> ReportPage:
    """Writes the report of a run folder, through a temporary name; makes the folder that it is to be in.

    Args:
        trial: what labels that were held out say of the run; see `report/holdout.py`.

    Raises:
        UsageError: see `require_writable`.
        DataError: where the folder is none, or damaged.
        OSError: where the place cannot be written to.
    """
    require_writable(out)
    found = render_report(run, trial)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, found.html)
    return found


def render_report(run: Path, trial: HoldoutEvaluation | None = None) -> ReportPage:
    """The report of a run folder. For the arguments and what it raises see `write`."""
    jinja2 = import_extra("jinja2", EXTRA, PURPOSE)
    learned, timings, made_of = run_folder.load(run), run_folder.load_timings(run), run_folder.load_provenance(run)
    protocol = TrainingProtocol() if made_of is None else made_of.protocol
    name = Path(os.path.abspath(run)).name
    stages = [
        (stage, columns, optimisation.plot_stage(stage, columns))
        for stage, columns in optimisation.split_stages(learned.log, timings.step_seconds)
    ]
    histograms, graph, matched = (
        distributions.plot_histograms(learned.histograms),
        _graph_plots(learned),
        moments.summarise_moments(learned),
    )
    judged = [] if trial is None else build_sections(trial)
    templates = weights.template_table(learned)
    errors = trial.errors if trial is not None and isinstance(trial.errors, StandardErrors) else None
    learnt = learned.layout.learnable_mask()
    warned = advice.warnings(learned, templates, matched, trial, judged)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": _format_number, "figure": _format_measure, "share": _format_percentage}
    html = environment.from_string(_read_resource("page.html")).render(
        css=f"{_read_resource('page.css')}\n{_model_style()}",
        name=name,
        learned=learned,
        learnt=int(learnt.sum()),
        nonzero=int(np.count_nonzero(learned.vectors["weights"][learnt])),
        warnings=warned,
        trial=trial,
        sections=judged,
        steps=advice.next_steps(learned, name, matched, trial, judged),
        phases=timings.phases,
        model=highlight(model_text(learned.spec), RcrfLexer(), _LIGHT),
        templates=templates,
        command=reproduction.train_command(learned, name, () if trial is None else trial.options, protocol),
        made_of=made_of,
        versions=reproduction.package_versions(),
        stages=stages,
        histograms=histograms,
        moments=matched,
        graph=graph,
        strongest=weights.weight_tables(learned, errors),
    )
    html = escape_unprintable(html, allowed="\n\t")
    drawn = [*(section.plots for section in judged), *(plots for *_, plots in stages), histograms, graph]
    drawn += [[matched.plot]] if matched is not None else []
    return ReportPage(html, tuple(plot.title for plots in drawn for plot in plots), tuple(warned))


def _model_style() -> str:
    """Return the rules that colour the model's text."""
    light, dark = (
        "\n".join(rule for rule in formatter.get_style_defs(".model").splitlines() if rule.startswith(".model ."))
        for formatter in (_LIGHT, _DARK)
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _read_resource(name: str) -> str:
    return files("relcrf.report").joinpath(name).read_text(encoding="utf-8")


def _format_number(value: object) -> str:
    """A figure as people read it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "none" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _format_measure(value: float) -> str:
    """A measure; nothing where it is none."""
    return "" if math.isnan(value) else f"{value:.3f}"


def _format_percentage(value: float | None) -> str:
    """A part of all; nothing where there is no whole."""
    return "" if value is None else f"{value:.1%}"


def _graph_plots(learned: LearnedModel) -> list[Plot]:
    """The picture of the chosen pairs, where there are any."""
    found = build_learned_graph(learned)
    return (
        [network.plot_graph(found, f"{len(found.nodes):,} keys, {len(found.edges):,} edges")]
        if len(found.edges)
        else []
    )
