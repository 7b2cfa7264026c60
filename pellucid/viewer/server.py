"""Local HTTP server of the page."""

import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock, Thread, main_thread
from threading import enumerate as enumerate_threads
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import InputError
from pellucid.http_requests import LOOPBACK, LOOPBACK_HOSTS, host_name, open_tcp_socket, read_json
from pellucid.inspection.state_space import CorpusStates
from pellucid.reporting.display_text import visible_message
from pellucid.run_folder.identity import has_validated_model
from pellucid.viewer import handlers
from pellucid.viewer.inputs import model_card
from pellucid.viewer.page_contents import PageData
from pellucid.viewer.pages import built_page, security_policy
from pellucid.viewer.schema import (
    DecodeRequest,
    EmptyRequest,
    NeighborsRequest,
    NeighborsResponse,
    PageContents,
    ReloadResponse,
    WhatIfRequest,
)
from pellucid.viewer.training_history import LogCursor, format_event, stream_events, training_history


class LocalOnlyMiddleware:
    """Middleware that refuses requests for other host names and from pages of other origins, and adds security headers.

    Together with the loopback address of the server, the page is available on this machine only.
    """

    def __init__(self, app: ASGIApp, policy: str, hosts: Iterable[str] = LOOPBACK_HOSTS) -> None:
        """Wrap an application.

        Args:
            app: ASGI application.
            policy: Content-Security-Policy of all responses.
            hosts: Accepted host names of the Host header, without port.
        """
        self.app = app
        self.policy = policy
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an HTTP request on; respond with status 403 to one for another host or from a page of another origin."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            """Send a message with the security headers.

            Args:
                message: ASGI message.
            """
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers())
            await send(message)

        refusal = self._refusal(headers)
        if refusal:
            await JSONResponse({"error": refusal}, 403)(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> str:
        """Return why the origin of a request is refused; empty if it is accepted."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if host_name(f"//{host}") not in self.hosts:
            return "the page is available on this machine only: open it at http://127.0.0.1"
        if origin is not None and origin != f"http://{host}":
            return "requests from other origins are refused"
        return ""

    def _headers(self) -> dict[str, str]:
        """Return the headers of every response."""
        return {
            "cache-control": "no-store",
            "content-security-policy": f"{self.policy}; frame-ancestors 'none'",
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }


MAX_REQUEST_BYTES = 1 << 20
"""Maximum size of a request body."""
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class PageService:
    """State of the server: the page data, and results cached between requests."""

    page_data: PageData
    lock: Lock = field(default_factory=Lock)
    """Held while a request is computed: one at a time."""
    corpus_states: CorpusStates | None = None
    """States for the search of neighbors; None until the first such request."""
    reload_page: Callable[[], PageData] | None = None
    """Function that assembles the page again with newer models; None if the page cannot be reloaded."""

    def check_page(self, page: str) -> None:
        """Check that a request is from the page that the server shows.

        Args:
            page: Identity of the page that sent the request; "" if unknown.

        Raises:
            InputError: The page was of another server at this port, or its models were loaded again since.
        """
        if page not in ("", self.page_data.contents.page_id):
            raise InputError("The server now shows another model or file than this page: load the page again.")

    def contents(self) -> PageContents:
        """Return the contents of the page, with the current training history while training continues.

        If the page was assembled before the run had a model, and all runs have one now, it is assembled again.
        """
        if self.reload_page and self._is_model_ready():
            with self.lock:
                if self._is_model_ready():  # no other thread has assembled it meanwhile
                    self.page_data = self.reload_page()
        contents, first = self.page_data.contents, self.page_data.runs[0]
        training = contents.training
        if training is None or (training.finished and not training.running):
            return contents
        first = first.with_newest_log()
        return msgspec.structs.replace(contents, training=training_history(first), card=model_card(first))

    def _is_model_ready(self) -> bool:
        """Return whether the first run was shown without a model, and all runs have one now."""
        models_available = (run.predictor is not None or has_validated_model(run.folder) for run in self.page_data.runs)
        return self.page_data.contents.awaiting_model and all(models_available)

    def reload(self, _: EmptyRequest) -> ReloadResponse:
        """Load the newest models of the runs and assemble the page again; the browser must load it to show it.

        Args:
            _: Request without parameters.

        Returns:
            Update of the shown model, if its training is unfinished.

        Raises:
            InputError: The server cannot assemble the page again, or a run or its file has become unreadable.
        """
        if self.reload_page is None:
            raise InputError("the page cannot be reloaded: restart pellucid look")
        self.page_data, self.corpus_states = self.reload_page(), None
        return ReloadResponse(update=self.page_data.contents.update)

    def neighbors(self, request: NeighborsRequest) -> NeighborsResponse:
        """Return the states of the page's file that are nearest to a state; the first request collects all states.

        Args:
            request: State and number of neighbors.

        Raises:
            InputError: As in `handlers.gather_states` and `handlers.find_neighbors`.
        """
        if self.corpus_states is None:
            self.corpus_states = handlers.gather_states(self.page_data)
        return handlers.find_neighbors(self.page_data, self.corpus_states, request)


