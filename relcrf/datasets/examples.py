"""The examples by name: a shipped model with tables for it, and how its labels are held out."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from relcrf.api import Model
from relcrf.api import load as load_model
from relcrf.data.dataset import Dataset
from relcrf.data.splits import read_split
from relcrf.datasets.friends import friends
from relcrf.datasets.moments import moments
from relcrf.datasets.pages import pages
from relcrf.demo.digits import make_digits
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.resources import shipped


@dataclass(frozen=True)
class Example:
    """A model and a dataset: `model, data = relcrf.datasets.load("web")`.

    Args:
        split: how labels are held out; `model.evaluate(data)` goes by it.
    """

    name: str
    description: str
    model: Model
    data: Dataset
    split: str

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.data))

    def __repr__(self) -> str:
        return f"Example({self.name}: {self.description}; split: {self.split})"

    def _repr_html_(self) -> str:
        head = (
            f"<p><b>{html.escape(self.name)}</b>: {html.escape(self.description)} Split: {html.escape(self.split)}.</p>"
        )
        return head + self.model._repr_html_() + self.data._repr_html_()


@dataclass(frozen=True)
class _Maker:
    """
    Args:
        model: the name of a shipped model.
        split: text of the split; a column whose values are folds, `folds=...` or `hide=...`.
        hold: of a column, the values that are held out by default.
    """

    model: str
    description: str
    tables: Callable[[int], Mapping[str, Any]]
    split: str
    hold: tuple[str, ...] = ()


_MAKERS: dict[str, _Maker] = {
    "digits": _Maker(
        "digits",
        "1,797 handwritten digits of scikit-learn, 100 of them labelled, with a local classifier's opinion of each.",
        lambda seed: {"image": make_digits(seed).table()},
        "part",
        ("rest",),
    ),
    "latent": _Maker(
        "latent",
        "The pages of 'web', for a model in which a hidden kind of page explains words and links.",
        pages,
        "site",
    ),
    "sensors": _Maker(
        "sensors",
        "300 moments of 8 sensors along a corridor, in five levels, drawn from a chain.",
        moments,
        "hide=0.3",
    ),
    "smokers": _Maker(
        "smokers",
        "80 people in circles of friends who smoke together, and who get ill of it.",
        friends,
        "hide=0.3",
    ),
    "web": _Maker(
        "webkb",
        "240 web pages of four sites, of five categories, told by their words and, better, by their links.",
        pages,
        "site",
    ),
}


def names() -> list[str]:
    """The names of all examples, sorted."""
    return sorted(_MAKERS)


def load(name: str, seed: int = 0) -> Example:
    """An example, made on the spot: the same for the same seed.

    Raises:
        UsageError: for an unknown name, or where `digits` finds no scikit-learn.
    """
    if name not in _MAKERS:
        hint = suggestion(name, names()) or f"there is {listing(names())}"
        raise UsageError(Diagnostic("E365", f"there is no example dataset '{name}'", hint=hint))
    maker = _MAKERS[name]
    data = Dataset(maker.tables(seed))
    data.split = replace(read_split(maker.split), hold=maker.hold)
    return Example(name, maker.description, load_model(shipped("models", f"{maker.model}.rcrf")), data, maker.split)
