"""The reproduce command: repeat the training of a run and compare the files byte by byte."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer

from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.checkpoints import CheckpointMonitor
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.provenance import Provenance, TrainingProtocol, table_digests, versions
from relcrf.cli.flat_options import JsonOption, ManifestOption
from relcrf.cli.help_panels import RESOURCES
from relcrf.cli.options import DataOption, RunArgument, run_manifest
from relcrf.cli.output import print_json, print_line, print_note, print_table
from relcrf.cli.progress import show_progress
from relcrf.data.dataset import Dataset
from relcrf.data.store import parse_size
from relcrf.errors import DataError, Diagnostic, UsageError, listing
from relcrf.execution.memory import AUTOMATIC_MEMORY, DEFAULT_MEMORY, available_bytes
from relcrf.progress_reporting import ProgressMonitor
from relcrf.training import TrainingRequest

T = TypeVar("T")

LOCAL_MASTER = re.compile(r"local(-cluster)?(\[[\d*]{1,3}(, *\d{1,5}){0,2}\])?")
"""Pattern of the URLs of Spark masters on this machine, with a plausible number of cores."""


def reproduce(
    run: RunArgument,
    data: DataOption,
    manifest: ManifestOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="INT",
            rich_help_panel=RESOURCES,
            help="Number of worker processes; 0 to learn in this process. Default: as in the run.",
        ),
    ] = None,
    spark_master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            rich_help_panel=RESOURCES,
            help="Spark master to ground and learn on. Default: the master of the run, if it is local.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=RESOURCES,
            help="Memory limit for tables and the ground graph. Default: as in the run.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Repeat the training of a run, and verify that all files are identical.

    The exit code is 3 if the data differ from the training data of the run, or if a file differs.

    Example: relcrf reproduce runs/webkb --data webkb/
    """
    original = run_folder.load(run)
    stored = run_folder.load_provenance(run)
    if stored is None:
        message = f"the run folder '{run}' has no provenance"
        hint = "use a run written by 'relcrf train'; runs saved from Python do not store their provenance"
        raise UsageError(Diagnostic("E430", message, hint=hint))
    protocol = _local_protocol(stored.protocol, run, workers, spark_master, memory)
    changed_versions = {name: (was, now) for name, was, now in _pair_by_name(stored.versions, versions()) if was != now}
    with show_progress(quiet=as_json) as display:
        display.start_phase("reading tables")
        dataset = Dataset(data, manifest=run_manifest(run, data, manifest), memory=protocol.memory)
        rerun = _rerun_training(original, stored, protocol, run, dataset, dataset.store.new_folder() / "run", display)
        rows = _compare_files(run, rerun)
    changed = {row["file"]: row["difference"] for row in rows if not row["same"]}
    if not as_json:
        for name, (was, now) in changed_versions.items():
            print_note(f"{name}: version {was or 'none'} in the run, {now or 'none'} now")
        results = [[row["file"], changed.get(row["file"], "identical")] for row in rows]
        print_table(f"reproduction of '{run}'", ("file", "result"), results)
    if changed:
        notes = tuple(f"{name}: {difference}" for name, difference in changed.items())
        if as_json:
            notes += tuple(
                f"{name}: version {was} in the run, {now} now" for name, (was, now) in changed_versions.items()
            )
        hint = (
            "use the package versions of the run, on the same kind of processor"
            if changed_versions
            else "please report this bug"
        )
        message = f"the run was not reproduced: {listing(changed)} differ"
        raise DataError(Diagnostic("E432", message, hint=hint, notes=notes))
    if as_json:
        changes = {name: {"was": was, "now": now} for name, (was, now) in changed_versions.items()}
        print_json({"same": True, "files": [row["file"] for row in rows], "versions": changes})
        return
    print_line(f"reproduced: {len(rows)} files are identical")


def _pair_by_name(was: Mapping[str, T], now: Mapping[str, T]) -> list[tuple[str, T | None, T | None]]:
    return [(name, was.get(name), now.get(name)) for name in sorted(was.keys() | now.keys())]


