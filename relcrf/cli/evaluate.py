"""Commands that score held-out labels: evaluate (alias cv), compare, pareto."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.base import Monitor
from relcrf.backends.gated import GatedBackend
from relcrf.backends.registry import DEFAULT_BACKEND, make_backend
from relcrf.cli.evaluation_tables import note_part_sizes, print_evaluation, print_leaks
from relcrf.cli.group_measures import groups_as_dict, print_group_measures
from relcrf.cli.help_panels import RESOURCES
from relcrf.cli.options import (
    BackendsOption,
    CoverageOption,
    DeviceOption,
    EachValueOption,
    FoldOptions,
    GatedBackendOption,
    GroundingOptions,
    ModelArgument,
    NearbyOption,
    SessionOptions,
    SetOption,
    require_single_backend,
    split_names,
    with_device,
)
from relcrf.cli.output import (
    parse_settings,
    print_error_line,
    print_json,
    print_line,
    print_note,
    print_notes,
    print_table,
    print_warnings,
)
from relcrf.cli.prediction_sets import print_set_measures, set_options
from relcrf.cli.progress import PrefixedMonitor
from relcrf.cli.time_limit import INTERRUPTED, exit_interrupted, time_limit_error
from relcrf.data.split_plan import SplitPlan, parse_split
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.evaluations import DEFAULT_SUBGRAPHS, Evaluation
from relcrf.evaluation.group_measures import VariableGroups
from relcrf.evaluation.pareto import ParetoPoint, make_systems, pareto_optimal
from relcrf.evaluation.prediction_sets import sets_as_dict
from relcrf.evaluation.predictions import LOCAL, MAJORITY, MeasureDifference
from relcrf.evaluation.runner import SystemResult
from relcrf.evaluation.splits import labelled_in_grounding, make_folds
from relcrf.report.comparison_plots import draw_backends, draw_cost_sweep
from relcrf.report.plot import require_drawable
from relcrf.updating.state import read_state

COMPARED_BACKENDS = ("local", "ess", "pseudo", "dense")
"""Backends that `compare` compares by default: without links, on a forest, and with all links, quick or accurate."""

BackendSetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="Setting of all backends, e.g. l2=0.5, or of one backend, e.g. ess.l2=0.5; repeatable.",
    ),
]


def _parse_backend_settings(
    backends: Sequence[str], pairs: Sequence[str] | None, baselines: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Parse and validate the settings of each backend; a setting of one backend overrides a setting of all backends.

    Args:
        baselines: Backends that accept only settings with the backend's name, such as `local.l2=0.5`.

    Raises:
        UsageError: A backend or a setting is unknown.
    """
    by_backend: dict[str, dict[str, Any]] = {name: {} for name in (*backends, *baselines)}
    for key, value in sorted(parse_settings(pairs).items(), key=lambda item: "." in item[0]):
        owner, dot, name = key.rpartition(".")
        if dot and owner not in by_backend:
            message = f"'{key}' is a setting of backend '{owner}', which is not evaluated"
            raise UsageError(
                Diagnostic("E306", message, hint=f"use one of the evaluated backends: {listing(by_backend)}")
            )
        for backend in [owner] if dot else backends:
            by_backend[backend][name] = value
    for backend, chosen in by_backend.items():
        make_backend(backend, **chosen)
    return by_backend


def split_of_run(run: Path) -> SplitPlan | None:
    """Return the split used in the training of a run; None if no split was used or the run folder does not store it."""
    provenance = run_folder.load_provenance(run)
    if provenance is not None:
        return provenance.protocol.split_plan
    state = read_state(run)  # an update wrote the run
    return None if state is None else state.protocol.split_plan


