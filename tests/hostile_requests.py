"""Malformed and hostile HTTP requests to the service, each with the statuses that are correct for it."""

import asyncio
import gzip
import json
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
ROW = b'{"rows": [{"source": %s}]}'
POST = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
CLOSE = b"Connection: close\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


class HostileRequest(NamedTuple):
    """Bytes that a client sends, and the statuses that it may receive."""

    name: str
    content: bytes
    statuses: Sequence[Sequence[int]]
    """Correct sequences of statuses on the connection; an empty one if the service closes it without an answer."""


def post(body: bytes, headers: bytes = b"", length: int | None = None) -> bytes:
    """Return a request with a body, after which the connection is closed."""
    size = len(body) if length is None else length
    return POST + CLOSE + headers + b"Content-Length: %d\r\n\r\n" % size + body


def get(target: bytes, headers: bytes = b"Host: localhost\r\n", version: bytes = b"HTTP/1.1") -> bytes:
    """Return a request without a body, after which the connection is closed."""
    return b"GET " + target + b" " + version + b"\r\n" + headers + CLOSE + b"\r\n"


def body_requests() -> list[HostileRequest]:
    """Return requests whose body is wrong, or unusual."""
    row = b'{"source": "a"}'
    wrong = {
        "empty": b"",
        "no JSON": b"{",
        "not an object": b"[]",
        "nesting in a source": ROW % (b"[" * 100_000),
        "nesting in an unknown field": b'{"x": ' + b'{"x": [' * 50_000,
        "closed nesting": b'{"beam_size": 1.5, "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        "invalid UTF-8": ROW % b'"\xff\xfe"',
        "overlong UTF-8": ROW % b'"\xc0\xaf"',
        "lone surrogate": ROW % b'"\\ud800"',
        "encoded surrogate": ROW % b'"\xed\xa0\x80"',
        "byte order mark": b"\xef\xbb\xbf" + ROW % b'"A"',
        "UTF-16": (ROW % b'"A"').decode().encode("utf-16"),
        "NaN": b'{"beam_size": NaN, "rows": [{"source": "a"}]}',
        "long integer": b'{"beam_size": 1' + b"0" * 100_000 + b', "rows": [{"source": "a"}]}',
        "long fraction": b'{"beam_size": 1.' + b"5" * 100_000 + b', "rows": [{"source": "a"}]}',
        "large float": b'{"beam_size": 1e308, "rows": [{"source": "a"}]}',
        "infinite float": b'{"beam_size": 1e999999999, "rows": [{"source": "a"}]}',
        "negative zero": b'{"beam_size": -0.0, "rows": [{"source": "a"}]}',
        "true as a number": b'{"beam_size": true, "rows": [{"source": "a"}]}',
        "long name of a field": b'{"' + b"x" * 500_000 + b'": 1}',
        "many fields": json.dumps({f"field{i}": i for i in range(20_000)}).encode(),
        "same field twice": b'{"rows": [], "rows": [{"source": "a"}]}',
        "two texts": ROW % b'"a"' + ROW % b'"a"',
    }
    good = {
        "NUL": ROW % b'"a\\u0000b"',
        "control characters": ROW % b'"\\u001b[31m\\u0007"',
        "directions": ROW % '"\u202ea\u2066\U000e0001"'.encode(),
        "line separators": ROW % '"a\u2028\\n\\tb"'.encode(),
        "integral float": b'{"beam_size": 5.0, "rows": [{"source": "a"}]}',
        "combining characters": ROW % ('"' + "a\u0301" * 20 + '"').encode(),
        "spaces": b" " * 100_000 + ROW % b'"a"',
    }
    return [
        *(HostileRequest(name, post(body), [[400]]) for name, body in wrong.items()),
        *(HostileRequest(name, post(body), [[200]]) for name, body in good.items()),
        HostileRequest("many rows", post(b'{"rows": [' + b'{"source": "a"}, ' * 50_000 + row + b"]}"), [[413]]),
        HostileRequest("unknown model", post(b'{"model": "' + b"m" * 90_000 + b'", "rows": [' + row + b"]}"), [[404]]),
    ]


