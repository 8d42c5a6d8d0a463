"""Commands that learn and infer: train, predict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.base import AbstractBackend
from relcrf.backends.checkpoints import CheckpointMonitor
from relcrf.backends.export import render_learned_model, require_exportable
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.provenance import Provenance, TrainingProtocol
from relcrf.backends.registry import make_backend
from relcrf.cli.options import (
    GroundingOptions,
    HoldoutOptions,
    MaxFactorsOption,
    ModelArgument,
    OverrideSetOption,
    RunArgument,
    SessionOptions,
    SetOption,
)
from relcrf.cli.output import (
    parse_choices,
    parse_settings,
    print_error_line,
    print_json,
    print_line,
    print_note,
    print_table,
    print_warnings,
)
from relcrf.cli.time_limit import INTERRUPTED, exit_interrupted, time_limit_error
from relcrf.data.frame import require_writable
from relcrf.errors import ConvergenceError, Diagnostic, RelcrfError, UsageError
from relcrf.evaluation.selection import Selection
from relcrf.files import remove_folder, require_suffix, write_text
from relcrf.training import TrainingRequest


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """The backend that learns, and its settings."""

    backend: Annotated[str, typer.Option("--backend", "-b", help="The system that learns.")] = "ess"
    setting: SetOption = None
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            help="Values of a setting to choose from by labels that are held out, as l2=0.1,1,10; repeatable.",
        ),
    ] = None
    select_by: Annotated[str, typer.Option(help="What --select goes by: log_likelihood or accuracy.")] = (
        "log_likelihood"
    )
    calibrate: Annotated[
        int,
        typer.Option(min=0, help="Make the model as sure as it may be, by so many folds of the labels; 0: leave it."),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class RunFolderOptions:
    """The files that a training writes."""

    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder to write.")]
    resume: Annotated[bool, typer.Option(help="Go on with a training that was interrupted.")] = False
    force: Annotated[bool, typer.Option(help="Replace the run folder if it exists.")] = False
    strict: Annotated[bool, typer.Option(help="Fail with exit code 4 if learning does not converge.")] = False
    export: Annotated[
        Path | None,
        typer.Option(
            "--export-model", help="Where to write the model with the candidates that were chosen, a .rcrf file."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The processes or the cluster that work on a training."""

    workers: Annotated[int, typer.Option(help="Learn in shards by so many processes; 0: by this one.")] = 0
    master: Annotated[str | None, typer.Option(help="Ground and learn on Spark at this master: local[2].")] = None


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
    """Learn the weights of a model from the labels in the tables; write a run folder.

    Example: relcrf train models/webkb.rcrf --data webkb/ --split university --hold cornell --out runs/webkb
    """
    chosen, grid = parse_settings(learning.setting), parse_choices(learning.select)
    system = make_backend(learning.backend, **chosen)
    for name, values in grid.items():
        for value in values:
            make_backend(learning.backend, **{**chosen, name: value})
    loaded = api.load(model)
    read = [path for path in (tables.cache, None if "://" in tables.data else Path(tables.data)) if path is not None]
    run_folder.require_writable(folder.out, resume=folder.resume, force=folder.force, inputs=read)
    if folder.export is not None:
        _require_export_path(folder.export, loaded, system)
    started = time.perf_counter()
    with ExitStack() as claims:
        with session.show_progress() as watch:
            watch.start_phase("reading tables")
            protocol = _build_protocol(tables, learning, holdout, worker_options)
            request = TrainingRequest(loaded.spec, learning.backend, chosen, tables.dataset, protocol, max_factors)
            training = request.ground(watch.report_grounding, tables.block_cache)
            timings = {"ground": time.perf_counter() - started}
            selected = None
            if grid:
                watch.start_phase("selecting settings")
                selected = training.select(grid, by=learning.select_by)
                training = training.with_settings(selected.settings)
            claim = run_folder.claim_folder(folder.out, resume=folder.resume, force=folder.force)
            monitor = CheckpointMonitor(claims.enter_context(claim), training.identity, watch.step)
            with _save_if_interrupted(monitor, resume=folder.resume), request.executor() as executor:
                learned = training.run(monitor, executor)
        if folder.strict and not learned.converged:
            remove_folder(run_folder.partial_folder(folder.out))
            message = f"learning did not converge in {learned.settings.get('max_iterations', 'the allowed')} iterations"
            raise ConvergenceError(Diagnostic("E401", message, hint="allow more: --set max_iterations=1000 --force"))
        timings["learn"] = learned.seconds
        made_of = Provenance.collect(training.identity, protocol, training.grounding.bound)
        run_folder.save(learned, folder.out, timings, monitor.seconds, made_of)
    if folder.export is not None:
        write_text(folder.export, render_learned_model(learned))
    if session.as_json:
        figures = {"summary": learned.summary, "converged": learned.converged, "seconds": timings}
        chosen_by = {} if selected is None else {"settings": selected.settings, "selection": selected.rows}
        print_json({"run": folder.out, **figures, **chosen_by})
        return
    print_warnings(loaded.warnings)
    holdout.note_default_split(training.hidden)
    tables.note_cache_use()
    for text in training.grounding.bound.notes:
        print_note(text)
    _print_training(learned, selected)
    print_line(f"grounded in {timings['ground']:.2f} s, learned in {learned.seconds:.2f} s; the run is in {folder.out}")


