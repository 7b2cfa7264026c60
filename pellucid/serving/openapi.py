"""The OpenAPI document of the service, generated from the structs of its requests and responses."""

from typing import Any

import msgspec

from pellucid.serving.access import OPEN_PATHS
from pellucid.serving.schema import (
    OPERATIONS,
    ErrorResponse,
    HealthResponse,
    ModelsResponse,
    Operation,
    RowError,
)
from pellucid.version import __version__

Json = dict[str, Any]
REFERENCE = "#/components/schemas/{name}"
ERRORS = {
    "400": "The body is not valid JSON, or does not match the schema",
    "401": "The service needs a token",
    "403": "The Host or the Origin is refused",
    "404": "There is no such model",
    "409": "The model does not support the operation: its task has none, or its network has no validation yet",
    "413": "Too many bytes or rows",
    "415": "The content type is not application/json",
    "500": "The worker process failed on the request",
    "503": "The queue is full; Retry-After says when to try again",
    "504": "The time limit was exceeded",
}
"""Errors of an operation."""


def openapi_document() -> Json:
    """Return the OpenAPI 3.1 document."""
    structs = [ErrorResponse, HealthResponse, ModelsResponse, RowError]
    for operation in OPERATIONS.values():
        structs += [operation.request, operation.result]
    unique = list(dict.fromkeys(structs))
    _, components = msgspec.json.schema_components(unique, ref_template=REFERENCE)
    paths = {f"/v1/{name}": {"post": _operation(name, operation)} for name, operation in OPERATIONS.items()}
    paths |= {
        "/v1/models": {"get": _get("models", "List the models", {"200": ModelsResponse})},
        "/health": {"get": _get("health", "Whether the service is alive", {"200": HealthResponse})},
        "/ready": {"get": _get("ready", "Whether all models answer", {"200": HealthResponse, "503": HealthResponse})},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pellucid", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _operation(name: str, operation: Operation) -> Json:
    """Return an operation."""
    result = {"anyOf": [_reference(operation.result), _reference(RowError)]}
    response = {
        "type": "object",
        "properties": {"model": {"type": "string"}, "results": {"type": "array", "items": result}},
        "required": ["model", "results"],
    }
    errors = {status: _response(text, _reference(ErrorResponse)) for status, text in ERRORS.items()}
    return {
        "operationId": name,
        "summary": operation.summary,
        "requestBody": {"required": True, "content": _content(_reference(operation.request))},
        "responses": {"200": _response("One result per row, in order", response), **errors},
    }


def _get(name: str, summary: str, responses: dict[str, type[msgspec.Struct]]) -> Json:
    """Return an operation without a body."""
    described = {status: _response(summary, _reference(kind)) for status, kind in responses.items()}
    refusals = ("403",) if f"/{name}" in OPEN_PATHS else ("401", "403")
    errors = {status: _response(ERRORS[status], _reference(ErrorResponse)) for status in refusals}
    return {"operationId": name, "summary": summary, "responses": {**described, **errors}}


def _response(description: str, schema: Json) -> Json:
    """Return a JSON response."""
    return {"description": description, "content": _content(schema)}


def _content(schema: Json) -> Json:
    """Return the content of a JSON body."""
    return {"application/json": {"schema": schema}}


def _reference(kind: type[msgspec.Struct]) -> Json:
    """Return a reference to the schema of a struct."""
    return {"$ref": REFERENCE.format(name=kind.__name__)}
