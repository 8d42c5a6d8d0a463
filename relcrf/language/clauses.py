"""Validation of the clauses of templates, rules, and derived and random relations: types, names, evidence.

A *random term* is a random attribute or an atom of a random relation; a *binder* is a declared variable of a template.
"""

from __future__ import annotations

from collections.abc import Iterator

from relcrf.errors import Diagnostic, listing, suggestion
from relcrf.language.declarations import has_known_types
from relcrf.language.numeric_terms import check_numeric_terms
from relcrf.language.recursion import find_cycle
from relcrf.language.render import render_expression as render_expression
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model import types as t
from relcrf.model.expressions import conjuncts
from relcrf.model.formula import evidence_parts, initial_values_error, is_table, n_patterns
from relcrf.model.functions import NEAREST_MEASURES
from relcrf.model.learned import aggregated_label, labelled_neighbours, used_learned_features
from relcrf.model.nodes import children, walk
from relcrf.model.typing import NameScope, TypeCheckError, feature_type, is_binary_feature


def random_names(spec: s.ModelSpec) -> list[str]:
    """Return the display names of all random attributes and relations, such as `Page.category`."""
    attributes = [f"{owner.name}.{a.name}" for owner in spec.entities for a in owner.attributes if a.is_random]
    return attributes + [r.name for r in spec.random_relations]


def has_broken_condition(scope: NameScope) -> bool:
    """Return True if the condition of a scope refers to a declaration that has errors."""
    return scope.where is not None and _has_broken_reference(scope, scope.where)


def infer_type(scope: NameScope, expression: e.Expression) -> tuple[t.ValueType | None, list[Diagnostic]]:
    """Return the type of an expression and [], or None and its errors; errors in declarations it uses are omitted."""
    inner = scope.aggregate_scope(expression) if isinstance(expression, e.Aggregate) else scope
    problems = [p for part in _typed_children(expression) for p in infer_type(inner, part)[1]]
    if problems or _has_broken_reference(scope, expression):
        return None, problems
    try:
        return scope.type_of(expression), []
    except TypeCheckError as problem:
        return None, [problem.diagnostic]


def _has_broken_reference(scope: NameScope, expression: e.Expression) -> bool:
    """Return True if an expression refers to a declaration with errors; these are reported at the declaration."""
    for node_scope, node in scope.walk(expression):
        attribute = None
        if isinstance(node, e.Attribute):
            attribute = node_scope.attribute_declaration(node, quiet=True)
        elif isinstance(node, e.TupleAttribute):
            attribute = scope.spec.attribute(node.atom.relation, node.attribute)
        if attribute is not None and _has_unknown_domain(scope.spec, attribute.type):
            return True
        if isinstance(node, e.Atom):
            feature = scope.spec.feature(node.relation)
            if feature is not None and _is_invalid_feature(scope.spec, feature):
                return True
            relation = scope.spec.relation(node.relation)
            if relation is not None and not has_known_types(scope.spec, relation.parameters):
                return True
            if isinstance(relation, s.RandomRelation) and _has_unknown_domain(scope.spec, relation.type):
                return True
        name = node.name if isinstance(node, e.Name) else node.binder if isinstance(node, e.Attribute) else None
        if name is not None and name not in node_scope.type_names and name in _names_in_invalid_atoms(node_scope):
            return not any(isinstance(n, e.Atom) and _is_invalid_atom(scope.spec, n) for n in walk(expression))
    return False


def _has_unknown_domain(spec: s.ModelSpec, kind: t.AttributeType) -> bool:
    domain = getattr(kind, "domain", None)
    return domain is not None and spec.domain(domain) is None


def _is_invalid_atom(spec: s.ModelSpec, atom: e.Atom) -> bool:
    relation = spec.relation(atom.relation) or spec.feature(atom.relation)
    return relation is None or len(relation.parameters) != len(atom.arguments)


