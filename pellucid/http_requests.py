"""Parts that the HTTP servers of the viewer and of the service share: host names, JSON bodies, sockets."""

import os
import re
import socket
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from pellucid.errors import InputError, abbreviate_reason, quote
from pellucid.files import os_error_text, parse_json

LOOPBACK = "127.0.0.1"
"""Loopback address: reachable from this machine only."""
LOOPBACK_HOSTS = (LOOPBACK, "localhost", "::1")
"""Names of this machine in the Host header. Other names that resolve to this machine indicate DNS rebinding."""
HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
"""Escape of the first half of a surrogate pair without the second, which the parser reports as truncated input."""
Body = TypeVar("Body")
"""Type of a parsed request."""


def host_name(url: str) -> str:
    """Return the host of a URL; empty if it is invalid.

    Args:
        url: URL, or "//" and the value of a Host header.
    """
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def read_json(request: Request, kind: type[Body], max_bytes: int) -> Body:
    """Return the parsed JSON body of a request. Bytes are counted while they arrive, also without a Content-Length.

    Args:
        request: HTTP request.
        kind: Struct that the body must match.
        max_bytes: Maximum size of the body.

    Raises:
        HTTPException: The body is not JSON or compressed (415), too large (413), or incomplete or invalid (400).
    """
    kind_of_content, *parameters = (part.strip().lower() for part in request.headers.get("content-type", "").split(";"))
    if kind_of_content != "application/json":
        raise HTTPException(415, "a request requires Content-Type: application/json")
    for name, _, value in (part.partition("=") for part in parameters):
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            raise HTTPException(415, f"Content-Type: expected JSON in UTF-8, got charset={quote(value.strip())}")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HTTPException(415, "Content-Encoding: expected a body that is not compressed")
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                raise HTTPException(413, f"a request has at most {max_bytes:,} bytes")
        return decode_request(body, kind)
    except ClientDisconnect as error:
        raise HTTPException(400, "incomplete request") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        is_unpaired = HALF_PAIR.search(body) is not None
        reason = "a text has half of a surrogate pair, such as \\ud800" if is_unpaired else abbreviate_reason(error)
        raise HTTPException(400, f"invalid request: {reason}") from error


def decode_request(body: bytes | bytearray, kind: type[Body]) -> Body:
    """Return a parsed JSON object. A number without a fraction, such as 5.0, is an integer, as in JSON Schema.

    Args:
        body: JSON text.
        kind: Struct that the object must match; its integers are fields of its own.

    Raises:
        msgspec.DecodeError: The text is not JSON, or does not match.
        ValueError: It is not UTF-8, or an object has a key twice, of which msgspec would silently take the last value.
    """
    parsed = _decode(body, kind)
    parse_json(bytes(body))
    return parsed


def _decode(body: bytes | bytearray, kind: type[Body]) -> Body:
    """Return a parsed JSON object; see `decode_request`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        if "Expected `int" not in str(error) or "got `float`" not in str(error):
            raise
    content: dict[str, Any] = msgspec.json.decode(body)
    for name, value in content.items():
        if isinstance(value, float) and value.is_integer():
            content[name] = int(value)
    return msgspec.convert(content, kind)


def open_tcp_socket(host: str, port: int) -> socket.socket:
    """Open a listening TCP socket, which the caller closes.

    Args:
        host: Address or name of an interface of this machine.
        port: Port, 0 to 65535; 0 for any free port.

    Raises:
        InputError: The address is unknown, or the port is out of range, in use, or not permitted.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With this protocol number, asyncio sets TCP_NODELAY for each connection. Without that, the body of a response
    # waits 40 ms for the acknowledgement of its headers.
    server_socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":  # elsewhere it would share a port that is in use
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server_socket.bind((host, port))
    except (OSError, OverflowError) as error:
        server_socket.close()
        reason = os_error_text(error) if isinstance(error, OSError) else "expected 0 to 65535"
        place = f"--port {port}" if host == LOOPBACK else f"--host {host} --port {port}"
        raise InputError(f"{place}: {reason}") from error
    server_socket.listen(1024)
    return server_socket
