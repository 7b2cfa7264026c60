"""Saved files, saved pages, print layout, and unusual symbols."""

import csv
import io
import json
import struct
from pathlib import Path

import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import download_panel, find_panel, open_tab
from playwright.sync_api import Locator, Page, expect
from sample_traces import HOSTILE_SYMBOLS, make_diagonal_trace
from saved_files import assert_valid_latex, read_svg_texts

from pellucid.decoding.trace import END
from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.pages import trace_page as page_of
from pellucid.viewer.schema import PageContents


def page_contents() -> PageContents:
    return digits_page_data(served=False, beam_size=3).contents


@pytest.mark.slow
def test_matrix_and_links_are_saved_in_every_format(
    open_page: OpenPage, exported_page_url: str, tmp_path: Path
) -> None:
    page, trace = open_page(exported_page_url), page_contents().examples[0].traces[0]
    weights = decode_array(trace.attention)
    for title in ("Attention matrix", "Attention links"):
        texts = read_svg_texts(download_panel(page, title, "SVG", tmp_path))
        assert {"source →", "output →"} <= set(texts), "text stays text, and the sides have names"
        assert texts[0].startswith(f"{title} “{first_source()}” → “")
        assert title == "Attention links" or {"weight: 0", "1"} <= set(texts), "the colors have a key"
        picture = download_panel(page, title, "PNG", tmp_path)
        assert picture.startswith(b"\x89PNG") and min(struct.unpack(">II", picture[16:24])) > 100
        values = json.loads(download_panel(page, title, "JSON", tmp_path))
        assert values["source"] == trace.source and values["target"] == trace.target
        assert (
            values["weights"] == pytest.approx(weights) if weights.ndim == 1 else len(values["weights"]) == len(weights)
        )
        table = list(csv.reader(io.StringIO(download_panel(page, title, "CSV", tmp_path).decode("utf-8"))))
        assert table[0][0].startswith(f"{title.lower()} “{first_source()}” → “") and table[0][1:] == list(trace.source)
        assert float(table[1][1]) == pytest.approx(weights[0, 0], abs=1e-6)
        tex = download_panel(page, title, "TikZ", tmp_path).decode("utf-8")
        assert_valid_latex(tex)
        assert "{source $" in tex and "output}" in tex and "{darkest: 1}" in tex


def first_source() -> str:
    """Return the source of the first example."""
    return page_contents().examples[0].text


def test_saved_state_plane_has_axis_titles(open_page: OpenPage, exported_page_url: str, tmp_path: Path) -> None:
    page = open_page(exported_page_url)
    open_tab(page, "States")
    texts = read_svg_texts(download_panel(page, "PCA of the states", "SVG", tmp_path))
    assert texts[0].startswith("States of the encoder")
    assert sum("principal component, " in text and text.endswith("of the variance →") for text in texts) == 1
    assert sum(text.startswith("← second principal component, ") for text in texts) == 1


def test_saved_chart_has_its_legend(open_page: OpenPage, exported_page_url: str, tmp_path: Path) -> None:
    page = open_page(exported_page_url)
    open_tab(page, "Training")
    names = find_panel(page, "Training loss").locator(".legend span").all_inner_texts()
    assert len(names) > 1 and set(names) <= set(read_svg_texts(download_panel(page, "Training loss", "SVG", tmp_path)))


