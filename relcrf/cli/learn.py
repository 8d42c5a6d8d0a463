"""Commands that learn and infer: train, predict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import duckdb
import typer

from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.base import MORE_ITERATIONS, AbstractBackend
from relcrf.backends.calibration_labels import labels_of_attribute
from relcrf.backends.checkpoints import CheckpointMonitor
from relcrf.backends.export import render_learned_model, require_exportable
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.provenance import Provenance, TrainingProtocol
from relcrf.backends.registry import DEFAULT_BACKEND, backend_class, make_backend
from relcrf.backends.unseen_templates import unseen_template_warnings
from relcrf.cli.frame_output import write_frame
from relcrf.cli.help_panels import LEARNING, RESOURCES
from relcrf.cli.options import (
    BackendOption,
    CoverageOption,
    DeviceOption,
    EachValueOption,
    GroundingOptions,
    HoldoutOptions,
    MaxFactorsOption,
    ModelArgument,
    NearbyOption,
    OverrideSetOption,
    RunArgument,
    SafeCsvOption,
    SessionOptions,
    SetOption,
    require_single_backend,
    with_device,
)
from relcrf.cli.output import (
    parse_choices,
    parse_settings,
    print_error_line,
    print_json,
    print_line,
    print_note,
    print_notes,
    print_table,
    print_warnings,
)
from relcrf.cli.prediction_sets import describe_sets, print_sets_of_predictions, set_options
from relcrf.cli.template_table import print_template_table
from relcrf.cli.time_limit import INTERRUPTED, exit_interrupted, time_limit_error
from relcrf.cli.trial_table import print_choice
from relcrf.data.frame import require_writable
from relcrf.errors import ConvergenceError, Diagnostic, RelcrfError, UsageError
from relcrf.evaluation.chosen_backend import BackendChoice
from relcrf.evaluation.selection import SettingsSelection
from relcrf.files import remove_folder, require_suffix, write_text
from relcrf.prediction import find_variable_block
from relcrf.training import TrainingRequest

SHOWN_COLUMNS = 3
"""Number of columns of predictions that are printed after the arguments: the most probable value, its probability, and the next
one."""


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """The backend, the selection of its settings, and calibration."""

    backend: BackendOption = None
    setting: SetOption = None
    device: DeviceOption = None
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="NAME=VALUES",
            rich_help_panel=LEARNING,
            help="Values to compare on held-out labels, e.g. l2=0.1,1,10; repeatable.",
        ),
    ] = None
    select_by: Annotated[
        str,
        typer.Option(metavar="MEASURE", rich_help_panel=LEARNING, help="Measure: log_likelihood or accuracy."),
    ] = "log_likelihood"
    calibrate: Annotated[
        int,
        typer.Option(
            metavar="FOLDS",
            min=0,
            rich_help_panel=LEARNING,
            show_default=False,
            help="Folds for temperature calibration; 0 (default) disables it.",
        ),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class RunFolderOptions:
    """The files that a training run writes."""

    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="Run folder to write.")]
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted training.")] = False
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run folder.")] = False
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with code 4 without convergence."),
    ] = False
    export: Annotated[
        Path | None,
        typer.Option(
            "--export-model",
            metavar="PATH",
            rich_help_panel=LEARNING,
            help="Write a model with selected candidates.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The worker processes or the Spark cluster of a training run."""

    workers: Annotated[
        int,
        typer.Option(
            metavar="INT",
            rich_help_panel=RESOURCES,
            show_default=False,
            help="Worker processes. Default: none.",
        ),
    ] = 0
    spark_master: Annotated[
        str | None,
        typer.Option(metavar="URL", rich_help_panel=RESOURCES, help="Spark master, e.g. local[2]."),
    ] = None


