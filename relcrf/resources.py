"""Files that come with relcrf beside its code: the grammar, the models, and the pages on errors."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def resource_path(folder: str, name: str) -> Path:
    """A file of `grammar/`, `models/` or `docs/`, whether relcrf runs from a checkout or from an installed wheel.

    Raises:
        FileNotFoundError: naming both places, where the installation is broken.
    """
    places = (_PACKAGE / "shipped" / folder / name, _PACKAGE.parent / folder / name)
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"relcrf's own file {folder}/{name} is neither at {places[0]} nor at {places[1]}")
