"""The run folder has a snapshot of the model for each validation."""

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import torch
from page_data import make_interrupted_run, resume_training
from sample_traces import write_former_version
from task_cases import task_run
from trained_runs import copy_run_folder, copy_task_run, digits_run, read_tensors, train_to_end

from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import VERSION, encode_json
from pellucid.errors import RunError
from pellucid.model.network import require_encoder_decoder
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load, load_without_warnings
from pellucid.run_folder.run_files import SNAPSHOTS
from pellucid.training import snapshots
from pellucid.training.snapshots import (
    NUM_PROBES,
    SnapshotNumber,
    describe_omitted_snapshots,
    read_snapshots,
    remove_later_snapshots,
    save_snapshot,
    thin_snapshots,
)
from pellucid.viewer.inputs import model_card, open_run


def list_snapshot_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / SNAPSHOTS).iterdir())


def test_each_validation_has_a_snapshot() -> None:
    run = digits_run().run
    validated = [line["update"] for line in read_log(run) if line["event"] == "validated"]
    result = read_snapshots(run)
    assert [each.update for each in result] == validated and len(result) == len(list_snapshot_names(run))
    assert [len(each.traces) for each in result] == [NUM_PROBES] * len(result)
    assert read_snapshots(run, validated[-2])[0].update == validated[-1]


def test_the_best_snapshot_has_the_outputs_and_embeddings_of_the_model() -> None:
    run = digits_run().run
    best = [line["update"] for line in read_log(run) if line["event"] == "validated" and line["best"]][-1]
    (snapshot,) = [each for each in read_snapshots(run) if each.update == best]
    model = load(run)
    for trace, again in zip(snapshot.traces, model.predict([trace.text for trace in snapshot.traces]), strict=True):
        assert (trace.output, trace.target, trace.source) == (again.output, again.target, again.source)
        np.testing.assert_allclose(trace.attention, again.attention, atol=1e-3)
        np.testing.assert_allclose(trace.log_probabilities, again.log_probabilities, atol=1e-5)
    table = require_encoder_decoder(model.network).decoder.table.weight.detach().numpy()
    np.testing.assert_allclose(snapshot.target, table[4:], rtol=1e-3, atol=1e-3)
    assert snapshot.source.shape[0] == len(model.vocabularies.source.symbols)


