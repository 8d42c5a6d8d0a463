"""Tests of error recovery: a single typing error in a shipped model has one diagnostic, on the right line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mutations import KINDS, Slip, doubled, dropped, misspelt

from relcrf.errors import Diagnostic, Span
from relcrf.language.check import check
from relcrf.language.parse import parse_with_errors

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.rcrf"))
STEPS = {dropped: 8, doubled: 8, misspelt: 8}
"""The kinds of which there is an error for each token; of these errors, only every eighth is tried."""


def diagnose(text: str) -> list[Diagnostic]:
    spec, problems = parse_with_errors(text)
    diagnostics = [*problems, *check(spec, problems)]
    for diagnostic in diagnostics:
        assert diagnostic.render()
    return diagnostics


def is_located(diagnostics: list[Diagnostic], slip: Slip) -> bool:
    return (
        len(diagnostics) == 1
        and isinstance(diagnostics[0].location, Span)
        and diagnostics[0].location.line in slip.lines
    )


@pytest.mark.parametrize("slips", KINDS)
def test_single_error_has_one_diagnostic_on_its_line(slips: Callable[[str], Iterator[Slip]]) -> None:
    results = []
    for path in MODELS:
        text = path.read_text(encoding="utf-8")
        for slip in list(slips(text))[:: STEPS.get(slips, 3)]:
            diagnostics = diagnose(slip.text)
            if diagnostics:  # otherwise the changed model is valid as well
                results.append((is_located(diagnostics, slip), path.stem, slip.what, [d.message for d in diagnostics]))
    failures = [result for result in results if not result[0]]
    assert len(results) > 8
    fraction = 1 - len(failures) / len(results)
    print(f"{slips.__name__}: {fraction:.3f} of {len(results)}")
    assert fraction >= 0.94, "\n".join(map(str, failures))