def create_app(page_data: PageData, reload: Callable[[], PageData] | None = None) -> Starlette:
    """Create the web application that serves the page and answers its requests, on this machine only.

    Args:
        page_data: Data of the page.
        reload: Function that assembles the page again with newer models; None if the page cannot be reloaded.

    Returns:
        ASGI application with the page at "/" and its requests at "/api/…".
    """
    service, page = PageService(page_data, reload_page=reload), built_page()

    async def index(request: Request) -> Response:
        """Return the page.

        Args:
            request: HTTP request; unused.
        """
        return HTMLResponse(page)

    async def contents(request: Request) -> Response:
        """Return the contents of the page.

        Args:
            request: HTTP request; unused.
        """
        return _json_response(await run_in_threadpool(lambda: encode_json(service.contents())))

    async def training_events(request: Request) -> Response:
        """Return the training log as an event stream.

        Args:
            request: HTTP request with the first line of the log to send, and the identity of the page.
        """
        return await _stream_training(service, request)

    routes = [
        Route("/", index),
        Route("/api/contents", contents),
        Route("/api/training", training_events),
        Route(
            "/api/decode",
            _request_endpoint(service, DecodeRequest, lambda body: handlers.decode_source(service.page_data, body)),
            methods=["POST"],
        ),
        Route(
            "/api/what-if",
            _request_endpoint(service, WhatIfRequest, lambda body: handlers.compare_what_if(service.page_data, body)),
            methods=["POST"],
        ),
        Route(
            "/api/export",
            _request_endpoint(service, EmptyRequest, lambda _: handlers.export_examples(service.page_data)),
            methods=["POST"],
        ),
        Route("/api/reload", _request_endpoint(service, EmptyRequest, service.reload), methods=["POST"]),
        Route("/api/neighbors", _request_endpoint(service, NeighborsRequest, service.neighbors), methods=["POST"]),
    ]
    middleware = [
        Middleware(LocalOnlyMiddleware, policy=security_policy(page, "'self'")),
        Middleware(GZipMiddleware, minimum_size=1000),
    ]
    exception_handlers = {
        HTTPException: _handle_http_error,
        InputError: _handle_input_error,
        Exception: _handle_server_error,
    }
    return Starlette(routes=routes, middleware=middleware, exception_handlers=exception_handlers)


def _request_endpoint(service: PageService, kind: type[Any], respond: Callable[[Any], msgspec.Struct]) -> Endpoint:
    """Return an endpoint for one type of request."""

    def compute_response(parsed: msgspec.Struct, page: str) -> bytes:
        """Return the response as JSON, or an error. One thread computes at a time.

        Args:
            parsed: Parsed request.
            page: Identity of the page that sent the request; "" if unknown.
        """
        with service.lock:
            try:
                service.check_page(page)
                return encode_json(respond(parsed))
            except InputError as error:
                return msgspec.json.encode({"error": str(error)})

    async def endpoint(request: Request) -> Response:
        """Parse the request, compute and respond.

        Args:
            request: HTTP request.
        """
        parsed = await read_json(request, kind, MAX_REQUEST_BYTES)
        return _json_response(await run_in_threadpool(compute_response, parsed, request.headers.get("x-page", "")))

    return endpoint


