"""pellucid evaluate: metrics agree with counts on the output of predict."""

import json
import math
import os
import threading
import time
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandResult, output_lines, run_pellucid, usage_error_message
from report_documents import read_report, section_titles, select_parts
from trained_runs import copy_run_folder, digits_run, shared_folder, write_pairs

from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits
from pellucid.viewer.report_schema import ReportExamples

PAIRS = spelled_digits(60, 1, 5, seed=9)
"""Longer than any the model was trained on, so that some come out wrong."""


@cache
def pairs_file() -> Path:
    return write_pairs(shared_folder() / "evaluated.tsv", PAIRS)


def evaluate(*arguments: object) -> CommandResult:
    return run_pellucid("evaluate", digits_run().run, *arguments)


def report(*arguments: object) -> dict[str, Any]:
    done = evaluate(*arguments, "--json")
    assert done.code == 0, done
    found: dict[str, Any] = json.loads(done.out)
    return found


@cache
def predicted() -> list[str]:
    return list(output_lines(run_pellucid("predict", digits_run().run, pairs_file()).out))


def distance(one: str, other: str) -> int:
    """Levenshtein's distance, row by row."""
    row = list(range(len(other) + 1))
    for number, left in enumerate(one, 1):
        above, row = row, [number]
        for (diagonal, up), right in zip(pairwise(above), other, strict=True):
            row.append(min(up + 1, row[-1] + 1, diagonal + (left != right)))
    return row[-1]


def test_metrics_agree_with_the_output_of_predict() -> None:
    found = report(pairs_file())
    wrong = sum(output != example.target for output, example in zip(predicted(), PAIRS, strict=True))
    errors = sum(distance(output, example.target) for output, example in zip(predicted(), PAIRS, strict=True))
    symbols = sum(len(example.target) for example in PAIRS)
    assert 0 < wrong < 60, "all right or all wrong would test little"
    assert found["examples"] == found["lines"] == 60 and found["seconds"] > 0
    assert found["wer"] == pytest.approx(100 * wrong / 60) and found["exact_match"] == pytest.approx(100 - found["wer"])
    assert (found["errors"], found["symbols"]) == (errors, symbols)
    assert found["symbol_error_rate"] == pytest.approx(100 * errors / symbols)
    aligned = sum(sum(map(str.__eq__, output, e.target)) for output, e in zip(predicted(), PAIRS, strict=True))
    ends = sum(len(output) == len(e.target) for output, e in zip(predicted(), PAIRS, strict=True))
    assert found["symbol_accuracy"] == pytest.approx(100 * (aligned + ends) / (symbols + 60))


def test_word_error_rate_has_a_wilson_interval() -> None:
    found, z = report(pairs_file()), 1.959963984540054
    share, n = found["wer"] / 100, 60
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert found["wer_ci95"] == pytest.approx([100 * (centre - half), 100 * (centre + half)])
    low, high = found["symbol_error_rate_ci95"]
    assert low < found["symbol_error_rate"] < high


def test_worst_examples_are_listed_with_their_references() -> None:
    worst = report(pairs_file(), "--worst", "3")["worst"]
    assert len(worst) == 3 and report(pairs_file(), "--worst", "0")["worst"] == []
    wanted = {example.source: example.target for example in PAIRS}
    for row in worst:
        assert row["references"] == [wanted[row["source"]]] and row["output"] != row["references"][0]
        assert row["errors"] == distance(row["output"], row["references"][0])


def test_negative_worst_is_refused() -> None:
    assert "worst" in usage_error_message(evaluate(pairs_file(), "--worst", "-1"))


def test_pairs_are_scored_against_their_target_or_any_reference(tmp_path: Path) -> None:
    (right,) = output_lines(run_pellucid("predict", digits_run().run, stdin=b"two one\n").out)
    file = write_pairs(tmp_path / "a.tsv", [Example("two one", target) for target in (right, "x", "y")])
    alone, merged = evaluate(file, "--json"), evaluate(file, "--json", "--multi-reference")
    assert "2 further targets repeat the source of an earlier pair" in alone.err and merged.err == ""
    one, other = json.loads(alone.out), json.loads(merged.out)
    assert (one["examples"], one["wer"]) == (3, pytest.approx(200 / 3))
    assert (other["examples"], other["lines"], other["wer"], other["errors"]) == (1, 3, 0.0, 0)


