"""Tests of name resolution in the language server: complete, at correct offsets, also in incomplete text."""

import re
from pathlib import Path

import pytest
from calls import count_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.editor.completion import complete, expected_words
from relcrf.editor.diagnostics import locate_diagnostics
from relcrf.editor.document import Document
from relcrf.editor.glossary import GLOSSARY
from relcrf.editor.hover import hover
from relcrf.editor.outline import outline
from relcrf.editor.partial_declaration import PartialDeclaration
from relcrf.editor.positions import PositionMap
from relcrf.editor.symbols import Namespace
from relcrf.language.keywords import DECLARATION_KEYWORDS, KEYWORDS, is_reserved
from relcrf.language.tokens import SourceText
from relcrf.model.expressions import Atom, Attribute, Name, TupleAttribute
from relcrf.model.functions import AGGREGATES, FUNCTIONS
from relcrf.model.rules import all_templates
from relcrf.model.spec import DerivedRelation, Feature, Gate, NearestNeighbours, Rule, feature_operands
from relcrf.model.types import SCALARS
from relcrf.model.typing import NameScope
from relcrf.unaries.estimators import SHORT_NAMES

HOME = Path(__file__).parents[2]
RICH = """\
domain Category = { course, faculty, "home page" }
domain Other = { course, no }
domain Word = open
entity Page(url) { predict category : Category, latent kind : 1..4  words : bag of Word
    length : real  pixels : vector  predict spam : bool  over : Category }
relation Link(source: Page, target: Page) { strength : real, via : Category }
predict relation Same(x: Page, y: Page) where Link(x, y) and x != y
predict relation Tag(x: Page, n: 1..3) : Category where Link(x, p)
derive Near(a: Page, b: Page) = nearest 5 by cosine(a.pixels, b.pixels)
derive Reach(a: Page, b: Page) where Link(a, b) or (Reach(a, c) and Link(c, b))
derive Busy(a: Page) where count { q where Link(q, a) } > 3 and sum { q.length where Link(a, q) } < 10.0
template linked(a: Page, b: Page)
    where Link(a, b) and Link(a, b).strength > 0.5 and a.over != "home page" and Link(a, b).via == course
    over a.category == b.category
    by 1, log(a.length)
    l2 1.0 weights pairs
template near(a: Page, b: Page) where Near(a, b) over a.category == b.category by 1, log(a.length) weights pairs
template tab(a: Page, b: Page) where Reach(a, b) over symmetric a.category, b.category
candidates cand(a: Page, w: Word) where w in a.words over a.category == course per w
rule 1.5 smart: Link(x, y) and Same(x, y) => x.spam
rule hard: Link(x, y) and x.spam => y.spam
gate linked by a.length, b.length
feature smooth(p: Page) = propagate 2 (normalise(p.words)) along Link normalised mean
feature around(p: Page) = sum { q.pixels where Near(p, q) }
template smooth(p: Page) over p.kind by smooth(p)
"""


def models():
    """Yield every valid model of the project."""
    yield "rich", RICH
    for path in [*HOME.glob("models/*.rcrf"), *HOME.glob("tests/models/good/*.rcrf")]:
        yield path.stem, path.read_text()
    page = (HOME / "docs" / "reference" / "language.md").read_text()
    for k, text in enumerate(re.findall(r"```rcrf\n(.*?)```", page, re.DOTALL)):
        yield f"language{k}", text


MODELS = [pytest.param(text, id=name) for name, text in models() if "include " not in text]


@pytest.mark.parametrize("text", MODELS)
def test_every_name_is_indexed(text):
    document = Document(text, None)
    found = document.diagnostics
    assert not [d for d in found if d.is_error]
    keys = {e.key for e in document.spec.entities}
    for token in document.text.tokens:
        if token.kind != "name":
            continue
        occurrence = document.index.occurrence_at(document.name, token.start)
        if occurrence is None:
            assert is_reserved(token.text) or token.text in (*KEYWORDS, *AGGREGATES, *SHORT_NAMES, *keys)
        else:
            assert (occurrence.start, occurrence.stop) == (token.start, token.stop)
            assert occurrence.symbol.name == token.text
    # Every symbol has a declaration, except for shared weights.
    for symbol in document.index.symbols:
        assert symbol.namespace is Namespace.WEIGHTS or document.index.declarations(symbol), symbol


