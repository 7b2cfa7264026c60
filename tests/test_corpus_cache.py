"""training/corpus_cache.py: training data is equal whether it is read from text or from a saved corpus."""

import json
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pytest
from trained_runs import (
    DataFiles,
    assert_runs_identical,
    copy_task_run,
    make_small_config,
    read_folder_state,
    train_to_end,
    write_copy_files,
)

from pellucid.config.settings import Config
from pellucid.data.corpus import METADATA, map_corpus, write_corpus
from pellucid.data.encoding import Ragged
from pellucid.data.examples import read_examples
from pellucid.errors import RunError, quote
from pellucid.reporting.progress import training_progress
from pellucid.run_folder.predictor_loader import load_without_warnings
from pellucid.training import corpus_cache
from pellucid.training.corpus_cache import corpus_key, save_corpus
from pellucid.training.data_warnings import overlap_note
from pellucid.training.events import FileRead, RunEvent, TrainingStarted, UpdateCompleted
from pellucid.training.session import train_run
from pellucid.training.training_data import encode_training_data, read_files

CONFIG = make_small_config({"epochs": 2}, data={"on_bad_line": "skip"})
DATA = CONFIG.data


@pytest.fixture(autouse=True)
def save_every_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_cache, "MIN_CORPUS_SYMBOLS", 0)


