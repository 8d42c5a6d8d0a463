"""Commands that hold labels out: evaluate, which is also called cv, compare, pareto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.base import Monitor
from relcrf.backends.registry import make_backend
from relcrf.cli.options import FoldOptions, GroundingOptions, ModelArgument, SessionOptions, SetOption
from relcrf.cli.output import (
    parse_settings,
    print_error_line,
    print_json,
    print_line,
    print_note,
    print_table,
    print_warnings,
)
from relcrf.cli.time_limit import INTERRUPTED, exit_interrupted, time_limit_error
from relcrf.data.split_plan import SplitPlan, parse_split
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.evaluations import DEFAULT_SUBGRAPHS, Evaluation
from relcrf.evaluation.leakage import Leakage
from relcrf.evaluation.pareto import ParetoPoint, make_systems, pareto_optimal
from relcrf.evaluation.predictions import LOCAL, MAJORITY, MeasureDifference, MeasureEstimate
from relcrf.evaluation.runner import SystemResult
from relcrf.evaluation.splits import make_folds
from relcrf.learning.lbfgs import OptimiserState
from relcrf.progress_reporting import ProgressMonitor
from relcrf.report.comparison_plots import draw_backends, draw_cost_sweep
from relcrf.report.plot import require_drawable

MAX_PRINTED_FOLDS = 20
"""Maximum number of folds whose scores are printed one by one."""

BackendSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="A setting: l2=0.5 of every backend, ess.l2=0.5 of one; repeatable."),
]


class _PrefixedMonitor(Monitor):
    """A monitor that shows the optimiser's steps, under the name of what is learned."""

    def __init__(self, watch: ProgressMonitor, what: str) -> None:
        self._watch, self._what = watch, what

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        self._watch.step(f"{self._what}: {stage}", state, max_iterations)


def _parse_backend_settings(
    backends: Sequence[str], pairs: Sequence[str] | None, baselines: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the validated settings of each backend; those of one take precedence over those of all.

    Args:
        baselines: Backends that take no settings but those of one.

    Raises:
        UsageError: Unknown backend or setting.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in (*backends, *baselines)}
    given = parse_settings(pairs)
    for key, value in sorted(given.items(), key=lambda item: "." in item[0]):
        owner, dot, name = key.rpartition(".")
        if dot and owner not in found:
            message = f"'{key}' is a setting of backend '{owner}', which is not evaluated"
            raise UsageError(Diagnostic("E306", message, hint=f"the backends are {listing(found)}"))
        for backend in [owner] if dot else backends:
            found[backend][name] = value
    for backend, chosen in found.items():
        make_backend(backend, **chosen)
    return found


def split_of_run(run: Path) -> SplitPlan | None:
    """Return the split whose labels the training of a run did not use; None where it used all, or is unknown."""
    made_of = run_folder.load_provenance(run)
    if made_of is None or made_of.protocol.split is None:
        return None
    return replace(parse_split(made_of.protocol.split), holdout=made_of.protocol.holdout)


def evaluate(
    target: Annotated[Path, typer.Argument(help="A model to train in each fold, or a run folder to score.")],
    tables: GroundingOptions,
    folds: FoldOptions,
    session: SessionOptions,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", "-b", help="A system; repeatable. Default: ess.")
    ] = None,
    setting: BackendSetOption = None,
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
        found = _evaluate_run(target, tables, folds, session)
    else:
        found = _evaluate_model(target, tables, folds, session, list(dict.fromkeys(backend or ["ess"])), setting, out)
    if session.as_json:
        print_json({**found.as_dict(), **found.scores_as_dict(), "out": out})
        return
    tables.note_cache_use()
    _print_evaluation(found)
    _print_leaks(found.leakage)
    if found.n_loaded:
        print_note(f"{found.n_loaded:,} rounds were in {out} already")
    if out is not None:
        print_line(f"the predictions are in {out}")


def _evaluate_run(run: Path, tables: GroundingOptions, folds: FoldOptions, session: SessionOptions) -> Evaluation:
    fit = api.load_fit(run)
    plan = folds.require_plan(split_of_run(run) or tables.dataset.split)
    with session.show_progress() as watch:
        grounding = tables.ground(fit, watch)
        return api.evaluate_run(fit.learned, grounding, plan)


