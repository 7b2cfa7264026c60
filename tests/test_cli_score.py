"""pellucid score: one output line per pair, and scores equal to those of predictions."""

import json
from pathlib import Path

import pytest
from command_line import CommandResult, output_lines, run_pellucid, usage_error_message
from trained_runs import digits_run, make_copy_examples, make_small_config, train_to_end

from pellucid.data.examples import Example
from pellucid.run_folder.predictor_loader import load
from pellucid.training.training_data import TrainingFiles

PAIRS = [Example("one", "1"), Example("nine two", "92"), Example("three", "5")]
PAIRS_TSV = "".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS)


def score(*arguments: object, stdin: str = PAIRS_TSV) -> CommandResult:
    return run_pellucid("score", digits_run().run, *arguments, stdin=stdin.encode())


def test_every_pair_has_a_line_in_every_format() -> None:
    traces = load(digits_run().run).score_examples(PAIRS)
    expected = [trace.score for trace in traces]
    assert [float(line) for line in output_lines(score().out)] == pytest.approx(expected, abs=1e-4)
    rows = [line.split("\t") for line in output_lines(score("--output-format", "tsv").out)]
    assert [row[:2] for row in rows] == [[pair.source, pair.target] for pair in PAIRS]
    assert [sum(map(float, row[3].split())) for row in rows] == pytest.approx(expected, abs=1e-4)
    traces_json = [json.loads(line) for line in output_lines(score("--output-format", "jsonl").out)]
    assert [line["origin"] for line in traces_json] == ["given"] * 3 and len(traces_json[1]["attention"]) == 3
    assert expected[0] > expected[2]


def test_score_of_a_prediction_equals_its_log_probability() -> None:
    predictions = run_pellucid("predict", digits_run().run, "--output-format", "tsv", stdin=b"one\nnine two\n").out
    rows = [line.split("\t") for line in output_lines(predictions)]
    scores = output_lines(score(stdin="".join(f"{row[0]}\t{row[1]}\n" for row in rows)).out)
    assert [float(line) for line in scores] == pytest.approx([float(row[2]) for row in rows], abs=1e-4)


def test_blank_and_bad_lines_keep_their_places() -> None:
    result = score("--on-bad-line", "skip", stdin="one\t1\n\nnine\n\t4\ntwo\té\n")
    lines = output_lines(result.out)
    assert result.code == 0 and [bool(line) for line in lines] == [True, False, False, False, True]
    assert "no output for standard input:3: expected 2 columns, got 1" in result.err
    assert "1 target symbol (1 different) not in the vocabulary (scored as the unknown symbol): 'é' × 1" in result.err
    assert usage_error_message(score(stdin="one\n")).startswith("standard input:1: expected 2 columns, got 1")


def test_blank_line_has_empty_fields() -> None:
    assert score("--output-format", "tsv", stdin="\n").out == "\t\t\t\n" and score(stdin="\n").out == "\n"
    assert json.loads(score("--output-format", "jsonl", stdin="\n").out) == {"output": None}


def test_several_runs_score_as_an_ensemble() -> None:
    run = digits_run().run
    result = run_pellucid("score", run, run, "-", stdin=PAIRS_TSV.encode())
    assert [float(line) for line in output_lines(result.out)] == pytest.approx(
        [float(line) for line in output_lines(score().out)], abs=1e-4
    )


@pytest.fixture(scope="module")
def parallel_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a small model on two parallel text files."""
    folder, paths = tmp_path_factory.mktemp("parallel"), list[Path]()
    for name, examples in (("train", make_copy_examples(40, seed=1)), ("valid", make_copy_examples(10, seed=2))):
        for role in ("source", "target"):
            paths.append(folder / f"{name}.{role}")
            paths[-1].write_text("".join(f"{getattr(example, role)}\n" for example in examples))
    train, train_target, valid, valid_target = paths
    files = TrainingFiles(train, valid, train_target, valid_target)
    train_to_end(files, folder / "run", make_small_config({"epochs": 1}, data={"input_format": "text"}))
    return folder / "run"


def test_pairs_of_a_run_trained_on_parallel_files_are_tsv(parallel_run: Path, tmp_path: Path) -> None:
    """The pairs have two columns, although each line of the training files has one field."""
    pairs = [Example("ab", "ab"), Example("c", "d")]
    expected = [trace.score for trace in load(parallel_run).score_examples(pairs)]
    text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
    (tmp_path / "pairs").write_text(text)
    for arguments in ([], [tmp_path / "pairs"], ["--input-format", "tsv"]):
        result = run_pellucid("score", parallel_run, *arguments, stdin=text.encode())
        assert result.code == 0 and [float(line) for line in output_lines(result.out)] == pytest.approx(
            expected, abs=1e-4
        )
    one_column = run_pellucid("score", parallel_run, stdin=b"ab\n")
    assert usage_error_message(one_column).startswith(
        "standard input:1: expected 2 columns, got 1 (tabs separate columns)"
    )


def test_text_format_is_refused_for_pairs() -> None:
    result = score("--input-format", "text")
    assert usage_error_message(result).startswith(
        "--input-format: expected auto, tsv, csv, jsonl or parquet, got 'text'"
    )
