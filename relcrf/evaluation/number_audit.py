"""Audits of numbers: known numbers that are far from what the model expects given all other numbers and the evidence.

As in `audit.py`, the weights for the numbers of a fold are learned from the numbers of the other folds, and all other numbers are
evidence. The distribution of a number given all others is normal, so that its distance from the mean, in standard deviations,
has a known distribution if the model is right. The numbers with large distances are those that the procedure of Benjamini &
Hochberg (1995) selects: at most a tenth of them are expected to be right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.number_inference import leave_out_numbers
from relcrf.backends.number_model import NumberModel
from relcrf.backends.numeric_targets import learn_numbers
from relcrf.backends.problems import query_problem, training_problem
from relcrf.backends.registry import make_backend
from relcrf.data.frame import Frame
from relcrf.data.split_plan import parse_split
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.audit import AuditSettings, frame_of_variables
from relcrf.evaluation.number_measures import ScoredNumbers
from relcrf.evaluation.runner import ProgressCallback
from relcrf.evaluation.splits import make_folds
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock

FALSE_DISCOVERY_RATE = 0.1
"""Expected fraction of right numbers among those that are selected as improbable."""


@dataclass(frozen=True)
class NumberAuditSummary:
    """The figures of an audit of numbers.

    Args:
        numbers: Number of audited numbers.
        improbable: Number of selected ones; see the module.
    """

    numbers: int
    improbable: int


@dataclass(frozen=True, eq=False, repr=False)
class NumberAudit:
    """The distributions of known numbers given all others.

    Args:
        blocks: The attributes with audited numbers.
        variables: The audited numbers, ascending, shape (n,).
        scored: Their distributions and their values.
        backend: Name of the backend that learned the weights.
    """

    grounding: Grounding
    blocks: tuple[VariableBlock, ...]
    variables: np.ndarray
    scored: ScoredNumbers
    backend: str

    def __repr__(self) -> str:
        return f"NumberAudit({len(self.variables):,} numbers)"

    def select(self, block: VariableBlock) -> tuple[np.ndarray, ScoredNumbers, np.ndarray]:
        """Return the numbers of a block, the most improbable first, their distributions, and the mask of the improbable ones."""
        items = block.index_slice(self.variables)
        found = self.scored
        scored = ScoredNumbers(found.means[items], found.deviations[items], found.truth[items])
        distance = np.abs(scored.truth - scored.means) / scored.deviations
        order = np.argsort(-distance, kind="stable")
        probability, n = scored.tail_probabilities()[order], len(order)
        small = np.flatnonzero(probability <= FALSE_DISCOVERY_RATE * np.arange(1, n + 1) / max(1, n))
        ranked = ScoredNumbers(scored.means[order], scored.deviations[order], scored.truth[order])
        return self.variables[items][order], ranked, np.arange(n) <= small.max(initial=-1)

    def table(self, block: VariableBlock) -> Frame:
        """Return one row per audited number of a block, the most improbable first.

        The columns are the entity's key, the observed value, the mean and the standard deviation given all other numbers, the
        distance from the mean in standard deviations, and whether the number is improbable.
        """
        ranked, scored, is_improbable = self.select(block)
        added = {
            "observed": scored.truth,
            "expected": scored.means,
            "deviation": scored.deviations,
            "distance": (scored.truth - scored.means) / scored.deviations,
            "improbable": is_improbable,
        }
        return frame_of_variables(self.grounding, block, ranked, added)

    def summary(self, block: VariableBlock) -> NumberAuditSummary:
        """Return the figures of a block."""
        ranked, _, is_improbable = self.select(block)
        return NumberAuditSummary(len(ranked), int(is_improbable.sum()))


@SingleThreadedBlas()
def audit_numbers(
    learned: LearnedModel,
    grounding: Grounding,
    settings: AuditSettings,
    progress: ProgressCallback = lambda label: Monitor(),
) -> NumberAudit:
    """Compute the distribution of each known number given all other numbers and all known categories.

    Numbers that depend on an unknown category are not audited.

    Args:
        grounding: The model of the run, ground on tables with numbers.
        progress: Function that returns the monitor of a step.

    Raises:
        DataError: There are no known numbers (E225), or fewer labels than folds (E226, E352).
        UsageError: The attribute is a category (E379).
    """
    blocks = tuple(block for block in grounding.blocks if settings.attribute in (None, block.name) and block.is_numeric)
    if not blocks:
        message = f"an audit does not support the labels of {settings.attribute} beside predicted numbers"
        hint = "audit the attribute that is a number, or use a model without 'predict' before this number"
        raise UsageError(Diagnostic("E379", message, hint=hint))
    targets = settings.select_targets(grounding)
    request = learned.original_request
    system = make_backend(request.backend, **request.settings)
    parts = []
    if not settings.folds:
        grounding, vectors, problem = query_problem(learned, grounding)
        parts.append(leave_out_numbers(problem, NumberModel.from_vectors(vectors)).select(targets))
    else:
        problem = training_problem(grounding, learn=False)
        for fold in make_folds(grounding, parse_split("random", settings.folds, settings.seed)):
            monitor = progress(f"{fold.name} of {settings.folds}")
            numbers = learn_numbers(fold.learning_problem(problem), system, monitor)
            query = replace(fold, test=np.zeros_like(fold.test)).query_problem(problem)
            parts.append(leave_out_numbers(query, numbers.model).select(targets & fold.test))
    variables = np.concatenate([part.variables for part in parts])
    order = np.argsort(variables)
    means, deviations = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("means", "deviations")
    )
    chosen = variables[order]
    name = learned.backend if not settings.folds else system.name
    return NumberAudit(grounding, blocks, chosen, ScoredNumbers(means, deviations, grounding.numbers[chosen]), name)
