"""Device, threads and precision of the network."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial

import torch

from pellucid.config.settings import Config, Device, Precision
from pellucid.errors import ConfigError, RunError
from pellucid.kernels.dispatch import are_kernels_disabled, bfloat16_products
from pellucid.kernels.runtime import tune_malloc
from pellucid.model.footprint import address_space, gibibytes
from pellucid.model.network import Network
from pellucid.process_limits import process_limit
from pellucid.worker_pool import available_cores

POOLS = 2
"""Number of thread pools: PyTorch and the library of its matrix products start one each."""
DEFAULT_STACK = 2**21
"""Bytes of a thread's stack if the system sets no limit."""


def use_threads(threads: int) -> None:
    """Set the number of threads with which PyTorch computes in this process.

    It also tunes the memory allocator (`tune_malloc`), and makes processes that are forked later compute with one
    thread (`prepare_for_forks`). Threads that share a core wait for each other by spinning, which makes small models
    many times slower on a busy machine: one thread is the safe default.

    Args:
        threads: Number of threads; 0 for one per available core, and for one in a forked process.

    Raises:
        RunError: `threads` is above 1 in a forked process.
        ConfigError: The stacks of the threads need more memory than the process may allocate, which would kill it.
    """
    tune_malloc()
    forked = prepare_for_forks() != os.getpid()
    if forked and threads > 1:
        raise RunError(
            f"threads = {threads}: a forked process computes with one thread, because a fork does not copy threads; "
            f"set threads = 1, or start the process with the method 'spawn'"
        )
    required = POOLS * (threads - 1) * (process_limit("RLIMIT_STACK") or DEFAULT_STACK)
    if threads > torch.get_num_threads() and required > address_space():
        raise ConfigError(
            f"threads = {threads}: their stacks need {gibibytes(required)} of memory, but this process may allocate "
            f"only {gibibytes(address_space())} more (ulimit -v): lower threads"
        )
    torch.set_num_threads(threads or (1 if forked else available_cores()))


@cache
def prepare_for_forks() -> int:
    """Make every process forked from now on compute with one thread.

    A fork copies only the calling thread. OpenMP, with which PyTorch and MKL distribute their work, still expects the
    threads of the parent and waits for them forever. With one thread it needs none.

    Returns:
        The id of the process that first called this. In a process with another id, it or its parent was forked.
    """
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
    return os.getpid()


def find_device(name: Device) -> torch.device:
    """Return the device that a setting names; "auto" is the current GPU if there is one, else the CPU.

    Args:
        name: "auto", "cpu" or "cuda".

    Raises:
        ConfigError: The name is "cuda", and PyTorch finds no GPU.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        reason = "PyTorch finds no GPU" if torch.version.cuda else "this PyTorch was built without CUDA"
        raise ConfigError(f"device: expected cpu (or auto) on this machine, got 'cuda': {reason}")
    return torch.device("cuda", torch.cuda.current_device())


def check_precision(device: torch.device, precision: Precision) -> None:
    """Check that a device has products of a precision.

    Args:
        device: Device of the network.
        precision: "bf16" or "float32".

    Raises:
        ConfigError: The precision is "bf16" on a CPU without AVX-512 for bfloat16, or without kernels.
    """
    if precision == "float32" or device.type != "cpu":
        return
    from pellucid.kernels.microkernel import HAS_BFLOAT16  # Numba takes a second to import

    expected = "precision: expected float32 on this machine, got 'bf16'"
    if not HAS_BFLOAT16:
        raise ConfigError(
            f"{expected}: it needs a GPU, or a processor with the instructions avx512_bf16 and Numba 0.62 or later"
        )
    if are_kernels_disabled():
        raise ConfigError(f"{expected}: on the CPU it needs the kernels, which PELLUCID_PLAIN disables; unset it")


def check_torch_defaults() -> None:
    """Check torch's defaults, with which networks are built: the type float32, and a device that holds values.

    Raises:
        RunError: The default type is another, or the default device is "meta".
    """
    if torch.get_default_dtype() != torch.float32:
        raise RunError(
            f"torch's default type is {torch.get_default_dtype()}, but networks are float32: call "
            "torch.set_default_dtype(torch.float32) first"
        )
    _check_default_device()


def _check_default_device() -> None:
    """Raise `RunError` if torch's default device is "meta"."""
    if torch.get_default_device().type == "meta":
        raise RunError(
            'torch\'s default device is "meta", which holds no values: leave the context or reset the default'
        )


