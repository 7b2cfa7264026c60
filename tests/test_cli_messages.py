"""Messages: control characters are escaped, and failures of standard error change no exit code."""

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
import safetensors.torch
from command_line import Done, complaint, outputs, pellucid, shell
from trained_runs import copies, copies_run, copy_of, flags, small_config, write_pairs

from pellucid.cli.messages import BestEffortStream, format_warning, print_message
from pellucid.data.examples import Example
from pellucid.errors import DataError, RunError
from pellucid.reporting.display_text import visible_message
from pellucid.reporting.progress import multi_progress, training_progress
from pellucid.training.events import Progress, TrainingStarted
from pellucid.training.run_folder import ENSEMBLE
from pellucid.training.training_data import FileRead

ODD = "\x1b[31m\x1b]0;x\x07\r\x08\x9b2J\u202e\u2066\u200b"
"""Colors, a title, a bell, what overwrites a line, and what turns it around."""
SHOWN = "␛[31m␛]0;x␇␍␈⟨U+009B⟩2J⟨U+202E⟩⟨U+2066⟩⟨U+200B⟩"


def acting(text: str) -> set[str]:
    """The characters of a text that act on a terminal."""
    return {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs") and each != "\n"}


def assert_visible(done: Done) -> None:
    """Nothing that was said acts, and the odd name is there."""
    assert acting(done.err) == set() and SHOWN in done.err, done


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (ODD, SHOWN),
        ("a  b ' [red] 日本 שלום e\u0301 \U0001f600", "a  b ' [red] 日本 שלום e\u0301 \U0001f600"),
        ("a\nb\tc\0\x7f\x85\u2028", "a⏎b⇥c␀␡⟨U+0085⟩⟨U+2028⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("", ""),
    ],
)
def test_visible_message_keeps_spaces_and_escapes_controls(line: str, told: str) -> None:
    assert visible_message(line) == told and acting(told) == set()


def test_line_breaks_in_names_are_escaped_in_messages(capsys: pytest.CaptureFixture[str]) -> None:
    error = RunError("the settings differ:", "  a\npellucid: all is well", "name another")
    assert str(error) == "the settings differ:\n  a⏎pellucid: all is well\nname another"
    assert str(RunError(ODD)) == SHOWN and acting(str(DataError("\ud800\n\t\0\x7f\x85\u2028"))) == set()
    print_message(*map(str, error.args))
    assert capsys.readouterr().err == "pellucid: the settings differ:\n  a⏎pellucid: all is well\nname another\n"


def test_warning_is_formatted_as_a_message() -> None:
    assert format_warning(UserWarning(ODD), UserWarning, "a.py", 1) == f"pellucid: {SHOWN}\n"


@pytest.mark.parametrize("alive", [False, True])
def test_progress_lines_escape_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool) -> None:
    if alive:
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any file for a terminal
    with (tmp_path / "told").open("w", encoding="utf-8") as stream:
        with training_progress(stream) as reporter:
            reporter.report(FileRead(Path(f"{ODD}.tsv"), 3, (), 0, ODD))
        with multi_progress(stream) as seen:
            seen.print_line(ODD)
            seen.update_row(ODD, TrainingStarted(Progress(), 1.0, 3))
            seen.update_samples(f"{ODD} 2", 1, 3, ODD)
    told = (tmp_path / "told").read_bytes().decode()
    assert SHOWN in told and not {"\x07", "\x9b", "\u202e", "\u2066", "\u200b", "\x08"} & set(told)
    assert "\x1b[31m" not in told and "\x1b]0" not in told


