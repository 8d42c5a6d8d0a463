"""The renderer, which converts a specification to text; `parse` converts this text to an equal specification."""

from __future__ import annotations

import json
import re

from relcrf.language.keywords import is_name
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.types import Bool

_PRECEDENCE = {"<=>": 1, "=>": 2, "or": 3, "and": 4, "not": 5, "+": 7, "-": 7, "*": 8, "/": 8, "negative": 9}
"""Precedence of the operators; operators with larger numbers bind more tightly."""

_COMPARISON_PRECEDENCE = 6
_ATOM_PRECEDENCE = 10


def render(spec: s.ModelSpec) -> str:
    """Render a specification with a blank line between declarations and each clause on a separate line."""
    return "\n\n".join(render_declaration(d) for d in spec.declarations) + "\n"


def model_text(spec: s.ModelSpec) -> str:
    """Return the source text of a model, or its rendered text if it was built in Python or includes other files."""
    return spec.source.text if spec.source and not spec.included else render(spec.flatten())


def render_declaration(node: s.Declaration) -> str:
    """Render one declaration."""
    match node:
        case s.EnumeratedDomain(name, values):
            return f"domain {name} = {{ {', '.join(render_value(v) for v in values)} }}"
        case s.RangeDomain(name, low, high):
            return f"domain {name} = {low}..{high}"
        case s.OpenDomain(name):
            return f"domain {name} = open"
        case s.Entity(name, attributes, key):
            return f"entity {name}" + ("" if key == "id" else f"({key})") + _render_attributes(attributes)
        case s.Relation(name, parameters, attributes):
            return f"relation {name}({', '.join(map(str, parameters))})" + _render_attributes(attributes)
        case s.DerivedRelation(name, parameters, definition):
            head = f"derive {name}({', '.join(map(str, parameters))})"
            if isinstance(definition, s.NearestNeighbours):
                body = f" = nearest {definition.count} by {render_expression(definition.measure)}"
            else:
                body = f"\n    where {render_expression(definition)}"
            return "\n    ".join([head + body, *_render_as_of(node)])
        case s.Feature(name, parameters, definition, type_name):
            declared = f": {type_name}" if type_name else ""
            text = f"feature {name}({', '.join(map(str, parameters))}){declared} = {_render_definition(definition)}"
            return "\n    ".join([text, *_render_as_of(node)])
        case s.RandomRelation(name, parameters, kind, where):
            text = f"predict relation {name}({', '.join(map(str, parameters))})" + (
                "" if kind == Bool() else f" : {kind}"
            )
            return text if where is None else f"{text}\n    where {render_expression(where)}"
        case s.Template():
            return _render_template(node)
        case s.Rule():
            return _render_rule(node)
        case s.Gate(name, by):
            return f"gate {name} by {_render_list(by)}"
        case s.Include(path):
            return f"include {json.dumps(path, ensure_ascii=False)}"
    raise AssertionError(f"unknown declaration {node!r}")


def _render_definition(definition: e.Expression | s.FeaturePropagation | s.LearnedDefinition) -> str:
    if isinstance(definition, s.LearnedDefinition):
        text = f"{definition.kind} of {render_expression(definition.target)} from {_render_list(definition.inputs)}"
        estimator = definition.estimator
        quoted = estimator if is_name(estimator) else json.dumps(estimator, ensure_ascii=False)
        text = f"{text} using {quoted}" if estimator else text
        return f"{text} joint {definition.joint}" if definition.joint else text
    if not isinstance(definition, s.FeaturePropagation):
        return render_expression(definition)
    text = f"propagate {definition.hops} {render_expression(definition.operand)} along {definition.relation}"
    return f"{text} normalised {definition.normalisation}" if definition.normalisation else text


def _render_template(node: s.Template) -> str:
    lines = [f"{'candidates' if node.is_candidate else 'template'} {node.name}({', '.join(map(str, node.parameters))})"]
    if node.where is not None:
        lines.append(f"where {render_expression(node.where)}")
    lines.append(f"over {'symmetric ' if node.symmetric else ''}{_render_list(node.over)}")
    lines += [f"{clause} {_render_list(items)}" for clause, items in (("per", node.per), ("by", node.by)) if items]
    return "\n    ".join([*lines, *_render_as_of(node), *_render_options(node.options)])


