"""Tests of syntax highlighting: the Pygments lexer and the Visual Studio Code grammar."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("pygments")

from pygments import highlight
from pygments.formatters import NullFormatter
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, String

from relcrf.language.keywords import CLAUSE_KEYWORDS, DECLARATION_KEYWORDS, KEYWORDS
from relcrf.model.functions import AGGREGATES, FUNCTIONS
from relcrf.model.types import SCALARS
from relcrf.text.highlight import RcrfLexer

HOME = Path(__file__).parents[2]
MODELS = [*HOME.glob("models/*.rcrf"), *HOME.glob("tests/models/good/*.rcrf")]
EXTENSION = HOME / "editors" / "vscode"


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_are_lexed_without_errors(path):
    text = path.read_text()
    tokens = list(RcrfLexer(stripnl=False, ensurenl=False).get_tokens(text))
    assert "".join(value for _, value in tokens) == text
    assert [value for kind, value in tokens if kind in Error] == []


def test_lexer_preserves_invalid_text():
    text = 'templat x(a: P) where && over \n"open\n%%$ relation R(\n\n'
    assert highlight(text, RcrfLexer(stripnl=False), NullFormatter()) == text


def colours(text):
    return [(value, kind) for kind, value in RcrfLexer().get_tokens(text) if value.strip()]


def test_token_types_depend_on_context():
    found = colours(
        'domain Kind = { open, news, "b c", 2.5 }  # values\nentity Page { predict over : Kind  tags : bag of Kind  n : real }'
    )
    assert found == [
        ("domain", Keyword.Declaration),
        ("Kind", Name.Class),
        ("=", Operator),
        ("{", found[3][1]),
        ("open", Name.Constant),
        (",", found[3][1]),
        ("news", Name.Constant),
        (",", found[3][1]),
        ('"b c"', String.Double),
        (",", found[3][1]),
        ("2.5", Number.Float),
        ("}", found[3][1]),
        ("# values", Comment.Single),
        ("entity", Keyword.Declaration),
        ("Page", Name.Class),
        ("{", found[3][1]),
        ("predict", Keyword),
        ("over", Name.Attribute),
        (":", found[3][1]),
        ("Kind", Name.Class),
        ("tags", Name.Attribute),
        (":", found[3][1]),
        ("bag", Keyword.Type),
        ("of", Keyword.Type),
        ("Kind", Name.Class),
        ("n", Name.Attribute),
        (":", found[3][1]),
        ("real", Keyword.Type),
        ("}", found[3][1]),
    ]


def test_times():
    text = "entity V { time day : date time : time } template t(p: V) over p.x as of p"
    kinds = [kind for value, kind in colours(text) if value in ("time", "day", "as", "of", "p")]
    role, name, declared, kind, *rest = kinds
    assert (role, name, declared, kind) == (Keyword, Name.Attribute, Name.Attribute, Keyword.Type)
    assert rest == [Name.Variable, Name.Variable, Keyword, Keyword, Name.Variable]


def test_clauses():
    found = dict(
        colours(
            "template linked(a: Page, b: Page) where Link(a, b) and count { q where Link(q, a) } > 3"
            " over a.over == news by log(a.length) weights pairs"
        )
    )
    expected = {
        "template": Keyword.Declaration,
        "linked": Name.Function,
        "a": Name.Variable,
        "q": Name.Variable,
        "Page": Name.Class,
        "Link": Name.Class,
        "where": Keyword,
        "by": Keyword,
        "and": Operator.Word,
        "count": Name.Builtin,
        "log": Name.Builtin,
        "over": Name.Attribute,  # the last of two occurrences
        "length": Name.Attribute,
        "news": Name.Constant,
        "weights": Keyword,
        "pairs": Name.Function,
        "==": Operator,
        "3": Number.Integer,
    }
    assert {word: found[word] for word in expected} == expected


# Visual Studio Code


def grammar():
    return json.loads((EXTENSION / "syntaxes" / "rcrf.tmLanguage.json").read_text())


def patterns(node):
    """Yield all regular expressions of a grammar."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key in ("match", "begin", "end"))
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from patterns(child)


def words(name):
    """Return the words listed in a rule of the grammar."""
    listed = re.search(r"\((?!\?)([\w|]+)\)", grammar()["repository"][name]["match"])
    return listed[1].split("|")


def test_grammar_patterns_compile():
    found = list(patterns(grammar()))
    assert len(found) > 20
    for pattern in found:
        re.compile(pattern)


def test_grammar_rules_are_defined():
    text = json.dumps(grammar())
    assert set(re.findall(r'"include": "#(\w+)"', text)) == set(grammar()["repository"])


def test_grammar_keywords_match_language():
    connectives = {"and", "or", "not", "in"}
    assert set(words("declarations")) == set(DECLARATION_KEYWORDS)
    assert set(words("clauses")) == set(CLAUSE_KEYWORDS) - connectives
    assert set(words("connectives")) == connectives
    assert set(words("types")) == set(SCALARS)
    assert set(words("functions")) == set(FUNCTIONS)
    assert set(words("aggregates")) == set(AGGREGATES)
    together = ("declarations", "clauses", "connectives", "parts", "constants")
    assert sorted(word for name in together for word in words(name)) == sorted(KEYWORDS)


def test_extension_references_existing_files():
    package = json.loads((EXTENSION / "package.json").read_text())
    contributes = package["contributes"]
    (language,), (colouring,) = contributes["languages"], contributes["grammars"]
    for path in (package["icon"], language["configuration"], colouring["path"]):
        assert (EXTENSION / path).is_file()
    assert language["extensions"] == [".rcrf"]
    assert colouring["scopeName"] == grammar()["scopeName"]
    assert contributes["configuration"]["properties"]["relcrf.command"]["default"] == ["relcrf"]
    settings = json.loads((EXTENSION / "language-configuration.json").read_text())
    assert settings["comments"] == {"lineComment": "#"}
    for pattern in (settings["wordPattern"], *settings["indentationRules"].values()):
        re.compile(pattern)
