"""Reports in a browser: content, search, saved files, and escaped markup."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import OpenPage
from page_navigation import download_panel, find_panel
from playwright.sync_api import Page, expect
from report_documents import read_report
from sample_traces import HOSTILE_SYMBOLS
from test_assessment import ROWS, build_assessment
from test_viewer_report_parts import full, tagged

from pellucid.evaluation.assessment import Assessment, ComparedAssessment, compare_runs
from pellucid.viewer.report_parts import ExampleOutput
from pellucid.viewer.reports import Report, comparison_report, evaluation_report, write_report

OpenReport = Callable[[Report], Page]
RUNS = (
    build_assessment(ROWS, "one"),
    build_assessment([("abc", "abx"), ("abd", "abd"), ("x", "x"), ("yz", "yz")], "two"),
)


@pytest.fixture
def open_report(open_page: OpenPage, tmp_path: Path) -> OpenReport:
    """Return a function that writes a report to a file and opens it."""

    def write_and_open(report: Report) -> Page:
        write_report(tmp_path / "report.html", report)
        return open_page((tmp_path / "report.html").as_uri())

    return write_and_open


def make_evaluation_report(assessment: Assessment, max_errors: int = 10) -> Report:
    return evaluation_report(assessment, "some/test.tsv", {"truncated_outputs": 2}, max_errors)


def make_comparison_report() -> Report:
    return comparison_report(RUNS, [ComparedAssessment(RUNS[1], compare_runs(*RUNS))], [], [], "test.tsv", 10)


def test_every_part_is_shown(open_report: OpenReport) -> None:
    page = open_report(full())
    expect(page.get_by_role("heading", level=1)).to_have_text("Spelling <to> sound")
    titles = ["Training curves", "Accuracy", "Attention", "Errors", "Mean", "Numbers", "Settings"]
    expect(page.get_by_role("heading", level=2)).to_have_text(titles)
    expect(page.locator("main")).to_contain_text("One paragraph, in two lines.")
    expect(page.locator("dl div").first).to_have_text(re.compile("exact match.*86.4 %.*95 %: 83.0 to 89.3"))
    picture = page.get_by_role("img", name="Mean", exact=True)
    assert picture.evaluate("image => image.complete && image.src.startsWith('data:image/svg+xml,')")
    expect(find_panel(page, "Numbers").get_by_role("row")).to_have_text(["whathow many", "<a>1", "b2"])
    page.get_by_text("All settings (TOML)").click()
    expect(find_panel(page, "Settings")).to_contain_text('size = "<base>"')


def test_markup_in_symbols_stays_text(open_report: OpenReport) -> None:
    page = open_report(full())
    expect(page.locator("main")).to_contain_text("</script><b>")
    assert page.locator("main s, main iframe, main i").count() == 0 and len(HOSTILE_SYMBOLS) > 3


def test_charts_have_values_and_tables(open_report: OpenReport, tmp_path: Path) -> None:
    page = open_report(full())
    chart = find_panel(page, "By target position")
    chart.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(chart).to_contain_text("1: 90.0 % correct (9 of 10; 95 % interval 59.6 to 98.2)")
    chart.get_by_text("Numbers as table").click()
    expect(chart.get_by_role("row").nth(1)).to_have_text("191090.059.6 – 98.2")
    assert b"3\xe2\x80\x934: 50.0 % correct" in download_panel(page, "By target position", "CSV", tmp_path)
    loss = find_panel(page, "Loss")
    expect(loss.locator(".legend")).to_have_text(re.compile("training.*validation"))


def test_drawn_examples_have_weights_and_probabilities(open_report: OpenReport) -> None:
    example = open_report(full()).get_by_role("region", name=re.compile("abc.* → .*AB")).first
    expect(example).to_contain_text("p = 0.46")
    expect(example).to_contain_text("correct")
    expect(example.locator(".step")).to_have_text(
        [re.compile("A.*93 %.*x.*5.3 %"), re.compile("B.*50 %"), re.compile("end.*99.9")]
    )
    example.get_by_role("application").focus()
    for _ in range(2):
        example.get_by_role("application").press("ArrowRight")
    expect(example.locator(".readout")).to_contain_text(re.compile("weight on position 2, .*b.*: 0.2000"))
    example.locator(".step").nth(1).click()
    expect(example.locator(".choices li")).to_have_text(
        [re.compile("B.*50 %"), re.compile("x.*38 %"), re.compile("y.*12 %")]
    )


def test_errors_are_opened_searched_and_sorted(open_report: OpenReport) -> None:
    page = open_report(make_evaluation_report(build_assessment(ROWS)))
    errors = find_panel(page, "Errors")
    expect(errors.locator("details")).to_have_count(2)
    expect(errors.locator("details").nth(1).locator("mark")).to_have_text(["c", "d"])
    expect(errors.get_by_role("application")).to_have_count(0)
    errors.locator("summary").nth(1).click()
    expect(errors.get_by_role("application")).to_have_count(1)
    expect(errors).to_contain_text("d→c")
    errors.get_by_label("Kind of error").select_option("deletions")
    expect(errors.get_by_role("status")).to_have_text("1 of 2")
    errors.get_by_label("Kind of error").select_option("all kinds")
    errors.get_by_label("Sort by").select_option("most probable first")
    expect(errors.locator("summary").first).to_contain_text("yz")
    errors.get_by_label("Search sources").fill("nowhere")
    expect(errors.locator("details")).to_have_count(0)


def test_confusion_lists_its_examples(open_report: OpenReport) -> None:
    page = open_report(make_evaluation_report(build_assessment(ROWS)))
    confusions = find_panel(page, "Confusions")
    expect(confusions.get_by_title("correct predictions of this symbol").first).to_have_text("1")
    confusions.get_by_role("button", name="expected d, predicted c: 1 of 1").click()
    expect(find_panel(page, "Errors").get_by_label("Search sources")).to_have_value("d→c")
    expect(find_panel(page, "Errors").get_by_role("status")).to_have_text("1 of 2")
    confusions.get_by_label("list all confusions").check()
    expect(confusions.get_by_role("row").nth(1)).to_have_text(re.compile("dc11100 %"))


def test_groups_candidates_and_calibration_are_shown(open_report: OpenReport) -> None:
    page = open_report(
        make_evaluation_report(build_assessment([("ab", "a", "ab", "b"), ("c", "c", "d", "e")], groups=["p", "q"]))
    )
    expect(find_panel(page, "By group").get_by_role("row").last).to_have_text(re.compile("mean2 groups50.00"))
    expect(find_panel(page, "Reliability").locator(".legend")).to_have_text(re.compile("run.*perfect calibration"))
    for title in ("Selective accuracy", "Errors found by review"):
        expect(find_panel(page, title).get_by_role("slider")).to_be_visible()
    find_panel(page, "Errors").locator("summary").first.click()
    expect(find_panel(page, "Errors")).to_contain_text(re.compile(r"Further outputs: .*ab ✓ \(\d"))


def test_two_runs_are_side_by_side(open_report: OpenReport) -> None:
    page = open_report(make_comparison_report())
    expect(find_panel(page, "Scores").get_by_role("columnheader")).to_have_text(["over all examples", "one", "two"])
    expect(find_panel(page, "Significance")).to_contain_text("In exact match, one and two do not differ significantly")
    expect(find_panel(page, "By target position").locator(".legend")).to_have_text(re.compile("one.*two"))
    differing_examples = find_panel(page, "one correct, two wrong")
    differing_examples.locator("summary").first.click()
    expect(differing_examples.get_by_role("heading", level=3)).to_have_text(
        [re.compile("^one: .*abc"), re.compile("^two: .*abx")]
    )
    expect(differing_examples.get_by_role("application")).to_have_count(2)


def test_wrong_tags_are_below_their_words(open_report: OpenReport) -> None:
    page = open_report(Report("t", errors=[ExampleOutput(tagged("play a song", "O O B-x"), ("O B-y B-x",))]))
    errors = find_panel(page, "Errors")
    errors.locator("summary").first.click()
    expect(errors.locator(".cell")).to_have_text(["playO", "aOB-y", "songB-x"])
    expect(errors.locator(".missed .true")).to_have_text(["B-y"])


@pytest.mark.parametrize("width", [380, 1280])
def test_nothing_is_wider_than_the_page(open_report: OpenReport, width: int) -> None:
    page = open_report(make_comparison_report())
    page.set_viewport_size({"width": width, "height": 800})
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_saved_page_has_the_same_report(open_report: OpenReport, tmp_path: Path) -> None:
    page = open_report(full())
    with page.expect_download() as download:
        page.get_by_role("button", name="Save page").click()
    download.value.save_as(tmp_path / "again.html")
    assert read_report(tmp_path / "again.html") == read_report(tmp_path / "report.html")


def test_report_of_another_format_is_refused(open_page: OpenPage, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", Report("t"))
    source = (tmp_path / "report.html").read_text("utf-8").replace('"format":1', '"format":99', 1)
    (tmp_path / "new.html").write_text(source, "utf-8")
    page = open_page((tmp_path / "new.html").as_uri())
    expect(page.get_by_role("alert")).to_have_text("This page reads reports of format 1; these are of format 99.")
