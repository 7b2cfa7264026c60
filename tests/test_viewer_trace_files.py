"""A trace is shown as a page and in a notebook, and saved as files."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sample_traces import make_small_trace, make_trace
from saved_files import assert_valid_latex

from pellucid.decoding.trace import END, identity_attention
from pellucid.errors import InputError
from pellucid.viewer.examples import entropy_lower_bound, page_trace_without_model
from pellucid.viewer.latex import escape_latex, tikz_picture
from pellucid.viewer.pages import TRACE_SUFFIXES, built_page, trace_page


class FrameParser(HTMLParser):
    """Parser that collects the attributes of the iframes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.frames: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "iframe":
            self.frames.append(dict(attributes))


def test_each_suffix_has_its_format(tmp_path: Path) -> None:
    for suffix in TRACE_SUFFIXES:
        make_small_trace().save(tmp_path / f"a{suffix}")
    make_small_trace().save(str(tmp_path / "b.svg"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ElementTree.fromstring((tmp_path / "a.svg").read_text("utf-8")).tag.endswith("svg")
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == json.loads(make_small_trace().to_json())
    assert (tmp_path / "a.html").read_text("utf-8") == trace_page(make_small_trace())
    assert r"\begin{tikzpicture}" in (tmp_path / "a.tex").read_text("utf-8")


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    """Regression test: look --export LINK.svg replaced the link, and the file to which it leads stayed as it was."""
    for suffix in TRACE_SUFFIXES:
        (tmp_path / f"b{suffix}").symlink_to(tmp_path / f"a{suffix}")
        make_small_trace().save(tmp_path / f"b{suffix}")
        assert (tmp_path / f"b{suffix}").is_symlink() and (tmp_path / f"a{suffix}").stat().st_size


@pytest.mark.parametrize(
    ("name", "ending"), [("a.pdf", r"'\.pdf'"), ("a", "a name without an ending"), ("a.html.txt", r"'\.txt'")]
)
def test_unknown_suffix_is_refused(tmp_path: Path, name: str, ending: str) -> None:
    with pytest.raises(InputError, match=rf"\.html, \.svg, \.png, \.json or \.tex, got {ending}$"):
        make_small_trace().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "sizes", "suffix", "message"),
    [
        ("tag", (1025, 1025), ".svg", r"a picture \(.svg\) has room for 1,024 symbols, but the trace has 1,025"),
        ("transduce", (512, 513), ".png", r"a picture \(.png\) has room for 1,024 symbols, but the trace has 1,025"),
        ("transduce", (1025, 1024), ".tex", "a picture .* has room for 1,048,576 weights, but the trace has 1,049,600"),
    ],
)
def test_too_long_trace_is_refused_for_pictures(
    task: str, sizes: tuple[int, int], suffix: str, message: str, tmp_path: Path
) -> None:
    steps, positions = sizes
    trace = replace(
        make_small_trace(),
        task=task,
        source=("s",) * positions,
        target=("t",) * steps,
        finished=task == "tag",
        log_probabilities=np.zeros(steps, np.float32),
        attention=identity_attention(steps, positions, 0),
        top_symbols=((),) * steps,
        top_log_probabilities=np.zeros((steps, 0), np.float32),
    )
    with pytest.raises(InputError, match=f"^path: {message}.*: save it as .html or .json$"):
        trace.save(tmp_path / f"a{suffix}")
    trace.save(tmp_path / "a.html")


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    for suffix in TRACE_SUFFIXES:
        with pytest.raises(InputError, match="no such file"):
            make_small_trace().save(tmp_path / "none" / f"a{suffix}")


def test_notebook_shows_the_page_in_an_iframe() -> None:
    (frame,) = FrameParser(make_small_trace()._repr_html_()).frames
    assert frame["srcdoc"] == trace_page(make_small_trace())
    assert frame["sandbox"] == "allow-scripts allow-downloads"
    assert len(FrameParser(make_small_trace()._repr_html_() * 3).frames) == 3


def test_page_of_one_trace_contains_it() -> None:
    assert built_page().partition("<head>")[0] in trace_page(make_small_trace())
    assert json.dumps(make_small_trace().output, ensure_ascii=False) in trace_page(make_small_trace())


def test_bidirectional_controls_are_visible_in_the_title() -> None:
    trace = replace(make_small_trace(), text="a\u202eb\x1b\u200b", output="c\u2066\ufeff d")
    title = "a⟨U+202E⟩b␛⟨U+200B⟩ → c⟨U+2066⟩⟨U+FEFF⟩ d"
    assert json.dumps(title, ensure_ascii=False) in trace_page(trace)
    (frame,) = FrameParser(trace._repr_html_()).frames
    assert frame["title"] == f"Attention: {title}"


