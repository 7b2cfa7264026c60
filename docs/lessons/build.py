"""Build the lessons: run each source, then write its page, its pictures and its notebook.

    python docs/lessons/build.py        all lessons with their full budgets (make lessons)
    python docs/lessons/build.py 2 5    selected lessons

A source is a Python file in cells (`# %%`), with text in comments. Its first code cell has the budgets. The page has
the outputs of the code; the notebook has the code without outputs.
"""

import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
COLORS = 128
"""Number of colors of a picture; a palette halves the size of the file."""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Page(NamedTuple):
    """A lesson as Markdown, and its pictures by their paths relative to the page."""

    text: str
    pictures: Mapping[str, bytes]


def lesson_sources() -> list[Path]:
    """Return the sources of all lessons in order."""
    return sorted(FOLDER.glob("[1-9]-*.py"))


def read_notebook(source: Path) -> NotebookNode:
    """Return a source as a notebook without outputs; cell ids are reproducible.

    Args:
        source: Python file in cells.
    """
    notebook = jupytext.read(source, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number}", {}
    notebook.metadata = {"kernelspec": KERNEL}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def notebook_text(notebook: NotebookNode) -> str:
    """Return the content of a notebook file.

    Args:
        notebook: The notebook.
    """
    text: str = nbformat.writes(notebook)
    return text + "\n"


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in a new kernel and store their outputs.

    Args:
        notebook: The notebook; its cells receive outputs.
        folder: Working directory.

    Raises:
        CellExecutionError: A cell fails.
    """
    client = NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    # Standard error of the kernel has warnings of debuggers and frozen modules only; errors of cells are raised.
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)


def render_page(name: str, notebook: NotebookNode) -> Page:
    """Return a notebook with outputs as a page.

    Args:
        name: Name of the lesson, which begins the names of its pictures.
        notebook: Notebook with outputs.
    """
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts += [fenced_block(cell.source, "python"), *_outputs(name, cell, pictures)]
    return Page("\n\n".join(parts) + "\n", pictures)


def fenced_block(text: str, language: str) -> str:
    """Return code or output as a fenced block.

    Args:
        text: The code or output.
        language: Language of the block.
    """
    return f"```{language}\n{text.rstrip()}\n```"


def _outputs(name: str, cell: NotebookNode, pictures: dict[str, bytes]) -> Iterator[str]:
    """Yield the outputs of a cell: pictures, tables and text, without standard error."""
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            if output.name == "stdout":
                yield fenced_block(output.text, "text")
        elif "image/png" in data:
            path = f"pictures/{name}-{len(pictures) + 1}.png"
            pictures[path] = base64.b64decode(data["image/png"])
            yield f"![{output.metadata['image/png']['alt']}]({path})"
        elif "text/markdown" in data:
            yield data["text/markdown"].strip()
        else:
            yield fenced_block(data["text/plain"], "text")


def build(source: Path) -> None:
    """Run a lesson and write page, pictures and notebook.

    Args:
        source: Source of the lesson.
    """
    notebook = read_notebook(source)
    source.with_suffix(".ipynb").write_text(notebook_text(notebook), "utf-8")
    execute(notebook, ROOT)
    page = render_page(source.stem, notebook)
    (FOLDER / "pictures").mkdir(exist_ok=True)
    for old in (FOLDER / "pictures").glob(f"{source.stem}-*.png"):
        old.unlink()
    for path, picture in page.pictures.items():
        Image.open(BytesIO(picture)).convert("RGB").quantize(COLORS).save(FOLDER / path, optimize=True)
    source.with_suffix(".md").write_text(page.text, "utf-8")


def main(numbers: Sequence[str]) -> None:
    """Build the selected lessons.

    Args:
        numbers: Numbers of the lessons; empty builds all.
    """
    for source in lesson_sources():
        if not numbers or source.name[0] in numbers:
            started = time.monotonic()
            build(source)
            sys.stdout.write(f"{source.stem}: {time.monotonic() - started:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
