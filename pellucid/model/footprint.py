"""Memory footprint: the bytes that training or loading a network needs, and those that this process may allocate."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from pellucid.config.settings import Config
from pellucid.config.toml import flatten_config, size_preset
from pellucid.errors import ConfigError
from pellucid.process_limits import process_limit

SIZE_SETTINGS = (
    *("encoder.hidden_size", "encoder.num_layers", "encoder.embedding_size", "encoder.filters"),
    "encoder.character_size",
    *("attention.size", "attention.filters", "attention.filter_radius"),
    *("decoder.hidden_size", "decoder.num_layers", "decoder.embedding_size", "training.averaged_checkpoints"),
)
"""The settings that determine the size of a network and of its copies."""
STATM = Path("/proc/self/statm")
"""Linux: memory of this process in pages, its address space first."""
MEMINFO = Path("/proc/meminfo")
"""Linux: memory of the machine."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Linux: memory limit of a container; `max` for no limit."""


def network_memory(network: nn.Module) -> int:
    """Return the size of a network's parameters and buffers in bytes.

    Args:
        network: The network, or one on the meta device.
    """
    return _bytes(network.parameters()) + _bytes(network.buffers())


def min_training_memory(config: Config, network: nn.Module, device: torch.device) -> int:
    """Return the bytes that training needs at least: 11 P on a CPU, 5 P on a GPU, and more with weight averaging.

    P is the size of the trainable parameters in bytes. The weights, Adam's two moments and the averages are stored, and
    the gradients exist twice during an update. On a CPU a checkpoint is a copy of all that is stored, plus the bytes of
    its file. Weights that are not trained exist once.

    Args:
        config: The configuration.
        network: The network, or one on the meta device.
        device: Device of the network.
    """
    training_config = config.training
    num_copies = (
        3 + {"none": 0, "ema": 1, "last": training_config.averaged_checkpoints}[training_config.weight_averaging]
    )
    checkpoint = 2 * num_copies if device.type == "cpu" else 0
    trained = _bytes(parameter for parameter in network.parameters() if parameter.requires_grad)
    return (num_copies + 1 + checkpoint) * trained + network_memory(network)


def loading_memory(network: nn.Module, device: torch.device) -> int:
    """Return the bytes that loading a checkpoint needs at least: on a CPU also those of the file and its tensors.

    Args:
        network: The network, or one on the meta device.
        device: Device of the network.
    """
    file_bytes = 2 * _bytes(network.parameters()) if device.type == "cpu" else 0
    return file_bytes + network_memory(network)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors, also of those on the meta device."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def available_memory(device: torch.device) -> int:
    """Return the available memory of a device in bytes: on a CPU the least of machine, container and process limit.

    Args:
        device: The device.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    limits = [_system_value("SC_PHYS_PAGES") * _system_value("SC_PAGE_SIZE") or sys.maxsize]
    if MEMINFO.exists():
        lines = (line.split() for line in MEMINFO.read_text("ascii").splitlines())
        limits += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    if CGROUP_LIMIT.exists() and (limit := CGROUP_LIMIT.read_text("ascii").strip()) != "max":
        limits.append(int(limit))
    return min(*limits, address_space())


def address_space() -> int:
    """Return the bytes of address space that this process may plan with; `sys.maxsize` without a limit.

    They are three quarters of the remainder of the limit (`ulimit -v`); the rest is for unplanned allocations. A
    process that reaches this limit within a library often ends without a message.
    """
    limit = process_limit("RLIMIT_AS")
    if limit is None:
        return sys.maxsize
    used = int(STATM.read_text("ascii").split()[0]) * _system_value("SC_PAGE_SIZE") if STATM.exists() else 0
    return max(0, limit - used) * 3 // 4


def _system_value(name: str) -> int:
    """Return a number that the system is configured with; 0 if it does not tell (Windows)."""
    try:
        return max(0, os.sysconf(name))
    except (AttributeError, ValueError, OSError):
        return 0


def check_memory(config: Config, network: nn.Module, purpose: Literal["train", "load"], device: torch.device) -> None:
    """Check that there is enough memory to train or load a network.

    Args:
        config: The configuration.
        network: The network, or one on the meta device.
        purpose: "train" or "load".
        device: Device of the network.

    Raises:
        ConfigError: Less memory is available than is needed at least. The message names the settings that are larger
            than those of the preset.
    """
    required = min_training_memory(config, network, device) if purpose == "train" else loading_memory(network, device)
    available = available_memory(device)
    if required <= available:
        return
    preset_values = flatten_config(size_preset(config.size))
    enlarged = [
        f"{key} (now {value})"
        for key, value in flatten_config(config).items()
        if key in SIZE_SETTINGS and value > preset_values[key]
    ]
    parameters = sum(parameter.numel() for parameter in network.parameters())
    raise ConfigError(
        f"a network of {parameters:,} parameters needs at least {gibibytes(required)} of memory to {purpose}, but "
        f"{gibibytes(available)} are available: lower {' or '.join(enlarged) or 'size or the number of symbols'}"
    )


def gibibytes(count: int) -> str:
    """Return a number of bytes as text in GiB: "1.5 GiB".

    Args:
        count: Number of bytes.
    """
    return f"{count / 2**30:,.1f} GiB"
