"""The served page, the exported page and the notebook page: content, and no requests elsewhere."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chromium import OpenPage
from page_data import digits_page_data
from playwright.sync_api import expect
from sample_traces import HOSTILE_SYMBOLS, make_diagonal_trace, make_small_trace

from pellucid.decoding.trace import END
from pellucid.viewer.pages import export_page
from pellucid.viewer.pages import trace_page as page_of


def test_served_page_shows_the_examples(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    expect(page.locator("body")).to_contain_text(digits_page_data(beam_size=3).contents.examples[0].text)


def test_exported_page_shows_the_same_without_requests(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page("about:blank")
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(exported_page_url)
    expect(page.locator("body")).to_contain_text(digits_page_data(beam_size=3).contents.examples[0].text)
    assert {urlsplit(url).scheme for url in asked} <= {"file", "data", "blob"}
    assert [url for url in asked if url.startswith("file:")] == [exported_page_url]


def test_exported_page_cannot_make_requests(
    open_page: OpenPage, exported_page_url: str, server_url: str, page_errors: list[str]
) -> None:
    page = open_page(exported_page_url)
    refused = page.evaluate("url => fetch(url).then(() => 'answered', error => error.name)", server_url)
    assert refused == "TypeError" and any("Content Security Policy" in each for each in page_errors)
    page_errors.clear()


def test_other_pages_cannot_access_the_server(open_page: OpenPage, server_url: str, page_errors: list[str]) -> None:
    page = open_page("about:blank")
    script = """url => fetch(url + 'api/decode', {method: 'POST', headers: {'Content-Type': 'application/json'},
        body: '{"text": "one"}'}).then(() => 'answered', error => error.name)"""
    assert page.evaluate(script, server_url) == "TypeError"
    page_errors.clear()


def test_several_traces_in_one_notebook_are_independent(open_page: OpenPage, tmp_path: Path) -> None:
    traces = [make_small_trace(), make_diagonal_trace("drei", [*"xyz", END]), make_small_trace()]
    notebook = tmp_path / "notebook.html"
    frames = "".join(trace._repr_html_() for trace in traces)
    notebook.write_text(f'<!doctype html><meta charset="utf-8"><p id="app">outside</p>{frames}', encoding="utf-8")
    page = open_page(notebook.as_uri())
    for number, trace in enumerate(traces):
        inside = page.frame_locator("iframe").nth(number)
        expect(inside.locator("body")).to_contain_text(trace.output)
    expect(page.locator("#app").first).to_have_text("outside")


def test_markup_in_symbols_stays_text(open_page: OpenPage, tmp_path: Path) -> None:
    (tmp_path / "hostile.html").write_text(
        page_of(make_diagonal_trace(HOSTILE_SYMBOLS, [*HOSTILE_SYMBOLS, END])), "utf-8", "backslashreplace"
    )
    page = open_page((tmp_path / "hostile.html").as_uri())
    expect(page.locator("body")).to_contain_text("</script>")
    assert page.locator("b").count() == 0 and page.locator("s").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshot_is_taken(open_page: OpenPage, exported_page_url: str, scheme: str, tmp_path: Path) -> None:
    page = open_page(exported_page_url)
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    picture = page.screenshot(path=tmp_path / f"{scheme}.png")
    assert picture.startswith(b"\x89PNG") and export_page(digits_page_data(served=False, beam_size=3).contents)
