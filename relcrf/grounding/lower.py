"""From a checked template, derived or random relation to its relational plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from relcrf.data.names import (
    attribute_column,
    bag_table,
    domain_table,
    plugin_function_name,
    relation_table,
    sort_table,
)
from relcrf.grounding import plan as p
from relcrf.grounding.rewrite import simplify_plan
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.formula import evidence_parts, is_table, scope_terms
from relcrf.model.functions import external_function
from relcrf.model.spec import (
    DerivedRelation,
    Gate,
    ModelSpec,
    NearestNeighbours,
    OpenDomain,
    Parameter,
    RandomRelation,
    Template,
)
from relcrf.model.types import Bag, Bool, Date, DomainType, EntityType, Integer, ValueType, Vector
from relcrf.model.typing import NameScope


@dataclass(frozen=True)
class LoweringContext:
    """What lowering must know of the data: the values of domains, and the lengths of vectors."""

    spec: ModelSpec
    domains: Mapping[str, tuple[str, ...]]
    vector_lengths: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class KeyColumn:
    """One key of `per`: the output's name, and what its codes are of: a domain, an entity, or plain values."""

    output: str
    value_type: ValueType


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
    scope: NameScope
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
    def term_types(self) -> tuple[ValueType, ...]:
        """The type of each random term."""
        return tuple(self.scope.type_of(term) for term in self.terms)


def lower_derived(derived: DerivedRelation, context: LoweringContext) -> list[p.Plan]:
    """The plans of a derived relation, one for each case of an `or`; it is the union of their distinct bindings."""
    assert not isinstance(derived.definition, NearestNeighbours)
    scope = NameScope(context.spec, derived.parameters, derived.definition)
    return [
        _PlanBuilder(context, derived.parameters, case, scope).finish((), is_distinct=True)
        for case in e.disjuncts(derived.definition)
    ]


def lower_random_relation(relation: RandomRelation, context: LoweringContext) -> p.Plan:
    """The plan of the tuples that a random relation admits."""
    scope = NameScope(context.spec, relation.parameters, relation.where)
    lowering = _PlanBuilder(context, relation.parameters, relation.where, scope)
    return lowering.finish((), is_distinct=lowering.has_existentials)


def lower_template(template: Template, context: LoweringContext, gate: Gate | None = None) -> LoweredTemplate:
    """The plan of a template: one row for each binding; with bags in `by`, for each value of the bag.

    Args:
        gate: on its factors, whose features the rows then have, too.
    """
    scope = NameScope(context.spec, template.parameters, template.where)
    terms = scope_terms(template.over, scope)
    atoms = tuple(term for term in terms if isinstance(term, e.Atom))
    lowering = _PlanBuilder(context, template.parameters, template.where, scope, required_atoms=atoms)
    outputs: list[tuple[str, p.Term, str]] = []
    variables = []
    for place, item in enumerate(terms):
        variables.append(f"v{place}")
        column = (
            p.Column(lowering.scan_atom(item), "vid")
            if isinstance(item, e.Atom)
            else lowering.column_for_name(item.binder)
        )
        outputs.append((f"v{place}", column, "integer"))
    evidence = []
    for k, part in enumerate(() if is_table(template.over, scope) else evidence_parts(template.over[0], scope)):
        evidence.append((part, f"e{k}"))
        is_truth = isinstance(scope.type_of(part), Bool) and not isinstance(part, e.Attribute | e.TupleAttribute)
        outputs.append((f"e{k}", p.Indicator(lowering.condition(part)) if is_truth else lowering.term(part), "integer"))
    keys = []
    bag = _single_bag(template.by, scope)
    for k, key in enumerate(template.per):
        kind = scope.type_of(key)
        keys.append(KeyColumn(f"k{k}", kind))
        is_coded = isinstance(kind, EntityType | DomainType | Bool)
        term = lowering.term(key)
        outputs.append((f"k{k}", term, "integer" if is_coded else "bigint" if isinstance(kind, Integer) else "text"))
        if isinstance(key, e.Attribute | e.TupleAttribute):
            # A binding whose key is missing has no weight, and so no factor.
            lowering.filters.append(p.IsNotNull(term))
    features, names, values = _lower_features(lowering, () if bag is not None else template.by, "f")
    outputs += values
    if bag is not None:
        alias = lowering.scan_bag(bag)
        keys.append(KeyColumn("k0", DomainType(lowering.bag_domain(bag))))
        outputs.append(("k0", p.Column(alias, "code"), "integer"))
        outputs.append(("f0", p.Column(alias, "count"), "double"))
        features, names = ("f0",), (render_expression(bag),)
    lowered_gate = None
    if gate is not None:
        lowered_gate, values = _lower_gate(lowering, gate)
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


