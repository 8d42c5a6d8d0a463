"""Summaries of templates in English, for hovers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relcrf.language.render import render_expression
from relcrf.model.expressions import Expression
from relcrf.model.formula import is_table, n_states, numeric_terms
from relcrf.model.spec import ModelSpec, Template
from relcrf.model.types import Bag, Vector
from relcrf.model.typing import NameScope, TypeCheckError


def summarize_template(template: Template, spec: ModelSpec) -> str:
    """Describe the factors and weights of a template in Markdown; after a type error, describe only the bindings."""
    scope = NameScope(spec, template.parameters, template.where)
    try:
        weights = _describe_weights(template, scope)
    except TypeCheckError:
        return f"{_describe_bindings(template)}: a pattern with a type error."
    sentences = [f"{_describe_bindings(template)}: {weights}.", *_remarks(template)]
    return " ".join(sentences)


def _describe_bindings(template: Template) -> str:
    """Describe the bindings that produce factors."""
    if not template.parameters:
        return "Once"
    binders = _join_with_and(f"{p.name} ({p.type_name})" for p in template.parameters)
    return f"For every {binders}" + (f" where {_format_code(template.where)}" if template.where is not None else "")


def _describe_weights(template: Template, scope: NameScope) -> str:
    options = template.options
    if not is_table(template.over, scope):
        formula = _format_code(template.over[0])
        if template.is_hard:
            return f"{formula} must hold"
        weight = (
            f"the fixed weight {options.initial_values[0]:g}"
            if options.fixed and options.initial_values
            else "one weight"
        )
        return f"{weight} for the truth of {formula}{_describe_weight_keys(template, scope)}"
    if numbers := numeric_terms(template.over, scope):
        return _describe_number_weights(template, numbers) + _describe_weight_keys(template, scope)
    states = [scope.type_of(item) for item in template.over]
    counts = [n_states(kind, scope.spec) for kind in states]
    if len(states) == 1:
        number = f", {counts[0]} in total" if counts[0] else ""
        return f"a weight for each state of {_format_code(template.over[0])}{number}" + _describe_weight_keys(
            template, scope
        )
    number = f", {' x '.join(map(str, counts))}" if all(counts) else ""
    same = ", the same in both orders" if template.symmetric else ""
    return (
        f"a weight for each joint state of {_join_with_and(map(_format_code, template.over))}{number}{same}"
        + _describe_weight_keys(template, scope)
    )


def _describe_number_weights(template: Template, numbers: Sequence[Expression]) -> str:
    terms = _join_with_and(map(_format_code, numbers))
    if len(numbers) == 2:
        return f"two weights, which link {terms}: one for their difference and one for their sum"
    others = [item for item in template.over if item not in numbers]
    states = f", for each state of {_join_with_and(map(_format_code, others))}" if others else ""
    return f"two weights{states}: one for the mean and one for the logarithm of the precision of {terms}"


def _describe_weight_keys(template: Template, scope: NameScope) -> str:
    """Describe the keys of the weights and the features that the weights multiply."""
    keys = f", separately for each {_join_with_and(map(_format_code, template.per))}" if template.per else ""
    if not template.by:
        return keys
    is_vector = any(isinstance(scope.type_of(feature), Vector | Bag) for feature in template.by)
    each = " (each of its components)" if is_vector and len(template.by) == 1 else ""
    return f"{keys}; separate weights for each feature: {_join_with_and(map(_format_code, template.by))}{each}"


def _remarks(template: Template) -> Iterable[str]:
    options = template.options
    if template.is_candidate:
        yield "Structure learning selects which factors are in the model."
    if options.weights is not None and options.weights != template.name:
        yield f"The weights are named `{options.weights}`; other templates can share them."
    if options.fixed and options.init is None and not template.is_hard:
        yield "The weights are not learned."


def _format_code(node: Expression) -> str:
    return f"`{render_expression(node)}`"


def _join_with_and(parts: Iterable[str]) -> str:
    words = list(parts)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
