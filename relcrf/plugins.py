"""Plugins: backends, readers and functions of other packages, registered as entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import Any

from relcrf.errors import Diagnostic, UsageError

ENTRY_POINT_GROUPS = ("relcrf.backends", "relcrf.functions", "relcrf.readers")


def list_entries(entry_points: Callable[..., Iterable[EntryPoint]], group: str) -> tuple[EntryPoint, ...]:
    """List the entry points of a group in all installed packages, sorted by name.

    Args:
        entry_points: The function `importlib.metadata.entry_points`, or a replacement.
    """
    return _cached_entries(entry_points, group, tuple(sys.path))


@lru_cache(maxsize=16)
def _cached_entries(
    entry_points: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]
) -> tuple[EntryPoint, ...]:
    """List entry points, cached per `sys.path`: reading all metadata takes longer than inference on a small graph."""
    return tuple(sorted(entry_points(group=group), key=lambda entry: entry.name))


def package_name(entry: EntryPoint) -> str:
    """Return the name of the package that provides an entry point."""
    return entry.dist.name if entry.dist else entry.value


def plugin_versions(entry_points: Callable[..., Iterable[EntryPoint]]) -> dict[str, str]:
    """Return the version of each package that provides plugins, by package name; relcrf itself is omitted."""
    dists = [
        entry.dist
        for group in ENTRY_POINT_GROUPS
        for entry in list_entries(entry_points, group)
        if entry.dist is not None
    ]
    return {dist.name: dist.version for dist in dists if dist.name != "relcrf"}


def load_entry(entry: EntryPoint, code: str, kind: str, find_problem: Callable[[Any], str | None]) -> Any:
    """Load the object of an entry point.

    Args:
        code: Error code of the diagnostic.
        kind: Kind of plugin for the message, such as `backend`.
        find_problem: A function that returns an error message for an invalid object, or None for a valid one.

    Raises:
        UsageError: The package is broken.
    """
    try:
        loaded = entry.load()
    except Exception as error:  # any exception during the import is an error of the package
        problem: str | None = f"{type(error).__name__}: {error}"
    else:
        problem = find_problem(loaded)
        if problem is None:
            return loaded
    package = package_name(entry)
    message = f"{kind} '{entry.name}' of package '{package}' cannot be loaded"
    hint = f"fix or uninstall '{package}'"
    raise UsageError(Diagnostic(code, message, hint=hint, notes=(str(problem),)))
