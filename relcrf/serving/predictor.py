"""A predictor that loads a run folder and serves requests for single entities with their neighbourhoods."""

from __future__ import annotations

import html
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from relcrf.api import Fit, Prediction, load_fit
from relcrf.backends.automatic_sharding import infer_with_sharding
from relcrf.backends.base import Problem
from relcrf.backends.calibration_labels import require_coverage
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.problems import query_problem
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, RelcrfError, UsageError, listing, suggestion
from relcrf.evaluation.explanation import Explanation
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.request import RequestSchema
from relcrf.serving.request_grounder import RequestGrounder
from relcrf.serving.request_table import RequestTable

MAX_TIMED_REQUESTS = 10_000
"""Maximum number of recent requests whose response times are stored for the report."""


@dataclass(frozen=True)
class ServingReport:
    """Response times of the last 10,000 requests, in milliseconds.

    Args:
        requests: Total number of successful requests.
        slow_path: Number of requests that took the slow path, i.e. were bound and grounded like a whole dataset.
        reasons: Number of requests for each reason to take the slow path.
    """

    requests: int
    slow_path: int
    reasons: Mapping[str, int]
    p50: float
    p95: float
    p99: float
    slowest: float

    def __repr__(self) -> str:
        times = ", ".join(f"{name} {getattr(self, name):.1f} ms" for name in ("p50", "p95", "p99", "slowest"))
        return f"{self.requests:,} requests: {times}; {self.slow_path:,} on the slow path"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(f.name)}</th><td>{html.escape(str(getattr(self, f.name)))}</td></tr>"
            for f in fields(self)
        )
        return f"<table>{rows}</table>"


