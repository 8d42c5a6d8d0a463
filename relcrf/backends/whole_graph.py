"""Likelihood and inference on the whole graph of the free variables, with a choice of inference methods."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, AbstractLikelihoodSpec, Problem
from relcrf.backends.inference_result import InferenceResult, run_inference
from relcrf.backends.inference_task import InferenceTask
from relcrf.errors import Diagnostic, UsageError
from relcrf.gpu.device import DEVICES
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.edge_classes import shared_edge_tables, with_table_classes
from relcrf.graph.reduction import ReducedGraph, reduce_graph
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials, TableSizeError, check_table_cells
from relcrf.inference.balance import Balance
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.methods import METHODS, create_inference, text_setting_names
from relcrf.inference.result import (
    AbstractInference,
    MapStates,
    Marginals,
    Observer,
    UnsupportedGraphError,
    ignore_progress,
)
from relcrf.learning.likelihood import InferredLikelihood

GPU_METHODS = ("auto", "bp")
"""Inference methods with a setting `device` that may be a GPU."""

MARGINAL_METHODS = tuple(name for name in METHODS if name not in ("dual", "search"))
"""Inference methods that compute marginals."""

SHARING_METHODS = ("auto", "bp")
"""Inference methods that need a single table for all factors over two variables with equal features."""

PARTITION_METHODS = tuple(name for name in MARGINAL_METHODS if name != "gibbs")
"""Inference methods that compute marginals and the log partition, exactly or approximately."""


@dataclass(frozen=True)
class WholeGraphSpec(AbstractLikelihoodSpec):
    """A specification of the likelihood on the graph of the free variables with all its factors.

    Args:
        backend: Name of the backend, for error messages.
        inference: Name of the inference method.
        settings: Pairs of the name and value of a setting; settings that the method does not have are ignored.
    """

    backend: str
    inference: str
    settings: tuple[tuple[str, Any], ...] = ()

    def method(
        self, scopes: Scopes, observe: Observer = ignore_progress, *, is_for_learning: bool = False
    ) -> AbstractInference:
        """Return the inference method for a graph.

        In learning, belief propagation updates blocks of pairs in turn: on 100,000 pages without labelled neighbours, 21 rounds
        instead of 25 suffice, and a round takes two thirds of the time. Prediction updates all messages at once, because blocks
        depend on the order of all pairs, so that a component could have another fixed point when other components change.
        """
        setting_names = text_setting_names(METHODS[self.inference])
        # The gradient of tree-reweighted likelihood is exact only if the appearance probabilities are constant.
        settings = {"appearance_steps": 0, **dict(self.settings)}
        if is_for_learning and self.inference == "bp" and settings.get("device") != "gpu":
            settings["schedule"] = "blocks"
        method = create_inference(
            self.inference, scopes, {n: value for n, value in settings.items() if n in setting_names}, observe
        )
        return _CheckedInference(scopes, method, self)

    def graph(self, problem: Problem) -> ReducedGraph:
        """Return the graph of the free variables; if separate tables are too large, edges have classes of equal tables.

        Raises:
            UsageError: If the tables are too large (E308).
        """
        graph = reduce_graph(problem.graph, problem.roles, problem.states)
        try:
            check_table_cells(int(graph.scopes.table_start[-1]))
        except TableSizeError as error:
            graph = with_table_classes(graph)
            if graph.clique_terms or graph.table_class is None or shared_edge_tables(graph) is None:
                raise self.table_error(error) from None
        return graph

    def balanced_method(self, scopes: Scopes, balance: Balance, observe: Observer) -> AbstractInference:
        """Return belief propagation with potentials of absent links."""
        return _CheckedInference(scopes, BeliefPropagation(scopes, balance=balance, observe=observe), self)

    def table_error(self, error: TableSizeError) -> UsageError:
        """Return the error for tables that are too large."""
        message = f"backend '{self.backend}' would need {error}"
        hint = "narrow the 'where' of the largest template, or use --backend ess"
        return UsageError(Diagnostic("E308", message, hint=hint))

    def require_log_partition(self) -> None:
        """Raise UsageError if the inference method does not compute the log partition function (E305)."""
        if self.inference not in PARTITION_METHODS:
            message = f"setting 'inference' of backend '{self.backend}' cannot be '{self.inference}' for joint log-likelihoods"
            hint = "the method does not compute the log partition function; use inference=auto, or another method"
            raise UsageError(Diagnostic("E305", message, hint=hint))

    def likelihood(self, problem: Problem) -> InferredLikelihood:
        graph = self.graph(problem)
        return InferredLikelihood(graph, problem.states[graph.variables], partial(self.method, is_for_learning=True))

    def inference_task(
        self, problem: Problem, weights: np.ndarray, observe: Observer = ignore_progress
    ) -> InferenceTask:
        """Return the inference task that `AbstractWholeGraphBackend.infer` runs."""
        graph = with_table_classes(self.graph(problem).with_agreements())
        return InferenceTask(
            graph, weights, partial(self.method, observe=observe), is_mean_field=self.inference == "mf"
        )


class AbstractWholeGraphBackend(AbstractBackend):
    """A backend that infers on the whole graph; the setting `inference` names the inference method.

    A backend that can use a GPU has a setting `device`, which is also one of its `method_settings`.
    """

    method_settings: ClassVar[tuple[str, ...]] = ()
    """Names of the backend's settings that are also settings of the method."""
    inference: str

    @property
    def separate_tables_per_variable(self) -> float:
        shares = self.inference in SHARING_METHODS and getattr(self, "device", "cpu") == "cpu"
        return 0.0 if shares else math.inf

    def _require_device(self, device: str) -> None:
        """Raise UsageError if the value of setting `device` is unknown, or if the inference method cannot use this device."""
        self._require_one_of("device", DEVICES)
        if device == "gpu" and self.inference not in GPU_METHODS:
            self._reject_setting(
                "device", f"use --device cpu, or --set inference={GPU_METHODS[-1]}, which can use a GPU"
            )

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> WholeGraphSpec:
        settings = tuple((name, getattr(self, name)) for name in self.method_settings)
        return WholeGraphSpec(self.name, self.inference, settings)

    def conditional_graph(self, problem: Problem) -> ReducedGraph:
        return blanket_graph(problem.graph, problem.roles, problem.states)

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        return (self.joint_likelihood(problem, vectors).inference_task(problem, vectors["weights"]),)

    def infer(
        self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = ignore_progress
    ) -> InferenceResult:
        return run_inference(
            self.joint_likelihood(problem, vectors).inference_task(problem, vectors["weights"], observe)
        )


