"""The task of a name or configuration, and the network and ensemble that it builds.

The settings of the tasks, and the list of registered and declared tasks, are in config/task_settings.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields

import torch

from pellucid.argument_checks import argument_error, convert_argument
from pellucid.config.extensions import convert_name
from pellucid.config.settings import Config, has_characters
from pellucid.config.task_settings import TASKS, TaskSettings
from pellucid.config.toml import check_settings
from pellucid.data.characters import encode_characters
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.ensemble import join_members
from pellucid.decoding.predictor import Predictor
from pellucid.errors import ArgumentError, ConfigError, quote
from pellucid.evaluation.task_metrics import TaskMetrics
from pellucid.model.network import Network, build_parts, seeded
from pellucid.tasks import classify, point, tag, tag_and_classify, transduce
from pellucid.tasks.task import Task, TaskLabels

BUILT_IN_TASKS: dict[str, Task] = {
    task.settings.name: task for task in (transduce.TASK, tag.TASK, classify.TASK, point.TASK, tag_and_classify.TASK)
}


def register_task(task: Task) -> None:
    """Register a task for this process, in place of a registered one of the same name.

    Other processes (workers of an ensemble, other commands) find a task only as an entry point of the group
    `pellucid.tasks` of an installed package.

    Args:
        task: The task.

    Raises:
        ArgumentError: The value is not an instance of `Task` with settings and a name; labels or metrics are missing; a
            field of its settings has a wrong type; or its presets have an unknown key or a value that the setting does
            not accept.
        ConfigError: A built-in task has this name.
    """
    if not _has_name(task):
        raise argument_error("task", "an instance of pellucid.Task with settings and a name", task)
    _check_attributes(task)
    _check_settings(task.settings)
    TASKS.register(task.settings.name, task)


def _check_attributes(task: Task) -> None:
    """Raise `ArgumentError` if a task has no labels or no metrics, which would fail only in a training."""
    for name, kind in (("labels", TaskLabels), ("metrics", TaskMetrics)):
        value = getattr(task, name, None)
        if not isinstance(value, kind):
            raise argument_error(f"task.{name}", f"an instance of {kind.__name__}", value)


def _check_settings(settings: TaskSettings) -> None:
    """Raise `ArgumentError` for a field of a wrong type and for wrong presets, which would fail only in a training."""
    convert_name("task.settings.name", settings.name)
    if not callable(settings.check):
        raise argument_error("task.settings.check", "a function", settings.check)
    presets = convert_argument("task.settings.presets", settings.presets, Mapping[str, Mapping[str, object]])
    try:
        check_settings(presets)
    except ConfigError as error:
        raise ArgumentError(f"task.settings.presets: {error}") from None
    for field in fields(settings):
        if field.type in (bool, str):
            convert_argument(f"task.settings.{field.name}", getattr(settings, field.name), field.type)


def _has_name(task: object) -> bool:
    """Return whether a value is a task with settings and a name."""
    try:
        settings = getattr(task, "settings", None) if isinstance(task, Task) else None
        return isinstance(settings, TaskSettings) and isinstance(settings.name, str) and settings.name != ""
    except Exception:  # methods of the value may raise anything
        return False


def get_task(name: str) -> Task:
    """Return the task of a name.

    Args:
        name: Value of the setting `task`.

    Raises:
        ConfigError: There is no such task, its entry point does not provide it, or it is not an instance of `Task` with
            labels and metrics.
    """
    if name in BUILT_IN_TASKS:
        return BUILT_IN_TASKS[name]
    task = TASKS.get(name)
    if not isinstance(task, Task):
        raise ConfigError(f"the task {quote(name)} is not an instance of pellucid.Task")
    try:
        _check_attributes(task)
    except ArgumentError as error:
        raise ConfigError(f"the task {quote(name)}: {error}") from None
    return task


def build_network(config: Config, vocabularies: Vocabularies) -> Network:
    """Return a new network, in training mode, with random parameters from the seed of the configuration.

    The state of the random number generator is restored afterwards.

    Args:
        config: The configuration.
        vocabularies: The vocabularies of the run.

    Raises:
        ConfigError: As in `get_task`.
    """
    with seeded(config.seed):
        return get_task(config.task).build_network(build_parts(config, vocabularies))


def build_meta_network(config: Config, vocabularies: Vocabularies) -> Network:
    """Return a network on the meta device: names and shapes of parameters without memory or values.

    Args:
        config: The configuration.
        vocabularies: The vocabularies of the run.

    Raises:
        ConfigError: As in `get_task`.
    """
    with torch.device("meta"):
        return build_network(config, vocabularies)


def encode_for_task(
    examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, config: Config
) -> EncodedExamples:
    """Return examples as ids, as the task of a configuration encodes them, with characters if the encoder reads them.

    Args:
        examples: Examples.
        tokenizers: Tokenizers of the run.
        vocabularies: Vocabularies of the run.
        config: Configuration.
    """
    encoded = get_task(config.task).encode_examples(examples, tokenizers, vocabularies, config)
    if not has_characters(config):
        return encoded
    return encoded._replace(characters=encode_characters(examples, tokenizers, vocabularies.characters))


def build_ensemble(members: Sequence[Predictor], names: Sequence[str]) -> Predictor:
    """Return the predictor that combines several predictors of one task by the mean of their probabilities.

    Args:
        members: Predictors of the models, the first of which controls the search.
        names: Name of each model in error messages.

    Raises:
        RunError: There is no model, or two differ in task, target symbols or tokenization (`join_members`).
    """
    parts = join_members(members, names)
    return get_task(parts.config.task).build_ensemble(parts)
