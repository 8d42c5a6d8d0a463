"""The restriction of declarations by `as of p`: their conditions and aggregates use only rows earlier than p.

An entity type or an observed relation may declare the *time* of its rows: `time seen : datetime` is the time from which a row
is known. `apply_as_of` makes the restriction explicit. It adds comparisons such as `q.seen < p.seen` to the conditions of a
declaration, for each other entity with a time and for each tuple with a time, so that later steps need not know `as of`. A
row without a time is not earlier than any other row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from relcrf.errors import Diagnostic, Span
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model import types as t
from relcrf.model.expressions import conjunction, conjuncts, disjunction, disjuncts, names_in, optional_conjunction
from relcrf.model.functions import TABLE_STATISTICS
from relcrf.model.nodes import map_children, walk
from relcrf.model.rules import all_templates
from relcrf.model.typing import NameScope

STATISTICS = (*TABLE_STATISTICS, "tfidf_cosine")
"""The functions whose results depend on all rows of a table."""

_Restricted = TypeVar("_Restricted", bound="s.Template | s.DerivedRelation | s.Feature")


class AsOfError(Exception):
    """The error raised for a declaration that cannot be restricted; `diagnostic` contains the reason."""

    def __init__(self, code: str, message: str, span: Span | None, hint: str) -> None:
        self.diagnostic = Diagnostic(code, message, span, hint)
        super().__init__(message)


def apply_as_of(spec: s.ModelSpec) -> s.ModelSpec:
    """Inline includes, convert rules to templates, add the comparisons that `as of` requires, and return the new model.

    Raises:
        AsOfError: if a declaration cannot be restricted; the checker reports this error.
    """
    templates = all_templates(spec)
    limits = {template.name: template for template in templates if template.as_of is not None}
    remaining = iter(templates)
    declarations: list[s.Declaration] = []
    for declaration in spec.all_declarations:
        if isinstance(declaration, s.Template | s.Rule):
            declaration = next(remaining)
        if isinstance(declaration, s.Gate) and declaration.template in limits:
            declaration = restrict_gate(spec, declaration, limits[declaration.template])
        elif isinstance(declaration, s.Template | s.DerivedRelation | s.Feature):
            declaration = restrict(spec, declaration)
        declarations.append(declaration)
    return s.ModelSpec(tuple(declarations), source=spec.source)


def restrict(spec: s.ModelSpec, declaration: _Restricted) -> _Restricted:
    """Return a declaration without `as of` but with the comparisons that it requires.

    Raises:
        AsOfError: if the declaration cannot be restricted.
    """
    if declaration.as_of is None:
        return declaration
    limit = _TimeLimit.of_declaration(spec, declaration, declaration.as_of)
    restricted: s.Template | s.DerivedRelation | s.Feature
    match declaration:
        case s.Template():
            restricted = limit.restrict_template(declaration)
        case s.DerivedRelation():
            restricted = limit.restrict_derived(declaration)
        case s.Feature():
            restricted = limit.restrict_feature(declaration)
    return cast(_Restricted, replace(restricted, as_of=None))


def restrict_gate(spec: s.ModelSpec, gate: s.Gate, template: s.Template) -> s.Gate:
    """Return a gate whose features are restricted as the clauses of its template.

    Raises:
        AsOfError: if a feature cannot be restricted.
    """
    if template.as_of is None:
        return gate
    limit = _TimeLimit.of_declaration(spec, template, template.as_of)
    scope = NameScope(spec, template.parameters, template.where)
    limit.check_references(scope, gate.by)
    return replace(gate, by=tuple(limit.restrict_value(scope, item) for item in gate.by))


def later_rows(
    spec: s.ModelSpec, declaration: s.Template | s.DerivedRelation | s.Feature, target: e.Name
) -> tuple[e.Expression | None, ...]:
    """Return the conditions that a binding, tuple or value uses rows that are not earlier than the target.

    Args:
        declaration: a declaration that is neither defined by nearest neighbours nor a propagation.
        target: a binder whose type has a time.

    Returns:
        One condition or, for a derived relation, one for each operand of its `or`; None if there are no such rows.
    """
    limit = _TimeLimit.of_declaration(spec, declaration, target)
    match declaration:
        case s.Feature():
            scope = NameScope(spec, declaration.parameters, None)
            cases = [[*limit.later_rows_in_values(scope, feature_inputs(declaration))]]
        case s.DerivedRelation(_, parameters, definition):
            assert not isinstance(definition, s.NearestNeighbours)
            scope = NameScope(spec, parameters, definition)
            names = set(scope.type_names)
            cases = [[*limit.later_rows_in_condition(scope, case, names)] for case in disjuncts(definition)]
        case s.Template():
            scope = NameScope(spec, declaration.parameters, declaration.where)
            parts = [*limit.later_rows_in_condition(scope, declaration.where, set(scope.type_names))]
            parts += limit.later_rows_in_values(scope, (*declaration.over, *declaration.per, *declaration.by))
            cases = [parts]
    return tuple(disjunction(parts) if parts else None for parts in cases)


def uses_all_rows(spec: s.ModelSpec, declaration: s.Template | s.DerivedRelation | s.Feature) -> bool:
    """Return True if a declaration depends on rows of any time in a way that no condition restricts."""
    match declaration:
        case s.Template():
            scope = NameScope(spec, declaration.parameters, declaration.where)
            expressions = (*conjuncts(declaration.where), *declaration.over, *declaration.per, *declaration.by)
        case s.DerivedRelation(_, parameters, definition):
            if isinstance(definition, s.NearestNeighbours):
                return uses_other_rows(spec, declaration)
            scope, expressions = NameScope(spec, parameters, definition), (definition,)
        case s.Feature(_, parameters, definition):
            if isinstance(definition, s.FeaturePropagation):
                return uses_other_rows(spec, declaration)
            scope, expressions = NameScope(spec, parameters, None), feature_inputs(declaration)
    nodes = (pair for expression in expressions for pair in scope.walk(expression))
    return any(isinstance(node, e.FunctionCall) and _is_statistic(inner, node) for inner, node in nodes)


def uses_other_rows(spec: s.ModelSpec, declared: s.DerivedRelation | s.Feature) -> bool:
    """Return True if a relation or feature without `as of` depends on rows with a time other than its arguments."""
    return _uses_other_rows(spec, declared, set())


def _uses_other_rows(spec: s.ModelSpec, declared: s.DerivedRelation | s.Feature, seen: set[str]) -> bool:
    seen.add(declared.name)
    has_time = any(spec.time_attribute(parameter.type_name) for parameter in declared.parameters)
    expressions: tuple[e.Expression, ...]
    if isinstance(declared, s.Feature):
        scope, expressions = NameScope(spec, declared.parameters, None), feature_inputs(declared)
        definition = declared.definition
        if isinstance(definition, s.FeaturePropagation) and (
            has_time or _is_unrestricted(spec, definition.relation, seen)
        ):
            return True
    elif isinstance(declared.definition, s.NearestNeighbours):
        return has_time
    else:
        scope = NameScope(spec, declared.parameters, declared.definition)
        expressions = (declared.definition,)
    for inner, node in (pair for expression in expressions for pair in scope.walk(expression)):
        if isinstance(node, e.Atom) and _is_unrestricted(spec, node.relation, seen):
            return True
        if isinstance(node, e.FunctionCall) and _is_statistic(inner, node):
            return True
        name = node.name if isinstance(node, e.Name) else node.binder if isinstance(node, e.Attribute) else ""
        if name not in scope.binders and spec.time_attribute(inner.type_names.get(name, "")):
            return True
    return False


def feature_inputs(feature: s.Feature) -> tuple[e.Expression, ...]:
    """Return the expressions from which a feature is computed; the target of a learned feature is not one of them."""
    definition = feature.definition
    return definition.inputs if isinstance(definition, s.LearnedDefinition) else s.feature_operands(feature)


def _is_unrestricted(spec: s.ModelSpec, name: str, seen: set[str]) -> bool:
    """Return True if a relation or feature that is not in `seen` depends on rows of any time."""
    declared = spec.relation(name) or spec.feature(name)
    if isinstance(declared, s.DerivedRelation | s.Feature):
        return declared.as_of is None and name not in seen and _uses_other_rows(spec, declared, seen)
    return spec.time_attribute(name) is not None


def _is_statistic(scope: NameScope, node: e.FunctionCall) -> bool:
    """Return True if the result of a call depends on all rows of an entity type with a time."""
    types = (scope.type_names.get(name, "") for name in names_in(node))
    return node.name in STATISTICS and any(scope.spec.time_attribute(type_name) for type_name in types)


def _bound_names(parts: tuple[e.Expression, ...]) -> set[str]:
    """Return the names that have one value in the whole conjunction of `parts`; `not` and `or` have further names."""
    return e.shared_names(parts).union(*(names_in(p) for p in parts if not isinstance(p, e.Not | e.Connective)))


@dataclass(frozen=True)
class _TimeLimit:
    """The time of the target of one declaration, and the comparisons of other times with it.

    Args:
        owner: the declaration in messages, such as "the template 'returned'".
        target: the binder to whose time the declaration is restricted.
        type_name: the entity type of the target.
        time: the attribute with the time of the target.
    """

    spec: s.ModelSpec
    owner: str
    target: e.Name
    type_name: str
    time: str

    @classmethod
    def of_declaration(
        cls, spec: s.ModelSpec, declaration: s.Template | s.DerivedRelation | s.Feature, target: e.Name
    ) -> _TimeLimit:
        """Return the limit of a declaration.

        Raises:
            AsOfError: if the target is not a binder whose type has a time.
        """
        types = {parameter.name: parameter.type_name for parameter in declaration.parameters}
        if target.name not in types:
            with_time = [name for name, type_name in types.items() if spec.time_attribute(type_name)]
            names = " or ".join(f"'as of {name}'" for name in with_time or types)
            message = f"'{target.name}' is not a binder of '{declaration.name}'"
            raise AsOfError("E156", message, target.span, f"write {names}")
        type_name = types[target.name]
        declared = spec.time_attribute(type_name)
        if declared is None:
            message = f"'as of {target.name}' requires a time, and {type_name} does not declare one"
            entity = spec.entity(type_name)
            dates = [a for a in entity.attributes if isinstance(a.type, t.Date | t.Datetime)] if entity else []
            example = f"time {dates[0].name} : {dates[0].type}" if dates else "time seen : datetime"
            hint = f"mark the attribute of {type_name} with the time from which a row is known: {example}"
            if entity is None:
                hint = "use a binder over an entity type with a time"
            raise AsOfError("E156", message, target.span, hint)
        noun = {s.Template: "template", s.DerivedRelation: "relation", s.Feature: "feature"}[type(declaration)]
        owner = f"the {noun} '{declaration.name}'" if declaration.name != "this rule" else "this rule"
        return cls(spec, owner, target, type_name, declared.name)

    # Declarations

    def restrict_template(self, template: s.Template) -> s.Template:
        scope = NameScope(self.spec, template.parameters, template.where)
        self.check_references(scope, (*conjuncts(template.where), *template.over, *template.per, *template.by))
        return replace(
            template,
            where=self._restrict_condition(scope, template.where, set(scope.type_names)),
            over=tuple(self.restrict_value(scope, item) for item in template.over),
            per=tuple(self.restrict_value(scope, item) for item in template.per),
            by=tuple(self.restrict_value(scope, item) for item in template.by),
        )

    def restrict_derived(self, derived: s.DerivedRelation) -> s.DerivedRelation:
        if isinstance(derived.definition, s.NearestNeighbours):
            reason = "the nearest neighbours are chosen among rows of any time"
            hint = "derive the neighbours by a condition, such as where cosine(a.v, b.v) > 0.9"
            raise self._unrestrictable(reason, derived.definition.span, hint)
        scope = NameScope(self.spec, derived.parameters, derived.definition)
        self.check_references(scope, (derived.definition,), recursive=derived.name)
        names = set(scope.type_names)
        cases = [self._restrict_condition(scope, case, names) for case in disjuncts(derived.definition)]
        return replace(derived, definition=disjunction([case for case in cases if case is not None]))

    def restrict_feature(self, feature: s.Feature) -> s.Feature:
        scope, definition = NameScope(self.spec, feature.parameters, None), feature.definition
        if isinstance(definition, s.FeaturePropagation):
            if uses_other_rows(self.spec, replace(feature, as_of=None)):
                hint = (
                    f"use an aggregate, such as mean {{ q.length where {definition.relation}({self.target.name}, q) }}"
                )
                raise self._unrestrictable("values are propagated from rows of any time", definition.span, hint)
            return feature
        self.check_references(scope, feature_inputs(feature))
        if isinstance(definition, s.LearnedDefinition):
            inputs = tuple(self.restrict_value(scope, item) for item in definition.inputs)
            return replace(feature, definition=replace(definition, inputs=inputs))
        return replace(feature, definition=self.restrict_value(scope, definition))

    def check_references(self, scope: NameScope, expressions: Iterable[e.Expression], recursive: str = "") -> None:
        """Require that the relations, features and functions in expressions do not depend on rows of any time.

        Args:
            recursive: the name of the derived relation that the expressions define; it may refer to itself.

        Raises:
            AsOfError: if one of them does.
        """
        for inner, node in (pair for expression in expressions for pair in scope.walk(expression)):
            if isinstance(node, e.FunctionCall) and _is_statistic(inner, node):
                hint = "use a function of single rows, such as log1p(p.length) or bin(p.length, 10, 100)"
                raise self._unrestrictable(f"'{node.name}' is computed from rows of any time", node.span, hint)
            if not isinstance(node, e.Atom) or node.relation == recursive:
                continue
            declared = self.spec.relation(node.relation) or self.spec.feature(node.relation)
            if not isinstance(declared, s.DerivedRelation | s.Feature) or declared.as_of is not None:
                continue
            if uses_other_rows(self.spec, declared):
                raise self._unrestricted_reference(declared, node)

    def _unrestrictable(self, reason: str, span: Span | None, hint: str) -> AsOfError:
        message = f"'as of {self.target.name}' does not apply to {self.owner}: {reason}"
        return AsOfError("E157", message, span or self.target.span, hint)

    def _unrestricted_reference(self, declared: s.DerivedRelation | s.Feature, atom: e.Atom) -> AsOfError:
        noun = "feature" if isinstance(declared, s.Feature) else "relation"
        limit = f"but {self.owner} is restricted by 'as of {self.target.name}'"
        message = f"the {noun} '{declared.name}' depends on rows of any time, {limit}"
        names = [p.name for p in declared.parameters if self.spec.time_attribute(p.type_name)]
        hint = f"add an argument with a time, such as {self.target.name}: {self.type_name}, to '{declared.name}', and "
        hint = f"add 'as of {names[0]}' to '{declared.name}'" if names else f"{hint}'as of {self.target.name}'"
        return AsOfError("E157", message, atom.span, hint)

    # Expressions

    def _restrict_condition(self, scope: NameScope, where: e.Expression | None, names: set[str]) -> e.Expression | None:
        """Return a condition with comparisons of the times of its tuples, and of the names that are bound in `names`."""
        parts = conjuncts(where)
        restricted = [self._restrict_conjunct(scope, part) for part in parts]
        return optional_conjunction([*restricted, *self._required_comparisons(scope, parts, names)])

    def _restrict_conjunct(self, scope: NameScope, part: e.Expression) -> e.Expression:
        is_nested = isinstance(part, e.Not | e.Connective)
        return self._restrict_nested(scope, part) if is_nested else self._restrict_term(scope, part)

    def _required_comparisons(
        self, scope: NameScope, parts: tuple[e.Expression, ...], names: set[str]
    ) -> Iterator[e.Comparison]:
        """Yield the comparisons of conjuncts; those inside `not`, `or` and `=>` have separate comparisons.

        A nested `and` binds its own names, also those in its aggregates.
        """
        yield from self._entity_comparisons(scope, names & (set(scope.binders) | _bound_names(parts)))
        for atom in dict.fromkeys(part for part in parts if isinstance(part, e.Atom)):
            yield from self._tuple_comparison(atom)

    def _entity_comparisons(self, scope: NameScope, names: set[str]) -> Iterator[e.Comparison]:
        for name, type_name in scope.type_names.items():
            declared = self.spec.time_attribute(type_name)
            if name in names and name != self.target.name and declared is not None:
                yield self._is_earlier(e.Attribute(name, declared.name, span=self.target.span))

    def _tuple_comparison(self, atom: e.Atom) -> Iterator[e.Comparison]:
        declared = self.spec.time_attribute(atom.relation)
        if declared is not None:
            yield self._is_earlier(e.TupleAttribute(atom, declared.name, span=atom.span))

    def _is_earlier(self, time: e.Attribute | e.TupleAttribute) -> e.Comparison:
        limit = e.Attribute(self.target.name, self.time, span=self.target.span)
        return e.Comparison("<", time, limit, span=self.target.span)

    def _restrict_nested(self, scope: NameScope, node: e.Expression) -> e.Expression:
        """Restrict a condition inside `not`, `or`, `=>`, `<=>`, a comparison or a formula.

        An atom there does not bind its tuple for other conjuncts, so `exists` repeats it with the comparison of its time.
        """
        if isinstance(node, e.Not):
            return replace(node, operand=self._restrict_nested(scope, node.operand))
        if isinstance(node, e.Connective) and node.operator != "and":
            left, right = self._restrict_nested(scope, node.left), self._restrict_nested(scope, node.right)
            return replace(node, left=left, right=right)
        parts = conjuncts(node)
        names = _bound_names(parts)
        existing = [
            e.Aggregate("exists", (), conjunction([atom, comparison]), span=atom.span)
            for atom in parts
            if isinstance(atom, e.Atom)
            for comparison in self._tuple_comparison(atom)
        ]
        comparisons = self._entity_comparisons(scope, names & set(scope.existential_types))
        return conjunction([*(self._restrict_conjunct(scope, part) for part in parts), *existing, *comparisons])

    def restrict_value(self, scope: NameScope, node: e.Expression) -> e.Expression:
        """Restrict a feature, a key, a formula or an operand of a comparison."""
        if isinstance(node, e.Atom) and self.spec.feature(node.relation) is not None:
            return node
        if isinstance(node, e.Atom | e.Membership | e.Not | e.Connective):
            return self._restrict_nested(scope, node)
        return self._restrict_term(scope, node)

    def _restrict_term(self, scope: NameScope, node: e.Expression) -> e.Expression:
        match node:
            case e.Atom() | e.TupleAttribute() | e.Membership():
                return node
            case e.Aggregate(_, terms, where):
                inner = scope.aggregate_scope(node)
                condition = self._restrict_condition(inner, where, set(inner.type_names) - set(scope.type_names))
                assert condition is not None
                return replace(node, terms=tuple(self._restrict_term(inner, term) for term in terms), where=condition)
            case e.Comparison(_, left, right):
                left, right = self.restrict_value(scope, left), self.restrict_value(scope, right)
                return replace(node, left=left, right=right)
        return map_children(node, lambda part: self._restrict_term(scope, part))

    # Later rows

    def later_rows_in_condition(
        self, scope: NameScope, where: e.Expression | None, names: set[str]
    ) -> Iterator[e.Expression]:
        """Yield the conditions that a tuple or a name of a condition is not earlier than the target."""
        for comparison in self._required_comparisons(scope, conjuncts(where), names):
            yield e.Not(comparison)
        for part in conjuncts(where):
            yield from self.later_rows_in_values(scope, [part] if not isinstance(part, e.Atom) else [])

    def later_rows_in_values(self, scope: NameScope, values: Iterable[e.Expression]) -> Iterator[e.Expression]:
        """Yield the conditions that an aggregate, or an atom inside `not` or `or`, uses a row that is not earlier."""
        for value in values:
            for node in walk(value, descend=lambda node: not isinstance(node, e.Aggregate | e.TupleAttribute)):
                if isinstance(node, e.Aggregate):
                    inner = scope.aggregate_scope(node)
                    local = set(inner.type_names) - set(scope.type_names)
                    later = [*self.later_rows_in_condition(inner, node.where, local)]
                    later += self.later_rows_in_values(inner, node.terms)
                    if later:
                        yield e.Aggregate("exists", (), conjunction([node.where, disjunction(later)]))
                elif isinstance(node, e.Atom):
                    names = names_in(node) & set(scope.existential_types)
                    comparisons = [*self._entity_comparisons(scope, names), *self._tuple_comparison(node)]
                    for comparison in comparisons:
                        yield e.Aggregate("exists", (), conjunction([node, e.Not(comparison)]))