def test_tables_and_json_have_the_same_numbers() -> None:
    done, found = evaluate(pairs_file()), report(pairs_file())
    assert done.code == 0 and done.err == ""
    for name, key in (("exact match", "exact_match"), ("word error rate", "wer")):
        low, high = found[f"{key}_ci95"]
        line = next(line for line in done.out.splitlines() if line.strip().startswith(name))
        assert f"{found[key]:.2f} %" in line and f"95 %: {low:.2f} to {high:.2f}" in line
    assert "accuracy by target position" in done.out and "worst examples" in done.out


def test_evaluation_of_the_validation_set_repeats_the_logged_metrics() -> None:
    found = report(digits_run().files.valid)
    card = (digits_run().run / "card.md").read_text("utf-8")
    assert f"exact match {found['exact_match']:.2f} % (word error rate {found['wer']:.2f} %)" in card
    assert f"symbol error rate {found['symbol_error_rate']:.2f} %" in card


def test_bad_lines_blank_lines_and_unknown_symbols_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\t1\n\nbad\ntwß\t2\n", encoding="utf-8")
    assert f"{tmp_path / 'a.tsv'}:3: expected 2 columns, got 1" in usage_error_message(evaluate(tmp_path / "a.tsv"))
    done = evaluate(tmp_path / "a.tsv", "--on-bad-line", "skip", "--json")
    found = json.loads(done.out)
    counts = [found[name] for name in ("examples", "bad_lines", "blank_lines", "unknown_symbols", "cut_outputs")]
    assert done.code == 0 and counts[:4] == [2, 1, 1, 1]
    assert done.err.startswith(f"pellucid: skipped {tmp_path / 'a.tsv'}:3: ")


def test_targets_are_read_from_a_parallel_file(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).write_text("".join(f"{getattr(example, name)}\n" for example in PAIRS))
    found, whole = report(tmp_path / "source", "--target", tmp_path / "target"), report(pairs_file())
    assert {**found, "seconds": 0} == {**whole, "seconds": 0}
    (tmp_path / "target").write_text("1\n")
    assert "has 60 lines, but" in usage_error_message(evaluate(tmp_path / "source", "--target", tmp_path / "target"))


def test_format_follows_the_file_name(tmp_path: Path) -> None:
    lines = (json.dumps({"s": example.source, "t": example.target}) for example in PAIRS)
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert {**report(tmp_path / "a.jsonl"), "seconds": 0} == {**report(pairs_file()), "seconds": 0}
    (tmp_path / "a.txt").write_bytes((tmp_path / "a.jsonl").read_bytes())
    assert report(tmp_path / "a.txt", "--input-format", "jsonl")["errors"] == report(pairs_file())["errors"]


def test_standard_input_gives_the_same_results(tmp_path: Path) -> None:
    done = run_pellucid("evaluate", digits_run().run, "-", "--json", stdin=pairs_file().read_bytes())
    assert done.code == 0 and {**json.loads(done.out), "seconds": 0} == {**report(pairs_file()), "seconds": 0}
    assert "standard input:1: expected 2 columns" in usage_error_message(
        run_pellucid("evaluate", digits_run().run, "-", stdin=b"bad\n")
    )


def test_long_run_names_stay_distinct(tmp_path: Path) -> None:
    run, file = digits_run().run, digits_run().files.valid
    names = ["a-long-name-that-all-runs-begin-with-seed-one", "a-long-name-that-all-runs-begin-with-seed-two"]
    runs = [copy_run_folder(run, tmp_path / name) for name in names]
    done = run_pellucid("evaluate", *runs, file, "--html", tmp_path / "page.html")
    assert done.code == 0 and "…one" in done.out and "…two" in done.out
    assert f"pellucid: …one is {names[0]}\n" in done.err
    assert names[0] in read_report(tmp_path / "page.html").introduction
    told = json.loads(run_pellucid("evaluate", *runs, file, "--json").out)
    assert [each["name"] for each in told["runs"]] == names and told["comparisons"][0]["a"] == names[0]


