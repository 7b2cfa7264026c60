"""Checkpoints: bit-for-bit restoration, and errors on checkpoints of other runs."""

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import safetensors.torch
import torch
from small_trainings import build_session
from torch import Tensor
from trained_runs import copy_task_run, make_copy_examples, make_small_config, read_tensors

from pellucid.config.settings import Config
from pellucid.errors import DivergenceError, RunError
from pellucid.run_folder.network_file import encode_network, load_parameters
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.progress import Progress
from pellucid.training.checkpoint import restore_training_state, save_training_state
from pellucid.training.loop import fit
from pellucid.training.training_state import TrainingState

EXAMPLES = make_copy_examples(12, seed=1)


def train_session(config: Config, updates: int = 0) -> TrainingState:
    """Return the training state after this many updates."""
    session = build_session(config, EXAMPLES, make_copy_examples(4, seed=2))
    for event in fit(session):
        if event.progress.update >= updates:
            break
    return session


def optimizer_moments(session: TrainingState) -> list[tuple[str, bytes]]:
    """Return every number of the optimizer, in order."""
    return [(name, value.numpy().tobytes()) for name, value in session.optimizer.state().items()]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_training_state_is_restored_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    config = make_small_config({"epochs": 9, "optimizer": optimizer}, dropout=0.3)
    session, restored = train_session(config, updates=5), train_session(config)
    save_training_state(tmp_path / "a.safetensors", session, "data")
    restore_training_state(tmp_path / "a.safetensors", restored, "data")
    assert restored.progress == session.progress and session.progress.update == 5
    assert optimizer_moments(restored) == optimizer_moments(session) != optimizer_moments(train_session(config))
    save_training_state(tmp_path / "b.safetensors", restored, "data")
    assert read_tensors(tmp_path / "a.safetensors") == read_tensors(tmp_path / "b.safetensors")


def test_saving_before_the_first_update_does_not_change_the_state(tmp_path: Path) -> None:
    session = train_session(make_small_config({"epochs": 9}))
    before = {name: value.clone() for name, value in session.predictor.network.state_dict().items()}
    moments_before = optimizer_moments(session)
    save_training_state(tmp_path / "a.safetensors", session, "data")
    restore_training_state(tmp_path / "a.safetensors", session, "data")
    assert optimizer_moments(session) == moments_before
    for name, value in session.predictor.network.state_dict().items():
        assert torch.equal(value, before[name]), name


TRAINING_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "all passes": {"epochs": 2.4, "eval_interval": 0.7},
    "patience": {"epochs": 9, "patience": 2, "learning_rate": 0.3},
    "plateau": {"epochs": 9, "patience": 5, "lr_schedule": "plateau", "learning_rate": 0.3, "eval_interval": 0.5},
    "tokens": {"epochs": 2, "batch_type": "tokens", "batch_size": 20, "eval_interval": 1.3},
    "several validations in one update": {"epochs": 2, "eval_interval": 0.1},
    "one validation, at the end": {"epochs": 1.5, "eval_interval": 1000.0},
    "one update": {"epochs": 1e-9},
}


@pytest.mark.parametrize("training", TRAINING_SETTINGS.values(), ids=list(TRAINING_SETTINGS))
def test_every_reachable_progress_is_restored(tmp_path: Path, training: Mapping[str, Any]) -> None:
    path, session = tmp_path / "a.safetensors", train_session(make_small_config(training))
    restored = []
    for event in fit(session):
        save_training_state(path, session, "data")
        session.progress = Progress()
        restore_training_state(path, session, "data")
        restored.append(session.progress)
        assert session.progress == event.progress
    assert restored[0] == Progress() and restored[-1].is_finished


def save_with_progress(path: Path, session: TrainingState, **fields: object) -> None:
    """Write a checkpoint whose progress has other values in these fields."""
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    progress = json.dumps({**json.loads(metadata["progress"]), **fields})
    path.write_bytes(safetensors.torch.save(weights, {**metadata, "progress": progress}))


