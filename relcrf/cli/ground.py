"""The ground command: the size of the ground graph, the instances of a template, or the factors of a variable."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.cli.help_panels import RESOURCES
from relcrf.cli.options import GroundingOptions, MaxFactorsOption, ModelArgument, SessionOptions
from relcrf.cli.output import format_size, print_json, print_line, print_note, print_notes, print_table, print_warnings
from relcrf.data.frame import Frame, require_writable
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding.engines.choice import NAMES, get_engine
from relcrf.grounding.grounding import Grounding

DEFAULT_ROWS = 20
"""Default number of rows printed."""

MAX_COLUMNS = 10
"""Maximum number of columns printed; a vector has one column per component."""


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The rows of a ground graph that are printed or written."""

    show: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="List the instances of a template, or the factors of a variable, e.g. 'Page(12).category'.",
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(metavar="INT", min=0, help="Maximum number of rows. Default: 20 to print, all to write."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Write the rows: .csv, .tsv, .jsonl, .parquet or .arrow.",
        ),
    ] = None

    @property
    def max_rows(self) -> int | None:
        """The maximum number of rows; None for all."""
        return DEFAULT_ROWS if self.limit is None and self.out is None else self.limit


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine that joins the tables."""

    engine: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=RESOURCES, help=f"Engine for joins: {', '.join(NAMES)}.")
    ] = "duckdb"
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=RESOURCES, help="PostgreSQL database: postgresql://user@host/name."
        ),
    ] = None
    spark_master: Annotated[
        str | None,
        typer.Option(metavar="URL", rich_help_panel=RESOURCES, help="Spark master: local[2] or spark://host:7077."),
    ] = None


def ground(
    model: ModelArgument,
    tables: GroundingOptions,
    rows: RowOptions,
    engine_options: EngineOptions,
    session: SessionOptions,
    max_factors: MaxFactorsOption = None,
) -> None:
    """Ground a model and print its size, the instances of a template, or the factors of a variable.

    Example: relcrf ground models/webkb.rcrf --data webkb/ --show 'Page(12).category'
    """
    show, out, as_json = rows.show, rows.out, session.as_json
    if out is not None:
        if show is None:
            hint = "add --show with a template or a variable"
            raise UsageError(Diagnostic("E300", "--out requires --show", hint=hint))
        require_writable(out)
    open_engine = get_engine(engine_options.engine, engine_options.url, engine_options.spark_master)
    loaded = api.load(model)
    started = time.perf_counter()
    with session.show_progress() as display:
        grounding = tables.ground(loaded, display, engine=open_engine, max_factors=max_factors)
    seconds = time.perf_counter() - started
    if not as_json:
        print_warnings(loaded.warnings)
        print_notes(grounding.bound.notes)
        tables.note_cache_use()
    cache = tables.block_cache
    cached = {} if cache is None else {"cache": {"loaded": cache.hits, "computed": cache.misses}}
    if show is None:
        _print_summary(grounding, seconds, cached, as_json=as_json)
    elif "(" in show:
        factors = grounding.factors(show)
        first = Frame({name: column[: rows.max_rows] for name, column in factors.columns.items()})
        _output_rows({"variable": show}, "factors", first, len(factors), out, cached, as_json=as_json)
    else:
        total = grounding.count_instances(show)
        instances = grounding.instances(show, limit=rows.max_rows)
        _output_rows({"template": show}, "instances", instances, total, out, cached, as_json=as_json)


def _output_rows(
    subject: dict[str, str],
    noun: str,
    frame: Frame,
    total: int,
    out: Path | None,
    cached: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Write rows to a file, or print them as a table or as JSON."""
    if out is not None:
        frame.write(out)
    if as_json:
        rows = frame.to_dicts() if out is None else []
        print_json({**subject, "total": total, noun: rows, "out": out, **cached})
        return
    (name,) = subject.values()
    if out is not None:
        print_line(f"wrote {len(frame):,} of {total:,} {noun} of {name} to {out}")
        return
    columns = list(frame.columns)[:MAX_COLUMNS]
    title = f"{noun} of {name}" + (f": first {len(frame):,} of {total:,} rows" if len(frame) < total else "")
    print_table(title, columns, [["" if cell is None else cell for cell in row[:MAX_COLUMNS]] for row in frame.rows()])
    if len(frame.columns) > MAX_COLUMNS:
        print_note(f"{len(frame.columns) - MAX_COLUMNS} more columns; use --out to write all columns")


def _print_summary(grounding: Grounding, seconds: float, cached: dict[str, Any], *, as_json: bool) -> None:
    """Print the counts of each template, and the size of the graph."""
    graph = grounding.graph
    rows = [_template_counts(grounding, name) for name in grounding.bindings]
    labelled = int((grounding.states >= 0).sum())
    if as_json:
        names = ("bindings", "factors", "weights", "bytes")
        templates = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}
        counts = {"variables": graph.n_variables, "labelled": labelled, "seconds": seconds}
        print_json({**counts, "templates": templates, **cached})
        return
    shown = [(*row[:4], format_size(row[4])) for row in rows]
    print_table("ground graph", ("template", "bindings", "factors", "weights", "bytes"), shown)
    print_line(f"{graph.n_variables:,} variables, {labelled:,} labelled; {format_size(graph.nbytes)}; {seconds:.2f} s")


def _template_counts(grounding: Grounding, template: str) -> tuple[str, int, int, int, int]:
    """Return the name of a template, and its number of bindings, factors, weights and bytes."""
    groups = grounding.groups(template)
    weights = grounding.graph.layout.blocks[groups[0].block].size if groups else 0
    factors, n_bytes = sum(g.n_factors for g in groups), sum(g.nbytes for g in groups)
    return template, grounding.bindings[template], factors, weights, n_bytes
