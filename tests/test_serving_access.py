"""Accepted and refused requests, by their host, origin and token."""

import json
import logging

import pytest
from starlette.datastructures import Headers

from pellucid.serving.access import AccessRules
from pellucid.serving.log_format import JsonFormatter, PlainFormatter

TOKEN = "0123456789abcdef"
RULES = AccessRules(frozenset({"127.0.0.1", "localhost", "::1"}), frozenset({"https://page.example"}), TOKEN)
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        ("/v1/predict", {"host": "127.0.0.1:8000", **AUTHORIZED}, ""),
        ("/v1/predict", {"host": "[::1]:8000", "authorization": f"bearer {TOKEN}"}, ""),
        ("/v1/predict", {"host": "localhost", "origin": "http://localhost", **AUTHORIZED}, ""),
        ("/v1/predict", {"host": "localhost", "origin": "https://page.example", **AUTHORIZED}, ""),
        ("/health", {"host": "localhost"}, ""),
        ("/health", {"host": "evil.example"}, "host_refused"),
        ("/v1/predict", {"host": "127.0.0.1.evil.example", **AUTHORIZED}, "host_refused"),
        ("/v1/predict", {"host": "[", **AUTHORIZED}, "host_refused"),
        ("/v1/predict", {**AUTHORIZED}, "host_refused"),
        ("/v1/predict", {"host": "localhost", "origin": "null", **AUTHORIZED}, "origin_refused"),
        ("/v1/predict", {"host": "localhost", "origin": "http://localhost:1", **AUTHORIZED}, "origin_refused"),
        ("/v1/predict", {"host": "localhost"}, "token_required"),
        ("/metrics", {"host": "localhost"}, "token_required"),
        ("/v1/predict", {"host": "localhost", "authorization": TOKEN}, "token_required"),
        ("/v1/predict", {"host": "localhost", "authorization": f"Bearer {TOKEN[:-1]}"}, "token_required"),
        ("/v1/predict", {"host": "localhost", "authorization": "Bearer "}, "token_required"),
        (
            "/v1/predict",
            {"host": "localhost", "content-length": "1", "transfer-encoding": "chunked", **AUTHORIZED},
            "invalid_request",
        ),
    ],
)
def test_requests_are_accepted_or_refused(path: str, headers: dict[str, str], code: str) -> None:
    refusal = RULES.find_refusal(path, Headers(headers))
    assert (refusal.code if refusal else "") == code
    assert refusal is None or TOKEN not in refusal.message


def test_log_records_are_one_line_without_control_characters() -> None:
    record = logging.LogRecord("pellucid.serving", logging.INFO, "", 0, "path %s", ("/a\n\x1b[31m",), None)
    (line,) = JsonFormatter().format(record).splitlines()
    assert json.loads(line)["message"] == "path /a\n\x1b[31m" and "\x1b" not in line
    plain = PlainFormatter().format(record)
    assert plain.startswith("pellucid: path /a") and "\x1b" not in plain
