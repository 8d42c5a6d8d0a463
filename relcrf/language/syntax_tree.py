"""The conversion of Lark's syntax tree of one declaration to the data classes of the specification."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from lark import Token

from relcrf.errors import Span
from relcrf.language.tokens import SourceText
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.functions import FUNCTIONS
from relcrf.model.nodes import children
from relcrf.model.types import SCALARS, Bag, DomainType

MAX_DEPTH = 150
"""Maximum nesting depth of expressions; deeper expressions would exceed Python's recursion limit in later steps."""


class InvalidSyntaxTreeError(Exception):
    """The error for a syntax tree that the specification cannot represent, e.g. because a number is too large."""

    def __init__(self, span: Span, message: str, hint: str | None = None) -> None:
        # The text at the error is often long, so the span covers only the beginning.
        end = min(span.end_column, span.column + 20) if span.end_line == span.line else span.column + 1
        self.span = replace(span, end_line=span.line, end_column=end)
        self.message, self.hint = message, hint
        super().__init__(message)


class ParsedClause(NamedTuple):
    """The value of one field of a declaration."""

    field: str
    value: Any


class ParsedType(NamedTuple):
    """The type of an attribute, parameter or random relation; `span` is its location, of a bag that of its domain."""

    type: Any
    span: Span


class ParsedOption(NamedTuple):
    """An option of a template's weights."""

    name: str
    value: Any
    span: Span


@dataclass(frozen=True)
class DeclarationBuilder:
    """A builder that converts the syntax trees of a text to declarations.

    Raises:
        InvalidSyntaxTreeError: by `build_declaration`, if a number, a string or an expression cannot be represented.
    """

    text: SourceText

    def build_declaration(self, tree: Any) -> s.Declaration:
        built: s.Declaration = self._build(tree)
        return built

    def _build(self, node: Any) -> Any:
        """Convert the children of a tree, then call the function in `_RULE_BUILDERS` for the tree's grammar rule."""
        if isinstance(node, Token):
            return node
        rule = str(node.data)
        build = self._build_clause_item if rule in _RULES_WITH_ITEMS else self._build
        return _RULE_BUILDERS[rule](self, self.span(node.meta), *[build(child) for child in node.children])

    def _build_clause_item(self, node: Any) -> Any:
        """Build an item of a clause and check its nesting depth."""
        try:
            built = self._build(node)
        except RecursionError:
            built = None
        if built is None or _is_too_deep(built):
            message = f"this expression has more than {MAX_DEPTH} nested levels"
            raise InvalidSyntaxTreeError(
                self.span(node.meta), message, "move a part of it into a relation with 'derive'"
            )
        return built

    def span(self, node: Any) -> Span:
        """Return the span of a token or of the metadata of a tree."""
        return self.text.span(node.start_pos, node.end_pos)

    def parse_integer(self, text: str, span: Span) -> int:
        """Parse an integer."""
        try:
            return int(text)
        except ValueError:  # Python limits the number of digits
            raise InvalidSyntaxTreeError(span, "this number is too large") from None

    def unquote(self, token: Token) -> str:
        """Return the text of a quoted string, without quotes and escapes."""
        try:
            text = str(json.loads(token, strict=False))
            text.encode("utf-8")
        except ValueError:
            hint = r"the escapes are \" \\ \n \r \t \b \f and \u00e9"
            raise InvalidSyntaxTreeError(self.span(token), "this string has an invalid escape", hint) from None
        return text


def _parse_real(text: str, span: Span) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidSyntaxTreeError(span, "this number is too large")
    return value


def _build_random_relation(builder: DeclarationBuilder, span: Span, name: e.Name, *parts: Any) -> s.RandomRelation:
    types = [part for part in parts if isinstance(part, ParsedType)]
    fields = dict(part for part in parts if isinstance(part, ParsedClause))
    for kind in types:
        fields |= {"type": kind.type, "type_span": kind.span}
    return s.RandomRelation(name.name, span=name.span, **fields)