def bodies(spec):
    """Yield the expressions of a model, each with the scope of the checker."""
    templates = {t.name: t for t in all_templates(spec)}
    for each in spec.declarations:
        if isinstance(each, Feature):
            for part in feature_operands(each):
                yield from NameScope(spec, each.parameters, None).walk(part)
            continue
        where = each.definition if isinstance(each, DerivedRelation) else getattr(each, "where", None)
        parameters = getattr(each, "parameters", ())
        items = [*getattr(each, "over", ()), *getattr(each, "per", ()), *getattr(each, "by", ())]
        if isinstance(where, NearestNeighbours):
            items, where = [where.measure], None
        elif isinstance(each, Rule):
            items, where = [*items, each.formula], each.formula
        elif isinstance(each, Gate):
            parameters, where = templates[each.template].parameters, templates[each.template].where
        elif where is not None:
            items.append(where)
        for item in items:
            yield from NameScope(spec, parameters, where).walk(item)


@pytest.mark.parametrize("text", MODELS)
def test_name_types_match_checker(text):
    """Names are resolved from tokens, so this also holds for incomplete declarations."""
    document = Document(text, None)
    seen = 0
    for scope, node in bodies(document.spec):
        if node.span is None or not isinstance(node, Name | Attribute | Atom | TupleAttribute):
            continue
        start, stop = document.text.offsets(node.span)
        first, last = (document.index.occurrence_at(document.name, k).symbol for k in (start, stop - 1))
        match node:
            case Name(name) | Attribute(name, _) if name in scope.type_names:
                assert (first.namespace, first.name) == (Namespace.BINDER, name)
                assert document.index.binders[first].type_name == scope.type_names[name]
            case Name(name):
                assert first.namespace is Namespace.VALUE and name in document.spec.domain(first.owner).values
            case Atom(relation, _):
                assert (first.namespace, first.name) == (Namespace.NAME, relation)
        if isinstance(node, Attribute | TupleAttribute):
            owner = scope.type_names[node.binder] if isinstance(node, Attribute) else node.atom.relation
            assert (last.namespace, last.name, last.owner) == (Namespace.ATTRIBUTE, node.attribute, owner)
        seen += 1
    assert seen or not document.spec.templates


@pytest.mark.parametrize("text", MODELS)
def test_completion_offers_every_token(text):
    document = Document(text, None)
    for token in document.text.tokens:
        occurrence = document.index.occurrence_at(document.name, token.start)
        before = document.text.token_before(token.start)
        is_new = occurrence is not None and occurrence.is_declaration
        is_key = token.text in {e.key for e in document.spec.entities} and occurrence is None
        if token.kind != "name" or is_new or is_key or before is None or before.text == "weights":
            continue
        found = complete(document, token.stop)
        assert found is not None and (found.start, found.stop) == (token.start, token.stop)
        assert any(item.label.startswith(token.text) for item in found.items), token


@pytest.mark.parametrize("text", MODELS)
def test_declarations_match_parser(text):
    document = Document(text, None)
    assert (
        len(document.text.declarations)
        == len(document.spec.declarations)
        == len({p.start for p, _ in document.parsed_declarations})
    )


def test_indexing_takes_linear_time():
    rules = [f"rule r{k}: Link(x, y) and x.spam => y.spam\ngate r{k} by 1\n" for k in range(40)]
    documents = [Document(RICH + "".join(rules[:n]), None) for n in (20, 10, 40)]
    assert all(not document.problems for document in documents)
    _, few, many = (count_calls(lambda document=document: document.index) for document in documents)
    assert many < 6 * few


def occurrences(words, text=RICH):
    """Return all occurrences of the symbol at `|`, as line and column from 1."""
    document = Document(text, None)
    offset = text.index(words.replace("|", "")) + words.index("|")
    found = document.index.occurrence_at(document.name, offset)
    lines = [
        (text.count("\n", 0, o.start) + 1, o.start - text.rfind("\n", 0, o.start))
        for o in document.index.occurrences(found.symbol)
    ]
    return lines


def test_aggregates_have_separate_scopes():
    assert occurrences("count { |q") == [(11, 36), (11, 49)]
    assert occurrences("sum { |q") == [(11, 71), (11, 94)]
    assert occurrences("derive Busy(|a") == [(11, 13), (11, 52), (11, 91)]


def test_gate_uses_binders_of_its_template():
    assert occurrences("gate linked by |a.")[-1] == (22, 16)
    assert occurrences("gate linked by |a.")[0] == (12, 17)


