"""Backends by name. Ours and strangers' come in by the same entry points, `relcrf.backends`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from relcrf.backends.base import AbstractBackend
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.settings import converted, names_of

GROUP = "relcrf.backends"


def names() -> list[str]:
    """The names of all installed backends, sorted."""
    return sorted({entry.name for entry in _entries()})


def _entries() -> tuple[EntryPoint, ...]:
    return _found(entry_points, tuple(sys.path))


@lru_cache(maxsize=4)
def _found(find: Callable[..., Iterable[EntryPoint]], path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entries of all packages on a path: to read their metadata takes longer than to infer on a small graph."""
    return tuple(find(group=GROUP))


def backend_class(name: str) -> type[AbstractBackend]:
    """The backend of that name.

    Raises:
        UsageError: for an unknown name, or where the package that brings the backend is broken.
    """
    found = [entry for entry in _entries() if entry.name == name]
    if not found:
        hint = suggestion(name, names()) or f"installed backends: {listing(names())}"
        raise UsageError(Diagnostic("E301", f"unknown backend '{name}'", hint=hint))
    return _load(found[0])


def _load(entry: EntryPoint) -> type[AbstractBackend]:
    package = entry.dist.name if entry.dist else entry.value
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a stranger's package raises at import is that package's mistake
        problem = f"{type(error).__name__}: {error}"
    else:
        if isinstance(loaded, type) and issubclass(loaded, AbstractBackend):
            return loaded
        problem = f"{entry.value} is no subclass of relcrf.backends.base.AbstractBackend"
    raise UsageError(
        Diagnostic(
            "E303",
            f"backend '{entry.name}' of package '{package}' cannot be loaded",
            hint=f"mend or uninstall '{package}'",
            notes=(problem,),
        )
    )


def make(name: str, **settings: Any) -> AbstractBackend:
    """A backend with some of its settings changed. Texts are converted to the setting's type.

    Raises:
        UsageError: for an unknown backend or setting, or a value of the wrong type.
    """
    kind = backend_class(name)
    return kind(**converted(kind, f"backend '{name}'", settings, names_of(kind)))
