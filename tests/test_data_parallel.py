"""Data-parallel training, with processes as torchrun starts them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import distributed
from trained_runs import assert_runs_identical, make_copy_examples, make_small_config, write_copy_files

from pellucid.config.toml import build_config
from pellucid.data.batches import Batch, collate
from pellucid.data.characters import WordCharacters
from pellucid.data.vocabulary import PAD
from pellucid.errors import ConfigError, RunError, WorkerLostError
from pellucid.launched_workers import launched_workers, refuse_launched_workers, worker_rank
from pellucid.tasks.registry import build_network
from pellucid.training.data_parallel import check_data_parallel
from pellucid.training.gradients import GradientComputer
from pellucid.training.optimizer import build_optimizer
from pellucid.training.parameter_updates import ParameterUpdater, update_random_numbers
from pellucid.training.training_data import encode_texts
from pellucid.training.worker_group import (
    Message,
    UpdateRequest,
    WeightedGradients,
    WorkerGroup,
    connected_workers,
)

SECONDS = 240.0
"""Time limit of a training in processes of its own."""


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def start_workers(
    folder: Path, arguments: Sequence[str], size: int = 2, extra: Mapping[str, str] | None = None
) -> list[subprocess.Popen[str]]:
    """Start `pellucid train` in several processes, with the environment that torchrun gives them."""
    launch = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "pellucid", "train", "train.tsv", "--valid", "dev.tsv", *arguments],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **launch, **(extra or {}), "RANK": str(r), "LOCAL_RANK": str(r)},
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        for r in range(size)
    ]


def finish(workers: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Return exit code and standard error of each worker after its end."""
    outcomes = []
    for worker in workers:
        _, errors = worker.communicate(timeout=SECONDS)
        outcomes.append((worker.returncode, errors))
    return outcomes


def train_to_end_in_processes(folder: Path, arguments: Sequence[str], size: int) -> None:
    """Train in several processes, or in one without the environment of torchrun, to the end."""
    for code, errors in finish(start_workers(folder, arguments, size)):
        assert code == 0, errors


SMALL = ["--size", "tiny", "--no-pair-ngram", "--epochs", "2", "--batch-size", "15"]


def network_difference(first: Path, second: Path) -> float:
    """Return the largest difference of a parameter in two checkpoints."""
    ours, theirs = load_file(first / "training.safetensors"), load_file(second / "training.safetensors")
    names = [name for name in ours if name.startswith("network.")]
    assert names
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in names)


def test_two_and_three_workers_train_as_one_process(tmp_path: Path) -> None:
    """The batches of 15 and 10 pairs have parts of unequal numbers of target positions."""
    write_copy_files(tmp_path)
    arguments = [*SMALL, "--dropout", "0"]
    for size in (1, 2, 3):
        train_to_end_in_processes(tmp_path, [*arguments, "--run", f"run-{size}"], size)
    # Adam divides gradients near zero by their size, so that rounding changes them by more than 1e-6: by less than 1e-5
    # on one processor and by 1.5e-5 on another. An update changes a parameter by up to the learning rate, 5e-3.
    assert network_difference(tmp_path / "run-1", tmp_path / "run-2") < 5e-5
    assert network_difference(tmp_path / "run-1", tmp_path / "run-3") < 5e-5
    log = (tmp_path / "run-3" / "log.jsonl").read_text("utf-8")
    assert '"workers":3' in log.replace(" ", "")


@pytest.mark.slow
def test_a_killed_worker_ends_all_and_the_same_command_continues_with_the_same_bits(tmp_path: Path) -> None:
    write_copy_files(tmp_path)
    arguments = [*SMALL, "--dropout", "0.3", "--epochs", "150", "--eval-interval", "2", "--patience", "0"]
    arguments += ["--training.perfect-patience", "0"]
    train_to_end_in_processes(tmp_path, [*arguments, "--run", "whole"], 2)
    for victim, name in ((1, "first"), (0, "second")):
        workers = start_workers(tmp_path, [*arguments, "--run", name])
        checkpoint = tmp_path / name / "training.safetensors"
        deadline = time.monotonic() + SECONDS
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        workers[victim].send_signal(signal.SIGKILL)
        outcomes = finish(workers)
        assert outcomes[victim][0] == -signal.SIGKILL
        code, errors = outcomes[1 - victim]
        assert code == 2, errors
        assert "another worker of this training has ended or cannot be reached" in errors
        assert "Traceback" not in errors
        train_to_end_in_processes(tmp_path, [*arguments, "--run", name], 2)
        assert_runs_identical(tmp_path / name, tmp_path / "whole")


@pytest.mark.slow
def test_a_mistake_is_reported_by_worker_0_and_ends_the_others(tmp_path: Path) -> None:
    write_copy_files(tmp_path)
    arguments = [*SMALL, "--run", "run", "--decoder.pointer-generator"]
    (first, errors), (second, other_errors) = finish(start_workers(tmp_path, arguments))
    assert (first, second) == (2, 0)
    assert "decoder.pointer_generator is not supported with several workers" in errors
    assert not other_errors


