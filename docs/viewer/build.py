"""Take the pictures of docs/viewer.md in Chromium.

    python docs/viewer/build.py --run RUN --other-run OTHER --test FILE
        --digits-run DIGITS --tagging-run TAGGING --tagging-test FILE

RUN and OTHER are the two runs of `pellucid recipe g2p-sigmorphon2020 --only arm --seeds 2`, and --test is the test file
of that language. DIGITS is a run of
`pellucid recipe digits-attention`; its validation file must still exist. TAGGING is a run of `pellucid recipe snips`,
and --tagging-test is its test file. Each recipe writes runs and data below its --run folder. The script needs the
environment of `make test`, and starts the Chromium that the tests start.

    python docs/viewer/build.py --renew-example

puts the contents of example.html, a page that `pellucid look --export` wrote, into the present page, and takes the
picture wrong-output.png of it.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path

import msgspec
from PIL import Image, ImageChops
from playwright.sync_api import Browser, Locator, Page, Playwright, expect, sync_playwright

from pellucid.viewer.inputs import PairFile, find_validation_file, open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import PageContents, PageExample
from pellucid.viewer.server import background_server, create_app

FOLDER = Path(__file__).parent
TESTS = FOLDER.parents[1] / "tests"
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from chromium import CHROMIUM_PATH, FLAGS  # noqa: E402

NUM_COLORS = 128
"""Number of colors of a picture; a palette halves the size of the file."""
VIEWPORT_WIDTH = 1180
NARROW_WIDTH = 560
SCREEN_SCALE = 2
"""Pixels of a narrow picture per pixel of the page, so that it is sharp."""
PICTURED_WORD = "nathan"
"""Word of the example page whose output is wrong."""
MAX_BYTES = 150_000
"""Maximum size of a picture."""
BEAM_SIZE = 5
MAX_EXAMPLES = 200
EXAMPLE_PAGE = FOLDER / "example.html"
"""Page of four words of the README's example, to be opened without an installation."""


def load_page(runs: Sequence[Path], file: Path | None = None, beam_size: int | None = None) -> PageData:
    """Return the data of a page.

    Args:
        runs: Run folders: the shown run, then the compared runs.
        file: File of pairs; None for the validation file of the first run.
        beam_size: Beam size; None for that of each run.

    Raises:
        ValidationFileError: The validation file of the first run is missing or has changed.
    """
    models = [open_run(run, run.name, "cpu", beam_size) for run in runs]
    data = models[0].loaded_predictor.config.data
    pairs = PairFile(file, None, data) if file else find_validation_file(models[0].folder, data)
    examples = read_example_file(pairs.path, pairs.data, pairs.target)
    return assemble_page(models, [examples], MAX_EXAMPLES, served=True)


def find_substitution_example(examples: Sequence[PageExample]) -> int:
    """Return the index of an example whose only error is a substitution, with a source short enough for a picture.

    Args:
        examples: Examples of a page.

    Raises:
        ValueError: The page has no such example.
    """
    for index, example in enumerate(examples):
        errors = [edit.kind for edit in example.edits if edit.kind != "same"]
        if errors == ["substitution"] and 6 <= len(example.text) <= 8:
            return index
    raise ValueError("no example has 6 to 8 characters and one substitution; use other runs")


def save_picture(name: str, screenshot: bytes) -> None:
    """Write a picture with few colors.

    Args:
        name: Name of the file without its suffix.
        screenshot: Picture as PNG.

    Raises:
        ValueError: The file would be too large.
    """
    output = BytesIO()
    image = Image.open(BytesIO(screenshot)).convert("RGB")
    image.quantize(NUM_COLORS, Image.Quantize.MAXCOVERAGE).save(output, "PNG", optimize=True)
    if len(output.getvalue()) > MAX_BYTES:
        raise ValueError(f"{name}: {len(output.getvalue()):,} bytes are more than {MAX_BYTES:,}; crop the picture")
    (FOLDER / f"{name}.png").write_bytes(output.getvalue())


