"""Rules as templates: the sugar of Markov logic taken off.

A rule `B1 and B2 => H` speaks of all values that its names can take. What its body demands of the evidence goes to `where`,
since a rule whose body cannot hold says nothing of the unknown; the rest is the formula of `over`.
"""

from __future__ import annotations

from dataclasses import replace

from relcrf.model import expressions as e
from relcrf.model.expressions import conjunction, conjuncts, optional_conjunction
from relcrf.model.spec import ModelSpec, Parameter, Rule, Template, WeightOptions
from relcrf.model.typing import NameScope


def all_templates(spec: ModelSpec) -> tuple[Template, ...]:
    """Everything that carries weight: templates, candidates, and rules, in the order of the text."""
    unnamed = 0
    found = []
    for declaration in spec.all_declarations:
        if isinstance(declaration, Template):
            found.append(declaration)
        elif isinstance(declaration, Rule):
            unnamed += declaration.name is None
            found.append(rule_to_template(declaration, spec, f"rule {unnamed}"))
    return tuple(found)


def rule_to_template(rule: Rule, spec: ModelSpec, name: str) -> Template:
    """The template that a rule stands for.

    Args:
        name: what it is called where the rule has no name; `rule 2` is the second such, which no template can be called.
    """
    scope = NameScope(spec, (), rule.formula)
    parameters = tuple(Parameter(n, sort, span=rule.span) for n, sort in scope.type_names.items())
    where, formula = _split_formula(rule.formula, scope)
    if isinstance(formula, e.Attribute):  # alone it would be a table, and a rule is a formula
        formula = e.Comparison("==", formula, e.Boolean(True, span=formula.span), span=formula.span)
    options = rule.options
    if rule.weight is not None:
        options = replace(options, init=rule.weight, fixed=True)
    elif rule.is_hard:
        options = WeightOptions(fixed=True, weights=options.weights)
    return Template(
        rule.name or name, parameters, (formula,), where, rule.per, (), options, is_hard=rule.is_hard, span=rule.span
    )


def _split_formula(formula: e.Expression, scope: NameScope) -> tuple[e.Expression | None, e.Expression]:
    """What the body demands of the evidence, and the formula that is left."""
    if not (isinstance(formula, e.Connective) and formula.operator == "=>"):
        return None, formula
    parts = conjuncts(formula.left)
    evidence = [part for part in parts if not scope.random_terms(part)]
    random = [part for part in parts if scope.random_terms(part)]
    head = formula.right
    if random and not scope.random_terms(head):
        # The head is known: where it fails, the body must.
        return conjunction([*evidence, e.Not(head, span=head.span)]), e.Not(conjunction(random), span=formula.left.span)
    return optional_conjunction(evidence), e.Connective(
        "=>", conjunction(random), head, span=formula.span
    ) if random else head
