"""Invalid input of users: one clear message, exit code 2, and no loss of run files."""

import gzip
import os
import re
import shutil
from pathlib import Path

import pytest
from command_line import CommandResult, run_pellucid, run_shell, usage_error_message
from trained_runs import (
    assert_runs_identical,
    copy_run_folder,
    copy_task_run,
    digits_run,
    make_copy_examples,
    make_small_config,
    read_folder_state,
    training_flags,
    write_pairs,
)

from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits
from pellucid.training.events import FileSaved
from pellucid.training.session import train_run

LONG_TEXT = "a" * 200_000


def train_on_file(run: Path, file: Path, valid: Path | None = None) -> CommandResult:
    """Train with the settings of the small run on another file."""
    _, _, config = copy_task_run()
    return run_pellucid(
        "train", file, "--valid", valid or copy_task_run().files.valid, "--run", run, *training_flags(config)
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of a finished run."""
    return copy_run_folder(copy_task_run().run, tmp_path / "run")


INVALID_FILES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "cannot read {file}: no such file or directory"),
    "empty": (b"", "{file} contains no example: it is empty"),
    "blank": (b"\n\n \t \n\r\n", "{file} contains no example: all its lines are blank (4)"),
    "binary": (bytes(range(256)) * 30, "{file}:1: "),
    "utf-8": (b"ab\tab\ncaf\xe9\tx\n", "{file}:2: invalid UTF-8 at byte 4 (0xe9)"),
    "utf-16": ("ab\tab\n".encode("utf-16"), "{file} is UTF-16 text: save it as plain text in UTF-8"),
    "utf-32": ("ab\tab\n".encode("utf-32"), "{file} is UTF-32 text: save it as plain text in UTF-8"),
    "old line ends": (b"ab\tab\rabc\tx\rb\tb\r", "{file}:1: carriage returns without newlines do not end lines"),
    "nul": (b"ab\tab\na\0b\tx\n", "{file}:2: NUL byte at byte 2"),
    "one column": (b"ab\tab\nabc\n", "{file}:2: expected 2 columns, got 1 (tabs separate columns)"),
    "three columns": (b"ab\tab\nab\tab\tab\n", "{file}:2: expected 2 columns as in line 1, got 3"),
    "empty target": (b"ab\tab\nabc\t\n", "{file}:2: the target is empty"),
    "long": (
        f"ab\tab\n{LONG_TEXT}\tab\n".encode(),
        "{file}:2: the source has 200000 symbols, more than data.max_sequence_length",
    ),
}


@pytest.mark.parametrize("kind", INVALID_FILES)
@pytest.mark.parametrize("role", ["train", "dev", "evaluate"])
def test_an_invalid_file_of_pairs_is_reported(tmp_path: Path, run: Path, role: str, kind: str) -> None:
    content, message = INVALID_FILES[kind]
    file, before = tmp_path / "odd.tsv", read_folder_state(run)
    if content is not None:
        file.write_bytes(content)
    match role:
        case "train":
            result = train_on_file(run, file)
        case "dev":
            result = train_on_file(run, copy_task_run().files.train, file)
        case _:
            result = run_pellucid("evaluate", run, file)
    assert usage_error_message(result).startswith(message.format(file=file)) and result.out == ""
    assert read_folder_state(run) == before


@pytest.mark.parametrize("kind", ["missing", "binary", "utf-8", "utf-16", "nul", "long"])
def test_an_invalid_file_of_sources_is_reported(tmp_path: Path, kind: str) -> None:
    content, message = INVALID_FILES[kind]
    file = tmp_path / "odd.tsv"
    if content is not None:
        file.write_bytes(content)
    for subcommand in ("predict", "look"):
        result = run_pellucid(subcommand, copy_task_run().run, file)
        assert message.format(file=file) in usage_error_message(result)
        expected_lines = 1 if subcommand == "predict" and ":2: " in message else 0
        assert result.out.count("\n") == expected_lines, (
            "lines before the bad line have outputs, lines after it have none"
        )


def test_blank_lines_have_empty_outputs(tmp_path: Path) -> None:
    content = INVALID_FILES["blank"][0]
    assert run_pellucid("predict", copy_task_run().run, stdin=content or b"") == (0, "\n\n\n\n", "")


def test_a_folder_in_place_of_a_file_is_reported(tmp_path: Path, run: Path) -> None:
    for result in (
        train_on_file(run, tmp_path),
        run_pellucid("predict", run, tmp_path),
        run_pellucid("evaluate", run, tmp_path),
        run_pellucid(
            "train",
            copy_task_run().files.train,
            "--valid",
            tmp_path,
            "--run",
            run,
            *training_flags(copy_task_run().config),
        ),
    ):
        assert usage_error_message(result) == f"cannot read {tmp_path}: is a directory"


def test_validation_data_equal_to_the_training_data_is_refused(tmp_path: Path) -> None:
    file = copy_task_run().files.train
    copied = Path(shutil.copy(file, tmp_path / "dev.tsv"))
    for valid in (file, copied):
        message = usage_error_message(train_on_file(tmp_path / "run", file, valid))
        assert message.startswith(f"{valid} holds the same examples as {file}")


def test_a_file_at_the_path_of_a_run_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    file = copy_task_run().files.train
    assert str(tmp_path / "file") in usage_error_message(train_on_file(tmp_path / "file", file))
    assert str(tmp_path / "file" / "run") in usage_error_message(train_on_file(tmp_path / "file" / "run", file))
    for subcommand in ("predict", "evaluate", "look"):
        assert "it is a file" in usage_error_message(run_pellucid(subcommand, tmp_path / "file", file))
    assert (tmp_path / "file").read_text() == "precious"


def test_a_run_folder_that_cannot_be_created_is_reported() -> None:
    """Nobody can create a folder in /proc, not even root."""
    assert usage_error_message(train_on_file(Path("/proc/run"), copy_task_run().files.train)).startswith(
        "cannot create /proc/run: "
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_run_folder_without_permission_is_reported(run: Path) -> None:
    run.chmod(0o500)
    assert "permission denied" in usage_error_message(train_on_file(run, copy_task_run().files.train))
    run.chmod(0o700)


@pytest.mark.parametrize("subcommand", ["predict", "evaluate", "look"])
def test_a_missing_or_damaged_model_is_reported(tmp_path: Path, run: Path, subcommand: str) -> None:
    file = copy_task_run().files.valid
    assert usage_error_message(run_pellucid(subcommand, tmp_path / "none", file)) == (
        f"{tmp_path / 'none'} is not a run folder: there is no such folder; "
        "name the folder that was given to pellucid train --run"
    )
    assert "it holds no config.toml" in usage_error_message(run_pellucid(subcommand, tmp_path, file))
    for name in ("model.safetensors", "vocabulary.json", "config.toml"):
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[: len(content) // 2].rpartition(b"\n")[0] + b"\n= =")
        assert str(run / name) in usage_error_message(run_pellucid(subcommand, run, file)), name
        (run / name).write_bytes(content)
    (run / "model.safetensors").unlink()
    missing = f"{run / 'model.safetensors'} is missing: run the training command again"
    assert missing in usage_error_message(run_pellucid(subcommand, run, file))


def test_a_damaged_checkpoint_is_reported_and_kept(run: Path) -> None:
    (run / "training.safetensors").write_bytes((run / "training.safetensors").read_bytes()[:-100])
    before = read_folder_state(run)
    message = usage_error_message(train_on_file(run, copy_task_run().files.train))
    assert message.startswith(f"{run / 'training.safetensors'} is not a whole safetensors file")
    assert read_folder_state(run) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest_file", "saved"),
    [("config.toml", 0), ("config.toml", 2), ("model.safetensors", 0)],
    ids=["first checkpoint", "later checkpoint", "first checkpoint, with room for the model"],
)
def test_a_full_disk_keeps_existing_files_and_the_run_resumes(tmp_path: Path, largest_file: str, saved: int) -> None:
    """The limit on file sizes admits small files but no checkpoint; `saved` checkpoints precede it."""
    files, uninterrupted, config = copy_task_run()
    events = (event for event in train_run(files, tmp_path / "run", config) if isinstance(event, FileSaved))
    for _ in range(saved):
        next(events)
    before = read_folder_state(tmp_path / "run") if saved else {}
    command = ["train", files.train, "--valid", files.valid, "--run", tmp_path / "run", *training_flags(config)]
    events.close()
    limit = max((copy_task_run().run / name).stat().st_size for name in (largest_file, "config.toml")) + 500
    message = usage_error_message(run_pellucid(*command, max_file_size=limit))
    assert message.startswith(f"cannot write {tmp_path / 'run'}/") and message.endswith("safetensors: file too large")
    after = read_folder_state(tmp_path / "run")
    small_files = {"config.toml", "vocabulary.json", "log.jsonl"}
    # A snapshot may be within the limit; it is written atomically, and so is complete or absent.
    snapshots = {name for name in {**after, **before} if name.startswith("snapshots")}
    assert set(after) - snapshots == small_files | (set(before) - snapshots), "no partial file remains"
    assert not saved or after["model.safetensors"] == before["model.safetensors"]
    assert run_pellucid(*command).code == 0
    assert_runs_identical(uninterrupted, tmp_path / "run")


@pytest.mark.parametrize("subcommand", ["predict", "evaluate"])
def test_a_full_output_device_is_reported(subcommand: str) -> None:
    result = run_pellucid(subcommand, copy_task_run().run, copy_task_run().files.valid, stdout=Path("/dev/full"))
    assert usage_error_message(result) == "system error: no space left on device"


@pytest.mark.parametrize("name", ["a.png", "a.html"])
def test_a_failed_export_keeps_the_old_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("old")
    result = run_pellucid(
        "look", digits_run().run, digits_run().files.valid, "--export", tmp_path / name, max_file_size=500
    )
    assert result.code == 2 and "Traceback" not in result.err
    assert result.err.splitlines()[-1] == f"pellucid: cannot write {tmp_path / name}: file too large"
    assert (tmp_path / name).read_text() == "old" and [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.slow
def test_a_closed_standard_input_is_reported() -> None:
    for command in (["predict", copy_task_run().run], ["look", copy_task_run().run, "-"]):
        assert "is closed" in usage_error_message(run_shell('"$@" <&-', *command))


@pytest.mark.parametrize("subcommand", ["predict", "score", "evaluate", "look"])
def test_standard_input_may_be_compressed(subcommand: str) -> None:
    pairs = "".join(f"{each.source}\t{each.target}\n" for each in spelled_digits(5, 1, 4, seed=11)).encode()
    uncompressed, compressed, damaged = (
        run_pellucid(subcommand, digits_run().run, "-", *(["--json"] if subcommand == "evaluate" else []), stdin=stdin)
        for stdin in (pairs, gzip.compress(pairs), gzip.compress(pairs)[:-9])
    )
    # The time and the checksum of the bytes differ.
    outputs = [re.sub(r'"(seconds|sha256)":[^,]*', "", result.out) for result in (uncompressed, compressed)]
    assert uncompressed.code == compressed.code == 0 and outputs[0] == outputs[1]
    pattern = r"cannot read standard input( beyond line \d)?: the gzip file is damaged or cut short \("
    assert re.match(pattern, usage_error_message(damaged))


def test_a_closed_output_ends_without_a_traceback() -> None:
    result = run_shell('"$@" >&-', "predict", copy_task_run().run, copy_task_run().files.valid)
    assert result.code in (0, 2) and "Traceback" not in result.err and "Exception ignored" not in result.err


def test_a_full_disk_at_interpreter_exit_is_reported_once() -> None:
    """Python flushes standard output at exit, which fails on a full device."""
    result = run_shell('"$@" > /dev/full', "predict", copy_task_run().run, copy_task_run().files.valid)
    assert (
        usage_error_message(result) == "system error: no space left on device" and "Exception ignored" not in result.err
    )


def test_an_ascii_locale_does_not_change_the_output() -> None:
    result = run_shell(
        'echo "aé" | LC_ALL=C PYTHONIOENCODING=ascii "$@" --output-format tsv', "predict", copy_task_run().run
    )
    assert result.code == 0 and result.out.startswith("aé\t") and "Traceback" not in result.err


def test_paths_and_texts_may_have_any_script(tmp_path: Path) -> None:
    """Paths and texts contain non-ASCII, right-to-left and combining characters, spaces and quotes."""
    folder = tmp_path / "каталог 'x' ⟨é⟩ [red]"
    folder.mkdir()
    texts = ("שלום", "e\u0301", "\u200fا", "😀", "a b")
    examples = [*make_copy_examples(15, seed=4), *(Example(text, text) for text in texts)]
    train_file, valid_file = write_pairs(folder / "t r.tsv", examples), write_pairs(folder / "d.tsv", examples[12:])
    result = run_pellucid(
        "train",
        train_file,
        "--valid",
        valid_file,
        "--run",
        folder / "run",
        *training_flags(make_small_config({"epochs": 1})),
    )
    assert result.code == 0 and str(folder / "run") in result.err
    assert run_pellucid("predict", folder / "run", valid_file).out.count("\n") == len(examples[12:])
