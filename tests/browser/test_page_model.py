"""The page of `pellucid export --html`: models in one file, without a server and without a network."""

from dataclasses import replace
from pathlib import Path

import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import find_panel, open_tab
from page_runs import make_pronunciation_examples, pronunciation_page_data
from playwright.sync_api import Page, expect

from pellucid.decoding.transducer import require_transducer
from pellucid.export.stored_parameters import Precision
from pellucid.export.web_page import build_model_page, render_model_page
from pellucid.viewer.inputs import ViewedRun

ANSWER = "output"
INPUT = "input[type=search]"


def pronunciation_run() -> ViewedRun:
    """Return the run of grapheme-to-phoneme conversion."""
    return pronunciation_page_data().runs[0]


def write_page(path: Path, runs: list[ViewedRun], precision: Precision = "float32") -> str:
    """Write a page with models, and return its URL."""
    path.write_text(render_model_page(build_model_page(runs, precision, "chigno")), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of a page with one model."""
    return write_page(tmp_path_factory.mktemp("model") / "model.html", [pronunciation_run()])


def open_offline(open_page: OpenPage, url: str) -> Page:
    """Open a page without a network, and wait for its first output."""
    page = open_page("about:blank")
    page.context.set_offline(True)
    page.goto(url)
    expect(page.locator(ANSWER)).not_to_be_empty()
    return page


def type_source(page: Page, text: str) -> str:
    """Type a source and return its output."""
    page.fill(INPUT, text)
    expect(page.locator(".answer .small").first).to_have_text(text)
    return page.locator(ANSWER).inner_text()


def test_outputs_are_those_of_predict(open_page: OpenPage, model_url: str) -> None:
    page = open_offline(open_page, model_url)
    requests = list[str]()
    page.on("request", lambda request: requests.append(request.url))
    words = [example.source for example in make_pronunciation_examples(25, seed=5)]
    expected = [trace.output for trace in pronunciation_run().loaded_predictor.predict(words)]
    assert [type_source(page, word) for word in words] == expected
    assert requests == [] and page.locator(".answer").inner_text().endswith("ms in WebAssembly.")


def test_n_best_list_links_steps_and_matrix_are_shown(open_page: OpenPage, model_url: str) -> None:
    page = open_offline(open_page, model_url)
    type_source(page, "scegna")
    outputs = pronunciation_run().loaded_predictor.nbest(["scegna"], 3)[0]
    rows = page.get_by_role("radiogroup", name="Outputs, best first").get_by_role("radio")
    expect(rows).to_have_count(3)
    for row, trace in zip(rows.all(), outputs, strict=True):
        assert trace.output.replace(" ", "") in row.inner_text().replace(" ", "").replace("\n", "")
    for title in ("Attention links", "Output steps", "Attention matrix"):
        expect(find_panel(page, title)).to_be_visible()
    open_tab(page, "Beam")
    expect(find_panel(page, "Beam search tree").locator("[data-node]").first).to_be_visible()


@pytest.mark.slow
def test_forced_attention_and_prefix_change_the_output(open_page: OpenPage, model_url: str) -> None:
    page = open_offline(open_page, model_url)
    type_source(page, "dalo")
    open_tab(page, "What if")
    expect(page.locator(".sentence")).to_contain_text("No change")
    slider = page.get_by_role("slider", name="Attention of step 1")
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    for _ in range(20):
        slider.press("ArrowUp")
    expect(page.locator(".sentence")).to_contain_text("orcing step 1 to attend to position 3")
    page.get_by_label("forced prefix").fill("s i")
    expect(page.locator(".after b").first).to_contain_text("s i")
    expect(page.locator(".sentence")).to_contain_text("orcing the prefix")
    page.get_by_label("forced prefix").fill("q")
    expect(page.locator(".sentence")).to_contain_text("never writes the symbol")


def test_two_runs_are_compared_on_the_typed_source(open_page: OpenPage, tmp_path: Path) -> None:
    run = pronunciation_run()
    predictor = require_transducer(run.loaded_predictor, "run")
    other = replace(run, name="other </script>")
    page = open_offline(open_page, write_page(tmp_path / "two.html", [run, other], "float16"))
    type_source(page, "gnachi")
    open_tab(page, "Compare")
    expect(find_panel(page, "other </script>")).to_contain_text(predictor.predict(["gnachi"])[0].output)
    expect(find_panel(page, "Attention difference")).to_be_visible()


def test_javascript_replaces_webassembly(open_page: OpenPage, model_url: str) -> None:
    page = open_page("about:blank")
    page.add_init_script("delete globalThis.WebAssembly")
    page.goto(model_url)
    expected = pronunciation_run().loaded_predictor.predict(["manzo"])[0].output
    expect(page.locator(ANSWER)).not_to_be_empty()
    assert type_source(page, "manzo") == expected
    expect(page.locator(".answer")).to_contain_text("ms in JavaScript.")


def test_page_has_roles_and_fits_a_narrow_window(open_page: OpenPage, model_url: str) -> None:
    page = open_offline(open_page, model_url)
    page.set_viewport_size({"width": 400, "height": 740})
    expect(page.locator("body")).to_match_aria_snapshot("""
        - banner:
          - heading [level=1]
        - region "Source and output":
          - searchbox "Source to decode"
          - paragraph:
            - status "Output"
        - tablist "Tabs of this page":
          - tab "Output" [selected]
          - tab "Beam"
          - tab "What if"
          - tab "About"
    """)
    for tab in ("Output", "Beam", "What if", "About"):
        open_tab(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.set_viewport_size({"width": 320, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    policy = page.locator("meta[http-equiv]").get_attribute("content") or ""
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert "'unsafe-eval'" not in policy and "http:" not in policy


def test_unknown_symbols_and_empty_sources(open_page: OpenPage, tmp_path: Path) -> None:
    url = write_page(tmp_path / "digits.html", [digits_page_data().runs[0]], "int8")
    page = open_offline(open_page, url)
    type_source(page, "one ẞ")
    expect(page.locator(".model-input")).to_contain_text("unknown")
    page.fill(INPUT, "one " * 5000)
    expect(page.locator(".model-input [role=alert]")).to_contain_text("The source has 20000 symbols")
    expect(page.locator(".model-input")).not_to_contain_text("unknown")
    page.fill(INPUT, "")
    expect(page.locator(".answer .small").first).to_have_text("Example: chigno")
