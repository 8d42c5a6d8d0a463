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

    @property
    def text(self) -> str:
        """What `read_split` reads as this plan."""
        return f"column={self.column}" if "=" in self.column else self.column

    def __str__(self) -> str:
        return self.column


@dataclass(frozen=True)
class FoldSplit:
    """Into folds `1`, `2`, ... by a hash of each thing's key: a thing stays in its fold, whatever else the tables hold."""

    folds: int
    seed: int = 0
    hold: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What `read_split` reads as this plan."""
        return f"folds={self.folds},seed={self.seed}"

    def __str__(self) -> str:
        return "fold"


@dataclass(frozen=True)
class HideSplit:
    """Hides a share of the variables, by a hash of their keys."""

    share: float
    seed: int = 0
    hold: ClassVar[tuple[str, ...]] = (HIDDEN,)

    @property
    def text(self) -> str:
        """What `read_split` reads as this plan."""
        return f"hide={self.share!r},seed={self.seed}"

    def __str__(self) -> str:
        return "part"


@dataclass(frozen=True)
class DrawnSplit:
    """Into folds of like size that a seed draws.

    Args:
        kind: `random`: single labels, each fold with its share of every state of every attribute; `component`: whole connected
            components of the ground graph; `snowball`: regions that grow along links from a thing each.
    """

    kind: str
    folds: int
    seed: int = 0
    hold: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return self.kind


DRAWN = ("random", "component", "snowball")
"""The kinds of a `DrawnSplit`."""


@dataclass(frozen=True)
class GroupSplit:
    """By a column, `university` or `Page.university`: its values are dealt to folds; where `folds` is None each is one."""

    column: str
    folds: int | None = None
    seed: int = 0
    hold: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"by {self.column}"


@dataclass(frozen=True)
class TimeSplit:
    """By a column of times: each of `folds` periods is asked for after all before it; the first is learned from alone."""

    column: str
    folds: int
    hold: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"time {self.column}"


@dataclass(frozen=True)
class ShareSplit:
    """Hides a share of the labels of every state of one predicted attribute or relation, or of all where `of` is None."""

    share: float
    of: str | None = None
    seed: int = 0
    hold: ClassVar[tuple[str, ...]] = (HIDDEN,)

    def __str__(self) -> str:
        return f"{self.share:g} of {self.of or 'all'} hidden"


SplitPlan = ColumnSplit | FoldSplit | HideSplit
"""What a manifest, `train` and `evaluate` take."""

Protocol = SplitPlan | DrawnSplit | GroupSplit | TimeSplit | ShareSplit
"""What a cross-validation takes."""

FOLDS = 5
"""Where nobody says how many."""

_PROTOCOL_HINT = "write random, component, snowball, by=COLUMN, time=COLUMN, a column's name, folds=10 or hide=0.1"


def read_protocol(text: str, folds: int | None = None, seed: int = 0) -> Protocol:
    """The plan of a cross-validation: `random`, `component`, `snowball`, `by=Page.university`, `time=year`, or what
    `read_split` takes, whose folds and seed are its own.

    Args:
        folds: how many; None is `FOLDS`, and of `by=` each value.

    Raises:
        UsageError: where the text says something else, or there cannot be so many folds.
    """
    problem = None if folds is None else split_problem("folds", folds)
    if problem:
        raise UsageError(Diagnostic("E349", problem, hint="write --folds 5"))
    kind, equals, column = (part.strip() for part in text.partition("="))
    if kind in DRAWN and not equals:
        return DrawnSplit(kind, folds or FOLDS, seed)
    if kind in ("by", "time"):
        if not column:
            raise UsageError(Diagnostic("E349", f"'{text}' names no column", hint=f"write {kind}=Page.{kind}"))
        return GroupSplit(column, folds, seed) if kind == "by" else TimeSplit(column, folds or FOLDS)
    if equals and kind not in ("column", "folds", "hide", "seed"):
        raise UsageError(Diagnostic("E349", f"'{text}' is no split", hint=_PROTOCOL_HINT))
    if equals and folds is not None:
        raise UsageError(Diagnostic("E349", f"'{text}' and --folds {folds} say both how to divide", hint="give one"))
    return read_split(text)


def read_hidden(text: str, seed: int = 0) -> ShareSplit:
    """The plan of `--hide`: a share, `0.1`, or that of one attribute or relation, `Friends=0.1`.

    Raises:
        UsageError: where the text says something else.
    """
    of, equals, share = (part.strip() for part in text.rpartition("="))
    try:
        value = float(share)
    except ValueError:
        value = float("nan")
    problem = split_problem("hide", value)
    if problem or (equals and not of):
        message = problem or f"'{text}' names no attribute"
        raise UsageError(Diagnostic("E349", message, hint="write --hide 0.1, or --hide Friends=0.1"))
    return ShareSplit(value, of or None, seed)


def read_split(text: str) -> SplitPlan:
    """The plan of `--split`: a column's name, `folds=10` or `hide=0.1`, with `,seed=7` if wanted; `column=a=b` is any name.

    Raises:
        UsageError: where the text says something else.
    """
    if "=" not in text:
        return ColumnSplit(text)
    first, _, column = text.partition("=")
    if first.strip() == "column":
        return ColumnSplit(column)
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
