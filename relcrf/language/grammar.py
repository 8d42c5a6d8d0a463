"""Lark's parser of a declaration, from the tables in `grammar/rcrf.json` or else from the grammar `grammar/rcrf.lark`.

The tables are computed from the grammar once, by `make grammar`: their computation takes ten times as long as reading them,
and every process that reads a model needs them. They are JSON, because Lark's own cache is a pickle, which could run code.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

from relcrf.resources import resource_path

TABLES = "rcrf.json"
"""The file of the tables in `grammar/`."""


@cache
def load_grammar() -> lark.Lark:
    """Load Lark's parser of a declaration, which gets the tokens of `tokens.py` from `parse.feed_parser`."""
    grammar = _read_grammar()
    tables = json.loads(resource_path("grammar", TABLES).read_text(encoding="utf-8"))
    return _restore_parser(tables) if tables["source"] == _describe_source(grammar) else build_parser(grammar)


def build_parser(grammar: str) -> lark.Lark:
    """Compute the parser of a grammar."""
    return lark.Lark(grammar, parser="lalr", lexer="basic", propagate_positions=True, maybe_placeholders=False)


def serialize_tables() -> str:
    """Compute the text of the file of tables from the grammar."""
    grammar = _read_grammar()
    data, memo = build_parser(grammar).memo_serialize([TerminalDef, Rule])
    tables = {"source": _describe_source(grammar), "data": data, "memo": memo}
    return json.dumps(tables, separators=(",", ":")) + "\n"


def _read_grammar() -> str:
    return resource_path("grammar", "rcrf.lark").read_text(encoding="utf-8")


def _describe_source(grammar: str) -> dict[str, str]:
    """Return what the tables depend on: the grammar, and the minor version of Lark, whose format they have."""
    return {"grammar": hashlib.sha256(grammar.encode()).hexdigest(), "lark": lark.__version__.rpartition(".")[0]}


def _restore_parser(tables: dict[str, Any]) -> lark.Lark:
    """Restore the parser from its tables. Their keys are numbers, which JSON stores as texts."""
    automaton = tables["data"]["parser"]["parser"]
    automaton["tokens"] = _number_keys(automaton["tokens"])
    automaton["states"] = {int(state): _number_keys(actions) for state, actions in automaton["states"].items()}
    return lark.Lark.load({"data": tables["data"], "memo": _number_keys(tables["memo"])})


def _number_keys(entries: dict[str, Any]) -> dict[int, Any]:
    return {int(key): value for key, value in entries.items()}


if __name__ == "__main__":
    resource_path("grammar", "rcrf.lark").with_name(TABLES).write_text(serialize_tables(), encoding="utf-8")