@pytest.fixture
def parsed_files(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list of the files that are parsed, which grows during the test."""
    paths: list[Path] = []

    def read_and_record(path: Path, *rest: Any) -> Any:  # noqa: ANN401
        paths.append(path)
        return read_examples(path, *rest)

    monkeypatch.setattr("pellucid.training.training_data.read_examples", read_and_record)
    return paths


def write_damaged_files(folder: Path) -> DataFiles:
    """Write files with bad lines, blank lines and shared examples."""
    files = write_copy_files(folder)
    files.train.write_text("a\ta\n\nonly one\n" + files.train.read_text() + "b\t\n\n")
    files.valid.write_text("a\ta\nbad\n" + files.valid.read_text())
    return files


def start_training(files: DataFiles, folder: Path, config: Config = CONFIG, updates: int = 2) -> list[RunEvent]:
    """Train until an update, interrupt the training, and return its events."""
    events, received = train_run(files, folder, config), []
    for event in events:
        received.append(event)
        if isinstance(event, UpdateCompleted) and event.progress.update >= updates:
            events.close()
    return received


def test_a_resumed_training_reads_no_training_file_and_reports_the_same_lines(
    tmp_path: Path, parsed_files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_damaged_files(tmp_path)

    def report_lines() -> list[str]:
        with training_progress() as reporter:
            for event in start_training(files, tmp_path / "run"):
                if isinstance(event, FileRead):
                    reporter.report(event)
        return capsys.readouterr().err.splitlines()

    first = report_lines()
    assert (tmp_path / "run" / "corpus.arrow").exists() and parsed_files == [files.train, files.valid]
    assert report_lines() == first and parsed_files[2:] == [files.valid]
    assert first[0] == f"{files.train}: 41 examples, 2 blank lines skipped, 2 bad lines skipped"
    assert first[1] == f"  {files.train}:3: expected 2 columns, got 1 (tabs separate columns)"
    num_shared = re.fullmatch(r"  note: (\d+) of 11 .*", first[-1])
    assert num_shared is not None and first[-1] == f"  note: {overlap_note(int(num_shared[1]), 11, str(files.train))}"


def test_a_corpus_is_removed_at_the_end_of_the_training(tmp_path: Path) -> None:
    files, uninterrupted, config = copy_task_run()
    start_training(files, tmp_path / "run", config)
    assert stat.S_IMODE((tmp_path / "run" / "corpus.arrow").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "run" / "config.toml").stat().st_mode
    )
    (tmp_path / "run" / ".corpus.arrow.k1lled00.tmp").write_bytes(b"half")
    train_to_end(files, tmp_path / "run", config)
    assert sorted(read_folder_state(tmp_path / "run")) == sorted(read_folder_state(uninterrupted))
    assert_runs_identical(uninterrupted, tmp_path / "run")
    before = read_folder_state(tmp_path / "run")
    train_to_end(files, tmp_path / "run", config)
    assert read_folder_state(tmp_path / "run") == before


def test_small_data_has_no_corpus_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_cache, "MIN_CORPUS_SYMBOLS", 1 << 20)
    start_training(write_copy_files(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run" / "corpus.arrow").exists()


def test_training_uses_memory_mapped_columns(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    (tmp_path / "run").mkdir()
    data = read_files(files, DATA, tmp_path / "none")
    corpus = encode_training_data(data, CONFIG)
    mapped = save_corpus(tmp_path / "run" / "corpus.arrow", corpus, files, DATA)
    assert all(column.values.flags.writeable for column in corpus.encoded.columns().values())
    assert not any(column.values.flags.writeable for column in mapped.encoded.columns().values())
    again = read_files(files, DATA, tmp_path / "run" / "corpus.arrow")
    assert (again.training_examples, again.file_events, again.report) == ([], data.file_events, data.report)
    assert encode_training_data(again, CONFIG) is again.corpus
    assert again.corpus is not None and again.corpus.vocabularies == corpus.vocabularies
    columns = (encoded.columns().values() for encoded in (again.corpus.encoded, corpus.encoded))
    for one, other in zip(*columns, strict=True):
        assert one.values.tolist() == other.values.tolist() and one.offsets.tolist() == other.offsets.tolist()


def rewrite_file(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text("utf-8")), "utf-8")


@pytest.mark.parametrize("file_name", ["train", "valid"])
@pytest.mark.parametrize("min_corpus_symbols", [0, 1 << 20])
def test_changed_data_are_refused(
    tmp_path: Path, file_name: str, min_corpus_symbols: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_cache, "MIN_CORPUS_SYMBOLS", min_corpus_symbols)
    files = write_copy_files(tmp_path)
    start_training(files, tmp_path / "run")
    path: Path = getattr(files, file_name)
    num_examples = len(path.read_text("utf-8").splitlines())
    rewrite_file(path, lambda text: text + "a\tb\n")
    before = read_folder_state(tmp_path / "run")
    with pytest.raises(RunError) as caught:
        start_training(files, tmp_path / "run")
    assert str(caught.value) == (
        f"{tmp_path / 'run' / 'training.safetensors'} is of a training on other data (its fingerprint differs); name "
        "another run folder, give the same data, or restore the file"
        f"; the {'training' if file_name == 'train' else 'validation'} file differs: {quote(str(path))} with "
        f"{num_examples} examples in the log of the run, {path} with {num_examples + 1} now"
    )
    assert read_folder_state(tmp_path / "run") == before


def test_the_message_about_other_contents_of_as_many_examples_says_so(tmp_path: Path) -> None:
    """Regression test: it named the same number of examples twice, and did not say what differs."""
    files = write_copy_files(tmp_path)
    start_training(files, tmp_path / "run")
    rewrite_file(files.train, lambda text: "".join(reversed(text.splitlines(keepends=True))))
    with pytest.raises(RunError, match=r"now, as many, but the content is another one \(SHA-256\)$"):
        start_training(files, tmp_path / "run")


def test_other_data_are_refused_before_anything_is_reported(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)._replace(valid=None)
    start_training(files, tmp_path / "run")
    rewrite_file(files.train, lambda text: text + "a\tb\n")
    received = list[RunEvent]()
    with pytest.raises(RunError, match="is of a training on other data"):
        received.extend(train_run(files, tmp_path / "run", CONFIG))
    assert received == []


def test_a_changed_byte_of_the_same_length_and_time_is_detected(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    start_training(files, tmp_path / "run")
    file_stat = files.train.stat()
    rewrite_file(files.train, lambda text: text.replace("a", "b", 1))
    os.utime(files.train, ns=(file_stat.st_atime_ns, file_stat.st_mtime_ns))
    with pytest.raises(RunError, match="is of a training on other data"):
        start_training(files, tmp_path / "run")


def test_a_changed_vocabulary_is_refused(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    start_training(files, tmp_path / "run")
    rewrite_file(tmp_path / "run" / "vocabulary.json", lambda text: text.replace('"a"', '"z"'))
    with pytest.raises(RunError, match=r"vocabulary\.json is not the vocabulary of the training data"):
        start_training(files, tmp_path / "run")


def truncate_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_bit(path: Path) -> None:
    """Flip one bit in the second copy of the schema, which must equal the first."""
    content = bytearray(path.read_bytes())
    content[content.rindex(b"longest_source") - 1] ^= 1
    path.write_bytes(content)


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate_file, flip_bit, empty_file])
def test_a_damaged_corpus_is_reported_and_rewritten(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    files, uninterrupted, config = copy_task_run()
    start_training(files, tmp_path / "run", config)
    corpus = tmp_path / "run" / "corpus.arrow"
    original = corpus.read_bytes()
    damage(corpus)
    events = start_training(files, tmp_path / "run", config, updates=4)
    (note,) = [event.note for event in events if isinstance(event, FileRead) and event.path == files.train]
    assert note.startswith(f"{corpus} is not used, for it is damaged") and corpus.read_bytes() == original
    train_to_end(files, tmp_path / "run", config)
    assert_runs_identical(uninterrupted, tmp_path / "run")


def test_a_corpus_of_another_run_is_not_used(tmp_path: Path) -> None:
    files, uninterrupted, config = copy_task_run()
    start_training(write_copy_files(tmp_path, num_training=50), tmp_path / "other", config)
    start_training(files, tmp_path / "run", config)
    shutil.copy(tmp_path / "other" / "corpus.arrow", tmp_path / "run" / "corpus.arrow")
    events = train_to_end(files, tmp_path / "run", config)
    notes = [event.note for event in events if isinstance(event, FileRead)]
    reason = "it was built from other files or settings, or with another version of Unicode"
    assert notes[0] == f"{tmp_path / 'run' / 'corpus.arrow'} is not used, for {reason}"
    assert_runs_identical(uninterrupted, tmp_path / "run")


def poison_corpus(path: Path) -> None:
    """Write a corpus with the same key and other examples, as a stranger with the data files could."""
    metadata = pyarrow.ipc.open_file(path).schema.metadata[METADATA]
    corpus = map_corpus(path, json.loads(metadata)["key"], has_features=False)
    target = corpus.encoded.target
    encoded = corpus.encoded._replace(target=Ragged(target.values[::-1].copy(), target.offsets))
    write_corpus(path, corpus._replace(encoded=encoded))


def test_a_forged_corpus_is_not_trained_on(tmp_path: Path) -> None:
    """Regression test: without a checkpoint, its examples were used without a message."""
    files, uninterrupted, config = copy_task_run()
    start_training(files, tmp_path / "run", config)
    poison_corpus(tmp_path / "run" / "corpus.arrow")
    with pytest.raises(
        RunError, match=r"corpus\.arrow does not hold the examples of .*training\.safetensors: remove it"
    ):
        train_to_end(files, tmp_path / "run", config)
    (tmp_path / "new").mkdir()
    for name in ("corpus.arrow", "config.toml"):
        shutil.copy(tmp_path / "run" / name, tmp_path / "new")
    train_to_end(files, tmp_path / "new", config)
    assert_runs_identical(uninterrupted, tmp_path / "new")


@pytest.mark.parametrize("name", ["corpus.arrow", "card.md", "confidence.json", "pair_ngram.safetensors"])
def test_a_folder_in_place_of_a_file_is_refused_before_the_training(tmp_path: Path, name: str) -> None:
    (tmp_path / "run" / name).mkdir(parents=True)
    with pytest.raises(RunError, match=rf"{name} is a directory, where a training writes a file: rename it"):
        start_training(write_copy_files(tmp_path), tmp_path / "run")


def test_the_corpus_key_depends_on_settings_file_names_and_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File names are part of messages, and settings determine the ids. Another version of Pellucid has the same key."""
    files = write_copy_files(tmp_path)
    parallel_files = files._replace(train_target=files.train, valid_target=files.valid)
    moved = DataFiles(files.train.rename(tmp_path / "moved.tsv"), files.valid)
    shutil.copy(moved.train, files.train)
    keys = [corpus_key(one, DATA) for one in (files, moved, parallel_files, DataFiles(files.valid, files.train))]
    changed = {
        "min_count": 2,
        "source_symbols": "words",
        "input_format": "tsv",
        "max_sequence_length": 9,
        "header": True,
    }
    keys += [corpus_key(files, msgspec.structs.replace(DATA, **{name: value})) for name, value in changed.items()]
    assert all(keys) and len(set(keys)) == len(keys)
    assert corpus_key(files, DATA) == keys[0]
    monkeypatch.setattr(corpus_cache, "__version__", "9.9.9", raising=False)
    assert corpus_key(files, DATA) == keys[0]
    monkeypatch.setattr(corpus_cache, "CORPUS_FORMAT", 99)
    assert corpus_key(files, DATA) not in keys
    assert (
        corpus_key(DataFiles(tmp_path / "none", files.valid), DATA)
        == corpus_key(DataFiles(tmp_path, files.valid), DATA)
        == ""
    )


def test_a_corpus_of_a_pipe_is_not_reused(tmp_path: Path) -> None:
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 2})
    os.mkfifo(tmp_path / "pipe")
    piped = DataFiles(tmp_path / "pipe", files.valid)
    for _ in range(2):
        writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(files.train.read_bytes()))
        writer.start()
        events = start_training(piped, tmp_path / "run", config)
        writer.join()
        assert [event.num_examples for event in events if isinstance(event, FileRead)] == [40, 10]
    assert any(isinstance(event, TrainingStarted) for event in events)


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_copy_files(tmp_path)
    data = read_files(files, DATA, tmp_path / "none")
    rewrite_file(files.train, lambda text: text + "a\tb\n")
    save_corpus(tmp_path / "corpus.arrow", encode_training_data(data, CONFIG), files, DATA)
    again = read_files(files, DATA, tmp_path / "corpus.arrow")
    assert again.corpus is None and len(again.training_examples) == 41