@pytest.mark.slow
def test_an_interrupted_training_has_the_same_snapshots(tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")
    assert len(list_snapshot_names(folder)) == 2
    save_snapshot(
        folder, load_without_warnings(folder), read_snapshots(folder)[0].traces, SnapshotNumber(99, 99_999)
    )  # beyond the checkpoint
    resume_training(folder)
    assert list_snapshot_names(folder) == list_snapshot_names(digits_run().run)
    for name in list_snapshot_names(folder):
        assert (folder / SNAPSHOTS / name).read_bytes() == (digits_run().run / SNAPSHOTS / name).read_bytes()


def test_snapshots_can_be_disabled_without_other_changes(tmp_path: Path) -> None:
    from msgspec.structs import replace

    trained = copy_task_run()
    config = replace(trained.config, training=replace(trained.config.training, snapshots=False))
    train_to_end(trained.files, tmp_path / "run", config)
    assert not (tmp_path / "run" / SNAPSHOTS).exists() and read_snapshots(tmp_path / "run") == []
    assert (tmp_path / "run" / "vocabulary.json").read_bytes() == (trained.run / "vocabulary.json").read_bytes()
    model, expected = (read_tensors(folder / "model.safetensors")[0] for folder in (tmp_path / "run", trained.run))
    assert model == expected


def create_empty_snapshots(folder: Path, validations: int) -> None:
    """Create empty snapshot files for the given number of validations."""
    (folder / SNAPSHOTS).mkdir(exist_ok=True)
    for number in range(1, validations + 1):
        (folder / SNAPSHOTS / f"{number:06}-{10 * number:08}.safetensors").touch()


@pytest.mark.parametrize("max_snapshots", [4, 5, 200])
def test_long_trainings_keep_few_snapshots(tmp_path: Path, max_snapshots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_SNAPSHOTS", max_snapshots)
    create_empty_snapshots(tmp_path, 0)
    for number in range(1, 60):
        (tmp_path / SNAPSHOTS / f"{number:06}-{10 * number:08}.safetensors").touch()
        thin_snapshots(tmp_path, number)
        assert len(list_snapshot_names(tmp_path)) <= max_snapshots
        assert list_snapshot_names(tmp_path)[-1] == f"{number:06}-{10 * number:08}.safetensors"
    names = list_snapshot_names(tmp_path)
    create_empty_snapshots(tmp_path, 59)
    thin_snapshots(tmp_path, 59)
    assert [name for name in list_snapshot_names(tmp_path) if name in names] == names
    updates = [int(name[:6]) for name in names[:-1]]
    assert len({b - a for a, b in pairwise(updates)}) <= 1


def read_trace_records(run: Path) -> list[dict[str, Any]]:
    """Return the JSON records of the traces in the first snapshot of a run."""
    with safetensors.safe_open(run / SNAPSHOTS / list_snapshot_names(run)[0], "numpy") as content:
        traces: list[dict[str, Any]] = json.loads(content.metadata()["snapshot"])["traces"]
    return traces


def test_a_snapshot_with_traces_of_the_former_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode_former_version(value: object) -> bytes:
        if not isinstance(value, list):
            return encode_json(value)
        return f"[{','.join(write_former_version(encode_json(record).decode()) for record in value)}]".encode()

    folder = copy_run_folder(digits_run().run, tmp_path / "run")
    expected = read_snapshots(folder)[0]
    shutil.rmtree(folder / SNAPSHOTS)
    monkeypatch.setattr(snapshots, "encode_json", encode_former_version)
    save_snapshot(folder, load(folder), expected.traces, SnapshotNumber(1, expected.update))
    assert {record["version"] for record in read_trace_records(folder)} == {3}
    (snapshot,) = read_snapshots(folder)
    assert [trace.to_json() for trace in snapshot.traces] == [trace.to_json() for trace in expected.traces]


def test_a_snapshot_has_traces_in_compact_json() -> None:
    for run in (digits_run().run, task_run("point").run):
        for record, trace in zip(read_trace_records(run), read_snapshots(run)[0].traces, strict=True):
            assert record["version"] == VERSION
            assert record["attention"]["shape"] == [len(record["target"]), len(record["source"])]
            assert Trace.from_json(json.dumps(record)).to_json(compact=True) == trace.to_json(compact=True)
            weights, log_probabilities = trace.attention, trace.log_probabilities.astype(np.float64)
            assert np.array_equal(
                weights, weights.astype(np.float16)
            )  # rounded, so that every process writes the same bytes
            np.testing.assert_allclose(log_probabilities, np.round(log_probabilities, 6), rtol=1e-7, atol=1e-9)


def test_identity_attention_of_tags_is_not_saved() -> None:
    run = task_run("tag").run
    assert all(record["attention"]["shape"] == [0, 0] for record in read_trace_records(run))
    for trace in read_snapshots(run)[0].traces:
        assert np.array_equal(trace.attention, np.eye(len(trace.target)))


def test_snapshots_after_the_checkpoint_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_empty_snapshots(tmp_path, 5)
    listed = list[Path]()
    with monkeypatch.context() as patch:
        iterdir = Path.iterdir

        def record(path: Path) -> Iterator[Path]:
            listed.append(path)
            return iterdir(path)

        patch.setattr(Path, "iterdir", record)
        remove_later_snapshots(tmp_path, SnapshotNumber(5, 30))
    assert len(listed) <= 3, "the folder was listed for every file"
    assert len(list_snapshot_names(tmp_path)) == 3
    remove_later_snapshots(tmp_path, SnapshotNumber(2, 30))
    assert len(list_snapshot_names(tmp_path)) == 2, "a validation that follows another at the same update"
    remove_later_snapshots(tmp_path, SnapshotNumber(0, 0))
    assert list_snapshot_names(tmp_path) == []


def test_a_damaged_snapshot_is_reported(tmp_path: Path) -> None:
    folder = copy_run_folder(digits_run().run, tmp_path / "run")
    path = folder / SNAPSHOTS / list_snapshot_names(folder)[0]
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RunError, match="is not a whole safetensors file"):
        read_snapshots(folder)


@pytest.mark.parametrize("shape", [(3000, 3000), (201, 16), (2, 1 << 20), (5, 17), (16,), (5, 4, 4)])
def test_tables_larger_than_those_of_a_training_are_refused_before_they_are_read(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    folder = copy_run_folder(digits_run().run, tmp_path / "run")
    path = folder / SNAPSHOTS / list_snapshot_names(folder)[0]
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["source"]["shape"] = shape  # the size of the file does not matter: it is refused by its header
    changed = json.dumps(header).encode()
    path.write_bytes(len(changed).to_bytes(8, "little") + changed + content[8 + length :])
    expected = (
        rf"{path.name} is not a snapshot of this run: source has the shape \[.*expected at most \[200, 16\]; remove"
    )
    with pytest.raises(RunError, match=expected):
        read_snapshots(folder)


def test_a_snapshot_with_another_tensor_is_refused(tmp_path: Path) -> None:
    folder = copy_run_folder(digits_run().run, tmp_path / "run")
    path = folder / SNAPSHOTS / list_snapshot_names(folder)[0]
    tensors = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, "numpy") as stored:
        metadata = stored.metadata()
    safetensors.numpy.save_file({**tensors, "other": np.zeros(3, np.float32)}, path, metadata)
    with pytest.raises(RunError, match=r"is not a snapshot: it holds a tensor 'other'; remove"):
        read_snapshots(folder)


def test_snapshots_beyond_a_number_and_a_size_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_run_folder(digits_run().run, tmp_path / "run")
    names = list_snapshot_names(folder)
    assert describe_omitted_snapshots(folder) == []
    for number in range(1000, 1990):
        (folder / SNAPSHOTS / f"{number:06}-{number:08}.safetensors").symlink_to(names[-1])
    result, count = read_snapshots(folder), 990 + len(names)
    assert 200 < len(result) <= 401 and result[-1].update == 1989
    (sentence,) = describe_omitted_snapshots(folder)
    expected = f"{folder / SNAPSHOTS}: {count - len(result)} of {count:,} snapshots left out: they are too many"
    assert sentence == expected
    facts = model_card(open_run(folder, "run", "cpu", None)).facts
    assert ("snapshots", expected) in facts
    monkeypatch.setattr(snapshots, "MAX_TOTAL_SIZE", 10 * (folder / SNAPSHOTS / names[-1]).stat().st_size)
    assert 4 <= len(read_snapshots(folder)) <= 12


def test_embeddings_beyond_float16_are_clipped(tmp_path: Path) -> None:
    model = load(copy_task_run().run)
    with torch.no_grad():
        model.network.encoder.table.weight.fill_(1e30)
    save_snapshot(tmp_path, model, read_snapshots(copy_task_run().run)[0].traces, SnapshotNumber(1, 1))
    (path,) = (tmp_path / SNAPSHOTS).iterdir()
    vectors = safetensors.numpy.load_file(path)["source"]
    assert vectors.size and (vectors == np.finfo(np.float16).max).all()


def test_a_snapshot_does_not_create_a_removed_run_folder(tmp_path: Path) -> None:
    model, traces = load(copy_task_run().run), read_snapshots(copy_task_run().run)[0].traces
    with pytest.raises(RunError, match=r"cannot create .*snapshots: no such file or directory"):
        save_snapshot(tmp_path / "removed", model, traces, SnapshotNumber(1, 1))
    assert not (tmp_path / "removed").exists()
