"""The state patterns of an `over` clause: which joint states of its random terms each weight speaks of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding.lower import LoweredTemplate
from relcrf.language.render import render_expression
from relcrf.model.expressions import Atom, Attribute, Boolean, Comparison, Connective, Expression, Not
from relcrf.model.types import Bool, DomainType

MAX_PATTERNS = 1_000_000

_COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def count_patterns(lowered: LoweredTemplate, values: list[tuple[str, ...]]) -> int:
    """How many patterns a template has.

    Args:
        values: the values of each random term's domain, in the order of `lowered.terms`.
    """
    if not lowered.is_table:
        return 1
    sizes = [len(v) for v in values]
    return sizes[0] * (sizes[0] + 1) // 2 if lowered.template.symmetric else int(np.prod([float(n) for n in sizes]))


def pattern_names(lowered: LoweredTemplate, values: list[tuple[str, ...]]) -> tuple[str, ...]:
    """How each pattern is spelt: a formula as in the model, a joint state by its values.

    Raises:
        UsageError: where a table has more states than can be listed.
    """
    if not lowered.is_table:
        return (render_expression(lowered.template.over[0]),)
    if count_patterns(lowered, values) > MAX_PATTERNS:
        message = f"the table of template '{lowered.template.name}' has more than a million states"
        raise UsageError(Diagnostic("E321", message, hint="use a formula in 'over', such as a.x == b.x"))
    if lowered.template.symmetric:
        (known, _) = values
        return tuple(f"{a}, {b}" for k, a in enumerate(known) for b in known[k:])
    return tuple(", ".join(states) for states in product(*values))


def state_patterns(
    lowered: LoweredTemplate, values: list[tuple[str, ...]], evidence: Mapping[Expression, int]
) -> np.ndarray | None:
    """The patterns, shape (n_joint_states, n_patterns); None for a table, whose patterns are the identity.

    A hard formula has 0 where it holds and -1 where it fails, so that its weight is the price of failing.

    Args:
        values: the values of each random term's domain, in the order of `lowered.terms`.
        evidence: truth (0 or 1) or code (-1 where missing) of each part of the formula that speaks of evidence.
    """
    if lowered.is_table:
        return _symmetric_patterns(len(values[0])) if lowered.template.symmetric else None
    states = np.indices([len(v) for v in values]).reshape(len(values), -1)
    truth = _FormulaEvaluator(lowered, states, values, evidence).evaluate(lowered.template.over[0]).astype(np.float64)
    return (truth - 1.0 if lowered.template.is_hard else truth)[:, None]


def _symmetric_patterns(size: int) -> np.ndarray:
    """Of a table and its transpose, one pattern for each unordered pair of states."""
    row, column = np.triu_indices(size)
    patterns = np.zeros((size, size, len(row)))
    patterns[row, column, np.arange(len(row))] = 1.0
    patterns[column, row, np.arange(len(row))] = 1.0
    return patterns.reshape(size * size, len(row))


class _FormulaEvaluator:
    """Evaluates a formula at every joint state at once."""

    def __init__(
        self,
        lowered: LoweredTemplate,
        states: np.ndarray,
        values: list[tuple[str, ...]],
        evidence: Mapping[Expression, int],
    ) -> None:
        self.scope, self.terms = lowered.scope, lowered.terms
        self.states, self.values, self.evidence = states, values, evidence

    def evaluate(self, node: Expression) -> np.ndarray:
        if node in self.evidence:
            return np.full(self.states.shape[1], self.evidence[node] == 1)
        match node:
            case Boolean(value):
                return np.full(self.states.shape[1], value)
            case Attribute() | Atom():
                return np.asarray(self.states[self.terms.index(node)] == 1)
            case Not(operand):
                return ~self.evaluate(operand)
            case Connective(operator, left, right):
                a, b = self.evaluate(left), self.evaluate(right)
                return np.asarray({"and": a & b, "or": a | b, "=>": ~a | b, "<=>": a == b}[operator])
            case Comparison(operator, left, right):
                return self._evaluate_comparison(operator, left, right)
        raise AssertionError(f"the checker lets no {type(node).__name__} into a formula")

    def _evaluate_comparison(self, operator: str, left: Expression, right: Expression) -> np.ndarray:
        kinds = self.scope.operand_types(Comparison(operator, left, right))
        domain = next((kind.domain for kind in kinds if isinstance(kind, DomainType)), None)
        if domain is None:
            assert isinstance(kinds[0], Bool)
            if any(self.evidence.get(side, 0) < 0 for side in (left, right)):
                return np.zeros(self.states.shape[1], dtype=bool)  # missing evidence makes a comparison not hold
            return np.asarray(_COMPARE[operator](self.evaluate(left), self.evaluate(right)))
        sides = [self._state_numbers(node, domain) for node in (left, right)]
        # Missing evidence makes a comparison not hold; a value that the data does not have is another than all it has.
        known = np.logical_and(*(side != _MISSING for side in sides))
        return np.asarray(_COMPARE[operator](*sides) & known)

    def _state_numbers(self, node: Expression, domain: str) -> np.ndarray:
        """A side of a comparison as state numbers."""
        if node in self.evidence:
            code = self.evidence[node]
            return np.asarray(_MISSING if code < 0 else code)
        if node in self.terms:
            return np.asarray(self.states[self.terms.index(node)])
        constant = self.scope.constant_value(node, domain)
        known = next(
            v for t, v in zip(self.terms, self.values, strict=True) if self.scope.type_of(t) == DomainType(domain)
        )
        return np.asarray(known.index(constant) if constant in known else _UNKNOWN)


_UNKNOWN, _MISSING = -1, -2
