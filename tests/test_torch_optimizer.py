"""Optimizers of other packages: their updates, their state in checkpoints, and classes that are refused."""

import inspect
import re
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from extension_pages import load_page_module
from safetensors.numpy import load_file
from torch import Tensor, nn
from trained_runs import assert_training_resumes, make_small_config, train_to_end, write_copy_files

import pellucid
from pellucid.config.settings import TrainingConfig
from pellucid.config.toml import build_config, override_settings
from pellucid.config.training_types import OPTIMIZER_TYPES
from pellucid.errors import ArgumentError, ConfigError, RunError
from pellucid.run_folder.tensor_file import tensor_digest, tensor_file
from pellucid.training.optimizer import build_optimizer
from pellucid.training.torch_optimizer import TREE, TorchOptimizer, encode_state


@pytest.fixture(autouse=True)
def registered_optimizers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register optimizers for each test."""
    monkeypatch.setattr(OPTIMIZER_TYPES, "registered", {})
    pellucid.register_optimizer("lion", load_page_module("optimizer").Lion)
    pellucid.register_optimizer("radam", torch.optim.RAdam)
    yield


def training_config(name: str, **changes: Any) -> TrainingConfig:  # noqa: ANN401 (values of settings)
    """Return training settings with an optimizer."""
    return override_settings(make_small_config({}), {"training": {"optimizer": name, **changes}}).training


def register(name: object, value: object) -> None:
    """Register a value of any type; the wrapper of the tests would check types first."""
    cast("Callable[[object, object], None]", inspect.unwrap(pellucid.register_optimizer))(name, value)


def test_updates_equal_those_of_the_optimizer_after_clipping() -> None:
    torch.manual_seed(1)
    network, other = nn.Linear(3, 2), nn.Linear(3, 2)
    other.load_state_dict(network.state_dict())
    optimizer = build_optimizer(network, training_config("radam", weight_decay=0.1))
    expected = torch.optim.RAdam(other.parameters(), lr=0.5, weight_decay=0.1)
    assert isinstance(optimizer, TorchOptimizer)
    for number in range(7):
        gradients = [torch.randn_like(parameter) * 3 for parameter in network.parameters()]
        copies = [gradient.clone() for gradient in gradients]
        norm = optimizer.update(gradients, 0.1 / (1 + number), clip_value=2.0, clip_norm=1.0)
        for parameter, gradient in zip(other.parameters(), copies, strict=True):
            parameter.grad = gradient.clamp(-2, 2)
        assert norm == pytest.approx(float(nn.utils.clip_grad_norm_(other.parameters(), 1.0)), rel=1e-5)
        expected.param_groups[0]["lr"] = 0.1 / (1 + number)
        expected.step()
        assert all(map(torch.equal, gradients, copies))
    for one, another in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, another)
    before = [parameter.clone() for parameter in network.parameters()]
    assert optimizer.update([torch.full((2, 3), torch.inf), None], 0.1) == float("inf")
    assert all(map(torch.equal, before, network.parameters()))


@pytest.mark.parametrize("name", ["lion", "radam"])
def test_a_training_resumes_bit_for_bit(tmp_path: Path, name: str) -> None:
    files = write_copy_files(tmp_path)
    sections = {"training": {"optimizer": name, "weight_decay": 0.01}, "decoder": {"dropout": 0.3}}
    config = override_settings(make_small_config({"epochs": 3}), sections)
    assert_training_resumes(files, config, tmp_path, update=7)


def test_a_checkpoint_holds_tensors_and_json_and_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, run = write_copy_files(tmp_path), tmp_path / "run"
    config = override_settings(make_small_config({"epochs": 1}), {"training": {"optimizer": "radam"}})
    train_to_end(files, run, config)
    path = run / "training.safetensors"
    tensors = load_file(path)
    names = {name for name in tensors if name.startswith("optimizer.")}
    assert f"optimizer.{TREE}" in names and any(name.endswith("exp_avg_sq") for name in names)
    assert b"pickle" not in path.read_bytes()
    assert pellucid.load(run).predict(["1"])  # before the optimizer is gone, and after it
    header = tensor_file({}, {})
    assert header
    import safetensors

    with safetensors.safe_open(path, "np") as opened:
        metadata = dict(opened.metadata())
    damaged = {**tensors, f"optimizer.{TREE}": np.frombuffer(b'{"state": {"x": 1}, "groups": []}', np.uint8)}
    metadata["sha256"] = tensor_digest(damaged, metadata["progress"])
    path.write_bytes(tensor_file(damaged, metadata))
    with pytest.raises(RunError, match="the optimizer 'radam': it holds no state of this optimizer"):
        train_to_end(files, run, config)
    monkeypatch.setattr(OPTIMIZER_TYPES, "registered", {})
    assert pellucid.load(run).predict(["1"])
    with pytest.raises(ConfigError, match=r"training\.optimizer: expected adam or adamw, or one that is installed"):
        train_to_end(files, run, config)


class Forgetful(torch.optim.SGD):
    """An optimizer that counts its updates outside of its state."""

    count = 0

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401 (as in PyTorch)
        """Divide the learning rate by the number of updates."""
        self.count += 1
        for group in self.param_groups:
            group["lr"] /= self.count
        return super().step(closure)


class OwnRate(torch.optim.Optimizer):
    """An optimizer that ignores the schedule."""

    def __init__(self, params: Any, lr: float, weight_decay: float) -> None:  # noqa: ANN401
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        """Subtract a hundredth."""
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.sub_(0.01)


class MovesAll(OwnRate):
    """An optimizer that changes parameters without gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        """Subtract the rate."""
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(self.param_groups[0]["lr"])


