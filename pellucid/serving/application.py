"""The web application of the service: routes, errors, and request handling."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from pellucid.errors import InputError, quote, suggest
from pellucid.http_requests import read_json
from pellucid.serving.access import AccessMiddleware, AccessRules, error_response
from pellucid.serving.batch_queue import QueueFullError
from pellucid.serving.decoding_worker import OperationError
from pellucid.serving.index_page import index_page
from pellucid.serving.metrics import Labels, ServiceMetrics
from pellucid.serving.model_service import ModelService, WorkerFailedError
from pellucid.serving.model_worker import run_together
from pellucid.serving.openapi import openapi_document
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import (
    OPERATIONS,
    HealthResponse,
    ModelsResponse,
    OperationName,
    ServiceError,
)

LOGGER = logging.getLogger("pellucid.serving")
Endpoint = Callable[[Request], Awaitable[Response]]
ERROR_CODES: Mapping[int, str] = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    409: "operation_not_supported",
    413: "request_too_large",
    415: "unsupported_media_type",
    500: "internal_error",
    504: "timeout",
}
"""Error code of each HTTP status, for errors without a more specific code."""


class RequestAbandonedError(RuntimeError):
    """A request whose client has left."""


@dataclass
class PredictionService:
    """The models of the service and its state."""

    models: Mapping[str, ModelService]
    """Models by name; the first is the default."""
    options: ServiceOptions = field(default_factory=ServiceOptions)
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    state: Literal["starting", "ok", "stopping"] = "starting"
    start_error: BaseException | None = None
    """Why the service was not started: `InputError` if a model cannot be loaded, another for an error of this program.
    """
    _loading: "asyncio.Task[None] | None" = None

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Load all models before the first request, and end their workers after the last.

        Args:
            app: Application; unused.
        """
        try:
            await self._load_models()
            yield
        finally:
            await asyncio.gather(*(model.stop() for model in self.models.values()))

    async def _load_models(self) -> None:
        """Load all models, until `request_stop`."""
        if self.state == "starting":
            self._loading = asyncio.create_task(run_together(model.start() for model in self.models.values()))
            await asyncio.wait({self._loading})
            loading, self._loading = self._loading, None
            if self.state == "starting":
                self.start_error = loading.exception()
                if self.start_error is not None:
                    raise self.start_error
                self.state = "ok"

    def request_stop(self) -> None:
        """Report the service as stopping, and end the loading of models. A handler of signals may call this."""
        self.state = "stopping"
        if self._loading is not None:
            self._loading.get_loop().call_soon_threadsafe(self._loading.cancel)

    def select(self, name: str, operation: OperationName) -> ModelService:
        """Return the model of a request.

        Args:
            name: Name of a model; "" for the default.
            operation: Operation of the request.

        Raises:
            HTTPException: There is no such model (404), or its task does not support the operation (409).
        """
        model = self.models.get(name or next(iter(self.models)))
        if model is None:
            hint = suggest(name, self.models) or "; GET /v1/models lists all"
            raise HTTPException(404, f"model: there is no model {quote(name)}{hint}")
        task = OPERATIONS[operation].task
        if task not in (None, model.task):
            raise HTTPException(
                409, f"{operation}: expected a model of the task {task}, but {model.name} has the task {model.task}"
            )
        return model

    async def answer(self, operation: OperationName, request: Request) -> Response:
        """Return the results of a request.

        Args:
            operation: Operation.
            request: HTTP request.
        """
        parsed: Any = await read_json(request, OPERATIONS[operation].request, self.options.max_body_bytes)
        if len(parsed.rows) > (limit := self.options.max_rows):
            raise HTTPException(
                413, f"rows: expected at most {limit:,}, got {len(parsed.rows):,}; send several requests"
            )
        model = self.select(parsed.model, operation)
        pending = model.make_pending_request(operation, parsed)
        request.state.log = {"model": model.name, "rows": len(parsed.rows)}
        model.queue.put(pending)
        try:
            results = await wait_for_results(request, pending.results)
        finally:
            if not pending.results.done() or pending.results.cancelled():
                model.queue.drop(pending)
                self.metrics.count("pellucid_abandoned_requests_total", {"model": model.name})
        return _results_response(model.name, results)

    def gauges(self) -> dict[str, dict[Labels, float]]:
        """Return the current values of the metrics."""
        models = self.models.values()
        return {
            "pellucid_queued_rows": {(("model", model.name),): float(model.queue.num_rows) for model in models},
            "pellucid_ready_workers": {(("model", model.name),): float(model.num_ready) for model in models},
        }

    @property
    def is_ready(self) -> bool:
        """True if every model has a worker that answers."""
        return self.state == "ok" and all(model.num_ready for model in self.models.values())


async def wait_for_results(request: Request, results: "asyncio.Future[list[bytes]]") -> list[bytes]:
    """Wait for the results of a request, or for the end of its connection.

    Args:
        request: HTTP request whose body has been read.
        results: Results of its rows.

    Raises:
        RequestAbandonedError: The client has left.
        WorkerFailedError: The worker failed on the request.
    """
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        waiting: set[asyncio.Future[Any]] = {results, disconnected}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not results.done():
            raise RequestAbandonedError("the client has left")
        return results.result()
    finally:
        disconnected.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _results_response(model: str, results: list[bytes]) -> Response:
    """Return the results of rows, which are JSON texts, as one response."""
    body = b'{"model":' + msgspec.json.encode(model) + b',"results":[' + b",".join(results) + b"]}"
    return Response(body, media_type="application/json")


