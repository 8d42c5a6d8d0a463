"""The conversion of Markov logic rules to templates.

The variables of a rule `BODY => HEAD` are universally quantified. The rule is true if a conjunct of the body is false.
The conjuncts over evidence therefore become the `where` of the template; the rest of the rule becomes the formula.
"""

from __future__ import annotations

from dataclasses import replace

from relcrf.model import expressions as e
from relcrf.model.expressions import conjunction, conjuncts, optional_conjunction
from relcrf.model.spec import ModelSpec, Parameter, Rule, Template, WeightOptions
from relcrf.model.typing import NameScope


def all_templates(spec: ModelSpec) -> tuple[Template, ...]:
    """Return the templates and candidates, and the rules converted to templates, in the order of the text."""
    n_unnamed = 0
    templates = []
    for declaration in spec.all_declarations:
        if isinstance(declaration, Template):
            templates.append(declaration)
        elif isinstance(declaration, Rule):
            n_unnamed += declaration.name is None
            templates.append(rule_to_template(declaration, spec, f"rule {n_unnamed}"))
    return tuple(templates)


def rule_to_template(rule: Rule, spec: ModelSpec, name: str) -> Template:
    """Return the template that is equivalent to a rule.

    Args:
        name: the name of the template if the rule has no name, such as `rule 2`; declared names cannot contain a space.
    """
    scope = NameScope(spec, (), rule.formula)
    parameters = tuple(Parameter(n, sort, span=rule.span) for n, sort in scope.type_names.items())
    where, formula = _split_formula(rule.formula, scope)
    if isinstance(formula, e.Attribute):  # in `over`, a single attribute would be a table, not a formula
        formula = e.Comparison("==", formula, e.Boolean(True, span=formula.span), span=formula.span)
    options = rule.options
    if rule.weight is not None:
        options = replace(options, init=rule.weight, fixed=True)
    elif rule.is_hard:
        options = WeightOptions(fixed=True, weights=options.weights)
    return Template(
        rule.name or name,
        parameters,
        (formula,),
        where,
        rule.per,
        (),
        options,
        is_hard=rule.is_hard,
        as_of=rule.as_of,
        span=rule.span,
    )


def _split_formula(formula: e.Expression, scope: NameScope) -> tuple[e.Expression | None, e.Expression]:
    """Split a rule into a condition on evidence (None if there is none) and the remaining formula."""
    if not (isinstance(formula, e.Connective) and formula.operator == "=>"):
        return None, formula
    parts = conjuncts(formula.left)
    evidence = [part for part in parts if not scope.random_terms(part)]
    random = [part for part in parts if scope.random_terms(part)]
    head = formula.right
    if random and not scope.random_terms(head):
        # The head is evidence, so the template applies only where the head is false; the formula is the negated body.
        return conjunction([*evidence, e.Not(head, span=head.span)]), e.Not(conjunction(random), span=formula.left.span)
    return optional_conjunction(evidence), e.Connective(
        "=>", conjunction(random), head, span=formula.span
    ) if random else head
