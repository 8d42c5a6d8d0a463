"""The interface of backends, which learn weights on a ground graph and use the weights for inference."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.inference_result import InferenceResult, average_results, run_inference
from relcrf.backends.inference_task import InferenceTask
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.execution.memory import return_freed_memory
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.factor_selection import select_used_factors
from relcrf.graph.feature_scales import weight_scales
from relcrf.graph.gates import Gates, LazyGates, build_gates
from relcrf.graph.numeric_graph import NumericTargets
from relcrf.graph.reduction import ReducedGraph, Role, reduce_graph
from relcrf.graph.triples import PairOrTripleSpace
from relcrf.graph.weights import WeightLayout
from relcrf.grounding.random_pairs import RandomPairs
from relcrf.inference.result import Observer, ignore_progress
from relcrf.learning.histogram import Histogram
from relcrf.learning.lbfgs import AnyState, OptimiserState
from relcrf.learning.likelihood import (
    AbstractJointLikelihood,
    AbstractLikelihood,
)
from relcrf.learning.moments import Moments, label_moments
from relcrf.settings import field_types, setting_names

T = TypeVar("T")

MORE_ITERATIONS = "max_iterations=10000"
"""A setting for the next training if learning did not converge: ten times the default of most backends."""


@dataclass(frozen=True)
class Problem:
    """A learning or inference problem: a ground graph, with a role for each variable.

    Args:
        roles: A `Role` (free, clamped or absent) for each variable, shape (n_variables,), int8. The free variables are
            the targets in training and the variables of unknown state in prediction.
        states: State or label of each variable, shape (n_variables,), int32; -1 if unknown, as for latent variables.
        candidates: Spaces of candidate factors (see `graph/candidates.py`). Learning may add these factors to the
            graph.
        lazy_gates: The gates that open or close pairwise factors. If None, a gate depends only on the statuses of the
            two variables of its factor (see `graph/gates.py`).
        queries: Mask of the query variables among the free variables, shape (n_variables,), bool; None selects the free
            variables with a label. Only gates distinguish query variables from other free variables.
        validation: Mask of the absent variables whose labels are reserved for the choice of settings, shape
            (n_variables,), bool; None reserves no labels. Backends without a choice ignore it.
        excluded: Mask of the absent variables that no part of training may use, shape (n_variables,), bool, e.g. those
            of later periods; other absent variables are unlabelled variables of the graph. None excludes no variables.
        memory_limit: The user's limit on the memory for learning, in bytes; None permits all available memory.
        numbers: The predicted numbers with their factors, which `graph` does not contain; None for a model without numbers.
            In `graph`, a number is a variable with one state.
        random_pairs: Random pairs that the random relations do not admit, for backends that learn without labels.
    """

    graph: FactorGraph
    roles: np.ndarray
    states: np.ndarray
    is_sharded: ClassVar[bool] = False
    """Whether the graph is stored in shards. A shard contains whole components; no worker loads the whole graph."""
    candidates: tuple[PairOrTripleSpace, ...] = field(default=(), kw_only=True)
    lazy_gates: LazyGates | None = field(default=None, kw_only=True)
    queries: np.ndarray | None = field(default=None, kw_only=True)
    validation: np.ndarray | None = field(default=None, kw_only=True)
    excluded: np.ndarray | None = field(default=None, kw_only=True)
    memory_limit: int | None = field(default=None, kw_only=True)
    random_pairs: tuple[RandomPairs, ...] = field(default=(), kw_only=True)
    numbers: NumericTargets | None = field(default=None, kw_only=True)

    @property
    def whole_graph(self) -> FactorGraph:
        """The graph with the factors over numbers."""
        return self.graph if self.numbers is None else self.numbers.graph

    @property
    def gates(self) -> Gates:
        """The gates of the pairwise factors. The first access grounds the gate features of the model."""
        return build_gates(self.graph) if self.lazy_gates is None else self.lazy_gates.gates

    def with_candidates(self, chosen: Mapping[str, np.ndarray]) -> Problem:
        """Return the problem with added candidates; `chosen` maps each space name to pairs of keys, shape (n, 2)."""
        graph = self.graph
        for space in self.candidates:
            if space.name in chosen:
                pairs = chosen[space.name]
                group = space.build_factor_group(pairs, np.arange(len(pairs)), len(pairs), len(graph.layout.blocks))
                graph = graph.with_groups((group,), space.build_weight_block(len(pairs)))
        return replace(self, graph=graph)

    @property
    def latent(self) -> np.ndarray:
        """A mask of the free variables of unknown state, shape (n_variables,), bool."""
        return np.asarray((self.roles == Role.FREE) & (self.states < 0))

    @property
    def unlabelled(self) -> np.ndarray:
        """A mask of the absent variables that are not excluded, shape (n_variables,), bool."""
        absent = self.roles == Role.ABSENT
        return np.asarray(absent if self.excluded is None else absent & ~self.excluded)

    def initial_weights(self, seed: int) -> np.ndarray:
        """Return the weights at which learning starts, shape (layout.size,).

        Weights of templates over latent variables start at small random values. With equal weights, the states of a
        latent variable would be interchangeable and remain so during learning.
        """
        point = self.graph.layout.initial()
        latent = self.latent
        rng = np.random.default_rng(seed)
        for group in self.graph.groups:
            block = self.graph.layout.blocks[group.block]
            if not block.fixed and any(latent[variables].any() for variables in group.scope):
                weights = self.graph.layout.matrix(point, group.block)
                weights += rng.normal(scale=0.1, size=weights.shape)
        return point

    def unclamp(self) -> Problem:
        """Return the problem with every clamped variable made free; `states` still contains the observed values."""
        return replace(self, roles=np.where(self.roles == Role.CLAMPED, Role.FREE, self.roles).astype(np.int8))

    def with_unlabelled(self) -> Problem:
        """Return the problem with every variable in `unlabelled` made a free variable of unknown state."""
        unlabelled = self.unlabelled
        roles = np.where(unlabelled, Role.FREE, self.roles).astype(np.int8)
        return replace(self, roles=roles, states=np.where(unlabelled, -1, self.states))

    def with_used_factors(self) -> Problem:
        """Return the problem without the factors that learning never reads; see `select_used_factors`."""
        graph = self.graph if self.is_sharded else select_used_factors(self.graph, self.roles)
        return self if graph is self.graph else replace(self, graph=graph)

    def reduced_graph(self, backend: str) -> ReducedGraph:
        """Return the graph of the free variables.

        Raises:
            UsageError: If a factor has more than two free variables.
        """
        graph = reduce_graph(self.graph, self.roles, self.states)
        for terms in graph.clique_terms:
            template = self.graph.layout.blocks[self.graph.groups[terms.group].block].name
            raise UsageError(
                Diagnostic(
                    "E302",
                    f"backend '{backend}' supports factors over at most two unknown variables; template '{template}' joins more",
                    hint="use --backend pseudo, which supports factors of any size, or a template over two predicted terms",
                )
            )
        return graph

    def map_reduce(self, function: Callable[[Problem], T]) -> T:
        """Return the sum of a function over the shards of the problem; a problem in memory is a single shard.

        Args:
            function: A function that maps a shard to a number, an array, or a tuple of numbers and arrays. It must be
                picklable, because other processes may call it.
        """
        return function(self)

    def likelihood(self, spec: AbstractLikelihoodSpec) -> AbstractLikelihood:
        """Return the likelihood of this shard. The latest likelihood is cached for the optimiser's next evaluation."""
        if spec not in self._likelihoods:
            self.release_likelihood()
            self._likelihoods[spec] = spec.likelihood(self)
        return self._likelihoods[spec]

    def release_likelihood(self) -> None:
        """Release the memory of the cached likelihood."""
        if self._likelihoods:
            self._likelihoods.clear()
            return_freed_memory()

    @cached_property
    def _likelihoods(self) -> dict[AbstractLikelihoodSpec, AbstractLikelihood]:
        return {}

    def total_likelihood(self, spec: AbstractLikelihoodSpec) -> TotalLikelihood:
        """Return the likelihood of the whole problem."""
        return TotalLikelihood(self, spec)

    def share_vector(self, vector: np.ndarray) -> SharedVector:
        """Return the vector as a `SharedVector`, for use in the likelihood specifications of this problem."""
        return SharedVector.from_values(vector)


