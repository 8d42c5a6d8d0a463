"""From a folder of tables to a model file that is checked and grounded on them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from relcrf import api
from relcrf.data.dataset import Dataset
from relcrf.data.manifest import FILE_NAME
from relcrf.data.readers.postgres import SCHEMES
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding.derive import Progress
from relcrf.grounding.preview import TemplatePlan
from relcrf.proposal.manifest import Shaping
from relcrf.proposal.profile import profiles
from relcrf.proposal.scheme import Scheme
from relcrf.proposal.survey import survey
from relcrf.proposal.target import Target, choose
from relcrf.proposal.templates import Piece, templates
from relcrf.proposal.text import model_text
from relcrf.proposal.things import find_things

MOST = 5_000_000
"""Bindings that a proposed template may have; a larger one is left as a comment."""

MOST_CANDIDATES = 50_000_000
"""As MOST, of candidates, which nothing is written down for before they are chosen."""


@dataclass(frozen=True)
class Project:
    """What was proposed, and verified.

    Args:
        text: of the model. manifest: of the tables' manifest and where it belongs, where the model needs one.
        data: what to give to --data.
        plans: what each template grounds into. variables, labelled: of the ground graph.
        notes: what reading the tables took for granted.
    """

    model: Path
    text: str
    manifest: tuple[Path, str] | None
    data: str
    scheme: Scheme
    target: Target
    others: tuple[str, ...]
    pieces: tuple[Piece, ...]
    plans: tuple[TemplatePlan, ...]
    variables: int
    labelled: int
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def propose(
    source: str, model: Path, predicted: str | None, memory: str, *, force: bool, progress: Progress = lambda name: None
) -> Project:
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
    progress("tables")
    tables = profiles(Dataset(source, memory=memory))
    progress("references")
    shaping = Shaping(folder)
    scheme = survey(tables, find_things(tables), shaping)
    target, others = choose(scheme, predicted)
    pieces = templates(scheme, target)
    manifest = (beside, shaping.text(model.name)) if shaping.is_needed and beside is not None else None
    data = str(beside) if manifest else source
    commands = _commands(model, data, scheme, target)
    partial = _write_partial(*manifest) if manifest else None
    try:
        given = Dataset(str(partial) if partial else source, memory=memory)

        def texts(kept: list[Piece]) -> str:
            return model_text(model.name, scheme, target, kept, others, commands)

        progress("plan")
        parsed = api.parse(texts(pieces), str(model))
        plans = parsed.plan(given)
        heavy = {plan.name for plan in plans if plan.bindings > (MOST_CANDIDATES if plan.is_candidate else MOST)}
        empty = {plan.name for plan in plans if not plan.bindings}
        pieces = [replace(p, is_active=p.name not in heavy) for p in pieces if p.name not in empty]
        text = texts(pieces)
        parsed = api.parse(text, str(model))
        progress("ground")
        _, notes = parsed.check(given)
        grounding = parsed.ground(given, progress=progress)
        _write(model, text)
        if manifest and partial:
            os.replace(partial, manifest[0])
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
    labelled = int((grounding.states >= 0).sum())
    return Project(
        model, text, manifest, data, scheme, target, tuple(others), tuple(pieces),
        tuple(p for p in plans if p.name not in heavy | empty), grounding.graph.n_variables, labelled, commands, tuple(notes),
    )  # fmt: skip


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
