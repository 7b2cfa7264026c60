"""Adam and weight averaging over flat arrays: gradients and moments of all parameters are contiguous.

P is the number of scalars in all parameters, N the number of rows of a sparse gradient. The parameters keep their own
memory.
"""

import math
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import TrainingConfig
from pellucid.config.training_types import BUILT_IN_OPTIMIZERS
from pellucid.errors import ArgumentError
from pellucid.kernels.dispatch import use_kernel
from pellucid.model.requests import request_of
from pellucid.shapes import Float, Int
from pellucid.training.gradient_clipping import clip_gradients
from pellucid.training.torch_optimizer import TorchOptimizer


def scheduled_learning_rate(config: TrainingConfig, progress_fraction: float, plateau_factor: float) -> float:
    """Return the learning rate at fraction p (0 to 1) of the maximum training length.

    During the warmup (p < w) the rate is r · p / w. After it, with x = (p − w) / (1 − w), at most 1:

        constant              r
        cosine                r · (1 + cos πx) / 2           one cycle
        inverse-square-root   r · √(w / p)                   w and p at least 0.001
        plateau               r · plateau_factor             the factor falls without improvement

    `schedule.reduces_learning_rate` says when the factor falls.

    Args:
        config: Learning rate r, its schedule and the warmup ratio w.
        progress_fraction: Fraction p of the maximum training length, 0 to 1.
        plateau_factor: Factor of the plateau schedule, 0 to 1; without effect for the others.

    References:
        cosine: Loshchilov & Hutter 2017, section 3. inverse-square-root: Vaswani et al. 2017, section 5.3.
    """
    warmup = config.warmup_ratio
    if progress_fraction < warmup:
        return config.learning_rate * progress_fraction / warmup
    match config.lr_schedule:
        case "constant":
            scale = 1.0
        case "cosine":
            scale = (1 + math.cos(math.pi * min(1.0, (progress_fraction - warmup) / (1 - warmup)))) / 2
        case "inverse-square-root":
            scale = math.sqrt(max(warmup, 1e-3) / max(progress_fraction, 1e-3))
        case "plateau":
            scale = plateau_factor
    return config.learning_rate * scale


BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
MOMENTS = ("mean", "square")


