"""The language of splits on the command line, in manifests and in Python. A split defines which labels are held out.

    school                      each value of the column `school` is a fold; `column=a=b` selects the column named `a=b`
    by=Page.school              as above, for entity Page only; `folds=4,by=Page.school` assigns the values to 4 folds
    time=Page.year              periods of a time column; each period is predicted from the earlier periods
    folds=10                    10 folds; a hash of an entity's key selects the fold of the entity
    random                      random folds of labels
    component                   folds of whole connected components
    snowball                    folds that grow along links from random variables
    hide=0.1                    10 % of the variables are hidden, selected by a hash of their keys
    hide=0.1,of=Friends         10 % of the labels of each state of Friends; `of=*`: of every attribute and relation

You may add `folds=`, `seed=` and `repeats=`, for example `random,folds=10,seed=7`; a column name must come last.

The folds to hold out are not part of the text. Either each fold is held out in turn (all folds, or those in `holdout`),
or the folds are assigned to three parts: `train`, `valid` and `test`. Labels outside the named parts are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from relcrf.errors import Diagnostic, UsageError, listing, suggestion

HIDDEN_FOLD = "hidden"
"""Name of the fold that `hide` holds out."""

RANDOM_KINDS = ("random", "component", "snowball")
"""Kinds of splits whose folds are random and depend on a seed."""

ALL_ATTRIBUTES = "*"
"""Value of `of` that selects all attributes and relations."""

DEFAULT_FOLDS = 5
"""Default number of folds."""

PART_NAMES = ("train", "valid", "test")
"""Names of the parts to which folds can be assigned."""

_COLUMNS = ("column", "by", "time")
_OPTIONS = ("folds", "seed", "repeats", "of")
_HINT = "write random, component, snowball, by=COLUMN, time=COLUMN, a column's name, folds=10 or hide=0.1"


@dataclass(frozen=True)
class SplitPlan:
    """A partition of the variables into folds, or a fraction of the labels to hide.

    Args:
        kind: `column`, `time`, `folds`, `hide`, or one of `RANDOM_KINDS`; see the module's docstring.
        column: For the kinds `column` and `time`, the column, with or without the name of its entity type.
        folds: Number of folds. For the kind `column`, None means one fold for each value of the column.
        fraction: For the kind `hide`, the fraction to hide.
        attribute: For `hide`, the attribute or relation to hide, or `ALL_ATTRIBUTES`; None selects variables by hash.
        seed: Seed of the hashes or of the random generator.
        repeats: Number of partitions, drawn with consecutive seeds.
        holdout: Names of the folds to hold out one at a time; if empty, each fold is held out in turn.
        train: Names of the folds with the training labels. Default: all folds that are in neither `valid` nor `test`.
        valid: Names of the folds whose labels are reserved for the choice of settings.
        test: Names of the folds whose labels are scored together. If `train`, `valid` or `test` is given, labels in
            none of the three parts are ignored, and `holdout` must be empty.

    Raises:
        UsageError: The parts contradict each other or the kind of the split (E349).
    """

    kind: str
    column: str = ""
    folds: int | None = None
    fraction: float = 0.0
    attribute: str | None = None
    seed: int = 0
    repeats: int = 1
    holdout: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "hide" and not self.holdout:
            object.__setattr__(self, "holdout", (HIDDEN_FOLD,))
        if problem := part_problem(self.kind, self.holdout, {name: getattr(self, name) for name in PART_NAMES}):
            message, hint = problem
            raise UsageError(Diagnostic("E349", message, hint=hint))

    @property
    def has_parts(self) -> bool:
        """True if folds are assigned to the parts `train`, `valid` and `test`."""
        return bool(self.train or self.valid or self.test)

    def with_parts(self, train: Sequence[str] = (), valid: Sequence[str] = (), test: Sequence[str] = ()) -> SplitPlan:
        """Return the plan with the folds of the parts that are not empty; the folds in `holdout` become the test part.

        Raises:
            UsageError: The parts contradict each other or the kind of the split (E349).
        """
        if not (len(train) or len(valid) or len(test)):
            return self
        return replace(
            self,
            holdout=(),
            train=tuple(train) or self.train,
            valid=tuple(valid) or self.valid,
            test=tuple(test) or self.test or self.holdout,
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The command-line options of this plan, e.g. `--split`, `site`, `--test`, `a`."""
        pairs = [(f"--{name}", value) for name in ("holdout", *PART_NAMES) for value in getattr(self, name)]
        return ("--split", self.text, *(word for pair in pairs for word in pair))

    @property
    def is_deterministic(self) -> bool:
        """True if every seed gives the same partition."""
        return self.kind == "time" or (self.kind == "column" and self.folds is None)

    @property
    def text(self) -> str:
        """A text that `parse_split` converts to this plan; it does not include `holdout` and the parts."""
        options = [] if self.folds is None else [f"folds={self.folds}"]
        if not self.is_deterministic:
            options.append(f"seed={self.seed}")
        if self.repeats > 1:
            options.append(f"repeats={self.repeats}")
        match self.kind:
            case "column" | "time":
                plain = self.kind == "column" and not options and "=" not in self.column
                if plain and self.column.strip() not in RANDOM_KINDS:
                    return self.column
                return ",".join([*options, f"{self.kind}={self.column}"])
            case "hide":
                of = [] if self.attribute is None else [f"of={self.attribute}"]
                return ",".join([f"hide={self.fraction!r}", *of, *options])
            case "folds":
                return ",".join(options)
        return ",".join([self.kind, *options])

    def __str__(self) -> str:
        match self.kind:
            case "column":
                return self.column
            case "time":
                return f"time {self.column}"
            case "folds":
                return "fold"
            case "hide":
                whole = "all" if self.attribute == ALL_ATTRIBUTES else self.attribute
                return "part" if whole is None else f"{self.fraction:g} of {whole} hidden"
        return self.kind


