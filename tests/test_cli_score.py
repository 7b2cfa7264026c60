"""pellucid score: one output line per pair, and scores equal to those of prediction."""

import json

import pytest
from command_line import Done, complaint, outputs, pellucid
from trained_runs import digits_run

from pellucid.data.examples import Example
from pellucid.training.run_folder import load

PAIRS = [Example("one", "1"), Example("nine two", "92"), Example("three", "5")]
TEXT = "".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS)


def score(*arguments: object, stdin: str = TEXT) -> Done:
    return pellucid("score", digits_run().run, *arguments, stdin=stdin.encode())


def test_every_pair_has_a_line_in_every_format() -> None:
    traces = load(digits_run().run).force(PAIRS)
    wanted = [trace.score for trace in traces]
    assert [float(line) for line in outputs(score().out)] == pytest.approx(wanted, abs=1e-4)
    rows = [line.split("\t") for line in outputs(score("--output-format", "tsv").out)]
    assert [row[:2] for row in rows] == [[pair.source, pair.target] for pair in PAIRS]
    assert [sum(map(float, row[3].split())) for row in rows] == pytest.approx(wanted, abs=1e-4)
    told = [json.loads(line) for line in outputs(score("--output-format", "jsonl").out)]
    assert [line["origin"] for line in told] == ["given"] * 3 and len(told[1]["attention"]) == 3
    assert wanted[0] > wanted[2]


def test_score_of_a_prediction_equals_its_log_probability() -> None:
    said = pellucid("predict", digits_run().run, "--output-format", "tsv", stdin=b"one\nnine two\n").out
    rows = [line.split("\t") for line in outputs(said)]
    again = outputs(score(stdin="".join(f"{row[0]}\t{row[1]}\n" for row in rows)).out)
    assert [float(line) for line in again] == pytest.approx([float(row[2]) for row in rows], abs=1e-4)


def test_blank_and_bad_lines_keep_their_places() -> None:
    done = score("--on-bad-line", "skip", stdin="one\t1\n\nnine\n\t4\ntwo\té\n")
    lines = outputs(done.out)
    assert done.code == 0 and [bool(line) for line in lines] == [True, False, False, False, True]
    assert "no output for standard input:3: expected 2 columns, got 1" in done.err
    assert "1 target symbol (1 different) not in the vocabulary (scored as the unknown symbol): 'é' × 1" in done.err
    assert complaint(score(stdin="one\n")).startswith("standard input:1: expected 2 columns, got 1")


def test_blank_line_has_empty_fields() -> None:
    assert score("--output-format", "tsv", stdin="\n").out == "\t\t\t\n" and score(stdin="\n").out == "\n"
    assert json.loads(score("--output-format", "jsonl", stdin="\n").out) == {"output": None}


def test_several_runs_score_as_an_ensemble() -> None:
    run = digits_run().run
    done = pellucid("score", run, run, "-", stdin=TEXT.encode())
    assert [float(line) for line in outputs(done.out)] == pytest.approx(
        [float(line) for line in outputs(score().out)], abs=1e-4
    )
