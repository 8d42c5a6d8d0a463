"""The origin of a report: the command that trains the same again, and the versions that wrote it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import relcrf
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.provenance import PACKAGES, TrainingProtocol
from relcrf.backends.registry import backend_names, make_backend

DATA_PLACEHOLDER = ("--data", "DATA")
"""A placeholder for unknown data."""


def train_command(learned: LearnedModel, name: str, options: Sequence[str], protocol: TrainingProtocol) -> str:
    """Return the command that trains the same, to be run where the run folder is; one option a line.

    Args:
        name: Of the run folder.
        options: The words that name the data and what is held out; if there are none, the data are a placeholder, and the
            protocol tells what was held out.
    """
    held = (
        []
        if protocol.split is None
        else [("--split", protocol.split), *(("--holdout", value) for value in protocol.holdout)]
    )
    pairs = [*zip(options[::2], options[1::2], strict=True)] or [DATA_PLACEHOLDER, *held]
    pairs += [("--backend", learned.backend), *_setting_options(learned.settings)]
    pairs += [("--calibrate", str(protocol.calibrate))] if protocol.calibrate else []
    pairs += [("--out", f"{name}-again")]
    lines = [f"relcrf train {_model_path(name)}", *(f"    {option} {shlex.quote(value)}" for option, value in pairs)]
    return " \\\n".join(lines)


def variant_command(
    learned: LearnedModel, name: str, options: Sequence[str], extra_options: Sequence[str], suffix: str
) -> str:
    """Return a command that trains with the settings that differ from the backend's defaults, and with other options.

    Args:
        name, options: See `command`. ending: Of the name of the new run folder.
    """
    usual = asdict(make_backend(learned.backend)) if learned.backend in backend_names() else {}
    given = {word.partition("=")[0] for word in extra_options}
    changed = {n: value for n, value in learned.settings.items() if usual.get(n) != value and n not in given}
    chosen = [word for pair in _setting_options(changed) for word in pair]
    words = [
        *(options or DATA_PLACEHOLDER),
        "--backend",
        learned.backend,
        *chosen,
        *extra_options,
        "--out",
        f"{name}-{suffix}",
    ]
    return f"relcrf train {_model_path(name)} {shlex.join(words)}"


def _model_path(name: str) -> str:
    return shlex.quote(f"{name}/model.rcrf")


def _setting_options(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return [("--set", f"{name}={text}") for name, text in texts.items()]


def package_versions() -> dict[str, str]:
    """Return those of relcrf, Python, and the packages that results depend on."""
    found = {"relcrf": relcrf.__version__, "Python": platform.python_version()}
    return found | {package: version(package) for package in PACKAGES if package not in found}