def _names_in_invalid_atoms(scope: NameScope) -> set[str]:
    """Return the names in atoms that have an unknown relation or the wrong number of arguments."""
    names: set[str] = set()
    for node in walk(scope.where) if scope.where is not None else ():
        if isinstance(node, e.Atom) and _is_invalid_atom(scope.spec, node):
            names |= {a.name for a in node.arguments if isinstance(a, e.Name)}
    return names


def check_condition(scope: NameScope, condition: e.Expression) -> Iterator[Diagnostic]:
    """Validate the conjuncts of an evidence condition separately, so that one error does not hide other errors."""
    for part in conjuncts(condition):
        kind, problems = infer_type(scope, part)
        yield from problems
        if kind is None:
            continue
        if not isinstance(kind, t.Bool):
            yield Diagnostic("E110", "expected a condition", part.span, "write a comparison or a relation")
        else:
            yield from _check_evidence_only(scope, part, "a condition")
            yield from _check_no_computed_value(scope, part)


def _check_evidence_only(scope: NameScope, expression: e.Expression, subject: str) -> Iterator[Diagnostic]:
    yield from _check_tuple_attributes(scope, expression)
    for term in scope.random_terms(expression)[:1]:
        message = f"{subject} refers to '{render_expression(term)}', which is random"
        hint = "only 'over' and rules may refer to random attributes and relations; use evidence here"
        yield Diagnostic("E124", message, term.span, hint)


def _check_tuple_attributes(scope: NameScope, expression: e.Expression) -> Iterator[Diagnostic]:
    """Require that `where` contains the atom `R(a, b)` of every tuple attribute `R(a, b).x`."""
    if _names_in_invalid_atoms(scope):
        return  # a misspelt atom in `where` may be the required atom
    for node in _unguarded_attributes(expression, frozenset(_required_atoms(scope.where))):
        message = f"'where' does not require the tuple whose '{node.attribute}' is read"
        yield Diagnostic(
            "E113", message, node.span, f"start the condition with: where {render_expression(node.atom)} and ..."
        )
        return


def _check_binders_only(scope: NameScope, expression: e.Expression, clause: str) -> Iterator[Diagnostic]:
    reported: set[str] = set()
    for node in walk(expression):
        name = node.binder if isinstance(node, e.Attribute) else node.name if isinstance(node, e.Name) else ""
        if name in scope.type_names and name not in scope.binders and name not in reported:
            reported.add(name)
            message = f"'{name}' is not a binder: 'where' only requires that such a value exists"
            type_name = scope.type_names[name]
            yield Diagnostic(
                "E127", message, node.span, f"to use it in '{clause}', add {name}: {type_name} to the binders"
            )


def check_template(spec: s.ModelSpec, template: s.Template) -> Iterator[Diagnostic]:
    """Validate the clauses of a template whose binders have known types."""
    scope = NameScope(spec, template.parameters, template.where)
    if template.where is not None:
        yield from check_condition(scope, template.where)
    yield from _check_over(scope, template)
    for key in template.per:
        yield from _check_key(scope, key)
    for item in template.by:
        yield from check_feature(scope, item, template)


def _check_over(scope: NameScope, template: s.Template) -> Iterator[Diagnostic]:
    is_valid = True
    for item in template.over:
        kind, problems = infer_type(scope, item)
        problems = problems or list(_check_binders_only(scope, item, "over"))
        yield from problems
        is_valid = is_valid and kind is not None and not problems
    if not is_valid:
        return
    is_random = [bool(scope.random_terms(item)) for item in template.over]
    if not any(is_random):
        names = random_names(scope.spec)
        if names:  # otherwise E137 is reported for the whole model
            subject = "this rule" if template.name == "this rule" else f"'over' of '{template.name}'"
            message = f"{subject} has no random attribute or relation"
            hint = f"the random attributes and relations are {listing(names)}"
            yield Diagnostic("E125", message, template.over[0].span, hint)
        return
    for item in template.over:
        if len(template.over) > 1 and not scope.is_random(item):
            message = "'over' must be a list of random terms or a single formula"
            hint = "move evidence into 'where', 'by' or 'per'"
            yield Diagnostic(
                "E126", message, item.span, "join formulas with 'and'" if scope.random_terms(item) else hint
            )
            return
    for k, item in enumerate(template.over):
        if len(template.over) > 1 and item in template.over[:k]:
            message = f"'{render_expression(item)}' occurs twice in 'over'"
            yield Diagnostic("E122", message, item.span, "list each term once")
    numeric_problems = list(check_numeric_terms(scope, template))
    yield from numeric_problems
    if not is_table(template.over, scope) and not numeric_problems:
        yield from _check_formula(scope, template.over[0])
    yield from _check_symmetric(scope, template)
    n_values, n_expected = len(template.options.initial_values), n_patterns(template, scope)
    if n_values > 1 and n_expected not in (0, n_values):
        yield initial_values_error(template, n_expected)


