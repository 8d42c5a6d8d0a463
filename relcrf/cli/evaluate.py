"""The evaluate command, which is also called cv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.base import Monitor
from relcrf.backends.registry import make
from relcrf.cli.options import FoldOptions, GroundingOptions, SessionOptions
from relcrf.cli.output import note, print_json, say, say_error, settings, table, warn
from relcrf.cli.time_limit import out_of_time
from relcrf.data.splits import SplitPlan, read_split
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.leaks import Leaks
from relcrf.evaluation.predictions import LOCAL, MAJORITY, Difference, Estimate
from relcrf.learning.lbfgs import State
from relcrf.watching import Watch

MOST_FOLDS = 20
"""Maximum number of folds whose scores are printed one by one."""

SystemSettings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="A setting: l2=0.5 of every backend, ess.l2=0.5 of one; repeatable."),
]


class WatchedMonitor(Monitor):
    """A monitor that shows the optimiser's steps, under the name of what is learned."""

    def __init__(self, watch: Watch, what: str) -> None:
        self._watch, self._what = watch, what

    def step(self, stage: str, state: State, max_iterations: int) -> None:
        self._watch.step(f"{self._what}: {stage}", state, max_iterations)


def settings_of(
    backends: Sequence[str], pairs: Sequence[str] | None, baselines: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the validated settings of each backend; those of one take precedence over those of all.

    Args:
        baselines: Backends that take no settings but those of one.

    Raises:
        UsageError: Unknown backend or setting.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in (*backends, *baselines)}
    given = settings(pairs)
    for key, value in sorted(given.items(), key=lambda item: "." in item[0]):
        owner, dot, name = key.rpartition(".")
        if dot and owner not in found:
            message = f"'{key}' is a setting of backend '{owner}', which is not evaluated"
            raise UsageError(Diagnostic("E306", message, hint=f"the backends are {listing(found)}"))
        for backend in [owner] if dot else backends:
            found[backend][name] = value
    for backend, chosen in found.items():
        make(backend, **chosen)
    return found


def split_of_run(run: Path) -> SplitPlan | None:
    """Return the split whose labels the training of a run did not use; None where it used all, or is unknown."""
    made_of = run_folder.load_provenance(run)
    if made_of is None or made_of.protocol.split is None:
        return None
    return replace(read_split(made_of.protocol.split), hold=made_of.protocol.hold)


def evaluate(
    target: Annotated[Path, typer.Argument(help="A model to train in each fold, or a run folder to score.")],
    tables: GroundingOptions,
    folds: FoldOptions,
    session: SessionOptions,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", "-b", help="A system; repeatable. Default: ess.")
    ] = None,
    setting: SystemSettings = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder for the predictions of each fold; those that exist are read."),
    ] = None,
) -> None:
    """Hold out parts of the labels in turn, predict them, score the predictions, and report leaks.

    Example: relcrf evaluate models/webkb.rcrf --data webkb/ --split by=Page.university
    """
    if target.is_dir():
        if backend or setting or out is not None:
            raise UsageError(Diagnostic("E342", "a run folder has its backend and settings already"))
        found = _of_run(target, tables, folds, session)
    else:
        found = _of_model(target, tables, folds, session, list(dict.fromkeys(backend or ["ess"])), setting, out)
    if session.as_json:
        print_json({**found.as_dict(), **found.scores_as_dict(), "out": out})
        return
    tables.note_saved()
    _show(found)
    show_leaks(found.leaks)
    if found.n_loaded:
        note(f"{found.n_loaded:,} rounds were in {out} already")
    if out is not None:
        say(f"the predictions are in {out}")


def _of_run(run: Path, tables: GroundingOptions, folds: FoldOptions, session: SessionOptions) -> Evaluation:
    fit = api.load_fit(run)
    plan = folds.required_plan(split_of_run(run) or tables.dataset.split)
    with session.watching() as watch:
        grounding = tables.ground(fit, watch)
        return api.evaluate_run(fit.learned, grounding, plan)


