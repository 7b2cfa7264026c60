"""pellucid predict: one output line per input line, formats, options and notes."""

import atexit
import csv
import gzip
import io
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import (
    CommandResult,
    output_lines,
    run_pellucid,
    run_shell,
    send_interrupt,
    start_command,
    usage_error_message,
    wait_for_exit,
)
from trained_runs import copy_run_folder, digits_run, make_small_config, train_to_end, write_old_model, write_pairs

from pellucid.cli import sources
from pellucid.cli.arguments import parse_arguments
from pellucid.cli.evaluate import EvaluateArguments
from pellucid.cli.predict_arguments import PredictArguments
from pellucid.cli.predict_lines import SourceInput
from pellucid.cli.sources import DecodingNotes, read_chunks
from pellucid.config.settings import DataConfig
from pellucid.data import readers
from pellucid.data.examples import Example, InputFormat, parse_sources, read_sources
from pellucid.data.readers import BadLine, TableCells
from pellucid.data.synthetic import spelled_digits
from pellucid.decoding.streaming import MAX_OUTPUTS
from pellucid.decoding.text_decoder import WordOutput
from pellucid.decoding.trace import Trace
from pellucid.run_folder.predictor_loader import load
from pellucid.training.training_data import TrainingFiles

SOURCES = [example.source for example in spelled_digits(50, 1, 4, seed=11)]


def predict(*arguments: object, stdin: str | bytes = b"") -> CommandResult:
    return run_pellucid(
        "predict", digits_run().run, *arguments, stdin=stdin.encode() if isinstance(stdin, str) else stdin
    )


def expected_outputs(sources: list[str]) -> list[str]:
    """Return the outputs of the model through the Python interface."""
    return [trace.output for trace in load(digits_run().run).predict(sources)]


def test_outputs_are_in_input_order() -> None:
    result = predict(stdin="".join(f"{source}\n" for source in SOURCES))
    assert result.code == 0 and result.err == "" and output_lines(result.out) == expected_outputs(SOURCES)
    assert len(set(output_lines(result.out))) > 10


def test_outputs_of_several_batches_are_in_input_order() -> None:
    sources = [SOURCES[number % 47] for number in range(2300)]
    assert output_lines(predict(stdin="\n".join(sources)).out) == expected_outputs(
        sources[:47]
    ) * 48 + expected_outputs(sources[: 2300 - 47 * 48])


@pytest.mark.parametrize(
    "lines", [["", "one", "", "two", ""], ["one"], [""], ["", ""], ["  \t ", "one"]], ids=lambda lines: repr(lines)
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("ends_with_newline", [True, False], ids=["ended", "not ended"])
def test_empty_lines_have_empty_outputs(lines: list[str], end: str, ends_with_newline: bool) -> None:
    text = end.join(lines) + end * ends_with_newline
    expected_lines = expected_outputs(["" if line.isspace() else line for line in lines])
    if not ends_with_newline and not lines[-1]:
        expected_lines.pop()  # there is no line after the last newline
    result = predict(stdin=text)
    assert result.code == 0 and (result.err == "" or not expected_lines)
    assert result.out == "".join(f"{line}\n" for line in expected_lines)


def test_beam_search_equals_python_and_scores_no_lower_than_greedy() -> None:
    stdin = "".join(f"{source}\n" for source in SOURCES)
    result = predict("--output-format", "tsv", stdin=stdin)
    assert result.code == 0 and result.err == ""
    assert result == predict("--beam-size", 5, "--output-format", "tsv", stdin=stdin)
    rows = [line.split("\t") for line in result.out.splitlines()]
    transducer = load(digits_run().run)
    assert [row[1] for row in rows] == [trace.output for trace in transducer.with_beam(5).predict(SOURCES)]
    greedy = [trace.score for trace in transducer.with_beam(1).predict(SOURCES)]
    assert all(float(row[2]) >= score - 1e-4 for row, score in zip(rows, greedy, strict=True))
    assert any(float(row[2]) > score + 1e-4 for row, score in zip(rows, greedy, strict=True))


@pytest.mark.parametrize("beam_size", [0, -1, 5000])
def test_invalid_beam_size_is_refused(beam_size: int) -> None:
    result = predict("--beam-size", beam_size, stdin="one\n")
    assert result.out == "" and usage_error_message(result).startswith("--beam-size: expected a whole number of at ")
    assert result.err.endswith(f", got {beam_size}\n")


def test_empty_input_is_reported() -> None:
    assert predict(stdin="") == (0, "", "pellucid: the input is empty\n")


def test_wrong_options_are_refused_without_input() -> None:
    """Regression test: an unknown symbol was an error only after the first sources were read."""
    result = predict("--forbid", "?!", stdin="")
    assert result.code == 2 and result.out == ""
    assert result.err.startswith("pellucid: forbidden: the model never writes the symbol '?!'")


def test_file_and_standard_input_give_the_same_outputs(tmp_path: Path) -> None:
    (tmp_path / "sources.txt").write_text("\n".join(["", *SOURCES, ""]))
    result = predict(tmp_path / "sources.txt")
    assert result == predict("-", stdin=(tmp_path / "sources.txt").read_bytes()) and result.code == 0


def test_every_file_format_is_read(tmp_path: Path) -> None:
    pairs = spelled_digits(12, 1, 3, seed=3)
    sources, targets = [example.source for example in pairs], [example.target for example in pairs]
    text = io.StringIO(newline="")
    csv.writer(text).writerows(zip(sources, targets, strict=True))
    plain = write_pairs(tmp_path / "a.tsv", pairs)
    (tmp_path / "a.csv").write_text(text.getvalue(), newline="")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"s": s, "t": "x"}) + "\n" for s in sources))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    pq.write_table(pa.table({"s": sources, "t": targets}), tmp_path / "a.parquet")
    for name in ("a.tsv", "a.csv", "a.jsonl", "a.tsv.gz", "a.parquet"):
        assert output_lines(predict(tmp_path / name).out) == expected_outputs(sources), name


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_input_format_of_standard_input_is_applied_or_refused(kind: str) -> None:
    """An input format must not be ignored silently."""
    lines = [json.dumps({"s": source}) if kind == "jsonl" else f'"{source}"' for source in SOURCES]
    result = predict("--input-format", kind, stdin="\n".join(lines))
    assert result.code == 2 or output_lines(result.out) == expected_outputs(SOURCES)


