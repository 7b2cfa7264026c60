"""The TypeScript types of the page match its data."""

import re
from pathlib import Path

import msgspec
import pytest

from pellucid.decoding.trace_schema import TraceRecord
from pellucid.tasks.registry import BUILT_IN_TASKS
from pellucid.tasks.task_view import TaskView
from pellucid.viewer import schema as contents
from pellucid.viewer.typescript import MODULES, TYPESCRIPT_NAMES, type_expression, typescript_source

WEB = Path(__file__).parents[1] / "web"
TYPES = WEB / "src" / "data" / "contents.ts"


def test_typescript_types_match_the_structs() -> None:
    assert TYPES.read_text("utf-8") == typescript_source(), "make page writes them anew"


def test_every_struct_has_an_interface() -> None:
    text = typescript_source()
    structs = {kind for module in MODULES for kind in vars(module).values() if isinstance(kind, type)}
    for kind in structs:
        is_public = issubclass(kind, msgspec.Struct) and not kind.__name__.startswith("_")
        if is_public and kind not in (msgspec.Struct, contents.PageStruct, TraceRecord):
            interface = text.split(f"export interface {TYPESCRIPT_NAMES.get(kind.__name__, kind.__name__)} {{\n")[
                1
            ].split("}\n")[0]
            for field in msgspec.structs.fields(kind):
                assert f"\n  {field.name}: " in f"\n{interface}"


def test_web_tests_have_the_task_views() -> None:
    views = msgspec.json.decode((WEB / "tests" / "views.json").read_bytes(), type=dict[str, TaskView])
    assert views == {name: task.view for name, task in BUILT_IN_TASKS.items()}


def test_page_source_names_no_task() -> None:
    """The page depends on the fields of a view. Its source may contain "tag" and "point", but no task name."""
    task_name = re.compile(r"\b(transduce|classify)\b|\btask\s*[!=]==?|[\"'](point)[\"']")
    files = [path for path in (WEB / "src").rglob("*") if path.suffix in (".ts", ".svelte")]
    result = [
        f"{path}:{number}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if task_name.search(line)
    ]
    assert len(files) > 50 and result == []


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
def test_json_schema_types_in_typescript(kind: object, expected: str) -> None:
    assert type_expression(msgspec.json.schema(kind)) == expected
