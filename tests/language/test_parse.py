"""Tests of the parser: the result of each syntactic form, its spans, and that no text raises an unexpected exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from calls import count_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.errors import ModelError, Span
from relcrf.language.check import check
from relcrf.language.parse import parse, parse_with_errors
from relcrf.model.expressions import (
    Arithmetic,
    Atom,
    Attribute,
    Boolean,
    Comparison,
    Connective,
    Expression,
    FunctionCall,
    Membership,
    Name,
    Not,
    Number,
    Text,
    TupleAttribute,
    UnaryMinus,
)
from relcrf.model.spec import (
    AttributeDeclaration,
    Declaration,
    DerivedRelation,
    Entity,
    EnumeratedDomain,
    NearestNeighbours,
    OpenDomain,
    Parameter,
    RangeDomain,
    Relation,
    Template,
    WeightOptions,
)
from relcrf.model.types import Bag, Bool, Date, DomainType, Real, Time, Vector

MODELS = Path(__file__).parents[2] / "models"


@pytest.mark.parametrize(
    ("text", "declaration"),
    [
        ("domain D = { a, b_1, c }", EnumeratedDomain("D", ("a", "b_1", "c"))),
        (
            'domain D = {1,-2, 2.50, "on\\tdemand", open,}',
            EnumeratedDomain("D", ("1", "-2", "2.50", "on\tdemand", "open")),
        ),
        ("domain D = 1..5", RangeDomain("D", 1, 5)),
        ("domain D = -3 .. -1", RangeDomain("D", -3, -1)),
        ("domain D = 3..-1", RangeDomain("D", 3, -1)),
        ("domain D = open", OpenDomain("D")),
        ("entity E", Entity("E")),
        ("entity E(url) {}", Entity("E", key="url")),
        (
            "entity E { predict a : D b : bag of W, c:vector\nd : bool domain : real }",
            Entity(
                "E",
                (
                    AttributeDeclaration("a", DomainType("D"), predicted=True),
                    AttributeDeclaration("b", Bag("W")),
                    AttributeDeclaration("c", Vector()),
                    AttributeDeclaration("d", Bool()),
                    AttributeDeclaration("domain", Real()),
                ),
            ),
        ),
        (
            "relation R(x: E, y: F) { score: real }",
            Relation("R", (Parameter("x", "E"), Parameter("y", "F")), (AttributeDeclaration("score", Real()),)),
        ),
        (
            "entity E { time a : date time : time time time : time, time:bool }",
            Entity(
                "E",
                (
                    AttributeDeclaration("a", Date(), is_time=True),
                    AttributeDeclaration("time", Time()),
                    AttributeDeclaration("time", Time(), is_time=True),
                    AttributeDeclaration("time", Bool()),
                ),
            ),
        ),
        (
            "derive R(x: E) where S(x, as) as of x",
            DerivedRelation("R", (Parameter("x", "E"),), Atom("S", (Name("x"), Name("as"))), Name("x")),
        ),
        (
            "derive R(x: E) where S(x, y)",
            DerivedRelation("R", (Parameter("x", "E"),), Atom("S", (Name("x"), Name("y")))),
        ),
        (
            "derive R(a: E, b: E) = nearest 5 by cosine(a.v, b.v)",
            DerivedRelation(
                "R",
                (Parameter("a", "E"), Parameter("b", "E")),
                NearestNeighbours(5, FunctionCall("cosine", (Attribute("a", "v"), Attribute("b", "v")))),
            ),
        ),
        (
            "template t(a: E) where R(a) over a.x, a.y per a, a.z by 1, a.l init -0.5 fixed l1 0 l2 1e-3",
            Template(
                "t",
                (Parameter("a", "E"),),
                (Attribute("a", "x"), Attribute("a", "y")),
                Atom("R", (Name("a"),)),
                (Name("a"), Attribute("a", "z")),
                (Number(1), Attribute("a", "l")),
                WeightOptions(init=-0.5, fixed=True, l1=0.0, l2=0.001),
            ),
        ),
        (
            "template t(a: E) over a.x init 0.5, -1, 2e-3 l2 1.0",
            Template(
                "t",
                (Parameter("a", "E"),),
                (Attribute("a", "x"),),
                options=WeightOptions(init=(0.5, -1.0, 0.002), l2=1.0),
            ),
        ),
    ],
)
def test_declaration(text: str, declaration: Declaration) -> None:
    assert parse(text).declarations == (declaration,)


X, Y, Z = Name("x"), Name("y"), Name("z")


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("x <=> y => z", Connective("<=>", X, Connective("=>", Y, Z))),
        ("x => y => z", Connective("=>", X, Connective("=>", Y, Z))),
        ("x or y and not z", Connective("or", X, Connective("and", Y, Not(Z)))),
        ("x and y and z", Connective("and", Connective("and", X, Y), Z)),
        ("not x == y", Not(Comparison("==", X, Y))),
        ("(x or y) and z", Connective("and", Connective("or", X, Y), Z)),
        ("x + y * z < 1", Comparison("<", Arithmetic("+", X, Arithmetic("*", Y, Z)), Number(1))),
        ("x - y - z", Arithmetic("-", Arithmetic("-", X, Y), Z)),
        ("x-1", Arithmetic("-", X, Number(1))),
        ("-x * 2.0", Arithmetic("*", UnaryMinus(X), Number(2.0))),
        ("x / --y", Arithmetic("/", X, UnaryMinus(UnaryMinus(Y)))),
        ("x <= 1e3", Comparison("<=", X, Number(1000.0))),
        ('"a \\"#\\u00e9" in x.words', Membership(Text('a "#é'), Attribute("x", "words"))),
        ("R(x, 1).score >= log(y.l)", Comparison(">=", TupleAttribute(Atom("R", (X, Number(1))), "score"),
                                                  FunctionCall("log", (Attribute("y", "l"),)))),
        ("true != x.where", Comparison("!=", Boolean(True), Attribute("x", "where"))),
    ],
)  # fmt: skip
def test_expression(text: str, expression: Expression) -> None:
    template = parse(f"template t(x: E)\nover {text}").templates[0]
    assert template.over == (expression,)
    span = template.over[0].span
    assert span is not None and (span.line, span.column) == (2, 6 + text.startswith("("))


def test_newlines_and_comments_are_ignored() -> None:
    text = (MODELS / "webkb.rcrf").read_text(encoding="utf-8")
    bare = " ".join(line.split("#")[0] for line in text.splitlines())
    tall = "\n".join(bare.split())
    assert parse(bare) == parse(text) == parse(tall) == parse(text.replace("\n", "\r\n")) == parse("\ufeff" + text)


def test_spans_refer_to_the_whole_text() -> None:
    text = "# first\ndomain D = open   entity E {\n    a : D\n}\n\ntemplate t(b: E) over b.a"
    spec = parse(text, "m.rcrf")
    domain, entity, template = spec.declarations
    spans = [domain.span, entity.span, entity.attributes[0].span, template.parameters[0].span, template.over[0].span]
    assert [_text(text, span) for span in spans] == ["D", "E", "a : D", "b: E", "b.a"]
    assert {span.source.name for span in spans if span} == {"m.rcrf"}


def _text(text: str, span: Span | None) -> str:
    assert span is not None and span.line == span.end_line
    return text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1]


def test_errors_of_declarations_within_a_line_are_located() -> None:
    text = "domain D = open entity E { a b }\nentity F domain G = {\n"
    spans = [d.location for d in parse_with_errors(text)[1]]
    assert [(p.line, p.column) for p in spans if isinstance(p, Span)] == [(1, 30), (2, 22)]


def test_each_part_of_a_conjunction_has_its_span() -> None:
    text = "template t(a: E) over a.x and a.y and a.z"
    chain = parse(text).templates[0].over[0]
    assert isinstance(chain, Connective)
    assert [_text(text, n.span) for n in (chain, chain.left)] == ["a.x and a.y and a.z", "a.x and a.y"]


def test_parse_raises_all_syntax_errors() -> None:
    with pytest.raises(ModelError) as caught:
        parse("domain D = \n\nentity E {\n\nrelation R(a b)\ntemplate t(a: E) over a.x")
    assert [d.location.line for d in caught.value.diagnostics if isinstance(d.location, Span)] == [1, 3, 5]


@pytest.mark.parametrize(
    "text",
    [
        "template t(a: E) over " + "(" * 5_000 + "a.x",
        "template t(a: E) over " + "(" * 5_000 + "a.x" + ")" * 5_000 + "'",
        "template t(a: E) over " + "not " * 5_000 + "a.x",
        "template t(a: E) over " + "a.x or " * 5_000 + "a.x",
        "template t(a: E) over a.x by " + "-" * 5_000 + "1",
        "domain D = 1.." + "9" * 5_000,
        "template t(a: E) over a.x init 1e999",
        'domain D = { "\\x" }',
        'domain D = { "\\ud800" }',
        "\0",
        "domain D\0 = open",
        "domain é = open",
        "entity E }",
        "?",
    ],
    ids=lambda text: repr(text[:40]),
)
def test_hostile_text_gives_one_diagnostic(text: str) -> None:
    _, problems = parse_with_errors(text)
    assert len(problems) == 1
    assert problems[0].render()


WORDS = """
domain entity relation derive template where over per by init fixed nearest in and not predict bag of open rule
latent D a.x ( ) { } = == , : .. . - + " # 1 -2 3.5 => <=> é
"""


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*WORDS.split(), "\n", "\0"]), max_size=40))
def test_random_text_does_not_raise(words: list[str]) -> None:
    spec, problems = parse_with_errors(" ".join(words))
    for diagnostic in [*problems, *check(spec, problems)]:
        assert diagnostic.render()


def test_parsing_takes_linear_time() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(MODELS.glob("*.rcrf"))) + "\n"
    parse(text)
    few, many = (count_calls(lambda n=n: parse_with_errors(text * n)) for n in (2, 8))
    assert many < 4.2 * few
