"""Optimizers of other packages: their updates, their state in checkpoints, and classes that are refused."""

import re
from collections.abc import Iterator
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
from pellucid.errors import ConfigError, RunError
from pellucid.run_folder.tensor_file import tensor_digest, tensor_file
from pellucid.training.optimizer import build_optimizer
from pellucid.training.torch_optimizer import MAX_DEPTH, STATE_TREE, TorchOptimizer, decode_state, encode_state


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
    assert f"optimizer.{STATE_TREE}" in names and any(name.endswith("exp_avg_sq") for name in names)
    assert b"pickle" not in path.read_bytes()
    assert pellucid.load(run).predict(["1"])  # before the optimizer is gone, and after it
    import safetensors

    with safetensors.safe_open(path, "np") as opened:
        metadata = dict(opened.metadata())
    damaged = {**tensors, f"optimizer.{STATE_TREE}": np.frombuffer(b'{"state": {"x": 1}, "groups": []}', np.uint8)}
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


class GlobalState(torch.optim.SGD):
    """An optimizer that counts its updates in its state, but not in that of a parameter."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        """Multiply the rate of each fourth update by 10, which no check of three updates notices."""
        state = cast(dict[str, dict[str, int]], self.state)["global"]
        state["count"] = state.get("count", 0) + 1
        if state["count"] % 4 == 0:
            self.param_groups[0]["lr"] *= 10
        return super().step(closure)


class OddState(torch.optim.SGD):
    """An optimizer with an object in its state."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        """Store a set."""
        self.state[self.param_groups[0]["params"][0]]["seen"] = {1}
        return super().step(closure)


@pytest.mark.parametrize(
    ("optimizer_class", "message"),
    [
        (Forgetful, "gives other updates after its state is saved and restored"),
        (OwnRate, "changes parameters at a learning rate of 0"),
        (MovesAll, "changes a parameter without a gradient"),
        (Failing, "the optimizer 'wrong' failed: no update today"),
        (
            GlobalState,
            r"has state of 'global', which is not a parameter, so a checkpoint would not hold it: keep everything",
        ),
        (OddState, r"has set in its state \(parameter 1\.seen\); a checkpoint holds numbers"),
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


def test_values_that_are_nested_too_deeply_are_refused_before_they_are_saved() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    value: Any = 1.0
    for depth in range(1, 25):
        value = [value]
        optimizer.state[parameter] = {"nested": value}
        if depth < MAX_DEPTH:
            decode_state(optimizer, [parameter], ["p"], encode_state(optimizer, [parameter], ["p"], "x"))
            assert optimizer.state[parameter] == {"nested": value}
        else:
            with pytest.raises(ConfigError, match="the optimizer 'x' has values nested more than 20 deep in its state"):
                encode_state(optimizer, [parameter], ["p"], "x")


def test_equal_paths_of_tensors_are_kept_apart() -> None:
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    names = ["a", "a.b", "groups.0"]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    states = [{"b.c": torch.zeros(2)}, {"c": torch.ones(2)}, {"t": torch.full((2,), 2.0)}]
    for parameter, state in zip(parameters, states, strict=True):
        optimizer.state[parameter] = state
    optimizer.param_groups[0]["t"] = torch.full((2,), 3.0)
    stored = encode_state(optimizer, parameters, names, "x")
    decode_state(optimizer, parameters, names, stored)
    assert str([optimizer.state[parameter] for parameter in parameters]) == str(states)
    assert optimizer.param_groups[0]["t"].tolist() == [3.0, 3.0]


def test_unknown_names_and_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("got 'lionn'; did you mean 'lion'")):
        build_config({"training": {"optimizer": "lionn"}}, "a test")
    with pytest.raises(ConfigError, match=r"training\.weight_decay = 0\.1 needs training\.optimizer = 'adamw'"):
        build_config({"training": {"weight_decay": 0.1}}, "a test")