def evaluate(
    target: Annotated[
        Path, typer.Argument(metavar="MODEL|RUN", help="Model to train on each fold, or run folder to score.")
    ],
    tables: GroundingOptions,
    folds: FoldOptions,
    session: SessionOptions,
    backend: BackendsOption = None,
    setting: BackendSetOption = None,
    device: DeviceOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Folder for the predictions of each fold; existing predictions are reused.",
        ),
    ] = None,
    rank: Annotated[
        str,
        typer.Option(
            "--rank", metavar="NAMES", help="Comma-separated arguments of Boolean relations for MRR and hits, e.g. x,y."
        ),
    ] = "",
    coverage: CoverageOption = None,
    each_value: EachValueOption = False,
    nearby: NearbyOption = False,
    group_by: Annotated[
        str | None,
        typer.Option("--group-by", metavar="COLUMN", help="Column by which accuracy and overconfidence are compared."),
    ] = None,
) -> None:
    """Score held-out labels by cross-validation, and report leakage. (Alias: cv.)

    Example: relcrf evaluate models/webkb.rcrf --data webkb/ --split by=Page.university
    """
    setting = with_device(setting, device)
    options = set_options(coverage, each_value=each_value, nearby=nearby)
    if target.is_dir():
        if backend or setting or out is not None:
            message = "--backend, --set, --device and --out cannot be used with a run folder"
            hint = "remove them, or evaluate a .rcrf model"
            raise UsageError(Diagnostic("E342", message, hint=hint))
        evaluation, groups = _evaluate_run(target, tables, folds, session, split_names([rank]), group_by)
    else:
        backends = split_names(backend or [DEFAULT_BACKEND])
        ranked = split_names([rank])
        evaluation, groups = _evaluate_model(target, tables, folds, session, backends, setting, out, ranked, group_by)
    sets = {} if options is None else evaluation.measure_sets(**asdict(options))
    if session.as_json:
        measured: dict[str, Any] = {} if options is None else {"sets": sets_as_dict(sets)}
        if groups is not None:
            measured["groups"] = groups_as_dict(evaluation.predictions, groups)
        print_json({**evaluation.as_dict(), **evaluation.scores_as_dict(), **measured, "out": out})
        return
    tables.note_cache_use()
    print_notes(evaluation.notes)
    note_part_sizes(evaluation.plan, evaluation.folds, evaluation.part_sizes)
    print_evaluation(evaluation)
    if options is not None:
        print_set_measures(evaluation, options, sets)
    if groups is not None:
        print_group_measures(evaluation.predictions, groups)
    print_leaks(evaluation.leakage)
    if evaluation.n_loaded:
        print_note(f"predictions of {evaluation.n_loaded:,} folds were loaded from {out}")
    if out is not None:
        print_line(f"wrote predictions to {out}")


def _evaluate_run(
    run: Path,
    tables: GroundingOptions,
    folds: FoldOptions,
    session: SessionOptions,
    rank: list[str],
    group_by: str | None,
) -> tuple[Evaluation, VariableGroups | None]:
    fit, tables = api.load_fit(run), tables.for_run(run)
    own, manifest = split_of_run(run), tables.dataset.split
    if own is not None:
        folds.require_split_of_run()
    elif manifest is not None and not (manifest.holdout or manifest.has_parts):
        manifest = None  # its folds are held out in turn in evaluations of a model; the run was trained on all of them
    plan = folds.require_plan(own or manifest)
    with session.show_progress() as display:
        grounding = tables.ground(fit, display)
        groups = None if group_by is None else VariableGroups.from_column(grounding, group_by)
        return api.evaluate_run(fit.learned, grounding, plan, rank=rank), groups


