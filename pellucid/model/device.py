"""Device, threads and precision of the network."""

import os
import resource
from contextlib import AbstractContextManager
from functools import cache, partial

import torch

from pellucid.config.settings import Config, Device, Precision
from pellucid.errors import ConfigError, RunError
from pellucid.kernels.aligned_memory import tune_malloc
from pellucid.model.network import Network, address_space, gibibytes
from pellucid.worker_pool import available_cores

POOLS = 2
"""Groups of so many threads, which PyTorch and the libraries of its products start each for itself."""
DEFAULT_STACK = 2**21
"""Bytes of a thread's stack where the system sets no limit."""


def use_threads(threads: int) -> None:
    """Compute with these threads in this process; 0 takes one for each core it may use, and one if it is forked.

    Threads that share a core wait for each other by spinning, which makes small models many times slower on a busy
    machine: one thread is the safe default.

    Raises:
        RunError: A forked process is to compute with several threads.
        ConfigError: The stacks of the threads need more memory than the process may take; starting them would end it.
    """
    tune_malloc()
    forked = prepare_for_forks() != os.getpid()
    if forked and threads > 1:
        raise RunError(
            f"threads = {threads}: a forked process computes with one thread, for those of its parent are not copied; "
            f"take threads = 1, or start the process with the method 'spawn'"
        )
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    need = POOLS * (threads - 1) * (DEFAULT_STACK if stack == resource.RLIM_INFINITY else stack)
    if threads > torch.get_num_threads() and need > address_space():
        raise ConfigError(
            f"threads = {threads}: their stacks need {gibibytes(need)} of memory, but this process may take "
            f"{gibibytes(address_space())} more (ulimit -v): lower threads"
        )
    torch.set_num_threads(threads or (1 if forked else available_cores()))


@cache
def prepare_for_forks() -> int:
    """Make every process that is forked from now on compute with one thread.

    A fork copies the thread that asks for it and no other. OpenMP, with which PyTorch and MKL spread their work, still
    counts on those it had started, and waits for them for ever. With one thread it needs none.

    Returns:
        The id of the process that has its own threads: in any other one, this one or its parent was forked.
    """
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
    return os.getpid()


def find_device(wanted: Device) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one. `ConfigError` where a GPU is named and none is."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        why = "PyTorch finds no GPU" if torch.version.cuda else "this PyTorch was built without CUDA"
        raise ConfigError(f"device: expected cpu (or auto) on this machine, got 'cuda': {why}")
    return torch.device("cuda", torch.cuda.current_device())


def check_process(device: torch.device) -> None:
    """Raise `RunError` in a process that was forked after its parent had put the network on a GPU: CUDA refuses it."""
    if device.type == "cuda" and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise RunError(
            "the model is on a GPU, which a forked process cannot use: start the process with the method 'spawn', and "
            "load the model there"
        )


def place(network: Network, device: torch.device) -> None:
    """Move a network to a device, on a GPU with the parameters of each encoder cell side by side, as cuDNN wants them.

    float32 means float32: cuDNN would take TensorFloat-32 for recurrences, with 10 bits of mantissa instead of 23.
    """
    network.to(device)
    if device.type == "cpu":
        return
    torch.backends.cudnn.allow_tf32 = False
    for stack in (network.encoder.forward_cells, network.encoder.backward_cells):
        for cell in stack:
            cell.flatten_parameters()


def use_determinism(config: Config) -> None:
    """Take only algorithms that give the same bits each time, in this process and from now on, if that is asked for.

    On a processor all do. On a GPU an operation that has none such is an error.
    """
    if config.deterministic and config.device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS may order sums as it likes
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Within, products take this precision; parameters, recurrences of the encoder, softmax and loss stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def generators(device: torch.device) -> list[int]:
    """The GPUs whose random numbers an update draws, beside the processor's."""
    return [device.index] if device.type == "cuda" else []


def seed(number: int, device: torch.device) -> None:
    """Seed the random numbers that an update draws. `torch.manual_seed` would import what takes a second."""
    torch.default_generator.manual_seed(number)
    for index in generators(device):
        torch.cuda.default_generators[index].manual_seed(number)
