"""Corpus and training tabs."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from chromium import OpenPage
from page_data import (
    copy_model_files,
    digits_page_data,
    make_interrupted_run,
    make_run_without_model,
    pending_page_data,
    resume_training,
)
from page_navigation import assert_cell_is_announced, download_panel, find_panel, open_tab, visible_examples
from page_runs import pronunciation_page_data
from playwright.sync_api import expect
from sample_traces import make_trace
from saved_files import read_csv_lines

from pellucid.decoding.trace import END
from pellucid.decoding.trace_schema import decode_array
from pellucid.run_folder.lock import lock_run_folder
from pellucid.run_folder.log import read_log
from pellucid.training.snapshots import read_snapshots
from pellucid.viewer.examples import page_trace_without_model
from pellucid.viewer.inputs import open_run
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import ConfusionCount, PageContents
from pellucid.viewer.server import background_server, create_app


def page_contents() -> PageContents:
    return digits_page_data(beam_size=3).contents


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 390])
def test_shortest_and_longest_sources_are_labeled(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    corpus = page_contents().corpus
    assert corpus is not None
    labels = ["84–94", "95–96", "97", "102–103", "104–1111"]
    lengths = [
        msgspec.structs.replace(group, label=label) for group, label in zip(corpus.lengths, labels, strict=False)
    ]
    modified_contents = msgspec.structs.replace(
        page_contents(), compared_runs=[], corpus=msgspec.structs.replace(corpus, lengths=lengths)
    )
    (tmp_path / "page.html").write_text(
        export_page(msgspec.structs.replace(modified_contents, served=False)), encoding="utf-8"
    )
    page = open_page((tmp_path / "page.html").as_uri())
    page.set_viewport_size({"width": width, "height": 900})
    open_tab(page, "Corpus")
    chart = find_panel(page, "Accuracy by source length").get_by_role("slider")
    chart_box = chart.bounding_box()
    for label in (labels[0], labels[-1]):
        box = chart.get_by_text(label, exact=True).bounding_box()
        assert (
            chart_box
            and box
            and chart_box["x"] <= box["x"]
            and box["x"] + box["width"] <= chart_box["x"] + chart_box["width"] + 1
        )


def test_chart_mark_opens_its_examples(open_page: OpenPage, exported_page_url: str) -> None:
    corpus = page_contents().corpus
    assert corpus is not None
    for title, groups in {
        "Accuracy by target position": corpus.positions,
        "Accuracy by source length": corpus.lengths,
    }.items():
        page = open_page(exported_page_url)
        open_tab(page, "Corpus")
        chart = find_panel(page, title).get_by_role("slider")
        chart.focus()
        group = next(group for group in groups if group.example_indices)
        for _ in range([each.label for each in groups if each.total].index(group.label) + 1):
            page.keyboard.press("ArrowRight")
        expect(find_panel(page, title)).to_contain_text(f"{group.correct} of {group.total} correct")
        page.keyboard.press("Enter")
        expect(page.get_by_role("tab", name="Examples")).to_have_attribute("aria-selected", "true")
        expect(page.locator(".only")).to_contain_text(f"{group.label}")
        assert visible_examples(page).count() == len(group.example_indices)
        page.get_by_role("button", name="Show all examples").click()


def test_confusion_opens_its_examples(open_page: OpenPage, exported_page_url: str) -> None:
    corpus = page_contents().corpus
    assert corpus is not None
    page, confusion = open_page(exported_page_url), next(each for each in corpus.confusions if each.example_indices)
    open_tab(page, "Corpus")
    page.get_by_role("button", name=describe_confusion_with_count(confusion)).first.click()
    expect(page.get_by_role("listbox")).to_be_focused()
    assert visible_examples(page).count() == len(confusion.example_indices)
    expect(page.locator(".only")).to_contain_text(describe_confusion(confusion))
    shared_page = open_page(page.url)
    expect(shared_page.locator(".only")).to_have_text(page.locator(".only").inner_text())
    assert visible_examples(shared_page).count() == len(confusion.example_indices)
    shared_page.get_by_role("button", name="Show all examples").click()
    expect(shared_page.get_by_role("listbox")).to_be_focused()
    expect(shared_page.locator(".only")).to_have_count(0)
    assert "confusion" in page.url and "confusion" not in shared_page.url
    page.go_back()
    open_tab(page, "Examples")
    expect(page.locator(".only")).to_have_count(0)


def describe_confusion_with_count(confusion: ConfusionCount) -> str:
    """Describe a confusion with its count, and with the count of the expected symbol unless it is an insertion."""
    return f"{describe_confusion(confusion)}: {confusion.count}" + (
        f" of {confusion.num_expected}" if confusion.expected else ""
    )


def describe_confusion(confusion: ConfusionCount) -> str:
    """Describe a confusion in the words of the page."""
    predicted, expected = (
        "nothing" if symbol is None else f"“{symbol}”" for symbol in (confusion.predicted, confusion.expected)
    )
    return f"{predicted} instead of {expected}"


@pytest.fixture(scope="module", params=["served", "file"])
def many_errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a page with many errors, from a server and as a file."""
    if request.param == "served":
        with background_server(create_app(pronunciation_page_data())) as address:
            yield address
    else:
        path = tmp_path_factory.mktemp("pronunciation") / "page.html"
        path.write_text(export_page(pronunciation_page_data(served=False).contents), encoding="utf-8")
        yield path.as_uri()


