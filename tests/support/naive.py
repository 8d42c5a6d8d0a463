"""What a model means on tables, said a second time: plain loops over all bindings, slow, and apart from the engine.

Tables are lists of dicts by name: `{"page": [{"id": 1, "color": None}], "page_words": [...]}`. Things are their keys and
values of domains their texts, as long as possible; None is missing. Of the project only the parsed model is used.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from relcrf.model.expressions import (
    Arithmetic,
    Atom,
    Attribute,
    Comparison,
    Connective,
    Expression,
    Function,
    Member,
    Name,
    Negative,
    Not,
    Number,
    Text,
    Truth,
    TupleAttribute,
    walk,
)
from relcrf.model.spec import (
    Derived,
    Entity,
    EnumeratedDomain,
    ModelSpec,
    Nearest,
    OpenDomain,
    Parameter,
    RangeDomain,
    Template,
)
from relcrf.model.types import Bag, Bool, Date, DomainType, EntityType, Integer, Real, String, Vector

Tables = dict[str, list[dict[str, Any]]]
Variable = tuple[str, str, str]
"""Entity, key, attribute."""


@dataclass
class NaiveTemplate:
    """The ground factors of a template.

    Args:
        factors: (scope, non-zero features as ((key, place), value)), with how often; all bindings, unary ones too.
        n_bindings: bindings that give a factor; of a lone bag, its entries.
        n_keys, width: combinations of keys, features of each.
        patterns: a row for each joint state, a column for each pattern.
    """

    name: str
    arity: int
    n_bindings: int
    n_keys: int
    width: int
    patterns: list[tuple[bool, ...]]
    factors: list[tuple[tuple[Variable, ...], dict[tuple[tuple[str, ...], int], float]]] = field(default_factory=list)

    @property
    def n_weights(self) -> int:
        return self.n_keys * self.width * len(self.patterns[0])

    def sums(self) -> dict[tuple[Variable, tuple[str, ...], int], float]:
        """The features of each variable, added up: what a unary template amounts to."""
        total: dict[Any, float] = {}
        for (variable,), features in self.factors:
            for (key, place), value in features.items():
                total[variable, key, place] = total.get((variable, key, place), 0.0) + value
        return total


def text_of(value: Any) -> str | None:
    """A key or a value of a domain as text; 12, 12.0 and "12" are the same."""
    if value is None:
        return None
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return str(value)


def is_whole(text: str) -> bool:
    try:
        return str(int(text)) == text
    except ValueError:
        return False


class Naive:
    """A model on tables. `variables`, `states` and `templates` are the results."""

    def __init__(self, spec: ModelSpec, tables: Tables) -> None:
        self.spec = spec
        self.tables = tables
        self.values: dict[str, list[str]] = {}
        self.keys: dict[str, list[str]] = {}
        self.things: dict[tuple[str, str], dict[str, Any]] = {}
        self.tuples: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {}
        for domain in spec.domains:
            self.values[domain.name] = self._values(domain)
        for entity in spec.entities:
            self._entity(entity)
        for relation in spec.relations:
            found = self.tuples[relation.name] = {}
            for row in tables[relation.name.lower()]:
                arguments = tuple(text_of(row[p.name]) for p in relation.parameters)
                assert None not in arguments
                found[arguments] = {a.name: self._typed(row[a.name], a.type) for a in relation.attributes}
        self.variables: list[Variable] = []
        self.states: list[int] = []
        for entity in spec.entities:
            for attribute in entity.attributes:
                if attribute.predicted:
                    for key in self.keys[entity.name]:
                        value = self.things[entity.name, key][attribute.name]
                        states = self.states_of(attribute.type)
                        self.variables.append((entity.name, key, attribute.name))
                        self.states.append(-1 if value is None else states.index(value))
        self.templates = [self._template(t) for t in spec.templates]

    # Tables

    def _values(self, domain: Any) -> list[str]:
        if isinstance(domain, EnumeratedDomain):
            return list(domain.values)
        if isinstance(domain, RangeDomain):
            return [str(v) for v in range(domain.low, domain.high + 1)]
        found = set()
        for entity in self.spec.entities:
            for attribute in entity.attributes:
                if attribute.type == DomainType(domain.name):
                    found |= {text_of(row[attribute.name]) for row in self.tables[entity.name.lower()]}
                if attribute.type == Bag(domain.name):
                    rows = self.tables[f"{entity.name}_{attribute.name}".lower()]
                    found |= {text_of(row[attribute.name.removesuffix("s")]) for row in rows}
        for relation in self.spec.relations:
            rows = self.tables[relation.name.lower()]
            for parameter in relation.parameters:
                if parameter.sort == domain.name:
                    found |= {text_of(row[parameter.name]) for row in rows}
            for attribute in relation.attributes:
                if attribute.type == DomainType(domain.name):
                    found |= {text_of(row[attribute.name]) for row in rows}
        return sorted(v for v in found if v is not None)

    def _entity(self, entity: Entity) -> None:
        rows = self.tables[entity.name.lower()]
        keys = [text_of(row[entity.key]) for row in rows]
        assert len(set(keys)) == len(keys)
        if all(is_whole(k) for k in keys):
            self.keys[entity.name] = sorted(keys, key=int)
        else:
            self.keys[entity.name] = sorted(keys)
        for key, row in zip(keys, rows, strict=True):
            thing = self.things[entity.name, key] = {}
            for attribute in entity.attributes:
                if isinstance(attribute.type, Bag):
                    thing[attribute.name] = self._bag(entity, key, attribute.name)
                else:
                    thing[attribute.name] = self._typed(row[attribute.name], attribute.type)

    def _bag(self, entity: Entity, key: str, name: str) -> dict[str, float]:
        bag: dict[str, float] = {}
        for row in self.tables[f"{entity.name}_{name}".lower()]:
            value = text_of(row[name.removesuffix("s")])
            if text_of(row[entity.name.lower()]) == key and value is not None:
                bag[value] = bag.get(value, 0.0) + row.get("count", 1.0)
        return bag

    @staticmethod
    def _typed(value: Any, kind: Any) -> Any:
        if value is None:
            return None
        if isinstance(kind, DomainType):
            return text_of(value)
        if isinstance(kind, Date):
            return value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)
        if isinstance(kind, Vector):
            return [float(v) for v in value]
        if isinstance(kind, Real):
            return float(value)
        return value

    def states_of(self, kind: Any) -> list[Any]:
        """The values of a random attribute, in the order of its states."""
        return [False, True] if isinstance(kind, Bool) else self.values[kind.domain]

    # Names and types

    def sorts(self, parameters: tuple[Parameter, ...], where: Expression | None) -> dict[str, str]:
        """The sort of each binder, then of each existential name."""
        sorts = {p.name: p.sort for p in parameters}
        for _ in range(10):  # a bag's owner may get its sort from a later atom
            for node in walk(where) if where is not None else ():
                places = []
                if isinstance(node, Atom):
                    relation = self.spec.relation(node.relation)
                    places = [(a, p.sort) for a, p in zip(node.arguments, relation.parameters, strict=True)]
                if isinstance(node, Member) and node.bag.binder in sorts:
                    kind = self.declared(node.bag, sorts)
                    places = [(node.element, kind.domain)]
                for argument, sort in places:
                    if isinstance(argument, Name) and argument.name not in sorts:
                        domain = self.spec.domain(sort)
                        if not (isinstance(domain, EnumeratedDomain) and argument.name in domain.values):
                            sorts[argument.name] = sort
        return sorts

    def declared(self, node: Attribute, sorts: dict[str, str]) -> Any:
        return self.spec.entity(sorts[node.binder]).attribute(node.attribute).type

    def kind_of(self, node: Expression, sorts: dict[str, str]) -> Any:
        """The type of an expression; None of a constant that may be of any domain."""
        match node:
            case Attribute():
                return self.declared(node, sorts)
            case TupleAttribute(atom, name):
                return self.spec.relation(atom.relation).attribute(name).type
            case Name(name) if name in sorts:
                return EntityType(sorts[name]) if self.spec.entity(sorts[name]) else DomainType(sorts[name])
            case Name(name):
                return None
            case Text():
                return None
            case Number() | Arithmetic() | Function() | Negative():
                return Real()
        return Bool()

    def constant(self, node: Expression, domain: str) -> str:
        """The value of a domain that a constant is."""
        if isinstance(node, Name):
            return node.name
        if isinstance(node, Text):
            return node.value
        number = -node.operand.value if isinstance(node, Negative) else node.value
        if str(number) in self.values[domain]:
            return str(number)
        (same,) = [v for v in self.values[domain] if v.replace(".", "").isdigit() and float(v) == number]
        return same

    def is_constant(self, node: Expression, sorts: dict[str, str]) -> bool:
        if isinstance(node, Negative):
            node = node.operand
        return isinstance(node, Number | Text) or (isinstance(node, Name) and node.name not in sorts)

    # Expressions

    def value(self, node: Expression, env: dict[str, Any], sorts: dict[str, str]) -> Any:
        """What an expression is worth; None where it is missing."""
        match node:
            case Number(value) | Text(value) | Truth(value):
                return value
            case Name(name):
                return env[name]
            case Attribute(binder, name):
                if (binder, name) in env:  # a random term of a formula
                    return env[binder, name]
                return self.things[sorts[binder], env[binder]][name]
            case TupleAttribute(atom, name):
                return self.tuples[atom.relation].get(self.arguments(atom, env, sorts), {}).get(name)
            case Negative(operand):
                x = self.number(operand, env, sorts)
                return None if x is None else -x
            case Arithmetic(operator, left, right):
                x, y = self.number(left, env, sorts), self.number(right, env, sorts)
                if x is None or y is None:
                    return None
                match operator:
                    case "+":
                        return x + y
                    case "-":
                        return x - y
                    case "*":
                        return x * y
                return None if y == 0 else x / y
            case Function(name, arguments):
                return self.function(name, arguments, env, sorts)
        return self.holds(node, env, sorts)

    def number(self, node: Expression, env: dict[str, Any], sorts: dict[str, str]) -> float | None:
        """The value of a numeric expression; a value of a range is its number."""
        value = self.value(node, env, sorts)
        return None if value is None else float(value)

    def function(self, name: str, arguments: Any, env: dict[str, Any], sorts: dict[str, str]) -> float | None:
        if name in ("cosine", "dot", "distance"):
            u, v = (self.value(a, env, sorts) for a in arguments)
            dot = sum(x * y for x, y in zip(u, v, strict=True))
            if name == "dot":
                return dot
            if name == "distance":
                return math.sqrt(sum((x - y) ** 2 for x, y in zip(u, v, strict=True)))
            norm = math.sqrt(sum(x * x for x in u)) * math.sqrt(sum(x * x for x in v))
            return dot / norm if norm else 0.0
        numbers = [self.number(a, env, sorts) for a in arguments]
        if None in numbers:
            return None
        x = numbers[0]
        match name:
            case "log":
                return math.log(x) if x > 0 else None
            case "log1p":
                return math.log1p(x) if x > -1 else None
            case "exp":
                return math.exp(x)
            case "sqrt":
                return math.sqrt(x) if x >= 0 else None
            case "abs":
                return abs(x)
            case "least":
                return min(numbers)
            case "greatest":
                return max(numbers)
        raise AssertionError(name)

    def arguments(self, atom: Atom, env: dict[str, Any], sorts: dict[str, str]) -> tuple[str, ...]:
        parameters = self.spec.relation(atom.relation).parameters
        return tuple(
            self.constant(a, p.sort) if self.is_constant(a, sorts) else env[a.name]
            for a, p in zip(atom.arguments, parameters, strict=True)
        )

    def holds(self, node: Expression, env: dict[str, Any], sorts: dict[str, str]) -> bool:
        """Whether a condition holds; what looks at a missing value does not."""
        match node:
            case Truth(value):
                return value
            case Attribute() | TupleAttribute():
                return self.value(node, env, sorts) is True
            case Atom(relation):
                return self.arguments(node, env, sorts) in self.relation(relation)
            case Member(element, bag):
                domain = self.declared(bag, sorts).domain
                value = (
                    self.constant(element, domain)
                    if self.is_constant(element, sorts)
                    else self.value(element, env, sorts)
                )
                return value in self.value(bag, env, sorts)
            case Not(operand):
                return not self.holds(operand, env, sorts)
            case Connective(operator, left, right):
                x, y = self.holds(left, env, sorts), self.holds(right, env, sorts)
                return {"and": x and y, "or": x or y, "=>": not x or y, "<=>": x == y}[operator]
            case Comparison(operator, left, right):
                kinds = [self.kind_of(left, sorts), self.kind_of(right, sorts)]
                x = self.rank(left, kinds[0], kinds[1], env, sorts)
                y = self.rank(right, kinds[1], kinds[0], env, sorts)
                if x is None or y is None:
                    return False
                compared = {
                    "==": lambda: x == y,
                    "!=": lambda: x != y,
                    "<": lambda: x < y,
                    "<=": lambda: x <= y,
                    ">": lambda: x > y,
                    ">=": lambda: x >= y,
                }
                return bool(compared[operator]())
        raise AssertionError(node)

    def rank(self, node: Expression, kind: Any, other: Any, env: dict[str, Any], sorts: dict[str, str]) -> Any:
        """What stands for one side of a comparison: something that Python compares in the right order."""
        if self.is_constant(node, sorts) and isinstance(other, DomainType):
            if isinstance(self.spec.domain(other.domain), RangeDomain):
                if not isinstance(node, Text | Name):
                    return self.number(node, env, sorts)
                return float(node.value)
            text = self.constant(node, other.domain)
            values = self.values[other.domain]
            # A value that no data has, of an open domain: it equals nothing, and has its place in the order of texts.
            return text if isinstance(self.spec.domain(other.domain), OpenDomain) else values.index(text)
        value = self.value(node, env, sorts)
        if value is None:
            return None
        if isinstance(kind, EntityType):
            return self.keys[kind.entity].index(value)
        if isinstance(kind, DomainType):
            domain = self.spec.domain(kind.domain)
            if isinstance(domain, RangeDomain):
                return float(value)
            return value if isinstance(domain, OpenDomain) else self.values[kind.domain].index(value)
        if isinstance(node, Text) and isinstance(other, Date):
            return datetime.date.fromisoformat(value)
        return value

    # Relations

    def relation(self, name: str) -> Any:
        """The tuples of a relation."""
        if name not in self.tuples:
            derived = self.spec.relation(name)
            assert isinstance(derived, Derived)
            if isinstance(derived.definition, Nearest):
                found = self._nearest(derived)
            else:
                found = {
                    tuple(env[p.name] for p in derived.parameters)
                    for env in self.bindings(derived.parameters, derived.definition)
                }
            self.tuples[name] = dict.fromkeys(found, {})
        return self.tuples[name]

    def _nearest(self, derived: Derived) -> set[tuple[str, ...]]:
        function = derived.definition.measure
        entity = derived.parameters[0].sort
        name = function.arguments[0].attribute
        keys = self.keys[entity]
        found = set()
        for a in keys:
            u = [Fraction(x) for x in self.things[entity, a][name]]

            def farness(b: str, u: list[Fraction] = u) -> Fraction:
                v = [Fraction(x) for x in self.things[entity, b][name]]
                dot = sum((x * y for x, y in zip(u, v, strict=True)), Fraction(0))
                if function.name == "distance":
                    return sum(((x - y) ** 2 for x, y in zip(u, v, strict=True)), Fraction(0))
                if function.name == "dot":
                    return -dot
                length = sum((y * y for y in v), Fraction(0))  # the cosine squared with its sign, but for |u|
                return -dot * abs(dot) / length if length else Fraction(0)

            others = sorted((b for b in keys if b != a), key=farness)  # stable: the lower key first
            found |= {(a, b) for b in others[: derived.definition.count]}
        return found

    def bindings(self, parameters: tuple[Parameter, ...], where: Expression | None) -> list[dict[str, str]]:
        """All bindings of the binders for which some choice of the existential names fulfils the condition."""
        sorts = self.sorts(parameters, where)
        binders = [p.name for p in parameters]
        others = [name for name in sorts if name not in binders]
        found = []
        for chosen in itertools.product(*(self._range(sorts[b]) for b in binders)):
            env = dict(zip(binders, chosen, strict=True))
            if where is None:
                found.append(env)
                continue
            for rest in itertools.product(*(self._range(sorts[name]) for name in others)):
                if self.holds(where, {**env, **dict(zip(others, rest, strict=True))}, sorts):
                    found.append(env)
                    break
        return found

    def _range(self, sort: str) -> list[str]:
        return self.keys[sort] if sort in self.keys else self.values[sort]

    # Templates

    def _template(self, template: Template) -> NaiveTemplate:
        sorts = {p.name: p.sort for p in template.parameters}
        terms = self._terms(template, sorts)
        is_table = all(isinstance(item, Attribute) for item in template.over)
        states = [self.states_of(self.declared(t, sorts)) for t in terms]
        joint = list(itertools.product(*states))
        if is_table:
            patterns = [tuple(k == n for k in range(len(joint))) for n in range(len(joint))]
        else:
            patterns = []
            for chosen in joint:
                env = {(t.binder, t.attribute): value for t, value in zip(terms, chosen, strict=True)}
                patterns.append((self.holds(template.over[0], env, sorts),))
        kinds = [self.kind_of(f, sorts) for f in template.by]
        bag = kinds[0] if len(kinds) == 1 and isinstance(kinds[0], Bag) else None
        out = NaiveTemplate(template.name, len(terms), 0, 0, 1, patterns)
        seen = set()
        for env in self.bindings(template.parameters, template.where):
            key = tuple(self._key_text(k, env, sorts) for k in template.per)
            if None in key:
                continue
            seen.add(key)
            scope = tuple((sorts[t.binder], env[t.binder], t.attribute) for t in terms)
            if bag is not None:
                counts = self.value(template.by[0], env, sorts)
                out.n_bindings += len(counts)
                out.factors.append((scope, {((word,), 0): n for word, n in counts.items() if n}))
                continue
            row = [x for f in template.by for x in self._features(f, env, sorts)] if template.by else [1.0]
            out.n_bindings += 1
            out.factors.append((scope, {(key, place): x for place, x in enumerate(row) if x}))
        out.n_keys = self._n_keys(template, seen, sorts)
        if bag is not None:
            out.n_keys = len(self.values[bag.domain])
        elif template.by:
            out.width = sum(
                len(next(iter(self._vectors(f, sorts)))) if isinstance(k, Vector) else 1
                for f, k in zip(template.by, kinds, strict=True)
            )
        return out

    def _vectors(self, node: Attribute, sorts: dict[str, str]) -> list[list[float]]:
        return [self.things[sorts[node.binder], key][node.attribute] for key in self.keys[sorts[node.binder]]]

    def _terms(self, template: Template, sorts: dict[str, str]) -> list[Attribute]:
        found: list[Attribute] = []
        for item in template.over:
            for node in walk(item):
                if isinstance(node, Attribute) and node not in found:
                    found.append(node)
        return found

    def _key_text(self, node: Expression, env: dict[str, Any], sorts: dict[str, str]) -> str | None:
        value = self.value(node, env, sorts)
        if isinstance(value, bool):
            return "true" if value else "false"
        return text_of(value)

    def _features(self, node: Expression, env: dict[str, Any], sorts: dict[str, str]) -> list[float]:
        value = self.value(node, env, sorts)
        if isinstance(value, list):
            return value
        return [0.0 if value is None else float(value)]

    def _n_keys(self, template: Template, seen: set[Any], sorts: dict[str, str]) -> int:
        """A single key that is a thing, a value of a domain or a truth value has all of them, met or not."""
        if not template.per:
            return 1
        kind = self.kind_of(template.per[0], sorts)
        if len(template.per) == 1 and not isinstance(kind, Integer | String):
            if isinstance(kind, EntityType):
                return len(self.keys[kind.entity])
            return 2 if isinstance(kind, Bool) else len(self.values[kind.domain])
        return len(seen)


def multiset(factors: Any) -> Counter:
    """Factors to compare: values to nine digits."""
    return Counter(
        (scope, tuple(sorted((name, float(f"{value:.9g}")) for name, value in features.items())))
        for scope, features in factors
    )
