"""Size presets: vector sizes, dropout and learning rate for each value of `size`; each may still be set by itself."""

from collections.abc import Mapping
from typing import Any

from pellucid.config.settings import Size

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
        "encoder": {"hidden_size": 256, "embedding_size": 256, "dropout": 0.4},
        "attention": {"size": 512},
        "decoder": {"hidden_size": 512, "embedding_size": 256, "dropout": 0.4},
        "training": {"learning_rate": 0.001},
    },
}
"""Settings of each size, by section. The decoder has as many units as both encoder directions together."""

SHARED_PRESET: Mapping[str, Mapping[str, Any]] = {
    "data": {},
    "encoder": {},
    "attention": {},
    "decoder": {},
    "training": {"lr_schedule": "cosine", "patience": 0},
    "search": {},
}
"""Settings with the same default for all sizes."""