def _of_model(
    model: Path,
    tables: GroundingOptions,
    folds: FoldOptions,
    session: SessionOptions,
    backends: list[str],
    setting: list[str] | None,
    out: Path | None,
) -> Evaluation:
    chosen = settings_of(backends, setting, [LOCAL])
    loaded = api.load(model)
    warn([] if session.as_json else loaded.warnings)
    plan = folds.required_plan(tables.dataset.split or read_split("random", seed=folds.seed))
    with session.watching() as watch:
        grounding = tables.ground(loaded, watch)
        try:
            return api.evaluate(
                grounding, backends, plan, settings=chosen, folder=out, watch=lambda what: WatchedMonitor(watch, what)
            )
        except KeyboardInterrupt:
            if out is not None:
                kept = f"the rounds that are done are in {out}: go on with the same command"
                if over := out_of_time(kept):
                    raise over from None
                say_error(f"interrupted; {kept}")
            raise


def _show(found: Evaluation) -> None:
    """Print tables of each attribute: measures in rows and systems in columns, and the scores of each fold."""
    results = found.predictions
    systems = [name for name in results.systems if name not in (MAJORITY, LOCAL)]
    compared = systems if LOCAL in results.systems else []
    for attribute in results.attributes:
        estimates = {name: results.estimates(name, attribute) for name in results.systems}
        gains = {name: results.differences(name, LOCAL, attribute) for name in compared}
        rows = [
            (
                measure.replace("_", " "),
                *(shown(of_system[measure]) for of_system in estimates.values()),
                *(gap(of_system, measure) for of_system in gains.values()),
            )
            for measure in next(iter(estimates.values()))
            if any(of_system[measure].value == of_system[measure].value for of_system in estimates.values())
        ]
        n = results.score(results.systems[0], attribute).n
        title = f"{attribute}, {found.split}: {n:,} labels held out in {len(found.folds)} rounds"
        table(title, ("", *estimates, *(f"{name} - {LOCAL}" for name in gains)), rows)
        what = results.clusters(attribute).what
        note(f"in brackets the 95 % bootstrap interval over {what}, after ± the standard deviation over rounds")
        if what == "labels":
            note(
                "the components are too few to resample: labels that are connected are not independent, and may be further off"
            )
        if 1 < len(found.folds) <= MOST_FOLDS:
            _show_folds(found, attribute)
    for name in results.systems:
        if not results.converged(name):
            note(f"{name} did not converge in every round; raise the limit with --set {name}.max_iterations=1000")
    seconds = {name: results.seconds(name) for name in found.results}
    say("; ".join(f"{name}: {a:.2f} CPU seconds to learn, {b:.2f} to infer" for name, (a, b) in seconds.items()))


def _show_folds(found: Evaluation, attribute: str) -> None:
    scores = [one for name in found.results for one in found.predictions.fold_scores(name)]
    rows = [
        (
            one.fold,
            one.backend,
            one.scores[attribute].accuracy,
            one.scores[attribute].log_likelihood,
            one.scores[attribute].n,
            one.seconds_learn + one.seconds_infer,
        )
        for fold in found.folds
        for one in scores
        if one.fold == fold.name
    ]
    columns = (f"{found.split} held out", "backend", "accuracy", "log-likelihood", "n", "seconds")
    table(f"{attribute}, by round", columns, rows)


def shown(estimate: Estimate) -> str:
    """Format an estimate with its interval, in brackets, and its spread."""
    if estimate.value != estimate.value:
        return ""
    spread = f" ±{estimate.spread:.3f}" if estimate.spread == estimate.spread else ""
    return f"{estimate.value:.4f} [{estimate.low:.3f}, {estimate.high:.3f}]{spread}"


def gap(of_system: Mapping[str, Difference], measure: str) -> str:
    """Format a difference with its interval; nothing for a measure that is not a mean of labels."""
    if measure not in of_system:
        return ""
    found = of_system[measure]
    return f"{found.value:+.4f} [{found.low:+.3f}, {found.high:+.3f}]"


def show_leaks(leaks: Leaks) -> None:
    """Print the factors between training and test labels, and what they imply."""
    rows = [(*row, f"{row[2] / row[1]:.0%}") for row in leaks.crossings.rows()]
    if rows:
        table("factors over what is held out", ("template", "all", "with a label of the training", "share"), rows)
    for sentence in leaks.sentences:
        say(f"- {sentence}")
