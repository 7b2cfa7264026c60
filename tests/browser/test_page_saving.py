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

from pellucid.config.settings import Task
from pellucid.decoding.trace import END, Trace
from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.pages import trace_page as page_of
from pellucid.viewer.schema import PageContents
from pellucid.viewer.server import background_server, create_app

NONE: Sequence[str] = ()
NUMBERS = ("JSON", "CSV")
PICTURE = ("SVG", "PNG", *NUMBERS)
MAP = (*PICTURE, "TikZ")
Views = Mapping[str, Mapping[str, Sequence[str]]]
"""Of each view the panels, and of each panel the forms."""

TRAINING = {"Loss": PICTURE, "Scores": PICTURE, "Training snapshots": MAP}
WRITTEN: Views = {
    "Examples": {"Attention links": MAP, "Output steps": PICTURE, "Attention matrix": MAP},
    "Beam": {"Beam search tree": PICTURE, "Attention of the selected hypothesis": MAP},
    "Corpus": {
        "Scores": NUMBERS,
        "Accuracy by target position": PICTURE,
        "Accuracy by source length": PICTURE,
        "Confusions": MAP,
        "Attention statistics": MAP,
    },
    "Compare": {"Paired outcomes of both runs": PICTURE, "run": MAP, "rival": MAP, "Attention difference": MAP},
    "Training": TRAINING,
    "About": {"run": NONE, "Limits of interpretation": NONE},
}
ASKED: Views = {
    "What if": {
        "Edit the source": NONE,
        "Output before and after": NONE,
        "Probabilities before and after": PICTURE,
        "Attention of step 1": MAP,
        "Attention before": MAP,
        "Attention after": MAP,
        "Attention difference": MAP,
    },
    "States": {"PCA of the states": PICTURE, "State values": PICTURE, "Nearest states": PICTURE},
}
ANSWERED: Mapping[Task, Views] = {
    "tag": {
        "Examples": {"Tags": PICTURE},
        "What if": {
            "Edit the source": NONE,
            "Output before and after": NONE,
            "Probabilities before and after": PICTURE,
            "Tags before": PICTURE,
            "Tags after": PICTURE,
        },
        "Corpus": {
            "Scores": NUMBERS,
            "Accuracy by target position": PICTURE,
            "Accuracy by source length": PICTURE,
            "Confusions": MAP,
        },
        "Compare": {"Paired outcomes of both runs": PICTURE, "tag": PICTURE, "rival": PICTURE},
        "Training": {**TRAINING, "Training snapshots": PICTURE},
    },
    "classify": {"Examples": {"Class": PICTURE, "Attention over the source": MAP, "Attention weights": MAP}},
    "point": {"Examples": {"Position": PICTURE, "Attention over the source": MAP, "Attention weights": MAP}},
}

Saved = dict[str, dict[str, bytes]]
"""Files by panel and form."""


def taken(page: Page, view: str, panels: Mapping[str, Sequence[str]], to: Path) -> Saved:
    """Every panel of the view that is open in every form: there are no panels but these, and no forms but these."""
    for title in panels:
        expect(find_panel(page, title)).to_be_visible()
    script = "all => all.map(each => document.getElementById(each.getAttribute('aria-labelledby')).textContent)"
    assert sorted(page.get_by_role("region").evaluate_all(script)) == sorted(panels), view
    files = Saved()
    for title, forms in panels.items():
        menu = find_panel(page, title).get_by_role("button", name="Save as …")
        expect(menu).to_have_count(1 if forms else 0)
        if forms:
            menu.click()
            offered = find_panel(page, title).locator(".forms button")
            expect(offered).to_have_text(list(forms))
            menu.click()
        files[title] = {form: download_panel(page, title, form, to) for form in forms}
        assert_sound(files[title])
    return files


def assert_sound(of: dict[str, bytes]) -> None:
    """What holds for files of each form, whatever they show."""
    if "SVG" in of:
        assert read_svg_texts(of["SVG"]), "text stays text"
        assert_double_resolution(of["PNG"], of["SVG"])
    if "JSON" in of:
        assert json.loads(of["JSON"]) is not None
        assert len(read_csv_lines(of["CSV"])) > 1
    if "TikZ" in of:
        assert_valid_latex(of["TikZ"].decode("utf-8"))


