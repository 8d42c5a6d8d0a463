"""Pictures as files: what may be written, and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relcrf.data.extras import require
from relcrf.files import require_ending, whole_path

EXTRA, PURPOSE = "report", "a picture"
"""For `require`."""


def require_picture(path: Path, endings: Sequence[str], example: str) -> None:
    """Refuses a picture that could not be drawn, before any work is done; makes its folder.

    Args:
        example: a name that would do.

    Raises:
        UsageError: for an ending that is none of the known ones, a path that is a folder, or where Matplotlib is not installed.
    """
    require_ending(path, endings, example)
    require("matplotlib.figure", EXTRA, PURPOSE)
    path.parent.mkdir(parents=True, exist_ok=True)


def write_picture(figure: Any, path: Path, dpi: int) -> None:
    """Writes a figure of Matplotlib through a temporary name; the same bytes for the same figure."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with whole_path(path) as partial:
        figure.savefig(partial, dpi=dpi, format=path.suffix[1:], metadata=metadata)
