"""Where a report comes from: the command that trains the same again, and the versions that wrote it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import relcrf
from relcrf.backends.learned import LearnedModel
from relcrf.backends.provenance import Provenance
from relcrf.backends.registry import make, names

NO_DATA = ("--data", "DATA")
"""Where nobody says which."""

_PACKAGES = ("numpy", "scipy", "numba", "duckdb")


def command(learned: LearnedModel, name: str, options: Sequence[str] = (), made_of: Provenance | None = None) -> str:
    """The command that trains the same, to be given where the run folder is; one option a line.

    Args:
        name: of the run folder.
        options: what says the data and what is held out; without them the data stand in capitals, and of the rest what is known.
    """
    words = [*(options or (*NO_DATA, *_held(made_of)))]
    words += ["--backend", learned.backend, *_set(learned.settings), *_calibrated(made_of), "--out", f"{name}-again"]
    pairs = zip(words[::2], words[1::2], strict=True)
    lines = [f"relcrf train {_model(name)}", *(f"    {option} {shlex.quote(value)}" for option, value in pairs)]
    return " \\\n".join(lines)


def variant(learned: LearnedModel, name: str, options: Sequence[str], other: Sequence[str], ending: str) -> str:
    """A command that trains otherwise: with the settings that are not the backend's own, and other options beside them.

    Args:
        name, options: see `command`. ending: of the name of the new run folder.
    """
    usual = defaults(learned.backend)
    given = {word.partition("=")[0] for word in other}
    changed = {
        setting: value
        for setting, value in learned.settings.items()
        if usual.get(setting) != value and setting not in given
    }
    words = [*(options or NO_DATA), "--backend", learned.backend, *_set(changed), *other, "--out", f"{name}-{ending}"]
    return f"relcrf train {_model(name)} {shlex.join(words)}"


def defaults(backend: str) -> dict[str, Any]:
    """The settings of a backend as it has them by itself; none where it is not installed here."""
    return asdict(make(backend)) if backend in names() else {}


def _model(name: str) -> str:
    return shlex.quote(f"{name}/model.rcrf")


def _set(settings: Mapping[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={_text(value)}")]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _held(made_of: Provenance | None) -> list[str]:
    if made_of is None or made_of.protocol.split is None:
        return []
    return ["--split", made_of.protocol.split, *(word for value in made_of.protocol.hold for word in ("--hold", value))]


def _calibrated(made_of: Provenance | None) -> list[str]:
    return (
        ["--calibrate", str(made_of.protocol.calibrate)] if made_of is not None and made_of.protocol.calibrate else []
    )


def tables(made_of: Provenance) -> list[tuple[str, int]]:
    """The tables that were learned from, each with its number of rows."""
    return [(name, content.rows) for name, content in sorted(made_of.tables.items())]


def versions() -> dict[str, str]:
    """Of relcrf, Python, and the packages that figures depend on."""
    found = {"relcrf": relcrf.__version__, "Python": platform.python_version()}
    return found | {package: version(package) for package in _PACKAGES}