class Predictor:
    """A trained model that is loaded once and serves requests of a few rows. Several threads can use one predictor.

    Args:
        run: A run folder, or a trained model.
        settings: Backend settings that replace settings of the training run.

    Raises:
        DataError: The folder is not a run folder, or is damaged.
        UsageError: A setting is unknown.
    """

    def __init__(self, run: str | os.PathLike[str] | Fit, **settings: Any) -> None:
        self._fit = run if isinstance(run, Fit) else load_fit(run)
        learned = self._fit.learned
        self._settings = settings
        self._backend = learned.configure_backend(**settings)
        self.request_schema = RequestSchema(learned.spec, learned.mapping)
        """The tables and columns that requests can have."""
        self._idle_grounders: SimpleQueue[RequestGrounder] = SimpleQueue()
        self._lock = threading.Lock()
        self._seconds: deque[float] = deque(maxlen=MAX_TIMED_REQUESTS)
        self._reasons: Counter[str] = Counter()
        self._n_requests = 0

    @property
    def attributes(self) -> list[str]:
        """The predicted attributes, as `Entity.attribute`, and the names of the predicted relations."""
        spec = self._fit.learned.spec
        owned = [f"{e.name}.{a.name}" for e in spec.entities for a in e.attributes if a.predicted]
        return [*owned, *(relation.name for relation in spec.random_relations)]

    def __repr__(self) -> str:
        return f"Predictor({self._fit.learned.backend}: {listing(self.attributes)})"

    @SingleThreadedBlas()
    def predict(
        self, tables: Mapping[str, Any], attribute: str | None = None, *, coverage: float | None = None
    ) -> Frame:
        """Return the marginals of the missing values in the tables of a request.

        Args:
            tables: Tables by name. They contain the new entity, its links, and its neighbours with observed values. A
                table is a row (a mapping), a list of rows, or a data frame. A missing table is treated as empty. If a
                random relation has no table, all its possible tuples are query variables.
            attribute: The predicted attribute or relation; optional if the model has only one.
            coverage: Probability of the intervals of numbers, and of prediction sets; see `Prediction.table`.

        Returns:
            A row for each query variable, as returned by `Prediction.table`.

        Raises:
            UsageError: The attribute is unknown, the coverage is not between 0 and 1, or the run has no labels on which
                prediction sets are calibrated.
            DataError: A table, column or value is unknown, or the tables have other errors.
        """
        started = time.perf_counter()
        query = self._query(attribute, coverage)
        result, reason = self._predict_request(self.request_schema.read(tables), query)
        self._record(time.perf_counter() - started, reason)
        return result

    @SingleThreadedBlas()
    def predict_many(
        self, requests: Sequence[Mapping[str, Any]], attribute: str | None = None, *, coverage: float | None = None
    ) -> list[Frame | RelcrfError]:
        """Return the prediction of each request, or the error of an invalid request; for the arguments see `predict`.

        If the factors of the model connect entities through their links only, valid requests are grounded and inferred at
        once, which takes a fraction of the time. The predictions equal those of `predict`.

        Raises:
            UsageError: The attribute is unknown, or the coverage is not between 0 and 1.
        """
        started = time.perf_counter()
        query = self._query(attribute, coverage)
        results: dict[int, Frame | RelcrfError] = {}
        tables: dict[int, dict[str, RequestTable]] = {}
        for k, request in enumerate(requests):
            try:
                tables[k] = self.request_schema.read(request)
            except RelcrfError as error:
                results[k] = error
        if len(tables) > 1:
            together = self._predict_together(list(tables.values()), query)
            indices = list(tables)
            results |= {indices[k]: frame for k, frame in together.items()}
            for _ in together:
                self._record(time.perf_counter() - started, None)
        for k in tables.keys() - results.keys():
            began = time.perf_counter()
            try:
                results[k], reason = self._predict_request(tables[k], query)
            except RelcrfError as error:
                results[k] = error
            else:
                self._record(time.perf_counter() - began, reason)
        return [results[k] for k in range(len(requests))]

    @SingleThreadedBlas()
    def explain(
        self, tables: Mapping[str, Any], variable: str, *, against: str | None = None, depth: int = 1
    ) -> Explanation:
        """Explain the prediction of one variable of a request; for the tables see `predict`.

        Args:
            variable, against, depth: See `Fit.explain`, which also documents further errors. A label of the variable is
                hidden.

        Raises:
            UsageError: The variable is unknown.
            DataError: See `predict`.
        """
        request = self.request_schema.read(tables)
        options: dict[str, Any] = {"against": against, "depth": depth, **self._settings}
        try:
            with self._borrow_grounder() as grounder:
                return self._fit.explain(grounder.ground(request), variable, **options)
        except FastPathUnavailable:
            return self._fit.explain(_to_dataset(request), variable, **options)

    def _predict_request(self, request: Mapping[str, RequestTable], query: _Query) -> tuple[Frame, str | None]:
        """Return the prediction of a request, and the reason if it took the slow path."""
        try:
            return self._predict_fast(request, query), None
        except FastPathUnavailable as error:
            return query.table(self._fit.predict(_to_dataset(request), **self._settings)), str(error)

    def _record(self, seconds: float, reason: str | None) -> None:
        with self._lock:
            self._seconds.append(seconds)
            self._n_requests += 1
            if reason is not None:
                self._reasons[reason] += 1

    def report(self) -> ServingReport:
        """Return the response times so far."""
        with self._lock:
            milliseconds = 1000 * np.array(self._seconds)
            reasons, n_requests = dict(self._reasons), self._n_requests
        if not len(milliseconds):
            milliseconds = np.zeros(1)
        p50, p95, p99, slowest = (float(np.percentile(milliseconds, at)) for at in (50, 95, 99, 100))
        return ServingReport(n_requests, sum(reasons.values()), reasons, p50, p95, p99, slowest)

    def _query(self, attribute: str | None, coverage: float | None) -> _Query:
        if coverage is not None:
            require_coverage(coverage)
        return _Query(self._resolve_attribute(attribute), coverage)

    def _resolve_attribute(self, attribute: str | None) -> str:
        attributes = self.attributes
        matches = [name for name in attributes if attribute in (name, name.partition(".")[2] or name)]
        if attribute is None and len(attributes) == 1:
            matches = attributes
        if len(matches) != 1:
            message = f"unknown predicted attribute '{attribute}'"
            if attribute is None:
                message = "several attributes are predicted"
            hint = suggestion(attribute or "", attributes) or f"choose one of {listing(attributes)}"
            raise UsageError(Diagnostic("E310", message, hint=hint))
        return matches[0]

    def _infer(self, problem: Problem, vectors: dict[str, np.ndarray]) -> InferenceResult:
        return infer_with_sharding(None, problem, self._backend, vectors)

    def _prediction(self, grounding: Grounding, inferred: InferenceResult) -> Prediction:
        return Prediction(grounding, inferred, {}, calibration=self._fit.learned.calibration_labels)

    def _predict_fast(self, request: Mapping[str, RequestTable], query: _Query) -> Frame:
        with self._borrow_grounder() as grounder:
            grounding, vectors, problem = query_problem(self._fit.learned, grounder.ground(request))
            return query.table(self._prediction(grounding, self._infer(problem, vectors)))

    def _predict_together(self, requests: Sequence[Mapping[str, RequestTable]], query: _Query) -> dict[int, Frame]:
        """Return the predictions, by index, of the requests that can be grounded and inferred at once.

        Inference of all components at once is used only if it is exact, because iterative methods stop when the whole graph
        has converged; otherwise, each request is inferred alone.
        """
        if self._backend.unshardable_reason:
            return {}
        with self._borrow_grounder() as grounder:
            try:
                group = grounder.ground_together(requests)
                if group is None:
                    return {}
                grounding, vectors, problem = query_problem(self._fit.learned, group.grounding)
                inferred = self._infer(problem, vectors)
                request_of_variable = group.request_of_variables()
                if inferred.verdict.status == "exact" and _is_finite(inferred):
                    prediction = self._prediction(grounding, inferred)
                    frame = query.table(prediction)
                    owners = request_of_variable[prediction.variables(query.attribute)]
                    return {
                        index: frame.take_rows(np.flatnonzero(owners == k)) for k, index in enumerate(group.indices)
                    }
                frames = {}
                for k, index in enumerate(group.indices):
                    is_elsewhere = (request_of_variable != k) & (problem.roles == Role.FREE)
                    roles = np.where(is_elsewhere, Role.ABSENT, problem.roles).astype(np.int8)
                    inferred = self._infer(replace(problem, roles=roles), vectors)
                    frames[index] = query.table(self._prediction(grounding, inferred))
                return frames
            except RelcrfError:  # the requests are predicted alone, so that the error concerns only one of them
                return {}

    @contextmanager
    def _borrow_grounder(self) -> Iterator[RequestGrounder]:
        """Yield a grounder that no other thread uses; its groundings are valid within the context."""
        try:
            grounder = self._idle_grounders.get_nowait()
        except Empty:
            grounder = RequestGrounder(self._fit.learned.spec, self._fit.learned.vocabulary)
        try:
            yield grounder
        finally:
            self._idle_grounders.put(grounder)


@dataclass(frozen=True)
class _Query:
    """A predicted attribute or relation, with the coverage of its intervals or prediction sets."""

    attribute: str
    coverage: float | None

    def table(self, prediction: Prediction) -> Frame:
        return prediction.table(self.attribute, coverage=self.coverage)


def _is_finite(inferred: InferenceResult) -> bool:
    """Return False if a value is infinite or NaN: an overflow in one request may affect the others."""
    numbers = () if inferred.numbers is None else (inferred.numbers.means, inferred.numbers.deviations)
    return all(np.isfinite(values).all() for values in (inferred.marginals, *numbers))


def _to_dataset(request: Mapping[str, RequestTable]) -> Dataset:
    return Dataset({table.name: table.columns for table in request.values()})
