"""What other packages bring: backends, readers and functions, found by entry points and told by their package's name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import Any

from relcrf.errors import Diagnostic, UsageError

GROUPS = ("relcrf.backends", "relcrf.functions", "relcrf.readers")


def found(find: Callable[..., Iterable[EntryPoint]], group: str) -> tuple[EntryPoint, ...]:
    """The entries of all installed packages, by name.

    Args:
        find: `importlib.metadata.entry_points`.
    """
    return _found(find, group, tuple(sys.path))


@lru_cache(maxsize=16)
def _found(find: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """To read the metadata of all packages on a path takes longer than to infer on a small graph."""
    return tuple(sorted(find(group=group), key=lambda entry: entry.name))


def package_of(entry: EntryPoint) -> str:
    """The name of the package that brings an entry."""
    return entry.dist.name if entry.dist else entry.value


def versions(find: Callable[..., Iterable[EntryPoint]]) -> dict[str, str]:
    """The version of each other package that brings something, by its name."""
    dists = [entry.dist for group in GROUPS for entry in found(find, group) if entry.dist is not None]
    return {dist.name: dist.version for dist in dists if dist.name != "relcrf"}


def load(entry: EntryPoint, code: str, what: str, problem_of: Callable[[Any], str | None]) -> Any:
    """What an entry stands for.

    Args:
        what: such as `backend`, for the message.
        problem_of: says what is wrong with what was loaded; None where nothing is.

    Raises:
        UsageError: with that code, where the package is broken.
    """
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a stranger's package raises at import is that package's mistake
        problem: str | None = f"{type(error).__name__}: {error}"
    else:
        problem = problem_of(loaded)
        if problem is None:
            return loaded
    package = package_of(entry)
    message = f"{what} '{entry.name}' of package '{package}' cannot be loaded"
    hint = f"mend or uninstall '{package}'"
    raise UsageError(Diagnostic(code, message, hint=hint, notes=(str(problem),)))
