"""TypeScript's types of what the page is given, from the JSON schema of the structs.

`make page` writes them to web/src/data/contents.ts.

Every field is there, also one that has a default: the service writes them all.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pellucid.decoding import trace_schema
from pellucid.tasks import task_view
from pellucid.viewer import report_schema, schema

EXPORTED_STRUCTS = (
    schema.PageContents,
    schema.WhatIfRequest,
    schema.WhatIfResponse,
    schema.NeighborsRequest,
    schema.NeighborsResponse,
    schema.ExportResponse,
    schema.EmptyRequest,
    schema.ReloadResponse,
    report_schema.ReportDocument,
)
"""The structs that cross the seam; what they hold is found from them."""

MODULES = (trace_schema, task_view, schema, report_schema)
"""Where they are defined, in the order in which they are written."""
TYPESCRIPT_NAMES = {"PageTrace": "Trace", "LatticeRecord": "Lattice"}
"""What the page calls a struct: it has no other form of a trace, so that no name has to say which one it is."""

HEADER = f"""// Made by `make page` from decoding/trace_schema.py, tasks/task_view.py and from viewer/schema.py
// and viewer/report_schema.py of pellucid/; do not edit.

export const FORMAT = {schema.PAGE_FORMAT};
export const REPORT_FORMAT = {report_schema.REPORT_FORMAT};
"""


def typescript_source() -> str:
    """Return the whole of contents.ts: an interface of each struct, in the order of `MODULES`."""
    _, components = msgspec.json.schema_components(EXPORTED_STRUCTS, ref_template="{name}")
    order = [name for name in dict.fromkeys(name for module in MODULES for name in vars(module)) if name in components]
    return "\n".join([HEADER, *(interface_declaration(name, components[name]) for name in order)])


def interface_declaration(name: str, schema: dict[str, Any]) -> str:
    """An interface of a struct's fields, under what the struct says of itself."""
    fields = [f"  {field}: {type_expression(kind)};" for field, kind in schema["properties"].items()]
    description = schema.get("description", "").split("\n\n")[0]
    return "\n".join(
        [f"/** {description} */", f"export interface {TYPESCRIPT_NAMES.get(name, name)} {{", *fields, "}", ""]
    )


def type_expression(schema: dict[str, Any]) -> str:
    """A type of JSON schema as TypeScript writes it; KeyError on one that the structs do not have."""
    if "$ref" in schema:
        return TYPESCRIPT_NAMES.get(schema["$ref"], str(schema["$ref"]))
    if "anyOf" in schema:
        return union_type([type_expression(kind) for kind in schema["anyOf"]])
    if "enum" in schema:
        return union_type([json.dumps(value) for value in schema["enum"]])
    kind = schema.get("type")
    if kind == "array":
        return array_type(schema)
    if kind == "object":
        inside = schema.get("additionalProperties", {})
        return f"Record<string, {type_expression(inside) if inside else 'unknown'}>"
    return PRIMITIVE_TYPES[kind]


def array_type(schema: dict[str, Any]) -> str:
    """A tuple where each place has its own type, else an array."""
    if "prefixItems" in schema:
        return f"[{', '.join(type_expression(kind) for kind in schema['prefixItems'])}]"
    inside = type_expression(schema["items"])
    return f"({inside})[]" if "|" in inside else f"{inside}[]"


def union_type(kinds: Sequence[str]) -> str:
    """One of several, null last."""
    return " | ".join(sorted(kinds, key=lambda kind: kind == "null"))


PRIMITIVE_TYPES = {
    None: "unknown",
    "integer": "number",
    "number": "number",
    "string": "string",
    "boolean": "boolean",
    "null": "null",
}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(typescript_source(), encoding="utf-8")
