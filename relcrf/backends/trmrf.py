"""TR-MRF: structure learning that chooses features from the candidates of a model while it learns the weights.

A candidate is a conjunction of literals. For the samples and *keys* of literals, see `graph/candidates.py`.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.likelihood_backend import maximise_likelihood
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.backends.structure_learning import StageRunner
from relcrf.backends.whole_graph import MARGINAL_METHODS, AbstractWholeGraphBackend
from relcrf.errors import DataError, Diagnostic, UsageError, listing
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, PairSpace, TableSpace
from relcrf.graph.reduction import Role
from relcrf.graph.triples import PairOrTripleSpace, TripleSpace
from relcrf.learning.contrastive_divergence import ContrastiveDivergence, blocks_by_entity, blocks_by_key
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.literal_likelihood import LiteralLikelihood, NodeTables
from relcrf.structure.gains import candidate_gains
from relcrf.structure.induction import ContrastiveInduction
from relcrf.structure.search import PenaltyStrengths, SearchState, StructureSearch, lasso_factory
from relcrf.structure.strength_selection import select_strengths

MAX_WEIGHTS = 1 << 24
"""Maximum number of weights for `structure=full`; with this number, the optimiser needs about 4 GiB."""

SELECTION_FACTORS = tuple(2.0**k for k in range(6, -1, -1))
"""Multiples of `l1` from which `l1_selection` chooses; with 64 times the default, few candidates are selected."""

SELECTION_FRACTION = 0.2
"""Fraction of the labels that `l1_selection` holds out if `validation_fraction` is 0."""

SELECTION_TOLERANCE = 10.0
"""Multiple of `tolerance` for the searches of `l1_selection`."""

LiteralObjective = LiteralLikelihood | ContrastiveDivergence
"""An objective that `trmrf` minimises."""

MAX_LITERAL_CELLS = 1 << 27
"""Maximum number of cells of one of the four tables of samples by keys for `structure=grafting`; 2**27 take 1 GiB."""


@dataclass(frozen=True)
class TrMrfBackend(AbstractWholeGraphBackend):
    """Structure learning by pseudo-likelihood or contrastive divergence with an L1 penalty on candidate features.

    Training first learns the weights of the templates by pseudo-likelihood. Each of the following rounds adds the
    candidates with the largest gradients above the L1 penalty, and runs a few iterations of the optimiser. When no
    gradient exceeds the penalty, the optimiser runs to convergence. A candidate whose final weight is 0 is removed.

    Args:
        preset: `paper`: the method of Lao & Zhu, i.e. `objective=cd`, `update=entities`, `l1_on_templates=true`, `l2=1`,
            `error_threshold=0.2`, `signal_threshold=0.2` and `final_test=false`. Other settings in the same command
            take precedence over the preset. The run folder contains the resulting settings instead of the preset.
        objective: `pseudo`: pseudo-likelihood. `cd`: contrastive divergence with mean field; only `cd` supports latent
            attributes.
        cd_steps: For `cd`: number of mean-field updates of each variable; the first update starts from the labels.
        update: For `cd`: order of the mean-field updates. `blocks` updates the variables of one key after another.
            `entities` updates the variables of one entity (or tuple) of the candidates' samples at once, one entity
            after another, as in Lao & Zhu (2014). `parallel` updates all variables at once, which is faster. Strongly
            coupled variables that are updated at once swap their states; the gradient does not include this effect, so
            weights may grow without bound.
        optimiser: For `cd`: `owlqn` (orthant-wise L-BFGS with a line search that uses only gradients) or `adagrad`
            (proximal AdaGrad, which needs more iterations).
        unlabelled: Treatment of unlabelled variables of predicted attributes. `ignore` excludes these variables from
            training. `infer` with `cd` treats them as latent. `infer` with `pseudo` imputes their marginals given all
            labels, and repeats training `imputation_rounds` times; imputed variables are used only as neighbours.
        structure: Method of choosing candidates. `cfi`: contrastive feature induction, which sums gradients only over
            samples with a large error of one literal and a large signal of the other (see docs/explanation/trmrf.md).
            `grafting`: exact gradients of all candidates. `full`: all candidates are in the model from the start.
        l1: L1 penalty on candidates whose declaration specifies no `l1`, added to the sum of the variables' losses.
        l1_on_templates: Whether the setting `l1` also applies to templates that specify no `l1`.
        l2: L2 penalty on the weights of templates that specify no `l2`, added to the same sum.
        error_threshold: For `cfi`: errors (probabilities minus truth values) of at most this magnitude are ignored.
        signal_threshold: For `cfi`: signals (truth values minus the mean) of at most this magnitude are ignored.
        final_test: For `cfi`: whether to test the exact gradients of all candidates after the optimiser has converged.
            Training continues until no gradient exceeds the penalty. Without this test, training may end before the
            optimum.
        l1_selection: `none`: the strength `l1` for each space of candidates. `held-out`: a separate strength for each
            space, which is `l1` times 1, 2, 4, ..., or 64. Strengths are changed one at a time as long as the loss of
            held-out labels (`validation_fraction`, or a fifth if this is 0) decreases: the sum over the spaces' literals
            of the mean loss of their variables. The summary contains the result.
        candidates_per_round: Maximum number of candidates added per round.
        iterations_per_round: Number of optimiser iterations per round.
        max_iterations: Maximum number of optimiser iterations in each stage.
        tolerance: The optimiser has converged when the gradient norm is at most this fraction of the initial norm.
        validation_fraction: Fraction of the labels that are held out for early stopping; a second stage then learns the
            weights from all labels. 0 disables early stopping.
        patience: Number of rounds without improvement on the held-out labels after which training stops.
        imputation_rounds: Number of imputations for `pseudo` with `unlabelled=infer`.
        inference: Name of a method that computes marginals; see docs/explanation/inference.
        seed: Seed of the initial weights, of the choice of held-out labels, and of sampling methods.
    """

    name: ClassVar[str] = "trmrf"
    learning_arrays: ClassVar[tuple[float, float]] = (4, 6)
    inference_arrays: ClassVar[tuple[float, float]] = (10, 10)
    method_settings: ClassVar[tuple[str, ...]] = ("seed",)
    uses_candidates: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "objective": "cd",
            "update": "entities",
            "l1_on_templates": True,
            "l2": 1.0,
            "error_threshold": 0.2,
            "signal_threshold": 0.2,
            "final_test": False,
        }
    }
    preset: str = ""
    objective: str = "pseudo"
    cd_steps: int = 1
    update: str = "blocks"
    optimiser: str = "owlqn"
    unlabelled: str = "ignore"
    structure: str = "cfi"
    l1: float = 1.0
    l1_on_templates: bool = False
    l2: float = 0.1
    error_threshold: float = 0.1
    signal_threshold: float = 0.1
    final_test: bool = True
    l1_selection: str = "none"
    candidates_per_round: int = 50
    iterations_per_round: int = 1
    max_iterations: int = 500
    tolerance: float = 1e-4
    validation_fraction: float = 0.0
    patience: int = 5
    imputation_rounds: int = 2
    inference: str = "mf"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.preset:  # `make_backend` replaces each known preset by its settings
            message = f"setting 'preset' of backend '{self.name}' cannot be '{self.preset}'"
            raise UsageError(Diagnostic("E305", message, hint=f"use one of {listing(self.presets)}"))
        self._require_one_of("objective", ("pseudo", "cd"))
        self._require_one_of("update", ("parallel", "blocks", "entities"))
        self._require_one_of("optimiser", ("owlqn", "adagrad"))
        self._require_one_of("unlabelled", ("ignore", "infer"))
        self._require_one_of("structure", ("cfi", "grafting", "full"))
        self._require_one_of("l1_selection", ("none", "held-out"))
        if self.l1_selection == "held-out":
            self._require_positive("l1")
        self._require_one_of("inference", MARGINAL_METHODS)
        self._require_positive("candidates_per_round", "iterations_per_round", "cd_steps")
        self._require_below_1("validation_fraction")

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        self._require_learnable(problem)
        # The initial weights precede `with_unlabelled`: only states of latent attributes need random weights to differ.
        start = problem.initial_weights(self.seed)
        if self.objective == "cd" and self.unlabelled == "infer":
            problem = problem.with_unlabelled()
        hidden = problem.latent
        labelled = replace(problem, roles=np.where(hidden, Role.ABSENT, problem.roles).astype(np.int8))
        lbfgs, layout = Lbfgs(self.tolerance, max_iterations=self.max_iterations), problem.graph.layout
        templates = labelled.total_likelihood(PseudoLikelihoodSpec())
        unary = maximise_likelihood("unary", templates, lbfgs, self.l2, layout.initial, monitor)
        point, chosen = unary.point + (start - layout.initial()), CandidateSet.empty()
        likelihood = self._pseudo_likelihood(labelled, None)
        model = self._contrastive_divergence(problem) if self.objective == "cd" else likelihood
        induction = ContrastiveInduction(
            self.candidates_per_round,
            self.error_threshold,
            self.signal_threshold,
            exhaustive=self.structure != "cfi",
            falls_back=self.structure == "cfi" and self.final_test,
        )
        histograms = {"before candidates are added": induction.histograms(model, point)}
        if self.structure == "full":
            chosen = CandidateSet.from_spaces(_require_pairs(problem.candidates))
            point = np.append(point, np.zeros(len(chosen)))
        stages = StageRunner(monitor, self.max_iterations, point, chosen)
        l1 = self._select_l1(model, induction, stages)
        search, state = self._learn_structure("", model, induction, l1, stages)
        for number in range(self.imputation_rounds if self.objective == "pseudo" and self.unlabelled == "infer" else 0):
            model = likelihood = self._pseudo_likelihood(labelled, self._impute_labels(labelled, search, state))
            search, state = self._learn_structure(f"_{number + 2}", model, induction, l1, stages)
        pairs, order = search.learned_pairs(state)
        gains, no_gain = candidate_gains(likelihood.with_candidates(state.chosen), state.point), np.zeros(model.n_base)
        template_support, _ = templates.label_moments(unary.point)
        selected = {f"l1_{space.name}": each for space, each in zip(model.spaces, search.strengths.l1, strict=True)}
        vectors = {
            "weights": state.point,
            "gain": np.append(no_gain, gains.gain),
            "support": np.append(template_support, gains.support),
        }
        histograms["at the end"] = induction.histograms(model.with_candidates(state.chosen), state.point)
        return FitResult(
            {name: vector[order] for name, vector in vectors.items()},
            (("unary", unary), *stages.completed),
            {
                "variables": model.base.n_nodes,
                "hidden": int(hidden.sum()),
                "candidates": sum(space.n_pairs for space in problem.candidates if isinstance(space, PairSpace)),
                "chosen": len(order) - model.n_base,
                **(selected if self.l1_selection == "held-out" else {}),
            },
            pairs,
            histograms={
                name: {phase: by_name[name] for phase, by_name in histograms.items()} for name in ("errors", "signals")
            },
        )

    def _require_learnable(self, problem: Problem) -> None:
        """Reject a problem that this backend cannot learn from.

        Raises:
            UsageError: If the graph is sharded, a space is unsupported or too large, or `pseudo` lacks labels.
        """
        hint = "candidates are scored on all samples at once; raise --memory and omit --workers"
        self._require_unsharded(problem, hint)
        _require_literals(problem.candidates)
        if self.structure != "cfi":
            _require_capacity(problem.candidates, self.structure)
        if self.objective == "pseudo":
            reason = "pseudo-likelihood needs every neighbour's state"
            self._require_labels(problem, reason, "use --set objective=cd, or --backend ess")

    def _pseudo_likelihood(self, problem: Problem, imputed: NodeTables | None) -> LiteralLikelihood:
        """Return the pseudo-likelihood without chosen candidates; `imputed` has marginals of unlabelled neighbours."""
        present = problem.roles == Role.FREE
        if imputed is not None:
            present[imputed.variables] = True
        base = blanket_graph(problem.graph, problem.roles, problem.states)
        spaces = tuple(space.restrict_to_variables(present) for space in problem.candidates)
        return LiteralLikelihood.build(base, problem.states[base.variables], spaces, imputed)

    def _select_l1(
        self, model: LiteralObjective, induction: ContrastiveInduction, stages: StageRunner
    ) -> tuple[float, ...]:
        """Return the L1 strength of each space that declares none; see the setting `l1_selection`.

        Raises:
            DataError: If no label is held out.
        """
        if self.l1_selection == "none" or not model.spaces:
            return (self.l1,) * len(model.spaces)
        training = model.trained_on(self._trained_nodes(model, self.validation_fraction or SELECTION_FRACTION))
        held_out = [(model.trained_on(nodes), int(nodes.sum())) for nodes in _held_out_groups(training)]
        if not held_out:
            hint = "label more variables, or use --set l1_selection=none"
            raise DataError(Diagnostic("E226", "too few labels to hold out for the selection of 'l1'", hint=hint))
        runner = StageRunner(stages.monitor, self.max_iterations, stages.point, stages.chosen)
        rough, numbers = replace(self, tolerance=SELECTION_TOLERANCE * self.tolerance), itertools.count(1)

        def evaluate(l1: tuple[float, ...]) -> float:
            search = replace(rough._build_search(training, induction, l1), patience=None)
            state = runner.run(f"l1_{next(numbers)}", search)
            if search.activation is not None:
                nonzero = search.nonzero_mask(state.chosen, state.point)
                runner.chosen = state.chosen.select(nonzero)
                runner.point = np.concatenate((state.point[: model.n_base], state.point[model.n_base :][nonzero]))
            return sum(each.with_candidates(state.chosen)(state.point)[0] / n for each, n in held_out)

        default_path = [factor * self.l1 for factor in SELECTION_FACTORS]
        l1 = select_strengths([default_path if space.l1 is None else [space.l1] for space in model.spaces], evaluate)
        stages.seconds = runner.seconds
        return l1

    def _trained_nodes(self, model: LiteralObjective, held_out_fraction: float) -> np.ndarray:
        """Return a random mask of the nodes whose labels are not held out, shape (n_nodes,), bool."""
        return np.random.default_rng(self.seed).random(model.base.n_nodes) >= held_out_fraction

    def _build_search(
        self, model: LiteralObjective, induction: ContrastiveInduction, l1: Sequence[float]
    ) -> StructureSearch:
        """Return the search with one L1 strength per space, for spaces that declare none."""
        return StructureSearch(
            model,
            PenaltyStrengths.from_layout(
                model.base.graph.layout, model.spaces, l1, self.l2, self.l1 if self.l1_on_templates else 0.0
            ),
            lasso_factory(
                self.tolerance,
                self.max_iterations,
                exact_gradient=model.exact_gradient,
                quasi_newton=model.exact_gradient or self.optimiser == "owlqn",
            ),
            None if self.structure == "full" else induction,
            final_activation=induction.exact() if self.structure == "cfi" and self.final_test else None,
            iterations_per_round=self.iterations_per_round,
            patience=self.patience,
        )

    def _learn_structure(
        self,
        suffix: str,
        model: LiteralObjective,
        induction: ContrastiveInduction,
        l1: Sequence[float],
        stages: StageRunner,
    ) -> tuple[StructureSearch, SearchState]:
        """Learn structure and weights in one stage, or in two with early stopping; stage names end with `suffix`."""
        search = self._build_search(
            model.trained_on(self._trained_nodes(model, self.validation_fraction)), induction, l1
        )
        state = stages.run(f"induction{suffix}", search)
        if self.validation_fraction:
            state = stages.run(f"weights{suffix}", replace(search, model=model, activation=None))
        return search, state

    def _impute_labels(self, problem: Problem, search: StructureSearch, state: SearchState) -> NodeTables:
        """Return the marginals of the unlabelled variables under the learned model, given all labels."""
        roles = np.where(problem.roles == Role.ABSENT, Role.FREE, Role.CLAMPED).astype(np.int8)
        if problem.excluded is not None:
            roles[problem.excluded] = Role.ABSENT
        query = replace(problem, roles=roles, states=np.where(roles == Role.FREE, -1, problem.states))
        pairs, order = search.learned_pairs(state)
        result = self.infer(query.with_candidates(pairs), {"weights": state.point[order]})
        result.verdict.raise_if_interrupted()
        return NodeTables(result.variables, result.state_start, result.marginals)

    def _contrastive_divergence(self, problem: Problem) -> ContrastiveDivergence:
        base, spaces = problem.reduced_graph(self.name), _free_spaces(problem)
        find_blocks = {"blocks": blocks_by_key, "entities": blocks_by_entity}.get(self.update)
        blocks = None if find_blocks is None else find_blocks(base, spaces)
        return ContrastiveDivergence.build(base, problem.states[base.variables], spaces, self.cd_steps, blocks)


def _held_out_groups(training: LiteralObjective) -> list[np.ndarray]:
    """Return masks of the nodes with held-out labels, shape (n_nodes,): one for each literal that has such nodes.

    A node belongs to the first literal of the spaces in which it occurs. The groups are, for example, the traits and
    the actions of nations; separate means of their losses prevent that the largest group determines all strengths.
    """
    group, n_nodes = np.full(training.literals.n_variables, -1), training.base.n_nodes
    for number, side in enumerate(side for space in training.spaces for side in space.sides):
        variables = side.variable % training.literals.n_variables
        group[variables[group[variables] < 0]] = number
    held_out = ~training.trained & (training.states >= 0)
    masks = [held_out & (group[:n_nodes] == number) for number in np.unique(group[group >= 0])]
    return [mask for mask in masks if mask.any()]


def _require_literals(spaces: tuple[PairOrTripleSpace, ...]) -> None:
    """Reject candidates that are edges with tables instead of conjunctions of literals.

    Raises:
        UsageError: If a space contains edges with tables.
    """
    for space in spaces:
        if isinstance(space, TableSpace):
            message = (
                f"backend '{TrMrfBackend.name}' learns conjunctions of literals, but the candidates of '{space.name}' "
                "are edges with one weight per joint state"
            )
            hint = "use --backend grafting, or join two literals in 'over' with 'and'"
            raise UsageError(Diagnostic("E396", message, hint=hint))


def _require_pairs(spaces: tuple[PairOrTripleSpace, ...]) -> tuple[PairSpace, ...]:
    """Return the spaces if all candidates are pairs; only pairs can all be in the model from the start.

    Raises:
        UsageError: If a space contains triples.
    """
    for space in spaces:
        if isinstance(space, TripleSpace):
            message = f"'structure=full' adds all candidates at once, but triples '{space.name}' are generated from chosen pairs"
            raise UsageError(Diagnostic("E394", message, hint="use --set structure=cfi or --set structure=grafting"))
    return tuple(space for space in spaces if isinstance(space, PairSpace))


def _require_capacity(spaces: tuple[PairOrTripleSpace, ...], structure: str) -> None:
    """Reject spaces that need too much memory.

    Raises:
        UsageError: If the weights of all candidates, or dense tables of literals, would be too large.
    """
    for space in spaces:
        if structure == "full":
            size = space.n_pairs if isinstance(space, PairSpace) else 0
            limit, unit = MAX_WEIGHTS, "weights (one per candidate)"
        else:
            size = space.n_samples * max(side.n_keys for side in space.sides)
            limit, unit = MAX_LITERAL_CELLS, "cells in a table of samples by keys"
        if size > limit:
            message = f"'structure={structure}' would need {size:,} {unit} for '{space.name}'; the maximum is {limit:,}"
            hint = "use --set structure=cfi, which needs less memory, or narrow the 'where' of the candidates"
            raise UsageError(Diagnostic("E395", message, hint=hint))


def _free_spaces(problem: Problem) -> tuple[PairOrTripleSpace, ...]:
    """Return the candidate spaces, restricted to free variables."""
    return tuple(space.restrict_to_variables(problem.roles == Role.FREE) for space in problem.candidates)