def test_two_runs_are_compared(tmp_path: Path) -> None:
    other = copy_run_folder(digits_run().run, tmp_path / "same")
    done = evaluate(other, pairs_file(), "--json", "--html", tmp_path / "page.html")
    found = json.loads(done.out)
    assert done.code == 0 and done.err == f"pellucid: wrote {tmp_path / 'page.html'}\n"
    assert [each["name"] for each in found["runs"]] == ["run", "same"]
    alone = report(pairs_file())
    assert {**found["runs"][0], "seconds": 0} == {**alone, "seconds": 0, "name": "run"}
    (comparison,) = found["comparisons"]
    assert (comparison["a"], comparison["b"]) == ("run", "same")
    for score in ("exact_match", "symbol_error_rate"):
        assert comparison[score]["difference"] == 0 and comparison[score]["p"] == 1
    assert comparison["only_a"] == comparison["only_b"] == 0 and comparison["a_right_b_wrong"] == []
    document = read_report(tmp_path / "page.html")
    assert "Significance" in section_titles(document) and document.title == "run and same"
    told = evaluate(other, pairs_file())
    assert "run minus each other run" in told.out and "correct examples" in told.out


def test_html_page_lists_the_errors(tmp_path: Path) -> None:
    assert evaluate(pairs_file(), "--html", tmp_path / "a.html", "--nbest", "2").code == 0
    wrong = report(pairs_file(), "--beam-size", "2", "--worst", "100")["worst"]
    (errors,) = select_parts(read_report(tmp_path / "a.html"), ReportExamples, "Errors")
    assert len(errors.examples) == len(wrong) > 0 and {len(each.outputs[0].traces) for each in errors.examples} == {2}
    assert "ends with .html" in usage_error_message(evaluate(pairs_file(), "--html", tmp_path / "a.htm"))


def test_nbest_reports_oracle_accuracy() -> None:
    found = report(pairs_file(), "--nbest", "3")
    shares = [each["accuracy"] for each in found["oracle"]]
    assert len(shares) == 3 and shares == sorted(shares) and shares[0] == pytest.approx(found["exact_match"])
    assert report(pairs_file(), "--beam-size", "3")["exact_match"] == found["exact_match"]
    assert 0 < found["mean_reciprocal_rank"] <= shares[-1] / 100
    assert report(pairs_file(), "--nbest", "3", "--beam-size", "2")["oracle"] == found["oracle"]
    assert "--nbest: expected 1 to 1,024 outputs, the largest beam size, got 0" in usage_error_message(
        evaluate(pairs_file(), "--nbest", "0")
    )


def test_group_column_gives_a_table_by_group(tmp_path: Path) -> None:
    lines = [f"{pair.source}\t{pair.target}\t{'long' if len(pair.target) > 3 else 'short'}" for pair in PAIRS]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    found = report(tmp_path / "a.tsv", "--group", "3")
    rows = {row["group"]: row for row in found["groups"]}
    assert rows.keys() == {"long", "short"} and sum(row["examples"] for row in found["groups"]) == 60
    for name, row in rows.items():
        pairs = zip(predicted(), PAIRS, strict=True)
        own = [output != pair.target for output, pair in pairs if (len(pair.target) > 3) == (name == "long")]
        assert row["wer"] == pytest.approx(100 * sum(own) / len(own)) and row["examples"] == len(own)
    assert found["macro"]["wer"] == pytest.approx((rows["long"]["wer"] + rows["short"]["wer"]) / 2)
    assert found["exact_match"] == pytest.approx(report(pairs_file())["exact_match"])
    assert "by group" in evaluate(tmp_path / "a.tsv", "--group", "3").out.replace("\n", " ")
    assert "expected 4 columns, got 3" in usage_error_message(evaluate(tmp_path / "a.tsv", "--group", "4"))
    assert "--group" in usage_error_message(evaluate(tmp_path / "a.tsv", "--group", "language"))


