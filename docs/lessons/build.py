"""Build the lessons: run each source, then write its page, its pictures and its notebook.

    python docs/lessons/build.py        all of them, with their full budgets (make lessons)
    python docs/lessons/build.py 2 5    some of them

A source is a Python file in cells (`# %%`), with its text in comments. Its first cell of code holds its budgets. The
page shows what the code gave; the notebook holds the code to run, and no outputs.
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
"""Colours of a picture: enough for lines and shades, and a file half as large."""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Page(NamedTuple):
    """A lesson as Markdown, and its pictures by their paths beside it."""

    text: str
    pictures: Mapping[str, bytes]


def sources() -> list[Path]:
    """The lessons in their order."""
    return sorted(FOLDER.glob("[1-9]-*.py"))


def notebook_of(source: Path) -> NotebookNode:
    """A source as a notebook that has not been run; the same text each time."""
    notebook = jupytext.read(source, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number}", {}
    notebook.metadata = {"kernelspec": KERNEL}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def text_of(notebook: NotebookNode) -> str:
    """A notebook as its file holds it."""
    text: str = nbformat.writes(notebook)
    return text + "\n"


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in a kernel of their own and keep their outputs; `CellExecutionError` where one fails."""
    client = NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    # What the kernel itself says, of debuggers and frozen modules, is no one's concern; errors of cells come back.
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)


def page_of(name: str, notebook: NotebookNode) -> Page:
    """A notebook that was run, as a page."""
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts += [fenced(cell.source, "python"), *_outputs(name, cell, pictures)]
    return Page("\n\n".join(parts) + "\n", pictures)


def fenced(text: str, language: str) -> str:
    """Code or output as a block."""
    return f"```{language}\n{text.rstrip()}\n```"


def _outputs(name: str, cell: NotebookNode, pictures: dict[str, bytes]) -> Iterator[str]:
    """What a cell gave: pictures, tables, text. What it printed to standard error is left out."""
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            if output.name == "stdout":
                yield fenced(output.text, "text")
        elif "image/png" in data:
            path = f"pictures/{name}-{len(pictures) + 1}.png"
            pictures[path] = base64.b64decode(data["image/png"])
            yield f"![{output.metadata['image/png']['alt']}]({path})"
        elif "text/markdown" in data:
            yield data["text/markdown"].strip()
        else:
            yield fenced(data["text/plain"], "text")


def build(source: Path) -> None:
    """Run a lesson and write all that comes of it."""
    notebook = notebook_of(source)
    source.with_suffix(".ipynb").write_text(text_of(notebook), "utf-8")
    execute(notebook, ROOT)
    page = page_of(source.stem, notebook)
    (FOLDER / "pictures").mkdir(exist_ok=True)
    for old in (FOLDER / "pictures").glob(f"{source.stem}-*.png"):
        old.unlink()
    for path, picture in page.pictures.items():
        Image.open(BytesIO(picture)).convert("RGB").quantize(COLORS).save(FOLDER / path, optimize=True)
    source.with_suffix(".md").write_text(page.text, "utf-8")


def main(numbers: Sequence[str]) -> None:
    """Build the lessons with these numbers; all, if none are given."""
    for source in sources():
        if not numbers or source.name[0] in numbers:
            started = time.monotonic()
            build(source)
            sys.stdout.write(f"{source.stem}: {time.monotonic() - started:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
