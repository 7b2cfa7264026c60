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
    """In a process, for this one costs nothing."""
    done = run_pellucid("--help")
    assert done.code == 0 and done.err == ""
    assert all(f"  {verb:<12}{about}" in done.out for verb, about in SUBCOMMANDS.items())


@pytest.mark.parametrize("flag", ["-h", "help"])
def test_help_has_three_spellings(flag: str) -> None:
    done = run_pellucid(flag)
    assert done.code == 0 and "usage: pellucid SUBCOMMAND" in done.out


def test_no_subcommand_prints_the_usage() -> None:
    done = run_pellucid()
    assert done.code == 2 and "usage: pellucid SUBCOMMAND" in done.out


def test_version_is_printed() -> None:
    for flag in ("--version", "-V"):
        assert run_pellucid(flag).out.startswith("pellucid 0.")


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_every_subcommand_documents_its_arguments(verb: str) -> None:
    done = run_pellucid(verb, "--help")
    assert done.code == 0 and f"usage: pellucid {verb}" in done.out and done.err == ""


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_every_subcommand_refuses_missing_arguments(verb: str) -> None:
    done = run_pellucid(verb)
    assert done.code == 2 and "required" in done.err.lower() and "Traceback" not in done.err


@pytest.mark.parametrize(("wrong", "right"), [("trian", "train"), ("evalute", "evaluate"), ("recipes", "recipe")])
def test_misspelled_subcommand_gets_a_suggestion(wrong: str, right: str) -> None:
    message = usage_error_message(run_pellucid(wrong))
    assert message == f"there is no subcommand {wrong!r}; did you mean {right!r}? (pellucid --help lists all)"


def test_dissimilar_subcommand_gets_no_suggestion() -> None:
    assert usage_error_message(run_pellucid("xyzzy")) == "there is no subcommand 'xyzzy' (pellucid --help lists all)"


@pytest.mark.parametrize(
    ("verb", "flag", "right"),
    [
        ("train", "--encoder.hiden-size", "--encoder.hidden-size"),
        ("predict", "--output-formt", "--output-format"),
        ("evaluate", "--jsn", "--json"),
        ("look", "--exprt", "--export"),
    ],
)
def test_misspelled_flag_gets_a_suggestion(verb: str, flag: str, right: str) -> None:
    files, run, _ = copy_task_run()
    needed = {"train": [files.train, "--valid", files.valid, "--run", run]}.get(verb, [run, files.valid])
    done = run_pellucid(verb, *needed, flag, "3")
    assert done.code == 2 and flag in done.err and right in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--size", "smal"], "size: expected tiny, small, base or large, got 'smal'; did you mean 'small'?"),
        (["--seed", "１２"], "--seed: expected a whole number, got '１２'"),
        (["--seed", "1_0"], "--seed: expected a whole number, got '1_0'"),
        (["--training.learning-rate", "1_0"], "--training.learning-rate: expected a number, got '1_0'"),
        (["--training.learning-rate", "1e-400"], "expected a number that a float can hold, got '1e-400'"),
        (["--size=smal"], "size: expected tiny, small, base or large, got 'smal'; did you mean 'small'?"),
        (["--encoder.num-layers", "0"], "encoder.num_layers: expected a whole number of at least 1, got 0"),
        (["--training.learning-rate", "inf"], "training.learning_rate: expected a finite number, got inf"),
        (["--training.learning-rate", "nan"], "training.learning_rate: expected"),
        (["--encoder.dropout", "1.0"], "encoder.dropout: expected a number below 1.0, got 1.0"),
        (["--seed", "-1"], "seed: expected a whole number of at least 0, got -1"),
        (["--training.weight-decay", "0.1"], "training.weight_decay = 0.1 needs training.optimizer = 'adamw'"),
        (["--config", "nowhere.toml"], "cannot read nowhere.toml: no such file or directory"),
        (["--source-symbols", "charcters"], "data.source_symbols: expected characters, words, subwords or a separator"),
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
    given = ("--run", tmp_path / "run", "--config", tmp_path / "a.toml")
    told = usage_error_message(run_pellucid("train", files.train, "--valid", files.valid, *given))
    assert str(tmp_path / "a.toml") in told and message in told


def code_of(monkeypatch: pytest.MonkeyPatch, error: BaseException, loading: bool = False) -> int:
    """How a verb ends that raises this error when run, or already while it is loading."""

    def run(arguments: list[str]) -> int:
        raise error

    def load(name: str) -> SimpleNamespace:
        return SimpleNamespace(main=run([]) if loading else run)

    monkeypatch.setattr(cli, "import_module", load)
    try:
        return cli.main(["predict"])
    except KeyboardInterrupt:
        pytest.fail("the interruption ended in a traceback")


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
def test_errors_become_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    assert code_of(monkeypatch, error) == code
    said = capfd.readouterr().err
    assert said.startswith(f"pellucid: {message}") and said.count("\n") == 1


def test_internal_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (KeyError("ours"), RuntimeError("ours")):
        with pytest.raises(type(error)):
            code_of(monkeypatch, error)


def test_interruption_during_import_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Loading takes seconds, in which impatient people press Ctrl-C."""
    assert code_of(monkeypatch, KeyboardInterrupt(), loading=True) == 130
    assert capfd.readouterr().err == "pellucid: interrupted\n"


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_help_to_a_closed_pipe_has_no_traceback(redirection: str) -> None:
    done = run_shell(f'"$@" {redirection}', "--help")
    assert done.code in (0, 2) and "Traceback" not in done.err and "Exception ignored" not in done.err


def test_installed_command_runs_the_module() -> None:
    done = run_shell('"$@"', "recipe", "list")
    assert done == run_pellucid("recipe", "list") and "digits" in done.out
