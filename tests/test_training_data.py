"""Training data: equal whether read from text or from a saved corpus."""

import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trained_runs import assert_same_outcome, contents, copies, copies_run, copy_files, small_config, train_to_end

from pellucid.config.settings import Config
from pellucid.data.examples import read_examples
from pellucid.errors import RunError
from pellucid.reporting.progress import training_progress
from pellucid.training import training_data as reading
from pellucid.training.events import TrainingStarted, UpdateCompleted
from pellucid.training.run_folder import load
from pellucid.training.session import RunEvent, train_run
from pellucid.training.training_data import FileRead, TrainingFiles, encode_training_data, read_files, save_corpus

CONFIG = small_config({"epochs": 2}, data={"on_bad_line": "skip"})
DATA = CONFIG.data


@pytest.fixture(autouse=True)
def keep_every_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MIN_CORPUS_SYMBOLS", 0)


@pytest.fixture
def parsed_files(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each file that is read, as it is."""
    paths: list[Path] = []

    def watched(path: Path, *rest: Any) -> Any:  # noqa: ANN401
        paths.append(path)
        return read_examples(path, *rest)

    monkeypatch.setattr("pellucid.training.training_data.read_examples", watched)
    return paths


def damaged_files(folder: Path) -> TrainingFiles:
    """Files with bad lines, blank lines and examples that stand in both."""
    files = copy_files(folder)
    files.train.write_text("a\ta\n\nonly one\n" + files.train.read_text() + "b\t\n\n")
    files.valid.write_text("a\ta\nbad\n" + files.valid.read_text())
    return files


def start_training(files: TrainingFiles, folder: Path, config: Config = CONFIG, updates: int = 2) -> list[RunEvent]:
    """The events of a training up to an update, after which it was interrupted."""
    events, told = train_run(files, folder, config), []
    for event in events:
        told.append(event)
        if isinstance(event, UpdateCompleted) and event.progress.update >= updates:
            events.close()
    return told


def test_a_second_start_does_not_read_the_training_file_and_reports_the_same(
    tmp_path: Path, parsed_files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = damaged_files(tmp_path)

    def said() -> list[str]:
        with training_progress() as reporter:
            for event in start_training(files, tmp_path / "run"):
                if isinstance(event, FileRead):
                    reporter.report(event)
        return capsys.readouterr().err.splitlines()

    first = said()
    assert (tmp_path / "run" / "corpus.arrow").exists() and parsed_files == [files.train, files.valid]
    assert said() == first and parsed_files[2:] == [files.valid]
    assert first[0] == f"{files.train}: 41 examples, 2 blank lines skipped, 2 bad lines skipped"
    assert first[1] == f"  {files.train}:3: expected 2 columns, got 1 (tabs separate columns)"
    assert re.fullmatch(r"  note: \d+ of 11 examples are also in .*train\.tsv", first[-1])


def test_a_corpus_lasts_as_long_as_its_training(tmp_path: Path) -> None:
    files, straight, config = copies_run()
    start_training(files, tmp_path / "run", config)
    assert stat.S_IMODE((tmp_path / "run" / "corpus.arrow").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "run" / "config.toml").stat().st_mode
    )
    (tmp_path / "run" / ".corpus.arrow.k1lled00.tmp").write_bytes(b"half")
    train_to_end(files, tmp_path / "run", config)
    assert sorted(contents(tmp_path / "run")) == sorted(contents(straight))
    assert_same_outcome(straight, tmp_path / "run")
    before = contents(tmp_path / "run")
    train_to_end(files, tmp_path / "run", config)
    assert contents(tmp_path / "run") == before


def test_small_data_has_no_corpus_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MIN_CORPUS_SYMBOLS", 1 << 20)
    start_training(copy_files(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run" / "corpus.arrow").exists()


def test_training_is_on_pages_of_the_file(tmp_path: Path) -> None:
    files = copy_files(tmp_path)
    (tmp_path / "run").mkdir()
    data = read_files(files, DATA, tmp_path / "none")
    corpus = encode_training_data(data, CONFIG)
    kept = save_corpus(tmp_path / "run" / "corpus.arrow", corpus, files, DATA)
    assert all(column.values.flags.writeable for column in corpus.encoded)
    assert not any(column.values.flags.writeable for column in kept.encoded)
    again = read_files(files, DATA, tmp_path / "run" / "corpus.arrow")
    assert (again.training, again.reads, again.report) == ([], data.reads, data.report)
    assert encode_training_data(again, CONFIG) is again.corpus
    assert again.corpus is not None and again.corpus.vocabularies == corpus.vocabularies
    for one, other in zip(again.corpus.encoded, corpus.encoded, strict=True):
        assert one.values.tolist() == other.values.tolist() and one.offsets.tolist() == other.offsets.tolist()


def rewrite_file(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text("utf-8")), "utf-8")


@pytest.mark.parametrize("which", ["train", "valid"])
@pytest.mark.parametrize("worth", [0, 1 << 20])
def test_changed_data_are_refused(tmp_path: Path, which: str, worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MIN_CORPUS_SYMBOLS", worth)
    files = copy_files(tmp_path)
    start_training(files, tmp_path / "run")
    rewrite_file(getattr(files, which), lambda text: text + "a\tb\n")
    before = contents(tmp_path / "run")
    with pytest.raises(RunError) as caught:
        start_training(files, tmp_path / "run")
    assert str(caught.value) == (
        f"{tmp_path / 'run' / 'training.safetensors'} is of a training on other data (its fingerprint differs); name "
        "another run folder, or give the same data"
    )
    assert contents(tmp_path / "run") == before


def test_a_changed_byte_of_the_same_length_and_time_is_seen(tmp_path: Path) -> None:
    files = copy_files(tmp_path)
    start_training(files, tmp_path / "run")
    moment = files.train.stat()
    rewrite_file(files.train, lambda text: text.replace("a", "b", 1))
    os.utime(files.train, ns=(moment.st_atime_ns, moment.st_mtime_ns))
    with pytest.raises(RunError, match="is of a training on other data"):
        start_training(files, tmp_path / "run")


def test_a_changed_vocabulary_is_refused(tmp_path: Path) -> None:
    files = copy_files(tmp_path)
    start_training(files, tmp_path / "run")
    rewrite_file(tmp_path / "run" / "vocabulary.json", lambda text: text.replace('"a"', '"z"'))
    with pytest.raises(RunError, match=r"vocabulary\.json is not the vocabulary of the training data"):
        start_training(files, tmp_path / "run")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    """One bit, in the schema that is read: an Arrow file has it twice."""
    content = bytearray(path.read_bytes())
    content[content.rindex(b"longest_source") - 1] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [cut, flip, empty])
def test_a_damaged_corpus_is_reported_and_written_again(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    files, straight, config = copies_run()
    start_training(files, tmp_path / "run", config)
    corpus = tmp_path / "run" / "corpus.arrow"
    whole = corpus.read_bytes()
    spoil(corpus)
    told = start_training(files, tmp_path / "run", config, updates=4)
    (note,) = [event.note for event in told if isinstance(event, FileRead) and event.path == files.train]
    assert note.startswith(f"{corpus} is not used, for it is damaged") and corpus.read_bytes() == whole
    train_to_end(files, tmp_path / "run", config)
    assert_same_outcome(straight, tmp_path / "run")


def test_a_corpus_of_another_run_is_not_used(tmp_path: Path) -> None:
    files, straight, config = copies_run()
    start_training(copy_files(tmp_path, training=50), tmp_path / "other", config)
    start_training(files, tmp_path / "run", config)
    shutil.copy(tmp_path / "other" / "corpus.arrow", tmp_path / "run" / "corpus.arrow")
    told = train_to_end(files, tmp_path / "run", config)
    notes = [event.note for event in told if isinstance(event, FileRead)]
    assert notes[0] == f"{tmp_path / 'run' / 'corpus.arrow'} is not used, for it was built from other files or settings"
    assert_same_outcome(straight, tmp_path / "run")


def test_settings_and_names_belong_to_the_key(tmp_path: Path) -> None:
    """Another name would be in other messages; other settings would give other ids."""
    files = copy_files(tmp_path)
    both = files._replace(train_target=files.train, valid_target=files.valid)
    moved = TrainingFiles(files.train.rename(tmp_path / "moved.tsv"), files.valid)
    shutil.copy(moved.train, files.train)
    keys = [reading._corpus_key(one, DATA) for one in (files, moved, both, TrainingFiles(files.valid, files.train))]
    changed = {
        "min_count": 2,
        "source_symbols": "words",
        "input_format": "tsv",
        "max_sequence_length": 9,
        "header": True,
    }
    keys += [
        reading._corpus_key(files, msgspec.structs.replace(DATA, **{name: value})) for name, value in changed.items()
    ]
    assert all(keys) and len(set(keys)) == len(keys)
    assert reading._corpus_key(files, DATA) == keys[0]
    assert (
        reading._corpus_key(TrainingFiles(tmp_path / "none", files.valid), DATA)
        == reading._corpus_key(TrainingFiles(tmp_path, files.valid), DATA)
        == ""
    )


def test_a_pipe_is_read_once_and_its_corpus_never_found_again(tmp_path: Path) -> None:
    files, config = copy_files(tmp_path), small_config({"epochs": 2})
    os.mkfifo(tmp_path / "pipe")
    piped = TrainingFiles(tmp_path / "pipe", files.valid)
    for _ in range(2):
        writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(files.train.read_bytes()))
        writer.start()
        told = start_training(piped, tmp_path / "run", config)
        writer.join()
        assert [event.examples for event in told if isinstance(event, FileRead)] == [40, 10]
    assert any(isinstance(event, TrainingStarted) for event in told)


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = copy_files(tmp_path)
    data = read_files(files, DATA, tmp_path / "none")
    rewrite_file(files.train, lambda text: text + "a\tb\n")
    save_corpus(tmp_path / "corpus.arrow", encode_training_data(data, CONFIG), files, DATA)
    again = read_files(files, DATA, tmp_path / "corpus.arrow")
    assert again.corpus is None and len(again.training) == 41


def test_without_memory_mapping_the_corpus_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **options: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr("pellucid.data.corpus.mmap.mmap", refuse)
    files, straight, config = copies_run()
    start_training(files, tmp_path / "run", config)
    assert not (tmp_path / "run" / "corpus.arrow").exists()
    train_to_end(files, tmp_path / "run", config)
    assert_same_outcome(straight, tmp_path / "run")


def test_a_full_disk_does_not_stop_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(28, "No space left on device")

    files = copy_files(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("pyarrow.RecordBatchFileWriter.write_batch", refuse)
        start_training(files, tmp_path / "run")
    assert not [path for path in (tmp_path / "run").iterdir() if "corpus" in path.name]
    train_to_end(files, tmp_path / "run", CONFIG)
    train_to_end(files, tmp_path / "fresh", CONFIG)
    assert_same_outcome(tmp_path / "run", tmp_path / "fresh")


def test_a_run_with_a_corpus_is_a_run_folder(tmp_path: Path) -> None:
    files, config = copy_files(tmp_path), small_config({"epochs": 3})
    start_training(files, tmp_path / "run", config, updates=6)
    assert (tmp_path / "run" / "corpus.arrow").exists() and load(tmp_path / "run").predict(["a"])[0].source == ("a",)


def test_the_overlap_is_counted_without_a_copy_of_the_training_data() -> None:
    training, files = copies(30, seed=1), TrainingFiles(Path("a"), Path("b"))
    for development in (copies(30, seed=2), training[:3], [*training[:3], training[0]]):
        known = set(training)
        assert reading._count_shared(training, development, files) == sum(example in known for example in development)
