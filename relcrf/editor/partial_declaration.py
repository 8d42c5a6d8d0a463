"""Name resolution in complete and incomplete declarations, by tokens and by the scopes of the checker.

An incomplete declaration cannot be parsed. The atoms of every declaration are therefore read from the tokens, and
`NameScope` resolves the types of the names, as in the checker and in grounding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property

from relcrf.editor.symbols import Binder, Namespace, Occurrence, Symbol
from relcrf.language.keywords import KEYWORDS, RESERVED
from relcrf.language.tokens import (
    COMPARISONS,
    WEIGHTED_DECLARATIONS,
    DeclarationTokens,
    SourceText,
    Token,
    matching_bracket,
)
from relcrf.model.expressions import (
    Aggregate,
    Atom,
    Attribute,
    Boolean,
    Expression,
    Membership,
    Name,
    optional_conjunction,
)
from relcrf.model.functions import FUNCTIONS
from relcrf.model.rules import rule_to_template
from relcrf.model.spec import EnumeratedDomain, ModelSpec, Parameter, RandomRelation, Rule, Template
from relcrf.model.types import SCALARS, AttributeType, Bag, DomainType
from relcrf.model.typing import NameScope


class PartialDeclaration(DeclarationTokens):
    """A complete or incomplete declaration in the context of its model.

    Args:
        spec: The declarations of the model that could be parsed.
    """

    def __init__(self, declaration: DeclarationTokens, spec: ModelSpec) -> None:
        super().__init__(declaration.tokens)
        self.spec = spec

    # Names and their types

    @cached_property
    def template(self) -> Template | None:
        """The template that a `gate` declaration names; None for other declarations."""
        if self.keyword != "gate":
            return None
        declared: tuple[Template | Rule, ...] = (*self.spec.templates, *self.spec.rules)
        found = next((each for each in declared if each.name == self.name), None)
        return rule_to_template(found, self.spec, self.name) if isinstance(found, Rule) else found

    @cached_property
    def scopes(self) -> tuple[tuple[range, NameScope], ...]:
        """The scopes of the declaration and of its aggregates, each with its range of tokens, outermost first."""
        if self.template is not None:
            outer = NameScope(self.spec, self.template.parameters, self.template.where)
        else:
            parameters = tuple(
                Parameter(name, type_name) for name, (_, type_name) in self.parameters.items() if type_name
            )
            outer = NameScope(self.spec, parameters, self._condition(self.body_index, len(self.tokens)))
        found = [(range(len(self.tokens) + 1), outer)]
        for k in range(self.body_index, len(self.tokens)):
            if self.tokens[k].terminal == "AGGREGATE":
                stop = matching_bracket(self.texts, k + 1)
                _, around = next((r, s) for r, s in reversed(found) if k in r)
                condition = self._condition(k + 2, stop)
                if condition is not None:
                    aggregate = Aggregate(self.texts[k], self._aggregate_terms(k + 2, stop), condition)
                    found.append((range(k, stop + 1), around.aggregate_scope(aggregate)))
        return tuple(found)

    def scope_at(self, k: int) -> NameScope:
        """Return the innermost scope around a token."""
        return next(scope for tokens, scope in reversed(self.scopes) if k in tokens)

    @property
    def type_names(self) -> dict[str, str]:
        """The type of each name outside aggregates."""
        return self.scopes[0][1].type_names

    def _condition(self, start: int, stop: int) -> Expression | None:
        """Return the conjunction of the atoms and `in` conditions in a range of tokens, except those in aggregates."""
        found: list[Expression] = []
        k = start
        while k < stop:
            if self.tokens[k].terminal == "AGGREGATE":
                k = matching_bracket(self.texts, k + 1)
            elif self.texts[k] == "(" and self.tokens[k - 1].kind == "name":
                arguments = (Name(a[0].text) if _is_name(a) else Boolean(True) for a in self._arguments(k))
                found.append(Atom(self.texts[k - 1], tuple(arguments)))
            elif self._is_member(k):
                found.append(Membership(Name(self.texts[k - 1]), Attribute(self.texts[k + 1], self.texts[k + 3])))
            k += 1
        return optional_conjunction(found)

    def _aggregate_terms(self, start: int, stop: int) -> tuple[Name, ...]:
        """Return the names in the terms of an aggregate, which precede its `where`."""
        if "where" not in self.texts[start:stop]:
            return ()
        terms = self.tokens[start : self.texts.index("where", start)]
        return tuple(Name(token.text) for token in terms if token.kind == "name")

    def _is_member(self, k: int) -> bool:
        """Return whether token `k` is the `in` of `w in p.words`."""
        has_bag = self.texts[k + 2 : k + 3] == (".",) and len(self.texts) > k + 3
        return self.texts[k] == "in" and has_bag and self.tokens[k - 1].kind == "name"

    def _arguments(self, bracket: int) -> Iterator[list[Token]]:
        argument: list[Token] = []
        depth = 0
        for token in self.tokens[bracket + 1 : matching_bracket(self.texts, bracket)]:
            depth += (token.text in ("(", "{")) - (token.text in (")", "}"))
            if token.text == "," and depth == 0:
                yield argument
                argument = []
            else:
                argument.append(token)
        yield argument

    # Attributes and values

    def _attribute_type(self, owner: str, attribute: str) -> AttributeType | None:
        """Return the type of an attribute of an entity or relation."""
        found = self.spec.attribute(owner, attribute)
        return found.type if found else None

    def owner_at(self, dot: int) -> str | None:
        """Return the entity or relation whose attribute follows the dot of `a.` or `R(a, b).`."""
        if dot < 1:
            return None
        if self.texts[dot - 1] == ")":
            bracket = matching_bracket(self.texts, dot - 1)
            return self.texts[bracket - 1] if bracket > 0 and self.tokens[bracket - 1].kind == "name" else None
        return self.scope_at(dot).type_names.get(self.texts[dot - 1])

    def call_at(self, k: int) -> tuple[str, int] | None:
        """Return the name before the innermost bracket around token `k`, and the index of the token's argument."""
        depth, argument = 0, 0
        for j in range(k - 1, self.body_index - 1, -1):
            if self.texts[j] in (")", "}"):
                depth += 1
            elif self.texts[j] in ("(", "{"):
                if depth == 0:
                    is_call = self.texts[j] == "(" and self.tokens[j - 1].kind == "name"
                    return (self.texts[j - 1], argument) if is_call and self.texts[j - 1] not in KEYWORDS else None
                depth -= 1
            elif self.texts[j] == "," and depth == 0:
                argument += 1
        return None

    def argument_type_name(self, k: int) -> str | None:
        """Return the type of the argument that starts with token `k`."""
        call = self.call_at(k) if self.text_at(k - 1) in ("(", ",") else None
        relation = (self.spec.relation(call[0]) or self.spec.feature(call[0])) if call is not None else None
        if relation is None or call is None or call[1] >= len(relation.parameters):
            return None
        return relation.parameters[call[1]].type_name

    def expected_type_name(self, k: int) -> str | None:
        """Return the type expected at token `k`.

        After a comparison operator, it is the type of the left operand; in an argument, the type of the parameter.
        """
        return self._type_name_before(k - 2) if self.text_at(k - 1) in COMPARISONS else self.argument_type_name(k)

    def _type_name_before(self, k: int) -> str | None:
        """Return the type of the operand that ends with token `k`: a domain, or the type of a name."""
        if k < 1:
            return None
        if self.texts[k - 1] == ".":
            kind: object = self._attribute_type(self.owner_at(k - 1) or "", self.texts[k])
        elif self.texts[k] == ")":
            relation = self.spec.relation(self.texts[max(matching_bracket(self.texts, k), 1) - 1])
            kind = relation.type if isinstance(relation, RandomRelation) else None
        else:
            return self.scope_at(k).type_names.get(self.texts[k])
        return kind.domain if isinstance(kind, DomainType) else None

    def _type_name_after(self, k: int) -> str | None:
        """Return the domain of the operand after the comparison operator, or of the bag after `in`, at token `k`."""
        last = k + 1
        if self.text_at(last + 1) == "(":
            last = matching_bracket(self.texts, last + 1)
        if self.text_at(last + 1) == ".":
            last += 2
        if last >= len(self.tokens):
            return None
        if self.texts[k] in COMPARISONS:
            return self._type_name_before(last)
        bag = self._attribute_type(self.owner_at(last - 1) or "", self.texts[last])
        return bag.domain if isinstance(bag, Bag) else None

    # Occurrences

    def occurrences(
        self, source: str, texts: Mapping[str, SourceText], binders: dict[Symbol, Binder]
    ) -> Iterator[Occurrence]:
        """Yield the symbol occurrences of the declaration.

        Args:
            source: Name of the text that contains the declaration.
            texts: All texts of the model, by name.
            binders: Output argument to which the binders of the declaration are added.
        """
        declaration_location = (source, self.start)
        if self.template is not None and self.template.span is not None:
            name = self.template.span.source.name
            text = texts.get(name)
            declared = text.declaration_at(text.offsets(self.template.span)[0]) if text is not None else None
            declaration_location = (name, declared.start) if declared is not None else declaration_location
        for k, token in enumerate(self.tokens):
            found = self._resolve_token(k, declaration_location)
            if found is None:
                continue
            symbol, declares = found
            if symbol.namespace is Namespace.BINDER:
                binders.setdefault(symbol, self._make_binder(k))
            yield Occurrence(symbol, source, token.start, token.stop, declares)

    def _make_binder(self, k: int) -> Binder:
        name, scope = self.texts[k], self.scopes[0][1]
        is_binder = (
            name in scope.binders or name in self.parameters or (self.keyword == "rule" and name in scope.type_names)
        )
        role = "name" if not is_binder else "binder" if self.keyword in WEIGHTED_DECLARATIONS else "argument"
        return Binder(self.scope_at(k).type_names.get(name, ""), role, self.name)

    def _resolve_token(self, k: int, declaration_location: tuple[str, int]) -> tuple[Symbol, bool] | None:
        """Return the symbol of a token, and whether the token declares it.

        Args:
            declaration_location: Text name and offset of the declaration whose binders are in scope.
        """
        token, text = self.tokens[k], self.texts[k]
        before, after = self.text_at(k - 1), self.text_at(k + 1)
        if (
            self.keyword == "domain"
            and before in ("{", ",")
            and token.terminal in ("NAME", "AGGREGATE", "INTEGER", "REAL", "STRING")
        ):
            return Symbol(Namespace.VALUE, _token_value(token), self.name), True
        if token.kind != "name":
            return self._resolve_value(k) if token.kind == "text" else None
        if k == self.name_index:
            space = Namespace.WEIGHTS if self.keyword in WEIGHTED_DECLARATIONS else Namespace.NAME
            return Symbol(space, text), self.keyword != "gate"
        if before == ".":
            owner = self.owner_at(k - 1)
            return (Symbol(Namespace.ATTRIBUTE, text, owner), False) if owner else None
        if k in self.attributes:
            return Symbol(Namespace.ATTRIBUTE, text, self.name), True
        if k < self.body_index and text in self.parameters and self.parameters[text][0] is token:
            return Symbol(Namespace.BINDER, text, *declaration_location), True
        if text in RESERVED or (text in KEYWORDS and self.keyword == "feature" and text not in self.parameters):
            return None
        if before == "weights":
            return Symbol(Namespace.WEIGHTS, text), False
        if before == "along":
            return Symbol(Namespace.NAME, text), False
        is_bag = self.texts[max(k - 2, 0) : k] == ("bag", "of")
        if is_bag or (before == ":" and self.keyword != "rule" and text not in SCALARS):
            return Symbol(Namespace.NAME, text), False
        if after == "(" and text not in FUNCTIONS and k >= self.body_index:
            return Symbol(Namespace.NAME, text), False
        for tokens, scope in self.scopes:
            if k in tokens and text in scope.type_names:
                start = declaration_location[1] if tokens.start == 0 else self.tokens[tokens.start].start
                return Symbol(Namespace.BINDER, text, declaration_location[0], start), False
        return self._resolve_value(k)

    def _resolve_value(self, k: int) -> tuple[Symbol, bool] | None:
        """Return the symbol of a value of the expected domain or, if none is expected, of the only domain that contains it."""
        value = _token_value(self.tokens[k])
        expected = self.expected_type_name(k)
        if expected is None and (self.text_at(k + 1) in COMPARISONS or self.text_at(k + 1) == "in"):
            expected = self._type_name_after(k + 1)
        declared = self.spec.domain(expected) if expected else None
        domains = self.spec.constants.get(value, ()) if self.tokens[k].kind == "name" else ()
        if isinstance(declared, EnumeratedDomain) and value in declared.values:
            domains = (declared.name,)
        return (Symbol(Namespace.VALUE, value, domains[0]), False) if len(domains) == 1 else None


def _is_name(tokens: list[Token]) -> bool:
    return len(tokens) == 1 and tokens[0].kind == "name"


def _token_value(token: Token) -> str:
    """Return the value of a name, number or string token."""
    try:
        return str(json.loads(token.text, strict=False)) if token.terminal == "STRING" else token.text
    except ValueError:  # an invalid escape sequence
        return token.text
