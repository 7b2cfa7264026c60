"""training/preparation.py and data/prepared_data.py: the ids are those of a training in memory; faults are refused."""

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from command_line import build_environment
from safetensors.numpy import load_file

import pellucid
from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data import prepared_data
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example, read_examples
from pellucid.data.prepared_data import PreparedData, read_description, read_prepared
from pellucid.data.validation_split import validation_file_config
from pellucid.errors import ConfigError, DataError, InputError, RunError
from pellucid.files import write_atomic
from pellucid.run_folder.lock import FolderLock, lock_run_folder
from pellucid.tasks.registry import get_task
from pellucid.tasks.task import Task
from pellucid.training import preparation
from pellucid.training.preparation import DataPrepared, PreparationProgress, SourceSample, prepare_data
from pellucid.training.training_data import TrainingFiles, encode_texts, resolve_auto_settings

TAGGED = {"task": "tag"}
LEARNED = {"data": {"source_symbols": "subwords", "subword_vocab_size": 40}}
FEATURES = {"data": {"features_column": "3", "min_count": 2}}


def make_config(settings: Mapping[str, object]) -> Config:
    return build_config({"size": "tiny", **settings}, "test")


def write_pairs(path: Path, count: int = 60) -> Path:
    """Write pairs whose sources repeat, with features; each target has as many symbols as its source."""
    rows = [(f"w{n % 40}é", f"W{n % 40}{'xy'[n % 2]}", "N;PL" if n % 3 else "V") for n in range(count)]
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of seven examples, which are stored two at a time."""
    monkeypatch.setattr(preparation, "BLOCK_EXAMPLES", 7)
    monkeypatch.setattr(preparation, "SAVED_BLOCKS", 2)


def prepare(files: TrainingFiles, folder: Path, config: Config) -> PreparedData:
    *_, last = prepare_data(files, folder, config)
    assert isinstance(last, DataPrepared)
    resolved = msgspec.structs.replace(config, data=resolve_auto_settings(files, config.data))
    return read_prepared(folder, resolved)


def assert_same_ids(actual: EncodedExamples, expected: EncodedExamples) -> None:
    assert actual.columns().keys() == expected.columns().keys()
    for name, expected_column in expected.columns().items():
        actual_column = actual.columns()[name]
        for actual_part, expected_part in zip(actual_column, expected_column, strict=True):
            assert actual_part.dtype == expected_part.dtype and np.array_equal(actual_part, expected_part)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("settings", [{}, TAGGED, LEARNED, FEATURES, {"task": "classify"}])
def test_the_ids_are_those_of_a_training_in_memory(settings: Mapping[str, object], tmp_path: Path) -> None:
    config, train = make_config(settings), write_pairs(tmp_path / "train.tsv")
    (tmp_path / "valid.tsv").write_text("w9é\tW9y\tV\nzz\tyy\tN\n")
    prepared = prepare(TrainingFiles(train, tmp_path / "valid.tsv"), tmp_path / "prepared", config)
    vocabularies, encoded = encode_texts(read_examples(train, config.data).examples, config)
    assert prepared.corpus.vocabularies == msgspec.structs.replace(vocabularies, columns=3)
    assert_same_ids(prepared.corpus.encoded, encoded)
    assert len(prepared.validation_examples) == 2
    assert prepared.description.num_shared == 1


@pytest.mark.usefixtures("small_blocks")
def test_all_examples_of_a_tenth_of_the_sources_are_held_out(tmp_path: Path) -> None:
    config, train = make_config({}), write_pairs(tmp_path / "train.tsv")
    prepared = prepare(TrainingFiles(train, None), tmp_path / "prepared", config)
    examples, held_out = read_examples(train, config.data).examples, prepared.validation_examples
    sources = {example.source for example in held_out}
    assert len(sources) == 4 and held_out == [example for example in examples if example.source in sources]
    rest = [example for example in examples if example.source not in sources]
    vocabularies, encoded = encode_texts(rest, config)
    assert_same_ids(prepared.corpus.encoded, encoded)
    assert prepared.corpus.vocabularies.source == vocabularies.source
    assert prepared.corpus.vocabularies.target == vocabularies.target


def test_the_sample_of_sources_depends_on_their_set_only() -> None:
    examples = [Example(f"source {n % 500}", str(n)) for n in range(1_000)]
    samples = []
    for ordered in (examples, examples[::-1]):
        sample = SourceSample(max_sources=20)
        for start in range(0, len(ordered), 130):
            added = ordered[start : start + 130]
            sample.add(added, [example.source for example in added])
        sources = sample.sources("file")
        assert [example for example in ordered if example.source in sources] == sample.examples(sources)
        samples.append(sorted(sources))
    assert samples[0] == samples[1] and len(samples[0]) == 20


def test_every_source_is_sampled_equally_often() -> None:
    counts = np.zeros(10)
    for trial in range(400):
        sample = SourceSample(max_sources=50)
        sources = [f"{trial} {n}" for n in range(10)]
        sample.add([Example(source, "") for source in sources], sources)
        counts[[int(source.split()[1]) for source in sample.sources("file")]] += 1
    assert counts.sum() == 400 and counts.min() > 15 and counts.max() < 70


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("num_events", range(1, 20))
def test_an_interrupted_preparation_continues(num_events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    expected = prepare(files, tmp_path / "undisturbed", config)
    events = prepare_data(files, tmp_path / "prepared", config)
    stages = [getattr(next(events, None), "stage", "") for _ in range(num_events)]
    events.close()  # type: ignore[attr-defined]
    encoded = list[int]()
    task = get_task("transduce")
    encode = task.encode_examples

    def _encode(_: Task, examples: Sequence[Example], *rest: Any) -> EncodedExamples:  # noqa: ANN401 (the arguments)
        """Encode examples, and record their number."""
        encoded.append(len(examples))
        return encode(examples, *rest)

    monkeypatch.setattr(type(task), "encode_examples", _encode)
    prepared = prepare(files, tmp_path / "prepared", config)
    assert_same_ids(prepared.corpus.encoded, expected.corpus.encoded)
    assert prepared.corpus.vocabularies == expected.corpus.vocabularies
    assert prepared.validation_examples == expected.validation_examples
    # At most the last block pair is encoded twice.
    num_stored = max(0, stages.count("encoded") - 1) // 2 * 2
    assert len(encoded) <= 9 - num_stored
    assert not (tmp_path / "prepared" / "parts").exists()


@pytest.mark.usefixtures("small_blocks")
def test_interrupted_preparations_of_two_files_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the second one left its validation set to the first one, if it ended before its counts."""
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    expected = prepare(files, tmp_path / "undisturbed", config)
    first = prepare_data(files, tmp_path / "prepared", config)
    while getattr(next(first), "stage", "") != "encoded":
        pass
    first.close()  # type: ignore[attr-defined]

    def _stop_before_counts(path: Path, content: bytes) -> None:
        """Write a file, but end as by Ctrl+C before the counts."""
        if path.name == preparation.COUNTED:
            raise KeyboardInterrupt
        write_atomic(path, content)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(preparation, "write_atomic", _stop_before_counts)
        list(prepare_data(TrainingFiles(write_pairs(tmp_path / "other.tsv", 50), None), tmp_path / "prepared", config))
    prepared = prepare(files, tmp_path / "prepared", config)
    assert prepared.validation_examples == expected.validation_examples
    assert prepared.description.num_validation_examples == len(prepared.validation_examples)


