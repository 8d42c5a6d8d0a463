"""What other packages bring: backends, readers and functions, found by entry points and told by their package's name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import Any

from relcrf.errors import Diagnostic, UsageError

ENTRY_POINT_GROUPS = ("relcrf.backends", "relcrf.functions", "relcrf.readers")


def list_entries(entry_points: Callable[..., Iterable[EntryPoint]], group: str) -> tuple[EntryPoint, ...]:
    """The entries of all installed packages, by name.

    Args:
        entry_points: `importlib.metadata.entry_points`.
    """
    return _cached_entries(entry_points, group, tuple(sys.path))


@lru_cache(maxsize=16)
def _cached_entries(
    entry_points: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]
) -> tuple[EntryPoint, ...]:
    """To read the metadata of all packages on a path takes longer than to infer on a small graph."""
    return tuple(sorted(entry_points(group=group), key=lambda entry: entry.name))


def package_name(entry: EntryPoint) -> str:
    """The name of the package that brings an entry."""
    return entry.dist.name if entry.dist else entry.value


def plugin_versions(entry_points: Callable[..., Iterable[EntryPoint]]) -> dict[str, str]:
    """The version of each other package that brings something, by its name."""
    dists = [
        entry.dist
        for group in ENTRY_POINT_GROUPS
        for entry in list_entries(entry_points, group)
        if entry.dist is not None
    ]
    return {dist.name: dist.version for dist in dists if dist.name != "relcrf"}


def load_entry(entry: EntryPoint, code: str, kind: str, find_problem: Callable[[Any], str | None]) -> Any:
    """What an entry stands for.

    Args:
        kind: such as `backend`, for the message.
        find_problem: says what is wrong with what was loaded; None where nothing is.

    Raises:
        UsageError: with that code, where the package is broken.
    """
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a stranger's package raises at import is that package's mistake
        problem: str | None = f"{type(error).__name__}: {error}"
    else:
        problem = find_problem(loaded)
        if problem is None:
            return loaded
    package = package_name(entry)
    message = f"{kind} '{entry.name}' of package '{package}' cannot be loaded"
    hint = f"mend or uninstall '{package}'"
    raise UsageError(Diagnostic(code, message, hint=hint, notes=(str(problem),)))
