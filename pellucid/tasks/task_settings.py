"""Settings of each task, and the list of all tasks by name.

The settings of a task are known without its network. Configurations, traces and help need them, and nothing else.

Tasks of other packages are found in two ways: a package declares an entry point of the group `pellucid.tasks`, whose
name is that of the task and whose object is the task, or a program calls `pellucid.register_task`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, runtime_checkable

from pellucid.config.settings import Config
from pellucid.errors import ConfigError, quote

ENTRY_POINTS = "pellucid.tasks"
"""Group of entry points by which installed packages declare tasks."""
AUTOREGRESSIVE_REQUIREMENT = "task = 'transduce', whose outputs are written symbol by symbol"
"""What a setting needs that only autoregressive tasks have."""


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Settings of a task, and the properties of its outputs."""

    name: str
    """Value of the setting `task`."""
    presets: Mapping[str, Mapping[str, Any]]
    """Settings that the task changes, over those of the size."""
    check: Callable[[Config], None]
    """Raises `ConfigError` for settings that the task cannot have."""
    autoregressive: bool = False
    """Whether outputs are written symbol by symbol, each given those before, up to an end symbol."""
    per_position: bool = False
    """Whether each source position has one output symbol, predicted from the state at that position."""
    has_ignored_tag: bool = False
    """Whether outputs may have symbols that are neither trained nor scored (`data.ignored_tag`)."""

    @property
    def is_single_answer(self) -> bool:
        """Whether an output is one answer, or a fixed number of them, about the whole source."""
        return not self.autoregressive and not self.per_position


@runtime_checkable
class RegisteredTask(Protocol):
    """A task, as far as it matters here (tasks/task.py)."""

    @property
    def settings(self) -> TaskSettings:
        """Its settings."""


def require_target_symbols(config: Config, wanted: str = "") -> None:
    """Raise `ConfigError` where targets are not cut as wanted; with no wish, for targets that are positions."""
    given = config.data.target_symbols
    if wanted != given and (wanted or given == "position"):
        needed = f"data.target_symbols = {quote(wanted)}" if wanted else "data.target_symbols other than 'position'"
        raise ConfigError(f"task = {quote(config.task)} needs {needed}, got {quote(given)}")


def reject_feature_prefix(config: Config) -> None:
    """Raise `ConfigError` for features that are read before the source, where answers are source positions."""
    if config.data.features_column and config.encoder.features == "prefix":
        task = quote(config.task)
        raise ConfigError(f"task = {task} with features needs encoder.features = 'sum': they are no positions")


def _check_tag(config: Config) -> None:
    """Raise `ConfigError` for settings that tags cannot have."""
    require_target_symbols(config)
    if config.data.target_symbols == "whole" or not config.data.aligned:
        raise ConfigError("task = 'tag' needs data.aligned = true, and targets that are cut (data.target_symbols)")
    reject_feature_prefix(config)


def _check_classify(config: Config) -> None:
    """Raise `ConfigError` for settings that classes cannot have."""
    require_target_symbols(config, "whole")


def _check_point(config: Config) -> None:
    """Raise `ConfigError` for settings that positions cannot have."""
    require_target_symbols(config, "position")
    _reject_ignored_tag(config)
    reject_feature_prefix(config)
    if config.attention.type in ("none", "monotonic"):
        raise ConfigError(
            f"task = 'point' needs an attention that points, got attention.type = {quote(config.attention.type)}"
        )


TRANSDUCE = TaskSettings(name="transduce", presets={}, check=require_target_symbols, autoregressive=True)
TAG = TaskSettings(
    name="tag",
    presets={"data": {"aligned": True}, "training": {"metric": "symbol_accuracy"}},
    check=_check_tag,
    per_position=True,
    has_ignored_tag=True,
)
CLASSIFY = TaskSettings(name="classify", presets={"data": {"target_symbols": "whole"}}, check=_check_classify)
POINT = TaskSettings(name="point", presets={"data": {"target_symbols": "position"}}, check=_check_point)

BUILT_IN = {each.name: each for each in (TRANSDUCE, TAG, CLASSIFY, POINT)}
_registered: dict[str, RegisteredTask] = {}


def check_task(config: Config) -> None:
    """Raise `ConfigError` for an unknown task, and for settings that the task cannot have."""
    settings = get_task_settings(config.task)
    settings.check(config)
    _reject_ignored_tag(config)


def _reject_ignored_tag(config: Config) -> None:
    """Raise `ConfigError` for symbols that are not scored, where the task has none."""
    if config.data.ignored_tag and not get_task_settings(config.task).has_ignored_tag:
        raise ConfigError(f"data.ignored_tag needs task = 'tag', but it is {quote(config.task)}")


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks: the built-in ones, the registered ones, and those that packages declare."""
    return tuple(dict.fromkeys((*BUILT_IN, *_registered, *_declared_tasks())))


def is_task(name: str) -> bool:
    """Return whether there is a task of this name."""
    return name in BUILT_IN or name in _registered or name in _declared_tasks()


def get_task_settings(name: str) -> TaskSettings:
    """Return the settings of a task.

    Raises:
        ConfigError: There is no such task.
    """
    built_in = BUILT_IN.get(name)
    return built_in if built_in is not None else get_registered_task(name).settings


def add_task(task: RegisteredTask) -> None:
    """Add a task to the list. One that was registered under the same name is replaced; a built-in one cannot be.

    Raises:
        ConfigError: There is a built-in task of this name.
    """
    if task.settings.name in BUILT_IN:
        raise ConfigError(f"there is a built-in task of the name {quote(task.settings.name)}")
    _registered[task.settings.name] = task


def get_registered_task(name: str) -> RegisteredTask:
    """Return a task that is not built in.

    Raises:
        ConfigError: There is no such task, or the package that declares it gives none.
    """
    if name not in _registered:
        declared = _declared_tasks().get(name)
        if declared is None:
            raise ConfigError(f"there is no task {quote(name)} (there are {', '.join(task_names())})")
        task = declared.load()
        if not isinstance(getattr(task, "settings", None), TaskSettings) or task.settings.name != name:
            raise ConfigError(f"the entry point {quote(declared.value)} is not the task {quote(name)}")
        add_task(task)
    return _registered[name]


@cache
def _declared_tasks() -> dict[str, EntryPoint]:
    """Return the tasks that installed packages declare; a built-in one cannot be replaced."""
    return {each.name: each for each in entry_points(group=ENTRY_POINTS) if each.name not in BUILT_IN}