def _check_symmetric(scope: NameScope, template: s.Template) -> Iterator[Diagnostic]:
    if not template.symmetric:
        return
    kinds = [scope.type_of(item) for item in template.over]
    if len(kinds) != 2 or kinds[0] != kinds[1]:
        message = "'symmetric' requires two random terms of the same type"
        hint = "write: over symmetric a.x, b.x"
        yield Diagnostic("E143", message, template.over[0].span, hint)


def _check_formula(scope: NameScope, formula: e.Expression) -> Iterator[Diagnostic]:
    """Validate a formula; it may contain only random terms, evidence, constants, comparisons and connectives."""
    evidence = evidence_parts(formula, scope)
    for part in evidence:
        yield from _check_tuple_attributes(scope, part)
        yield from _check_no_computed_value(scope, part)
    for node in _walk_excluding(formula, evidence):
        is_constant = scope.is_constant(node)
        if not is_constant and not scope.is_random(node) and not isinstance(node, e.Comparison | e.Connective | e.Not):
            message = "the formula of 'over' computes with random terms"
            hint = "compare them with == != < <= > >=, and join comparisons with and, or, not, =>, <=>"
            yield Diagnostic("E128", message, node.span, hint)
            return
    for node in _walk_excluding(formula, evidence):
        if isinstance(node, e.Comparison):
            yield from _check_state_comparison(scope, node)
    kind = scope.type_of(formula)
    if not isinstance(kind, t.Bool):
        yield Diagnostic("E110", "the formula of 'over' is not a condition", formula.span)


def _check_state_comparison(scope: NameScope, node: e.Comparison) -> Iterator[Diagnostic]:
    """Require the same domain for both operands of a comparison of states; a constant must be one of its values."""
    left, right = scope.operand_types(node)
    for kind, other, operand in ((left, right, node.right), (right, left, node.left)):
        if not isinstance(kind, t.DomainType):
            continue
        if isinstance(scope.spec.domain(kind.domain), s.OpenDomain) and node.operator not in ("==", "!="):
            # The states of an open domain are read from the data; the order may differ between training and prediction.
            message = f"the states of the open domain {kind.domain} have no order for '{node.operator}'"
            yield Diagnostic("E111", message, node.span, "use == or !=, or list the values of the domain")
            return
        if isinstance(operand, e.Name | e.Text):
            continue
        if isinstance(other, t.DomainType) and other != kind:
            message = f"a value of {left} is compared with a value of {right}"
            yield Diagnostic("E111", message, node.span, "in 'over', both operands must have the same domain")
            return
        if not isinstance(other, t.DomainType) and scope.constant_value(operand, kind.domain) is None:
            hint = f"in 'over', compare a value of {kind} with values of {kind}"
            if scope.is_constant(operand):
                yield Diagnostic("E105", f"'{render_expression(operand)}' is not a value of {kind}", operand.span, hint)
            else:
                yield Diagnostic("E111", f"a value of {kind} is compared with a {other}", operand.span, hint)