def _evaluate_model(
    model: Path,
    tables: GroundingOptions,
    folds: FoldOptions,
    session: SessionOptions,
    backends: list[str],
    setting: list[str] | None,
    out: Path | None,
    rank: list[str],
    group_by: str | None,
) -> tuple[Evaluation, VariableGroups | None]:
    chosen = _parse_backend_settings(backends, setting, [LOCAL])
    loaded = api.load(model)
    print_warnings([] if session.as_json else loaded.warnings)
    plan = folds.require_plan(tables.dataset.split or parse_split("random"))
    with session.show_progress() as display:
        grounding = tables.ground(loaded, display)
        groups = None if group_by is None else VariableGroups.from_column(grounding, group_by)
        try:
            evaluation = api.evaluate(
                grounding,
                backends,
                plan,
                settings=chosen,
                folder=out,
                rank=rank,
                progress=lambda label: PrefixedMonitor(display, label),
            )
        except KeyboardInterrupt:
            if out is not None:
                hint = f"completed folds are in {out}; run the same command to resume"
                if error := time_limit_error(hint):
                    raise error from None
                print_error_line(f"interrupted; {hint}")
            raise
        return evaluation, groups


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The processes in which backends run, and the number of subgraphs for the comparison with exact marginals."""

    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", metavar="INT", min=1, rich_help_panel=RESOURCES, help="Number of backends run in parallel."
        ),
    ] = 1
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.0,
            rich_help_panel=RESOURCES,
            show_default=False,
            help="Maximum seconds per backend. Default: no limit.",
        ),
    ] = 0.0
    exact_subgraphs: Annotated[
        int,
        typer.Option(
            "--exact-subgraphs",
            metavar="INT",
            min=0,
            help="Number of small subgraphs on which marginals are compared with exact marginals.",
        ),
    ] = DEFAULT_SUBGRAPHS


def compare(
    model: ModelArgument,
    tables: GroundingOptions,
    folds: FoldOptions,
    *,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            "-b",
            metavar="NAMES",
            help=f"Backends, e.g. ess,dense; repeatable. Default: {','.join(COMPARED_BACKENDS)}.",
        ),
    ] = None,
    setting: BackendSetOption = None,
    processes: ProcessOptions,
    session: SessionOptions,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PATH", help="Write a plot of losses and intervals, .png or .svg."),
    ] = None,
) -> None:
    """Compare backends by held-out loss, time, memory, and accuracy of the marginals.

    Example: relcrf compare models/webkb.rcrf --data webkb/ --split by=Page.university --backend local,ess,dense
    """
    names = split_names(backend or COMPARED_BACKENDS)
    chosen = _parse_backend_settings(names, setting)
    if plot is not None:
        require_drawable(plot)
    loaded = api.load(model)
    plan = folds.require_plan(tables.dataset.split or parse_split("random"))
    with session.show_progress() as display:
        grounding = tables.ground(loaded, display)

        def report_start(label: str) -> Monitor:
            display.start_phase(f"comparing: {label}")
            return Monitor()

        evaluation = api.compare(
            grounding,
            names,
            plan,
            settings=chosen,
            jobs=processes.jobs,
            time_limit=processes.timeout or float("inf"),
            n_subgraphs=processes.exact_subgraphs,
            progress=report_start,
        )
    if plot is not None:
        draw_backends(evaluation, plot)
    if session.as_json:
        facts = {"jobs": processes.jobs, "interrupted": evaluation.interrupted, "plot": plot}
        print_json({**evaluation.as_dict(), **evaluation.resources_as_dict(), **facts})
    else:
        print_warnings(loaded.warnings)
        tables.note_cache_use()
        print_notes(evaluation.notes)
        note_part_sizes(evaluation.plan, evaluation.folds, evaluation.part_sizes)
        for attribute in evaluation.predictions.attributes:
            _print_comparison(evaluation, attribute)
        print_leaks(evaluation.leakage)
        if plot is not None:
            print_line(f"wrote the plot to {plot}")
    if evaluation.interrupted:
        exit_interrupted("the results cover the finished backends only")


LABEL_COLUMNS = {
    "log_loss": "log-loss",
    "accuracy": "accuracy",
    "roc_auc": "AUC",
    "calibration_error": "cal. error",
}
"""Measures that `compare` prints for an attribute with values, and their titles."""

NUMBER_COLUMNS = {"log_loss": "log-loss", "rmse": "RMSE", "mae": "MAE", "crps": "CRPS"}
"""Measures that `compare` prints for a number, and their titles."""


def _print_comparison(evaluation: Evaluation, attribute: str) -> None:
    """Print a table of scores and a table of costs, with one row per backend."""
    predictions = evaluation.predictions
    best, quality, costs = predictions.best_system(attribute), [], []
    columns = NUMBER_COLUMNS if predictions.is_numeric(attribute) else LABEL_COLUMNS
    for name in (MAJORITY, *evaluation.results):
        result = evaluation.results.get(name)
        marked = f"{name} *" if name == best else name
        if name in predictions.systems:
            estimates = predictions.estimates(name, attribute)
            gap = predictions.differences(name, best, attribute)["log_loss"]
            values = [estimates[measure].value for measure in columns]
            texts = [f"{value:.4f}" if value == value else "" for value in values]
            quality.append((marked, texts[0], "" if name == best else _format_fold_difference(gap), *texts[1:]))
        if result is not None:
            costs.append((marked, *_format_costs(evaluation, name, result)))
    n, several = predictions.score(MAJORITY, attribute).n, len(evaluation.folds) > 1
    title = (
        f"{attribute}, split {evaluation.split}: {n:,} labels held out in {len(evaluation.folds)} fold{'s' * several}"
    )
    loss, *others = columns.values()
    print_table(title, ("", loss, "- best", *others), quality)
    print_table("cost and accuracy of inference", ("", "learn", "infer", "MiB", "KL", "error", "status"), costs)
    method = "over folds" if several else f"bootstrap over {predictions.clusters(attribute).unit}"
    print_note(f"*: lowest log-loss; [low, high]: 95 % interval of the difference from the lowest log-loss ({method})")
    print_note("learn and infer: CPU seconds over all folds; MiB: peak memory of the backend's process")
    exact = next((one.exactness for one in evaluation.results.values() if one.exactness is not None), None)
    if exact is not None:
        print_note(
            f"KL, error: mean divergence and maximum error of the marginals of {exact.n_variables:,} variables in "
            f"{exact.n_subgraphs:,} small subgraphs, compared with exact marginals under the backend's weights"
        )


def _format_fold_difference(gap: MeasureDifference) -> Text:
    """Format a difference with its interval on a second line; if there are several folds, format the mean over folds."""
    low, high = gap.fold_interval
    if low != low:
        return Text(f"{gap.value:+.3f}\n[{gap.low:+.3f}, {gap.high:+.3f}]")
    return Text(f"{0.5 * (low + high):+.3f}\n[{low:+.3f}, {high:+.3f}]")


def _format_costs(evaluation: Evaluation, name: str, result: SystemResult) -> tuple[str, ...]:
    """Format one row of the table of costs: seconds, memory, errors of the marginals, and status."""
    if not result.predictions:
        return ("", "", "", "", "", result.status)
    learn, infer = evaluation.predictions.seconds(name)
    peak = f"{result.bytes_peak / 2**20:,.0f}" if result.bytes_peak else ""
    exact = result.exactness
    errors = ("", "") if exact is None else (f"{exact.divergence:.1e}", f"{exact.max_error:.1e}")
    return (f"{learn:.2f}", f"{infer:.2f}", peak, *errors, result.status)


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The message costs for which `pareto` trains the backend, and the kinds of gates to compare."""

    cost: Annotated[
        str,
        typer.Option(
            "--message-costs", metavar="FLOATS", help="Comma-separated message costs, in units of loss: 0,1e-5,1e-4."
        ),
    ]
    backend: GatedBackendOption = None
    setting: SetOption = None
    compare_gates: Annotated[
        str | None,
        typer.Option(
            "--compare-gates", metavar="NAMES", help="Comma-separated kinds of gates to compare with: static,none."
        ),
    ] = None

    def settings_by_gates(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the backend for each kind of gates.

        Raises:
            UsageError: See `make_systems`.
        """
        chosen, by_gates = parse_settings(self.setting), dict[str, dict[str, Any]]()
        for settings in (chosen, *({**chosen, "gates": g} for g in split_names([self.compare_gates or ""]))):
            by_gates.setdefault(make_systems(self.backend_name, self.costs, settings)[0].gates, settings)
        return by_gates

    @property
    def backend_name(self) -> str:
        """The backend to train; it must have gates."""
        return require_single_backend(self.backend, GatedBackend.name)

    @property
    def costs(self) -> list[str]:
        """The message costs, as strings."""
        return split_names([self.cost])


def pareto(
    model: ModelArgument,
    tables: GroundingOptions,
    sweep: SweepOptions,
    holdout: FoldOptions,
    session: SessionOptions,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="PATH",
            help="Write a plot of loss over messages and seconds, .png or .svg.",
        ),
    ] = None,
) -> None:
    """Show the trade-off between held-out loss and inference speed at several message costs.

    Example: relcrf pareto models/random_field.rcrf --data fields/ --split hide=0.2 --message-costs 0,1e-4
    """
    sweeps = sweep.settings_by_gates()
    if plot is not None:
        require_drawable(plot)
    loaded = api.load(model)
    plan = holdout.require_plan(tables.dataset.split or parse_split("random"))
    points: list[ParetoPoint] = []
    interrupted = False
    with session.show_progress() as display:
        grounding = tables.ground(loaded, display)
        folds = make_folds(grounding, plan)
        for settings in sweeps.values():
            front = api.pareto(
                grounding,
                sweep.costs,
                folds,
                backend=sweep.backend_name,
                progress=lambda label: PrefixedMonitor(display, label),
                **settings,
            )
            points += front.points
            interrupted = front.interrupted
            if interrupted:
                break
    if not points:
        if error := time_limit_error("no message cost was completed; raise --time-limit"):
            raise error
        print_error_line("interrupted before the first message cost was completed")
        raise typer.Exit(INTERRUPTED)
    if plot is not None:
        draw_cost_sweep(points, plot)
    if session.as_json:
        rows = [
            {**point.as_dict(), "pareto_optimal": best}
            for point, best in zip(points, pareto_optimal(points), strict=True)
        ]
        facts = {"backend": sweep.backend_name, "split": str(plan), "held_out": [fold.name for fold in folds]}
        print_json({**facts, "interrupted": interrupted, "points": rows, "plot": plot})
    else:
        print_warnings(loaded.warnings)
        tables.note_cache_use()
        labelled = labelled_in_grounding(grounding)
        note_part_sizes(plan, folds, [fold.part_sizes(labelled) for fold in folds])
        _print_sweep(points)
        if plot is not None:
            print_line(f"wrote the plot to {plot}")
    if interrupted:
        exit_interrupted("the results cover the completed message costs only")


def _print_sweep(points: list[ParetoPoint]) -> None:
    """Print one table per kind of gates."""
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
        title = f"gates {gates}: {points[0].n:,} labels held out, {points[0].n_queries:,} query variables"
        print_table(title, ("cost", "loss", "accuracy", "log-lik.", "messages", "open", "learn", "infer"), rows)
    print_note("messages: per query variable; learn, infer: seconds; *: Pareto-optimal in loss and messages")
