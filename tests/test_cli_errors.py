"""Errors of arguments and paths, reported before any computation."""

from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message
from trained_runs import copy_task_run, digits_run, write_pairs

from pellucid.data.examples import Example


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "run", "--beam-size", "inf"], "--beam-size: expected a whole number, got 'inf'"),
        (["predict", "run", "--beam-size", "2.5"], "--beam-size: expected a whole number, got '2.5'"),
        (["predict", "run", "--sample", "2", "--temperature", "hot"], "--temperature: expected a number, got 'hot'"),
        (
            ["train", "a", "--valid", "b", "--run", "c", "--training.epochs", "x"],
            "--training.epochs: expected a number, got 'x'",
        ),
        (["recipe", "scan", "--run", "o", "--seeds", "two"], "--seeds: expected a whole number, got 'two'"),
    ],
)
def test_non_number_is_an_error_with_the_expected_type(arguments: list[str], message: str) -> None:
    assert usage_error_message(run_pellucid(*arguments)) == f"{message} (pellucid {arguments[0]} --help)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "run", "--beam-size"], "--beam-size: expected a value, got nothing (pellucid predict --help)"),
        (["predict", "run", "--beam-size", "--nbest", 3], "--beam-size: expected a value, got the flag --nbest"),
        (
            ["train", "a", "--valid", "--run", "c"],
            "--valid: expected a value, got the flag --run (pellucid train --help)",
        ),
        (
            ["train", "a", "--valid", "b", "--run", "c", "--training.epochs"],
            "--training.epochs: expected a value, got nothing",
        ),
        (
            ["evaluate", "run"],
            "expected the folder of a run and a file of pairs, got 'run' alone: pellucid evaluate RUN",
        ),
    ],
)
def test_missing_value_is_an_error(arguments: list[object], message: str) -> None:
    assert message in usage_error_message(run_pellucid(*arguments))


@pytest.mark.parametrize("subcommand", ["evaluate", "predict", "score", "look"])
def test_file_before_the_run_folder_is_an_error(subcommand: str) -> None:
    trained = copy_task_run()
    message = usage_error_message(run_pellucid(subcommand, trained.files.valid, trained.run))
    assert message.endswith(f"run folders precede the file (pellucid {subcommand} {trained.run} {trained.files.valid})")


def test_repeated_run_folder_is_an_error(tmp_path: Path) -> None:
    run, pairs = copy_task_run().run, copy_task_run().files.valid
    (tmp_path / "link").symlink_to(run)
    html_flags = ("--html", tmp_path / "a.html")
    reason = ": each run is compared with the first one; name another run"
    assert (
        usage_error_message(run_pellucid("evaluate", run, run, pairs, *html_flags)) == f"{run} is given twice{reason}"
    )
    message = usage_error_message(run_pellucid("evaluate", run, tmp_path / "link", pairs, *html_flags))
    assert message == f"{run} and {tmp_path / 'link'} are one folder{reason}"
    assert not (tmp_path / "a.html").exists()


def test_run_folder_in_place_of_the_file_is_an_error() -> None:
    run, pairs = copy_task_run().run, copy_task_run().files.valid
    assert "the file of pairs is the last argument" in usage_error_message(run_pellucid("evaluate", run, run))
    assert "--json prints to standard output and takes no file" in usage_error_message(
        run_pellucid("evaluate", run, pairs, "--json", "scores.json")
    )


@pytest.mark.parametrize("command", [["evaluate", "--html"], ["look", "--export"]])
def test_unwritable_page_is_an_error_before_decoding(command: list[str], tmp_path: Path) -> None:
    trained = copy_task_run()
    for path, reason in ((tmp_path / "no" / "a.html", "no such file"), (tmp_path / "b.html", "is a directory")):
        (tmp_path / "b.html").mkdir(exist_ok=True)
        result = run_pellucid(command[0], trained.run, trained.files.valid, command[1], path)
        assert (
            f"cannot write {path}: {reason}" in usage_error_message(result)
            and "decod" not in result.err
            and result.out == ""
        )
    assert [path.name for path in tmp_path.iterdir()] == ["b.html"]


def test_help_shows_the_type_of_each_flag() -> None:
    for subcommand in ("predict", "evaluate", "train", "tune", "score", "look", "recipe", "bench"):
        result = run_pellucid(subcommand, "--help-all")
        assert (
            result.code == 0
            and "None" not in result.out
            and "False" not in result.out
            and "(default: )" not in result.out
        )
    assert "1,024" in run_pellucid("predict", "--help-all").out


def test_help_shows_the_range_and_the_default_of_each_number() -> None:
    out = " ".join(run_pellucid("train", "--help-all").out.replace("│", " ").split())
    for text in (
        "--threads INT CPU threads for training, and for later commands with the run; 0 uses all cores. Results are "
        "bit-for-bit reproducible for the same number of threads. (0 to 1,024; default: 1)",
        "(0 to below 1; default: 0.05; also --warmup-ratio)",
        "(above 0 to 3.4e+38; default: 0.002; also -l, --learning-rate)",
        "(0 or more; default: 0.0; also --eval-interval)",
        "empty for no convolutions. (1 to 1,024; also --convolutions) --encoder.filters INT",
    ):
        assert text in out, text


def test_missing_group_column_is_an_error() -> None:
    message = usage_error_message(
        run_pellucid("evaluate", copy_task_run().run, copy_task_run().files.valid, "--group", 9)
    )
    assert message.startswith("--group 9: no such column (") and "\n" not in message


def test_hints_name_similar_symbols(tmp_path: Path) -> None:
    sources = write_pairs(tmp_path / "a.tsv", [Example("one", "")])
    message = usage_error_message(run_pellucid("predict", digits_run().run, sources, "--forbid", "x"))
    assert "never writes the symbol 'x'" in message and "; it writes '" in message
    message = usage_error_message(run_pellucid("predict", digits_run().run, sources, "--require", "７"))
    assert message.endswith("did you mean '7'?")
    message = usage_error_message(run_pellucid("predict", copy_task_run().run, sources, "--forbid", "Á"))
    assert message.endswith("did you mean 'a'?")
