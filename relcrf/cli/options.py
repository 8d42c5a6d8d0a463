"""Options that several commands share, declared once, in groups that commands take as one parameter.

A group is a frozen dataclass whose fields are options of Typer. A command that has a parameter of a group's type gets
all options of the group on its command line, and the group, filled, as its argument; see `flattened`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from relcrf import api
from relcrf.cli.output import note, watching
from relcrf.cli.time_limit import limited
from relcrf.data.dataset import Dataset
from relcrf.data.splits import SplitPlan, read_split
from relcrf.data.store import DEFAULT_MEMORY
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.splits import split_by
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.saved import SavedBlocks
from relcrf.watching import Watch

ModelArgument = Annotated[Path, typer.Argument(help="The model, a .rcrf file.")]
RunArgument = Annotated[Path, typer.Argument(help="A run folder that 'relcrf train' wrote.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
DataOption = Annotated[
    str, typer.Option("--data", "-d", help="A folder of tables, a dataset.toml, a database file or postgresql://...")
]
MemoryOption = Annotated[
    str, typer.Option("--memory", help="Limit of tables and ground columns in memory, such as 500MB.")
]
FactorsOption = Annotated[
    int | None,
    typer.Option("--max-factors", min=1, help="Most factors that the whole model may have; more are refused."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="A setting of the backend, such as l2=0.5; repeatable.")
]
OtherSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="Another setting of the backend than in training, such as inference=bp."),
]


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The limits of tables and of grounding."""

    budget: Annotated[int, typer.Option("--budget", min=1, help="Most bindings that a template may have.")] = (
        DEFAULT_BUDGET
    )
    memory: MemoryOption = DEFAULT_MEMORY


@dataclass(frozen=True, kw_only=True)
class TableOptions(LimitOptions):
    """The tables of a command, and their limits."""

    data: DataOption

    @cached_property
    def dataset(self) -> Dataset:
        """The tables, opened at the first use."""
        return Dataset(self.data, memory=self.memory)


@dataclass(frozen=True, kw_only=True)
class GroundingOptions(TableOptions):
    """The tables of a command that grounds them, and the folder in which ground blocks are cached."""

    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="A folder of ground blocks: takes what is there, and adds what is not."),
    ] = None

    @cached_property
    def saved(self) -> SavedBlocks | None:
        """The ground blocks of the folder of --keep."""
        return None if self.keep is None else SavedBlocks(self.keep)

    def ground(self, source: api.Model | api.Fit, watch: Watch, **options: Any) -> Grounding:
        """Ground a model, or the model of a run, on the tables."""
        watch.phase("reading tables")
        return source.ground(self.dataset, self.budget, progress=watch.grounding, keep=self.saved, **options)

    def note_saved(self) -> None:
        """Print which blocks of the folder of --keep were found and which were made."""
        if self.saved is not None:
            groups = (("found", self.saved.found), ("made", self.saved.made))
            parts = [f"{what} {listing(names)}" for what, names in groups if names]
            note(f"{self.saved.folder}: {'; '.join(parts) or 'no block was taken or made'}")


@dataclass(frozen=True, kw_only=True)
class HoldOptions:
    """The labels that a command holds out."""

    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="A column of the things' tables, whose values are folds; or folds=10; or hide=0.1. Default: the manifest's.",
        ),
    ] = None
    hold: Annotated[list[str] | None, typer.Option("--hold", help="A fold to hold out; repeatable.")] = None

    def held_out(self, dataset: Dataset) -> tuple[SplitPlan, list[str]] | None:
        """Return the split and its folds that are held out, by default those of the manifest; None without any.

        Raises:
            UsageError: where only one of both options is given.
        """
        plan = dataset.split if self.split is None else read_split(self.split)
        held = list(self.hold or (plan.hold if plan else ()))
        if plan is not None and held:
            return plan, held
        if self.split is not None or self.hold:
            hint = "name a column and the values to hide, folds=10 and the folds, or hide=0.1"
            raise UsageError(Diagnostic("E341", "--split and --hold go together", hint=hint))
        return None

    def hidden(self, grounding: Grounding) -> np.ndarray | None:
        """Return the variables whose labels are held out, shape (n_variables,), bool; None without any."""
        held = self.held_out(grounding.bound.dataset)
        return None if held is None else split_by(grounding, held[0]).held_out(held[1])

    def note_default(self, hidden: np.ndarray | None) -> None:
        """Print how many labels the manifest holds out where the command line names no split."""
        if hidden is not None and self.split is None:
            note(f"the split of the manifest holds out {int(hidden.sum()):,} variables")


@dataclass(frozen=True, kw_only=True)
class FoldOptions:
    """The folds of a cross-validation."""

    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="random, component, snowball, by=Page.university, time=Page.year, a column, folds=10 or hide=0.1. "
            "Default: the manifest's, or random.",
        ),
    ] = None
    folds: Annotated[int | None, typer.Option("--folds", "-k", help="Into how many parts. Default: 5.")] = None
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Divide so often, by consecutive seeds.")] = 1
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is divided at random.")] = 0
    hide: Annotated[
        str | None,
        typer.Option(
            "--hide",
            help="Hide a share of the labels, 0.1, or of those of one attribute or relation, Friends=0.1; the rest is evidence.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """How long a command may take, and for whom it prints."""

    time_limit: Annotated[
        str | None,
        typer.Option("--time", help="How long it may take, such as 90s, 10m or 2h; what there is then is kept."),
    ] = None
    as_json: JsonOption = False

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Show progress of what runs inside, and end it when its time is over."""
        with watching(quiet=self.as_json) as watch, limited(self.time_limit):
            yield watch


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of its groups as parameters of its own, as Typer wants them.

    Options that are required come first, in the order in which they are declared.

    Args:
        command: parameters whose type is a dataclass are groups, and all others arguments or options.
    """
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if not (isinstance(hint, type) and is_dataclass(hint)):
            parameters.append(_option(parameter.name, hint, parameter.default))
            continue
        groups[parameter.name] = hint
        options = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            parameters.append(_option(field.name, options[field.name], default))
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)

    @wraps(command)
    def flat(**values: Any) -> None:
        built = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        command(**built, **values)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
