"""Reproduction of a run: commands that repeat the training, unchanged or with other options, and package versions."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import relcrf
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.provenance import PACKAGES, TrainingProtocol
from relcrf.backends.registry import backend_names, make_backend
from relcrf.backends.run_folder import TABLES

_PLACEHOLDER = ("--data", "DATA")


def placeholder_options(learned: LearnedModel, run: str) -> tuple[str, ...]:
    """Return options with a placeholder for unknown data, and the manifest that the run stores.

    Commands that name the model of the run do not apply this manifest by themselves.
    """
    return _PLACEHOLDER if learned.mapping is None else (*_PLACEHOLDER, "--manifest", f"{run}/{TABLES}")


def run_words(run: Path) -> str:
    """Return the path of a run for commands that are pasted in the current folder, as it was given if it has a name."""
    return os.path.abspath(run) if run.name in ("", "..") else str(run)


def table_options(options: Sequence[str]) -> tuple[str, ...]:
    """Return the options that name the tables, without those that name held-out labels."""
    pairs = zip(options[::2], options[1::2], strict=True)
    return tuple(word for pair in pairs if pair[0] in ("--data", "--manifest") for word in pair)


def train_command(learned: LearnedModel, run: str, options: Sequence[str], protocol: TrainingProtocol) -> str:
    """Return the command that repeats the training; one option per line.

    Args:
        run: The path of the run folder, see `run_words`.
        options: The command-line options that name the data and the held-out labels. If they are empty, the command
            contains a placeholder for the data and the split of the protocol.
    """
    plan = protocol.split_plan
    words = options or (*placeholder_options(learned, run), *(() if plan is None else plan.options))
    options_with_values = [*zip(words[::2], words[1::2], strict=True)]
    request = learned.original_request
    options_with_values += [("--backend", request.backend), *_setting_options(request.settings)]
    options_with_values += [("--calibrate", str(protocol.calibrate))] if protocol.calibrate else []
    options_with_values += [("--out", f"{run}-again")]
    lines = [
        f"relcrf train {model_path(run)}",
        *(f"    {option} {shlex.quote(value)}" for option, value in options_with_values),
    ]
    return " \\\n".join(lines)


def variant_command(
    learned: LearnedModel, run: str, options: Sequence[str], extra_options: Sequence[str], suffix: str
) -> str:
    """Return a command that trains the run's backend with its non-default settings and with further options.

    If backend `auto` was requested, the command names the backend that it chose, which accepts more options.

    Args:
        run, options: See `train_command`.
        suffix: The suffix of the name of the new run folder.
    """
    defaults = asdict(make_backend(learned.backend)) if learned.backend in backend_names() else {}
    overridden = {word.partition("=")[0] for word in extra_options}
    changed_settings = {
        n: value for n, value in learned.settings.items() if defaults.get(n) != value and n not in overridden
    }
    setting_words = [word for pair in _setting_options(changed_settings) for word in pair]
    words = [
        *(options or placeholder_options(learned, run)),
        "--backend",
        learned.backend,
        *setting_words,
        *extra_options,
        "--out",
        f"{run}-{suffix}",
    ]
    return f"relcrf train {model_path(run)} {shlex.join(words)}"


def model_path(run: str) -> str:
    """Return the quoted path of a run's model."""
    return shlex.quote(f"{run}/model.rcrf")


def _setting_options(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return [("--set", f"{name}={text}") for name, text in texts.items()]


def package_versions() -> dict[str, str]:
    """Return the versions of relcrf, Python, and the packages on which results depend."""
    versions = {"relcrf": relcrf.__version__, "Python": platform.python_version()}
    return versions | {package: version(package) for package in PACKAGES if package not in versions}
