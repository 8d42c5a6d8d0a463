"""Edge grafting: structure learning that adds candidate edges to the model while it learns their tables of weights.

An edge joins two *ends*, the keys of two literals, in each sample with both keys (see `graph/candidates.py`).
Source: Chaabene & Huang, Best-choice edge grafting for efficient structure learning of Markov random fields (2018), for
edge grafting with on-demand statistics, best choice with a search history and a reservoir, and first hit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.structure_learning import StageRunner
from relcrf.backends.whole_graph import MARGINAL_METHODS, PARTITION_METHODS, AbstractWholeGraphBackend, WholeGraphSpec
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.reduction import Role
from relcrf.learning.edge_joint_likelihood import JointEdgeLikelihood
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.learning.edge_objective import AbstractEdgeObjective
from relcrf.structure.activation import AbstractActivation, BestChoice, FirstHit, TopEdges, TopWeights
from relcrf.structure.scores import null_gradient
from relcrf.structure.search import PenaltyStrengths, StructureSearch, group_lasso_factory

CHANCE_L1_FACTOR = 2.0
"""Default `l1` as a multiple of `null_gradient`, the gradient of an edge between independent ends.

With 2, an edge between independent ends rarely passes the test, whether it has a 5 x 5 table or joins two literals.
"""

TRAINING_MEMORY = 1 << 24
"""Memory of junction trees during training with `inference=auto`, in bytes; larger components use belief propagation.