@pytest.mark.slow
def test_error_shows_its_count_and_opens_its_examples(open_page: OpenPage, many_errors: str) -> None:
    contents = pronunciation_page_data(served=False).contents
    corpus, num_rare = contents.corpus, 0
    assert corpus is not None
    confusions = {(each.expected, each.predicted): each for each in corpus.confusions}
    is_deletion_tested = set[bool]()
    page = open_page(many_errors)
    for index, item in enumerate(contents.examples):
        symbols = [*item.traces[0].target]
        pairs = [(e.expected, None if e.step is None else symbols[e.step]) for e in item.edits if e.kind != "same"]
        frequent_pairs = list(dict.fromkeys(pair for pair in pairs if confusions[pair].count > 1))[:3]
        num_rare += len(frequent_pairs) < len(set(pairs)) <= 3
        if frequent_pairs and is_deletion_tested >= {predicted is None for _, predicted in frequent_pairs}:
            continue
        page.goto(f"{many_errors}#example={index}")
        links = page.locator(".kinds button")
        expect(page.locator(".picked .source, .example-result").first).to_be_visible()
        descriptions = [
            f"{describe_confusion(confusions[pair])}: {confusions[pair].count} times in the file"
            for pair in frequent_pairs
        ]
        expect(links).to_have_text(descriptions)
        for number, pair in enumerate(frequent_pairs):
            is_deletion_tested.add(pair[1] is None)
            links.nth(number).click()
            expect(visible_examples(page)).to_have_count(len(confusions[pair].example_indices))
            expect(page.locator(".only")).to_have_text(f"Only: {describe_confusion_with_count(confusions[pair])}")
            expect(page.locator(".row.selected")).to_have_attribute("id", f"example-{index}")
            page.get_by_role("button", name="Show all examples").click()
        if is_deletion_tested == {True, False} and num_rare:
            break
    assert is_deletion_tested == {True, False} and num_rare, (
        "the test needs a deletion, another error, and an error that occurs once"
    )


def test_attention_statistics_have_definitions(open_page: OpenPage, exported_page_url: str) -> None:
    corpus = page_contents().corpus
    assert corpus is not None
    page = open_page(exported_page_url)
    open_tab(page, "Corpus")
    statistics = find_panel(page, "Attention statistics")
    statistics.get_by_role("button", name=f"Show all {len(corpus.alignment)} statistics").click()
    for statistic in corpus.alignment:
        expect(statistics).to_contain_text(statistic.definition)
    names = {statistic.name for statistic in corpus.alignment}
    assert {"entropy", "monotonicity", "conicity", "temporal component", "permutation effect"} <= names
    assert statistics.get_by_role("img").count() == len(corpus.distributions)
    assert corpus.mean_attention is not None
    mean = decode_array(corpus.mean_attention)
    statistics.get_by_role("application").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(statistics.locator("[aria-live]")).to_have_text(
        f"Tenth 2 of the source, tenth 2 of the output: {mean[1, 1]:.4f}."
    )