def test_part_of_a_batch_has_no_padding_and_all_rows_once() -> None:
    source = torch.tensor([[5, 0, 0], [6, 7, 0], [8, 9, 10]])
    target = torch.tensor([[5, 2, 0, 0], [6, 7, 2, 0], [8, 9, 10, 2]])
    batch = Batch(source, torch.tensor([1, 2, 3]), target, torch.tensor([2, 3, 4]))
    first, second = batch.shard(0, 2), batch.shard(1, 2)
    assert first is not None and second is not None
    assert first.source.tolist() == [[5, 0, 0], [8, 9, 10]]
    assert second.source.tolist() == [[6, 7]] and second.target.tolist() == [[6, 7, 2]]
    assert batch.shard(3, 4) is None


@pytest.fixture
def single_worker(tmp_path: Path) -> Iterator[WorkerGroup]:
    """Return the group of a single process."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield WorkerGroup(distributed.new_group())
    distributed.destroy_process_group()


@pytest.mark.parametrize("size", [2, 3, 16])
def test_weighted_gradients_of_the_parts_are_those_of_the_batch(
    size: int, single_worker: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers with 32 rows each compute the gradients of one with 64, to 1e-6; so do three and sixteen."""
    config = make_small_config()
    examples = make_copy_examples(64, seed=1)
    vocabularies, encoded = encode_texts(examples, config)
    network = build_network(config, vocabularies)
    computer, batch = GradientComputer(network, config), collate(encoded, np.arange(64))
    whole = computer.compute(batch)
    assert max(float(gradient.abs().max()) for gradient in whole.gradients if gradient is not None) > 0.01
    parts = [part for rank in range(size) if (part := batch.shard(rank, size)) is not None]
    counts = [int((part.target != PAD).sum()) for part in parts]
    assert len(set(counts)) > 1, "expected parts of unequal weight"
    sent = list[torch.Tensor]()  # by each worker; the group of one process takes the place of all
    monkeypatch.setattr(distributed, "all_reduce", lambda total, **_: sent.append(total.clone()))
    for part, count in zip(parts, counts, strict=True):
        single_worker.sum_gradients(WeightedGradients(*computer.compute(part), count), computer.parameters)
    monkeypatch.setattr(distributed, "all_reduce", lambda total, **_: total.copy_(torch.stack(sent).sum(0)))
    summed = single_worker.sum_gradients(None, computer.parameters)
    torch.testing.assert_close(summed.loss, whole.loss.detach(), rtol=0, atol=1e-6)
    for gradient, expected in zip(summed.gradients, whole.gradients, strict=True):
        assert gradient is not None and expected is not None
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-6)


def test_a_part_without_target_positions_is_left_out() -> None:
    """A target may hold only labels that training never saw."""
    zeros = torch.zeros(1, 1, dtype=torch.int64)
    assert Batch(zeros + 5, torch.ones(1, dtype=torch.int64), zeros, torch.ones(1)).shard(0, 1) is None


def test_characters_of_a_part_are_those_of_its_words() -> None:
    ids = torch.tensor([[1, 2, 0], [1, 5, 2], [1, 6, 2]])
    characters = WordCharacters(ids, torch.tensor([2, 3, 3]), torch.tensor([[0, 1], [2, 2]]))
    two, target = torch.tensor([2, 2]), torch.tensor([[4, 2], [4, 2]])
    batch = Batch(torch.tensor([[4, 5], [6, 6]]), two, target, two, characters)
    again = Batch.from_named_tensors(batch.named_tensors())
    assert again.characters is not None
    part = again.shard(1, 2)
    assert part is not None and part.characters is not None
    assert part.characters.ids.tolist() == [[1, 6, 2]] and part.characters.word_rows.tolist() == [[0, 0]]


def test_sums_keep_absent_gradients_and_messages_keep_numbers(single_worker: WorkerGroup) -> None:
    parameters = [torch.zeros(2, 3), torch.zeros(4)]
    part = WeightedGradients(torch.tensor(2.0), [torch.ones(2, 3), None], 7)
    summed = single_worker.sum_gradients(part, parameters)
    assert summed.gradients[1] is None and float(summed.loss) == 2.0 and summed.num_positions == 7
    assert summed.gradients[0] is not None and torch.equal(summed.gradients[0], torch.ones(2, 3))
    single_worker.send(Message(UpdateRequest(3, 0.1, 0.0), {"x": torch.arange(3)}))
    single_worker.check_equal({"x": torch.arange(3)})


