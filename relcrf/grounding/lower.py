"""Lowering of checked templates, derived relations and random relations to relational plans.

A *vid* is the dense index of an entity or of a relation's tuple; a *code* is the dense index of a domain value. A *binder* is
a logical variable of a declaration. An *existential name* is a variable that occurs in `where` but is not a binder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from relcrf.data.names import (
    attribute_column,
    domain_table,
    plugin_function_name,
    relation_table,
    type_table,
)
from relcrf.grounding import plan as p
from relcrf.grounding.key_terms import KeyColumn, lower_key
from relcrf.grounding.rewrite import simplify_plan
from relcrf.grounding.text_rows import similarity_term
from relcrf.grounding.value_names import component_names, find_bag, find_values
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.formula import evidence_parts, is_table, scope_terms
from relcrf.model.functions import TEXT_SIMILARITIES, external_function
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
from relcrf.model.text_similarity import find_text_similarity
from relcrf.model.times import parse_datetime, parse_time
from relcrf.model.types import Bag, Bool, Date, Datetime, DomainType, Time, ValueType, Vector
from relcrf.model.typing import NameScope


@dataclass(frozen=True)
class LoweringContext:
    """The inputs of lowering: the model, the values of each domain, and the length of each vector attribute."""

    spec: ModelSpec
    domains: Mapping[str, Sequence[str]]
    vector_lengths: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class LoweredGate:
    """The outputs of a template's plan that contain the features of the template's gate.

    Args:
        outputs: names of the outputs with numeric features; empty for the constant 1. If the feature is a bag, the only
            output is the vid of the entity that owns the bag.
        feature_names: texts of the features in the model.
        bag_table: table of the bag that is the only feature; empty if the features are numbers.
        owner: entity type that owns the bag.
        domain: domain of the bag's values.
    """

    outputs: tuple[str, ...]
    feature_names: tuple[str, ...]
    bag_table: str = ""
    owner: str = ""
    domain: str = ""


@dataclass(frozen=True)
class LoweredTemplate:
    """A template with its relational plan and the meaning of the plan's outputs.

    Args:
        variables: for each slot of the scope, the name of the output with the vid of the entity or tuple.
        terms: the random attribute or atom of each slot.
        evidence: the subexpressions of the formula that depend on evidence, each with the name of the output for the
            truth value or code of the subexpression.
        keys: the items of `per`; for `by entity.bag`, the values in the bag.
        features: names of the outputs with the real-valued features; empty for the constant 1.
        feature_names: text of each feature in the model.
        gate: the gate that was lowered with the template, or None.
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
        """True if `over` lists random terms, so that each joint state is a pattern; False if `over` is a formula."""
        return is_table(self.template.over, self.scope)

    @cached_property
    def term_types(self) -> tuple[ValueType, ...]:
        """The type of each random term."""
        return tuple(self.scope.type_of(term) for term in self.terms)


def lower_derived(derived: DerivedRelation, context: LoweringContext) -> list[p.Plan]:
    """Return one plan for each operand of an `or`; the union of the plans' bindings is the derived relation."""
    assert not isinstance(derived.definition, NearestNeighbours)
    scope = NameScope(context.spec, derived.parameters, derived.definition)
    return [
        _PlanBuilder(context, derived.parameters, case, scope).finish((), is_distinct=True)
        for case in e.disjuncts(derived.definition)
    ]


def lower_random_relation(relation: RandomRelation, context: LoweringContext) -> p.Plan:
    """Return the plan of the tuples that satisfy the `where` of a random relation."""
    parameters, where = relation.parameters, relation.where
    builder = _PlanBuilder(context, parameters, where, NameScope(context.spec, parameters, where))
    return builder.finish((), is_distinct=builder.has_existentials)


