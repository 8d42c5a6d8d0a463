"""What the language server knows of names: all of them, at the right places, also in text that is half typed."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.editor.completion import complete
from relcrf.editor.document import Document
from relcrf.editor.expected import expected
from relcrf.editor.glossary import GLOSSARY
from relcrf.editor.hover import hover
from relcrf.editor.outline import outline
from relcrf.editor.positions import Positions
from relcrf.editor.reports import reports
from relcrf.editor.runs import Runs
from relcrf.editor.sketch import Sketch
from relcrf.editor.symbols import Space
from relcrf.language.words import DECLARATIONS, LANGUAGE, is_reserved
from relcrf.model.functions import AGGREGATES, FUNCTIONS
from relcrf.model.types import SCALARS
from relcrf.text.tokens import Text

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
"""


def models():
    """Every sound model that the project has."""
    yield "rich", RICH
    for path in [*HOME.glob("models/*.rcrf"), *HOME.glob("tests/models/good/*.rcrf")]:
        yield path.stem, path.read_text()
    page = (HOME / "docs" / "language.md").read_text()
    for k, text in enumerate(re.findall(r"```rcrf\n(.*?)```", page, re.DOTALL)):
        yield f"language{k}", text


MODELS = [pytest.param(text, id=name) for name, text in models() if "include " not in text]


def key(occurrence):
    """A symbol, apart from which of several scopes of a declaration it is of."""
    return occurrence and (occurrence.symbol.space, occurrence.symbol.name, occurrence.symbol.owner)


@pytest.mark.parametrize("text", MODELS)
def test_every_name_is_known(text):
    document = Document(text, None)
    found = document.diagnostics
    assert not [d for d in found if d.is_error]
    keys = {e.key for e in document.spec.entities}
    for token in document.text.tokens:
        if token.kind != "name":
            continue
        occurrence = document.index.at(document.name, token.start)
        if occurrence is None:
            assert is_reserved(token.text) or token.text in (*AGGREGATES, *keys)
        else:
            assert (occurrence.start, occurrence.stop) == (token.start, token.stop)
            assert occurrence.symbol.name == token.text
    # Whatever is used is declared somewhere, but for the weights that templates share.
    for symbol in document.index.symbols:
        assert symbol.space is Space.WEIGHTS or document.index.declarations(symbol), symbol


@pytest.mark.parametrize("text", MODELS)
def test_tokens_alone_tell_the_same_as_the_checker(text):
    """So a declaration that is half typed is understood as it will be."""
    document = Document(text, None)
    ambiguous = {value for value, domains in document.spec.constants.items() if len(domains) > 1}
    for piece, _ in document.declared:
        exact = {o.start: o for o in document.index.inside(document.name, piece.start, piece.stop)}
        told = {o.start: o for o in Sketch(piece, document.spec).occurrences(document.name, {})}
        for token in piece.tokens:
            if token.kind == "name" and token.text not in ambiguous:
                assert key(told.get(token.start)) == key(exact.get(token.start)), token


@pytest.mark.parametrize("text", MODELS)
def test_whatever_was_typed_would_have_been_offered(text):
    document = Document(text, None)
    for token in document.text.tokens:
        occurrence = document.index.at(document.name, token.start)
        before = document.text.before(token.start)
        is_new = occurrence is not None and occurrence.is_declaration
        is_key = token.text in {e.key for e in document.spec.entities} and occurrence is None
        if token.kind != "name" or is_new or is_key or before is None or before.text == "weights":
            continue
        found = complete(document, token.stop)
        assert found is not None and (found.start, found.stop) == (token.start, token.stop)
        assert any(item.label.startswith(token.text) for item in found.items), token


@pytest.mark.parametrize("text", MODELS)
def test_pieces_are_those_of_the_parser(text):
    document = Document(text, None)
    assert len(document.text.pieces) == len(document.spec.declarations) == len({p.start for p, _ in document.declared})


def occurrences(words, text=RICH):
    """All places, as line and column from 1, of what stands at `|` in some words."""
    document = Document(text, None)
    offset = text.index(words.replace("|", "")) + words.index("|")
    found = document.index.at(document.name, offset)
    lines = [
        (text.count("\n", 0, o.start) + 1, o.start - text.rfind("\n", 0, o.start))
        for o in document.index.of(found.symbol)
    ]
    return lines


