"""Tests of the formatter: it changes only white space and is idempotent."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specs import specs

from relcrf.errors import ModelError
from relcrf.language.format import MAX_LINE_WIDTH, format_text
from relcrf.language.parse import parse, parse_with_errors
from relcrf.language.render import render

ROOT = Path(__file__).parents[2]
MODELS = sorted((ROOT / "models").glob("*.rcrf"))
TOKEN = re.compile(
    r'\s+|#[^\n]*|"(?:[^"\\\n]|\\.)*"|<=>|=>|[=!<>]=|\.\.|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\w+|.', re.ASCII
)


def comments(text: str) -> list[str]:
    return [t.rstrip() for t in TOKEN.findall(text) if t.startswith("#")]


def without_commas(text: str) -> list[str]:
    """Return the tokens without commas, because formatting removes the optional commas between attributes."""
    return [t for t in TOKEN.findall(text) if not t.isspace() and not t.startswith("#") and t != ","]


def check(text: str) -> str:
    formatted = format_text(text)
    assert format_text(formatted) == formatted
    assert parse_with_errors(formatted)[0] == parse_with_errors(text)[0]
    assert comments(formatted) == comments(text)
    assert without_commas(formatted) == without_commas(text)
    return formatted


def with_random_white_space(text: str, rng: random.Random) -> str:
    """Return the text with random white space and comments between its tokens."""
    out = []
    for token in TOKEN.findall(text):
        if token.isspace():
            out.append(
                rng.choice([" ", "  ", "\n", "\n\n\n", " # a remark\n", "\n  # on a line\n", " # one\n # two\n"])
            )
        else:
            out.append(token)
            if token.startswith("#"):
                out.append("\n")
    return "".join(out)


@pytest.mark.parametrize(
    "text",
    [
        "rule: A\n\npredict relation B(x: E)\n",
        "rule: A predict relation B(x: E)\n",
        "rule: A\n\npredict relation B(x: E) : Kind\n",
        "entity E {\n    rule             : T\n    predict relation : T\n    predict other    : T\n}\n",
    ],
)
def test_rule_before_predicted_relation_is_preserved(text: str) -> None:
    formatted = check(text)
    assert len(parse_with_errors(formatted)[0].declarations) == (1 if text.startswith("entity") else 2)


@settings(max_examples=100, deadline=None)
@given(specs, st.integers(0, 99))
def test_formatting_preserves_meaning_and_comments(spec, seed) -> None:
    text = render(spec)
    check(text)
    changed = with_random_white_space(text, random.Random(seed))
    if not parse_with_errors(changed)[1]:  # a keyword at the start of a line may split a declaration
        check(changed)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_shipped_models_are_formatted(path: Path) -> None:
    assert check(path.read_text(encoding="utf-8")) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", range(2))
def test_shipped_models_with_random_white_space(path: Path, seed: int) -> None:
    check(with_random_white_space(path.read_text(encoding="utf-8"), random.Random(seed)))


def test_comment_after_the_last_attribute_is_indented() -> None:
    text = "entity E {\n    a : real\n    # b : real\n}\n"
    assert check(text) == text


def test_long_domain_is_formatted_quickly() -> None:
    text = f"domain Word = {{ {', '.join(f'w{k}' for k in range(20_000))} }}\n"
    assert format_text(text) == text


def test_layout_of_all_declarations() -> None:
    text = """# pages
domain Category={course,faculty}# two
domain Level = -3 ..  5
entity Page(url){predict category:Category # the topic
  words:bag of Word, length : real   # evidence
  # on a line
  latent k: 1..4 }
relation Link(source:Page,target:Page){score:real}
feature smooth(p:Page)=propagate 2(p.words)along Link normalised symmetric
feature near(p:Page)=mean{q.words where Link(p,q)}
predict relation same(a:Page,b:Page):Category where a!=b


# words
template word(p: Page, w: Word) where w in p.words
   over symmetric p.category # all
   per w
   l2 0.5 fixed init -1
rule hard foo : Link(a,b)and not(a.length==-1)=>same(a,b)
candidates long(a: Page, b: Page) where Link(a, b) and a.length > 3
  and count{q where Link(q,a) and Link(q,b)} > 2 and a != b over a.k
"""
    assert (
        check(text)
        == """# pages
domain Category = { course, faculty }  # two
domain Level = -3..5

entity Page(url) {
    predict category : Category  # the topic
    words            : bag of Word
    length           : real      # evidence
    # on a line
    latent k         : 1..4
}

relation Link(source: Page, target: Page) { score : real }
feature smooth(p: Page) = propagate 2 (p.words) along Link normalised symmetric
feature near(p: Page) = mean { q.words where Link(p, q) }
predict relation same(a: Page, b: Page) : Category where a != b

# words
template word(p: Page, w: Word)
    where w in p.words
    over  symmetric p.category  # all
    per   w
    l2 0.5 fixed init -1

rule hard foo: Link(a, b) and not (a.length == -1) => same(a, b)

candidates long(a: Page, b: Page)
    where Link(a, b) and a.length > 3 and count { q where Link(q, a) and Link(q, b) } > 2 and a != b
    over  a.k
"""
    )
    assert all(len(line) <= MAX_LINE_WIDTH for line in check(text).splitlines())


def test_invalid_text_raises_model_error() -> None:
    with pytest.raises(ModelError):
        format_text("entity Page {\n")


def test_empty_text_and_comments_alone() -> None:
    assert format_text("") == ""
    assert format_text("\n\n# only this\n\n\n# and that") == "# only this\n\n# and that\n"
    assert parse(format_text("# head\n\nentity A")).entities[0].name == "A"


def test_long_parentheses_are_broken_at_their_operators():
    case = "a.first_name == b.first_name and a.birth == b.birth"
    head = "entity R { first_name: string, birth: string }\nderive B(a: R, b: R) where "
    text = f"{head}a < b and ({case} or {case} or {case})\n"
    lines = check(text).splitlines()
    assert max(map(len, lines)) <= MAX_LINE_WIDTH
    assert [line.split()[0] for line in lines[-3:]] == ["where", "or", "or"]
    assert lines[-1] == f"              or {case})"
    assert (
        check("entity R { x: string }\nderive B(a: R, b: R) where a < b and (a.x == b.x or b.x == a.x)\n").count("\n")
        <= 5
    )