def test_tsv_has_source_output_and_log_probability() -> None:
    rows = [line.split("\t") for line in output_lines(predict("--output-format", "tsv", stdin="one\n\nnine two\n").out)]
    traces = load(digits_run().run).predict(["one", "", "nine two"])
    assert [row[:2] for row in rows] == [[trace.text, trace.output] for trace in traces]
    assert [float(row[2]) for row in rows] == pytest.approx([trace.score for trace in traces], abs=1e-5)


def test_jsonl_has_the_complete_trace() -> None:
    lines = [
        json.loads(line) for line in output_lines(predict("--output-format", "jsonl", stdin="one\n\nnine é\n").out)
    ]
    traces = load(digits_run().run).predict(["one", "", "nine é"])
    assert [line["output"] for line in lines] == [trace.output for trace in traces]
    assert lines[2]["unknown"] == [5] and lines[2]["source"] == list("nine é")
    for line in (lines[0], lines[2]):
        assert len(line["attention"]) == len(line["target"]) and len(line["attention"][0]) == len(line["source"])
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in line["attention"])


def test_line_break_in_a_source_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"one\ntwo",x\nthree,y\n')
    rows = output_lines(predict(tmp_path / "a.csv", "--output-format", "tsv").out)
    assert len(rows) == 2 and rows[0].startswith("one\\ntwo\t") and rows[1].startswith("three\t")
    assert len(output_lines(predict(tmp_path / "a.csv", "--output-format", "jsonl").out)) == 2


@pytest.mark.parametrize(
    "arguments", [(), ("--nbest", 3), ("--output-format", "tsv"), ("--output-format", "tsv", "--nbest", 3)]
)
def test_control_characters_of_symbols_are_escaped(tmp_path: Path, arguments: tuple[object, ...]) -> None:
    """Symbols of a downloaded vocabulary, and of JSON lines, may contain any character."""
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    vocabulary = json.loads((run / "vocabulary.json").read_text("utf-8"))
    control_characters = dict(zip("0123456789", "\n\t\r\x1b\x07\x0b\x0c\x85\u2028\x9b", strict=True))
    vocabulary["target"]["symbols"] = [control_characters[symbol] for symbol in vocabulary["target"]["symbols"]]
    (run / "vocabulary.json").write_text(json.dumps(vocabulary))
    write_old_model(run)  # it does not record its vocabulary
    stdin = "".join(f"{source}\n" for source in SOURCES).encode()
    expected = run_pellucid("predict", digits_run().run, *arguments, stdin=stdin).out
    out = run_pellucid("predict", run, *arguments, stdin=stdin).out
    assert out.count("\n") == expected.count("\n") and len(out.splitlines()) == out.count("\n")
    assert not ({*control_characters.values()} - {"\n", "\t"}) & {*out}
    for line, expected_line in zip(out.splitlines(), expected.splitlines(), strict=True):
        assert not arguments or line.count("\t") == expected_line.count("\t")
    if not arguments:
        escapes = {
            digit: character if character == "\t" else ascii(character)[1:-1]
            for digit, character in control_characters.items()
        }
        assert output_lines(out) == ["".join(map(escapes.__getitem__, output)) for output in output_lines(expected)]