@dataclass(frozen=True)
class SharedVector:
    """A vector in memory, or in a file that every worker can read; equality of vectors is determined by digests.

    Args:
        digest: Digest of the content; vectors with the same digest are equal.
        path: File that contains the vector; None if `values` contains it.
        values: The vector itself; None if a file contains it.
    """

    digest: str
    path: Path | None = field(default=None, compare=False)
    values: np.ndarray | None = field(default=None, compare=False)

    @classmethod
    def from_values(cls, values: np.ndarray, path: Path | None = None) -> SharedVector:
        """Return a shared vector with the given values; if a path is given, write the values to this file."""
        digest = hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
        if path is None:
            return cls(digest, None, values)
        np.save(path, values, allow_pickle=False)
        return cls(digest, path)

    def load(self) -> np.ndarray:
        if self.values is not None:
            return self.values
        assert self.path is not None
        return np.asarray(np.load(self.path, allow_pickle=False))


class AbstractLikelihoodSpec(ABC):
    """A specification from which the likelihood of a problem, or of a shard of the problem, is built.

    The likelihood is a sum over connected components. Subclasses are frozen dataclasses, picklable and hashable.
    """

    @abstractmethod
    def likelihood(self, problem: Problem) -> AbstractLikelihood:
        """Return the negative log-likelihood of a problem or of one of its shards."""

    def layout(self, problem: Problem) -> WeightLayout:
        """Return the layout of the weights on which the likelihood depends."""
        return problem.graph.layout

    def conditional_graph(self, problem: Problem) -> ReducedGraph | None:
        """Return the graph of a pseudo-likelihood's conditional distributions; None for other likelihoods.

        The graph has no edges; each node represents a variable given the labels of its neighbours.
        """
        return None


