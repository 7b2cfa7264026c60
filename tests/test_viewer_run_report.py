"""Report of a run: scores agree with counts on its outputs."""

from pathlib import Path

import pytest
from report_documents import read_report, section_titles, select_parts
from trained_runs import copy_run_folder, digits_run

from pellucid.config.toml import to_toml
from pellucid.data.examples import Example, read_examples
from pellucid.data.synthetic import spelled_digits
from pellucid.training.run_folder import load
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

TEST = spelled_digits(60, 1, 5, seed=9)
"""Longer than any the model was trained on, so that some come out wrong."""


@pytest.fixture(scope="module")
def judgement() -> ScoredRun:
    return score_run(load(digits_run().run), TEST)


@pytest.fixture(scope="module")
def report(judgement: ScoredRun) -> Report:
    return run_report(digits_run().run, judgement, "A <title>", "One & two.")


def right(judgement: ScoredRun) -> list[bool]:
    return [trace.output == example.target for trace, example in zip(judgement.traces, TEST, strict=True)]


def test_examples_are_decoded_and_scored_against_their_targets(judgement: ScoredRun) -> None:
    assert [trace.text for trace in judgement.traces] == [example.source for example in TEST]
    assert judgement.references == [(example.target,) for example in TEST]
    assert [scored.exact for scored in judgement.scored] == right(judgement)
    assert judgement.evaluation.exact_match == pytest.approx(100 * sum(right(judgement)) / len(TEST))
    assert 0 < sum(right(judgement)) < len(TEST), "all right or all wrong would test little"


def test_scores_on_the_validation_set_equal_the_best_validation() -> None:
    files, run, config = digits_run()
    judged = score_run(load(run), read_examples(files.valid, config.data).examples)
    outputs = [trace.output for trace in load(run).trace(read_examples(files.valid, config.data).examples)]
    assert [trace.output for trace in judged.traces] == outputs
    assert f"exact match {judged.evaluation.exact_match:.2f} %" in (run / "card.md").read_text("utf-8")


def test_errors_are_the_worst_outputs(judgement: ScoredRun, report: Report) -> None:
    assert 0 < len(report.errors) <= min(NUM_LISTED_ERRORS, right(judgement).count(False))
    assert not any(shown.correct for shown in report.errors)
    rates = [(shown.scored.errors if shown.scored else 0) / len(shown.references[0]) for shown in report.errors]
    assert rates == sorted(rates, reverse=True)


def test_correct_and_wrong_outputs_are_drawn(report: Report) -> None:
    assert len(report.examples) == NUM_DRAWN_EXAMPLES
    assert sum(shown.correct for shown in report.examples) == NUM_DRAWN_EXAMPLES - 2


def test_summary_and_settings_are_those_of_the_run(judgement: ScoredRun, report: Report) -> None:
    summary = dict(report.summary)
    assert summary["exact match"].startswith(f"{judgement.evaluation.exact_match:.2f} % (95 %: ")
    assert summary["examples"] == "60" and summary["seed"] == "1"
    assert "3,000 samples" in summary["training"]
    assert report.config_toml == to_toml(load(digits_run().run).config)
    assert sum(accuracy.total for accuracy in report.lengths) == len(TEST)
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
    [[Example("nine", "9")], [Example("nine", "x")], [Example("zzz", "9")], TEST[:4]],
    ids=["one right", "one wrong", "unknown symbols", "few"],
)
def test_few_examples_make_a_report(tmp_path: Path, examples: list[Example]) -> None:
    judged = score_run(load(digits_run().run), examples)
    write_report(tmp_path / "report.html", run_report(digits_run().run, judged, "few", ""))
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_unfinished_run_has_a_report_without_duration(tmp_path: Path) -> None:
    folder = copy_run_folder(digits_run().run, tmp_path / "run")
    (folder / "log.jsonl").unlink()
    report = run_report(folder, score_run(load(folder), TEST[:3]), "unfinished", "")
    assert "training" not in dict(report.summary) and report.log == []
    write_report(tmp_path / "report.html", report)
