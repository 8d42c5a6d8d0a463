"""Proposals: model files for a folder of tables. A model is checked and grounded on the tables before it is written."""

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
from relcrf.printable import mask_passwords
from relcrf.proposal.draft import ModelDraft, analyse_tables, draft_model
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.target import PredictionTarget


@dataclass(frozen=True)
class Proposal:
    """A draft that was written to the model file `model`.

    Args:
        manifest: Path and text of the manifest; None if the model does not need a manifest.
        data: The value of --data for commands that use this model.
        commands: Commands for the user to run next.
    """

    draft: ModelDraft
    model: Path
    manifest: tuple[Path, str] | None
    data: str
    commands: tuple[str, ...]


def write_proposal(
    source: str, model: Path, predicted: str | None, memory: str, *, force: bool, progress: Progress = lambda name: None
) -> Proposal:
    """Propose a model of tables, check and ground it (see `draft_model`), and write it to a file.

    Args:
        source: A folder, file or URL that `Dataset` reads.
        model: Path of the model file to write, with the suffix .rcrf.
        predicted: The target: `Table.column`, or the table of a relation; None to choose the most plausible target.
        force: Overwrite existing files.

    Raises:
        UsageError: A file exists already, or nothing can be predicted.
        DataError: The tables cannot be read, or their keys are not unique.
    """
    folder = _manifest_folder(source)
    manifest_path = None if folder is None else folder / f"{model.stem}.toml"
    for path in (model, manifest_path):
        if path is not None and path.exists() and not force:
            hint = "choose another file with --out, or overwrite it with --force"
            raise UsageError(Diagnostic("E374", f"the file '{path}' already exists", hint=hint))
    if model.suffix != ".rcrf":
        raise UsageError(Diagnostic("E374", f"'{model}' is not a model file name", hint="use the suffix .rcrf"))
    manifest_builder = ManifestBuilder(folder)
    analysis = analyse_tables(Dataset(source, memory=memory), predicted, manifest_builder, progress)
    manifest = (
        (manifest_path, manifest_builder.to_toml(model.name))
        if manifest_builder.is_needed and manifest_path is not None
        else None
    )
    data = str(manifest_path) if manifest else mask_passwords(source)
    commands = _next_commands(model, data, analysis.target)
    partial = (
        manifest_path.with_name(f".{manifest_path.stem}.partial.toml")
        if manifest and manifest_path is not None
        else None
    )
    try:
        if manifest and partial is not None:
            partial.write_text(manifest[1], encoding="utf-8")
        dataset = Dataset(str(partial or source), memory=memory)
        draft = draft_model(model.name, analysis, dataset, commands, progress)
        model.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(model) as unfinished:
            unfinished.write_text(draft.text, encoding="utf-8")
        if manifest and partial is not None:
            os.replace(partial, manifest[0])
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
    return Proposal(draft, model, manifest, data, commands)


def _manifest_folder(source: str) -> Path | None:
    """Return the source if it is a folder without a manifest, so that a manifest can be written; otherwise None."""
    if source.startswith(SCHEMES):
        return None
    path = Path(source)
    return path if path.is_dir() and not (path / FILE_NAME).is_file() else None


def _next_commands(model: Path, data: str, target: PredictionTarget) -> tuple[str, ...]:
    name, data_argument = shlex.quote(str(model)), shlex.quote(data)
    run_folder = shlex.quote(f"runs/{model.stem}")
    split, backend, relation = target.entity.split_column if target.entity is not None else None, "", target.relation
    if relation is not None and not relation.levels and sum(a.entity is None for a in relation.arguments) == 1:
        backend = " --backend trmrf"  # the model declares candidate templates, among which trmrf chooses
    return (
        f"relcrf check {name} --data {data_argument}",
        f"relcrf plan {name} --data {data_argument}",
        f"relcrf evaluate {name} --data {data_argument} --split {shlex.quote(split or 'hide=0.1')}{backend}",
        f"relcrf train {name} --data {data_argument} --out {run_folder}{backend}",
        f"relcrf predict {run_folder} --data {data_argument} --out predictions.csv",
    )
