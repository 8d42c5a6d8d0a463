"""Validation of templates over predicted numbers."""

from __future__ import annotations

from collections.abc import Iterator

from relcrf.errors import Diagnostic, listing
from relcrf.language.render import render_expression
from relcrf.model.formula import is_table, numeric_terms, scope_terms
from relcrf.model.spec import Template
from relcrf.model.typing import NameScope


def check_numeric_terms(scope: NameScope, template: Template) -> Iterator[Diagnostic]:
    """Report a template over numbers that does not define a Gaussian distribution; its clauses are valid otherwise."""
    numbers = numeric_terms(template.over, scope)
    if not numbers:
        return
    first, span = render_expression(numbers[0]), template.over[0].span
    subject = "this rule" if template.name == "this rule" else f"'over' of '{template.name}'"
    others = [render_expression(term) for term in scope_terms(template.over, scope) if term not in numbers]
    if not is_table(template.over, scope):
        hint = f"list the terms, such as over {first}; features of a number are written in 'by'"
        yield Diagnostic("E160", f"{subject} is a formula over the number '{first}'", span, hint)
    elif len(numbers) > 2:
        hint = "write a template for each two of the numbers"
        yield Diagnostic("E160", f"{subject} lists {len(numbers)} numbers, but at most 2 are possible", span, hint)
    elif len(numbers) == 2 and others:
        hint = f"write a template over the two numbers, and one over {first}, {others[0]}"
        yield Diagnostic("E160", f"{subject} lists two numbers together with {listing(others)}", span, hint)
    elif template.symmetric:
        hint = "remove 'symmetric'; the weights of two numbers are symmetric"
        yield Diagnostic("E160", f"{subject} is symmetric, but lists the number '{first}'", span, hint)
    elif template.is_candidate:
        hint = "use 'template'; only factors over discrete variables are chosen by structure learning"
        yield Diagnostic("E160", f"the candidates '{template.name}' list the number '{first}'", span, hint)
