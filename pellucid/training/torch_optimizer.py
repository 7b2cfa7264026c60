"""Optimizers of other packages: subclasses of `torch.optim.Optimizer`, whose state is saved without pickle.

The state of such an optimizer is a tree of tensors, numbers, texts, lists and dicts. A checkpoint holds the tensors by
name, and the tree as JSON, in which each tensor is replaced by its name.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.argument_checks import convert_argument
from pellucid.config.extensions import ClassRequirement, takes_arguments
from pellucid.config.settings import Amount, LearningRate, TrainingConfig
from pellucid.config.training_types import OPTIMIZER_TYPES
from pellucid.errors import ConfigError, InputError, abbreviate_reason, quote
from pellucid.training.gradient_clipping import clip_gradients

STATE_TREE = "tree"
"""Name of the JSON text in a checkpoint, stored as bytes."""
MAX_DEPTH = 20
"""Maximum nesting of values in the state of an optimizer."""
STORED_TYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
"""Types of tensors that a checkpoint holds."""
STATE_ADVICE = "keep everything that changes in self.state[parameter] and self.param_groups"


def _is_optimizer_class(value: type) -> bool:
    """Return whether a class is an optimizer with a step of its own, built with the arguments of a training."""
    return (
        issubclass(value, torch.optim.Optimizer)
        and value.step is not torch.optim.Optimizer.step
        and takes_arguments(value, 1, ("lr", "weight_decay"))
    )


OPTIMIZER_REQUIREMENT = ClassRequirement(
    "a subclass of torch.optim.Optimizer that takes params, lr and weight_decay", _is_optimizer_class
)
"""Requirement of the classes of other packages."""


def register_optimizer(name: str, optimizer_class: type[torch.optim.Optimizer]) -> None:
    """Register a class of optimizer for this process, in place of a registered one of the same name.

    The setting `training.optimizer` then accepts the name. A training builds the class with the trainable parameters
    as its first argument, `lr`, and `weight_decay` (the setting `training.weight_decay`), and sets "lr" of
    `param_groups` before each step. Gradients are clipped before.

    Other processes (workers of an ensemble, other commands) find an optimizer only as an entry point of the group
    `pellucid.optimizers` of an installed package.

    Args:
        name: Value of the setting `training.optimizer`.
        optimizer_class: The class.

    Raises:
        ArgumentError: The name is empty, too long or not printable; or the class is not a subclass of
            `torch.optim.Optimizer`, has no step of its own, or takes other arguments.
        ConfigError: A built-in optimizer has this name.
    """
    OPTIMIZER_TYPES.register_class("optimizer_class", name, optimizer_class, OPTIMIZER_REQUIREMENT)


def check_optimizer(
    optimizer_class: type[torch.optim.Optimizer], learning_rate: float = 0.001, weight_decay: float = 0.0
) -> None:
    """Check a class of optimizers as a training does before its first update, for the tests of its author.

    Three updates of small parameters are computed, with and without saving the state between them, with a parameter
    without a gradient, and at a learning rate of 0.

    Args:
        optimizer_class: The class; it need not be registered.
        learning_rate: Peak learning rate.
        weight_decay: Weight decay.

    Raises:
        ArgumentError: The class is not a subclass of `torch.optim.Optimizer`, has no step of its own, or takes other
            arguments.
        ConfigError: The class fails the check (`check_updates`).
    """
    if not OPTIMIZER_REQUIREMENT.is_met(optimizer_class):
        raise OPTIMIZER_REQUIREMENT.argument_error("optimizer_class", optimizer_class)
    rate = convert_argument("learning_rate", learning_rate, LearningRate)
    decay = convert_argument("weight_decay", weight_decay, Amount)
    check_updates(optimizer_class, optimizer_class.__name__, rate, decay)


class TorchOptimizer:
    """An optimizer of another package, with the methods of `Adam`."""

    def __init__(self, network: nn.Module, config: TrainingConfig) -> None:
        """Build the optimizer of all trainable parameters, and check its class by a few updates.

        Args:
            network: Network to train.
            config: Training settings, with the name of the optimizer.

        Raises:
            ConfigError: There is no such optimizer, its entry point does not provide a class as `register_optimizer`
                accepts, or the class fails the check (`check_updates`).
        """
        self.name = config.optimizer
        optimizer_class: type[torch.optim.Optimizer] = OPTIMIZER_TYPES.get_class(self.name, OPTIMIZER_REQUIREMENT)
        self.optimizer_class = optimizer_class
        self.weight_decay = config.weight_decay
        named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters: list[Tensor] = [parameter for _, parameter in named]
        check_updates(optimizer_class, self.name, config.learning_rate, config.weight_decay)
        self.optimizer = build_torch_optimizer(
            optimizer_class, self.name, self.parameters, config.learning_rate, config.weight_decay
        )

    def update(
        self, gradients: Sequence[Tensor | None], rate: float, clip_value: float = 0.0, clip_norm: float = 0.0
    ) -> float:
        """Clip the gradients and update the parameters in place; the given gradients are not changed.

        Args:
            gradients: Gradients in the order of `parameters`; None for a parameter without one. Sparse ones become
                dense.
            rate: Learning rate.
            clip_value: Clip each entry to ±`clip_value` first; 0 = off.
            clip_norm: Then scale all gradients so that their joint Euclidean norm is at most this; 0 = off.

        Returns:
            The joint norm after clipping by value and before clipping by norm (`clip_gradients`). If it is not finite,
            the parameters are unchanged.
        """
        with torch.no_grad():
            copies = [None if gradient is None else _dense_copy(gradient) for gradient in gradients]
            norm = clip_gradients([copy.view(-1) for copy in copies if copy is not None], clip_value, clip_norm)
            if math.isfinite(norm):
                with wrap_optimizer_errors(self.name):
                    take_step(self.optimizer, self.parameters, copies, rate)
        return norm

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: its tensors by name, and the tree of all values as `STATE_TREE`.

        Raises:
            ConfigError: A value of the state cannot be stored.
        """
        return encode_state(self.optimizer, self.parameters, self.names, self.name)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Copy the `state` of another optimizer of equal parameters, such as that of a checkpoint, into this one.

        Args:
            state: Tensors by name, with the tree.

        Raises:
            ValueError: The state is not that of such an optimizer; nothing is changed.
        """
        decode_state(self.optimizer, self.parameters, self.names, state)

    def check_state(self, state: Mapping[str, Tensor]) -> None:
        """Check that a stored state can be restored; nothing is changed.

        Args:
            state: Tensors by name, with the tree.

        Raises:
            ValueError: It cannot.
        """
        _parse_state(self.parameters, self.names, state)


def take_step(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], rate: float
) -> None:
    """Update parameters by their gradients, which are removed from them afterwards.

    Args:
        optimizer: Optimizer of the parameters.
        parameters: The parameters.
        gradients: Gradient of each parameter, or None.
        rate: Learning rate.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    try:
        optimizer.step()
    finally:
        for parameter in parameters:
            parameter.grad = None


