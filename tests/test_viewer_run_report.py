"""The scores in the report of a run equal counts on its outputs."""

from pathlib import Path

import pytest
from report_documents import read_report, section_titles, select_parts
from trained_runs import copy_run_folder, digits_run

from pellucid.config.toml import to_toml
from pellucid.data.examples import Example, read_examples
from pellucid.data.synthetic import spelled_digits
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer.report_schema import ReportExamples
from pellucid.viewer.reports import (
    NUM_DRAWN_EXAMPLES,
    NUM_LISTED_ERRORS,
    Report,
    ScoredRun,
    run_report,
    score_run,
    write_report,
)

TEST_EXAMPLES = spelled_digits(60, 1, 5, seed=9)
"""These numbers are longer than those in training, so some outputs are wrong."""


@pytest.fixture(scope="module")
def scored_run() -> ScoredRun:
    return score_run(load(digits_run().run), TEST_EXAMPLES)


@pytest.fixture(scope="module")
def report(scored_run: ScoredRun) -> Report:
    return run_report(digits_run().run, scored_run, "A <title>", "One & two.")


def list_correct(scored_run: ScoredRun) -> list[bool]:
    return [trace.output == example.target for trace, example in zip(scored_run.traces, TEST_EXAMPLES, strict=True)]


def test_examples_are_decoded_and_scored_against_their_targets(scored_run: ScoredRun) -> None:
    assert [trace.text for trace in scored_run.traces] == [example.source for example in TEST_EXAMPLES]
    assert scored_run.references == [(example.target,) for example in TEST_EXAMPLES]
    assert [scored.exact for scored in scored_run.scored] == list_correct(scored_run)
    assert scored_run.evaluation.exact_match == pytest.approx(100 * sum(list_correct(scored_run)) / len(TEST_EXAMPLES))
    assert 0 < sum(list_correct(scored_run)) < len(TEST_EXAMPLES), "the test needs correct and wrong outputs"


def test_scores_on_the_validation_set_equal_the_best_validation() -> None:
    files, run, config = digits_run()
    result = score_run(load(run), read_examples(files.valid, config.data).examples)
    outputs = [trace.output for trace in load(run).predict_examples(read_examples(files.valid, config.data).examples)]
    assert [trace.output for trace in result.traces] == outputs
    assert f"exact match {result.evaluation.exact_match:.2f} %" in (run / "card.md").read_text("utf-8")


def test_errors_are_the_worst_outputs(scored_run: ScoredRun, report: Report) -> None:
    assert 0 < len(report.errors) <= min(NUM_LISTED_ERRORS, list_correct(scored_run).count(False))
    assert not any(shown.correct for shown in report.errors)
    rates = [(shown.scored.errors if shown.scored else 0) / len(shown.references[0]) for shown in report.errors]
    assert rates == sorted(rates, reverse=True)


def test_correct_and_wrong_outputs_are_drawn(report: Report) -> None:
    assert len(report.examples) == NUM_DRAWN_EXAMPLES
    assert sum(shown.correct for shown in report.examples) == NUM_DRAWN_EXAMPLES - 2


def test_summary_and_settings_are_those_of_the_run(scored_run: ScoredRun, report: Report) -> None:
    summary = dict(report.summary)
    assert summary["exact match"].startswith(f"{scored_run.evaluation.exact_match:.2f} % (95 %: ")
    assert summary["examples"] == "60" and summary["seed"] == "1"
    assert "3,000 samples" in summary["training"]
    assert report.config_toml == to_toml(load(digits_run().run).config)
    assert sum(accuracy.total for accuracy in report.lengths) == len(TEST_EXAMPLES)
    assert all(0 <= bar.low <= 100 * bar.right / bar.total <= bar.high <= 100 for bar in report.positions)


def test_written_report_contains_its_text(tmp_path: Path, report: Report) -> None:
    write_report(tmp_path / "report.html", report)
    document = read_report(tmp_path / "report.html")
    assert document.title == "A <title>" and document.introduction.startswith("One & two.")
    (errors,) = select_parts(document, ReportExamples, "Errors")
    assert errors.examples[0].outputs[0].text == report.errors[0].trace.text
    assert section_titles(document) == ["Training curves", "Accuracy", "Attention", "Errors", "Settings"]


@pytest.mark.parametrize(
    "examples",
    [[Example("nine", "9")], [Example("nine", "x")], [Example("zzz", "9")], TEST_EXAMPLES[:4]],
    ids=["one correct", "one wrong", "unknown symbols", "few"],
)
def test_few_examples_make_a_report(tmp_path: Path, examples: list[Example]) -> None:
    result = score_run(load(digits_run().run), examples)
    write_report(tmp_path / "report.html", run_report(digits_run().run, result, "few", ""))
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_unfinished_run_has_a_report_without_duration(tmp_path: Path) -> None:
    folder = copy_run_folder(digits_run().run, tmp_path / "run")
    (folder / "log.jsonl").unlink()
    report = run_report(folder, score_run(load(folder), TEST_EXAMPLES[:3]), "unfinished", "")
    assert "training" not in dict(report.summary) and report.log == []
    write_report(tmp_path / "report.html", report)
