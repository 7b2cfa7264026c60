"""Callbacks that the settings name: construction in the training process, calls, and failures.

Each training process constructs its own objects: the process of the command, a worker of an ensemble, or that of a
resumed training. A callback that fails is reported, and the training continues without it.
"""

import inspect
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from pellucid.argument_checks import python_scalar
from pellucid.config.extensions import ClassRequirement, takes_arguments
from pellucid.config.settings import Config
from pellucid.config.toml import check_training_extensions, convert_settings
from pellucid.config.training_types import CALLBACK_TYPES
from pellucid.errors import ConfigError, InputError, abbreviate_reason, quote
from pellucid.training.events import (
    CallbackFailed,
    CallbackInterrupted,
    RunEvent,
    TrainingCallback,
    TrainingStopped,
)

BUILT_IN_CALLBACKS: Mapping[str, str] = {"tensorboard": "TensorBoardCallback", "mlflow": "MLflowCallback"}
"""Classes of training/loggers.py by their names in the settings."""


def _is_callback_class(value: Any) -> bool:  # noqa: ANN401 (a class whose methods are read)
    """Return whether a class has the method of a callback, and is built without arguments."""
    return (
        not inspect.isabstract(value)
        and value is not TrainingCallback
        and takes_arguments(value, 0)
        and takes_arguments(value.on_event, 3)
    )


def _find_fault(value: Any) -> str:  # noqa: ANN401 (a class whose methods are read)
    """Return the wrong method of a class of callbacks, in words; "" if there is none."""
    if value is TrainingCallback or not callable(method := getattr(value, "on_event", None)):
        return "it lacks on_event(self, folder, event)"
    if not takes_arguments(method, 3):
        return f"its on_event takes {', '.join(inspect.signature(method).parameters)}"
    return ""


CALLBACK_REQUIREMENT = ClassRequirement(
    "a class with the method on_event(folder, event), built without arguments", _is_callback_class, _find_fault
)
"""Requirement of the classes of other packages."""


def register_callback(name: str, callback_class: type[TrainingCallback]) -> None:
    """Register a class of callbacks for this process, in place of a registered one of the same name.

    The setting `training.callbacks` then accepts the name. Each training process builds the class without arguments.

    Other processes (workers of an ensemble, other commands) find a callback only as an entry point of the group
    `pellucid.callbacks` of an installed package. For a single training, `pellucid.train(..., callbacks=[...])` takes
    objects without a name.

    Args:
        name: Item of the setting `training.callbacks`.
        callback_class: The class.

    Raises:
        ArgumentError: The name is empty, too long or not printable; or the value is not a class with the method
            `on_event(folder, event)`, or takes arguments.
        ConfigError: A built-in callback has this name.
    """
    CALLBACK_TYPES.register_class("callback_class", name, callback_class, CALLBACK_REQUIREMENT)


def build_callbacks(config: Config) -> dict[str, TrainingCallback]:
    """Return new objects of the callbacks of a training, by name, after checking the names of all its extensions.

    Args:
        config: Configuration of the training.

    Raises:
        ConfigError: An extension is not known, its entry point does not provide a class as `register_callback` accepts,
            or it cannot be built.
        MissingDependencyError: A built-in callback needs a package that is not installed.
    """
    config = convert_settings(config)
    check_training_extensions(config)
    return {name: _build_callback(name) for name in config.training.callbacks}


def _build_callback(name: str) -> TrainingCallback:
    """Return a new object of a callback."""
    if name in BUILT_IN_CALLBACKS:
        callback_class = getattr(import_module("pellucid.training.loggers"), BUILT_IN_CALLBACKS[name])
    else:
        callback_class = CALLBACK_TYPES.get_class(name, CALLBACK_REQUIREMENT)
    try:
        return cast(TrainingCallback, callback_class())
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the code of another package may raise anything
        raise ConfigError(f"the callback {quote(name)} cannot be built: {abbreviate_reason(error)}") from error


def is_interruption(result: object) -> bool:
    """Return whether the result of `on_event` interrupts the training: `True`, also that of NumPy.

    Args:
        result: The result.
    """
    return python_scalar(result) is True


def notify_callbacks(
    events: Generator[RunEvent], folder: Path, callbacks: Mapping[str, TrainingCallback]
) -> Generator[RunEvent]:
    """Call callbacks with each event of a training.

    Args:
        events: Events of the training; closing it saves the state of the training.
        folder: Run folder.
        callbacks: The callbacks by name.

    Yields:
        Each event after the callbacks were called with it, `CallbackFailed` after the event at which one failed, and
        last `CallbackInterrupted` if one ended the training.

    Raises:
        KeyboardInterrupt: One was raised in a callback; `CallbackInterrupted` is yielded before.
    """
    active = dict(callbacks)
    with _closed_at_end(active):
        for event in events:
            failures, interrupting = list[CallbackFailed](), ""
            for name, callback in list(active.items()):
                try:
                    is_interrupted = is_interruption(callback.on_event(folder, event))
                except (Exception, SystemExit) as error:  # the code of another package may raise anything
                    kind, reason = type(error).__name__, abbreviate_reason(error)
                    failures.append(CallbackFailed(name, type(event).__name__, f"{kind}: {reason}"))
                    close_callbacks({name: active.pop(name)})
                    continue
                except KeyboardInterrupt:
                    events.close()
                    yield CallbackInterrupted(name)
                    raise
                interrupting = interrupting or (name if is_interrupted else "")
            yield event
            yield from failures
            if interrupting and not isinstance(event, TrainingStopped):
                events.close()
                yield CallbackInterrupted(interrupting)
                return
        yield from close_callbacks(active)


@contextmanager
def _closed_at_end(active: dict[str, TrainingCallback]) -> Generator[None]:
    """Close the callbacks at the end of the block, also after an error; nobody receives their failures then."""
    try:
        yield
    finally:
        close_callbacks(active)


def close_callbacks(active: dict[str, TrainingCallback]) -> list[CallbackFailed]:
    """Close the callbacks that have a method for it, and return the failures.

    Args:
        active: The callbacks by name; all are removed.
    """
    failures = list[CallbackFailed]()
    while active:
        name, callback = active.popitem()
        close = getattr(callback, "close", None)
        try:
            if callable(close):
                close()
        except (Exception, SystemExit) as error:  # the code of another package may raise anything
            kind, reason = type(error).__name__, abbreviate_reason(error)
            failures.append(CallbackFailed(name, "close", f"{kind}: {reason}"))
    return failures