def train(
    model: ModelArgument,
    tables: GroundingOptions,
    learning: LearningOptions,
    holdout: HoldoutOptions,
    folder: RunFolderOptions,
    worker_options: WorkerOptions,
    session: SessionOptions,
    max_factors: MaxFactorsOption = None,
) -> None:
    """Learn the weights of a model from labelled tables, and write a run folder.

    Example: relcrf train models/webkb.rcrf --data webkb/ --split university --holdout cornell --out runs/webkb
    """
    chosen, grid = parse_settings(with_device(learning.setting, learning.device)), parse_choices(learning.select)
    backend = require_single_backend(learning.backend, DEFAULT_BACKEND)
    system = make_backend(backend, **chosen)
    for name, values in grid.items():
        for value in values:
            make_backend(backend, **{**chosen, name: value})
    loaded = api.load(model)
    source = None if "://" in tables.data else Path(tables.data)
    inputs = [path for path in (tables.cache, tables.manifest, source) if path is not None]
    run_folder.require_writable(folder.out, resume=folder.resume, force=folder.force, inputs=inputs)
    if folder.export is not None:
        _require_export_path(folder.export, loaded, system)
    started = time.perf_counter()
    with ExitStack() as claims:
        with session.show_progress() as display:
            display.start_phase("reading tables")
            protocol = _build_protocol(tables, learning, holdout, worker_options)
            request = TrainingRequest(loaded.spec, backend, chosen, tables.dataset, protocol, max_factors)
            training = request.ground(display.report_grounding, tables.block_cache)
            timings = {"ground": time.perf_counter() - started}
            selected = None
            if grid:
                display.start_phase("selecting settings")
                selected = training.select(grid, by=learning.select_by)
                training = training.with_settings(selected.settings)
            sync = not tables.no_sync
            claim = run_folder.claim_folder(folder.out, resume=folder.resume, force=folder.force, sync=sync)
            monitor = CheckpointMonitor(
                claims.enter_context(claim), training.identity, display.step, display.start_phase, sync=sync
            )
            with _save_if_interrupted(monitor, resume=folder.resume), request.executor() as executor:
                learned = training.run(monitor, executor)
        if folder.strict and not learned.converged:
            remove_folder(run_folder.partial_folder(folder.out))
            raise ConvergenceError(Diagnostic("E401", _convergence_message(learned), hint=_convergence_hint(learned)))
        timings["learn"] = learned.seconds
        provenance = Provenance.collect(training.identity, protocol, training.grounding.bound)
        run_folder.save(learned, folder.out, timings, monitor.seconds, provenance, sync=sync)
    if folder.export is not None:
        write_text(folder.export, render_learned_model(learned))
        if not backend_class(learned.backend).uses_candidates:
            print_note(f"backend '{learned.backend}' does not select candidates, so '{folder.export}' contains none")
    choice = BackendChoice.from_model(learned)
    if session.as_json:
        results: dict[str, Any] = {"summary": learned.summary, "converged": learned.converged, "seconds": timings}
        results["templates"] = [each.as_dict() for each in learned.template_statistics]
        results["notes"] = training.grounding.bound.notes
        if selected is not None:
            results |= {"settings": selected.settings, "selection": selected.rows}
        if choice is not None:
            results |= {"chosen": choice.as_dict(), "trials": choice.trials}
        print_json({"run": folder.out, **results})
        return
    print_warnings([*loaded.warnings, *unseen_template_warnings(learned)])
    holdout.note_held_out_labels(training.grounding)
    tables.note_cache_use()
    print_notes(training.grounding.bound.notes)
    _print_training(learned, selected, choice)
    print_line(
        f"grounded in {timings['ground']:.2f} s, learned in {learned.seconds:.2f} s; wrote the run folder '{folder.out}'"
    )


def _build_protocol(
    tables: GroundingOptions, learning: LearningOptions, holdout: HoldoutOptions, worker_options: WorkerOptions
) -> TrainingProtocol:
    """Return the training protocol: the split, and the resources specified on the command line."""
    plan = holdout.holdout_plan(tables.dataset.split)
    protocol = TrainingProtocol(
        calibrate=learning.calibrate,
        workers=worker_options.workers,
        memory=tables.memory,
        budget=tables.budget,
        spark_master=worker_options.spark_master,
    )
    return protocol if plan is None else protocol.with_split(plan)


@contextmanager
def _save_if_interrupted(monitor: CheckpointMonitor, *, resume: bool) -> Iterator[None]:
    """Save the state of an interrupted or failed training run; remove the folder of a run that fails before its first step."""
    partial = monitor.folder.parent
    try:
        yield
    except (KeyboardInterrupt, duckdb.InterruptException):
        monitor.save()
        hint = f"the state is saved in {partial}; run the same command with --resume to continue"
        if error := time_limit_error(hint):
            raise error from None
        print_error_line(f"interrupted; {hint}")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if monitor.progress.state is not None:
            with suppress(OSError):  # if the disk is full, the state that was saved before remains
                monitor.save()
        elif isinstance(error, RelcrfError) and not resume:
            remove_folder(partial)  # there is no state to resume
        raise


