"""Conversion of table and column names to names of the language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import chain, count

from relcrf.language.keywords import is_name, is_reserved
from relcrf.model.spec import fold_name

SPLIT_COLUMNS = frozenset({"fold", "folds", "split", "part", "partition", "cv"})
SPLIT_PARTS = frozenset({"train", "test", "valid", "validation", "dev"})
POSITION_COLUMNS = frozenset({"position", "pos", "index", "idx", "order", "step", "seq", "offset", "place", "token"})
LABEL_COLUMNS = frozenset(
    {"label", "labels", "class", "category", "target", "y", "topic", "type", "tag", "kind", "outcome", "diagnosis"}
)
PROPERTY_COLUMNS = frozenset({"category", "class", "type", "tag", "kind"})
"""Names in LABEL_COLUMNS that are also common for known properties, such as the category of a product."""

ENDPOINT_COLUMNS = {
    "src",
    "dst",
    "source",
    "target",
    "from",
    "to",
    "a",
    "b",
    "x",
    "y",
    "a0",
    "a1",
    "u",
    "v",
    "left",
    "right",
}
ENDPOINT_COLUMNS |= {"head", "tail", "parent", "child", "citing", "cited", "first", "second"}
"""Usual names of the columns with the two ends of a link."""

CODE_WORDS = frozenset({"id", "key", "code"})
"""Last words of names of columns whose whole numbers are codes, such as `branch_id`; an `order_no` may be a position."""

KEY_WORDS = CODE_WORDS | {"number", "num", "no", "nr"}
"""Last words of names of keys, such as `Order No.` and the German `Kunden-Nr.`"""

KEY_ENDING = rf"(?<=..)({'|'.join(sorted(KEY_WORDS))})$"
"""Regular expression of the end of names of keys without blanks and punctuation."""

AREA_COLUMNS = frozenset({"zip", "plz"})
"""Names of columns of postcodes."""


def names_key(column: str) -> bool:
    """Return True if the name of a column is typical of keys, such as `household_id` and `postcode`, but not `amount_paid`."""
    return _ends_with(column, KEY_WORDS)


def names_code(column: str) -> bool:
    """Return True if the name of a column shows that its whole numbers are codes."""
    return _ends_with(column, CODE_WORDS)


def _ends_with(column: str, words: frozenset[str]) -> bool:
    *first, last = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", column) or [""]
    last = last.lower()
    return (
        (bool(first) and last in words) or (len(last) > len("code") and last.endswith("code")) or last in AREA_COLUMNS
    )


def stem_name(name: str) -> str:
    """Return the stem of a table or column name; `page_id` and `Pages` have equal stems, which suggests a reference."""
    plain = re.sub(r"[^a-z0-9]", "", fold_name(name))
    plain = re.sub(KEY_ENDING, "", plain)
    if plain.endswith("ies"):
        return plain[:-3] + "y"
    return plain if plain.endswith("ss") else plain.removesuffix("s")


def attribute_name(name: str, default: str = "column") -> str:
    """Return a valid attribute name for a text."""
    if is_name(name):
        return name
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"\W+", "_", ascii_only).strip("_").lower()
    return default if not plain else plain if not plain[0].isdigit() else f"{default}_{plain}"


def argument_name(name: str) -> str:
    """Return a valid argument or template name; an underscore, which name comparisons ignore, is added to a keyword."""
    plain = attribute_name(name)
    return f"{plain}_" if is_reserved(plain) else plain


def camel_case(name: str) -> str:
    """Return a table name in camel case, for an entity type, relation or domain: `PageWord` for `page_word`."""
    return "".join(part[:1].upper() + part[1:] for part in attribute_name(name, "Table").split("_") if part) or "Table"


def snake_case(name: str) -> str:
    """Return a template name in snake case: `page_word` for `PageWord`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class NamePool:
    """A pool of names that are unique even if case and underscores are ignored."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {fold_name(name) for name in taken}

    def reserve(self, name: str, *others: str) -> str:
        """Reserve and return the first free name; if none is free, reserve and return `name` with a number appended."""
        numbered = (f"{name}{k}" for k in count(2))
        free_name = next(n for n in chain((name, *others), numbered) if fold_name(n) not in self._taken)
        self._taken.add(fold_name(free_name))
        return free_name


def domain_names(attribute: str) -> tuple[str, str]:
    """Return two names for the domain of the values of an attribute; the second one is for the case that the first is used."""
    return camel_case(attribute.removesuffix("s")), camel_case(f"{attribute}_value")
