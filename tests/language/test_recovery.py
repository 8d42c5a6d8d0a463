"""One slip gives one diagnostic, in its line: each token of the shipped models dropped, each word misspelt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from relcrf.errors import Diagnostic, Span
from relcrf.language.check import check
from relcrf.language.parse import read

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.rcrf"))
TOKEN = re.compile(r'(?P<skip>\s+|#[^\n]*)|"[^"\n]*"|\w+|\.\.|[=!<>]=|<=>|=>|.')


class Slip(NamedTuple):
    """A model with one slip. `lines`: of the token itself, and of its neighbours where it is gone."""

    what: str
    text: str
    lines: frozenset[int]


def tokens(text: str) -> list[re.Match[str]]:
    return [m for m in TOKEN.finditer(text) if m["skip"] is None]


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def dropped(text: str) -> Iterator[Slip]:
    all_tokens = tokens(text)
    for k, token in enumerate(all_tokens):
        # What is missing is noticed at the token after it, or at the end of the one before.
        beside = all_tokens[max(0, k - 1) : k + 2]
        lines = frozenset(line_of(text, m.start()) for m in beside)
        yield Slip(f"drop {token.group()!r}", text[: token.start()] + text[token.end() :], lines)


def misspelt(text: str) -> Iterator[Slip]:
    """One letter left out of each word, after its first."""
    for token in tokens(text):
        word = token.group()
        if len(word) < 3 or not word[0].isalpha():
            continue
        wrong = word[0] + word[2:]
        # A misspelt declaration is a mistake where the name is used: the checker cannot know which of both is meant.
        uses = (m for m in tokens(text) if m.group() == word)
        lines = frozenset(line_of(text, m.start()) for m in uses)
        yield Slip(f"{word!r} as {wrong!r}", text[: token.start()] + wrong + text[token.end() :], lines)


def diagnose(text: str) -> list[Diagnostic]:
    spec, problems = read(text)
    found = [*problems, *check(spec, problems)]
    for diagnostic in found:
        assert diagnostic.render()
    return found


def is_right(found: list[Diagnostic], slip: Slip) -> bool:
    return len(found) == 1 and isinstance(found[0].place, Span) and found[0].place.line in slip.lines


@pytest.mark.parametrize("slips", [dropped, misspelt])
def test_one_slip_gives_one_diagnostic_in_its_line(slips: Callable[[str], Iterator[Slip]]) -> None:
    judged = []
    for path in MODELS:
        text = path.read_text(encoding="utf-8")
        for slip in slips(text):
            found = diagnose(slip.text)
            if found:  # without one, the slip has made another model that is as sound
                judged.append((is_right(found, slip), path.stem, slip.what, [d.message for d in found]))
    wrong = [each for each in judged if not each[0]]
    share = 1 - len(wrong) / len(judged)
    print(f"{slips.__name__}: {share:.3f} of {len(judged)}")
    assert share >= 0.95, "\n".join(map(str, wrong))