INCONSISTENT_FIELDS: Sequence[tuple[Mapping[str, object], str]] = [
    ({"expected_epochs": 2.5}, r"progress\.expected_epochs: expected 0 without a time limit, got 2\.5"),
    ({"epoch": 9}, r"progress\.epoch: expected at most 8, got 9"),
    ({"batch": 0}, r"progress\.batch: expected a number from 1 to 2, got 0"),
    ({"batch": 3}, r"progress\.batch: expected a number from 1 to 2, got 3"),
    ({"update": 6}, r"progress\.update: expected 5, got 6"),
    ({"epoch": 0}, r"progress\.update: expected 1, got 5"),
    ({"update": 0}, r"progress\.epoch: expected at most 0, got 2"),
    ({"samples": 33}, r"progress\.samples: expected (32|28), got 33"),
    ({"validations": 1}, r"progress\.validations: expected 2, got 1"),
    ({"validations": 3}, r"progress\.validations: expected 2, got 3"),
    (
        {"best_validation_score": None},
        r"progress\.best_validation_score: expected three numbers after a validation, got None",
    ),
    (
        {"best_validation_score": [1e308, -1.0, -1.0]},
        r"progress\.best_validation_score: expected a possible value of training\.metric, .*",
    ),
    (
        {"best_validation_score": [50.0, 1.0, -1.0]},
        r"progress\.best_validation_score: expected a possible value of training\.metric, .*",
    ),
    ({"validations_since_best": 2}, r"progress\.validations_since_best: expected at most 1, got 2"),
    ({"best_update": 0}, r"progress\.best_update: expected a number from 1 to 4, got 0"),
    ({"best_update": 5}, r"progress\.best_update: expected a number from 1 to 4, got 5"),
    ({"plateau_factor": 0.5}, r"progress\.plateau_factor: expected 0\.5 to a power from 0 to 0, got 0\.5"),
    ({"stop_cause": "epochs"}, r"progress\.stop_cause: expected '', got 'epochs'"),
]


@pytest.mark.parametrize(
    ("fields", "message"), INCONSISTENT_FIELDS, ids=[str(fields)[:40] for fields, _ in INCONSISTENT_FIELDS]
)
def test_inconsistent_progress_is_refused(tmp_path: Path, fields: Mapping[str, object], message: str) -> None:
    """The state has five updates, two per epoch, and validations after the second and the fourth."""
    session, path = (
        train_session(make_small_config({"epochs": 9, "patience": 3}), updates=5),
        tmp_path / "a.safetensors",
    )
    assert (session.progress.epoch, session.progress.batch, session.progress.validations) == (2, 1, 2)
    save_with_progress(path, session, **fields)
    with pytest.raises(
        RunError, match=rf"a\.safetensors: {message}; restore the file from a copy of the run, or name another "
    ):
        restore_training_state(path, session, "data")


@pytest.mark.parametrize("cause", ["", "patience", "perfect", "time_limit"])
def test_the_stop_cause_follows_from_the_settings(tmp_path: Path, cause: str) -> None:
    session, path = train_session(make_small_config({"epochs": 2}), updates=99), tmp_path / "a.safetensors"
    assert session.progress.stop_cause == "epochs"
    save_with_progress(path, session, stop_cause=cause)
    with pytest.raises(RunError, match=r"progress\.stop_cause: expected 'epochs', got "):
        restore_training_state(path, session, "data")


@pytest.mark.parametrize("cause", ["the maximum number of epochs is reached", "\x1b[31m" + "x" * 10**6])
def test_an_unknown_stop_cause_is_refused(tmp_path: Path, cause: str) -> None:
    session, path = train_session(make_small_config({"epochs": 2}), updates=99), tmp_path / "a.safetensors"
    save_with_progress(path, session, stop_cause=cause)
    with pytest.raises(RunError, match=r"of this version of Pellucid: progress\.stop_cause: ") as info:
        restore_training_state(path, session, "data")
    assert "\x1b" not in str(info.value) and len(str(info.value)) < 1000


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("square", -1.0, r"square: expected no number below 0, got -1"),
        (
            "mean",
            1e30,
            r"mean: expected numbers within 8 roots of .*\.square, got 1e\+30",
        ),
        ("mean", math.nan, r"mean"),
        ("square", math.inf, r"square"),
    ],
)
def test_unreachable_moments_are_refused(tmp_path: Path, part: str, value: float, message: str) -> None:
    session, path = train_session(make_small_config({"epochs": 9}), updates=2), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    weights[f"optimizer.encoder.table.weight.{part}"].view(-1)[3] = value
    path.write_bytes(safetensors.torch.save(weights, metadata))
    with pytest.raises(RunError, match=rf"a\.safetensors.* optimizer\.encoder\.table\.weight\.{message}"):
        restore_training_state(path, session, "data")


