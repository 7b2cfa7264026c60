"""http_requests.py: JSON bodies of requests."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pellucid.http_requests import read_json


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """A row of a request."""

    source: str


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A request."""

    rows: list[Row]
    count: int = 5


def read_body(body: bytes, content_type: str = "application/json") -> Body:
    """Return the parsed body of a request."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    scope = {"type": "http", "headers": [(b"content-type", content_type.encode())]}
    request = read_json(Request(scope, receive), Body, 1000)
    with ThreadPoolExecutor(1) as executor:  # the thread of the tests may have a running event loop
        return executor.submit(asyncio.run, request).result()


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"rows": [{"source": "abc"}], "rows": [{"source": "d"}]}', "rows"),
        (b'{"rows": [{"source": "abc", "source": "d"}]}', "source"),
        (b'{"count": 1, "rows": [], "count": 2}', "count"),
        (b'{"count": 1.0, "rows": [], "count": 2.0}', "count"),
    ],
)
def test_a_key_that_occurs_twice_is_refused(body: bytes, key: str) -> None:
    """Regression test: the last value was used, and the other rows had no answer."""
    with pytest.raises(HTTPException) as caught:
        read_body(body)
    assert caught.value.status_code == 400
    assert caught.value.detail == f"invalid request: the key '{key}' occurs twice in an object"


def test_other_bodies_are_read() -> None:
    expected = Body([Row("ü"), Row("b")], 2)
    body = '{"rows": [{"source": "ü"}, {"source": "b"}], "count": 2.0}'.encode()
    for content_type in ("application/json", "application/json; charset=utf-8", 'Application/JSON;Charset="UTF-8"'):
        assert read_body(body, content_type) == expected


@pytest.mark.parametrize("charset", ["utf-16", '"latin-1"', ""])
def test_another_encoding_is_refused(charset: str) -> None:
    """Regression test: the body was read as UTF-8."""
    with pytest.raises(HTTPException, match="expected JSON in UTF-8") as caught:
        read_body(b'{"rows": []}', f"application/json; charset={charset}")
    assert caught.value.status_code == 415
