"""Where a report comes from: the command that trains the same again, and the versions that wrote it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import relcrf
from relcrf.backends.learned import LearnedModel

_PACKAGES = ("numpy", "scipy", "numba", "duckdb")


def command(learned: LearnedModel, name: str, options: Sequence[str] = ()) -> str:
    """The command that trains the same, to be given where the run folder is; one option a line.

    Args:
        name: of the run folder.
        options: what says the data and what is held out; without them it stands in capitals.
    """
    pairs = [f"{setting}={_text(value)}" for setting, value in learned.settings.items()]
    words = ["--backend", learned.backend, *(word for pair in pairs for word in ("--set", pair))]
    words = [*(options or ("--data", "DATA")), *words, "--out", f"{name}-again"]
    lines = [f"relcrf train {shlex.quote(f'{name}/model.rcrf')}"]
    lines += [f"    {option} {shlex.quote(value)}" for option, value in zip(words[::2], words[1::2], strict=True)]
    return " \\\n".join(lines)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def versions() -> dict[str, str]:
    """Of relcrf, Python, and the packages that figures depend on."""
    found = {"relcrf": relcrf.__version__, "Python": platform.python_version()}
    return found | {package: version(package) for package in _PACKAGES}
