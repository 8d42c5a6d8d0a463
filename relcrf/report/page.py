"""The HTML report of a run folder: a single self-contained file; its only script handles the pictures of neighbourhoods."""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pygments import highlight  # type: ignore[import-untyped, unused-ignore]  # no types of its own
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped, unused-ignore]

from relcrf.backends import run_folder
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.provenance import TrainingProtocol
from relcrf.data.extras import import_extra
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.chosen_backend import BackendChoice
from relcrf.evaluation.decision_costs import DecisionCosts
from relcrf.evaluation.drift import MIN_DISTANCE
from relcrf.evaluation.learned_graph import build_learned_graph
from relcrf.evaluation.number_explanation import NumberExplanation
from relcrf.evaluation.standard_errors import StandardErrors
from relcrf.files import require_writable_folder, write_text
from relcrf.language.render import model_text
from relcrf.printable import escape_unprintable
from relcrf.report import advice, distributions, influence, moments, network, optimisation, reproduction, weights
from relcrf.report.headline import Headline
from relcrf.report.holdout import HoldoutEvaluation
from relcrf.report.plot import EXTRA, Plot
from relcrf.report.results import build_sections
from relcrf.text.highlight import RcrfLexer

PURPOSE = "relcrf report"
"""Argument of `import_extra` for the packages that render the page."""

MIN_SEPARATED, MAX_DIGITS_WRITTEN = 10_000, 1e12
"""Range of the cells that have separators of thousands: a smaller number may be a year, a larger one has an exponent."""

_LIGHT, _DARK = (
    HtmlFormatter(style=style, cssclass="model", nobackground=True) for style in ("default", "github-dark")
)
"""Formatters of the model text for the light and the dark colour scheme."""


@dataclass(frozen=True)
class ReportPage:
    """A rendered report.

    Args:
        html: The page.
        plots: The titles of the plots on the page.
        warnings: The warnings on the page.
        headlines: The headline of each attribute with held-out labels.
    """

    html: str
    plots: tuple[str, ...]
    warnings: tuple[str, ...]
    headlines: tuple[Headline, ...] = ()


def require_writable(out: Path) -> None:
    """Create the folder of a page; call this before long work, to raise errors early.

    Raises:
        OSError: The folder is not writable.
        UsageError: The path is a folder or does not end in `.html` (E312), or a package of the extra `report` is missing.
    """
    if out.suffix != ".html" or out.is_dir():
        raise UsageError(
            Diagnostic("E312", f"'{out}' is not the path of an .html file", hint="use a file name such as report.html")
        )
    for package in ("jinja2", "matplotlib.figure"):
        import_extra(package, EXTRA, PURPOSE)
    require_writable_folder(out.parent)


def write_report(
    run: Path, out: Path, holdout: HoldoutEvaluation | None = None, costs: DecisionCosts | None = None
) -> ReportPage:
    """Write the report of a run folder atomically.

    Args:
        holdout: The evaluation on held-out labels, see `report/holdout.py`.
        costs: The costs of errors, for which the page has thresholds.

    Raises:
        UsageError: See `require_writable`.
        DataError: The folder is not a run folder, or is damaged.
        OSError: The path is not writable.
    """
    require_writable(out)
    page = render_report(run, holdout, costs)
    write_text(out, page.html)
    return page


