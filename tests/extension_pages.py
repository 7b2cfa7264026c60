"""The classes of the pages on extensions, and a package that declares all of them, as an installation writes it."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

from guide_examples import ROOT, python_blocks

PAGES = {
    name: ROOT / "docs" / "extend" / f"{name}.md" for name in ("attention", "cell", "metric", "optimizer", "callback")
}
ENTRY_POINT = re.compile(r"<!-- entry point -->\n```toml\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)```", re.DOTALL)
TASK_MODULE = """
from dataclasses import replace

from pellucid.config.task_settings import TRANSDUCE
from pellucid.tasks.transduce import TransductionTask


class SpellingTask(TransductionTask):
    settings = replace(TRANSDUCE, name="spell")


TASK = SpellingTask()
"""
"""Module of a task of another package, which equals the built-in one except for its name."""


@cache
def load_page_module(name: str) -> Any:  # noqa: ANN401 (a module)
    """Return the module of a page, such as my_cell of cell.md."""
    spec = importlib.util.spec_from_loader(f"my_{name}", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(python_blocks(PAGES[name])[0], vars(module))
    return module


def install_extensions(folder: Path) -> Path:
    """Write a package with the classes of all pages and a task, and return the folder to search for modules."""
    metadata = folder / "my_extensions-1.dist-info"
    metadata.mkdir(parents=True)
    groups = ["[pellucid.tasks]\nspell = my_task:TASK\n"]
    (folder / "my_task.py").write_text(TASK_MODULE, "utf-8")
    for name, page in PAGES.items():
        ((group, entries),) = ENTRY_POINT.findall(page.read_text("utf-8"))
        groups.append(f"[{group}]\n" + entries.replace('"', ""))
        (folder / f"my_{name}.py").write_text(python_blocks(page)[0], "utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-extensions\nVersion: 1\n", "utf-8")
    (metadata / "entry_points.txt").write_text("\n".join(groups), "utf-8")
    return folder