def _render_as_of(node: s.DerivedRelation | s.Feature | s.Template | s.Rule) -> list[str]:
    return [f"as of {node.as_of.name}"] if node.as_of is not None else []


def _render_rule(node: s.Rule) -> str:
    words = ["rule"]
    if node.weight is not None:
        words.append(repr(node.weight))
    elif node.is_hard:
        words.append("hard")
    if node.name is not None:
        words.append(node.name)
    lines = [f"{' '.join(words)}: {render_expression(node.formula)}"]
    if node.per:
        lines.append(f"per {_render_list(node.per)}")
    return "\n    ".join([*lines, *_render_as_of(node), *_render_options(node.options)])


def _render_options(options: s.WeightOptions) -> list[str]:
    lines = [f"init {', '.join(map(repr, options.initial_values))}"] if options.initial_values else []
    lines += [f"{name} {value!r}" for name, value in (("l1", options.l1), ("l2", options.l2)) if value is not None]
    lines += ["fixed"] if options.fixed else []
    return [*lines, f"weights {options.weights}"] if options.weights is not None else lines


def _render_list(items: tuple[e.Expression, ...]) -> str:
    return ", ".join(render_expression(i) for i in items)


def render_value(value: str) -> str:
    """Render a value of a domain: names and integers are unchanged, other values are quoted."""
    is_plain = is_name(value) or re.fullmatch(r"-?\d+", value, re.ASCII)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _render_attributes(attributes: tuple[s.AttributeDeclaration, ...]) -> str:
    if not attributes:
        return ""
    lines = [f"    {a.role}{a.name} : {a.type}" for a in attributes]
    return " {\n" + "\n".join(lines) + "\n}"


def render_expression(node: e.Expression) -> str:
    """Render an expression with the minimum number of brackets."""
    return _render_with_precedence(node)[0]


def _render_with_precedence(node: e.Expression) -> tuple[str, int]:
    """Return the text of an expression and the precedence of its outermost operator."""
    match node:
        case e.Name(name):
            return name, _ATOM_PRECEDENCE
        case e.Number(value):
            return repr(value), _ATOM_PRECEDENCE
        case e.Text(value):
            return json.dumps(value, ensure_ascii=False), _ATOM_PRECEDENCE
        case e.Boolean(value):
            return "true" if value else "false", _ATOM_PRECEDENCE
        case e.Attribute(binder, attribute):
            return f"{binder}.{attribute}", _ATOM_PRECEDENCE
        case e.Atom(name, arguments) | e.FunctionCall(name, arguments):
            return f"{name}({', '.join(render_expression(a) for a in arguments)})", _ATOM_PRECEDENCE
        case e.TupleAttribute(atom, attribute):
            return f"{render_expression(atom)}.{attribute}", _ATOM_PRECEDENCE
        case e.Aggregate(function, terms, where):
            head = f"{_render_list(terms)} where " if terms else ""
            return f"{function} {{ {head}{render_expression(where)} }}", _ATOM_PRECEDENCE
        case e.UnaryMinus(operand):
            return f"-{_parenthesise(operand, _PRECEDENCE['negative'])}", _PRECEDENCE["negative"]
        case e.Membership(element, bag):
            return (
                f"{_parenthesise(element, _COMPARISON_PRECEDENCE + 1)} in {render_expression(bag)}",
                _COMPARISON_PRECEDENCE,
            )
        case e.Not(operand):
            return f"not {_parenthesise(operand, _PRECEDENCE['not'])}", _PRECEDENCE["not"]
        case (
            e.Arithmetic(operator, left, right)
            | e.Comparison(operator, left, right)
            | e.Connective(operator, left, right)
        ):
            precedence = _PRECEDENCE.get(operator, _COMPARISON_PRECEDENCE)
            min_left = precedence + (operator == "=>" or precedence == _COMPARISON_PRECEDENCE)
            return (
                f"{_parenthesise(left, min_left)} {operator} {_parenthesise(right, precedence + (operator != '=>'))}",
                precedence,
            )
    raise AssertionError(f"unknown expression {node!r}")


def _parenthesise(node: e.Expression, min_precedence: int) -> str:
    text, precedence = _render_with_precedence(node)
    return text if precedence >= min_precedence else f"({text})"
