"""Messages: control characters are escaped, and failures of standard error do not change the exit code."""

import json
import os
import shutil
import signal
import time
import unicodedata
from pathlib import Path

import pytest
import safetensors.torch
from command_line import (
    CommandResult,
    output_lines,
    run_pellucid,
    run_shell,
    start_command,
    usage_error_message,
    wait_until,
)
from trained_runs import (
    copy_run_folder,
    copy_task_run,
    digits_run,
    make_copy_examples,
    make_small_config,
    training_flags,
    write_pairs,
)

from pellucid.cli.messages import (
    BestEffortStream,
    TerminationInterrupt,
    describe_stop,
    format_warning,
    handle_stop_signals,
    print_message,
    raise_on_termination,
    stop_signal,
)
from pellucid.data.examples import Example
from pellucid.errors import DataError, RunError
from pellucid.reporting.display_text import visible_message
from pellucid.reporting.progress import multi_progress, training_progress
from pellucid.run_folder.progress import Progress
from pellucid.run_folder.run_files import ENSEMBLE
from pellucid.training.events import FileRead, TrainingStarted

CONTROL_TEXT = "\x1b[31m\x1b]0;x\x07\r\x08\x9b2J\u202e\u2066\u200b"
"""Control characters: color, window title, bell, carriage return, backspace and text direction."""
ESCAPED_TEXT = "␛[31m␛]0;x␇␍␈⟨U+009B⟩2J⟨U+202E⟩⟨U+2066⟩⟨U+200B⟩"


def control_characters(text: str) -> set[str]:
    """Return the characters of a text that control a terminal."""
    return {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs") and each != "\n"}


def assert_escaped(result: CommandResult) -> None:
    """Assert that standard error has no control characters and contains the escaped name."""
    assert control_characters(result.err) == set() and ESCAPED_TEXT in result.err, result


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (CONTROL_TEXT, ESCAPED_TEXT),
        ("a  b ' [red] 日本 שלום e\u0301 \U0001f600", "a  b ' [red] 日本 שלום e\u0301 \U0001f600"),
        ("a\nb\tc\0\x7f\x85\u2028", "a⏎b⇥c␀␡⟨U+0085⟩⟨U+2028⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("", ""),
    ],
)
def test_visible_message_keeps_spaces_and_escapes_controls(line: str, expected: str) -> None:
    assert visible_message(line) == expected and control_characters(expected) == set()


def test_line_breaks_in_names_are_escaped_in_messages(capsys: pytest.CaptureFixture[str]) -> None:
    error = RunError("the settings differ:", "  a\npellucid: all is well", "name another")
    assert str(error) == "the settings differ:\n  a⏎pellucid: all is well\nname another"
    assert (
        str(RunError(CONTROL_TEXT)) == ESCAPED_TEXT
        and control_characters(str(DataError("\ud800\n\t\0\x7f\x85\u2028"))) == set()
    )
    print_message(*map(str, error.args))
    assert capsys.readouterr().err == "pellucid: the settings differ:\n  a⏎pellucid: all is well\nname another\n"


def test_warning_is_formatted_as_a_message() -> None:
    assert format_warning(UserWarning(CONTROL_TEXT), UserWarning, "a.py", 1) == f"pellucid: {ESCAPED_TEXT}\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_lines_escape_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then treats any file as a terminal
    with (tmp_path / "stderr").open("w", encoding="utf-8") as stream:
        with training_progress(stream) as reporter:
            reporter.report(FileRead(Path(f"{CONTROL_TEXT}.tsv"), 3, (), 0, CONTROL_TEXT))
        with multi_progress(stream) as multi_reporter:
            multi_reporter.print_line(CONTROL_TEXT)
            multi_reporter.update_row(CONTROL_TEXT, TrainingStarted(Progress(), 1.0, 3))
            multi_reporter.update_samples(f"{CONTROL_TEXT} 2", 1, 3, CONTROL_TEXT)
    written = (tmp_path / "stderr").read_bytes().decode()
    assert ESCAPED_TEXT in written and not {"\x07", "\x9b", "\u202e", "\u2066", "\u200b", "\x08"} & set(written)
    assert "\x1b[31m" not in written and "\x1b]0" not in written


def test_names_in_a_run_folder_are_escaped(tmp_path: Path) -> None:
    run, dev = copy_run_folder(copy_task_run().run, tmp_path / "run"), copy_task_run().files.valid
    path = run / "model.safetensors"
    content, weights = path.read_bytes(), safetensors.torch.load(path.read_bytes())
    path.write_bytes(safetensors.torch.save({**weights, CONTROL_TEXT: weights["encoder.table.weight"].clone()}))
    assert_escaped(run_pellucid("predict", run, dev))
    path.write_bytes(safetensors.torch.save(weights, {"format": CONTROL_TEXT}))
    assert_escaped(run_pellucid("predict", run, dev))
    path.write_bytes(content)
    settings = (run / "config.toml").read_text("utf-8")
    (run / "config.toml").write_text(f"{json.dumps(CONTROL_TEXT)} = 1\n{settings}", "utf-8")
    result = run_pellucid("predict", run, dev)
    assert "unknown key" in usage_error_message(result) and control_characters(result.err) == set()
    (run / ENSEMBLE).write_text(json.dumps({"members": [CONTROL_TEXT]}), "utf-8")
    assert_escaped(run_pellucid("predict", run, dev))


