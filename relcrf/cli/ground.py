"""The command that grounds a model: what came out, and both ways through it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.cli.options import FactorsOption, GroundingOptions, ModelArgument, SessionOptions
from relcrf.cli.output import note, print_json, say, size, table, warn
from relcrf.data.frame import Frame, require_writable
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding.engines.choice import NAMES, engine_named
from relcrf.grounding.grounding import Grounding

LISTED = 20
"""Rows that are listed where nothing else is asked for."""

WIDE = 10
"""Columns that a terminal shows; a vector is a column for each of its numbers."""


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The rows of a ground graph that are listed or written."""

    show: Annotated[
        str | None,
        typer.Option(
            help="A template, to list its instances; or a variable, such as 'Page(12).category': its factors."
        ),
    ] = None
    limit: Annotated[int | None, typer.Option(min=0, help="Most rows to list (20 by default) or to write (all).")] = (
        None
    )
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write the rows: .csv, .tsv, .jsonl, .parquet, .arrow.")
    ] = None

    @property
    def most(self) -> int | None:
        """Number of rows that are wanted; None for all."""
        return LISTED if self.limit is None and self.out is None else self.limit


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine that joins the tables."""

    engine: Annotated[str, typer.Option(help=f"Who joins: {', '.join(NAMES)}.")] = "duckdb"
    url: Annotated[str | None, typer.Option(help="Of the engine postgres: postgresql://user@host/database.")] = None
    master: Annotated[str | None, typer.Option(help="Of the engine spark: local[2], spark://host:7077.")] = None


def ground(
    model: ModelArgument,
    tables: GroundingOptions,
    rows: RowOptions,
    joins: EngineOptions,
    session: SessionOptions,
    max_factors: FactorsOption = None,
) -> None:
    """Ground a model, and say what came out; or list the instances of a template, or the factors of a variable.

    Example: relcrf ground models/webkb.rcrf --data webkb/ --show 'Page(12).category'
    """
    show, out, as_json = rows.show, rows.out, session.as_json
    if out is not None:
        if show is None:
            hint = "name a template or a variable with --show"
            raise UsageError(Diagnostic("E300", "--out has nothing to write", hint=hint))
        require_writable(out)
    open_engine = engine_named(joins.engine, joins.url, joins.master)
    loaded = api.load(model)
    started = time.perf_counter()
    with session.watching() as watch:
        grounding = tables.ground(loaded, watch, engine=open_engine, most_factors=max_factors)
    seconds = time.perf_counter() - started
    if not as_json:
        warn(loaded.warnings)
        for text in grounding.bound.notes:
            note(text)
        tables.note_saved()
    saved = tables.saved
    kept = {} if saved is None else {"kept": {"found": saved.found, "made": saved.made}}
    if show is None:
        _say(grounding, seconds, kept, as_json=as_json)
    elif "(" in show:
        found = grounding.factors(show)
        first = Frame({name: column[: rows.most] for name, column in found.columns.items()})
        _list({"variable": show}, "factors", first, len(found), out, kept, as_json=as_json)
    else:
        total = grounding.count_instances(show)
        found = grounding.instances(show, limit=rows.most)
        _list({"template": show}, "instances", found, total, out, kept, as_json=as_json)


def _list(
    subject: dict[str, str],
    what: str,
    frame: Frame,
    total: int,
    out: Path | None,
    kept: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Writes rows, or shows them."""
    if out is not None:
        frame.write(out)
    if as_json:
        rows = frame.to_dicts() if out is None else []
        print_json({**subject, "total": total, what: rows, "out": out, **kept})
        return
    (name,) = subject.values()
    if out is not None:
        say(f"{len(frame):,} of {total:,} rows of {name} are in {out}")
        return
    columns = list(frame.columns)[:WIDE]
    title = f"{what} of {name}" + (f": the first {len(frame):,} of {total:,} rows" if len(frame) < total else "")
    table(title, columns, [["" if cell is None else cell for cell in row[:WIDE]] for row in frame.rows()])
    if len(frame.columns) > WIDE:
        note(f"{len(frame.columns) - WIDE} more columns: --out writes them all")


def _say(grounding: Grounding, seconds: float, kept: dict[str, Any], *, as_json: bool) -> None:
    """What came out, template by template."""
    graph = grounding.graph
    rows = [_grounded(grounding, name) for name in grounding.bindings]
    labelled = int((grounding.states >= 0).sum())
    if as_json:
        names = ("bindings", "factors", "weights", "bytes")
        templates = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}
        counts = {"variables": graph.n_variables, "labelled": labelled, "seconds": seconds}
        print_json({**counts, "templates": templates, **kept})
        return
    shown = [(*row[:4], size(row[4])) for row in rows]
    table("the ground graph", ("template", "bindings", "factors", "weights", "bytes"), shown)
    say(f"{graph.n_variables:,} variables, {labelled:,} of them labelled; {size(graph.nbytes)}; {seconds:.2f} s")


def _grounded(grounding: Grounding, template: str) -> tuple[str, int, int, int, int]:
    """Name, bindings, factors, weights and bytes of what a template has grounded into."""
    groups = grounding.groups(template)
    weights = grounding.graph.layout.blocks[groups[0].block].size if groups else 0
    factors, n_bytes = sum(g.n_factors for g in groups), sum(g.nbytes for g in groups)
    return template, grounding.bindings[template], factors, weights, n_bytes