def test_a_training_on_prepared_data_is_bit_for_bit_that_on_the_file(tmp_path: Path) -> None:
    train = write_pairs(tmp_path / "train.tsv")
    prepare(TrainingFiles(train, None), tmp_path / "prepared", make_config({}))
    examples = read_examples(
        tmp_path / "prepared" / "validation.jsonl", validation_file_config(make_config({}).data)
    ).examples
    rows = [f"{example.source}\t{example.target}\n" for example in examples]
    (tmp_path / "valid.tsv").write_text("".join(rows))
    kept = {example.source for example in examples}
    lines = [line for line in train.read_text().splitlines(keepends=True) if line.split("\t")[0] not in kept]
    (tmp_path / "rest.tsv").write_text("".join(lines))
    settings = {"size": "tiny", "training": {"epochs": 2, "pair_ngram": False}}
    pellucid.train(tmp_path / "prepared", None, tmp_path / "a", settings, progress=False)
    pellucid.train(tmp_path / "rest.tsv", tmp_path / "valid.tsv", tmp_path / "b", settings, progress=False)
    parameters = [load_file(tmp_path / run / "model.safetensors") for run in "ab"]
    assert parameters[0].keys() == parameters[1].keys()
    assert all(np.array_equal(value, parameters[1][name]) for name, value in parameters[0].items())