def test_unknown_symbols_are_counted() -> None:
    result = predict(stdin="one é\nß two ßß\nthree\n")
    assert result.code == 0 and len(output_lines(result.out)) == 3
    assert result.err == (
        "pellucid: 4 source symbols (2 different) not in the vocabulary (encoded as the unknown symbol): "
        "'ß' × 3, 'é' × 1\n"
    )


def test_lower_case_is_advised_if_it_is_known() -> None:
    result = predict(stdin="ONE É\n")
    first, second = result.err.splitlines()
    assert first.startswith("pellucid: 4 source symbols (4 different) not in the vocabulary")
    assert second == (
        "pellucid: the vocabulary has the lower-case form of 3 of these symbols, such as 'o': give the sources in "
        "lower case, or use --text, which does so for such words"
    )
    assert "lower" not in predict(stdin="one é\n").err


def test_truncated_outputs_are_counted(tmp_path: Path) -> None:
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    settings = (run / "config.toml").read_text().replace("[search]", "[search]\nmax_length = 1\n#")
    (run / "config.toml").write_text(settings.replace("\nmax_length = 0", ""))
    result = run_pellucid("predict", run, "--beam-size", 1, stdin=b"one\nnine nine nine\n")
    assert result.code == 0 and len(output_lines(result.out)[1]) == 1
    assert result.err == "pellucid: 1 output truncated at the maximum length\n"


def test_truncated_outputs_of_all_ranks_are_counted() -> None:
    """Regression test: those of n-best lists and of samples that were not the first one had no message and no mark."""
    for flags in (("--nbest", "3"), ("--sample", "3"), ("--beam-size", "3", "--top-mass", "1")):
        arguments = ("--max-length", "1", *flags, "--output-format")
        (first, second) = (
            json.loads(line) for line in output_lines(predict(*arguments, "jsonl", stdin="one\nnine two\n").out)
        )
        num_truncated = sum(not trace["finished"] for trace in [*first, *second])
        assert num_truncated > sum(not traces[0]["finished"] for traces in (first, second))
        for output_format in ("text", "tsv", "csv", "jsonl"):
            result = predict(*arguments, output_format, stdin="one\nnine two\n")
            message = f"pellucid: {num_truncated} outputs truncated at the maximum length\n"
            assert result.code == 0 and result.err == message, (flags, output_format)


TEXT_WITH_BAD_LINES = b"one\n\xff\xfetwo\nthree\0\nfour\n"


def test_bad_line_stops_by_default() -> None:
    message = usage_error_message(predict(stdin=TEXT_WITH_BAD_LINES))
    assert message.startswith("standard input:2: invalid UTF-8 at byte 1 (0xff)")
    assert message.endswith("(--on-bad-line skip writes an empty output for such lines)")


@pytest.mark.parametrize(
    ("output_format", "empty_line"),
    [("text", ""), ("tsv", "\t\t\t"), ("jsonl", '{"output":null,"error":"standard input:')],
)
def test_skipped_line_has_an_empty_output(output_format: str, empty_line: str) -> None:
    result = predict("--on-bad-line", "skip", "--output-format", output_format, stdin=TEXT_WITH_BAD_LINES)
    lines = output_lines(result.out)
    assert result.code == 0 and len(lines) == 4
    assert all(
        lines[number] == empty_line or (output_format == "jsonl" and lines[number].startswith(empty_line))
        for number in (1, 2)
    )
    assert "no output for standard input:2: invalid UTF-8" in result.err
    assert "no output for standard input:3: NUL byte" in result.err
    assert [lines[0], lines[3]] == output_lines(predict("--output-format", output_format, stdin="one\nfour\n").out)


def test_many_skipped_lines_are_summarized() -> None:
    result = predict("--on-bad-line", "skip", stdin=b"\xff\n" * 30)
    assert result.out == "\n" * 30 and result.err.count("\n") == 6 and "no output for 25 more bad lines" in result.err