@dataclass(frozen=True)
class _CheckedInference(AbstractInference):
    """An inference method that raises `UsageError` if it does not support the graph or the operation."""

    scopes: Scopes
    method: AbstractInference
    spec: WholeGraphSpec

    def marginals(self, potentials: Potentials) -> Marginals:
        try:
            return self.method.marginals(potentials)
        except (UnsupportedGraphError, TableSizeError) as error:
            raise self._usage_error(error) from None

    def node_marginals(self, potentials: Potentials) -> Marginals:
        try:
            return self.method.node_marginals(potentials)
        except (UnsupportedGraphError, TableSizeError) as error:
            raise self._usage_error(error) from None

    def shared_marginals(self, potentials: SharedPotentials, with_factors: bool = True) -> Marginals:
        try:
            return self.method.shared_marginals(potentials, with_factors)
        except (UnsupportedGraphError, TableSizeError) as error:
            raise self._usage_error(error) from None

    def coarse(self, near: SharedPotentials | None = None) -> _CheckedInference:
        return replace(self, method=self.method.coarse(near))

    def map_states(self, potentials: Potentials) -> MapStates:
        try:
            return self.method.map_states(potentials)
        except (UnsupportedGraphError, TableSizeError) as error:
            raise self._usage_error(error) from None

    def _usage_error(self, error: UnsupportedGraphError | TableSizeError) -> UsageError:
        if isinstance(error, TableSizeError):
            return self.spec.table_error(error)
        message = f"backend '{self.spec.backend}' cannot use method '{self.spec.inference}' for this graph: {error}"
        on_gpu = ("device", "gpu") in self.spec.settings
        hint = "use --device cpu" if on_gpu else "use --set inference=bp, or auto"
        return UsageError(Diagnostic("E381", message, hint=hint))
