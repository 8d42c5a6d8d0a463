"""Tests of error recovery: a single typing error in a shipped model has one diagnostic, on the right line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mutations import KINDS, Slip

from relcrf.errors import Diagnostic, Span
from relcrf.language.check import check
from relcrf.language.parse import parse_with_errors

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.rcrf"))


def diagnose(text: str) -> list[Diagnostic]:
    spec, problems = parse_with_errors(text)
    found = [*problems, *check(spec, problems)]
    for diagnostic in found:
        assert diagnostic.render()
    return found


def is_located(found: list[Diagnostic], slip: Slip) -> bool:
    return len(found) == 1 and isinstance(found[0].location, Span) and found[0].location.line in slip.lines


@pytest.mark.parametrize("slips", KINDS)
def test_single_error_has_one_diagnostic_on_its_line(slips: Callable[[str], Iterator[Slip]]) -> None:
    judged = []
    for path in MODELS:
        text = path.read_text(encoding="utf-8")
        for slip in list(slips(text))[::3]:
            found = diagnose(slip.text)
            if found:  # otherwise the changed model is valid as well
                judged.append((is_located(found, slip), path.stem, slip.what, [d.message for d in found]))
    wrong = [each for each in judged if not each[0]]
    assert len(judged) > 8
    share = 1 - len(wrong) / len(judged)
    print(f"{slips.__name__}: {share:.3f} of {len(judged)}")
    assert share >= 0.94, "\n".join(map(str, wrong))
