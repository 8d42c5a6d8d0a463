"""What a template means, as plain loops over all bindings: written apart from the engine, for tiny tables.

Tables are lists of dicts; entities by key, `None` is missing. Names and values stay texts and numbers; no codes, no SQL.
"""

from __future__ import annotations

import itertools
import math

from relcrf.model import expressions as e
from relcrf.model.spec import Nearest
from relcrf.model.types import Bag, DomainType


class Evaluator:
    """Grounds a checked specification on `things` (entity -> key -> attributes, bags as dicts of counts) and
    `tuples` (relation -> set of argument tuples) with `scores` ((relation, arguments) -> attributes)."""

    def __init__(self, spec, things, tuples, scores, domains):
        self.spec, self.things, self.scores, self.domains = spec, things, scores, domains
        self.tuples = dict(tuples)
        for derived in spec.derived:
            assert not isinstance(derived.definition, Nearest)
            names = [p.name for p in derived.parameters]
            self.tuples[derived.name] = {
                tuple(binding[n] for n in names) for binding in self.bindings(derived.parameters, derived.definition)
            }

    def universe(self, sort):
        return list(self.things[sort]) if sort in self.things else self.domains[sort]

    def bindings(self, parameters, where):
        """All ways to give things and values to the binders so that `where` holds."""
        names = [p.name for p in parameters]
        for chosen in itertools.product(*(self.universe(p.sort) for p in parameters)):
            binding = dict(zip(names, chosen, strict=True))
            sorts = {p.name: p.sort for p in parameters}
            if where is None or self.satisfiable(where, binding, sorts):
                yield binding

    def satisfiable(self, where, binding, sorts):
        """Whether the existential names that positive atoms bind can be chosen so that the condition holds."""
        free = {}
        for part in e.conjuncts(where):
            if isinstance(part, e.Atom):
                for argument, parameter in zip(
                    part.arguments, self.spec.relation(part.relation).parameters, strict=True
                ):
                    if (
                        isinstance(argument, e.Name)
                        and argument.name not in binding
                        and not self.is_value(argument.name, parameter.sort)
                    ):
                        free[argument.name] = parameter.sort
        for chosen in itertools.product(*(self.universe(s) for s in free.values())):
            extended = binding | dict(zip(free, chosen, strict=True))
            if self.holds(where, extended, sorts | free):
                return True
        return False

    def is_value(self, name, sort):
        return sort in self.domains and name in self.domains[sort]

    def holds(self, node, binding, sorts):
        match node:
            case e.Connective("and", left, right):
                return self.holds(left, binding, sorts) and self.holds(right, binding, sorts)
            case e.Connective("or", left, right):
                return self.holds(left, binding, sorts) or self.holds(right, binding, sorts)
            case e.Connective("=>", left, right):
                return not self.holds(left, binding, sorts) or self.holds(right, binding, sorts)
            case e.Connective("<=>", left, right):
                return self.holds(left, binding, sorts) == self.holds(right, binding, sorts)
            case e.Not(operand):
                return not self.holds(operand, binding, sorts)
            case e.Truth(value):
                return value
            case e.Atom(relation, arguments):
                given = [binding.get(a.name, a.name) if isinstance(a, e.Name) else a.value for a in arguments]
                return tuple(given) in self.tuples[relation]
            case e.Member(element, bag):
                word = binding.get(element.name, element.name) if isinstance(element, e.Name) else element.value
                return word in self.things[sorts[bag.binder]][binding[bag.binder]][bag.attribute]
            case e.Comparison(operator, left, right):
                a, b = self.value(left, binding, sorts), self.value(right, binding, sorts)
                if a is None or b is None:
                    return False
                domain = self.domain_of(left, sorts) or self.domain_of(right, sorts)
                if domain and isinstance(a, str) and isinstance(b, str):
                    a, b = self.domains[domain].index(a), self.domains[domain].index(b)
                return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
            case e.Attribute():
                return self.value(node, binding, sorts) is True
        raise AssertionError(node)

    def domain_of(self, node, sorts):
        if isinstance(node, e.Attribute):
            kind = self.spec.entity(sorts[node.binder]).attribute(node.attribute).type
            return kind.domain if isinstance(kind, DomainType) else None
        return None

    def value(self, node, binding, sorts):
        """The value of a term, None where it is missing."""
        match node:
            case e.Name(name):
                return binding.get(name, name)
            case e.Number(value) | e.Text(value) | e.Truth(value):
                return value
            case e.Attribute(binder, attribute):
                return self.things[sorts[binder]][binding[binder]][attribute]
            case e.TupleAttribute(e.Atom(relation, arguments), attribute):
                return self.scores[relation, tuple(binding[a.name] for a in arguments)][attribute]
            case e.Negative(operand):
                return self.apply(lambda x: -x, binding, sorts, operand)
            case e.Arithmetic(operator, left, right):
                return self.apply(ARITHMETIC[operator], binding, sorts, left, right)
            case e.Function(name, arguments):
                return self.apply(FUNCTIONS[name], binding, sorts, *arguments)
        raise AssertionError(node)

    def apply(self, function, binding, sorts, *nodes):
        values = [self.value(n, binding, sorts) for n in nodes]
        return None if None in values else function(*values)

    def factors(self, template):
        """Of each binding that has all keys: scope of (entity, key, attribute), keys as texts, feature values."""
        sorts = {p.name: p.sort for p in template.parameters}
        random = self.random_terms(template, sorts)
        for binding in self.bindings(template.parameters, template.where):
            scope = tuple((sorts[t.binder], binding[t.binder], t.attribute) for t in random)
            bag = self.bag(template, sorts)
            if bag is not None:
                for word, count in self.things[sorts[bag.binder]][binding[bag.binder]][bag.attribute].items():
                    yield scope, (word,), (float(count),)
                continue
            keys = [self.value(k, binding, sorts) for k in template.per]
            if None in keys:
                continue
            texts = tuple(
                {True: "true", False: "false"}.get(k, str(k)) if isinstance(k, bool) else str(k) for k in keys
            )
            features = tuple(float(self.value(f, binding, sorts) or 0.0) for f in template.by) or (1.0,)
            yield scope, texts, features

    def bag(self, template, sorts):
        if len(template.by) == 1 and isinstance(template.by[0], e.Attribute):
            kind = self.spec.entity(sorts[template.by[0].binder]).attribute(template.by[0].attribute).type
            return template.by[0] if isinstance(kind, Bag) else None
        return None

    def random_terms(self, template, sorts):
        found = []
        for item in template.over:
            for node in e.walk(item):
                is_new = isinstance(node, e.Attribute) and node not in found
                if is_new and self.spec.entity(sorts[node.binder]).attribute(node.attribute).predicted:
                    found.append(node)
        return found

    def patterns(self, template):
        """The truth of a formula at each joint state, row-major; None for a table."""
        sorts = {p.name: p.sort for p in template.parameters}
        terms = self.random_terms(template, sorts)
        if all(isinstance(i, e.Attribute) for i in template.over):
            return None
        domains = [self.domains[self.domain_of(t, sorts)] for t in terms]
        out = []
        for states in itertools.product(*domains):
            assigned = dict(zip(terms, states, strict=True))
            things = {s: {k: dict(a) for k, a in rows.items()} for s, rows in self.things.items()}
            binding = {t.binder: ("some", t.binder) for t in terms}
            for term, state in assigned.items():
                things[sorts[term.binder]].setdefault(("some", term.binder), {})[term.attribute] = state
            inner = Evaluator.__new__(Evaluator)
            inner.spec, inner.things, inner.domains, inner.tuples, inner.scores = (
                self.spec,
                things,
                self.domains,
                {},
                {},
            )
            out.append(float(inner.holds(template.over[0], binding, sorts)))
        return out


ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b != 0 else None,
}
FUNCTIONS = {
    "log": lambda x: math.log(x) if x > 0 else None,
    "log1p": lambda x: math.log1p(x) if x > -1 else None,
    "exp": math.exp,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else None,
    "abs": abs,
    "least": min,
    "greatest": max,
}
