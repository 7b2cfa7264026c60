"""The pictures of docs/viewer.md: the script that takes them has a function for each, and each is shown once."""

import re
from pathlib import Path

import pytest
from PIL import Image

from docs.viewer import build
from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import EditOperation, PageExample

ROOT = Path(__file__).parents[1]
PICTURES = {
    **build.SEQUENCE_PICTURES,
    "wrong-output": build.capture_wrong_output,
    **build.TRAINING_PICTURES,
    **build.TAGGING_PICTURES,
}
SHOWN = re.compile(
    r"!\[[^]]{20,}\]\((?:docs/)?viewer/([\w-]+)\.png\)"
    r'|<img src="docs/viewer/([\w-]+)\.png" width="\d+" alt="[^"]{20,}">'
)
"""A picture with its description, in Markdown or, with a width, in HTML."""


def test_every_picture_has_a_function_and_is_shown() -> None:
    assert {path.stem for path in build.FOLDER.glob("*.png")} == set(PICTURES)
    shown = [
        match[1] or match[2]
        for page in ("README.md", "docs/viewer.md")
        for match in SHOWN.finditer((ROOT / page).read_text("utf-8"))
    ]
    assert sorted(shown) == sorted(PICTURES)


def test_pictures_are_small() -> None:
    for path in build.FOLDER.glob("*.png"):
        with Image.open(path) as image:
            assert image.mode == "P" and image.width >= 600
        assert path.stat().st_size <= build.MAX_BYTES


def test_example_with_one_substitution_is_found() -> None:
    correct = PageExample(text="abcdef", features=[], traces=[], references=[])
    substitution = EditOperation(kind="substitution", step=0, expected="a")
    wrong = PageExample(text="abcdef", features=[], traces=[], references=[], edits=[substitution], errors=1)
    long = PageExample(text="a" * 9, features=[], traces=[], references=[], edits=[substitution], errors=1)
    assert build.find_substitution_example([correct, long, wrong]) == 2
    with pytest.raises(ValueError, match="use other runs"):
        build.find_substitution_example([correct, long])


def test_the_example_page_is_the_present_page() -> None:
    """If it is not, run docs/viewer/build.py --renew-example."""
    contents = build.read_example_contents()
    assert len(contents.examples) == 4
    is_present = export_page(contents) == build.EXAMPLE_PAGE.read_text("utf-8")
    assert is_present  # the comparison alone: pytest would compare such long lines for many minutes
    assert "docs/viewer/example.html" in (ROOT / "README.md").read_text("utf-8")
