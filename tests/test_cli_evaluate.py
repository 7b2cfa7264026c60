"""pellucid evaluate: metrics equal counts on the output of predict."""

import csv
import hashlib
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import CommandResult, build_environment, output_lines, run_pellucid, usage_error_message
from report_documents import read_report, section_titles, select_parts
from trained_runs import (
    copy_run_folder,
    copy_task_run,
    digits_run,
    make_small_config,
    shared_folder,
    train_to_end,
    write_copy_files,
    write_pairs,
)

import pellucid
from pellucid.cli import evaluate as evaluate_command
from pellucid.data.examples import Example, read_examples
from pellucid.data.synthetic import spelled_digits
from pellucid.decoding import streaming
from pellucid.decoding.transducer import Transducer
from pellucid.errors import RunError
from pellucid.pair_ngram.predictor import PairNgramPredictor, fit_pair_ngram_predictor
from pellucid.run_folder.pair_ngram_file import SavedPairNgram, save_pair_ngram
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer import reports
from pellucid.viewer.report_schema import ReportExamples

PAIRS = spelled_digits(60, 1, 5, seed=9)
"""Pairs longer than the training pairs, so that some outputs are wrong."""


@cache
def write_pairs_file() -> Path:
    return write_pairs(shared_folder() / "evaluated.tsv", PAIRS)


def evaluate(*arguments: object) -> CommandResult:
    return run_pellucid("evaluate", digits_run().run, *arguments)


def evaluate_to_json(*arguments: object) -> dict[str, Any]:
    result = evaluate(*arguments, "--json")
    assert result.code == 0, result
    actual: dict[str, Any] = json.loads(result.out)
    return actual


def without_origin(report: dict[str, Any]) -> dict[str, Any]:
    """Return the results of an evaluation without the time and without the description of run and files."""
    return {key: value for key, value in report.items() if key not in ("seconds", "provenance")}


@cache
def predicted_outputs() -> list[str]:
    return list(output_lines(run_pellucid("predict", digits_run().run, write_pairs_file()).out))


def edit_distance(left_text: str, right_text: str) -> int:
    """Return the Levenshtein distance, computed row by row."""
    row = list(range(len(right_text) + 1))
    for number, left in enumerate(left_text, 1):
        previous_row, row = row, [number]
        for (diagonal, up), right in zip(pairwise(previous_row), right_text, strict=True):
            row.append(min(up + 1, row[-1] + 1, diagonal + (left != right)))
    return row[-1]


def test_metrics_agree_with_the_output_of_predict() -> None:
    result = evaluate_to_json(write_pairs_file())
    num_wrong = sum(output != example.target for output, example in zip(predicted_outputs(), PAIRS, strict=True))
    errors = sum(
        edit_distance(output, example.target) for output, example in zip(predicted_outputs(), PAIRS, strict=True)
    )
    symbols = sum(len(example.target) for example in PAIRS)
    assert 0 < num_wrong < 60, "some outputs are correct and some are wrong"
    assert result["examples"] == result["lines"] == 60 and result["seconds"] > 0
    assert result["sequence_error_rate"] == pytest.approx(100 * num_wrong / 60) and result[
        "exact_match"
    ] == pytest.approx(100 - result["sequence_error_rate"])
    assert (result["errors"], result["symbols"]) == (errors, symbols)
    assert result["symbol_error_rate"] == pytest.approx(100 * errors / symbols)
    num_aligned = sum(
        sum(map(str.__eq__, output, e.target)) for output, e in zip(predicted_outputs(), PAIRS, strict=True)
    )
    num_equal_ends = sum(len(output) == len(e.target) for output, e in zip(predicted_outputs(), PAIRS, strict=True))
    assert result["symbol_accuracy"] == pytest.approx(100 * (num_aligned + num_equal_ends) / (symbols + 60))


def test_word_error_rate_has_a_wilson_interval() -> None:
    result, z = evaluate_to_json(write_pairs_file()), 1.959963984540054
    error_rate, num_examples = result["sequence_error_rate"] / 100, 60
    center = (error_rate + z * z / (2 * num_examples)) / (1 + z * z / num_examples)
    half_width = (
        z
        * math.sqrt(error_rate * (1 - error_rate) / num_examples + z * z / (4 * num_examples * num_examples))
        / (1 + z * z / num_examples)
    )
    assert result["sequence_error_rate_ci95"] == pytest.approx(
        [100 * (center - half_width), 100 * (center + half_width)]
    )
    low, high = result["symbol_error_rate_ci95"]
    assert low < result["symbol_error_rate"] < high


def test_worst_examples_are_listed_with_their_references() -> None:
    worst = evaluate_to_json(write_pairs_file(), "--worst", "3")["worst"]
    assert len(worst) == 3 and evaluate_to_json(write_pairs_file(), "--worst", "0")["worst"] == []
    targets = {example.source: example.target for example in PAIRS}
    for row in worst:
        assert row["references"] == [targets[row["source"]]] and row["output"] != row["references"][0]
        assert row["errors"] == edit_distance(row["output"], row["references"][0])


def test_negative_worst_is_refused() -> None:
    assert "worst" in usage_error_message(evaluate(write_pairs_file(), "--worst", "-1"))


