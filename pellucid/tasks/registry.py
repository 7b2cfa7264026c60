"""The task of a configuration, and what is built by it."""

from collections.abc import Sequence

import torch

from pellucid.config.settings import Config
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.ensemble import join_members
from pellucid.decoding.predictor import Predictor
from pellucid.errors import ArgumentError, ConfigError, quote
from pellucid.model.network import Network, build_parts, seeded
from pellucid.tasks import classify, point, tag, task_settings, transduce
from pellucid.tasks.task import Task

BUILT_IN: dict[str, Task] = {each.settings.name: each for each in (transduce.TASK, tag.TASK, classify.TASK, point.TASK)}


def register_task(task: Task) -> None:
    """Add a task, so that configurations of this process may name it.

    A task that other processes are to know (the worker processes of an ensemble, another command) must be an entry
    point of the group `pellucid.tasks` of an installed package instead.

    Raises:
        ArgumentError: This is not a task.
        ConfigError: There is a built-in task of this name.
    """
    settings = getattr(task, "settings", None) if isinstance(task, Task) else None
    if not isinstance(settings, task_settings.TaskSettings) or not isinstance(settings.name, str) or not settings.name:
        raise ArgumentError(f"task: expected a pellucid.Task with settings and a name, got {quote(task)}")
    task_settings.add_task(task)


def get_task(name: str) -> Task:
    """Return the task of a name.

    Raises:
        ConfigError: There is no such task.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = task_settings.get_registered_task(name)
    if not isinstance(found, Task):
        raise ConfigError(f"what is registered as the task {quote(name)} is no pellucid.Task")
    return found


def configured_task(config: Config) -> Task:
    """Return the task of a configuration."""
    return get_task(config.task)


def build_network(config: Config, vocabularies: Vocabularies) -> Network:
    """Return a new network; its parameters are a function of the configuration's seed and nothing else."""
    with seeded(config.seed):
        return configured_task(config).build_network(build_parts(config, vocabularies))


def build_meta_network(config: Config, vocabularies: Vocabularies) -> Network:
    """Return a network of names and shapes alone, on the meta device: no memory is taken, no number is drawn."""
    with torch.device("meta"):
        return build_network(config, vocabularies)


def build_predictor(config: Config, vocabularies: Vocabularies, network: Network, name: str = "") -> Predictor:
    """Return what predicts with a network; `name` is what errors call it."""
    return configured_task(config).build_predictor(config, vocabularies, network, name)


def build_ensemble(members: Sequence[Predictor], names: Sequence[str]) -> Predictor:
    """Return trained models as one; `RunError` where they do not predict the same."""
    joined = join_members(members, names)
    return configured_task(joined.config).build_ensemble(joined)