def lower_template(template: Template, context: LoweringContext, gate: Gate | None = None) -> LoweredTemplate:
    """Lower a template to a plan with one row per binding or, if `by` is a bag, one row per binding and value of the bag.

    Args:
        gate: gate on the template's factors. The features of the gate become additional outputs of the plan.
    """
    scope = NameScope(context.spec, template.parameters, template.where)
    terms = scope_terms(template.over, scope)
    atoms = tuple(term for term in terms if isinstance(term, e.Atom))
    builder = _PlanBuilder(context, template.parameters, template.where, scope, required_atoms=atoms)
    outputs: list[tuple[str, p.Term, str]] = []
    variables = []
    for slot, random_term in enumerate(terms):
        variables.append(f"v{slot}")
        column = (
            p.Column(builder.scan_atom(random_term), "vid")
            if isinstance(random_term, e.Atom)
            else builder.column_for_name(random_term.binder)
        )
        outputs.append((f"v{slot}", column, "integer"))
    evidence = []
    subexpressions = () if is_table(template.over, scope) else evidence_parts(template.over[0], scope)
    for k, subexpression in enumerate(subexpressions):
        evidence.append((subexpression, f"e{k}"))
        is_stored = isinstance(subexpression, e.Attribute | e.TupleAttribute)
        if isinstance(scope.type_of(subexpression), Bool) and not is_stored:
            outputs.append((f"e{k}", p.Indicator(builder.condition(subexpression)), "integer"))
        else:
            outputs.append((f"e{k}", builder.term(subexpression), "integer"))
    keys = []
    bag = _single_bag(template.by, scope)
    for k, key in enumerate(template.per):
        key_column, key_output = lower_key(builder, key, f"k{k}")
        keys.append(key_column)
        outputs.append(key_output)
    features, names, values = _lower_features(builder, () if bag is not None else template.by, "f")
    outputs += values
    if bag is not None:
        alias = builder.scan_bag(bag)
        keys.append(KeyColumn("k0", DomainType(builder.bag_domain(bag))))
        outputs.append(("k0", p.Column(alias, "code"), "integer"))
        outputs.append(("f0", p.Column(alias, "count"), "double"))
        features, names = ("f0",), (render_expression(bag),)
    lowered_gate = None
    if gate is not None:
        lowered_gate, values = _lower_gate(builder, gate)
        outputs += values
    plan = builder.finish(tuple(outputs), is_distinct=builder.has_existentials)
    if bag is not None:  # a row is a binding and a value of the bag
        codes = ((name, term) for name, term, _ in plan.outputs if name == "k0" and isinstance(term, p.Column))
        plan = replace(plan, bindings=(*plan.bindings, *codes))
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


def lower_values(
    expression: e.Expression,
    parameter: Parameter,
    context: LoweringContext,
    kind: str = "double",
    where: e.Expression | None = None,
) -> p.Plan:
    """Return the plan of a value for each entity that satisfies `where`, except missing values: outputs `vid` and `value`.

    Args:
        kind: `double` for numbers and for the codes of categories, `text` for strings and dates.
    """
    builder = _PlanBuilder(context, (parameter,), where, NameScope(context.spec, (parameter,), where))
    value, vid = builder.numeric_term(expression), builder.column_for_name(parameter.name)
    builder.filters += [] if isinstance(value, p.AggregateTerm) and value.is_zero_if_empty else [p.IsNotNull(value)]
    return builder.finish((("vid", vid, "integer"), ("value", value, kind)), is_distinct=False)


def lower_pairs(aggregate: e.Aggregate, parameter: Parameter, name: str, context: LoweringContext) -> p.Plan:
    """Return the plan of the combinations of local names of an aggregate: outputs `vid` and, for a local name, `other`."""
    scope = NameScope(context.spec, (parameter,), None).aggregate_scope(aggregate)
    names = ({name} | e.positive_names(aggregate.where)) - {parameter.name}
    local = tuple(Parameter(n, type_name) for n, type_name in scope.type_names.items() if n in names)
    builder = _PlanBuilder(context, (parameter, *local), aggregate.where, scope)
    outputs = (("vid", parameter.name), ("other", name))
    return builder.finish(tuple((o, builder.column_for_name(n), "integer") for o, n in outputs), is_distinct=False)


def _single_bag(by: tuple[e.Expression, ...], scope: NameScope) -> e.Expression | None:
    """Return the bag in `by` if it is the only feature, else None."""
    return by[0] if len(by) == 1 and isinstance(scope.type_of(by[0]), Bag) else None


