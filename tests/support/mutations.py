"""Single errors in models: removed or duplicated tokens, misspelt names, wrong arities and types, swapped clauses.

Each error has the lines on which its diagnostic is expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

TOKEN = re.compile(r'(?P<skip>\s+|#[^\n]*)|"[^"\n]*"|\w+|\.\.|[=!<>]=|<=>|=>|.')
CLAUSE = re.compile(r"^    (?:where|over|per|by)\b.*$", re.MULTILINE)


class Slip(NamedTuple):
    """A model with one error.

    Args:
        what: the changed text.
        text: the changed model.
        lines: the lines of the changed token, and of its neighbours if it was removed.
    """

    what: str
    text: str
    lines: frozenset[int]


def tokens(text: str) -> list[re.Match[str]]:
    return [m for m in TOKEN.finditer(text) if m["skip"] is None]


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _replaced(text: str, token: re.Match[str], by: str) -> str:
    return text[: token.start()] + by + text[token.end() :]


def dropped(text: str) -> Iterator[Slip]:
    all_tokens = tokens(text)
    for k, token in enumerate(all_tokens):
        # A missing token is detected at the next token, or at the end of the previous one.
        neighbours = all_tokens[max(0, k - 1) : k + 2]
        lines = frozenset(line_of(text, m.start()) for m in neighbours)
        yield Slip(f"drop {token.group()!r}", _replaced(text, token, ""), lines)


def doubled(text: str) -> Iterator[Slip]:
    all_tokens = tokens(text)
    for k, token in enumerate(all_tokens):
        neighbours = all_tokens[k : k + 2]
        lines = frozenset(line_of(text, m.start()) for m in neighbours)
        yield Slip(f"double {token.group()!r}", _replaced(text, token, f"{token.group()} {token.group()}"), lines)


def misspelt(text: str) -> Iterator[Slip]:
    """Yield models with one letter removed from a word, not its first."""
    for token in tokens(text):
        word = token.group()
        if len(word) < 3 or not word[0].isalpha():
            continue
        wrong = word[0] + word[2:]
        # A misspelt declaration is reported where its name is used, because the checker cannot decide which is right.
        uses = (m for m in tokens(text) if m.group() == word)
        lines = frozenset(line_of(text, m.start()) for m in uses)
        yield Slip(f"{word!r} as {wrong!r}", _replaced(text, token, wrong), lines)


def wrong_arity(text: str) -> Iterator[Slip]:
    """Yield models with an additional or missing argument of a relation or function."""
    declared = set(re.findall(r"(?:relation|derive|template|candidates)\s+(\w+)\(", text))
    for found in re.finditer(r"(\w+)\(([^()]*)\)", text):
        head = text[: found.start()].rsplit("\n", 1)[-1]
        is_header = re.search(r"(relation|derive|template|candidates|entity)\s*$", head)
        if is_header or ("#" in head) or (found[1] not in declared and not found[1].islower()):
            continue
        if found[1] in ("not", "and", "or", "where", "over", "by") or not found[2].strip():
            continue
        lines = frozenset({line_of(text, found.start())})
        for arguments in (f"{found[2]}, {found[2].split(',')[0]}", ",".join(found[2].split(",")[1:])):
            if arguments.strip():
                wrong = text[: found.start(2)] + arguments.strip() + text[found.end(2) :]
                yield Slip(f"{found[0]} as {found[1]}({arguments.strip()})", wrong, lines)


def wrong_type(text: str) -> Iterator[Slip]:
    """Yield models with the type of an attribute, parameter or binder replaced by `string` or by an unknown type."""
    for found in re.finditer(r"(?<=: )(bag of \w+|\w+|\d\.\.\d)(?=[ ,)\n}])", text):
        head = text[: found.start()].rsplit("\n", 1)[-1]
        if "#" in head or head.lstrip().startswith("rule"):
            continue
        declared = re.findall(r"(\w+)\s*:\s*$", head)
        name = declared[-1] if declared else ""
        owner = line_of(text, found.start())
        # A wrong type is reported at its declaration or where the name is used.
        uses = {line_of(text, m.start()) for m in tokens(text) if m.group() == name}
        for other in ("vector", "date"):
            wrong = text[: found.start()] + other + text[found.end() :]
            yield Slip(f"{found[0]!r} as {other!r}", wrong, frozenset(uses | {owner}))


def swapped(text: str) -> Iterator[Slip]:
    """Yield models with two neighbouring clauses swapped."""
    clauses = list(CLAUSE.finditer(text))
    for first, second in pairwise(clauses):
        if text[first.end() : second.start()].strip():
            continue
        lines = frozenset({line_of(text, first.start()), line_of(text, second.start())})
        wrong = text[: first.start()] + second.group() + "\n" + first.group() + text[second.end() :]
        yield Slip(f"swap {first.group().strip()!r}", wrong, lines)


KINDS = (dropped, doubled, misspelt, wrong_arity, wrong_type, swapped)
