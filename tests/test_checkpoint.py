"""A session to one file and back: bit for bit, and never from a file that does not belong to it."""

import json
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from trained_runs import copies, small_config, tensors

from pellucid.config import Config
from pellucid.data.batches import encode
from pellucid.data.symbols import segmenters
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.errors import RunError
from pellucid.model.network import build_network
from pellucid.search.transducer import Transducer
from pellucid.training.checkpoint import load_network, network_file, restore_session, save_session
from pellucid.training.loop import Progress, Session, build_optimizer, fit

EXAMPLES = copies(12, seed=1)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def new_session(config: Config, updates: int = 0) -> Session:
    """A session after this many events."""
    torch.set_num_threads(1)
    cut = segmenters(config.data)
    vocabularies = learn_vocabularies(EXAMPLES, cut, 1)
    network = build_network(config, vocabularies)
    optimizer = build_optimizer(network, config.training)
    encoded = encode(EXAMPLES, cut, vocabularies)
    session = Session(Transducer(config, vocabularies, network), optimizer, encoded, copies(4, seed=2))
    for event in fit(session):
        if event.progress.update >= updates:
            break
    return session


@cache
def untrained() -> Session:
    """One that many examples of a property share."""
    return new_session(small_config({"epochs": 1}))


def moments(session: Session) -> list[tuple[str, bytes]]:
    """Every number of the optimiser, in order."""
    return [(name, value.numpy().tobytes()) for name, value in session.optimizer.state().items()]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_session_comes_back_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    config = small_config({"epochs": 9, "optimizer": optimizer}, dropout=0.3)
    session, restored = new_session(config, updates=5), new_session(config)
    save_session(tmp_path / "a.safetensors", session, "data")
    restore_session(tmp_path / "a.safetensors", restored, "data")
    assert restored.progress == session.progress and session.progress.update == 5
    assert moments(restored) == moments(session) != moments(new_session(config))
    save_session(tmp_path / "b.safetensors", restored, "data")
    assert tensors(tmp_path / "a.safetensors") == tensors(tmp_path / "b.safetensors")


def test_saving_changes_nothing_and_needs_no_update(tmp_path: Path) -> None:
    session = new_session(small_config({"epochs": 9}))
    before = {name: value.clone() for name, value in session.transducer.network.state_dict().items()}
    moments_before = moments(session)
    save_session(tmp_path / "a.safetensors", session, "data")
    restore_session(tmp_path / "a.safetensors", session, "data")
    assert moments(session) == moments_before
    for name, value in session.transducer.network.state_dict().items():
        assert torch.equal(value, before[name]), name


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        Progress,
        epoch=st.integers(0, 10**6),
        batch=st.integers(0, len(EXAMPLES)),
        update=st.integers(0, 10**9),
        seconds=st.floats(0.0, 1e12),
        loss_sum=st.floats(-1e38, 1e38),
        best=st.none() | st.tuples(NUMBERS, NUMBERS, NUMBERS),
        plateau_factor=st.floats(0.0, 1.0),
        finished=st.text(max_size=20),
    )
)
def test_every_progress_survives_a_file(tmp_path_factory: pytest.TempPathFactory, progress: Progress) -> None:
    path = tmp_path_factory.getbasetemp() / "progress.safetensors"
    session = untrained()
    session.progress = progress
    save_session(path, session, "data")
    session.progress = Progress()
    restore_session(path, session, "data")
    assert session.progress == progress


def test_the_file_is_safetensors_with_readable_notes(tmp_path: Path) -> None:
    save_session(tmp_path / "a.safetensors", new_session(small_config({"epochs": 9}), updates=2), "data")
    held, notes = tensors(tmp_path / "a.safetensors")
    assert json.loads(notes["progress"])["update"] == 2 and notes["fingerprint"] == "data"
    assert {name.split(".")[0] for name in held} == {"network", "optimizer"}
    told = {name.removeprefix("optimizer.") for name in held if name.startswith("optimizer.")}
    trained = [name for name in held if name.startswith("network.")]
    assert told == {f"{n.removeprefix('network.')}.{part}" for n in trained for part in ("count", "mean", "square")}


@pytest.mark.parametrize("score", ["additive", "location"])
def test_parameters_alone_come_back(tmp_path: Path, score: str) -> None:
    config = small_config({"epochs": 9})
    attention = msgspec.structs.replace(config.attention, score=score)
    config = msgspec.structs.replace(config, attention=attention)
    one, other = new_session(config, 3), new_session(config)
    (tmp_path / "a.safetensors").write_bytes(network_file(one.transducer.network))
    load_network(tmp_path / "a.safetensors", other.transducer.network)
    for (name, value), again in zip(
        one.transducer.network.state_dict().items(), other.transducer.network.state_dict().values(), strict=True
    ):
        assert torch.equal(value, again), name


def test_other_data_is_refused(tmp_path: Path) -> None:
    session = new_session(small_config({"epochs": 9}))
    save_session(tmp_path / "a.safetensors", session, "data")
    with pytest.raises(RunError, match=r"was trained on other data; name another run folder"):
        restore_session(tmp_path / "a.safetensors", session, "other data")


