"""The tables of the parser in the repository belong to the grammar, and give the same parser as the grammar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lark
import pytest
from lark.parsers.lalr_analysis import Shift

import relcrf.language.grammar as grammar
from relcrf.resources import resource_path


def _describe(parser: lark.Lark) -> tuple[Any, ...]:
    """Return the parts of a parser that determine how it parses, with its states numbered in the order of their visit."""
    table = parser.parser.parser._parse_table
    numbers = {table.start_states["start"]: 0}
    states = []
    for state in (queue := list(numbers)):
        actions = []
        for symbol, (action, argument) in sorted(table.states[state].items(), key=lambda item: item[0]):
            if action is Shift and argument not in numbers:
                numbers[argument] = len(numbers)
                queue.append(argument)
            actions.append((symbol, numbers[argument] if action is Shift else str(argument)))
        states.append(actions)
    terminals = [(t.name, t.pattern.to_regexp(), t.priority) for t in parser.terminals]
    rules = [(str(rule), rule.alias, rule.options.keep_all_tokens) for rule in parser.rules]
    return states, numbers[table.end_states["start"]], terminals, parser.lexer_conf.ignore, rules


@pytest.fixture
def fresh() -> Any:
    """Let a test load the parser again, and let the tests after it do so, too."""
    grammar.load_grammar.cache_clear()
    yield
    grammar.load_grammar.cache_clear()


def test_the_tables_are_those_of_the_grammar(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = resource_path("grammar", "rcrf.lark").read_text(encoding="utf-8")
    built = grammar.build_parser(text)
    monkeypatch.setattr(grammar, "build_parser", None)
    try:
        restored = grammar.load_grammar()
    except TypeError:
        pytest.fail("grammar/rcrf.json belongs to another grammar or another version of Lark: run `make grammar`")
    assert _describe(restored) == _describe(built)


@pytest.mark.parametrize("changed", ["grammar", "lark"])
def test_other_tables_are_not_used(changed: str, fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tables = json.loads(resource_path("grammar", grammar.TABLES).read_text(encoding="utf-8"))
    tables["source"][changed] = "other"
    other = tmp_path / grammar.TABLES
    other.write_text(json.dumps(tables))
    monkeypatch.setattr(
        grammar, "resource_path", lambda folder, name: other if name == other.name else resource_path(folder, name)
    )
    built = grammar.build_parser(resource_path("grammar", "rcrf.lark").read_text(encoding="utf-8"))
    monkeypatch.setattr(grammar, "build_parser", lambda text: built)
    assert grammar.load_grammar() is built
