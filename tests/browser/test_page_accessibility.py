"""Accessibility: roles, names, states, focus and keyboard navigation of the main views."""

import re

import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import assert_cell_is_announced, find_panel, open_tab
from playwright.sync_api import expect

from pellucid.viewer.schema import PageContents


def page_contents() -> PageContents:
    return digits_page_data(beam_size=3).contents


def test_page_opens_on_the_first_wrong_example(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page(exported_page_url)
    first = next(item for item in page_contents().examples if item.exact is False)
    errors = f"wrong, {first.errors} error{'s' if first.errors != 1 else ''}"
    expect(page.locator("body")).to_match_aria_snapshot(f"""
        - banner:
          - heading [level=1]
          - button "Copy link"
          - button "Save page"
          - button "Dark colors"
        - tablist "Tabs of this page":
          - tab "Examples" [selected]
          - tab "Beam"
          - tab "What if"
          - tab "Corpus"
          - tab "Compare"
          - tab "States"
          - tab "Training"
          - tab "About"
        - tabpanel "Examples":
          - searchbox "Regular expression in source, output, reference or id"
          - combobox "Sort by"
          - combobox "Filter by correctness"
          - status
          - listbox /Examples/:
            - 'option "{errors}: {first.text}, output {first.traces[0].output}; wrong: both runs" [selected]'
          - paragraph: /^Wrong:/
          - table "Output and reference, symbol by symbol":
            - rowgroup:
              - row:
                - rowheader "output"
              - row:
                - rowheader "expected"
          - paragraph: /“.*” with p =/
          - region "Attention links":
            - heading "Attention links" [level=2]
            - application /Links from \\d+ source positions/
          - region "Output steps":
            - list:
              - listitem:
                - button /Step 1/
          - region "Attention matrix":
            - group "Color scale":
              - button "colors from 0 to 1" [pressed]
            - application /Heat map of \\d+ output steps/
    """)


def test_every_view_has_accessible_names(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    views = {
        "Beam": """
            - region "Beam search tree":
              - application /\\d+ hypotheses in \\d+ steps/
            - region "Attention of the selected hypothesis":
              - application /Links from/
        """,
        "What if": """
            - group "Undo and reset changes":
              - button "Undo" [disabled]
              - button "Reset all changes" [disabled]
            - region "Edit the source":
              - group /Source symbols/:
                - button /, position 1/
            - region "Output before and after":
              - group "Steps of the output":
                - button /step \\d+/ [pressed]
            - region "Probabilities before and after":
              - table
            - region /Attention of step \\d+/
        """,
        "Corpus": """
            - region "Scores":
              - table
            - region "Accuracy by target position":
              - slider /Accuracy by target position; arrow keys move along it/
            - region "Accuracy by source length":
              - slider /Accuracy by source length/
            - region "Confusions":
              - checkbox "list all confusions"
            - region "Attention statistics":
              - figure
        """,
        "Compare": """
            - region "Paired outcomes of both runs":
              - group /Outcomes/:
                - button /both correct/
              - table:
                - rowgroup:
                  - row /exact match/:
                    - rowheader "exact match"
        """,
        "Training": """
            - status: /Training is finished/
            - region "Training loss":
              - slider /Training loss; arrow keys move along it/
            - region "Training snapshots":
              - button "Play"
              - slider "Validation whose snapshot is shown"
              - paragraph:
                - combobox "Probe example"
        """,
        "About": """
            - region "Equations":
              - combobox "Run"
              - heading "Encoder"
              - math
              - table /Sizes of the symbols/
        """,
    }
    for title, snapshot in views.items():
        open_tab(page, title)
        expect(page.get_by_role("tabpanel", name=title)).to_match_aria_snapshot(snapshot)


def test_source_has_one_tab_stop_and_arrow_keys(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    open_tab(page, "What if")
    symbols = page.get_by_role("group", name=re.compile("Source symbols")).get_by_role("button")
    expect(symbols.first).to_be_visible()
    assert symbols.evaluate_all("all => all.filter(each => each.tabIndex === 0).length") == 1
    symbols.first.focus()
    page.keyboard.press("ArrowRight")
    expect(symbols.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(symbols.last).to_be_focused()
    page.keyboard.press("Tab")
    assert symbols.evaluate_all("all => all.includes(document.activeElement)") is False
    page.keyboard.press("Shift+Tab")
    expect(symbols.last).to_be_focused()


@pytest.mark.slow
def test_only_the_focused_heat_map_is_a_live_region(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    for title, maps in {
        "Examples": ["Attention matrix"],
        "Beam": ["Attention of the selected hypothesis"],
        "What if": ["Attention before", "Attention after", "Attention difference"],
    }.items():
        open_tab(page, title)
        if title == "What if":  # its heat maps are redrawn when the first response arrives
            expect(page.locator(".sentence")).to_contain_text("No change")
        for heat_map in maps:
            expect(find_panel(page, heat_map).locator("canvas")).to_be_visible()
            assert_cell_is_announced(page, heat_map)


@pytest.mark.slow
def test_scrolling_under_a_resting_pointer_keeps_the_keyboard_cursor(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    page.set_viewport_size({"width": 1280, "height": 420})
    step = page.get_by_role("button", name=re.compile("^Step 2: ")).first
    step.scroll_into_view_if_needed()
    box = step.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.evaluate("window.scrollBy(0, -60)")
    page.mouse.move(x, y - 20)
    panel = find_panel(page, "Attention matrix")
    panel.get_by_role("application").last.evaluate("map => map.focus({ preventScroll: true })")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    announcement = panel.locator("[aria-live]")
    cell = re.compile(r"; .+ on .+: −?\d\.\d{4}\.$")
    expect(announcement).to_have_text(cell)
    for _ in range(12):  # the steps pass under the pointer
        page.evaluate("new Promise(done => (window.scrollBy(0, 10), setTimeout(done, 60)))")
    expect(announcement).to_have_text(cell)
    page.mouse.move(x, y - 40)  # a pointer that moves takes the cursor
    box = step.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(announcement).to_have_text(re.compile(r"^Step 2, "))


def test_forcing_a_candidate_focuses_its_step(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    open_tab(page, "What if")
    output = find_panel(page, "Output before and after")
    output.locator(".other").first.click()
    expect(
        output.get_by_role("button", name="step 1, forced").or_(output.get_by_role("button", pressed=True))
    ).to_be_focused()
    expect(page.locator("[aria-busy=false]")).to_be_visible()
    expect(output.get_by_role("button", pressed=True)).to_be_focused()


def test_focus_stays_near_a_removed_button(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    for title in ("Attention links", "Attention matrix"):
        picture = find_panel(page, title).get_by_role("application")
        picture.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        find_panel(page, title).get_by_role("button", name="unlock selection").click()
        expect(picture).to_be_focused()
    page.get_by_role("button", name=re.compile("^Force ")).first.click()
    expect(page.get_by_role("tab", name="What if")).to_be_focused()
