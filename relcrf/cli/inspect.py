"""Commands that look and change nothing: check, plan, ground."""

from __future__ import annotations

import time
from collections.abc import Sized
from dataclasses import asdict
from typing import Annotated

import numpy as np
import typer

from relcrf import api
from relcrf.cli.output import (
    BUDGET,
    MEMORY,
    BudgetOption,
    DataOption,
    JsonOption,
    MemoryOption,
    ModelArgument,
    console,
    note,
    print_json,
    size,
    table,
    warn,
    watching,
)
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.errors import BudgetError, Diagnostic, UsageError
from relcrf.grounding.ground import Grounding, prepare
from relcrf.grounding.preview import plan as plan_templates
from relcrf.model.rules import all_templates


def check(
    model: ModelArgument,
    data: Annotated[str | None, typer.Option("--data", "-d", help="Check these tables against it, too.")] = None,
    memory: MemoryOption = MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Check a model, and tables against it. Reports all mistakes at once.

    Example: relcrf check models/webkb.rcrf --data webkb/
    """
    found = api.load(model)
    warnings, notes = found.check(Dataset(data, memory=memory)) if data else (found.warnings, [])
    if as_json:
        print_json({"errors": [], "warnings": [w.as_dict() for w in warnings], "notes": notes})
        return
    warn(warnings)
    for text in notes:
        note(text)
    spec = found.spec
    console.print(
        f"[green]{model} is well formed[/]: {_count(spec.entities, 'entity')}, {_count(spec.relations, 'relation')}, "
        f"{_count(spec.random_relations, 'random relation')}, {_count(spec.derived, 'derived relation')}, "
        f"{_count(spec.templates, 'template')}, {_count(spec.rules, 'rule')}",
        soft_wrap=True,
    )


def _count(things: Sized, noun: str) -> str:
    if len(things) != 1:
        noun = noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"
    return f"{len(things)} {noun}"


def plan(
    model: ModelArgument,
    data: DataOption,
    budget: BudgetOption = BUDGET,
    memory: MemoryOption = MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Count what each template will ground into, before anything is grounded.

    Example: relcrf plan models/webkb.rcrf --data webkb/
    """
    loaded = api.load(model)
    with watching(quiet=as_json) as watch:
        watch.phase("reading tables")
        bound = bind(loaded.spec, Dataset(data, memory=memory))
        prepare(bound, budget, watch.grounding)
        watch.phase("counting")
        rows = plan_templates(bound, budget)
    over = [row for row in rows if row.bindings > budget and not row.is_candidate]
    if as_json and not over:
        print_json({"templates": {row.name: asdict(row) for row in rows}})
        return
    if not as_json:
        warn(loaded.warnings)
        for text in bound.notes:
            note(text)
        shown = [
            (
                r.name + " (candidates)" * r.is_candidate,
                f"{'' if r.is_exact else '<= '}{r.bindings:,}",
                f"{r.factors:,}",
                f"{r.weights:,}",
                size(r.bytes),
            )
            for r in rows
        ]
        table("what it grounds into", ("template", "bindings", "factors", "weights", "bytes"), shown)
    if over:
        raise BudgetError(
            Diagnostic(
                "E320",
                f"'{row.name}' would ground into {'' if row.is_exact else 'up to '}{row.bindings:,} bindings, "
                f"over the budget of {budget:,}",
                next((t.span for t in all_templates(loaded.spec) if t.name == row.name), None),
                "tie its binders with a relation or an equality in 'where', or raise the budget with --budget",
            )
            for row in over
        )


def ground(
    model: ModelArgument,
    data: DataOption,
    show: Annotated[
        str | None, typer.Option(help="A variable whose factors to list, such as 'Page(12).category'.")
    ] = None,
    budget: BudgetOption = BUDGET,
    memory: MemoryOption = MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Ground a model, and say what came out; or list the factors of one variable.

    Example: relcrf ground models/webkb.rcrf --data webkb/ --show 'Page(12).category'
    """
    loaded = api.load(model)
    started = time.perf_counter()
    with watching(quiet=as_json) as watch:
        watch.phase("reading tables")
        grounding = loaded.ground(Dataset(data, memory=memory), budget, progress=watch.grounding)
    seconds = time.perf_counter() - started
    if show is not None:
        factors = factors_of(grounding, find_variable(grounding, show))
        if as_json:
            print_json({"variable": show, "factors": factors})
        else:
            table(f"factors of {show}", ("template", "scope", "features"), [tuple(f.values()) for f in factors])
        return
    graph = grounding.graph
    rows = [_grounded(grounding, name, bindings) for name, bindings in grounding.bindings.items()]
    labelled = int((grounding.states >= 0).sum())
    if as_json:
        names = ("bindings", "factors", "weights", "bytes")
        print_json(
            {
                "variables": graph.n_variables,
                "labelled": labelled,
                "seconds": seconds,
                "templates": {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows},
            }
        )
        return
    warn(loaded.warnings)
    for text in grounding.bound.notes:
        note(text)
    shown = [(r[0], r[1], r[2], r[3], size(r[4])) for r in rows]
    table("the ground graph", ("template", "bindings", "factors", "weights", "bytes"), shown)
    console.print(
        f"{graph.n_variables:,} variables, {labelled:,} of them labelled; {size(graph.nbytes)}; {seconds:.2f} s"
    )


def _grounded(grounding: Grounding, template: str, bindings: int) -> tuple[str, int, int, int, int]:
    """Name, bindings, factors, weights and bytes of what a template has grounded into."""
    graph = grounding.graph
    named = zip(grounding.group_names, graph.groups, strict=True)
    groups = [group for name, group in named if name == template]
    size = graph.layout.blocks[groups[0].block].size if groups else 0
    return template, bindings, sum(g.n_factors for g in groups), size, sum(g.nbytes for g in groups)


def find_variable(grounding: Grounding, text: str) -> int:
    """The variable that `Entity(key).attribute` names.

    Raises:
        UsageError: where there is none.
    """
    for block in grounding.blocks:
        for k, arguments in enumerate(zip(*grounding.arguments(block), strict=True)):
            if block.spell(arguments) == text:
                return block.start + k
    example = grounding.label(0) if grounding.graph.n_variables else "Page(12).category"
    raise UsageError(Diagnostic("E313", f"there is no variable '{text}'", hint=f"name one like {example}"))


def factors_of(grounding: Grounding, variable: int) -> list[dict[str, str]]:
    """The factors that touch a variable: template, scope, and features with their values."""
    out = []
    for template, group in zip(grounding.group_names, grounding.graph.groups, strict=True):
        info = grounding.templates[group.block]
        touching = np.zeros(group.n_factors, dtype=bool)
        for place in group.scope:
            touching |= place == variable
        for factor in np.flatnonzero(touching):
            features = []
            for feature, value in group.features.row(int(factor)):
                key, name = info.feature_name(feature)
                label = ", ".join((*key, *(() if name == "1" and key else (name,))))
                features.append(label if value == 1.0 else f"{label} = {value:.4g}")
            scope = ", ".join(grounding.label(int(place[factor])) for place in group.scope)
            out.append({"template": template, "scope": scope, "features": "; ".join(features)})
    return out
