"""Settings of each task, and the list of all tasks by name.

The settings of a task are available without its network, because configurations, traces and help need nothing else.

Tasks of other packages are declared as an entry point of the group `pellucid.tasks`, whose name is that of the task and
whose object is the task, or registered with `pellucid.register_task`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pellucid.config.attention_types import is_custom_attention, uses_softmax
from pellucid.config.extensions import ExtensionRegistry
from pellucid.config.settings import Config, reads_features
from pellucid.errors import ConfigError, InputError, quote

AUTOREGRESSIVE_REQUIREMENT = "task = 'transduce', whose outputs are generated symbol by symbol"
"""Requirement of settings that only autoregressive tasks have, for messages."""
CLASS_AND_TAGS_REQUIREMENT = "task = 'tag-and-classify', whose targets are a class and tags"
"""Requirement of settings of a class before the tags, for messages."""


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Settings of a task, and properties of its outputs."""

    name: str
    """Value of the setting `task`."""
    presets: Mapping[str, Mapping[str, Any]]
    """Default values that the task changes in those of the size preset: section, key, value."""
    check: Callable[[Config], None]
    """Function that raises `ConfigError` for settings of the model that the task does not support."""
    autoregressive: bool = False
    """True if outputs are generated symbol by symbol until EOS, each given the previous ones."""
    per_position: bool = False
    """True if each source position has one output symbol, predicted from the encoder state at that position."""
    class_first: bool = False
    """True if an output is the class of its source, and then one tag for each source position."""
    has_ignored_tag: bool = False
    """True if outputs may have symbols that are neither trained nor scored (`data.ignored_tag`)."""
    counts_symbols: bool = False
    """True if its vocabularies are counts of the symbols of all examples, so that data can be prepared in blocks."""
    pipeline_tag: str = ""
    """Name of such tasks on the Hugging Face Hub; "" if it has none."""


class RegisteredTask(Protocol):
    """A task as far as this module needs it, without networks; the base class is `Task` in tasks/task.py."""

    @property
    def settings(self) -> TaskSettings:
        """Settings of the task."""


def require_target_symbols(config: Config, required: str = "") -> None:
    """Check that targets are tokenized as required.

    Args:
        config: Configuration.
        required: Required tokenization of targets; "" for any except "position".

    Raises:
        ConfigError: `data.target_symbols` is another tokenization; or it is "position", and nothing is required.
    """
    target_symbols = config.data.target_symbols
    if required != target_symbols and (required or target_symbols == "position"):
        requirement = (
            f"data.target_symbols = {quote(required)}" if required else "data.target_symbols other than 'position'"
        )
        raise ConfigError(f"task = {quote(config.task)} needs {requirement}, got {quote(target_symbols)}")


def reject_feature_prefix(config: Config) -> None:
    """Check that no feature symbols precede the source, where they would shift the positions of its symbols.

    Args:
        config: Configuration.

    Raises:
        ConfigError: The data has features, and encoder.feature_merge is "prefix".
    """
    if reads_features(config.data) and config.encoder.feature_merge == "prefix":
        task = quote(config.task)
        raise ConfigError(
            f"task = {task} with features needs encoder.feature_merge = 'sum': feature symbols shift source positions"
        )


def _check_tag(config: Config) -> None:
    """Raise `ConfigError` for settings that tagging does not support."""
    require_target_symbols(config)
    if config.data.target_symbols == "whole" or not config.data.equal_length:
        raise ConfigError("task = 'tag' needs data.equal_length = true, and data.target_symbols other than 'whole'")
    reject_feature_prefix(config)


def _check_classify(config: Config) -> None:
    """Raise `ConfigError` for settings that classification does not support."""
    require_target_symbols(config, "whole")


def _check_tag_and_classify(config: Config) -> None:
    """Raise `ConfigError` for settings that tagging together with classification does not support."""
    require_target_symbols(config)
    data = config.data
    if data.target_symbols in ("whole", "subwords") or not (data.equal_length and data.class_first):
        raise ConfigError(
            f"task = {quote(config.task)} needs data.equal_length = true, data.class_first = true, and "
            "data.target_symbols other than 'whole' and 'subwords'"
        )
    reject_feature_prefix(config)
    _require_softmax(config)


def _check_point(config: Config) -> None:
    """Raise `ConfigError` for settings that pointing does not support."""
    require_target_symbols(config, "position")
    reject_feature_prefix(config)
    _require_softmax(config)


def _require_softmax(config: Config) -> None:
    """Raise `ConfigError` for an attention whose weights are no softmax."""
    if not uses_softmax(config.attention):
        requirement = "attention.type other than 'none' and 'monotonic'"
        if is_custom_attention(config.attention):
            requirement = "an attention whose weights are a softmax"
        raise ConfigError(f"task = {quote(config.task)} needs {requirement}, got {quote(config.attention.type)}")


