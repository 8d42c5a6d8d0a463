"""The HTTP service of a run: an application for ASGI servers such as Uvicorn. It requires the extra `serve`."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from relcrf.backends.calibration_labels import require_coverage
from relcrf.data.dataset import Dataset
from relcrf.errors import Diagnostic, RelcrfError, listing, suggestion
from relcrf.evaluation.explanation import MAX_DEPTH
from relcrf.serving.openapi import openapi_document
from relcrf.serving.predictor import MAX_TIMED_REQUESTS
from relcrf.serving.served_run import INTERNAL_ERROR, LoadedRun, ServedRun
from relcrf.serving.work_queue import QueueFullError, WorkQueue

logger = logging.getLogger("relcrf.serving")

FREEZE_AFTER_BATCHES = 50
"""Number of batches with a run after which the existing objects are excluded from garbage collection."""

MAX_FOUND_VARIABLES = 50
"""Maximum number of variables that a search returns."""

PAGE_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Endpoint: TypeAlias = Callable[[Request], Awaitable[Any]]
"""A function of a request that returns the content of the answer: a response, or values to encode as JSON."""


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of a service.

    Args:
        body: Maximum size of the body of a request, in bytes.
        seconds: Time limit of a request.
        batch: Maximum number of predictions that are computed at once.
        queue: Maximum number of requests that wait or are processed; a list of requests counts as its length.
    """

    body: int = 1_000_000
    seconds: float = 30.0
    batch: int = 32
    queue: int = 256


