"""pellucid predict --text: running text in, running text or positions out."""

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import CommandResult, run_pellucid, usage_error_message
from trained_runs import digits_run

from pellucid.run_folder.predictor_loader import load

TEXT = "One two, (three)!\r\n\n  four 5\nsix"


def predict_text(*arguments: object, stdin: str | bytes = TEXT) -> CommandResult:
    return run_pellucid(
        "predict", digits_run().run, "--text", *arguments, stdin=stdin.encode() if isinstance(stdin, str) else stdin
    )


def outputs(*words: str) -> list[str]:
    """Return the outputs of the model through the Python interface."""
    return [trace.output for trace in load(digits_run().run).predict(list(words))]


def test_text_keeps_everything_between_the_words() -> None:
    one, two, three, four, six = outputs("one", "two", "three", "four", "six")
    result = predict_text()
    assert result.code == 0
    assert result.out == f"{one} {two}, ({three})!\r\n\n  {four} 5\n{six}"
    assert "5 words in 4 lines" in result.err


def test_a_file_with_a_byte_order_mark_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"one\n")
    assert predict_text(path).out == f"\ufeff{outputs('one')[0]}\n"


def test_rows_and_records_have_the_positions_of_words_and_outputs() -> None:
    lines = TEXT.replace("\r", "").split("\n")
    written = [line.rstrip("\r") for line in predict_text().out.split("\n")]
    rows = list(csv.DictReader(io.StringIO(predict_text("-f", "csv").out)))
    assert [row["word"] for row in rows] == ["One", "two", "three", "four", "six"]
    for row in rows:
        number = int(row["line"]) - 1
        assert lines[number][int(row["start"]) : int(row["end"])] == row["word"]
        assert written[number][int(row["output_start"]) : int(row["output_end"])] == row["output"]
        assert row["source"] == row["word"].lower() and row["origin"] == "search"
    records = [json.loads(line) for line in predict_text("-f", "jsonl").out.splitlines()]
    assert [record["text"] for record in records] == lines
    assert [record["output"] for record in records] == written
    words = [word for record in records for word in record["words"]]
    assert [(word["start"], word["output"]) for word in words] == [(int(row["start"]), row["output"]) for row in rows]
    cells = [line.split("\t") for line in predict_text("-f", "tsv").out.splitlines()]
    assert cells == [[row[name] for name in rows[0]] for row in rows]


def test_a_pattern_a_template_and_a_lexicon(tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.tsv"
    lexicon.write_text("one\t1\n", "utf-8")
    (nine,) = outputs("nine")
    arguments = ("--word-pattern", "[a-z]+ne", "--word-template", "<{word}={output}>", "--lexicon", lexicon)
    result = predict_text(*arguments, stdin="one two nine\n")
    assert result.out == f"<one=1> two <nine={nine}>\n"
    assert "1 source decoded by the lexicon" in result.err


def test_a_line_that_is_not_utf8_stops_or_is_an_empty_line() -> None:
    text = b"one\n\xff two\nthree\n"
    stopped = predict_text(stdin=text)
    assert stopped.code == 2 and stopped.out == f"{outputs('one')[0]}\n"
    assert "standard input:2: invalid UTF-8 at byte 1" in stopped.err
    one, three = outputs("one", "three")
    skipped = predict_text("--on-bad-line", "skip", stdin=text)
    assert skipped.code == 0 and skipped.out == f"{one}\n\n{three}\n"
    assert "no output for standard input:2" in skipped.err
    record = json.loads(predict_text("--on-bad-line", "skip", "-f", "jsonl", stdin=text).out.splitlines()[1])
    assert record["line"] == 2 and record["output"] is None and "invalid UTF-8" in record["error"]


def test_an_empty_text_gives_an_empty_output() -> None:
    result = predict_text(stdin="")
    assert result.code == 0 and result.out == "" and "the input is empty" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nbest", "2"], "excludes --nbest"),
        (["--sample", "2"], "excludes --sample"),
        (["--source-column", "1"], "excludes --source-column"),
        (["--input-format", "csv"], "excludes --input-format"),
        (["--word-pattern", "(a"], "is no regular expression: missing )"),
        (["--word-template", "x"], "expected text with {output}"),
        (["--min-confidence", "0.5", "-k", "9"], "--min-confidence: search.beam_size is 9"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str) -> None:
    assert message in usage_error_message(predict_text(*arguments))


def test_the_other_flags_require_text() -> None:
    for flag in ("--word-pattern", "--word-template", "--keep-case"):
        result = run_pellucid("predict", digits_run().run, flag, "x")
        assert f"{flag} requires --text" in usage_error_message(result)