def _build_derived_relation(
    builder: DeclarationBuilder,
    span: Span,
    name: e.Name,
    parameters: ParsedClause,
    definition: ParsedClause | s.NearestNeighbours,
    *clauses: ParsedClause,
) -> s.DerivedRelation:
    body = definition.value if isinstance(definition, ParsedClause) else definition
    return s.DerivedRelation(name.name, parameters.value, body, span=name.span, **dict(clauses))


def _build_feature(
    builder: DeclarationBuilder, span: Span, name: e.Name, parameters: ParsedClause, *parts: Any
) -> s.Feature:
    (value,) = (part for part in parts if not isinstance(part, ParsedClause))
    fields = dict(part for part in parts if isinstance(part, ParsedClause))
    return s.Feature(name.name, parameters.value, value, span=name.span, **fields)


def _build_learned(
    builder: DeclarationBuilder, span: Span, kind: str, target: e.Expression, *parts: Any
) -> s.LearnedDefinition:
    inputs = tuple(part for part in parts if not isinstance(part, ParsedClause))
    options = dict(part for part in parts if isinstance(part, ParsedClause))
    return s.LearnedDefinition(kind, target, inputs, span=span, **options)


def _build_estimator(builder: DeclarationBuilder, span: Span, name: Token) -> ParsedClause:
    return ParsedClause("estimator", builder.unquote(name) if name.type == "STRING" else str(name))


def _build_template(
    builder: DeclarationBuilder,
    span: Span,
    name: e.Name,
    *clauses: ParsedClause | ParsedOption,
    is_candidate: bool = False,
) -> s.Template:
    return s.Template(name.name, span=name.span, is_candidate=is_candidate, **_collect_fields(clauses))


def _build_rule(builder: DeclarationBuilder, span: Span, *parts: Any) -> s.Rule:
    clauses = [part for part in parts if isinstance(part, ParsedClause | ParsedOption)]
    *prefix, formula = (part for part in parts if part not in clauses)
    weight = next((part for part in prefix if isinstance(part, float)), None)
    name = next((part for part in prefix if isinstance(part, e.Name)), None)
    keyword = replace(span, end_line=span.line, end_column=span.column + len("rule"))
    location, rule_name = (name.span, name.name) if name is not None else (keyword, None)
    return s.Rule(rule_name, formula, weight, "hard" in prefix, span=location, **_collect_fields(clauses))


def _collect_fields(parts: Iterable[ParsedClause | ParsedOption]) -> dict[str, Any]:
    """Return the fields of a template or a rule from its clauses and options."""
    fields, options = dict[str, Any](), dict[str, Any]()
    for part in parts:
        if isinstance(part, ParsedClause):
            fields[part.field] = part.value
        elif part.name in options:
            raise InvalidSyntaxTreeError(part.span, f"duplicate option '{part.name}'", "remove one of them")
        else:
            options[part.name] = part.value
    if "over" in fields and fields["over"][0] == "symmetric":
        fields |= {"over": fields["over"][1:], "symmetric": True}
    return {**fields, "options": s.WeightOptions(**options)}


def _build_value(builder: DeclarationBuilder, span: Span, *parts: Any) -> str:
    is_text = isinstance(parts[0], Token) and parts[0].type == "STRING"
    return builder.unquote(parts[0]) if is_text else "".join(parts)


def _build_attribute(builder: DeclarationBuilder, span: Span, *parts: Any) -> s.AttributeDeclaration:
    *role, name, kind = parts
    roles = ("predict" in role, "latent" in role, "time" in role)
    return s.AttributeDeclaration(name.name, kind.type, *roles, span=span, type_span=kind.span)


def _build_attribute_named_time(builder: DeclarationBuilder, span: Span, kind: ParsedType) -> s.AttributeDeclaration:
    return s.AttributeDeclaration("time", kind.type, span=span, type_span=kind.span)


