"""The cv command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.backends.registry import make
from relcrf.cli.output import (
    BUDGET,
    MEMORY,
    BudgetOption,
    DataOption,
    JsonOption,
    KeepOption,
    MemoryOption,
    ModelArgument,
    kept_blocks,
    note,
    note_kept,
    print_json,
    say,
    say_error,
    settings,
    table,
    warn,
    watching,
)
from relcrf.cli.pareto import Shown
from relcrf.cli.time_limit import TimeOption, limited, out_of_time
from relcrf.data.dataset import Dataset
from relcrf.data.splits import Protocol, read_hidden, read_protocol
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.cross_validation import (
    LOCAL,
    MAJORITY,
    CrossValidation,
    Difference,
    Figure,
)
from relcrf.evaluation.leaks import Leaks

ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="random, component, snowball, by=Page.university, time=Page.year, a column, folds=10 or hide=0.1. "
        "Default: the manifest's, or random.",
    ),
]
FoldsOption = Annotated[int | None, typer.Option("--folds", "-k", help="Into how many parts. Default: 5.")]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=1, help="Divide so often, by consecutive seeds.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of what is divided at random.")]
HideOption = Annotated[
    str | None,
    typer.Option(
        "--hide",
        help="Hide a share of the labels, 0.1, or of those of one attribute or relation, Friends=0.1; the rest is evidence.",
    ),
]
SystemSettings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="A setting: l2=0.5 of every backend, ess.l2=0.5 of one; repeatable."),
]


def protocol(dataset: Dataset, split: str | None, hide: str | None, folds: int | None, seed: int) -> Protocol:
    """How labels are held out: as the flags say, or the manifest, or at random.

    Raises:
        UsageError: where the flags say what cannot be, or two things.
    """
    if hide is not None:
        if split is not None or folds is not None:
            message = "--hide says already what is held out"
            raise UsageError(Diagnostic("E349", message, hint="leave --split and --folds out, or --hide"))
        return read_hidden(hide, seed)
    if split is None and folds is None and dataset.split is not None:
        return dataset.split
    return read_protocol(split or "random", folds, seed)


def settings_of(
    backends: Sequence[str], pairs: Sequence[str] | None, besides: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """The settings of each backend, those of one before those of all; they are checked.

    Args:
        besides: backends that take no settings but their own.

    Raises:
        UsageError: for a backend or a setting that is not.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in (*backends, *besides)}
    given = settings(pairs)
    for key, value in sorted(given.items(), key=lambda item: "." in item[0]):
        owner, dot, name = key.rpartition(".")
        if dot and owner not in found:
            message = f"'{key}' is a setting of backend '{owner}', which takes no part"
            raise UsageError(Diagnostic("E306", message, hint=f"the backends are {listing(found)}"))
        for backend in [owner] if dot else backends:
            found[backend][name] = value
    for backend, chosen in found.items():
        make(backend, **chosen)
    return found


def cv(
    model: ModelArgument,
    data: DataOption,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", "-b", help="A system; repeatable. Default: ess.")
    ] = None,
    split: ProtocolOption = None,
    folds: FoldsOption = None,
    repeats: RepeatsOption = 1,
    seed: SeedOption = 0,
    hide: HideOption = None,
    setting: SystemSettings = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder for the predictions of each round; rounds that are there are kept."),
    ] = None,
    keep: KeepOption = None,
    budget: BudgetOption = BUDGET,
    memory: MemoryOption = MEMORY,
    time_limit: TimeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cross-validate: hold out parts of the labels in turn, judge what is predicted, and tell what leaks.

    Example: relcrf cv models/webkb.rcrf --data webkb/ --split by=Page.university
    """
    backends = list(dict.fromkeys(backend or ["ess"]))
    chosen = settings_of(backends, setting, [LOCAL])
    loaded = api.load(model)
    dataset = Dataset(data, memory=memory)
    plan = protocol(dataset, split, hide, folds, seed)
    saved = kept_blocks(keep)
    with watching(quiet=as_json) as watch, limited(time_limit):
        watch.phase("reading tables")
        grounding = loaded.ground(dataset, budget, keep=saved, progress=watch.grounding)
        try:
            found = api.cross_validate(
                grounding,
                backends,
                plan,
                repeats=repeats,
                folder=out,
                watch=lambda what: Shown(watch, what),
                settings=chosen,
            )
        except KeyboardInterrupt:
            if out is not None:
                kept = f"the rounds that are done are in {out}: go on with the same command"
                if over := out_of_time(kept):
                    raise over from None
                say_error(f"interrupted; {kept}")
            raise
    if as_json:
        print_json({"backends": backends, **found.as_dict(), "out": None if out is None else str(out)})
        return
    warn(loaded.warnings)
    note_kept(saved)
    _show(found)
    show_leaks(found.leaks)
    if found.found:
        note(f"{found.found:,} rounds were in {out} already")
    if out is not None:
        say(f"the predictions are in {out}")


def _show(found: CrossValidation) -> None:
    """A table for each attribute: measures in rows, systems in columns."""
    results = found.results
    systems = [name for name in results.answers if name not in (MAJORITY, LOCAL)]
    for attribute in results.attributes:
        figures = {name: results.figures(name, attribute) for name in results.answers}
        gains = {name: results.differences(name, LOCAL, attribute) for name in systems}
        titles = [*figures, *(f"{name} - {LOCAL}" for name in gains)]
        rows = [
            (
                name.replace("_", " "),
                *(shown(of_system[name]) for of_system in figures.values()),
                *(gap(of_system, name) for of_system in gains.values()),
            )
            for name in next(iter(figures.values()))
            if any(of_system[name].value == of_system[name].value for of_system in figures.values())
        ]
        n = len(results.pooled(MAJORITY, attribute).truth)
        table(
            f"{attribute}, {found.protocol}: {n:,} labels held out in {len(found.rounds)} rounds",
            ("", *titles),
            rows,
        )
        what = results.clusters(attribute).what
        note(f"in brackets what 95 % of draws of the {what} give, behind ± the deviation over rounds")
        if what == "labels":
            note(
                "the components are too few to draw them: labels that are connected are not independent, and may be further off"
            )
    for name in results.answers:
        if not results.converged(name):
            note(f"{name} did not converge in every round; --set {name}.max_iterations=1000 allows more")
    seconds = {name: results.seconds(name) for name in systems}
    say(
        "; ".join(
            f"{name}: {a:.2f} s of the processor to learn, {b:.2f} s to infer" for name, (a, b) in seconds.items()
        )
    )


def shown(figure: Figure) -> str:
    """A figure with its interval, in brackets, and its spread."""
    if figure.value != figure.value:
        return ""
    low, high = figure.interval
    spread = f" ±{figure.spread:.3f}" if figure.spread == figure.spread else ""
    return f"{figure.value:.4f} [{low:.3f}, {high:.3f}]{spread}"


def gap(of_system: Mapping[str, Difference], name: str) -> str:
    """A difference with its interval; nothing where it is none of labels."""
    if name not in of_system:
        return ""
    found = of_system[name]
    return f"{found.value:+.4f} [{found.interval[0]:+.3f}, {found.interval[1]:+.3f}]"


def show_leaks(leaks: Leaks) -> None:
    """The factors across the cut, and what it all means."""
    rows = [(one.template, one.touching, one.crossing, f"{one.crossing / one.touching:.0%}") for one in leaks.crossings]
    if rows:
        table("factors over what is held out", ("template", "all", "with a label of the training", "share"), rows)
    for sentence in leaks.sentences:
        say(f"- {sentence}")
