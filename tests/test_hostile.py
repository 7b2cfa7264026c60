"""What nobody should give and somebody will: one clear message, exit code 2, and nothing of a run is lost."""

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
from pellucid.training.session import FileSaved, train_run

LONG = "a" * 200_000


def train(run: Path, file: Path, dev: Path | None = None) -> CommandResult:
    """The settings of the small run on another file."""
    _, _, config = copy_task_run()
    return run_pellucid(
        "train", file, "--valid", dev or copy_task_run().files.valid, "--run", run, *training_flags(config)
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return copy_run_folder(copy_task_run().run, tmp_path / "run")


FILES: dict[str, tuple[bytes | None, str]] = {
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
        f"ab\tab\n{LONG}\tab\n".encode(),
        "{file}:2: the source has 200000 symbols, more than data.max_sequence_length",
    ),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("verb", ["train", "dev", "evaluate"])
def test_a_file_that_cannot_be_pairs(tmp_path: Path, run: Path, verb: str, kind: str) -> None:
    content, message = FILES[kind]
    file, before = tmp_path / "odd.tsv", read_folder_state(run)
    if content is not None:
        file.write_bytes(content)
    match verb:
        case "train":
            done = train(run, file)
        case "dev":
            done = train(run, copy_task_run().files.train, file)
        case _:
            done = run_pellucid("evaluate", run, file)
    assert usage_error_message(done).startswith(message.format(file=file)) and done.out == ""
    assert read_folder_state(run) == before


@pytest.mark.parametrize("kind", ["missing", "binary", "utf-8", "utf-16", "nul", "long"])
def test_a_file_that_cannot_be_sources(tmp_path: Path, kind: str) -> None:
    content, message = FILES[kind]
    file = tmp_path / "odd.tsv"
    if content is not None:
        file.write_bytes(content)
    for verb in ("predict", "look"):
        done = run_pellucid(verb, copy_task_run().run, file)
        assert message.format(file=file) in usage_error_message(done)
        answered = 1 if verb == "predict" and ":2: " in message else 0
        assert done.out.count("\n") == answered, "the lines before the bad one are answered, none after it"


def test_nothing_but_blank_lines_has_empty_outputs(tmp_path: Path) -> None:
    content = FILES["blank"][0]
    assert run_pellucid("predict", copy_task_run().run, stdin=content or b"") == (0, "\n\n\n\n", "")


def test_a_folder_is_no_file(tmp_path: Path, run: Path) -> None:
    for done in (
        train(run, tmp_path),
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
        assert usage_error_message(done) == f"cannot read {tmp_path}: is a directory"


def test_development_data_that_is_the_training_data(tmp_path: Path) -> None:
    file = copy_task_run().files.train
    again = Path(shutil.copy(file, tmp_path / "dev.tsv"))
    for dev in (file, again):
        message = usage_error_message(train(tmp_path / "run", file, dev))
        assert message.startswith(f"{dev} holds the same examples as {file}")


def test_a_run_path_that_is_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    file = copy_task_run().files.train
    assert str(tmp_path / "file") in usage_error_message(train(tmp_path / "file", file))
    assert str(tmp_path / "file" / "run") in usage_error_message(train(tmp_path / "file" / "run", file))
    for verb in ("predict", "evaluate", "look"):
        assert "it is a file" in usage_error_message(run_pellucid(verb, tmp_path / "file", file))
    assert (tmp_path / "file").read_text() == "precious"


def test_a_run_folder_that_cannot_be_written() -> None:
    """/proc takes no folders, from root neither."""
    assert usage_error_message(train(Path("/proc/run"), copy_task_run().files.train)).startswith(
        "cannot create /proc/run: "
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_run_folder_without_permission(run: Path) -> None:
    run.chmod(0o500)
    assert "permission denied" in usage_error_message(train(run, copy_task_run().files.train))
    run.chmod(0o700)


@pytest.mark.parametrize("verb", ["predict", "evaluate", "look"])
def test_a_model_that_is_not_there_or_not_whole(tmp_path: Path, run: Path, verb: str) -> None:
    file = copy_task_run().files.valid
    assert usage_error_message(run_pellucid(verb, tmp_path / "none", file)) == (
        f"{tmp_path / 'none'} is not a run folder: there is no such folder"
    )
    assert "it holds no config.toml" in usage_error_message(run_pellucid(verb, tmp_path, file))
    for name in ("model.safetensors", "vocabulary.json", "config.toml"):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: len(whole) // 2].rpartition(b"\n")[0] + b"\n= =")
        assert str(run / name) in usage_error_message(run_pellucid(verb, run, file)), name
        (run / name).write_bytes(whole)
    (run / "model.safetensors").unlink()
    missing = f"{run / 'model.safetensors'} is missing: give the training command again"
    assert missing in usage_error_message(run_pellucid(verb, run, file))


def test_a_checkpoint_that_is_not_whole_is_named_and_left_alone(run: Path) -> None:
    (run / "training.safetensors").write_bytes((run / "training.safetensors").read_bytes()[:-100])
    before = read_folder_state(run)
    message = usage_error_message(train(run, copy_task_run().files.train))
    assert message.startswith(f"{run / 'training.safetensors'} is not a whole safetensors file")
    assert read_folder_state(run) == before


@pytest.mark.parametrize(
    ("largest", "saved"),
    [("config.toml", 0), ("config.toml", 2), ("model.safetensors", 0)],
    ids=["at once", "on the way", "at once, with room for the model"],
)
def test_a_full_disk_keeps_what_was_there_and_the_run_goes_on_later(tmp_path: Path, largest: str, saved: int) -> None:
    """The limit lets the small files pass and checkpoints not; before it, so many checkpoints were written."""
    files, straight, config = copy_task_run()
    events = (event for event in train_run(files, tmp_path / "run", config) if isinstance(event, FileSaved))
    for _ in range(saved):
        next(events)
    kept = read_folder_state(tmp_path / "run") if saved else {}
    command = ["train", files.train, "--valid", files.valid, "--run", tmp_path / "run", *training_flags(config)]
    events.close()
    limit = max((copy_task_run().run / name).stat().st_size for name in (largest, "config.toml")) + 500
    message = usage_error_message(run_pellucid(*command, max_file_size=limit))
    assert message.startswith(f"cannot write {tmp_path / 'run'}/") and message.endswith("safetensors: file too large")
    after = read_folder_state(tmp_path / "run")
    small = {"config.toml", "vocabulary.json", "log.jsonl"}
    # A snapshot may be small enough; written in a place of its own, it is there whole or not at all.
    apart = {name for name in {**after, **kept} if name.startswith("snapshots")}
    assert set(after) - apart == small | (set(kept) - apart), "no part of a file stays"
    assert not saved or after["model.safetensors"] == kept["model.safetensors"]
    assert run_pellucid(*command).code == 0
    assert_runs_identical(straight, tmp_path / "run")


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_an_output_without_space_is_told(verb: str) -> None:
    done = run_pellucid(verb, copy_task_run().run, copy_task_run().files.valid, stdout=Path("/dev/full"))
    assert usage_error_message(done) == "system error: no space left on device"


@pytest.mark.parametrize("name", ["a.png", "a.html"])
def test_a_picture_without_space_leaves_the_old_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("old")
    done = run_pellucid(
        "look", digits_run().run, digits_run().files.valid, "--export", tmp_path / name, max_file_size=500
    )
    assert done.code == 2 and "Traceback" not in done.err
    assert done.err.splitlines()[-1] == f"pellucid: cannot write {tmp_path / name}: file too large"
    assert (tmp_path / name).read_text() == "old" and [path.name for path in tmp_path.iterdir()] == [name]


def test_a_closed_standard_input_is_told() -> None:
    for command in (["predict", copy_task_run().run], ["look", copy_task_run().run, "-"]):
        assert "is closed" in usage_error_message(run_shell('"$@" <&-', *command))


@pytest.mark.parametrize("verb", ["predict", "score", "evaluate", "look"])
def test_standard_input_may_be_compressed(verb: str) -> None:
    pairs = "".join(f"{each.source}\t{each.target}\n" for each in spelled_digits(5, 1, 4, seed=11)).encode()
    plain, packed, damaged = (
        run_pellucid(verb, digits_run().run, "-", *(["--json"] if verb == "evaluate" else []), stdin=stdin)
        for stdin in (pairs, gzip.compress(pairs), gzip.compress(pairs)[:-9])
    )
    assert plain.code == packed.code == 0 and re.sub(r'"seconds":[^,]*', "", plain.out) == re.sub(
        r'"seconds":[^,]*', "", packed.out
    )
    told = r"cannot read standard input( beyond line \d)?: the gzip file is damaged or cut short \("
    assert re.match(told, usage_error_message(damaged))


def test_a_closed_output_ends_without_a_traceback() -> None:
    done = run_shell('"$@" >&-', "predict", copy_task_run().run, copy_task_run().files.valid)
    assert done.code in (0, 2) and "Traceback" not in done.err and "Exception ignored" not in done.err


def test_a_disk_that_is_full_when_python_ends_is_told_once() -> None:
    """From the start to the very end of a process, which flushes what is left."""
    done = run_shell('"$@" > /dev/full', "predict", copy_task_run().run, copy_task_run().files.valid)
    assert usage_error_message(done) == "system error: no space left on device" and "Exception ignored" not in done.err


def test_an_odd_locale_changes_no_byte() -> None:
    done = run_shell(
        'echo "aé" | LC_ALL=C PYTHONIOENCODING=ascii "$@" --output-format tsv', "predict", copy_task_run().run
    )
    assert done.code == 0 and done.out.startswith("aé\t") and "Traceback" not in done.err


def test_source_and_options_in_any_script(tmp_path: Path) -> None:
    """Names and texts beyond ASCII, right-to-left, combining, with spaces and quotes."""
    folder = tmp_path / "каталог 'x' ⟨é⟩ [red]"
    folder.mkdir()
    texts = ("שלום", "e\u0301", "\u200fا", "😀", "a b")
    odd = [*make_copy_examples(15, seed=4), *(Example(text, text) for text in texts)]
    train_file, dev = write_pairs(folder / "t r.tsv", odd), write_pairs(folder / "d.tsv", odd[12:])
    done = run_pellucid(
        "train", train_file, "--valid", dev, "--run", folder / "run", *training_flags(make_small_config({"epochs": 1}))
    )
    assert done.code == 0 and str(folder / "run") in done.err
    assert run_pellucid("predict", folder / "run", dev).out.count("\n") == len(odd[12:])