@pytest.mark.parametrize("progress", [None, "", "{}x", '{"update": "many"}', '{"best": [1.0]}'])
def test_a_checkpoint_of_another_version_is_refused_by_name(tmp_path: Path, progress: str | None) -> None:
    session, path = new_session(small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_session(path, session, "data")
    held, (_, notes) = safetensors.torch.load_file(path), tensors(path)
    kept = {name: note for name, note in notes.items() if name != "progress"}
    path.write_bytes(safetensors.torch.save(held, kept if progress is None else {**kept, "progress": progress}))
    with pytest.raises(RunError, match=r"a\.safetensors "):
        restore_session(path, session, "data")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        *((name, "-1", "expected a whole number of at least 0") for name in ("epoch", "batch", "update", "samples")),
        *((name, "1e300", "expected a whole number") for name in ("validations", "best_update", "stale")),
        ("update", str(2**64), f"expected a whole number of at most {2**53}"),
        ("batch", "13", "expected at most 12, got 13"),
        ("best_update", "3", "expected at most 2, got 3"),
        ("seconds", "1e300", "expected a number of at most"),
        ("seconds", "-0.5", "expected a number of at least 0"),
        ("plateau_factor", "2", "expected a number of at most 1"),
        ("loss_sum", "1e300", "expected a number of at most"),
        ("loss_sum", "1e999", "number out of range"),
    ],
)
def test_a_progress_that_no_training_comes_to_is_refused_with_its_field(
    tmp_path: Path, field: str, value: str, expected: str
) -> None:
    session, path = new_session(small_config({"epochs": 9}), updates=2), tmp_path / "a.safetensors"
    save_session(path, session, "data")
    held, (_, notes) = safetensors.torch.load_file(path), tensors(path)
    progress = re.sub(rf'"{field}":[^,}}]+', f'"{field}":{value}', notes["progress"])
    assert progress != notes["progress"]
    path.write_bytes(safetensors.torch.save(held, {**notes, "progress": progress}))
    with pytest.raises(RunError, match=rf"a\.safetensors.*: progress\.{field}: {expected}"):
        restore_session(path, session, "data")


def test_a_progress_that_is_not_json_is_refused(tmp_path: Path) -> None:
    session, path = new_session(small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_session(path, session, "data")
    held, (_, notes) = safetensors.torch.load_file(path), tensors(path)
    path.write_bytes(safetensors.torch.save(held, {**notes, "progress": '{"seconds":NaN}'}))
    with pytest.raises(RunError, match=r"a\.safetensors is not a checkpoint of this version of Pellucid: progress: "):
        restore_session(path, session, "data")


@pytest.mark.parametrize("count", [torch.tensor(-1), torch.tensor(3), torch.tensor(2**62)])
@pytest.mark.parametrize("part", ["optimizer.encoder.table.weight.count", "average.count"])
def test_a_count_of_updates_that_no_training_comes_to_is_refused(tmp_path: Path, part: str, count: Tensor) -> None:
    session = new_session(small_config({"epochs": 9, "average": "ema"}), updates=2)
    path = tmp_path / "a.safetensors"
    save_session(path, session, "data")
    held, (_, notes) = safetensors.torch.load_file(path), tensors(path)
    assert int(held[part]) == 2
    path.write_bytes(safetensors.torch.save({**held, part: count}, notes))
    with pytest.raises(RunError, match=rf"a\.safetensors: {part}: expected a whole number from 0 to 2, got "):
        restore_session(path, session, "data")
    path.write_bytes(safetensors.torch.save({**held, part: torch.tensor(2.0)}, notes))
    with pytest.raises(RunError, match=rf"{part} is F32 \[\] there and I64 \[\] here"):
        restore_session(path, session, "data")


def test_a_checkpoint_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    session, path = new_session(small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_session(path, session, "data")
    held, (_, notes) = safetensors.torch.load_file(path), tensors(path)
    path.write_bytes(safetensors.torch.save(held, {**notes, "format": "1"}))
    with pytest.raises(RunError, match=r"a\.safetensors is of format 1, and this version of Pellucid reads format 2$"):
        restore_session(path, session, "data")


@pytest.mark.parametrize("name", ["optimizer.encoder", "network.encoder"])
def test_a_checkpoint_of_other_parameters_is_refused_by_name(tmp_path: Path, name: str) -> None:
    session, path = new_session(small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_session(path, session, "data")
    held, (_, notes) = safetensors.torch.load_file(path), tensors(path)
    path.write_bytes(safetensors.torch.save({n: v for n, v in held.items() if not n.startswith(name)}, notes))
    with pytest.raises(RunError, match=r"a\.safetensors does not fit the run's configuration"):
        restore_session(path, session, "data")


@pytest.mark.parametrize("kept", [0, 1, 7, 100, -1])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, kept: int) -> None:
    session, path = new_session(small_config({"epochs": 9})), tmp_path / "a.safetensors"
    save_session(path, session, "data")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RunError, match=r"a\.safetensors is not a whole safetensors file"):
        restore_session(path, session, "data")
    path.write_bytes(network_file(session.transducer.network)[:kept])
    with pytest.raises(RunError, match=r"a\.safetensors is not a whole safetensors file"):
        load_network(path, session.transducer.network)


def test_a_file_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    network = new_session(small_config({"epochs": 9})).transducer.network
    path.write_bytes(network_file(network))
    held = safetensors.torch.load_file(path)
    name = next(iter(held))
    for spoilt in ({k: v for k, v in held.items() if k != name}, {**held, name: held[name][:-1].contiguous()}):
        path.write_bytes(safetensors.torch.save(spoilt))
        with pytest.raises(RunError, match=r"a\.safetensors does not fit the run's configuration.*"):
            load_network(path, network)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    network = new_session(small_config({"epochs": 9})).transducer.network
    with pytest.raises(RunError, match=r"^cannot read .*none\.safetensors: no such file or directory"):
        load_network(tmp_path / "none.safetensors", network)
