"""The default size of a network, which the number of training pairs determines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pellucid.config.presets import LARGE_DATA, default_size, gives_size
from pellucid.config.settings import DEFAULT_TASK, Config, DataConfig, Size, TaskName
from pellucid.config.toml import build_config
from pellucid.data.examples import count_examples, count_table_examples
from pellucid.data.in_memory import InMemoryTable
from pellucid.data.prepared_data import is_prepared, read_description


def size_for_file(
    train: Path | InMemoryTable, config: DataConfig, task: TaskName, train_target: Path | None = None
) -> Size:
    """Return the default size for a training file or table (`default_size`).

    Its pairs are counted as a training reads them, those that are held out for validation included.

    Args:
        train: File or table of training pairs, file of training sources, or folder of prepared data. If it cannot be
            read twice, such as a pipe, the number of pairs is not known.
        config: Data settings.
        task: Name of the task.
        train_target: File of the targets, if `train` holds sources only.
    """
    if task != DEFAULT_TASK:
        return default_size(None, task)
    if isinstance(train, InMemoryTable):
        return default_size(count_table_examples(train, config, LARGE_DATA), task)
    if is_prepared(train):
        return default_size(read_description(train).num_pairs, task)
    return default_size(count_examples(train, config, LARGE_DATA, train_target), task)


def build_sized_config(
    settings: Mapping[str, Any], origin: str, train: Path | InMemoryTable, train_target: Path | None = None
) -> Config:
    """Return the complete configuration of some settings; without a size, the training file determines it.

    Args:
        settings: Settings, nested like a configuration.
        origin: Origin of the settings, with which messages begin.
        train: File or table of training pairs, or file of training sources.
        train_target: File of the targets, if `train` holds sources only.

    Raises:
        ConfigError: A key is unknown, a value is invalid, or settings contradict each other.
    """
    config = build_config(settings, origin)
    if gives_size(settings):
        return config
    size = size_for_file(train, config.data, config.task, train_target)
    return config if size == config.size else build_config({**settings, "size": size}, origin)