def _evaluate_model(
    model: Path,
    tables: GroundingOptions,
    folds: FoldOptions,
    session: SessionOptions,
    backends: list[str],
    setting: list[str] | None,
    out: Path | None,
) -> Evaluation:
    chosen = _parse_backend_settings(backends, setting, [LOCAL])
    loaded = api.load(model)
    print_warnings([] if session.as_json else loaded.warnings)
    plan = folds.require_plan(tables.dataset.split or parse_split("random", seed=folds.seed))
    with session.show_progress() as watch:
        grounding = tables.ground(loaded, watch)
        try:
            return api.evaluate(
                grounding,
                backends,
                plan,
                settings=chosen,
                folder=out,
                progress=lambda what: _PrefixedMonitor(watch, what),
            )
        except KeyboardInterrupt:
            if out is not None:
                kept = f"the rounds that are done are in {out}: go on with the same command"
                if over := time_limit_error(kept):
                    raise over from None
                print_error_line(f"interrupted; {kept}")
            raise


def _print_evaluation(found: Evaluation) -> None:
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
                *(_format_estimate(of_system[measure]) for of_system in estimates.values()),
                *(_format_difference(of_system, measure) for of_system in gains.values()),
            )
            for measure in next(iter(estimates.values()))
            if any(of_system[measure].value == of_system[measure].value for of_system in estimates.values())
        ]
        n = results.score(results.systems[0], attribute).n
        title = f"{attribute}, {found.split}: {n:,} labels held out in {len(found.folds)} rounds"
        print_table(title, ("", *estimates, *(f"{name} - {LOCAL}" for name in gains)), rows)
        what = results.clusters(attribute).unit
        print_note(f"in brackets the 95 % bootstrap interval over {what}, after ± the standard deviation over rounds")
        if what == "labels":
            print_note(
                "the components are too few to resample: labels that are connected are not independent, and may be further off"
            )
        if 1 < len(found.folds) <= MAX_PRINTED_FOLDS:
            _print_fold_scores(found, attribute)
    for name in results.systems:
        if not results.converged(name):
            print_note(f"{name} did not converge in every round; raise the limit with --set {name}.max_iterations=1000")
    seconds = {name: results.seconds(name) for name in found.results}
    print_line("; ".join(f"{name}: {a:.2f} CPU seconds to learn, {b:.2f} to infer" for name, (a, b) in seconds.items()))


def _print_fold_scores(found: Evaluation, attribute: str) -> None:
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
    print_table(f"{attribute}, by round", columns, rows)


def _format_estimate(estimate: MeasureEstimate) -> str:
    """Format an estimate with its interval, in brackets, and its spread."""
    if estimate.value != estimate.value:
        return ""
    spread = f" ±{estimate.spread:.3f}" if estimate.spread == estimate.spread else ""
    return f"{estimate.value:.4f} [{estimate.low:.3f}, {estimate.high:.3f}]{spread}"


def _format_difference(of_system: Mapping[str, MeasureDifference], measure: str) -> str:
    """Format a difference with its interval; nothing for a measure that is not a mean of labels."""
    if measure not in of_system:
        return ""
    found = of_system[measure]
    return f"{found.value:+.4f} [{found.low:+.3f}, {found.high:+.3f}]"