def test_pairs_are_scored_against_their_target_or_any_reference(tmp_path: Path) -> None:
    (prediction,) = output_lines(run_pellucid("predict", digits_run().run, stdin=b"two one\n").out)
    file = write_pairs(tmp_path / "a.tsv", [Example("two one", target) for target in (prediction, "x", "y")])
    separate, merged = evaluate(file, "--json"), evaluate(file, "--json", "--multi-reference")
    assert "2 further targets repeat the source of an earlier pair" in separate.err and merged.err == ""
    separate_scores, merged_scores = json.loads(separate.out), json.loads(merged.out)
    assert (separate_scores["examples"], separate_scores["sequence_error_rate"]) == (3, pytest.approx(200 / 3))
    assert (
        merged_scores["examples"],
        merged_scores["lines"],
        merged_scores["sequence_error_rate"],
        merged_scores["errors"],
    ) == (
        1,
        3,
        0.0,
        0,
    )


def test_tables_and_json_have_the_same_numbers() -> None:
    result, actual = evaluate(write_pairs_file()), evaluate_to_json(write_pairs_file())
    assert result.code == 0 and result.err == ""
    for name, key in (("exact match", "exact_match"), ("sequence error rate", "sequence_error_rate")):
        low, high = actual[f"{key}_ci95"]
        line = next(line for line in result.out.splitlines() if line.strip().startswith(name))
        assert f"{actual[key]:.2f} %" in line and f"95 %: {low:.2f} to {high:.2f}" in line
    assert "accuracy by target position" in result.out and "worst examples" in result.out
    table = result.out.partition("worst examples")[2]
    assert "…" not in table and "order: most errors per expected symbol first" in table


def test_evaluation_of_the_validation_set_repeats_the_logged_metrics() -> None:
    result = evaluate_to_json(digits_run().files.valid, "--beam-size", 1)
    card = (digits_run().run / "card.md").read_text("utf-8")
    assert (
        f"exact match {result['exact_match']:.2f} % (sequence error rate {result['sequence_error_rate']:.2f} %)" in card
    )
    assert f"symbol error rate {result['symbol_error_rate']:.2f} %" in card


def test_bad_lines_blank_lines_and_unknown_symbols_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\t1\n\nbad\ntwß\t2\n", encoding="utf-8")
    assert f"{tmp_path / 'a.tsv'}:3: expected 2 columns, got 1" in usage_error_message(evaluate(tmp_path / "a.tsv"))
    result = evaluate(tmp_path / "a.tsv", "--on-bad-line", "skip", "--json")
    actual = json.loads(result.out)
    counts = [actual[name] for name in ("examples", "bad_lines", "blank_lines", "unknown_symbols", "truncated_outputs")]
    assert result.code == 0 and counts[:4] == [2, 1, 1, 1]
    assert result.err.startswith(f"pellucid: skipped {tmp_path / 'a.tsv'}:3: ")


def test_the_origin_of_the_results_is_recorded(tmp_path: Path) -> None:
    content = b"one\t1\n\nbad\nnine two\t92\n"
    (tmp_path / "a.tsv").write_bytes(content)
    flags = ("--on-bad-line", "skip", "--nbest", 7, "--beam-size", 3)
    actual = evaluate_to_json(tmp_path / "a.tsv", *flags)["provenance"]
    file = {"path": str(tmp_path / "a.tsv"), "sha256": hashlib.sha256(content).hexdigest(), "rows": 4}
    assert actual["files"] == [{**file, "target": None, "target_sha256": None}]
    assert (actual["version"], actual["run"]) == (pellucid.__version__, str(digits_run().run))
    search = msgspec.to_builtins(digits_run().config.search)
    assert (
        actual["search"] == {**search, "pair_ngram": False, "beam_size": 3, "nbest": 7} and actual["sampling"] is None
    )
    sampled = evaluate_to_json(tmp_path / "a.tsv", "--on-bad-line", "skip", "--sample", 2, "--top-k", 3)["provenance"]
    assert sampled["search"] is None and (sampled["sampling"]["samples"], sampled["sampling"]["top_k"]) == (2, 3)


