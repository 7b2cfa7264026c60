"""Optimizers of other packages: subclasses of `torch.optim.Optimizer`, whose state is saved without pickle.

The state of such an optimizer is a tree of tensors, numbers, texts, lists and dicts. A checkpoint holds the tensors by
name, and the tree as JSON, in which each tensor is replaced by its name.
"""

import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.argument_checks import argument_error, convert_argument
from pellucid.config.extensions import check_name
from pellucid.config.settings import TrainingConfig
from pellucid.config.training_types import OPTIMIZER_TYPES
from pellucid.errors import ConfigError, InputError, abbreviate_reason, quote

REQUIREMENT = "a subclass of torch.optim.Optimizer that takes params, lr and weight_decay"
"""Requirement of the classes of other packages, for messages."""
TREE = "tree"
"""Name of the JSON text in a checkpoint, stored as bytes."""
MAX_DEPTH = 20
"""Maximum nesting of values in the state of an optimizer."""
STORED_TYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
"""Types of tensors that a checkpoint holds."""
ADVICE = "keep everything that changes in self.state[parameter] and self.param_groups"


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
    name = convert_argument("name", name, str)
    check_name("name", name)
    if not _is_buildable(optimizer_class):
        raise argument_error("optimizer_class", REQUIREMENT, optimizer_class)
    OPTIMIZER_TYPES.add(name, optimizer_class)


def _is_buildable(value: object) -> bool:
    """Return whether a value is a class of optimizers with a step of its own and the arguments of a training."""
    if not issubclass(type(value), type):  # isinstance would read __class__, which may raise anything
        return False
    optimizer_class = cast(type, value)
    if not issubclass(optimizer_class, torch.optim.Optimizer) or optimizer_class.step is torch.optim.Optimizer.step:
        return False
    try:
        inspect.signature(optimizer_class).bind([], lr=0.1, weight_decay=0.0)
    except (TypeError, ValueError):
        return False
    return True


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
        optimizer_class = OPTIMIZER_TYPES.get(self.name)
        if not _is_buildable(optimizer_class):
            raise ConfigError(f"the class of the optimizer {quote(self.name)} is not {REQUIREMENT}")
        self.optimizer_class: type[torch.optim.Optimizer] = optimizer_class
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
            clip_value: Clip each entry to ±`clip_value` first; 0 is off.
            clip_norm: Then scale all gradients so that their joint Euclidean norm is at most this; 0 is off.

        Returns:
            The joint norm after clipping by value and before clipping by norm. If it is not finite, the parameters are
            unchanged.
        """
        with torch.no_grad():
            copies = [None if gradient is None else _dense_copy(gradient) for gradient in gradients]
            present = [copy for copy in copies if copy is not None]
            if clip_value:
                for copy in present:
                    copy.clamp_(-clip_value, clip_value)
            norms = [torch.linalg.vector_norm(copy, dtype=torch.float64) for copy in present]
            norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
            if not math.isfinite(norm):
                return math.inf
            if clip_norm and (scale := clip_norm / (norm + 1e-6)) < 1.0:
                for copy in present:
                    copy.mul_(scale)
            with _named_errors(self.name):
                take_step(self.optimizer, self.parameters, copies, rate)
        return norm

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: its tensors by name, and the tree of all values as `TREE`.

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
    """Return a dense copy of a gradient."""
    return gradient.to_dense().clone() if gradient.is_sparse else gradient.detach().clone()


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Convert any error of an optimizer of another package in the block to `ConfigError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the code of another package may raise anything
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
    with _named_errors(name):
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
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), _named_errors(name):
        first = _TestedOptimizer(optimizer_class, name, learning_rate, weight_decay)
        first.take_steps(0, 2)
        names = ["a", "b", "c"]
        resumed = _TestedOptimizer(optimizer_class, name, learning_rate, weight_decay)
        for parameter, value in zip(resumed.parameters, first.parameters, strict=True):
            parameter.data.copy_(value.data)
        state = {key: value.clone() for key, value in encode_state(
            first.optimizer, first.parameters, names, name).items()}  # fmt: skip
        decode_state(resumed.optimizer, resumed.parameters, names, state)
        first.take_steps(2, 3)
        resumed.take_steps(2, 3)
        unchanged = torch.equal(first.parameters[2], torch.ones(2))
        same = all(torch.equal(a, b) for a, b in zip(first.parameters, resumed.parameters, strict=True))
        still = _TestedOptimizer(optimizer_class, name, learning_rate, 0.0)
        still.take_steps(0, 1, rate=0.0)
        is_still = all(torch.equal(parameter, torch.ones_like(parameter)) for parameter in still.parameters)
    if not unchanged:
        raise ConfigError(f"the optimizer {quote(name)} changes a parameter without a gradient")
    if not same:
        raise ConfigError(
            f"the optimizer {quote(name)} continues otherwise after its state is saved and restored, so a resumed "
            f"training would differ: {ADVICE}"
        )
    if not is_still:
        raise ConfigError(
            f"the optimizer {quote(name)} changes parameters at a learning rate of 0: read group['lr'] of "
            "self.param_groups at each step, which the schedule sets"
        )


class _TestedOptimizer:
    """An optimizer of three small parameters, the last of which has no gradient."""

    def __init__(
        self, optimizer_class: type[torch.optim.Optimizer], name: str, learning_rate: float, weight_decay: float
    ) -> None:
        """Build the optimizer; all parameters are ones."""
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
    tensors = dict[str, Tensor]()
    states = {
        parameter_name: _encode_value(dict(optimizer.state[parameter]), parameter_name, tensors, name)
        for parameter_name, parameter in zip(names, parameters, strict=True)
        if parameter in optimizer.state
    }
    groups = [
        _encode_value({key: value for key, value in group.items() if key != "params"}, f"groups.{index}", tensors, name)
        for index, group in enumerate(optimizer.param_groups)
    ]
    text = json.dumps({"state": states, "groups": groups})
    return {**tensors, TREE: torch.from_numpy(np.frombuffer(text.encode(), np.uint8).copy())}


def _encode_value(value: object, path: str, tensors: dict[str, Tensor], name: str) -> Any:  # noqa: ANN401 (JSON)
    """Return a value as JSON, whose tensors are added to `tensors` by their paths."""
    match value:
        case None | bool() | str():
            return value
        case int() | float():
            return value.item() if isinstance(value, np.generic) else value
        case Tensor():
            if value.dtype not in STORED_TYPES or value.is_sparse:
                break_reason = f"a tensor of type {value.dtype}"
            else:
                tensors[path] = value.detach()
                return {"tensor": path, "cpu": value.device.type == "cpu"}
        case dict() if all(isinstance(key, str | int) for key in value):
            return {"dict": [[key, _encode_value(item, f"{path}.{key}", tensors, name)] for key, item in value.items()]}
        case list() | tuple():
            items = [_encode_value(item, f"{path}.{index}", tensors, name) for index, item in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": items}
        case _:
            break_reason = type(value).__name__
    raise ConfigError(
        f"the optimizer {quote(name)} has {break_reason} in its state ({path}); a checkpoint holds numbers, texts, "
        "lists, dicts, and tensors of float32, float64, int64, int32, uint8 and bool"
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
        tree = json.loads(state[TREE].numpy().tobytes())
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