TRANSDUCE = TaskSettings(
    name="transduce",
    presets={},
    check=require_target_symbols,
    autoregressive=True,
    counts_symbols=True,
    pipeline_tag="text2text-generation",
)
TAG = TaskSettings(
    name="tag",
    presets={"data": {"equal_length": True}, "training": {"metric": "symbol_accuracy"}},
    check=_check_tag,
    per_position=True,
    has_ignored_tag=True,
    counts_symbols=True,
    pipeline_tag="token-classification",
)
CLASSIFY = TaskSettings(
    name="classify",
    presets={"data": {"target_symbols": "whole"}},
    check=_check_classify,
    counts_symbols=True,
    pipeline_tag="text-classification",
)
POINT = TaskSettings(name="point", presets={"data": {"target_symbols": "position"}}, check=_check_point)
TAG_AND_CLASSIFY = TaskSettings(
    name="tag-and-classify",
    presets={"data": {"equal_length": True, "class_first": True}, "training": {"metric": "symbol_accuracy"}},
    check=_check_tag_and_classify,
    class_first=True,
    has_ignored_tag=True,
    pipeline_tag="token-classification",
)

BUILT_IN_SETTINGS = {settings.name: settings for settings in (TRANSDUCE, TAG, CLASSIFY, POINT, TAG_AND_CLASSIFY)}


def _has_settings(value: object) -> bool:
    """Return whether a value has the settings of a task."""
    return isinstance(getattr(value, "settings", None), TaskSettings)


TASKS = ExtensionRegistry[RegisteredTask](
    kind="task",
    group="pellucid.tasks",
    register_call="pellucid.register_task(task)",
    built_in=BUILT_IN_SETTINGS,
    provided="an instance of a subclass of pellucid.Task, whose settings have this name",
    is_extension=_has_settings,
    own_name=lambda task: task.settings.name,
)
"""All values of the setting `task`."""


def check_task(config: Config) -> None:
    """Check that the task exists and supports the settings.

    Args:
        config: Configuration.

    Raises:
        ConfigError: The task is unknown, its entry point does not provide it, or it does not support a setting.
    """
    settings = get_task_settings(config.task)
    settings.check(config)
    _reject_ignored_tag(config)


def _reject_ignored_tag(config: Config) -> None:
    """Raise `ConfigError` for an ignored tag if the task has none."""
    if config.data.ignored_tag and not get_task_settings(config.task).has_ignored_tag:
        raise ConfigError(f"data.ignored_tag needs task = 'tag' or 'tag-and-classify', got {quote(config.task)}")


def check_equal_tasks(runs: Sequence[tuple[str, str]]) -> None:
    """Check that all runs have the same task, so that their outputs and scores can be compared.

    Args:
        runs: Name and task of each run, at least one.

    Raises:
        InputError: A run has another task than the first.
    """
    first, *others = runs
    for name, task in others:
        if task != first[1]:
            raise InputError(
                f"runs of different tasks cannot be compared: {first[0]} is {quote(first[1])}, {name} is {quote(task)}"
            )


def get_task_settings(name: str) -> TaskSettings:
    """Return the settings of a task.

    Args:
        name: Value of the setting `task`.

    Raises:
        ConfigError: There is no such task, or its entry point does not provide it.
    """
    built_in = BUILT_IN_SETTINGS.get(name)
    return built_in if built_in is not None else TASKS.get(name).settings


PAIR_NGRAM_REQUIREMENT = (
    "a task whose outputs are sequences (task = 'transduce'), no features but context words "
    "(data.features_column, data.context_words), and decoder.pointer_generator = false"
)
"""What `uses_pair_ngram` asks for, in words."""


def uses_pair_ngram(config: Config) -> bool:
    """Return whether a training fits a pair n-gram model: for sequences of known symbols, without features.

    Contexts are no obstacle: the model does not read them.

    Args:
        config: Configuration of the training.
    """
    return (
        config.training.pair_ngram and get_task_settings(config.task).autoregressive and not pair_ngram_obstacle(config)
    )


def pair_ngram_obstacle(config: Config) -> str:
    """Return why a pair n-gram model cannot take part in a training of sequences; "" if it can.

    Args:
        config: Configuration of the training.
    """
    if config.data.features_column and not config.data.context_words:
        return "it does not read features (data.features_column)"
    if config.decoder.pointer_generator:
        return "it cannot copy source symbols (decoder.pointer_generator)"
    return ""


def pair_ngram_notes(config: Config) -> list[str]:
    """Return a list of one sentence if a training lacks the pair n-gram model that its settings ask for by default.

    Args:
        config: Configuration of the training.
    """
    obstacle = pair_ngram_obstacle(config)
    if not (obstacle and config.training.pair_ngram and get_task_settings(config.task).autoregressive):
        return []
    return [f"no pair n-gram model is fitted, because {obstacle}: the network ranks its outputs alone"]