def check_gradients() -> None:
    """Check that torch computes gradients in float32, which training needs.

    Raises:
        RunError: Gradients are disabled, or the inference mode or autocast is active.
    """
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
        raise RunError(
            "torch.autocast is active, but the setting precision decides the type of products: call it outside the "
            "context"
        )
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
        raise RunError(
            "torch computes no gradients here, but training needs them: call it outside torch.no_grad() and "
            "torch.inference_mode(), and after torch.set_grad_enabled(True)"
        )


def check_process(device: torch.device) -> None:
    """Check that this process can compute on a device: CUDA does not work in a process that was forked, and torch's
    default device must hold values.

    Args:
        device: Device of the network.

    Raises:
        RunError: The network is on a GPU that its parent process initialized, not this one; or the network or torch's
            default device is on "meta".
    """
    _check_default_device()
    if device.type == "meta":
        raise RunError("the network is on the device 'meta', where it has no parameters: load the model again")
    if device.type == "cuda" and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise RunError(
            "the model is on a GPU, which a forked process cannot use: start the process with the method 'spawn', and "
            "load the model there"
        )


def move_to_device(network: Network, device: torch.device) -> None:
    """Move a network to a device; on a GPU the parameters of each encoder cell are contiguous, as cuDNN requires.

    On a GPU it also switches off TensorFloat-32 in cuDNN for the whole process, which would compute recurrences with 10
    bits of mantissa instead of 23.

    Args:
        network: The network, moved in place.
        device: The device.
    """
    network.to(device)
    if device.type == "cpu":
        return
    torch.backends.cudnn.allow_tf32 = False
    for stack in (network.encoder.forward_cells, network.encoder.backward_cells):
        for cell in stack:
            cell.flatten_parameters()


def use_determinism(config: Config) -> None:
    """Use deterministic algorithms only, in this process from now on, if the configuration requires them.

    It changes global settings of PyTorch, and sets CUBLAS_WORKSPACE_CONFIG if it is not set. Nothing changes for
    `device = "cpu"`, whose algorithms are all deterministic. On a GPU an operation without a deterministic algorithm
    then raises a `RuntimeError`.

    Args:
        config: Configuration with `deterministic` and `device`.
    """
    if config.deterministic and config.device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS may sum in any order
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return a context in which matrix products have a precision; parameters, recurrences and loss stay float32.

    Args:
        device: Device of the network.
        precision: "bf16" (bfloat16), or "float32", with which the context changes nothing. On the CPU the kernels
            compute in bfloat16, and PyTorch stays in float32.
    """
    if device.type == "cpu":
        return bfloat16_products() if precision == "bf16" else nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def disable_autocast(device: torch.device) -> Iterator[None]:
    """Compute within the block in the types of the tensors, whether or not the caller has entered `torch.autocast`.

    Args:
        device: Device of the network; autocast is disabled for it and for the CPU.
    """
    with ExitStack() as stack:
        for kind in {"cpu", device.type}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def rng_devices(device: torch.device) -> list[int]:
    """Return the indices of GPUs whose random number generators training uses, besides the CPU's generator.

    Args:
        device: Device of the network.

    Returns:
        The index of the network's GPU; empty on a CPU.
    """
    return [device.index] if device.type == "cuda" else []


def seed_generators(value: int, device: torch.device) -> None:
    """Seed the generators of the random numbers that training draws: the CPU's, and that of the network's GPU.

    `torch.manual_seed` would seed all, but imports modules for a second.

    Args:
        value: The seed.
        device: Device of the network.
    """
    torch.default_generator.manual_seed(value)
    for index in rng_devices(device):
        torch.cuda.default_generators[index].manual_seed(value)
