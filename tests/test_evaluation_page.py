"""The pages of evaluations: their numbers, what they escape, and that nothing foreign runs in them."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from sample_traces import HOSTILE, diagonal
from test_assessment import ROWS, made, segmenters

from pellucid.data.examples import Example
from pellucid.evaluation.assessment import Answered, Assessment, assess, compare_runs
from pellucid.look.comparison_page import comparison_report
from pellucid.look.error_list import SCRIPT
from pellucid.look.evaluation_page import evaluation_report
from pellucid.look.report import report_html
from pellucid.search.trace import END

COUNTS = {"lines": 4, "bad_lines": 0, "cut_outputs": 2}


class Page(HTMLParser):
    """What a page holds: tags, titles, errors, scripts. Tags must be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.errors: list[dict[str, str | None]] = []
        self.scripts: list[str] = []
        self.titles: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs), "no handlers in attributes"
        if tag == "details" and ("class", "error") in attrs:
            self.errors.append(dict(attrs))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)


def single(assessment: Assessment, listed: int = 10) -> str:
    return report_html(evaluation_report(assessment, "some/test.tsv", COUNTS, listed))


def several(*runs: Assessment) -> str:
    return report_html(comparison_report(runs, [compare_runs(runs[0], run) for run in runs[1:]], "test.tsv", 10))


def test_the_page_of_a_run_tells_its_numbers_and_each_error() -> None:
    page = single(made(ROWS))
    read = Page(page)
    assert read.titles == ["Where it is right", "What it confuses", "How sure it was", "Errors"]
    assert "word error rate" in page and "WER: wrong outputs" in page and "CER: edits over characters" in page
    assert "50.00 %" in page and "run on test.tsv" in page and "cut outputs" in page
    assert [error["data-kinds"] for error in read.errors] == ["deletion", "substitution"]
    assert "d→c" in str(read.errors[1]["data-text"]) and 'data-find="d→c"' in page
    assert page.count("<svg") == 2 + 3 + 2, "two charts of accuracy, three of certainty, two attentions"


def test_only_the_pages_own_script_runs() -> None:
    page = single(made(ROWS))
    assert Page(page).scripts == [SCRIPT]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in page and "default-src &#x27;none&#x27;" in page


def test_groups_stand_in_a_table_with_their_mean() -> None:
    page = single(made(ROWS, groups=["p", "p", "p", "q"]))
    assert Page(page).titles[0] == "By group"
    assert re.search(r'class="total"><th scope="row">mean</th><td>2 groups</td><td>66\.67</td>', page)


def test_what_there_is_not_is_left_out() -> None:
    right = Page(single(made([("ab", "ab")])))
    assert right.titles == ["Where it is right", "How sure it was"] and right.errors == []
    assert Page(single(made([("", "a"), ("b", "")]))).titles[-1] == "Errors"
    assert "The 1 worst of 2 are here" in single(made(ROWS), listed=1)
    assert Page(single(made(ROWS), listed=0)).errors == []


def test_candidates_are_told_under_an_error() -> None:
    page = single(made([("ab", "a", "ab", "b"), ("c", "c", "d", "e")]))
    assert "right in the first 2" in page.lower() and "Then: " in page and "✓ (" in page


def test_two_runs_side_by_side() -> None:
    a, b = made(ROWS, "one"), made([("abc", "abx"), ("abd", "abd"), ("x", "x"), ("yz", "yz")], "two")
    page = several(a, b)
    read = Page(page)
    assert read.titles[:2] == ["Side by side", "Do they differ?"]
    assert read.titles[-2:] == ["one right, two wrong", "two right, one wrong"]
    assert len(read.errors) == 3 and page.count("<h4>") == 6
    assert "chance alone would make a difference like this between one and two" in page
    assert "\u221225.00" in page or "-25.00 points" in page


def test_runs_that_never_disagree_have_no_lists_and_three_runs_have_more() -> None:
    a = made(ROWS, "one")
    assert Page(several(a, made(ROWS, "two"))).errors == []
    page = several(a, made(ROWS, "two"), made([(wanted, wanted) for wanted, _ in ROWS], "three"))
    assert "three right, one wrong" in page and "Several pairs are tested" in page


@pytest.mark.parametrize("symbol", HOSTILE)
def test_hostile_texts_are_harmless(symbol: str) -> None:
    trace = diagonal((symbol, "a"), (symbol, END))
    answered = Answered([Example(symbol, symbol)] * 2, [(symbol + "b",)] * 2, [symbol, "g"], [[trace], [trace]])
    bad = assess(symbol, answered, segmenters(), segmenters())
    good = assess(
        "good", answered._replace(outputs=[[diagonal((symbol,), (*symbol, "b", END))]] * 2), segmenters(), segmenters()
    )
    for page in (single(bad), several(bad, good), several(good, bad)):
        read = Page(page.encode("utf-8", "strict").decode())
        assert read.scripts == [SCRIPT] and read.tags.isdisjoint({"s", "iframe", "img", "link"})
        assert len(read.errors) == 2