@pytest.mark.slow
def test_prepared_data_is_also_named_by_a_path_of_another_kind(tmp_path: Path) -> None:
    """Regression test: its settings were not read. In a process of its own, without the check of annotations."""
    prepare(TrainingFiles(write_pairs(tmp_path / "train.tsv"), None), tmp_path / "prepared", make_config(TAGGED))
    program = (
        "from pathlib import PurePosixPath as Path; import pellucid; "
        "settings = {'size': 'tiny', 'training': {'epochs': 0.1}}; "
        "model = pellucid.train(Path('prepared'), None, 'run', settings, progress=False); print(model.config.task)"
    )
    command, environment = [sys.executable, "-c", program], build_environment()
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert process.stdout == "tag\n", process.stderr


@pytest.mark.usefixtures("small_blocks")
def test_bad_lines_are_counted_and_listed(tmp_path: Path) -> None:
    train = tmp_path / "train.tsv"
    write_pairs(train)
    train.write_text(train.read_text() + "no target\n\n" * 9)
    with pytest.raises(DataError, match=r"train\.tsv:61: .*--on-bad-line skip"):
        prepare(TrainingFiles(train, None), tmp_path / "stopped", make_config({}))
    config = make_config({"data": {"on_bad_line": "skip"}})
    description = prepare(TrainingFiles(train, None), tmp_path / "prepared", config).description
    assert (description.num_bad_lines, description.num_blank_lines) == (9, 9)
    listed = (tmp_path / "prepared" / "bad-lines.txt").read_text().splitlines()
    assert len(listed) == 9 and listed[0].startswith(f"{train}:61: ")
    assert description.num_examples + description.num_validation_examples == 60


def test_a_complete_folder_is_kept_and_another_is_refused(tmp_path: Path) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    prepare(files, tmp_path / "prepared", config)
    written = (tmp_path / "prepared" / "examples.arrow").stat().st_mtime_ns
    assert [event.vocabularies for event in prepare_data(files, tmp_path / "prepared", config)] == [None]  # type: ignore[union-attr]
    assert (tmp_path / "prepared" / "examples.arrow").stat().st_mtime_ns == written
    with pytest.raises(RunError, match="from other files or settings"):
        list(prepare_data(files, tmp_path / "prepared", make_config(TAGGED)))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("notes")
    with pytest.raises(RunError, match="holds other files"):
        list(prepare_data(files, tmp_path / "mine", config))


@pytest.mark.parametrize("name", ["validation.jsonl", "bad-lines.txt", "examples.arrow"])
def test_a_file_of_the_user_is_kept_also_if_it_is_named_like_one_of_the_folder(name: str, tmp_path: Path) -> None:
    files = TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    with pytest.raises(RunError, match="holds other files"):
        list(prepare_data(files, tmp_path / "mine", make_config({})))
    assert (tmp_path / "mine" / name).read_text() == "mine"


def test_another_version_of_pellucid_reads_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    prepare(files, tmp_path / "prepared", config)
    monkeypatch.setattr(preparation, "__version__", "9.9.9")
    assert [event.vocabularies for event in prepare_data(files, tmp_path / "prepared", config)] == [None]  # type: ignore[union-attr]
    prepare(files, tmp_path / "prepared", config)
    monkeypatch.setattr(unicodedata, "unidata_version", "99.0.0")
    with pytest.raises(RunError, match=r"was prepared with another version of Unicode \(of Python\)"):
        list(prepare_data(files, tmp_path / "prepared", config))


