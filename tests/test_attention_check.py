"""Attention classes of other packages are checked before the first update, and by `pellucid.check_attention`."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import torch
from extension_pages import load_page_module
from torch import Tensor, nn
from trained_runs import make_small_config, train_to_end, write_digit_files

import pellucid
from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.settings import AttentionConfig
from pellucid.config.toml import override_settings
from pellucid.errors import ArgumentError, ConfigError
from pellucid.model.attention import (
    ATTENTIONS,
    Attention,
    DotProductAttention,
    ScoredAttention,
    attend,
    build_attention,
    group_by_source,
)
from pellucid.model.attention_check import CheckedAttention, check_attention_module
from pellucid.model.memory import AttentionOutput, DecoderCache, Memory
from pellucid.training.events import ModelBuilt


class BilinearAttention(ScoredAttention):
    """e_s = h_s · W q."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, memory_size, bias=False)

    def keys(self, memory: Memory) -> Tensor:
        """Return the states."""
        return memory.states

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the products of states and projected queries."""
        return torch.bmm(self.projection(query), keys.transpose(1, 2))


class LocalAttention(BilinearAttention):
    """α = softmax(e − (s − p)²), p the mean position of the previous weights; a state of the shape (R, S)."""

    def initial_attention_state(self, memory: Memory) -> Tensor | None:
        """Return weight 1 at the first position."""
        weights = memory.states.new_zeros(memory.states.shape[:2])
        weights[:, 0] = 1
        return weights

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""
        memory = cache.memory
        scores = self.scores(group_by_source(query, memory), cache.keys).flatten(0, 1)
        positions = torch.arange(scores.shape[1])
        assert attention_state is not None
        scores = scores - (positions - (attention_state * positions).sum(-1, keepdim=True)) ** 2
        output = attend(scores, memory, forced_weights)
        return output._replace(attention_state=output.weights)


class WeightAttention(BilinearAttention):
    """Weights of a function of the scores, where positions of padding have the score −∞."""

    uses_softmax: ClassVar[bool] = False
    weights: ClassVar[Callable[[Tensor], Tensor]] = torch.sigmoid
    edit: ClassVar[Callable[[AttentionOutput], object]] = lambda output: output

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""
        memory = cache.memory
        scores = self.scores(group_by_source(query, memory), cache.keys)
        scores = scores.masked_fill(~memory.attention_mask()[:, None], -torch.inf).flatten(0, 1)
        weights = type(self).weights(scores) if forced_weights is None else forced_weights
        return cast(AttentionOutput, type(self).edit(attend(scores, memory, weights)))


def change_weights(weights: Callable[[Tensor], Tensor]) -> type[Attention]:
    """Return a class of attention whose weights are a function of scores."""
    return type("Changed", (WeightAttention,), {"weights": staticmethod(weights)})


def change_output(edit: Callable[[AttentionOutput], object]) -> type[Attention]:
    """Return a class of attention with a softmax, whose output is edited."""
    methods = {"weights": staticmethod(lambda scores: scores.softmax(-1)), "edit": staticmethod(edit)}
    return type("Changed", (WeightAttention,), methods)


class ScoresChanged(BilinearAttention):
    """Scores that a function of the object and the scores changes."""

    change: ClassVar[Callable[[Any, Tensor], Tensor]]

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the changed scores."""
        return type(self).change(self, super().scores(query, keys))


def change_scores(change: Callable[[Any, Tensor], Tensor]) -> type[Attention]:
    """Return a class of attention with changed scores."""
    return type("Changed", (ScoresChanged,), {"change": staticmethod(change)})


MODULE_GAIN = torch.ones(1, requires_grad=True)


def count_calls(attention: Any, scores: Tensor) -> Tensor:  # noqa: ANN401 (any attribute)
    """Return the scores times the number of the call."""
    attention.calls = getattr(attention, "calls", 0) + 1
    return cast(Tensor, scores * attention.calls)


def add_previous(attention: Any, scores: Tensor) -> Tensor:  # noqa: ANN401 (any attribute)
    """Return the scores with half of those of the last call of their shape."""
    previous, attention.previous = getattr(attention, "previous", scores), scores.detach()
    return scores + 0.5 * previous if previous.shape == scores.shape else scores


def fail(attention: object, scores: Tensor) -> Tensor:
    """Raise an error of the class itself."""
    raise ValueError("my own bug")


