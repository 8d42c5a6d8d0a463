"""Proposals: model files for a folder of tables. A model is checked, grounded and tried before it is written."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from relcrf.data.dataset import Dataset
from relcrf.data.manifest import FILE_NAME
from relcrf.data.readers.postgres import SCHEMES
from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.temporary import temporary_folder
from relcrf.files import atomic_path
from relcrf.grounding.derive import Progress
from relcrf.printable import mask_passwords
from relcrf.proposal.draft import ModelDraft, TableAnalysis, analyse_tables, draft_model
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.target import PredictionTarget
from relcrf.proposal.trial import ModelTrial, choose_model


@dataclass(frozen=True)
class Proposal:
    """A draft, to be written to the model file `model`.

    Args:
        manifest: Path and text of the manifest; None if the model does not need a manifest.
        data: The value of --data for commands that use this model; they also need the manifest, if there is one.
        commands: Commands for the user to run next.
        trial: The scores of the model on held-out labels; None if it was not tried.
    """

    draft: ModelDraft
    model: Path
    manifest: tuple[Path, str] | None
    data: str
    commands: tuple[str, ...]
    trial: ModelTrial | None

    def write(self) -> None:
        """Write the model, and the manifest if there is one."""
        self.model.parent.mkdir(parents=True, exist_ok=True)
        for path, text in filter(None, ((self.model, self.draft.text), self.manifest)):
            with atomic_path(path) as unfinished:
                unfinished.write_text(text, encoding="utf-8")


def propose(
    source: str,
    model: Path,
    predicted: str | None,
    memory: str,
    *,
    force: bool = False,
    with_trial: bool = False,
    with_aggregates: bool = True,
    analysed: tuple[TableAnalysis, ManifestBuilder] | None = None,
    progress: Progress = lambda name: None,
) -> Proposal:
    """Propose a model of tables, and check and ground it (see `draft_model`).

    Args:
        source: A folder, file or URL that `Dataset` reads.
        model: Path of the model file to write, with the suffix .rcrf.
        predicted: The target: `Table.column`, or the table of a relation; None to choose the most plausible target.
        force: Whether existing files may be overwritten.
        with_trial: Whether the model is trained to predict held-out labels, with and without aggregates; see `choose_model`.
        with_aggregates: Whether the trial compares models with aggregates.
        analysed: The result of `analyse_source`, if it is known.

    Raises:
        UsageError: A file exists already, or nothing can be predicted.
        DataError: The tables cannot be read, or their keys are not unique.
    """
    manifest_path = model.with_suffix(".toml") if _new_manifest(source).is_possible else None
    for path in (model, manifest_path):
        if path is not None and path.exists() and not force:
            hint = "choose another file with --out, or overwrite it with --force"
            raise UsageError(Diagnostic("E374", f"the file '{path}' already exists", hint=hint))
    if model.suffix != ".rcrf":
        raise UsageError(Diagnostic("E374", f"'{model}' is not a model file name", hint="use the suffix .rcrf"))
    analysis, manifest_builder = analysed or analyse_source(source, predicted, memory, progress)
    manifest = (
        (manifest_path, manifest_builder.to_toml(model.name))
        if manifest_builder.is_needed and manifest_path is not None
        else None
    )
    commands = _next_commands(model, mask_passwords(source), manifest and manifest[0], analysis.target)
    with temporary_folder() as temporary:
        manifest_draft = manifest and temporary / manifest[0].name
        if manifest and manifest_draft:
            manifest_draft.write_text(manifest[1], encoding="utf-8")
        dataset = Dataset(source, manifest=manifest_draft, memory=memory)
        draft, trial = draft_model(model.name, analysis, dataset, commands, progress), None
        if with_trial:
            draft, trial = choose_model(draft, progress, with_aggregates=with_aggregates)
    return Proposal(draft, model, manifest, mask_passwords(source), commands, trial)


def analyse_source(
    source: str, predicted: str | None, memory: str, progress: Progress = lambda name: None
) -> tuple[TableAnalysis, ManifestBuilder]:
    """Return the analysis of tables, and the manifest that describes or repairs them; for the errors see `propose`."""
    manifest = _new_manifest(source)
    return analyse_tables(Dataset(source, memory=memory), predicted, manifest, progress), manifest


def _new_manifest(source: str) -> ManifestBuilder:
    """Return a builder of a manifest for a source; a folder with a manifest, or a manifest, cannot have another one."""
    path = Path(source)
    if source.startswith(SCHEMES) or not path.is_dir():
        return ManifestBuilder(None, is_possible=path.suffix != ".toml")
    has_manifest = (path / FILE_NAME).is_file()
    return ManifestBuilder(None if has_manifest else path, is_possible=not has_manifest)


def _next_commands(model: Path, data: str, manifest: Path | None, target: PredictionTarget) -> tuple[str, ...]:
    name, tables = shlex.quote(str(model)), f"--data {shlex.quote(data)}"
    described = tables if manifest is None else f"{tables} --manifest {shlex.quote(str(manifest))}"
    run_folder = shlex.quote(f"runs/{model.stem}")
    split, backend, relation = target.entity.split_column if target.entity is not None else None, "", target.relation
    if relation is not None and not relation.levels and sum(a.entity is None for a in relation.arguments) == 1:
        backend = " --backend trmrf"  # the model declares candidate templates, among which trmrf chooses
    return (
        f"relcrf check {name} {described}",
        f"relcrf plan {name} {described}",
        f"relcrf evaluate {name} {described} --split {shlex.quote(split or 'hide=0.1')}{backend}",
        f"relcrf train {name} {described} --out {run_folder}{backend}",
        f"relcrf predict {run_folder} {tables} --out predictions.csv",
    )