def parse_split(text: str, folds: int | None = None, seed: int = 0, repeats: int = 1) -> SplitPlan:
    """Parse a split; the module's docstring describes the language.

    Args:
        folds, seed, repeats: Values of these options that apply if the text does not contain them.

    Raises:
        UsageError: The text is not a split (E349).
    """
    options = _parse_options(text)
    if "folds" in options and folds is not None:
        raise UsageError(
            Diagnostic(
                "E349", f"'{text}' and --folds {folds} both set the number of folds", hint="remove one of the two"
            )
        )
    if folds is not None:
        options["folds"] = str(folds)
    kinds = [name for name in options if name not in _OPTIONS] or [name for name in options if name == "folds"]
    if len(kinds) != 1 or next(iter(options)) == "seed" or (kinds != ["hide"] and "of" in options):
        raise UsageError(Diagnostic("E349", f"'{text}' is not a split", hint=_HINT))
    (kind,) = kinds
    if (kind in RANDOM_KINDS and options[kind]) or (kind == "hide" and "folds" in options):
        raise UsageError(Diagnostic("E349", f"'{text}' is not a split", hint=_HINT))
    if kind in ("by", "time") and not options[kind]:
        raise UsageError(Diagnostic("E349", f"'{text}' does not name a column", hint=f"write {kind}=Page.{kind}"))
    try:
        numbers = {name: int(options[name]) for name in ("folds", "seed", "repeats") if name in options}
        fraction = float(options["hide"]) if kind == "hide" else 0.0
    except ValueError:
        message = f"'{text}' is not a split: expected a number after '='"
        raise UsageError(Diagnostic("E349", message, hint="write folds=10 or hide=0.1")) from None
    plan = SplitPlan(
        "column" if kind == "by" else kind,
        column=options[kind] if kind in _COLUMNS else "",
        folds=numbers.get("folds", DEFAULT_FOLDS if kind in (*RANDOM_KINDS, "time") else None),
        fraction=fraction,
        attribute=options.get("of"),
        seed=numbers.get("seed", seed),
        repeats=numbers.get("repeats", repeats),
    )
    if problem := _plan_problem(plan):
        raise UsageError(Diagnostic("E349", problem, hint="write folds=10 or hide=0.1"))
    return plan


def _plan_problem(plan: SplitPlan) -> str | None:
    is_hashed = plan.kind == "folds" or (plan.kind == "hide" and plan.attribute is None)
    if plan.repeats < 1 or not (plan.seed >= 0 or is_hashed):
        return f"'{plan.text}' is not a split: repeats must be at least 1, and the seed of a random split at least 0"
    if plan.kind == "hide":
        return split_problem("hide", plan.fraction)
    return None if plan.folds is None else split_problem("folds", plan.folds)


def _parse_options(text: str) -> dict[str, str]:
    """Return the options by name, in the order of the text. A column name is the rest of the text, including commas."""
    if "=" not in text:
        kind = text.strip()
        return {kind: ""} if kind in RANDOM_KINDS else {"column": text}
    options: dict[str, str] = {}
    rest = text
    while rest:
        name, _, value = rest.partition("=")
        if name.strip() in _COLUMNS:
            name, rest = name.strip(), ""
            value = value if name == "column" else value.strip()
        else:
            pair, _, rest = rest.partition(",")
            name, _, value = (part.strip() for part in pair.partition("="))
        if name not in (*_COLUMNS, *RANDOM_KINDS, *_OPTIONS, "hide"):
            hint = suggestion(name, ("folds", "hide", "seed")) or _HINT
            raise UsageError(Diagnostic("E349", f"a split has no option '{name}'", hint=hint))
        options[name] = value
    return options


def parse_hide(text: str, seed: int = 0) -> SplitPlan:
    """Parse the value of `--hide`: a fraction (`0.1`), or a fraction for one attribute or relation (`Friends=0.1`).

    Raises:
        UsageError: The text has neither form (E349).
    """
    attribute, equals, fraction = (part.strip() for part in text.rpartition("="))
    if equals and not attribute:
        message = f"'{text}' does not name an attribute"
        raise UsageError(Diagnostic("E349", message, hint="write --hide 0.1, or --hide Friends=0.1"))
    return parse_split(f"hide={fraction},of={attribute or ALL_ATTRIBUTES}", seed=seed)


def split_problem(kind: str, value: float) -> str | None:
    """Return an error message for an invalid number of folds or fraction to hide; None if the value is valid."""
    if kind == "folds" and not 2 <= value <= 10_000:
        return f"a split has 2 to 10,000 folds, not {value}"
    if kind == "hide" and not 0 < value < 1:
        return f"the fraction to hide must lie between 0 and 1, not {value}"
    return None


def part_problem(kind: str, holdout: Sequence[str], parts: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """Return an error message and a hint for contradictory parts of a split; None if the parts are valid.

    Args:
        parts: The names of the folds of each part, by the name of the part.
    """
    named = [name for name, folds in parts.items() if folds]
    if not named:
        return None
    if kind in ("hide", "time"):
        hint = "split by a column, or by folds=10"
        return f"{listing(map(repr, named))} cannot be combined with a split of the kind '{kind}'", hint
    if holdout:
        return f"'holdout' cannot be combined with {listing(map(repr, named))}", "use 'test' instead of 'holdout'"
    for one, other in combinations(named, 2):
        for fold in parts[one]:
            if fold in parts[other]:
                return f"the fold '{fold}' is in both '{one}' and '{other}'", "assign each fold to one part"
    return None
