"""Who is let in: this machine's own pages only, with bodies of a bounded size."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "::1")
"""Names of this machine for itself. Another name that leads here belongs to somebody else's page (DNS rebinding)."""


class Guard:
    """Lets through what this machine asks itself, and says with every answer what a browser may do with it."""

    def __init__(self, app: ASGIApp, policy: str, hosts: Iterable[str] = HOSTS) -> None:
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
        if _name(f"//{host}") not in self.hosts:
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


def _name(url: str) -> str:
    """The host of an address; nothing where it is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
