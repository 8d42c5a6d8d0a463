"""From a checked template, derived or random relation to its relational plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from relcrf.data.names import attribute_column, bag_table, domain_table, foreign_function, relation_table, sort_table
from relcrf.grounding import plan as p
from relcrf.grounding.rewrite import simplified
from relcrf.language.render import expression
from relcrf.model import expressions as e
from relcrf.model.formula import evidence_of, is_table, scope_terms
from relcrf.model.functions import foreign
from relcrf.model.spec import Derived, Gate, ModelSpec, Nearest, OpenDomain, Parameter, RandomRelation, Template
from relcrf.model.types import Bag, Bool, Date, DomainType, EntityType, Integer, ValueType, Vector
from relcrf.model.typing import Scope


@dataclass(frozen=True)
class Facts:
    """What lowering must know of the data: the values of domains, and the lengths of vectors."""

    spec: ModelSpec
    domains: Mapping[str, tuple[str, ...]]
    vector_lengths: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class KeyColumn:
    """One key of `per`: the output's name, and what its codes are of: a domain, an entity, or plain values."""

    output: str
    kind: ValueType


@dataclass(frozen=True)
class LoweredGate:
    """The outputs of a template's plan that its gate has features from.

    Args:
        outputs: of its numbers, none is the constant 1; or, where the feature is a bag, the vid of the entity that has it.
        feature_names: how the features are spelt.
        bag: the only feature, in place of numbers. domain: of its values.
    """

    outputs: tuple[str, ...]
    feature_names: tuple[str, ...]
    bag: e.Attribute | None = None
    domain: str = ""


@dataclass(frozen=True)
class LoweredTemplate:
    """A template's plan and what its outputs are.

    Args:
        variables: for each place of the scope, the output with the vid of the thing or tuple.
        terms: the random attribute or atom at each place.
        evidence: the parts of the formula that speak of evidence, and for each the output with its truth or code.
        keys: of `per`, or the bag's value of `by thing.bag`.
        features: outputs with the real-valued features; none is the constant 1.
        feature_names: how each feature is spelt.
        gate: None where no gate was lowered with it.
    """

    template: Template
    scope: Scope
    plan: p.Plan
    variables: tuple[str, ...]
    terms: tuple[e.Attribute | e.Atom, ...]
    evidence: tuple[tuple[e.Expression, str], ...]
    keys: tuple[KeyColumn, ...]
    features: tuple[str, ...]
    feature_names: tuple[str, ...]
    gate: LoweredGate | None = None

    @cached_property
    def is_table(self) -> bool:
        """Whether each joint state is a pattern."""
        return is_table(self.template.over, self.scope)

    @cached_property
    def kinds(self) -> tuple[ValueType, ...]:
        """The type of each random term."""
        return tuple(self.scope.type_of(term) for term in self.terms)


def lower_derived(derived: Derived, facts: Facts) -> list[p.Plan]:
    """The plans of a derived relation, one for each case of an `or`; it is the union of their distinct bindings."""
    assert not isinstance(derived.definition, Nearest)
    scope = Scope(facts.spec, derived.parameters, derived.definition)
    return [
        _Lowering(facts, derived.parameters, case, scope).finish((), is_distinct=True)
        for case in e.disjuncts(derived.definition)
    ]


def lower_random(relation: RandomRelation, facts: Facts) -> p.Plan:
    """The plan of the tuples that a random relation admits."""
    scope = Scope(facts.spec, relation.parameters, relation.where)
    lowering = _Lowering(facts, relation.parameters, relation.where, scope)
    return lowering.finish((), is_distinct=lowering.has_existentials)


