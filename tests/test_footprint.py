"""Memory of a network: it is computed before the network is built, and refused if it exceeds the available memory."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import run_pellucid, usage_error_message
from hypothesis import given
from small_networks import VOCABULARY_SIZE, configs, few_examples, make_config, make_vocabularies
from trained_runs import copy_run_folder, copy_task_run, train_to_end, training_flags

from pellucid.config.settings import Config
from pellucid.errors import ConfigError
from pellucid.model import footprint
from pellucid.model.footprint import (
    address_space,
    available_memory,
    check_memory,
    loading_memory,
    min_training_memory,
    network_memory,
)
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_meta_network, build_network

CPU = torch.device("cpu")
KINDS = ("learned", "one-hot")


def error_message(config: Config) -> str:
    with pytest.raises(ConfigError) as caught:
        check_memory(config, build_meta_network(config, make_vocabularies()), "train", CPU)
    return str(caught.value)


@few_examples
@given(configs())
def test_a_meta_network_has_names_and_shapes_only(config: Config) -> None:
    meta, real = build_meta_network(config, make_vocabularies()), build_network(config, make_vocabularies())
    for one, other in (
        (meta.named_parameters(), real.named_parameters()),
        (meta.named_buffers(), real.named_buffers()),
    ):
        tensors = dict(one)
        assert all(tensor.is_meta for tensor in tensors.values())
        assert {n: (t.shape, t.dtype) for n, t in tensors.items()} == {n: (t.shape, t.dtype) for n, t in other}
    assert network_memory(meta) == network_memory(real) > 0


@pytest.mark.parametrize(
    ("training", "cpu", "cuda"),
    [
        ({}, 11, 5),
        ({"weight_averaging": "ema"}, 14, 6),
        ({"weight_averaging": "last", "averaged_checkpoints": 3}, 20, 8),
    ],
)
def test_training_memory_counts_gradients_moments_averages_and_a_checkpoint(
    training: dict[str, Any], cpu: int, cuda: int
) -> None:
    config = make_config({"training": training})
    network = build_meta_network(config, make_vocabularies())
    assert min_training_memory(config, network, CPU) == cpu * network_memory(network)
    assert min_training_memory(config, network, torch.device("cuda")) == cuda * network_memory(network)
    assert loading_memory(network, CPU) == 3 * network_memory(network)
    assert loading_memory(network, torch.device("cuda")) == network_memory(network)


def test_frozen_vectors_count_once() -> None:
    learned, fixed = (
        make_config({"encoder": {"embedding": kind, "embedding_size": VOCABULARY_SIZE}}) for kind in KINDS
    )
    size = 4 * VOCABULARY_SIZE * VOCABULARY_SIZE
    networks = [build_meta_network(config, make_vocabularies()) for config in (learned, fixed)]
    assert network_memory(networks[0]) == network_memory(networks[1])
    assert min_training_memory(learned, networks[0], CPU) - min_training_memory(fixed, networks[1], CPU) == 10 * size


def test_the_error_names_settings_required_and_available_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "available_memory", lambda device: 3 * 2**30)
    sizes = {"encoder": {"hidden_size": 2**14}, "decoder": {"num_layers": 2}}
    message = error_message(make_config(sizes))
    network = build_meta_network(make_config(sizes), make_vocabularies())
    required = f"{min_training_memory(make_config(sizes), network, CPU) / 2**30:,.1f}"
    assert "GiB of memory to train, but 3.0 GiB are available: lower encoder.hidden_size (now 16384) or " in message
    assert (
        message.endswith("decoder.num_layers (now 2)")
        and f"needs at least {required} GiB" in message
        and "\n" not in message
    )
    monkeypatch.setattr(footprint, "available_memory", lambda device: 0)
    assert error_message(make_config({"size": "base"})).endswith("lower size or the number of symbols")


def test_available_memory_is_that_of_machine_or_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < available_memory(CPU) < 2**50
    limit, meminfo = tmp_path / "memory.max", tmp_path / "meminfo"
    monkeypatch.setattr(footprint, "CGROUP_LIMIT", limit)
    monkeypatch.setattr(footprint, "MEMINFO", meminfo)
    assert available_memory(CPU) > 2**20, "only Linux has these files"
    meminfo.write_text("MemTotal:  9999 kB\nMemAvailable:  512 kB\n")
    assert available_memory(CPU) == 512 * 1024
    limit.write_text("max\n")
    assert available_memory(CPU) == 512 * 1024
    limit.write_text("4096\n")
    assert available_memory(CPU) == 4096


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("--encoder.hidden-size", 2**20), "lower encoder.hidden_size (now 1048576)"),
        (("--encoder.num-layers", 100_000), "encoder.num_layers: expected a whole number of at most 100, got 100000"),
        (("--decoder.num-layers", 101), "decoder.num_layers: expected a whole number of at most 100, got 101"),
        (("--training.weight-averaging", "last", "--training.averaged-checkpoints", 1024,
          "--encoder.hidden-size", 2**14),
         "lower encoder.hidden_size (now 16384) or training.averaged_checkpoints (now 1024)"),
        (("--encoder.convolutions", *[1] * 33), "encoder.convolutions: expected at most 32 widths, got 33"),
    ],
)  # fmt: skip
def test_the_command_line_refuses_a_large_network(tmp_path: Path, setting: tuple[object, ...], message: str) -> None:
    files, _, config = copy_task_run()
    arguments = (
        "train",
        files.train,
        "--valid",
        files.valid,
        "--run",
        tmp_path / "run",
        *training_flags(config),
        *setting,
    )
    assert message in usage_error_message(run_pellucid(*arguments))
    assert list(tmp_path.iterdir()) == []


def test_a_refused_training_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the run folder nor its new parents remain; an existing folder stays empty."""
    files, _, config = copy_task_run()
    monkeypatch.setattr(footprint, "available_memory", lambda device: 1000)
    (tmp_path / "existing").mkdir()
    for folder in (tmp_path / "a" / "b" / "run", tmp_path / "existing"):
        with pytest.raises(ConfigError, match="to train, but"):
            train_to_end(files, folder, config)
    assert list(tmp_path.rglob("*")) == [tmp_path / "existing"]