def _build_call(
    builder: DeclarationBuilder, span: Span, name: Token, *arguments: e.Expression
) -> e.Atom | e.FunctionCall:
    """Build a function call if a function has this name, otherwise the atom of a relation."""
    kind = e.FunctionCall if str(name) in FUNCTIONS else e.Atom
    return kind(str(name), arguments, span=span)


def _build_tuple_attribute(
    builder: DeclarationBuilder, span: Span, called: e.Atom | e.FunctionCall, name: Token
) -> e.TupleAttribute:
    atom = called if isinstance(called, e.Atom) else e.Atom(called.name, called.arguments, span=called.span)
    return e.TupleAttribute(atom, str(name), span=span)


def _build_aggregate(builder: DeclarationBuilder, span: Span, function: Token, *parts: e.Expression) -> e.Aggregate:
    return e.Aggregate(str(function), parts[:-1], parts[-1], span=span)


def _build_membership(
    builder: DeclarationBuilder, span: Span, element: e.Expression, bag: e.Expression
) -> e.Membership:
    # Replace an operand that is not an attribute by an attribute without a name, which the checker reports.
    return e.Membership(element, bag if isinstance(bag, e.Attribute) else e.Attribute("", "", span=bag.span), span=span)


def _build_connectives(
    operator: str, builder: DeclarationBuilder, span: Span, first: e.Expression, *rest: e.Expression
) -> e.Expression:
    """Join conditions with a left-associative connective."""
    for right in rest:
        first = e.Connective(operator, first, right, span=_span_between(first, right))
    return first


def _build_arithmetic(builder: DeclarationBuilder, span: Span, first: e.Expression, *rest: Any) -> e.Expression:
    """Build left-associative arithmetic with operators of equal precedence."""
    for operator, right in zip(rest[::2], rest[1::2], strict=True):
        first = e.Arithmetic(str(operator), first, right, span=_span_between(first, right))
    return first


def _span_between(left: e.Expression, right: e.Expression) -> Span:
    assert left.span is not None and right.span is not None
    return replace(left.span, end_line=right.span.end_line, end_column=right.span.end_column)


def _keyword_builder(word: str) -> Callable[..., str]:
    """Return the builder of a grammar rule that consists of one keyword."""
    return lambda b, span: word


def _clause_builder(field: str) -> Callable[..., ParsedClause]:
    """Return the builder of a clause with a list of items."""
    return lambda b, span, *items: ParsedClause(field, items)


_RULES_WITH_ITEMS = frozenset({"where", "over", "per", "by", "nearest", "feature", "propagate", "learned", "rule"})
"""Grammar rules whose children are outermost expressions; the nesting depth of these expressions is checked."""