def lower_template(template: Template, facts: Facts, gate: Gate | None = None) -> LoweredTemplate:
    """The plan of a template: one row for each binding; with bags in `by`, for each value of the bag.

    Args:
        gate: on its factors, whose features the rows then have, too.
    """
    scope = Scope(facts.spec, template.parameters, template.where)
    terms = scope_terms(template.over, scope)
    atoms = tuple(term for term in terms if isinstance(term, e.Atom))
    lowering = _Lowering(facts, template.parameters, template.where, scope, demanded=atoms)
    outputs: list[tuple[str, p.Term, str]] = []
    variables = []
    for place, item in enumerate(terms):
        variables.append(f"v{place}")
        column = (
            p.Column(lowering.scan_atom(item), "vid") if isinstance(item, e.Atom) else lowering.column_of(item.binder)
        )
        outputs.append((f"v{place}", column, "integer"))
    evidence = []
    for k, part in enumerate(() if is_table(template.over, scope) else evidence_of(template.over[0], scope)):
        evidence.append((part, f"e{k}"))
        is_truth = isinstance(scope.type_of(part), Bool) and not isinstance(part, e.Attribute | e.TupleAttribute)
        outputs.append((f"e{k}", p.Decided(lowering.condition(part)) if is_truth else lowering.term(part), "integer"))
    keys = []
    bag = _only_bag(template.by, scope)
    for k, key in enumerate(template.per):
        kind = scope.type_of(key)
        keys.append(KeyColumn(f"k{k}", kind))
        is_coded = isinstance(kind, EntityType | DomainType | Bool)
        term = lowering.term(key)
        outputs.append((f"k{k}", term, "integer" if is_coded else "bigint" if isinstance(kind, Integer) else "text"))
        if isinstance(key, e.Attribute | e.TupleAttribute):
            # A binding whose key is missing has no weight, and so no factor.
            lowering.filters.append(p.Present(term))
    features, names, values = _features(lowering, () if bag is not None else template.by, "f")
    outputs += values
    if bag is not None:
        alias = lowering.scan_bag(bag)
        keys.append(KeyColumn("k0", DomainType(lowering.domain_of(bag))))
        outputs.append(("k0", p.Column(alias, "code"), "integer"))
        outputs.append(("f0", p.Column(alias, "count"), "double"))
        features, names = ("f0",), (expression(bag),)
    lowered_gate = None
    if gate is not None:
        lowered_gate, values = _lowered_gate(lowering, gate)
        outputs += values
    plan = lowering.finish(tuple(outputs), is_distinct=lowering.has_existentials)
    return LoweredTemplate(
        template,
        scope,
        plan,
        tuple(variables),
        tuple(terms),
        tuple(evidence),
        tuple(keys),
        features,
        names,
        lowered_gate,
    )


def _only_bag(by: tuple[e.Expression, ...], scope: Scope) -> e.Attribute | None:
    """The bag that features are, if they are one: it stands alone."""
    if len(by) == 1 and isinstance(by[0], e.Attribute) and isinstance(scope.type_of(by[0]), Bag):
        return by[0]
    return None


def _features(
    lowering: _Lowering, by: tuple[e.Expression, ...], prefix: str
) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[str, p.Term, str]]]:
    """The numbers in `by`: their outputs, none for the constant 1; how each is spelt; and the outputs with their terms."""
    found = [] if _is_constant_one(by) else [part for feature in by for part in lowering.feature(feature)]
    outputs = [(f"{prefix}{k}", value, "double") for k, (_, value) in enumerate(found)]
    return tuple(name for name, _, _ in outputs), tuple(spelt for spelt, _ in found), outputs


def _lowered_gate(lowering: _Lowering, gate: Gate) -> tuple[LoweredGate, list[tuple[str, p.Term, str]]]:
    """Return a gate and the outputs with their terms."""
    bag = _only_bag(gate.by, lowering.scope)
    if bag is not None:
        lowered = LoweredGate(("owner",), (expression(bag),), bag, lowering.domain_of(bag))
        return lowered, [("owner", lowering.column_of(bag.binder), "integer")]
    features, names, outputs = _features(lowering, gate.by, "fg")
    return LoweredGate(features, names), outputs


def _is_constant_one(by: tuple[e.Expression, ...]) -> bool:
    return not by or (len(by) == 1 and isinstance(by[0], e.Number) and by[0].value == 1)


def _positive(node: e.Expression) -> set[str]:
    """The names of atoms and bags under nothing but `and` and `or`."""
    if isinstance(node, e.Connective) and node.operator in ("and", "or"):
        return _positive(node.left) | _positive(node.right)
    return e.names_in(node) if isinstance(node, e.Atom | e.Member) else set()