Training runs inference hundreds of times. With exact inference, the test of edges also runs it once for each state of
each node.
"""

ACTIVATION_RULES = ("best-choice", "edges", "first-hit", "features")


@dataclass(frozen=True)
class GraftingBackend(AbstractWholeGraphBackend):
    """Structure learning by pseudo-likelihood or likelihood with a group L1 penalty on candidate edges.

    Training first learns the weights of the templates. Each of the following rounds tests edges, adds edges that pass
    the test, and runs a few iterations of the optimiser. An edge passes if its gradient exceeds the penalty. If no edge
    passes, the optimiser runs to convergence and exact gradients of all edges are tested; if no edge passes this test,
    training ends. Edges whose weights are all 0 are removed at the end.

    Args:
        objective: `pseudo`, or `likelihood`, which is computed by the method in `inference`. With `auto`, components
            that need large junction trees use belief propagation during training.
        activation: Rule that selects the edges to add. `edges`: the best of all edges. `best-choice`: the best of the
            first edges in a priority queue. `first-hit`: the first edge that passes. `features`: the best single
            weights of all edges, with L1 instead of group L1.
        alpha: For `best-choice`: 0 adds edges with at least the mean gradient of the reservoir, 1 only the best edge.
        reservoir_size: Maximum number of passing edges (the reservoir) per round; for `features`, number of weights.
        tests_per_round: Maximum number of edges tested per round, for `best-choice` and `first-hit`.
        hub_fraction: An end with more than this fraction of its possible edges is a hub; the candidate edges of hubs
            are tested first. 0 disables hubs.
        score: Test statistic of an edge: `gradient` (exact) or `counts` (dependence of the labels of the two ends).
        l1: Penalty strength for candidates whose declaration specifies no `l1`. An edge with d weights adds `l1 sqrt(d)
            |weights|` to the loss, which is a sum over variables. 0 selects twice the gradient that an edge between
            independent ends has by chance.
        node_l1: Strength of the penalty `node_l1 sqrt(d) |weights|` on the d weights of a variable in a template without
            other predicted terms (for the key of the variable, if the template has `per`), unless the template declares
            `l1`. All these weights become 0 if the variable's labels are about equally frequent. 0 disables this penalty.
        l2: Strength of the penalty `l2 / 2 |weights|^2` for templates that specify no `l2`.
        max_seconds: Time limit in seconds, at which learning stops with the current model. 0 disables the limit.
        iterations_per_round: Number of optimiser iterations per round.
        max_iterations: Maximum number of iterations in each stage.
        tolerance: Maximum violation of the optimality conditions, relative to the smallest `l1` of all candidates.
        validation_fraction: Fraction of the labels that are held out for early stopping. A further stage then learns
            the weights from all labels. 0 disables early stopping.
        patience: Number of rounds without improvement on the held-out labels after which training stops.
        inference: Name of a method that computes marginals, and the log partition for `objective=likelihood`; see
            docs/explanation/inference.
        seed: Seed of the queue's order, of the choice of held-out labels, and of sampling methods.
    """

    name: ClassVar[str] = "grafting"
    learning_arrays: ClassVar[tuple[float, float]] = (3, 6)
    inference_arrays: ClassVar[tuple[float, float]] = (6, 10)
    method_settings: ClassVar[tuple[str, ...]] = ("seed",)
    uses_candidates: ClassVar[bool] = True
    objective: str = "pseudo"
    activation: str = "best-choice"
    alpha: float = 0.0
    reservoir_size: int = 100
    tests_per_round: int = 5000
    hub_fraction: float = 0.0
    score: str = "gradient"
    l1: float = 0.0
    node_l1: float = 0.0
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
        self._require_one_of("objective", ("pseudo", "likelihood"))
        self._require_one_of("activation", ACTIVATION_RULES)
        self._require_one_of("score", ("gradient", "counts"))
        self._require_one_of("inference", MARGINAL_METHODS if self.objective == "pseudo" else PARTITION_METHODS)
        self._require_positive("reservoir_size", "tests_per_round", "iterations_per_round", "tolerance")
        self._require_below_1("validation_fraction")
        if self.alpha > 1.0:
            self._reject_setting("alpha", "use a number of at most 1")

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        spaces = self._edge_spaces(problem)
        layout = problem.graph.layout
        model = self._objective_without_edges(problem, spaces)
        trained = np.random.default_rng(self.seed).random(model.base.n_nodes) >= self.validation_fraction
        # If no sample contains two ends, `null_gradient` is 0 and the strength has no effect.
        l1 = [
            space.l1 or self.l1 or CHANCE_L1_FACTOR * null_gradient(model, number, self.seed) or 1.0
            for number, space in enumerate(spaces)
        ]
        strengths = PenaltyStrengths.from_layout(layout, spaces, l1, self.l2)
        if self.node_l1:
            strengths = strengths.with_node_groups(problem.graph, self.node_l1)
        search = self._structure_search(model.trained_on(trained), strengths)
        unary_search = replace(search, activation=None)
        stages = StageRunner(monitor, self.max_iterations, layout.initial(), CandidateSet.empty())
        stages.run("unary", unary_search)
        state = final = stages.run("edges", search)
        if self.validation_fraction:
            final = stages.run("weights", replace(unary_search, model=model))
        pairs, order = search.learned_pairs(final)
        summary: dict[str, float | int | str] = {
            "variables": model.base.n_nodes,
            "candidates": search.pair_index.size,
            "tests": state.n_tests,
            "chosen": sum(map(len, pairs.values())),
        }
        summary |= {f"l1_{space.name}": l1 for space, l1 in zip(spaces, search.strengths.l1, strict=True)}
        return FitResult({"weights": final.point[order]}, tuple(stages.completed), summary, pairs)

    def _edge_spaces(self, problem: Problem) -> tuple[PairSpace, ...]:
        """Return the candidate spaces, restricted to the labelled variables.

        Raises:
            UsageError: If the graph is sharded, a variable is latent, or a candidate is not an edge with an L1 penalty.
        """
        self._require_unsharded(problem, "edges are tested on all samples at once; raise --memory and omit --workers")
        reason = "the counts of joint states need every label"
        self._require_labels(problem, reason, "use --backend trmrf with --set objective=cd")
        spaces = []
        for space in problem.candidates:
            if not isinstance(space, PairSpace):
                message = f"backend '{self.name}' learns edges, but candidates '{space.name}' join three literals"
                hint = "use --backend trmrf, or remove one of the three literals from 'over'"
                raise UsageError(Diagnostic("E397", message, hint=hint))
            if space.l1 == 0.0:
                message = f"candidates '{space.name}' have no L1 penalty, so every candidate would be added"
                hint = "set 'l1' of the candidates above 0, or declare a template instead"
                raise UsageError(Diagnostic("E399", message, hint=hint))
            spaces.append(space.restrict_to_variables(problem.roles == Role.FREE))
        return tuple(spaces)

    def _objective_without_edges(self, problem: Problem, spaces: tuple[PairSpace, ...]) -> AbstractEdgeObjective:
        if self.objective == "pseudo":
            base = blanket_graph(problem.graph, problem.roles, problem.states)
            return EdgeLikelihood.build(base, problem.states[base.variables], spaces)
        settings: tuple[tuple[str, int], ...] = (("seed", self.seed),)
        if self.inference == "auto":
            settings += (("memory", TRAINING_MEMORY),)
        spec = WholeGraphSpec(self.name, self.inference, settings)
        return JointEdgeLikelihood.build(spec.graph(problem), problem.roles, problem.states, spaces, spec.method)

    def _structure_search(self, model: AbstractEdgeObjective, strengths: PenaltyStrengths) -> StructureSearch:
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
