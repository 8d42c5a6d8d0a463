"""Packages that are needed for one format only."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from relcrf.errors import Diagnostic, UsageError


def import_extra(package: str, extra: str, purpose: str) -> ModuleType:
    """A package of an extra.

    Args:
        purpose: what needs it, as the subject of `... needs the package`.

    Raises:
        UsageError: where it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError:
        message = f"{purpose} needs the package '{package.partition('.')[0]}'"
        raise UsageError(Diagnostic("E351", message, hint=f"install it with: pip install 'relcrf[{extra}]'")) from None
