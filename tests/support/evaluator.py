"""A reference implementation of grounding by plain loops over all bindings, independent of the engines, for tiny tables.

Tables are dicts: entities by key, with `None` for missing values. Names and values remain texts and numbers, without codes or
SQL. Values of ranges are integers. Rules are evaluated as written: the truth of the formula for all values of their names.
"""

from __future__ import annotations

import itertools
import math

from relcrf.model import expressions as e
from relcrf.model.nodes import children, walk
from relcrf.model.spec import EnumeratedDomain, NearestNeighbours, RandomRelation, RangeDomain, Rule, Template
from relcrf.model.types import Bag, Bool, DomainType

ANY_TIME = object()
"""The time limit of declarations without `as of`."""


class Evaluator:
    """A reference grounder of a checked specification.

    Args:
        things: entity type -> key -> attributes; bags are dicts of counts.
        tuples: observed relation -> set of argument tuples.
        scores: (relation, arguments) -> attributes.
        domains: values of every domain, in order.
    """

    def __init__(self, spec, things, tuples, scores, domains):
        self.spec, self.things, self.scores, self.domains = spec, things, scores, domains
        self.time_limit = ANY_TIME
        self.tuples = dict(tuples) | {d.name: set() for d in spec.derived_relations}
        for stratum in self.strata():
            grows = True
            while grows:
                grows = False
                for derived in stratum:
                    found = set(self.bindings(derived.parameters, derived.definition, derived.as_of))
                    grows = grows or not found <= self.tuples[derived.name]
                    self.tuples[derived.name] |= found
        for relation in spec.random_relations:
            self.tuples[relation.name] = set(self.bindings(relation.parameters, relation.where))

    def strata(self):
        """Return the derived relations in strata: relations used under negation or in aggregates come before their users."""
        level = {d.name: 0 for d in self.spec.derived_relations}
        for _ in range(len(level) ** 2):
            for derived in self.spec.derived_relations:
                assert not isinstance(derived.definition, NearestNeighbours)
                for node in walk(derived.definition):
                    if isinstance(node, e.Atom) and node.relation in level:
                        plain = node.relation == derived.name or node in positive(derived.definition)
                        level[derived.name] = max(level[derived.name], level[node.relation] + (not plain))
        order = sorted(set(level.values()))
        return [[d for d in self.spec.derived_relations if level[d.name] == k] for k in order]

    def universe(self, type_name):
        """Return the values of a domain, or the entities of a type that are known before the time limit."""
        if type_name not in self.things:
            return self.domains[type_name]
        time = self.spec.time_attribute(type_name)
        rows = self.things[type_name].items()
        return [key for key, row in rows if time is None or self.is_known(row[time.name])]

    def is_known(self, time):
        limit = self.time_limit
        return limit is ANY_TIME or (None not in (time, limit) and time < limit)

    def bindings(self, parameters, where, as_of=None):
        """Yield all assignments of entities and values to the binders that satisfy `where`.

        With `as_of`, only entities and tuples exist that are known before the time of this binder. The limit holds until the
        next assignment is requested.
        """
        names = [p.name for p in parameters]
        target = names.index(as_of.name) if as_of is not None else None
        type_name = parameters[target].type_name if target is not None else None
        for known in self.universe(type_name) if target is not None else [None]:
            if target is not None:
                self.time_limit = self.things[type_name][known][self.spec.time_attribute(type_name).name]
            universes = [[known] if k == target else self.universe(p.type_name) for k, p in enumerate(parameters)]
            for chosen in itertools.product(*universes):
                env = {p.name: (p.type_name, value) for p, value in zip(parameters, chosen, strict=True)}
                if where is None or self.is_satisfied(where, env):
                    yield chosen
            self.time_limit = ANY_TIME

    # Names

    def free_names(self, node, env):
        """Return the unbound names in an expression's atoms and bags, with their type names."""
        found = {}
        if isinstance(node, e.Aggregate):
            return found
        if isinstance(node, e.Atom):
            for argument, parameter in zip(node.arguments, self.spec.relation(node.relation).parameters, strict=True):
                found |= self.free_name(argument, parameter.type_name, env)
        elif isinstance(node, e.Membership):
            found |= self.free_name(node.element, self.type_of(node.bag, env).domain, env)
        else:
            for child in children(node):
                found |= self.free_names(child, env)
        return found

    def free_names_of(self, nodes, env):
        """Return the unbound names of several atoms and bags together; the owner of a bag may be unbound itself."""
        found, size = {}, -1
        while size != len(found):
            size = len(found)
            known = env | {name: (type_name, None) for name, type_name in found.items()}
            for node in nodes:
                if isinstance(node, e.Atom) or (isinstance(node, e.Membership) and node.bag.binder in known):
                    found |= self.free_names(node, known)
        return found

    def free_name(self, node, type_name, env):
        is_name = isinstance(node, e.Name) and node.name not in env and not self.is_value(node.name, type_name)
        return {node.name: type_name} if is_name else {}

    def is_value(self, name, type_name):
        return isinstance(self.spec.domain(type_name), EnumeratedDomain) and name in self.domains[type_name]

    def choices(self, names, env):
        for chosen in itertools.product(*(self.universe(type_name) for type_name in names.values())):
            yield env | {n: (type_name, v) for (n, type_name), v in zip(names.items(), chosen, strict=True)}

    # Truth

    def is_satisfied(self, node, env):
        """Return True if all conjuncts hold for some values of the names that they share."""
        parts = e.conjuncts(node)
        names = self.free_names_of(parts, env) | self.shared_names(parts, env)
        return any(all(self.holds(part, more) for part in parts) for more in self.choices(names, env))

    def shared_names(self, parts, env):
        """Return the unbound names that are operands or outer names of aggregates, or in several parts other than `not`."""
        outside = [node for part in parts for node in walk(part, lambda node: not isinstance(node, e.Aggregate))]
        typed = self.free_names_of(outside, env)
        plain = [all_names(part) for part in parts if not isinstance(part, e.Not)]
        operands = set().union(*map(operand_names, parts))
        return {n: t for n, t in typed.items() if n in operands or sum(n in names for names in plain) > 1}

    def holds(self, node, env):
        match node:
            case e.Connective("and"):
                return self.is_satisfied(node, env)
            case e.Connective("or", left, right):
                return self.holds(left, env) or self.holds(right, env)
            case e.Connective("=>", left, right):
                return not self.holds(left, env) or self.holds(right, env)
            case e.Connective("<=>", left, right):
                return self.holds(left, env) == self.holds(right, env)
            case e.Not(operand):
                return not self.holds(operand, env)
            case e.Boolean(value):
                return value
            case e.Atom():
                return any(self.is_tuple(node, more) for more in self.choices(self.free_names(node, env), env))
            case e.Membership(element, bag):
                words = self.value(bag, env)
                names = self.free_names(node, env)
                return any(self.value(element, more) in words for more in self.choices(names, env))
            case e.Comparison(operator, left, right):
                return self.compare(operator, left, right, env)
            case e.Aggregate("exists", _, where):
                return self.is_satisfied(where, env)
            case e.Attribute() | e.FunctionCall() | e.TupleAttribute():
                return self.value(node, env) is True
        raise AssertionError(node)

    def is_tuple(self, node, env):
        assigned = env.get(("assigned", node))
        if assigned is not None:
            return assigned is True
        arguments, time = self.arguments(node, env), self.spec.time_attribute(node.relation)
        is_known = time is None or self.is_known(self.scores.get((node.relation, arguments), {}).get(time.name))
        return is_known and arguments in self.tuples[node.relation]

    def arguments(self, atom, env):
        parameters = self.spec.relation(atom.relation).parameters
        return tuple(self.constant(a, p.type_name, env) for a, p in zip(atom.arguments, parameters, strict=True))

    def constant(self, node, type_name, env):
        value = self.value(node, env)
        return int(value) if isinstance(self.spec.domain(type_name), RangeDomain) else value

    def compare(self, operator, left, right, env):
        kind = self.type_of(left, env) or self.type_of(right, env)
        if isinstance(kind, Bool):
            a, b = (self.truth_side(side, env) for side in (left, right))
        else:
            a, b = self.value(left, env), self.value(right, env)
        if a is None or b is None:
            return False
        domain = self.spec.domain(kind.domain) if isinstance(kind, DomainType) else None
        if isinstance(domain, EnumeratedDomain):
            a, b = (self.domains[domain.name].index(x) if x in self.domains[domain.name] else -1 for x in (a, b))
        return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]

    def truth_side(self, node, env):
        """Return a truth value; a stored one may be missing, a computed one cannot."""
        stored = e.Attribute | e.TupleAttribute
        return self.value(node, env) if isinstance(node, stored) else self.holds(node, env)

    def type_of(self, node, env):
        """Return the type of a term if it is a domain, a bag or Boolean, else None."""
        match node:
            case e.Attribute(binder, attribute):
                return self.spec.attribute(env[binder][0], attribute).type
            case e.TupleAttribute(e.Atom(relation), attribute):
                return self.spec.attribute(relation, attribute).type
            case e.Name(name) if name in env:
                return DomainType(env[name][0])
            case e.Atom(relation):
                declared = self.spec.relation(relation)
                return declared.type if isinstance(declared, RandomRelation) else Bool()
            case e.Boolean() | e.Comparison() | e.Connective() | e.Not() | e.Membership() | e.Aggregate("exists"):
                return Bool()
        return None

    # Values

    def value(self, node, env):
        """Return the value of a term, None if it is missing."""
        if ("assigned", node) in env:
            return env["assigned", node]
        match node:
            case e.Name(name):
                return env[name][1] if name in env else name
            case e.Number(value) | e.Text(value) | e.Boolean(value):
                return value
            case e.Attribute(binder, attribute):
                type_name, key = env[binder]
                return self.things[type_name][key][attribute]
            case e.TupleAttribute(e.Atom(relation), attribute):
                return self.scores[relation, self.arguments(node.atom, env)][attribute]
            case e.UnaryMinus(operand):
                return self.apply(lambda x: -x, env, operand)
            case e.Arithmetic(operator, left, right):
                return self.apply(ARITHMETIC[operator], env, left, right)
            case e.FunctionCall("default", (argument, other)):
                found = self.value(argument, env)
                return self.value(other, env) if found is None else found
            case e.FunctionCall("missing", (argument,)):
                return self.value(argument, env) is None
            case e.FunctionCall(name, arguments):
                return self.apply(FUNCTIONS[name], env, *arguments)
            case e.Aggregate():
                return self.aggregate(node, env)
        raise AssertionError(node)

    def apply(self, function, env, *nodes):
        values = [self.value(n, env) for n in nodes]
        return None if None in values else function(*values)

    def aggregate(self, node, env):
        names = self.free_names_of(positive(node.where), env)
        for term in node.terms:
            names |= {n: s for n, s in self.free_names_of(list(walk(node.where)), env).items() if term == e.Name(n)}
        found = [more for more in self.choices(names, env) if self.is_satisfied(node.where, more)]
        if node.function == "count":
            counted = [t.name for t in node.terms] or list(names)
            return len({tuple(more[n][1] for n in counted) for more in found})
        values = [v for v in (self.value(node.terms[0], more) for more in found) if v is not None]
        if node.function == "sum":
            return sum(values)
        return {"min": min, "max": max, "mean": lambda v: sum(v) / len(v)}[node.function](values) if values else None

    # Factors

    def factors(self, template):
        """Yield, for each binding with a factor: scope of (owner, arguments, attribute), pattern, keys and feature values.

        The pattern is `table`, `symmetric`, or the formula's value in each joint state, row-major.
        """
        return (factor for _, factor in self.bound_factors(template))

    def bound_factors(self, template):
        """Yield the factors with their bindings: the type name and value of every name."""
        over = template.over if isinstance(template, Template) else (template.formula,)
        parameters, where = self.quantified(template)
        for chosen in self.bindings(parameters, where, template.as_of):
            env = {p.name: (p.type_name, value) for p, value in zip(parameters, chosen, strict=True)}
            terms = self.random_terms(over, env)
            if any(isinstance(t, e.Atom) and self.arguments(t, env) not in self.tuples[t.relation] for t in terms):
                continue
            pattern = self.pattern(template, over, terms, env)
            if isinstance(pattern, tuple) and len(set(pattern)) == 1:
                continue  # the formula is constant
            scope = tuple(self.variable(t, env) for t in terms)
            bag = self.bag(template, env)
            if bag is not None:
                for word, count in self.value(bag, env).items():
                    yield env, (scope, pattern, (word,), (float(count),))
                continue
            keys = [self.key(k, env) for k in template.per]
            if None in keys:
                continue
            by = template.by if isinstance(template, Template) else ()
            features = tuple(float(self.value(f, env) or 0.0) for f in by) or (1.0,)
            yield env, (scope, pattern, tuple(map(format_value, keys)), features)

    def key(self, node, env):
        """Return the value of an item of `per`, None if it or an operand of a comparison in it is missing."""
        is_stored = isinstance(node, e.Attribute | e.TupleAttribute)
        if not is_stored and isinstance(self.type_of(node, env), Bool):
            return None if self.lacks_operand(node, env) else self.holds(node, env)
        if isinstance(node, e.FunctionCall) and node.name == "bin":
            return self.interval(node, env)
        return self.value(node, env)

    def lacks_operand(self, node, env):
        if isinstance(node, e.Not | e.Connective):
            return any(self.lacks_operand(child, env) for child in children(node))
        if isinstance(node, e.Comparison):
            return any(self.lacks_operand(side, env) for side in (node.left, node.right))
        is_exists = isinstance(node, e.Aggregate) and node.function == "exists"
        return not isinstance(node, e.Atom | e.Membership) and not is_exists and self.value(node, env) is None

    def interval(self, node, env):
        value, *limits = (self.value(argument, env) for argument in node.arguments)
        if value is None:
            return None
        reached = [limit for limit in limits if limit <= value]
        above = limits[len(reached) :]
        low = reached[-1] if reached else None
        return f"below {above[0]}" if low is None else f"{low} to {above[0]}" if above else f"{low} or more"

    def gate_features(self, gate, env):
        """Return the non-zero features of a gate for a binding, as (key, position) -> value."""
        if isinstance(gate.by[0], e.Attribute) and isinstance(self.type_of(gate.by[0], env), Bag):
            return {((word,), 0): float(count) for word, count in self.value(gate.by[0], env).items()}
        values = [float(self.value(feature, env) or 0.0) for feature in gate.by]
        return {((), d): value for d, value in enumerate(values) if value}

    def quantified(self, template):
        if isinstance(template, Rule):
            names = self.free_names_of(list(walk(template.formula)), {})
            return [_Parameter(n, type_name) for n, type_name in names.items()], None
        return template.parameters, template.where

    def variable(self, term, env):
        if isinstance(term, e.Atom):
            return term.relation, tuple(map(format_value, self.arguments(term, env))), None
        type_name, key = env[term.binder]
        return type_name, (format_value(key),), term.attribute

    def is_random(self, node, env):
        if isinstance(node, e.Atom):
            return isinstance(self.spec.relation(node.relation), RandomRelation)
        if isinstance(node, e.Attribute) and node.binder in env:
            declared = self.spec.attribute(env[node.binder][0], node.attribute)
            return declared.predicted or declared.latent
        return False

    def random_terms(self, over, env):
        return list(dict.fromkeys(n for item in over for n in walk(item) if self.is_random(n, env)))

    def states(self, term, env):
        kind = self.type_of(term, env)
        return [False, True] if isinstance(kind, Bool) else self.domains[kind.domain]

    def pattern(self, template, over, terms, env):
        is_proposition = len(over) == 1 and isinstance(over[0], e.Atom) and isinstance(self.type_of(over[0], env), Bool)
        is_list = isinstance(template, Template) and all(self.is_random(item, env) for item in over)
        if is_list and not is_proposition:
            return "symmetric" if getattr(template, "symmetric", False) else "table"
        out = []
        for states in itertools.product(*(self.states(t, env) for t in terms)):
            assigned = {("assigned", t): s for t, s in zip(terms, states, strict=True)}
            out.append(float(self.holds(over[0], env | assigned)) - bool(template.is_hard))
        return tuple(out)

    def bag(self, template, env):
        by = template.by if isinstance(template, Template) else ()
        is_bag = len(by) == 1 and isinstance(by[0], e.Attribute) and isinstance(self.type_of(by[0], env), Bag)
        return by[0] if is_bag else None