def read_example_contents() -> PageContents:
    """Return the contents of the example page."""
    text = EXAMPLE_PAGE.read_text("utf-8")
    _, _, rest = text.rpartition('<script type="application/json" id="contents">')
    return msgspec.json.decode(rest.partition("</script>")[0], type=PageContents)


def renew_example_page() -> None:
    """Write the example page with its contents and the present page."""
    EXAMPLE_PAGE.write_text(export_page(read_example_contents()), "utf-8")


def take_example_picture(browser: Browser) -> None:
    """Take the picture of the wrong output of the example page.

    Args:
        browser: The browser.
    """
    words = [example.text for example in read_example_contents().examples]
    address = f"{EXAMPLE_PAGE.as_uri()}#example={words.index(PICTURED_WORD)}"
    take_pictures(browser, address, {"wrong-output": capture_wrong_output}, NARROW_WIDTH, SCREEN_SCALE)


def open_tab(page: Page, title: str) -> None:
    """Open a tab and wait until it is drawn.

    Args:
        page: The page.
        title: Title of the tab.
    """
    page.get_by_role("tab", name=title, exact=True).click()
    page.wait_for_timeout(1500)


def find_panel(page: Page, title: str) -> Locator:
    """Return a panel of the open tab.

    Args:
        page: The page.
        title: Title of the panel.
    """
    return page.get_by_role("region", name=title, exact=True)


def capture_examples(page: Page) -> bytes:
    """Take the tab Examples with a wrong output, whose row of the list is scrolled into the picture.

    Args:
        page: The page.
    """
    page.locator(".row.selected").evaluate("row => row.closest('.list').scrollTop = row.offsetTop - row.offsetHeight")
    page.wait_for_timeout(500)
    return page.screenshot()


