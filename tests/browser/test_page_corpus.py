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
from page_navigation import assert_cell_is_announced, find_panel, open_tab, visible_examples
from page_runs import pronunciation_page_data
from playwright.sync_api import expect
from sample_traces import make_trace

from pellucid.decoding.trace import END
from pellucid.decoding.trace_schema import decode_array
from pellucid.training.run_folder import lock_run_folder, read_log
from pellucid.training.snapshots import read_snapshots
from pellucid.viewer.examples import page_trace_without_model
from pellucid.viewer.inputs import open_run
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import ConfusionCount, PageContents
from pellucid.viewer.server import background_server, create_app


def contents() -> PageContents:
    """What the page shows."""
    return digits_page_data(beam_size=3).contents


@pytest.mark.parametrize("width", [1400, 390])
def test_shortest_and_longest_sources_are_labeled(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    corpus = contents().corpus
    assert corpus is not None
    labels = ["84–94", "95–96", "97", "102–103", "104–1111"]
    lengths = [
        msgspec.structs.replace(group, label=label) for group, label in zip(corpus.lengths, labels, strict=False)
    ]
    shown = msgspec.structs.replace(
        contents(), compared_runs=[], corpus=msgspec.structs.replace(corpus, lengths=lengths)
    )
    (tmp_path / "page.html").write_text(export_page(msgspec.structs.replace(shown, served=False)), encoding="utf-8")
    page = open_page((tmp_path / "page.html").as_uri())
    page.set_viewport_size({"width": width, "height": 900})
    open_tab(page, "Corpus")
    drawn = find_panel(page, "Accuracy by source length").get_by_role("slider")
    own = drawn.bounding_box()
    for label in (labels[0], labels[-1]):
        box = drawn.get_by_text(label, exact=True).bounding_box()
        assert own and box and own["x"] <= box["x"] and box["x"] + box["width"] <= own["x"] + own["width"] + 1


def test_chart_mark_opens_its_examples(open_page: OpenPage, exported_page_url: str) -> None:
    corpus = contents().corpus
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
    corpus = contents().corpus
    assert corpus is not None
    page, most = open_page(exported_page_url), next(each for each in corpus.confusions if each.example_indices)
    open_tab(page, "Corpus")
    page.get_by_role("button", name=counted(most)).first.click()
    expect(page.get_by_role("listbox")).to_be_focused()
    assert visible_examples(page).count() == len(most.example_indices)
    expect(page.locator(".only")).to_contain_text(mistake(most))
    shared = open_page(page.url)
    expect(shared.locator(".only")).to_have_text(page.locator(".only").inner_text())
    assert visible_examples(shared).count() == len(most.example_indices)
    shared.get_by_role("button", name="Show all examples").click()
    expect(shared.get_by_role("listbox")).to_be_focused()
    expect(shared.locator(".only")).to_have_count(0)
    assert "confusion" in page.url and "confusion" not in shared.url
    page.go_back()
    open_tab(page, "Examples")
    expect(page.locator(".only")).to_have_count(0)


def counted(confusion: ConfusionCount) -> str:
    """The same with its number, of the places that wanted the symbol; nothing is expected at no place."""
    return f"{mistake(confusion)}: {confusion.count}" + (f" of {confusion.num_expected}" if confusion.expected else "")


def mistake(confusion: ConfusionCount) -> str:
    """A kind of error in the words of the page."""
    written, wanted = ("nothing" if each is None else f"“{each}”" for each in (confusion.predicted, confusion.expected))
    return f"{written} instead of {wanted}"


@pytest.fixture(scope="module", params=["served", "file"])
def sounds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page of many errors, from a service and as a file."""
    if request.param == "served":
        with background_server(create_app(pronunciation_page_data())) as found:
            yield found
    else:
        path = tmp_path_factory.mktemp("sounds") / "page.html"
        path.write_text(export_page(pronunciation_page_data(served=False).contents), encoding="utf-8")
        yield path.as_uri()


def test_error_shows_its_count_and_opens_its_examples(open_page: OpenPage, sounds: str) -> None:
    told = pronunciation_page_data(served=False).contents
    corpus, rare = told.corpus, 0
    assert corpus is not None
    known = {(each.expected, each.predicted): each for each in corpus.confusions}
    kinds = set[bool]()
    page = open_page(sounds)
    for place, item in enumerate(told.examples):
        symbols = [*item.traces[0].target]
        pairs = [(e.expected, None if e.step is None else symbols[e.step]) for e in item.edits if e.kind != "same"]
        often = list(dict.fromkeys(pair for pair in pairs if known[pair].count > 1))[:3]
        rare += len(often) < len(set(pairs)) <= 3
        if often and kinds >= {written is None for _, written in often}:
            continue
        page.goto(f"{sounds}#example={place}")
        links = page.locator(".kinds button")
        expect(page.locator(".picked .source, .verdict").first).to_be_visible()
        words = [f"{mistake(known[pair])}: {known[pair].count} times in the file" for pair in often]
        expect(links).to_have_text(words)
        for at, pair in enumerate(often):
            kinds.add(pair[1] is None)
            links.nth(at).click()
            expect(visible_examples(page)).to_have_count(len(known[pair].example_indices))
            expect(page.locator(".only")).to_have_text(f"Only: {counted(known[pair])}")
            expect(page.locator(".row.selected")).to_have_attribute("id", f"example-{place}")
            page.get_by_role("button", name="Show all examples").click()
        if kinds == {True, False} and rare:
            break
    assert kinds == {True, False} and rare, "missing and taken symbols, and errors that came but once"


def test_attention_statistics_have_definitions(open_page: OpenPage, exported_page_url: str) -> None:
    corpus = contents().corpus
    assert corpus is not None
    page = open_page(exported_page_url)
    open_tab(page, "Corpus")
    own = find_panel(page, "Attention statistics")
    for each in corpus.alignment:
        expect(own).to_contain_text(each.definition)
    names = {each.name for each in corpus.alignment}
    assert {"entropy", "monotonicity", "conicity", "temporal component", "permutation effect"} <= names
    assert own.get_by_role("img").count() == len(corpus.distributions)
    assert corpus.mean_attention is not None
    mean = decode_array(corpus.mean_attention)
    own.get_by_role("application").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(own.locator("[aria-live]")).to_have_text(f"Tenth 2 of the source, tenth 2 of the output: {mean[1, 1]:.4f}.")


def test_tables_fit_a_narrow_page(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    page.set_viewport_size({"width": 390, "height": 800})
    for view, title, cell in (
        ("Corpus", "Attention statistics", ".interval"),
        ("What if", "Probabilities before and after", "td"),
    ):
        open_tab(page, view)
        expect(find_panel(page, title).locator(cell).first).to_be_visible()
        expect(find_panel(page, title)).to_contain_text("absentmindedness, output" if view == "Corpus" else "KL")
        over = find_panel(page, title).locator(".scroll").first.evaluate("each => each.scrollWidth - each.clientWidth")
        assert over <= 0


def test_snapshot_player_shows_all_snapshots(open_page: OpenPage, exported_page_url: str, tmp_path: Path) -> None:
    training = contents().training
    assert training is not None and len(training.frames) > 2
    page = open_page(exported_page_url)
    open_tab(page, "Training")
    film, scrub = (
        find_panel(page, "Training snapshots"),
        page.get_by_role("slider", name="Validation whose"),
    )
    expect(film).to_contain_text(f"{len(training.frames)} of {len(training.frames)}")
    scrub.focus()
    pictures = set[str]()
    for number in reversed(range(len(training.frames))):
        expect(film.locator(".reel")).to_contain_text(f"{number + 1} of {len(training.frames)}")
        expect(film.locator(".output")).to_contain_text(training.frames[number].probes[0].output)
        pictures.add(film.locator("canvas").evaluate("canvas => canvas.toDataURL()"))
        page.keyboard.press("ArrowLeft")
    assert len(pictures) > 1
    assert_cell_is_announced(page, "Training snapshots")
    scrub.focus()
    before = film.locator("figure circle").first.get_attribute("cx")
    page.keyboard.press("ArrowRight")
    expect(film.locator("figure circle").first).not_to_have_attribute("cx", before or "")
    for name in ("Save attention animation", "Save source embedding animation", "Save target embedding animation"):
        with page.expect_download() as download:
            film.get_by_role("button", name=name).click()
        download.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_text("utf-8").count("<animate") > 0
    film.get_by_role("button", name="Play").click()
    expect(film).to_contain_text(f"{len(training.frames)} of {len(training.frames)}")


def test_saved_animation_has_the_color_scale_of_the_page(open_page: OpenPage, tmp_path: Path) -> None:
    shown = digits_page_data(served=False, beam_size=3).contents
    assert shown.training is not None
    trace = page_trace_without_model(make_trace("abcdefghij" * 2, ["x", END], [[0.24] + [0.04] * 19] * 2))
    frames = [msgspec.structs.replace(each, probes=[trace]) for each in shown.training.frames]
    training = msgspec.structs.replace(shown.training, frames=frames)
    (tmp_path / "page.html").write_text(
        export_page(msgspec.structs.replace(shown, training=training)), encoding="utf-8"
    )
    page = open_page((tmp_path / "page.html").as_uri())
    open_tab(page, "Training")
    film = find_panel(page, "Training snapshots")
    expect(film).to_contain_text("scaled to the maximum of each row")
    with page.expect_download() as download:
        film.get_by_role("button", name="Save attention", exact=True).click()
    download.value.save_as(tmp_path / "frame.svg")
    saved = (tmp_path / "frame.svg").read_text("utf-8")
    assert "scaled by row" in saved
    assert set(re.findall(r' opacity="([\d.]+)"', saved)) == {"1.00", "0.17"}


def test_running_training_is_followed(open_page: OpenPage, tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")

    def shown() -> PageData:
        """The run as it is now."""
        return assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)

    with background_server(create_app(shown(), shown)) as address:
        page = open_page(address)
        open_tab(page, "Training")
        state = page.locator(".state")
        newest = page.get_by_role("button", name="Load the newest checkpoint")
        said = re.compile("interrupted after [0-9]+ of [0-9]+ updates; the same command resumes it")
        expect(state).to_contain_text(said)
        expect(page.locator("header .name")).to_contain_text("This page shows the checkpoint of update")
        with lock_run_folder(folder):
            expect(state).to_contain_text("Training:")
        expect(newest).to_have_count(0)
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        frames = len(read_snapshots(folder))
        trainer = Thread(target=lambda: resume_training(folder), daemon=True)
        trainer.start()
        expect(state).to_contain_text("Training is finished", timeout=60_000)
        trainer.join(60)
        assert len(read_snapshots(folder)) > frames
        expect(find_panel(page, "Training snapshots").locator(".reel")).to_contain_text(
            f"of {len(read_snapshots(folder))}"
        )
        assert asked == []  # one stream, opened before: nothing is fetched twice
        newest.click()
        expect(page.locator("header .name")).not_to_contain_text("This page shows the checkpoint of update")
        expect(state).to_contain_text("Training is finished")


def test_training_is_followed_before_its_first_record(open_page: OpenPage, tmp_path: Path) -> None:
    whole = make_interrupted_run(tmp_path / "whole")
    folder = make_run_without_model(tmp_path / "run", whole)
    shown = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    with background_server(create_app(shown)) as address, lock_run_folder(folder):
        page = open_page(address)
        expect(page.locator("main")).to_contain_text("see Training")
        open_tab(page, "Training")
        expect(page.locator(".state")).to_have_text("Training: 0 updates; no record yet.")
        (folder / "log.jsonl").write_text('{"event": "compiling"}\n', encoding="utf-8")
        expect(page.locator(".state")).to_contain_text("compiling kernels")
        open_tab(page, "Examples")
        expect(page.locator("main")).to_contain_text("Compiling kernels")
        open_tab(page, "Training")
        shutil.copytree(whole / "snapshots", folder / "snapshots")
        shutil.copy(whole / "log.jsonl", folder)
        expect(find_panel(page, "Loss")).to_be_visible()
        expect(find_panel(page, "Training snapshots").locator(".reel")).to_contain_text("of 2")
        page.reload()
        open_tab(page, "Training")
        expect(find_panel(page, "Training snapshots").locator(".reel")).to_contain_text("of 2")
        page.close()  # before the service that it listens to


def test_first_checkpoint_is_loaded_automatically(open_page: OpenPage, tmp_path: Path) -> None:
    whole = make_interrupted_run(tmp_path / "whole")
    folder = make_run_without_model(tmp_path / "run", whole)
    with (
        background_server(create_app(pending_page_data(folder), lambda: pending_page_data(folder))) as address,
        lock_run_folder(folder),
    ):
        one, other = open_page(address), open_page(address)
        expect(one.locator("h1")).to_have_text("run on dev.tsv")
        for name in ("Beam", "What if", "States", "Examples"):
            open_tab(one, name)
            expect(one.locator("main")).to_contain_text("No model yet. The page will show")
            expect(one.locator("main")).to_contain_text("the examples of dev.tsv")
        open_tab(other, "About")
        expect(other.get_by_role("row", name="best validation")).to_have_count(0)
        open_tab(other, "Training")
        copy_model_files(folder, whole)
        expect(visible_examples(one).first).to_be_visible()
        expect(one.locator("header .name")).not_to_contain_text("No model yet")
        expect(other.get_by_role("tab", name="Training")).to_have_attribute("aria-selected", "true")
        expect(find_panel(other, "Training snapshots").locator(".reel")).to_contain_text("of 2")
        validated = [line for line in read_log(folder) if line["event"] == "validated"]
        lines = (folder / "log.jsonl").read_text("utf-8")
        later = {**validated[-1], "update": 99_999, "best": True}
        (folder / "log.jsonl").write_text(f"{lines}{json.dumps(later)}\n", encoding="utf-8")
        open_tab(other, "About")
        expect(other.get_by_role("row", name="best validation").first).to_contain_text("at update 99,999")
        open_tab(one, "What if")
        expect(find_panel(one, "Probabilities before and after")).to_be_visible()  # the model answers
        one.close()
        other.close()


def test_axis_has_two_labels_after_one_validation(open_page: OpenPage, tmp_path: Path) -> None:
    training = contents().training
    assert training is not None
    (first, *_) = [line for line in training.log if line["event"] == "validated"]
    first = {**first, "exact_match": 0.0, "symbol_accuracy": 0.0, "symbol_error_rate": 0.0}
    shown = msgspec.structs.replace(
        contents(), compared_runs=[], served=False, training=msgspec.structs.replace(training, log=[first], frames=[])
    )
    path = tmp_path / "page.html"
    path.write_text(export_page(shown), encoding="utf-8")
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
    # A swatch stands before its name, not above it.
    entry = find_panel(page, "Loss").locator(".legend span").first
    whole, swatch = entry.bounding_box(), entry.locator("svg").bounding_box()
    assert whole and swatch and swatch["x"] < whole["x"] + 5
    assert abs(swatch["y"] + swatch["height"] / 2 - whole["y"] - whole["height"] / 2) < 3
    expect(find_panel(page, "Loss").locator(".caption")).to_have_text(training.loss_caption)


def test_model_card_is_shown(open_page: OpenPage, exported_page_url: str) -> None:
    page, card = open_page(exported_page_url), contents().card
    assert card is not None
    page.get_by_text("Model card").click()
    for label, value in card.facts[:3]:
        expect(page.locator("header .card")).to_contain_text(label)
        expect(page.locator("header .card")).to_contain_text(value)