def _build_protocol(
    tables: GroundingOptions, learning: LearningOptions, holdout: HoldoutOptions, worker_options: WorkerOptions
) -> TrainingProtocol:
    """Return what the command line requests beside the model and the settings."""
    plan = holdout.holdout_plan(tables.dataset.split)
    return TrainingProtocol(
        split=None if plan is None else plan.text,
        holdout=() if plan is None else plan.holdout,
        calibrate=learning.calibrate,
        workers=worker_options.workers,
        memory=tables.memory,
        budget=tables.budget,
        spark_master=worker_options.master,
    )


@contextmanager
def _save_if_interrupted(monitor: CheckpointMonitor, *, resume: bool) -> Iterator[None]:
    """Save the state of a training that is interrupted; leave nothing of one that fails before its first step."""
    partial = monitor.folder.parent
    try:
        yield
    except KeyboardInterrupt:
        monitor.save()
        kept = f"the state is in {partial}: go on with the same command and --resume"
        if over := time_limit_error(kept):
            raise over from None
        print_error_line(f"interrupted; {kept}")
        raise typer.Exit(INTERRUPTED) from None
    except RelcrfError:
        if not resume and monitor.progress.state is None:
            remove_folder(partial)  # refused, not interrupted: there is nothing to go on with
        raise


def _print_training(learned: LearnedModel, selected: Selection | None) -> None:
    """Print the figures of a training, and the settings that were tried."""
    if not learned.converged:
        late = "out of time" in learned.summary.values()
        allow = "a larger --set max_seconds=" if late else "--set max_iterations=1000"
        print_note(f"learning stopped before it converged; {allow} allows more")
    if selected is not None:
        of_whole = "in whole components" if selected.whole_components else "among the labels"
        title = f"settings, judged by {selected.n:,} variables held out {of_whole}"
        tried = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in selected.rows]
        print_table(title, [name.replace("_", " ") for name in selected.rows[0]], tried)
        print_note("chosen: " + ", ".join(f"{name}={value}" for name, value in selected.settings.items()))
    rows = [(n.replace("_", " "), f"{v:,}" if isinstance(v, int) else str(v)) for n, v in learned.summary.items()]
    print_table(f"trained by {learned.backend}", ("", ""), rows)


def _require_export_path(path: Path, model: api.Model, system: AbstractBackend) -> None:
    """Refuses what `--export-model` could not write, before any work is done; makes the file's folder."""
    require_suffix(path, (".rcrf",), "learned.rcrf")
    if not system.uses_candidates:
        message = f"backend '{system.name}' chooses no candidates, and so there is no other model to export"
        raise UsageError(
            Diagnostic("E392", message, hint="use --backend trmrf or grafting, or leave --export-model out")
        )
    require_exportable(model.spec)
    path.parent.mkdir(parents=True, exist_ok=True)


def predict(
    run: RunArgument,
    tables: GroundingOptions,
    holdout: HoldoutOptions,
    session: SessionOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write: .csv, .tsv, .jsonl, .parquet, .arrow.")
    ] = None,
    attribute: Annotated[str | None, typer.Option(help="Which predicted attribute, where there are several.")] = None,
    setting: OverrideSetOption = None,
    strict: Annotated[bool, typer.Option(help="Fail with exit code 4 if inference does not converge.")] = False,
) -> None:
    """Predict the missing values in the tables; known ones are evidence.

    Example: relcrf predict runs/webkb --data webkb/ --split university --hold cornell --out cornell.csv
    """
    if out is not None:
        require_writable(out)
    fit = api.load_fit(run)
    chosen: dict[str, Any] = dict(parse_settings(setting))
    fit.learned.configure_backend(**chosen)  # rejects what is no setting before any work is done
    with session.show_progress() as watch:
        grounding = tables.ground(fit, watch)
        watch.start_phase("inferring")
        hidden = holdout.hidden(grounding)
        found = api.predict(fit, grounding, hidden=hidden, observe=watch.report_inference, **chosen)
    verdict = found.verdict
    interrupted = verdict.status == "interrupted"
    if strict and not verdict.is_good and not interrupted:
        message = f"inference by backend '{fit.learned.backend}': {verdict}"
        raise ConvergenceError(
            Diagnostic("E402", message, hint="allow more iterations, or another --set inference=...")
        )
    names = [attribute] if attribute else found.attributes
    frames = {found.block(name).name: found.table(name) for name in names}
    if out is not None:
        if len(frames) > 1:
            hint = f"choose one with --attribute: {', '.join(frames)}"
            raise UsageError(Diagnostic("E310", "several attributes are predicted, and a file holds one", hint=hint))
        next(iter(frames.values())).write(out)
    if session.as_json:
        print_json(
            {
                "predictions": {} if out else {name: frame.to_dicts() for name, frame in frames.items()},
                "queries": {name: len(frame) for name, frame in frames.items()},
                "unseen_keys": found.unseen_keys,
                "verdict": asdict(verdict),
                "seconds": found.seconds,
                "out": out,
            }
        )
        if interrupted:
            exit_interrupted()
        return
    holdout.note_default_split(hidden)
    tables.note_cache_use()
    for template, count in found.unseen_keys.items():
        print_note(f"{count:,} keys of template '{template}' were never seen in training; their weights are 0")
    for name, frame in frames.items():
        shown = [row[:4] for row in frame.rows(10)]
        print_table(f"{name}: the first of {len(frame):,} predictions", list(frame.columns)[:4], shown)
    print_line(f"inferred in {found.seconds:.2f} s ({verdict})" + (f"; written to {out}" if out else ""))
    if not (verdict.is_good or interrupted):
        print_note("the probabilities had not settled; --set inference=... chooses another method, see docs/explanation/inference")
    if interrupted:
        exit_interrupted()
