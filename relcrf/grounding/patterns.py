"""State patterns of an `over` clause: the joint states of the random terms to which each weight applies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np

from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.memory import MemoryUse, require_memory
from relcrf.grounding.lower import LoweredTemplate
from relcrf.language.render import render_expression
from relcrf.model.expressions import Atom, Attribute, Boolean, Comparison, Connective, Expression, Not
from relcrf.model.types import Bool, DomainType, Real

MAX_PATTERNS = 1_000_000
"""Maximum number of patterns of a table."""

ARRAYS_PER_FORMULA = 4
"""Number of arrays with a number for each joint state, besides the states themselves, while a formula is evaluated."""

MIN_PATTERN_BYTES = 1 << 20
"""Size of patterns below which the available memory is not queried, which would take longer than the patterns."""

NUMBER_PATTERNS = ("mean", "log precision")
"""Names of the weights of a feature in a template over one number."""

NUMERIC_PAIR_PATTERNS = ("log difference", "log sum")
"""Names of the weights of a feature in a template over two numbers: the logarithms of the weights d and s of the squared
difference and the squared sum, see `graph/numeric_graph.py`."""

COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
"""The functions of the comparison operators of the language."""


def count_numbers(lowered: LoweredTemplate) -> int:
    """Return the number of random terms that are numbers."""
    return sum(isinstance(kind, Real) for kind in lowered.term_types)


def count_patterns(lowered: LoweredTemplate, values: Sequence[Sequence[str]]) -> int:
    """Return the number of patterns of a template.

    Args:
        values: values of each random term's domain, in the order of `lowered.terms`.
    """
    if not lowered.is_table:
        return 1
    sizes = [len(v) for v in values]
    n_joint_states = math.prod(sizes)
    if count_numbers(lowered):
        return 2 * n_joint_states
    return sizes[0] * (sizes[0] + 1) // 2 if lowered.template.symmetric else n_joint_states


def is_agreement(lowered: LoweredTemplate) -> bool:
    """Return True if a template is an agreement: the formula `a == b` of two random terms of one domain."""
    if lowered.is_table or len(lowered.terms) != 2 or lowered.template.is_hard:
        return False
    match lowered.template.over[0]:
        case Comparison(operator="==", left=left, right=right):
            return len(set(lowered.term_types)) == 1 and {left, right} == set(lowered.terms)
    return False


def require_pattern_memory(lowered: LoweredTemplate, values: Sequence[Sequence[str]], limit: int | None) -> None:
    """Reject a formula or a symmetric table over so many joint states that its patterns exceed the memory.

    Args:
        limit: The user's limit in bytes; None permits all available memory.

    Raises:
        UsageError: The patterns need more memory than is available or allowed (E435).
    """
    sizes = [len(v) for v in values]
    if lowered.is_table and not lowered.template.symmetric:
        return  # the patterns are the identity matrix, which is not stored
    # A symmetric table stores a pattern for each pair; a formula is evaluated on arrays of all joint states.
    n_arrays = count_patterns(lowered, values) if lowered.is_table else len(sizes) + ARRAYS_PER_FORMULA
    name = f"joint states of '{lowered.template.name}' ({' x '.join(f'{n:,}' for n in sizes)})"
    use = MemoryUse(name, 8 * math.prod(sizes) * n_arrays)
    if use.n_bytes > MIN_PATTERN_BYTES:
        require_memory((use,), f"template '{lowered.template.name}'", limit)


def pattern_names(lowered: LoweredTemplate, values: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the text of each pattern: the formula as in the model or, for a table, the values of each joint state.

    Raises:
        UsageError: if a table has more than `MAX_PATTERNS` states.
    """
    if not lowered.is_table:
        return (render_expression(lowered.template.over[0]),)
    if count_patterns(lowered, values) > MAX_PATTERNS:
        message = f"the table of template '{lowered.template.name}' has more than a million states"
        raise UsageError(Diagnostic("E321", message, hint="use a formula in 'over' instead, such as a.x == b.x"))
    if count_numbers(lowered) == 2:
        return NUMERIC_PAIR_PATTERNS
    if count_numbers(lowered):
        discrete = [v for v, kind in zip(values, lowered.term_types, strict=True) if not isinstance(kind, Real)]
        states = ["".join(f"{state}, " for state in joint) for joint in product(*discrete)]
        return tuple(f"{state}{quantity}" for quantity in NUMBER_PATTERNS for state in states)
    if lowered.template.symmetric:
        (state_names, _) = values
        return tuple(f"{a}, {b}" for k, a in enumerate(state_names) for b in state_names[k:])
    return tuple(map(", ".join, product(*values)))


