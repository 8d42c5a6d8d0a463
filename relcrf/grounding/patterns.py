"""The state patterns of an `over` clause: which joint states of its random terms each weight speaks of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relcrf.model.expressions import Attribute, Comparison, Connective, Expression, Not, Truth
from relcrf.model.spec import ModelSpec
from relcrf.model.types import Bool, DomainType
from relcrf.model.typing import Scope

_COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def is_table(over: tuple[Expression, ...]) -> bool:
    """Whether `over` lists random terms, a weight for each of their joint states; else it is one formula."""
    return all(isinstance(item, Attribute) for item in over)


def scope_terms(over: tuple[Expression, ...], scope: Scope) -> list[Attribute]:
    """The random terms at the places of a factor's scope: as listed, or as a formula first mentions them."""
    if is_table(over):
        return [item for item in over if isinstance(item, Attribute)]
    return scope.random_terms(over[0])


def state_patterns(
    over: tuple[Expression, ...], scope: Scope, spec: ModelSpec, values: list[tuple[str, ...]]
) -> np.ndarray | None:
    """The patterns of `over`, shape (n_joint_states, 1); None for a table, whose patterns are the identity.

    Args:
        values: the values of each random term's domain, in the order of `scope_terms`.
    """
    if is_table(over):
        return None
    terms = scope_terms(over, scope)
    states = np.indices([len(v) for v in values]).reshape(len(values), -1)
    truth = _Formula(scope, spec, terms, states, values).truth(over[0])
    return truth.astype(np.float64)[:, None]


class _Formula:
    """Evaluates a formula at every joint state at once."""

    def __init__(
        self,
        scope: Scope,
        spec: ModelSpec,
        terms: list[Attribute],
        states: np.ndarray,
        values: list[tuple[str, ...]],
    ) -> None:
        self.scope, self.spec, self.terms, self.states, self.values = scope, spec, terms, states, values

    def truth(self, node: Expression) -> np.ndarray:
        match node:
            case Truth(value):
                return np.full(self.states.shape[1], value)
            case Attribute():
                return np.asarray(self.states[self.terms.index(node)] == 1)
            case Not(operand):
                return ~self.truth(operand)
            case Connective(operator, left, right):
                a, b = self.truth(left), self.truth(right)
                return np.asarray({"and": a & b, "or": a | b, "=>": ~a | b, "<=>": a == b}[operator])
            case Comparison(operator, left, right):
                if not isinstance(left, Attribute) and not isinstance(right, Attribute):
                    return _COMPARE[operator](self.truth(left), self.truth(right))
                return _COMPARE[operator](self.number(left, right), self.number(right, left))
        raise AssertionError(f"the checker lets no {type(node).__name__} into a formula")

    def number(self, node: Expression, other: Expression) -> np.ndarray:
        """A side of a comparison as state numbers, read as a value of the other side's domain where it is a constant."""
        if isinstance(node, Attribute):
            return np.asarray(self.states[self.terms.index(node)])
        if isinstance(node, Truth):
            return np.asarray(int(node.value))
        if not isinstance(other, Attribute):
            return self.truth(node).astype(np.int64)
        kind = self.scope.type_of(other)
        if isinstance(kind, Bool) or not isinstance(kind, DomainType):
            return self.truth(node).astype(np.int64)
        constant = self.scope.constant(node, kind.domain)
        known = self.values[self.terms.index(other)]
        # A value that an open domain does not have in this data equals none of its states.
        return np.asarray(known.index(constant) if constant in known else -1)