def _dense_copy(gradient: Tensor) -> Tensor:
    """Return a dense copy of a gradient, whose numbers are contiguous."""
    dense = gradient.to_dense() if gradient.is_sparse else gradient.detach()
    return dense.clone(memory_format=torch.contiguous_format)


@contextmanager
def wrap_optimizer_errors(name: str) -> Iterator[None]:
    """Convert any error of an optimizer of another package in the block to `ConfigError`.

    Args:
        name: Name of the optimizer in the settings.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the code of another package may raise anything
        raise ConfigError(f"the optimizer {quote(name)} failed: {abbreviate_reason(error)}") from error


def build_torch_optimizer(
    optimizer_class: type[torch.optim.Optimizer],
    name: str,
    parameters: Sequence[Tensor],
    learning_rate: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """Build an optimizer of another package.

    Args:
        optimizer_class: Its class.
        name: Its name in the settings.
        parameters: Parameters to train.
        learning_rate: Peak learning rate.
        weight_decay: Weight decay.

    Raises:
        ConfigError: The class cannot be built with these arguments.
    """
    build = cast(Any, optimizer_class)
    with wrap_optimizer_errors(name):
        optimizer: torch.optim.Optimizer = build(list(parameters), lr=learning_rate, weight_decay=weight_decay)
    return optimizer


def check_updates(
    optimizer_class: type[torch.optim.Optimizer], name: str, learning_rate: float, weight_decay: float
) -> None:
    """Check a class of optimizers of another package by three updates of small parameters.

    Args:
        optimizer_class: The class.
        name: Its name in the settings.
        learning_rate: Peak learning rate.
        weight_decay: Weight decay.

    Raises:
        ConfigError: An update fails, changes a parameter without a gradient, does not depend on the learning rate, or
            after the state is saved and restored differs from that of the uninterrupted optimizer.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), wrap_optimizer_errors(name):
        first, second, third = (
            _TestedOptimizer(optimizer_class, name, learning_rate, decay) for decay in (weight_decay, weight_decay, 0.0)
        )
        _check_resume(first, second)
        _check_unused_parameter(first)
        _check_zero_rate(third)