def _lower_features(
    builder: _PlanBuilder, by: tuple[e.Expression, ...], prefix: str
) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[str, p.Term, str]]]:
    """Return the output names of numeric features (empty for the constant 1), the texts of the features, and the outputs."""
    terms = [] if _is_constant_one(by) else [part for feature in by for part in builder.feature_terms(feature)]
    outputs = [(f"{prefix}{k}", value, "double") for k, (_, value) in enumerate(terms)]
    return tuple(name for name, _, _ in outputs), tuple(text for text, _ in terms), outputs


def _lower_gate(builder: _PlanBuilder, gate: Gate) -> tuple[LoweredGate, list[tuple[str, p.Term, str]]]:
    """Return the lowered gate and the outputs that it adds to the plan."""
    bag = _single_bag(gate.by, builder.scope)
    if bag is not None:
        name, table = find_bag(bag, builder.scope)
        owner = builder.scope.type_names[name]
        lowered = LoweredGate(("owner",), (render_expression(bag),), table, owner, builder.bag_domain(bag))
        return lowered, [("owner", builder.column_for_name(name), "integer")]
    features, names, outputs = _lower_features(builder, gate.by, "fg")
    return LoweredGate(features, names), outputs


def _is_constant_one(by: tuple[e.Expression, ...]) -> bool:
    return not by or (len(by) == 1 and isinstance(by[0], e.Number) and by[0].value == 1)


