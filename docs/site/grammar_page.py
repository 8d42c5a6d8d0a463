"""The grammar page: each rule of a Lark grammar as a railroad diagram, in Markdown with inline SVG."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lark import Lark, Token, Tree
from railroad import Choice, Diagram, DiagramItem, NonTerminal, OneOrMore, Optional, Terminal, ZeroOrMore
from railroad import Sequence as Line
from railroad import Stack as Lines

MAX_LINE_WIDTH = 740
"""Maximum width of a line of a diagram in pixels; the width of a page without the navigation."""

_SECTION = re.compile(r"^// ---- (.+) ----$", re.MULTILINE)
_LARK = Lark.open_from_package(
    "lark", "lark.lark", ("grammars",), parser="lalr", propagate_positions=True, maybe_placeholders=False
)


@dataclass(frozen=True)
class Rule:
    """A rule of a grammar, or a token in capitals.

    Args:
        section: The section heading above the rule.
        body: The right-hand side of the rule.
    """

    name: str
    section: str
    body: Tree[Token]

    @property
    def anchor(self) -> str:
        return f"{'token' if self.name.isupper() else 'rule'}-{self.name}"

    def names(self) -> list[str]:
        """Return the distinct names of rules and tokens in the body."""
        found = (str(tree.children[0]) for tree in self.body.find_data("name"))
        return list(dict.fromkeys(found))


def rules(grammar: str) -> list[Rule]:
    """Return the rules and tokens of a grammar in order, except ignored tokens."""
    sections = [(found.start(), found[1]) for found in _SECTION.finditer(grammar)]
    parsed = _LARK.parse(grammar.rstrip() + "\n").find_pred(lambda tree: tree.data in ("rule", "token"))
    found = []
    for tree in sorted(parsed, key=lambda tree: tree.meta.start_pos):
        above = [title for start, title in sections if start < tree.meta.start_pos]
        name, body = str(tree.children[0]).lstrip("?!"), tree.children[-1]
        assert isinstance(body, Tree)
        found.append(Rule(name, above[-1] if above else "A declaration", body))
    ignored = set(re.findall(r"^%ignore (\w+)$", grammar, re.MULTILINE))
    return [rule for rule in found if rule.name not in ignored]


def diagram(rule: Rule, known: dict[str, Rule]) -> str:
    """Return the diagram of a rule as SVG, with links to the diagrams of other rules."""
    drawn = Diagram(_diagram_item(rule.body, known), type="complex")
    drawn.attrs["aria-label"] = f"Diagram of {rule.name}"
    drawn.attrs["xmlns:xlink"] = "http://www.w3.org/1999/xlink"
    drawn.attrs["width"], drawn.attrs["height"] = f"{drawn.width:g}", f"{drawn.up + drawn.height + drawn.down:g}"
    written = io.StringIO()
    drawn.format(8, 8, 8, 8).writeSvg(written.write)
    return "\n".join(line for line in written.getvalue().splitlines() if line.strip())


def _diagram_item(node: Tree[Token], known: dict[str, Rule]) -> DiagramItem:
    parts: list[Any] = node.children
    match node.data:
        case "expansions":
            return Choice(0, *(_diagram_item(part, known) for part in parts))
        case "alias":
            return _diagram_item(parts[0], known)
        case "expansion":
            return _lines([_diagram_item(part, known) for part in _repeated(parts)])
        case "expr":
            item = _diagram_item(parts[0], known)
            return {"?": Optional, "*": ZeroOrMore, "+": OneOrMore}[str(parts[1])](item)
        case "maybe":
            return Optional(_diagram_item(parts[0], known))
        case "list":
            return OneOrMore(_diagram_item(parts[0], known), _diagram_item(parts[1], known))
        case "name":
            name = str(parts[0])
            return NonTerminal(name, href=f"#{known[name].anchor}") if name in known else NonTerminal(name)
        case "literal":
            text = str(parts[0])
            return Terminal(text[1:-1] if text.startswith('"') else text, cls="" if text.startswith('"') else "pattern")
    raise AssertionError(f"no diagram for {node.data}")


def _repeated(parts: Sequence[Tree[Token]]) -> Iterator[Tree[Token]]:
    """Yield the parts of a sequence; `x ("," x)*` becomes one list of x separated by commas."""
    k = 0
    while k < len(parts):
        if k + 1 < len(parts) and (separator := _separator(parts[k], parts[k + 1])) is not None:
            yield Tree("list", [parts[k], separator])
            k += 2
        else:
            yield parts[k]
            k += 1


def _separator(item: Tree[Token], rest: Tree[Token]) -> Tree[Token] | None:
    """Return the separator of a list, if `rest` repeats `item` with a separator."""
    if rest.data != "expr" or str(rest.children[1]) != "*":
        return None
    inner = rest.children[0]
    if isinstance(inner, Tree) and inner.data == "expansion" and len(inner.children) == 2 and inner.children[1] == item:
        return inner.children[0] if isinstance(inner.children[0], Tree) else None
    return None


def _lines(items: Sequence[DiagramItem]) -> DiagramItem:
    """Return items in sequence, broken into lines of at most `MAX_LINE_WIDTH` pixels."""
    lines: list[list[DiagramItem]] = [[]]
    for item in items:
        if lines[-1] and sum(i.width + 20 for i in lines[-1]) + item.width > MAX_LINE_WIDTH:
            lines.append([])
        lines[-1].append(item)
    drawn = [Line(*line) if len(line) > 1 else line[0] for line in lines]
    return drawn[0] if len(drawn) == 1 else Lines(*drawn)


def page(grammar: str) -> str:
    """Return all rules as Markdown: headings, diagrams, and links to the rules that use each rule."""
    found = rules(grammar)
    known = {rule.name: rule for rule in found}
    lines = []
    for k, rule in enumerate(found):
        if k == 0 or rule.section != found[k - 1].section:
            lines += [f"## {rule.section}", ""]
        lines += [f"### {rule.name}", "", f'<div class="railroad" id="{rule.anchor}">']
        lines += [diagram(rule, known), "</div>", ""]
        users = [
            f'<a href="#{r.anchor}"><code>{html.escape(r.name)}</code></a>' for r in found if rule.name in r.names()
        ]
        if users:
            lines += [f'<p class="railroad-uses">used by {", ".join(users)}</p>', ""]
    return "\n".join(lines)