def capture_wrong_output(page: Page) -> bytes:
    """Take the summary and the attention links of a wrong output, with the candidates of the wrong step to the right.

    Args:
        page: The page with the example in the tab Examples.
    """
    page.locator(".picked .example-result .substitution button").first.click()
    page.wait_for_timeout(500)
    parts = (
        page.locator(".picked .example-result").first,
        find_panel(page, "Attention links").locator("svg").first,
        page.locator(".choices").first,
    )
    summary, links, candidates = (without_margins(Image.open(BytesIO(part.screenshot()))) for part in parts)
    page.keyboard.press("Escape")
    margin = 12 * SCREEN_SCALE
    top, left = summary.height + 2 * margin, max(summary.width, links.width) + 4 * margin
    size = left + candidates.width, max(top + links.height, candidates.height)
    image = Image.new("RGB", (size[0] + 2 * margin, size[1] + 2 * margin), "white")
    for part, (x, y) in (
        (summary, (0, 0)),
        (links, (0, top)),
        (candidates, (left, (size[1] - candidates.height) // 2)),
    ):
        image.paste(part, (margin + x, margin + y))
    output = BytesIO()
    image.save(output, "PNG")
    return output.getvalue()


def without_margins(image: Image.Image) -> Image.Image:
    """Return a picture without its white margins.

    Args:
        image: Picture on a white background.
    """
    image = image.convert("RGB")
    return image.crop(ImageChops.difference(image, Image.new("RGB", image.size, "white")).getbbox())


def capture_beam(page: Page) -> bytes:
    """Take the search tree of the tab Beam.

    Args:
        page: The page.
    """
    open_tab(page, "Beam")
    return find_panel(page, "Beam search tree").screenshot()


def capture_what_if(page: Page) -> bytes:
    """Take the tab What if with the second source position masked.

    Args:
        page: The page.
    """
    open_tab(page, "What if")
    page.get_by_role("group", name=re.compile("^Source symbols")).get_by_role("button").nth(1).click()
    page.get_by_role("button", name="Mask in attention").click()
    expect(page.locator(".sentence")).to_contain_text("Masking", timeout=60_000)
    return page.screenshot()


def capture_corpus(page: Page) -> bytes:
    """Take the confusions of the tab Corpus.

    Args:
        page: The page.
    """
    open_tab(page, "Corpus")
    return find_panel(page, "Confusions").screenshot()


def capture_compare(page: Page) -> bytes:
    """Take the tab Compare.

    Args:
        page: The page.
    """
    open_tab(page, "Compare")
    return page.screenshot()


def capture_states(page: Page) -> bytes:
    """Take the PCA of the tab States.

    Args:
        page: The page.
    """
    open_tab(page, "States")
    return find_panel(page, "PCA of the states").screenshot()


def capture_training(page: Page) -> bytes:
    """Take the training snapshot of the second validation, when the model does not yet have all outputs correct.

    Args:
        page: The page.
    """
    open_tab(page, "Training")
    slider = page.get_by_role("slider", name="Validation whose snapshot is shown")
    while not page.get_by_text(re.compile(r"^2 of \d+")).is_visible():
        slider.press("ArrowLeft")
    return find_panel(page, "Training snapshots").screenshot()


def capture_tags(page: Page) -> bytes:
    """Take a sentence with wrong tags, of which the first is selected.

    Args:
        page: The page.
    """
    page.get_by_role("button", name="Next wrong tag").click()
    page.mouse.move(0, 0)
    return page.screenshot(clip={"x": 0, "y": 0, "width": VIEWPORT_WIDTH, "height": 722})


Pictures = Mapping[str, Callable[[Page], bytes]]
"""Function of each picture, by the name of its file."""
SEQUENCE_PICTURES: Pictures = {
    "examples": capture_examples,
    "beam": capture_beam,
    "what-if": capture_what_if,
    "corpus": capture_corpus,
    "compare": capture_compare,
    "states": capture_states,
}
TRAINING_PICTURES: Pictures = {"training": capture_training}
TAGGING_PICTURES: Pictures = {"tags": capture_tags}


def take_pictures(
    browser: Browser, address: str, pictures: Pictures, width: int = VIEWPORT_WIDTH, scale: int = 1
) -> None:
    """Take pictures of one page.

    Args:
        browser: The browser.
        address: Address of the page.
        pictures: Function of each picture.
        width: Width of the viewport in pixels.
        scale: Pixels of the picture per pixel of the page.
    """
    page = browser.new_page(viewport={"width": width, "height": 900}, device_scale_factor=scale)
    page.goto(address)
    page.wait_for_selector("#view")
    for name, capture in pictures.items():
        save_picture(name, capture(page))


def launch_browser(playwright: Playwright) -> Browser:
    """Start the Chromium that the tests start.

    Args:
        playwright: The started Playwright.
    """
    return playwright.chromium.launch(executable_path=str(CHROMIUM_PATH), args=list(FLAGS))


def main(arguments: Sequence[str]) -> None:
    """Take all pictures.

    Args:
        arguments: Command-line arguments.
    """
    if list(arguments) == ["--renew-example"]:
        renew_example_page()
        with sync_playwright() as playwright:
            take_example_picture(launch_browser(playwright))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "other-run", "test", "digits-run", "tagging-run", "tagging-test"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args(arguments)
    sequences = load_page([options.run, options.other_run], options.test, BEAM_SIZE)
    with sync_playwright() as playwright:
        browser = launch_browser(playwright)
        with background_server(create_app(sequences)) as address:
            example = find_substitution_example(sequences.contents.examples)
            take_pictures(browser, f"{address}#example={example}", SEQUENCE_PICTURES)
        take_example_picture(browser)
        with background_server(create_app(load_page([options.digits_run]))) as address:
            take_pictures(browser, address, TRAINING_PICTURES)
        with background_server(create_app(load_page([options.tagging_run], options.tagging_test))) as address:
            take_pictures(browser, address, TAGGING_PICTURES)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
