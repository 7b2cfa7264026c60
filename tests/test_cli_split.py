"""cli/split.py: the subcommand split, and the commands that it prints."""

import shlex
from pathlib import Path

from command_line import CommandResult, run_pellucid, usage_error_message

from pellucid.cli.split import SplitArguments


def write_words(path: Path) -> None:
    """Write a table of old and modern spellings with semicolons, of which some rows have no target."""
    rows = [f"{n};old{n};{'' if n % 5 == 0 else f'new{n}'};A, B" for n in range(50)]
    path.write_text("\ufeffid;old spelling;new spelling;editor\r\n" + "\r\n".join([*rows, "", "51;;x;C"]), newline="")


def test_the_printed_commands_train_evaluate_and_predict(tmp_path: Path) -> None:
    write_words(tmp_path / "words.csv")

    def run(*arguments: object) -> CommandResult:
        return run_pellucid(*arguments, folder=tmp_path)

    columns = ["--source-column", "old spelling", "--target-column", "new spelling"]
    stopped = run("split", "words.csv", "--out", "a b", *columns)
    assert stopped.code == 2 and "words.csv:53: the source is empty; --on-bad-line skip leaves" in stopped.err
    result = run("split", "words.csv", "--out", "a b", *columns, "--on-bad-line", "skip")
    assert result.code == 0 and "skipped words.csv:53: the source is empty" in result.err
    assert "in no file: 1 bad line, 1 blank line" in result.err
    assert "the file has 4 columns; used are 'old spelling' as source, 'new spelling' as target" in result.err
    lines = result.out.splitlines()
    assert [line.split("  ")[-1].strip() for line in lines[:3]] == ["36 rows", "4 rows", "10 rows without a target"]
    train, evaluate, predict = (shlex.split(line.partition(" > ")[0])[1:] for line in lines[-3:])
    assert train == ["train", "a b/train.csv", "--run", "runs/words", *columns]
    assert run(*train, "--size", "tiny", "--epochs", "1").code == 0
    assert run(*evaluate).code == 0
    output = run(*predict).out
    assert output.startswith("\ufeffid;old spelling;new spelling;editor;confidence\r\n")
    assert len(output.splitlines()) == len((tmp_path / "words.csv").read_text("utf-8-sig").splitlines())


def test_the_table_of_a_header_is_filled(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text(
        "latin,hebrew\n" + "".join(f"a{n},{'' if n % 5 == 0 else n}\n" for n in range(40))
    )
    lines = run_pellucid("split", "names.csv", "--header", "--out", "out", folder=tmp_path).out.splitlines()
    assert lines[-1] == "  pellucid predict runs/names names.csv --fill hebrew > filled.csv"
    lines = run_pellucid("split", "names.csv", "--no-header", "--out", "other", folder=tmp_path).out.splitlines()
    assert lines[-1].endswith("other/unlabeled.csv --output-format csv > outputs.csv")


def test_a_table_with_an_unreadable_row_is_not_filled(tmp_path: Path) -> None:
    """Regression test: the command that was printed failed."""
    rows = "".join(f"a{n},{'' if n % 5 == 0 else n}\n" for n in range(40))
    (tmp_path / "names.csv").write_text(f"latin,hebrew\n{rows}short\n")
    flags = ["--header", "--out", "out", "--on-bad-line", "skip"]
    lines = run_pellucid("split", "names.csv", *flags, folder=tmp_path).out.splitlines()
    assert lines[-1] == "  pellucid predict runs/names out/unlabeled.csv --fill hebrew > filled.csv"


def test_a_column_of_classes_is_passed_on(tmp_path: Path) -> None:
    rows = "".join(f"a b{n},{'' if n % 5 == 0 else 'x y'},{'' if n % 5 == 0 else 'c'}\n" for n in range(40))
    (tmp_path / "commands.csv").write_text(f"words,tags,intent\n{rows}")
    flags = ["--source-column", "words", "--target-column", "tags", "--class-column", "intent"]
    lines = run_pellucid("split", "commands.csv", "--out", "out", *flags, folder=tmp_path).out.splitlines()
    assert f"--task tag-and-classify {' '.join(flags)}" in lines[-3]
    assert lines[-1].endswith("out/unlabeled.csv --output-format csv > outputs.csv")


def test_flags_are_checked_and_passed_on(tmp_path: Path) -> None:
    (path := tmp_path / "words.txt").write_text("x|a|1\n" * 3 + "".join(f"w{n}|b|{n}\n" for n in range(40)))
    flags = ["--no-header", "--delimiter", "|", "--group-column", "3", "--features-column", "3", "--test-size", "4"]
    result = run_pellucid("split", path, "--out", tmp_path / "out", *flags)
    assert result.code == 0
    (train,) = (line for line in result.out.splitlines() if "train " in line and "pellucid" in line)
    assert train.endswith(" --features-column 3 --delimiter '|' --group-column 3 --no-header")
    result = run_pellucid("split", path, "--out", tmp_path / "other", *flags, "--valid-size", "0.1")
    assert result.code == 0 and f"--valid {tmp_path / 'other' / 'valid.txt'}" in result.out
    for size in ("0", "-1", "1.5", "nan", "inf"):
        message = usage_error_message(run_pellucid("split", path, "--out", tmp_path, "--test-size", size))
        assert message.startswith("--test-size: expected a share of the rows above 0 and below 1, or a whole number of")
    assert usage_error_message(run_pellucid("split", path)).startswith("--out is required")
    delimiter = run_pellucid("split", tmp_path / "a.jsonl", "--out", tmp_path, "--delimiter", ";")
    assert delimiter.code == 2 and "--delimiter applies to CSV" in delimiter.err
    assert SplitArguments.test_size == 0.1


def test_the_printed_training_splits_symbols_between_spaces(tmp_path: Path) -> None:
    path = tmp_path / "phones.csv"
    path.write_text("word,phones\n" + "".join(f"w{number},k a{number} t\n" for number in range(40)))
    flags = ("--source-column", "word", "--target-column", "phones")
    result = run_pellucid("split", path, "--out", tmp_path / "parts", *flags)
    assert result.code == 0 and "--target-symbols words" in result.out and "--source-symbols" not in result.out


def test_control_characters_of_names_are_escaped(tmp_path: Path) -> None:
    """Regression test: a name of a file, which may come from an archive of somebody else, acted on the terminal."""
    name = "n\x1b[31mX"
    (tmp_path / f"{name}.tsv").write_text("a\tb\nc\td\ne\tf\n")
    result = run_pellucid("split", f"{name}.tsv", "--out", name, folder=tmp_path)
    assert result.code == 0 and "\x1b" not in result.out and r"n\x1b[31mX/train.tsv" in result.out
