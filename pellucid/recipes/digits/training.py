"""Training of a digit network: new samples at every update, validation at fixed intervals, and the result.

N samples, T target positions, S input positions, V symbols.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.data.synthetic import NUM_OUTPUTS, DigitSamples, draw_digits, reverse_inputs
from pellucid.evaluation.alignment import AlignmentAgreement, AlignmentSpans, alignment_agreement
from pellucid.kernels.numba_backend import is_numba_available
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.networks import DecoderKind, DigitsArchitecture, DigitsNetwork
from pellucid.recipes.jobs import SampleProgress
from pellucid.worker_pool import ProgressCallback

EVALUATION_BATCH = 500
"""Samples per evaluation batch."""
SAMPLE_BUDGETS: Mapping[DecoderKind, int] = {"repeat": 300_000, "attention": 150_000}
"""Training samples of the notebook's two runs."""
OPTIMIZERS: Mapping[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, rate),
    "adam-2014": lambda parameters, rate: LasagneAdam(parameters, rate),
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, rate),
    "momentum": lambda parameters, rate: torch.optim.SGD(parameters, rate, momentum=0.9, nesterov=True),
    "adagrad": lambda parameters, rate: torch.optim.Adagrad(parameters, rate),
    "rmsprop": lambda parameters, rate: torch.optim.RMSprop(parameters, rate, alpha=0.9),
    "adadelta": lambda parameters, rate: torch.optim.Adadelta(parameters, rate),
}


class LasagneAdam(torch.optim.Optimizer):
    """Adam as in Lasagne: θ ← θ − a_t m / (√v + ε), a_t = η √(1 − β₂ᵗ) / (1 − β₁ᵗ).

    PyTorch adds the same ε to √(v / (1 − β₂ᵗ)), where it is up to 32 times smaller in the first steps. β₁ = 0.9,
    β₂ = 0.999, ε = 10⁻⁸.

    References:
        Kingma & Ba 2015, "Adam", end of section 2.
    """

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        """Start with zero moments."""
        super().__init__(parameters, {"lr": rate})
        self.updates = 0
        self.moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters with their gradients."""
        self.updates += 1
        group = self.param_groups[0]
        rate = group["lr"] * math.sqrt(1 - 0.999**self.updates) / (1 - 0.9**self.updates)
        for parameter, (first, second) in zip(group["params"], self.moments, strict=True):
            assert parameter.grad is not None
            first.lerp_(parameter.grad, 0.1)
            second.lerp_(parameter.grad.square(), 0.001)
            parameter.sub_(rate * first / (second.sqrt() + 1e-8))


class DigitsTrainingPlan(NamedTuple):
    """Hyperparameters of a training; the defaults are those of the notebook."""

    samples: int = 300_000
    batch_size: int = 100
    digits: tuple[int, int] = (20, 20)
    """Minimum and maximum number of digits of a sample."""
    masked: bool = False
    """The loss excludes padding; otherwise padding counts as the digit 0."""
    optimizer: str = "adam"
    learning_rate: float = 0.005
    decay: Literal["none", "cosine"] = "none"
    """Constant learning rate, or cosine decay to zero."""
    eval_interval: int = 5_000
    """Samples between validations."""
    validation_samples: int = 5_000
    reverse_inputs: bool = False
    """Reverse the inputs."""

    def draw_samples(self, count: int, generator: np.random.Generator) -> DigitSamples:
        """Return `count` samples drawn from a generator."""
        drawn = draw_digits(count, *self.digits, generator)
        return reverse_inputs(drawn) if self.reverse_inputs else drawn


class DigitsValidation(NamedTuple):
    """One validation; accuracies are fractions."""

    samples: int
    loss: float
    """Mean training loss since the last validation."""
    symbol_accuracy: float
    exact_match: float


class DigitsEvaluation(NamedTuple):
    """Scores on new samples; positions after a target's end are excluded."""

    symbol_accuracy: float
    exact_match: float
    per_position: list[float]
    attention_mean: list[list[float]] | None
    """Mean attention weights, T × S."""
    agreement: AlignmentAgreement | None
    """Agreement of the attention weights with the words of the digits, including the space after each word."""


class DigitsStudy(NamedTuple):
    """Architecture, hyperparameters and seed of a training."""

    name: str
    design: DigitsArchitecture
    plan: DigitsTrainingPlan
    seed: int


class DigitsResult(NamedTuple):
    """Result of a training."""

    name: str
    seed: int
    parameters: int
    seconds: float
    """Training time without validations."""
    curve: list[DigitsValidation]
    final: DigitsEvaluation
    interrupted: bool = False
    """Ended by Ctrl-C; the result is that of the last validation."""

    @property
    def accuracy(self) -> float:
        """Return the final symbol accuracy."""
        return self.final.symbol_accuracy


def discard_progress(event: object) -> None:
    """Ignore a progress message."""


def run_study(study: DigitsStudy, tell: ProgressCallback = discard_progress) -> DigitsResult:
    """Train and evaluate on one thread; the result is a function of the study, except for its seconds.

    Args:
        study: Architecture, hyperparameters and seed.
        tell: Progress callback.
    """
    return train_network(study, tell)[1]


