"""From Lark's tree of one declaration to the specification's data classes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Tree

from relcrf.errors import Span
from relcrf.language.tokens import SourceText
from relcrf.language.words import OPTIONS
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.functions import FUNCTIONS
from relcrf.model.nodes import children
from relcrf.model.types import SCALARS, AttributeType, Bag, Bool, DomainType

MAX_DEPTH = 150
"""Expressions inside expressions; deeper ones would exhaust Python's stack in the steps that walk them."""


class Unbuildable(Exception):
    """A tree that the grammar allows and that still says nothing: where, why, and what to do."""

    def __init__(self, span: Span, message: str, hint: str | None = None) -> None:
        # What is too large or too deep is long, too: its beginning is enough to find it.
        end = min(span.end_column, span.column + 20) if span.end_line == span.line else span.column + 1
        self.span = replace(span, end_line=span.line, end_column=end)
        self.message, self.hint = message, hint
        super().__init__(message)


@dataclass(frozen=True)
class Builder:
    """A builder of declarations from trees of tokens of a text.

    Raises:
        Unbuildable: from `declaration`, where a number, a text or an expression is beyond what can be held.
    """

    text: SourceText

    def declaration(self, tree: Any) -> s.Declaration:
        built: s.Declaration = getattr(self, f"_{tree.data}")(tree)
        return built

    def _span(self, node: Any) -> Span:
        meta: Any = node if isinstance(node, Token) else node.meta
        return self.text.span(meta.start_pos, meta.end_pos)

    def _name(self, tree: Any) -> str:
        return str(tree.children[0])

    @staticmethod
    def _part(tree: Any, name: str) -> Any:
        return next((c for c in tree.children if isinstance(c, Tree) and c.data == name), None)

    def _header(self, tree: Any) -> tuple[str, Span]:
        """A declaration's name, and its span: the name's, which is what messages should underline."""
        name = self._part(tree, "name")
        return self._name(name), self._span(name)

    # Declarations

    def _domain(self, tree: Any) -> s.Domain:
        name, span = self._header(tree)
        body = tree.children[-1]
        if body.data == "open":
            return s.OpenDomain(name, span=span)
        if body.data == "range":
            low, high = (self._integer(bound) for bound in body.children)
            return s.RangeDomain(name, low, high, span=span)
        return s.EnumeratedDomain(name, tuple(self._value(v) for v in body.children), span=span)

    def _value(self, tree: Any) -> str:
        token = tree.children[-1]
        return self._unquoted(token) if token.type == "STRING" else _signed(tree)

    def _entity(self, tree: Any) -> s.Entity:
        name, span = self._header(tree)
        key = self._part(tree, "key")
        return s.Entity(name, self._attributes(tree), self._name(key.children[0]) if key else "id", span=span)

    def _attributes(self, tree: Any) -> tuple[s.AttributeDeclaration, ...]:
        block = self._part(tree, "attributes")
        return tuple(self._attribute(a) for a in block.children) if block else ()

    def _attribute(self, tree: Any) -> s.AttributeDeclaration:
        name, _ = self._header(tree)
        predicted, latent = (self._part(tree, role) is not None for role in ("predict", "latent"))
        return s.AttributeDeclaration(name, self._type(tree.children[-1]), predicted, latent, span=self._span(tree))

    def _type(self, tree: Any) -> AttributeType:
        if tree.data == "range_type":
            return DomainType(self._range(tree))
        name = str(tree.children[-1])
        if tree.data == "bag":
            return Bag(name)
        return SCALARS.get(name, DomainType(name))

    def _range(self, tree: Any) -> str:
        """A range without a name, as it is called: `1..4`."""
        low, high = (self._integer(bound) for bound in tree.children)
        return f"{low}..{high}"

    def _sort(self, tree: Any) -> str:
        return self._range(tree) if len(tree.children) == 2 else str(tree.children[0])

    def _parameters(self, tree: Any) -> tuple[s.Parameter, ...]:
        block = self._part(tree, "parameters")
        return tuple(
            s.Parameter(self._name(p.children[0]), self._sort(p.children[1]), span=self._span(p))
            for p in block.children
        )

    def _relation(self, tree: Any) -> s.Relation:
        name, span = self._header(tree)
        return s.Relation(name, self._parameters(tree), self._attributes(tree), span=span)

    def _random_relation(self, tree: Any) -> s.RandomRelation:
        name, span = self._header(tree)
        kind = next((c for c in tree.children if c.data in ("bag", "named_type", "range_type")), None)
        type_ = self._type(kind) if kind else Bool()
        return s.RandomRelation(name, self._parameters(tree), type_, self._condition(tree), span=span)

    def _derive(self, tree: Any) -> s.Derived:
        name, span = self._header(tree)
        body = tree.children[-1]
        definition: e.Expression | s.Nearest
        if body.data == "nearest":
            count, measure = body.children
            definition = s.Nearest(self._integer(count), self._whole(measure), span=self._span(body))
        else:
            definition = self._whole(body.children[0])
        return s.Derived(name, self._parameters(tree), definition, span=span)

    def _clause(self, tree: Any, which: str) -> tuple[e.Expression, ...]:
        part = self._part(tree, which)
        return tuple(self._whole(c) for c in part.children if c.data != "symmetric") if part else ()

    def _condition(self, tree: Any) -> e.Expression | None:
        return next(iter(self._clause(tree, "where")), None)

    def _template(self, tree: Any) -> s.Template:
        name, span = self._header(tree)
        return s.Template(
            name,
            self._parameters(tree),
            self._clause(tree, "over"),
            self._condition(tree),
            self._clause(tree, "per"),
            self._clause(tree, "by"),
            self._options(tree),
            symmetric=self._part(self._part(tree, "over"), "symmetric") is not None,
            is_candidate=tree.data == "candidates",
            span=span,
        )

    _candidates = _template

    def _rule(self, tree: Any) -> s.Rule:
        name, number = self._part(tree, "name"), self._part(tree, "number")
        clauses = ("number", "hard", "name", "per", *OPTIONS)
        formula = next(c for c in tree.children if c.data not in clauses)
        span = self._span(name or tree)
        if name is None:
            span = replace(span, end_line=span.line, end_column=span.column + len("rule"))
        return s.Rule(
            self._name(name) if name else None,
            self._whole(formula),
            self._real(number) if number else None,
            self._part(tree, "hard") is not None,
            self._clause(tree, "per"),
            self._options(tree),
            span=span,
        )

    def _gate(self, tree: Any) -> s.Gate:
        name, span = self._header(tree)
        return s.Gate(name, self._clause(tree, "by"), span=span)

    def _include(self, tree: Any) -> s.Include:
        return s.Include(self._unquoted(tree.children[0]), span=self._span(tree.children[0]))

    def _options(self, tree: Any) -> s.Options:
        given: dict[str, Any] = {}
        for child in tree.children:
            if not isinstance(child, Tree) or child.data not in OPTIONS:
                continue
            if child.data in given:
                message = f"the option '{child.data}' is given twice"
                raise Unbuildable(self._span(child), message, "leave one of them out")
            values: list[Any] = child.children
            if not values:
                given[str(child.data)] = True
            elif values[0].data == "name":
                given[str(child.data)] = self._name(values[0])
            else:
                numbers = tuple(self._real(value) for value in values)
                given[str(child.data)] = numbers if len(numbers) > 1 else numbers[0]
        return s.Options(**given)

    # Literals

    def _integer(self, node: Any) -> int:
        try:
            return int(_signed(node))
        except ValueError:  # Python reads no more than some thousands of digits
            raise Unbuildable(self._span(node), "this number is too large") from None

    def _real(self, node: Any) -> float:
        value = float(_signed(node))
        if math.isinf(value):
            raise Unbuildable(self._span(node), "this number is too large")
        return value

    def _unquoted(self, token: Token) -> str:
        try:
            text = str(json.loads(token, strict=False))
            text.encode("utf-8")
        except ValueError:
            hint = r"a backslash stands before one of \" \\ \n \r \t \b \f, or in \u00e9"
            raise Unbuildable(self._span(token), "this text has a wrong escape", hint) from None
        return text

    # Expressions

    def _whole(self, tree: Any) -> e.Expression:
        """An item of a clause, not too deep for the steps that will walk it."""
        try:
            built = self.expression(tree)
        except RecursionError:
            built = None
        if built is None or _is_too_deep(built):
            message = f"this expression has more than {MAX_DEPTH} parts inside each other"
            raise Unbuildable(self._span(tree), message, "name a part of it with 'derive'")
        return built

    def expression(self, tree: Any) -> e.Expression:
        """An expression, with spans."""
        span = self._span(tree)
        children = tree.children
        match str(tree.data):
            case "bare":
                return e.Name(str(children[0]), span=span)
            case "integer":
                return e.Number(self._integer(children[0]), span=span)
            case "real":
                return e.Number(self._real(children[0]), span=span)
            case "text":
                return e.Text(self._unquoted(children[0]), span=span)
            case "true" | "false":
                return e.Truth(str(tree.data) == "true", span=span)
            case "attribute_of":
                return e.Attribute(str(children[0]), str(children[1]), span=span)
            case "call":
                return self._call(tree)
            case "tuple_attribute":
                called = self._call(children[0])
                atom = called if isinstance(called, e.Atom) else e.Atom(called.name, called.arguments, span=called.span)
                return e.TupleAttribute(atom, str(children[1]), span=span)
            case "aggregate":
                function, *terms, where = children
                built = tuple(self.expression(term) for term in terms)
                return e.Aggregate(str(function), built, self.expression(where), span=span)
            case "negative":
                return e.Negative(self.expression(children[0]), span=span)
            case "not_":
                return e.Not(self.expression(children[0]), span=span)
            case "member":
                return e.Member(self.expression(children[0]), self._bag(children[1]), span=span)
            case "comparison":
                left, operator, right = children
                return e.Comparison(str(operator), self.expression(left), self.expression(right), span=span)
            case "sum" | "product":
                signs = (str(c) if isinstance(c, Token) else "-" for c in children[1::2])
                return self._chain(e.Arithmetic, children[0], zip(signs, children[2::2], strict=True))
            case "implication":
                return e.Connective("=>", self.expression(children[0]), self.expression(children[1]), span=span)
            case "equivalence" | "disjunction" | "conjunction" as kind:
                symbol = {"equivalence": "<=>", "disjunction": "or", "conjunction": "and"}[kind]
                return self._chain(e.Connective, children[0], ((symbol, child) for child in children[1:]))
        raise AssertionError(f"the grammar has no {tree.data}")

    def _call(self, tree: Any) -> e.Atom | e.Function:
        """A function's call where the name is a built-in function's, else a relation's atom."""
        name, *arguments = tree.children
        built = tuple(self.expression(a) for a in arguments)
        kind = e.Function if str(name) in FUNCTIONS else e.Atom
        return kind(str(name), built, span=self._span(tree))

    def _bag(self, tree: Any) -> e.Attribute:
        found = self.expression(tree)
        if isinstance(found, e.Attribute):
            return found
        # Not a bag at all; an attribute of nothing, which the checker reports at this place.
        return e.Attribute("", "", span=found.span)

    def _chain(
        self, kind: type[e.Arithmetic | e.Connective], first: Any, rest: Iterable[tuple[str, Any]]
    ) -> e.Expression:
        """Build operations of one strength, which are done from left to right."""
        joined = self.expression(first)
        for operator, child in rest:
            right = self.expression(child)
            assert joined.span is not None and right.span is not None
            span = replace(joined.span, end_line=right.span.end_line, end_column=right.span.end_column)
            joined = kind(operator, joined, right, span=span)
        return joined


def _signed(node: Any) -> str:
    """Return the text of a token, or of a tree of one with a sign before it."""
    if isinstance(node, Token):
        return str(node)
    return "-" * (len(node.children) > 1) + str(node.children[-1])


def _is_too_deep(expression: e.Expression) -> bool:
    level: list[e.Expression] = [expression]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in children(node)]
        if not level:
            return False
    return True
