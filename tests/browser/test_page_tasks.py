"""Views of tags, classes and positions."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from chromium import OpenPage
from page_navigation import find_panel, open_tab
from playwright.sync_api import Page, expect
from task_cases import task_run

from pellucid.config.settings import TaskName
from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.schema import PageExample
from pellucid.viewer.server import background_server, create_app

SEARCH_TABS = ("Beam", "States")
"""Tabs that exist only for tasks with beam search."""


@cache
def load_page_data(task: TaskName) -> PageData:
    """Return the page data of a run of this task on its validation set."""
    trained = task_run(task)
    model = open_run(trained.run, task, "cpu", None)
    return assemble_page([model], [read_example_file(trained.files.valid, trained.config.data)], 40, served=True)


@contextmanager
def serve_page(task: TaskName, open_page: OpenPage) -> Iterator[Page]:
    """Serve a run of this task and open its page."""
    with background_server(create_app(load_page_data(task))) as address:
        page = open_page(address)
        expect(page.get_by_role("tab", name="Examples")).to_be_visible()
        for name in SEARCH_TABS:
            expect(page.get_by_role("tab", name=name, exact=True)).to_have_count(0)
        for title in ("Attention links", "Output steps", "Attention matrix"):
            expect(find_panel(page, title)).to_have_count(0)
        yield page


def first_example(task: TaskName) -> PageExample:
    """Return the example that the page opens on: the first wrong one, if any."""
    items = load_page_data(task).contents.examples
    return next((item for item in items if item.exact is False), items[0])


def edit_source(page: Page) -> None:
    """Replace and then delete the first source symbol. Assert that nothing but the source can be changed."""
    open_tab(page, "What if")
    expect(page.locator(".sentence")).to_contain_text("Edit the source.")
    page.get_by_role("group", name="Source symbols").get_by_role("button").first.click()
    for absent in ("Mask in attention", "Uniform"):
        expect(page.get_by_role("button", name=absent)).to_have_count(0)
    expect(page.get_by_role("textbox", name="prefix")).to_have_count(0)
    page.get_by_role("textbox", name="New symbol").fill("c")
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(find_panel(page, "Probabilities before and after").locator("tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Insert before", exact=True).is_disabled()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".sentence")).to_contain_text("Replacing the source “")


@pytest.mark.slow
def test_tags_are_below_their_source_symbols(open_page: OpenPage) -> None:
    item, contents = first_example("tag"), load_page_data("tag").contents
    assert {decode_array(trace.attention).shape for each in contents.examples for trace in each.traces} == {(0, 0)}
    assert contents.card is not None and dict(contents.card.facts)["best validation"].startswith("tag accuracy ")
    with serve_page("tag", open_page) as page:
        tags = find_panel(page, "Tags")
        cells, errors = tags.locator(".cell"), [edit for edit in item.edits if edit.kind != "same"]
        assert [text.split("\n")[:2] for text in cells.all_inner_texts()] == [
            list(pair) for pair in zip(item.traces[0].source, item.traces[0].target, strict=True)
        ]
        assert tags.locator(".missed .true").all_inner_texts() == [edit.expected for edit in errors]
        cells.nth(1).click()
        expect(tags.get_by_role("heading", name="Position 2,")).to_be_visible()
        tags.get_by_role("application").press("ArrowLeft")
        expect(tags.locator("[aria-live]")).to_contain_text(f"Position 1, {item.traces[0].source[0]}")
        page.keyboard.press("Escape")
        edit_source(page)
        expect(find_panel(page, "Probabilities before and after")).to_contain_text(
            "number of source symbols has changed"
        )
        expect(find_panel(page, "Tags after").locator(".cell")).to_have_count(len(item.traces[0].source) - 1)
        open_tab(page, "Corpus")
        expect(find_panel(page, "Accuracy by target position")).not_to_contain_text("if the reference has it")
        expect(find_panel(page, "Confusions")).to_contain_text("counts of expected and predicted tags")
        open_tab(page, "About")
        expect(page.get_by_text("state at its own position")).to_be_visible()


@pytest.mark.slow
def test_class_is_shown_with_every_attention_hop(open_page: OpenPage) -> None:
    with serve_page("classify", open_page) as page:
        most_probable = find_panel(page, "Class").locator("li").first
        expect(most_probable).to_contain_text(first_example("classify").traces[0].output)
        expect(find_panel(page, "Attention weights").get_by_role("application")).to_have_accessible_name(
            re.compile("^Heat map of 2 ")
        )
        page.get_by_role("button", name="Weights as table", exact=True).click()
        expect(find_panel(page, "Attention weights").locator("tbody th").last).to_have_text("2")
        edit_source(page)
        open_tab(page, "Corpus")
        expect(find_panel(page, "Accuracy by source length")).to_be_visible()
        expect(find_panel(page, "Accuracy by target position")).to_have_count(0)
        open_tab(page, "Training")
        expect(find_panel(page, "Accuracy")).to_be_visible()
        expect(page.get_by_text("exact match")).to_have_count(0)


@pytest.mark.slow
def test_predicted_position_is_framed(open_page: OpenPage) -> None:
    item = first_example("point")
    position = int(item.traces[0].output) - 1
    with serve_page("point", open_page) as page:
        framed = find_panel(page, "Attention over the source").locator(".correct" if item.exact else ".predicted")
        expect(framed).to_have_attribute("data-index", f"{position}")
        expect(find_panel(page, "Attention weights")).to_contain_text(
            "Each attention weight is the probability of its position"
        )
        expect(find_panel(page, "Position").locator("li").first).to_contain_text(f"“{item.traces[0].source[position]}”")
        edit_source(page)
        open_tab(page, "About")
        expect(page.get_by_text("Each attention weight is the probability")).to_be_visible()
