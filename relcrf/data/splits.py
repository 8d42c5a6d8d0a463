"""How labels are held out, as a manifest or a command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relcrf.errors import Diagnostic, UsageError, suggestion

HIDDEN = "hidden"
"""What the held-out part of a `HideSplit` is called."""


@dataclass(frozen=True)
class ColumnSplit:
    """By a column of the things' tables; each of its values is a fold. `hold`: the values held out by default."""

    column: str
    hold: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.column


@dataclass(frozen=True)
class FoldSplit:
    """Into folds `1`, `2`, ... by a hash of each thing's key: a thing stays in its fold, whatever else the tables hold."""

    folds: int
    seed: int = 0
    hold: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "fold"


@dataclass(frozen=True)
class HideSplit:
    """Hides a share of the variables, by a hash of their keys."""

    share: float
    seed: int = 0
    hold: ClassVar[tuple[str, ...]] = (HIDDEN,)

    def __str__(self) -> str:
        return "part"


SplitPlan = ColumnSplit | FoldSplit | HideSplit


def read_split(text: str) -> SplitPlan:
    """The plan of `--split`: a column's name, `folds=10` or `hide=0.1`, with `,seed=7` if wanted.

    Raises:
        UsageError: where the text says something else.
    """
    if "=" not in text:
        return ColumnSplit(text)
    settings: dict[str, str] = {}
    for pair in text.split(","):
        name, _, number = pair.partition("=")
        settings[name.strip()] = number.strip()
    kind = next(iter(settings))
    for name in settings:
        if name not in ("folds", "hide", "seed"):
            hint = suggestion(name, ("folds", "hide", "seed")) or "write a column's name, folds=10 or hide=0.1"
            raise UsageError(Diagnostic("E349", f"a split has no setting '{name}'", hint=hint))
    if ("folds" in settings and "hide" in settings) or kind == "seed":
        hint = "write a column's name, folds=10 or hide=0.1, with ,seed=7 behind it if wanted"
        raise UsageError(Diagnostic("E349", f"'{text}' is no split", hint=hint))
    try:
        seed = int(settings.get("seed", "0"))
        value = int(settings["folds"]) if kind == "folds" else float(settings["hide"])
    except ValueError:
        message = f"'{text}' is no split: a number is needed behind '='"
        raise UsageError(Diagnostic("E349", message, hint="write folds=10 or hide=0.1")) from None
    problem = split_problem(kind, value)
    if problem:
        raise UsageError(Diagnostic("E349", problem, hint="write folds=10 or hide=0.1"))
    return FoldSplit(int(value), seed) if kind == "folds" else HideSplit(value, seed)


def split_problem(kind: str, value: float) -> str | None:
    """What is wrong with a number of `folds`, or a share to `hide`."""
    if kind == "folds" and not 2 <= value <= 10_000:
        return f"a split has 2 to 10,000 folds, not {value}"
    if kind == "hide" and not 0 < value < 1:
        return f"the share to hide lies between 0 and 1, and is not {value}"
    return None