def test_without_memory_mapping_the_corpus_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_os_error(*given: object, **options: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr("pellucid.data.corpus.mmap.mmap", raise_os_error)
    files, uninterrupted, config = copy_task_run()
    start_training(files, tmp_path / "run", config)
    assert not (tmp_path / "run" / "corpus.arrow").exists()
    train_to_end(files, tmp_path / "run", config)
    assert_runs_identical(uninterrupted, tmp_path / "run")


def test_a_full_disk_does_not_stop_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_os_error(*given: object) -> None:
        raise OSError(28, "No space left on device")

    files = write_copy_files(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("pyarrow.RecordBatchFileWriter.write_batch", raise_os_error)
        start_training(files, tmp_path / "run")
    assert not [path for path in (tmp_path / "run").iterdir() if "corpus" in path.name]
    train_to_end(files, tmp_path / "run", CONFIG)
    train_to_end(files, tmp_path / "fresh", CONFIG)
    assert_runs_identical(tmp_path / "run", tmp_path / "fresh")


def test_an_unfinished_run_with_a_corpus_can_be_loaded(tmp_path: Path) -> None:
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 3})
    start_training(files, tmp_path / "run", config, updates=6)
    assert (tmp_path / "run" / "corpus.arrow").exists() and load_without_warnings(tmp_path / "run").predict(["a"])[
        0
    ].source == ("a",)
