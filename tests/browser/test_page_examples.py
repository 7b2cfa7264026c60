"""Examples tab of a served run: selection, list, typed source, beam, keyboard, address."""

import re
from pathlib import Path

import msgspec
import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import (
    assert_cell_is_announced,
    cell_center,
    find_panel,
    open_tab,
    visible_examples,
    visible_source_texts,
)
from playwright.sync_api import Locator, Page, expect
from sample_traces import make_trace

from pellucid.decoding.trace import END
from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.examples import page_trace_without_model
from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import AttributionArrays, EditOperation, PageExample


def page_examples() -> list[PageExample]:
    """Return the examples of the page."""
    return digits_page_data(beam_size=3).contents.examples


def first_wrong_example() -> tuple[int, PageExample]:
    """Return the index of the first example with a wrong output, and the example."""
    return next((index, item) for index, item in enumerate(page_examples()) if item.exact is False)


def example_address(address: str, index: int) -> str:
    """Return the address of the page that shows this example."""
    return f"{address}#example={index}"


def test_matrix_cell_shows_its_weight_and_highlights_its_step(open_page: OpenPage, server_url: str) -> None:
    page, trace = open_page(server_url), page_examples()[0].traces[0]
    weights = decode_array(trace.attention)
    expect(find_panel(page, "Attention matrix")).to_contain_text("source →")
    expect(find_panel(page, "Attention matrix")).to_contain_text("output ↓")
    page.mouse.move(*cell_center(page, "Attention matrix", (1, 2), weights.shape))
    expect(find_panel(page, "Attention matrix").locator(".readout")).to_contain_text(f"{weights[1, 2]:.4f}")
    expect(find_panel(page, "Attention matrix").locator(".cross")).to_have_count(2)
    expect(find_panel(page, "Attention links").locator(".readout")).to_contain_text("Step 2,")
    expect(find_panel(page, "Output steps").locator(".step.pointed")).to_have_attribute(
        "aria-label", re.compile("^Step 2:")
    )


