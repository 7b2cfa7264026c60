"""The service behind a page: answers about the models of one page, to this machine alone.

GET /               the page
GET /api/contents   all that it shows
POST /api/decode, /api/what-if, /api/neighbours   questions, in JSON
POST /api/kept      what a file of it holds of its first examples beside what it shows
POST /api/newest    the newest model of the run is shown from now on
GET /api/training?since=N   the log from line N on, new frames and the model card, as server-sent events

A question that cannot be answered, as of a beginning that the model cannot write, is answered with 200 and
{"error": words}: a browser counts any other status among its errors. What is no question has one from 400 on.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pellucid.errors import InputError, abbreviate_reason
from pellucid.inspection.neighbours import Gathered
from pellucid.look.visible import visible_message
from pellucid.search.trace_schema import encode_json
from pellucid.training.run import MODEL
from pellucid.viewer import questions
from pellucid.viewer.asking import Asked, Changed, Nearby, Neighbours, Renewed, Wish
from pellucid.viewer.assembling import Assembled
from pellucid.viewer.contents import Contents
from pellucid.viewer.following import Cursor, follow
from pellucid.viewer.guard import Guard
from pellucid.viewer.history import training
from pellucid.viewer.models import card
from pellucid.viewer.pages import built, policy

LARGEST = 1 << 20
"""Bytes of a question."""
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class Service:
    """What is shown, and what is made once and kept between questions."""

    shown: Assembled
    lock: Lock = field(default_factory=Lock)
    """Held by whoever computes: one question at a time."""
    among: Gathered | None = None
    """The states in which neighbours are looked for, gathered when first asked for."""
    again: Callable[[], Assembled] | None = None
    """How all is assembled anew, once a run has a model, or a newer one."""

    def contents(self) -> Contents:
        """All that is shown; how a training stands is looked up each time while it is not over."""
        if self.again and self._awaited():
            with self.lock:
                if self._awaited():  # nobody else has assembled it meanwhile
                    self.shown = self.again()
        contents, first = self.shown.contents, self.shown.models[0]
        if contents.training is None or contents.training.done:
            return contents
        return msgspec.structs.replace(contents, training=training(first.folder), card=card(first))

    def _awaited(self) -> bool:
        """Whether the first model was awaited, and all that are shown are there now."""
        there = (each.transducer is not None or (each.folder / MODEL).exists() for each in self.shown.models)
        return self.shown.contents.awaited and all(there)

    def renew(self, _: Wish) -> Renewed:
        """All is assembled anew."""
        if self.again is None:
            raise InputError("this page cannot be assembled anew: start pellucid look again")
        self.shown, self.among = self.again(), None
        return Renewed(update=self.shown.contents.update)

    def neighbours(self, nearby: Nearby) -> Neighbours:
        """The nearest states."""
        if self.among is None:
            self.among = questions.gathered(self.shown)
        return questions.neighbours(self.shown, self.among, nearby)


def application(shown: Assembled, again: Callable[[], Assembled] | None = None) -> Starlette:
    """The service of one page; `again` assembles it anew once a run has a model, or a newer one."""
    service, page = Service(shown, again=again), built()

    async def index(request: Request) -> Response:
        """The page."""
        return HTMLResponse(page)

    async def contents(request: Request) -> Response:
        """All that it shows."""
        return _json(await run_in_threadpool(lambda: encode_json(service.contents())))

    async def live(request: Request) -> Response:
        """The log as it grows."""
        return _stream(service, request)

    routes = [
        Route("/", index),
        Route("/api/contents", contents),
        Route("/api/training", live),
        Route(
            "/api/decode",
            _answering(service, Asked, lambda asked: questions.decode(service.shown, asked)),
            methods=["POST"],
        ),
        Route(
            "/api/what-if",
            _answering(service, Changed, lambda asked: questions.what_if(service.shown, asked)),
            methods=["POST"],
        ),
        Route("/api/kept", _answering(service, Wish, lambda _: questions.kept(service.shown)), methods=["POST"]),
        Route("/api/newest", _answering(service, Wish, service.renew), methods=["POST"]),
        Route("/api/neighbours", _answering(service, Nearby, service.neighbours), methods=["POST"]),
    ]
    middleware = [Middleware(Guard, policy=policy(page, "'self'")), Middleware(GZipMiddleware, minimum_size=1000)]
    handlers = {HTTPException: _refused, InputError: _mistaken, Exception: _failed}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


def _answering(service: Service, kind: type[Any], answer: Callable[[Any], msgspec.Struct]) -> Endpoint:
    """An endpoint that answers questions of one kind."""

    def answered(question: msgspec.Struct, page: str) -> bytes:
        """The answer, computed by one thread at a time; or why there is none."""
        with service.lock:
            try:
                if page not in ("", service.shown.contents.identity):
                    raise InputError("The service now shows another model or file than this page: load the page again.")
                return encode_json(answer(question))
            except InputError as error:
                return msgspec.json.encode({"error": str(error)})

    async def endpoint(request: Request) -> Response:
        """Read, answer, write."""
        question = await _question(request, kind)
        return _json(await run_in_threadpool(answered, question, request.headers.get("x-page", "")))

    return endpoint


async def _question(request: Request, kind: type[Any]) -> Any:  # noqa: ANN401 (a struct of this kind)
    """The question in a request's body; `HTTPException` for what is none."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "a question is asked in JSON: Content-Type: application/json")
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST:
                raise HTTPException(413, f"a question has at most {LARGEST:,} bytes")
        return msgspec.json.decode(body, type=kind)
    except ClientDisconnect as error:  # nobody will read this
        raise HTTPException(400, "not a question: it broke off") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"not a question: {abbreviate_reason(error)}") from error


def _stream(service: Service, request: Request) -> Response:
    """The events of a training from where the page stands; 204, which ends its asking, where none will come."""
    told = service.shown.contents.training
    try:
        since = int(request.headers.get("last-event-id") or request.query_params.get("since") or 0)
        since += "last-event-id" in request.headers
    except ValueError:
        raise HTTPException(400, "since: expected the number of a line") from None
    if told is None or since < 0:
        raise HTTPException(400, "there is no such place in a log" if told else "there is no log to follow")
    cursor = Cursor(service.shown.models[0], since)
    if cursor.over():
        return Response(status_code=204)

    async def sent() -> AsyncIterator[bytes]:
        """Until the end of the training, or of the page."""
        async for event in follow(cursor):
            yield event

    return StreamingResponse(sent(), media_type="text/event-stream")


def _json(body: bytes) -> Response:
    """An answer."""
    return Response(body, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    """What HTTP refuses, in words."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _mistaken(request: Request, error: Exception) -> Response:
    """What a person did wrong, in words."""
    return JSONResponse({"error": str(error)}, 400)


async def _failed(request: Request, error: Exception) -> Response:
    """A mistake of the service's own: its traceback for who started it, a word for who asked."""
    logging.getLogger("pellucid").error("%s failed", visible_message(request.url.path), exc_info=error)
    return JSONResponse({"error": f"the service failed: {type(error).__name__}"}, 500)
