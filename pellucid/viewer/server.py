"""The service on a port of this machine, until somebody ends it."""

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
from urllib.parse import urlsplit

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import InputError, abbreviate_reason
from pellucid.files import reason
from pellucid.inspection.state_space import Gathered
from pellucid.reporting.visible import visible_message
from pellucid.training.run_folder import MODEL
from pellucid.viewer import handlers as questions
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
from pellucid.viewer.training_history import LogCursor, stream_events, training_history

ALLOWED_HOSTS = ("127.0.0.1", "localhost", "::1")
"""Names of this machine for itself. Another name that leads here belongs to somebody else's page (DNS rebinding)."""


class LocalOnlyMiddleware:
    """Lets through what this machine asks itself, and says with every answer what a browser may do with it."""

    def __init__(self, app: ASGIApp, policy: str, hosts: Iterable[str] = ALLOWED_HOSTS) -> None:
        """Stand before an application."""
        self.app = app
        self.policy = policy
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 to what comes from elsewhere."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def told(message: Message) -> None:
            """Every answer with its headers."""
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers())
            await send(message)

        refusal = self._refusal(headers)
        if refusal:
            await JSONResponse({"error": refusal}, 403)(scope, receive, told)
        else:
            await self.app(scope, receive, told)

    def _refusal(self, headers: Headers) -> str:
        """What is wrong with where a request comes from; nothing if it comes from here."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if _host_name(f"//{host}") not in self.hosts:
            return "this page is for this machine only: open it as http://127.0.0.1"
        if origin is not None and origin != f"http://{host}":
            return "another page asks: only this service's own page may"
        return ""

    def _headers(self) -> dict[str, str]:
        """What every answer says beside itself."""
        return {
            "cache-control": "no-store",
            "content-security-policy": f"{self.policy}; frame-ancestors 'none'",
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }


def _host_name(url: str) -> str:
    """The host of an address; nothing where it is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


MAX_REQUEST_BYTES = 1 << 20
"""Bytes of a question."""
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class PageService:
    """What is shown, and what is made once and kept between questions."""

    shown: PageData
    lock: Lock = field(default_factory=Lock)
    """Held by whoever computes: one question at a time."""
    among: Gathered | None = None
    """The states in which neighbors are looked for, gathered when first asked for."""
    again: Callable[[], PageData] | None = None
    """How all is assembled anew, once a run has a model, or a newer one."""

    def contents(self) -> PageContents:
        """All that is shown; how a training stands is looked up each time while it is not over."""
        if self.again and self._awaited():
            with self.lock:
                if self._awaited():  # nobody else has assembled it meanwhile
                    self.shown = self.again()
        contents, first = self.shown.contents, self.shown.models[0]
        if contents.training is None or contents.training.finished:
            return contents
        return msgspec.structs.replace(contents, training=training_history(first.folder), card=model_card(first))

    def _awaited(self) -> bool:
        """Whether the first model was awaited, and all that are shown are there now."""
        there = (each.transducer is not None or (each.folder / MODEL).exists() for each in self.shown.models)
        return self.shown.contents.awaiting_model and all(there)

    def renew(self, _: EmptyRequest) -> ReloadResponse:
        """All is assembled anew."""
        if self.again is None:
            raise InputError("this page cannot be assembled anew: start pellucid look again")
        self.shown, self.among = self.again(), None
        return ReloadResponse(update=self.shown.contents.update)

    def neighbors(self, nearby: NeighborsRequest) -> NeighborsResponse:
        """The nearest states."""
        if self.among is None:
            self.among = questions.gather_states(self.shown)
        return questions.find_neighbors(self.shown, self.among, nearby)


def create_app(shown: PageData, again: Callable[[], PageData] | None = None) -> Starlette:
    """The service of one page; `again` assembles it anew once a run has a model, or a newer one."""
    service, page = PageService(shown, again=again), built_page()

    async def index(request: Request) -> Response:
        """The page."""
        return HTMLResponse(page)

    async def contents(request: Request) -> Response:
        """All that it shows."""
        return _json_response(await run_in_threadpool(lambda: encode_json(service.contents())))

    async def live(request: Request) -> Response:
        """The log as it grows."""
        return _stream_training(service, request)

    routes = [
        Route("/", index),
        Route("/api/contents", contents),
        Route("/api/training", live),
        Route(
            "/api/decode",
            _request_endpoint(service, DecodeRequest, lambda asked: questions.decode_source(service.shown, asked)),
            methods=["POST"],
        ),
        Route(
            "/api/what-if",
            _request_endpoint(service, WhatIfRequest, lambda asked: questions.compare_what_if(service.shown, asked)),
            methods=["POST"],
        ),
        Route(
            "/api/export",
            _request_endpoint(service, EmptyRequest, lambda _: questions.export_examples(service.shown)),
            methods=["POST"],
        ),
        Route("/api/reload", _request_endpoint(service, EmptyRequest, service.renew), methods=["POST"]),
        Route("/api/neighbors", _request_endpoint(service, NeighborsRequest, service.neighbors), methods=["POST"]),
    ]
    middleware = [
        Middleware(LocalOnlyMiddleware, policy=security_policy(page, "'self'")),
        Middleware(GZipMiddleware, minimum_size=1000),
    ]
    handlers = {HTTPException: _handle_http_error, InputError: _handle_input_error, Exception: _handle_server_error}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