def _single_bag(by: tuple[e.Expression, ...], scope: NameScope) -> e.Attribute | None:
    """The bag that features are, if they are one: it stands alone."""
    if len(by) == 1 and isinstance(by[0], e.Attribute) and isinstance(scope.type_of(by[0]), Bag):
        return by[0]
    return None


def _lower_features(
    builder: _PlanBuilder, by: tuple[e.Expression, ...], prefix: str
) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[str, p.Term, str]]]:
    """The numbers in `by`: their outputs, none for the constant 1; how each is spelt; and the outputs with their terms."""
    found = [] if _is_constant_one(by) else [part for feature in by for part in builder.feature_terms(feature)]
    outputs = [(f"{prefix}{k}", value, "double") for k, (_, value) in enumerate(found)]
    return tuple(name for name, _, _ in outputs), tuple(spelt for spelt, _ in found), outputs


def _lower_gate(builder: _PlanBuilder, gate: Gate) -> tuple[LoweredGate, list[tuple[str, p.Term, str]]]:
    """Return a gate and the outputs with their terms."""
    bag = _single_bag(gate.by, builder.scope)
    if bag is not None:
        lowered = LoweredGate(("owner",), (render_expression(bag),), bag, builder.bag_domain(bag))
        return lowered, [("owner", builder.column_for_name(bag.binder), "integer")]
    features, names, outputs = _lower_features(builder, gate.by, "fg")
    return LoweredGate(features, names), outputs


def _is_constant_one(by: tuple[e.Expression, ...]) -> bool:
    return not by or (len(by) == 1 and isinstance(by[0], e.Number) and by[0].value == 1)


def _positive_names(node: e.Expression) -> set[str]:
    """The names of atoms and bags under nothing but `and` and `or`."""
    if isinstance(node, e.Connective) and node.operator in ("and", "or"):
        return _positive_names(node.left) | _positive_names(node.right)
    return e.names_in(node) if isinstance(node, e.Atom | e.Membership) else set()


