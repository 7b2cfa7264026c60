"""The lessons' pages and notebooks: they hold the code of their sources, and that code runs."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from docs.lessons.build import FOLDER, ROOT, execute, fenced, notebook_of, page_of, sources, text_of

SMALL = {
    "SAMPLES": 200,
    "LONG": 300,
    "LOOKING": 200,
    "BATCH": 10,
    "EVERY": 100,
    "VALIDATION": 20,
    "PROBED": 50,
    "DEVELOPMENT": 10,
    "TEST": 10,
    "LENGTHS": (1, 3, 5),
    "EACH": 2,
}
"""Each budget of any lesson, small."""
LESSONS = [pytest.param(source, id=source.stem) for source in sources()]


def codes(notebook: NotebookNode) -> list[str]:
    """Its cells of code."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def with_small_budgets(notebook: NotebookNode) -> NotebookNode:
    """The notebook with other numbers in its first cell of code, which must hold nothing but budgets."""
    budgets = next(cell for cell in notebook.cells if cell.cell_type == "code")
    names = []
    for statement in ast.parse(budgets.source).body:
        assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        names.append(statement.targets[0].id)
    budgets.source = "\n".join(f"{name} = {SMALL[name]!r}" for name in names)
    return notebook


@pytest.mark.filterwarnings("default")  # Jupyter's packages warn of what is theirs to mend
def test_every_notebook_runs(tmp_path: Path) -> None:
    notebooks = [with_small_budgets(notebook_of(source)) for source in sources()]
    together = nbformat.v4.new_notebook(metadata=notebooks[0].metadata)
    for number, notebook in enumerate(notebooks, 1):  # in one kernel, so that PyTorch is loaded once
        for cell in [*notebook.cells, nbformat.v4.new_code_cell("%reset -f")]:
            cell.id = f"lesson-{number}-{cell.id}"
            together.cells.append(cell)
    execute(together, tmp_path)
    page = page_of("x", together)
    for path in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.text):
        assert page.pictures[path].startswith(b"\x89PNG")
    assert len(page.pictures) >= len(notebooks)
    said = [output for cell in together.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    assert not said


@pytest.mark.parametrize("source", LESSONS)
def test_page_and_notebook_hold_the_code_of_the_source(source: Path) -> None:
    notebook = notebook_of(source)
    assert source.with_suffix(".ipynb").read_text("utf-8") == text_of(notebook)
    page = source.with_suffix(".md").read_text("utf-8")
    assert re.findall(r"^```python\n.*?\n```$", page, re.MULTILINE | re.DOTALL) == [
        fenced(code, "python") for code in codes(notebook)
    ]
    for cell in notebook.cells:
        assert cell.source in page


@pytest.mark.parametrize("source", LESSONS)
def test_a_page_asks_first_ends_with_something_to_try_and_links_to_what_is_there(source: Path) -> None:
    page = source.with_suffix(".md").read_text("utf-8")
    assert re.search(r"^\*\*[^*]+\?\*\*$", page.split("```")[0], re.MULTILINE)
    assert re.findall(r"^## (.*)", page, re.MULTILINE)[-1] == "Try it"
    assert re.findall(r"^pellucid recipe ", page.split("## Try it")[1], re.MULTILINE)
    targets = re.findall(r"\]\(([^)#]+)\)", page)
    assert all((FOLDER / target).is_file() for target in targets), targets
    assert all((FOLDER / target).stat().st_size < 80_000 for target in targets if target.endswith(".png"))


def test_no_picture_is_left_over_and_every_lesson_is_listed() -> None:
    shown = {path for source in sources() for path in re.findall(r"\((pictures/[^)]+)\)", _page(source))}
    assert shown == {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("pictures/*")}
    contents = (FOLDER / "README.md").read_text("utf-8")
    assert all(f"({source.stem}.md)" in contents for source in sources())
    assert "(docs/lessons/README.md)" in (ROOT / "README.md").read_text("utf-8")


def _page(source: Path) -> str:
    """Its page."""
    return source.with_suffix(".md").read_text("utf-8")