def _check_key(scope: NameScope, key: e.Expression) -> Iterator[Diagnostic]:
    kind, problems = infer_type(scope, key)
    yield from problems
    if kind is None:
        return
    yield from _check_binders_only(scope, key, "per")
    yield from _check_evidence_only(scope, key, "'per'")
    yield from _check_no_computed_value(scope, key)
    is_discrete = isinstance(kind, t.EntityType | t.DomainType | t.Bool | t.Integer | t.String)
    if isinstance(key, e.Name) and key.name not in scope.type_names:
        yield Diagnostic(
            "E127",
            f"'{key.name}' is not a binder but a value",
            key.span,
            "use a binder, or an attribute of a binder, as the key",
        )
    elif not is_discrete or not e.names_in(key):
        hint = "use a binder, or an expression whose type is a domain, bool, integer or string"
        if isinstance(kind, t.Real):
            hint = f"divide the numbers into intervals: bin({render_expression(key)}, 0.5, 1)"
        subject = f"a {kind}" if not is_discrete else "a constant"
        yield Diagnostic("E129", f"{subject} cannot be a key of 'per'", key.span, hint)


def have_same_weight_shape(spec: s.ModelSpec, first: s.Template, second: s.Template) -> bool:
    """Return True if the weights of two valid templates have the same shape."""
    return _weight_shape(spec, first) == _weight_shape(spec, second)


def _weight_shape(spec: s.ModelSpec, template: s.Template) -> tuple[object, ...]:
    scope = NameScope(spec, template.parameters, template.where)
    has_table = is_table(template.over, scope)
    states = tuple(scope.type_of(item) for item in template.over) if has_table else ()
    keys = tuple(scope.type_of(key) for key in template.per)
    feature_types = [scope.type_of(feature) for feature in template.by]
    features = tuple(kind if isinstance(kind, t.Vector | t.Bag) else 1 for kind in feature_types) or (1,)
    return has_table, states, template.symmetric, template.is_hard, keys, features


def check_feature(scope: NameScope, feature: e.Expression, template: s.Template) -> Iterator[Diagnostic]:
    """Validate one feature in the `by` clause of a template or of a gate."""
    kind, problems = infer_type(scope, feature)
    yield from problems
    if kind is None:
        return
    yield from _check_binders_only(scope, feature, "by")
    evidence_problems = list(_check_evidence_only(scope, feature, "'by'"))
    evidence_problems = evidence_problems or list(_check_computed_values(scope, feature))
    yield from evidence_problems
    if evidence_problems:
        return
    if scope.number_type(kind) is None and not isinstance(kind, t.Bool | t.Vector | t.Bag):
        hint = "features are numbers, bools, vectors and bags; use 'per' for one weight per value"
        yield Diagnostic("E130", f"a {kind} is not a feature", feature.span, hint)
    elif isinstance(kind, t.Bool) and not is_binary_feature(feature):
        hint = "move the condition into the 'where' of a separate template"
        yield Diagnostic("E130", "a condition is not a feature", feature.span, hint)
    elif isinstance(kind, t.Bag) and (len(template.by) > 1 or template.per or len(scope.binders) > 1):
        hint = "use a separate template for the bag, with one binder and without 'per'"
        yield Diagnostic("E130", "a bag must be the only feature of a template", feature.span, hint)


def _check_no_computed_value(scope: NameScope, expression: e.Expression) -> Iterator[Diagnostic]:
    """Report the first value in an expression that only `by` and `feature` may contain."""
    for node_scope, node in scope.walk(expression):
        if node_scope.is_computed(node):
            message = f"'{render_expression(node)}' is allowed only in 'by' and 'feature'"
            yield Diagnostic("E148", message, node.span, "conditions and keys refer to attributes and relations")
            return


def _check_computed_values(scope: NameScope, expression: e.Expression) -> Iterator[Diagnostic]:
    """Validate the values in an expression that are computed for all entities of a type at once."""
    for node_scope, node in scope.walk(expression):
        if isinstance(node, e.Aggregate):
            yield from _check_no_computed_value(node_scope.aggregate_scope(node), node.where)
        if not node_scope.is_computed(node):
            continue
        yield from _check_single_entity(node_scope, node)
        if isinstance(node, e.Aggregate):
            yield from _check_single_entity(node_scope.aggregate_scope(node), node.terms[0])


