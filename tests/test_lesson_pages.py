"""Pages and notebooks of the lessons have the code of their sources, and this code runs."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from docs.lessons.build import (
    FOLDER,
    ROOT,
    execute,
    fenced_block,
    lesson_sources,
    notebook_text,
    read_notebook,
    render_page,
)

SMALL_BUDGETS = {
    "SAMPLES": 200,
    "LONG_SAMPLES": 300,
    "ATTENTION_SAMPLES": 200,
    "BATCH_SIZE": 10,
    "EVAL_INTERVAL": 100,
    "VALIDATION_SAMPLES": 20,
    "PROBE_SAMPLES": 50,
    "DEV_PAIRS": 10,
    "TEST_PAIRS": 10,
    "LENGTHS": (1, 3, 5),
    "PAIRS_PER_LENGTH": 2,
}
"""Small values of the budgets of all lessons."""
LESSONS = [pytest.param(source, id=source.stem) for source in lesson_sources()]


def extract_code_cells(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def set_small_budgets(notebook: NotebookNode) -> NotebookNode:
    """Replace the numbers in the first code cell, which must consist of budgets."""
    budgets = next(cell for cell in notebook.cells if cell.cell_type == "code")
    names = []
    for statement in ast.parse(budgets.source).body:
        assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        names.append(statement.targets[0].id)
    budgets.source = "\n".join(f"{name} = {SMALL_BUDGETS[name]!r}" for name in names)
    return notebook


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Jupyter's packages emit warnings
def test_every_notebook_runs(tmp_path: Path) -> None:
    notebooks = [set_small_budgets(read_notebook(source)) for source in lesson_sources()]
    merged = nbformat.v4.new_notebook(metadata=notebooks[0].metadata)
    for number, notebook in enumerate(notebooks, 1):  # in one kernel, so that PyTorch is loaded once
        for cell in [*notebook.cells, nbformat.v4.new_code_cell("%reset -f")]:
            cell.id = f"lesson-{number}-{cell.id}"
            merged.cells.append(cell)
    execute(merged, tmp_path)
    page = render_page("x", merged)
    for path in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.text):
        assert page.pictures[path].startswith(b"\x89PNG")
    assert len(page.pictures) >= len(notebooks)
    messages = [output for cell in merged.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    assert not messages


@pytest.mark.parametrize("source", LESSONS)
def test_page_and_notebook_have_the_code_of_the_source(source: Path) -> None:
    notebook = read_notebook(source)
    assert source.with_suffix(".ipynb").read_text("utf-8") == notebook_text(notebook)
    page = source.with_suffix(".md").read_text("utf-8")
    assert re.findall(r"^```python\n.*?\n```$", page, re.MULTILINE | re.DOTALL) == [
        fenced_block(code, "python") for code in extract_code_cells(notebook)
    ]
    for cell in notebook.cells:
        assert cell.source in page


@pytest.mark.parametrize("source", LESSONS)
def test_page_starts_with_a_question_ends_with_a_command_and_has_valid_links(source: Path) -> None:
    page = source.with_suffix(".md").read_text("utf-8")
    assert re.search(r"^\*\*[^*]+\?\*\*$", page.split("```")[0], re.MULTILINE)
    assert re.findall(r"^## (.*)", page, re.MULTILINE)[-1] == "Try it"
    assert re.findall(r"^pellucid recipe ", page.split("## Try it")[1], re.MULTILINE)
    targets = re.findall(r"\]\(([^)#]+)\)", page)
    assert all((FOLDER / target).is_file() for target in targets), targets
    assert all((FOLDER / target).stat().st_size < 80_000 for target in targets if target.endswith(".png"))


def test_every_picture_is_used_and_every_lesson_is_listed() -> None:
    used = {path for source in lesson_sources() for path in re.findall(r"\((pictures/[^)]+)\)", _read_page(source))}
    assert used == {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("pictures/*")}
    contents = (FOLDER / "README.md").read_text("utf-8")
    assert all(f"({source.stem}.md)" in contents for source in lesson_sources())
    assert "(docs/lessons/README.md)" in (ROOT / "README.md").read_text("utf-8")


def _read_page(source: Path) -> str:
    return source.with_suffix(".md").read_text("utf-8")
