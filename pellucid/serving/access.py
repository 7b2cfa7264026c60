"""Middleware: request IDs, hosts, tokens and origins, headers of responses, log and metrics."""

import hmac
import logging
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.http_requests import host_name
from pellucid.serving.metrics import ServiceMetrics
from pellucid.serving.schema import ErrorResponse, ServiceError

ACCESS_LOGGER = logging.getLogger("pellucid.serving.access")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Accepted form of the header X-Request-ID; others are replaced."""
MAX_LOGGED_PATH = 200
"""Maximum number of characters of a path in the log."""
OPEN_PATHS = ("/health", "/ready")
"""Paths that need no token, for probes."""
CORS_HEADERS = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type, x-request-id",
    "access-control-max-age": "600",
}


@dataclass(frozen=True)
class AccessRules:
    """Requests that the service accepts."""

    hosts: frozenset[str] = frozenset()
    """Accepted names in the Host header, without port; empty for all."""
    origins: frozenset[str] = frozenset()
    """Other origins whose pages may call the service."""
    token: str = ""
    """Token that each request must carry; "" if there is none."""

    def find_refusal(self, path: str, headers: Headers) -> ServiceError | None:
        """Return why a request is refused; None if it is accepted.

        A request with both Content-Length and Transfer-Encoding is refused: a proxy before the service might see
        another end of it (RFC 9112, section 6.1).

        Args:
            path: Path of the request.
            headers: Headers of the request.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        if "content-length" in headers and "transfer-encoding" in headers:
            return _refusal(400, "invalid_request", "expected Content-Length or Transfer-Encoding, got both")
        if self.hosts and host_name(f"//{host}") not in self.hosts:
            expected = ", ".join(sorted(self.hosts))
            return _refusal(403, "host_refused", f"Host: expected one of {expected}; --allow-host adds a name")
        if origin is not None and origin != f"http://{host}" and origin not in self.origins:
            return _refusal(403, "origin_refused", "Origin: pages of this origin are refused; --allow-origin adds one")
        if self.token and path not in OPEN_PATHS and not self._has_token(headers):
            return _refusal(401, "token_required", "Authorization: expected Bearer and the token of the service")
        return None

    def _has_token(self, headers: Headers) -> bool:
        """Return whether a request carries the token; the comparison takes constant time."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_equal = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return scheme.lower() == "bearer" and is_equal


def _refusal(status: int, code: str, message: str) -> ServiceError:
    """Return the error of a refused request."""
    return ServiceError(status=status, code=code, message=message)


def error_response(error: ServiceError, request_id: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as a JSON response.

    Args:
        error: The error.
        request_id: Identity of the request.
        headers: Further headers.
    """
    body = msgspec.json.encode(ErrorResponse(error=msgspec.structs.replace(error, request_id=request_id)))
    return Response(body, error.status, headers, "application/json")


class AccessMiddleware:
    """Middleware that refuses requests by `AccessRules`, and logs and counts the others and the refused ones."""

    def __init__(self, app: ASGIApp, rules: AccessRules, metrics: ServiceMetrics, paths: Collection[str]) -> None:
        """Wrap an application.

        Args:
            app: ASGI application.
            rules: Accepted requests.
            metrics: Metrics that count the requests.
            paths: Paths of the application; requests to others are counted together.
        """
        self.app = app
        self.rules = rules
        self.metrics = metrics
        self.paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an accepted HTTP request on, with its identity in the scope; refuse others."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, started, status = Headers(scope=scope), time.monotonic(), 499
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_headers(message: Message) -> None:
            """Send a message with the headers of all responses.

            Args:
                message: ASGI message.
            """
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(self._headers(headers, request_id))
            await send(message)

        try:
            await self._respond(scope, receive, send_with_headers, headers, request_id)
        finally:
            self._record(scope, status, time.monotonic() - started, request_id)

    async def _respond(self, scope: Scope, receive: Receive, send: Send, headers: Headers, request_id: str) -> None:
        """Refuse a request, answer the preflight request of a browser, or pass the request on."""
        if scope["method"] == "OPTIONS" and headers.get("origin") in self.rules.origins:
            await Response(status_code=204, headers=CORS_HEADERS)(scope, receive, send)
        elif refusal := self.rules.find_refusal(scope["path"], headers):
            further = {400: {"connection": "close"}, 401: {"www-authenticate": "Bearer"}}.get(refusal.status)
            await error_response(refusal, request_id, further)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _headers(self, headers: Headers, request_id: str) -> dict[str, str]:
        """Return the headers of every response."""
        result = {"cache-control": "no-store", "x-content-type-options": "nosniff", "x-request-id": request_id}
        origin = headers.get("origin")
        if origin in self.rules.origins:
            result |= {"access-control-allow-origin": f"{origin}", "vary": "Origin"}
        return result

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        """Log and count a request, also a refused one. Paths that do not exist are counted together."""
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.count("pellucid_requests_total", {"path": path, "status": str(status)})
        self.metrics.observe("pellucid_request_seconds", {"path": path}, seconds)
        given = scope["path"][:MAX_LOGGED_PATH]
        fields = {"method": scope["method"][:16], "path": given, "status": status, "seconds": round(seconds, 6)}
        details = {**fields, **scope["state"].get("log", {}), "request_id": request_id}
        ACCESS_LOGGER.info("%s %s %s", fields["method"], given, status, extra={"details": details})
