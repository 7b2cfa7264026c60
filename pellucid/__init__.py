"""Pellucid: recurrent encoder-decoders with attention, trained on your own pairs of sequences.

Public names are imported on first use, so importing the package is fast; only `Trace` is imported at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pellucid.dependencies import missing_packages_as_errors
from pellucid.sharing.registration import register_model_sharing as _register_sharing
from pellucid.version import __version__
from pellucid.viewer.registration import register_viewer as _register_viewer

if TYPE_CHECKING:
    from pellucid.alignment.types import AlignedChunk, Alignment, ChunkLimits
    from pellucid.api import align, audit, compare, evaluate, predict, score, train
    from pellucid.auditing.types import AuditOptions, AuditRecord
    from pellucid.config.settings import Config
    from pellucid.config.toml import load_config, size_preset
    from pellucid.data.text_words import WordRule
    from pellucid.decoding.ensemble import Ensemble
    from pellucid.decoding.lexicon import Lexicon, load_lexicon
    from pellucid.decoding.model_sharing import CardOptions, HubCommit
    from pellucid.decoding.options import DecodingOptions, ForcedAttention
    from pellucid.decoding.predictor import Predictor
    from pellucid.decoding.sampling_config import SamplingConfig
    from pellucid.decoding.text_decoder import TextDecoder
    from pellucid.decoding.trace import Trace
    from pellucid.decoding.transducer import Transducer
    from pellucid.errors import InputError
    from pellucid.evaluation.custom_metrics import Metric, RatioMetric, register_metric
    from pellucid.model.attention import Attention, check_attention, register_attention
    from pellucid.model.cells import CellSpec, check_cell, register_cell
    from pellucid.run_evaluation import EvaluationOptions, RunComparisons, RunEvaluation
    from pellucid.run_folder.predictor_loader import load
    from pellucid.run_folder.predictor_saver import save
    from pellucid.sharing.pretrained_loader import from_pretrained
    from pellucid.tasks.registry import register_task
    from pellucid.tasks.task import Task
    from pellucid.training.callbacks import register_callback
    from pellucid.training.events import TrainingCallback
    from pellucid.training.torch_optimizer import check_optimizer, register_optimizer

_register_viewer()
_register_sharing()

_HOMES = {
    **dict.fromkeys(["Attention", "check_attention", "register_attention"], "pellucid.model.attention"),
    **dict.fromkeys(["CellSpec", "check_cell", "register_cell"], "pellucid.model.cells"),
    **dict.fromkeys(["Metric", "RatioMetric", "register_metric"], "pellucid.evaluation.custom_metrics"),
    **dict.fromkeys(["check_optimizer", "register_optimizer"], "pellucid.training.torch_optimizer"),
    "register_callback": "pellucid.training.callbacks",
    "Config": "pellucid.config.settings",
    **dict.fromkeys(["CardOptions", "HubCommit"], "pellucid.decoding.model_sharing"),
    "from_pretrained": "pellucid.sharing.pretrained_loader",
    "SamplingConfig": "pellucid.decoding.sampling_config",
    "Ensemble": "pellucid.decoding.ensemble",
    "InputError": "pellucid.errors",
    "Lexicon": "pellucid.decoding.lexicon",
    "DecodingOptions": "pellucid.decoding.options",
    "ForcedAttention": "pellucid.decoding.options",
    "Predictor": "pellucid.decoding.predictor",
    "Task": "pellucid.tasks.task",
    "TextDecoder": "pellucid.decoding.text_decoder",
    "Trace": "pellucid.decoding.trace",
    "WordRule": "pellucid.data.text_words",
    "Transducer": "pellucid.decoding.transducer",
    "load": "pellucid.run_folder.predictor_loader",
    "load_config": "pellucid.config.toml",
    "load_lexicon": "pellucid.decoding.lexicon",
    "size_preset": "pellucid.config.toml",
    "register_task": "pellucid.tasks.registry",
    **dict.fromkeys(["train", "evaluate", "compare", "predict", "score", "align", "audit"], "pellucid.api"),
    **dict.fromkeys(["AuditOptions", "AuditRecord"], "pellucid.auditing.types"),
    **dict.fromkeys(["AlignedChunk", "Alignment", "ChunkLimits"], "pellucid.alignment.types"),
    **dict.fromkeys(["EvaluationOptions", "RunEvaluation", "RunComparisons"], "pellucid.run_evaluation"),
    "TrainingCallback": "pellucid.training.events",
    "save": "pellucid.run_folder.predictor_saver",
}

__all__ = [
    "AlignedChunk",
    "Alignment",
    "Attention",
    "AuditOptions",
    "AuditRecord",
    "CardOptions",
    "CellSpec",
    "ChunkLimits",
    "Config",
    "DecodingOptions",
    "Ensemble",
    "EvaluationOptions",
    "ForcedAttention",
    "HubCommit",
    "InputError",
    "Lexicon",
    "Metric",
    "Predictor",
    "RatioMetric",
    "RunComparisons",
    "RunEvaluation",
    "SamplingConfig",
    "Task",
    "TextDecoder",
    "Trace",
    "TrainingCallback",
    "Transducer",
    "WordRule",
    "__version__",
    "align",
    "audit",
    "check_attention",
    "check_cell",
    "check_optimizer",
    "compare",
    "evaluate",
    "from_pretrained",
    "load",
    "load_config",
    "load_lexicon",
    "predict",
    "register_attention",
    "register_callback",
    "register_cell",
    "register_metric",
    "register_optimizer",
    "register_task",
    "save",
    "score",
    "size_preset",
    "train",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a module's attributes are of any type)
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid' has no attribute '{name}'")
    with missing_packages_as_errors(f"pellucid.{name}"):
        try:
            return getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            if error.name != "torch" or name != "load":
                raise
            return import_module("pellucid.runtime.loader").load


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return __all__