def _print_training(learned: LearnedModel, selected: SettingsSelection | None, choice: BackendChoice | None) -> None:
    """Print the training summary and, if settings or the backend were selected, the score of each candidate."""
    if not learned.converged:
        print_note(f"{_convergence_message(learned)}; {_convergence_hint(learned)}")
    if selected is not None:
        units = "whole components" if selected.whole_components else "random labels"
        units = "validation labels" if selected.validation else units
        title = f"settings scored on {selected.n:,} held-out variables ({units})"
        tried = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in selected.rows]
        print_table(title, [name.replace("_", " ") for name in selected.rows[0]], tried)
        print_note("selected: " + ", ".join(f"{name}={value}" for name, value in selected.settings.items()))
    if choice is not None:
        print_choice(choice)
    formats = {int: ",", float: ".5g"}
    rows = [
        (name.replace("_", " "), format(value, formats.get(type(value), "")))
        for name, value in learned.summary.items()
        if choice is None or name not in choice.summary
    ]
    print_table(f"trained by {learned.backend}", ("", ""), rows)
    _print_learned_features(learned)
    print_template_table(learned)


def _print_learned_features(learned: LearnedModel) -> None:
    """Print the estimator of each learned feature, and the error of its out-of-fold predictions."""
    rows = []
    for each in learned.learned_features:
        summary = each.summary
        accuracy = f"{summary['out_of_fold_accuracy']:.2%}" if "out_of_fold_accuracy" in summary else ""
        loss = f"{summary['out_of_fold_loss']:.4g}"
        estimator = str(summary["estimator"])
        if "joint_rounds" in summary:
            estimator += f", {summary['joint_rounds']} joint rounds"
        rows.append((each.name, estimator, f"{summary['labels']:,}", summary["folds"], loss, accuracy))
    if rows:
        print_table("learned features", ("feature", "estimator", "labels", "folds", "loss", "accuracy"), rows)


def _limit_option(learned: LearnedModel, setting: str) -> str:
    """Return the options that change a setting; if `auto` chose the backend, they name the backend and its other settings."""
    choice = BackendChoice.from_model(learned)
    if choice is None:
        return f"--set {setting}"
    name = setting.partition("=")[0]
    settings = [other for other in choice.settings.split() if not other.startswith(f"{name}=")]
    return " ".join([f"--backend {learned.backend}", *(f"--set {each}" for each in (*settings, setting))])


def _convergence_message(learned: LearnedModel) -> str:
    limit = learned.settings.get("max_iterations")
    if _is_stalled(learned):
        return "learning did not converge: no step improves the weights, although they are not optimal"
    return "learning did not converge" + (f" within {limit:,} iterations" if limit else "")


def _convergence_hint(learned: LearnedModel) -> str:
    """Return what to do if learning did not converge."""
    if _is_stalled(learned):
        if learned.settings.get("inference") in ("bp", "mf") and learned.settings.get("objective") == "likelihood":
            option = _limit_option(learned, "inference=trw")
            return f"the approximate likelihood jumps at these weights; use {option}, whose likelihood has no jumps"
        return "correct extreme values in the tables, which 'relcrf check' shows, or use a stronger penalty"
    is_out_of_time = "out of time" in learned.summary.values()
    return f"raise the limit with {_limit_option(learned, 'max_seconds=3600' if is_out_of_time else MORE_ITERATIONS)}"


def _is_stalled(learned: LearnedModel) -> bool:
    return "stalled" in learned.summary.values()


def _require_export_path(path: Path, model: api.Model, system: AbstractBackend) -> None:
    """Validate the path and the model for `--export-model` before any work is done, and create the folder of the file."""
    require_suffix(path, (".rcrf",), "learned.rcrf")
    if not system.uses_candidates:
        message = f"backend '{system.name}' does not select candidates, so --export-model has no effect"
        raise UsageError(Diagnostic("E392", message, hint="use --backend trmrf or grafting, or remove --export-model"))
    require_exportable(model.spec)
    path.parent.mkdir(parents=True, exist_ok=True)