def test_lines_are_decoded_as_they_arrive_until_ctrl_c() -> None:
    """Each output line is written before the next input line, without end of input or a full buffer."""
    with start_command("predict", digits_run().run) as process:
        assert process.stdin is not None and process.stdout is not None
        for source in SOURCES[:3]:
            process.stdin.write(f"{source}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == expected_outputs([source])[0] + "\n"
        send_interrupt(process)
        result = wait_for_exit(process)
    assert (result.code, result.err) == (130, "pellucid: interrupted\n")


def test_broken_pipe_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("one\n" * 20_000)
    result = run_shell('("$@"; echo "code $?" >&2) | head -1', "predict", digits_run().run, tmp_path / "many.txt")
    assert result.out == expected_outputs(["one"])[0] + "\n" and result.err == "code 141\n"


def test_features_are_read_from_their_column(tmp_path: Path) -> None:
    tagged = [Example("ab"[: 1 + n % 2], "xy"[n % 2], "N;PL" if n % 3 else "V") for n in range(12)]
    tagged.append(Example("aa", "x", "V"))
    files = TrainingFiles(write_pairs(tmp_path / "t.tsv", tagged[:9]), write_pairs(tmp_path / "d.tsv", tagged[6:]))
    train_to_end(files, tmp_path / "run", make_small_config({"epochs": 1}, data={"features_column": "3"}))
    result = run_pellucid("predict", tmp_path / "run", files.valid, "--output-format", "jsonl")
    traces = [json.loads(line) for line in output_lines(result.out)]
    assert [trace["source"] for trace in traces] == [[*e.features.split(";"), *e.source] for e in tagged[6:]]
    without_features = json.loads(
        run_pellucid("predict", tmp_path / "run", "--output-format", "jsonl", stdin=b"ab\n").out
    )
    assert without_features["source"] == ["a", "b"] and without_features["num_features"] == 0


def test_a_covered_file_of_sources_and_features_is_decoded(tmp_path: Path) -> None:
    """The target, column 2 in the training, is missing, so the features are in column 2."""
    words = ["ab", "ba", "aab", "abb", "bab", "bba", "aa", "bb"]
    tagged = [Example(word, word.upper(), "V;PST" if index % 2 else "V") for index, word in enumerate(words)]
    files = TrainingFiles(
        write_pairs(tmp_path / "train.tsv", tagged[:6]), write_pairs(tmp_path / "dev.tsv", tagged[6:])
    )
    train_to_end(files, run := tmp_path / "run", make_small_config({"epochs": 1}, data={"features_column": "3"}))
    lines = [f"{example.source}\t{example.features}\n" for example in tagged]
    (covered := tmp_path / "covered.tsv").write_text("".join(lines), "utf-8")
    advice = "expected 3 columns, got 2 (tabs separate columns); --source-column and --features-column select the"
    assert advice in usage_error_message(run_pellucid("predict", run, covered))
    result = run_pellucid("predict", run, covered, "--features-column", "2", "--output-format", "jsonl")
    traces = list(map(json.loads, result.out.splitlines()))
    assert [trace["source"] for trace in traces] == [[*e.features.split(";"), *e.source] for e in tagged]
    (swapped := tmp_path / "swapped.tsv").write_text(
        "".join(f"{e.features}\t{e.source}\t{e.target}\n" for e in tagged), "utf-8"
    )
    columns = ("--source-column", "2", "--target-column", "3", "--features-column", "1")
    assert run_pellucid("score", run, swapped, *columns).code == 0
    shown = run_pellucid("look", run, swapped, *columns, "--terminal")
    evaluated = run_pellucid("evaluate", run, swapped, *columns, "--json")
    assert (shown.code, evaluated.code) == (0, 0) and json.loads(evaluated.out)["lines"] == len(tagged), evaluated


def test_a_column_of_features_is_refused_for_a_model_without_features(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv", [Example("one", "1")])
    message = usage_error_message(run_pellucid("predict", digits_run().run, path, "--features-column", "2"))
    assert message.startswith(
        "--features-column selects the features of the sources, but the model was trained without"
    )


def test_search_tree_without_jsonl_is_refused() -> None:
    for arguments in (("--search-tree",), ("--search-tree", "--output-format", "jsonl", "--sample", 2)):
        assert "--search-tree requires --output-format jsonl" in usage_error_message(predict(*arguments, stdin="one\n"))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_first_output_of_an_nbest_list_is_the_output_without_one(count: int) -> None:
    """Lists up to the beam size come from the same beam."""
    stdin = "".join(f"{source}\n" for source in SOURCES)
    lists = output_lines(predict("--nbest", count, stdin=stdin).out)
    assert [line.split("\t")[0] for line in lists] == output_lines(predict(stdin=stdin).out)
    assert all(len(line.split("\t")) <= count for line in lists)


def test_nbest_lists_have_a_line_per_input_line() -> None:
    """TSV has one line per output, JSON lines one list per line, and text tab-separated outputs."""
    stdin = "one\n\nnine two\n"
    lists = load(digits_run().run).nbest(["one", "", "nine two"], 3)
    rows = [line.split("\t") for line in output_lines(predict("--nbest", 3, "--output-format", "tsv", stdin=stdin).out)]
    assert [(int(r[0]), int(r[1]), r[4], r[5]) for r in rows] == [
        (line, trace.rank, trace.output, trace.text) for line, traces in enumerate(lists, 1) for trace in traces
    ]
    assert sum(float(row[2]) for row in rows) == pytest.approx(3, abs=1e-4)
    text = output_lines(predict("--nbest", 3, stdin=stdin).out)
    assert text == ["\t".join(trace.output for trace in traces) for traces in lists]
    json_lines = [
        json.loads(line) for line in output_lines(predict("--nbest", 3, "--output-format", "jsonl", stdin=stdin).out)
    ]
    assert [[trace["output"] for trace in line] for line in json_lines] == [[t.output for t in each] for each in lists]
    by_mass = output_lines(predict("--beam-size", 4, "--top-mass", 0.5, stdin=stdin).out)
    assert len(by_mass) == 3 and by_mass[0].split("\t")[0] == lists[0][0].output


def test_bad_line_keeps_its_number_among_nbest_lists() -> None:
    result = predict("--nbest", 2, "--on-bad-line", "skip", "--output-format", "tsv", stdin=TEXT_WITH_BAD_LINES)
    numbers = [line.split("\t")[:2] for line in output_lines(result.out)]
    assert [pair for pair in numbers if pair[0] in "23"] == [["2", "0"], ["3", "0"]] and numbers[-1][0] == "4"


def test_samples_depend_on_the_seed_only() -> None:
    sampled = predict("--sample", 2, "--seed", 3, "--temperature", 2, stdin="".join(f"{s}\n" for s in SOURCES))
    assert sampled.code == 0 and sampled == predict(
        "--sample", 2, "--seed", 3, "--temperature", 2, stdin="\n".join(SOURCES)
    )
    assert sampled != predict("--sample", 2, "--seed", 4, "--temperature", 2, stdin="\n".join(SOURCES))
    most_probable = output_lines(predict("--sample", 1, "--top-k", 1, stdin="\n".join(SOURCES)).out)
    assert most_probable == output_lines(predict("--beam-size", 1, stdin="\n".join(SOURCES)).out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--temperature", 2), "--temperature requires --sample"),
        (("--sample", 2, "--nbest", 2), "--nbest controls beam search"),
        (("--sample", 2, "--top-p", 0), "--top-p: expected a number above 0.0, got 0.0"),
        (("--beam-size", 1, "--top-mass", 0.5), "it requires --nbest, or a larger --beam-size"),
        (("--nbest", 2, "--top-mass", 2), "--top-mass: expected a probability above 0 and at most 1, got 2.0"),
        (("--forbid", "é"), "the model never writes the symbol 'é'"),
        (("--max-length-ratio", -1), "--max-length-ratio: expected a number of at least 0.0, got -1.0"),
    ],
)
def test_contradictory_flags_are_refused(arguments: tuple[object, ...], message: str) -> None:
    assert message in usage_error_message(predict(*arguments, stdin="one\n"))


def test_constraints_and_hypothesis_scores_are_set_by_flags() -> None:
    result = predict(
        "--prefix", "7", "--forbid", "1", "--require", "3", "--require", "4", "--beam-size", 3, stdin="one\ntwo\n"
    )
    assert all(line[0] == "7" and "1" not in line and {"3", "4"} <= {*line} for line in output_lines(result.out))
    score_flags = (
        "--length-normalization",
        "gnmt",
        "--length-penalty-alpha",
        1,
        "--coverage-penalty",
        0.1,
        "--min-length",
        2,
    )
    assert all(len(line) >= 2 for line in output_lines(predict(*score_flags, stdin="one\ntwo\n").out))
    trace = json.loads(predict("--beam-size", 2, "--search-tree", "--output-format", "jsonl", stdin="one\n").out)
    assert trace["search_tree"]["symbols"] and trace["output"] == expected_outputs(["one"])[0]


def test_lexicon_takes_precedence_and_is_counted(tmp_path: Path) -> None:
    (tmp_path / "known.tsv").write_text("one\tI\none\tUN\n")
    result = predict("--lexicon", tmp_path / "known.tsv", stdin="one\nnine\n")
    assert output_lines(result.out) == ["I", expected_outputs(["nine"])[0]]
    assert (
        "known.tsv: sources with several targets, of which the first one is the output: 1, such as 'one'" in result.err
    )
    assert result.err.endswith("pellucid: 1 source decoded by the lexicon\n")
    (tmp_path / "known.tsv").write_text("one\tI\none\n")
    assert "known.tsv:2: expected 2 columns" in usage_error_message(
        predict("--lexicon", tmp_path / "known.tsv", stdin="one\n")
    )


@cache
def test_csv_names_the_origin_of_outputs_with_a_lexicon(tmp_path: Path) -> None:
    (tmp_path / "known.tsv").write_text("one\t9\n")
    arguments = ("--lexicon", tmp_path / "known.tsv", "--output-format", "csv")
    rows = list(csv.DictReader(predict(*arguments, stdin="one\nnine\n\n").out.splitlines()))
    assert [row["origin"] for row in rows] == ["lexicon", "search", ""] and rows[0]["output"] == "9"
    rows = list(csv.DictReader(predict(*arguments, "--nbest", 2, stdin="one\nnine\n").out.splitlines()))
    assert [row["origin"] for row in rows] == ["lexicon", "search", "search"]
    assert "origin" not in predict("--output-format", "csv", stdin="one\n").out


def run_with_named_columns() -> Path:
    """Return a run that was trained on a CSV file whose source and target are columns 2 and 3 of four."""
    folder = Path(tempfile.mkdtemp(prefix="pellucid-lexicon-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    texts = ("ab", "ba", "aab", "bba") * 4
    for name, words in (("train.csv", (*texts, "abab")), ("valid.csv", texts)):
        rows = [f"{number},{text},{text.upper()},book" for number, text in enumerate(words)]
        (folder / name).write_text("\n".join(["id,word,pron,source", *rows, ""]))
    config = make_small_config({"epochs": 1}, data={"source_column": "word", "target_column": "pron"})
    train_to_end(TrainingFiles(folder / "train.csv", folder / "valid.csv"), folder / "run", config)
    return folder / "run"


def test_lexicon_has_the_columns_of_the_training_file(tmp_path: Path) -> None:
    path = tmp_path / "known.csv"
    path.write_text("id,word,pron,source\n1,ab,XX,book\n2,ba,YY,book\n")
    arguments = ("predict", run_with_named_columns(), "--lexicon", path)
    result = run_pellucid(*arguments, stdin=b"ba\nab\n")
    assert output_lines(result.out) == ["YY", "XX"]
    assert result.err == "pellucid: 2 sources decoded by the lexicon\n"
    result = run_pellucid(*arguments, stdin=b"1\n")
    assert result.code == 0 and output_lines(result.out) != ["ab"]
    assert (
        f"pellucid: 0 sources decoded by the lexicon: none equals a source of {path} with an allowed target; the file "
        "has 2 sources, the first is 'ab'\n"
    ) in result.err


def test_lexicon_with_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "known.csv"
    path.write_text("id,form,pron,source\n1,ab,XX,book\n")
    for arguments in (("predict", run_with_named_columns()), ("evaluate", run_with_named_columns(), path)):
        message = usage_error_message(run_pellucid(*arguments, "--lexicon", path, stdin=b"ab\n"))
        assert message == (
            f"{path}: the lexicon has 4 columns, and its first line is 'id', 'form', 'pron', 'source'; expected a "
            "first line that names the columns of the training file, 'word' (source) and 'pron' (target), or exactly "
            "two columns without header, source and target: name the columns so, or keep only these two"
        )


def test_bad_lines_of_a_lexicon_name_the_side_and_are_skipped_on_request(tmp_path: Path) -> None:
    path = tmp_path / "known.csv"
    path.write_text("id,word,pron,source\n1,,XX,book\n2,ba,,book\n3,ab,ZZ,\n")
    arguments = ("predict", run_with_named_columns(), "--lexicon", path)
    assert f"{path}:2: the source is empty" in usage_error_message(run_pellucid(*arguments, stdin=b"ab\n"))
    result = run_pellucid(*arguments, "--on-bad-line", "skip", stdin=b"ab\n")
    assert output_lines(result.out) == ["ZZ"] and output_lines(result.err) == [
        f"pellucid: skipped {path}:2: the source is empty",
        f"pellucid: note: {path}: rows without a target, which are not used: 1",
        "pellucid: 1 source decoded by the lexicon",
    ]


def test_evaluate_counts_the_sources_of_a_lexicon(tmp_path: Path) -> None:
    run, path = run_with_named_columns(), tmp_path / "known.csv"
    for word, count in (("ab", "4 sources"), ("id", "0 sources")):
        path.write_text(f"id,word,pron,source\n1,{word},AB,book\n")
        result = run_pellucid("evaluate", run, run.parent / "valid.csv", "--lexicon", path)
        assert result.code == 0 and f"pellucid: {run}: {count} decoded by the lexicon" in result.err


def test_several_runs_decode_as_an_ensemble(tmp_path: Path) -> None:
    run = digits_run().run
    (tmp_path / "sources.txt").write_text("one\nnine two\n")
    for arguments, stdin in (((run, run), b"one\nnine two\n"), ((run, run, run, tmp_path / "sources.txt"), b"")):
        assert output_lines(run_pellucid("predict", *arguments, stdin=stdin).out) == expected_outputs(
            ["one", "nine two"]
        )
    missing = usage_error_message(run_pellucid("predict", run, tmp_path / "nothing", tmp_path / "sources.txt"))
    advice = "name the folder that was given to pellucid train --run"
    assert missing == f"{tmp_path / 'nothing'} is not a run folder: there is no such folder; {advice}"


def test_each_source_may_have_its_own_prefix(tmp_path: Path) -> None:
    """The prefix file has one line per input line, including blank and bad lines, for every kind of decoding."""
    file = tmp_path / "prefixes.txt"
    file.write_text("7\n\n3\n55\n")
    lines = "one two\n\none\ttwo\tthree\nfour\n"
    model = load(digits_run().run)
    prefixed_outputs = [trace.output for trace in model.predict(["one two", "four"], prefixes=["7", "55"])]
    flags = ("--prefixes", file, "--on-bad-line", "skip")
    result = predict(*flags, stdin=lines)
    assert (
        result.code == 0
        and output_lines(result.out)[0] == prefixed_outputs[0]
        and output_lines(result.out)[3] == prefixed_outputs[1]
    )
    assert (
        prefixed_outputs[0].startswith("7")
        and prefixed_outputs[1].startswith("55")
        and output_lines(result.out)[1] == ""
    )
    for decoding_flags in (("--nbest", 2), ("--sample", 2, "--seed", 3)):
        rows = output_lines(predict(*flags, *decoding_flags, stdin=lines).out)
        assert all(output.startswith("7") for output in rows[0].split("\t"))
        assert all(output.startswith("55") for output in rows[3].split("\t"))


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("1\n", (), "prefixes.txt ends after 1 line: input line 2 has no prefix"),
        ("1\n2\n3\n", (), "prefixes.txt:3: there is no input line 3 for this prefix"),
        ("1\nx\n", (), "prefixes.txt:2: prefix: the model never writes the symbol 'x'"),
        ("\n12\n", ("--forbid", "2"), "prefixes.txt:2: prefix: the symbol '2' is forbidden"),
        ("1\n1234\n", ("--max-length", "3"), "prefixes.txt:2: the prefix and the required symbols take 4 symbols"),
        ("1\n2\n", ("--prefix", "1"), "--prefix and --prefixes exclude each other"),
        (b"1\n\xff\n", (), "prefixes.txt:2: invalid UTF-8 at byte 1"),
    ],
)
def test_impossible_prefixes_are_named(tmp_path: Path, text: str | bytes, flags: tuple[str, ...], message: str) -> None:
    file = tmp_path / "prefixes.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert message in usage_error_message(predict("--prefixes", file, *flags, stdin="one\ntwo\n"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--nbest", 0), "--nbest: expected 1 to 1,024 outputs, the largest beam size, got 0"),
        (("--nbest", 100_000), "--nbest: expected 1 to 1,024 outputs, the largest beam size, got 100000"),
        (("--beam-size", 0), "--beam-size: expected a whole number of at least 1, got 0"),
        (("--min-length", 9, "--max-length", 3), "--min-length = 9 is greater than --max-length = 3"),
        (("--nbest", 2, "--top-mass", 1.5), "--top-mass: expected a probability above 0 and at most 1, got 1.5"),
        (("--nbest", 2, "--top-mass", 0), "--top-mass: expected a probability above 0 and at most 1, got 0.0"),
    ],
    ids=str,
)
def test_values_out_of_range_are_named_by_their_flag(flags: tuple[object, ...], message: str) -> None:
    assert message in usage_error_message(predict(*flags, stdin="one\n"))