def test_moments_without_a_step_are_refused(tmp_path: Path) -> None:
    session, path = train_session(make_small_config({"epochs": 9}), updates=2), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    weights["optimizer.encoder.table.weight.count"].fill_(0)
    path.write_bytes(safetensors.torch.save(weights, metadata))
    with pytest.raises(RunError, match=r"encoder\.table\.weight\.count: expected at least 1 with these moments, got 0"):
        restore_training_state(path, session, "data")


@pytest.mark.parametrize("update", [1, 2])
def test_divergence_after_restoring_names_the_checkpoint(tmp_path: Path, update: int) -> None:
    """The first event after the checkpoint is an update or a validation."""
    session, path = train_session(make_small_config({"epochs": 9}), updates=update), tmp_path / "a.safetensors"
    for value in session.predictor.network.state_dict().values():
        value.fill_(1e38)
    save_training_state(path, session, "data")
    restore_training_state(path, session, "data")
    message = (
        rf"^training diverged at update {update}, the first after .*a\.safetensors was read: .* file may be damaged"
    )
    with pytest.raises(DivergenceError, match=message):
        list(fit(session))


@pytest.mark.parametrize("name", ["network.encoder.table.weight", "optimizer.encoder.table.weight.mean", ""])
def test_changed_bit_is_detected(tmp_path: Path, name: str) -> None:
    session, path = train_session(make_small_config({"epochs": 9}), updates=2), tmp_path / "a.safetensors"
    if name:
        save_training_state(path, session, "data")
        weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
        weights[name].view(torch.int32).view(-1)[7] ^= 1
        path.write_bytes(safetensors.torch.save(weights, metadata))
    else:
        save_with_progress(path, session, loss_sum=1.5)
    with pytest.raises(RunError, match=r"a\.safetensors is damaged: its content does not match its checksum"):
        restore_training_state(path, session, "data")


def test_the_first_damaged_tensor_by_name_is_reported(tmp_path: Path) -> None:
    network = train_session(make_small_config({"epochs": 9})).predictor.network
    path = tmp_path / "a.safetensors"
    weights = safetensors.torch.load(encode_network(network))
    for value in weights.values():
        value.fill_(math.nan)
    path.write_bytes(safetensors.torch.save(weights))
    with pytest.raises(RunError, match=rf"a\.safetensors holds numbers that are not finite, in {min(weights)}; "):
        load_parameters(path, network)


def test_the_file_is_safetensors_with_readable_metadata(tmp_path: Path) -> None:
    save_training_state(tmp_path / "a.safetensors", train_session(make_small_config({"epochs": 9}), updates=2), "data")
    weights, metadata = read_tensors(tmp_path / "a.safetensors")
    assert json.loads(metadata["progress"])["update"] == 2 and metadata["fingerprint"] == "data"
    assert {name.split(".")[0] for name in weights} == {"network", "optimizer"}
    optimizer_names = {name.removeprefix("optimizer.") for name in weights if name.startswith("optimizer.")}
    network_names = [name for name in weights if name.startswith("network.")]
    assert optimizer_names == {
        f"{n.removeprefix('network.')}.{part}" for n in network_names for part in ("count", "mean", "square")
    }


@pytest.mark.parametrize("score", ["additive", "location"])
def test_parameters_are_restored(tmp_path: Path, score: str) -> None:
    config = make_small_config({"epochs": 9})
    attention = msgspec.structs.replace(config.attention, type=score)
    config = msgspec.structs.replace(config, attention=attention)
    session, restored = train_session(config, 3), train_session(config)
    (tmp_path / "a.safetensors").write_bytes(encode_network(session.predictor.network))
    load_parameters(tmp_path / "a.safetensors", restored.predictor.network)
    for (name, value), restored_value in zip(
        session.predictor.network.state_dict().items(), restored.predictor.network.state_dict().values(), strict=True
    ):
        assert torch.equal(value, restored_value), name


