"""The parts that the networks of all tasks are built from."""

import os
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from pellucid.config.settings import AttentionConfig, Config, DecoderConfig, memory_size
from pellucid.config.toml import flatten_config, preset
from pellucid.data.vocabulary import Vocabularies
from pellucid.errors import ConfigError
from pellucid.model.decoder import AttendThenStep, Decoder, DecoderDims, StepThenAttend
from pellucid.model.encoder import Encoder
from pellucid.model.encoder_decoder import EncoderDecoder, Network, require_seq2seq, shift_right
from pellucid.model.pointer_generator import copied_ids

__all__ = [
    "EncoderDecoder",
    "Network",
    "NetworkParts",
    "build_decoder",
    "build_parts",
    "parameter_count",
    "require_seq2seq",
    "seeded",
    "shift_right",
    "tagged",
]


class NetworkParts(NamedTuple):
    """The parts that the networks of all tasks have."""

    config: Config
    encoder: Encoder
    sizes: DecoderDims
    """Of the encoder's states and of the target vocabulary."""


def build_parts(config: Config, vocabularies: Vocabularies) -> NetworkParts:
    """Return a new encoder, and the sizes that the rest of the network needs."""
    features = len(vocabularies.features) if tagged(config) else 0
    symbols = len(vocabularies.source)
    encoder = Encoder(config.encoder, symbols + features, symbols)
    targets = copied_ids(vocabularies) if config.decoder.pointer_generator else None
    return NetworkParts(config, encoder, DecoderDims(memory_size(config.encoder), len(vocabularies.target), targets))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, random numbers of the processor are a function of the seed; those outside do not notice."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed imports what takes a second
        yield


def tagged(config: Config) -> bool:
    """Return whether sources have tags: those of the file, or the one of copied words."""
    return bool(config.data.features_column) or config.training.augmentation == "copy"


def build_decoder(config: DecoderConfig, attention: AttentionConfig, sizes: DecoderDims) -> Decoder:
    """The decoder whose order a configuration names."""
    match config.order:
        case "attend-then-step":
            return AttendThenStep(config, attention, sizes)
        case "step-then-attend":
            return StepThenAttend(config, attention, sizes)


def parameter_count(network: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


SIZES = (
    *("encoder.hidden_size", "encoder.num_layers", "encoder.embedding_size", "encoder.filters"),
    *("attention.size", "attention.filters", "attention.filter_radius"),
    *("decoder.hidden_size", "decoder.num_layers", "decoder.embedding_size", "training.averaged_checkpoints"),
)
"""The settings that decide the size of a network and of what is kept of it."""
STATM = Path("/proc/self/statm")
"""Pages of memory of this process on Linux, those of its address space first."""
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
    kept = 3 + {"none": 0, "ema": 1, "last": training.averaged_checkpoints}[training.weight_averaging]
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
    """Return the bytes that a device can give: on a processor the fewest that machine, container and limits allow."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if MEMINFO.exists():
        lines = (line.split() for line in MEMINFO.read_text("ascii").splitlines())
        limits += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    if CGROUP_LIMIT.exists() and (limit := CGROUP_LIMIT.read_text("ascii").strip()) != "max":
        limits.append(int(limit))
    return min(*limits, address_space())


def address_space() -> int:
    """Return the bytes of address space that this process may still plan with, `sys.maxsize` where nothing limits it.

    That is three quarters of what the limit (`ulimit -v`) leaves: the rest is for all that is not planned. A process
    that meets this limit within a library often ends without a message.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    taken = int(STATM.read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE") if STATM.exists() else 0
    return max(0, limit - taken) * 3 // 4


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
    usual = flatten_config(preset(config.size))
    large = [
        f"{key} (now {value})" for key, value in flatten_config(config).items() if key in SIZES and value > usual[key]
    ]
    parameters = sum(parameter.numel() for parameter in network.parameters())
    raise ConfigError(
        f"a network of {parameters:,} parameters needs at least {gibibytes(need)} of memory to {purpose}, but "
        f"{gibibytes(available)} are available: lower {' or '.join(large) or 'size or the number of symbols'}"
    )


def gibibytes(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count / 2**30:,.1f} GiB"
