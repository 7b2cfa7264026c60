import re
from dataclasses import replace

import numpy as np
import pytest

from pellucid.look.report import Report, Shown, report_html
from pellucid.look.tagged import tagged_html, tags_of
from pellucid.search.trace import Trace


def trace(words: str, tags: str, between: str = " ") -> Trace:
    """A tagging; the tags are written one after another with `between`."""
    source, target = tuple(words.split()), tuple(tags.split())
    n = len(source)
    steps = np.log(np.full(n, 0.5))
    told = tuple((tag,) for tag in target)
    output = between.join(target)
    return Trace(words, source, 0, (), target, output, True, steps, np.eye(n), told, steps[:, None], task="tag")


@pytest.mark.parametrize(
    ("tags", "between", "written", "found"),
    [
        ("O B-a I-a", " ", "O  B-b O", ["O", "B-b", "O"]),
        ("H E C", "", "HCE", ["H", "C", "E"]),
        ("NN V", "|", "V|NN", ["V", "NN"]),
        ("B-a", " ", "O", ["O"]),
    ],
)
def test_tags_are_cut_where_those_of_the_answer_are(tags: str, between: str, written: str, found: list[str]) -> None:
    words = " ".join("w" * len(tags.split()))
    assert tags_of(written, trace(words, tags, between)) == found


def test_each_word_has_its_tag_below_and_a_wrong_one_both() -> None:
    page = tagged_html(trace("play a <b>", "O O B-x"), "O B-y B-x")
    cells = re.findall(r"<span><bdi>(.*?)</bdi><small>(.*?)</small>(.*?)</span>", page)
    assert cells == [("play", "O", ""), ("a", "B-y", "<mark>O</mark>"), ("&lt;b&gt;", "B-x", "")]
    assert "<mark>" not in tagged_html(trace("play a", "O O"))
    assert "<mark>" not in tagged_html(trace("a b", "O O"), "O -", unscored="-")


def test_features_are_no_words() -> None:
    shown = tagged_html(replace(trace("play a", "O O"), source=("N", "play", "a"), features=1), "B-x O")
    assert re.findall("<bdi>(.*?)</bdi>", shown) == ["play", "a"]


def test_words_that_were_never_seen_are_underlined() -> None:
    shown = tagged_html(replace(trace("play a", "O O"), source=("N", "play", "a"), features=1, unknown=(0, 2)))
    assert re.findall("<u>(.*?)</u>", shown) == ["<bdi>a</bdi>"] and shown.count("<bdi>") == 2


def test_the_mistakes_of_a_report_have_their_words() -> None:
    wrong = Shown(trace("play a song", "O O B-x"), ("O B-y B-x",), 1)
    page = report_html(Report("t", mistakes=[wrong]))
    assert "<mark>O</mark>" in page and "words and tags" in page and "edits" not in page.lower()
    assert re.search(r"</p></th><td>1</td><td>0\.1[23]\d*</td></tr>", page)