def test_names_in_a_run_folder_are_escaped(tmp_path: Path) -> None:
    run, dev = copy_of(copies_run().run, tmp_path / "run"), copies_run().files.valid
    path = run / "model.safetensors"
    content, held = path.read_bytes(), safetensors.torch.load(path.read_bytes())
    path.write_bytes(safetensors.torch.save({**held, ODD: held["encoder.table.weight"].clone()}))
    assert_visible(pellucid("predict", run, dev))
    path.write_bytes(safetensors.torch.save(held, {"format": ODD}))
    assert_visible(pellucid("predict", run, dev))
    path.write_bytes(content)
    settings = (run / "config.toml").read_text("utf-8")
    (run / "config.toml").write_text(f"{json.dumps(ODD)} = 1\n{settings}", "utf-8")
    done = pellucid("predict", run, dev)
    assert "unknown key" in complaint(done) and acting(done.err) == set()
    (run / ENSEMBLE).write_text(json.dumps({"members": [ODD]}), "utf-8")
    assert_visible(pellucid("predict", run, dev))


def test_names_of_files_columns_and_symbols_are_escaped(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    odd = [*copies(15, seed=4), Example("a\x1b\u202eb", "a\x9bb")]
    train = write_pairs(folder / "train.tsv", odd)
    done = pellucid("train", train, "--valid", train, "--run", folder / "run", *flags(small_config({"epochs": 1})))
    assert done.code == 2 or SHOWN in done.err
    assert acting(done.err) == set()
    dev = write_pairs(folder / "dev.tsv", odd[12:])
    done = pellucid("train", train, "--valid", dev, "--run", folder / "run", *flags(small_config({"epochs": 1})))
    assert done.code == 0
    assert_visible(done)
    assert_visible(pellucid("predict", folder / "run", folder / "none.tsv"))
    done = pellucid("predict", folder / "run", stdin="a\x07\u2066\n".encode())
    assert "2 different" in done.err and acting(done.err) == set()
    for more in ([], [shutil.copytree(folder / "run", folder / "other")]):
        done = pellucid("evaluate", folder / "run", *more, dev, "--html", folder / "a.html")
        assert done.code == 0 and acting(done.out) == set()
        assert_visible(done)
    assert_visible(pellucid("train", train, "--valid", dev, "--run", folder / "2", "--source-column", ODD, "--header"))
    assert acting(pellucid("predict", folder / "run", f"--{ODD}").err) == set()


FULL = '"$@" 2>/dev/full'
CLOSED = '"$@" 2>&-'


@pytest.mark.parametrize("script", [FULL, CLOSED])
def test_exit_code_ignores_failures_of_standard_error(script: str) -> None:
    """An unknown symbol is told of, where that can be told."""
    told = shell('echo "ab?" | "$@"', "predict", copies_run().run)
    done = shell(f'echo "ab?" | {script}', "predict", copies_run().run)
    assert told.code == 0 and "1 source symbol" in told.err
    assert done == (0, told.out, "") and len(outputs(done.out)) == 1


@pytest.mark.parametrize("script", [FULL, CLOSED])
def test_training_continues_without_standard_error(tmp_path: Path, script: str) -> None:
    files = copies_run().files
    command = ("train", files.train, "--valid", files.valid, "--run", tmp_path, *flags(small_config({"epochs": 1})))
    assert shell(script, *command) == (0, "", "")
    assert (tmp_path / "card.md").exists()


@pytest.mark.parametrize("script", ['"$@" >/dev/full', '"$@" >/dev/full 2>/dev/full', '"$@" >/dev/full 2>&-'])
def test_unwritable_output_is_an_error_without_standard_error(script: str) -> None:
    done = shell(script, "predict", copies_run().run, copies_run().files.valid)
    assert done.code == 2 and done.out == "" and "Traceback" not in done.err


def test_user_error_has_its_exit_code_without_standard_error() -> None:
    assert shell(FULL, "predict", "/none").code == shell(CLOSED, "predict", "/none").code == 2


def test_full_stream_is_abandoned_at_the_first_failure() -> None:
    with open("/dev/full", "w", buffering=1, encoding="utf-8") as full:
        stream = BestEffortStream(full)
        assert stream.write("a\n") == 2 and stream.write("b\n") == 2
        stream.flush()
    with open("/dev/full", "w", encoding="utf-8") as full:
        stream = BestEffortStream(full)
        assert stream.write("a\n") == 2 and not stream.isatty()
        stream.flush()
