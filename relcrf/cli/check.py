"""The check command. Without --data, it imports only the language, so that it starts fast."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.flat_options import JsonOption, ManifestOption, MemoryOption
from relcrf.cli.output import print_json, print_line, print_warnings
from relcrf.errors import Diagnostic, ModelError
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.model.spec import ModelSpec
from relcrf.model_files import load_valid


@dataclass(frozen=True)
class LoadedModel:
    """A model file without errors, and the warnings of the checker."""

    path: Path
    spec: ModelSpec
    warnings: Sequence[Diagnostic]

    def print_summary(self) -> None:
        """Print the numbers of declarations."""
        spec = self.spec
        derived = _format_count(spec.derived_relations, "derived relation")
        print_line(
            f"{self.path} is valid: {_format_count(spec.entities, 'entity type')}, "
            f"{_format_count(spec.relations, 'relation')}, "
            f"{_format_count(spec.random_relations, 'random relation')}, {derived}, "
            f"{_format_count(spec.templates, 'template')}, {_format_count(spec.rules, 'rule')}",
            style="green",
        )


def check(
    models: Annotated[list[Path], typer.Argument(metavar="MODELS...", help="Models, .rcrf files.")],
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", metavar="SOURCE", help="Tables to check against the models."),
    ] = None,
    manifest: ManifestOption = None,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Check models and, with --data, tables against the models; report all errors at once.

    Example: relcrf check models/webkb.rcrf --data webkb/
    """
    loaded = _load_models(models)
    if data:
        table_check = import_module("relcrf.cli.table_check")
        table_check.check_tables(loaded, data, manifest=manifest, memory=memory, as_json=as_json)
    elif as_json:
        print_json({"errors": [], "warnings": [w.as_dict() for model in loaded for w in model.warnings], "notes": []})
    else:
        for model in loaded:
            print_warnings(model.warnings)
            model.print_summary()


def _load_models(paths: Sequence[Path]) -> list[LoadedModel]:
    """Load models.

    Raises:
        ModelError: Models have errors; those of all models are reported.
    """
    loaded: list[LoadedModel] = []
    problems: list[Diagnostic] = []
    for path in paths:
        try:
            loaded.append(LoadedModel(path, *load_valid(path)))
        except ModelError as error:
            problems += error.diagnostics
    if problems:
        raise ModelError(problems)
    return loaded


def _format_count(items: Sized, noun: str) -> str:
    return f"{len(items)} {noun}" + "s" * (len(items) != 1)
