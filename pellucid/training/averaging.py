"""Means of the weights that a training passes through: judged, kept and used in place of the last ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pellucid.config import TrainingConfig


class MovingAverage:
    """w̄ ← d w̄ + (1 − d) w after every update, d = min(decay, (1 + t) / (10 + t)) at the t-th: w̄ forgets its start.

    Polyak & Juditsky 1992, as TensorFlow's ExponentialMovingAverage weighs it.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        """Begin with the weights as they are."""
        self.named = _trained(network)
        self.decay = decay
        self.count = 0
        self.mean = [weight.detach().clone() for weight in self.named.values()]

    def updated(self) -> None:
        """An update was made."""
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.mean, [weight.detach() for weight in self.named.values()], 1 - decay)

    def validating(self) -> None:
        """Nothing changes."""

    def weights(self) -> Sequence[Tensor]:
        """The mean of each weight."""
        return self.mean

    def state(self) -> dict[str, Tensor]:
        """All that must be kept to go on."""
        return {"count": torch.tensor(self.count), **dict(zip(self.named, self.mean, strict=True))}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over the `state` of another."""
        self.count = int(state["count"])
        for name, mean in zip(self.named, self.mean, strict=True):
            mean.copy_(state[name])


class LastMean:
    """The mean of the weights at the last k validations: Vaswani et al. 2017, section 6.1, during training."""

    def __init__(self, network: nn.Module, last: int) -> None:
        """Room for k; none are kept yet."""
        self.named = _trained(network)
        self.count = 0
        self.kept = [weight.detach().new_zeros(last, *weight.shape) for weight in self.named.values()]

    def updated(self) -> None:
        """Nothing changes."""

    def validating(self) -> None:
        """The weights of the present take the place of the oldest."""
        for weight, kept in zip(self.named.values(), self.kept, strict=True):
            kept[self.count % len(kept)] = weight.detach()
        self.count += 1

    def weights(self) -> Sequence[Tensor]:
        """The mean of each weight, over as many as there were."""
        return [kept[: self.count].mean(dim=0) for kept in self.kept]

    def state(self) -> dict[str, Tensor]:
        """All that must be kept to go on."""
        return {"count": torch.tensor(self.count), **dict(zip(self.named, self.kept, strict=True))}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over the `state` of another."""
        self.count = int(state["count"])
        for name, kept in zip(self.named, self.kept, strict=True):
            kept.copy_(state[name])


Average = MovingAverage | LastMean


def build_average(network: nn.Module, config: TrainingConfig) -> Average | None:
    """The mean that a configuration names, if any."""
    match config.average:
        case "none":
            return None
        case "ema":
            return MovingAverage(network, config.average_decay)
        case "last":
            return LastMean(network, config.average_last)


@contextmanager
def averaged(average: Average | None) -> Iterator[None]:
    """Within, the network has the averaged weights; afterwards its own, to the bit."""
    if average is None:
        yield
        return
    weights: list[Tensor] = list(average.named.values())
    with torch.no_grad():
        own = [weight.clone() for weight in weights]
        torch._foreach_copy_(weights, list(average.weights()))
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(weights, own)


def _trained(network: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that training changes, by name."""
    return {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
