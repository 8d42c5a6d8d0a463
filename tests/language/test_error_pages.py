"""Every code has a page in docs/errors, whose wrong example gives exactly that diagnostic and whose right one gives none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relcrf.language.check import check
from relcrf.language.parse import parse_with_errors

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "errors"
SOURCES = sorted((ROOT / "relcrf").rglob("*.py"))
USED = sorted({code for path in SOURCES for code in re.findall(r'"([EW]\d{3})"', path.read_text(encoding="utf-8"))})
CODES = sorted({path.stem.split("_")[0] for path in (ROOT / "tests" / "models" / "bad").glob("*.rcrf")})
"""The codes of wrong models."""


def page(code: str) -> str:
    return (PAGES / f"{code}.md").read_text(encoding="utf-8")


def example(code: str, heading: str) -> str:
    """The model below a heading of a page."""
    found = re.search(rf"^## {heading}\n\n```rcrf\n(.*?)^```$", page(code), re.MULTILINE | re.DOTALL)
    assert found, f"{code} has no model under '{heading}'"
    return found[1]


def diagnosed(text: str) -> list[str]:
    """The diagnostics of a model, as a user reads them."""
    spec, problems = parse_with_errors(text, "model.rcrf")
    return [d.render() for d in [*problems, *check(spec, problems)]]


@pytest.mark.parametrize("code", CODES)
def test_wrong_example_gives_this_diagnostic_alone(code: str) -> None:
    found = diagnosed(example(code, "Wrong"))
    assert len(found) == 1, "\n\n".join(found)
    assert f"[{code}]" in found[0]


@pytest.mark.parametrize("code", CODES)
def test_right_example_gives_none(code: str) -> None:
    assert diagnosed(example(code, "Right")) == []


@pytest.mark.parametrize("code", CODES)
def test_right_example_is_a_good_model(code: str) -> None:
    assert (ROOT / "tests" / "models" / "good" / f"{code}.rcrf").read_text(encoding="utf-8") == example(code, "Right")


def test_every_code_of_the_package_has_a_page() -> None:
    table = (PAGES / "README.md").read_text(encoding="utf-8")
    assert len(USED) > 50
    for code in USED:
        title = page(code).split("\n")[0].removeprefix(f"# {code}: ")
        assert f"| [{code}]({code}.md) | {title} |" in table
        assert "\n## Mend\n" in page(code)