def predict(
    run: RunArgument,
    tables: GroundingOptions,
    holdout: HoldoutOptions,
    session: SessionOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Write predictions: .csv, .tsv, .jsonl, .parquet or .arrow.",
        ),
    ] = None,
    attribute: Annotated[
        str | None, typer.Option(metavar="NAME", help="Attribute or relation to predict, if there are several.")
    ] = None,
    coverage: CoverageOption = None,
    each_value: EachValueOption = False,
    nearby: NearbyOption = False,
    setting: OverrideSetOption = None,
    device: DeviceOption = None,
    safe_csv: SafeCsvOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 4 if inference fails to converge.")] = False,
) -> None:
    """Predict the missing values in tables; observed values are evidence.

    Example: relcrf predict runs/webkb --data webkb/ --split university --holdout cornell --out cornell.csv
    """
    if out is not None:
        require_writable(out)
    fit, tables = api.load_fit(run), tables.for_run(run)
    setting = with_device(setting, device, overrides="device" in fit.learned.settings)
    chosen: dict[str, Any] = dict(parse_settings(setting))
    fit.learned.configure_backend(**chosen)  # validates the settings before any work is done
    options = set_options(coverage, each_value=each_value, nearby=nearby)
    with session.show_progress() as display:
        grounding = tables.ground(fit, display)
        names = [block.name for block in grounding.blocks if not block.is_latent]
        if attribute is not None:
            names = [find_variable_block(grounding, attribute).name]
        elif out is not None and len(names) > 1:
            hint = f"select one with --attribute: {', '.join(names)}"
            message = "several attributes are predicted, but --out writes only one"
            raise UsageError(Diagnostic("E310", message, hint=hint))
        for block in map(partial(find_variable_block, grounding), names if options else ()):
            if not block.is_numeric:
                labels_of_attribute(fit.learned.calibration_labels, block.name)  # fails before inference, not after it
        display.start_phase("inferring")
        hidden = holdout.hidden(grounding)
        prediction = api.predict(fit, grounding, hidden=hidden, observe=display.report_inference, **chosen)
        has_joint = not all(prediction.block(name).is_numeric for name in names)
        if has_joint:
            prediction = prediction.with_joint_states()
        chosen_sets = {} if options is None else asdict(options)
        frames = {name: prediction.table(name, **chosen_sets) for name in names}
    verdict = prediction.verdict
    joint_verdict = prediction.joint_verdict if has_joint else verdict
    interrupted = "interrupted" in (verdict.status, joint_verdict.status)
    if strict and not verdict.is_good and not interrupted:
        message = f"inference by backend '{fit.learned.backend}': {verdict}"
        raise ConvergenceError(
            Diagnostic(
                "E402", message, hint="raise the iteration limit, or select another method with --set inference=..."
            )
        )
    if out is not None:
        (frame,) = frames.values()
        grounding.bound.notes += write_frame(frame, out, safe_csv=safe_csv, sync=not tables.no_sync)
    if session.as_json:
        print_json(
            {
                "predictions": {} if out else {name: frame.to_dicts() for name, frame in frames.items()},
                "queries": {name: len(frame) for name, frame in frames.items()},
                "unseen_keys": prediction.unseen_keys,
                "notes": grounding.bound.notes,
                "verdict": asdict(verdict),
                "joint_verdict": asdict(joint_verdict),
                **({} if options is None else {"sets": describe_sets(prediction, names, options)}),
                "seconds": prediction.seconds,
                "out": out,
            }
        )
        if interrupted:
            exit_interrupted()
        return
    holdout.note_held_out_labels(grounding)
    tables.note_cache_use()
    print_notes(grounding.bound.notes)
    for template, count in prediction.unseen_keys.items():
        print_note(f"{count:,} keys of template '{template}' did not occur in training; they have no learned weights")
    for name, frame in frames.items():
        block = prediction.block(name)
        width = len(block.argument_names) + SHOWN_COLUMNS + block.is_numeric
        shown = [row[:width] for row in frame.rows(10)]
        print_table(f"{name}: first {len(shown):,} of {len(frame):,} predictions", list(frame.columns)[:width], shown)
    if options is not None:
        print_sets_of_predictions(prediction, names, options)
    print_line(f"inferred in {prediction.seconds:.2f} s ({verdict})" + (f"; wrote {out}" if out else ""))
    if not (verdict.is_good or interrupted):
        print_note(
            "inference did not converge; select another method with --set inference=..., see docs/explanation/inference"
        )
    if verdict.status != "interrupted" and not joint_verdict.is_good:
        print_note(f"the column 'joint' may not contain the most probable joint state: {joint_verdict}")
    if interrupted:
        exit_interrupted()
