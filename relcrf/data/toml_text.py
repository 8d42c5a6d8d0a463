"""Rendering of keys, strings and tables as TOML; the standard library only reads TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def toml_key(name: str) -> str:
    """Return a key of a TOML table, quoted if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a string, a number, a truth value, or a list or dictionary of these in the syntax of TOML.

    All JSON escapes are valid in TOML, and DEL is the only further character to escape.
    """
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml_key(key)} = {toml_value(entry)}" for key, entry in value.items())
        return f"{{ {pairs} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    lines = value.split("\n") if isinstance(value, str) else [""]
    if len(lines) > 1 and "'''" not in value and all(map(str.isprintable, lines)):
        return f"'''\n{value}'''"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def render_tables(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the section `tables` of a manifest, one TOML table for each table of the dataset."""
    sections = []
    for name, entry in tables.items():
        lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in entry.items()]
        sections.append("\n".join([f"[tables.{toml_key(name)}]", *lines]) + "\n")
    return "\n".join(sections)
