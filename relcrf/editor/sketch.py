"""What can be told of a declaration from its tokens alone.

The declaration that somebody is typing does not parse. Its binders, the names that its relations bind and what its words
stand for can be told all the same, nearly always as the checker will once it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from relcrf.editor.symbols import Binder, Occurrence, Space, Symbol
from relcrf.language.words import LANGUAGE
from relcrf.model.functions import FUNCTIONS
from relcrf.model.spec import Entity, EnumeratedDomain, ModelSpec, Relation
from relcrf.model.types import SCALARS, Bag
from relcrf.text.heads import WEIGHING, Head
from relcrf.text.tokens import Piece, Token, closing, opening


class Sketch(Head):
    """A declaration that may be half typed, among the others of its model.

    Args:
        spec: what the rest of the model declares.
    """

    def __init__(self, piece: Piece, spec: ModelSpec) -> None:
        super().__init__(piece)
        self.spec = spec

    @cached_property
    def sorts(self) -> dict[str, str]:
        """The sorts of the binders and of the names that relations and bags bind."""
        sorts = {name: sort for name, (_, sort) in self.parameters.items() if sort}
        if self.keyword == "gate":
            template = next((t for t in self.spec.templates if t.name == self.name), None)
            sorts = {p.name: p.sort for p in template.parameters} if template else {}
        for _ in range(2):  # the owner of a bag may be bound behind it
            for name, sort in self._bound(sorts):
                if name not in self.parameters and not self._is_value(name, sort):
                    sorts.setdefault(name, sort)
        return sorts

    def _is_value(self, name: str, domain: str) -> bool:
        declared = self.spec.domain(domain)
        return isinstance(declared, EnumeratedDomain) and name in declared.values

    def _bound(self, sorts: dict[str, str]) -> Iterator[tuple[str, str]]:
        """The names that atoms and `in` bind, each with its sort."""
        for k in range(self.body_index, len(self.tokens)):
            if self.texts[k] == "(" and self.tokens[k - 1].kind == "name":
                relation = self.spec.relation(self.texts[k - 1])
                arguments = list(self._arguments(k))
                for argument, parameter in zip(arguments, relation.parameters if relation else (), strict=False):
                    if len(argument) == 1 and argument[0].kind == "name":
                        yield argument[0].text, parameter.sort
            elif self.texts[k] == "in" and self.texts[k + 2 : k + 3] == (".",) and len(self.texts) > k + 3:
                bag = self.attribute_type(sorts.get(self.texts[k + 1], ""), self.texts[k + 3])
                if isinstance(bag, Bag) and self.tokens[k - 1].kind == "name":
                    yield self.texts[k - 1], bag.domain

    def _arguments(self, bracket: int) -> Iterator[list[Token]]:
        argument: list[Token] = []
        depth = 0
        for token in self.tokens[bracket + 1 : closing(self.texts, bracket)]:
            depth += (token.text in ("(", "{")) - (token.text in (")", "}"))
            if token.text == "," and depth == 0:
                yield argument
                argument = []
            else:
                argument.append(token)
        yield argument

    def attribute_type(self, owner: str, attribute: str) -> object | None:
        """The type of an attribute of an entity or relation."""
        declared = self.spec.entity(owner) or self.spec.relation(owner)
        found = declared.attribute(attribute) if isinstance(declared, Entity | Relation) else None
        return found.type if found else None

    def owner_at(self, dot: int) -> str | None:
        """The entity or relation whose attribute stands behind the dot of `a.` or `R(a, b).`."""
        if dot < 1:
            return None
        if self.texts[dot - 1] == ")":
            bracket = opening(self.texts, dot - 1)
            return self.texts[bracket - 1] if bracket > 0 and self.tokens[bracket - 1].kind == "name" else None
        return self.sorts.get(self.texts[dot - 1])

    def call_at(self, k: int) -> tuple[str, int] | None:
        """The name before the innermost open bracket left of token `k`, and the index of the argument there."""
        depth, argument = 0, 0
        for j in range(k - 1, self.body_index - 1, -1):
            if self.texts[j] in (")", "}"):
                depth += 1
            elif self.texts[j] in ("(", "{"):
                if depth == 0:
                    is_call = self.texts[j] == "(" and self.tokens[j - 1].kind == "name"
                    return (self.texts[j - 1], argument) if is_call and self.texts[j - 1] not in LANGUAGE else None
                depth -= 1
            elif self.texts[j] == "," and depth == 0:
                argument += 1
        return None

    # Occurrences

    def occurrences(self, source: str, binders: dict[Symbol, Binder]) -> Iterator[Occurrence]:
        """What the words of the declaration stand for.

        Args:
            source: the name of the text. binders: takes what is known of the binders.
        """
        for k, token in enumerate(self.tokens):
            if token.kind != "name":
                continue
            found = self._symbol(k, source)
            if found is None:
                continue
            symbol, declares = found
            if symbol.space is Space.BINDER:
                role = "binder" if self.keyword in WEIGHING else "argument"
                known = Binder(self.sorts.get(token.text, ""), role, self.name)
                binders.setdefault(
                    symbol, known if token.text in self.parameters else Binder(known.sort, "name", self.name)
                )
            yield Occurrence(symbol, source, token.start, token.stop, declares)

    def _symbol(self, k: int, source: str) -> tuple[Symbol, bool] | None:
        """What a name stands for, and whether it is declared there."""
        text = self.texts[k]
        before = self.texts[k - 1] if k else ""
        after = self.texts[k + 1] if k + 1 < len(self.texts) else ""
        if k == self.name_index:
            space = Space.WEIGHTS if self.keyword in WEIGHING else Space.NAME
            return Symbol(space, text), self.keyword != "gate"
        if before == ".":
            owner = self.owner_at(k - 1)
            return (Symbol(Space.ATTRIBUTE, text, owner), False) if owner else None
        if k in self.attributes:
            return Symbol(Space.ATTRIBUTE, text, self.name), True
        if self.keyword == "domain" and k > self.body_index and (text, before) != ("open", "="):
            return Symbol(Space.VALUE, text, self.name), True
        if text in LANGUAGE:
            return None
        if before == "weights":
            return Symbol(Space.WEIGHTS, text), False
        binder = Symbol(Space.BINDER, text, source, self.tokens[0].start)
        if k < self.body_index and text in self.parameters and self.parameters[text][0] is self.tokens[k]:
            return binder, True
        if before == "of" or (before == ":" and self.keyword != "rule" and text not in SCALARS):
            return Symbol(Space.NAME, text), False
        if after == "(" and text not in FUNCTIONS and k >= self.body_index:
            return Symbol(Space.NAME, text), False
        if text in self.sorts:
            return binder, False
        domains = self.spec.constants.get(text, ())
        return (Symbol(Space.VALUE, text, domains[0]), False) if len(domains) == 1 else None
