"""From a folder of tables to a model file that is checked and grounded on them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from relcrf.data.dataset import Dataset
from relcrf.data.manifest import FILE_NAME
from relcrf.data.readers.postgres import SCHEMES
from relcrf.errors import Diagnostic, UsageError
from relcrf.files import atomic_path
from relcrf.grounding.derive import Progress
from relcrf.proposal.draft import ModelDraft, analyse_tables, draft_model
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.target import PredictionTarget


@dataclass(frozen=True)
class Proposal:
    """A draft that was written to files.

    Args:
        model: the file. manifest: of the tables' manifest and where it belongs, where the model needs one.
        data: the value for --data. commands: what to run next.
    """

    draft: ModelDraft
    model: Path
    manifest: tuple[Path, str] | None
    data: str
    commands: tuple[str, ...]


def write_proposal(
    source: str, model: Path, predicted: str | None, memory: str, *, force: bool, progress: Progress = lambda name: None
) -> Proposal:
    """Proposes a model of tables, verifies that it parses, checks and grounds on them, and writes it.

    Args:
        source: what `Dataset` reads. model: the file to write, ending in .rcrf. predicted: `Table.column`, or a relation's table.
        force: write over files that are there.

    Raises:
        UsageError: where a file is there already, or nothing can be predicted.
        DataError: where the tables cannot be read, or break their own keys.
    """
    folder = _manifest_folder(source)
    beside = None if folder is None else folder / f"{model.stem}.toml"
    for path in (model, beside):
        if path is not None and path.exists() and not force:
            hint = "name another file with --out, or write over it with --force"
            raise UsageError(Diagnostic("E374", f"the file '{path}' is there already", hint=hint))
    if model.suffix != ".rcrf":
        raise UsageError(Diagnostic("E374", f"'{model}' is no name of a model", hint="end it in .rcrf"))
    shaping = ManifestBuilder(folder)
    idea = analyse_tables(Dataset(source, memory=memory), predicted, shaping, progress)
    manifest = (beside, shaping.to_toml(model.name)) if shaping.is_needed and beside is not None else None
    data = str(beside) if manifest else source
    commands = _next_commands(model, data, idea.target)
    partial = beside.with_name(f".{beside.stem}.partial.toml") if manifest and beside is not None else None
    try:
        if manifest and partial is not None:
            partial.write_text(manifest[1], encoding="utf-8")
        given = Dataset(str(partial or source), memory=memory)
        found = draft_model(model.name, idea, given, commands, progress)
        model.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(model) as unfinished:
            unfinished.write_text(found.text, encoding="utf-8")
        if manifest and partial is not None:
            os.replace(partial, manifest[0])
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
    return Proposal(found, model, manifest, data, commands)


def _manifest_folder(source: str) -> Path | None:
    """The folder whose files a manifest may name; None where the source is no plain folder."""
    if source.startswith(SCHEMES):
        return None
    path = Path(source)
    return path if path.is_dir() and not (path / FILE_NAME).is_file() else None


def _next_commands(model: Path, data: str, target: PredictionTarget) -> tuple[str, ...]:
    """Return what to run next."""
    name, given = shlex.quote(str(model)), shlex.quote(data)
    run = shlex.quote(f"runs/{model.stem}")
    split, backend, link = target.entity.split_column if target.entity is not None else None, "", target.relation
    if link is not None and not link.levels and sum(a.entity is None for a in link.arguments) == 1:
        backend = " --backend trmrf"  # the model has candidates
    return (
        f"relcrf check {name} --data {given}",
        f"relcrf plan {name} --data {given}",
        f"relcrf evaluate {name} --data {given} --split {shlex.quote(split or 'hide=0.1')}{backend}",
        f"relcrf train {name} --data {given} --out {run}{backend}",
        f"relcrf predict {run} --data {given} --out predictions.csv",
    )
