"""The Beam tab requests a search if the page has no beam."""

import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import find_panel, open_tab, visible_examples
from playwright.sync_api import expect

from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.server import background_server, create_app


@pytest.mark.slow
def test_beam_is_requested_when_opened_and_for_another_example(open_page: OpenPage) -> None:
    page_data = digits_page_data()
    assert all(trace.search_tree is None for item in page_data.contents.examples for trace in item.traces)
    with background_server(create_app(page_data)) as address:
        page = open_page(f"{address}#example=0")
        open_tab(page, "Beam")
        nodes = find_panel(page, "Beam search tree").locator("[data-node]")
        expect(nodes.first).to_be_visible()
        expect(
            find_panel(page, "Attention of the selected hypothesis").get_by_role("application").first
        ).to_be_visible()
        open_tab(page, "Examples")
        visible_examples(page).nth(3).click()
        with page.expect_response("**/api/decode") as response:
            open_tab(page, "Beam")
        assert response.value.json()["text"] == page_data.contents.examples[3].text
        expect(nodes.first).to_be_visible()
        expect(page.locator(".source")).to_contain_text(page_data.contents.examples[3].text)


def test_running_search_is_shown(open_page: OpenPage) -> None:
    with background_server(create_app(digits_page_data())) as address:
        page = open_page(address)
        page.route("**/api/decode", lambda route: None)
        open_tab(page, "Beam")
        expect(page.get_by_role("status").filter(has_text="Searching …")).to_be_visible()
        expect(page.get_by_role("button", name="Run beam search")).to_be_disabled()


def test_available_beam_is_not_requested(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    requested_urls = list[str]()
    page.on("request", lambda request: requested_urls.append(request.url))
    open_tab(page, "Beam")
    expect(find_panel(page, "Beam search tree").locator("[data-node]").first).to_be_visible()
    page.wait_for_timeout(400)
    assert not any(url.endswith("api/decode") for url in requested_urls)


def test_nodes_have_the_total_of_their_hypothesis(open_page: OpenPage, server_url: str) -> None:
    search_tree = digits_page_data(beam_size=3).contents.examples[0].traces[0].search_tree
    assert search_tree is not None
    page = open_page(f"{server_url}#example=0")
    open_tab(page, "Beam")
    tree = find_panel(page, "Beam search tree")
    for node, (total, log_probability) in enumerate(
        zip(decode_array(search_tree.scores), decode_array(search_tree.log_probabilities), strict=True)
    ):
        numbers = [f"{value:.2f}".replace("-", "−") for value in (total, log_probability)]
        shown = tree.locator(f"g[data-node='{node}']")
        assert [shown.locator(name).text_content() for name in (".total", ".log-probability")] == numbers
    expect(tree.locator(".caption")).to_contain_text("by which hypotheses are sorted and pruned")