@pytest.mark.slow
def test_names_of_files_columns_and_symbols_are_escaped(tmp_path: Path) -> None:
    folder = tmp_path / CONTROL_TEXT
    folder.mkdir()
    pairs = [*make_copy_examples(15, seed=4), Example("a\x1b\u202eb", "a\x9bb")]
    train = write_pairs(folder / "train.tsv", pairs)
    result = run_pellucid(
        "train", train, "--valid", train, "--run", folder / "run", *training_flags(make_small_config({"epochs": 1}))
    )
    assert result.code == 2 or ESCAPED_TEXT in result.err
    assert control_characters(result.err) == set()
    dev = write_pairs(folder / "dev.tsv", pairs[12:])
    result = run_pellucid(
        "train", train, "--valid", dev, "--run", folder / "run", *training_flags(make_small_config({"epochs": 1}))
    )
    assert result.code == 0
    assert_escaped(result)
    assert_escaped(run_pellucid("predict", folder / "run", folder / "none.tsv"))
    result = run_pellucid("predict", folder / "run", stdin="a\x07\u2066\n".encode())
    assert "2 different" in result.err and control_characters(result.err) == set()
    for further_runs in ([], [shutil.copytree(folder / "run", folder / "other")]):
        result = run_pellucid("evaluate", folder / "run", *further_runs, dev, "--html", folder / "a.html")
        assert result.code == 0 and control_characters(result.out) == set()
        assert_escaped(result)
    assert_escaped(
        run_pellucid("train", train, "--valid", dev, "--run", folder / "2", "--source-column", CONTROL_TEXT, "--header")
    )
    assert control_characters(run_pellucid("predict", folder / "run", f"--{CONTROL_TEXT}").err) == set()


FULL_STDERR = '"$@" 2>/dev/full'
CLOSED_STDERR = '"$@" 2>&-'


@pytest.mark.slow
@pytest.mark.parametrize("script", [FULL_STDERR, CLOSED_STDERR])
def test_exit_code_ignores_failures_of_standard_error(script: str) -> None:
    """The command prints a note on an unknown symbol."""
    expected = run_shell('echo "ab?" | "$@"', "predict", copy_task_run().run)
    actual = run_shell(f'echo "ab?" | {script}', "predict", copy_task_run().run)
    assert expected.code == 0 and "1 source symbol" in expected.err
    assert actual == (0, expected.out, "") and len(output_lines(actual.out)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", [FULL_STDERR, CLOSED_STDERR])
def test_training_continues_without_standard_error(tmp_path: Path, script: str) -> None:
    files = copy_task_run().files
    command = (
        "train",
        files.train,
        "--valid",
        files.valid,
        "--run",
        tmp_path,
        *training_flags(make_small_config({"epochs": 1})),
    )
    assert run_shell(script, *command) == (0, "", "")
    assert (tmp_path / "card.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", ['"$@" >/dev/full', '"$@" >/dev/full 2>/dev/full', '"$@" >/dev/full 2>&-'])
def test_unwritable_output_is_an_error_without_standard_error(script: str) -> None:
    result = run_shell(script, "predict", copy_task_run().run, copy_task_run().files.valid)
    assert result.code == 2 and result.out == "" and "Traceback" not in result.err


def test_user_error_has_its_exit_code_without_standard_error() -> None:
    assert run_shell(FULL_STDERR, "predict", "/none").code == run_shell(CLOSED_STDERR, "predict", "/none").code == 2


def test_full_stream_is_abandoned_at_the_first_failure() -> None:
    with open("/dev/full", "w", buffering=1, encoding="utf-8") as full_device:
        stream = BestEffortStream(full_device)
        assert stream.write("a\n") == 2 and stream.write("b\n") == 2
        stream.flush()
    with open("/dev/full", "w", encoding="utf-8") as full_device:
        stream = BestEffortStream(full_device)
        assert stream.write("a\n") == 2 and not stream.isatty()
        stream.flush()


@pytest.mark.parametrize(
    ("number", "name", "error"),
    [
        (signal.SIGINT, "Ctrl-C", KeyboardInterrupt),
        (signal.SIGTERM, "SIGTERM", TerminationInterrupt),
        (signal.SIGHUP, "SIGHUP", TerminationInterrupt),
    ],
)
def test_the_first_signal_requests_a_stop_and_the_second_one_stops(
    number: int, name: str, error: type[KeyboardInterrupt], capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression test: SIGTERM ended a training without a message."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with handle_stop_signals() as interrupt:
        with pytest.raises(error):
            os.kill(os.getpid(), number)  # before training has begun
        interrupt.is_training = True
        os.kill(os.getpid(), number)
        assert interrupt.requested and interrupt.signal_number == number
        with pytest.raises(error):
            os.kill(os.getpid(), number)
    assert capsys.readouterr().err == f"pellucid: stopping after this update ({name} again to stop at once)\n"
    with handle_stop_signals(includes_termination=False):
        assert signal.getsignal(signal.SIGTERM) == before[1]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_raises_once_where_it_would_end_the_process() -> None:
    """SIGHUP is often followed by SIGTERM: the second one must not stop the removal of temporary files."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with raise_on_termination():
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # as under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with raise_on_termination():
        with pytest.raises(TerminationInterrupt) as caught:
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop_signal(caught.value) == signal.SIGHUP
        assert describe_stop(signal.SIGHUP) == "stopped by SIGHUP"
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_command_removes_its_temporary_files(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Regression test: each stopped `predict --output` left a file beside its output."""
    output = tmp_path / "a.csv"
    command = ("predict", digits_run().run, "-", "--output-format", "csv", "--output", output)
    with start_command(*command) as process:
        wait_until(lambda: any(tmp_path.iterdir()), process)
        time.sleep(0.2)  # the check whether the output can be written has a temporary file of its own
        wait_until(lambda: any(tmp_path.iterdir()), process)
        process.send_signal(number)
        assert process.wait(60) == code
        assert process.stderr is not None
        assert process.stderr.read().decode().endswith(f"pellucid: stopped by {number.name}\n")
    assert list(tmp_path.iterdir()) == []