_RULE_BUILDERS: dict[str, Callable[..., Any]] = {
    "domain": lambda b, span, name, kind: kind(name.name, span=name.span),
    "open": lambda b, span: s.OpenDomain,
    "range": lambda b, span, low, high: partial(s.RangeDomain, low=low, high=high),
    "enumerated": lambda b, span, *values: partial(s.EnumeratedDomain, values=values),
    "value": _build_value,
    "bound": lambda b, span, *signed: b.parse_integer("".join(signed), span),
    "minus": _keyword_builder("-"),
    "entity": lambda b, span, name, *clauses: s.Entity(name.name, span=name.span, **dict(clauses)),
    "key": lambda b, span, name: ParsedClause("key", name.name),
    "attributes": _clause_builder("attributes"),
    "attribute": _build_attribute,
    "attribute_named_time": _build_attribute_named_time,
    "predict": _keyword_builder("predict"),
    "latent": _keyword_builder("latent"),
    "time": _keyword_builder("time"),
    "bag": lambda b, span, domain: ParsedType(Bag(str(domain)), b.span(domain)),
    "named_type": lambda b, span, name: ParsedType(SCALARS.get(str(name), DomainType(str(name))), span),
    "range_type": lambda b, span, low, high: ParsedType(DomainType(f"{low}..{high}"), span),
    "relation": lambda b, span, name, *clauses: s.Relation(name.name, span=name.span, **dict(clauses)),
    "random_relation": _build_random_relation,
    "parameters": _clause_builder("parameters"),
    "parameter": lambda b, span, name, kind: s.Parameter(name.name, kind.type, span=span, type_span=kind.span),
    "parameter_type": lambda b, span, *names: ParsedType("..".join(map(str, names)), span),
    "derive": _build_derived_relation,
    "nearest": lambda b, span, count, measure: s.NearestNeighbours(
        b.parse_integer(count, b.span(count)), measure, span=span
    ),
    "feature": _build_feature,
    "feature_type": lambda b, span, name: ParsedClause("type_name", str(name)),
    "propagate": lambda b, span, hops, operand, relation, *rest: s.FeaturePropagation(
        b.parse_integer(hops, b.span(hops)), operand, relation.name, *rest, span=span
    ),
    "normalisation": lambda b, span, name: name.name,
    "learned": _build_learned,
    "classifier": _keyword_builder("classifier"),
    "regressor": _keyword_builder("regressor"),
    "estimator": _build_estimator,
    "joint": lambda b, span, count: ParsedClause("joint", b.parse_integer(count, b.span(count))),
    "template": _build_template,
    "candidates": partial(_build_template, is_candidate=True),
    "rule": _build_rule,
    "hard": _keyword_builder("hard"),
    "gate": lambda b, span, name, by: s.Gate(name.name, by.value, span=name.span),
    "where": lambda b, span, condition: ParsedClause("where", condition),
    "over": _clause_builder("over"),
    "symmetric": _keyword_builder("symmetric"),
    "per": _clause_builder("per"),
    "by": _clause_builder("by"),
    "as_of": lambda b, span, name: ParsedClause("as_of", e.Name(str(name), span=b.span(name))),
    "init": lambda b, span, *starts: ParsedOption("init", starts if len(starts) > 1 else starts[0], span),
    "fixed": lambda b, span: ParsedOption("fixed", True, span),
    "l1": lambda b, span, strength: ParsedOption("l1", strength, span),
    "l2": lambda b, span, strength: ParsedOption("l2", strength, span),
    "weights": lambda b, span, name: ParsedOption("weights", name.name, span),
    "number": lambda b, span, *signed: _parse_real("".join(signed), span),
    "include": lambda b, span, path: s.Include(b.unquote(path), span=b.span(path)),
    "equivalence": partial(_build_connectives, "<=>"),
    "implication": lambda b, span, left, right: e.Connective("=>", left, right, span=span),
    "disjunction": partial(_build_connectives, "or"),
    "conjunction": partial(_build_connectives, "and"),
    "not_": lambda b, span, operand: e.Not(operand, span=span),
    "comparison": lambda b, span, left, operator, right: e.Comparison(str(operator), left, right, span=span),
    "member": _build_membership,
    "sum": _build_arithmetic,
    "product": _build_arithmetic,
    "negative": lambda b, span, operand: e.UnaryMinus(operand, span=span),
    "attribute_access": lambda b, span, binder, name: e.Attribute(str(binder), str(name), span=span),
    "tuple_attribute": _build_tuple_attribute,
    "bare_name": lambda b, span, name: e.Name(str(name), span=span),
    "integer": lambda b, span, digits: e.Number(b.parse_integer(digits, span), span=span),
    "real": lambda b, span, digits: e.Number(_parse_real(digits, span), span=span),
    "text": lambda b, span, token: e.Text(b.unquote(token), span=span),
    "true": lambda b, span: e.Boolean(True, span=span),
    "false": lambda b, span: e.Boolean(False, span=span),
    "call": _build_call,
    "aggregate": _build_aggregate,
    "name": lambda b, span, name: e.Name(str(name), span=span),
}
"""Builder functions by grammar rule, in the order of the grammar; arguments: builder, span, and converted children."""


def _is_too_deep(expression: e.Expression) -> bool:
    level: list[e.Expression] = [expression]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in children(node)]
        if not level:
            return False
    return True
