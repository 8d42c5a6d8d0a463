"""The origin of a report: the command that trains the same again, and the versions that wrote it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import relcrf
from relcrf.backends.learned import LearnedModel
from relcrf.backends.provenance import PACKAGES, TrainingProtocol
from relcrf.backends.registry import make, names

NO_DATA = ("--data", "DATA")
"""A placeholder for unknown data."""


def command(learned: LearnedModel, name: str, options: Sequence[str], protocol: TrainingProtocol) -> str:
    """Return the command that trains the same, to be run where the run folder is; one option a line.

    Args:
        name: Of the run folder.
        options: The words that name the data and what is held out; if there are none, the data are a placeholder, and the
            protocol tells what was held out.
    """
    held = (
        [] if protocol.split is None else [("--split", protocol.split), *(("--hold", value) for value in protocol.hold)]
    )
    pairs = [*zip(options[::2], options[1::2], strict=True)] or [NO_DATA, *held]
    pairs += [("--backend", learned.backend), *_set(learned.settings)]
    pairs += [("--calibrate", str(protocol.calibrate))] if protocol.calibrate else []
    pairs += [("--out", f"{name}-again")]
    lines = [f"relcrf train {_model(name)}", *(f"    {option} {shlex.quote(value)}" for option, value in pairs)]
    return " \\\n".join(lines)


def variant(learned: LearnedModel, name: str, options: Sequence[str], other: Sequence[str], ending: str) -> str:
    """Return a command that trains with the settings that differ from the backend's defaults, and with other options.

    Args:
        name, options: See `command`. ending: Of the name of the new run folder.
    """
    usual = asdict(make(learned.backend)) if learned.backend in names() else {}
    given = {word.partition("=")[0] for word in other}
    changed = {n: value for n, value in learned.settings.items() if usual.get(n) != value and n not in given}
    chosen = [word for pair in _set(changed) for word in pair]
    words = [*(options or NO_DATA), "--backend", learned.backend, *chosen, *other, "--out", f"{name}-{ending}"]
    return f"relcrf train {_model(name)} {shlex.join(words)}"


def _model(name: str) -> str:
    return shlex.quote(f"{name}/model.rcrf")


def _set(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return [("--set", f"{name}={text}") for name, text in texts.items()]


def versions() -> dict[str, str]:
    """Return those of relcrf, Python, and the packages that results depend on."""
    found = {"relcrf": relcrf.__version__, "Python": platform.python_version()}
    return found | {package: version(package) for package in PACKAGES if package not in found}
