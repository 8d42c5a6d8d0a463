"""Tests of the error pages in docs/errors: every code has one, and its examples show the diagnostic and its fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relcrf.language.check import check
from relcrf.language.parse import parse_with_errors

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "errors"
SOURCES = sorted((ROOT / "relcrf").rglob("*.py"))
SOURCE_CODES = sorted(
    {code for path in SOURCES for code in re.findall(r'"([EW]\d{3})"', path.read_text(encoding="utf-8"))}
)
"""The codes of all diagnostics in the package."""

MODEL_CODES = sorted({path.stem.split("_")[0] for path in (ROOT / "tests" / "models" / "bad").glob("*.rcrf")})
"""The codes of diagnostics about models."""

HEADINGS = ["What it means", "Example", "How to fix"]


def read_page(code: str) -> str:
    return (PAGES / f"{code}.md").read_text(encoding="utf-8")


def extract_model(code: str, heading: str) -> str:
    """Return the first model in a section of a page."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", read_page(code), re.MULTILINE | re.DOTALL)
    assert section, f"{code} has no section '{heading}'"
    model = re.search(r"^```rcrf\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    assert model, f"{code} has no model in section '{heading}'"
    return model[1]


def render_diagnostics(text: str) -> list[str]:
    spec, problems = parse_with_errors(text, "model.rcrf")
    return [d.render() for d in [*problems, *check(spec, problems)]]


@pytest.mark.parametrize("code", MODEL_CODES)
def test_example_has_only_this_diagnostic(code: str) -> None:
    diagnostics = render_diagnostics(extract_model(code, "Example"))
    assert len(diagnostics) == 1, "\n\n".join(diagnostics)
    assert f"[{code}]" in diagnostics[0]


@pytest.mark.parametrize("code", MODEL_CODES)
def test_corrected_example_has_no_diagnostic(code: str) -> None:
    assert render_diagnostics(extract_model(code, "How to fix")) == []


@pytest.mark.parametrize("code", MODEL_CODES)
def test_corrected_example_is_a_good_model(code: str) -> None:
    model = (ROOT / "tests" / "models" / "good" / f"{code}.rcrf").read_text(encoding="utf-8")
    assert model == extract_model(code, "How to fix")


@pytest.mark.parametrize("path", sorted(PAGES.glob("[EW]*.md")), ids=lambda path: path.stem)
def test_page_has_the_standard_headings(path: Path) -> None:
    assert re.findall(r"^## (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE) == HEADINGS


def test_every_code_has_a_page_and_an_index_entry() -> None:
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert len(SOURCE_CODES) > 50
    for code in SOURCE_CODES:
        title = read_page(code).split("\n")[0].removeprefix(f"# {code}: ")
        assert f"| [{code}]({code}.md) | {title} |" in index