@pytest.mark.parametrize("settings", [{}, TAGGED])
def test_a_folder_that_another_process_has_completed_meanwhile_is_kept(
    settings: Mapping[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    prepare(files, tmp_path / "prepared", config)
    shutil.move(tmp_path / "prepared", tmp_path / "complete")

    @contextmanager
    def _lock(folder: Path, file_names: Sequence[str], activity: str) -> Iterator[FolderLock]:
        """Lock the folder after another process, which was killed before it had removed its parts."""
        shutil.move(tmp_path / "complete", folder)
        (folder / "parts").mkdir()
        (folder / "parts" / "source.ids").write_bytes(bytes(9))
        with lock_run_folder(folder, file_names, activity) as lock:
            yield lock

    monkeypatch.setattr(preparation, "lock_run_folder", _lock)
    events = prepare_data(files, tmp_path / "prepared", make_config(settings))
    if settings:
        with pytest.raises(RunError, match="from other files or settings"):
            list(events)
    else:
        assert [event.vocabularies for event in events] == [None]  # type: ignore[union-attr]
    assert not (tmp_path / "prepared" / "parts").exists()
    prepare(files, tmp_path / "prepared", config)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("stage", ["counted", "encoded"])
def test_a_preparation_that_has_begun_at_the_same_path_is_left_alone(stage: str, tmp_path: Path) -> None:
    """Regression test: a preparation whose folder was moved took the ids of another one that had begun at its path,
    removed its parts, and ended with success."""
    config, folder = make_config({}), tmp_path / "out"
    one = TrainingFiles(write_pairs(tmp_path / "one.tsv"), None)
    (tmp_path / "other.tsv").write_text(one.train.read_text("utf-8").replace("w", "v"))
    other = TrainingFiles(tmp_path / "other.tsv", None)

    def begin(files: TrainingFiles) -> Iterator[PreparationProgress | DataPrepared]:
        events = prepare_data(files, folder, config)
        reached = (event for event in events if isinstance(event, PreparationProgress) and event.stage == stage)
        assert all(next(reached).num_examples <= 60 for _ in range(9))  # all blocks of seven examples
        return events

    events = begin(one)
    folder.rename(tmp_path / "moved")
    others = begin(other)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(
        RunError, match="out was removed, moved or replaced during preparation; nothing more is written"
    ):
        list(events)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert isinstance(list(others)[-1], DataPrepared)
    resolved = msgspec.structs.replace(config, data=resolve_auto_settings(other, config.data))
    assert "v" in read_prepared(folder, resolved).corpus.vocabularies.source.symbols


def test_parts_that_a_killed_preparation_has_left_are_removed(tmp_path: Path) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    prepare(files, tmp_path / "prepared", config)
    (tmp_path / "prepared" / "parts").mkdir()
    (tmp_path / "prepared" / "parts" / "source.ids").write_bytes(bytes(9))
    prepare(files, tmp_path / "prepared", config)
    assert not (tmp_path / "prepared" / "parts").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse the name")
def test_file_names_that_are_not_utf8_are_accepted(tmp_path: Path) -> None:
    """Regression test: the description could not be written, after two readings of the file."""
    train = write_pairs(tmp_path / os.fsdecode(b"caf\xe9.tsv"))
    train.write_text(train.read_text() + "bad\n")
    config = make_config({"data": {"on_bad_line": "skip"}})
    *_, last = prepare_data(TrainingFiles(train, None), tmp_path / "prepared", config)
    assert isinstance(last, DataPrepared)
    assert last.description.train.path.endswith("/caf\ufffd.tsv") and "/caf\ufffd.tsv:61: " in last.bad_lines[0]
    assert read_description(tmp_path / "prepared") == last.description


def test_a_first_line_that_may_be_a_header_is_reported(tmp_path: Path) -> None:
    train = write_pairs(tmp_path / "train.tsv")
    train.write_text("word\tW\tN\n" + train.read_text())
    *_, last = prepare_data(TrainingFiles(train, None), tmp_path / "prepared", make_config({}))
    assert isinstance(last, DataPrepared)
    assert "the first line may be a header" in last.note and "the file has 3 columns" in last.note


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"task": "point"}, ConfigError, "task = 'point' cannot be prepared: .*; train on the file of pairs"),
        ({"data": {"group_column": "3"}}, ConfigError, "data.group_column .* is not possible with prepare"),
        ({"data": {"context_words": 1}}, ConfigError, "data.context_words .* holds out sentences of a text"),
    ],
)
def test_settings_that_cannot_be_prepared(
    settings: Mapping[str, object], kind: type[InputError], message: str, tmp_path: Path
) -> None:
    files = TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    with pytest.raises(kind, match=message):
        list(prepare_data(files, tmp_path / "prepared", make_config(settings)))


