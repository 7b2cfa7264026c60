"""Errors in the code of an attention or a cell of another package, after its check: one message that names the package.

Within Python, such an error has its traceback; the command line and a training name the extension, the file and the
line.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import msgspec

from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.cell_types import CELL_TYPES
from pellucid.config.extensions import ExtensionRegistry, own_modules
from pellucid.config.settings import Config
from pellucid.config.toml import named_extensions
from pellucid.errors import ConfigError, InputError, describe_failure, find_place, is_out_of_memory, quote

NETWORK_PARTS: tuple[ExtensionRegistry[Any], ...] = (ATTENTION_TYPES, CELL_TYPES)
"""Registries of the extensions whose code networks run at every step."""


def extension_error(error: Exception) -> ConfigError | None:
    """Return the error that names the attention or cell of another package in whose code an error occurred.

    Args:
        error: The error.

    Returns:
        The error for the user; None for an error outside of such code, of the user, or because of memory.
    """
    if isinstance(error, InputError) or is_out_of_memory(error):
        return None
    for registry in NETWORK_PARTS:
        for name, extension in registry.registered.items():
            modules = own_modules(extension)
            if _passes_through(error.__traceback__, extension) and find_place(error, modules):
                return ConfigError(
                    f"{_describe_extension(registry, name)} failed: {describe_failure(error, modules)}; "
                    "correct the class, and run the command again"
                )
    return None


def not_finite_note(config: Config) -> str:
    """Return the end of a message about numbers that are not finite: code of another package may compute them.

    Args:
        config: Configuration of the network.

    Returns:
        "; or the attention type 'cosine' (CosineAttention of my-attention 1) computes them: check the class"; "" for a
        network without an attention or a cell of another package.
    """
    named = named_extensions(msgspec.to_builtins(config))
    parts = dict.fromkeys(
        _describe_extension(registry, name)
        for _, registry, name in named
        if registry in NETWORK_PARTS and name not in registry.built_in
    )
    return f"; or {' or '.join(parts)} computes them: check the class" if parts else ""


def _describe_extension(registry: ExtensionRegistry[Any], name: str) -> str:
    """Return an extension with its class and package: "the attention type 'cosine' (CosineAttention of package 1)"."""
    package, extension = registry.find_package(name), registry.registered.get(name)
    origin = " of ".join(str(part) for part in (getattr(extension, "__name__", ""), package) if part)
    return f"the {registry.kind} {quote(name)}{f' ({origin})' if origin else ''}"


@contextmanager
def named_extension_errors() -> Iterator[None]:
    """Convert an error in the code of an attention or cell of another package in the block to a `ConfigError`.

    Raises:
        ConfigError: Such an error, which names the extension, its package, the file and the line.
    """
    try:
        yield
    except Exception as error:  # the code of another package may raise anything
        named = extension_error(error)
        if named is None:
            raise
        raise named from error


def _passes_through(traceback: TracebackType | None, extension: type) -> bool:
    """Return whether a method of an object of a class is in a traceback."""
    while traceback is not None:
        if issubclass(type(traceback.tb_frame.f_locals.get("self")), extension):
            return True
        traceback = traceback.tb_next
    return False