def train_network(study: DigitsStudy, tell: ProgressCallback = discard_progress) -> tuple[DigitsNetwork, DigitsResult]:
    """Do the same as `run_study` and return the trained network, too."""
    use_threads(1)
    is_numba_available()  # compiling and loading kernels is no part of any training
    torch.manual_seed(study.seed)
    network = DigitsNetwork(study.design)
    validation = study.plan.draw_samples(study.plan.validation_samples, np.random.default_rng([study.seed, 1]))
    curve, evaluations, seconds, interrupted = list[DigitsValidation](), list[DigitsEvaluation](), 0.0, False
    started = time.perf_counter()
    try:
        for samples, cost in training_steps(network, study.plan, study.seed):
            seconds += time.perf_counter() - started
            evaluations.append(evaluate_network(network, validation))
            curve.append(DigitsValidation(samples, cost, evaluations[-1].symbol_accuracy, evaluations[-1].exact_match))
            tell(SampleProgress(samples, study.plan.samples, f"symbols right {100 * curve[-1].symbol_accuracy:5.2f} %"))
            started = time.perf_counter()
    except KeyboardInterrupt:
        if not curve:
            raise
        interrupted = True
    numbers = (parameter_count(network), seconds, curve, evaluations[len(curve) - 1], interrupted)
    return network, DigitsResult(study.name, study.seed, *numbers)


def training_steps(network: DigitsNetwork, plan: DigitsTrainingPlan, seed: int) -> Iterator[tuple[int, float]]:
    """Train on new batches.

    Args:
        network: The network; its parameters change.
        plan: Hyperparameters.
        seed: Seed of the samples.

    Yields:
        Samples seen and mean loss, at each validation.
    """
    generator = np.random.default_rng([seed, 0])
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = OPTIMIZERS[plan.optimizer](parameters, plan.learning_rate)
    updates, costs = math.ceil(plan.samples / plan.batch_size), list[float]()
    for update in range(updates):
        if plan.decay == "cosine":
            optimizer.param_groups[0]["lr"] = plan.learning_rate * (1 + math.cos(math.pi * update / updates)) / 2
        cost = _batch_loss(network, plan.draw_samples(plan.batch_size, generator), plan.masked)
        gradients = torch.autograd.grad(cost, parameters)
        for parameter, gradient in zip(parameters, clip_gradients(list(gradients)), strict=True):
            parameter.grad = gradient
        optimizer.step()
        costs.append(cost.item())
        samples = (update + 1) * plan.batch_size
        if samples // plan.eval_interval > (samples - plan.batch_size) // plan.eval_interval or update + 1 == updates:
            yield samples, float(np.mean(costs))
            costs.clear()


def clip_gradients(gradients: list[Tensor], value: float = 3.0, norm: float = 3.0) -> list[Tensor]:
    """Clip each entry to ±value, then scale all gradients by min(‖g‖, norm) / (‖g‖ + 10⁻⁷)."""
    bounded = [gradient.clamp(-value, value) for gradient in gradients]
    length = torch.stack([gradient.square().sum() for gradient in bounded]).sum().sqrt()
    return [gradient * (length.clamp(max=norm) / (length + 1e-7)) for gradient in bounded]


@torch.inference_mode()
def evaluate_network(network: DigitsNetwork, samples: DigitSamples) -> DigitsEvaluation:
    """Decode all samples and score the outputs."""
    parts = [slice(first, first + EVALUATION_BATCH) for first in range(0, len(samples.inputs), EVALUATION_BATCH)]
    written, attention = zip(*(_decode_batch(network, samples, part) for part in parts), strict=True)
    counted = samples.target_masks > 0
    right = (np.concatenate(written) == samples.targets) & counted
    mean, agreed = None, None
    if attention[0] is not None:
        weights = np.concatenate(attention)
        mean, agreed = weights.mean(axis=0).tolist(), alignment_agreement(weights, word_spans(samples))
    return DigitsEvaluation(
        symbol_accuracy=float(right.sum() / counted.sum()),
        exact_match=float((right | ~counted).all(axis=1).mean()),
        per_position=(right.sum(axis=0) / np.maximum(counted.sum(axis=0), 1)).tolist(),
        attention_mean=mean,
        agreement=agreed,
    )


def word_spans(samples: DigitSamples) -> AlignmentSpans:
    """Return the source span of each digit's word, including the space after it; the end symbol has none."""
    stop = np.concatenate([samples.starts[:, 1:], samples.starts[:, -1:]], axis=1)
    digit = np.arange(samples.targets.shape[1]) < samples.target_masks.sum(axis=1)[:, None] - 1
    return AlignmentSpans(samples.starts, stop, digit)


def _decode_batch(
    network: DigitsNetwork, samples: DigitSamples, part: slice
) -> tuple[Int[np.ndarray, "N T"], Float[np.ndarray, "N T S"] | None]:
    """Return the most probable symbols and the attention weights of a slice of the samples."""
    written = network(*to_tensors(samples, part), samples.targets.shape[1])
    weights = None if written.attention is None else written.attention.numpy()
    return written.logits.argmax(dim=-1).numpy(), weights


def to_tensors(samples: DigitSamples, part: slice = slice(None)) -> tuple[Int[Tensor, "N S"], Int[Tensor, " N"]]:
    """Return inputs and lengths as tensors."""
    return torch.from_numpy(samples.inputs[part]).long(), torch.from_numpy(samples.lengths[part])


def _batch_loss(network: DigitsNetwork, batch: DigitSamples, masked: bool) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the symbols, with or without padding."""
    logits = network(*to_tensors(batch), batch.targets.shape[1]).logits
    targets = torch.from_numpy(batch.targets).long()
    if masked:
        targets = targets.masked_fill(torch.from_numpy(batch.target_masks) == 0, -100)
    return nn.functional.cross_entropy(logits.view(-1, NUM_OUTPUTS), targets.view(-1))