def _check_single_entity(scope: NameScope, node: e.Expression) -> Iterator[Diagnostic]:
    names = e.names_in(node) & set(scope.type_names)
    if len(names) != 1 or scope.spec.entity(scope.type_names[next(iter(names))]) is None:
        message = f"'{render_expression(node)}' does not depend on exactly one entity"
        hint = "such a value is computed separately for each entity of one type"
        yield Diagnostic("E148", message, node.span, hint)


MAX_HOPS = 100
"""Maximum number of steps of a propagation; after so many steps, the values of linked entities are almost equal."""

NORMALISATIONS = ("symmetric", "mean")
"""The normalisations of `propagate`."""


def check_feature_definition(spec: s.ModelSpec, feature: s.Feature) -> Iterator[Diagnostic]:
    """Validate a feature whose parameters have known types."""
    if len(feature.parameters) != 1 or spec.entity(feature.parameters[0].type_name) is None:
        hint = "declare one parameter with an entity type, such as (p: Page)"
        yield Diagnostic("E146", f"the feature '{feature.name}' is not of a single entity", feature.span, hint)
        return
    cycle = find_cycle(feature.name, spec.used_features)
    if cycle:
        notes = (" -> ".join(cycle),) if len(cycle) > 2 else ()
        hint = "define it by attributes, relations and other features"
        yield Diagnostic("E146", f"the feature '{feature.name}' is computed from itself", feature.span, hint, notes)
        return
    if isinstance(feature.definition, s.LearnedDefinition):
        problems = list(_check_learned_definition(spec, feature, feature.definition))
        yield from problems
        scope = NameScope(spec, feature.parameters, None)
        if not problems and not _has_broken_reference(scope, feature.definition.target):
            yield from _check_declared_type(spec, feature)
        return
    propagation = feature.definition if isinstance(feature.definition, s.FeaturePropagation) else None
    value = propagation.operand if propagation is not None else feature.definition
    assert not isinstance(value, s.FeaturePropagation | s.LearnedDefinition)
    scope = NameScope(spec, feature.parameters, None)
    kind, problems = infer_type(scope, value)
    yield from problems
    if kind is not None:
        problems = list(_check_evidence_only(scope, value, "a feature")) or list(_check_computed_values(scope, value))
        yield from problems
        kind = feature_type(spec, feature)
    if not problems and kind is not None and not isinstance(kind, t.Real | t.Integer | t.Vector | t.Bag):
        hint = "a feature is a number, an attribute of type bool, a vector or a bag"
        yield Diagnostic("E146", f"a {kind} is not a feature", value.span, hint)
    elif not problems and kind is not None:
        yield from _check_declared_type(spec, feature)
    if propagation is not None:
        yield from _check_propagation(spec, propagation, feature.parameters[0].type_name)


def _check_declared_type(spec: s.ModelSpec, feature: s.Feature) -> Iterator[Diagnostic]:
    kind = feature_type(spec, feature)
    if feature.type_name and feature.type_name != str(kind):
        message = f"the feature '{feature.name}' is declared as {feature.type_name}, but its values are of type {kind}"
        yield Diagnostic("E146", message, feature.span, f"write ': {kind}', or omit the type")