class Failing(OwnRate):
    """An optimizer that fails."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        """Raise an error."""
        raise IndexError("no update today")


class OddState(torch.optim.SGD):
    """An optimizer with an object in its state."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        """Store a set."""
        self.state[self.param_groups[0]["params"][0]]["seen"] = {1}
        return super().step(closure)


@pytest.mark.parametrize(
    ("optimizer_class", "message"),
    [
        (Forgetful, "continues otherwise after its state is saved and restored"),
        (OwnRate, "changes parameters at a learning rate of 0"),
        (MovesAll, "changes a parameter without a gradient"),
        (Failing, "the optimizer 'wrong' failed: no update today"),
        (OddState, r"has set in its state \(a\.seen\); a checkpoint holds numbers"),
    ],
)
def test_optimizers_that_cannot_be_trusted_are_refused(
    optimizer_class: type[torch.optim.Optimizer], message: str
) -> None:
    pellucid.register_optimizer("wrong", optimizer_class)
    network, state = nn.Linear(2, 1), torch.random.get_rng_state()
    with pytest.raises(ConfigError, match=message):
        build_optimizer(network, training_config("wrong"))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_nested_values_are_restored_with_their_types() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    values = {
        "tree": [{"a": torch.tensor([1.0]), 3: (True, None, float("inf"))}, "text", torch.tensor(2, dtype=torch.int64)],
        "number": 0.1,
    }
    optimizer.state[parameter] = values
    optimizer.param_groups[0]["betas"] = (0.9, 0.99)
    stored = {name: value.clone() for name, value in encode_state(optimizer, [parameter], ["p"], "x").items()}
    other = TorchOptimizer.__new__(TorchOptimizer)
    other.optimizer, other.parameters, other.names = torch.optim.SGD([parameter], lr=1.0), [parameter], ["p"]
    other.restore(stored)
    restored = other.optimizer.state[parameter]
    assert str(restored) == str(values) and other.optimizer.param_groups[0]["betas"] == (0.9, 0.99)
    assert isinstance(restored["tree"][0]["a"], Tensor) and restored["tree"][0]["a"] is not values["tree"][0]["a"]  # type: ignore[index]


def test_other_objects_and_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, 5, object(), torch.optim.Optimizer, torch.optim.LBFGS, dict, nn.Linear):
        with pytest.raises(
            ArgumentError, match=r"^optimizer_class: expected a subclass of torch\.optim\.Optimizer that"
        ):
            register("mine", value)
    for name in ("adam", "adamw"):
        with pytest.raises(ConfigError, match=f"the name '{name}' belongs to a built-in optimizer"):
            register(name, torch.optim.SGD)
    for invalid in ("", "a/b", "x" * 101, None):
        with pytest.raises(ArgumentError, match=r"^name: expected"):
            register(invalid, torch.optim.SGD)
    with pytest.raises(ConfigError, match=re.escape("got 'lionn'; did you mean 'lion'")):
        build_config({"training": {"optimizer": "lionn"}}, "a test")
    with pytest.raises(ConfigError, match=r"training\.weight_decay = 0\.1 needs training\.optimizer = 'adamw'"):
        build_config({"training": {"weight_decay": 0.1}}, "a test")
    values = {"number": f"{__name__}:TREE", "class": f"{__name__}:Path", "missing": "no_such_package_of_anyone:Lion"}
    entries = {name: EntryPoint(name, value, OPTIMIZER_TYPES.group) for name, value in values.items()}
    monkeypatch.setattr(OPTIMIZER_TYPES, "declared", entries)
    for name, message in (
        ("number", "does not provide the optimizer"),
        ("class", "the class of the optimizer 'class' is not a subclass of torch"),
        ("missing", "cannot be loaded: No module named"),
    ):
        with pytest.raises(ConfigError, match=message):
            build_optimizer(nn.Linear(2, 1), training_config(name))
