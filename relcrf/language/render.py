"""A specification as canonical text: what `parse` reads back as the same specification."""

from __future__ import annotations

import json
import re

from relcrf.language.words import is_name
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.types import Bool

_STRENGTH = {"<=>": 1, "=>": 2, "or": 3, "and": 4, "not": 5, "+": 7, "-": 7, "*": 8, "/": 8, "negative": 9}
"""How strongly operators bind their operands."""

_COMPARE = 6
_ATOM = 10


def render(spec: s.ModelSpec) -> str:
    """The text of a specification: a blank line between declarations, clauses on lines of their own."""
    return "\n\n".join(declaration(d) for d in spec.declarations) + "\n"


def model_text(spec: s.ModelSpec) -> str:
    """Return the text that a model was read from, or its rendered text where it was built or includes other files."""
    return spec.source.text if spec.source and not spec.included else render(spec.flat())


def declaration(node: s.Declaration) -> str:
    """The text of one declaration."""
    match node:
        case s.EnumeratedDomain(name, values):
            return f"domain {name} = {{ {', '.join(written_value(v) for v in values)} }}"
        case s.RangeDomain(name, low, high):
            return f"domain {name} = {low}..{high}"
        case s.OpenDomain(name):
            return f"domain {name} = open"
        case s.Entity(name, attributes, key):
            return f"entity {name}" + ("" if key == "id" else f"({key})") + _block(attributes)
        case s.Relation(name, parameters, attributes):
            return f"relation {name}({', '.join(map(str, parameters))})" + _block(attributes)
        case s.Derived(name, parameters, definition):
            head = f"derive {name}({', '.join(map(str, parameters))})"
            if isinstance(definition, s.Nearest):
                return f"{head} = nearest {definition.count} by {expression(definition.measure)}"
            return f"{head}\n    where {expression(definition)}"
        case s.RandomRelation(name, parameters, kind, where):
            text = f"predict relation {name}({', '.join(map(str, parameters))})" + (
                "" if kind == Bool() else f" : {kind}"
            )
            return text if where is None else f"{text}\n    where {expression(where)}"
        case s.Template():
            return _template(node)
        case s.Rule():
            return _rule(node)
        case s.Gate(name, by):
            return f"gate {name} by {_list(by)}"
        case s.Include(path):
            return f"include {json.dumps(path, ensure_ascii=False)}"
    raise AssertionError(f"unknown declaration {node!r}")


def _template(node: s.Template) -> str:
    lines = [f"{'candidates' if node.is_candidate else 'template'} {node.name}({', '.join(map(str, node.parameters))})"]
    if node.where is not None:
        lines.append(f"where {expression(node.where)}")
    lines.append(f"over {'symmetric ' if node.symmetric else ''}{_list(node.over)}")
    lines += [f"{clause} {_list(items)}" for clause, items in (("per", node.per), ("by", node.by)) if items]
    return "\n    ".join([*lines, *_options(node.options)])


def _rule(node: s.Rule) -> str:
    words = ["rule"]
    if node.weight is not None:
        words.append(repr(node.weight))
    elif node.is_hard:
        words.append("hard")
    if node.name is not None:
        words.append(node.name)
    lines = [f"{' '.join(words)}: {expression(node.formula)}"]
    if node.per:
        lines.append(f"per {_list(node.per)}")
    return "\n    ".join([*lines, *_options(node.options)])


def _options(options: s.Options) -> list[str]:
    lines = [f"init {', '.join(map(repr, options.starts))}"] if options.starts else []
    lines += [f"{name} {value!r}" for name, value in (("l1", options.l1), ("l2", options.l2)) if value is not None]
    lines += ["fixed"] if options.fixed else []
    return [*lines, f"weights {options.weights}"] if options.weights is not None else lines


def _list(items: tuple[e.Expression, ...]) -> str:
    return ", ".join(expression(i) for i in items)


def written_value(value: str) -> str:
    """Return a value of a domain as a model writes it: a name or a whole number as it is, else a text in quotes."""
    is_plain = is_name(value) or re.fullmatch(r"-?\d+", value, re.ASCII)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _block(attributes: tuple[s.AttributeDeclaration, ...]) -> str:
    if not attributes:
        return ""
    lines = [f"    {a.role}{a.name} : {a.type}" for a in attributes]
    return " {\n" + "\n".join(lines) + "\n}"


def expression(node: e.Expression) -> str:
    """An expression with no more brackets than it needs."""
    return _expression(node)[0]


def _expression(node: e.Expression) -> tuple[str, int]:
    """The text and how strongly it binds."""
    match node:
        case e.Name(name):
            return name, _ATOM
        case e.Number(value):
            return repr(value), _ATOM
        case e.Text(value):
            return json.dumps(value, ensure_ascii=False), _ATOM
        case e.Truth(value):
            return "true" if value else "false", _ATOM
        case e.Attribute(binder, attribute):
            return f"{binder}.{attribute}", _ATOM
        case e.Atom(name, arguments) | e.Function(name, arguments):
            return f"{name}({', '.join(expression(a) for a in arguments)})", _ATOM
        case e.TupleAttribute(atom, attribute):
            return f"{expression(atom)}.{attribute}", _ATOM
        case e.Aggregate(function, terms, where):
            head = f"{_list(terms)} where " if terms else ""
            return f"{function} {{ {head}{expression(where)} }}", _ATOM
        case e.Negative(operand):
            return f"-{_inside(operand, _STRENGTH['negative'])}", _STRENGTH["negative"]
        case e.Member(element, bag):
            return f"{_inside(element, _COMPARE + 1)} in {expression(bag)}", _COMPARE
        case e.Not(operand):
            return f"not {_inside(operand, _STRENGTH['not'])}", _STRENGTH["not"]
        case (
            e.Arithmetic(operator, left, right)
            | e.Comparison(operator, left, right)
            | e.Connective(operator, left, right)
        ):
            own = _STRENGTH.get(operator, _COMPARE)
            least_left = own + (operator == "=>" or own == _COMPARE)
            return f"{_inside(left, least_left)} {operator} {_inside(right, own + (operator != '=>'))}", own
    raise AssertionError(f"unknown expression {node!r}")


def _inside(node: e.Expression, least: int) -> str:
    text, own = _expression(node)
    return text if own >= least else f"({text})"
