"""Edge grafting: structure and tables of a graph are learned together by adding candidate edges of the model.

Source: Chaabene & Huang, Best-choice edge grafting for efficient structure learning of Markov random fields (2018):
edge grafting with on-demand statistics, best choice with a search history and a reservoir, first hit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.structure_learning import StageRunner
from relcrf.backends.whole_graph import MARGINAL_METHODS, AbstractWholeGraphBackend
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.reduction import Role
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.structure.activation import AbstractActivation, BestChoice, FirstHit, TopEdges, TopWeights
from relcrf.structure.scores import null_gradient
from relcrf.structure.search import PenaltyStrengths, StructureSearch, group_lasso_factory

CHANCE_L1_FACTOR = 2.0
"""Default l1 as a multiple of `null_gradient`.

With 2, edges between independent ends rarely pass the test, both for 5 x 5 tables and for pairs of literals.
"""

ACTIVATION_RULES = ("best-choice", "edges", "first-hit", "features")


@dataclass(frozen=True)
class GraftingBackend(AbstractWholeGraphBackend):
    """Pseudo-likelihood with group L1, starting from the templates and adding candidate edges.

    Training first learns the templates' weights. Each of the following rounds tests edges, adds those whose gradient
    exceeds their penalty, and runs a few iterations of the optimiser. If no edge passes, the optimiser runs to
    convergence and all edges are tested by their exact gradients; training ends if none passes. An edge whose weights
    are all 0 is removed.

    Args:
        activation: Rule that selects the edges to add. `edges`: the best of all edges. `best-choice`: the best of a
            sample from a priority queue. `first-hit`: the first edge that passes. `features`: the best single weights
            of all edges, with L1 instead of group L1.
        alpha: For `best-choice`: 0 adds all edges of the reservoir with gradients above the mean, 1 only the best edge.
        reservoir_size: Maximum number of edges (weights for `features`) added per round.
        tests_per_round: Number of edges tested per round with `best-choice`, and maximum number with `first-hit`.
        hub_fraction: A node with more than this fraction of its possible edges is a hub. The candidates of hubs are
            tested first; 0 disables hubs.
        score: Test statistic of an edge: `gradient` is exact; `counts` measures the dependence of the two ends' labels.
        l1: Penalty strength for candidates that do not set their own. An edge of d weights adds `l1 sqrt(d) |weights|`
            to the loss, which is a sum over variables. 0 selects twice the gradient that occurs by chance between
            independent ends.
        l2: Penalty `l2 / 2 |weights|^2` on all weights whose template does not set its own.
        max_seconds: Time limit in seconds; learning then stops with the current model. 0 disables the limit.
        iterations_per_round: Number of optimiser iterations per round.
        max_iterations: Maximum number of iterations in each stage.
        tolerance: Maximum violation of the optimality conditions, relative to the smallest l1 of candidates.
        validation_fraction: Fraction of the labels held out for early stopping; training afterwards continues on all
            labels. 0 disables early stopping.
        patience: Number of rounds without improvement on the held-out labels before training stops.
        inference: Name of a method that computes marginals; see docs/explanation/inference.
        seed: Seed of the queue's order, of the held-out labels, and of sampling methods.
    """

    name: ClassVar[str] = "grafting"
    method_settings: ClassVar[tuple[str, ...]] = ("seed",)
    uses_candidates: ClassVar[bool] = True
    activation: str = "best-choice"
    alpha: float = 0.0
    reservoir_size: int = 100
    tests_per_round: int = 5000
    hub_fraction: float = 0.0
    score: str = "gradient"
    l1: float = 0.0
    l2: float = 0.1
    max_seconds: float = 0.0
    iterations_per_round: int = 3
    max_iterations: int = 1000
    tolerance: float = 1e-2
    validation_fraction: float = 0.0
    patience: int = 5
    inference: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        self._require_one_of("activation", ACTIVATION_RULES)
        self._require_one_of("score", ("gradient", "counts"))
        self._require_one_of("inference", MARGINAL_METHODS)
        self._require_positive("reservoir_size", "tests_per_round", "iterations_per_round", "tolerance")
        self._require_below_1("validation_fraction")
        if self.alpha > 1.0:
            self._reject_setting("alpha", "use a number of at most 1")

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        spaces = self._edge_spaces(problem)
        layout = problem.graph.layout
        base = blanket_graph(problem.graph, problem.roles, problem.states)
        model = EdgeLikelihood.build(base, problem.states[base.variables], spaces)
        trained = np.random.default_rng(self.seed).random(base.n_nodes) >= self.validation_fraction
        # If no two ends are in the same sample, the gradient is 0 and every strength is suitable.
        l1 = [
            space.l1 or self.l1 or CHANCE_L1_FACTOR * null_gradient(model, number, self.seed) or 1.0
            for number, space in enumerate(spaces)
        ]
        search = self._structure_search(
            model.trained_on(trained), PenaltyStrengths.from_layout(layout, spaces, l1, self.l2)
        )
        unary_search = replace(search, activation=None)
        stages = StageRunner(monitor, self.max_iterations, layout.initial(), CandidateSet.empty())
        stages.run("unary", unary_search)
        state = final = stages.run("edges", search)
        if self.validation_fraction:
            final = stages.run("weights", replace(unary_search, model=model))
        pairs, order = search.learned_pairs(final)
        summary: dict[str, float | int | str] = {
            "variables": base.n_nodes,
            "candidates": search.pair_index.size,
            "tests": state.n_tests,
            "chosen": sum(map(len, pairs.values())),
        }
        summary |= {f"l1_{space.name}": l1 for space, l1 in zip(spaces, search.strengths.l1, strict=True)}
        return FitResult({"weights": final.point[order]}, tuple(stages.completed), summary, pairs)

    def _edge_spaces(self, problem: Problem) -> tuple[PairSpace, ...]:
        """Return the candidates between labelled variables.

        Raises:
            UsageError: If this backend cannot learn from the problem.
        """
        self._require_unsharded(problem, "edges are tested on all samples at once; raise --memory and omit --workers")
        reason = "pseudo-likelihood needs every neighbour's state"
        self._require_labels(problem, reason, "use --backend trmrf with --set objective=cd")
        spaces = []
        for space in problem.candidates:
            if not isinstance(space, PairSpace):
                message = f"backend '{self.name}' learns edges, but candidates '{space.name}' join three literals"
                hint = "use --backend trmrf, or remove one of the three literals from 'over'"
                raise UsageError(Diagnostic("E397", message, hint=hint))
            if space.l1 == 0.0:
                message = f"candidates '{space.name}' have no L1 penalty, so every candidate would be added"
                hint = "set their 'l1' above 0, or declare them as a template"
                raise UsageError(Diagnostic("E399", message, hint=hint))
            spaces.append(space.restrict_to_variables(problem.roles == Role.FREE))
        return tuple(spaces)

    def _structure_search(self, model: EdgeLikelihood, strengths: PenaltyStrengths) -> StructureSearch:
        by_weight = self.activation == "features"
        top = TopWeights if by_weight else TopEdges
        activations: dict[str, AbstractActivation] = {
            "best-choice": BestChoice(self.alpha, self.reservoir_size, self.tests_per_round),
            "first-hit": FirstHit(self.tests_per_round),
        }
        return StructureSearch(
            model,
            strengths,
            group_lasso_factory(strengths, self.tolerance, self.max_iterations),
            activations.get(self.activation, top(self.reservoir_size)),
            final_activation=top(self.reservoir_size, 1.0 + self.tolerance),
            grouped=not by_weight,
            score_by_counts=self.score == "counts",
            hub_fraction=self.hub_fraction or None,
            iterations_per_round=self.iterations_per_round,
            max_seconds=self.max_seconds or None,
            patience=self.patience,
            seed=self.seed,
        )
