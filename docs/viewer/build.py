"""Take the pictures of docs/viewer.md in a browser.

    python docs/viewer/build.py RUN RIVAL FILE FILMED TAGGER SENTENCES

RUN and RIVAL are two runs of one language of `pellucid recipe g2p-sigmorphon2020 --seeds 2`, FILE is its test file, and
FILMED is any run that kept snapshots, with its development file where it was. TAGGER is a run of `--task tag`, such as
`pellucid recipe snips` makes, SENTENCES a file for it. Needs what `make test` needs.
"""

import re
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from pellucid.viewer.inputs import find_validation_file, open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.schema import PageExample
from pellucid.viewer.server import background_server, create_app

FOLDER = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
COLORS = 128
"""Colours of a picture: enough for text and shades, and a file half as large."""
WIDTH = 1180
BYTES = 150_000
"""The most that a picture may have."""


def assembled(runs: list[Path], file: Path | None) -> PageData:
    """What a page of these runs shows."""
    models = [open_run(run, run.name, "cpu", 5 if file and len(runs) > 1 else None) for run in runs]
    found = (file, None) if file else find_validation_file(models[0])
    assert found is not None, f"{runs[0]}: the run's development file is not there any more"
    return assemble_page(
        models, [read_example_file(found[0], models[0].loaded_predictor.config.data, found[1])], 200, True
    )


def telling(items: list[PageExample]) -> int:
    """The place of an output with one substitution whose source is of a good length for a picture."""
    return next(
        place
        for place, item in enumerate(items)
        if item.errors == 1 and len(item.text) in (6, 7, 8) and any(edit.kind == "substitution" for edit in item.edits)
    )


def keep(name: str, shot: bytes) -> None:
    """Write a picture with few colours."""
    out = BytesIO()
    Image.open(BytesIO(shot)).convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(
        out, "PNG", optimize=True
    )
    assert len(out.getvalue()) <= BYTES, f"{name}: {len(out.getvalue()):,} bytes"
    (FOLDER / f"{name}.png").write_bytes(out.getvalue())


def view(page: Page, title: str) -> Locator:
    """Open a view."""
    page.get_by_role("tab", name=title, exact=True).click()
    page.wait_for_timeout(1500)
    return page.locator("#view")


def panel(page: Page, title: str) -> Locator:
    """One picture of a view."""
    return page.get_by_role("region", name=title, exact=True)


def examples(page: Page) -> bytes:
    """A wrong output, and why."""
    return page.screenshot()


def opening(page: Page) -> bytes:
    """What was wrong and the links, and beside them the matrix, with the wrong step held."""
    page.locator(".picked .verdict .substitution button").first.click()
    parts = (page.locator(".picked .verdict").first, panel(page, "Attention links"), panel(page, "Attention matrix"))
    verdict, links, matrix = (Image.open(BytesIO(part.screenshot())) for part in parts)
    page.keyboard.press("Escape")
    above = verdict.height + 12
    drawn = Image.new("RGB", (links.width + matrix.width + 40, max(above + links.height, matrix.height)), "white")
    for part, place in ((verdict, (0, 0)), (links, (0, above)), (matrix, (links.width + 40, 0))):
        drawn.paste(part, place)
    out = BytesIO()
    drawn.save(out, "PNG")
    return out.getvalue()


def beam(page: Page) -> bytes:
    """The tree."""
    view(page, "Beam")
    return panel(page, "Beam search tree").screenshot()


def what_if(page: Page) -> bytes:
    """A position is hidden."""
    view(page, "What if")
    page.get_by_role("group", name=re.compile("^Source symbols")).get_by_role("button").nth(1).click()
    page.get_by_role("button", name="Mask in attention").click()
    expect(page.locator(".sentence")).to_contain_text("Masking", timeout=60_000)
    return page.screenshot()


def corpus(page: Page) -> bytes:
    """What holds for all examples."""
    view(page, "Corpus")
    panel(page, "Confusions").scroll_into_view_if_needed()
    return panel(page, "Confusions").screenshot()


def compare(page: Page) -> bytes:
    """Two runs."""
    view(page, "Compare")
    return page.screenshot()


def space(page: Page) -> bytes:
    """The way of an example."""
    view(page, "States")
    return panel(page, "PCA of the states").screenshot()


def film(page: Page) -> bytes:
    """A validation in the middle of the training."""
    view(page, "Training")
    for _ in range(3):
        page.get_by_role("slider", name="Validation whose snapshot is shown").press("ArrowLeft")
    return panel(page, "Training snapshots").screenshot()


def tags(page: Page) -> bytes:
    """A sentence with wrong tags, the first of them held."""
    page.get_by_role("button", name="Next wrong tag").click()
    page.mouse.move(0, 0)
    return page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": 700})


Pictures = dict[str, Callable[[Page], bytes]]
TRANSDUCED: Pictures = {
    each.__name__.replace("_", "-"): each for each in (examples, opening, beam, what_if, corpus, compare, space)
}
FILMED: Pictures = {"film": film}
TAGGED: Pictures = {"tags": tags}


def shoot(browser: Browser, address: str, pictures: Pictures) -> None:
    """Take some pictures of one page."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 900})
    page.goto(address)
    page.wait_for_selector("#view")
    for name, take in pictures.items():
        keep(name, take(page))


def main(run: Path, rival: Path, file: Path, filmed: Path, tagger: Path, sentences: Path) -> None:
    """All of them, and no picture of the folder is left as it was."""
    assert {path.stem for path in FOLDER.glob("*.png")} <= {*TRANSDUCED, *FILMED, *TAGGED}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        shown = assembled([run, rival], file)
        with background_server(create_app(shown)) as address:
            shoot(browser, f"{address}#example={telling(shown.contents.examples)}", TRANSDUCED)
        with background_server(create_app(assembled([filmed], None))) as address:
            shoot(browser, address, FILMED)
        with background_server(create_app(assembled([tagger], sentences))) as address:
            shoot(browser, address, TAGGED)
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:7]))