class KeepsKeys(BilinearAttention):
    """Keys that are computed once for each shape."""

    def keys(self, memory: Memory) -> Tensor:
        """Return the keys of the first memory of this shape."""
        known = self.__dict__.setdefault("known", {})
        return cast(Tensor, known.setdefault(tuple(memory.states.shape), memory.states))


class CenteredKeys(BilinearAttention):
    """Keys from which the mean over the batch is subtracted."""

    def keys(self, memory: Memory) -> Tensor:
        """Return the centered states."""
        return memory.states - memory.states.mean(0, keepdim=True)


class IgnoresMask(LocalAttention):
    """Masked positions keep their weights."""

    def build_cache(self, memory: Memory) -> DecoderCache:
        """Return the memory without its masked positions."""
        return super().build_cache(memory._replace(ignored=None))


class IgnoresOverride(LocalAttention):
    """Forced weights are not read."""

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""
        return super().forward(query, cache, attention_state)


class ForcedWeightsOnly(LocalAttention):
    """Forced weights are those of the output, but not of the context."""

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""
        output = super().forward(query, cache, attention_state)
        return output if forced_weights is None else output._replace(weights=forced_weights)


class NoInitialWeights(LocalAttention):
    """A state whose first value is missing."""

    initial_attention_state = Attention.initial_attention_state

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""
        state = query.new_zeros(len(query), cache.keys.shape[1]) if attention_state is None else attention_state
        return super().forward(query, cache, state, forced_weights)