def test_placeholder_in_paths_gives_a_table_by_name(tmp_path: Path) -> None:
    for at, name in enumerate(("ady", "bul", "cat")):
        write_pairs(tmp_path / f"{name}_test.tsv", PAIRS[20 * at : 20 * at + 20])
        if name != "cat":
            copy_run_folder(digits_run().run, tmp_path / name)
    done = run_pellucid("evaluate", tmp_path / "{}", tmp_path / "{}_test.tsv", "--json")
    found = json.loads(done.out)
    assert "no run for 1 of 3 files, which are skipped: cat" in done.err
    assert [(row["group"], row["examples"]) for row in found["groups"]] == [("ady", 20), ("bul", 20)]
    assert found["macro"]["exact_match"] == pytest.approx(sum(row["exact_match"] for row in found["groups"]) / 2)
    one_run = json.loads(evaluate(tmp_path / "{}_test.tsv", "--json").out)
    assert len(one_run["groups"]) == 3 and one_run["examples"] == 60
    assert "no file matches" in usage_error_message(evaluate(tmp_path / "{}.none"))
    assert "no run folder matches" in usage_error_message(
        run_pellucid("evaluate", tmp_path / "no" / "{}", tmp_path / "{}_test.tsv")
    )
    assert "does not" in usage_error_message(run_pellucid("evaluate", tmp_path / "{}", pairs_file()))


def test_text_metrics_are_computed_on_request() -> None:
    assert report(pairs_file())["texts"] is None
    found = report(pairs_file(), "--texts")["texts"]
    wrong = sum(output != example.target for output, example in zip(predicted(), PAIRS, strict=True))
    assert found["word_edit_rate"] == pytest.approx(100 * wrong / 60), "every target is one word"
    assert "tok:13a" in found["bleu"]["signature"] and "chrF" in evaluate(pairs_file(), "--texts").out


def test_groups_and_lexicon_are_read_once_for_all_runs(tmp_path: Path) -> None:
    """Pipes, of which a second reader would hear something else."""
    for name, once in (("pairs.tsv", "one\t1\ta\ntwo\t3\tb\nsix\t6\ta\n"), ("lexicon.tsv", "two\t3\n")):
        os.mkfifo(tmp_path / name)
        told = partial(_tell, tmp_path / name, (once, "six\t0\t?\n"))
        threading.Thread(target=told, daemon=True).start()
    pairs, lexicon = tmp_path / "pairs.tsv", tmp_path / "lexicon.tsv"
    found = report(copy_run_folder(digits_run().run, tmp_path / "copy"), pairs, "--group", "3", "--lexicon", lexicon)
    for each in found["runs"]:
        assert {row["group"]: row["examples"] for row in each["groups"]} == {"a": 2, "b": 1}
        assert {row["group"]: row["wer"] for row in each["groups"]}["b"] == 0


def _tell(pipe: Path, texts: tuple[str, ...]) -> None:
    """A text for each reader of a pipe."""
    for text in texts:
        pipe.write_text(text)
        time.sleep(2)  # until the reader has closed it


def test_json_output_has_no_control_characters(tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "odd.tsv", [Example("1\x7f\x9b2", "x\x7f\x9b\u2028y")])
    for done in (
        evaluate(file, "--json"),
        run_pellucid("predict", digits_run().run, file, "--output-format", "jsonl"),
        run_pellucid("predict", digits_run().run, file, "--output-format", "jsonl", "--nbest", "2"),
        run_pellucid("score", digits_run().run, file, "--output-format", "jsonl"),
    ):
        assert done.code == 0 and done.out.removesuffix("\n").isprintable(), done
        assert "1\x7f\x9b2" in json.dumps(json.loads(done.out), ensure_ascii=False)


def test_unread_columns_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "wide.tsv"
    file.write_text("".join(f"{each.source}\t{each.target}\tmore\tyet more\n" for each in PAIRS), "utf-8")
    done = evaluate(file)
    assert done.code == 0
    assert done.err == f"pellucid: note: {file}: the file has 4 columns; used are 1 as source, 2 as target\n"
