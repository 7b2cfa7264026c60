"""Evaluation mode of networks that several threads use."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from weakref import WeakKeyDictionary, WeakSet

import torch

from pellucid.argument_checks import check_arguments
from pellucid.kernels.runtime import defer_signals
from pellucid.model.network import Network


class _Block:
    """One block of `evaluation_mode`; an object that is referenced by its frame alone."""


class _ModeUse:
    """Blocks in which one network is in evaluation mode, in all threads."""

    def __init__(self) -> None:
        """Count no block yet."""
        # Weak references: a block that an interruption has ended is forgotten with its frame.
        self.blocks = WeakSet[_Block]()
        self.training_modules: list[torch.nn.Module] = []
        """Modules that were in training mode before the first block."""

    def restore(self) -> None:
        """Return the modules to training mode, if no block is left."""
        if not self.blocks:
            for module in self.training_modules:
                module.training = True
            self.training_modules = []


class _ModeRegistry:
    """Uses of all networks, and the lock under which they change."""

    def __init__(self) -> None:
        """Start without networks."""
        self.uses = WeakKeyDictionary[Network, _ModeUse]()
        self.lock = threading.RLock()

    def renew_lock(self) -> None:
        """Replace the lock: in a forked process, no thread exists that could release it."""
        self.lock = threading.RLock()


_modes = _ModeRegistry()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_modes.renew_lock)


@check_arguments
@contextmanager
def evaluation_mode(network: Network) -> Iterator[None]:
    """Set a network to evaluation mode inside the context, and its modules that were in training mode back afterwards.

    Threads may enter it for one network at the same time: the last one to leave restores the modes.

    Args:
        network: Network, whose mode is changed in place.

    Raises:
        ArgumentError: The argument is not a network.
    """
    block = _Block()
    try:
        with defer_signals(), _modes.lock:
            use = _modes.uses.setdefault(network, _ModeUse())
            use.restore()
            use.blocks.add(block)
            training_modules = [module for module in network.modules() if module.training]
            if training_modules:
                use.training_modules += training_modules
                network.eval()
        yield
    finally:
        with defer_signals(), _modes.lock:
            use = _modes.uses.setdefault(network, _ModeUse())
            use.blocks.discard(block)
            use.restore()


@check_arguments
@contextmanager
def evaluation_modes(networks: Sequence[Network]) -> Iterator[None]:
    """Set several networks to evaluation mode inside the context, and restore their modes afterwards.

    Args:
        networks: Networks.

    Raises:
        ArgumentError: An item is not a network.
    """
    with ExitStack() as stack:
        for network in networks:
            stack.enter_context(evaluation_mode(network))
        yield
