"""The marked examples of the guides and of the extension pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON_BLOCKS = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)


def python_blocks(page: Path) -> list[str]:
    """Return the marked Python code of a page, block by block."""
    return PYTHON_BLOCKS.findall(page.read_text("utf-8"))
