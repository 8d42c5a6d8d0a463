"""A predictor that loads a run folder and serves requests for single entities with their neighbourhoods."""

from __future__ import annotations

import html
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from relcrf.api import Fit, Prediction, load_fit
from relcrf.backends.problems import query_problem
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.request import RequestSchema, RequestTable
from relcrf.serving.request_grounder import RequestGrounder

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
        self._request_schema = RequestSchema(learned.spec)
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
    def predict(self, tables: Mapping[str, Any], attribute: str | None = None) -> Frame:
        """Return the marginals of the missing values in the tables of a request.

        Args:
            tables: Tables by name. They contain the new entity, its links, and its neighbours with observed values. A
                table is a row (a mapping), a list of rows, or a data frame. A missing table is treated as empty. If a
                random relation has no table, all its possible tuples are query variables.
            attribute: The predicted attribute or relation; optional if the model has only one.

        Returns:
            A row for each query variable, as returned by `Prediction.table`.

        Raises:
            UsageError: The attribute is unknown.
            DataError: A table, column or value is unknown, or the tables have other errors.
        """
        started = time.perf_counter()
        attribute = self._resolve_attribute(attribute)
        request = self._request_schema.read(tables)
        reason = None
        try:
            result = self._predict_fast(request, attribute)
        except FastPathUnavailable as error:
            reason = str(error)
            columns = {table.name: table.columns for table in request.values()}
            result = self._fit.predict(Dataset(columns), **self._settings).table(attribute)
        with self._lock:
            self._seconds.append(time.perf_counter() - started)
            self._n_requests += 1
            if reason is not None:
                self._reasons[reason] += 1
        return result

    def report(self) -> ServingReport:
        """Return the response times so far."""
        with self._lock:
            milliseconds = 1000 * np.array(self._seconds)
            reasons, n_requests = dict(self._reasons), self._n_requests
        if not len(milliseconds):
            milliseconds = np.zeros(1)
        p50, p95, p99, slowest = (float(np.percentile(milliseconds, at)) for at in (50, 95, 99, 100))
        return ServingReport(n_requests, sum(reasons.values()), reasons, p50, p95, p99, slowest)

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

    def _predict_fast(self, request: Mapping[str, RequestTable], attribute: str) -> Frame:
        learned = self._fit.learned
        try:
            grounder = self._idle_grounders.get_nowait()
        except Empty:
            grounder = RequestGrounder(learned.spec, learned.vocabulary)
        try:
            grounding, vectors, problem = query_problem(learned, grounder.ground(request))
            inferred = self._backend.infer(problem, vectors)
            return Prediction(grounding, inferred, {}).table(attribute)
        finally:
            self._idle_grounders.put(grounder)
