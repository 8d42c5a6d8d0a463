"""Audits of labels: labels that the model finds improbable given all other labels, with a proposed value.

Weights that were learned from a wrong label agree with it. The labels are therefore divided into folds, and the weights for
the labels of a fold are learned from the labels of the other folds (cross-fitting). In the conditional of a label, all other
labels are evidence, also those of its fold; see `leave_one_out.py`.

The weights are learned by pseudo-likelihood, the product of these conditionals. On WebKB and IMDB, weights that were learned for
joint predictions, such as those of `ess`, find fewer wrong labels. The penalty is the one with the most probable
held-out labels. Backends with candidates, gates or latent variables, and those that sum over variables without a label, learn
their own weights for each fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor, Problem
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.local import LocalBackend
from relcrf.backends.numeric_targets import require_no_numbers
from relcrf.backends.problems import query_problem, training_problem
from relcrf.backends.propagation import AbstractPropagationBackend
from relcrf.backends.pseudo import PseudoBackend
from relcrf.data.frame import Frame, frame_of
from relcrf.data.split_plan import DEFAULT_FOLDS, parse_split
from relcrf.errors import DataError, Diagnostic, UsageError, listing
from relcrf.evaluation.calibration import scale_weights
from relcrf.evaluation.explanation import Explanation, ExplanationCase, explain, state_index
from relcrf.evaluation.leave_one_out import LeaveOneOut, leave_one_out
from relcrf.evaluation.runner import ProgressCallback, fit_fold
from relcrf.evaluation.splits import Fold, labelled_in_grounding, make_folds
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.attribution import MIN_PROBABILITY


@dataclass(frozen=True)
class AuditSettings:
    """The labels to audit, and the weights that score them.

    Args:
        attribute: Name of the block of variables whose labels are audited, such as `Page.category`; None for all.
        folds: Number of folds of cross-fitting; 0 uses the weights of the run.
        seed: Seed of the assignment of labels to folds.
    """

    attribute: str | None = None
    folds: int = DEFAULT_FOLDS
    seed: int = 0

    def select_targets(self, grounding: Grounding) -> np.ndarray:
        """Return the mask of the labels to audit, shape (n_variables,), bool.

        Raises:
            DataError: There are no labels (E225).
        """
        blocks = [block for block in grounding.blocks if not block.is_latent and self.attribute in (None, block.name)]
        targets = np.zeros(len(grounding.states), dtype=bool)
        for block in blocks:
            targets[block.start : block.start + block.count] = True
        targets &= labelled_in_grounding(grounding)
        if not targets.any():
            names = listing(block.name for block in blocks)
            hint = "audit tables that contain labels"
            raise DataError(Diagnostic("E225", f"no value of {names} is labelled", hint=hint))
        return targets

    def require_value(self, grounding: Grounding, observed: str | None) -> None:
        """Validate the value of the labels to list, None for all; call this before learning, to raise errors early.

        Raises:
            UsageError: An audited attribute is a number (E379), or does not have the value (E356).
            DataError: See `select_targets`.
        """
        if observed is None:
            return
        blocks = [block for block in grounding.blocks if self.attribute in (None, block.name)]
        for block in blocks:
            if block.is_numeric:
                message = f"'--observed {observed}' selects labels, but {block.name} is a number"
                raise UsageError(Diagnostic("E379", message, hint="omit --observed"))
        targets = self.select_targets(grounding)
        for block in blocks:
            if targets[block.start : block.start + block.count].any():
                state_index(block, observed)


@dataclass(frozen=True, eq=False)
class AuditPart:
    """The audit of the labels of one fold.

    Args:
        system, vectors: The backend with its settings, and the weights that score the labels.
        grounding: The ground graph with the candidates that training chose.
        problem: The problem in which all labels are observed.
    """

    system: AbstractBackend
    grounding: Grounding
    vectors: dict[str, np.ndarray]
    problem: Problem
    conditionals: LeaveOneOut

    def log_likelihood(self, states: np.ndarray) -> float:
        """Return the sum of the log probabilities of the labels, given the labels of all variables, shape (n_variables,)."""
        probability = self.conditionals.probability(states[self.conditionals.variables])
        return float(np.log(np.maximum(probability, MIN_PROBABILITY)).sum())

    def explain(self, variable: int, against: str) -> Explanation:
        """Explain why the most probable value of a label is more probable than the value `against`."""
        roles = self.problem.roles.copy()
        roles[variable] = Role.FREE
        problem = replace(self.problem, roles=roles)
        return explain(
            ExplanationCase.from_problem(self.system, self.grounding, self.vectors, problem, variable), against
        )


@dataclass(frozen=True)
class AuditSummary:
    """The figures of an audit.

    Args:
        labels: Number of audited labels.
        improbable: Number of labels with a more probable value.
        expected_errors: Estimated number of wrong labels; see `Audit.expected_errors`.
        joint: Number of labels whose conditional is approximate, because a label of the same component was left out with it.
    """

    labels: int
    improbable: int
    expected_errors: int
    joint: int


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The leave-one-out conditionals of the audited labels, by fold.

    Args:
        system: The backend, with its settings, that learned the weights.
    """

    grounding: Grounding
    settings: AuditSettings
    system: AbstractBackend
    parts: tuple[AuditPart, ...]

    def __repr__(self) -> str:
        counts = listing(f"{len(self.variables(block)):,} labels of {block.name}" for block in self.blocks)
        return f"Audit({counts})"

    @property
    def weights(self) -> dict[str, str | float]:
        """The backend that learned the weights and, if it maximises a likelihood, its penalty."""
        l2 = {"l2": self.system.l2} if isinstance(self.system, AbstractLikelihoodBackend) else {}
        return {"backend": self.system.name, **l2}

    @cached_property
    def _part_of(self) -> np.ndarray:
        """The index of each variable's part, shape (n_variables,), and -1 for variables without an audited label."""
        out = np.full(len(self.grounding.states), -1)
        for number, part in enumerate(self.parts):
            out[part.conditionals.variables] = number
        return out

    @property
    def blocks(self) -> list[VariableBlock]:
        """The attributes and relations with audited labels."""
        return [block for block in self.grounding.blocks if len(self.variables(block))]

    def variables(self, block: VariableBlock) -> np.ndarray:
        """Return the variables of a block with audited labels, ascending."""
        return np.asarray(block.start + np.flatnonzero(self._part_of[block.start : block.start + block.count] >= 0))

    def probabilities(self, block: VariableBlock) -> np.ndarray:
        """Return the conditional probabilities of the audited labels of a block, shape (n, n_values)."""
        variables = self.variables(block)
        table = np.empty((len(variables), len(block.values)))
        for part in self.parts:
            found = part.conditionals
            items = block.index_slice(found.variables)
            rows = np.searchsorted(variables, found.variables[items])
            flat = found.probabilities[found.state_start[items.start] : found.state_start[items.stop]]
            table[rows] = flat.reshape(-1, len(block.values))
        return table

    def ranking(self, block: VariableBlock, observed: str | None = None) -> np.ndarray:
        """Return the audited variables of a block by the probability of their labels, the most improbable first.

        Args:
            observed: Value of the labels to return; None for all.

        Raises:
            UsageError: The block does not have this value (E356).
        """
        variables = self.variables(block)
        states = self.grounding.states[variables]
        label = self.probabilities(block)[np.arange(len(variables)), states]
        order = np.argsort(label, kind="stable")
        if observed is not None:
            order = order[states[order] == state_index(block, observed)]
        return np.asarray(variables[order])

    def table(self, block: VariableBlock, observed: str | None = None) -> Frame:
        """Return one row per audited label of a block, the most improbable label first; for the arguments see `ranking`.

        The columns are the entity's key or the tuple's arguments, the observed value, the most probable value, the
        probabilities of both given all other labels, and their log odds in nats, which are 0 if both are equal.
        """
        ranked = self.ranking(block, observed)
        order = np.searchsorted(self.variables(block), ranked)
        probabilities, states = self.probabilities(block)[order], self.grounding.states[ranked]
        best = probabilities.argmax(axis=1)
        label, largest = (probabilities[np.arange(len(ranked)), state] for state in (states, best))
        values = np.asarray(block.values, dtype=object)
        added = {
            "observed": values[states],
            "proposed": values[best],
            "p_observed": label,
            "p_proposed": largest,
            "log_odds": np.log(np.maximum(largest, MIN_PROBABILITY)) - np.log(np.maximum(label, MIN_PROBABILITY)),
        }
        return frame_of_variables(self.grounding, block, ranked, added)

    def summary(self, block: VariableBlock) -> AuditSummary:
        """Return the figures of a block."""
        variables, probabilities = self.variables(block), self.probabilities(block)
        states = self.grounding.states[variables]
        label = probabilities[np.arange(len(variables)), states]
        joint = sum(
            int((~part.conditionals.is_separate[block.index_slice(part.conditionals.variables)]).sum())
            for part in self.parts
        )
        improbable = int((label < probabilities.max(axis=1)).sum())
        return AuditSummary(len(variables), improbable, estimate_errors(probabilities, states), joint)

    def explain(self, variable: int) -> Explanation | None:
        """Explain why another value of an audited label is more probable; None if no value is.

        The label is left out alone. If it was left out together with others, the result may differ from `table`.

        Raises:
            UsageError: The backend does not support explanations (E368).
        """
        block, part = self.grounding.find_block(variable), self.parts[int(self._part_of[variable])]
        found = part.conditionals
        row = int(np.searchsorted(found.variables, variable))
        probabilities = found.probabilities[found.state_start[row] : found.state_start[row + 1]]
        state = int(self.grounding.states[variable])
        if probabilities[state] == probabilities.max():
            return None
        try:
            return part.explain(variable, block.values[state])
        except UsageError as error:
            if found.is_separate[row] or error.diagnostics[0].code != "E356":
                raise
            return None  # left out alone, the label is the most probable value