class KeepsWeights(BilinearAttention):
    """Weights that are averaged with those of the previous step, which the object keeps until the next source."""

    previous: Tensor | None = None

    def keys(self, memory: Memory) -> Tensor:
        """Return the states, and forget the weights."""
        self.previous = None
        return super().keys(memory)

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""
        output = super().forward(query, cache, attention_state, forced_weights)
        if forced_weights is None and self.previous is not None:
            weights = (output.weights + self.previous) / 2
            states = cache.memory.states.repeat_interleave(len(weights) // len(cache.memory.states), dim=0)
            output = output._replace(weights=weights, context=torch.einsum("rs,rsd->rd", weights, states))
        self.previous = output.weights
        return output


class WithoutSuper(BilinearAttention):
    """A constructor that does not call that of the base."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        self.size = config.size


class NormOfStates(BilinearAttention):
    """Keys that are divided by their norms plus a number, whose gradient at padding is not finite."""

    def keys(self, memory: Memory) -> Tensor:
        """Return the divided states."""
        return memory.states / (memory.states.pow(2).sum(-1, keepdim=True).sqrt() + 1)


class NoInitialState(LocalAttention):
    """A class whose forward reads a state, without one at the first step."""

    initial_attention_state = Attention.initial_attention_state


class PlainTensor(BilinearAttention):
    """A gain that is not a parameter."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        self.gains = {"first": torch.ones(1, requires_grad=True)}

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores times the gain."""
        return self.gains["first"] * super().scores(query, keys)


class PlainList(BilinearAttention):
    """Modules in a list."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        self.layers = [nn.Identity(), nn.Linear(query_size, query_size)]

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores of projected queries."""
        return super().scores(self.layers[1](query), keys)


class SharedTensor(BilinearAttention):
    """A gain that is a variable of the class."""

    gain = torch.ones(1, requires_grad=True)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores times the gain."""
        return self.gain * super().scores(query, keys)


class PositionTable(BilinearAttention):
    """A weight for each of 30 positions, which longer sources do not have."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        self.table = nn.Parameter(torch.zeros(30))

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores and the weights of their positions."""
        return super().scores(query, keys) + self.table[: keys.shape[1]]


class RunningMean(BilinearAttention):
    """Scores divided by their running mean, which is neither parameter nor buffer."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        self.mean: Any = torch.ones(())

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores divided by their mean."""
        scores = super().scores(query, keys)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * scores.detach().abs().mean()
        divided: Tensor = scores / self.mean
        return divided


class RunningNumber(RunningMean):
    """The mean is a number of Python."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        self.mean = 1.0

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores divided by their mean."""
        scores = super().scores(query, keys)
        self.mean = float(self.mean)
        return scores


class RunningBuffer(RunningMean):
    """The mean is a buffer that is not saved."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        del self.mean
        self.register_buffer("mean", torch.ones(()), persistent=False)


class SavedMean(RunningMean):
    """The mean is a buffer that is saved, and a tensor holds the last scores for its author."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        del self.mean
        self.register_buffer("mean", torch.ones(()))

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores, and keep them."""
        self.last = super().scores(query, keys).detach()
        return super().scores(query, keys)


class OtherKind(BilinearAttention):
    """A class with the kind of another one."""

    kind: ClassVar[str] = "additive"


class UnknownKind(BilinearAttention):
    """A class with a kind that no kernel has."""

    kind: ClassVar[str] = "bilinear"


class ScaledDot(DotProductAttention):
    """A class whose scores are not those of its kind."""

    kind: ClassVar[str] = "dot"

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(memory_size, query_size)

    def keys(self, memory: Memory) -> Tensor:
        """Return the projected states."""
        keys: Tensor = self.projection(memory.states)
        return keys

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return half of the products."""
        return super().scores(query, keys) / 2


REFUSED: dict[str, tuple[type[Attention], str]] = {
    "sigmoid": (change_weights(torch.sigmoid), r"weights of at least 0 whose sum .* is at most 1, got a sum of \d\."),
    "negative": (change_weights(lambda e: e.softmax(-1) * 2 - e.softmax(-1) ** 0), "got a weight of -"),
    "padding": (change_weights(lambda e: (e.softmax(-1) + 0.01) / 2), "positions of padding have weight"),
    "mask": (IgnoresMask, r"a masked position has the weight 0\.\d+: expected 0 where memory\.attention_mask"),
    "forced_weights": (IgnoresOverride, "the weights of forced attention are not those of `forced_weights`"),
    "forced context": (ForcedWeightsOnly, "forced attention does not change the context"),
    "counter": (change_scores(count_calls), "a second call with equal inputs has another result"),
    "state": (change_scores(add_previous), "a second call with equal inputs has another result"),
    "kept weights": (KeepsWeights, "a second call with equal inputs has another result"),
    "noise": (change_scores(lambda self, e: e + torch.randn_like(e)), "draw random numbers only if self.training"),
    "kept keys": (KeepsKeys, "the context of a source .*changes|the context of a source changes with .*earlier calls"),
    "batch": (CenteredKeys, "the context of a source changes with the other sources of its batch"),
    "length": (change_scores(lambda self, e: e / e.shape[-1]), "a source of 3 positions changes if a source of 5"),
    "NaN": (change_scores(lambda self, e: e * torch.nan), r"forward: context: expected finite numbers, got NaN"),
    "error": (
        change_scores(fail),
        r"Changed\.forward failed for B = 2 and S = 5: ValueError: my own bug \(.*test_attention_check.py, line \d+\)$",
    ),
    "no state": (
        NoInitialState,
        r"AssertionError.* \(.*\.py, line \d+\); attention_state is None because initial_attention_state returns None",
    ),
    "plain tensor": (PlainTensor, r"PlainTensor\.gains\['first'\] is a tensor .* that is not an nn\.Parameter"),
    "list of modules": (PlainList, r"PlainList\.layers\[1\] is a Linear .* nn\.ModuleList"),
    "tensor of the class": (SharedTensor, r"SharedTensor\.gain is a tensor .* neither trained nor saved"),
    "tensor of the module": (
        change_scores(lambda self, e: e * MODULE_GAIN),
        r"Changed\.forward: a tensor of the shape \(1,\) is a tensor with requires_grad that is not an nn\.Parameter",
    ),
    "running mean": (RunningMean, r'RunningMean\.mean is a tensor that changes .*register_buffer\("mean", \.\.\.\)'),
    "running number": (RunningNumber, r"RunningNumber: outputs change with steps in training .*register_buffer"),
    "running buffer": (RunningBuffer, r"RunningBuffer\.mean is a tensor that changes in training, but it is not saved"),
    "position table": (PositionTable, r"forward failed for B = 1 and S = 40: RuntimeError: .*\.py, line \d+\)"),
    "other kind": (OtherKind, r"kind = 'additive': the kernel .* scores\(\) and forward\(\) of AdditiveAttention"),
    "unknown kind": (UnknownKind, r"UnknownKind\.kind: expected None, 'additive' or .*, got 'bilinear'"),
    "changed scores": (ScaledDot, r"ScaledDot\.kind = 'dot': the kernel .* of DotProductAttention"),
    "context": (
        change_output(lambda output: output._replace(context=output.context[:, :-1])),
        r"forward: context: expected the shape \(R, D\) = \(4, 4\), got \(4, 3\)",
    ),
    "weights": (
        change_output(lambda output: output._replace(weights=output.weights[:, None])),
        r"forward: weights: expected the shape \(R, S\) = \(4, 5\), got \(4, 1, 5\)",
    ),
    "no tuple": (change_output(lambda output: output.context), "expected an AttentionOutput, .* got Tensor"),
    "unused state": (
        change_output(lambda output: output._replace(attention_state=output.weights)),
        "either initial_attention_state returns a tensor and every step an attention_state, or both are None",
    ),
    "no initial state": (NoInitialWeights, "either initial_attention_state returns a tensor"),
    "super": (WithoutSuper, r"WithoutSuper cannot be built: .*; does its __init__ call super\(\).__init__\(\) first"),
    "detached": (change_scores(lambda self, e: e.detach()), "no parameter has a gradient"),
    "gradient": (NormOfStates, "the gradient of the states of the encoder is not finite"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_class_is_refused_in_one_line_with_its_name(name: str) -> None:
    attention_class, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message) as refusal:
        pellucid.check_attention(attention_class)
    assert str(refusal.value).startswith(attention_class.__name__) and "\n" not in str(refusal.value)


def test_a_parameter_that_is_not_used_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unused(BilinearAttention):
        """A class with a parameter that nothing reads."""

        def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
            super().__init__(config, query_size, memory_size)
            self.offset = nn.Parameter(torch.zeros(3))

    note = "Unused.offset has no gradient: the outputs do not depend on this parameter, so it is not trained"
    with pytest.warns(UserWarning, match=note):
        pellucid.check_attention(Unused)
    monkeypatch.setattr(ATTENTION_TYPES, "registered", {"unused": Unused})
    config = override_settings(make_small_config({"epochs": 1}), {"attention": {"type": "unused"}})
    events = train_to_end(write_digit_files(tmp_path), tmp_path / "run", config)
    assert [event.warnings for event in events if isinstance(event, ModelBuilt)] == [(note,)]


def test_a_state_of_another_shape_than_the_first_is_refused() -> None:
    class Shrinks(LocalAttention):
        """The state of the second step has one column."""

        def forward(
            self,
            query: Tensor,
            cache: DecoderCache,
            attention_state: Tensor | None,
            forced_weights: Tensor | None = None,
        ) -> AttentionOutput:
            """Return contexts and weights."""
            output = super().forward(query, cache, attention_state, forced_weights)
            return output._replace(attention_state=output.weights[:, :1])

    with pytest.raises(ConfigError, match=r"attention_state: expected the shape \(R, 5\) = \(4, 5\), got \(4, 1\)"):
        pellucid.check_attention(Shrinks)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_built_in_attentions_pass_and_nothing_is_changed(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    memory_size = 6 if "dot" in name else 4
    for num_heads in (1, 3) if name == "additive" else (1,):
        attention = build_attention(AttentionConfig(type=name, size=6, num_heads=num_heads), 6, memory_size)
        before, state = torch.get_rng_state(), {key: value.clone() for key, value in attention.state_dict().items()}
        check_attention_module(cast(CheckedAttention, attention), 6, memory_size)
        assert torch.equal(torch.get_rng_state(), before) and attention.training
        assert all(torch.equal(value, state[key]) for key, value in attention.state_dict().items())
        assert all(parameter.grad is None for parameter in attention.parameters())


class Mixture(WeightAttention):
    """Graves' window of two Gaussians, whose positions are the state, of the shape (R, 2)."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        del self.projection
        self.parameters_projection = nn.Linear(query_size, 6)

    def initial_attention_state(self, memory: Memory) -> Tensor:
        """Return position 0."""
        return memory.states.new_zeros(len(memory.states), 2)

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""
        height, width, step = self.parameters_projection(query).exp().chunk(3, dim=-1)
        centers = attention_state + step
        positions = torch.arange(cache.keys.shape[1])
        window = height[..., None] * torch.exp(-width[..., None] * (centers[..., None] - positions) ** 2)
        weights = group_by_source(window.sum(1), cache.memory) * cache.memory.attention_mask()[:, None]
        weights = weights.flatten(0, 1)
        weights = weights / (weights.sum(-1, keepdim=True) + 1) if forced_weights is None else forced_weights
        return attend(weights, cache.memory, weights)._replace(attention_state=centers)


class UpdatesBuffer(BilinearAttention):
    """Scores with dropout, and a buffer that the training updates."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(config, query_size, memory_size)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("average", torch.zeros(()))

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores without their average."""
        scores = super().scores(self.dropout(query), keys)
        average = self.get_buffer("average")
        if self.training:
            average.add_(scores.detach().mean())
        return scores - average


@pytest.mark.parametrize("attention_class", [BilinearAttention, LocalAttention, Mixture, UpdatesBuffer, SavedMean])
def test_other_classes_pass_the_check(attention_class: type[Attention]) -> None:
    pellucid.check_attention(attention_class)
    pellucid.check_attention(attention_class, AttentionConfig(size=3), query_size=1, memory_size=2)
    attention = attention_class(config=AttentionConfig(size=3), query_size=3, memory_size=2)
    check_attention_module(cast(CheckedAttention, attention), 3, 2)
    expected = attention_class(config=AttentionConfig(size=3), query_size=3, memory_size=2)
    assert [*map(float, attention.buffers())] == [*map(float, expected.buffers())]
    with torch.device("meta"):
        on_meta = attention_class(config=AttentionConfig(size=3), query_size=3, memory_size=2)
    check_attention_module(cast(CheckedAttention, on_meta), 3, 2)


def test_the_classes_of_the_pages_pass_their_checks() -> None:
    pellucid.check_attention(load_page_module("attention").CosineAttention)
    pellucid.check_cell(load_page_module("cell").MinimalGatedUnit)
    pellucid.check_optimizer(load_page_module("optimizer").Lion, learning_rate=0.0005, weight_decay=0.1)


def test_a_training_refuses_a_class_before_the_first_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTENTION_TYPES, "registered", {"sigmoid": REFUSED["sigmoid"][0]})
    config = override_settings(make_small_config({"epochs": 1}), {"attention": {"type": "sigmoid"}})
    with pytest.raises(ConfigError, match=r"Changed: expected weights of at least 0"):
        train_to_end(write_digit_files(tmp_path), tmp_path / "run", config)
    assert not list(tmp_path.glob("run/*.safetensors"))


class NoKeys(ScoredAttention):
    """A class without keys."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__()


class OtherArguments(BilinearAttention):
    """A class with other arguments."""

    def __init__(self, cfg: AttentionConfig, size: int) -> None:
        super().__init__(cfg, size, size)


def test_messages_name_lacking_methods_and_the_arguments_of_the_constructor() -> None:
    for check in (pellucid.check_attention, lambda value: pellucid.register_attention("mine", value)):
        with pytest.raises(ArgumentError, match=r"got <class .*NoKeys'>; it lacks keys\(\), scores\(\)$"):
            check(cast(Any, NoKeys))
        with pytest.raises(ArgumentError, match=r"got <class .*OtherArguments'>; its constructor takes cfg, size$"):
            check(OtherArguments)


def test_other_cells_and_optimizers_are_refused() -> None:
    class Wrong(load_page_module("cell").MinimalGatedUnit):  # type: ignore[misc]  # a class of the page
        """A cell with an unknown gate."""

        initial_biases: ClassVar[dict[str, float]] = {"other": 1.0}

    class Counts(load_page_module("optimizer").Lion):  # type: ignore[misc]  # a class of the page
        """An optimizer that keeps the number of its steps on the object."""

        def step(self, closure: Any = None) -> None:  # noqa: ANN401 (as in PyTorch)
            """Update parameters by more at each step."""
            self.calls = getattr(self, "calls", 0) + 1
            for group in self.param_groups:
                group["lr"] *= self.calls
            super().step(closure)

    for _ in range(2):  # also the second time
        with pytest.raises(ConfigError, match=r"Wrong\.initial_biases: expected names of gates, got 'other'"):
            pellucid.check_cell(Wrong)
    with pytest.raises(ConfigError, match="the optimizer 'Counts' gives other updates after its state is saved"):
        pellucid.check_optimizer(Counts)
    with pytest.raises(ArgumentError, match=r"^cell_class: expected"):
        inspect.unwrap(pellucid.check_cell)(cast(Any, nn.GRUCell))
    with pytest.raises(
        ArgumentError, match=r"^optimizer_class: expected .*; its constructor takes params, lr, max_iter"
    ):
        pellucid.check_optimizer(torch.optim.LBFGS)


def test_unknown_keys_of_a_section_with_an_extension_say_that_it_has_no_settings() -> None:
    advice = "cannot add settings: make the value a class attribute, and give attention.type the name of a subclass"
    for key in ("initial_gain", "momentum"):
        with pytest.raises(ConfigError, match=rf"unknown key 'attention\.{key}'; the attention type 'cosine' {advice}"):
            override_settings(make_small_config({}), {"attention": {"type": "cosine", key: 1}})
    with pytest.raises(ConfigError, match=r"unknown key 'attention\.initial_gain'$"):
        override_settings(make_small_config({}), {"attention": {"initial_gain": 1}})
