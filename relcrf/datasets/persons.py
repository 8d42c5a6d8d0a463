"""Records of persons with typing errors, for models/linkage.rcrf: most persons have several records, which differ.

A person has one to five records. In the records, some values are missing, contain typing errors, or belong to another address;
some first names are abbreviated, and some surnames are replaced. Frequencies of names follow Zipf's law, so that different
persons often have equal names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from relcrf.data.frame import Frame
from relcrf.files import write_text
from relcrf.resources import resource_path

RECORDS_PER_PERSON = (0.4, 0.3, 0.15, 0.1, 0.05)
"""Probability that a person has 1, 2, ... records."""

N_FIRST_NAMES, N_STREETS, N_TOWNS = 800, 3000, 500
PERSONS_PER_SURNAME = 15

TYPING_ERROR = {"first_name": 0.10, "surname": 0.10, "birth": 0.06, "street": 0.12, "town": 0.06, "postcode": 0.06}
"""Probability that a value contains a typing error."""

MISSING = {"first_name": 0.02, "surname": 0.01, "birth": 0.06, "street": 0.10, "town": 0.05, "postcode": 0.08}
"""Probability that a value is missing."""

MOVED = 0.15
"""Probability that a record has another address than the person's other records."""

INITIAL = 0.04
"""Probability that a first name is only its first letter."""

OTHER_NAME = 0.04
"""Probability that a surname is another one, e.g. before a marriage."""

CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(n: int, syllables: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return different random words with a number of syllables in a range, shape (n,), dtype object."""
    found: dict[str, None] = {}
    while len(found) < n:
        pairs = zip(rng.integers(len(CONSONANTS), size=4), rng.integers(len(VOWELS), size=4), strict=True)
        count = int(rng.integers(*syllables, endpoint=True))
        text = "".join(CONSONANTS[c] + VOWELS[v] for c, v in list(pairs)[:count])
        found[text + CONSONANTS[rng.integers(len(CONSONANTS))] * int(rng.random() < 0.5)] = None
    return np.array(list(found), dtype=object)


def drawn(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return values drawn with frequencies that follow Zipf's law, shape (n,)."""
    frequency = 1.0 / (np.arange(len(values)) + 10.0)
    return np.asarray(values[rng.choice(len(values), size=n, p=frequency / frequency.sum())])


def mistyped(text: str, kind: float, position: float, letter: float) -> str:
    """Return a text with one error: a letter or digit is replaced, inserted or removed, or two are exchanged.

    Args:
        kind, position, letter: Random numbers from 0 to 1 that choose the error.
    """
    at = int(position * len(text))
    alphabet = "0123456789" if text[at].isdigit() else LETTERS
    new = alphabet[int(letter * len(alphabet))]
    if kind < 0.4:
        return text[:at] + new + text[at + 1 :]
    if kind < 0.6:
        return text[:at] + new + text[at:]
    if kind < 0.8 and len(text) > 2:
        return text[:at] + text[at + 1 :]
    at = min(at, len(text) - 2)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :] if len(text) > 1 else text + new


def make_persons(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return persons without errors, arrays of shape (n,) by column."""
    town = rng.integers(N_TOWNS, size=n)
    names, towns = words(N_FIRST_NAMES, (1, 3), rng), words(N_TOWNS, (2, 4), rng)
    day = np.datetime64("1930-01-01") + rng.integers(28_000, size=n)
    streets = words(N_STREETS, (2, 3), rng)
    numbers = rng.integers(1, 150, size=n).astype(str).astype(object)
    return {
        "first_name": drawn(names, n, rng),
        "surname": drawn(words(max(n // PERSONS_PER_SURNAME, 50), (2, 4), rng), n, rng),
        "birth": day.astype(str).astype(object),
        "street": drawn(streets, n, rng) + " " + numbers,
        "town": towns[town],
        "postcode": (10_000 + town * 40 + rng.integers(40, size=n)).astype(str).astype(object),
    }


def make_records(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return n records in random order: id, person (the number of the person), and the columns of `make_persons`.

    The arrays have the shape (n,); missing values are None.
    """
    rng = np.random.default_rng(seed)
    count = rng.choice(len(RECORDS_PER_PERSON), size=n, p=RECORDS_PER_PERSON) + 1
    person = rng.permutation(np.repeat(np.arange(n), count)[:n])
    n_persons = int(person.max()) + 1
    persons = make_persons(n_persons, rng)
    source = rng.integers(n_persons, size=n)
    table: dict[str, np.ndarray] = {"id": np.arange(n), "person": person}
    moved, renamed = rng.random(n) < MOVED, rng.random(n) < OTHER_NAME
    for column, values in persons.items():
        replaced = moved if column in ("street", "town", "postcode") else renamed if column == "surname" else None
        clean = values[person]
        if replaced is not None:
            clean = np.where(replaced, values[source], clean)
        if column == "first_name":
            clean = np.where(rng.random(n) < INITIAL, [text[0] for text in clean], clean)
        table[column] = _with_errors(clean, TYPING_ERROR[column], MISSING[column], rng)
    return table


def _with_errors(values: np.ndarray, error: float, missing: float, rng: np.random.Generator) -> np.ndarray:
    """Return the values, of which some are mistyped and some None, shape (n,), dtype object."""
    out, random = values.astype(object), rng.random((4, len(values)))
    for at in np.flatnonzero(random[0] < error).tolist():
        out[at] = mistyped(out[at], random[1][at], random[2][at], random[3][at])
    out[rng.random(len(values)) < missing] = None
    return out


LISTS = ("shop", "newsletter")
"""The names of the lists of `write_lists`, each of which has about half of the records."""

N_LISTED = 6000

MANIFEST = """# All CSV files of this folder together are the table of records.
[tables.record]
file = "*.csv"
"""


def write_lists(seed: int, folder: Path) -> list[Path]:
    """Write two lists of persons as CSV files, the manifest and the model; return the paths, the model first."""
    table = make_records(N_LISTED, seed)
    place = np.random.default_rng(seed).integers(len(LISTS), size=N_LISTED)
    model = resource_path("models", "linkage.rcrf")
    paths = [folder / model.name, folder / "dataset.toml"]
    write_text(paths[0], model.read_text(encoding="utf-8"))
    write_text(paths[1], MANIFEST)
    for number, name in enumerate(LISTS):
        rows = np.flatnonzero(place == number)
        columns = {column: values[rows] for column, values in table.items() if column != "id"}
        keys = np.array([f"{name[0]}{k:04}" for k in range(len(rows))], dtype=object)
        paths.append(folder / f"{name}.csv")
        Frame({"id": keys, "list": np.full(len(rows), name, dtype=object), **columns}).write(paths[-1])
    return paths
