"""Saved files of every panel, with valid content."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import download_panel, find_panel, open_tab
from page_runs import long_page_data
from playwright.sync_api import Page, expect
from sample_traces import make_diagonal_trace
from saved_files import assert_double_resolution, assert_valid_latex, read_csv_lines, read_svg_texts
from task_cases import task_run

from pellucid.config.settings import TaskName
from pellucid.decoding.trace import END, Trace
from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.pages import trace_page as page_of
from pellucid.viewer.schema import PageContents
from pellucid.viewer.server import background_server, create_app

NO_FORMATS: Sequence[str] = ()
TABLE_FORMATS = ("JSON", "CSV")
PICTURE_FORMATS = ("SVG", "PNG", *TABLE_FORMATS)
MAP_FORMATS = (*PICTURE_FORMATS, "TikZ")
PanelFormats = Mapping[str, Mapping[str, Sequence[str]]]
"""Expected panels by view, and the file formats of each panel."""

LOSS_CHARTS = ("Training loss", "Validation loss", "Training loss, mean")
TRAINING_PANELS = dict.fromkeys((*LOSS_CHARTS, "Exact match", "Symbol error rate", "Symbol accuracy"), PICTURE_FORMATS)
TAG_TRAINING_PANELS = dict.fromkeys((*LOSS_CHARTS, "Sequence accuracy", "Tag accuracy"), PICTURE_FORMATS)
TRANSDUCE_PANELS: PanelFormats = {
    "Examples": {"Attention links": MAP_FORMATS, "Output steps": PICTURE_FORMATS, "Attention matrix": MAP_FORMATS},
    "Beam": {"Beam search tree": PICTURE_FORMATS, "Attention of the selected hypothesis": MAP_FORMATS},
    "Corpus": {
        "Scores": TABLE_FORMATS,
        "Accuracy by target position": PICTURE_FORMATS,
        "Accuracy by source length": PICTURE_FORMATS,
        "Confusions": MAP_FORMATS,
        "Attention statistics": MAP_FORMATS,
    },
    "Compare": {
        "Paired outcomes of both runs": PICTURE_FORMATS,
        "run": MAP_FORMATS,
        "rival": MAP_FORMATS,
        "Attention difference": MAP_FORMATS,
    },
    "Training": {**TRAINING_PANELS, "Training snapshots": MAP_FORMATS},
    "About": {"Equations": TABLE_FORMATS, "run": NO_FORMATS, "Limits of interpretation": NO_FORMATS},
}
ON_REQUEST_PANELS: PanelFormats = {
    "What if": {
        "Edit the source": NO_FORMATS,
        "Output before and after": NO_FORMATS,
        "Probabilities before and after": PICTURE_FORMATS,
        "Attention of step 1": MAP_FORMATS,
        "Attention before": MAP_FORMATS,
        "Attention after": MAP_FORMATS,
        "Attention difference": MAP_FORMATS,
    },
    "States": {
        "PCA of the states": PICTURE_FORMATS,
        "State values": PICTURE_FORMATS,
        "Nearest states": PICTURE_FORMATS,
    },
}
OTHER_TASK_PANELS: Mapping[TaskName, PanelFormats] = {
    "tag": {
        "Examples": {"Tags": PICTURE_FORMATS},
        "What if": {
            "Edit the source": NO_FORMATS,
            "Output before and after": NO_FORMATS,
            "Probabilities before and after": PICTURE_FORMATS,
            "Tags before": PICTURE_FORMATS,
            "Tags after": PICTURE_FORMATS,
        },
        "Corpus": {
            "Scores": TABLE_FORMATS,
            "Accuracy by target position": PICTURE_FORMATS,
            "Accuracy by source length": PICTURE_FORMATS,
            "Confusions": MAP_FORMATS,
        },
        "Compare": {"Paired outcomes of both runs": PICTURE_FORMATS, "tag": PICTURE_FORMATS, "rival": PICTURE_FORMATS},
        "Training": {**TAG_TRAINING_PANELS, "Training snapshots": PICTURE_FORMATS},
    },
    "classify": {
        "Examples": {
            "Class": PICTURE_FORMATS,
            "Attention over the source": MAP_FORMATS,
            "Attention weights": MAP_FORMATS,
        }
    },
    "point": {
        "Examples": {
            "Position": PICTURE_FORMATS,
            "Attention over the source": MAP_FORMATS,
            "Attention weights": MAP_FORMATS,
        }
    },
}

SavedFiles = dict[str, dict[str, bytes]]
"""Files by panel and format."""


def save_view(page: Page, view: str, panels: Mapping[str, Sequence[str]], folder: Path) -> SavedFiles:
    """Save every panel of the open view in every format. Assert that these are all panels and all formats."""
    for title in panels:
        expect(find_panel(page, title)).to_be_visible()
    script = "all => all.map(each => document.getElementById(each.getAttribute('aria-labelledby')).textContent)"
    assert sorted(page.get_by_role("region").evaluate_all(script)) == sorted(panels), view
    files = SavedFiles()
    for title, formats in panels.items():
        menu = find_panel(page, title).get_by_role("button", name="Save as …")
        expect(menu).to_have_count(1 if formats else 0)
        if formats:
            menu.click()
            buttons = find_panel(page, title).locator(".forms button")
            expect(buttons).to_have_text(list(formats))
            menu.click()
        files[title] = {file_format: download_panel(page, title, file_format, folder) for file_format in formats}
        assert_valid_files(files[title])
    return files


def assert_valid_files(files: dict[str, bytes]) -> None:
    """Assert the properties that every saved file of a format has."""
    if "SVG" in files:
        assert read_svg_texts(files["SVG"]), "text stays text"
        assert_double_resolution(files["PNG"], files["SVG"])
    if "JSON" in files:
        assert json.loads(files["JSON"]) is not None
        assert len(read_csv_lines(files["CSV"])) > 1
    if "TikZ" in files:
        assert_valid_latex(files["TikZ"].decode("utf-8"))


def page_contents() -> PageContents:
    """Return the contents of the page on spelled digits."""
    return digits_page_data(beam_size=3).contents


def save_views(page: Page, views: PanelFormats, folder: Path) -> dict[str, SavedFiles]:
    """Save every panel of these views in every format."""
    files = dict[str, SavedFiles]()
    for view, panels in views.items():
        open_tab(page, view)
        files[view] = save_view(page, view, panels, folder)
    return files


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["served", "exported"])
def test_every_panel_of_a_run_is_saved_in_every_format(
    open_page: OpenPage, server_url: str, exported_page_url: str, kind: str, tmp_path: Path
) -> None:
    page = open_page(f"{server_url if kind == 'served' else exported_page_url}#example=0")
    views = TRANSDUCE_PANELS if kind == "served" else {**TRANSDUCE_PANELS, "States": ON_REQUEST_PANELS["States"]}
    files = save_views(page, views, tmp_path)
    corpus, trace = page_contents().corpus, page_contents().examples[0].traces[0]
    assert corpus is not None
    steps = files["Examples"]["Output steps"]
    texts = read_svg_texts(steps["SVG"])
    assert {"output", "most probable", *(f"{position + 1}" for position in range(len(trace.target)))} <= set(texts)
    assert trace.output in texts[0] and page_contents().examples[0].text in texts[0]
    assert len(read_csv_lines(steps["CSV"])) == len(trace.target) + 1
    confusions = files["Corpus"]["Confusions"]
    assert {"Confusions", "predicted →", "expected →"} <= set(read_svg_texts(confusions["SVG"]))
    assert {f"{each.count}" for each in corpus.confusions} <= set(read_svg_texts(confusions["SVG"]))
    assert (
        len(read_csv_lines(confusions["CSV"])) == len(corpus.confusions) + 1 == len(json.loads(confusions["JSON"])) + 1
    )
    assert {each.name for each in corpus.distributions} < set(
        read_svg_texts(files["Corpus"]["Attention statistics"]["SVG"])
    )
    for panel_name in ("Attention matrix", "Attention links"):
        saved_trace = Trace.from_json(files["Examples"][panel_name]["JSON"])
        assert saved_trace.target == tuple(trace.target) and saved_trace.text == page_contents().examples[0].text
        np.testing.assert_allclose(saved_trace.attention, decode_array(trace.attention), atol=1e-6)
    assert_heat_map_files(files["Compare"]["Attention difference"], len(trace.target), len(trace.source))
    assert {"both correct", "both wrong"} < set(read_svg_texts(files["Compare"]["Paired outcomes of both runs"]["SVG"]))
    assert len(json.loads(files["Training"]["Training snapshots"]["JSON"])["frames"]) > 1


def assert_heat_map_files(files: dict[str, bytes], rows: int, columns: int) -> None:
    """Assert that the CSV and JSON files of a heat map have the same weights, of this shape."""
    lines, weights = read_csv_lines(files["CSV"]), json.loads(files["JSON"])["weights"]
    assert (len(lines), len(lines[0])) == (rows + 1, columns + 1)
    assert [[float(number) for number in line[1:]] for line in lines[1:]] == [
        pytest.approx(row, abs=1e-5) for row in weights
    ]


@pytest.mark.slow
def test_requested_details_are_saved(open_page: OpenPage, server_url: str, tmp_path: Path) -> None:
    page = open_page(f"{server_url}#example=0")
    open_tab(page, "What if")
    page.get_by_role("group", name="Steps of the output").get_by_role("button").first.click()
    page.get_by_role("button", name="Uniform").click()
    expect(page.locator(".sentence")).to_contain_text("Forcing step 1 to attend uniformly")
    sentence = page.locator(".sentence").inner_text()
    saved_files = save_view(page, "What if", ON_REQUEST_PANELS["What if"], tmp_path)
    trace = page_contents().examples[0].traces[0]
    texts = read_svg_texts(saved_files["Probabilities before and after"]["SVG"])
    assert " ".join(texts).startswith(sentence)
    assert {
        "before",
        "after",
        "p(before), before the change",
        "p(before), after the change",
        "KL divergence, bits",
    } < set(texts)
    steps = len(trace.target)
    for title, rows in (("Attention difference", steps), ("Attention before", steps), ("Attention of step 1", 1)):
        assert_heat_map_files(saved_files[title], rows, len(trace.source))
    assert re.search(r"\\fill\[less!", saved_files["Attention difference"]["TikZ"].decode("utf-8"))
    open_tab(page, "States")
    page.get_by_role("button", name="Show state values").click()
    page.get_by_role("button", name="Show gate values").click()
    expect(find_panel(page, "State values")).to_contain_text("update")
    page.get_by_role("button", name="Find nearest states").click()
    expect(find_panel(page, "Nearest states").locator("ol li")).to_have_count(20)
    states = save_view(page, "States", ON_REQUEST_PANELS["States"], tmp_path)
    assert_state_files(states["State values"], len(trace.source), len(trace.target))
    neighbor_texts = read_svg_texts(states["Nearest states"]["SVG"])
    assert json.loads(states["Nearest states"]["JSON"])["title"].startswith("Nearest to the decoder state at step ")
    assert read_csv_lines(states["Nearest states"]["CSV"])[0] == ["cosine", "nearest", "next symbol", "line"]
    encoder = json.loads(states["State values"]["JSON"])["encoder"]
    assert len(encoder) == len(trace.source) and all(isinstance(each, float) for each in encoder[0])
    assert "Next symbols" in neighbor_texts and any(
        text.startswith("Nearest to the decoder state") for text in neighbor_texts
    )


def assert_state_files(files: dict[str, bytes], num_source: int, num_target: int) -> None:
    """Assert that the CSV file has a row, and the picture a heat strip, for each state and gate."""
    lines, texts = read_csv_lines(files["CSV"]), read_svg_texts(files["SVG"])
    names = [line[0] for line in lines[1:]]
    assert names.count("encoder") == num_source and names.count("decoder") == num_target
    assert lines[0][:4] == ["states", "position", "symbol", "unit 1"] and "decoder update" in names
    for name in set(names):
        assert any(text.startswith(f"{name}, ") and "units" in text for text in texts), name
    assert {"source →", "output →", "units →"} <= set(texts)


@contextmanager
def serve_page(page_data: PageData, open_page: OpenPage) -> Iterator[Page]:
    """Serve a run and open its page on the first example."""
    with background_server(create_app(page_data)) as address:
        yield open_page(f"{address}#example=0")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["tag", "classify", "point"])
def test_every_panel_of_other_tasks_is_saved(open_page: OpenPage, task: TaskName, tmp_path: Path) -> None:
    trained = task_run(task)
    models = [open_run(trained.run, name, "cpu", None) for name in (task, "rival")]
    page_data = assemble_page(models, [read_example_file(trained.files.valid, trained.config.data)], 40, served=True)
    trace = page_data.contents.examples[0].traces[0]
    with serve_page(page_data, open_page) as page:
        example_files = save_views(page, OTHER_TASK_PANELS[task], tmp_path)["Examples"]
    if task == "tag":
        assert {"source", "tag", *trace.source} <= set(read_svg_texts(example_files["Tags"]["SVG"]))
        assert len(read_csv_lines(example_files["Tags"]["CSV"])) == len(trace.source) + 1
    else:
        assert read_svg_texts(example_files["Attention over the source"]["SVG"])[2:] == trace.source
        assert_heat_map_files(example_files["Attention over the source"], 1, len(trace.source))
        answer = read_svg_texts(example_files["Class" if task == "classify" else "Position"]["SVG"])
        assert any("output" in text for text in answer) and trace.output in answer[0]


@pytest.mark.slow
def test_tinted_long_source_is_saved_in_lines(open_page: OpenPage, tmp_path: Path) -> None:
    page_data = long_page_data()
    source = page_data.contents.examples[0].traces[0].source
    title = "Attention of step 1 over the source"
    with serve_page(page_data, open_page) as page:
        expect(find_panel(page, title)).to_be_visible()
        files = {file_format: download_panel(page, title, file_format, tmp_path) for file_format in MAP_FORMATS}
    assert_valid_files(files)
    assert read_svg_texts(files["SVG"])[2:] == source


def test_unusual_symbols_are_visible_in_saved_pictures(open_page: OpenPage, tmp_path: Path) -> None:
    unusual_symbols = ["</script><b>", "<s>", "\u202e", "שלום", "long" * 40, "&amp;", " "]
    path = tmp_path / "hard.html"
    path.write_text(page_of(make_diagonal_trace(unusual_symbols, [*unusual_symbols, END])), "utf-8")
    page = open_page(path.as_uri())
    expect(find_panel(page, "Output steps")).to_be_visible()
    texts = read_svg_texts(download_panel(page, "Output steps", "SVG", tmp_path))
    assert {"</script><b>", "<s>", "RLO", "שלום", "&amp;", "␣"} < set(texts)
    assert any(text.endswith("…") and text.startswith("longlong") for text in texts)
    assert not any("\u202e" in text for text in texts)


def test_saved_picture_has_the_colors_of_the_page(open_page: OpenPage, exported_page_url: str, tmp_path: Path) -> None:
    page = open_page(exported_page_url)
    expect(find_panel(page, "Output steps")).to_be_visible()
    light = download_panel(page, "Output steps", "SVG", tmp_path).decode("utf-8")
    page.get_by_role("button", name="Dark colors").click()
    dark = download_panel(page, "Output steps", "SVG", tmp_path).decode("utf-8")
    assert 'fill="#fff"' in light and 'fill="#12161c"' in dark
