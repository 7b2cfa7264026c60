"""pellucid predict --text: running text in, running text or positions out."""

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import CommandResult, run_pellucid, usage_error_message
from task_cases import task_run
from trained_runs import digits_run

from pellucid.cli import main
from pellucid.cli.predict_text import WordCounts, write_decoded_text
from pellucid.cli.sources import DecodingNotes
from pellucid.data import text_words
from pellucid.data.text_words import WordRule, WordSpan
from pellucid.decoding.text_decoder import TextDecoder, TextWord, WordOutput
from pellucid.errors import DataError
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


def test_a_byte_order_mark_on_standard_input_stays() -> None:
    text = b"\xef\xbb\xbf" + b"one\n"
    assert predict_text(stdin=text).out == f"\ufeff{outputs('one')[0]}\n"
    assert predict_text("-f", "tsv", stdin=text).out.startswith("1\t0\t3\t")
    assert predict_text(stdin=b"\xef\xbb\xbf").out == "\ufeff", "also if nothing follows"


def test_a_line_break_in_an_output_ends_no_line(tmp_path: Path) -> None:
    """Regression test: a target of the lexicon with a line break gave two lines for one."""
    lexicon = tmp_path / "lexicon.csv"
    lexicon.write_text('one,"X\ny"\n', "utf-8")
    assert predict_text("--lexicon", lexicon, stdin="one!\n").out == "X\\ny!\n"
    (row,) = csv.DictReader(
        io.StringIO(predict_text("--lexicon", lexicon, "-f", "csv", stdin="one!\n").out, newline="")
    )
    assert (row["output"], row["output_end"]) == ("X\ny", "4")


def test_words_with_empty_outputs_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression test: a word with an empty output was removed from the text without a message."""
    output = WordOutput("x", "", -1.0, None, "search", True, True, (), ())
    counts = WordCounts()
    words = [TextWord(text, WordSpan(0, 1), WordSpan(0, 0), output) for text in ("a", "b", "a")]
    counts.add([*words, words[0]._replace(output=output._replace(output="y"))])
    counts.add([words[0]._replace(output=output._replace(is_accepted=False))])
    counts.report(0.5)
    assert capsys.readouterr().err.splitlines() == [
        "pellucid: 3 words have empty outputs, for which nothing is written: 'a', 'b'",
        "pellucid: 4 of 5 words are accepted, with a confidence of at least 0.5; the other one stays as it is",
    ]


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


def test_a_line_with_a_word_of_too_many_symbols_is_a_bad_line() -> None:
    """Regression test: the word ended the whole text, and the message named neither file nor line."""
    text = "one\ntwo " + "a" * 1001 + "\nthree\n"
    message = "standard input:2: the word has 1001 symbols, more than data.max_sequence_length = 1000: 'aaa"
    one, three = outputs("one", "three")
    stopped = predict_text(stdin=text)
    assert (stopped.code, stopped.out) == (2, f"{one}\n") and message in stopped.err
    skipped = predict_text("--on-bad-line", "skip", stdin=text)
    assert (skipped.code, skipped.out) == (0, f"{one}\n\n{three}\n") and message in skipped.err


def test_accepted_words_are_counted() -> None:
    words = [json.loads(line) for line in predict_text("-f", "jsonl").out.splitlines()]
    threshold = sorted(word["confidence"] for line in words for word in line["words"])[2]
    result = predict_text("--min-confidence", threshold)
    rows = csv.DictReader(io.StringIO(predict_text("--min-confidence", threshold, "-f", "csv").out))
    count = [row["accepted"] for row in rows].count("true")
    assert 0 < count < 5
    assert f"{count} of 5 words are accepted, with a confidence of at least {threshold:g}" in result.err
    assert f"; the other {5 - count} stay as they are" in result.err


def test_running_text_needs_outputs_that_are_written_symbol_by_symbol() -> None:
    result = run_pellucid("predict", task_run("tag").run, "--text", stdin=b"abc\n")
    message = "--text: expected outputs written symbol by symbol, but the model's task is 'tag'"
    assert result.out == "" and message in usage_error_message(result)


def test_an_empty_text_gives_an_empty_output() -> None:
    result = predict_text(stdin="")
    assert result.code == 0 and result.out == "" and "the input is empty" in result.err
    assert predict_text("-f", "csv", stdin="").out == predict_text("-f", "csv", stdin="5\n").out
    assert predict_text("-f", "csv", stdin="").out.startswith("line,start,end,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nbest", "2"], "excludes --nbest"),
        (["--sample", "2"], "excludes --sample"),
        (["--source-column", "1"], "excludes --source-column"),
        (["--input-format", "csv"], "excludes --input-format"),
        (["--word-pattern", r"(?r)\w+"], "has the flag r, with which matches come from right to left"),
        (["--word-pattern", "(a"], "is not a regular expression: missing )"),
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


SENTENCES = [["the", "live", "fish"], ["we", "live", "here"], ["a", "live", "fish"], ["they", "live", "near"]] * 12


def write_text(path: Path, sentences: list[list[str]]) -> Path:
    """Write running text as a training file: each word with its reverse as target, and blank lines."""
    path.write_text("\n".join("".join(f"{word}\t{word[::-1]}\n" for word in line) for line in sentences), "utf-8")
    return path


@pytest.fixture(scope="module")
def context_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that reads two words before and after each word."""
    folder = tmp_path_factory.mktemp("context")
    text = write_text(folder / "text.tsv", SENTENCES)
    result = run_pellucid(
        *("train", text, "--run", folder / "run", "--context-words", "2", "--size", "tiny", "--epochs", "1"),
    )
    assert result.code == 0, result.err
    assert "sentences chosen at random" in result.err + result.out
    return folder / "run"


