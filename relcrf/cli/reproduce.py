"""The reproduce command: a run made again, and compared byte by byte."""

from __future__ import annotations

import os
import re
import tempfile
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
from relcrf.backends.provenance import Provenance, TrainingProtocol, table_contents, versions
from relcrf.cli.options import DataOption, JsonOption, RunArgument
from relcrf.cli.output import ProgressMonitor, print_json, print_line, print_note, print_table, show_progress
from relcrf.data.dataset import Dataset
from relcrf.errors import DataError, Diagnostic, UsageError, listing
from relcrf.training import TrainingRequest

T = TypeVar("T")

LOCAL_MASTER = re.compile(r"local(-cluster)?(\[[\d*]{1,3}(, *\d{1,5}){0,2}\])?")
"""Masters of Spark on this machine, of a size that it may have."""


def reproduce(
    run: RunArgument,
    data: DataOption,
    workers: Annotated[
        int | None, typer.Option(help="Learn by so many processes, 0: by this one; by default as the run did.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Ground and learn on Spark at this master; by default the run's, if it is local.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Limit of tables and ground columns in memory; by default the run's.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a run again from what its folder tells, and check that it is the same, byte by byte.

    Ends with exit code 3 where the data are others than those of the run, or where a file comes out otherwise.

    Example: relcrf reproduce runs/webkb --data webkb/
    """
    former = run_folder.load(run)
    made_of = run_folder.load_provenance(run)
    if made_of is None:
        message = f"the run folder '{run}' does not tell how it was made"
        raise UsageError(Diagnostic("E430", message, hint="runs of 'relcrf train' do; those saved from Python do not"))
    asked = _local_protocol(made_of.protocol, run, workers, master, memory)
    others = {name: (was, now) for name, was, now in _pair_by_name(made_of.versions, versions()) if was != now}
    with show_progress(quiet=as_json) as watch, tempfile.TemporaryDirectory(prefix="relcrf-") as folder:
        again = _rerun_training(former, made_of, asked, run, data, Path(folder) / "run", watch)
        rows = _compare_files(run, again)
    changed = {row["file"]: row["difference"] for row in rows if not row["same"]}
    if not as_json:
        for name, (was, now) in others.items():
            print_note(f"{name} was {was or 'not there'}, and is {now or 'not there'}")
        print_table(
            f"'{run}' made again", ("file", ""), [[row["file"], changed.get(row["file"], "the same")] for row in rows]
        )
    if changed:
        notes = tuple(f"{name}: {difference}" for name, difference in changed.items())
        notes += tuple(f"{name} was {was}, and is {now}" for name, (was, now) in others.items() if as_json)
        hint = "other versions or another processor may be why" if others else "please report this: it should not be"
        message = f"the run is not reproduced: {listing(changed)} came out otherwise"
        raise DataError(Diagnostic("E432", message, hint=hint, notes=notes))
    if as_json:
        found = {name: {"was": was, "now": now} for name, (was, now) in others.items()}
        print_json({"same": True, "files": [row["file"] for row in rows], "versions": found})
        return
    print_line(f"reproduced: {len(rows)} files, the same bytes")


def _pair_by_name(was: Mapping[str, T], now: Mapping[str, T]) -> list[tuple[str, T | None, T | None]]:
    return [(name, was.get(name), now.get(name)) for name in sorted(was.keys() | now.keys())]


def _local_protocol(
    protocol: TrainingProtocol, run: Path, workers: int | None, master: str | None, memory: str | None
) -> TrainingProtocol:
    """How it is asked for on this machine. The folder may be a stranger's: it names no other machine to work on.

    Raises:
        UsageError: where the run's Spark is elsewhere, and no master is given.
    """
    if master is None and protocol.spark_master is not None and not LOCAL_MASTER.fullmatch(protocol.spark_master):
        message = (
            f"the run '{run}' was made on Spark at '{protocol.spark_master}', which is not used without being asked for"
        )
        hint = "name a master that you trust: --master 'local[2]', or that one"
        raise UsageError(Diagnostic("E424", message, hint=hint))
    # The result is the same whatever their number is.
    most = replace(protocol, workers=min(protocol.workers, os.cpu_count() or 1))
    given: dict[str, Any] = {"workers": workers, "master": master, "memory": memory}
    return replace(most, **{name: value for name, value in given.items() if value is not None})


def _rerun_training(
    original: LearnedModel,
    made_of: Provenance,
    protocol: TrainingProtocol,
    run: Path,
    data: str,
    out: Path,
    watch: ProgressMonitor,
) -> Path:
    """The folder of the run that comes out now.

    Raises:
        DataError: where the data are others.
    """
    model = api.load(run / "model.rcrf")
    watch.start_phase("reading tables")
    dataset = Dataset(data, memory=protocol.memory)
    request = TrainingRequest(model.spec, original.backend, original.settings, dataset, protocol)
    training = request.ground(watch.report_grounding)
    provenance = replace(made_of, fingerprint=training.identity, tables=table_contents(training.grounding.bound))
    changed = [name for name, was, now in _pair_by_name(made_of.tables, provenance.tables) if was != now]
    if training.identity != made_of.fingerprint:
        what = f": {listing(changed)} changed" if changed else ""
        message = f"these are not the data that '{run}' was learned from{what}"
        raise DataError(Diagnostic("E431", message, hint="name the same tables with --data; see manifest.json"))
    if changed and made_of.versions.get("duckdb") == versions()["duckdb"]:
        print_note(f"{listing(changed)} changed, in nothing that the model reads")
    monitor = CheckpointMonitor(run_folder.prepare_partial_folder(out, resume=False), training.identity, watch.step)
    with request.executor() as executor:
        learned = training.run(monitor, executor)
    run_folder.save(learned, out, {}, provenance=provenance)
    return out


def _compare_files(run: Path, rerun: Path) -> list[dict[str, Any]]:
    """Each file of either run, and what differs."""
    old, new = run_folder.manifest_hashes(run), run_folder.manifest_hashes(rerun)
    rows = []
    for name, was, now in _pair_by_name(old, new):
        row: dict[str, Any] = {"file": name, "same": was == now}
        rows.append(row if was == now else {**row, "difference": _describe_difference(run / name, rerun / name)})
    return rows


def _describe_difference(one: Path, other: Path) -> str:
    """What differs between two files of a name."""
    if not (one.exists() and other.exists()):
        return f"only {'then' if one.exists() else 'now'}"
    if one.suffix == ".npy":
        was, now = (np.load(path, allow_pickle=False) for path in (one, other))
        if was.shape == now.shape:
            return f"the largest difference is {float(np.abs(was - now).max(initial=0.0)):.2e}"
    return "another content"
