"""The symbols of declarations that the parser has read: the checker's own scopes say what each name stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relcrf.editor.symbols import Binder, Occurrence, Space, Symbol
from relcrf.errors import Span
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.rules import all_templates
from relcrf.model.types import Bag, DomainType
from relcrf.model.typing import Scope, TypeProblem
from relcrf.text.tokens import Piece, Text, Token, closing


@dataclass(frozen=True)
class _Level:
    """A scope, and where the part of a text that it is of begins."""

    scope: Scope
    source: str
    start: int


class Reader:
    """Reads occurrences off the declarations of a specification.

    Args:
        texts: the sources of the declarations, by name.
    """

    def __init__(self, spec: s.ModelSpec, texts: Mapping[str, Text]) -> None:
        self.spec = spec
        self.texts = texts
        self.binders: dict[Symbol, Binder] = {}
        self._templates = {t.name: t for t in all_templates(spec)}
        self._source = ""
        self._declaration = ""
        self._role = "name"
        self._is_rule = False

    def occurrences(self) -> Iterator[Occurrence]:
        """The occurrences of all declarations whose source is known."""
        for declaration in self.spec.everything:
            span = declaration.span
            if span is None or span.source.name not in self.texts:
                continue
            self._source = span.source.name
            piece = self._text.piece_at(self._text.offsets(span)[0])
            if piece is not None:
                self._declaration = name_of(declaration)
                yield from self._of(declaration, piece, span)

    @property
    def _text(self) -> Text:
        return self.texts[self._source]

    def _found(self, symbol: Symbol, token: Token, *, declares: bool = False) -> Occurrence:
        return Occurrence(symbol, self._source, token.start, token.stop, declares)

    def _of(self, declaration: s.Declaration, piece: Piece, span: Span) -> Iterator[Occurrence]:
        weighs = isinstance(declaration, s.Template | s.Rule | s.Gate)
        space = Space.WEIGHTS if weighs else Space.NAME
        name = next(iter(self._text.within(span)), None)
        if name is not None and name.text == self._declaration:
            declares = not isinstance(declaration, s.Gate)
            yield self._found(Symbol(space, name.text), name, declares=declares)
        self._role = "argument" if isinstance(declaration, s.AnyRelation) else "binder"
        self._is_rule = isinstance(declaration, s.Rule)
        parameters: tuple[s.Parameter, ...] = getattr(declaration, "parameters", ())
        for parameter in parameters:
            yield from self._parameter(parameter, piece)
        match declaration:
            case s.EnumeratedDomain():
                yield from self._values(declaration, piece)
            case s.Entity() | s.Relation():
                for attribute in declaration.attributes:
                    yield from self._attribute(declaration.name, attribute)
            case s.RandomRelation():
                yield from self._random_type(declaration, piece)
                if declaration.where is not None:
                    yield from self._clauses(parameters, declaration.where, [declaration.where], piece)
            case s.Derived(_, _, s.Nearest(_, measure)):
                yield from self._clauses(parameters, None, [measure], piece)
            case s.Derived(_, _, definition) if not isinstance(definition, s.Nearest):
                yield from self._clauses(parameters, definition, [definition], piece)
            case s.Template():
                where = () if declaration.where is None else (declaration.where,)
                items = [*where, *declaration.over, *declaration.per, *declaration.by]
                yield from self._clauses(parameters, declaration.where, items, piece)
                yield from self._shared(declaration.options, piece)
            case s.Rule():
                yield from self._clauses((), declaration.formula, [declaration.formula, *declaration.per], piece)
                yield from self._shared(declaration.options, piece)
            case s.Gate():
                template = self._templates.get(declaration.template)
                if template is not None:
                    yield from self._gate(declaration, template)

    # Heads

    def _parameter(self, parameter: s.Parameter, piece: Piece) -> Iterator[Occurrence]:
        if parameter.span is None:
            return
        name, *_, sort = self._text.within(parameter.span)
        symbol = Symbol(Space.BINDER, name.text, self._source, piece.start)
        self.binders.setdefault(symbol, Binder(parameter.sort, self._role, self._declaration))
        yield self._found(symbol, name, declares=True)
        if sort.kind == "name":
            yield self._found(Symbol(Space.NAME, sort.text), sort)

    def _values(self, domain: s.EnumeratedDomain, piece: Piece) -> Iterator[Occurrence]:
        known = {_spelt(value): value for value in domain.values} | {value: value for value in domain.values}
        for token in piece.tokens[2:]:
            if token.kind in ("name", "number", "text") and token.text in known:
                symbol = Symbol(Space.VALUE, known[token.text], domain.name)
                yield self._found(symbol, token, declares=True)

    def _attribute(self, owner: str, attribute: s.AttributeDeclaration) -> Iterator[Occurrence]:
        if attribute.span is None:
            return
        tokens = self._text.within(attribute.span)
        colon = next(k for k, token in enumerate(tokens) if k and token.text == ":")
        yield self._found(Symbol(Space.ATTRIBUTE, attribute.name, owner), tokens[colon - 1], declares=True)
        if isinstance(attribute.type, DomainType | Bag) and tokens[-1].kind == "name":
            yield self._found(Symbol(Space.NAME, tokens[-1].text), tokens[-1])

    def _random_type(self, relation: s.RandomRelation, piece: Piece) -> Iterator[Occurrence]:
        texts = piece.texts
        rest = piece.tokens[closing(texts, texts.index("(")) + 1 :]
        if isinstance(relation.type, DomainType | Bag) and rest and rest[0].text == ":":
            sort = rest[3] if rest[1].text == "bag" else rest[1]
            if sort.kind == "name":
                yield self._found(Symbol(Space.NAME, sort.text), sort)

    def _shared(self, options: s.Options, piece: Piece) -> Iterator[Occurrence]:
        """The name behind `weights`, of which the specification keeps no place."""
        tokens = piece.tokens
        for word, name in zip(reversed(tokens[:-1]), reversed(tokens[1:]), strict=True):
            if word.text == "weights" and name.text == options.weights:
                yield self._found(Symbol(Space.WEIGHTS, name.text), name)
                return

    # Clauses

    def _clauses(
        self,
        parameters: tuple[s.Parameter, ...],
        where: e.Expression | None,
        items: Sequence[e.Expression],
        piece: Piece,
    ) -> Iterator[Occurrence]:
        level = _Level(Scope(self.spec, parameters, where), self._source, piece.start)
        for item in items:
            yield from self._expression(item, (level,), None)

    def _gate(self, gate: s.Gate, template: s.Template) -> Iterator[Occurrence]:
        """The binders of a gate are those of its template, which may stand in another file."""
        if template.span is None or template.span.source.name not in self.texts:
            return
        source = template.span.source.name
        piece = self.texts[source].piece_at(self.texts[source].offsets(template.span)[0])
        if piece is not None:
            level = _Level(Scope(self.spec, template.parameters, template.where), source, piece.start)
            for feature in gate.by:
                yield from self._expression(feature, (level,), None)

    def _expression(self, node: e.Expression, levels: tuple[_Level, ...], expected: str | None) -> Iterator[Occurrence]:
        """The occurrences in an expression.

        Args:
            levels: the scopes around it, the declaration's own first.
            expected: the domain whose value a constant would be here.
        """
        scope = levels[-1].scope
        tokens = self._text.within(node.span) if node.span is not None else ()
        if not tokens:
            return
        match node:
            case e.Name(name):
                yield from self._name(name, tokens[0], levels, expected)
            case e.Text(value):
                if value in self._values_of(expected):
                    yield self._found(Symbol(Space.VALUE, value, expected or ""), tokens[0])
            case e.Attribute(binder, attribute) if binder:
                yield from self._name(binder, tokens[0], levels, None)
                sort = scope.sorts.get(binder)
                if sort is not None:
                    yield self._found(Symbol(Space.ATTRIBUTE, attribute, sort), tokens[-1])
            case e.Atom(relation, arguments):
                yield self._found(Symbol(Space.NAME, relation), tokens[0])
                declared = self.spec.relation(relation)
                sorts = [p.sort for p in declared.parameters] if declared else []
                for k, argument in enumerate(arguments):
                    yield from self._expression(argument, levels, sorts[k] if k < len(sorts) else None)
            case e.TupleAttribute(atom, attribute):
                yield from self._expression(atom, levels, None)
                yield self._found(Symbol(Space.ATTRIBUTE, attribute, atom.relation), tokens[-1])
            case e.Comparison(_, left, right):
                yield from self._expression(left, levels, _domain(scope, right))
                yield from self._expression(right, levels, _domain(scope, left))
            case e.Member(element, bag):
                declared_bag = scope.attribute_declaration(bag, quiet=True)
                kind = declared_bag.type if declared_bag else None
                yield from self._expression(element, levels, kind.domain if isinstance(kind, Bag) else None)
                yield from self._expression(bag, levels, None)
            case e.Aggregate():
                inner = (*levels, _Level(scope.inside(node), self._source, tokens[0].start))
                for child in e.children(node):
                    yield from self._expression(child, inner, None)
            case _:
                for child in e.children(node):
                    yield from self._expression(child, levels, None)

    def _name(self, name: str, token: Token, levels: tuple[_Level, ...], expected: str | None) -> Iterator[Occurrence]:
        """A bare name: known in the outermost scope that has it, or a value of a domain."""
        level = next((level for level in levels if name in level.scope.sorts), None)
        if level is not None:
            symbol = Symbol(Space.BINDER, name, level.source, level.start)
            is_binder = name in levels[0].scope.binders or (self._is_rule and level is levels[0])
            role = self._role if is_binder else "name"
            self.binders.setdefault(symbol, Binder(level.scope.sorts[name], role, self._declaration))
            yield self._found(symbol, token)
            return
        domains = self.spec.constants.get(name, ())
        domain = expected if name in self._values_of(expected) else domains[0] if len(domains) == 1 else None
        if domain is not None:
            yield self._found(Symbol(Space.VALUE, name, domain), token)

    def _values_of(self, domain: str | None) -> tuple[str, ...]:
        declared = self.spec.domain(domain) if domain else None
        return declared.values if isinstance(declared, s.EnumeratedDomain) else ()


def name_of(declaration: s.Declaration) -> str:
    """The name that a declaration has or, of a gate, speaks of; '' where it has none."""
    if isinstance(declaration, s.Gate):
        return declaration.template
    return "" if isinstance(declaration, s.Include) else declaration.name or ""


def _spelt(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _domain(scope: Scope, node: e.Expression) -> str | None:
    """The domain of an expression, where it has one."""
    try:
        kind = scope.type_of(node)
    except TypeProblem:
        return None
    return kind.domain if isinstance(kind, DomainType) else None