@dataclass
class _PlanBuilder:
    """One declaration's plan in the making.

    Args:
        required_atoms: atoms that hold in every row besides those of `where`.
    """

    context: LoweringContext
    parameters: tuple[Parameter, ...]
    where: e.Expression | None
    scope: NameScope
    required_atoms: tuple[e.Atom, ...] = ()
    scans: list[p.Scan] = field(default_factory=list)
    equalities: list[tuple[p.Column, p.Column]] = field(default_factory=list)
    filters: list[p.Condition] = field(default_factory=list)
    columns: dict[str, p.Column] = field(default_factory=dict)
    """Where each name's vid or code stands."""
    lookup_aliases: dict[str, str] = field(default_factory=dict)
    """The alias of the entity table of each name whose attributes are read."""
    atom_aliases: dict[e.Atom, str] = field(default_factory=dict)
    """The alias of the scan of each atom that holds in every row."""
    outer: _PlanBuilder | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        parts = e.conjuncts(self.where)
        for atom in self.required_atoms:
            self.scan_atom(atom)
        for part in parts:
            if isinstance(part, e.Atom):
                self.scan_atom(part)
            elif isinstance(part, e.Membership):
                self._scan_member(part)
        for parameter in self.parameters:
            self.column_for_name(parameter.name)
        # A name of several conjuncts is one thing in all of them, in whatever order they stand.
        plain = [e.names_in(part) for part in parts if not isinstance(part, e.Not | e.Aggregate)]
        for name in self.scope.existential_types:
            if self._bound_column(name) is None and sum(name in names for names in plain) > 1:
                self.column_for_name(name)
        for part in parts:
            if not isinstance(part, e.Atom | e.Membership):
                self._add_condition(part)

    @property
    def has_existentials(self) -> bool:
        return len(self.scope.type_names) > len(self.scope.binders)

    def finish(self, outputs: tuple[tuple[str, p.Term, str], ...], *, is_distinct: bool) -> p.Plan:
        bindings = tuple((each.name, self.column_for_name(each.name)) for each in self.parameters)
        plan = p.Plan(tuple(self.scans), tuple(self.equalities), tuple(self.filters), bindings, is_distinct, outputs)
        return simplify_plan(plan)

    # Names and scans

    def _bound_column(self, name: str) -> p.Column | None:
        """Where a name stands already, here or in a plan around this one."""
        if name in self.columns:
            return self.columns[name]
        return self.outer._bound_column(name) if self.outer else None

    def column_for_name(self, name: str) -> p.Column:
        """Where a name's vid or code stands; one that nothing has bound yet is any thing or value."""
        known = self._bound_column(name)
        if known is None:
            self._scan_lookup(name)
        return known or self.columns[name]

    def _bind(self, name: str, column: p.Column) -> None:
        known = self._bound_column(name)
        if known is None:
            self.columns[name] = column
        else:
            self.equalities.append((known, column))

    def _scan(self, table: str, *, is_lookup: bool = False) -> str:
        alias = f"{self.prefix}t{len(self.scans)}"
        self.scans.append(p.Scan(table, alias, is_lookup))
        return alias

    def _scan_lookup(self, name: str) -> str:
        """The alias of the table of all things or values that a name can be, with their attributes."""
        if name in self.lookup_aliases:
            return self.lookup_aliases[name]
        table, number, _ = sort_table(self.context.spec, self.scope.type_names[name])
        alias = self._scan(table, is_lookup=self._bound_column(name) is not None)
        self.lookup_aliases[name] = alias
        self._bind(name, p.Column(alias, number))
        return alias

    def scan_atom(self, atom: e.Atom) -> str:
        """Joins a relation, so that the atom holds in every row."""
        if atom in self.atom_aliases:
            return self.atom_aliases[atom]
        alias = self.atom_aliases[atom] = self._scan(relation_table(atom.relation))
        relation = self.context.spec.relation(atom.relation)
        assert relation is not None
        for k, (argument, parameter) in enumerate(zip(atom.arguments, relation.parameters, strict=True)):
            self._join_argument(argument, parameter.type_name, p.Column(alias, f"a{k}"))
        return alias

    def _join_argument(self, argument: e.Expression, type_name: str, column: p.Column) -> None:
        """An argument is the same as a column: a name is bound to it, a constant compared."""
        if isinstance(argument, e.Name) and argument.name in self.scope.type_names:
            self._bind(argument.name, column)
        elif isinstance(argument, e.Attribute | e.TupleAttribute):
            self.filters.append(p.Compare("==", column, self.term(argument)))
        else:
            self.filters.append(p.Compare("==", column, self._constant_code(argument, type_name)))

    def _scan_member(self, member: e.Membership) -> None:
        self._join_argument(member.element, self.bag_domain(member.bag), p.Column(self.scan_bag(member.bag), "code"))

    def bag_domain(self, bag: e.Attribute) -> str:
        """Return the domain of a bag's values."""
        kind = self.scope.type_of(bag)
        assert isinstance(kind, Bag)
        return kind.domain

    def scan_bag(self, bag: e.Attribute) -> str:
        """Joins a bag: one row for each of its values."""
        alias = self._scan(bag_table(self.scope.type_names[bag.binder], bag.attribute))
        self._bind(bag.binder, p.Column(alias, "vid"))
        return alias

    def _constant_code(self, constant: e.Expression, domain: str) -> p.Constant:
        value = self.scope.constant_value(constant, domain)
        values = self.context.domains[domain]
        # A value that the data does not have equals nothing; no code is negative.
        return p.Constant(values.index(value) if value in values else -1)

    def _are_joined(self, columns: tuple[p.Column, ...]) -> bool:
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

    def _add_condition(self, part: e.Expression) -> None:
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
                return p.LogicalCondition(
                    "or", (p.LogicalCondition("not", (self.condition(left),)), self.condition(right))
                )
            case e.Connective("<=>", left, right):
                return self._equivalence(left, right)
            case e.Connective("and") if self._unbound_names(node):
                # One thing must fulfil the whole conjunction, so that it becomes one EXISTS and not several.
                return self._exists(node)
            case e.Connective(operator, left, right):
                return p.LogicalCondition(operator, (self.condition(left), self.condition(right)))
            case e.Not(operand):
                return p.LogicalCondition("not", (self.condition(operand),))
            case e.Atom() | e.Membership():
                return self._exists(node)
            case e.Comparison(operator, left, right):
                if self._is_equivalence(node):
                    equal = self._equivalence(left, right)
                    return equal if operator == "==" else p.LogicalCondition("not", (equal,))
                if operator not in ("==", "!=") and (domain := self._open_domain(node)):
                    return p.Compare(operator, self._value_text(left, domain), self._value_text(right, domain))
                return p.Compare(operator, self.operand(left, right), self.operand(right, left))
            case e.Aggregate("exists"):
                return p.Exists(self._aggregate_builder(node).subplan())
        return p.IsTrue(self.term(node))

    def _equivalence(self, left: e.Expression, right: e.Expression) -> p.Condition:
        both = p.LogicalCondition("and", (self.condition(left), self.condition(right)))
        neither = p.LogicalCondition("not", (p.LogicalCondition("or", (self.condition(left), self.condition(right))),))
        return p.LogicalCondition("or", (both, neither))

    def _open_domain(self, node: e.Comparison) -> str | None:
        """The open domain whose values a comparison orders."""
        for kind in self.scope.operand_types(node):
            if isinstance(kind, DomainType) and isinstance(self.context.spec.domain(kind.domain), OpenDomain):
                return kind.domain
        return None

    def _value_text(self, node: e.Expression, domain: str) -> p.Term:
        """A value of an open domain as text: its codes grow with the data, and are no order."""
        constant = self.scope.constant_value(node, domain) if not isinstance(node, e.Name) else None
        if constant is not None:
            return p.Constant(constant)
        return p.Lookup(domain_table(domain), "value", "code", self.term(node))

    def _aggregate_builder(self, node: e.Aggregate) -> _PlanBuilder:
        """The plan inside an aggregate, on the rows of this one."""
        inner = self.scope.aggregate_scope(node)
        for name in sorted(e.names_in(node) & set(self.scope.type_names)):
            self.column_for_name(name)
        counted = tuple(Parameter(n, sort) for n, sort in inner.binders.items() if n not in self.scope.type_names)
        if node.function != "exists":
            names = set().union(_positive_names(node.where), *(e.names_in(t) for t in node.terms))
            counted += tuple(Parameter(n, sort) for n, sort in inner.existential_types.items() if n in names)
        return _PlanBuilder(self.context, counted, node.where, inner, outer=self, prefix=self._prefix())

    def _prefix(self) -> str:
        return f"{self.prefix}e{len(self.filters)}_{len(self.scans)}_"

    def subplan(self) -> p.Plan:
        """What is inside an EXISTS or a figure."""
        return p.Plan(tuple(self.scans), tuple(self.equalities), tuple(self.filters))

    def _is_equivalence(self, node: e.Comparison) -> bool:
        """Whether a comparison is of truth values, one of which has to be computed by a condition."""
        stored = e.Attribute | e.Boolean | e.TupleAttribute
        is_bool = isinstance(self.scope.operand_types(node)[0], Bool)
        return is_bool and not (isinstance(node.left, stored) and isinstance(node.right, stored))

    def _unbound_names(self, node: e.Expression) -> set[str]:
        """The existential names of a condition that nothing outside it has bound."""
        names = (e.names_in(node) & set(self.scope.type_names)) - set(self.scope.binders)
        return {name for name in names if self._bound_column(name) is None}

    def _exists(self, node: e.Expression) -> p.Condition:
        for name in sorted(e.names_in(node) & set(self.scope.binders)):
            self.column_for_name(name)
        inner = _PlanBuilder(self.context, (), node, self.scope, outer=self, prefix=self._prefix())
        return p.Exists(inner.subplan())

    def operand(self, node: e.Expression, other: e.Expression) -> p.Term:
        """A side of a comparison; a constant is read as a value of the other side's type."""
        is_binder = isinstance(node, e.Name) and node.name in self.scope.type_names
        if not is_binder and isinstance(node, e.Name | e.Number | e.Text | e.UnaryMinus):
            kind = self.scope.type_of(other) if not isinstance(other, e.Number | e.Text) else None
            if isinstance(kind, DomainType) and self.scope.constant_value(node, kind.domain) is not None:
                return self._constant_code(node, kind.domain)
            if isinstance(kind, Date):
                return p.Call("date", (self.term(node),))
        term, kind = self.term(node), self.scope.type_of(node)
        # A range's code is its distance from the lowest value: against other numbers it becomes the value itself.
        is_code = isinstance(kind, DomainType) and self.scope.type_of(other, kind) == kind
        return term if is_code else self._range_value(term, kind)

    def _range_value(self, term: p.Term, kind: ValueType) -> p.Term:
        domain = self.context.spec.domain(kind.domain) if isinstance(kind, DomainType) else None
        low = getattr(domain, "low", 0)
        return p.Call("+", (term, p.Constant(low))) if low else term

    # Terms

    def term(self, node: e.Expression) -> p.Term:
        """A term as stored: things as vids, values of domains as codes."""
        match node:
            case e.Name(name):
                return self.column_for_name(name)
            case e.Number(value) | e.Text(value) | e.Boolean(value):
                return p.Constant(value)
            case e.Attribute(binder, attribute):
                return p.Column(self._scan_lookup(binder), attribute_column(attribute))
            case e.TupleAttribute(atom, attribute):
                return p.Column(self.scan_atom(atom), attribute_column(attribute))
            case e.UnaryMinus(operand):
                return p.Call("negative", (self.numeric_term(operand),))
            case e.Arithmetic(operator, left, right):
                return p.Call(operator, (self.numeric_term(left), self.numeric_term(right)))
            case e.FunctionCall(name, arguments):
                called = plugin_function_name(name) if external_function(name) else name
                return p.Call(called, tuple(self.numeric_term(a) for a in arguments))
            case e.Aggregate(function, terms, _):
                inner = self._aggregate_builder(node)
                bound = (inner.columns[name] for name in inner.scope.existential_types if name in inner.columns)
                figures = tuple(inner.numeric_term(t) for t in terms) or tuple(bound)
                keys = tuple(dict.fromkeys(self.columns[n] for n in sorted(e.names_in(node)) if n in self.columns))
                if len(keys) > 1 and self.outer is None and self._are_joined(keys):
                    base = p.Plan(tuple(self.scans), tuple(self.equalities))
                    return p.AggregateTerm(function, figures, inner.subplan(), keys, base)
                return p.AggregateTerm(function, figures, inner.subplan())
        raise AssertionError(f"the checker lets no {type(node).__name__} stand as a term")

    def numeric_term(self, node: e.Expression) -> p.Term:
        """A term as a number: ranges by value, all else as stored."""
        return self._range_value(self.term(node), self.scope.type_of(node))

    def feature_terms(self, node: e.Expression) -> list[tuple[str, p.Term]]:
        """The columns of one item of `by`, each with its name."""
        kind = self.scope.type_of(node)
        if isinstance(kind, Vector) and isinstance(node, e.Attribute):
            length = self.context.vector_lengths[self.scope.type_names[node.binder], node.attribute]
            vector = self.term(node)
            return [(f"{render_expression(node)}[{d}]", p.VectorComponent(vector, d)) for d in range(length)]
        return [(render_expression(node), self.numeric_term(node))]
