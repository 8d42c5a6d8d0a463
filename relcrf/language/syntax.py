"""From Lark's tree of one declaration to the specification's data classes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Tree

from relcrf.errors import Source, Span
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.functions import FUNCTIONS
from relcrf.model.types import SCALARS, AttributeType, Bag, DomainType


@dataclass(frozen=True)
class Builder:
    """Builds from trees of a piece whose first line is line `line_offset + 1` of the source."""

    source: Source
    line_offset: int

    def declaration(self, tree: Any) -> s.Declaration:
        built: s.Declaration = getattr(self, f"_{tree.data}")(tree)
        return built

    def _span(self, node: Any) -> Span:
        meta = node if isinstance(node, Token) else node.meta
        above = self.line_offset
        return Span(
            self.source, meta.line + above, meta.column, (meta.end_line or meta.line) + above, meta.end_column or 0
        )

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
            low, high = (int(child) for child in body.children)
            return s.RangeDomain(name, low, high, span=span)
        return s.EnumeratedDomain(name, tuple(self._value(v.children[0]) for v in body.children), span=span)

    @staticmethod
    def _value(token: Token) -> str:
        return _unquoted(token) if token.type == "STRING" else str(token)

    def _entity(self, tree: Any) -> s.Entity:
        name, span = self._header(tree)
        key = self._part(tree, "key")
        return s.Entity(name, self._attributes(tree), self._name(key.children[0]) if key else "id", span=span)

    def _attributes(self, tree: Any) -> tuple[s.AttributeDeclaration, ...]:
        block = self._part(tree, "attributes")
        return tuple(self._attribute(a) for a in block.children) if block else ()

    def _attribute(self, tree: Any) -> s.AttributeDeclaration:
        name, _ = self._header(tree)
        predicted = self._part(tree, "predict") is not None
        return s.AttributeDeclaration(name, self._type(tree.children[-1]), predicted, span=self._span(tree))

    @staticmethod
    def _type(tree: Any) -> AttributeType:
        name = str(tree.children[-1])
        if tree.data == "bag":
            return Bag(name)
        return SCALARS.get(name, DomainType(name))

    def _parameters(self, tree: Any) -> tuple[s.Parameter, ...]:
        block = self._part(tree, "parameters")
        return tuple(
            s.Parameter(self._name(p.children[0]), str(p.children[1]), span=self._span(p)) for p in block.children
        )

    def _relation(self, tree: Any) -> s.Relation:
        name, span = self._header(tree)
        return s.Relation(name, self._parameters(tree), self._attributes(tree), span=span)

    def _derive(self, tree: Any) -> s.Derived:
        name, span = self._header(tree)
        body = tree.children[-1]
        definition: e.Expression | s.Nearest
        if body.data == "nearest":
            count, measure = body.children
            definition = s.Nearest(int(count), self.expression(measure), span=self._span(body))
        else:
            definition = self.expression(body.children[0])
        return s.Derived(name, self._parameters(tree), definition, span=span)

    def _template(self, tree: Any) -> s.Template:
        name, span = self._header(tree)
        where = self._part(tree, "where")

        def clause(which: str) -> tuple[e.Expression, ...]:
            part = self._part(tree, which)
            return tuple(self.expression(c) for c in part.children) if part else ()

        options = s.Options()
        for child in tree.children:
            if isinstance(child, Tree) and child.data in ("init", "l1", "l2"):
                options = replace(options, **{child.data: float(child.children[0].children[0])})
            elif isinstance(child, Tree) and child.data == "fixed":
                options = replace(options, fixed=True)
        return s.Template(
            name,
            self._parameters(tree),
            clause("over"),
            self.expression(where.children[0]) if where else None,
            clause("per"),
            clause("by"),
            options,
            span=span,
        )

    # Expressions

    def expression(self, tree: Any) -> e.Expression:
        """An expression, with spans."""
        span = self._span(tree)
        children = tree.children
        match str(tree.data):
            case "bare":
                return e.Name(str(children[0]), span=span)
            case "integer":
                return e.Number(int(children[0]), span=span)
            case "real":
                return e.Number(float(children[0]), span=span)
            case "text":
                return e.Text(_unquoted(children[0]), span=span)
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
                return self._chain(children, span)
            case "implication":
                return e.Connective("=>", self.expression(children[0]), self.expression(children[1]), span=span)
            case "equivalence" | "disjunction" | "conjunction" as kind:
                operator = {"equivalence": "<=>", "disjunction": "or", "conjunction": "and"}[kind]
                joined = self.expression(children[0])
                for child in children[1:]:
                    joined = e.Connective(operator, joined, self.expression(child), span=span)
                return joined
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

    def _chain(self, children: list[Any], span: Span) -> e.Expression:
        joined = self.expression(children[0])
        for operator, child in zip(children[1::2], children[2::2], strict=True):
            symbol = str(operator) if isinstance(operator, Token) else "-"
            joined = e.Arithmetic(symbol, joined, self.expression(child), span=span)
        return joined


def _unquoted(token: Token) -> str:
    return str(ast.literal_eval(str(token)))