def test_text_and_file_have_the_same_outputs_in_context(context_run: Path, tmp_path: Path) -> None:
    sentences = [["fish", "live", "there"], ["we", "live", "near", "a", "live", "fish"], ["live"]]
    text = "".join(" ".join(line) + ".\n" for line in sentences)
    result = run_pellucid("predict", context_run, "--text", stdin=text.encode())
    outputs = [line.rstrip(".").split(" ") for line in result.out.splitlines()]
    path = write_text(tmp_path / "text.tsv", sentences)
    lines = run_pellucid("predict", context_run, path).out.split("\n")
    assert lines == [output for line in outputs for output in [*line, ""]]
    piped = run_pellucid("predict", context_run, stdin=path.read_bytes()).out
    assert piped.split("\n") == lines
    model = load(context_run)
    contexts = ["⟨edge⟩ ⟨edge⟩ live there", "⟨edge⟩ fish there ⟨edge⟩", "fish live ⟨edge⟩ ⟨edge⟩"]
    assert [trace.output for trace in model.predict(sentences[0], contexts)] == outputs[0]


def test_tables_keep_their_rows_in_context(
    context_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "words.csv"
    path.write_text(
        "".join(f"{word},{number}\n" for number, word in enumerate(["we", "live", "near", "a", "live", "fish"]))
    )
    whole = run_pellucid("predict", context_run, path, "--output-format", "csv").out
    assert [row.split(",")[:2] for row in whole.splitlines()[1:]] == [
        line.split(",") for line in path.read_text().splitlines()
    ]
    monkeypatch.setattr("pellucid.decoding.streaming.MAX_SOURCES", 2)
    for output_format in ("csv", "tsv"):
        expected = run_pellucid("predict", context_run, path, "--output-format", output_format).out
        assert main(["predict", str(context_run), str(path), "--output-format", output_format]) == 0
        assert capsys.readouterr().out == expected


def test_contexts_in_evaluation_scoring_fine_tuning_and_prepared_data(context_run: Path, tmp_path: Path) -> None:
    path = write_text(tmp_path / "text.tsv", SENTENCES[:4])
    evaluation = run_pellucid("evaluate", context_run, path)
    assert evaluation.code == 0 and "exact match" in evaluation.out
    score = run_pellucid("score", context_run, path)
    assert score.code == 0 and len(score.out.splitlines()) == len(path.read_text().splitlines())
    tuned = run_pellucid("train", path, "--run", tmp_path / "tuned", "--init-from", context_run, "--epochs", "1")
    assert tuned.code == 0 and load(tmp_path / "tuned").config.data.context_words == 2
    flags = ("--context-words", "2", "--size", "tiny")
    held_out = run_pellucid("prepare", path, "--out", tmp_path / "prepared", *flags[:2])
    assert "holds out sentences" in usage_error_message(held_out)
    valid = write_text(tmp_path / "valid.tsv", [["here", "we", "live"]])
    prepared = run_pellucid("prepare", path, "--valid", valid, "--out", tmp_path / "prepared", *flags[:2])
    assert prepared.code == 0, prepared.err
    trained = run_pellucid("train", tmp_path / "prepared", "--run", tmp_path / "run", *flags, "--epochs", "1")
    assert trained.code == 0, trained.err
    assert "⟨?⟩" not in load(tmp_path / "run").vocabularies.features.symbols


def test_outputs_without_a_required_symbol_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression test: they were counted without --text only."""
    decoder = TextDecoder(load(digits_run().run))
    (text,) = decoder.decode(["one two one"])
    outputs = [word.output for word in text.words]
    assert ["".join(output.symbols) for output in outputs] == [output.output for output in outputs]
    notes = DecodingNotes(outputs[1].symbols)
    notes.count_text(None, outputs)
    notes.report(has_features=False)
    assert "2 outputs without a symbol required by --require" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output_format", "effect"), [("text", "an empty line"), ("jsonl", "its error"), ("csv", "no row")]
)
def test_the_effect_of_skipping_is_that_of_the_output_format(output_format: str, effect: str) -> None:
    """Regression test: the message said that such lines are left out."""
    result = predict_text("-f", output_format, stdin=b"one\n\xff two\n")
    assert f"(--on-bad-line skip continues, and writes {effect} for such a line)" in result.err


def test_a_pattern_that_takes_too_long_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression test: the message named no line, and such a line could not be skipped."""
    monkeypatch.setattr(text_words, "MATCH_SECONDS", 0.05)
    (path := tmp_path / "text.txt").write_text(f"one\n{'a' * 200}!\none\n", "utf-8")
    decoder, (one,) = TextDecoder(load(digits_run().run), WordRule(r"one|(?:\w+\w+\w+)+\d$")), outputs("one")
    with pytest.raises(DataError, match=r"text\.txt:2: matching the word pattern .* took longer than 0\.05 seconds"):
        write_decoded_text(decoder, path, "text", "stop", DecodingNotes())
    assert capsys.readouterr().out == f"{one}\n"
    write_decoded_text(decoder, path, "text", "skip", DecodingNotes())
    assert capsys.readouterr().out == f"{one}\n\n{one}\n"