def test_a_file_that_is_missing_or_changes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*missing\.tsv"):
        list(prepare_data(TrainingFiles(tmp_path / "missing.tsv", None), tmp_path / "prepared", make_config({})))
    train = write_pairs(tmp_path / "train.tsv")
    events = prepare_data(TrainingFiles(train, None), tmp_path / "prepared", make_config({}))
    next(events)
    write_pairs(train, 70)
    with pytest.raises(DataError, match="changed while it was read: run the command again"):
        list(events)
    prepare(TrainingFiles(train, None), tmp_path / "prepared", make_config({}))


def _truncate(folder: Path) -> None:
    path = folder / "examples.arrow"
    path.write_bytes(path.read_bytes()[:-40])


def _change_id(folder: Path) -> None:
    path = folder / "examples.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _change_count(folder: Path) -> None:
    path = folder / "prepared.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "num_examples": 5}))


def _remove_validation_line(folder: Path) -> None:
    path = folder / "validation.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


def _change_validation_line(folder: Path) -> None:
    path = folder / "validation.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"target":"W', b'"target":"V', 1))


def _add_key(folder: Path) -> None:
    path = folder / "prepared.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "code": "x"}))


def _newer_format(folder: Path) -> None:
    path = folder / "prepared.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))


def _earlier_format(folder: Path) -> None:
    path = folder / "prepared.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))


def _remove_examples(folder: Path) -> None:
    (folder / "examples.arrow").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        *(_truncate, _change_id, _remove_examples, _change_count, _add_key, _newer_format, _earlier_format),
        *(_remove_validation_line, _change_validation_line),
    ],
)
def test_a_damaged_folder_is_refused_with_an_advice_that_helps(damage: Callable[[Path], None], tmp_path: Path) -> None:
    """Regression test: prepare called the folder complete, so that preparing the data again did not help."""
    config, files, folder = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None), tmp_path / "data"
    prepare(files, folder, config)
    damage(folder)
    advice = "format 2" if damage is _newer_format else f"remove {folder}, and prepare the data again"
    with pytest.raises(InputError, match=advice):
        list(prepare_data(files, folder, config))
    with pytest.raises(InputError, match=advice):
        pellucid.train(folder, None, tmp_path / "run", {"size": "tiny"}, progress=False)
    shutil.rmtree(folder)
    prepare(files, folder, config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": {"min_count": 3}}, r"data.min_count = 1, got 3"),
        ({"task": "classify"}, r"task = 'transduce', got 'classify'"),
        ({"training": {"augmentation": "copy"}, "data": {"features_column": "3"}}, r"data.features_column = ''"),
        ({"decoder": {"pointer_generator": True}}, "needs the texts of the pairs"),
    ],
)
def test_settings_that_prepared_data_contradicts(settings: Mapping[str, object], message: str, tmp_path: Path) -> None:
    prepare(TrainingFiles(write_pairs(tmp_path / "train.tsv"), None), tmp_path / "prepared", make_config({}))
    with pytest.raises(ConfigError, match=message):
        pellucid.train(tmp_path / "prepared", None, tmp_path / "run", {"size": "tiny", **settings}, progress=False)
    with pytest.raises(ConfigError, match="give no valid, train_target"):
        pellucid.train(
            tmp_path / "prepared", tmp_path / "train.tsv", tmp_path / "run", {"size": "tiny"}, progress=False
        )


def test_paths() -> None:
    assert not prepared_data.is_prepared([("a", "b")])