@dataclass
class _PlanBuilder:
    """A builder of the plan of one declaration.

    Args:
        parameters: the binders.
        required_atoms: atoms that are true in every row, in addition to the atoms of `where`.
        outer: the builder of the outer plan if this builder builds a subplan, else None.
        prefix: prefix of the aliases, unique in the outermost plan.
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
    """The column with the vid or code of each bound name."""
    lookup_aliases: dict[str, str] = field(default_factory=dict)
    """The alias of the scanned entity or domain table of a name, by name; of computed values, by name and table."""
    atom_aliases: dict[e.Atom, str] = field(default_factory=dict)
    """The alias of the scan of each atom that is true in every row."""
    outer: _PlanBuilder | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        conjuncts = e.conjuncts(self.where)
        for atom in self.required_atoms:
            self.scan_atom(atom)
        for conjunct in conjuncts:
            if isinstance(conjunct, e.Atom):
                self.scan_atom(conjunct)
            elif isinstance(conjunct, e.Membership):
                self._scan_member(conjunct)
        for parameter in self.parameters:
            self.column_for_name(parameter.name)
        shared = e.shared_names(conjuncts)
        for name in self.scope.existential_types:
            if name in shared:
                self.column_for_name(name)
        for conjunct in conjuncts:
            if not isinstance(conjunct, e.Atom | e.Membership):
                self._add_condition(conjunct)

    @property
    def has_existentials(self) -> bool:
        return len(self.scope.type_names) > len(self.scope.binders)

    def finish(self, outputs: tuple[tuple[str, p.Term, str], ...], *, is_distinct: bool) -> p.Plan:
        bindings = tuple((parameter.name, self.column_for_name(parameter.name)) for parameter in self.parameters)
        plan = p.Plan(tuple(self.scans), tuple(self.equalities), tuple(self.filters), bindings, is_distinct, outputs)
        return simplify_plan(plan)

    # Names and scans

    def _bound_column(self, name: str) -> p.Column | None:
        """Return the column to which a name is bound in this plan or in an outer plan, or None."""
        if name in self.columns:
            return self.columns[name]
        return self.outer._bound_column(name) if self.outer else None

    def column_for_name(self, name: str) -> p.Column:
        """Return the column with a name's vid or code; for an unbound name, scan all entities or values of its type."""
        bound = self._bound_column(name)
        if bound is None:
            self._scan_lookup(name)
        return bound or self.columns[name]

    def _bind(self, name: str, column: p.Column) -> None:
        bound = self._bound_column(name)
        if bound is None:
            self.columns[name] = column
        else:
            self.equalities.append((bound, column))

    def _scan(self, table: str, *, is_lookup: bool = False) -> str:
        alias = f"{self.prefix}t{len(self.scans)}"
        self.scans.append(p.Scan(table, alias, is_lookup))
        return alias

    def _scan_lookup(self, name: str) -> str:
        """Scan the entity or domain table of a name unless the plan already scans it; return the alias of the scan."""
        if name in self.lookup_aliases:
            return self.lookup_aliases[name]
        table, key_column, _ = type_table(self.context.spec, self.scope.type_names[name])
        alias = self._scan(table, is_lookup=self._bound_column(name) is not None)
        self.lookup_aliases[name] = alias
        self._bind(name, p.Column(alias, key_column))
        return alias

    def scan_atom(self, atom: e.Atom) -> str:
        """Join the table of an atom's relation, so that the atom is true in every row; return the alias of the scan."""
        if atom in self.atom_aliases:
            return self.atom_aliases[atom]
        alias = self.atom_aliases[atom] = self._scan(relation_table(atom.relation))
        relation = self.context.spec.relation(atom.relation)
        assert relation is not None
        for k, (argument, parameter) in enumerate(zip(atom.arguments, relation.parameters, strict=True)):
            self._join_argument(argument, parameter.type_name, p.Column(alias, f"a{k}"))
        return alias

    def _join_argument(self, argument: e.Expression, type_name: str, column: p.Column) -> None:
        """Require that an argument equals a column: bind a name, or compare a constant or attribute with the column."""
        if isinstance(argument, e.Name) and argument.name in self.scope.type_names:
            self._bind(argument.name, column)
        elif isinstance(argument, e.Attribute | e.TupleAttribute):
            self.filters.append(p.Compare("==", column, self.term(argument)))
        else:
            self.filters.append(p.Compare("==", column, self._constant_code(argument, type_name)))

    def _scan_member(self, member: e.Membership) -> None:
        self._join_argument(member.element, self.bag_domain(member.bag), p.Column(self.scan_bag(member.bag), "code"))

    def bag_domain(self, bag: e.Expression) -> str:
        """Return the name of the domain of a bag's values."""
        kind = self.scope.type_of(bag)
        assert isinstance(kind, Bag)
        return kind.domain

    def scan_bag(self, bag: e.Expression) -> str:
        """Join the table of a bag, which has one row for each value in the bag; return the alias of the scan."""
        name, table = find_bag(bag, self.scope)
        alias = self._scan(table)
        self._bind(name, p.Column(alias, "vid"))
        return alias

    def _scan_values(self, node: e.Expression) -> str:
        """Join the table of a number or vector that is computed for all entities; return the alias of the scan."""
        name, table = find_values(node, self.scope)
        key = f"{name} {table}"
        if key not in self.lookup_aliases:
            column = self.column_for_name(name)
            alias = self.lookup_aliases[key] = self._scan(table, is_lookup=True)
            self.equalities.append((column, p.Column(alias, "vid")))
        return self.lookup_aliases[key]

    def _constant_code(self, constant: e.Expression, domain: str) -> p.Constant:
        value = self.scope.constant_value(constant, domain)
        values = self.context.domains[domain]
        # A value that is not in the data has the code -1, which differs from all codes in the data.
        return p.Constant(values.index(value) if value in values else -1)

    def _are_joined(self, columns: tuple[p.Column, ...]) -> bool:
        """Return True if equalities connect the scans of some columns, so that the columns have few combinations of values."""
        connected = {columns[0].alias}
        size = 0
        while size != len(connected):
            size = len(connected)
            for a, b in self.equalities:
                if {a.alias, b.alias} & connected:
                    connected |= {a.alias, b.alias}
        return all(column.alias in connected for column in columns)

    # Conditions

    def _add_condition(self, part: e.Expression) -> None:
        if isinstance(part, e.Comparison) and part.operator == "==" and not self._is_equivalence(part):
            sides = (self.operand(part.left, part.right), self.operand(part.right, part.left))
            if isinstance(sides[0], p.Column) and isinstance(sides[1], p.Column):
                self.equalities.append((sides[0], sides[1]))
                return
        self.filters.append(self.condition(part))

    def condition(self, node: e.Expression) -> p.Condition:
        """Lower a condition; atoms and bag memberships become `Exists` conditions."""
        match node:
            case e.Connective("=>", left, right):
                return p.LogicalCondition(
                    "or", (p.LogicalCondition("not", (self.condition(left),)), self.condition(right))
                )
            case e.Connective("<=>", left, right):
                return self._equivalence(left, right)
            case e.Connective("and") if self._unbound_names(node):
                # One entity must satisfy the whole conjunction, which therefore becomes one `Exists` instead of several.
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
            case e.FunctionCall("missing", (value,)):
                return p.LogicalCondition("not", (p.IsNotNull(self.term(value)),))
        return p.IsTrue(self.term(node))

    def _equivalence(self, left: e.Expression, right: e.Expression) -> p.Condition:
        both = p.LogicalCondition("and", (self.condition(left), self.condition(right)))
        neither = p.LogicalCondition("not", (p.LogicalCondition("or", (self.condition(left), self.condition(right))),))
        return p.LogicalCondition("or", (both, neither))

    def _open_domain(self, node: e.Comparison) -> str | None:
        """Return the name of the open domain to which the operands of a comparison belong, or None."""
        for kind in self.scope.operand_types(node):
            if isinstance(kind, DomainType) and isinstance(self.context.spec.domain(kind.domain), OpenDomain):
                return kind.domain
        return None

    def _value_text(self, node: e.Expression, domain: str) -> p.Term:
        """Return a value of an open domain as text, because the order of the codes depends on the data."""
        constant = self.scope.constant_value(node, domain) if not isinstance(node, e.Name) else None
        if constant is not None:
            return p.Constant(constant)
        return p.Lookup(domain_table(domain), "value", "code", self.term(node))

    def _aggregate_builder(self, node: e.Aggregate) -> _PlanBuilder:
        """Return a builder of an aggregate's subplan; the subplan may refer to columns of this plan."""
        inner = self.scope.aggregate_scope(node)
        for name in sorted(e.names_in(node) & set(self.scope.type_names)):
            self.column_for_name(name)
        parameters = tuple(
            Parameter(n, type_name) for n, type_name in inner.binders.items() if n not in self.scope.type_names
        )
        if node.function != "exists":
            names = set().union(e.positive_names(node.where), *(e.names_in(t) for t in node.terms))
            parameters += tuple(
                Parameter(n, type_name) for n, type_name in inner.existential_types.items() if n in names
            )
        return _PlanBuilder(self.context, parameters, node.where, inner, outer=self, prefix=self._prefix())

    def _prefix(self) -> str:
        return f"{self.prefix}e{len(self.filters)}_{len(self.scans)}_"

    def subplan(self) -> p.Plan:
        """Return the plan of an `Exists` condition or an aggregate, without bindings and outputs."""
        return p.Plan(tuple(self.scans), tuple(self.equalities), tuple(self.filters))

    def _is_equivalence(self, node: e.Comparison) -> bool:
        """Return True if a comparison is between two truth values and at least one of them is not a stored value."""
        stored = e.Attribute | e.Boolean | e.TupleAttribute
        is_bool = isinstance(self.scope.operand_types(node)[0], Bool)
        return is_bool and not (isinstance(node.left, stored) and isinstance(node.right, stored))

    def _unbound_names(self, node: e.Expression) -> set[str]:
        """Return the existential names in a condition that this plan and the outer plans do not bind."""
        names = (e.names_in(node) & set(self.scope.type_names)) - set(self.scope.binders)
        return {name for name in names if self._bound_column(name) is None}

    def _exists(self, node: e.Expression) -> p.Condition:
        for name in sorted(e.names_in(node) & set(self.scope.binders)):
            self.column_for_name(name)
        inner = _PlanBuilder(self.context, (), node, self.scope, outer=self, prefix=self._prefix())
        return p.Exists(inner.subplan())

    def operand(self, node: e.Expression, other: e.Expression) -> p.Term:
        """Lower one side of a comparison; interpret a constant as a value of the other side's type."""
        is_binder = isinstance(node, e.Name) and node.name in self.scope.type_names
        if not is_binder and isinstance(node, e.Name | e.Number | e.Text | e.UnaryMinus):
            kind = self.scope.type_of(other) if not isinstance(other, e.Number | e.Text) else None
            if isinstance(kind, DomainType) and self.scope.constant_value(node, kind.domain) is not None:
                return self._constant_code(node, kind.domain)
            if isinstance(kind, Time) and isinstance(node, e.Text):
                return p.Constant(parse_time(node.value))
            if isinstance(kind, Datetime) and isinstance(node, e.Text):
                return p.Constant(parse_datetime(node.value))
            if isinstance(kind, Date):
                return p.Call("date", (self.term(node),))
        term, kind = self.term(node), self.scope.type_of(node)
        # The code of a value in a range domain is its offset from the lowest value; other numbers are compared with the
        # value itself.
        is_code = isinstance(kind, DomainType) and self.scope.type_of(other, kind) == kind
        return term if is_code else self._range_value(term, kind)

    def _range_value(self, term: p.Term, kind: ValueType) -> p.Term:
        domain = self.context.spec.domain(kind.domain) if isinstance(kind, DomainType) else None
        low = getattr(domain, "low", 0)
        return p.Call("+", (term, p.Constant(low))) if low else term

    # Terms

    def term(self, node: e.Expression) -> p.Term:
        """Lower a term to its stored form: entities as vids, domain values as codes."""
        if self.scope.is_computed(node):
            return p.Column(self._scan_values(node), "v0")
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
            case e.Arithmetic(_, left, right) if self.scope.is_elapsed_time(node):
                return p.Call("elapsed_seconds", (self.operand(left, right), self.operand(right, left)))
            case e.Arithmetic(operator, left, right):
                return p.Call(operator, (self.numeric_term(left), self.numeric_term(right)))
            case e.FunctionCall(name) if name in TEXT_SIMILARITIES:
                similarity, names = find_text_similarity(node, self.scope)
                return similarity_term(similarity, *map(self.column_for_name, names))
            case e.FunctionCall("missing"):
                return p.Indicator(self.condition(node))
            case e.FunctionCall("year" | "month" | "weekday" | "days" as name, arguments):
                return p.Call(name, tuple(map(self._date, arguments)))
            case e.FunctionCall(name, arguments):
                function_name = plugin_function_name(name) if external_function(name) else name
                return p.Call(function_name, tuple(self.numeric_term(a) for a in arguments))
            case e.Aggregate(function, terms, _):
                inner = self._aggregate_builder(node)
                bound = (inner.columns[name] for name in inner.scope.existential_types if name in inner.columns)
                aggregate_terms = tuple(inner.numeric_term(t) for t in terms) or tuple(bound)
                keys = tuple(dict.fromkeys(self.columns[n] for n in sorted(e.names_in(node)) if n in self.columns))
                if len(keys) > 1 and self.outer is None and self._are_joined(keys):
                    outer_plan = p.Plan(tuple(self.scans), tuple(self.equalities))
                    return p.AggregateTerm(function, aggregate_terms, inner.subplan(), keys, outer_plan)
                return p.AggregateTerm(function, aggregate_terms, inner.subplan())
        raise AssertionError(f"{type(node).__name__} is not a term; the checker rejects it")

    def _date(self, node: e.Expression) -> p.Term:
        is_datetime = isinstance(self.scope.type_of(node, Date()), Datetime)
        return p.Call("date_of_datetime" if is_datetime else "date", (self.term(node),))

    def numeric_term(self, node: e.Expression) -> p.Term:
        """Lower a term to a number: for a range domain, the value instead of its code; otherwise the stored form."""
        return self._range_value(self.term(node), self.scope.type_of(node))

    def feature_terms(self, node: e.Expression) -> list[tuple[str, p.Term]]:
        """Return the feature names and terms of one item of `by`; a vector has one feature per component."""
        if isinstance(self.scope.type_of(node), Vector):
            context, text = self.context, render_expression(node)
            names = component_names(node, self.scope, context.vector_lengths, context.domains)
            if not isinstance(node, e.Attribute):
                alias = self._scan_values(node)
                return [(f"{text}[{name}]", p.Column(alias, f"v{d}")) for d, name in enumerate(names)]
            vector = self.term(node)
            return [(f"{text}[{name}]", p.VectorComponent(vector, d)) for d, name in enumerate(names)]
        return [(render_expression(node), self.numeric_term(node))]