def state_patterns(
    lowered: LoweredTemplate, values: Sequence[Sequence[str]], evidence: Mapping[Expression, int]
) -> np.ndarray | None:
    """Return the patterns, shape (n_joint_states, n_patterns); None for a table, whose patterns are the identity matrix.

    The pattern of a hard formula is 0 in states in which the formula is true and -1 in all other states, so that the weight is
    the cost of a violation.

    Args:
        values: values of each random term's domain, in the order of `lowered.terms`.
        evidence: truth value (0 or 1) or code (-1 if missing) of each subexpression that depends on evidence.
    """
    if count_numbers(lowered):
        # Both weights of a joint state; the factors of numbers are not products of patterns, see `graph/numeric_graph.py`.
        n_joint_states = math.prod(map(len, values))
        return np.tile(np.eye(n_joint_states), 2)
    if lowered.is_table:
        return _symmetric_patterns(len(values[0])) if lowered.template.symmetric else None
    states = np.indices([len(v) for v in values]).reshape(len(values), -1)
    truth = _FormulaEvaluator(lowered, states, values, evidence).evaluate(lowered.template.over[0]).astype(np.float64)
    return (truth - 1.0 if lowered.template.is_hard else truth)[:, None]


def _symmetric_patterns(size: int) -> np.ndarray:
    """Return the patterns of a symmetric table: one for each unordered pair of states."""
    row, column = np.triu_indices(size)
    patterns = np.zeros((size, size, len(row)))
    patterns[row, column, np.arange(len(row))] = 1.0
    patterns[column, row, np.arange(len(row))] = 1.0
    return patterns.reshape(size * size, len(row))


class _FormulaEvaluator:
    """An evaluator of formulas, vectorised over all joint states."""

    def __init__(
        self,
        lowered: LoweredTemplate,
        states: np.ndarray,
        values: Sequence[Sequence[str]],
        evidence: Mapping[Expression, int],
    ) -> None:
        self.scope, self.terms = lowered.scope, lowered.terms
        self.states, self.values, self.evidence = states, values, evidence

    def evaluate(self, node: Expression) -> np.ndarray:
        """Return the truth value of a formula in each joint state, shape (n_joint_states,)."""
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
        raise AssertionError(f"{type(node).__name__} is not part of a formula; the checker rejects it")

    def _evaluate_comparison(self, operator: str, left: Expression, right: Expression) -> np.ndarray:
        operand_types = self.scope.operand_types(Comparison(operator, left, right))
        domain = next((kind.domain for kind in operand_types if isinstance(kind, DomainType)), None)
        if domain is None:
            assert isinstance(operand_types[0], Bool)
            if any(self.evidence.get(operand, 0) < 0 for operand in (left, right)):
                return np.zeros(self.states.shape[1], dtype=bool)  # a comparison with missing evidence is false
            return np.asarray(COMPARISONS[operator](self.evaluate(left), self.evaluate(right)))
        operands = [self._state_numbers(node, domain) for node in (left, right)]
        # A comparison with missing evidence is false; a constant that is not in the data differs from all values.
        is_known = np.logical_and(*(operand != _MISSING for operand in operands))
        return np.asarray(COMPARISONS[operator](*operands) & is_known)

    def _state_numbers(self, node: Expression, domain: str) -> np.ndarray:
        """Return one operand of a comparison as state numbers."""
        if node in self.evidence:
            code = self.evidence[node]
            return np.asarray(_MISSING if code < 0 else code)
        if node in self.terms:
            return np.asarray(self.states[self.terms.index(node)])
        constant = self.scope.constant_value(node, domain)
        domain_values = next(
            v for t, v in zip(self.terms, self.values, strict=True) if self.scope.type_of(t) == DomainType(domain)
        )
        return np.asarray(domain_values.index(constant) if constant in domain_values else _UNKNOWN)


_UNKNOWN, _MISSING = -1, -2
"""State number of a constant that is not in the data, and state number of missing evidence."""
