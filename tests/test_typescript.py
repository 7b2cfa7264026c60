"""TypeScript's types of the page's contents."""

from pathlib import Path

import msgspec
import pytest

from pellucid.viewer import asking, contents
from pellucid.viewer.typescript import expression, source

TYPES = Path(__file__).parents[1] / "web" / "src" / "data" / "contents.ts"


def test_the_types_in_web_are_those_of_the_structs() -> None:
    assert TYPES.read_text("utf-8") == source(), "make page writes them anew"


def test_every_struct_has_an_interface() -> None:
    text = source()
    for name, kind in {**vars(contents), **vars(asking)}.items():
        if isinstance(kind, type) and issubclass(kind, contents.Struct) and kind is not contents.Struct:
            assert f"export interface {name} {{\n" in text
            for field in msgspec.structs.fields(kind):
                assert f"\n  {field.name}: " in text


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
