"""Validation of a model specification; every error and warning is reported as a diagnostic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from relcrf.errors import Diagnostic, ModelError, Span, listing, suggestion
from relcrf.language import clauses, declarations, lint, recursion, times
from relcrf.language.unparsed import may_be_consequence
from relcrf.model.as_of import feature_inputs, restrict
from relcrf.model.expressions import conjuncts
from relcrf.model.formula import numeric_terms
from relcrf.model.rules import all_templates, rule_to_template
from relcrf.model.spec import (
    DerivedRelation,
    Gate,
    ModelSpec,
    NearestNeighbours,
    RandomRelation,
    Rule,
    Template,
    WeightOptions,
)
from relcrf.model.typing import NameScope

_CODES_REPORTED_ONCE = frozenset({"E101", "E102", "E120", "W207"})
"""Diagnostics with one of these codes and equal messages are reported once per model (`E104`: once per declaration)."""

_TYPE_ERROR_CODES = frozenset({"E110", "E111", "E129"})
"""Codes of type errors; errors about one attribute and the same type of it are reported once."""

_FOUND_TYPE = re.compile(r"(?:^|, not )(an? \w+)(?: cannot be |$)")
"""The type of an attribute in the message of a type error: `log takes numbers, not a vector`, `a vector cannot be compared`."""


def check(spec: ModelSpec, syntax_errors: Iterable[Diagnostic] = ()) -> list[Diagnostic]:
    """Return all errors and warnings of a specification, in the order of the text.

    Args:
        syntax_errors: diagnostics of the parser. An error that may be a consequence of a syntax error is omitted.
    """
    syntax_errors = list(syntax_errors)
    diagnostics = [d for d in _check_declarations(spec) if not may_be_consequence(d, syntax_errors)]
    return _deduplicate(sorted(diagnostics, key=line_and_column), _CODES_REPORTED_ONCE)


def require_valid(spec: ModelSpec, syntax_errors: Iterable[Diagnostic] = ()) -> list[Diagnostic]:
    """Return the warnings of a valid model.

    Args:
        syntax_errors: diagnostics of the parser.

    Raises:
        ModelError: if there are errors; it contains all errors of the parser and of the checker.
    """
    syntax_errors = list(syntax_errors)
    diagnostics = check(spec, syntax_errors)
    errors = syntax_errors + [d for d in diagnostics if d.is_error]
    if errors:
        raise ModelError(sorted(errors, key=line_and_column))
    return diagnostics


def line_and_column(diagnostic: Diagnostic) -> tuple[int, int]:
    """Return the line and column of a diagnostic; (0, 0) if it has no location in the text."""
    span = diagnostic.location
    return (span.line, span.column) if isinstance(span, Span) else (0, 0)


def _deduplicate(diagnostics: Iterable[Diagnostic], codes: Container[str]) -> list[Diagnostic]:
    """Return the diagnostics without repetitions; a note on the first occurrence lists the lines of the repetitions.

    Diagnostics with one of `codes` are repetitions if their messages are equal. Type errors are repetitions if they concern
    one attribute and name the same type of it: if `size` is a vector, all its uses as a number have this cause. Their messages
    are in the note if they differ.
    """
    unique: list[Diagnostic] = []
    first_index: dict[str, int] = {}
    repetitions: dict[str, dict[str, set[int]]] = {}
    for diagnostic in diagnostics:
        attribute = _attribute_name(diagnostic)
        found_type = _FOUND_TYPE.search(diagnostic.message)
        subject = found_type[1] if attribute and found_type else diagnostic.message
        key = diagnostic.message if diagnostic.code in codes else f"{attribute}: {subject}"
        if key not in first_index or not (attribute or diagnostic.code in codes):
            first_index.setdefault(key, len(unique))
            unique.append(diagnostic)
        else:
            lines = repetitions.setdefault(key, {}).setdefault(diagnostic.message, set())
            lines.add(line_and_column(diagnostic)[0])
    for key, lines_of in repetitions.items():
        k = first_index[key]
        first = unique[k]
        notes = [
            f"also in {'line' if len(lines) == 1 else 'lines'} {listing(map(str, sorted(lines)))}"
            + ("" if message == first.message else f": {message}")
            for message, all_lines in lines_of.items()
            if (lines := all_lines - ({line_and_column(first)[0]} if message == first.message else set()))
        ]
        unique[k] = replace(first, notes=(*first.notes, *notes))
    return unique


def _attribute_name(diagnostic: Diagnostic) -> str:
    """Return the attribute that a type error concerns, such as `size` in `a.size`; empty for other diagnostics."""
    span = diagnostic.location
    if diagnostic.code not in _TYPE_ERROR_CODES or not isinstance(span, Span) or span.line != span.end_line:
        return ""
    text = span.source.text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1]
    return text.partition(".")[2].strip()


def _check_declarations(spec: ModelSpec) -> Iterator[Diagnostic]:
    yield from declarations.check_names(spec)
    for domain in spec.domains:
        yield from declarations.check_domain(domain)
    for entity in spec.entities:
        yield from declarations.check_attributes(spec, entity)
    for relation in spec.relations:
        yield from declarations.check_parameters(spec, relation)
        yield from declarations.check_attributes(spec, relation)
    yield from times.check_times(spec)
    for random in spec.random_relations:
        yield from _check_random_relation(spec, random)
    yield from recursion.check_recursion(spec)
    for derived in spec.derived_relations:
        yield from _check_derived_relation(spec, derived)
    for feature in spec.features:
        yield from declarations.check_parameters(spec, feature)
        if declarations.has_known_types(spec, feature.parameters):
            problems = list(clauses.check_feature_definition(spec, feature)) or list(times.check_as_of(spec, feature))
            yield from problems or lint.check_misspelt_values(
                NameScope(spec, feature.parameters, None), feature_inputs(feature)
            )
    for template in spec.templates:
        yield from _check_template(spec, template)
    for rule in spec.rules:
        yield from _check_rule(spec, rule)
    yield from _check_gates(spec)
    yield from _check_shared_weights(spec)
    if not clauses.random_names(spec):
        hint = "mark an attribute or a relation with 'predict'"
        yield Diagnostic("E137", "the model predicts nothing", _end_of_text(spec), hint)
    if not spec.templates and not spec.rules:
        hint = "add a template or a rule; without one there is nothing to learn"
        yield Diagnostic("E138", "the model has no template", _end_of_text(spec), hint)


def _end_of_text(spec: ModelSpec) -> Span | None:
    """Return the span of the end of the text, which is the location of diagnostics about the whole model."""
    source = spec.source
    if source is None:
        return None
    lines = source.text.rstrip("\n").split("\n")
    return Span(source, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2)


def _check_random_relation(spec: ModelSpec, relation: RandomRelation) -> Iterator[Diagnostic]:
    yield from declarations.check_parameters(spec, relation)
    yield from declarations.check_random_type(spec, relation)
    if declarations.has_known_types(spec, relation.parameters) and relation.where is not None:
        scope = NameScope(spec, relation.parameters, relation.where)
        problems = list(_deduplicate(clauses.check_condition(scope, relation.where), {"E104"}))
        yield from problems or lint.check_misspelt_values(scope, [relation.where])


def _check_derived_relation(spec: ModelSpec, derived: DerivedRelation) -> Iterator[Diagnostic]:
    yield from declarations.check_parameters(spec, derived)
    if not declarations.has_known_types(spec, derived.parameters):
        return
    if isinstance(derived.definition, NearestNeighbours):
        problems = list(clauses.check_nearest(spec, derived, derived.definition))
        yield from problems or times.check_as_of(spec, derived)
        return
    scope = NameScope(spec, derived.parameters, derived.definition)
    problems = list(clauses.check_condition(scope, derived.definition)) or list(times.check_as_of(spec, derived))
    yield from _deduplicate(problems, {"E104"})
    if not problems and not clauses.has_broken_condition(scope):
        yield from lint.check_connected_binders(scope, derived.name, derived.span)
        yield from lint.check_misspelt_values(scope, [derived.definition])


def _check_template(spec: ModelSpec, template: Template) -> Iterator[Diagnostic]:
    yield from declarations.check_parameters(spec, template)
    yield from _check_options(template)
    if declarations.has_known_types(spec, template.parameters):
        yield from _check_template_clauses(spec, template)


def _check_template_clauses(spec: ModelSpec, template: Template) -> Iterator[Diagnostic]:
    scope = NameScope(spec, template.parameters, template.where)
    problems = list(clauses.check_template(spec, template)) or list(times.check_as_of(spec, template))
    if template.is_candidate:
        problems += clauses.check_not_learned(spec, template.by, f"'{template.name}'")
    yield from _deduplicate(problems, {"E104"})
    if not problems and not clauses.has_broken_condition(scope):
        warnings = list(lint.check_connected_binders(scope, template.name, template.span, template.over))
        yield from warnings or lint.check_duplicate_grounding(spec, restrict(spec, template))
        clauses_of_template = (*conjuncts(template.where), *template.over, *template.per, *template.by)
        yield from lint.check_misspelt_values(scope, clauses_of_template)


def _check_options(template: Template | Rule) -> Iterator[Diagnostic]:
    name = f"'{template.name}'" if template.name else "this rule"
    for option, strength in (("l1", template.options.l1), ("l2", template.options.l2)):
        if strength is not None and strength < 0:
            yield Diagnostic("E135", f"the penalty {option} of {name} is negative", template.span)
    weight = template.weight if isinstance(template, Rule) else None
    if weight == 0 or (template.options.fixed and not any(template.options.initial_values) and weight is None):
        hint = "set the weight with 'init', or remove 'fixed'"
        yield Diagnostic("W202", f"{name} has no effect because its weights are fixed at 0", template.span, hint)


def _check_rule(spec: ModelSpec, rule: Rule) -> Iterator[Diagnostic]:
    yield from _check_options(rule)
    if rule.is_hard and (rule.per or rule.options != WeightOptions()):
        message = "a hard rule has no weight"
        yield Diagnostic("E144", message, rule.span, "remove 'per' and the options")
    elif rule.weight is not None and (rule.options.init is not None or rule.options.fixed):
        message = "the number already fixes the weight of this rule"
        yield Diagnostic("E144", message, rule.span, "remove the number after 'rule', or remove 'init' and 'fixed'")
    scope = NameScope(spec, (), rule.formula)
    if any(spec.entity(s) is None and spec.domain(s) is None for s in scope.type_names.values()):
        return
    _, problems = clauses.infer_type(scope, rule.formula)
    yield from _deduplicate(problems, {"E104"})
    if not problems and not clauses.has_broken_condition(scope):
        yield from _check_template_clauses(spec, rule_to_template(rule, spec, "this rule"))
        yield from lint.check_misspelt_values(scope, [rule.formula, *rule.per])


def _check_gates(spec: ModelSpec) -> Iterator[Diagnostic]:
    templates = {t.name: t for t in all_templates(spec)}
    gated: set[str] = set()
    for gate in spec.gates:
        template = templates.get(gate.template)
        if template is None:
            yield _unknown_template(gate, templates)
        elif gate.template in gated:
            hint = f"merge them: gate {gate.template} by FEATURE, FEATURE"
            yield Diagnostic("E142", f"'{gate.template}' has two gates", gate.span, hint)
        elif declarations.has_known_types(spec, template.parameters):
            scope = NameScope(spec, template.parameters, template.where)
            has_types = all(clauses.infer_type(scope, item)[0] is not None for item in template.over)
            if has_types and (numbers := numeric_terms(template.over, scope)):
                message = (
                    f"'{gate.template}' has a gate, but lists the number '{clauses.render_expression(numbers[0])}'"
                )
                yield Diagnostic("E160", message, gate.span, "remove the gate; only discrete variables have gates")
            problems = [
                problem
                for feature in gate.by
                for problem in clauses.check_feature(scope, feature, replace(template, by=gate.by, per=()))
            ]
            problems += clauses.check_not_learned(spec, gate.by, f"the gate of '{gate.template}'")
            problems += times.check_gate_as_of(spec, gate, template)
            yield from problems
            if not problems and not clauses.has_broken_condition(scope):
                yield from lint.check_misspelt_values(scope, gate.by)
        gated.add(gate.template)


def _unknown_template(gate: Gate, templates: Iterable[str]) -> Diagnostic:
    names = [name for name in templates if " " not in name]
    hint = suggestion(gate.template, names) or (f"the templates are {listing(names)}" if names else None)
    return Diagnostic("E142", f"unknown template '{gate.template}' of a gate", gate.span, hint)


def _check_shared_weights(spec: ModelSpec) -> Iterator[Diagnostic]:
    first: dict[str, Template] = {}
    templates = all_templates(spec)
    uses = Counter(t.weights for t in templates)
    for template in templates:
        if template.options.weights is not None and uses[template.weights] == 1:
            message = f"no other template uses the weights '{template.weights}' of '{template.name}'"
            names = [t.name for t in templates if t is not template and " " not in t.name]
            hint = suggestion(template.weights, names) or "remove 'weights', or use the same name in another template"
            yield Diagnostic("E140", message, template.span, hint)
    sharing = [t for t in templates if uses[t.weights] > 1 and declarations.has_known_types(spec, t.parameters)]
    for template in sorted(sharing, key=lambda t: t.weights != t.name):
        reference = first.setdefault(template.weights, template)
        if reference is template or template.weights == template.name or list(clauses.check_template(spec, template)):
            continue
        if list(clauses.check_template(spec, reference)):
            continue
        if not clauses.have_same_weight_shape(spec, template, reference):
            message = f"the weights of '{template.name}' and '{reference.name}' have different shapes"
            hint = "templates that share weights need the same patterns in 'over', keys in 'per' and features in 'by'"
            yield Diagnostic("E140", message, template.span, hint)
        elif replace(template.options, weights=None) not in (WeightOptions(), replace(reference.options, weights=None)):
            message = f"'{template.name}' and '{reference.name}' share weights but have different options"
            yield Diagnostic("E140", message, template.span, f"set the options only in '{reference.name}'")