@dataclass(frozen=True)
class TotalLikelihood:
    """The negative log-likelihood of a problem with any number of shards, as an objective of an optimiser.

    Args:
        is_coarse: Whether values and gradients are less accurate and take less time; see `AbstractLikelihood.evaluate_coarsely`.
        near: Weights near which coarse values are computed; see `AbstractLikelihood.evaluate_coarsely`.
    """

    problem: Problem
    spec: AbstractLikelihoodSpec
    is_coarse: bool = False
    near: np.ndarray | None = None

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient for weights of shape (layout.size,)."""
        evaluate = partial(_evaluate, spec=self.spec, weights=weights, is_coarse=self.is_coarse, near=self.near)
        return self.problem.map_reduce(evaluate)

    @property
    def layout(self) -> WeightLayout:
        """The layout of the weights."""
        return self.spec.layout(self.problem)

    def curvature(self) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal for equally likely states, shape (layout.size,)."""
        return self.problem.map_reduce(partial(_curvature, spec=self.spec))

    def feature_scales(self) -> np.ndarray:
        """Return the scale of each weight's feature, shape (layout.size,); 1 for weights of other layouts."""
        graph = self.problem.graph
        return weight_scales(graph) if self.layout is graph.layout else np.ones(self.layout.size)

    def sizes(self) -> tuple[int, int]:
        """Return the number of nodes and the number of edges."""
        return self.problem.map_reduce(partial(_sizes, spec=self.spec))

    def label_moments(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return empirical moments and their variances (see `learning.moments`) for a joint likelihood."""
        return self.problem.map_reduce(partial(_label_moments, spec=self.spec, weights=weights))


def _evaluate(
    problem: Problem, spec: AbstractLikelihoodSpec, weights: np.ndarray, is_coarse: bool, near: np.ndarray | None
) -> tuple[float, np.ndarray]:
    likelihood = problem.likelihood(spec)
    return likelihood.evaluate_coarsely(weights, near) if is_coarse else likelihood(weights)


def _curvature(problem: Problem, spec: AbstractLikelihoodSpec) -> np.ndarray:
    return problem.likelihood(spec).curvature


def _sizes(problem: Problem, spec: AbstractLikelihoodSpec) -> tuple[int, int]:
    graph = problem.likelihood(spec).graph
    return graph.n_nodes, graph.n_edges


def _label_moments(
    problem: Problem, spec: AbstractLikelihoodSpec, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    likelihood = problem.likelihood(spec)
    assert isinstance(likelihood, AbstractJointLikelihood)
    return label_moments(likelihood, weights)


class Monitor:
    """A monitor of the training run of a backend; this base class neither reports nor stores anything.

    A *stage* is one optimisation; the backend assigns its name. If an interrupted run stored states of the stage,
    `restore` returns the last one as an instance of `state_class`; otherwise it returns None.
    """

    @property
    def log(self) -> Sequence[Mapping[str, Any]]:
        """The entries of the optimiser's log so far; empty if the monitor does not record them."""
        return ()

    def restore(self, stage: str, state_class: type[AnyState]) -> AnyState | None:
        return None

    def start_point(self, stage: str) -> np.ndarray | None:
        """Return the weights from which a stage is warm-started; None for the usual start."""
        return None

    def start_phase(self, name: str) -> None:
        """Receive the name of a phase of training that has several stages or none."""

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        """Receive the state after each iteration of the optimiser and again at the end of a stage."""


@dataclass(frozen=True)
class FitResult:
    """The result of training a backend.

    Args:
        vectors: Vectors by name: `weights`, and other vectors that the backend needs for inference. The shape is
            (layout.size,), with a layout that includes the chosen candidates; `gates` has the layout of
            `Problem.gates`.
        stages: The name and the final optimiser state of each stage; a stage is one optimisation.
        summary: Summary values by name, in the order in which they are displayed.
        chosen_candidates: The chosen candidates of each space, in the form that `Problem.with_candidates` accepts.
        histograms: Histograms by quantity, such as `errors`, and by phase of training, such as `at the end`.
        moments: Moments for the learned weights (empirical and expected), without penalties; None if not computed.
        settings: The values that training chose for settings with the value `auto`.
        system: The backend that training chose; None unless the backend is `auto`.
        trials: The candidates among which training chose, as table rows of values by column.
        calibration_labels: The labels that were held out to choose settings or to calibrate; None if there are none.
    """

    vectors: dict[str, np.ndarray]
    stages: tuple[tuple[str, OptimiserState], ...] = ()
    summary: dict[str, float | int | str] = field(default_factory=dict)
    chosen_candidates: Mapping[str, np.ndarray] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)
    moments: Moments | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    system: AbstractBackend | None = None
    trials: tuple[Mapping[str, Any], ...] = ()
    calibration_labels: CalibrationLabels | None = None

    def configure(self, backend: AbstractBackend) -> AbstractBackend:
        """Return the backend with the settings that training chose, or the backend that training chose."""
        return replace(self.system or backend, **self.settings)

    @property
    def converged(self) -> bool:
        """Return True if every stage has met its stopping criterion, such as the end of a schedule."""
        return all(state.status in ("converged", "stopped early", "schedule ended") for _, state in self.stages)