def test_a_refused_ensemble_leaves_no_folder(tmp_path: Path) -> None:
    files, _, config = copy_task_run()
    arguments = ("train", files.train, "--valid", files.valid, "--run", tmp_path / "a" / "run", *training_flags(config))
    assert "lower encoder.hidden_size" in usage_error_message(
        run_pellucid(*arguments, "--encoder.hidden-size", 2**20, "--ensemble", 2, "--jobs", 2)
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden_size = 6\n", "hidden_size = 1048577\n", "encoder.hidden_size: expected a whole number of at most"),
        ("layers = 1\n", "layers = 100000\n", "encoder.num_layers: expected a whole number of at most 100, got 100000"),
    ],
)
def test_a_run_with_too_large_sizes_is_not_loaded(tmp_path: Path, old: str, new: str, message: str) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    settings = (run / "config.toml").read_text()
    assert old in settings
    (run / "config.toml").write_text(settings.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        load(run)


def test_a_run_without_enough_memory_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "available_memory", lambda device: 1000)
    with pytest.raises(ConfigError, match="to load, but"):
        load(copy_task_run().run)


def run_with_memory_limit(script: str, gibibytes: int) -> str:
    """Return the standard error of a script in a process with limited address space."""
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({gibibytes} * 2**30,) * 2)\n"
    imports = "import sys\nimport torch\nimport pellucid.training.loop\nimport pellucid.model.device\n"
    result = subprocess.run(
        [sys.executable, "-c", imports + limit + script], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result
    return result.stderr


@pytest.mark.slow
def test_the_address_space_limit_is_respected(tmp_path: Path) -> None:
    assert address_space() > 2**20
    message = run_with_memory_limit("from pellucid.model.device import use_threads\nuse_threads(1024)", 6)
    assert "ConfigError: threads = 1024: their stacks need " in message and "(ulimit -v): lower threads" in message
    files, _, _ = copy_task_run()
    settings = {"size": "tiny", "encoder": {"convolutions": [9], "filters": 2**20}}
    arguments = f"{str(files.train)!r}, {str(files.valid)!r}, {str(tmp_path / 'run')!r}, {settings!r}"
    message = run_with_memory_limit(f"import pellucid\npellucid.train({arguments})", 6)
    assert "GiB of memory to train, but" in message and "lower encoder.filters (now 1048576)" in message
