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
from relcrf.grounding.derive import Progress
from relcrf.proposal.draft import Draft, draft, look
from relcrf.proposal.manifest import Shaping
from relcrf.proposal.scheme import Scheme
from relcrf.proposal.target import Target


@dataclass(frozen=True)
class Proposal:
    """A draft that was written to files.

    Args:
        model: the file. manifest: of the tables' manifest and where it belongs, where the model needs one.
        data: the value for --data. commands: what to run next.
    """

    draft: Draft
    model: Path
    manifest: tuple[Path, str] | None
    data: str
    commands: tuple[str, ...]


def propose(
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
    folder = _folder(source)
    beside = None if folder is None else folder / f"{model.stem}.toml"
    for path in (model, beside):
        if path is not None and path.exists() and not force:
            hint = "name another file with --out, or write over it with --force"
            raise UsageError(Diagnostic("E374", f"the file '{path}' is there already", hint=hint))
    if model.suffix != ".rcrf":
        raise UsageError(Diagnostic("E374", f"'{model}' is no name of a model", hint="end it in .rcrf"))
    shaping = Shaping(folder)
    idea = look(Dataset(source, memory=memory), predicted, shaping, progress)
    manifest = (beside, shaping.text(model.name)) if shaping.is_needed and beside is not None else None
    data = str(beside) if manifest else source
    commands = _commands(model, data, idea.scheme, idea.target)
    partial = _write_partial(*manifest) if manifest else None
    try:
        given = Dataset(str(partial) if partial else source, memory=memory)
        found = draft(model.name, idea, given, commands, progress)
        _write(model, found.text)
        if manifest and partial:
            os.replace(partial, manifest[0])
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
    return Proposal(found, model, manifest, data, commands)


def _folder(source: str) -> Path | None:
    """The folder whose files a manifest may name; None where the source is no plain folder."""
    if source.startswith(SCHEMES):
        return None
    path = Path(source)
    return path if path.is_dir() and not (path / FILE_NAME).is_file() else None


def _write_partial(path: Path, text: str) -> Path:
    partial = path.with_name(f".{path.stem}.partial.toml")
    partial.write_text(text, encoding="utf-8")
    return partial


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _commands(model: Path, data: str, scheme: Scheme, target: Target) -> tuple[str, ...]:
    """What to run next."""
    name, given = shlex.quote(str(model)), shlex.quote(data)
    run = shlex.quote(f"runs/{model.stem}")
    split = target.entity.split if target.entity is not None else None
    backend = (
        " --backend trmrf" if target.link is not None and not target.link.levels and _has_candidates(target) else ""
    )
    return (
        f"relcrf check {name} --data {given}",
        f"relcrf plan {name} --data {given}",
        f"relcrf evaluate {name} --data {given} --split {shlex.quote(split or 'hide=0.1')}{backend}",
        f"relcrf train {name} --data {given} --out {run}{backend}",
        f"relcrf predict {run} --data {given} --out predictions.csv",
    )


def _has_candidates(target: Target) -> bool:
    return target.link is not None and sum(a.entity is None for a in target.link.arguments) == 1