def test_matrix_scale_changes_colors(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    picture = "canvas => canvas.toDataURL()"
    canvas = find_panel(page, "Attention matrix").locator("canvas")
    before = canvas.evaluate(picture)
    find_panel(page, "Attention matrix").get_by_role("button", name="row maximum").click()
    assert canvas.evaluate(picture) != before
    assert page.url.endswith("scale=row")


def test_monotone_alignment_is_drawn_on_request(open_page: OpenPage, server_url: str) -> None:
    page, trace = open_page(server_url), page_examples()[0].traces[0]
    chunks = [chunk for chunk in trace.alignment if chunk[1] > chunk[0] and chunk[3] > chunk[2]]
    matrix, links = (find_panel(page, f"Attention {name}") for name in ("matrix", "links"))
    expect(matrix.locator("rect.aligned")).to_have_count(0)
    matrix.get_by_role("button", name="Monotone alignment").click()
    expect(matrix.locator("rect.aligned")).to_have_count(len(chunks))
    expect(links.get_by_role("button", name="Monotone alignment")).to_have_attribute("aria-pressed", "true")
    num_links = sum((stop - start) * (last - first) for start, stop, first, last in chunks)
    expect(links.locator("g.aligned path")).to_have_count(num_links)
    shape = decode_array(trace.attention).shape
    center = cell_center(page, "Attention matrix", (chunks[0][2], chunks[0][0]), shape)
    box = matrix.locator("rect.aligned").first.bounding_box()
    assert box is not None
    assert box["x"] < center[0] < box["x"] + box["width"] and box["y"] < center[1] < box["y"] + box["height"]
    links.get_by_role("button", name="Monotone alignment").click()
    expect(page.locator(".aligned path, rect.aligned")).to_have_count(0)


def test_links_show_their_share_and_the_slider_changes_it(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    links_panel = find_panel(page, "Attention links")
    share_text = links_panel.locator(".share")
    links, share = re.findall(r"(\d+) links with (\d+) %", share_text.inner_text())[0]
    expect(links_panel.locator("g.links path")).to_have_count(int(links))
    assert int(share) >= 95
    links_panel.get_by_role("slider").fill("0.5")
    fewer_links, lower_share = re.findall(r"(\d+) links with (\d+) %", share_text.inner_text())[0]
    assert int(fewer_links) < int(links) and 50 <= int(lower_share) <= int(share)


def test_click_locks_a_step_and_adds_it_to_the_address(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    step = find_panel(page, "Output steps").locator(".step").nth(1)
    step.click()
    page.mouse.move(0, 0)
    expect(find_panel(page, "Attention matrix").locator(".cross")).to_have_count(1)
    assert "step=1" in page.url
    page.keyboard.press("Escape")
    expect(find_panel(page, "Attention matrix").locator(".cross")).to_have_count(0)
    assert "step=" not in page.url


def test_touch_locks_a_symbol(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    picture = find_panel(page, "Attention links").get_by_role("application")
    picture.dispatch_event("click", {"clientX": 0, "clientY": 0})
    box = picture.bounding_box()
    assert box is not None
    symbol = find_panel(page, "Attention links").locator("text").last.bounding_box()
    assert symbol is not None
    page.mouse.click(symbol["x"] + symbol["width"] / 2, symbol["y"] + symbol["height"] / 2)
    expect(find_panel(page, "Attention links").get_by_role("button", name="unlock selection")).to_be_visible()


def test_steps_show_probability_entropy_and_candidates(open_page: OpenPage, server_url: str) -> None:
    index, item = first_wrong_example()
    page, trace = open_page(example_address(server_url, index)), item.traces[0]
    steps = find_panel(page, "Output steps").locator(".step")
    expect(steps).to_have_count(len(trace.target))
    bits = decode_array(trace.entropy)
    assert f"{bits[0]:.2f}" in steps.first.inner_text()
    steps.first.hover()
    candidates = find_panel(page, "Output steps").locator(".choices li")
    expect(candidates).to_have_count(5)
    expected = next((edit.expected for edit in item.edits if edit.kind == "substitution"), None)
    if expected is not None:
        expect(find_panel(page, "Output steps").locator(".expected").first).to_have_text(expected)


def test_error_explanation_is_shown_first(open_page: OpenPage, server_url: str) -> None:
    index, _ = first_wrong_example()
    page = open_page(example_address(server_url, index))
    result = page.locator(".picked .example-result").first
    expect(result).to_contain_text("Wrong:")
    expect(result).to_contain_text("Maximum attention: position")


def test_first_error_of_a_long_output_is_visible(open_page: OpenPage, tmp_path: Path) -> None:
    size = 80
    trace = page_trace_without_model(make_trace("a" * size, [*"b" * (size - 1), END], [[1 / size] * size] * size))
    edits = [EditOperation(kind="same", step=step, expected=symbol) for step, symbol in enumerate(trace.target)]
    edits[60] = EditOperation(kind="substitution", step=60, expected="c")
    reference = "b" * 60 + "c" + "b" * 18
    item = PageExample(
        text="a" * size, features=[], traces=[trace], references=[reference], edits=edits, errors=1, exact=False
    )
    modified_contents = msgspec.structs.replace(digits_page_data(served=False, beam_size=3).contents, examples=[item])
    (tmp_path / "page.html").write_text(export_page(modified_contents), encoding="utf-8")
    page = open_page((tmp_path / "page.html").as_uri())
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        expect(page.locator(".example-result td.substitution").first).to_be_in_viewport()
        expect(find_panel(page, "Output steps").locator(".step.here")).to_have_attribute(
            "aria-label", re.compile("^Step 61:")
        )
        assert is_in_scroll_view(find_panel(page, "Output steps").locator(".step.here"))


def is_in_scroll_view(element: Locator) -> bool:
    """Return whether an element is inside the visible part of its scroll container."""
    script = """each => {
        const [inner, outer] = [each, each.closest('.scroll')].map(one => one.getBoundingClientRect());
        return inner.left >= outer.left && inner.right <= outer.right;
    }"""
    return bool(element.evaluate(script))


def test_typed_source_is_decoded_while_typing(open_page: OpenPage, server_url: str) -> None:
    page, item = open_page(server_url), page_examples()[3]
    page.get_by_role("searchbox", name="Source to decode").press_sequentially(item.text)
    expect(page.get_by_role("radio").first).to_contain_text(item.traces[0].output)
    expect(page.locator(".picked .example-result")).to_have_text(f"output {item.traces[0].output}")
    expect(find_panel(page, "Attention links").get_by_role("application")).to_have_attribute(
        "aria-label", re.compile(f"^Links from {len(item.text)} source positions")
    )


def test_list_is_sorted_filtered_and_navigated(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    page.get_by_label("Filter by correctness").select_option("wrong")
    expect(page.locator(".filters [role=status]")).to_contain_text(
        f"{sum(not item.exact for item in page_examples())} of"
    )
    assert (
        visible_source_texts(page)
        == [item.text for item in page_examples() if not item.exact][: len(visible_source_texts(page))]
    )
    page.get_by_label("Filter by correctness").select_option("all")
    page.get_by_label("Sort by").select_option("length")
    lengths = [len(text) for text in visible_source_texts(page)]
    assert lengths == sorted(lengths)
    page.get_by_role("button", name="Ascending order").click()
    lengths = [len(text) for text in visible_source_texts(page)]
    assert lengths == sorted(lengths, reverse=True)
    page.get_by_role("searchbox", name="Regular expression").fill("^(one|two)")
    assert visible_source_texts(page) and all(re.match("one|two", text) or text for text in visible_source_texts(page))
    page.get_by_role("searchbox", name="Regular expression").fill("(")
    expect(page.get_by_role("alert")).to_contain_text("Invalid regular expression")


def test_filters_report_crossed_bounds_and_hidden_examples(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page(exported_page_url)
    page.get_by_label("Minimum source length").fill("9")
    page.get_by_label("Maximum source length").fill("5")
    status = page.locator(".filters [role=status]")
    expect(status).to_contain_text("; the minimum exceeds the maximum; the shown example is not listed")
    page.get_by_role("button", name="Show all examples").click()
    expect(status).not_to_contain_text(";")


def test_j_and_k_move_through_the_list(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    selected_source = page.get_by_role("option", selected=True).locator(".source")
    expect(selected_source).to_have_text(page_examples()[0].text)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(selected_source).to_have_text(page_examples()[2].text)
    page.keyboard.press("k")
    expect(selected_source).to_have_text(page_examples()[1].text)


def test_every_hypothesis_has_its_attention(open_page: OpenPage, server_url: str) -> None:
    index = next(index for index, item in enumerate(page_examples()) if len(item.traces) == 3)
    page = open_page(example_address(server_url, index))
    for number, trace in enumerate(page_examples()[index].traces):
        page.get_by_role("radio").nth(number).click()
        weights = decode_array(trace.attention)
        page.mouse.move(*cell_center(page, "Attention matrix", (0, 1), weights.shape))
        expect(find_panel(page, "Attention matrix").locator(".readout")).to_contain_text(f"{weights[0, 1]:.4f}")


@pytest.mark.slow
def test_beam_node_shows_its_attention(open_page: OpenPage, server_url: str) -> None:
    page, beam = open_page(server_url), page_examples()[0].traces[0].search_tree
    assert beam is not None
    open_tab(page, "Beam")
    nodes = find_panel(page, "Beam search tree").locator("g[data-node]")
    expect(nodes).to_have_count(len(beam.symbols))
    for status, label in (("kept", "kept"), ("ended", "finished"), ("pruned", "pruned")):
        matching_nodes = [
            node_index
            for node_index, node_fate in enumerate(beam.statuses)
            if node_fate == status and beam.parents[node_index] >= 0 and node_index != beam.leaf
        ]
        node = matching_nodes[0]
        find_panel(page, "Beam search tree").locator(f"g[data-node='{node}']").click()
        expect(find_panel(page, "Beam search tree").locator("[aria-live]")).to_contain_text(label)
        weights = decode_array(beam.attention)[beam.attention_rows[node]]
        depth = len(path_to_node(beam.parents, node))
        page.mouse.move(
            *cell_center(page, "Attention of the selected hypothesis", (depth - 1, 1), (depth, len(weights)))
        )
        expect(find_panel(page, "Attention of the selected hypothesis").locator(".readout")).to_contain_text(
            f"{depth},"
        )
        expect(find_panel(page, "Attention of the selected hypothesis").locator(".readout")).to_contain_text(
            f"{weights[1]:.4f}"
        )
        assert f"node={node}" in page.url
        find_panel(page, "Beam search tree").locator(f"g[data-node='{node}']").click()


@pytest.mark.slow
def test_beam_describes_the_path_of_the_reference(open_page: OpenPage, server_url: str) -> None:
    index, wrong_example = first_wrong_example()
    beam, expected_symbols = (
        wrong_example.traces[0].search_tree,
        [edit.expected for edit in wrong_example.edits if edit.expected is not None],
    )
    assert beam is not None
    paths = [path_to_node(beam.parents, node) for node in range(len(beam.symbols))]
    longest_shared_path = max(
        (
            path
            for path in paths
            if expected_symbols[: len(path)] == [beam.symbols[example_address] for example_address in path]
        ),
        key=len,
    )
    page = open_page(example_address(server_url, index))
    open_tab(page, "Beam")
    description = find_panel(page, "Beam search tree").get_by_text("The expected output")
    status = (
        "is in the beam too"
        if len(longest_shared_path) == len(expected_symbols)
        else "pruned"
        if beam.statuses[longest_shared_path[-1]] == "pruned"
        else "left the"
    )
    expect(description).to_contain_text(status)
    # The end symbol adds one node.
    expect(find_panel(page, "Beam search tree").locator("path.expected")).to_have_count(
        len(longest_shared_path) + (status == "is in the beam too")
    )
    expect(
        find_panel(page, "Beam search tree").locator(f"g[data-node='{longest_shared_path[0]}'] path.expected")
    ).to_have_count(1)
    correct_index = next(
        example_address
        for example_address, item in enumerate(page_examples())
        if item.exact and item.traces[0].search_tree
    )
    page = open_page(f"{example_address(server_url, correct_index)}&tab=beam")
    expect(find_panel(page, "Beam search tree").locator("g[data-node]").first).to_be_visible()
    expect(find_panel(page, "Beam search tree").get_by_text("The expected output")).to_have_count(0)


def path_to_node(parents: list[int], node: int) -> list[int]:
    """Return the nodes from the root to a node."""
    return [node] if parents[node] < 0 else [*path_to_node(parents, parents[node]), node]


def tab_to(page: Page, max_presses: int, role: str, name: str) -> None:
    """Press Tab until the element with this role and name has the focus."""
    for _ in range(max_presses):
        page.keyboard.press("Tab")
        script = (
            "([role, name]) => { const element = document.activeElement; return element.getAttribute('role') === role"
        )
        if page.evaluate(f"{script} && element.getAttribute('aria-label').startsWith(name) }}", [role, name]):
            return
    raise AssertionError(f"no {role} {name!r} within {max_presses} presses of Tab")


@pytest.mark.slow
def test_keyboard_reaches_example_matrix_and_what_if(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    expect(visible_examples(page).first).to_be_visible()
    page.keyboard.press("j")
    tab_to(page, 40, "application", "Heat map")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(find_panel(page, "Attention matrix").locator("[aria-live]")).to_contain_text("Step 2,")
    expect(find_panel(page, "Attention matrix").get_by_role("button", name="unlock selection")).to_be_visible()
    page.keyboard.press("Escape")
    assert_cell_is_announced(page, "Attention matrix")
    page.get_by_role("tab", name="Examples").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="What if")).to_be_focused()
    # The server computes the outputs of this tab: without them there is no slider to reach.
    expect(page.get_by_role("slider", name=re.compile("^Attention of step")).first).to_be_visible(timeout=30_000)
    tab_to(page, 90, "slider", "Attention of step")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".sentence")).to_contain_text("attention of step")


def test_address_restores_the_view(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#tab=beam&example=4&node=2")
    expect(page.get_by_role("tab", name="Beam")).to_have_attribute("aria-selected", "true")
    open_tab(page, "Examples")
    find_panel(page, "Output steps").locator(".step").nth(1).click()
    find_panel(page, "Attention matrix").get_by_role("button", name="row maximum").click()
    restored_page = open_page(page.url)
    expect(restored_page.get_by_role("option", selected=True).locator(".source")).to_have_text(page_examples()[4].text)
    expect(find_panel(restored_page, "Output steps").locator(".step.pointed")).to_have_attribute(
        "aria-label", re.compile("^Step 2:")
    )
    expect(find_panel(restored_page, "Attention matrix").get_by_role("button", name="row maximum")).to_have_attribute(
        "aria-pressed", "true"
    )


def test_weights_have_a_table_and_pictures_have_names(open_page: OpenPage, server_url: str) -> None:
    page, trace = open_page(server_url), page_examples()[0].traces[0]
    find_panel(page, "Attention matrix").get_by_role("button", name="Weights as table").click()
    assert page.get_by_role("region", name="Weights as a table").locator("td").count() == (
        len(trace.source) * len(trace.target)
    )
    count_unnamed = (
        "all => all.filter(each => !each.getAttribute('aria-label') && !each.closest('[aria-hidden]')).length"
    )
    for title in ("Examples", "Beam", "What if", "Corpus", "States", "Training"):
        open_tab(page, title)
        assert page.locator("svg[role], [role=application]").evaluate_all(count_unnamed) == 0


def test_every_view_states_its_limits(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    for title, words in {
        "Attention links": "not which positions",
        "Output steps": "may be wrong",
        "Attention matrix": "not which positions",
    }.items():
        find_panel(page, title).get_by_text("Explanation", exact=True).click()
        expect(find_panel(page, title).get_by_text(words)).to_be_visible()
    open_tab(page, "Beam")
    expect(find_panel(page, "Beam search tree").locator(".more")).to_contain_text("never considered is not shown")
    open_tab(page, "About")
    expect(find_panel(page, "Limits of interpretation")).to_contain_text("Jain and Wallace 2019")


def test_unsure_outputs_are_listed_first_with_their_line_and_id(open_page: OpenPage, tmp_path: Path) -> None:
    confidences = [0.9, None, 0.2]
    examples = [
        PageExample(
            text=f"source {line}",
            features=[],
            traces=[msgspec.structs.replace(page_examples()[0].traces[0], confidence=confidence)],
            references=[],
            line=line,
            row_id=f"P-{line}",
        )
        for line, confidence in enumerate(confidences, start=2)
    ]
    contents = msgspec.structs.replace(
        digits_page_data(beam_size=3).contents, examples=examples, num_examples=3, compared_runs=[], served=False
    )
    path = tmp_path / "page.html"
    path.write_text(export_page(contents), encoding="utf-8")
    page = open_page(path.as_uri())
    rows = page.locator(".row")
    expect(rows.locator(".place")).to_have_text(["line 2, id P-2", "line 3, id P-3", "line 4, id P-4"])
    page.get_by_label("Sort by").select_option("confidence, lowest first")
    expect(rows.locator(".place")).to_have_text(["line 4, id P-4", "line 2, id P-2", "line 3, id P-3"])
    expect(rows.first).to_contain_text("20 %")
    page.get_by_role("searchbox", name="Regular expression").fill("P-2$")
    expect(rows.locator(".place")).to_have_text(["line 2, id P-2"])


def test_wrong_outputs_can_be_listed_first(open_page: OpenPage, tmp_path: Path) -> None:
    examples = [
        PageExample(
            text=f"source {line}",
            features=[],
            traces=[msgspec.structs.replace(page_examples()[0].traces[0], confidence=confidence)],
            references=["1"],
            exact=exact,
            line=line,
        )
        for line, (exact, confidence) in enumerate([(True, 0.9), (False, 0.8), (True, 0.1), (False, 0.3)], start=1)
    ]
    contents = msgspec.structs.replace(
        digits_page_data(beam_size=3).contents, examples=examples, num_examples=4, compared_runs=[], served=False
    )
    path = tmp_path / "page.html"
    path.write_text(export_page(contents), encoding="utf-8")
    page = open_page(path.as_uri())
    expect(page.get_by_text("Sort by", exact=True)).to_be_visible()
    page.get_by_label("Sort by").select_option("wrong first, least confident first")
    expect(page.locator(".row .place")).to_have_text(["line 4", "line 2", "line 3", "line 1"])
    expect(page.locator(".row").first).to_contain_text("30 %")


def test_title_of_a_long_source_names_the_attribution(open_page: OpenPage, tmp_path: Path) -> None:
    source = "ab" * 31
    trace = page_trace_without_model(make_trace(source, ["A", END], [[1] + [0] * 61, [0] * 61 + [1]]))
    assert not isinstance(trace.attention, list)
    attribution = AttributionArrays(
        occlusion=trace.attention,
        input_x_gradient=trace.attention,
        occlusion_correlation=0.5,
        input_x_gradient_correlation=0.5,
    )
    item = PageExample(
        text=source, features=[], traces=[msgspec.structs.replace(trace, attribution=attribution)], references=[]
    )
    contents = msgspec.structs.replace(
        digits_page_data(beam_size=3).contents, examples=[item], num_examples=1, compared_runs=[], served=False
    )
    path = tmp_path / "page.html"
    path.write_text(export_page(contents), encoding="utf-8")
    page = open_page(path.as_uri())
    for layer in ("attention", "occlusion", "gradient"):
        page.get_by_role("button", name=layer, exact=True).click()
        expect(page.get_by_role("heading", name=f"{layer.capitalize()} of step 1 over the source")).to_be_visible()