def header_requests() -> list[HostileRequest]:
    """Return requests whose headers are wrong, or unusual."""
    good = ROW % b'"a"'
    bomb = gzip.compress(b" " * 10_000_000)
    plain = post(good).replace(b"application/json", b"text/plain")
    local = b"Host: localhost\r\n"
    return [
        HostileRequest("compressed body", post(bomb, b"Content-Encoding: gzip\r\n"), [[415]]),
        HostileRequest(
            "compressed transfer", POST + CLOSE + b"Transfer-Encoding: gzip, chunked\r\n\r\n", [[501], [400]]
        ),
        HostileRequest("plain text", plain, [[415]]),
        HostileRequest("two lengths", post(good, b"Content-Length: 1\r\n"), [[400]]),
        HostileRequest("negative length", post(good, length=-1), [[400]]),
        HostileRequest("no number as length", POST + b"Content-Length: 1_0\r\n\r\n0123456789", [[400]]),
        HostileRequest("length and chunks", post(b"1e\r\n" + b" " * 30 + b"\r\n0\r\n\r\n", CHUNKED[:-2]), [[400]]),
        HostileRequest(
            "request after length and chunks",
            POST + b"Content-Length: 5\r\n" + CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(good), good) + GET + b"\r\n",
            [[400]],
        ),
        HostileRequest("length too small", post(good, length=5), [[400]]),
        HostileRequest("chunk of no number", POST + CHUNKED + b"xyz\r\n" + good, [[400]]),
        HostileRequest("chunk of a negative number", POST + CHUNKED + b"-5\r\n" + good, [[400]]),
        HostileRequest("chunk with another end", POST + CHUNKED + b"2\r\n{}XX0\r\n\r\n", [[400]]),
        HostileRequest("very large chunk size", POST + CHUNKED + b"f" * 30 + b"\r\n", [[400]]),
        HostileRequest(
            "wrong chunk after the response",
            POST.replace(b"/v1/predict", b"/none") + CHUNKED + b"1\r\na\r\nxyz\r\n",
            [[404], [400]],
        ),
        HostileRequest("no Host", get(b"/health", b""), [[400]]),
        HostileRequest("two Hosts", get(b"/health", local + b"Host: localhost\r\n"), [[400]]),
        HostileRequest("other Host", get(b"/health", b"Host: evil.example\r\n"), [[403]]),
        HostileRequest("Host of wrong form", get(b"/health", b"Host: [::1\r\n"), [[403]]),
        HostileRequest("Host with a user", get(b"/health", b"Host: localhost@evil.example\r\n"), [[403]]),
        HostileRequest("other Origin", get(b"/health", local + b"Origin: http://evil.example\r\n"), [[403]]),
        HostileRequest("Origin null", get(b"/health", local + b"Origin: null\r\n"), [[403]]),
        HostileRequest("long header", get(b"/health", local + b"X: " + b"x" * 100_000 + b"\r\n"), [[200], [400]]),
        HostileRequest("many headers", get(b"/health", local + b"X: x\r\n" * 5_000), [[200], [400]]),
        HostileRequest("folded header", get(b"/health", local + b"X: a\r\n b\r\n"), [[200], [400]]),
        HostileRequest("space before a colon", get(b"/health", local + b"X : a\r\n"), [[400]]),
        HostileRequest("NUL in a header", get(b"/health", local + b"X: a\0b\r\n"), [[400]]),
        HostileRequest("request id", get(b"/health", local + b"X-Request-ID: a\x1b[31m\r\n"), [[200], [400]]),
        HostileRequest("token of wrong form", get(b"/health", local + b"Authorization: \xff\r\n"), [[200]]),
        HostileRequest("upgrade", get(b"/health", local + b"Upgrade: websocket\r\n"), [[200]]),
    ]


def line_requests() -> list[HostileRequest]:
    """Return requests whose method, path or version is wrong, or unusual."""
    paths = [
        b"/v1/predict/",
        b"//v1/models",
        b"/v1/./models",
        b"/v1/../v1/models",
        b"/%2e%2e/etc/passwd",
        b"/v1/models%00",
    ]
    paths += [b"/v1/models;x", b"/v1//models", b"/%ff", b"/" + b"a" * 10_000, b"/v1\\models", b"http://evil/v1/models"]
    methods = [b"PUT", b"DELETE", b"PATCH", b"TRACE", b"OPTIONS", b"X" * 300]
    mixed = GET + b"\r\nnonsense\r\n\r\n"
    return [
        *(HostileRequest(f"path {path[:30].decode('latin-1')}", get(path), [[404]]) for path in paths),
        HostileRequest("path with a space", get(b"/v1 /models"), [[400]]),
        HostileRequest("long path", get(b"/" + b"a" * 100_000), [[404], [400]]),
        HostileRequest("escaped path", get(b"/v1/model%73"), [[200]]),
        HostileRequest("query", get(b"/v1/models?" + b"x=1&" * 1000), [[200]]),
        *(
            HostileRequest(f"method {name[:9].decode()}", get(b"/v1/models").replace(b"GET", name, 1), [[405]])
            for name in methods
        ),
        HostileRequest("CONNECT", get(b"evil.example:80").replace(b"GET", b"CONNECT"), [[404], [405], [400]]),
        HostileRequest("HTTP/0.9", b"GET /health\r\n\r\n", [[400]]),
        HostileRequest("HTTP/1.0", get(b"/health", version=b"HTTP/1.0"), [[200]]),
        HostileRequest("HTTP/1.0 without Host", get(b"/health", b"", b"HTTP/1.0"), [[403]]),
        HostileRequest("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [[403, 400], [400]]),
        HostileRequest("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)), [[400]]),
        HostileRequest("pipelined", (GET + b"\r\n") * 30 + get(b"/health"), [[200] * 31]),
        HostileRequest("request and nonsense", mixed, [[200, 400], [200]]),
    ]


def all_requests() -> list[HostileRequest]:
    """Return all requests that are sent at once."""
    return [*body_requests(), *header_requests(), *line_requests()]


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Return a request in which some bytes are changed, removed or repeated."""
    changed = bytearray(content[:5_000])
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[place] = chance.randrange(256)
            case 1:
                del changed[place : place + chance.randint(1, 20)]
            case 2:
                changed[place:place] = changed[place : place + chance.randint(1, 50)]
            case _:
                changed[place:place] = chance.choice([b"\r\n", b"\r", b"\n", b"\0", b" ", b"%00", b'"', b"{", b"\xff"])
        if not changed:
            break
    return bytes(changed)


async def exchange(port: int, content: bytes, seconds: float = 30.0) -> list[int]:
    """Send bytes, read until the service closes the connection or the time is over, and return the statuses."""
    statuses, _ = await exchange_until_end(port, content, seconds)
    return statuses


async def exchange_until_end(port: int, content: bytes, seconds: float) -> tuple[list[int], bool]:
    """Return the statuses as `exchange`, and whether the service has closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received, is_closed = bytearray(), True
    writer.write(content)
    try:
        async with asyncio.timeout(seconds):
            with suppress(ConnectionError):
                while piece := await reader.read(65536):
                    received += piece
    except TimeoutError:
        is_closed = False
    writer.transport.abort()
    return [int(status) for status in STATUS.findall(received)], is_closed