def test_equal_parameters_have_equal_bytes_and_a_changed_bit_is_detected(tmp_path: Path) -> None:
    network, path = train_session(make_small_config({"epochs": 9})).predictor.network, tmp_path / "a.safetensors"
    content = encode_network(network)
    assert all(encode_network(network) == content for _ in range(9))
    assert safetensors.torch.load(content).keys() == network.state_dict().keys()
    damaged = bytearray(content)
    damaged[-4] ^= 1  # the lowest bit of a byte of the last number
    path.write_bytes(damaged)
    with pytest.raises(RunError, match=r"a\.safetensors is damaged: its content does not match its checksum"):
        load_parameters(path, network)
    path.write_bytes(safetensors.torch.save(safetensors.torch.load(content), {"format": "2"}))
    with pytest.raises(RunError, match=r"a\.safetensors has no checksum \(sha256 in its header\): "):
        load_parameters(path, network)


def test_non_finite_states_are_not_saved_and_the_previous_checkpoint_stays(tmp_path: Path) -> None:
    config, path = make_small_config({"epochs": 9}), tmp_path / "a.safetensors"
    session = train_session(config, updates=2)
    save_training_state(path, session, "data")
    before = path.read_bytes()
    with torch.no_grad():
        next(session.predictor.network.parameters())[0, 0] = math.inf
    with pytest.raises(DivergenceError, match=r"^training diverged at update 2: network\..* is not finite; a lower "):
        save_training_state(path, session, "data")
    assert path.read_bytes() == before
    restore_training_state(path, train_session(config), "data")


def test_other_data_is_refused(tmp_path: Path) -> None:
    session = train_session(make_small_config({"epochs": 9}))
    save_training_state(tmp_path / "a.safetensors", session, "data")
    with pytest.raises(
        RunError,
        match=r"a\.safetensors is of a training on other data \(its fingerprint differs\); ",
    ):
        restore_training_state(tmp_path / "a.safetensors", session, "other data")


NESTED = '{"x": ' + "[" * 10**5 + "]" * 10**5 + "}"


@pytest.mark.parametrize(
    "progress",
    [None, "", "{}x", '{"update": "many"}', '{"best_validation_score": [1.0]}', pytest.param(NESTED, id="nested")],
)
def test_a_checkpoint_of_another_version_is_refused_with_its_file_name(tmp_path: Path, progress: str | None) -> None:
    session, path = train_session(make_small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    other_metadata = {name: note for name, note in metadata.items() if name != "progress"}
    path.write_bytes(
        safetensors.torch.save(
            weights, other_metadata if progress is None else {**other_metadata, "progress": progress}
        )
    )
    with pytest.raises(RunError, match=r"a\.safetensors "):
        restore_training_state(path, session, "data")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        *((name, "-1", "expected a whole number of at least 0") for name in ("epoch", "batch", "update", "samples")),
        *(
            (name, "1e300", "expected a whole number")
            for name in ("validations", "best_update", "validations_since_best")
        ),
        ("update", str(2**64), f"expected a whole number of at most {2**53}"),
        ("seconds", "1e300", "expected a number of at most"),
        ("seconds", "-0.5", "expected a number of at least 0"),
        ("plateau_factor", "2", "expected a number of at most 1"),
        ("loss_sum", "1e300", "expected a number of at most"),
        ("loss_sum", "1e999", "number out of range"),
    ],
)
def test_invalid_progress_is_refused_with_its_field(tmp_path: Path, field: str, value: str, expected: str) -> None:
    session, path = train_session(make_small_config({"epochs": 9}), updates=2), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    progress = re.sub(rf'"{field}":[^,}}]+', f'"{field}":{value}', metadata["progress"])
    assert progress != metadata["progress"]
    path.write_bytes(safetensors.torch.save(weights, {**metadata, "progress": progress}))
    with pytest.raises(RunError, match=rf"a\.safetensors.*: progress\.{field}: {expected}"):
        restore_training_state(path, session, "data")