def contents() -> PageContents:
    """What the page of digits shows."""
    return digits_page_data(beam_size=3).contents


def everything(page: Page, views: Views, to: Path) -> dict[str, Saved]:
    """All files of these views."""
    files = dict[str, Saved]()
    for view, panels in views.items():
        open_tab(page, view)
        files[view] = taken(page, view, panels, to)
    return files


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_every_panel_of_a_run_is_saved_in_every_format(
    open_page: OpenPage, server_url: str, exported_page_url: str, kind: str, tmp_path: Path
) -> None:
    page = open_page(f"{server_url if kind == 'served' else exported_page_url}#example=0")
    views = WRITTEN if kind == "served" else {**WRITTEN, "States": ASKED["States"]}
    files = everything(page, views, tmp_path)
    corpus, trace = contents().corpus, contents().examples[0].traces[0]
    assert corpus is not None
    steps = files["Examples"]["Output steps"]
    said = read_svg_texts(steps["SVG"])
    assert {"output", "most probable", *(f"{place + 1}" for place in range(len(trace.target)))} <= set(said)
    assert trace.output in said[0] and contents().examples[0].text in said[0]
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
        kept = Trace.from_json(files["Examples"][panel_name]["JSON"])
        assert kept.target == tuple(trace.target) and kept.text == contents().examples[0].text
        np.testing.assert_allclose(kept.attention, decode_array(trace.attention), atol=1e-6)
    assert_a_map(files["Compare"]["Attention difference"], len(trace.target), len(trace.source))
    assert {"both correct", "both wrong"} < set(read_svg_texts(files["Compare"]["Paired outcomes of both runs"]["SVG"]))
    assert len(json.loads(files["Training"]["Training snapshots"]["JSON"])["frames"]) > 1


def assert_a_map(files: dict[str, bytes], rows: int, columns: int) -> None:
    """The numbers of a heat map are as many in the CSV as in the JSON."""
    lines, weights = read_csv_lines(files["CSV"]), json.loads(files["JSON"])["weights"]
    assert (len(lines), len(lines[0])) == (rows + 1, columns + 1)
    assert [[float(number) for number in line[1:]] for line in lines[1:]] == [
        pytest.approx(row, abs=1e-5) for row in weights
    ]


def test_requested_details_are_saved(open_page: OpenPage, server_url: str, tmp_path: Path) -> None:
    page = open_page(f"{server_url}#example=0")
    open_tab(page, "What if")
    page.get_by_role("group", name="Steps of the output").get_by_role("button").first.click()
    page.get_by_role("button", name="Uniform").click()
    expect(page.locator(".sentence")).to_contain_text("Forcing step 1 to attend uniformly")
    sentence = page.locator(".sentence").inner_text()
    asked = taken(page, "What if", ASKED["What if"], tmp_path)
    trace = contents().examples[0].traces[0]
    said = read_svg_texts(asked["Probabilities before and after"]["SVG"])
    assert " ".join(said).startswith(sentence)
    assert {"before", "after", "p before", "p after", "KL divergence, bits"} < set(said)
    steps = len(trace.target)
    for title, rows in (("Attention difference", steps), ("Attention before", steps), ("Attention of step 1", 1)):
        assert_a_map(asked[title], rows, len(trace.source))
    assert re.search(r"\\fill\[less!", asked["Attention difference"]["TikZ"].decode("utf-8"))
    open_tab(page, "States")
    page.get_by_role("button", name="Show state values").click()
    page.get_by_role("button", name="Show gate values").click()
    expect(find_panel(page, "State values")).to_contain_text("update")
    page.get_by_role("button", name="Find nearest states").click()
    expect(find_panel(page, "Nearest states").locator("ol li")).to_have_count(20)
    states = taken(page, "States", ASKED["States"], tmp_path)
    assert_states(states["State values"], len(trace.source), len(trace.target))
    near = read_svg_texts(states["Nearest states"]["SVG"])
    assert json.loads(states["Nearest states"]["JSON"])["title"].startswith("Nearest to the decoder state at step ")
    assert read_csv_lines(states["Nearest states"]["CSV"])[0] == ["cosine", "nearest", "next symbol", "line"]
    encoder = json.loads(states["State values"]["JSON"])["encoder"]
    assert len(encoder) == len(trace.source) and all(isinstance(each, float) for each in encoder[0])
    assert "Next symbols" in near and any(text.startswith("Nearest to the decoder state") for text in near)