def _check_resume(optimizer: "_TestedOptimizer", resumed: "_TestedOptimizer") -> None:
    """Raise `ConfigError` if the third update of an optimizer differs from that of another with its saved state."""
    optimizer.take_steps(0, 2)
    with torch.no_grad():
        for copy, parameter in zip(resumed.parameters, optimizer.parameters, strict=True):
            copy.copy_(parameter)
    state = encode_state(optimizer.optimizer, optimizer.parameters, TESTED_NAMES, optimizer.name)
    decode_state(resumed.optimizer, resumed.parameters, TESTED_NAMES, state)
    optimizer.take_steps(2, 3)
    resumed.take_steps(2, 3)
    if not all(map(torch.equal, optimizer.parameters, resumed.parameters)):
        raise ConfigError(
            f"the optimizer {quote(optimizer.name)} gives other updates after its state is saved and restored, so a "
            f"resumed training would differ: {STATE_ADVICE}"
        )


def _check_unused_parameter(optimizer: "_TestedOptimizer") -> None:
    """Raise `ConfigError` if the updates of an optimizer have changed the parameter without a gradient."""
    if not torch.equal(optimizer.parameters[2], torch.ones_like(optimizer.parameters[2])):
        raise ConfigError(f"the optimizer {quote(optimizer.name)} changes a parameter without a gradient")


def _check_zero_rate(optimizer: "_TestedOptimizer") -> None:
    """Raise `ConfigError` if an update of a new optimizer without weight decay at rate 0 changes a parameter."""
    optimizer.take_steps(0, 1, rate=0.0)
    if not all(torch.equal(parameter, torch.ones_like(parameter)) for parameter in optimizer.parameters):
        raise ConfigError(
            f"the optimizer {quote(optimizer.name)} changes parameters at a learning rate of 0: read group['lr'] of "
            "self.param_groups at each step, which the schedule sets"
        )


TESTED_NAMES = ("parameter 1", "parameter 2", "parameter 3")
"""Names of the parameters of `_TestedOptimizer`, in messages."""


class _TestedOptimizer:
    """An optimizer of three small parameters, the last of which has no gradient."""

    def __init__(
        self, optimizer_class: type[torch.optim.Optimizer], name: str, learning_rate: float, weight_decay: float
    ) -> None:
        """Build the optimizer; all parameters are ones."""
        self.name = name
        self.parameters = [nn.Parameter(torch.ones(shape)) for shape in ((3, 2), (2,), (2,))]
        self.optimizer = build_torch_optimizer(optimizer_class, name, self.parameters, learning_rate, weight_decay)

    @torch.no_grad()
    def take_steps(self, start: int, stop: int, rate: float = 0.01) -> None:
        """Take the steps of some numbers, whose gradients and random numbers depend on the number only."""
        for number in range(start, stop):
            torch.manual_seed(number)
            gradients = [torch.randn_like(parameter) for parameter in self.parameters[:2]]
            take_step(self.optimizer, self.parameters, [*gradients, None], rate)


def encode_state(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], names: Sequence[str], name: str
) -> dict[str, Tensor]:
    """Return the state of an optimizer as tensors by name, with the tree of all values as bytes of JSON.

    Args:
        optimizer: The optimizer.
        parameters: Its parameters.
        names: Name of each parameter.
        name: Name of the optimizer in the settings, for messages.

    Raises:
        ConfigError: A value cannot be stored.
    """
    known = set(map(id, parameters))
    for key in optimizer.state:
        if id(key) not in known:
            raise ConfigError(
                f"the optimizer {quote(name)} has state of {quote(key)}, which is not a parameter, so a checkpoint "
                f"would not hold it: {STATE_ADVICE}"
            )
    encoder = _StateEncoder(name)
    states = {
        parameter_name: encoder.encode(dict(optimizer.state[parameter]), parameter_name)
        for parameter_name, parameter in zip(names, parameters, strict=True)
        if parameter in optimizer.state
    }
    groups = [
        encoder.encode({key: value for key, value in group.items() if key != "params"}, f"groups.{index}")
        for index, group in enumerate(optimizer.param_groups)
    ]
    text = json.dumps({"state": states, "groups": groups})
    return {**encoder.tensors, STATE_TREE: torch.from_numpy(np.frombuffer(text.encode(), np.uint8).copy())}


