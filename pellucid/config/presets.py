"""Size presets: layers, vector sizes, dropout and learning rate of each value of `size`; each may be set by itself."""

from collections.abc import Mapping
from typing import Any

from pellucid.config.settings import DEFAULT_TASK, Size, TaskName

PRESETS: Mapping[Size, Mapping[str, Mapping[str, Any]]] = {
    "tiny": {
        "encoder": {"hidden_size": 16, "embedding_size": 16, "dropout": 0.0},
        "attention": {"size": 32},
        "decoder": {"hidden_size": 32, "embedding_size": 16, "dropout": 0.0},
        "training": {"learning_rate": 0.005},
    },
    "small": {
        "encoder": {"hidden_size": 64, "embedding_size": 64, "dropout": 0.2},
        "attention": {"size": 128},
        "decoder": {"hidden_size": 128, "embedding_size": 64, "dropout": 0.2},
        "training": {"learning_rate": 0.003},
    },
    "base": {
        "encoder": {"hidden_size": 128, "embedding_size": 128, "dropout": 0.3},
        "attention": {"size": 256},
        "decoder": {"hidden_size": 256, "embedding_size": 128, "dropout": 0.3},
        "training": {"learning_rate": 0.002},
    },
    "large": {
        "encoder": {"num_layers": 2, "hidden_size": 192, "embedding_size": 192, "dropout": 0.2},
        "attention": {"size": 384},
        "decoder": {"hidden_size": 384, "embedding_size": 192, "dropout": 0.2},
        "training": {"learning_rate": 0.0015},
    },
}
"""Settings of each size, by section. The decoder has as many units as both encoder directions together."""
PRESET_KEYS = frozenset(
    f"{section}.{name}" for preset in PRESETS.values() for section, values in preset.items() for name in values
)
"""Full keys of the settings that the preset of a size sets; one that a preset lacks has its default there."""

SHARED_PRESET: Mapping[str, Mapping[str, Any]] = {
    "data": {},
    "encoder": {},
    "attention": {},
    "decoder": {},
    "training": {"lr_schedule": "cosine", "patience": 0},
    "search": {},
}
"""Settings with the same default for all sizes."""

AUTO_SIZE = "auto"
"""Value of `size` in settings that leave it to the training data, as settings without a size do."""
LARGE_DATA = 5_000
"""Number of training pairs from which the default size is "large"."""


def gives_size(settings: Mapping[str, Any]) -> bool:
    """Return whether settings give a size, other than "auto".

    Args:
        settings: Settings, nested like a configuration.
    """
    return bool(settings.get("size", AUTO_SIZE) != AUTO_SIZE)


def default_size(examples: int | None = None, task: TaskName = DEFAULT_TASK) -> Size:
    """Return the size that a training has if none is given.

    It is "large" for task "transduce" with at least `LARGE_DATA` training pairs, otherwise "base" (docs/ablations.md).

    Args:
        examples: Number of training pairs; None if it is not known.
        task: Name of the task.
    """
    return "large" if task == DEFAULT_TASK and examples is not None and examples >= LARGE_DATA else "base"