def _check_learned_definition(
    spec: s.ModelSpec, feature: s.Feature, definition: s.LearnedDefinition
) -> Iterator[Diagnostic]:
    """Validate the target and the inputs of a learned feature of one entity type."""
    scope = NameScope(spec, feature.parameters, None)
    kind, problems = infer_type(scope, definition.target)
    yield from problems
    target = definition.target
    if kind is not None:
        declared = scope.attribute_declaration(target) if isinstance(target, e.Attribute) else None
        if declared is None or declared.latent:
            message = f"'{render_expression(target)}' is not an attribute with labels"
            hint = f"write an attribute of the entity, such as {feature.parameters[0].name}.category"
            yield Diagnostic("E149", message, target.span, hint)
        elif not isinstance(kind, _TARGET_TYPES[definition.kind]) or not _is_number(scope, kind, definition.kind):
            message = f"a {definition.kind} cannot predict '{render_expression(target)}', which is of type {kind}"
            yield Diagnostic("E149", message, target.span, _TARGET_HINTS[definition.kind])
        elif definition.joint and (definition.kind != "classifier" or not scope.is_random(target)):
            message = (
                f"'{feature.name}' has joint rounds, but '{render_expression(target)}' is not predicted as a category"
            )
            yield Diagnostic(
                "E149", message, target.span, "remove 'joint', or use a classifier of a predicted attribute"
            )
    for item in definition.inputs:
        neighbours = labelled_neighbours(scope, definition, item)
        if neighbours is None and (label := aggregated_label(scope, item)) is not None:
            message = (
                f"'{feature.name}' counts labels of other entities, but '{render_expression(label)}' is not its target"
            )
            hint = (
                "a classifier may count labels of its own target: classifier of p.x from sum { q.x where Link(p, q) }"
            )
            yield Diagnostic("E149", message, item.span, hint)
            continue
        kind, problems = infer_type(scope, neighbours or item)
        yield from problems
        if kind is None:
            continue
        problems = list(_check_evidence_only(scope, neighbours or item, "an input of a learned feature"))
        if neighbours is not None:
            problems += _check_single_entity(scope, neighbours)
            problems += _check_no_computed_value(scope.aggregate_scope(neighbours), neighbours.where)
        else:
            problems = problems or list(_check_computed_values(scope, item))
        yield from problems
        if not problems and used_learned_features(spec, [item]):
            message = f"the input '{render_expression(item)}' of '{feature.name}' is itself learned"
            yield Diagnostic("E149", message, item.span, "use attributes, aggregates and features that are not learned")
        elif not problems and item == target:
            message = f"the input '{render_expression(item)}' of '{feature.name}' is also its target"
            yield Diagnostic("E149", message, item.span, "remove it from the inputs")


_TARGET_TYPES: dict[str, type | tuple[type, ...]] = {
    "classifier": (t.DomainType, t.Bool),
    "regressor": (t.DomainType, t.Real, t.Integer),
}
_TARGET_HINTS = {
    "classifier": "a classifier predicts a value of a domain, of a range, or of type bool",
    "regressor": "a regressor predicts a number or a value of a range",
}


def _is_number(scope: NameScope, kind: t.ValueType, learner: str) -> bool:
    return learner == "classifier" or scope.number_type(kind) is not None


def check_not_learned(spec: s.ModelSpec, by: tuple[e.Expression, ...], subject: str) -> Iterator[Diagnostic]:
    """Reject features of a gate or of candidates that depend on learned features."""
    for item in by:
        if used_learned_features(spec, [item]):
            message = f"{subject} uses '{render_expression(item)}', which is learned"
            yield Diagnostic("E149", message, item.span, "use learned features only in templates")


def _is_invalid_feature(spec: s.ModelSpec, feature: s.Feature) -> bool:
    """Return True if a feature, or a feature that it uses, has errors; these are reported at the declaration."""
    if feature.name not in spec.feature_errors:
        used = (spec.feature(name) for name in spec.used_features[feature.name])
        spec.feature_errors[feature.name] = (
            not has_known_types(spec, feature.parameters)
            or any(check_feature_definition(spec, feature))
            or any(other is not None and _is_invalid_feature(spec, other) for other in used)
        )
    return spec.feature_errors[feature.name]


