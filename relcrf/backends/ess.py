"""ESS-CRF: evidence-specific structures of small treewidth, with exact learning and exact inference.

Source: Chechetka & Guestrin, Evidence-Specific Structures for Rich Tractable CRFs (NIPS 2010).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import AbstractLikelihoodSpec, FitResult, Monitor, Problem, SharedVector
from relcrf.backends.chow_liu import label_information
from relcrf.backends.exact import exact_likelihood, exact_method
from relcrf.backends.inference_result import InferenceResult, run_inference
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend, moments_at
from relcrf.backends.whole_graph import WholeGraphSpec
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.components import label_components
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.graph.regions import breadth_first_region
from relcrf.graph.scopes import MAX_TABLE_CELLS
from relcrf.graph.weights import WeightLayout
from relcrf.inference.result import Observer, ignore_progress
from relcrf.learning.likelihood import AbstractJointLikelihood, AbstractLikelihood
from relcrf.learning.margin import MarginLoss
from relcrf.learning.mixture import MixtureLikelihood
from relcrf.learning.pair_likelihood import PairLikelihood
from relcrf.structure.conditional_chow_liu import EdgeSelector, edge_information
from relcrf.structure.edge_kinds import count_factors_by_kind
from relcrf.structure.pair_unaries import pairs_contain_unaries, with_own_unaries, without_unaries

MAX_COMPARED_EDGES = 1 << 14
"""Approximate number of edges on which inference methods are compared; 2**14 edges take a second per method."""

MAX_TRW_EDGES = 1 << 18
"""Maximum number of edges for which tree-reweighted propagation is compared; on 2,000,000 edges, it takes 40 seconds."""

MAX_REGION_EDGES = 1 << 18
"""Maximum number of edges of components that are compared as a whole. On 2,000,000 edges of one component, belief propagation
takes 11 seconds and 2 GB; on a region of 2**18 edges, it takes a second and 200 MB."""

N_REGION_STARTS = 16
"""Number of random nodes from which the region grows, so that it represents different parts of the component."""

MIN_STANDARD_ERRORS = 2.0
"""Minimum gain of a method over the default in standard errors; a few edges between labels prove nothing."""

MIN_GAIN = 1e-9
"""Minimum gain of a method over the default in nats per label; a smaller one is due to rounding."""

MIN_PROBABILITY = 1e-12
"""Minimum probability of a label in the comparison of inference methods, so that no single label decides."""

MAX_ITERATIONS, MAX_TRW_ITERATIONS = 200, 50
"""Maximum numbers of iterations of inference on all edges. Reweighted messages change slowly: on 1,797 images of digits, the
probabilities after 50 iterations differ from those after 1,000 by at most 0.02, and by 0.00003 on average."""


def _with_pair_unaries(graph: ReducedGraph, unaries: str) -> ReducedGraph:
    """Return the graph of the models of pairs for a value of the setting `structure_unaries`."""
    if unaries == "none":
        return without_unaries(graph)
    return with_own_unaries(graph) if unaries == "own" else graph


@dataclass(frozen=True)
class PairLikelihoodSpec(AbstractLikelihoodSpec):
    """A specification of the likelihood of pairs: each pair of variables with a common factor is a separate model.

    Args:
        unaries: The setting `structure_unaries`.
    """

    backend: str
    unaries: str = "shared"

    def graph(self, problem: Problem) -> ReducedGraph:
        """Return the graph of the free variables with all edges, and with the unary features of the models of pairs."""
        return _with_pair_unaries(problem.reduced_graph(self.backend), self.unaries)

    def layout(self, problem: Problem) -> WeightLayout:
        return self.graph(problem).graph.layout if self.unaries == "own" else problem.graph.layout

    def likelihood(self, problem: Problem) -> PairLikelihood:
        graph = self.graph(problem)
        return PairLikelihood(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class StructureLikelihoodSpec(AbstractLikelihoodSpec):
    """A specification of the likelihood of a structure, i.e. of the graph with only the edges that a rule selects.

    Args:
        structure: The structure weights, from which the information of the edges is computed.
        fractions, label_information: Arguments of `EdgeSelector.select`.
        observed_in_tree: Whether labelled variables are nodes of the structure.
        unaries: The setting `structure_unaries`.
        sharpness: Sharpness of the margin loss; 0 selects the likelihood.
        trees: Number of structures whose distributions are averaged.
    """

    backend: str
    rule: EdgeSelector
    structure: SharedVector
    fractions: SharedVector | None
    label_information: SharedVector | None
    observed_in_tree: bool = False
    unaries: str = "shared"
    sharpness: float = 0.0
    trees: int = 1

    def graphs(self, problem: Problem) -> list[ReducedGraph]:
        """Return one graph of selected edges per structure, with nodes for labelled variables if `observed_in_tree`."""
        graph = (problem.unclamp() if self.observed_in_tree else problem).reduced_graph(self.backend)
        information = edge_information(_with_pair_unaries(graph, self.unaries), self.structure.load())
        fractions, labels = (None if v is None else v.load() for v in (self.fractions, self.label_information))
        return self.rule.select(graph, information, self.trees, fractions=fractions, label_information=labels)

    def graph(self, problem: Problem) -> ReducedGraph:
        """Return the first of the graphs that `graphs` returns."""
        return replace(self, trees=1).graphs(problem)[0]

    def likelihood(self, problem: Problem) -> AbstractLikelihood:
        likelihoods = [self._graph_likelihood(problem, graph) for graph in self.graphs(problem)]
        if self.trees > 1:
            return MixtureLikelihood(tuple(likelihoods))
        return MarginLoss(likelihoods[0], self.sharpness) if self.sharpness else likelihoods[0]

    def _graph_likelihood(self, problem: Problem, graph: ReducedGraph) -> AbstractJointLikelihood:
        evidence = problem.roles[graph.variables] == Role.CLAMPED if self.observed_in_tree else None
        return exact_likelihood(graph, problem.states[graph.variables], evidence, treewidth=self.rule.treewidth)


def _kind_counts(problem: Problem, spec: PairLikelihoodSpec | StructureLikelihoodSpec) -> np.ndarray:
    return count_factors_by_kind(spec.graph(problem))


def _repeats_or_lacks_unaries(problem: Problem, backend: str) -> int:
    return int(not pairs_contain_unaries(problem.reduced_graph(backend)))


STRUCTURE_TOLERANCE_RATIO = 10.0
"""Tolerance of the structure weights as a multiple of `tolerance`, unless they predict: they only rank the edges. On 100,000
synthetic web pages, 10 saves a quarter of the iterations and changes neither accuracy nor log-likelihood; 100 saves another
quarter, but the accuracy falls from 96.8 % to 93.9 %."""

METHOD_NAMES = {"exact": "jt", "trw": "trw", "bp": "bp", "mf": "mf"}
"""Name of the inference method on all edges, by the value of the setting `inference`."""


@dataclass(frozen=True)
class EssBackend(AbstractLikelihoodBackend):
    """Evidence-specific structures, selected by conditional mutual information, with exact learning of the weights.

    Training has three steps: learn structure weights u from pairs of variables, select edges by their conditional
    mutual information under u, and learn the weights w on these edges by exact likelihood. In prediction, edges are
    selected under u given the new evidence, or all edges are used (`edges`).

    If `edges` or `inference` is `auto`, training compares the mean log-probability of the training labels for exact
    inference on the structure, for loopy belief propagation on all edges, and, if this is not better, for tree-reweighted
    belief propagation on all edges (for at most 262,144 edges). Prediction uses the first of the latter two methods that
    is better than the structure by more than two standard errors. The summary of the training run lists the results.
    Structures are not compared with all edges if a setting restricts the structure, if the objective is `margin`, or if
    `inference` is `exact` and all edges are too many for it.

    For predicted numbers, see docs/explanation/ess.md: the structure is a forest, and of the other settings, only `l2`,
    `max_iterations`, `tolerance`, `min_information`, `edges` and `weights` have an effect.

    Args:
        seed: Seed of the initial weights if the model has latent attributes.
        objective: Objective of learning the weights w: `likelihood`, or `margin` for the structured hinge loss.
        sharpness: Sharpness of the smoothed margin loss; with larger values, the loss is closer to the hinge loss.
        treewidth: Maximum treewidth of the structure. With 1, the structure is a spanning forest; with larger values,
            edges are selected greedily.
        min_information: Minimum conditional mutual information of an edge, in nats.
        min_fraction: Minimum ratio of selected edges to candidate edges in training, for each template and key. If the
            ratio is smaller, all edges with this template and key are excluded.
        pooling: Weight, from 0 to 1, of the mutual information of the training labels; the conditional mutual
            information has the weight `1 - pooling`. 1 gives the fixed tree of Chow & Liu.
        trees: Number of structures whose predictions inference averages. For each structure, the information of edges
            in earlier structures is discounted.
        observed_edges: Treatment of factors that join an unknown variable to a labelled neighbour. `fold` adds the
            factor to the potential of the variable. `tree` makes the neighbour a node of the structure, like an unknown
            variable.
        structure_unaries: Unary features in the model of a pair, from which structure weights are learned. `none`: only
            the features of the pair. `shared`: also the unary features of both variables, with one weight vector for
            all pairs. `own`: also these features, with separate weights for each template and key of pairs. `auto`:
            `none` if each pair has separate weights and a table that contains the unary features, otherwise `shared`.
        edges: Edges in prediction. `tree`: the selected structure. `all`: all edges; for numbers, all edges between known and
            unknown ones, and a forest of the unknown ones. `auto`: see above.
        weights: Weights in prediction. `tree`: the weights w. `pairs`: the structure weights u; w is not learned.
        inference: Inference method in prediction: `exact`, `trw` (tree-reweighted belief propagation), `bp` (loopy
            belief propagation), `mf` (mean field), or `auto`, see above.

    Raises:
        UsageError: If a setting has an unknown value, a setting that must be positive is 0, `pooling` exceeds 1, or two
            settings contradict each other.
    """

    name: ClassVar[str] = "ess"
    learning_arrays: ClassVar[tuple[float, float]] = (5, 6)
    inference_arrays: ClassVar[tuple[float, float]] = (4, 10)
    unused_settings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "structure": (
            "objective",
            "sharpness",
            "treewidth",
            "min_information",
            "min_fraction",
            "pooling",
            "trees",
            "observed_edges",
            "edges",
            "inference",
        ),
        "weights": ("trees", "observed_edges", "edges", "inference"),
    }
    seed: int = 0
    objective: str = "likelihood"
    sharpness: float = 10.0
    treewidth: int = 1
    min_information: float = 0.0
    min_fraction: float = 0.0
    pooling: float = 0.0
    trees: int = 1
    observed_edges: str = "fold"
    structure_unaries: str = "auto"
    edges: str = "auto"
    weights: str = "tree"
    inference: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("objective", ("likelihood", "margin"))
        self._require_one_of("observed_edges", ("fold", "tree"))
        self._require_one_of("structure_unaries", ("auto", "none", "own", "shared"))
        self._require_one_of("edges", ("auto", "tree", "all"))
        self._require_one_of("weights", ("tree", "pairs"))
        self._require_one_of("inference", ("auto", *METHOD_NAMES))
        for setting, value in (("trees", 1), ("observed_edges", "fold")):
            if self.edges == "all" and getattr(self, setting) != value:
                self._reject_setting(setting, "use --set edges=tree; this setting has no effect on all edges")
        if self.weights == "pairs" and self.objective == "margin":
            self._reject_setting("objective", "use --set weights=tree; the weights of pairs maximise the likelihood")
        if self.unlabelled == "marginal" and self.objective == "margin":
            self._reject_setting("unlabelled", "use --set objective=likelihood; the margin does not sum out states")
        self._require_positive("treewidth", "sharpness", "trees")
        if self.pooling > 1:
            self._reject_setting("pooling", "use a number from 0 to 1")

    @property
    def unshardable_reason(self) -> str:
        return (
            "observed_edges=tree joins components at their labelled neighbours (observed_edges=fold does not)"
            if self.observed_edges == "tree"
            else "structure_unaries=own has weights of pairs that shards number differently"
            if self.structure_unaries == "own"
            else super().unshardable_reason
        )

    @property
    def separate_tables_per_variable(self) -> float:
        # The structure is a forest, whose edges have separate tables.
        is_forest = self.treewidth == self.trees == 1 and self.observed_edges == "fold"
        shares = self.structure_unaries != "own" and self.inference in ("auto", "exact", "bp")
        return 1.0 if is_forest and shares else math.inf

    @property
    def labels_separate(self) -> bool:
        return self.observed_edges == "fold"

    @property
    def _rule(self) -> EdgeSelector:
        return EdgeSelector(self.treewidth, self.min_information, self.min_fraction, self.pooling)

    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        if self.objective == "margin" and problem.latent.any():
            message = "the margin objective cannot learn latent attributes: the loss needs every target's state"
            raise UsageError(Diagnostic("E307", message, hint="use --set objective=likelihood"))
        problem = problem.with_used_factors()
        if self.structure_unaries == "auto":
            repeated = problem.map_reduce(partial(_repeats_or_lacks_unaries, backend=self.name))
            unaries = "shared" if repeated else "none"
            learned = replace(self, structure_unaries=unaries)._learn(problem, monitor)
            return replace(learned, settings={"structure_unaries": unaries, **learned.settings})
        return self._learn(problem, monitor)

    def _learn(self, problem: Problem, monitor: Monitor) -> FitResult:
        """Run the training steps; the setting `structure_unaries` is not `auto`."""
        pairs = problem.total_likelihood(PairLikelihoodSpec(self.name, self.structure_unaries))
        nodes, edges = pairs.sizes()
        layout = problem.graph.layout
        ratio = 1.0 if self.weights == "pairs" else STRUCTURE_TOLERANCE_RATIO
        structure = replace(self, tolerance=ratio * self.tolerance).maximise(
            "structure",
            pairs,
            lambda: np.append(problem.initial_weights(self.seed), pairs.layout.initial()[layout.size :]),
            monitor,
        )
        vectors = {"structure": structure.point[: layout.size]}
        if self.structure_unaries == "own":
            vectors["pair_unaries"] = structure.point[layout.size :]
        if self.pooling:
            vectors["label_information"] = label_information(problem, self.name)
        if self.min_fraction:
            chosen, candidates = (
                problem.map_reduce(partial(_kind_counts, spec=spec))
                for spec in (self._structure_spec(problem, vectors), PairLikelihoodSpec(self.name))
            )
            vectors["selected_fraction"] = chosen / np.maximum(candidates, 1.0)
        margin = self.objective == "margin"
        sharpness = self.sharpness if margin else 0.0
        likelihood = problem.total_likelihood(replace(self._structure_spec(problem, vectors), sharpness=sharpness))
        summary: dict[str, float | int | str] = {
            "variables": nodes,
            "candidate_edges": edges,
            "forest_edges": likelihood.sizes()[1],
        }
        if self.weights == "pairs":
            result = FitResult({"weights": vectors["structure"], **vectors}, (("structure", structure),), summary)
        else:
            weights = self.maximise("weights", likelihood, vectors["structure"].copy, monitor)
            result = FitResult(
                {"weights": weights.point, **vectors},
                (("structure", structure), ("weights", weights)),
                summary,
                moments=None if margin else moments_at(likelihood, weights, self.l2),
            )
        return self._choose_inference(problem, result)

    def _choose_inference(self, problem: Problem, learned: FitResult) -> FitResult:
        """Return the result with the choice of `edges` and `inference`, which maximises the labels' probabilities."""
        choices = self._inference_choices(learned.summary["candidate_edges"] == learned.summary["forest_edges"])
        if problem.latent.any():
            choices = choices[:1]
        summary: dict[str, float | int | str] = {**learned.summary}
        default = chosen = choices[0]
        vectors = {name: problem.share_vector(vector) for name, vector in learned.vectors.items()}
        n_edges = int(learned.summary["candidate_edges"])
        fraction = MAX_COMPARED_EDGES / max(n_edges, 1)
        for choice in choices[1:]:
            if choice["inference"] == "trw" and n_edges > MAX_TRW_EDGES:
                break
            pair = (replace(self, **default), replace(self, **choice))
            compare = partial(_compare_labels, backends=pair, vectors=vectors, fraction=fraction)
            try:
                first, second, squared_gain, n_labels = problem.map_reduce(compare).tolist()
            except UsageError:
                if choice["inference"] != "exact":
                    raise
                break  # the graph of all edges is too large for exact inference
            if not n_labels:
                break
            gain, n = (second - first) / n_labels, n_labels
            for each, total in ((default, first), (choice, second)):
                summary[f"label_log_likelihood_{each['edges']}_{each['inference']}"] = total / n
            standard_error = np.sqrt(max(squared_gain / n - gain**2, 0.0) / n)
            if gain > max(MIN_GAIN, MIN_STANDARD_ERRORS * standard_error):
                chosen = choice
                break
        summary |= chosen
        return replace(learned, summary=summary, settings={**learned.settings, **chosen})

    def _inference_choices(self, forest_has_all_edges: bool) -> list[dict[str, Any]]:
        """Return the values of `edges` and `inference` that the settings permit, in the order of comparison."""
        restricts_structure = self._rule != EdgeSelector() or self.trees > 1 or self.observed_edges == "tree"
        use_tree = self.edges == "auto" and (forest_has_all_edges or restricts_structure or self.objective == "margin")
        edges = ["tree", "all"] if self.edges == "auto" and not use_tree else ["tree" if use_tree else self.edges]
        automatic = {"tree": ["exact"], "all": ["bp", "trw"]}
        return [
            {"edges": each, "inference": method}
            for each in edges
            for method in (automatic[each] if self.inference == "auto" else [self.inference])
        ]

    def joint_likelihood(
        self, problem: Problem, vectors: dict[str, np.ndarray]
    ) -> StructureLikelihoodSpec | WholeGraphSpec:
        for setting, vector in (("min_fraction", "selected_fraction"), ("pooling", "label_information")):
            if getattr(self, setting) and vector not in vectors:
                message = f"backend '{self.name}' was trained without setting '{setting}'; prediction cannot add it"
                raise UsageError(Diagnostic("E305", message, hint=f"train with --set {setting}=..."))
        if self.edges == "all":
            return self._whole_graph_spec
        in_tree = self.observed_edges == "tree"
        return replace(self._structure_spec(problem, vectors), observed_in_tree=in_tree, trees=self.trees)

    def _structure_spec(self, problem: Problem, vectors: dict[str, np.ndarray]) -> StructureLikelihoodSpec:
        """Return the specification for the learned vectors; a setting whose vector was not learned has no effect."""
        structure = problem.share_vector(np.append(vectors["structure"], vectors.get("pair_unaries", ())))
        fractions, labels = (
            problem.share_vector(vectors[name]) if name in vectors else None
            for name in ("selected_fraction", "label_information")
        )
        return StructureLikelihoodSpec(
            self.name, self._rule, structure, fractions, labels, unaries=self.structure_unaries
        )

    @property
    def _whole_graph_spec(self) -> WholeGraphSpec:
        name = "trw" if self.inference == "auto" else self.inference
        limit = MAX_TRW_ITERATIONS if name == "trw" else MAX_ITERATIONS
        return WholeGraphSpec(self.name, METHOD_NAMES[name], (("max_iterations", limit),))

    def infer(
        self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = ignore_progress
    ) -> InferenceResult:
        if self.edges == "all":
            return run_inference(self._whole_graph_spec.inference_task(problem, vectors["weights"], observe))
        return super().infer(problem, vectors, observe)

    def conditional_graph(self, problem: Problem) -> ReducedGraph | None:
        # With observed_edges=tree, the structure may omit edges to observed neighbours.
        return blanket_graph(problem.graph, problem.roles, problem.states) if self.labels_separate else None

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        spec = self.joint_likelihood(problem, vectors)
        if isinstance(spec, WholeGraphSpec):
            return (spec.inference_task(problem, vectors["weights"]),)
        method = exact_method(self.treewidth) if self.inference in ("auto", "exact") else self._whole_graph_spec.method
        observed = np.where(problem.roles == Role.CLAMPED, problem.states, -1) if spec.observed_in_tree else None
        return tuple(
            InferenceTask(
                graph,
                vectors["weights"],
                method,
                None if observed is None else observed[graph.variables],
            )
            for graph in spec.graphs(problem)
        )

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> StructureLikelihoodSpec | None:
        is_exact = self.objective == "likelihood" and self.weights == "tree"
        return self._structure_spec(problem, vectors) if is_exact else None


