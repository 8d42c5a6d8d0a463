"""Whether a specification's declarations fit together: all mistakes, one diagnostic for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from relcrf.errors import Diagnostic, ModelError, Span, listing, suggestion
from relcrf.language import clauses, declarations, lint, recursion
from relcrf.language.unparsed import may_be_consequence
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

_CODES_REPORTED_ONCE = frozenset({"E101", "E102", "E120"})
"""One wrong name is one mistake, wherever else in the model it stands; `E104` within its declaration."""

_TYPE_ERROR_CODES = frozenset({"E110", "E111"})
"""What a value of this type cannot do."""


def check(spec: ModelSpec, syntax_errors: Iterable[Diagnostic] = ()) -> list[Diagnostic]:
    """Every mistake and doubt, in the order of the text.

    Args:
        syntax_errors: what `read` could not parse. Mistakes that may only follow from these are left out.
    """
    syntax_errors = list(syntax_errors)
    found = [d for d in _check_declarations(spec) if not may_be_consequence(d, syntax_errors)]
    return _deduplicate(sorted(found, key=line_and_column), _CODES_REPORTED_ONCE)


def require_valid(spec: ModelSpec, syntax_errors: Iterable[Diagnostic] = ()) -> list[Diagnostic]:
    """The warnings of a model without errors.

    Args:
        syntax_errors: errors that parsing has already found.

    Raises:
        ModelError: with all errors, of parsing and of checking.
    """
    syntax_errors = list(syntax_errors)
    found = check(spec, syntax_errors)
    errors = syntax_errors + [d for d in found if d.is_error]
    if errors:
        raise ModelError(sorted(errors, key=line_and_column))
    return found


def line_and_column(diagnostic: Diagnostic) -> tuple[int, int]:
    """Return where a diagnostic stands in its text, (0, 0) where nowhere."""
    span = diagnostic.location
    return (span.line, span.column) if isinstance(span, Span) else (0, 0)


def _deduplicate(found: Iterable[Diagnostic], codes: Container[str]) -> list[Diagnostic]:
    """The diagnostics, those of some codes only once for each message, with a note of the other lines.

    So is what an attribute's type cannot do: said of `a.size`, it need not be said of `b.size`.
    """
    kept: list[Diagnostic] = []
    first: dict[str, int] = {}
    lines: dict[str, list[int]] = {}
    for diagnostic in found:
        attribute = _attribute_name(diagnostic)
        mistake = diagnostic.message if diagnostic.code in codes else f"{attribute}: {diagnostic.message}"
        if mistake not in first or not (attribute or diagnostic.code in codes):
            first.setdefault(mistake, len(kept))
            kept.append(diagnostic)
        else:
            lines.setdefault(mistake, []).append(line_and_column(diagnostic)[0])
    for mistake, others in lines.items():
        k = first[mistake]
        elsewhere = sorted({line for line in others if line != line_and_column(kept[k])[0]})
        if elsewhere:
            where = "line" if len(elsewhere) == 1 else "lines"
            kept[k] = replace(kept[k], notes=(*kept[k].notes, f"also in {where} {listing(map(str, elsewhere))}"))
    return kept


def _attribute_name(diagnostic: Diagnostic) -> str:
    """The attribute that a type error is about, `size` of `a.size`; empty for others."""
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
    for random in spec.random_relations:
        yield from _check_random_relation(spec, random)
    yield from recursion.check_recursion(spec)
    for derived in spec.derived_relations:
        yield from _check_derived_relation(spec, derived)
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
        hint = "without templates or rules there is nothing to learn"
        yield Diagnostic("E138", "the model has no template", _end_of_text(spec), hint)


def _end_of_text(spec: ModelSpec) -> Span | None:
    """The end of the text, for what is missing in the whole."""
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
        yield from _deduplicate(clauses.check_condition(scope, relation.where), {"E104"})


def _check_derived_relation(spec: ModelSpec, derived: DerivedRelation) -> Iterator[Diagnostic]:
    yield from declarations.check_parameters(spec, derived)
    if not declarations.has_known_types(spec, derived.parameters):
        return
    if isinstance(derived.definition, NearestNeighbours):
        yield from clauses.check_nearest(spec, derived, derived.definition)
        return
    scope = NameScope(spec, derived.parameters, derived.definition)
    problems = list(clauses.check_condition(scope, derived.definition))
    yield from _deduplicate(problems, {"E104"})
    if not problems and not clauses.has_broken_condition(scope):
        yield from lint.check_connected_binders(scope, derived.name, derived.span)


def _check_template(spec: ModelSpec, template: Template) -> Iterator[Diagnostic]:
    yield from declarations.check_parameters(spec, template)
    yield from _check_options(template)
    if declarations.has_known_types(spec, template.parameters):
        yield from _check_template_clauses(spec, template)


def _check_template_clauses(spec: ModelSpec, template: Template) -> Iterator[Diagnostic]:
    scope = NameScope(spec, template.parameters, template.where)
    problems = list(clauses.check_template(spec, template))
    yield from _deduplicate(problems, {"E104"})
    if not problems and not clauses.has_broken_condition(scope):
        doubts = list(lint.check_connected_binders(scope, template.name, template.span, template.over))
        yield from doubts or lint.check_duplicate_grounding(spec, template)


def _check_options(template: Template | Rule) -> Iterator[Diagnostic]:
    name = f"'{template.name}'" if template.name else "this rule"
    for option, strength in (("l1", template.options.l1), ("l2", template.options.l2)):
        if strength is not None and strength < 0:
            yield Diagnostic("E135", f"the penalty {option} of {name} is negative", template.span)
    weight = template.weight if isinstance(template, Rule) else None
    if weight == 0 or (template.options.fixed and not any(template.options.initial_values) and weight is None):
        hint = "give the weight with 'init', or leave 'fixed' out"
        yield Diagnostic("W202", f"the weights of {name} are fixed at 0: it does nothing", template.span, hint)


def _check_rule(spec: ModelSpec, rule: Rule) -> Iterator[Diagnostic]:
    yield from _check_options(rule)
    if rule.is_hard and (rule.per or rule.options != WeightOptions()):
        message = "a hard rule has no weight"
        yield Diagnostic("E144", message, rule.span, "leave 'per' and the options out")
    elif rule.weight is not None and (rule.options.init is not None or rule.options.fixed):
        message = "a rule with a weight is fixed at it"
        yield Diagnostic("E144", message, rule.span, "leave the weight or the option out")
    scope = NameScope(spec, (), rule.formula)
    if any(spec.entity(s) is None and spec.domain(s) is None for s in scope.type_names.values()):
        return
    _, problems = clauses.infer_type(scope, rule.formula)
    yield from _deduplicate(problems, {"E104"})
    if not problems and not clauses.has_broken_condition(scope):
        yield from _check_template_clauses(spec, rule_to_template(rule, spec, "this rule"))


def _check_gates(spec: ModelSpec) -> Iterator[Diagnostic]:
    templates = {t.name: t for t in all_templates(spec)}
    seen: set[str] = set()
    for gate in spec.gates:
        template = templates.get(gate.template)
        if template is None:
            yield _unknown_template(gate, templates)
        elif gate.template in seen:
            yield Diagnostic("E142", f"'{gate.template}' has two gates", gate.span, "join their features with ','")
        elif declarations.has_known_types(spec, template.parameters):
            scope = NameScope(spec, template.parameters, template.where)
            for feature in gate.by:
                yield from clauses.check_feature(scope, feature, replace(template, by=gate.by, per=()))
        seen.add(gate.template)


def _unknown_template(gate: Gate, templates: Iterable[str]) -> Diagnostic:
    known = [name for name in templates if " " not in name]
    hint = suggestion(gate.template, known) or (f"the templates are {listing(known)}" if known else None)
    return Diagnostic("E142", f"there is no template '{gate.template}' for a gate", gate.span, hint)


def _check_shared_weights(spec: ModelSpec) -> Iterator[Diagnostic]:
    first: dict[str, Template] = {}
    every = all_templates(spec)
    uses = Counter(t.weights for t in every)
    for template in every:
        if template.options.weights is not None and uses[template.weights] == 1:
            message = f"'{template.name}' shares the weights '{template.weights}' with no other template"
            names = [t.name for t in every if t is not template and " " not in t.name]
            hint = suggestion(template.weights, names) or "leave 'weights' out, or name them in another template, too"
            yield Diagnostic("E140", message, template.span, hint)
    templates = [t for t in every if uses[t.weights] > 1 and declarations.has_known_types(spec, t.parameters)]
    for template in sorted(templates, key=lambda t: t.weights != t.name):
        other = first.setdefault(template.weights, template)
        if other is template or template.weights == template.name or list(clauses.check_template(spec, template)):
            continue
        if list(clauses.check_template(spec, other)):
            continue
        if not clauses.have_same_weight_shape(spec, template, other):
            message = f"the weights of '{template.name}' and '{other.name}' have different shapes"
            hint = "templates that share weights have the same patterns in 'over', keys in 'per' and features in 'by'"
            yield Diagnostic("E140", message, template.span, hint)
        elif replace(template.options, weights=None) not in (WeightOptions(), replace(other.options, weights=None)):
            message = f"'{template.name}' and '{other.name}' share weights and have different options"
            yield Diagnostic("E140", message, template.span, f"give the options to '{other.name}' alone")
