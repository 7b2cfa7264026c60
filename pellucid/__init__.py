"""Pellucid: recurrent encoder-decoders with attention, trained on your own pairs of sequences, clear to see through.

The public names, loaded when first used so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pellucid.version import __version__
from pellucid.viewer.registration import register_viewer as _register_viewer

if TYPE_CHECKING:
    from pellucid.api import train
    from pellucid.config import Config
    from pellucid.errors import InputError
    from pellucid.search.ensemble import Ensemble
    from pellucid.search.lexicon import Lexicon, load_lexicon
    from pellucid.search.options import Options, Painted
    from pellucid.search.predictor import Predictor
    from pellucid.search.sampling import Drawing
    from pellucid.search.trace import Trace
    from pellucid.search.transducer import Transducer
    from pellucid.tasks.registry import register_task
    from pellucid.tasks.task import Task
    from pellucid.toml import load_config, preset
    from pellucid.training.run import load

_register_viewer()

_HOMES = {
    "Config": "pellucid.config",
    "Drawing": "pellucid.search.sampling",
    "Ensemble": "pellucid.search.ensemble",
    "InputError": "pellucid.errors",
    "Lexicon": "pellucid.search.lexicon",
    "Options": "pellucid.search.options",
    "Painted": "pellucid.search.options",
    "Predictor": "pellucid.search.predictor",
    "Task": "pellucid.tasks.task",
    "Trace": "pellucid.search.trace",
    "Transducer": "pellucid.search.transducer",
    "load": "pellucid.training.run",
    "load_config": "pellucid.toml",
    "load_lexicon": "pellucid.search.lexicon",
    "preset": "pellucid.toml",
    "register_task": "pellucid.tasks.registry",
    "train": "pellucid.api",
}

__all__ = [
    "Config",
    "Drawing",
    "Ensemble",
    "InputError",
    "Lexicon",
    "Options",
    "Painted",
    "Predictor",
    "Task",
    "Trace",
    "Transducer",
    "__version__",
    "load",
    "load_config",
    "load_lexicon",
    "preset",
    "register_task",
    "train",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a module's attributes are of any type)
    """Import a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