@dataclass
class _Lowering:
    """One declaration's plan in the making.

    Args:
        demanded: atoms that hold in every row besides those of `where`.
    """

    facts: Facts
    parameters: tuple[Parameter, ...]
    where: e.Expression | None
    scope: Scope
    demanded: tuple[e.Atom, ...] = ()
    scans: list[p.Scan] = field(default_factory=list)
    equalities: list[tuple[p.Column, p.Column]] = field(default_factory=list)
    filters: list[p.Condition] = field(default_factory=list)
    columns: dict[str, p.Column] = field(default_factory=dict)
    """Where each name's vid or code stands."""
    lookups: dict[str, str] = field(default_factory=dict)
    """The alias of the entity table of each name whose attributes are read."""
    atoms: dict[e.Atom, str] = field(default_factory=dict)
    """The alias of the scan of each atom that holds in every row."""
    outer: _Lowering | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        parts = e.conjuncts(self.where)
        for atom in self.demanded:
            self.scan_atom(atom)
        for part in parts:
            if isinstance(part, e.Atom):
                self.scan_atom(part)
            elif isinstance(part, e.Member):
                self._scan_member(part)
        for parameter in self.parameters:
            self.column_of(parameter.name)
        # A name of several conjuncts is one thing in all of them, in whatever order they stand.
        plain = [e.names_in(part) for part in parts if not isinstance(part, e.Not | e.Aggregate)]
        for name in self.scope.own:
            if self._known(name) is None and sum(name in names for names in plain) > 1:
                self.column_of(name)
        for part in parts:
            if not isinstance(part, e.Atom | e.Member):
                self._condition_or_join(part)

    @property
    def has_existentials(self) -> bool:
        return len(self.scope.sorts) > len(self.scope.binders)

    def finish(self, outputs: tuple[tuple[str, p.Term, str], ...], *, is_distinct: bool) -> p.Plan:
        bindings = tuple((each.name, self.column_of(each.name)) for each in self.parameters)
        plan = p.Plan(tuple(self.scans), tuple(self.equalities), tuple(self.filters), bindings, is_distinct, outputs)
        return simplified(plan)

    # Names and scans

    def _known(self, name: str) -> p.Column | None:
        """Where a name stands already, here or in a plan around this one."""
        if name in self.columns:
            return self.columns[name]
        return self.outer._known(name) if self.outer else None

    def column_of(self, name: str) -> p.Column:
        """Where a name's vid or code stands; one that nothing has bound yet is any thing or value."""
        known = self._known(name)
        if known is None:
            self._lookup(name)
        return known or self.columns[name]

    def _bind(self, name: str, column: p.Column) -> None:
        known = self._known(name)
        if known is None:
            self.columns[name] = column
        else:
            self.equalities.append((known, column))

    def _scan(self, table: str, *, is_lookup: bool = False) -> str:
        alias = f"{self.prefix}t{len(self.scans)}"
        self.scans.append(p.Scan(table, alias, is_lookup))
        return alias

    def _lookup(self, name: str) -> str:
        """The alias of the table of all things or values that a name can be, with their attributes."""
        if name in self.lookups:
            return self.lookups[name]
        table, number, _ = sort_table(self.facts.spec, self.scope.sorts[name])
        alias = self._scan(table, is_lookup=self._known(name) is not None)
        self.lookups[name] = alias
        self._bind(name, p.Column(alias, number))
        return alias

    def scan_atom(self, atom: e.Atom) -> str:
        """Joins a relation, so that the atom holds in every row."""
        if atom in self.atoms:
            return self.atoms[atom]
        alias = self.atoms[atom] = self._scan(relation_table(atom.relation))
        relation = self.facts.spec.relation(atom.relation)
        assert relation is not None
        for k, (argument, parameter) in enumerate(zip(atom.arguments, relation.parameters, strict=True)):
            self._join(argument, parameter.sort, p.Column(alias, f"a{k}"))
        return alias

    def _join(self, argument: e.Expression, sort: str, column: p.Column) -> None:
        """An argument is the same as a column: a name is bound to it, a constant compared."""
        if isinstance(argument, e.Name) and argument.name in self.scope.sorts:
            self._bind(argument.name, column)
        elif isinstance(argument, e.Attribute | e.TupleAttribute):
            self.filters.append(p.Compare("==", column, self.term(argument)))
        else:
            self.filters.append(p.Compare("==", column, self._code(argument, sort)))

    def _scan_member(self, member: e.Member) -> None:
        self._join(member.element, self.domain_of(member.bag), p.Column(self.scan_bag(member.bag), "code"))

    def domain_of(self, bag: e.Attribute) -> str:
        """Return the domain of a bag's values."""
        kind = self.scope.type_of(bag)
        assert isinstance(kind, Bag)
        return kind.domain

    def scan_bag(self, bag: e.Attribute) -> str:
        """Joins a bag: one row for each of its values."""
        alias = self._scan(bag_table(self.scope.sorts[bag.binder], bag.attribute))
        self._bind(bag.binder, p.Column(alias, "vid"))
        return alias

    def _code(self, constant: e.Expression, domain: str) -> p.Constant:
        value = self.scope.constant(constant, domain)
        values = self.facts.domains[domain]
        # A value that the data does not have equals nothing; no code is negative.
        return p.Constant(values.index(value) if value in values else -1)

    def _is_joined(self, columns: tuple[p.Column, ...]) -> bool:
        """Whether the scans of some columns are joined to each other, so that their combinations are few."""
        reached = {columns[0].alias}
        size = 0
        while size != len(reached):
            size = len(reached)
            for a, b in self.equalities:
                if {a.alias, b.alias} & reached:
                    reached |= {a.alias, b.alias}
        return all(column.alias in reached for column in columns)

    # Conditions

    def _condition_or_join(self, part: e.Expression) -> None:
        if isinstance(part, e.Comparison) and part.operator == "==" and not self._is_equivalence(part):
            sides = (self.operand(part.left, part.right), self.operand(part.right, part.left))
            if isinstance(sides[0], p.Column) and isinstance(sides[1], p.Column):
                self.equalities.append((sides[0], sides[1]))
                return
        self.filters.append(self.condition(part))

    def condition(self, node: e.Expression) -> p.Condition:
        """A condition; atoms that may or may not hold become EXISTS."""
        match node:
            case e.Connective("=>", left, right):
                return p.Combine("or", (p.Combine("not", (self.condition(left),)), self.condition(right)))
            case e.Connective("<=>", left, right):
                return self._equivalence(left, right)
            case e.Connective("and") if self._unbound(node):
                # One thing must fulfil the whole conjunction, so that it becomes one EXISTS and not several.
                return self._exists(node)
            case e.Connective(operator, left, right):
                return p.Combine(operator, (self.condition(left), self.condition(right)))
            case e.Not(operand):
                return p.Combine("not", (self.condition(operand),))
            case e.Atom() | e.Member():
                return self._exists(node)
            case e.Comparison(operator, left, right):
                if self._is_equivalence(node):
                    equal = self._equivalence(left, right)
                    return equal if operator == "==" else p.Combine("not", (equal,))
                if operator not in ("==", "!=") and (domain := self._open_domain(node)):
                    return p.Compare(operator, self._text(left, domain), self._text(right, domain))
                return p.Compare(operator, self.operand(left, right), self.operand(right, left))
            case e.Aggregate("exists"):
                return p.Exists(self._inside(node).subplan())
        return p.Holds(self.term(node))

    def _equivalence(self, left: e.Expression, right: e.Expression) -> p.Condition:
        both = p.Combine("and", (self.condition(left), self.condition(right)))
        neither = p.Combine("not", (p.Combine("or", (self.condition(left), self.condition(right))),))
        return p.Combine("or", (both, neither))

    def _open_domain(self, node: e.Comparison) -> str | None:
        """The open domain whose values a comparison orders."""
        for kind in self.scope.sides(node):
            if isinstance(kind, DomainType) and isinstance(self.facts.spec.domain(kind.domain), OpenDomain):
                return kind.domain
        return None

    def _text(self, node: e.Expression, domain: str) -> p.Term:
        """A value of an open domain as text: its codes grow with the data, and are no order."""
        constant = self.scope.constant(node, domain) if not isinstance(node, e.Name) else None
        if constant is not None:
            return p.Constant(constant)
        return p.Looked(domain_table(domain), "value", "code", self.term(node))

    def _inside(self, node: e.Aggregate) -> _Lowering:
        """The plan inside an aggregate, on the rows of this one."""
        inner = self.scope.inside(node)
        for name in sorted(e.names_in(node) & set(self.scope.sorts)):
            self.column_of(name)
        counted = tuple(Parameter(n, sort) for n, sort in inner.binders.items() if n not in self.scope.sorts)
        if node.function != "exists":
            names = set().union(_positive(node.where), *(e.names_in(t) for t in node.terms))
            counted += tuple(Parameter(n, sort) for n, sort in inner.own.items() if n in names)
        return _Lowering(self.facts, counted, node.where, inner, outer=self, prefix=self._prefix())

    def _prefix(self) -> str:
        return f"{self.prefix}e{len(self.filters)}_{len(self.scans)}_"

    def subplan(self) -> p.Plan:
        """What is inside an EXISTS or a figure."""
        return p.Plan(tuple(self.scans), tuple(self.equalities), tuple(self.filters))

    def _is_equivalence(self, node: e.Comparison) -> bool:
        """Whether a comparison is of truth values, one of which has to be computed by a condition."""
        stored = e.Attribute | e.Truth | e.TupleAttribute
        is_bool = isinstance(self.scope.sides(node)[0], Bool)
        return is_bool and not (isinstance(node.left, stored) and isinstance(node.right, stored))

    def _unbound(self, node: e.Expression) -> set[str]:
        """The existential names of a condition that nothing outside it has bound."""
        names = (e.names_in(node) & set(self.scope.sorts)) - set(self.scope.binders)
        return {name for name in names if self._known(name) is None}

    def _exists(self, node: e.Expression) -> p.Condition:
        for name in sorted(e.names_in(node) & set(self.scope.binders)):
            self.column_of(name)
        inner = _Lowering(self.facts, (), node, self.scope, outer=self, prefix=self._prefix())
        return p.Exists(inner.subplan())

    def operand(self, node: e.Expression, other: e.Expression) -> p.Term:
        """A side of a comparison; a constant is read as a value of the other side's type."""
        is_binder = isinstance(node, e.Name) and node.name in self.scope.sorts
        if not is_binder and isinstance(node, e.Name | e.Number | e.Text | e.Negative):
            kind = self.scope.type_of(other) if not isinstance(other, e.Number | e.Text) else None
            if isinstance(kind, DomainType) and self.scope.constant(node, kind.domain) is not None:
                return self._code(node, kind.domain)
            if isinstance(kind, Date):
                return p.Call("date", (self.term(node),))
        term, kind = self.term(node), self.scope.type_of(node)
        # A range's code is its distance from the lowest value: against other numbers it becomes the value itself.
        is_code = isinstance(kind, DomainType) and self.scope.type_of(other, kind) == kind
        return term if is_code else self._range_value(term, kind)

    def _range_value(self, term: p.Term, kind: ValueType) -> p.Term:
        domain = self.facts.spec.domain(kind.domain) if isinstance(kind, DomainType) else None
        low = getattr(domain, "low", 0)
        return p.Call("+", (term, p.Constant(low))) if low else term

    # Terms

    def term(self, node: e.Expression) -> p.Term:
        """A term as stored: things as vids, values of domains as codes."""
        match node:
            case e.Name(name):
                return self.column_of(name)
            case e.Number(value) | e.Text(value) | e.Truth(value):
                return p.Constant(value)
            case e.Attribute(binder, attribute):
                return p.Column(self._lookup(binder), attribute_column(attribute))
            case e.TupleAttribute(atom, attribute):
                return p.Column(self.scan_atom(atom), attribute_column(attribute))
            case e.Negative(operand):
                return p.Call("negative", (self.number(operand),))
            case e.Arithmetic(operator, left, right):
                return p.Call(operator, (self.number(left), self.number(right)))
            case e.Function(name, arguments):
                called = foreign_function(name) if foreign(name) else name
                return p.Call(called, tuple(self.number(a) for a in arguments))
            case e.Aggregate(function, terms, _):
                inner = self._inside(node)
                bound = (inner.columns[name] for name in inner.scope.own if name in inner.columns)
                figures = tuple(inner.number(t) for t in terms) or tuple(bound)
                keys = tuple(dict.fromkeys(self.columns[n] for n in sorted(e.names_in(node)) if n in self.columns))
                if len(keys) > 1 and self.outer is None and self._is_joined(keys):
                    base = p.Plan(tuple(self.scans), tuple(self.equalities))
                    return p.Figure(function, figures, inner.subplan(), keys, base)
                return p.Figure(function, figures, inner.subplan())
        raise AssertionError(f"the checker lets no {type(node).__name__} stand as a term")

    def number(self, node: e.Expression) -> p.Term:
        """A term as a number: ranges by value, all else as stored."""
        return self._range_value(self.term(node), self.scope.type_of(node))

    def feature(self, node: e.Expression) -> list[tuple[str, p.Term]]:
        """The columns of one item of `by`, each with its name."""
        kind = self.scope.type_of(node)
        if isinstance(kind, Vector) and isinstance(node, e.Attribute):
            length = self.facts.vector_lengths[self.scope.sorts[node.binder], node.attribute]
            vector = self.term(node)
            return [(f"{expression(node)}[{d}]", p.Component(vector, d)) for d in range(length)]
        return [(expression(node), self.number(node))]