class RequestError(Exception):
    """An error of a request other than invalid data, with the status of the answer."""

    def __init__(self, status: int, diagnostic: Diagnostic, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(diagnostic.message)
        self.status, self.diagnostic, self.headers = status, diagnostic, dict(headers or {})


def _invalid(status: int, message: str, hint: str) -> RequestError:
    return RequestError(status, Diagnostic("E460", message, hint=hint))


@dataclass(frozen=True)
class PredictionQuery:
    """The attribute and the coverage that a request for predictions chooses; see `Predictor.predict`."""

    attribute: str | None
    coverage: float | None


@dataclass(frozen=True)
class ExplanationTask:
    """The arguments of an explanation; without tables, the variable is one of the stored tables."""

    variable: str
    tables: Mapping[str, Any] | None
    against: str | None
    depth: int


def create_app(
    run: str | Path,
    *,
    data: str | Path | None = None,
    manifest: str | Path | None = None,
    limits: ServiceLimits | None = None,
    hosts: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    owns_process: bool = False,
) -> Starlette:
    """Return the ASGI application that serves a run folder, for Uvicorn or another server.

    Args:
        data, manifest: The tables whose entities the web page shows and `/explain` explains by name; see `Dataset`.
        limits: The limits of requests.
        hosts: The accepted host names of requests; all if empty. A service on a loopback address should accept only the
            names of this address: otherwise web sites that the user visits could read its answers by DNS rebinding.
        settings: Backend settings that replace settings of the training run.
        owns_process: Whether the process serves nothing else, so that the service may exclude the objects that exist after
            the first batches from garbage collection, which otherwise pauses all requests for 0.2 seconds.

    Raises:
        DataError: The folder is not a run folder, or the tables do not match the model.
        UsageError: A setting is unknown.
    """

    def open_tables() -> Dataset:
        assert data is not None
        return Dataset(data, manifest=manifest)

    served = ServedRun(Path(run), None if data is None else open_tables, settings, report=logger.warning)
    stored = served.loaded.stored_grounding  # reports invalid tables before the service starts
    for note in () if stored is None else stored.bound.dataset.notes:
        logger.warning(note)
    return _Service(served, limits or ServiceLimits(), hosts, owns_process=owns_process).application()


class _Service:
    """The state and the endpoints of a service."""

    def __init__(self, served: ServedRun, limits: ServiceLimits, hosts: Sequence[str], *, owns_process: bool) -> None:
        self._served, self._limits, self._hosts = served, limits, frozenset(hosts)
        self._owns_process, self._batched_run, self._n_batches = owns_process, served.loaded, 0
        self._predictions: WorkQueue[tuple[Any, PredictionQuery], Any] = WorkQueue(
            "relcrf-predictions", self._predict_batch, limits.queue, limits.batch
        )
        self._explanations: WorkQueue[ExplanationTask | str, Any] = WorkQueue(
            "relcrf-explanations", self._explain_batch, limits.queue, 1
        )
        self._seconds: deque[float] = deque(maxlen=MAX_TIMED_REQUESTS)
        self._statuses: Counter[int] = Counter()

    def application(self) -> Starlette:
        """Return the application with all routes."""

        @asynccontextmanager
        async def lifespan(application: Starlette) -> AsyncIterator[None]:
            yield
            await self._predictions.close()
            await self._explanations.close()
            if self._owns_process:
                gc.unfreeze()  # objects of native libraries are released before the interpreter ends

        routes = [
            Route("/predict", self._endpoint(self._predict), methods=["POST"]),
            Route("/explain", self._endpoint(self._explain), methods=["POST"]),
            Route("/healthz", self._endpoint(self._health), methods=["GET"]),
            Route("/openapi.json", self._endpoint(self._describe), methods=["GET"]),
            Route("/variables", self._endpoint(self._search), methods=["GET"]),
            *(Route(path, self._endpoint(_page(*file)), methods=["GET"]) for path, file in PAGE_FILES.items()),
        ]
        return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: self._route_error})

    def _endpoint(self, handle: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a route, which answers every error with diagnostics."""

        async def answer(request: Request) -> Response:
            started = time.perf_counter()
            try:
                self._require_known_host(request)
                content = await handle(request)
                response = content if isinstance(content, Response) else _json_response(200, content)
            except Exception as error:
                response = _error_response(error)
            self._statuses[response.status_code] += 1
            if request.method == "POST" and response.status_code == 200:
                self._seconds.append(time.perf_counter() - started)
            return response

        return answer

    async def _route_error(self, request: Request, error: Exception) -> Response:
        """Answer a request for an unknown path or with another method."""
        assert isinstance(error, HTTPException)
        self._statuses[error.status_code] += 1
        if error.status_code == 405:
            text, hint = f"{request.url.path} does not support {request.method}", "see /openapi.json"
        else:
            text, hint = "unknown path", "the paths are listed in /openapi.json"
        diagnostic = Diagnostic("E460", text, hint=hint)
        return _error_response(RequestError(error.status_code, diagnostic, error.headers))

    def _require_known_host(self, request: Request) -> None:
        host = request.headers.get("host", "")
        name = host[: host.rindex("]") + 1] if "]" in host else host.partition(":")[0]
        if self._hosts and name.lower() not in self._hosts:
            raise _invalid(
                400, "the service does not accept this host name", f"use one of {listing(sorted(self._hosts))}"
            )

    # Routes

    async def _predict(self, request: Request) -> Any:
        _require_known_parameters(request, "attribute", "coverage")
        query = PredictionQuery(request.query_params.get("attribute"), _read_coverage(request))
        body = await self._read_json(request)
        if not isinstance(body, list):
            return await self._run_one(self._predictions, (body, query))
        if len(body) > self._limits.queue:
            message = f"the list has {len(body):,} requests; the maximum is {self._limits.queue:,}"
            raise _invalid(413, message, "send several lists")
        results = await self._run(self._predictions, [(tables, query) for tables in body])
        return {"results": [_error_content(each)[1] if isinstance(each, Exception) else each for each in results]}

    async def _explain(self, request: Request) -> Any:
        task = _read_explanation_task(await self._read_json(request))
        if task.tables is None and not self._has_stored_tables:
            hint = "add the tables of the request, or start the service with --data"
            raise _invalid(422, "the service has no stored tables, and the request contains none", hint)
        return await self._run_one(self._explanations, task)

    async def _search(self, request: Request) -> Any:
        if not self._has_stored_tables:
            raise _invalid(404, "the service has no stored tables", "start it with --data")
        return await self._run_one(self._explanations, request.query_params.get("search", ""))

    async def _health(self, request: Request) -> Any:
        loaded, error = self._served.loaded, self._served.error
        milliseconds = 1000 * np.array(self._seconds or [0.0])
        percentiles = {f"p{at}": round(float(np.percentile(milliseconds, at)), 3) for at in (50, 95, 99)}
        return {
            "status": "ok",
            "backend": loaded.fit.learned.backend,
            "attributes": loaded.predictor.attributes,
            "loaded_at": datetime.fromtimestamp(loaded.loaded_at, UTC).isoformat(timespec="milliseconds"),
            "reload_errors": [] if error is None else [each.as_dict() for each in error.diagnostics],
            "has_stored_tables": self._has_stored_tables,
            "waiting": self._predictions.n_jobs + self._explanations.n_jobs,
            "responses": {str(status): count for status, count in sorted(self._statuses.items())},
            "latency_ms": {**percentiles, "slowest": round(float(milliseconds.max()), 3)},
        }

    async def _describe(self, request: Request) -> Any:
        predictor = self._served.loaded.predictor
        return openapi_document(
            predictor.request_schema, predictor.attributes, has_stored_tables=self._has_stored_tables
        )

    @property
    def _has_stored_tables(self) -> bool:
        return self._served.loaded.open_tables is not None

    # Reading of requests

    async def _read_json(self, request: Request) -> Any:
        """Return the values in the body of a request.

        Raises:
            RequestError: The body is not JSON, is too large, or does not arrive within the time limit.
        """
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            hint = "set the header Content-Type: application/json"
            raise _invalid(415, "the content type of the body is not application/json", hint)
        try:
            async with asyncio.timeout(self._limits.seconds):
                body = await self._read_body(request)
        except TimeoutError:
            message = f"the body did not arrive within {self._limits.seconds:g} seconds"
            raise _invalid(408, message, "send the whole body") from None
        try:
            return json.loads(body, parse_constant=_reject_constant, object_pairs_hook=_unique_members)
        except (ValueError, RecursionError) as error:
            reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
            raise _invalid(400, f"the body is not valid JSON: {reason}", "send a JSON object of tables") from None

    async def _read_body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        parts, size = [], int(declared) if declared.isdecimal() else 0
        if size <= self._limits.body:
            size = 0
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > self._limits.body:
                    break
        if size > self._limits.body:
            message = f"the body is larger than {self._limits.body:,} bytes"
            raise _invalid(413, message, "send smaller requests, or raise --max-body")
        return b"".join(parts)

    # Work in threads

    async def _run(self, queue: WorkQueue[Any, Any], items: Sequence[Any]) -> list[Any]:
        """Return the results of a queue for some items; a result may be an exception.

        Raises:
            RequestError: The queue is full, or the time limit is reached.
        """
        try:
            return await queue.run(items, self._limits.seconds)
        except QueueFullError:
            diagnostic = Diagnostic("E461", "too many requests wait", hint="send the request again later")
            raise RequestError(503, diagnostic, {"Retry-After": "1"}) from None
        except TimeoutError:
            message = f"the request was not processed within {self._limits.seconds:g} seconds"
            hint = "send a smaller request, or raise --timeout"
            raise RequestError(504, Diagnostic("E461", message, hint=hint)) from None

    async def _run_one(self, queue: WorkQueue[Any, Any], item: Any) -> Any:
        (result,) = await self._run(queue, [item])
        if isinstance(result, Exception):
            raise result
        return result

    def _predict_batch(self, items: Sequence[tuple[Any, PredictionQuery]]) -> list[Any]:
        """Return the content of the answer, or an exception, for each pair of tables and query."""
        results: dict[int, Any] = {}
        loaded = self._served.current()
        predictor = loaded.predictor
        for query in {query for _, query in items}:
            indices, options = [k for k, (_, each) in enumerate(items) if each == query], asdict(query)
            try:
                found: list[Any] = list(predictor.predict_many([items[k][0] for k in indices], **options))
            except RelcrfError as error:
                found = [error] * len(indices)
            except Exception:  # an internal error of one request must not affect the others
                found = [_attempt(partial(predictor.predict, **options), items[k][0]) for k in indices]
            for k, result in zip(indices, found, strict=True):
                results[k] = result if isinstance(result, Exception) else {"predictions": result.to_dicts()}
        if self._owns_process:
            self._freeze_objects(loaded)
        return [results[k] for k in range(len(items))]

    def _freeze_objects(self, loaded: LoadedRun) -> None:
        """Exclude all objects from garbage collection after some batches with a run, when kernels and caches exist."""
        if loaded is not self._batched_run:
            gc.unfreeze()  # the previous run is garbage
            self._batched_run, self._n_batches = loaded, 0
        self._n_batches += 1
        if self._n_batches == FREEZE_AFTER_BATCHES:
            gc.collect()
            gc.freeze()

    def _explain_batch(self, items: Sequence[ExplanationTask | str]) -> list[Any]:
        loaded = self._served.current()
        return [_attempt(_search_variables if isinstance(item, str) else _explain, loaded, item) for item in items]


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or the exception that it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def _explain(loaded: LoadedRun, task: ExplanationTask) -> dict[str, Any]:
    explanation = loaded.explain(task.tables, task.variable, against=task.against, depth=task.depth)
    names = ("quantity", "total", "summary", "short_answer", "effects")
    shown = {name: getattr(explanation, name) for name in names}
    return {**asdict(explanation), **shown, "by_template": explanation.by_template()}


def _search_variables(loaded: LoadedRun, text: str) -> dict[str, Any]:
    """Return variables of the stored tables whose names contain a text, ignoring case, with their values in the tables."""
    grounding = loaded.stored_grounding
    assert grounding is not None
    owners = Counter(block.owner for block in grounding.blocks)
    folded = text.lower()
    found: list[dict[str, Any]] = []
    for block in grounding.blocks:
        if block.is_latent:
            continue
        arguments = zip(*grounding.argument_texts(block), strict=True)
        suffix = f".{block.attribute}" if owners[block.owner] > 1 else ""
        matches = (
            (k, name)
            for k, values in enumerate(arguments)
            if folded in (name := f"{block.owner}/{', '.join(values)}{suffix}").lower()
        )
        for k, name in islice(matches, MAX_FOUND_VARIABLES + 1 - len(found)):
            (value,) = grounding.values_in_data(block, np.array([block.start + k]))
            found.append({"variable": name, "value": value})
    return {"variables": found[:MAX_FOUND_VARIABLES], "has_more": len(found) > MAX_FOUND_VARIABLES}


def _require_known_parameters(request: Request, *names: str) -> None:
    """Require that the query of a request has no other parameters, such as a misspelled one.

    Raises:
        RequestError: It has another parameter.
    """
    for unknown in sorted(request.query_params.keys() - set(names)):
        hint = suggestion(unknown, names) or f"the parameters are {listing(names)}"
        raise _invalid(422, f"unknown query parameter '{unknown}'", hint)


def _read_coverage(request: Request) -> float | None:
    """Return the coverage in the query of a request.

    Raises:
        RequestError: It is not a number.
        UsageError: It is not between 0 and 1.
    """
    text = request.query_params.get("coverage")
    if text is None:
        return None
    try:
        coverage = float(text)
    except ValueError:
        raise _invalid(422, f"the coverage '{text}' is not a number", "write a coverage such as 0.9") from None
    require_coverage(coverage)
    return coverage


def _reject_constant(name: str) -> None:
    """Raise an error for NaN and infinite numbers, which Python accepts in JSON against the standard."""
    raise ValueError(f"{name} is not a number of JSON; write null for a missing number")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object; raise an error if a name is repeated, of which Python would use the last value."""
    members = dict(pairs)
    if len(members) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has several members with the name {name!a}")
    return members


def _read_explanation_task(body: Any) -> ExplanationTask:
    """Return the arguments in the body of a request for an explanation.

    Raises:
        RequestError: An argument is missing, unknown, or has another type.
    """
    kinds: dict[str, tuple[type, ...]] = {
        "variable": (str,),
        "tables": (dict, type(None)),
        "against": (str, type(None)),
        "depth": (int,),
    }
    hint = 'write {"variable": "Page/17", "tables": {...}}, and optionally "against" and "depth"'
    if not isinstance(body, dict) or "variable" not in body or not body.keys() <= kinds.keys():
        raise _invalid(422, "the body is not an object with the name of a variable", hint)
    values = {"tables": None, "against": None, "depth": 1, **body}
    for name, value in values.items():
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise _invalid(422, f"'{name}' has type {type(value).__name__}", hint)
    if not 1 <= values["depth"] <= MAX_DEPTH:
        raise _invalid(422, f"the depth is not between 1 and {MAX_DEPTH}", hint)
    return ExplanationTask(values["variable"], values["tables"], values["against"], values["depth"])


def _page(name: str, media_type: str) -> Endpoint:
    content = (Path(__file__).with_name("page") / name).read_bytes()

    async def handle(request: Request) -> Response:
        return Response(content, headers={**HEADERS, **PAGE_HEADERS}, media_type=media_type)

    return handle


def _json_response(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with JSON in ASCII, which can represent lone surrogates in names; NaN becomes null."""
    try:
        text = json.dumps(content, allow_nan=False)
    except ValueError:
        text = json.dumps(_replace_nan(content))
    return Response(text, status, {**HEADERS, **(headers or {})}, "application/json")


def _replace_nan(value: Any) -> Any:
    match value:
        case dict():
            return {name: _replace_nan(each) for name, each in value.items()}
        case list() | tuple():
            return [_replace_nan(each) for each in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _error_content(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the content of the answer for an exception; an internal error is logged."""
    diagnostics: tuple[Diagnostic, ...]
    match error:
        case RequestError():
            status, diagnostics = error.status, (error.diagnostic,)
        case RelcrfError():
            status, diagnostics = 422, error.diagnostics
        case ClientDisconnect():
            diagnostic = Diagnostic(
                "E460", "the connection was closed before the body arrived", hint="send the whole body"
            )
            status, diagnostics = 400, (diagnostic,)
        case _:
            logger.error("internal error in a request", exc_info=error)
            status, diagnostics = 500, (INTERNAL_ERROR,)
    return status, {"errors": [each.as_dict() for each in diagnostics]}


def _error_response(error: Exception) -> Response:
    status, content = _error_content(error)
    return _json_response(status, content, error.headers if isinstance(error, RequestError) else None)
