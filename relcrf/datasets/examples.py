"""Examples by name. An example consists of a shipped model, generated tables and a split of the labels; the examples
of `EXPORTS` consist of files only."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relcrf.api import Model
from relcrf.api import load as load_model
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame
from relcrf.data.split_plan import parse_split
from relcrf.datasets.corridor import sensor_readings
from relcrf.datasets.fraud import fraud_tables, write_exports
from relcrf.datasets.friends import friends
from relcrf.datasets.houses import house_prices
from relcrf.datasets.mails import mails
from relcrf.datasets.pages import web_pages
from relcrf.datasets.persons import write_lists
from relcrf.demo.digits import make_digits
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.files import write_text
from relcrf.resources import resource_path


@dataclass(frozen=True)
class Example:
    """A model and a dataset: `model, data = relcrf.datasets.load("web")`.

    Args:
        split: The split of the labels that `model.evaluate(data)` uses.
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
class _ExampleSource:
    """The shipped model, table generator and split of an example.

    Args:
        model: Name of a shipped model.
        split: The split, as a string: `folds=...`, `hide=...`, or the name of a column that contains the folds.
        holdout: If `split` is a column, the values of the column that are held out by default.
    """

    model: str
    description: str
    tables: Callable[[int], Mapping[str, Any]]
    split: str
    holdout: tuple[str, ...] = ()


_EXAMPLES: dict[str, _ExampleSource] = {
    "digits": _ExampleSource(
        "digits",
        "1,797 handwritten digits of scikit-learn, 100 of them labelled, with the scores of a local classifier.",
        lambda seed: {"image": make_digits(seed).table()},
        "part",
        ("rest",),
    ),
    "latent": _ExampleSource(
        "latent",
        "The pages of 'web', for a model in which a latent page type explains words and links.",
        web_pages,
        "site",
    ),
    "prices": _ExampleSource(
        "prices",
        "400 houses, 30 % of them without a price, and their neighbours, whose prices deviate in the same direction.",
        house_prices,
        "folds=5",
    ),
    "sensors": _ExampleSource(
        "sensors",
        "Readings of 8 sensors in a corridor at 300 time points, in five levels; neighbours differ by at most one.",
        sensor_readings,
        "hide=0.3",
    ),
    "smokers": _ExampleSource(
        "smokers",
        "80 people in circles of friends; smoking is similar within a circle and causes cancer.",
        friends,
        "hide=0.3",
    ),
    "web": _ExampleSource(
        "webkb",
        "240 web pages of four sites in five categories; words are weak evidence, links are stronger evidence.",
        web_pages,
        "site",
    ),
}


@dataclass(frozen=True)
class Export:
    """An example that consists of files only, without labels that are held out.

    Args:
        write: Function of a seed and a folder that writes the files and returns their paths.
        next_commands: Commands to run next, with `{folder}` for the folder.
    """

    description: str
    write: Callable[[int, Path], list[Path]]
    next_commands: tuple[str, ...]


def _write_tables(model: str, tables: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write a shipped model and tables to a folder, and return the paths of the files, the model first.

    A table with vectors is written as a Parquet file, any other table as a CSV file.
    """
    paths = [folder / f"{model}.rcrf"]
    write_text(paths[0], resource_path("models", paths[0].name).read_text(encoding="utf-8"))
    for table, columns in tables.items():
        paths.append(folder / _file_name(table, columns))
        Frame(dict(columns)).write(paths[-1])
    return paths


def _file_name(table: str, columns: Mapping[str, Any]) -> str:
    has_vectors = any(column.ndim > 1 or isinstance(next(iter(column), None), list) for column in columns.values())
    return f"{table}.{'parquet' if has_vectors else 'csv'}"


EXPORTS = {
    "fraud": Export(
        "About 3,000 customers of a payment service with 53,000 transactions, as a company's systems export them.",
        lambda seed, folder: write_exports(fraud_tables(seed), folder),
        ("relcrf profile {folder} --out tables.html", "relcrf new {folder} --out fraud.rcrf --yes"),
    ),
    "votes": Export(
        "1,500 mails without a label, with the votes of five heuristics of unknown accuracy, and a model that combines them.",
        lambda seed, folder: _write_tables("votes", mails(seed), folder),
        (
            "relcrf train {folder}/votes.rcrf --data {folder} --backend dense --set unlabelled=marginal --out run",
            "relcrf predict run --data {folder} --attribute category --out categories.csv",
        ),
    ),
    "persons": Export(
        "Two lists with 6,000 records of persons, with typing errors and without a common key, and a model that links them.",
        write_lists,
        (
            "relcrf train {folder}/linkage.rcrf --data {folder} --backend fellegi-sunter --out run",
            "relcrf cluster run --data {folder} --merged deduplicated.csv",
        ),
    ),
}
"""Examples without an evaluation: the files of a company, and tables without labels."""


def names() -> list[str]:
    """Return the names of all examples with a model, sorted."""
    return sorted(_EXAMPLES)


def descriptions() -> dict[str, str]:
    """Return the description of each example by its name, sorted by name."""
    sources: dict[str, _ExampleSource | Export] = {**_EXAMPLES, **EXPORTS}
    return {name: sources[name].description for name in sorted(sources)}


def _find_source(name: str) -> _ExampleSource:
    """Return the source of the example with this name.

    Raises:
        UsageError: The name is unknown (E365).
    """
    if name in EXPORTS:
        raise UsageError(
            Diagnostic(
                "E365", f"the example '{name}' consists of files only", hint=f"write them with relcrf example {name}"
            )
        )
    if name not in _EXAMPLES:
        known = descriptions()
        hint = suggestion(name, known) or f"the examples are {listing(known)}"
        raise UsageError(Diagnostic("E365", f"unknown example dataset '{name}'", hint=hint))
    return _EXAMPLES[name]


def load(name: str, seed: int = 0) -> Example:
    """Generate an example; the same seed gives the same data.

    Raises:
        UsageError: The name is unknown, or `digits` is requested and scikit-learn is not installed.
    """
    source = _find_source(name)
    data = Dataset(source.tables(seed))
    data.split = replace(parse_split(source.split), holdout=source.holdout)
    return Example(
        name, source.description, load_model(resource_path("models", f"{source.model}.rcrf")), data, source.split
    )


def write(name: str, folder: str | os.PathLike[str], seed: int = 0, *, force: bool = False) -> list[Path]:
    """Write the model and the tables of an example to a folder, and return the paths of the files, the model first.

    An example of `EXPORTS` writes its own files.

    Args:
        force: Overwrite existing files.

    Raises:
        UsageError: The name is unknown, a file exists, or `digits` is requested and scikit-learn is not installed.
    """
    folder = Path(folder)
    if name in EXPORTS:
        if folder.exists() and any(folder.iterdir()) and not force:
            hint = "choose another folder with --out, or overwrite its files with --force"
            raise UsageError(Diagnostic("E374", f"the folder '{folder}' is not empty", hint=hint))
        folder.mkdir(parents=True, exist_ok=True)
        return EXPORTS[name].write(seed, folder)
    source = _find_source(name)
    tables = source.tables(seed)
    paths = [folder / f"{source.model}.rcrf", *(folder / _file_name(*table) for table in tables.items())]
    existing = next((path for path in paths if path.exists()), None)
    if existing is not None and not force:
        hint = "choose another folder with --out, or overwrite it with --force"
        raise UsageError(Diagnostic("E374", f"the file '{existing}' already exists", hint=hint))
    folder.mkdir(parents=True, exist_ok=True)
    return _write_tables(source.model, tables, folder)