async def _stream_training(service: PageService, request: Request) -> Response:
    """Return the event stream from a line of the log on; status 204, which ends polling, if no event will follow."""
    try:  # a browser continues the stream by itself, also at a server that was started later, with another run
        service.check_page(request.query_params.get("page", ""))
    except InputError as error:
        return Response(format_event("failed", msgspec.json.encode(str(error))), media_type="text/event-stream")
    history = service.page_data.contents.training
    try:
        since = int(request.headers.get("last-event-id") or request.query_params.get("since") or 0)
        since += "last-event-id" in request.headers
    except ValueError:
        raise HTTPException(400, "since: expected a line number") from None
    if history is None or since < 0:
        raise HTTPException(400, "since: no such line in the log" if history else "no training log")
    cursor = LogCursor(service.page_data.runs[0], since)
    with suppress(InputError):  # the stream reports it, since a page cannot read a response with another status
        if await run_in_threadpool(cursor.is_complete):
            return Response(status_code=204)

    async def event_stream() -> AsyncIterator[bytes]:
        """Yield events until the process of the training has ended or the page is closed."""
        async for event in stream_events(cursor):
            yield event

    return StreamingResponse(event_stream(), media_type="text/event-stream")


def _json_response(body: bytes) -> Response:
    """Return a JSON response."""
    return Response(body, media_type="application/json")


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Respond to an HTTP error with a JSON message."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _handle_input_error(request: Request, error: Exception) -> Response:
    """Respond to a user error with a JSON message."""
    return JSONResponse({"error": str(error)}, 400)


async def _handle_server_error(request: Request, error: Exception) -> Response:
    """Log the traceback of an internal error, and respond with its type."""
    logging.getLogger("pellucid").error("%s failed", visible_message(request.url.path), exc_info=error)
    return JSONResponse({"error": f"internal error: {type(error).__name__}"}, 500)


SHUTDOWN_SECONDS = 20
"""Time limit for a graceful shutdown, and then for a forced one; the daemon thread is abandoned afterwards."""


def open_socket(port: int) -> socket.socket:
    """Open a listening TCP socket at 127.0.0.1, which the caller closes.

    Args:
        port: Port, 0 to 65535; 0 for any free port.

    Raises:
        InputError: The port is out of range, in use, or not permitted.
    """
    return open_tcp_socket(LOOPBACK, port)


def server_url(server_socket: socket.socket) -> str:
    """Return the URL at which a browser finds the server of a socket: "http://127.0.0.1:8000/".

    Args:
        server_socket: Listening socket.
    """
    return f"http://{LOOPBACK}:{server_socket.getsockname()[1]}/"


def serve_until_interrupted(app: Starlette, server_socket: socket.socket) -> None:
    """Serve an application in this thread until Ctrl-C, then return.

    Args:
        app: Application.
        server_socket: Listening socket.
    """
    with suppress(KeyboardInterrupt):  # the server has shut down and re-raises the signal
        _create_server(app).run(sockets=[server_socket])


def exit_without_waiting() -> None:
    """End the process with status 0 if a response is still being computed in a thread, for which Python would wait;
    else return.
    """
    if any(not thread.daemon for thread in enumerate_threads() if thread is not main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@contextmanager
def background_server(app: Starlette) -> Iterator[str]:
    """Serve an application at a free port, in a background thread, within the block.

    Args:
        app: Application.

    Yields:
        URL of the server.
    """
    server_socket, server = open_socket(0), _create_server(app)
    thread = Thread(target=server.run, kwargs={"sockets": [server_socket]}, daemon=True)
    thread.start()
    try:
        yield server_url(server_socket)
    finally:
        server.should_exit = True
        thread.join(SHUTDOWN_SECONDS)
        server.force_exit = True
        thread.join(SHUTDOWN_SECONDS)
        server_socket.close()


def _create_server(app: Starlette) -> uvicorn.Server:
    """Return a quiet server that shuts down without waiting for event streams."""
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", ws="none", loop="asyncio", timeout_graceful_shutdown=1
    )
    return uvicorn.Server(config)