def test_many_outputs_per_source_are_decoded_in_small_batches(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n" * 40)
    for count, sizes in ((1, [40]), (MAX_OUTPUTS // 16, [16, 16, 8]), (2 * MAX_OUTPUTS, [1] * 40)):
        chunks = read_chunks(tmp_path / "a.txt", DataConfig(), InputFormat(), read_sources, parse_sources, count)
        assert [len(chunk) for chunk in chunks] == sizes


def test_rows_with_long_cells_are_decoded_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: up to 1,024 rows were in memory with all their cells, however long these are."""
    monkeypatch.setattr(readers, "MAX_CELL_CHARACTERS", 100)
    path, data, cells = tmp_path / "a.tsv", DataConfig(header=False), TableCells()
    path.write_text("one\tx\n" * 3 + f"one\t{'x' * 30}\n" * 9 + "one\tx\n" * 9)
    sizes = list[int]()
    for chunk in read_chunks(path, data, InputFormat(cells=cells), read_sources, parse_sources):
        sizes.append(len(chunk))
        assert len(cells.rows) == len(chunk)
        cells.rows.clear()
    assert sizes == [6, 4, 11]


@pytest.mark.parametrize("output_format", ["text", "csv"])
def test_cells_are_kept_for_csv_alone(tmp_path: Path, output_format: str) -> None:
    """Regression test: long cells of other columns filled the memory in every format."""
    (tmp_path / "a.tsv").write_text("one\tx\n" * 5)
    arguments = [str(digits_run().run), str(tmp_path / "a.tsv"), "--no-header", "--output-format", output_format]
    args = parse_arguments(PredictArguments, "predict", arguments)
    sources = SourceInput(load(digits_run().run), args, tmp_path / "a.tsv")
    assert [len(chunk.items) for chunk in sources.chunks()] == [5]
    assert len(sources.cells.rows) == (5 if output_format == "csv" else 0)


def test_default_of_a_limit_is_no_limit() -> None:
    lines = "".join(f"{source}\n" for source in SOURCES[:5])
    assert predict("--max-length", 0, "--max-length-ratio", 0, stdin=lines).out == predict(stdin=lines).out
    sampling_flags = ("--sample", 2, "--top-k", 0)
    assert predict(*sampling_flags, stdin=lines).out == predict("--sample", 2, stdin=lines).out


def test_long_symbols_are_abbreviated_in_messages(capsys: pytest.CaptureFixture[str]) -> None:
    notes = DecodingNotes()
    notes.unknown.update(["a" * 40, "b" * 3000])
    notes.num_lines = 1
    notes.report(has_features=False)
    message = capsys.readouterr().err
    assert f"'{'a' * 40}' × 1" in message and f"'{'b' * 39}…' × 1" in message


@pytest.mark.parametrize(("flags", "expected"), [([], None), (["--pair-ngram"], True), (["--no-pair-ngram"], False)])
def test_the_pair_ngram_switch_has_a_negation_and_defaults_to_the_run(flags: list[str], expected: bool | None) -> None:
    for kind, name in ((PredictArguments, "predict"), (EvaluateArguments, "evaluate")):
        assert parse_arguments(kind, name, ["run", "file", *flags]).pair_ngram is expected
    assert predict(*flags, stdin="one\n").code == 0
    assert "takes no value" in usage_error_message(predict("--pair-ngram=False", stdin="one\n"))


def test_outputs_below_the_confidence_threshold_leave_empty_lines() -> None:
    """Every input line keeps its output line; the other formats keep all outputs and say which are accepted."""
    stdin = "one\n\nnine two\nfour\n"
    rows = [line.split("\t") for line in output_lines(predict("--output-format", "tsv", stdin=stdin).out)]
    confidences = [float(row[3]) for row in rows if row[3]]
    assert len(confidences) == 3 and rows[1] == ["", "", "0.000000", ""]
    threshold = max(confidences)
    expected = [not row[3] or float(row[3]) >= threshold for row in rows]
    flags = ("--min-confidence", threshold - 1e-6)
    plain, text = (output_lines(predict(*given, stdin=stdin).out) for given in ((), flags))
    assert text == [line if accepted else "" for line, accepted in zip(plain, expected, strict=True)]
    tsv = [line.split("\t") for line in output_lines(predict(*flags, "-f", "tsv", stdin=stdin).out)]
    assert [row[:4] for row in tsv] == rows
    assert [row[4] for row in tsv] == ["true" if accepted else "false" for accepted in expected]
    lines = output_lines(predict(*flags, "-f", "jsonl", stdin=stdin).out)
    assert [json.loads(line)["accepted"] for line in lines] == expected
    assert [Trace.from_json(line).output for line in lines] == plain
    result = predict(*flags, stdin=stdin)
    assert f"{sum(expected)} of 4 outputs are accepted, with a confidence of at least" in result.err
    assert f"the lines of the other {4 - sum(expected)} are empty" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--min-confidence", "1.5"), "--min-confidence: expected a number from 0 to 1, got 1.5"),
        (("--min-confidence", "nan"), "--min-confidence: expected a number from 0 to 1, got nan"),
        (("--min-confidence", "0.5", "--nbest", "2"), "--min-confidence accepts or rejects the best output"),
        (("--min-confidence", "0.5", "--sample", "2"), "--min-confidence accepts or rejects the best output"),
        (("--min-confidence", "0.5", "--beam-size", "2"), "--min-confidence: search.beam_size is 2, and was 5"),
        (("--min-confidence", "0.5", "--forbid", "1"), "--min-confidence: the confidence does not hold for outputs"),
    ],
)
def test_a_threshold_without_confidence_is_refused(arguments: tuple[str, ...], message: str) -> None:
    assert usage_error_message(predict(*arguments, stdin="one\n")).startswith(message)


def test_notes_of_a_stream_without_end_take_bounded_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_UNKNOWN_SYMBOLS", 3)
    notes = DecodingNotes()
    for number in range(1, 2_001):
        notes.count_line(BadLine("x.tsv", number, "expected 2 columns"), None)
        notes.count_text(
            None, [WordOutput("a", "b", 0.0, None, "search", True, True, (f"word{number}", "word1"), ("b",))]
        )
    both = DecodingNotes()
    both.add(notes.counts())
    both.add(notes.counts())
    assert len(both.bad_lines) == 5 and len(both.unknown) == 3
    both.report(has_features=False)
    message = capsys.readouterr().err
    assert "no output for x.tsv:1: " in message and "no output for 3,995 more bad lines" in message
    assert "8,000 source symbols (more than 3 different)" in message and "'word1' × 4,002, 'word2' × 2" in message
