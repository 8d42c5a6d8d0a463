"""Tests of the checker: exact diagnostics of the models in tests/models/bad, none for valid models."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from calls import count_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.errors import Diagnostic, ModelError
from relcrf.language.check import check, require_valid
from relcrf.language.parse import parse, parse_with_errors
from relcrf.model.spec import ModelSpec

ROOT = Path(__file__).parents[2]
BAD = sorted((ROOT / "tests" / "models" / "bad").glob("*.rcrf"))
GOOD = sorted((ROOT / "models").glob("*.rcrf"))


def diagnose(text: str, name: str, folder: Path | None = None) -> list[Diagnostic]:
    spec, syntax_errors = parse_with_errors(text, name, folder)
    return sorted([*syntax_errors, *check(spec, syntax_errors)], key=lambda d: (d.location.line, d.location.column))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_model_has_expected_diagnostics(path: Path) -> None:
    found = diagnose(path.read_text(encoding="utf-8"), path.name, path.parent)
    rendered = "\n\n".join(d.render() for d in found) + "\n"
    expected = path.with_suffix(".txt")
    if os.environ.get("RELCRF_RENEW_MESSAGES"):  # review the changes before you commit them
        expected.write_text(rendered, encoding="utf-8")
    assert rendered == expected.read_text(encoding="utf-8")
    assert {d.code for d in found} == {path.stem.split("_")[0]}


SOURCES = [p.read_text() for part in ("language", "model") for p in (ROOT / "relcrf" / part).glob("*.py")]
CODES = {code for text in SOURCES for code in re.findall(r'"([EW][0-2]\d\d)"', text)}
"""The codes that the parser and the checker report."""


def test_every_code_has_a_bad_model() -> None:
    assert {path.stem.split("_")[0] for path in BAD} == CODES


EXAMPLES = (ROOT / "docs" / "reference" / "language.md").read_text(encoding="utf-8").split("```rcrf\n")[1:]


@pytest.mark.parametrize("example", [text.split("```")[0] for text in EXAMPLES], ids=range(len(EXAMPLES)))
def test_documented_example_is_valid(example: str) -> None:
    assert check(parse(example)) == []


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_shipped_model_is_valid(path: Path) -> None:
    assert check(parse(path.read_text(encoding="utf-8"), path.name)) == []


BASE = """
domain Category = { course, faculty, student, other, shared }
domain Level = 1..5
domain Word = open
domain Price = { 1, 2.5, "on demand", 3.70 }
domain Colour = { other, shared }
entity Page(url) {
    predict category : Category
    predict level : Level
    predict good : bool
    predict size : real
    predict weight : real
    price : Price
    topic : Category
    grade : Level
    words : bag of Word
    length : real
    count : integer
    name : string
    seen : date
    at : datetime
    clock : time
    spam : bool
    v : vector
}
relation Link(source: Page, target: Page) { score : real }
relation About(page: Page, word: Word)
relation Kind(page: Page, category: Category)
"""


@pytest.mark.parametrize(
    "clauses",
    [
        '(p: Page) where p.seen >= "2024-01-31" over p.category',
        '(p: Page) where "2024-01-31" < p.seen and p.name == "x" over p.category',
        '(a: Page, b: Page) where Link(a, b) and a.at < b.at and a.at > "2024-01-31 10:00Z" and "09:30" < a.clock over b.good',
        '(a: Page, b: Page) where Link(a, b) and b.at - a.at < 60 and a.at - "2024-01-31" > 0.5 over a.good by b.clock - a.clock',
        "(p: Page) where p.grade > 2 and p.grade + 1 < p.length and -1 < p.length over p.level by p.grade",
        '(p: Page) where p.price == 2.5 or p.price == "on demand" or p.price != 1 over p.level',
        "(p: Page) where p.topic == course and faculty != p.topic over p.category == course => p.level >= 3",
        "(p: Page) where p.spam and not p.spam == false over p.good, p.level per p.spam, p.count, p.name, p.topic, p",
        "(p: Page) where Kind(p, course) and not Link(q, p) over not p.good by p.spam, p.length * 2 - 1, p.v",
        "(p: Page, w: Word) where w in p.words and About(p, w) over p.category per w",
        "(p: Page, w: Word) where w in q.words and Link(q, p) over p.category per w",
        '(p: Page, w: Word) where w in p.words and w != "the" and "a" != w over p.category per w',
        '(p: Page) where "neural" in p.words or About(p, "net") over p.good',
        "(p: Page) over p.category by p.words",
        "(p: Page) over p.size per p.topic by 1, p.length, p.v init 1, 2 l2 0.5",
        "(p: Page) over p.size, p.category, p.good by p.spam",
        "(a: Page, b: Page) where Link(a, b) over a.size, b.weight per a.topic by 1, Link(a, b).score init -3",
        "(a: Page, b: Page) where Link(a, b) and a < b and Link(a, b).score > 0.5 over a.level < b.level init 1 fixed",
        "(a: Page, b: Page) where a.name == b.name over a.good <=> b.good by cosine(a.v, b.v) l1 0 l2 0.5",
        "(a: Page, b: Page) where Link(a, b) or Link(b, a) over a.level, b.level",
        "(p: Page, w: Word) where w in p.words or About(p, w) over p.good",
        '(p: Page, w: Word) where w in p.words and w < "m" over p.good per w',
        "(a: Page, b: Page) where Link(a, b) over symmetric a.level, b.level",
        "(p: Page) over p.category == p.topic and (p.spam => p.good)",
        "(p: Page) where exists { Link(q, p) and q.spam } over p.good by count { q, w where Link(p, q) and w in q.words }",
        "(p: Page) where sum { Link(p, q).score where Link(p, q) } > mean { q.length where Link(q, p) } over p.good",
        '(p: Page) where contains(lower(p.name), "x") and length(p.name) > 3 over p.good by jaro_winkler(p.name, "y")',
        "(p: Page) where p.price == 2.50 or p.price != 2.500 over p.good",
        "(p: Page) over p.category == other or faculty == p.category or (shared == p.category) == p.good",
    ],
)
def test_valid_template(clauses: str) -> None:
    assert check(parse(f"{BASE}template t{clauses}")) == []


@pytest.mark.parametrize(
    ("clauses", "codes"),
    [
        ("(p: Page) over p.level < 6", ["E105"]),
        ('(p: Page) where p.at < "2024-01-31 25:00" or p.clock < "10:00+01:00" over p.good', ["E112", "E112"]),
        ('(p: Page) where p.at < "2024-01-31 10:00:00.1234567" over p.good', ["E112"]),
        ("(p: Page) where p.at < p.seen over p.good", ["E111"]),
        ("(p: Page) where p.at - p.clock > 0 over p.good", ["E111"]),
        ("(p: Page) where p.at - 3 > 0 over p.good", ["E111"]),
        ("(p: Page) where p.at + p.at > 0 over p.good", ["E110"]),
        ("(p: Page) where p.seen - p.seen > 0 over p.good", ["E110"]),
        ("(p: Page) over -1 <= p.level", ["E105"]),
        ("(p: Page) over p.level == 2.5", ["E105"]),
        ("(p: Page) over p.level == p.rank", ["E111"]),
        ("(p: Page) over p.good < true", ["E111"]),
        ("(p: Page) where Link(p, q) over p.good by Link(p, q).score", ["E127"]),
        ("(p: Page) over p.good by Link(p, q).score", ["E104"]),
        ('(p: Page) where w != "the" over p.good', ["E104"]),
        ("(p: Page, w: Word) where w in p.words and w != the over p.good", ["E104"]),
        ("(p: Page) where p.words == p.v over p.good", ["E110"]),
        ("(p: Page) where p.words over p.good", ["E110"]),
        ('(p: Page) where "x" in p.name over p.good', ["E110"]),
        ("(p: Page) where 3 in p over p.good", ["E110"]),
        ("(p: Page) where 3 < p over p.good", ["E111"]),
        ("(p: Page) over p.good by p.v, p.words", ["E130"]),
        ("(p: Page) over p.good by p.v + 1", ["E110"]),
        ("(a: Page, b: Page) where a.length < b.length over a.good, b.good", ["W201"]),
        ("(a: Page, b: Page) where not Link(a, b) over a.good, b.good", ["W201"]),
        ("(p: Page) where p.price == 3.7 and p.price == 3.8 over p.good", ["E105"]),
        ("(p: Page) over other == shared and p.good", ["E106"]),
        ("(p: Page) over p.lvl, p.god", ["E101", "E101"]),
        (
            "(p: Page) where (p.lvl > 1 or p.length == course) and p.nam == p.nme over p.good",
            ["E101", "E111", "E101", "E101"],
        ),
        ("(p: Page) over p.good by log(p.len, 2) + p.lvl, cosine(p.v)", ["E101", "E101", "E108"]),
        ("(p: Page, v: Word, w: Word) over p.good per v, w", ["W201"]),
        ("(p: Page, k: 1..3) over p.good per k", ["W201"]),
        ("(p: Page) where count { q.name where Link(q, p) } > 1 over p.good", ["E141"]),
        ("(p: Page) where sum { q.name where Link(q, p) } > 1 over p.good", ["E110"]),
        ("(p: Page) where exists { Link(q, p) and q.spm } over p.good", ["E101"]),
        ("(p: Page) where exists { Link(q, p) } and q.spam over p.good", ["E104"]),
        ("(p: Page) where exists { Link(q, p) and Link(q, r).score > 1 } over p.good", ["E113"]),
        ("(a: Page, b: Page) where Link(a, b) over symmetric a.level == b.level", ["E143"]),
        ("(p: Page) over p.good and p.name", ["E110"]),
        ("(p: Page) over p.level == p.length", ["E111"]),
    ],
)
def test_invalid_template(clauses: str, codes: list[str]) -> None:
    text = BASE.replace("    price :", "    predict rank : Rank\n    price :") + "domain Rank = 0..4\n"
    assert [d.code for d in check(parse(f"{text}template t{clauses}"))] == codes


def test_all_errors_are_reported_in_the_order_of_the_text() -> None:
    text = BASE + (
        "template b(p: Page) where p.lenth > 1 and p.length == course and Lnk(p) over p.category per p.v by p.seen\n"
        "template a(p: Pge) over p.category\n"
    )
    assert [d.code for d in check(parse(text))] == ["E101", "E111", "E102", "E129", "E130", "E120"]


def test_names_may_be_used_before_their_declaration() -> None:
    text = (
        "template t(a: P, b: P) where R(a, b) over a.x, b.x\n"
        "derive R(a: P, b: P) where S(a, b)\nderive S(a: P, b: P) where L(a, b)\n"
        "relation L(a: P, b: P)\nentity P { predict x : D }\ndomain D = { a, b }"
    )
    assert check(parse(text)) == []


def test_syntax_error_has_no_consequential_errors() -> None:
    text = BASE.replace("relation Link(", "relation Link") + "template t(a: Page) where Link(a, b) over a.level"
    assert [d.code for d in diagnose(text, "m")] == ["E001"]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("template a(p: Page) over\ntemplate b(p: Page) where Lnk(p, p) over p.lvl by lg(p.length)", ["E102", "E101", "E102"]),
        ("relation R(a: Page\ntemplate b(p: Page) where R(p, p) and Lnk(p, p) over p.good per p.topc", ["E102", "E101"]),
        ("entity F { latent x : }\ntemplate b(p: F, q: G) over p.x\ntemplate c(p: Page) over p.lvl", ["E120", "E101"]),
        ("domain D = { 1, \nentity F { d : D  e : E }\ntemplate b(p: F) where p.d == x over p.good", ["E120", "E101"]),
        ("relaton R(a: Page)\ntemplate b(p: Page) where R(p) and S(p) over p.good", ["E102"]),
        ("rule: Link(x, y) =>", []),
        ("   templat b(p: Page) over p.good\n   template c(p: Page) over p.lvl", ["E101"]),
        ("template a(p: Page) over p.good\n  relaton R(a: Page)\ntemplate b(p: Page) where R(p) and S(p) over p.good", []),
    ],
)  # fmt: skip
def test_syntax_error_suppresses_only_its_consequences(text: str, codes: list[str]) -> None:
    spec, problems = parse_with_errors(BASE + text)
    assert len(problems) == 1
    assert [d.code for d in check(spec, problems)] == codes


def test_long_chain_of_derived_relations_is_checked_quickly() -> None:
    chain = "".join(f"derive R{k}(a: Page, b: Page) where R{k + 1}(a, b)\n" for k in range(500))
    template = "template t(p: Page) over p.good"
    assert check(parse(f"{BASE}{chain}derive R500(a: Page, b: Page) where Link(a, b)\n{template}")) == []
    (found,) = check(parse(f"{BASE}{chain}derive R500(a: Page, b: Page) where R0(a, b)\n{template}"))
    assert found.code == "W205"
    (found,) = check(parse(f"{BASE}{chain}derive R500(a: Page, b: Page) where Link(a, b) and not R0(a, b)\n{template}"))
    assert found.code == "E131" and found.notes[0].count("->") == 501


def test_relations_that_occur_several_times_are_checked_quickly() -> None:
    text = f'{BASE}entity Visit {{ predict back : bool time day : date }}\nderive R0(v: Visit) where v.day > "2024-01-31"\n'
    text += "".join(f"derive R{k}(v: Visit) where R{k - 1}(v) and not not R{k - 1}(v)\n" for k in range(1, 60))
    assert check(parse(f"{text}template t(v: Visit) where R59(v) over v.back as of v")) == []


def test_long_chain_of_features_is_checked_quickly() -> None:
    chain = "".join(f"feature f{k}(p: Page) = f{k - 1}(p) * f{k - 1}(p)\n" for k in range(1, 60))
    text = f"{BASE}feature f0(p: Page) = p.length\n{chain}template t(p: Page) over p.good by f59(p)"
    assert check(parse(text)) == []
    assert [d.code for d in check(parse(text.replace("= p.length", "= p.lenth")))] == ["E101"]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("template t(a: Page, b: Page) where Link(a, b) over Same(a)\ngate t by 1, a.size", ["E108", "E124"]),
        ("template t(a: Page, b: Page) where Link(a, b) over Same(a, c)\ngate t by 1", ["E104"]),
        ("feature g(p: Page) = p.lenth\nfeature f(p: Page): real = classifier of g(p) from p.length", ["E101"]),
        ("feature g(p: Page) = h(p)\nfeature h(p: Page) = g(p)\nfeature f(p: Page) = regressor of g(p) from p.v", ["E146"] * 2),
        ("entity Visit { time day : string }\ntemplate t(p: Page) over p.good as of p", ["E155", "E156"]),
        ("entity Visit { time day : string }\ntemplate t(v: Visit) over v.good as of v", ["E155", "E101"]),
    ],
)  # fmt: skip
def test_error_does_not_hide_or_repeat_another(text: str, codes: list[str]) -> None:
    more = "predict relation Same(a: Page, b: Page)\ntemplate other(p: Page) over p.good\n"
    assert [d.code for d in check(parse(f"{BASE}{more}{text}\n"))] == codes


WORDS = """
p q w course other 1 -2 2.5 "x" "2024-01-31" true p.category p.level p.good p.price p.grade p.words p.length p.name
p.seen p.spam p.v p.none q.topic Link(p,q) Link(p,q).score About(p,w) Kind(p,other) Kind(p,q) None(p)
"""
words = st.sampled_from(WORDS.split())
operators = st.sampled_from(["==", "!=", "<", "+", "*", "and", "or", "=>", "<=>", "in"])
phrases = st.recursive(
    words,
    lambda inner: st.one_of(
        st.tuples(inner, operators, inner).map("({0[0]} {0[1]} {0[2]})".format),
        st.tuples(st.sampled_from(["not ", "-", "log", "cosine", "least"]), inner).map("({0[0]}({0[1]}))".format),
    ),
    max_leaves=6,
)  # fmt: skip


BASE_SPEC = parse(BASE)


@settings(max_examples=400, deadline=None)
@given(phrases, phrases, phrases, phrases)
def test_random_expression_does_not_raise(where: str, over: str, per: str, by: str) -> None:
    text = f"template t(p: Page)\nwhere {where}\nover {over}\nper {per}\nby {by}"
    part, problems = parse_with_errors(text)
    spec = ModelSpec((*BASE_SPEC.declarations, *part.declarations), source=part.source)
    for diagnostic in [*problems, *check(spec, problems)]:
        assert diagnostic.render() and diagnostic.location is not None


def test_require_valid_raises_all_errors_and_returns_warnings() -> None:
    spec, problems = parse_with_errors(BASE + "template a(p: Page) over\ntemplate b(p: Page) over p.lvl")
    with pytest.raises(ModelError) as caught:
        require_valid(spec, problems)
    assert [d.code for d in caught.value.diagnostics] == ["E001", "E101"]
    assert [d.code for d in require_valid(parse(BASE + "template b(p: Page) over p.level fixed"))] == ["W202"]


def test_checking_takes_linear_time() -> None:
    template = "template t{}(a: Page, b: Page)\n where Link(a, b)\n over a.level, b.level\n"
    models = [parse(BASE + "".join(map(template.format, range(n)))) for n in (100, 400)]
    few, many = (count_calls(lambda model=model: check(model)) for model in models)
    assert many < 4.2 * few
    assert check(models[1]) == []
