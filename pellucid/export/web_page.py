"""One offline HTML file that runs trained networks in the browser: page, symbols, settings and parameters."""

from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec
import numpy as np

from pellucid.config.settings import Config
from pellucid.decoding.length_limits import max_output_length
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ConfigError
from pellucid.export.onnx_settings import ExportedSearch
from pellucid.export.stored_parameters import Precision, StoredArray, store_parameters
from pellucid.runtime.support import unsupported_settings
from pellucid.tasks.registry import get_task
from pellucid.tasks.task_view import TaskView
from pellucid.version import __version__
from pellucid.viewer.inputs import ViewedRun, model_card
from pellucid.viewer.pages import embed_json
from pellucid.viewer.schema import ModelCard, PageStruct

MODEL_FORMAT = 2
"""Version of this schema; the page refuses a newer one. Format 1 has the former names of settings."""
MODEL_ELEMENT = '<script type="application/json" id="model"></script>'
"""Element of the built page for the models."""

SETTINGS = {
    "data": ("source_symbols", "target_symbols", "source_normalization", "max_sequence_length"),
    "encoder": ("cell", "hidden_size", "num_layers", "merge", "feature_merge", "residual"),
    "attention": ("type", "num_heads"),
    "decoder": (
        *("order", "cell", "hidden_size", "num_layers", "init_hidden", "embedding", "output_layer_inputs"),
        *("residual", "pointer_generator"),
    ),
    "search": ExportedSearch.__struct_fields__,
}
"""Settings that the page reads, by section."""


class StoredModel(PageStruct, frozen=True, kw_only=True):
    """One model of the page."""

    name: str
    task: str
    settings: dict[str, dict[str, Any]]
    """Settings that the page reads; `search.max_length` is that of the model, never 0."""
    source_symbols: tuple[str, ...]
    feature_symbols: tuple[str, ...]
    target_symbols: tuple[str, ...]
    arrays: list[StoredArray]
    parameters: str
    """Bytes of the arrays (`StoredParameters.data`)."""


class ModelPage(PageStruct, frozen=True, kw_only=True):
    """Data of a page with models."""

    format: int = MODEL_FORMAT
    version: str
    title: str
    note: str
    """Description under the title."""
    tasks: dict[str, TaskView]
    text: str
    """First source that the page decodes."""
    features: list[str]
    """Features of that source."""
    models: list[StoredModel]
    cards: list[ModelCard]
    """Description of each model."""


def built_model_page() -> str:
    """Return the page that is built from web/ and installed with the package, as HTML without models."""
    return resources.files("pellucid.export").joinpath("page/model.html").read_text(encoding="utf-8")


def render_model_page(page: ModelPage) -> str:
    """Return an HTML file with models.

    Args:
        page: Data of the page.
    """
    return embed_json(built_model_page(), MODEL_ELEMENT, page)


def build_model_page(
    runs: Sequence[ViewedRun], precision: Precision, text: str, features: Sequence[str] = ()
) -> ModelPage:
    """Return the data of a page that decodes sources with one run, or with two for comparison.

    It shows the networks alone: a pair n-gram model is not part of the page.

    Args:
        runs: One run or two, with models.
        precision: Number format of the stored parameters.
        text: First source that the page decodes.
        features: Features of that source.

    Raises:
        RunError: A run has no model.
        ConfigError: A run is an ensemble, or has a task, tokenization or attention that the page lacks.
    """
    models = [store_model(run.name, require_exportable_predictor(run), precision) for run in runs]
    task = get_task(models[0].task)
    return ModelPage(
        version=__version__,
        title=" and ".join(model.name for model in models),
        note=page_note(runs),
        tasks={task.settings.name: task.view},
        text=text,
        features=list(features),
        models=models,
        cards=[model_card(run) for run in runs],
    )


def page_note(runs: Sequence[ViewedRun]) -> str:
    """Return the sentences under the title of the page.

    Args:
        runs: Runs of the page.
    """
    note = "The model runs in this file. No text leaves the browser."
    if any(has_pair_ngram(run) for run in runs):
        note += " Outputs are those of the network alone, without the pair n-gram model of the run."
    return note


def has_pair_ngram(run: ViewedRun) -> bool:
    """Return whether a pair n-gram model takes part in the predictions of a run.

    Args:
        run: The run.
    """
    predictor = run.loaded_predictor
    return isinstance(predictor, Transducer) and predictor.pair_ngram_weight > 0


def require_exportable_predictor(run: ViewedRun) -> Transducer:
    """Return the predictor of a run, if the page has all parts of its model.

    Args:
        run: The run.

    Raises:
        RunError: The run has no model.
        ConfigError: The page lacks a part; the message names it.
    """
    predictor = run.loaded_predictor
    reasons = unsupported_settings(predictor.config)
    if predictor.config.data.source_symbols == "subwords":
        reasons["data.source_symbols"] = "'subwords' need the package tokenizers, which a browser lacks"
    if predictor.config.data.context_words:
        reasons["data.context_words"] = "it decodes words without the words around them"
    for key, reason in reasons.items():
        raise ConfigError(f"{run.folder}: the web page does not support {key}: {reason}")
    assert isinstance(predictor, Transducer), "a predictor of the task transduce"
    if predictor.is_ensemble:
        raise ConfigError(f"{run.folder} is an ensemble: export one of its members")
    return predictor


def store_model(name: str, predictor: Transducer, precision: Precision) -> StoredModel:
    """Return a model as the page stores it.

    Args:
        name: Name on the page.
        predictor: Predictor of the run, which the page supports (`require_exportable_predictor`).
        precision: Number format of the stored parameters.

    Raises:
        ConfigError: A number is too large for the format.
    """
    config, vocabularies = predictor.config, predictor.vocabularies
    parameters = store_parameters(_network_arrays(predictor), precision)
    return StoredModel(
        name=name,
        task=config.task,
        settings=_page_settings(config, max_output_length(config.search, vocabularies)),
        source_symbols=vocabularies.source.symbols,
        feature_symbols=vocabularies.features.symbols,
        target_symbols=vocabularies.target.symbols,
        arrays=parameters.arrays,
        parameters=parameters.data,
    )


def _network_arrays(predictor: Transducer) -> dict[str, np.ndarray]:
    """Return the parameters and saved buffers of a network, by name."""
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in predictor.network.state_dict().items()}


def _page_settings(config: Config, max_length: int) -> dict[str, dict[str, Any]]:
    """Return the settings that the page reads."""
    sections = msgspec.to_builtins(config)
    settings = {name: {key: sections[name][key] for key in keys} for name, keys in SETTINGS.items()}
    settings["search"]["max_length"] = max_length
    return settings