def _compare_labels(
    problem: Problem, backends: tuple[EssBackend, EssBackend], vectors: dict[str, SharedVector], fraction: float
) -> np.ndarray:
    """Return sums over labels: log-probability under each backend, squared difference of the two, and 1; shape (4,).

    Args:
        fraction: Minimum fraction of the edges that are compared if it is below 1; see `_compared_sample`.
    """
    problem.release_likelihood()
    sample = problem if fraction >= 1.0 else _compared_sample(problem, backends[0].name, fraction)
    if sample is None:
        return np.zeros(4)
    loaded = {name: vector.load() for name, vector in vectors.items()}
    first, second = (_label_log_probabilities(sample, backend, loaded) for backend in backends)
    return np.array([first.sum(), second.sum(), ((second - first) ** 2).sum(), len(first)])


def _compared_sample(problem: Problem, backend: str, fraction: float) -> Problem | None:
    """Return the problem for connected components in random order that contain at least a fraction of the edges.

    If these components have more than MAX_REGION_EDGES edges, only a region of them is free, given the labels around it: an
    omitted neighbour would change the probabilities more than the inference method does. The result is None if there are no
    edges, as in a shard of isolated variables, or too many edges for methods on all edges.
    """
    component = label_components(problem.graph, problem.roles)
    graph = problem.reduced_graph(backend)
    edge_component = component[graph.variables[graph.edges[:, 0]]]
    roots, n_edges = np.unique(edge_component, return_counts=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(roots))
    n_chosen = np.searchsorted(np.cumsum(n_edges[order]), fraction * n_edges.sum()) + 1
    chosen = roots[order[:n_chosen]]
    is_compared = np.isin(edge_component, chosen)
    n_cells = np.diff(graph.table_start)[is_compared].sum()
    if n_cells == 0 or n_cells > MAX_TABLE_CELLS:
        return None
    is_free = problem.roles == Role.FREE
    if is_compared.sum() <= MAX_REGION_EDGES:
        excluded = is_free & ~np.isin(component, chosen)
        return replace(problem, roles=np.where(excluded, Role.ABSENT, problem.roles).astype(np.int8))
    starts = rng.choice(np.flatnonzero(np.isin(component[graph.variables], chosen)), N_REGION_STARTS)
    region = breadth_first_region(graph.n_nodes, graph.edges, starts, MAX_REGION_EDGES)
    roles = np.where(is_free, Role.CLAMPED, problem.roles).astype(np.int8)
    roles[graph.variables[region]] = Role.FREE
    return replace(problem, roles=roles)


def _label_log_probabilities(problem: Problem, backend: EssBackend, vectors: dict[str, np.ndarray]) -> np.ndarray:
    result = backend.infer(problem, vectors)
    result.verdict.raise_if_interrupted()
    probability = result.marginals[result.state_start[:-1] + problem.states[result.variables]]
    return np.asarray(np.log(np.fmax(probability, MIN_PROBABILITY)))