def test_tikz_picture_has_a_cell_for_each_visible_weight() -> None:
    trace, text = make_small_trace(), tikz_picture(make_small_trace())
    assert text.count(r"\fill") == int((trace.attention >= 0.005).sum())
    assert text.count(r"\node") == len(trace.source) + len(trace.target) + 3  # two axis titles and the color key
    assert text.count("{") == text.count("}") and text.count("$") % 2 == 0


def test_tikz_picture_of_a_long_source_fits_a_page() -> None:
    size = 1000
    long = tikz_picture(make_trace("a" * size, ["A", "B", END], [[1 / size] * size] * 3))
    assert "[x=0.16mm,y=-4mm," in long and "{1000};" in long and "{950};" in long and "{a}" not in long
    assert_valid_latex(long)
    square_picture = tikz_picture(make_trace("a" * 80, ["b"] * 80, [[1 / 80] * 80] * 80))
    assert (
        "[x=2mm,y=-2mm," in square_picture and square_picture.count("{80};") == 2 and square_picture.count("{78};") == 0
    )


def test_small_weights_are_scaled_by_row() -> None:
    picture = tikz_picture(make_trace("ab", ["x", END], [[0.2, 0.1], [0.1, 0.0]]))
    assert re.findall(r"fill\[black!(\d+)", picture) == ["100", "50", "100"] and "darkest: the row" in picture
    weights = [[0.02] * 30 + [0.04] + [0.0] * 30]
    picture = tikz_picture(make_trace("a" * 61, ["x"], weights))
    assert re.findall(r"fill\[black!(\d+)", picture)[30] == "100" and picture.count(r"\fill") == 31
    narrow = tikz_picture(make_trace("a" * 201, ["x"], [[0.5] + [0.0025] * 200]))
    assert re.findall(r"fill\[black!(\d+)", narrow) == ["100"] and "darkest: the row" in narrow
    assert_valid_latex(picture)


def test_tikz_picture_of_a_tagger_has_tags(tmp_path: Path) -> None:
    trace = replace(make_trace(["a", "b_"], ["X", "Y"], [[1, 0], [0, 1]], [1.0, 0.5]), task="tag", finished=True)
    for suffix in TRACE_SUFFIXES:
        trace.save(tmp_path / f"a{suffix}")
    assert "← output" not in (tmp_path / "a.svg").read_text("utf-8")
    picture = tikz_picture(trace)
    assert picture.count(r"\node") == 4 and picture.count(r"\fill") == 2 and r"{b\_}" in picture
    assert r"\draw" not in picture and picture.count("{") == picture.count("}")
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["attention"] == []


def test_tikz_picture_has_axis_titles_and_color_key() -> None:
    text = tikz_picture(make_small_trace())
    assert_valid_latex(text)
    for label in (r"{source $\rightarrow$};", r"{$\leftarrow$ output};", "{darkest: 1};"):
        assert text.count(label) == 1


def test_unknown_symbols_are_underlined_in_tikz() -> None:
    unknown_trace = replace(make_small_trace(), unknown=(1,))
    tags = replace(
        make_trace(["f", "a", "b_"], ["X", "Y"], [[1, 0, 0], [0, 1, 0]], features=1, unknown=(2,)), task="tag"
    )
    for trace, name, other in ((unknown_trace, r"{\underline{b}}", "{a}"), (tags, r"{\underline{b\_}}", "{a}")):
        text = tikz_picture(trace)
        assert name in text and other in text and text.count(r"\underline") == 2
        assert text.count("not in the vocabulary") == 1 and text.count("{") == text.count("}")
        assert "underline" not in tikz_picture(replace(trace, unknown=()))


def test_latex_commands_are_escaped() -> None:
    assert escape_latex("a_b") == r"a\_b" and escape_latex("\\input{x}") == r"\textbackslash{}input\{x\}"
    assert escape_latex("50%") == r"50\%" and escape_latex(END) == r"$\langle$end$\rangle$"
    assert escape_latex('it\'s "-"') == r"it\textquotesingle{}s \texttt{\char34}-{}\texttt{\char34}"
    assert escape_latex("<s>") == r"\textless{}s\textgreater{}"


def test_entropy_lower_bound_is_below_the_spread_entropy() -> None:
    bits = entropy_lower_bound(make_small_trace())
    assert bits.shape == make_small_trace().log_probabilities.shape and (bits >= 0).all() and np.isfinite(bits).all()


def test_entropy_is_exact_if_the_top_symbols_are_complete() -> None:
    trace = make_small_trace()
    rest = 1 - np.exp(trace.top_log_probabilities).sum(axis=1)
    assert page_trace_without_model(trace).entropy_is_lower_bound == bool((rest > 1e-4).any())
    certain = np.full_like(trace.top_log_probabilities, -np.inf)
    certain[:, 0] = 0
    assert not page_trace_without_model(replace(trace, top_log_probabilities=certain)).entropy_is_lower_bound