def frame_of_variables(
    grounding: Grounding, block: VariableBlock, variables: np.ndarray, added: Mapping[str, np.ndarray]
) -> Frame:
    """Return the keys of some variables of a block, and further columns."""
    names = zip(block.argument_names, grounding.argument_texts(block), strict=True)
    return frame_of([*((name, texts[variables - block.start]) for name, texts in names), *added.items()])


PENALTIES = (0.3, 1.0, 3.0, 10.0)
"""Values of `l2` to compare: 0.3 was best on Mutagenesis, 3 on WebKB, and 3 and 10 were equal on Cora, the only trial of 10."""

COMPARED_LABELS = 1000
"""Number of held-out labels on which systems are compared. The standard error of their mean log probability is about 0.03 if
their standard deviation is 1, which is assumed and not measured; the systems differ by up to 0.3 on Cora."""


def select_systems(learned: LearnedModel, grounding: Grounding) -> list[AbstractBackend]:
    """Return the systems from which the audit chooses the one with the most probable held-out labels.

    The systems are `pseudo` and `local` with several penalties; only `local` if the run requested it. If the backend of the
    run has structure that these systems lack, or sums over variables without a label, it is the only system.
    """
    own = learned.configure_backend()
    sums_out = isinstance(own, AbstractLikelihoodBackend) and own.unlabelled == "marginal"
    is_replaceable = isinstance(own, AbstractLikelihoodBackend | AbstractPropagationBackend) and not sums_out
    if not is_replaceable or grounding.latent.any():
        return [own]
    local = [LocalBackend(l2=l2) for l2 in PENALTIES]
    if learned.original_request.backend == LocalBackend.name:
        return [*local]
    return [*(PseudoBackend(l2=l2, inference="bp") for l2 in PENALTIES), *local]