@pytest.mark.usefixtures("small_blocks")
def test_an_interrupted_preparation_counts_again_if_its_validation_file_changed(tmp_path: Path) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    expected = prepare(files, tmp_path / "expected", config).validation_examples
    for event in prepare_data(files, tmp_path / "prepared", config):
        if isinstance(event, PreparationProgress) and event.stage == "encoded":
            break
    _remove_validation_line(tmp_path / "prepared")
    assert prepare(files, tmp_path / "prepared", config).validation_examples == expected


def test_a_failed_preparation_leaves_no_folder(tmp_path: Path) -> None:
    for content in ("", "a\tb\n", "a\tb\nbad line\n"):
        (tmp_path / "train.tsv").write_text(content)
        config = make_config({"data": {"on_bad_line": "skip"}})
        with pytest.raises(DataError):
            list(prepare_data(TrainingFiles(tmp_path / "train.tsv", None), tmp_path / "prepared", config))
        assert not (tmp_path / "prepared").exists()


def test_a_folder_and_standard_input_are_no_files_of_pairs(tmp_path: Path) -> None:
    config = make_config({})
    prepare(TrainingFiles(write_pairs(tmp_path / "train.tsv"), None), tmp_path / "prepared", config)
    for path, message in (
        (Path("-"), "standard input cannot be prepared: files are read twice, so write it to a file first"),
        (tmp_path, "is a folder: give a file of pairs"),
        (tmp_path / "prepared", "is prepared data already: pellucid train .* trains on it"),
    ):
        with pytest.raises(DataError, match=message):
            list(prepare_data(TrainingFiles(path, None), tmp_path / "other", config))


@pytest.mark.parametrize("name", ["parts", "parts/source.ids", "parts/target.offsets", "validation.jsonl", ".lock"])
def test_nothing_is_written_through_a_link_of_another_person(name: str, tmp_path: Path) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    folder, target = tmp_path / "prepared", tmp_path / "mine"
    (folder / name).parent.mkdir(parents=True)
    notes = target / "counted.json" if name == "parts" else target
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("my notes\n")
    (folder / name).symlink_to(target)
    with pytest.raises(RunError, match=Path(name).name):
        list(prepare_data(files, folder, config))
    assert notes.read_text() == "my notes\n"
    assert {path.name for path in folder.iterdir()} <= {name.partition("/")[0], ".lock"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX systems only")
def test_a_pipe_in_place_of_the_validation_file_is_refused(tmp_path: Path) -> None:
    config, files = make_config({}), TrainingFiles(write_pairs(tmp_path / "train.tsv"), None)
    prepare(files, tmp_path / "prepared", config)
    path = tmp_path / "prepared" / "validation.jsonl"
    path.unlink()
    with pytest.raises(DataError, match=r"cannot read .*validation\.jsonl: no such file"):
        prepare(files, tmp_path / "prepared", config)
    os.mkfifo(path)
    with pytest.raises(DataError, match=r"validation\.jsonl is a named pipe, not a regular file"):
        prepare(files, tmp_path / "prepared", config)


@pytest.mark.usefixtures("small_blocks")
def test_spellings_of_one_source_are_held_out_together(tmp_path: Path) -> None:
    """Regression test: the decomposed spelling of a held-out source was trained on."""
    config, train = make_config({}), tmp_path / "train.tsv"
    words = [f"w{n}é" for n in range(40)]
    lines = [f"{unicodedata.normalize(form, word)}\t{word}\n" for form in ("NFC", "NFD") for word in words]
    train.write_text("".join(lines), encoding="utf-8")
    prepared = prepare(TrainingFiles(train, None), tmp_path / "prepared", config)
    assert prepared.corpus.encoded.source.num_sequences == 72 and len(prepared.validation_examples) == 8
    assert len({example.target for example in prepared.validation_examples}) == 4
    (valid := tmp_path / "valid.tsv").write_text("w0e\u0301\tw0é\nother\tx\n", encoding="utf-8")
    shared = prepare(TrainingFiles(train, valid), tmp_path / "with-file", config)
    assert shared.description.num_shared == 1
