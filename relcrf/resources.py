"""Paths of the resource files shipped with relcrf: the grammar, the models, and the error pages."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def resource_path(folder: str, name: str) -> Path:
    """Return the path of a file of `grammar/`, `models/` or `docs/`, in a checkout or an installed wheel.

    Raises:
        FileNotFoundError: The installation is broken; the message contains both expected paths.
    """
    candidates = (_PACKAGE / "shipped" / folder / name, _PACKAGE.parent / folder / name)
    for path in candidates:
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"resource file {folder}/{name} of relcrf is neither at {candidates[0]} nor at {candidates[1]}"
    )