def estimate_errors(probabilities: np.ndarray, states: np.ndarray) -> int:
    """Estimate the number of wrong labels: labels for which another value is as probable as it is for that value's labels.

    A value counts if its probability is at least its mean probability among the labels of this value. The estimate does not
    assume that the probabilities are calibrated.

    Source: Northcutt, Jiang & Chuang (2021), Confident learning, equation 1.

    Args:
        probabilities: Probabilities of the values, shape (n, n_values).
        states: The labels, shape (n,).
    """
    n, n_values = probabilities.shape
    counts = np.bincount(states, minlength=n_values)
    totals = np.bincount(states, weights=probabilities[np.arange(n), states], minlength=n_values)
    thresholds = np.where(counts > 0, totals / np.maximum(counts, 1), np.inf)
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    return int(np.count_nonzero((confident.max(axis=1) > 0.0) & (confident.argmax(axis=1) != states)))


@SingleThreadedBlas()
def audit_labels(
    learned: LearnedModel,
    grounding: Grounding,
    settings: AuditSettings,
    progress: ProgressCallback = lambda label: Monitor(),
) -> Audit:
    """Compute the probability of each label given all other labels.

    Args:
        grounding: The model of the run, ground on tables with labels.
        progress: Function that returns the monitor of a step.

    Raises:
        UsageError, DataError: See `AuditSettings.select_targets`; there are fewer labels than folds (E226, E352).
    """
    require_no_numbers(learned.spec, "an audit")
    targets = settings.select_targets(grounding)
    if not settings.folds:
        system = learned.configure_backend()
        extended, vectors, problem = query_problem(learned, grounding)
        part = _audit_part(system, extended, vectors, problem, targets, progress("labels"))
        return Audit(grounding, settings, system, (part,))
    systems = select_systems(learned, grounding)
    problem = training_problem(
        grounding,
        with_candidates=systems[0].uses_candidates,
        learn=False,
        without_labels=systems[0].learns_without_labels,
    )
    folds = make_folds(grounding, parse_split("random", settings.folds, settings.seed))
    cross_fit = CrossFit(learned, grounding, problem, [fold for fold in folds if (fold.test & targets).any()], targets)
    system, parts = cross_fit.choose(systems, progress) if len(systems) > 1 else (systems[0], [])
    for number in range(len(parts), len(cross_fit.folds)):
        parts.append(cross_fit.audit(number, system, progress(f"fold {number + 1} of {len(cross_fit.folds)}")))
    return Audit(grounding, settings, system, tuple(parts))


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Folds of labels whose conditionals are computed with weights that were learned from the labels of the other folds.

    Args:
        problem: The training problem with all labels.
        targets: Mask of the labels to audit, shape (n_variables,), bool.
    """

    learned: LearnedModel
    grounding: Grounding
    problem: Problem
    folds: Sequence[Fold]
    targets: np.ndarray

    def choose(
        self, systems: Sequence[AbstractBackend], progress: ProgressCallback
    ) -> tuple[AbstractBackend, list[AuditPart]]:
        """Return the system whose held-out labels are the most probable, and its parts of the first folds.

        The first folds that contain `COMPARED_LABELS` labels are compared.
        """
        sizes = np.cumsum([np.count_nonzero(fold.test & self.targets) for fold in self.folds])
        n_compared = min(int(np.searchsorted(sizes, COMPARED_LABELS)) + 1, len(self.folds))
        best: tuple[float, AbstractBackend, list[AuditPart]] | None = None
        for system in systems:
            parts = [
                self.audit(number, system, progress(f"{system.name}, fold {number + 1} of {n_compared}"))
                for number in range(n_compared)
            ]
            score = sum(part.log_likelihood(self.grounding.states) for part in parts)
            if best is None or score > best[0]:
                best = score, system, parts
        assert best is not None
        return best[1:]

    def audit(self, number: int, system: AbstractBackend, monitor: Monitor) -> AuditPart:
        """Learn from the labels of the other folds, and audit the labels of a fold; the labels of all folds are evidence.

        The weights of the run's own backend are multiplied by the scale that calibrated the weights of the run.
        """
        fold, grounding = self.folds[number], self.grounding
        result = fit_fold(self.problem, fold, system, monitor, grounding.bound.dataset.store)
        all_labels = replace(fold, test=np.zeros_like(fold.test))
        query = all_labels.query_problem(self.problem).with_candidates(result.chosen_candidates)
        spaces = {space.pairs.name: space for space in grounding.candidates} if result.chosen_candidates else {}
        texts = {name: spaces[name].pair_texts(pairs) for name, pairs in result.chosen_candidates.items()}
        is_own = system == self.learned.configure_backend()
        scale = self.learned.calibration_scale if is_own else 1.0
        vectors = scale_weights(query, result.vectors, scale)
        extended = grounding.with_candidates(texts) if texts else grounding
        return _audit_part(result.configure(system), extended, vectors, query, fold.test & self.targets, monitor)


def _audit_part(
    system: AbstractBackend,
    grounding: Grounding,
    vectors: dict[str, np.ndarray],
    problem: Problem,
    targets: np.ndarray,
    monitor: Monitor,
) -> AuditPart:
    found = leave_one_out(
        system,
        problem,
        vectors,
        targets,
        store=grounding.bound.dataset.store,
        observe=lambda number, n_passes: monitor.start_phase(f"leaving out labels, pass {number + 1} of {n_passes}"),
    )
    return AuditPart(system, grounding, vectors, problem, found)


def main_reason(explanation: Explanation) -> str:
    """Return the contribution that raises the log odds of the proposed value most, in words."""
    largest = max(explanation.contributions, key=lambda one: one.amount, default=None)
    if largest is None or largest.amount <= 0.0:
        return ""
    detail = ", ".join(map(str, largest.neighbours))
    if not detail and len(largest.features) > 1:
        feature = largest.features[0]
        detail = f"{feature.name} {feature.amount:+.2f}"
    return f"{', '.join(largest.templates)} {largest.amount:+.2f}" + (f" ({detail})" if detail else "")


def find_reasons(audit: Audit, variables: np.ndarray) -> Mapping[int, str]:
    """Return the main reason for the proposed value of each label with a more probable value.

    The result is empty if the backend does not support explanations, which only backends of other packages may lack.
    """
    try:
        explanations = {variable: audit.explain(variable) for variable in variables.tolist()}
    except UsageError as error:
        if error.diagnostics[0].code != "E368":
            raise
        return {}
    return {variable: main_reason(each) for variable, each in explanations.items() if each is not None}