def test_ambiguous_value_is_resolved_by_comparison():
    assert [line for line, _ in occurrences("via == cou|rse")] == [1, 13, 19]
    assert [line for line, _ in occurrences("{ cou|rse, no")] == [2]


def test_shared_weights():
    assert [line for line, _ in occurrences("weights pa|irs")] == [16, 17]


def test_attributes_may_have_names_of_keywords():
    assert [line for line, _ in occurrences("ov|er : Category")] == [5, 13]


def test_names_in_incomplete_declaration_have_types():
    """Includes a value of a bag whose owner is bound after it."""
    text = RICH + "rule: w in p.words and Link(a, p) and Tag(a, "
    document = Document(text, None)
    piece = document.text.declarations[-1]
    assert PartialDeclaration(piece, document.spec).type_names == {"a": "Page", "p": "Page", "w": "Word"}
    assert [item.label for item in complete(document, len(text)).items][:3] == ["1", "2", "3"]


# Arbitrary text

fragments = st.sampled_from(
    [
        *re.findall(r"\w+|\s+|[^\w\s]+", RICH),
        *sorted(KEYWORDS),
        '"',
        "{",
        "}",
        "(",
        ")",
        "#",
        "\r\n",
        "\r",
        "\x00",
        "\ufeff",
        "\u2028",
        "é",
        "😀",
        "\ud800",
        '"\\u0000"',
        "1..",
    ]
)
pieces = st.sampled_from([f"{line}\n" for line in RICH.splitlines()])
texts = st.lists(pieces | fragments | st.text(max_size=3), max_size=30).map("".join)


@settings(max_examples=150, deadline=None)
@given(texts, st.data())
def test_arbitrary_text_is_parsed(text, data):
    document = Document(text, None)
    assert "".join(token.text for token in document.text.tokens) == text
    positions = PositionMap(text)
    for report in locate_diagnostics(document):
        assert 0 <= report.start <= report.stop <= len(text)
        assert positions.offset(*positions.position(report.start)) <= report.start
    for heading in outline(document):
        assert heading.start <= heading.name_start <= heading.name_stop <= heading.stop
    for symbol in document.index.symbols:
        for occurrence in document.index.occurrences(symbol):
            assert symbol.name in text[occurrence.start : occurrence.stop] or symbol.namespace is Namespace.VALUE
    for _ in range(3):
        offset = data.draw(st.integers(0, len(text)))
        hover(document, offset, [])
        complete(document, offset)


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("aé😀\r\n\u2028 "), max_size=12), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_positions_round_trip(text, encoding):
    positions = PositionMap(text, encoding)
    for offset in range(len(text) + 1):
        line, character = positions.position(offset)
        before = re.split(r"\r\n|\n|\r", text)[line].encode(encoding if encoding == "utf-8" else f"{encoding}-le")
        units = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
        is_inside_break = text[offset - 1 : offset + 1] == "\r\n" and offset > 0
        if not is_inside_break:
            assert character <= len(before) // units
            assert positions.offset(line, character) == offset


def test_positions_beyond_text_are_clipped():
    positions = PositionMap("ab\ncd")
    assert positions.offset(0, 99) == 2
    assert positions.offset(9, 0) == 5


# Keywords


def test_every_keyword_has_a_description():
    assert set(GLOSSARY) == KEYWORDS | {*SCALARS, *AGGREGATES}
    assert not set(GLOSSARY) & set(FUNCTIONS)


def test_expected_words():
    assert expected_words("").words == set(DECLARATION_KEYWORDS)
    assert expected_words("template t(a: A) where R(a)").words == {"and", "or", "in", "over"}
    assert expected_words("domain D = ").words == {"open"}
    assert expected_words("template t(a: A) over a.x").is_whole
    assert expected_words("template t(a: A) where )") is None


def test_incomplete_text_ends_at_parser_position():
    text = SourceText('entity A { x : "\nrelation R(a: A)\npredict "  relation S(a: A)\n')
    assert [each.texts[0] for each in text.declarations] == ["entity", "relation", "relation"]
    assert text.declarations[1].texts[-2:] == ("predict", '"  ')


def test_checker_failure_is_reported_as_diagnostic(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a bug")

    for name in ("parse_source", "check"):
        with monkeypatch.context() as patched:
            patched.setattr(f"relcrf.editor.document.{name}", broken)
            found = Document("entity E { predict s : bool }\ntemplate t(e: E) over e.s\n", None).diagnostics
        assert [d.code for d in found if d.code == "E070"]