class _Parameter:
    def __init__(self, name, type_name):
        self.name, self.type_name = name, type_name


def all_names(node):
    return {n.name if isinstance(n, e.Name) else n.binder for n in walk(node) if isinstance(n, e.Name | e.Attribute)}


def operand_names(node):
    """Return the names in comparisons, functions and aggregates; a nested `and` binds its own names."""
    if isinstance(node, e.Atom | e.Membership) or (isinstance(node, e.Connective) and node.operator == "and"):
        return set()
    if isinstance(node, e.Name | e.Attribute | e.Aggregate):
        return all_names(node)
    return set().union(*map(operand_names, children(node)))


def positive(node):
    """Return the atoms and memberships that only `and`, `or` and `exists` enclose."""
    keeps = isinstance(node, e.Connective) and node.operator in ("and", "or")
    if isinstance(node, e.Atom | e.Membership):
        return [node]
    if keeps or (isinstance(node, e.Aggregate) and node.function == "exists"):
        return [atom for child in children(node) for atom in positive(child)]
    return []


def format_value(value):
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b != 0 else None,
}


def edit_distance(a, b):
    """Return the Levenshtein distance, by its definition."""
    if not a or not b:
        return len(a) + len(b)
    return min(edit_distance(a[1:], b) + 1, edit_distance(a, b[1:]) + 1, edit_distance(a[1:], b[1:]) + (a[0] != b[0]))


FUNCTIONS = {
    "log": lambda x: math.log(x) if x > 0 else None,
    "log1p": lambda x: math.log1p(x) if x > -1 else None,
    "exp": math.exp,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else None,
    "abs": abs,
    "least": min,
    "greatest": max,
    "bin": lambda x, *thresholds: sum(threshold <= x for threshold in thresholds),
    "lower": str.lower,
    "length": len,
    "prefix": lambda text, size: text[:size],
    "contains": lambda text, part: part in text,
    "starts_with": str.startswith,
    "levenshtein": edit_distance,
}