def assert_states(files: dict[str, bytes], source: int, target: int) -> None:
    """A line of the CSV for each state and each gate, with the units' numbers; a heat strip of each in the picture."""
    lines, said = read_csv_lines(files["CSV"]), read_svg_texts(files["SVG"])
    names = [line[0] for line in lines[1:]]
    assert names.count("encoder") == source and names.count("decoder") == target
    assert lines[0][:4] == ["states", "place", "symbol", "unit 1"] and "decoder update" in names
    for name in set(names):
        assert any(text.startswith(f"{name}, ") and "units" in text for text in said), name
    assert {"source →", "output →", "units →"} <= set(said)


@contextmanager
def on_page(shown: PageData, open_page: OpenPage) -> Iterator[Page]:
    """The page of a run, on its first example."""
    with background_server(create_app(shown)) as address:
        yield open_page(f"{address}#example=0")


@pytest.mark.parametrize("task", ["tag", "classify", "point"])
def test_every_panel_of_other_tasks_is_saved(open_page: OpenPage, task: Task, tmp_path: Path) -> None:
    trained = task_run(task)
    models = [open_run(trained.run, name, "cpu", None) for name in (task, "rival")]
    shown = assemble_page(models, [read_example_file(trained.files.valid, trained.config.data)], 40, served=True)
    trace = shown.contents.examples[0].traces[0]
    with on_page(shown, open_page) as page:
        first = everything(page, ANSWERED[task], tmp_path)["Examples"]
    if task == "tag":
        assert {"source", "tag", *trace.source} <= set(read_svg_texts(first["Tags"]["SVG"]))
        assert len(read_csv_lines(first["Tags"]["CSV"])) == len(trace.source) + 1
    else:
        assert read_svg_texts(first["Attention over the source"]["SVG"])[2:] == trace.source
        assert_a_map(first["Attention over the source"], 1, len(trace.source))
        answer = read_svg_texts(first["Class" if task == "classify" else "Position"]["SVG"])
        assert any("output" in text for text in answer) and trace.output in answer[0]


def test_tinted_long_source_is_saved_in_lines(open_page: OpenPage, tmp_path: Path) -> None:
    shown = long_page_data()
    source = shown.contents.examples[0].traces[0].source
    title = "Attention of step 1 over the source"
    with on_page(shown, open_page) as page:
        expect(find_panel(page, title)).to_be_visible()
        files = {form: download_panel(page, title, form, tmp_path) for form in MAP}
    assert_sound(files)
    assert read_svg_texts(files["SVG"])[2:] == source


def test_unusual_symbols_are_visible_in_saved_pictures(open_page: OpenPage, tmp_path: Path) -> None:
    hard = ["</script><b>", "<s>", "\u202e", "שלום", "long" * 40, "&amp;", " "]
    path = tmp_path / "hard.html"
    path.write_text(page_of(make_diagonal_trace(hard, [*hard, END])), "utf-8")
    page = open_page(path.as_uri())
    expect(find_panel(page, "Output steps")).to_be_visible()
    said = read_svg_texts(download_panel(page, "Output steps", "SVG", tmp_path))
    assert {"</script><b>", "<s>", "RLO", "שלום", "&amp;", "␣"} < set(said)
    assert any(text.endswith("…") and text.startswith("longlong") for text in said)
    assert not any("\u202e" in text for text in said)


def test_saved_picture_has_the_colors_of_the_page(open_page: OpenPage, exported_page_url: str, tmp_path: Path) -> None:
    page = open_page(exported_page_url)
    expect(find_panel(page, "Output steps")).to_be_visible()
    light = download_panel(page, "Output steps", "SVG", tmp_path).decode("utf-8")
    page.get_by_role("button", name="Dark colors").click()
    dark = download_panel(page, "Output steps", "SVG", tmp_path).decode("utf-8")
    assert 'fill="#fff"' in light and 'fill="#12161c"' in dark