class Adam:
    """Adam (Kingma & Ba 2015), with the decoupled weight decay of AdamW (Loshchilov & Hutter 2019).

    For a parameter θ with its t-th gradient g, rate r and decay λ:

        m ← β₁ m + (1 − β₁) g            v ← β₂ v + (1 − β₂) g²
        θ ← θ − r λ θ − r · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

    A parameter without a gradient is not changed, and its t does not count the update. A sparse gradient changes only
    its rows: the others keep their values and moments, while t, one for the parameter, counts the update (lazy Adam).
    """

    def __init__(self, network: nn.Module, weight_decay: float = 0.0) -> None:
        """Create the optimizer of all trainable parameters, with t = 0 and zero moments.

        Args:
            network: Network to train.
            weight_decay: λ; 0 is Adam without weight decay.
        """
        named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters: list[Tensor] = [parameter for _, parameter in named]
        self.weight_decay = weight_decay
        self.counts = [0] * len(named)
        self.ends = list(accumulate((parameter.numel() for parameter in self.parameters), initial=0))
        self.gradients: Float[Tensor, " P"] = self.parameters[0].new_zeros(self.ends[-1])
        self.mean, self.square = torch.zeros_like(self.gradients), torch.zeros_like(self.gradients)
        self.changes = self._parts(self.gradients)  # views: `_step` replaces the gradients by the changes

    def update(
        self, gradients: Sequence[Tensor | None], rate: float, clip_value: float = 0.0, clip_norm: float = 0.0
    ) -> float:
        """Clip the gradients and update the parameters in place; the given gradients are not changed.

        Args:
            gradients: Gradients in the order of `parameters`; None for a parameter without one. Sparse ones are
                coalesced, with one sparse dimension, the first.
            rate: Learning rate.
            clip_value: Clip each entry to ±`clip_value` first; 0 = off.
            clip_norm: Then scale all gradients so that their joint Euclidean norm is at most this (Pascanu et al.
                2013); 0 = off.

        Returns:
            The joint norm after clipping by value and before clipping by norm. If it is not finite, parameters and
            moments are unchanged; it is infinite from `gradient_clipping.MAX_NORM` on.
        """
        with torch.no_grad():
            sparse = {
                i: RowGradient(gradient.indices()[0], gradient.values().clone(memory_format=torch.contiguous_format))
                for i, gradient in enumerate(gradients)
                if gradient is not None and gradient.is_sparse
            }
            parts = self._collect([None if i in sparse else gradient for i, gradient in enumerate(gradients)], sparse)
            parts += [row_gradient.values.view(-1) for row_gradient in sparse.values()]
            norm = clip_gradients(parts, clip_value, clip_norm)
            if math.isfinite(norm):
                present = [i for i, gradient in enumerate(gradients) if gradient is not None and i not in sparse]
                self._step(present, rate)
                for i, row_gradient in sparse.items():
                    self._step_rows(i, row_gradient, rate)
            return norm

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: `<parameter>.count` (t), `.mean` (m) and `.square` (v).

        The moments are views, which change with the next update.
        """
        state = {f"{name}.count": torch.tensor(count) for name, count in zip(self.names, self.counts, strict=True)}
        for moment in MOMENTS:
            state |= {f"{name}.{moment}": part for name, part in zip(self.names, self._moment(moment), strict=True)}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Copy the `state` of another optimizer of equal parameters, such as that of a checkpoint, into this one.

        Args:
            state: Both moments and t of each parameter.
        """
        self.counts = [int(state[f"{name}.count"]) for name in self.names]
        for moment in MOMENTS:
            for name, part in zip(self.names, self._moment(moment), strict=True):
                part.copy_(state[f"{name}.{moment}"])

    def _moment(self, moment: str) -> list[Tensor]:
        """Return one moment of each parameter."""
        return self._parts(self.mean if moment == "mean" else self.square)

    def _parts(self, flat: Float[Tensor, " P"]) -> list[Tensor]:
        """Return views of a flat array, one per parameter."""
        ranges = zip(self.parameters, pairwise(self.ends), strict=True)
        return [flat[start:stop].view_as(parameter) for parameter, (start, stop) in ranges]

    def _collect(self, gradients: Sequence[Tensor | None], absent: Container[int]) -> list[Float[Tensor, " p"]]:
        """Copy the gradients into the flat array, zeros for None; return its contiguous parts without those absent."""
        parts = list[Float[Tensor, " p"]]()
        for is_absent, group in groupby(range(len(gradients)), lambda i: i in absent):
            members = list(group)
            if not is_absent:
                parts.append(self.gradients[self.ends[members[0]] : self.ends[members[-1] + 1]])
                flat = [
                    self.parameters[i].new_zeros(self.parameters[i].numel()) if gradient is None else gradient.flatten()
                    for i in members
                    for gradient in (gradients[i],)
                ]
                torch.cat(flat, out=parts[-1])
        return parts

    def _step(self, present: Sequence[int], rate: float) -> None:
        """Add Adam's changes to the parameters with a gradient, by the equations above."""
        for i in present:
            self.counts[i] += 1
        compute_changes = (
            compute_adam_changes_kernel if use_kernel(request_of("adam", self.gradients)) else compute_adam_changes
        )
        for start, stop, count in self._runs(present):
            coefficients = _coefficients(rate, count)
            compute_changes(self.gradients[start:stop], self.mean[start:stop], self.square[start:stop], coefficients)
        parameters = [self.parameters[i] for i in present]
        if parameters and self.weight_decay:
            torch._foreach_mul_(parameters, 1 - rate * self.weight_decay)
        if parameters:
            torch._foreach_add_(parameters, [self.changes[i] for i in present])

    def _step_rows(self, index: int, gradient: "RowGradient", rate: float) -> None:
        """Add Adam's changes to the rows of a parameter that have a gradient."""
        self.counts[index] += 1
        rows, parameter = gradient.rows, self.parameters[index]
        start, stop = self.ends[index], self.ends[index + 1]
        mean, square = (moment[start:stop].view_as(parameter) for moment in (self.mean, self.square))
        row_mean, row_square = mean[rows], square[rows]
        values, flat_mean, flat_square = (each.view(-1) for each in (gradient.values, row_mean, row_square))
        compute_adam_changes(values, flat_mean, flat_square, _coefficients(rate, self.counts[index]))
        mean[rows], square[rows] = row_mean, row_square
        if self.weight_decay:
            parameter[rows] = parameter[rows] * (1 - rate * self.weight_decay)
        parameter.index_add_(0, rows, gradient.values)

    def _runs(self, present: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Return contiguous ranges of parameters with gradients and equal t, as (start, stop, t); usually one."""
        # In a contiguous run, the difference between the parameter's index and its position in `present` is constant.
        for (_, count), group in groupby(enumerate(present), lambda pair: (pair[1] - pair[0], self.counts[pair[1]])):
            members = [parameter for _, parameter in group]
            yield self.ends[members[0]], self.ends[members[-1] + 1], count


class RowGradient(NamedTuple):
    """Gradient of some rows of a parameter; that of the others is zero."""

    rows: Int[Tensor, " N"]
    """Indices of the rows, distinct."""
    values: Float[Tensor, "N *shape"]
    """Gradient of each row."""


def _coefficients(rate: float, count: int) -> tuple[float, float, float, float]:
    """Return the coefficients of `compute_adam_changes` at the t-th update."""
    # Numerator and denominator are multiplied by √(1 − β₂ᵗ), which saves one product per parameter.
    scale = math.sqrt(1 - BETA_2**count)
    return 1 - BETA_1, 1 - BETA_2, -rate * scale / (1 - BETA_1**count), EPSILON * scale


Optimizer = Adam | TorchOptimizer


def build_optimizer(network: nn.Module, config: TrainingConfig) -> Optimizer:
    """Return a new optimizer of all trainable parameters: Adam, AdamW, or that of another package, as configured.

    Args:
        network: Network to train.
        config: Training settings.

    Raises:
        ConfigError: The optimizer of another package cannot be used (`TorchOptimizer`).
    """
    if config.optimizer not in BUILT_IN_OPTIMIZERS:
        return TorchOptimizer(network, config)
    return Adam(network, config.weight_decay if config.optimizer == "adamw" else 0.0)


def compute_adam_changes(
    gradient: Float[Tensor, " P"],
    mean: Float[Tensor, " P"],
    square: Float[Tensor, " P"],
    coefficients: tuple[float, float, float, float],
) -> None:
    """Update both moments, and replace the gradients by the changes of the parameters.

    With the coefficients a, b, s and ε: m ← m + a (g − m), v ← v + b (g² − v), g ← s m / (√v + ε).

    Args:
        gradient: g, replaced by the changes that the caller adds to the parameters.
        mean: m, the first moment, updated in place.
        square: v, the second moment, updated in place.
        coefficients: a = 1 − β₁, b = 1 − β₂, s and ε; s is negative and holds the learning rate and the bias
            corrections.
    """
    mean_weight, square_weight, step, epsilon = coefficients
    mean.lerp_(gradient, mean_weight)
    square.lerp_(gradient * gradient, square_weight)
    torch.sqrt(square, out=gradient).add_(epsilon)
    torch.div(mean, gradient, out=gradient).mul_(step)


def compute_adam_changes_kernel(
    gradient: Float[Tensor, " P"],
    mean: Float[Tensor, " P"],
    square: Float[Tensor, " P"],
    coefficients: tuple[float, float, float, float],
) -> None:
    """Compute `compute_adam_changes` by a Numba kernel.

    Args:
        gradient: g, contiguous float32 numbers on a CPU, like both moments.
        mean: m.
        square: v.
        coefficients: a, b, s and ε.

    Raises:
        ArgumentError: A moment has another shape than the gradient.
    """
    for name, moment in (("mean", mean), ("square", square)):
        if moment.shape != gradient.shape:
            raise ArgumentError(f"{name}: expected shape {tuple(gradient.shape)}, got {tuple(moment.shape)}")
    from pellucid.kernels.adam import adam_kernel  # Numba takes a second to import

    adam_kernel(gradient.numpy(), mean.numpy(), square.numpy(), np.array(coefficients, dtype=np.float32))


class MovingAverage:
    """Exponential moving average (EMA) of the network's parameters.

    After update t = 1, 2, …: w̄ ← d w̄ + (1 − d) w, d = min(decay, (1 + t) / (10 + t)). The smaller early decay removes
    the influence of the initial parameters. `averaged_weights` puts the average into the network.

    References:
        Polyak & Juditsky 1992; the warmup of the decay follows TensorFlow's ExponentialMovingAverage.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        """Start the average from the current parameters.

        Args:
            network: Network that is trained; the average covers its trainable parameters.
            decay: Maximum decay d, 0 to 1.
        """
        self.named = _trainable_weights(network)
        self.decay = decay
        self.count = 0
        self.mean = [weight.detach().clone() for weight in self.named.values()]

    def after_update(self) -> None:
        """Add the current parameters to the average; called after each update of the parameters."""
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.mean, [weight.detach() for weight in self.named.values()], 1 - decay)

    def record_validation(self) -> None:
        """Do nothing: this average changes at updates only."""

    def weights(self) -> Sequence[Tensor]:
        """Return the averaged parameters, in the order of `named`. They are the average itself, not a copy."""
        return self.mean

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: the number of updates as "count", and the average of each parameter."""
        return {"count": torch.tensor(self.count), **dict(zip(self.named, self.mean, strict=True))}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Copy the `state` of another moving average of equal parameters into this one.

        Args:
            state: Number of updates, and the average of each parameter.
        """
        self.count = int(state["count"])
        for name, mean in zip(self.named, self.mean, strict=True):
            mean.copy_(state[name])


class CheckpointAverage:
    """Mean of the network's parameters at the last k validations (Vaswani et al. 2017, section 6.1).

    The parameters are kept in memory during training; no checkpoint files are averaged.
    """

    def __init__(self, network: nn.Module, last: int) -> None:
        """Allocate memory for k copies of the parameters, filled with zeros.

        Args:
            network: Network that is trained; the average covers its trainable parameters.
            last: k, the number of validations.
        """
        self.named = _trainable_weights(network)
        self.count = 0
        self.stored = [weight.detach().new_zeros(last, *weight.shape) for weight in self.named.values()]

    def after_update(self) -> None:
        """Do nothing: this average changes at validations only."""

    def record_validation(self) -> None:
        """Store the current parameters in place of the oldest ones; called before each validation."""
        for weight, stored in zip(self.named.values(), self.stored, strict=True):
            stored[self.count % len(stored)] = weight.detach()
        self.count += 1

    def weights(self) -> Sequence[Tensor]:
        """Return the averaged parameters, in the order of `named`; NaN before the first validation."""
        return [stored[: self.count].mean(dim=0) for stored in self.stored]

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: the number of validations as "count", and k copies of each parameter."""
        return {"count": torch.tensor(self.count), **dict(zip(self.named, self.stored, strict=True))}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Copy the `state` of another average of equal parameters and equal k into this one.

        Args:
            state: Number of validations, and k copies of each parameter.
        """
        self.count = int(state["count"])
        for name, stored in zip(self.named, self.stored, strict=True):
            stored.copy_(state[name])


Average = MovingAverage | CheckpointAverage


def build_average(network: nn.Module, config: TrainingConfig) -> Average | None:
    """Return a new average of a network's parameters, of the configured kind.

    Args:
        network: Network that is trained.
        config: Training settings, with `weight_averaging`.

    Returns:
        The average; None if `weight_averaging` is "none".
    """
    match config.weight_averaging:
        case "none":
            return None
        case "ema":
            return MovingAverage(network, config.ema_decay)
        case "last":
            return CheckpointAverage(network, config.averaged_checkpoints)


@check_arguments
@contextmanager
def averaged_weights(average: Average | None) -> Iterator[None]:
    """Give the network of an average the averaged parameters for a block; afterwards it has its own again, bit for bit.

    Args:
        average: Average of the network's parameters; None changes nothing.

    Raises:
        ArgumentError: The argument is not an average.
    """
    if average is None:
        yield
        return
    weights: list[Tensor] = list(average.named.values())
    with torch.no_grad():
        current = [weight.clone() for weight in weights]
        torch._foreach_copy_(weights, list(average.weights()))
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(weights, current)


def _trainable_weights(network: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable weights by name."""
    return {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
