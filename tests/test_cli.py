"""The command line: subcommands, help, exit codes and errors."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import run_pellucid, run_shell, usage_error_message
from trained_runs import copy_task_run, write_copy_files

from pellucid import cli
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.errors import DataError


def test_help_lists_every_subcommand() -> None:
    result = run_pellucid("--help")
    assert result.code == 0 and result.err == ""
    assert all(f"  {subcommand:<12}{about}" in result.out for subcommand, about in SUBCOMMANDS.items())


@pytest.mark.parametrize("flag", ["-h", "help"])
def test_help_has_other_spellings(flag: str) -> None:
    result = run_pellucid(flag)
    assert result.code == 0 and "usage: pellucid SUBCOMMAND" in result.out


def test_no_subcommand_prints_the_usage() -> None:
    result = run_pellucid()
    assert result.code == 2 and "usage: pellucid SUBCOMMAND" in result.out


def test_version_is_printed() -> None:
    for flag in ("--version", "-V"):
        assert run_pellucid(flag).out.startswith("pellucid 0.")


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_subcommand_documents_its_arguments(subcommand: str) -> None:
    result = run_pellucid(subcommand, "--help")
    assert result.code == 0 and f"usage: pellucid {subcommand}" in result.out and result.err == ""


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_subcommand_refuses_missing_arguments(subcommand: str) -> None:
    result = run_pellucid(subcommand)
    assert result.code == 2 and "required" in result.err.lower() and "Traceback" not in result.err


@pytest.mark.parametrize(
    ("misspelled", "expected"), [("trian", "train"), ("evalute", "evaluate"), ("recipes", "recipe")]
)
def test_misspelled_subcommand_gets_a_suggestion(misspelled: str, expected: str) -> None:
    message = usage_error_message(run_pellucid(misspelled))
    assert message == f"there is no subcommand {misspelled!r}; did you mean {expected!r}? (pellucid --help lists all)"


def test_dissimilar_subcommand_gets_no_suggestion() -> None:
    assert usage_error_message(run_pellucid("xyzzy")) == "there is no subcommand 'xyzzy' (pellucid --help lists all)"


@pytest.mark.parametrize(
    ("subcommand", "flag", "expected"),
    [
        ("train", "--encoder.hiden-size", "--encoder.hidden-size"),
        ("predict", "--output-formt", "--output-format"),
        ("evaluate", "--jsn", "--json"),
        ("look", "--exprt", "--export"),
    ],
)
def test_misspelled_flag_gets_a_suggestion(subcommand: str, flag: str, expected: str) -> None:
    files, run, _ = copy_task_run()
    required = {"train": [files.train, "--valid", files.valid, "--run", run]}.get(subcommand, [run, files.valid])
    result = run_pellucid(subcommand, *required, flag, "3")
    assert result.code == 2 and flag in result.err and expected in result.err and "Traceback" not in result.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--size", "smal"], "size: expected auto, tiny, small, base or large, got 'smal'; did you mean 'small'?"),
        (["--seed", "１２"], "--seed: expected a whole number, got '１２'"),
        (["--seed", "1_0"], "--seed: expected a whole number, got '1_0'"),
        (["--training.learning-rate", "1_0"], "--training.learning-rate: expected a number, got '1_0'"),
        (["--training.learning-rate", "1e-400"], "expected a number that a float can hold, got '1e-400'"),
        (["--size=smal"], "size: expected auto, tiny, small, base or large, got 'smal'; did you mean 'small'?"),
        (["--encoder.num-layers", "0"], "encoder.num_layers: expected a whole number of at least 1, got 0"),
        (["--training.learning-rate", "inf"], "training.learning_rate: expected a finite number, got inf"),
        (["--training.learning-rate", "nan"], "training.learning_rate: expected"),
        (["--encoder.dropout", "1.0"], "encoder.dropout: expected a number below 1.0, got 1.0"),
        (["--seed", "-1"], "seed: expected a whole number of at least 0, got -1"),
        (["--training.weight-decay", "0.1"], "training.weight_decay = 0.1 needs training.optimizer = 'adamw'"),
        (
            ["--pair-ngram", "--task", "tag"],
            "training.pair_ngram (--pair-ngram) needs a task whose outputs are sequences (task = 'transduce')",
        ),
        (
            ["--pair-ngram", "--decoder.pointer-generator"],
            "training.pair_ngram (--pair-ngram) needs a task whose outputs are sequences (task = 'transduce')",
        ),
        (["--time", "100000h"], "training.time_limit (--time): expected at most 27777h, about three years, got"),
        (["--config", "nowhere.toml"], "cannot read nowhere.toml: no such file or directory"),
        (["--source-symbols", "charcters"], "data.source_symbols: expected characters, ipa, words, subwords or a"),
    ],
)
def test_invalid_setting_is_named_by_its_key(tmp_path: Path, flags: list[str], message: str) -> None:
    files = copy_task_run().files
    assert message in usage_error_message(
        run_pellucid("train", files.train, "--valid", files.valid, "--run", tmp_path / "run", *flags)
    )
    assert not (tmp_path / "run" / "config.toml").exists()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[encoder]\nhiden_size = 3\n", "unknown key 'encoder.hiden_size'; did you mean 'encoder.hidden_size'?"),
        ("szie = 'tiny'\n", "unknown key 'szie'; did you mean 'size'?"),
        ("[encoder]\nnum_layers = 'two'\n", "encoder.num_layers: expected a whole number, got 'two'"),
        ("encoder = 3\n", "encoder: expected a table, got 3"),
        ("[encoder\n", "is not TOML: "),
        ("\xff", "is not TOML: "),
    ],
)
def test_invalid_settings_file_is_named_with_its_key(tmp_path: Path, toml: str, message: str) -> None:
    (tmp_path / "a.toml").write_bytes(toml.encode("latin-1"))
    files = write_copy_files(tmp_path)
    arguments = ("--run", tmp_path / "run", "--config", tmp_path / "a.toml")
    error_message = usage_error_message(run_pellucid("train", files.train, "--valid", files.valid, *arguments))
    assert str(tmp_path / "a.toml") in error_message and message in error_message


def exit_code_of_error(monkeypatch: pytest.MonkeyPatch, error: BaseException, loading: bool = False) -> int:
    """Return the exit code of a subcommand that raises this error when run, or during its import."""

    def run(arguments: list[str]) -> int:
        raise error

    def load(name: str) -> SimpleNamespace:
        return SimpleNamespace(main=run([]) if loading else run)

    monkeypatch.setattr(cli, "import_module", load)
    try:
        return cli.main(["predict"])
    except KeyboardInterrupt:
        pytest.fail("KeyboardInterrupt was not handled")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("a.tsv:3: the target is empty"), 2, "a.tsv:3: the target is empty"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), 2, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"), 2, "out of memory"),
    ],
)
def test_error_prints_one_line_and_sets_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    assert exit_code_of_error(monkeypatch, error) == code
    printed = capfd.readouterr().err
    assert printed.startswith(f"pellucid: {message}") and printed.count("\n") == 1


def test_internal_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (KeyError("ours"), RuntimeError("ours")):
        with pytest.raises(type(error)):
            exit_code_of_error(monkeypatch, error)


def test_interruption_during_import_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The import takes seconds, and the user may press Ctrl-C during it."""
    assert exit_code_of_error(monkeypatch, KeyboardInterrupt(), loading=True) == 130
    assert capfd.readouterr().err == "pellucid: interrupted\n"


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_help_to_a_closed_pipe_has_no_traceback(redirection: str) -> None:
    result = run_shell(f'"$@" {redirection}', "--help")
    assert result.code in (0, 2) and "Traceback" not in result.err and "Exception ignored" not in result.err


def test_installed_command_runs_the_module() -> None:
    result = run_shell('"$@"', "recipe", "list")
    assert result == run_pellucid("recipe", "list") and "digits" in result.out