def test_aggregates_have_names_of_their_own():
    assert occurrences("count { |q") == [(11, 36), (11, 49)]
    assert occurrences("sum { |q") == [(11, 71), (11, 94)]
    assert occurrences("derive Busy(|a") == [(11, 13), (11, 52), (11, 91)]


def test_a_gate_speaks_of_the_binders_of_its_template():
    assert occurrences("gate linked by |a.")[-1] == (22, 16)
    assert occurrences("gate linked by |a.")[0] == (12, 17)


def test_a_value_of_two_domains_is_told_by_the_other_side():
    assert [line for line, _ in occurrences("via == cou|rse")] == [1, 13, 19]
    assert [line for line, _ in occurrences("{ cou|rse, no")] == [2]


def test_weights_that_are_shared():
    assert [line for line, _ in occurrences("weights pa|irs")] == [16, 17]


def test_attributes_may_be_called_as_words_of_the_language_are():
    assert [line for line, _ in occurrences("ov|er : Category")] == [5, 13]


def test_the_names_of_a_half_typed_declaration_have_their_sorts():
    """Also a value of a bag whose owner is bound behind it."""
    text = RICH + "rule: w in p.words and Link(a, p) and Tag(a, "
    document = Document(text, None)
    piece = document.text.pieces[-1]
    assert Sketch(piece, document.spec).sorts == {"a": "Page", "p": "Page", "w": "Word"}
    assert [item.label for item in complete(document, len(text)).items][:3] == ["1", "2", "3"]


# Any text at all

fragments = st.sampled_from(
    [
        *re.findall(r"\w+|\s+|[^\w\s]+", RICH),
        *sorted(LANGUAGE),
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
def test_any_text_is_read(text, data):
    document = Document(text, None)
    assert "".join(token.text for token in document.text.tokens) == text
    positions = Positions(text)
    for report in reports(document):
        assert 0 <= report.start <= report.stop <= len(text)
        assert positions.offset(*positions.position(report.start)) <= report.start
    for heading in outline(document):
        assert heading.start <= heading.name_start <= heading.name_stop <= heading.stop
    for symbol in document.index.symbols:
        for occurrence in document.index.of(symbol):
            assert symbol.name in text[occurrence.start : occurrence.stop] or symbol.space is Space.VALUE
    for _ in range(3):
        offset = data.draw(st.integers(0, len(text)))
        hover(document, offset, Runs(), [])
        complete(document, offset)


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("aé😀\r\n\u2028 "), max_size=12), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_positions_come_back(text, encoding):
    positions = Positions(text, encoding)
    for offset in range(len(text) + 1):
        line, character = positions.position(offset)
        before = re.split(r"\r\n|\n|\r", text)[line].encode(encoding if encoding == "utf-8" else f"{encoding}-le")
        units = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
        is_inside_break = text[offset - 1 : offset + 1] == "\r\n" and offset > 0
        if not is_inside_break:
            assert character <= len(before) // units
            assert positions.offset(line, character) == offset


def test_places_beyond_the_text_are_its_end():
    positions = Positions("ab\ncd")
    assert positions.offset(0, 99) == 2
    assert positions.offset(9, 0) == 5


# Words


def test_every_word_of_the_language_has_a_line():
    assert set(GLOSSARY) == LANGUAGE | {*SCALARS, *AGGREGATES}
    assert not set(GLOSSARY) & set(FUNCTIONS)


def test_the_grammar_tells_what_may_follow():
    assert expected("").words == set(DECLARATIONS)
    assert expected("template t(a: A) where R(a)").words == {"and", "or", "in", "over"}
    assert expected("domain D = ").words == {"open"}
    assert expected("template t(a: A) over a.x").is_whole
    assert expected("template t(a: A) where )") is None


def test_unfinished_texts_end_where_the_parser_ends_them():
    text = Text('entity A { x : "\nrelation R(a: A)\npredict "  relation S(a: A)\n')
    assert [piece.texts[0] for piece in text.pieces] == ["entity", "relation", "relation"]
    assert text.pieces[1].texts[-2:] == ("predict", '"  ')


def test_a_failure_of_the_checker_is_shown_and_not_taken_for_a_sound_model(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a bug")

    for name in ("read", "check"):
        with monkeypatch.context() as patched:
            patched.setattr(f"relcrf.editor.document.{name}", broken)
            found = Document("entity E { predict s : bool }\ntemplate t(e: E) over e.s\n", None).diagnostics
        assert [d.code for d in found if d.code == "E070"]