def _local_protocol(
    protocol: TrainingProtocol, run: Path, workers: int | None, spark_master: str | None, memory: str | None
) -> TrainingProtocol:
    """Return the protocol for this machine. Run folders may be untrusted, so a remote Spark master in them is not used.

    Raises:
        UsageError: The run was trained on a remote Spark master, and no master is specified.
    """
    if spark_master is None and protocol.spark_master is not None and not LOCAL_MASTER.fullmatch(protocol.spark_master):
        message = f"the run '{run}' was trained on the Spark master '{protocol.spark_master}', which is not contacted by default"
        hint = "specify a master that you trust, e.g. --spark-master 'local[2]'"
        raise UsageError(Diagnostic("E424", message, hint=hint))
    # The result depends neither on the number of workers nor on the memory.
    limited = replace(protocol, workers=min(protocol.workers, os.cpu_count() or 1))
    if memory is None and protocol.memory == AUTOMATIC_MEMORY:  # earlier versions stored this value for the default
        limited = replace(limited, memory=DEFAULT_MEMORY)
    elif (
        memory is None
        and protocol.memory not in ("", DEFAULT_MEMORY)
        and parse_size(protocol.memory) > available_bytes()
    ):
        print_note(f"the run was trained with --memory {protocol.memory}, which exceeds the available memory")
        limited = replace(limited, memory=DEFAULT_MEMORY)
    options: dict[str, Any] = {"workers": workers, "spark_master": spark_master, "memory": memory}
    return replace(limited, **{name: value for name, value in options.items() if value is not None})


def _rerun_training(
    original: LearnedModel,
    stored: Provenance,
    protocol: TrainingProtocol,
    run: Path,
    dataset: Dataset,
    out: Path,
    display: ProgressMonitor,
) -> Path:
    """Repeat the training and return the new run folder.

    Raises:
        DataError: The data differ from the training data of the run.
    """
    model = api.load(run / "model.rcrf")
    requested = original.original_request
    request = TrainingRequest(model.spec, requested.backend, requested.settings, dataset, protocol)
    training = request.ground(display.report_grounding)
    provenance = replace(stored, fingerprint=training.identity, tables=table_digests(training.grounding.bound))
    changed = [name for name, was, now in _pair_by_name(stored.tables, provenance.tables) if was != now]
    if training.identity != stored.fingerprint:
        tables = f": {listing(changed)} changed" if changed else ""
        message = f"the data differ from the training data of '{run}'{tables}"
        raise DataError(Diagnostic("E431", message, hint="pass the training tables with --data; see manifest.json"))
    if changed and stored.versions.get("duckdb") == versions()["duckdb"]:
        print_note(f"{listing(changed)} changed, but not in the columns that the model reads")
    partial = run_folder.prepare_partial_folder(out, resume=False, sync=False)
    monitor = CheckpointMonitor(partial, training.identity, display.step, sync=False)
    with request.executor() as executor:
        learned = training.run(monitor, executor)
    # The tables are equal, even if another manifest than that of the run describes them, or files of another format.
    described = replace(learned, mapping=original.mapping, formats=original.formats)
    run_folder.save(described, out, {}, provenance=provenance, sync=False)
    return out


def _compare_files(run: Path, rerun: Path) -> list[dict[str, Any]]:
    """Return one row per file name in either run; the row describes the difference if the two files differ."""
    old, new = run_folder.manifest_hashes(run), run_folder.manifest_hashes(rerun)
    rows = []
    for name, was, now in _pair_by_name(old, new):
        row: dict[str, Any] = {"file": name, "same": was == now}
        rows.append(row if was == now else {**row, "difference": _describe_difference(run / name, rerun / name)})
    return rows


def _describe_difference(one: Path, other: Path) -> str:
    """Describe the difference between two files of the same name."""
    if not (one.exists() and other.exists()):
        return f"only in the {'original' if one.exists() else 'new'} run"
    if one.suffix == ".npy":
        was, now = (np.load(path, allow_pickle=False) for path in (one, other))
        if was.shape == now.shape:
            return f"maximum difference {float(np.abs(was - now).max(initial=0.0)):.2e}"
    return "different content"
