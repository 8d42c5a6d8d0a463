"""Model files: reading, parsing and checking in one step."""

from __future__ import annotations

import os
from pathlib import Path

from relcrf.errors import Diagnostic, ModelError, path_suggestion
from relcrf.language.check import require_valid
from relcrf.language.parse import parse_with_errors
from relcrf.model.spec import ModelSpec
from relcrf.resources import resource_path


def load_valid(path: str | os.PathLike[str]) -> tuple[ModelSpec, list[Diagnostic]]:
    """Load a model from a `.rcrf` file; return it with the warnings of the checker.

    Raises:
        ModelError: The text has errors (all are reported), or the file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        message = f"the model '{path}' cannot be read: {(error.strerror or str(error)).lower()}"
        shipped = _shipped_model(Path(path).name)
        hint = f"relcrf contains a model with this name: {shipped}" if shipped else None
        hint = hint or path_suggestion(Path(path), _is_model) or "pass the path of a .rcrf file"
        if (Path(path) / "manifest.json").is_file():  # a run folder
            hint += "; in Python, relcrf.load_fit loads a run"
        raise ModelError(Diagnostic("E004", message, hint=hint)) from None
    except UnicodeDecodeError as error:
        message = f"the model '{path}' is not valid UTF-8: invalid byte at offset {error.start}"
        raise ModelError(Diagnostic("E004", message, hint="save it as UTF-8")) from None
    return parse_valid(text, str(path), Path(path).parent)


def parse_valid(text: str, name: str = "<model>", folder: Path | None = None) -> tuple[ModelSpec, list[Diagnostic]]:
    """Parse and check a model; return it with the warnings of the checker. For the arguments see `parse.parse`.

    Raises:
        ModelError: The text has errors; all are reported.
    """
    spec, problems = parse_with_errors(text, name, folder)
    return spec, require_valid(spec, problems)


def _is_model(path: Path) -> bool:
    return path.suffix == ".rcrf"


def _shipped_model(name: str) -> Path | None:
    try:
        return resource_path("models", name)
    except FileNotFoundError:
        return None
