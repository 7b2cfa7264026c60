"""TypeScript's types of the page's contents."""

from pathlib import Path

import msgspec
import pytest

from pellucid.search.trace_schema import TraceRecord
from pellucid.viewer import contents
from pellucid.viewer.typescript import MODULES, NAMES, expression, source

TYPES = Path(__file__).parents[1] / "web" / "src" / "data" / "contents.ts"


def test_the_types_in_web_are_those_of_the_structs() -> None:
    assert TYPES.read_text("utf-8") == source(), "make page writes them anew"


def test_every_struct_has_an_interface() -> None:
    text = source()
    structs = {kind for module in MODULES for kind in vars(module).values() if isinstance(kind, type)}
    for kind in structs:
        if issubclass(kind, msgspec.Struct) and kind not in (msgspec.Struct, contents.Struct, TraceRecord):
            interface = text.split(f"export interface {NAMES.get(kind.__name__, kind.__name__)} {{\n")[1].split("}\n")[
                0
            ]
            for field in msgspec.structs.fields(kind):
                assert f"\n  {field.name}: " in f"\n{interface}"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (int, "number"),
        (str | None, "string | null"),
        (list[list[str]], "string[][]"),
        (list[int | None], "(number | null)[]"),
        (tuple[int, str], "[number, string]"),
        (list[tuple[str, float]], "[string, number][]"),
        (dict[str, float], "Record<string, number>"),
    ],
)
def test_types_in_typescript(kind: object, expected: str) -> None:
    assert expression(msgspec.json.schema(kind)) == expected