def render_report(
    run: Path, holdout: HoldoutEvaluation | None = None, costs: DecisionCosts | None = None
) -> ReportPage:
    """Render the report of a run folder. For arguments and errors see `write_report`."""
    learned, timings, provenance = run_folder.load(run), run_folder.load_timings(run), run_folder.load_provenance(run)
    protocol = TrainingProtocol() if provenance is None else provenance.protocol
    name, path, split = Path(os.path.abspath(run)).name, reproduction.run_words(run), protocol.split_plan
    stages = [
        (stage, columns, optimisation.plot_stage(stage, columns))
        for stage, columns in optimisation.split_stages(learned.log, timings.step_seconds)
    ]
    histograms, graph, moment_summary = (
        distributions.plot_histograms(learned.histograms),
        _graph_plots(learned),
        moments.summarise_moments(learned),
    )
    attribute_sections = [] if holdout is None else build_sections(holdout, costs)
    templates = weights.template_table(learned)
    errors = holdout.errors if holdout is not None and isinstance(holdout.errors, StandardErrors) else None
    explanations = () if holdout is None else holdout.explanations
    script = read_resource("neighbourhood.js")
    warning_texts = advice.warnings(learned, templates, moment_summary, holdout, attribute_sections)
    html = (
        page_environment(PURPOSE)
        .get_template("page.html")
        .render(
            css=f"{read_resource('page.css')}\n{_model_style()}",
            name=name,
            learned=learned,
            n_learned=int(learned.layout.learnable_mask().sum()),
            warnings=warning_texts,
            holdout=holdout,
            costs=costs,
            min_distance=MIN_DISTANCE,
            sections=attribute_sections,
            steps=advice.next_steps(learned, path, moment_summary, holdout, attribute_sections, split),
            links=influence.largest_links(explanations),
            neighbourhoods=influence.draw_neighbourhoods(explanations),
            has_numbers=any(isinstance(one, NumberExplanation) for one in explanations),
            number_names=[
                f"{entity.name}.{a.name}" for entity in learned.spec.entities for a in entity.attributes if a.is_number
            ],
            script=script,
            script_hash=influence.script_hash(script),
            unscored=advice.unscored(learned, path, holdout, split),
            phases=timings.phases,
            model=highlight(model_text(learned.spec), RcrfLexer(), _LIGHT),
            templates=templates,
            reproduce=f"relcrf reproduce {shlex.quote(path)} {shlex.join(_table_options(learned, path, holdout))}",
            command=reproduction.train_command(learned, path, () if holdout is None else holdout.options, protocol),
            provenance=provenance,
            versions=reproduction.package_versions(),
            stages=stages,
            histograms=histograms,
            moments=moment_summary,
            choice=BackendChoice.from_model(learned, timings.trial_seconds),
            graph=graph,
            weight_tables=weights.weight_tables(learned, errors),
        )
    )
    html = escape_unprintable(html, allowed="\n\t")
    plot_groups = [
        *(section.plots for section in attribute_sections),
        *(plots for *_, plots in stages),
        histograms,
        graph,
    ]
    plot_groups += [[moment_summary.plot]] if moment_summary is not None else []
    titles = tuple(plot.title for plots in plot_groups for plot in plots)
    headlines = tuple(section.headline for section in attribute_sections)
    return ReportPage(html, titles, tuple(warning_texts), headlines)


def _table_options(learned: LearnedModel, run: str, holdout: HoldoutEvaluation | None) -> tuple[str, ...]:
    """Return the options that name the tables, or a placeholder."""
    if holdout is None:
        return reproduction.placeholder_options(learned, run)
    return reproduction.table_options(holdout.options)


@cache
def page_environment(purpose: str) -> Any:
    """Return the Jinja environment of pages, which escapes all texts, with the filters of the templates.

    An environment compiles each template only once.
    """
    jinja2 = import_extra("jinja2", EXTRA, purpose)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_resource), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "number": _format_number,
        "measure": _format_measure,
        "percent": _format_percentage,
        "sentence": _format_sentence,
        "value": _format_value,
    }
    return environment


def _model_style() -> str:
    """Return the style rules that colour the model text."""
    light, dark = (
        "\n".join(rule for rule in formatter.get_style_defs(".model").splitlines() if rule.startswith(".model ."))
        for formatter in (_LIGHT, _DARK)
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def read_resource(name: str) -> str:
    """Return the text of a file of this package."""
    return files("relcrf.report").joinpath(name).read_text(encoding="utf-8")


def _format_number(value: object) -> str:
    """Format a number with thousands separators."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "none" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _format_value(text: str) -> str:
    """Insert separators of thousands into the text of a number of more than four digits; return other texts unchanged."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not MIN_SEPARATED <= abs(number) < MAX_DIGITS_WRITTEN:
        return text
    return f"{number:,.0f}" if number == int(number) else f"{number:,.6g}"


def _format_measure(value: float, format: str = ",.3f") -> str:
    """Format a measure; empty if it is undefined."""
    return "" if math.isnan(value) else f"{value:{format}}"


def _format_percentage(value: float | None) -> str:
    """Format a fraction as a percentage; empty if it is undefined."""
    return "" if value is None or math.isnan(value) else f"{value:.1%}"


def _format_sentence(text: str) -> str:
    """Capitalise the first letter, and append a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def _graph_plots(learned: LearnedModel) -> list[Plot]:
    """Return the picture of the learned graph, if it has edges."""
    graph = build_learned_graph(learned)
    return (
        [network.plot_graph(graph, f"{len(graph.nodes):,} nodes, {len(graph.edges):,} edges")]
        if len(graph.edges)
        else []
    )
