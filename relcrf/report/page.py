"""The report of a run folder: one HTML file that needs nothing else and runs nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends import run_folder
from relcrf.backends.learned import LearnedModel
from relcrf.backends.strongest import strongest
from relcrf.data.extras import require
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.learned_graph import learned_graph
from relcrf.language.render import render
from relcrf.report import distributions, network, optimisation
from relcrf.report.plot import EXTRA, PURPOSE, Plot
from relcrf.text.highlight import as_html

MOST_WEIGHTS = 40
"""In a table of the strongest."""


@dataclass(frozen=True)
class Report:
    """A report.

    Args:
        html: the page.
        plots: the titles of its plots.
    """

    html: str
    plots: tuple[str, ...]


def write(run: Path, out: Path) -> Report:
    """Writes the report of a run folder, through a temporary name; makes the folder that it is to be in.

    Raises:
        UsageError: where a package of the extra `report` is missing; for a place that is a folder or has another ending
            than `.html`.
        DataError: where the folder is none, or damaged.
        OSError: where the place cannot be written to.
    """
    if out.suffix != ".html" or out.is_dir():
        raise UsageError(Diagnostic("E312", f"'{out}' is no .html file", hint="name a file such as report.html"))
    found = report(run)
    out.parent.mkdir(parents=True, exist_ok=True)
    run_folder.write_text(out, found.html)
    return found


def report(run: Path) -> Report:
    """The report of a run folder. For what it raises see `write`."""
    jinja2 = require("jinja2", EXTRA, PURPOSE)
    learned, timings = run_folder.load(run), run_folder.load_timings(run)
    stages = optimisation.stages(learned.log, timings.steps)
    by_stage = [(stage, optimisation.plots(stage)) for stage in stages]
    histograms = distributions.plots(learned.histograms)
    graph = _graph(learned)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = _number
    html = environment.from_string(_shipped("page.html")).render(
        css=_shipped("page.css"),
        name=Path(os.path.abspath(run)).name,
        learned=learned,
        phases=timings.phases,
        model=as_html(_text(learned)),
        templates=_templates(learned),
        stages=by_stage,
        histograms=histograms,
        graph=graph,
        strongest=_strongest(learned),
    )
    # JSON can spell halves of characters, which no file in UTF-8 can hold.
    html = html.encode("utf-8", "replace").decode("utf-8")
    plots: list[Plot] = [plot for _, drawn in by_stage for plot in drawn] + histograms + graph
    return Report(html, tuple(plot.title for plot in plots))


def _shipped(name: str) -> str:
    return files("relcrf.report").joinpath(name).read_text(encoding="utf-8")


def _number(value: object) -> str:
    """A figure as people read it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "none" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _text(learned: LearnedModel) -> str:
    source = learned.spec.source
    return source.text if source else render(learned.spec)


def _candidates(learned: LearnedModel) -> set[str]:
    """The names of the declarations of candidates."""
    return {template.name for template in learned.spec.flat().templates if template.is_candidate}


def _graph(learned: LearnedModel) -> list[Plot]:
    """The picture of the chosen pairs, where there are any."""
    found = learned_graph(learned)
    return [network.plot(found, f"{len(found.nodes):,} keys, {len(found.edges):,} edges")] if found.edges else []


def _templates(learned: LearnedModel) -> list[dict[str, Any]]:
    """A row for each block of weights."""
    candidates = _candidates(learned)
    rows = []
    for block, (info, shape) in enumerate(zip(learned.templates, learned.layout.blocks, strict=True)):
        matrix = learned.layout.matrix(learned.vectors["weights"], block)
        rows.append(
            {
                "name": info.name,
                "kind": "chosen candidates" if info.name in candidates else "fixed" if shape.fixed else "",
                "bindings": info.bindings,
                "weights": shape.size,
                "nonzero": int(np.count_nonzero(matrix)),
            }
        )
    return rows


def _strongest(learned: LearnedModel) -> dict[str, list[dict[str, Any]]]:
    """Tables by their titles: the strongest candidates and the strongest of the other weights that were learned."""
    candidates = _candidates(learned)
    learnt = [k for k, block in enumerate(learned.layout.blocks) if not block.fixed]
    chosen = [k for k in learnt if learned.templates[k].name in candidates]
    return {
        "Strongest candidates": _weights(learned, chosen, ("gain", "support")),
        "Strongest weights": _weights(learned, [k for k in learnt if k not in chosen], ()),
    }


def _weights(learned: LearnedModel, blocks: list[int], worth: tuple[str, ...]) -> list[dict[str, Any]]:
    """The strongest weights of some blocks, with what they are worth by the vectors of these names, where there are such."""
    rows = []
    for weight in strongest(learned, blocks, MOST_WEIGHTS):
        block, *place = weight.place
        row: dict[str, Any] = {"weight": weight, "gain": None, "support": None}
        for name in worth if set(worth) <= set(learned.vectors) else ():
            row[name] = float(learned.layout.matrix(learned.vectors[name], block)[tuple(place)])
        rows.append(row)
    return rows
