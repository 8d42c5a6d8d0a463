"""A run folder that scores one new thing with its neighbourhood, and says how long that takes."""

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
from relcrf.backends.registry import make_backend
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.request import RequestSchema, RequestTable
from relcrf.serving.request_grounder import RequestGrounder

MAX_TIMED_REQUESTS = 10_000
"""Requests whose times a report looks at."""


@dataclass(frozen=True)
class ServingReport:
    """How long requests took, in milliseconds, over the last 10,000.

    Args:
        requests: all of them so far; failed ones are not counted.
        slow_path: those that went the ordinary, slower way; `reasons` says why, and how often.
    """

    requests: int
    slow_path: int
    reasons: Mapping[str, int]
    p50: float
    p95: float
    p99: float
    slowest: float

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {getattr(self, name):.1f} ms" for name in ("p50", "p95", "p99", "slowest"))
        return f"{self.requests:,} requests: {figures}; {self.slow_path:,} went the ordinary way"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(f.name)}</th><td>{html.escape(str(getattr(self, f.name)))}</td></tr>"
            for f in fields(self)
        )
        return f"<table>{rows}</table>"


class Predictor:
    """A trained model, loaded once, for requests of a few rows. Threads may share it.

    Args:
        run: a run folder, or a trained model.
        settings: of the backend, in place of those that it was trained with.

    Raises:
        DataError: where the folder is no run folder, or damaged.
        UsageError: for an unknown setting.
    """

    def __init__(self, run: str | os.PathLike[str] | Fit, **settings: Any) -> None:
        self._fit = run if isinstance(run, Fit) else load_fit(run)
        learned = self._fit.learned
        self._settings = settings
        self._backend = make_backend(learned.backend, **{**learned.settings, **settings})
        self._request_schema = RequestSchema(learned.spec)
        self._idle_grounders: SimpleQueue[RequestGrounder] = SimpleQueue()
        self._lock = threading.Lock()
        self._seconds: deque[float] = deque(maxlen=MAX_TIMED_REQUESTS)
        self._reasons: Counter[str] = Counter()
        self._n_requests = 0

    @property
    def attributes(self) -> list[str]:
        """What can be asked for: attributes as `Entity.attribute`, relations by their names."""
        spec = self._fit.learned.spec
        owned = [f"{e.name}.{a.name}" for e in spec.entities for a in e.attributes if a.predicted]
        return [*owned, *(relation.name for relation in spec.random_relations)]

    def __repr__(self) -> str:
        return f"Predictor({self._fit.learned.backend}: {listing(self.attributes)})"

    @SingleThreadedBlas()
    def predict(self, tables: Mapping[str, Any], attribute: str | None = None) -> Frame:
        """Marginals of what is missing in the tables of a request.

        Args:
            tables: by name, of the thing that is new, its links, and its neighbours with what is known of them: a row as a
                mapping, a list of such rows, or a data frame. A table that is left out is empty, but for that of a random
                relation: left out, its tuples are queries.
            attribute: which is asked for; it may be left out where only one is predicted.

        Returns:
            a row for each query, as `Prediction.table`.

        Raises:
            UsageError: for an unknown attribute.
            DataError: for unknown tables, columns and values, and all other mistakes of tables.
        """
        started = time.perf_counter()
        attribute = self._resolve_attribute(attribute)
        request = self._request_schema.read(tables)
        reason = None
        try:
            found = self._predict_fast(request, attribute)
        except FastPathUnavailable as why:
            reason = str(why)
            columns = {given.name: given.columns for given in request.values()}
            found = self._fit.predict(Dataset(columns), **self._settings).table(attribute)
        with self._lock:
            self._seconds.append(time.perf_counter() - started)
            self._n_requests += 1
            if reason is not None:
                self._reasons[reason] += 1
        return found

    def report(self) -> ServingReport:
        """How long the requests took so far."""
        with self._lock:
            milliseconds = 1000 * np.array(self._seconds)
            reasons, n_requests = dict(self._reasons), self._n_requests
        if not len(milliseconds):
            milliseconds = np.zeros(1)
        p50, p95, p99, slowest = (float(np.percentile(milliseconds, at)) for at in (50, 95, 99, 100))
        return ServingReport(n_requests, sum(reasons.values()), reasons, p50, p95, p99, slowest)

    def _resolve_attribute(self, attribute: str | None) -> str:
        known = self.attributes
        found = [name for name in known if attribute in (name, name.partition(".")[2] or name)]
        if attribute is None and len(known) == 1:
            found = known
        if len(found) != 1:
            message = "say which predicted attribute" if attribute is None else f"no predicted attribute '{attribute}'"
            hint = suggestion(attribute or "", known) or f"there is {listing(known)}"
            raise UsageError(Diagnostic("E310", message, hint=hint))
        return found[0]

    def _predict_fast(self, request: Mapping[str, RequestTable], attribute: str) -> Frame:
        learned = self._fit.learned
        try:
            place = self._idle_grounders.get_nowait()
        except Empty:
            place = RequestGrounder(learned.spec, learned.vocabulary)
        try:
            grounding, vectors, problem = query_problem(learned, place.ground(request))
            inferred = self._backend.infer(problem, vectors)
            return Prediction(grounding, inferred, {}).table(attribute)
        finally:
            self._idle_grounders.put(place)