@dataclass(frozen=True)
class AbstractBackend(ABC):
    """A combination of structure, objective, optimiser and inference method. The fields of a backend are settings."""

    name: ClassVar[str]
    unused_settings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The settings that do not affect a training stage, by the name of the stage."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings by the name of a preset; a backend with presets has a setting `preset` (see `make_backend`)."""
    uses_candidates: ClassVar[bool] = False
    """Whether the backend chooses factors from the candidates of a problem."""
    uses_gates: ClassVar[bool] = False
    """Whether the backend reads the gates of a problem. If so, a checkpoint can be resumed only with the same gates."""
    learns_without_labels: ClassVar[bool] = False
    """Whether the backend learns from unlabelled variables alone; training then needs no labels, and has random pairs."""
    learning_arrays: ClassVar[tuple[float, float]] = (10, 10)
    inference_arrays: ClassVar[tuple[float, float]] = (11, 10)
    """Upper bounds of the numbers of arrays in memory, for the estimate of the memory (see `memory_needs.py`): arrays with a
    number for each state of each variable, and arrays with a number for each entry of the tables of larger factors."""

    @property
    def unshardable_reason(self) -> str:
        """The reason why the backend does not support sharded graphs; empty if it supports them."""
        return ""

    @property
    def separate_tables_per_variable(self) -> float:
        """Maximum number of factors with a separate table per free variable, if others with equal features share one.

        This is for factors over two variables of large graphs. It is infinite if all factors may have separate tables.
        """
        return math.inf

    @property
    def labels_separate(self) -> bool:
        """Whether two variables are independent if all paths of factors between them contain an observed variable."""
        return True

    @property
    def uses_predicted_labels(self) -> bool:
        """Whether training treats some predictions as labels, so that the weights do not maximise a likelihood."""
        return False

    def with_priors(self, problem: Problem) -> Problem:
        """Return the problem with the priors of weights that the settings choose."""
        return problem

    def prior_means(self, graph: FactorGraph) -> np.ndarray:
        """Return the weights to which the penalty pulls, shape (layout.size,): the initial ones unless settings choose others."""
        return graph.layout.initial()

    @abstractmethod
    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        """Learn a model from the labels of the free variables."""

    def infer(
        self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = ignore_progress
    ) -> InferenceResult:
        """Return marginals and most probable states of the free variables, from the average of all `inference_tasks`.

        Args:
            observe: Callback that receives the progress of an iterative method.
        """
        return average_results([run_inference(each) for each in self.inference_tasks(problem, vectors)])

    @abstractmethod
    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractLikelihoodSpec:
        """Return the specification of the likelihood under the distribution that `infer` uses.

        For `vectors["weights"]`, the value is the negative log probability of the free variables given the evidence.
        """

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        """Return the inference tasks whose results `infer` averages; explanations of predictions use the same tasks.

        Raises:
            UsageError: If the backend does not provide inference tasks.
        """
        message = f"backend '{self.name}' does not implement inference_tasks"
        raise UsageError(
            Diagnostic(
                "E368", message, hint="implement this method for explanations; see docs/how-to/extending/backend.md"
            )
        )

    def conditional_graph(self, problem: Problem) -> ReducedGraph | None:
        """Return the graph of isolated nodes whose marginals are those of each free variable given all other variables.

        The weights of the graph are `vectors["weights"]`. Factors over absent variables are omitted, as in all graphs. The
        result is None if the backend has no such graph, e.g. because it does not infer a product of factors.
        """
        return None

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractLikelihoodSpec | None:
        """Return the specification of the likelihood that training maximises, without the `l2` penalty.

        The result is None if training uses an approximate likelihood other than a pseudo-likelihood.
        """
        return None

    def _require_unsharded(self, problem: Problem, hint: str = "raise --memory and omit --workers") -> None:
        """Raise UsageError if the problem is sharded."""
        if problem.is_sharded:
            message = f"backend '{self.name}' needs the whole graph, but the graph is split into shards"
            raise UsageError(Diagnostic("E309", message, hint=hint))

    def _require_labels(self, problem: Problem, reason: str, hint: str) -> None:
        """Raise UsageError, with the reason why the backend requires labels, if some variables are latent."""
        if problem.latent.any():
            message = f"backend '{self.name}' cannot learn latent attributes: {reason}"
            raise UsageError(Diagnostic("E307", message, hint=hint))

    def _reject_setting(self, setting: str, hint: str) -> None:
        value = getattr(self, setting)
        text = value if isinstance(value, str) else f"{value:g}"
        message = f"setting '{setting}' of backend '{self.name}' cannot be {text}"
        raise UsageError(Diagnostic("E305", message, hint=hint))

    def _require_positive(self, *settings: str) -> None:
        """Raise UsageError if one of the settings is 0; `convert_settings` rejects negative values."""
        for setting in settings:
            if not getattr(self, setting):
                self._reject_setting(setting, "use a number above 0")

    def _require_below_1(self, *settings: str) -> None:
        """Raise UsageError if one of the settings, a fraction or a probability, is 1 or more."""
        for setting in settings:
            if getattr(self, setting) >= 1:
                self._reject_setting(setting, "use a number below 1")

    @classmethod
    def setting_choices(cls) -> dict[str, tuple[str, ...]]:
        """Return the valid values of the settings that have a fixed list of values; the other settings have their defaults."""
        found: dict[str, tuple[str, ...]] = {"preset": tuple(cls.presets)} if cls.presets else {}

        def record(self: AbstractBackend, setting: str, choices: Sequence[str]) -> None:
            found[setting] = tuple(choices)

        type(cls.__name__, (cls,), {"_require_one_of": record})()
        flags = {name: ("true", "false") for name, kind in field_types(cls).items() if kind is bool}
        return {name: values for name, values in (found | flags).items() if name in setting_names(cls)}

    def _require_one_of(self, setting: str, choices: Sequence[str]) -> None:
        """Raise UsageError if the setting is not one of the choices."""
        value = getattr(self, setting)
        if value not in choices:
            message = f"setting '{setting}' of backend '{self.name}' cannot be '{value}'"
            raise UsageError(Diagnostic("E305", message, hint=f"use one of {listing(choices)}"))