def make_updater(workers: WorkerGroup) -> tuple[ParameterUpdater, Batch]:
    """Return the updater of a small network, and a batch for it."""
    config = make_small_config()
    vocabularies, encoded = encode_texts(make_copy_examples(8, seed=1), config)
    network = build_network(config, vocabularies)
    optimizer = build_optimizer(network, config.training)
    updater = ParameterUpdater(GradientComputer(network, config), optimizer, config, workers)
    return updater, collate(encoded, np.arange(8))


def test_worker_0_takes_part_in_the_sum_of_an_update_in_which_it_fails(
    single_worker: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: the others waited for the sum, on Ray for twelve hours; now they receive the end."""
    updater, batch = make_updater(single_worker)
    sums, sum_gradients = list[WeightedGradients | None](), single_worker.sum_gradients

    def _fail(*_: object) -> None:
        """Fail like an allocation."""
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.")

    def _sum(part: WeightedGradients | None, parameters: Sequence[torch.Tensor]) -> WeightedGradients:
        """Sum gradients, and record the part of this worker."""
        sums.append(part)
        return sum_gradients(part, parameters)

    monkeypatch.setattr(updater.gradient_computer, "compute", _fail)
    monkeypatch.setattr(single_worker, "sum_gradients", _sum)
    with pytest.raises(RuntimeError, match="not enough memory"):
        updater.update(batch, UpdateRequest(0, 0.1, 0.0))
    assert sums == [None] and not single_worker.is_updating


def test_an_optimizer_draws_the_same_random_numbers_in_each_worker(
    single_worker: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    updater, batch = make_updater(single_worker)
    drawn = list[list[float]]()

    def _draw(*_: object) -> float:
        """Draw like an optimizer that rounds stochastically."""
        drawn.append(torch.rand(3).tolist())
        return 1.0

    monkeypatch.setattr(updater.optimizer, "update", _draw)
    for rank in (0, 1):
        monkeypatch.setattr(single_worker, "rank", rank)
        with update_random_numbers(updater.config.seed, 7, rank, torch.device("cpu")):
            torch.rand(rank)  # parts draw different numbers of masks
            updater.update_with_others(batch, UpdateRequest(7, 0.1, 0.0))
    assert drawn[0] == drawn[1]


def test_errors_of_the_connection_and_of_memory_are_told_apart(
    single_worker: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: not enough memory"

    def _fail(*_: object, **__: object) -> None:
        """Fail with the message."""
        raise RuntimeError(message)

    for name in ("broadcast", "new_group"):
        monkeypatch.setattr(distributed, name, _fail)
    with pytest.raises(RuntimeError, match="not enough memory"):
        single_worker.receive()
    message = "Connection closed by peer"
    with pytest.raises(WorkerLostError, match="another worker of this training has ended or cannot be reached"):
        single_worker.receive()
    monkeypatch.setattr(distributed, "get_world_size", lambda *_: 2)
    with pytest.raises(WorkerLostError, match="another worker of this training has ended"), connected_workers():
        pass


@pytest.mark.parametrize(
    ("size", "message"), [(2, "^worker 1 has other parameters than worker 0"), (3, "^workers 1, 2 have other")]
)
def test_other_parameters_are_reported_with_the_workers_that_have_them(
    size: int, message: str, single_worker: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _gather(digests: list[torch.Tensor], *_: object) -> None:
        """Fill in a digest of worker 0, and another one of the others."""
        for rank, digest in enumerate(digests):
            digest.fill_(min(rank, 1))

    monkeypatch.setattr(distributed, "all_gather", _gather)
    monkeypatch.setattr(single_worker, "size", size)
    with pytest.raises(RunError, match=message):
        single_worker.check_equal({"x": torch.arange(3)})


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"training": {"sampled_softmax": 8}}, r"training\.sampled_softmax"),
        ({"decoder": {"pointer_generator": True}}, r"decoder\.pointer_generator"),
    ],
)
def test_settings_that_several_workers_cannot_train_are_refused(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} is not supported with several workers: switch it off"):
        check_data_parallel(build_config(settings, "test"))


def test_the_environment_of_torchrun_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (launched_workers(), worker_rank()) == (1, 0)
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    assert (launched_workers(), worker_rank()) == (3, 1)
    with pytest.raises(ConfigError, match="this command starts processes of its own, and torchrun has started 3"):
        refuse_launched_workers()
    monkeypatch.setenv("WORLD_SIZE", "three")
    with pytest.raises(ConfigError, match="WORLD_SIZE: expected a whole number, as torchrun sets it, got 'three'"):
        launched_workers()


def test_a_number_of_workers_that_torchrun_has_not_started_is_refused(tmp_path: Path) -> None:
    launched = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    command = [sys.executable, "-m", "pellucid", "train", "train.tsv", "--run", "run", "--workers", "4"]
    result = subprocess.run(command, cwd=tmp_path, env={**os.environ, **launched}, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert "--workers is 4, and torchrun has started 2 processes: leave out --workers" in result.stderr