def _check_propagation(spec: s.ModelSpec, propagation: s.FeaturePropagation, entity: str) -> Iterator[Diagnostic]:
    relation, span = spec.relation(propagation.relation), propagation.span
    if not 1 <= propagation.hops <= MAX_HOPS:
        yield Diagnostic("E147", f"the number of propagation steps is not between 1 and {MAX_HOPS}", span)
    if propagation.normalisation and propagation.normalisation not in NORMALISATIONS:
        hint = suggestion(propagation.normalisation, NORMALISATIONS) or f"use {listing(NORMALISATIONS)}"
        yield Diagnostic("E147", f"unknown normalisation '{propagation.normalisation}'", span, hint)
    if relation is None:
        names = [*(r.name for r in spec.relations), *(r.name for r in spec.derived_relations)]
        hint = suggestion(propagation.relation, names) or (
            f"the relations are {listing(names)}" if names else "the model does not declare a relation"
        )
        yield Diagnostic("E102", f"unknown relation '{propagation.relation}'", span, hint)
    elif isinstance(relation, s.RandomRelation):
        hint = "propagate along an observed or a derived relation"
        yield Diagnostic("E124", f"'propagate' refers to '{relation.name}', which is random", span, hint)
    elif [p.type_name for p in relation.parameters] != [entity, entity]:
        declared = f"{relation.name}({', '.join(map(str, relation.parameters))})"
        hint = f"derive a relation with two arguments of type {entity}"
        yield Diagnostic("E147", f"'{declared}' does not connect pairs of {entity}", span, hint)


def check_nearest(spec: s.ModelSpec, derived: s.DerivedRelation, nearest: s.NearestNeighbours) -> Iterator[Diagnostic]:
    """Validate the definition of a nearest-neighbour relation."""
    span, measure = nearest.span, nearest.measure
    type_names = {p.type_name for p in derived.parameters}
    if len(derived.parameters) != 2 or len(type_names) != 1 or not spec.entity(next(iter(type_names))):
        hint = "declare two parameters with the same entity type, such as (a: Page, b: Page)"
        yield Diagnostic("E133", "'nearest' requires two parameters of one entity type", derived.span, hint)
        return
    if nearest.count < 1:
        yield Diagnostic("E133", "the number of nearest neighbours is less than 1", span)
        return
    scope = NameScope(spec, derived.parameters, None)
    kind, problems = infer_type(scope, measure)
    yield from problems
    if kind is None:
        return
    a, b = (p.name for p in derived.parameters)
    is_measure = isinstance(measure, e.FunctionCall) and measure.name in NEAREST_MEASURES
    arguments = tuple(children(measure))[:2] if is_measure else ()
    attributes = [x for x in arguments if isinstance(x, e.Attribute)]
    has_two_attributes = len(arguments) == len(attributes) == 2 and {x.binder for x in attributes} == {a, b}
    if not has_two_attributes or attributes[0].attribute != attributes[1].attribute:
        message = "'nearest' requires a measure of the same vector or string attribute of both parameters"
        example = f"{NEAREST_MEASURES[0]}({a}.v, {b}.v)"
        yield Diagnostic("E133", message, measure.span, f"use {listing(NEAREST_MEASURES)}, such as {example}")


def _required_atoms(where: e.Expression | None) -> Iterator[e.Atom]:
    return (part for part in conjuncts(where) if isinstance(part, e.Atom))


def _unguarded_attributes(node: e.Expression, required: frozenset[e.Atom]) -> Iterator[e.TupleAttribute]:
    """Yield the tuple attributes whose atom is not required: it is not a conjunct of an enclosing condition."""
    if isinstance(node, e.TupleAttribute) and node.atom not in required:
        yield node
    if isinstance(node, e.Aggregate):
        required |= frozenset(_required_atoms(node.where))
    for child in children(node):
        yield from _unguarded_attributes(child, required)


def _walk_excluding(formula: e.Expression, parts: tuple[e.Expression, ...]) -> Iterator[e.Expression]:
    """Yield a formula and its descendants, but neither `parts` nor descendants of `parts` or of atoms."""
    nodes = walk(formula, descend=lambda node: node not in parts and not isinstance(node, e.Atom))
    return (node for node in nodes if node not in parts)


def _typed_children(expression: e.Expression) -> Iterator[e.Expression]:
    """Yield the direct sub-expressions whose type is independent of the context: all except literals and bare names."""
    if isinstance(expression, e.Atom):
        return
    for child in children(expression):
        # The parser replaces an invalid operand of `in` by an attribute without a name.
        is_placeholder = isinstance(child, e.Attribute) and not child.binder
        if not isinstance(child, e.Name | e.Number | e.Text | e.Boolean) and not is_placeholder:
            yield child
