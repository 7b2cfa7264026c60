"""Memory that a network needs, computed from its shapes before any of it is allocated.

P is the memory of the parameters that are trained.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from pellucid.config import Config
from pellucid.errors import ConfigError
from pellucid.toml import flattened, preset

SIZES = (
    *("encoder.hidden_size", "encoder.layers", "encoder.embedding_size", "encoder.filters"),
    *("attention.units", "attention.filters", "attention.filter_radius"),
    *("decoder.hidden_size", "decoder.layers", "decoder.embedding_size", "training.average_last"),
)
"""The settings that decide the size of a network and of what is kept of it."""
MEMINFO = Path("/proc/meminfo")
"""What Linux tells of its memory."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""The most memory that a container has; `max` where there is no limit."""


def network_memory(network: nn.Module) -> int:
    """Return the bytes of a network's parameters and buffers."""
    return _bytes(network.parameters()) + _bytes(network.buffers())


def training_memory(config: Config, network: nn.Module, device: torch.device) -> int:
    """Return the bytes that a device needs at least to train: 11 P on a processor, 5 P on a GPU, and more for averages.

    The weights, Adam's two moments and the averages are kept, and the gradients are there twice during an update. On a
    processor a checkpoint is a copy of all that is kept, and the bytes of its file. What is not trained is there once.
    """
    training = config.training
    kept = 3 + {"none": 0, "ema": 1, "last": training.average_last}[training.average]
    checkpoint = 2 * kept if device.type == "cpu" else 0
    trained = _bytes(parameter for parameter in network.parameters() if parameter.requires_grad)
    return (kept + 1 + checkpoint) * trained + network_memory(network)


def loading_memory(network: nn.Module, device: torch.device) -> int:
    """Return the bytes that a device needs at least to load: on a processor also those of the file and its tensors."""
    read = 2 * _bytes(network.parameters()) if device.type == "cpu" else 0
    return read + network_memory(network)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors, also of those on the meta device."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def available_memory(device: torch.device) -> int:
    """Return the bytes that a device can give: on a processor those of the machine or, if fewer, of the container."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if MEMINFO.exists():
        lines = (line.split() for line in MEMINFO.read_text("ascii").splitlines())
        limits += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    if CGROUP_LIMIT.exists() and (limit := CGROUP_LIMIT.read_text("ascii").strip()) != "max":
        limits.append(int(limit))
    return min(limits)


def check_memory(config: Config, network: nn.Module, purpose: Literal["train", "load"], device: torch.device) -> None:
    """Refuse a network that needs more memory than there is.

    Args:
        config: The configuration of the network.
        network: The network, or one on the meta device.
        purpose: What the memory is needed for.
        device: Where the network computes.

    Raises:
        ConfigError: There is less memory than is needed at least. The message names the settings that are larger than
            those of the preset.
    """
    need = training_memory(config, network, device) if purpose == "train" else loading_memory(network, device)
    available = available_memory(device)
    if need <= available:
        return
    usual = flattened(preset(config.size))
    large = [f"{key} (now {value})" for key, value in flattened(config).items() if key in SIZES and value > usual[key]]
    parameters = sum(parameter.numel() for parameter in network.parameters())
    raise ConfigError(
        f"a network of {parameters:,} parameters needs at least {_gibibytes(need)} of memory to {purpose}, but "
        f"{_gibibytes(available)} are available: lower {' or '.join(large) or 'size or the number of symbols'}"
    )


def _gibibytes(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count / 2**30:,.1f} GiB"
