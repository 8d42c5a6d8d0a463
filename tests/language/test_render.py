"""Tests of the renderer: its text is parsed to an equal specification, and contains no redundant brackets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from specs import specs, trees

from relcrf.errors import ModelError
from relcrf.language.parse import parse
from relcrf.language.render import render, render_expression
from relcrf.model import expressions as e
from relcrf.model import spec as s

ROOT = Path(__file__).parents[2]


@settings(max_examples=300, deadline=None)
@given(specs)
def test_round_trip(spec: s.ModelSpec) -> None:
    text = render(spec)
    parsed = parse(text)
    assert parsed == spec
    assert render(parsed) == text


@settings(max_examples=200, deadline=None)
@given(trees)
def test_rendered_brackets_are_necessary(tree: e.Expression) -> None:
    text = render_expression(tree)
    pairs, opened, is_quoted = [], [], False
    for k, c in enumerate(text):
        is_quoted ^= c == '"' and (len(text[:k]) - len(text[:k].rstrip("\\"))) % 2 == 0
        if is_quoted or c not in "()":
            continue
        if c == "(":
            opened.append(k)
        elif (start := opened.pop()) == 0 or not (text[start - 1].isalnum() or text[start - 1] == "_"):
            pairs.append((start, k))
    for start, stop in pairs:
        bare = text[:start] + " " + text[start + 1 : stop] + " " + text[stop + 1 :]
        assert _over(bare) != (tree,), f"{text} needs no brackets at {start}"


def _over(text: str) -> tuple[e.Expression, ...] | None:
    try:
        return parse(f"template t(a: E) over {text}").templates[0].over
    except ModelError:
        return None


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.rcrf")), ids=lambda path: path.stem)
def test_shipped_model_round_trip(path: Path) -> None:
    spec = parse(path.read_text(encoding="utf-8"))
    assert parse(render(spec)) == spec


def test_canonical_text_is_unchanged() -> None:
    text = (
        'domain D = { a, "b c", 1 }\n\nentity E {\n    predict x : D\n    w : bag of W\n}\n\n'
        "derive N(a: E, b: E) = nearest 5 by cosine(a.v, b.v)\n\n"
        "template t(a: E, b: E)\n    where N(a, b) and (a.l > 1 or not b.l - 1 == 2)\n    over a.x == b.x\n"
        "    by 1, -a.l * 2\n    l2 0.5\n    fixed\n"
    )
    assert render(parse(text)) == text