def test_three_attention_statistics_are_shown_at_first(
    open_page: OpenPage, exported_page_url: str, tmp_path: Path
) -> None:
    corpus = page_contents().corpus
    assert corpus is not None and len(corpus.alignment) > 3
    page = open_page(exported_page_url)
    open_tab(page, "Corpus")
    statistics = find_panel(page, "Attention statistics")
    expect(statistics.locator("tbody .name")).to_have_text(["entropy", "permutation effect", "conicity"])
    saved = json.loads(download_panel(page, "Attention statistics", "JSON", tmp_path))
    assert [each["name"] for each in saved["statistics"]] == [statistic.name for statistic in corpus.alignment]
    assert len(read_csv_lines(download_panel(page, "Attention statistics", "CSV", tmp_path))) == 1 + len(
        corpus.alignment
    )
    statistics.get_by_role("button", name="Show all").click()
    expect(statistics.locator("tbody .name")).to_have_count(len(corpus.alignment))
    statistics.get_by_role("button", name="Show fewer statistics").click()
    expect(statistics.locator("tbody .name")).to_have_count(3)


def test_tables_fit_a_narrow_page(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    page.set_viewport_size({"width": 390, "height": 800})
    for view, title, cell in (
        ("Corpus", "Attention statistics", ".interval"),
        ("What if", "Probabilities before and after", "td"),
    ):
        open_tab(page, view)
        expect(find_panel(page, title).locator(cell).first).to_be_visible()
        if view == "Corpus":
            find_panel(page, title).get_by_role("button", name="Show all").click()
        expect(find_panel(page, title)).to_contain_text("absentmindedness, output" if view == "Corpus" else "KL")
        overflow = (
            find_panel(page, title).locator(".scroll").first.evaluate("each => each.scrollWidth - each.clientWidth")
        )
        assert overflow <= 0


@pytest.mark.slow
def test_snapshot_player_shows_all_snapshots(open_page: OpenPage, exported_page_url: str, tmp_path: Path) -> None:
    training = page_contents().training
    assert training is not None and len(training.frames) > 2
    page = open_page(exported_page_url)
    open_tab(page, "Training")
    player, slider = (
        find_panel(page, "Training snapshots"),
        page.get_by_role("slider", name="Validation whose"),
    )
    expect(player).to_contain_text(f"{len(training.frames)} of {len(training.frames)}")
    slider.focus()
    pictures = set[str]()
    for number in reversed(range(len(training.frames))):
        expect(player.locator(".reel")).to_contain_text(f"{number + 1} of {len(training.frames)}")
        expect(player.locator(".output")).to_contain_text(training.frames[number].probes[0].output)
        pictures.add(player.locator("canvas").evaluate("canvas => canvas.toDataURL()"))
        page.keyboard.press("ArrowLeft")
    assert len(pictures) > 1
    assert_cell_is_announced(page, "Training snapshots")
    slider.focus()
    before = player.locator("figure circle").first.get_attribute("cx")
    page.keyboard.press("ArrowRight")
    expect(player.locator("figure circle").first).not_to_have_attribute("cx", before or "")
    for name in ("Save attention animation", "Save source embedding animation", "Save target embedding animation"):
        with page.expect_download() as download:
            player.get_by_role("button", name=name).click()
        download.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_text("utf-8").count("<animate") > 0
    player.get_by_role("button", name="Play").click()
    expect(player).to_contain_text(f"{len(training.frames)} of {len(training.frames)}")


def test_saved_animation_has_the_color_scale_of_the_page(open_page: OpenPage, tmp_path: Path) -> None:
    contents = digits_page_data(served=False, beam_size=3).contents
    assert contents.training is not None
    trace = page_trace_without_model(make_trace("abcdefghij" * 2, ["x", END], [[0.24] + [0.04] * 19] * 2))
    frames = [msgspec.structs.replace(each, probes=[trace]) for each in contents.training.frames]
    training = msgspec.structs.replace(contents.training, frames=frames)
    (tmp_path / "page.html").write_text(
        export_page(msgspec.structs.replace(contents, training=training)), encoding="utf-8"
    )
    page = open_page((tmp_path / "page.html").as_uri())
    open_tab(page, "Training")
    player = find_panel(page, "Training snapshots")
    expect(player).to_contain_text("scaled to the maximum of each row")
    with page.expect_download() as download:
        player.get_by_role("button", name="Save attention", exact=True).click()
    download.value.save_as(tmp_path / "frame.svg")
    svg = (tmp_path / "frame.svg").read_text("utf-8")
    assert "scaled by row" in svg
    assert set(re.findall(r' opacity="([\d.]+)"', svg)) == {"1.00", "0.17"}


@pytest.mark.slow
def test_running_training_is_followed(open_page: OpenPage, tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")

    def load_page_data() -> PageData:
        """Return the page data of the current state of the run."""
        return assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)

    with background_server(create_app(load_page_data(), load_page_data)) as address:
        page = open_page(address)
        open_tab(page, "Training")
        state = page.locator(".state")
        newest_button = page.get_by_role("button", name="Load the newest checkpoint")
        interrupted_message = re.compile("interrupted after [0-9]+ of [0-9]+ updates; the same command resumes it")
        expect(state).to_contain_text(interrupted_message)
        expect(page.locator("header .name")).to_contain_text("This page shows the checkpoint of update")
        with lock_run_folder(folder):
            expect(state).to_contain_text("Training:")
        expect(newest_button).to_have_count(0)
        requested_urls = list[str]()
        page.on("request", lambda request: requested_urls.append(request.url))
        num_snapshots = len(read_snapshots(folder))
        training_thread = Thread(target=lambda: resume_training(folder), daemon=True)
        training_thread.start()
        expect(state).to_contain_text("Training is finished", timeout=60_000)
        training_thread.join(60)
        assert len(read_snapshots(folder)) > num_snapshots
        expect(find_panel(page, "Training snapshots").locator(".reel")).to_contain_text(
            f"of {len(read_snapshots(folder))}"
        )
        assert requested_urls == []  # the stream is already open: the page fetches nothing twice
        newest_button.click()
        expect(page.locator("header .name")).not_to_contain_text("This page shows the checkpoint of update")
        expect(state).to_contain_text("Training is finished")


@pytest.mark.slow
def test_a_file_damaged_while_the_page_is_open_is_reported_once(open_page: OpenPage, tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")
    page_data = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    with background_server(create_app(page_data)) as address:
        page = open_page(address)
        open_tab(page, "Training")
        expect(page.locator(".state")).to_contain_text("interrupted")
        requested_urls = list[str]()
        page.on("request", lambda request: requested_urls.append(request.url))
        (folder / "log.jsonl").unlink()
        (folder / "log.jsonl").mkdir()
        expect(page.get_by_role("alert")).to_contain_text("New records are no longer shown")
        expect(page.get_by_role("alert")).to_contain_text("log.jsonl: is a directory")
        page.wait_for_timeout(5000)  # a browser requests a stream that ends again after three seconds
        assert requested_urls == []
        page.close()  # closed before the server whose stream it reads


def test_updates_are_shown_if_the_log_ends_with_the_pair_ngram_model(open_page: OpenPage, tmp_path: Path) -> None:
    contents = digits_page_data(served=False, beam_size=3).contents
    assert contents.training is not None
    stopped = next(record for record in contents.training.log if record["event"] == "stopped")
    weighted = {"event": "interpolated", "weight": 0.5, "exact_match": 99.0, "network_exact_match": 98.0, "sources": 9}
    training = msgspec.structs.replace(contents.training, log=[*contents.training.log, weighted])
    path = tmp_path / "page.html"
    path.write_text(export_page(msgspec.structs.replace(contents, training=training)), encoding="utf-8")
    page = open_page(path.as_uri())
    open_tab(page, "Training")
    expect(page.locator(".state")).to_contain_text(f"Training is finished: {stopped['update']} updates in ")


@pytest.mark.slow
def test_training_is_followed_before_its_first_record(open_page: OpenPage, tmp_path: Path) -> None:
    trained_run = make_interrupted_run(tmp_path / "whole")
    folder = make_run_without_model(tmp_path / "run", trained_run)
    page_data = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    with background_server(create_app(page_data)) as address, lock_run_folder(folder):
        page = open_page(address)
        expect(page.locator("main")).to_contain_text("see Training")
        open_tab(page, "Training")
        expect(page.locator(".state")).to_have_text("Training: 0 updates; no record yet.")
        (folder / "log.jsonl").write_text('{"event": "compiling"}\n', encoding="utf-8")
        expect(page.locator(".state")).to_contain_text("compiling kernels")
        open_tab(page, "Examples")
        expect(page.locator("main")).to_contain_text("Compiling kernels")
        open_tab(page, "Training")
        shutil.copytree(trained_run / "snapshots", folder / "snapshots")
        shutil.copy(trained_run / "log.jsonl", folder)
        expect(find_panel(page, "Loss")).to_be_visible()
        expect(find_panel(page, "Training snapshots").locator(".reel")).to_contain_text("of 2")
        page.reload()
        open_tab(page, "Training")
        expect(find_panel(page, "Training snapshots").locator(".reel")).to_contain_text("of 2")
        page.close()  # closed before the server whose stream it reads


@pytest.mark.slow
def test_first_checkpoint_is_loaded_automatically(open_page: OpenPage, tmp_path: Path) -> None:
    trained_run = make_interrupted_run(tmp_path / "whole")
    folder = make_run_without_model(tmp_path / "run", trained_run)
    with (
        background_server(create_app(pending_page_data(folder), lambda: pending_page_data(folder))) as address,
        lock_run_folder(folder),
    ):
        first_page, second_page = open_page(address), open_page(address)
        expect(first_page.locator("h1")).to_have_text("run on dev.tsv")
        for name in ("Beam", "What if", "States", "Examples"):
            open_tab(first_page, name)
            expect(first_page.locator("main")).to_contain_text("No model yet. The page will show")
            expect(first_page.locator("main")).to_contain_text("the examples of dev.tsv")
        open_tab(second_page, "About")
        expect(second_page.get_by_role("row", name="best validation")).to_have_count(0)
        open_tab(second_page, "Training")
        copy_model_files(folder, trained_run)
        expect(visible_examples(first_page).first).to_be_visible()
        expect(first_page.locator("header .name")).not_to_contain_text("No model yet")
        expect(second_page.get_by_role("tab", name="Training")).to_have_attribute("aria-selected", "true")
        expect(find_panel(second_page, "Training snapshots").locator(".reel")).to_contain_text("of 2")
        validated = [line for line in read_log(folder) if line["event"] == "validated"]
        lines = (folder / "log.jsonl").read_text("utf-8")
        later_record = {**validated[-1], "update": 99_999, "best": True}
        (folder / "log.jsonl").write_text(f"{lines}{json.dumps(later_record)}\n", encoding="utf-8")
        open_tab(second_page, "About")
        expect(second_page.get_by_role("row", name="best validation").first).to_contain_text("at update 99,999")
        open_tab(first_page, "What if")
        expect(find_panel(first_page, "Probabilities before and after")).to_be_visible()  # the model responds
        first_page.close()
        second_page.close()


def test_axis_has_two_labels_after_one_validation(open_page: OpenPage, tmp_path: Path) -> None:
    training = page_contents().training
    assert training is not None
    (record, *_) = [line for line in training.log if line["event"] == "validated"]
    record = {**record, "exact_match": 0.0, "symbol_accuracy": 0.0, "symbol_error_rate": 0.0}
    modified_contents = msgspec.structs.replace(
        page_contents(),
        compared_runs=[],
        served=False,
        training=msgspec.structs.replace(training, log=[record], frames=[]),
    )
    path = tmp_path / "page.html"
    path.write_text(export_page(modified_contents), encoding="utf-8")
    page = open_page(path.as_uri())
    open_tab(page, "Training")
    expect(find_panel(page, "Loss").locator("text[text-anchor=end]").nth(2)).to_be_visible()
    expect(find_panel(page, "Other measures")).to_have_count(0)
    assert find_panel(page, "Scores").locator("text[x='40']").all_text_contents() == [
        "0",
        "0.2",
        "0.4",
        "0.6",
        "0.8",
        "1",
    ]
    # The color sample of a legend entry is left of its name, not above it.
    legend_entry = find_panel(page, "Loss").locator(".legend span").first
    entry_box, swatch_box = legend_entry.bounding_box(), legend_entry.locator("svg").bounding_box()
    assert entry_box and swatch_box and swatch_box["x"] < entry_box["x"] + 5
    assert abs(swatch_box["y"] + swatch_box["height"] / 2 - entry_box["y"] - entry_box["height"] / 2) < 3
    expect(find_panel(page, "Loss").locator(".caption")).to_have_text(training.loss_caption)


def test_model_card_is_shown(open_page: OpenPage, exported_page_url: str) -> None:
    page, card = open_page(exported_page_url), page_contents().card
    assert card is not None
    page.get_by_text("Model card").click()
    for label, value in card.facts[:3]:
        expect(page.locator("header .card")).to_contain_text(label)
        expect(page.locator("header .card")).to_contain_text(value)
