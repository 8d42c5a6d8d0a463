"""Imports of optional packages, each of which only some file formats or data sources need."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from relcrf.errors import Diagnostic, UsageError


def import_extra(package: str, extra: str, purpose: str) -> ModuleType:
    """Import a package that an optional extra of relcrf installs.

    Args:
        purpose: The feature that needs the package; the subject of the message `... needs the package`.

    Raises:
        UsageError: The package is not installed (E351).
    """
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise _missing_error(package, extra, purpose) from None


def require_extra(package: str, extra: str, purpose: str) -> None:
    """Raise an error if `import_extra` would raise it in another process; the package is not imported.

    Raises:
        UsageError: The package is not installed (E351).
    """
    if find_spec(package) is None:
        raise _missing_error(package, extra, purpose)


def _missing_error(package: str, extra: str, purpose: str) -> UsageError:
    message = f"{purpose} needs the package '{package.partition('.')[0]}'"
    return UsageError(Diagnostic("E351", message, hint=f"install it with: pip install 'relcrf[{extra}]'"))
