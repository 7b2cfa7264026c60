"""The Beam tab requests a search if the page has no beam."""

from chromium import Open
from page_data import digits_shown
from page_navigation import listed, panel, tab
from playwright.sync_api import expect

from pellucid.viewer.server import background_server, create_app


def test_beam_is_requested_when_opened_and_for_another_example(opened: Open) -> None:
    page_data = digits_shown()
    assert all(trace.lattice is None for item in page_data.contents.examples for trace in item.traces)
    with background_server(create_app(page_data)) as address:
        page = opened(f"{address}#example=0")
        tab(page, "Beam")
        nodes = panel(page, "Beam search tree").locator("[data-node]")
        expect(nodes.first).to_be_visible()
        expect(panel(page, "Attention of the selected hypothesis").get_by_role("application").first).to_be_visible()
        tab(page, "Examples")
        listed(page).nth(3).click()
        with page.expect_response("**/api/decode") as response:
            tab(page, "Beam")
        assert response.value.json()["text"] == page_data.contents.examples[3].text
        expect(nodes.first).to_be_visible()
        expect(page.locator(".source")).to_contain_text(page_data.contents.examples[3].text)


def test_running_search_is_shown(opened: Open) -> None:
    with background_server(create_app(digits_shown())) as address:
        page = opened(address)
        page.route("**/api/decode", lambda route: None)
        tab(page, "Beam")
        expect(page.get_by_role("status").filter(has_text="Searching …")).to_be_visible()
        expect(page.get_by_role("button", name="Run beam search")).to_be_disabled()


def test_available_beam_is_not_requested(opened: Open, address: str) -> None:
    page = opened(address)
    requested_urls = list[str]()
    page.on("request", lambda request: requested_urls.append(request.url))
    tab(page, "Beam")
    expect(panel(page, "Beam search tree").locator("[data-node]").first).to_be_visible()
    page.wait_for_timeout(400)
    assert not any(url.endswith("api/decode") for url in requested_urls)