def _request_endpoint(service: PageService, kind: type[Any], answer: Callable[[Any], msgspec.Struct]) -> Endpoint:
    """An endpoint that answers questions of one kind."""

    def answered(question: msgspec.Struct, page: str) -> bytes:
        """The answer, computed by one thread at a time; or why there is none."""
        with service.lock:
            try:
                if page not in ("", service.shown.contents.page_id):
                    raise InputError("The service now shows another model or file than this page: load the page again.")
                return encode_json(answer(question))
            except InputError as error:
                return msgspec.json.encode({"error": str(error)})

    async def endpoint(request: Request) -> Response:
        """Read, answer, write."""
        question = await _read_request(request, kind)
        return _json_response(await run_in_threadpool(answered, question, request.headers.get("x-page", "")))

    return endpoint


async def _read_request(request: Request, kind: type[Any]) -> Any:  # noqa: ANN401 (a struct of this kind)
    """The question in a request's body; `HTTPException` for what is none."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "a question is asked in JSON: Content-Type: application/json")
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_REQUEST_BYTES:
                raise HTTPException(413, f"a question has at most {MAX_REQUEST_BYTES:,} bytes")
        return msgspec.json.decode(body, type=kind)
    except ClientDisconnect as error:  # nobody will read this
        raise HTTPException(400, "not a question: it broke off") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"not a question: {abbreviate_reason(error)}") from error


def _stream_training(service: PageService, request: Request) -> Response:
    """The events of a training from where the page stands; 204, which ends its asking, where none will come."""
    told = service.shown.contents.training
    try:
        since = int(request.headers.get("last-event-id") or request.query_params.get("since") or 0)
        since += "last-event-id" in request.headers
    except ValueError:
        raise HTTPException(400, "since: expected the number of a line") from None
    if told is None or since < 0:
        raise HTTPException(400, "there is no such place in a log" if told else "there is no log to follow")
    cursor = LogCursor(service.shown.models[0], since)
    if cursor.over():
        return Response(status_code=204)

    async def sent() -> AsyncIterator[bytes]:
        """Until the end of the training, or of the page."""
        async for event in stream_events(cursor):
            yield event

    return StreamingResponse(sent(), media_type="text/event-stream")


def _json_response(body: bytes) -> Response:
    """An answer."""
    return Response(body, media_type="application/json")


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """What HTTP refuses, in words."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _handle_input_error(request: Request, error: Exception) -> Response:
    """What a person did wrong, in words."""
    return JSONResponse({"error": str(error)}, 400)


async def _handle_server_error(request: Request, error: Exception) -> Response:
    """A mistake of the service's own: its traceback for who started it, a word for who asked."""
    logging.getLogger("pellucid").error("%s failed", visible_message(request.url.path), exc_info=error)
    return JSONResponse({"error": f"the service failed: {type(error).__name__}"}, 500)


HOST = "127.0.0.1"
"""Nobody but this machine reaches it."""
SHUTDOWN_SECONDS = 20
"""Seconds for a service beside to end well, and then to end at all: the thread is a daemon, and is left then."""


def open_socket(port: int) -> socket.socket:
    """A socket of this machine's own; port 0 takes one that is free. `InputError` where the port is in use."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((HOST, port))
    except (OSError, OverflowError) as error:
        opened.close()
        words = reason(error) if isinstance(error, OSError) else "ports go from 0 to 65535"
        raise InputError(f"--port {port}: {words}") from error
    opened.listen(128)
    return opened


def server_url(opened: socket.socket) -> str:
    """Where a browser finds it."""
    return f"http://{HOST}:{opened.getsockname()[1]}/"


def serve_until_interrupted(app: Starlette, opened: socket.socket) -> None:
    """Answer until Ctrl-C."""
    with suppress(KeyboardInterrupt):  # the server has ended well, and hands on what it was ended by
        _create_server(app).run(sockets=[opened])


def exit_without_waiting() -> None:
    """End the process at once where an answer is still being computed, for nobody: Python would wait for its thread."""
    if any(not each.daemon for each in enumerate_threads() if each is not main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@contextmanager
def background_server(app: Starlette) -> Iterator[str]:
    """The address of a service that runs beside, in a thread, within the block."""
    opened, server = open_socket(0), _create_server(app)
    thread = Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    try:
        yield server_url(opened)
    finally:
        server.should_exit = True
        thread.join(SHUTDOWN_SECONDS)
        server.force_exit = True
        thread.join(SHUTDOWN_SECONDS)
        opened.close()


def _create_server(app: Starlette) -> uvicorn.Server:
    """Quiet, and quick to end though a page listens to a training."""
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", ws="none", loop="asyncio", timeout_graceful_shutdown=1
    )
    return uvicorn.Server(config)