def create_app(service: PredictionService, rules: AccessRules) -> Starlette:
    """Create the web application of the service.

    Args:
        service: Models of the service.
        rules: Accepted requests.

    Returns:
        ASGI application.
    """
    document, page = msgspec.json.encode(openapi_document()), index_page(list(service.models))
    routes = [
        Route("/", _constant(HTMLResponse(page))),
        Route("/openapi.json", _constant(Response(document, media_type="application/json"))),
        Route("/health", _struct_endpoint(lambda: (HealthResponse(status=service.state), 200))),
        Route("/ready", _struct_endpoint(lambda: _readiness(service))),
        Route("/metrics", _metrics_endpoint(service)),
        Route("/v1/models", _struct_endpoint(lambda: (_list_models(service), 200))),
        *(Route(f"/v1/{name}", _operation_endpoint(service, name), methods=["POST"]) for name in OPERATIONS),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(AccessMiddleware, rules, service.metrics, [route.path for route in routes])],
        exception_handlers={
            HTTPException: _handle_http_error,
            QueueFullError: _handle_full_queue,
            OperationError: _handle_unsupported,
            InputError: _handle_input_error,
            WorkerFailedError: _handle_worker_error,
            RequestAbandonedError: _handle_abandoned,
            Exception: _handle_server_error,
        },
        lifespan=service.lifespan,
    )
    app.router.redirect_slashes = False  # a path that is not in the document is not found
    return app


def _constant(response: Response) -> Endpoint:
    """Return an endpoint that always gives the same response."""

    async def endpoint(request: Request) -> Response:
        """Return the response.

        Args:
            request: HTTP request; unused.
        """
        return Response(response.body, media_type=response.media_type)

    return endpoint


def _struct_endpoint(respond: Callable[[], tuple[msgspec.Struct, int]]) -> Endpoint:
    """Return an endpoint whose response is a struct with a status."""

    async def endpoint(request: Request) -> Response:
        """Return the struct as JSON.

        Args:
            request: HTTP request; unused.
        """
        content, status = respond()
        return Response(msgspec.json.encode(content), status, media_type="application/json")

    return endpoint


def _metrics_endpoint(service: PredictionService) -> Endpoint:
    """Return the endpoint of the metrics."""

    async def endpoint(request: Request) -> Response:
        """Return the metrics as text.

        Args:
            request: HTTP request; unused.
        """
        return Response(service.metrics.format(service.gauges()), media_type="text/plain; version=0.0.4")

    return endpoint


def _operation_endpoint(service: PredictionService, operation: OperationName) -> Endpoint:
    """Return the endpoint of an operation. The time limit includes the arrival of the body."""

    async def endpoint(request: Request) -> Response:
        """Answer, or fail after the time limit.

        Args:
            request: HTTP request.
        """
        seconds = service.options.timeout
        try:
            async with asyncio.timeout(seconds):
                return await service.answer(operation, request)
        except TimeoutError:
            raise HTTPException(
                504, f"the request took more than {seconds:g} seconds; send fewer rows, or try again later"
            ) from None

    return endpoint


def _readiness(service: PredictionService) -> tuple[HealthResponse, int]:
    """Return whether all models answer, with status 503 if not."""
    if service.is_ready:
        return HealthResponse(status="ok"), 200
    return HealthResponse(status="starting" if service.state == "ok" else service.state), 503


def _list_models(service: PredictionService) -> ModelsResponse:
    """Return the models."""
    return ModelsResponse(models=[model.info for model in service.models.values()])


def _error(
    request: Request, status: int, message: str, code: str = "", headers: dict[str, str] | None = None
) -> Response:
    """Return an error of a request."""
    error = ServiceError(status=status, code=code or ERROR_CODES.get(status, "error"), message=message)
    return error_response(error, getattr(request.state, "request_id", ""), headers)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Respond to an HTTP error. A body that does not arrive in time closes the connection.

    The rest of other bodies is read and dropped: a connection that is closed while the client sends is reset, and the
    client may lose the response.
    """
    assert isinstance(error, HTTPException)
    headers = {**(error.headers or {})}
    if error.status_code in (408, 504):
        headers["connection"] = "close"
    return _error(request, error.status_code, error.detail, headers=headers)


async def _handle_full_queue(request: Request, error: Exception) -> Response:
    """Respond to a request for which the queue has no room."""
    assert isinstance(error, QueueFullError)
    seconds = str(error.retry_seconds)
    message = f"{error}; try again after {seconds} seconds"  # the message is our own
    return _error(request, 503, message, "queue_full", {"retry-after": seconds})


async def _handle_input_error(request: Request, error: Exception) -> Response:
    """Respond to a user error."""
    return _error(request, 400, str(error))


async def _handle_unsupported(request: Request, error: Exception) -> Response:
    """Respond to an operation that the model does not support yet."""
    return _error(request, 409, str(error))


async def _handle_worker_error(request: Request, error: Exception) -> Response:
    """Respond to a request on which a worker failed."""
    return _error(request, 500, "the worker process failed on this request; the log of the service says why")


async def _handle_abandoned(request: Request, error: Exception) -> Response:
    """Return a response that nobody receives, for the log."""
    return _error(request, 499, "the client has left", "client_left")


async def _handle_server_error(request: Request, error: Exception) -> Response:
    """Log the traceback of an internal error, and respond with its type."""
    LOGGER.error("%s failed", request.url.path, exc_info=error)
    return _error(request, 500, f"internal error: {type(error).__name__}")
