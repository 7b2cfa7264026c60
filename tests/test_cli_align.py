"""pellucid align: one output line per pair, with and without a run."""

import json
from pathlib import Path

import pytest
from command_line import CommandResult, output_lines, run_pellucid, usage_error_message
from trained_runs import digits_run

from pellucid.alignment.types import ChunkLimits
from pellucid.data.examples import Example
from pellucid.run_folder.predictor_loader import load

WORDS = ["ab", "ba", "aab", "bba", "b", "abab"]
PAIRS = "".join(f"{word}\t{' '.join(word.upper())}\n" for word in WORDS)
DIGITS = "one two\t12\nnine\t9\n"


def align(*arguments: object, stdin: str = PAIRS) -> CommandResult:
    return run_pellucid("align", *arguments, stdin=stdin.encode())


def align_words(*arguments: object, stdin: str = PAIRS) -> CommandResult:
    return align("-", "--target-symbols", "words", "--max-source", 1, "--max-target", 1, *arguments, stdin=stdin)


def test_every_pair_has_a_line_in_every_format() -> None:
    rows = [line.split("\t") for line in output_lines(align_words().out)]
    assert [row[:4] for row in rows] == [[w, " ".join(w.upper()), " ".join(w), " ".join(w.upper())] for w in WORDS]
    records = [json.loads(line) for line in output_lines(align_words("--output-format", "jsonl").out)]
    assert [record["chunks"] for record in records[:2]] == [[[0, 1, 0, 1], [1, 2, 1, 2]]] * 2
    assert [record["score"] for record in records] == pytest.approx([float(row[4]) for row in rows])
    corpus = output_lines(align_words("--output-format", "phonetisaurus").out)
    assert corpus == [" ".join(f"{letter}}}{letter.upper()}" for letter in word) for word in WORDS]
    assert output_lines(align_words("--output-format", "pharaoh").out)[2] == "0-0 1-1 2-2"


def test_phones_of_ipa_are_aligned_as_a_whole() -> None:
    stdin = "chat\tt͡ʃæt\nach\tæt͡ʃ\ntea\ttiː\nteach\ttiːt͡ʃ\n" * 3
    result = align("-", "--target-symbols", "ipa", "--output-format", "phonetisaurus", stdin=stdin)
    assert output_lines(result.out)[:4] == ["c|h}t͡ʃ a}æ t}t", "a}æ c|h}t͡ʃ", "t}t e|a}iː", "t}t e|a}iː c|h}t͡ʃ"]
    assert result.code == 0 and "IPA" not in result.err
    result = align("-", stdin=stdin)
    advice = "warning: the targets look like IPA: --target-symbols ipa keeps t͡ʃ and iː together"
    assert result.code == 0 and result.err.count(advice) == 1


def test_a_file_is_aligned_as_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("target,source\n" + "".join(f"{word.upper()},{word}\n" for word in WORDS))
    result = align(path, "--source-column", "source", "--target-column", "target", "--output-format", "phonetisaurus")
    assert result.code == 0 and output_lines(result.out)[0] == "a}A b}B"


def test_blank_bad_and_unaligned_lines_keep_their_places() -> None:
    stdin = PAIRS + "\nab\nb\tA B A\n"
    result = align_words("--no-insertions", "--on-bad-line", "skip", stdin=stdin)
    lines = output_lines(result.out)
    assert result.code == 0 and lines[6:] == ["\t\t\t\t", "\t\t\t\t", "b\tA B A\t\t\t"]
    assert "no output for standard input:8: expected 2 columns, got 1" in result.err
    assert "1 of 7 pairs without an alignment, each with an empty output" in result.err
    assert "output line 9: 1 source and 3 target symbols cannot be divided into chunks of at most 1-1" in result.err
    result = align_words("--no-insertions", "--on-bad-line", "skip", "--output-format", "jsonl", stdin=stdin)
    records = [json.loads(line) for line in output_lines(result.out)[6:]]
    assert records[0] == {"chunks": None} and "expected 2 columns" in records[1]["error"]
    assert records[2]["chunks"] is None and "cannot be divided" in records[2]["error"]
    stopped = align_words(stdin=stdin)
    assert stopped.code == 2 and stopped.out == "" and "standard input:8: expected 2 columns" in stopped.err


def test_symbols_with_a_meaning_in_the_format_are_escaped_or_refused() -> None:
    stdin = "a|_\tA _ \\\n"
    assert align_words(stdin=stdin).out.startswith("a|_\tA _ \\\ta \\x7c \\x5f\tA \\x5f \\\\\t")
    message = usage_error_message(align_words("--output-format", "phonetisaurus", stdin=stdin))
    assert message.startswith("output line 1: the symbol '|' cannot be written in the corpus format of Phonetisaurus")
    skipped = align_words("--output-format", "phonetisaurus", "--on-bad-line", "skip", stdin=stdin)
    assert skipped.code == 0 and skipped.out == "\n" and "1 of 1 pair without an alignment" in skipped.err


def test_the_attention_of_a_run_aligns_pairs() -> None:
    run, limits = digits_run().run, ChunkLimits(4, 1, insertions=False, deletions=False)
    expected = load(run).align([Example("one two", "12"), Example("nine", "9")], limits)
    flags = ["--max-source", 4, "--max-target", 1, "--no-insertions", "--no-deletions", "--output-format", "jsonl"]
    result = align(run, *flags, stdin=DIGITS + "\nfive\t55555\n")
    lines = output_lines(result.out)
    assert lines[:2] == [alignment.to_json() for alignment in expected if alignment] and lines[2] == '{"chunks":null}'
    assert "cannot be divided" in json.loads(lines[3])["error"] and "1 of 3 pairs without" in result.err
    assert align(run, "-", stdin=DIGITS).out == align(run, "--method", "attention", stdin=DIGITS).out


def test_lines_before_a_bad_one_are_written_with_a_run() -> None:
    result = align(digits_run().run, stdin=DIGITS + "bad\n")
    assert result.code == 2 and len(output_lines(result.out)) == 2 and "standard input:3" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a file of pairs is required"),
        (["-", "--method", "attention"], "--method attention requires the folder of a run"),
        (["-", "--max-source", 17], "--max-source: expected a whole number of at most 16, got 17"),
        (["-", "--source-symbols", "subwords"], "subwords are known only to a trained run"),
        (["RUN", "--source-symbols", "words"], "a run has its own tokenizers"),
        (["RUN", "--method", "em"], "the run has no pair n-gram model;"),
        (["RUN", "--method", "em", "--no-deletions"], "the pair n-gram model of a run has its own chunks"),
        (["no-such-file.tsv"], "no-such-file.tsv"),
    ],
)
def test_wrong_arguments_are_explained(arguments: list[object], message: str) -> None:
    run = digits_run().run
    result = align(*(run if argument == "RUN" else argument for argument in arguments), stdin=DIGITS)
    assert result.code == 2 and result.out == "" and message in result.err
