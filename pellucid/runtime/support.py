"""Support of the runtime for a run: `check_supported` names the setting of a run that it does not compute."""

from pellucid.config.attention_types import is_custom_attention
from pellucid.config.cell_types import is_custom_cell
from pellucid.config.settings import Config, has_characters
from pellucid.config.task_settings import TRANSDUCE
from pellucid.errors import InputError, quote


class UnsupportedError(InputError):
    """A run or an option that the runtime does not compute; PyTorch does, with `pip install 'pellucid[train]'`."""


def unsupported_settings(config: Config) -> dict[str, str]:
    """Return the settings of a run that the runtime does not compute, with the reason; empty if it computes the run.

    Args:
        config: Configuration of the run.

    Returns:
        Reason by key: {"task": "only 'transduce' is supported, and this is 'tag'"}.
    """
    reasons = {}
    if config.task != TRANSDUCE.name:
        reasons["task"] = f"only {quote(TRANSDUCE.name)} is supported, and this is {quote(config.task)}"
    if is_custom_attention(config.attention):
        reasons["attention.type"] = f"{quote(config.attention.type)} is of another package, which computes in PyTorch"
    for section, cell in (("encoder", config.encoder.cell), ("decoder", config.decoder.cell)):
        if is_custom_cell(cell):
            reasons[f"{section}.cell"] = f"{quote(cell)} is of another package, which computes in PyTorch"
    if has_characters(config):
        reasons["encoder.characters"] = f"{quote(config.encoder.characters)} computes in PyTorch"
    return reasons


def check_supported(config: Config) -> None:
    """Check that the runtime computes a run: every built-in encoder, attention and decoder of task = "transduce".

    Args:
        config: Configuration of the run.

    Raises:
        UnsupportedError: A setting has a value that the runtime does not compute; the message names it.
    """
    reasons = unsupported_settings(config)
    if reasons:
        key, reason = next(iter(reasons.items()))
        raise UnsupportedError(f"the runtime without PyTorch does not support {key}: {reason}")