def test_states_fit_on_paper(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page(exported_page_url)
    open_tab(page, "States")
    strip = find_panel(page, "State values").locator(".strip").first
    expect(strip).to_be_visible()
    page.emulate_media(media="print")
    expect(strip).to_have_css("max-width", "100%")
    # The width is that of a strip with a thousand positions.
    strip.evaluate("each => { each.style.width = '3000px'; }")
    assert strip.evaluate("each => each.scrollWidth <= each.clientWidth && each.clientWidth <= innerWidth")


@pytest.mark.slow
def test_saved_page_opens_again(open_page: OpenPage, server_url: str, tmp_path: Path) -> None:
    page = open_page(server_url)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save page").click()
    path = tmp_path / "page.html"
    download.value.save_as(path)
    saved_page = open_page(f"{path.as_uri()}#example=2&tab=beam")
    expect(saved_page.locator(".source")).to_contain_text(page_contents().examples[2].text)
    open_tab(saved_page, "What if")
    expect(saved_page.locator("#view")).to_contain_text("page is a saved file")
    # A file has no server: the saved page includes the states.
    open_tab(saved_page, "States")
    expect(find_panel(saved_page, "State values").locator("canvas").first).to_be_visible()
    expect(find_panel(saved_page, "Nearest states").locator("ol li").first).to_be_visible()


def test_page_is_saved_without_a_server_response(open_page: OpenPage, server_url: str, tmp_path: Path) -> None:
    page = open_page(server_url)
    page.route("**/api/export", lambda route: route.fulfill(json={"error": "It ended."}))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save page").click()
    download.value.save_as(tmp_path / "page.html")
    message = "The page was saved without states and attributions: It ended."
    expect(page.locator("header [role=status]")).to_have_text(message)
    saved_page = open_page((tmp_path / "page.html").as_uri())
    expect(saved_page.locator("#view")).to_contain_text(
        f"{len(page_contents().examples)} of {len(page_contents().examples)}"
    )


def test_link_restores_the_view_of_a_file(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page(exported_page_url)
    find_panel(page, "Output steps").locator(".step").nth(1).click()
    restored_page = open_page(page.url)
    assert "step=1" in restored_page.url
    expect(find_panel(restored_page, "Attention matrix").locator(".cross")).to_have_count(1)


def write_hostile_page(tmp_path: Path) -> str:
    """Write a page whose symbols contain markup, and return its address."""
    path = tmp_path / "hostile.html"
    path.write_text(page_of(make_diagonal_trace(HOSTILE_SYMBOLS, [*HOSTILE_SYMBOLS, END])), "utf-8", "backslashreplace")
    return path.as_uri()


def test_unusual_symbols_are_visible_in_every_panel(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(write_hostile_page(tmp_path))
    for title in ("Attention links", "Output steps", "Attention matrix"):
        panel_text = find_panel(page, title).evaluate("each => each.textContent")
        for text in ("</script><b>", "<s>", "RLO", "⇥", "␣", "&amp;"):
            assert text in panel_text, (title, text)
        assert "\u202e" not in panel_text
    assert page.locator("b, s").evaluate_all("all => all.filter(each => /script|<s>/.test(each.outerHTML)).length") == 0
    for title in ("Attention matrix", "Output steps"):
        assert "</script><b>" in "".join(read_svg_texts(download_panel(page, title, "SVG", tmp_path)))
    assert_valid_latex(download_panel(page, "Attention matrix", "TikZ", tmp_path).decode("utf-8"))


def test_two_pages_of_one_notebook_have_separate_selections(open_page: OpenPage, tmp_path: Path) -> None:
    traces = [make_diagonal_trace("abc", [*"xyz", END]), make_diagonal_trace("defg", [*"uv", END])]
    path = tmp_path / "notebook.html"
    frames = "".join(trace._repr_html_() for trace in traces)
    path.write_text(f'<!doctype html><meta charset="utf-8">{frames}', encoding="utf-8")
    page = open_page(path.as_uri())
    first_frame, second_frame = (page.frame_locator("iframe").nth(number) for number in range(2))
    first_frame.locator(".step").nth(1).click()
    expect(first_frame.locator(".step.pointed")).to_have_count(1)
    expect(second_frame.locator(".step").first).to_be_visible()
    expect(second_frame.locator(".step.pointed")).to_have_count(0)
    expect(second_frame.locator("canvas")).to_have_count(1)


def page_lightness(page: Page, name: str) -> int:
    """Return the lightness of a color of the page, from 0 to 765."""
    script = "name => getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    return int(page.evaluate(script, name))


def first_cell_lightness(canvas: Locator) -> int:
    """Return the lightness of the first cell of a heat map, from 0 to 765."""
    return int(canvas.evaluate(FIRST_CELL_LIGHTNESS))


FIRST_CELL_LIGHTNESS = """canvas => { const copy = document.createElement('canvas'), context = copy.getContext('2d');
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, 1, 1);
    return data[0] + data[1] + data[2] }"""


def test_dark_theme_is_printed_light(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page(exported_page_url)
    expect(find_panel(page, "Attention links")).to_be_visible()  # the packed page loads its style with its script
    assert page_lightness(page, "backgroundColor") > 700 > 200 > page_lightness(page, "color")
    page.get_by_role("button", name="Dark colors").click()
    assert page_lightness(page, "backgroundColor") < 150 < 550 < page_lightness(page, "color")
    page.emulate_media(media="print")
    assert page_lightness(page, "backgroundColor") == 765 and page_lightness(page, "color") == 0
    for name in ("tablist", "listbox"):
        expect(page.get_by_role(name)).to_be_hidden()
    assert not page.get_by_text("Hover over a").locator("visible=true").count()
    expect(find_panel(page, "Attention links")).to_be_visible()
    expect(find_panel(page, "Attention links").locator("svg")).to_have_css("max-width", "100%")
    expect(find_panel(page, "Output steps").locator("ol")).to_have_css("flex-wrap", "wrap")
    expect(find_panel(page, "Output steps").locator(".bar > span").first).to_have_css("print-color-adjust", "exact")
    page.emulate_media(media="screen")
    canvas = find_panel(page, "Attention matrix").locator("canvas")
    assert first_cell_lightness(canvas) < 700
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert first_cell_lightness(canvas) > 700
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF") and len(pdf) > 10_000