def test_worst_examples_have_their_line_and_id(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('ID,words,digits\nA-1,one,1\n\nA-2,"two\nsix",x\nA-3,nine,9x9x9\nA-4,nine,y\n', "utf-8")
    flags = ("--source-column", "words", "--target-column", "digits")
    worst = evaluate_to_json(path, *flags)["worst"]
    assert {(row["line"], row["id"]) for row in worst} == {(4, "A-2"), (6, "A-3"), (7, "A-4")}
    merged = evaluate_to_json(path, *flags, "--multi-reference")["worst"]
    assert {(row["line"], row["id"]) for row in merged} == {(4, "A-2"), (6, "A-3")}
    table = evaluate(path, *flags).out.partition("worst examples")[2]
    assert re.search(r"line\s*[┃|]\s*id\s*[┃|]\s*source", table) and re.search(r"6\s*[│|]\s*A-3", table)
    without_ids = evaluate_to_json(write_pairs_file())["worst"]
    lines = write_pairs_file().read_text("utf-8").splitlines()
    assert all(lines[row["line"] - 1].startswith(row["source"]) and "id" not in row for row in without_ids)


def test_all_errors_are_written_as_csv(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text('ID;words;digits\nA-1;one;1\nA-2;"two\nsix";x\nA-3;nine;9x9\n', "utf-8-sig")
    errors, flags = tmp_path / "errors.csv", ("--source-column", "words", "--target-column", "digits", "--worst", 1)
    result = evaluate(path, *flags, "--errors", errors)
    assert result.code == 0 and f"wrote {errors}: 2 wrong outputs" in result.err
    assert errors.read_bytes().startswith("\ufeffline;id;source;output;expected;errors;confidence;log_prob".encode())
    rows = list(csv.DictReader(io.StringIO(errors.read_text("utf-8-sig"), newline=""), delimiter=";"))
    assert [(row["line"], row["id"], row["source"]) for row in rows] == [("3", "A-2", "two\nsix"), ("5", "A-3", "nine")]
    assert (rows[1]["output"], rows[1]["expected"], rows[1]["errors"]) == ("9", "9x9", "2")
    assert float(rows[1]["log_probability"]) < 0
    runs = [digits_run().run, copy_run_folder(digits_run().run, tmp_path / "other")]
    assert run_pellucid("evaluate", *runs, write_pairs_file(), "--errors", errors).code == 0
    rows = list(csv.DictReader(errors.read_text().splitlines()))
    assert {row["run"] for row in rows} == {"run", "other"}
    wrong = [
        example.source for example, output in zip(PAIRS, predicted_outputs(), strict=True) if output != example.target
    ]
    assert sorted(row["source"] for row in rows) == sorted(wrong * 2)
    assert "--errors takes a file that ends with .csv" in usage_error_message(evaluate(path, "--errors", "errors.txt"))


def test_targets_are_read_from_a_parallel_file(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).write_text("".join(f"{getattr(example, name)}\n" for example in PAIRS))
    actual, expected = (
        evaluate_to_json(tmp_path / "source", "--target", tmp_path / "target"),
        evaluate_to_json(write_pairs_file()),
    )
    assert without_origin(actual) == without_origin(expected)
    assert actual["provenance"]["files"][0]["target"] == str(tmp_path / "target")
    (tmp_path / "target").write_text("1\n")
    assert "has 60 lines, but" in usage_error_message(evaluate(tmp_path / "source", "--target", tmp_path / "target"))


def test_format_follows_the_file_name(tmp_path: Path) -> None:
    lines = (json.dumps({"s": example.source, "t": example.target}) for example in PAIRS)
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    expected = without_origin(evaluate_to_json(write_pairs_file()))
    assert without_origin(evaluate_to_json(tmp_path / "a.jsonl")) == expected
    (tmp_path / "a.txt").write_bytes((tmp_path / "a.jsonl").read_bytes())
    assert (
        evaluate_to_json(tmp_path / "a.txt", "--input-format", "jsonl")["errors"]
        == evaluate_to_json(write_pairs_file())["errors"]
    )


def test_standard_input_gives_the_same_results(tmp_path: Path) -> None:
    result = run_pellucid("evaluate", digits_run().run, "-", "--json", stdin=write_pairs_file().read_bytes())
    expected = evaluate_to_json(write_pairs_file())
    assert result.code == 0 and without_origin(json.loads(result.out)) == without_origin(expected)
    (file,) = json.loads(result.out)["provenance"]["files"]
    assert {**file, "path": str(write_pairs_file())} == expected["provenance"]["files"][0] and file["path"] == "-"
    assert "standard input:1: expected 2 columns" in usage_error_message(
        run_pellucid("evaluate", digits_run().run, "-", stdin=b"bad\n")
    )


def test_long_run_names_stay_distinct(tmp_path: Path) -> None:
    run, file = digits_run().run, digits_run().files.valid
    names = ["a-long-name-that-all-runs-begin-with-seed-one", "a-long-name-that-all-runs-begin-with-seed-two"]
    runs = [copy_run_folder(run, tmp_path / name) for name in names]
    result = run_pellucid("evaluate", *runs, file, "--html", tmp_path / "page.html")
    assert result.code == 0 and "…one" in result.out and "…two" in result.out
    assert f"pellucid: …one is {names[0]}\n" in result.err
    assert names[0] in read_report(tmp_path / "page.html").introduction
    scores = json.loads(run_pellucid("evaluate", *runs, file, "--json").out)
    assert [each["name"] for each in scores["runs"]] == names and scores["comparisons"][0]["a"] == names[0]


def test_two_runs_are_compared(tmp_path: Path) -> None:
    copy = copy_run_folder(digits_run().run, tmp_path / "same")
    result = evaluate(copy, write_pairs_file(), "--json", "--html", tmp_path / "page.html")
    actual = json.loads(result.out)
    assert result.code == 0 and result.err == f"pellucid: wrote {tmp_path / 'page.html'}\n"
    assert [run["name"] for run in actual["runs"]] == ["run", "same"]
    single_run = evaluate_to_json(write_pairs_file())
    assert without_origin(actual["runs"][0]) == {**without_origin(single_run), "name": "run"}
    assert actual["runs"][1]["provenance"]["run"] == str(copy)
    (comparison,) = actual["comparisons"]
    assert (comparison["a"], comparison["b"]) == ("run", "same")
    for score in ("exact_match", "symbol_error_rate"):
        assert comparison[score]["difference"] == 0 and comparison[score]["p"] == 1
    assert comparison["only_a"] == comparison["only_b"] == 0 and comparison["a_right_b_wrong"] == []
    document = read_report(tmp_path / "page.html")
    assert "Significance" in section_titles(document) and document.title == "run and same"
    tables = evaluate(copy, write_pairs_file())
    assert "run minus each other run" in tables.out and "correct examples" in tables.out


def test_mean_over_seeds_is_reported_for_runs_that_differ_in_nothing_else(tmp_path: Path) -> None:
    run = digits_run().run
    other = copy_run_folder(run, tmp_path / "other")
    config = (other / "config.toml").read_text("utf-8")
    assert evaluate_to_json(other, write_pairs_file())["seeds"] == []  # the seeds are equal
    (other / "config.toml").write_text(re.sub(r"(?m)^seed = 1$", "seed = 2", config), "utf-8")
    actual = evaluate_to_json(other, write_pairs_file(), "--html", tmp_path / "page.html")
    (group,) = actual["seeds"]
    assert group.pop("runs") == ["run", "other"] and group.pop("unfinished_runs") == []
    assert group.pop("timed_updates") == {}
    assert list(group) == ["exact_match", "sequence_error_rate", "symbol_error_rate"]
    for key, rate in group.items():
        values = [each[key] for each in actual["runs"]]
        mean = values[0]
        assert rate == {"mean": mean, "standard_deviation": 0, "ci95": [mean, mean], "values": values}
    assert "2 seeds: run, other" in evaluate(other, write_pairs_file()).out
    assert "standard deviation, points" in (tmp_path / "page.html").read_text("utf-8")
    other_dropout = re.sub(r"(?m)^seed = 1$", "seed = 2", re.sub(r"(?m)^dropout = .*$", "dropout = 0.123", config))
    (other / "config.toml").write_text(other_dropout, "utf-8")
    assert evaluate_to_json(other, write_pairs_file())["seeds"] == []  # another setting differs, too
    log = (third := copy_run_folder(run, tmp_path / "third")) / "log.jsonl"
    (third / "config.toml").write_text(re.sub(r"(?m)^seed = 1$", "seed = 4", config), "utf-8")
    records = log.read_text("utf-8")
    log.write_text(re.sub(r'"sha256": *"\w+"', '"sha256": "of another training file"', records), "utf-8")
    assert evaluate_to_json(third, write_pairs_file())["seeds"] == []  # regression test: the files were not compared
    log.write_text(records, "utf-8")
    copy = copy_run_folder(other, tmp_path / "copy")
    (copy / "config.toml").write_text(re.sub(r"(?m)^seed = 2$", "seed = 3", other_dropout), "utf-8")
    compared = evaluate_to_json(other, copy, third, write_pairs_file(), "--html", tmp_path / "page.html")
    assert [group["runs"] for group in compared["seeds"]] == [["run", "third"], ["other", "copy"]]
    (means,) = compared["mean_differences"]
    assert (means["a"], means["b"]) == (["run", "third"], ["other", "copy"])
    assert means["exact_match"]["a"] == pytest.approx(compared["seeds"][0]["exact_match"]["mean"])
    assert means["exact_match"]["difference"] == 0 == means["exact_match"]["ci95"][0]  # the same weights
    assert "difference of the means, points" in (tmp_path / "page.html").read_text("utf-8")
    tables = evaluate(other, copy, third, write_pairs_file()).out
    assert means["exact_match"]["p"] is None and "no p: with 2 and 2 seeds" in " ".join(tables.split())
    assert (
        "A: run, third" in tables and "B: other, copy" in tables and "widened for few seeds" in " ".join(tables.split())
    )
    assert "only the other" in tables and "run correct, third wrong" not in tables


@pytest.mark.slow
def test_what_is_often_misread_is_explained(tmp_path: Path) -> None:
    """The folder of an ensemble is not the mean of its members; label smoothing lowers all probabilities."""
    copy_run_folder(digits_run().run, tmp_path / "ensemble" / "seed-1")
    (tmp_path / "ensemble" / "ensemble.json").write_text('{"members": ["seed-1"]}')
    result = run_pellucid("evaluate", tmp_path / "ensemble", write_pairs_file())
    assert (
        result.code == 0 and "is an ensemble, whose members decode together; for the mean over its seeds" in result.err
    )
    assert "ensemble" not in evaluate(write_pairs_file()).err
    files = write_copy_files(tmp_path / "data", num_training=200)
    settings = {"epochs": 20, "learning_rate": 0.02, "label_smoothing": 0.4}
    train_to_end(files, tmp_path / "smoothed", make_small_config(settings))
    result = run_pellucid("evaluate", tmp_path / "smoothed", files.valid)
    assert "run smoothed: probabilities are lower than the accuracy because of training.label_smoothing" in result.err


def test_html_page_lists_the_errors(tmp_path: Path) -> None:
    assert evaluate(write_pairs_file(), "--html", tmp_path / "a.html", "--nbest", "2").code == 0
    worst = evaluate_to_json(write_pairs_file(), "--beam-size", "2", "--worst", "100")["worst"]
    (errors,) = select_parts(read_report(tmp_path / "a.html"), ReportExamples, "Errors")
    assert len(errors.examples) == len(worst) > 0 and {len(each.outputs[0].traces) for each in errors.examples} == {2}
    assert "ends with .html" in usage_error_message(evaluate(write_pairs_file(), "--html", tmp_path / "a.htm"))


def test_small_chunks_give_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors, options = tmp_path / "errors.csv", ["--worst", "4", "--json", "--errors"]
    runs, results = [str(digits_run().run), str(copy_task_run().run)], list[tuple[Any, ...]]()
    for size in (1024, 7):
        monkeypatch.setattr(streaming, "MAX_SOURCES", size)
        assert evaluate_command.main([*runs, str(write_pairs_file()), *options, str(errors)]) == 0
        report = json.loads(capsys.readouterr().out)
        rows = [row[:-2] for row in csv.reader(errors.read_text("utf-8").splitlines())]  # the rest is not exact
        lists = [each["worst"] for each in report["runs"]]
        lists += [pair[key] for pair in report["comparisons"] for key in ("a_right_b_wrong", "b_right_a_wrong")]
        places = [[(row["line"], row["output"], row["errors"]) for row in each] for each in lists]
        confusions = [(each["exact_match"], each["positions"], each["confusions"]) for each in report["runs"]]
        results.append((rows, places, confusions, report["comparisons"][0]["exact_match"]))
    assert results[0] == results[1] and len(results[0][0]) > len(PAIRS)
    assert [len(each) for each in results[0][1]] == [4, 4, 4, 0]


SLOW_DECODING = """
import sys, time
from pellucid.cli import main
from pellucid.decoding.transducer import Transducer

decode = Transducer.predict_examples

def decode_slowly(*arguments):
    outputs = decode(*arguments)
    print("decoded", file=sys.stderr, flush=True)
    time.sleep(60)
    return outputs

Transducer.predict_examples = decode_slowly
sys.exit(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGTERM ends a process of Windows at once")
def test_sigterm_during_decoding_leaves_no_file(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    (results := tmp_path / "results").mkdir()
    (results / "errors.csv").write_text("of an earlier evaluation\n", "utf-8")
    flags = ["--html", str(results / "page.html"), "--errors", str(results / "errors.csv"), "--json"]
    command = [sys.executable, "-c", SLOW_DECODING, "evaluate", str(digits_run().run), str(write_pairs_file()), *flags]
    environment = build_environment({"TMPDIR": str(temporary)})
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stderr.readline() == "decoded\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert process.stderr.read() == "pellucid: stopped by SIGTERM\n" and process.stdout.read() == ""
    assert os.listdir(temporary) == [] and os.listdir(results) == ["errors.csv"]
    assert (results / "errors.csv").read_text("utf-8") == "of an earlier evaluation\n"


def test_scores_are_printed_though_the_files_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression test: a disk that became full lost the scores of a long evaluation."""

    def fail(path: Path, *_: object) -> None:
        raise RunError(f"cannot write {path}: no space left on device")

    monkeypatch.setattr(reports, "write_report", fail)
    monkeypatch.setattr(evaluate_command, "open_atomic", fail)
    page, errors = tmp_path / "a.html", tmp_path / "a.csv"
    arguments = [digits_run().run, write_pairs_file(), "--html", page, "--errors", errors, "--json"]
    assert evaluate_command.main(list(map(str, arguments))) == 2
    result = capsys.readouterr()
    assert "exact_match" in json.loads(result.out)
    assert [line for line in result.err.splitlines() if "cannot write" in line] == [
        f"pellucid: cannot write {path}: no space left on device" for path in (page, errors)
    ]


def field_names(value: object) -> set[str]:
    """Return the names of all fields of objects in JSON, except settings of the search and names of metrics."""
    if isinstance(value, list):
        return set().union(*map(field_names, value))
    if not isinstance(value, dict):
        return set()
    parts = {name: part for name, part in value.items() if name not in ("search", "metrics", "timed_updates")}
    return {*value, *field_names(list(parts.values()))}


def test_the_documentation_states_the_unit_of_each_field(tmp_path: Path) -> None:
    guides = Path(__file__).parents[1] / "docs" / "guides"
    tables = re.findall(r"(?m)^\| .*", (guides / "evaluating.md").read_text("utf-8"))
    documented = set(re.findall(r"`(?:[a-z_]+\.)*([a-z0-9_]+)`", "\n".join(tables)))
    path = tmp_path / "pairs.csv"
    rows = [f"{pair.source},{pair.target},{index},{'ab'[index % 2]}" for index, pair in enumerate(PAIRS)]
    path.write_text("\n".join(["source,target,id,kind", *rows]) + "\n", "utf-8")
    seed = copy_run_folder(digits_run().run, tmp_path / "seed")
    config = (seed / "config.toml").read_text("utf-8")
    (seed / "config.toml").write_text(re.sub(r"(?m)^seed = .*$", "seed = 77", config), "utf-8")
    flags = ["--source-column", "source", "--target-column", "target", "--group", "kind", "--nbest", "2", "--texts"]
    result = run_pellucid("evaluate", digits_run().run, seed, copy_task_run().run, path, *flags, "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    names = {name.removesuffix("_ci95") for name in field_names(report)}
    assert names - documented == set(), " ".join(sorted(names - documented))
    assert len(names) > 90
    assert report["seeds"] and report["mean_differences"] and report["runs"][0]["groups"]
    for row in report["runs"][0]["worst"]:
        assert row["log_probability"] <= 0 <= row["confidence"] <= 1 and "score" not in row
    for part in ("calibration", "confidence"):
        for each in report["runs"][0][part]["bins"]:
            assert each["low"] <= each["mean_probability"] <= each["high"]


def test_nbest_reports_oracle_accuracy() -> None:
    result = evaluate_to_json(write_pairs_file(), "--nbest", "3")
    accuracies = [each["accuracy"] for each in result["oracle"]]
    assert (
        len(accuracies) == 3
        and accuracies == sorted(accuracies)
        and accuracies[0] == pytest.approx(result["exact_match"])
    )
    assert evaluate_to_json(write_pairs_file(), "--beam-size", "3")["exact_match"] == result["exact_match"]
    assert 0 < result["mean_reciprocal_rank"] <= accuracies[-1] / 100
    assert evaluate_to_json(write_pairs_file(), "--nbest", "3", "--beam-size", "2")["oracle"] == result["oracle"]
    assert "--nbest: expected 1 to 1,024 outputs, the largest beam size, got 0" in usage_error_message(
        evaluate(write_pairs_file(), "--nbest", "0")
    )


def test_group_column_gives_a_table_by_group(tmp_path: Path) -> None:
    lines = [f"{pair.source}\t{pair.target}\t{'long' if len(pair.target) > 3 else 'short'}" for pair in PAIRS]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    result = evaluate_to_json(tmp_path / "a.tsv", "--group", "3")
    rows = {row["group"]: row for row in result["groups"]}
    assert rows.keys() == {"long", "short"} and sum(row["examples"] for row in result["groups"]) == 60
    for name, row in rows.items():
        pairs = zip(predicted_outputs(), PAIRS, strict=True)
        is_wrong = [output != pair.target for output, pair in pairs if (len(pair.target) > 3) == (name == "long")]
        assert row["sequence_error_rate"] == pytest.approx(100 * sum(is_wrong) / len(is_wrong)) and row[
            "examples"
        ] == len(is_wrong)
    assert result["macro"]["sequence_error_rate"] == pytest.approx(
        (rows["long"]["sequence_error_rate"] + rows["short"]["sequence_error_rate"]) / 2
    )
    assert result["exact_match"] == pytest.approx(evaluate_to_json(write_pairs_file())["exact_match"])
    assert "by group" in evaluate(tmp_path / "a.tsv", "--group", "3").out.replace("\n", " ")
    assert "expected 4 columns, got 3" in usage_error_message(evaluate(tmp_path / "a.tsv", "--group", "4"))
    assert "no column 'language' (--group) among" in usage_error_message(
        evaluate(tmp_path / "a.tsv", "--group", "language")
    )
    assert usage_error_message(evaluate(tmp_path / "a.tsv", "--group", "0")).startswith("--group: expected a name or")
    for names in ("source", "a\tb\tb"):
        (tmp_path / "a.csv").write_text("\n".join([names, *lines]).replace("\t", ",") + "\n")
        for column in ("b", "9"):
            message = usage_error_message(
                evaluate(tmp_path / "a.csv", "--header", "--source-column", 1, "--target-column", 2, "--group", column)
            )
            assert "data.group_column" not in message and (names == "source" or "(--group)" in message)


@pytest.mark.parametrize(
    ("rows", "flags", "is_missing"),
    [
        (["one\t1", "two\t2"], (), True),
        (["one\t1", "two\t2"], ("--on-bad-line", "skip"), True),
        (["one\t1\ta", "two\t2"], (), False),
        (["one", "two\t2"], (), False),
        (["one\t1\ta", "two\t2\ta"], ("--target-column", "4"), False),
    ],
    ids=["no row", "no row, skipped", "a short row", "no target either", "no target"],
)
def test_a_group_column_that_no_row_has_is_missing(
    tmp_path: Path, rows: list[str], flags: tuple[str, ...], is_missing: bool
) -> None:
    """Regression test: a row shorter than the others was reported as a missing column."""
    (tmp_path / "a.tsv").write_text("\n".join(rows) + "\n")
    message = usage_error_message(evaluate(tmp_path / "a.tsv", "--group", "3", *flags))
    assert ("--group 3: no such column (" in message) == is_missing and "columns, got" in message


def test_placeholder_in_paths_gives_a_table_by_name(tmp_path: Path) -> None:
    for part, name in enumerate(("ady", "bul", "cat")):
        write_pairs(tmp_path / f"{name}_test.tsv", PAIRS[20 * part : 20 * part + 20])
        if name != "cat":
            copy_run_folder(digits_run().run, tmp_path / name)
    result = run_pellucid("evaluate", tmp_path / "{}", tmp_path / "{}_test.tsv", "--json")
    actual = json.loads(result.out)
    assert "no run for 1 of 3 files, which are skipped: cat" in result.err
    assert [(row["group"], row["examples"]) for row in actual["groups"]] == [("ady", 20), ("bul", 20)]
    assert actual["macro"]["exact_match"] == pytest.approx(sum(row["exact_match"] for row in actual["groups"]) / 2)
    one_run = json.loads(evaluate(tmp_path / "{}_test.tsv", "--json").out)
    assert len(one_run["groups"]) == 3 and one_run["examples"] == 60
    assert "no file matches" in usage_error_message(evaluate(tmp_path / "{}.none"))
    (tmp_path / "all").mkdir()  # regression test: the message named the first run, whose folder exists
    assert f"no run folder matches {tmp_path / 'no' / '{}'}" in usage_error_message(
        run_pellucid("evaluate", tmp_path / "all", tmp_path / "no" / "{}", tmp_path / "{}_test.tsv")
    )
    assert "does not" in usage_error_message(run_pellucid("evaluate", tmp_path / "{}", write_pairs_file()))


def test_text_metrics_are_computed_on_request() -> None:
    assert evaluate_to_json(write_pairs_file())["texts"] is None
    result = evaluate_to_json(write_pairs_file(), "--texts")["texts"]
    num_wrong = sum(output != example.target for output, example in zip(predicted_outputs(), PAIRS, strict=True))
    assert result["word_error_rate"] == pytest.approx(100 * num_wrong / 60), "every target is one word"
    assert "tok:13a" in result["bleu"]["signature"] and "chrF" in evaluate(write_pairs_file(), "--texts").out


def test_groups_and_lexicon_are_read_once_for_all_runs(tmp_path: Path) -> None:
    """The files are pipes that give other text to a second reader."""
    for name, text in (("pairs.tsv", "one\t1\ta\ntwo\t3\tb\nsix\t6\ta\n"), ("lexicon.tsv", "two\t3\n")):
        os.mkfifo(tmp_path / name)
        write_texts = partial(_write_to_readers, tmp_path / name, (text, "six\t0\t?\n"))
        threading.Thread(target=write_texts, daemon=True).start()
    pairs, lexicon = tmp_path / "pairs.tsv", tmp_path / "lexicon.tsv"
    result = evaluate_to_json(
        copy_run_folder(digits_run().run, tmp_path / "copy"), pairs, "--group", "3", "--lexicon", lexicon
    )
    for run in result["runs"]:
        assert {row["group"]: row["examples"] for row in run["groups"]} == {"a": 2, "b": 1}
        assert {row["group"]: row["sequence_error_rate"] for row in run["groups"]}["b"] == 0


def _write_to_readers(pipe: Path, texts: tuple[str, ...]) -> None:
    """Write one text for each reader of a pipe."""
    for text in texts:
        pipe.write_text(text)
        time.sleep(2)  # the reader closes the pipe in this time


def test_json_output_has_no_control_characters(tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "odd.tsv", [Example("1\x7f\x9b2", "x\x7f\x9b\u2028y")])
    for result in (
        evaluate(file, "--json"),
        run_pellucid("predict", digits_run().run, file, "--output-format", "jsonl"),
        run_pellucid("predict", digits_run().run, file, "--output-format", "jsonl", "--nbest", "2"),
        run_pellucid("score", digits_run().run, file, "--output-format", "jsonl"),
    ):
        assert result.code == 0 and result.out.removesuffix("\n").isprintable(), result
        assert "1\x7f\x9b2" in json.dumps(json.loads(result.out), ensure_ascii=False)


def test_unread_columns_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "wide.tsv"
    file.write_text("".join(f"{each.source}\t{each.target}\tmore\tyet more\n" for each in PAIRS), "utf-8")
    result = evaluate(file)
    assert result.code == 0
    assert result.err == f"pellucid: note: {file}: the file has 4 columns; used are 1 as source, 2 as target\n"


def copy_with_pair_ngram(folder: Path, weight: float) -> tuple[Path, PairNgramPredictor]:
    """Return a copy of the run with a pair n-gram model of the weight, and the model."""
    run = copy_run_folder(digits_run().run, folder)
    predictor = load(run)
    examples = read_examples(digits_run().files.train, predictor.config.data).examples
    fitted = fit_pair_ngram_predictor(examples, predictor.tokenizers, predictor.vocabularies)
    assert fitted is not None
    save_pair_ngram(run / "pair_ngram.safetensors", SavedPairNgram(fitted.model, weight))
    config = (run / "config.toml").read_text("utf-8")
    assert config.count("pair_ngram = false") == 1
    (run / "config.toml").write_text(config.replace("pair_ngram = false", "pair_ngram = true"), "utf-8")
    return run, fitted


def test_the_pair_ngram_model_alone_is_a_baseline(tmp_path: Path) -> None:
    """Its scores are those of its own outputs; no other number depends on them."""
    run, model = copy_with_pair_ngram(tmp_path / "run", 0.5)
    pairs = [*PAIRS[:20], Example(PAIRS[0].source, "77")]
    path = write_pairs(tmp_path / "pairs.tsv", pairs)
    outputs = ["".join(nbest[0]) for nbest in model.nbest(pairs, 1)]
    right = sum(output == pair.target for output, pair in zip(outputs, pairs, strict=True))
    errors = sum(edit_distance(output, pair.target) for output, pair in zip(outputs, pairs, strict=True))
    result = run_pellucid("evaluate", run, path, "--html", tmp_path / "page.html")
    expected = f"{100 * right / 21:.2f} %"
    assert re.search(rf"exact match, pair n-gram alone +{expected}", result.out), result
    summary = {each.label: each.value for each in read_report(tmp_path / "page.html").summary}
    assert summary["exact match, pair n-gram alone"] == expected
    values = json.loads(run_pellucid("evaluate", run, path, "--json").out)
    scores = values["pair_ngram"]
    assert scores["exact_match"] == pytest.approx(100 * right / 21) and scores["macro"] is None
    assert scores["symbol_error_rate"] == pytest.approx(100 * errors / sum(len(pair.target) for pair in pairs))
    assert len(scores["exact_match_ci95"]) == len(scores["symbol_error_rate_ci95"]) == 2
    in_python = pellucid.evaluate(run, path).assessment.pair_ngram_evaluation
    assert in_python is not None and in_python.exact_match == scores["exact_match"]
    merged = json.loads(run_pellucid("evaluate", run, path, "--json", "--multi-reference").out)
    right = sum(output in {PAIRS[0].target, "77"} for output in outputs[:1])
    right += sum(output == pair.target for output, pair in zip(outputs[1:20], pairs[1:20], strict=True))
    assert merged["examples"] == 20 and merged["pair_ngram"]["exact_match"] == pytest.approx(5 * right)


def test_a_pair_ngram_model_that_takes_no_part_is_a_baseline_too(tmp_path: Path) -> None:
    """Regression test: the baseline was left out of the report of a network that is better without that model."""
    run, _ = copy_with_pair_ngram(tmp_path / "run", 0.0)
    other, _ = copy_with_pair_ngram(tmp_path / "other", 0.5)
    normalized = ("--length-normalization", "average")
    records = []
    for arguments in ((other,), (run,), (other, "--no-pair-ngram"), (other, *normalized), (other, "--sample", "2")):
        result = run_pellucid("evaluate", *arguments[:1], write_pairs_file(), "--json", *arguments[1:])
        records.append(json.loads(result.out)["pair_ngram"])
    assert records[0] is not None and all(record == records[0] for record in records)
    text = run_pellucid("evaluate", run, digits_run().run, write_pairs_file()).out
    assert re.search(r"exact match, pair n-gram alone +│ +[0-9.]+ % +│ +–", text), text


def test_a_pair_ngram_model_of_weight_zero_takes_no_part_in_predictions(tmp_path: Path) -> None:
    run, _ = copy_with_pair_ngram(tmp_path / "run", 0.0)
    for predictor in (load(run), load([run, digits_run().run])):
        assert isinstance(predictor, Transducer) and predictor.pair_ngram is not None
        alone = replace(predictor, pair_ngram=None)
        lists = [each.nbest_examples(PAIRS[:5], 2) for each in (predictor, alone)]
        assert [[trace.to_json() for trace in traces] for traces in lists[0]] == [
            [trace.to_json() for trace in traces] for traces in lists[1]
        ]


def test_outputs_that_a_pair_ngram_model_ranked_are_counted(tmp_path: Path) -> None:
    """The switch of the command line leaves the model of a run out."""
    run, _ = copy_with_pair_ngram(tmp_path / "run", 0.5)
    counts, weights = [], []
    for flags in ((), ("--pair-ngram",), ("--no-pair-ngram",), ("--sample", "1")):
        values = json.loads(run_pellucid("evaluate", run, digits_run().files.valid, "--json", *flags).out)
        counts.append(values["ranked_with_pair_ngram"])
        weights.append(values["pair_ngram_weight"])
    assert counts[0] == counts[1] > 0 and counts[2] == counts[3] == 0
    assert weights == [0.5, 0.5, 0.0, 0.0]  # regression test: the JSON lacked the weight
    assert pellucid.evaluate(digits_run().run, digits_run().files.valid).pair_ngram_weight is None
    assert "ranked with the pair n-gram model" in run_pellucid("evaluate", run, digits_run().files.valid).out


def test_runs_are_named_by_the_last_part_of_their_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the run "." had an empty name, and a folder with " with " in its name counted as an ensemble."""
    run = copy_run_folder(digits_run().run, tmp_path / "gru with dropout")
    assert pellucid.evaluate(run, digits_run().files.valid).assessment.name == "gru with dropout"
    monkeypatch.chdir(run)
    assert pellucid.evaluate(".", digits_run().files.valid).assessment.name == "."
    ensemble = pellucid.evaluate([run, digits_run().run], digits_run().files.valid)
    assert ensemble.assessment.name == f"{run} with {digits_run().run}"


def test_the_confidence_is_evaluated_beside_the_probability() -> None:
    run = digits_run()
    values = json.loads(run_pellucid("evaluate", run.run, run.files.valid, "--json").out)
    confidence = values["confidence"]
    assert values["no_confidence_reason"] is None and confidence["outputs"] == values["examples"]
    assert 0 <= confidence["expected_calibration_error"] <= 1 and 0 <= confidence["calibration_error_by_chance"] <= 1
    assert [row["max_error"] for row in confidence["accepted"]] == [0.01, 0.02, 0.05]
    assert all(0 <= row["wrong"] <= row["accepted"] <= row["total"] for row in confidence["accepted"])
    text = run_pellucid("evaluate", run.run, run.files.valid).out
    assert "automatic acceptance by confidence" in text and "confidence threshold" in text
    other = json.loads(run_pellucid("evaluate", run.run, run.files.valid, "--beam-size", "2", "--json").out)
    assert other["confidence"] is None and "search.beam_size is 2" in other["no_confidence_reason"]
    assert other["calibration"]["expected_calibration_error"] >= 0