def test_a_progress_that_is_not_json_is_refused(tmp_path: Path) -> None:
    session, path = train_session(make_small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    path.write_bytes(safetensors.torch.save(weights, {**metadata, "progress": '{"seconds":NaN}'}))
    with pytest.raises(RunError, match=r"a\.safetensors is not a checkpoint of this version of Pellucid: progress: "):
        restore_training_state(path, session, "data")


@pytest.mark.parametrize("count", [torch.tensor(-1), torch.tensor(3), torch.tensor(2**62)])
@pytest.mark.parametrize("part", ["optimizer.encoder.table.weight.count", "average.count"])
def test_invalid_count_of_updates_is_refused(tmp_path: Path, part: str, count: Tensor) -> None:
    session = train_session(make_small_config({"epochs": 9, "weight_averaging": "ema"}), updates=2)
    path = tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    assert int(weights[part]) == 2
    path.write_bytes(safetensors.torch.save({**weights, part: count}, metadata))
    with pytest.raises(RunError, match=rf"a\.safetensors: {part}: expected a whole number from 0 to 2, got "):
        restore_training_state(path, session, "data")
    path.write_bytes(safetensors.torch.save({**weights, part: torch.tensor(2.0)}, metadata))
    with pytest.raises(RunError, match=rf"{part} is F32 \[\] there and I64 \[\] here"):
        restore_training_state(path, session, "data")


def test_a_checkpoint_of_another_format_is_refused_with_its_file_name(tmp_path: Path) -> None:
    session, path = train_session(make_small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    path.write_bytes(safetensors.torch.save(weights, {**metadata, "format": "1"}))
    with pytest.raises(RunError, match=r"a\.safetensors is of format 1, and this version of Pellucid reads format 5"):
        restore_training_state(path, session, "data")


@pytest.mark.parametrize("name", ["optimizer.encoder", "network.encoder"])
def test_a_checkpoint_of_other_parameters_is_refused_with_its_file_name(tmp_path: Path, name: str) -> None:
    session, path = train_session(make_small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    weights, (_, metadata) = safetensors.torch.load_file(path), read_tensors(path)
    path.write_bytes(safetensors.torch.save({n: v for n, v in weights.items() if not n.startswith(name)}, metadata))
    with pytest.raises(RunError, match=r"a\.safetensors does not fit the run's configuration"):
        restore_training_state(path, session, "data")


@pytest.mark.parametrize("num_bytes", [0, 1, 7, 100, -1])
def test_a_truncated_file_is_refused_with_its_file_name(tmp_path: Path, num_bytes: int) -> None:
    session, path = train_session(make_small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_training_state(path, session, "data")
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(RunError, match=r"a\.safetensors is not a whole safetensors file"):
        restore_training_state(path, session, "data")
    path.write_bytes(encode_network(session.predictor.network)[:num_bytes])
    with pytest.raises(RunError, match=r"a\.safetensors is not a whole safetensors file"):
        load_parameters(path, session.predictor.network)


def test_a_file_of_another_model_is_refused_with_its_file_name(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    network = train_session(make_small_config({"epochs": 9})).predictor.network
    path.write_bytes(encode_network(network))
    weights = safetensors.torch.load_file(path)
    name = next(iter(weights))
    for damaged in (
        {k: v for k, v in weights.items() if k != name},
        {**weights, name: weights[name][:-1].contiguous()},
    ):
        path.write_bytes(safetensors.torch.save(damaged))
        with pytest.raises(RunError, match=r"a\.safetensors does not fit the run's configuration.*"):
            load_parameters(path, network)


def test_a_missing_file_is_refused_with_its_file_name(tmp_path: Path) -> None:
    network = train_session(make_small_config({"epochs": 9})).predictor.network
    with pytest.raises(RunError, match=r"^cannot read .*none\.safetensors: no such file or directory"):
        load_parameters(tmp_path / "none.safetensors", network)


def test_run_of_an_older_format_is_refused(tmp_path: Path) -> None:
    """The configuration has old setting names, but the error names the format."""
    run = shutil.copytree(copy_task_run().run, tmp_path / "run")
    path = run / "model.safetensors"
    path.write_bytes(safetensors.torch.save(safetensors.torch.load_file(path), {"format": "1"}))
    text = (run / "config.toml").read_text("utf-8")
    assert "bidirectional = true" in text
    (run / "config.toml").write_text(text.replace("bidirectional = true", 'directions = "both"'), "utf-8")
    message = rf"{re.escape(str(path))} is of format 1, and this version of Pellucid reads format 2: train"
    with pytest.raises(RunError, match=message):
        load(run)