class _StateEncoder:
    """Conversion of the state of an optimizer to JSON, and to tensors by name."""

    def __init__(self, name: str) -> None:
        """Begin without tensors; `name` is that of the optimizer, for messages."""
        self.name = name
        self.tensors = dict[str, Tensor]()

    def encode(self, value: object, path: str, depth: int = 0) -> Any:  # noqa: ANN401 (JSON)
        """Return a value as JSON, whose tensors are added to `tensors`."""
        unsupported = type(value).__name__
        match value:
            case _ if depth > MAX_DEPTH:
                unsupported = f"values nested more than {MAX_DEPTH} deep"
            case None | bool() | str():
                return value
            case int() | float():
                return value.item() if isinstance(value, np.generic) else value
            case Tensor() if value.dtype in STORED_TYPES and not value.is_sparse:
                tensor_name = f"{len(self.tensors)}.{path}"  # paths alone are not unique: keys may contain dots
                self.tensors[tensor_name] = value.detach()
                return {"tensor": tensor_name, "cpu": value.device.type == "cpu"}
            case Tensor():
                unsupported = f"a tensor of type {value.dtype}"
            case dict() if all(isinstance(key, str | int) for key in value):
                return {"dict": [[key, self.encode(item, f"{path}.{key}", depth + 1)] for key, item in value.items()]}
            case list() | tuple():
                items = [self.encode(item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)]
                return {"list" if isinstance(value, list) else "tuple": items}
        raise ConfigError(
            f"the optimizer {quote(self.name)} has {unsupported} in its state ({path}); a checkpoint holds numbers, "
            "texts, lists, dicts, and tensors of float32, float64, int64, int32, uint8 and bool"
        )


def decode_state(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], names: Sequence[str], state: Mapping[str, Tensor]
) -> None:
    """Copy a stored state into an optimizer.

    Args:
        optimizer: The optimizer.
        parameters: Its parameters.
        names: Name of each parameter.
        state: Tensors by name, with the tree (`encode_state`).

    Raises:
        ValueError: The state is not of such an optimizer; nothing is changed.
    """
    states, groups = _parse_state(parameters, names, state)
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"expected {len(optimizer.param_groups)} groups of parameters, got {len(groups)}")
    optimizer.state.clear()
    for name, parameter in zip(names, parameters, strict=True):
        if name in states:
            optimizer.state[parameter] = states[name]
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        group.update(values)


def _parse_state(
    parameters: Sequence[Tensor], names: Sequence[str], state: Mapping[str, Tensor]
) -> tuple[dict[str, dict[Any, Any]], list[dict[Any, Any]]]:
    """Return the state of each parameter by its name, and the values of the groups; raise `ValueError` for others."""
    try:
        tree = json.loads(state[STATE_TREE].numpy().tobytes())
        known = dict(zip(names, parameters, strict=True))
        states = {name: _decode_value(value, state, known[name].device) for name, value in tree["state"].items()}
        device = parameters[0].device
        groups = [_decode_value(value, state, device) for value in tree["groups"]]
        if not all(isinstance(value, dict) and "params" not in value for value in (*states.values(), *groups)):
            raise ValueError("expected tables")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"it holds no state of this optimizer: {abbreviate_reason(error)}") from error
    return states, groups


def _decode_value(value: Any, state: Mapping[str, Tensor], device: torch.device, depth: int = 0) -> Any:  # noqa: ANN401
    """Return a value from its JSON; its tensors are copies on their devices."""
    if depth > MAX_DEPTH:
        raise ValueError("values are nested too deeply")
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return state[value["tensor"]].to("cpu" if value["cpu"] else device, copy=True)
    ((kind, items),) = value.items()
    if kind == "dict":
        return {key: _decode_value(item, state, device, depth + 1) for key, item in items}
    decoded = [_decode_value(item, state, device, depth + 1) for item in items]
    return decoded if kind == "list" else tuple(decoded)
