"""Pages of several runs: colors of the charts, rows of the list, equations; and the search of the snapshots."""

import json
from pathlib import Path

import msgspec
import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import download_panel, find_panel, open_tab, visible_examples
from playwright.sync_api import Page, expect
from saved_files import read_csv_lines

from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import PageContents

CORPUS_CHARTS = ("Accuracy by target position", "Accuracy by source length")
TRAINING_CHARTS = ("Training loss", "Validation loss", "Exact match", "Symbol error rate", "Symbol accuracy")
Mark = tuple[str | None, str | None]


def page_contents() -> PageContents:
    """Return the contents of a saved page of two runs."""
    return digits_page_data(served=False, beam_size=3).contents


def read_legend(page: Page, title: str) -> dict[str, Mark]:
    """Return the color and the dashes of each line of a chart, by its name in the legend."""
    entries = find_panel(page, title).locator(".legend span")
    expect(entries.first).to_be_visible()
    marks: dict[str, Mark] = {}
    for entry in entries.all():
        path = entry.locator("path")
        marks[entry.inner_text()] = path.get_attribute("stroke"), path.get_attribute("stroke-dasharray")
    return marks


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_color_and_dashes_are_those_of_the_run_in_every_chart(
    open_page: OpenPage, exported_page_url: str, width: int
) -> None:
    page = open_page(exported_page_url)
    page.set_viewport_size({"width": width, "height": 800})
    legends = list[dict[str, Mark]]()
    for tab, charts in (("Corpus", CORPUS_CHARTS), ("Training", TRAINING_CHARTS)):
        open_tab(page, tab)
        legends += [read_legend(page, title) for title in charts]
    assert legends == [legends[0]] * len(legends) and [*legends[0]] == ["run", "rival"]
    (color, dashes), (other_color, other_dashes) = legends[0].values()
    assert color != other_color and dashes is None and other_dashes
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_rows_say_which_runs_are_correct(open_page: OpenPage, tmp_path: Path) -> None:
    contents = page_contents()
    (compared_run,) = contents.compared_runs
    wrong, *others = compared_run.examples
    changed = msgspec.structs.replace(compared_run, examples=[msgspec.structs.replace(wrong, exact=False), *others])
    path = tmp_path / "page.html"
    path.write_text(export_page(msgspec.structs.replace(contents, compared_runs=[changed])), encoding="utf-8")
    page = open_page(path.as_uri())
    first = "✓ run · ✗ rival" if contents.examples[0].exact else "✗ both runs"
    second = f"{'✓' if contents.examples[1].exact else '✗'} both runs"
    expect(visible_examples(page).nth(0).locator(".runs")).to_have_text(first)
    expect(visible_examples(page).nth(1).locator(".runs")).to_have_text(second)


def test_about_has_the_equations_of_each_run(open_page: OpenPage, exported_page_url: str, tmp_path: Path) -> None:
    card = page_contents().card
    assert card is not None
    page = open_page(exported_page_url)
    open_tab(page, "About")
    panel = find_panel(page, "Equations")
    num_formulas = sum(len(part.equations) + len(part.symbols) for part in card.equations)
    expect(panel.locator("math")).to_have_count(num_formulas)
    expect(panel.get_by_role("heading", level=3)).to_have_text([part.title for part in card.equations])
    assert page.evaluate("document.querySelector('math mi') instanceof MathMLElement")
    expect(panel.locator(".caption")).to_contain_text(f"“run”: {dict(card.facts)['parameters']} parameters")
    panel.get_by_label("Run").select_option("rival")
    expect(panel.locator(".caption")).to_contain_text("“rival”")
    latex = [equation.latex for part in card.equations for equation in part.equations]
    saved = json.loads(download_panel(page, "Equations", "JSON", tmp_path))
    assert [equation["latex"] for part in saved for equation in part["equations"]] == latex
    rows = read_csv_lines(download_panel(page, "Equations", "CSV", tmp_path))
    assert len(rows) == 1 + num_formulas and latex[0] in [row[1] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_snapshots_name_their_search(open_page: OpenPage, tmp_path: Path, beam_size: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(export_page(digits_page_data(served=False, beam_size=beam_size).contents), encoding="utf-8")
    page = open_page(path.as_uri())
    open_tab(page, "Training")
    other = "; the tab Examples shows the output of beam search, beam size 3, which may differ"
    expect(find_panel(page, "Training snapshots").get_by_text("by greedy search")).to_have_text(
        f"by greedy search{other if beam_size > 1 else ''}"
    )