def _print_leaks(leaks: Leakage) -> None:
    """Print the factors between training and test labels, and what they imply."""
    rows = [(*row, f"{row[2] / row[1]:.0%}") for row in leaks.crossings.rows()]
    if rows:
        print_table("factors over what is held out", ("template", "all", "with a label of the training", "share"), rows)
    for sentence in leaks.interpretation:
        print_line(f"- {sentence}")


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The processes in which backends run."""

    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of backends at a time.")] = 1
    timeout: Annotated[
        float, typer.Option("--limit", min=0.0, help="Maximum number of seconds per backend; 0 for no limit.")
    ] = 0.0
    exact_subgraphs: Annotated[
        int,
        typer.Option("--exact", min=0, help="Number of small parts of the graph with exact marginals to compare with."),
    ] = DEFAULT_SUBGRAPHS


def compare(
    model: ModelArgument,
    tables: GroundingOptions,
    folds: FoldOptions,
    processes: ProcessOptions,
    session: SessionOptions,
    backends: Annotated[
        str, typer.Option("--backends", "-b", help="Systems, with commas between them.")
    ] = "local,ess,pseudo,dense",
    setting: BackendSetOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A plot of losses with their intervals, a .png file.")
    ] = None,
) -> None:
    """Compare backends on one grounding: held-out loss, seconds, memory, and how exact their marginals are.

    Example: relcrf compare models/webkb.rcrf --data webkb/ --split by=Page.university --backends local,ess,dense
    """
    names = list(dict.fromkeys(_split_at_commas(backends)))
    chosen = _parse_backend_settings(names, setting)
    if plot is not None:
        require_drawable(plot)
    loaded = api.load(model)
    plan = folds.require_plan(tables.dataset.split or parse_split("random", seed=folds.seed))
    with session.show_progress() as watch:
        grounding = tables.ground(loaded, watch)

        def left(what: str) -> Monitor:
            watch.start_phase(f"comparing: {what}")
            return Monitor()

        found = api.compare(
            grounding,
            names,
            plan,
            settings=chosen,
            jobs=processes.jobs,
            time_limit=processes.timeout or float("inf"),
            n_subgraphs=processes.exact_subgraphs,
            progress=left,
        )
    if plot is not None:
        draw_backends(found, plot)
    if session.as_json:
        print_json({**found.as_dict(), **found.resources_as_dict(), "jobs": processes.jobs, "plot": plot})
        return
    print_warnings(loaded.warnings)
    tables.note_cache_use()
    for attribute in found.predictions.attributes:
        _print_comparison(found, attribute)
    _print_leaks(found.leakage)
    if plot is not None:
        print_line(f"the plot is in {plot}")


def _print_comparison(found: Evaluation, attribute: str) -> None:
    """Print a row per backend, in a table of its scores and one of its costs."""
    predictions = found.predictions
    best, quality, costs = predictions.best_system(attribute), [], []
    for name in (MAJORITY, *found.results):
        result = found.results.get(name)
        marked = f"{name} *" if name == best else name
        if name in predictions.systems:
            estimates = predictions.estimates(name, attribute)
            gap = predictions.differences(name, best, attribute)["log_loss"]
            values = [estimates[measure].value for measure in ("log_loss", "accuracy", "roc_auc", "calibration_error")]
            texts = [f"{value:.4f}" if value == value else "" for value in values]
            quality.append((marked, texts[0], "" if name == best else _format_fold_difference(gap), *texts[1:]))
        if result is not None:
            costs.append((marked, *_format_costs(found, name, result)))
    n, several = predictions.score(MAJORITY, attribute).n, len(found.folds) > 1
    title = f"{attribute}, {found.split}: {n:,} labels held out in {len(found.folds)} round{'s' * several}"
    print_table(title, ("", "log-loss", "- best", "accuracy", "AUC", "cal. error"), quality)
    print_table("what that takes, and how exact it is", ("", "learn", "infer", "MiB", "KL", "error", "status"), costs)
    what = "of the mean of the rounds" if several else f"bootstrap over {predictions.clusters(attribute).unit}"
    print_note(f"* has the least log-loss; in brackets the 95 % interval of the difference from it, {what}")
    print_note("seconds are of the processor, all rounds together; MiB is the peak of the backend's own process")
    exact = next((one.exactness for one in found.results.values() if one.exactness is not None), None)
    if exact is not None:
        print_note(
            f"KL and error: mean divergence and largest error of the marginals of {exact.n_variables:,} variables in "
            f"{exact.n_subgraphs:,} small parts of the graph, compared with the exact ones under the backend's own weights"
        )


def _format_fold_difference(gap: MeasureDifference) -> str:
    """Format a difference with its interval: the mean of the folds, where there are several."""
    low, high = gap.fold_interval
    if low != low:
        return f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
    return f"{0.5 * (low + high):+.3f} [{low:+.3f}, {high:+.3f}]"


def _format_costs(found: Evaluation, name: str, result: SystemResult) -> tuple[str, ...]:
    """Format seconds, memory, exactness and status."""
    if not result.predictions:
        return ("", "", "", "", "", result.status)
    learn, infer = found.predictions.seconds(name)
    peak = f"{result.bytes_peak / 2**20:,.0f}" if result.bytes_peak else ""
    exact = result.exactness
    errors = ("", "") if exact is None else (f"{exact.divergence:.1e}", f"{exact.max_error:.1e}")
    return (f"{learn:.2f}", f"{infer:.2f}", peak, *errors, result.status)


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The prices, and the systems that learn at them."""

    cost: Annotated[
        str, typer.Option("--price", help="Prices of a message, in loss, with commas between them: 0,1e-5,1e-4.")
    ]
    backend: Annotated[str, typer.Option("--backend", "-b", help="The system that learns; it has gates.")] = "gated"
    setting: SetOption = None
    against: Annotated[
        str | None, typer.Option("--against", help="Sweeps to compare with, by their gates: static,none.")
    ] = None

    def settings_by_gates(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each sweep, by its gates.

        Raises:
            UsageError: see `systems`.
        """
        chosen, found = parse_settings(self.setting), dict[str, dict[str, Any]]()
        for kind in (chosen, *({**chosen, "gates": gates} for gates in _split_at_commas(self.against or ""))):
            found.setdefault(make_systems(self.backend, self.costs, kind)[0].gates, kind)
        return found

    @property
    def costs(self) -> list[str]:
        return _split_at_commas(self.cost)


def pareto(
    model: ModelArgument,
    tables: GroundingOptions,
    sweep: SweepOptions,
    holdout: FoldOptions,
    session: SessionOptions,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A plot of loss over messages and seconds, a .png file.")
    ] = None,
) -> None:
    """Learn at several prices of a message, and show what loss each speed costs, by held-out labels.

    Example: relcrf pareto models/random_field.rcrf --data fields/ --split hide=0.2 --price 0,1e-4,1e-3
    """
    sweeps = sweep.settings_by_gates()
    if plot is not None:
        require_drawable(plot)
    loaded = api.load(model)
    plan = holdout.require_plan(tables.dataset.split)
    points: list[ParetoPoint] = []
    interrupted = False
    with session.show_progress() as watch:
        grounding = tables.ground(loaded, watch)
        folds = make_folds(grounding, plan)
        for kind in sweeps.values():
            found = api.pareto(
                grounding,
                sweep.costs,
                folds,
                backend=sweep.backend,
                progress=lambda what: _PrefixedMonitor(watch, what),
                **kind,
            )
            points += found.points
            interrupted = found.interrupted
            if interrupted:
                break
    if not points:
        if over := time_limit_error("no price was done; allow more with --time"):
            raise over
        print_error_line("interrupted before a price was done")
        raise typer.Exit(INTERRUPTED)
    if plot is not None:
        draw_cost_sweep(points, plot)
    if session.as_json:
        rows = [
            {**point.as_dict(), "unbeaten": best} for point, best in zip(points, pareto_optimal(points), strict=True)
        ]
        facts = {"backend": sweep.backend, "split": str(plan), "held_out": [fold.name for fold in folds]}
        print_json({**facts, "interrupted": interrupted, "points": rows, "plot": plot})
    else:
        print_warnings(loaded.warnings)
        tables.note_cache_use()
        _print_sweep(points)
        if plot is not None:
            print_line(f"the plot is in {plot}")
    if interrupted:
        exit_interrupted("these are the prices that were done")


def _split_at_commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _print_sweep(points: list[ParetoPoint]) -> None:
    """Print a table for each kind of gates."""
    marked = list(zip(points, pareto_optimal(points), strict=True))
    for gates in dict.fromkeys(point.gates for point in points):
        rows = [
            (
                f"{point.cost:g}" + (" *" if best else ""),
                point.loss,
                point.accuracy,
                point.log_likelihood,
                f"{point.messages_per_query:.2f}",
                f"{point.open_fraction:.0%}",
                f"{point.seconds_learn:.2f}",
                point.seconds_infer,
            )
            for point, best in marked
            if point.gates == gates
        ]
        title = f"gates {gates}: {points[0].n:,} labels held out, {points[0].n_queries:,} variables asked"
        print_table(title, ("price", "loss", "accuracy", "log-lik.", "messages", "open", "learn", "infer"), rows)
    print_note(
        "messages are for each variable asked, times in seconds; * no other has both less loss and fewer messages"
    )
