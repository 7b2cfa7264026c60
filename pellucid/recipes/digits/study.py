"""One training of a lesson's network: so many fresh samples, validated each so many, and what came of it.

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
from pellucid.recipes.digits.networks import Design, DigitsNetwork, Kind
from pellucid.recipes.following import Reached
from pellucid.worker_pool import ProgressCallback

CHUNK = 500
"""Samples that are judged at a time."""
BUDGETS: Mapping[Kind, int] = {"repeat": 300_000, "attention": 150_000}
"""The samples of the notebook's two runs."""
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
    """Adam as the notebook's library has it: θ ← θ − a_t m / (√v + ε), a_t = η √(1 − β₂ᵗ) / (1 − β₁ᵗ).

    PyTorch adds the same ε to √(v / (1 − β₂ᵗ)): in the first steps it is up to 32 times smaller there. Source: Kingma &
    Ba 2015, the end of section 2. β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸.
    """

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        """Moments of zero."""
        super().__init__(parameters, {"lr": rate})
        self.updates = 0
        self.moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update by the gradients that stand at the parameters."""
        self.updates += 1
        group = self.param_groups[0]
        rate = group["lr"] * math.sqrt(1 - 0.999**self.updates) / (1 - 0.9**self.updates)
        for parameter, (first, second) in zip(group["params"], self.moments, strict=True):
            assert parameter.grad is not None
            first.lerp_(parameter.grad, 0.1)
            second.lerp_(parameter.grad.square(), 0.001)
            parameter.sub_(rate * first / (second.sqrt() + 1e-8))


class Plan(NamedTuple):
    """How a network is trained: as in the lessons, unless told otherwise."""

    samples: int = 300_000
    batch: int = 100
    digits: tuple[int, int] = (20, 20)
    """Fewest and most digits of a sample."""
    masked: bool = False
    """Whether only symbols that are there count in the cost; else padding counts as the digit 0."""
    optimizer: str = "adam"
    rate: float = 0.005
    decay: Literal["none", "cosine"] = "none"
    """The rate stays, or falls along half a cosine to zero."""
    every: int = 5_000
    """Samples between validations."""
    validation: int = 5_000
    backwards: bool = False
    """Whether inputs are read from their end to their beginning."""

    def samples_from(self, count: int, generator: np.random.Generator) -> DigitSamples:
        """So many samples of this kind."""
        drawn = draw_digits(count, *self.digits, generator)
        return reverse_inputs(drawn) if self.backwards else drawn


class Point(NamedTuple):
    """One validation; accuracies are shares of 1."""

    samples: int
    cost: float
    """Mean training cost since the last one."""
    symbol_accuracy: float
    exact_match: float


class Judged(NamedTuple):
    """A network on samples it was not trained on; what lies behind a target's end is not counted."""

    symbol_accuracy: float
    exact_match: float
    per_position: list[float]
    attention_mean: list[list[float]] | None
    """Mean weights, T × S."""
    agreement: AlignmentAgreement | None
    """Of the digits' weights with their words; the space behind a word belongs to it."""


class Study(NamedTuple):
    """What is trained, how, and from which seed."""

    name: str
    design: Design
    plan: Plan
    seed: int


class Outcome(NamedTuple):
    """What came of one training."""

    name: str
    seed: int
    parameters: int
    seconds: float
    """Training alone, without validations."""
    curve: list[Point]
    final: Judged
    interrupted: bool = False
    """Whether Ctrl-C ended it; then it is as of its last validation."""

    @property
    def accuracy(self) -> float:
        """Share of symbols right at the end."""
        return self.final.symbol_accuracy


def unheard(what: object) -> None:
    """Say nothing."""


def conduct(study: Study, tell: ProgressCallback = unheard) -> Outcome:
    """Train and judge, on one thread; the outcome is a function of the study, its seconds apart."""
    return conduct_and_keep(study, tell)[1]


def conduct_and_keep(study: Study, tell: ProgressCallback = unheard) -> tuple[DigitsNetwork, Outcome]:
    """As `conduct`, with the trained network."""
    use_threads(1)
    is_numba_available()  # compiling and loading kernels is no part of any training
    torch.manual_seed(study.seed)
    network = DigitsNetwork(study.design)
    validation = study.plan.samples_from(study.plan.validation, np.random.default_rng([study.seed, 1]))
    curve, judged, seconds, interrupted = list[Point](), list[Judged](), 0.0, False
    started = time.perf_counter()
    try:
        for samples, cost in train(network, study.plan, study.seed):
            seconds += time.perf_counter() - started
            judged.append(judge(network, validation))
            curve.append(Point(samples, cost, judged[-1].symbol_accuracy, judged[-1].exact_match))
            tell(Reached(samples, study.plan.samples, f"symbols right {100 * curve[-1].symbol_accuracy:5.2f} %"))
            started = time.perf_counter()
    except KeyboardInterrupt:
        if not curve:
            raise
        interrupted = True
    numbers = (parameter_count(network), seconds, curve, judged[len(curve) - 1], interrupted)
    return network, Outcome(study.name, study.seed, *numbers)


def train(network: DigitsNetwork, plan: Plan, seed: int) -> Iterator[tuple[int, float]]:
    """Take updates, each on a fresh batch; stop for each validation with the samples seen and the mean cost since."""
    generator = np.random.default_rng([seed, 0])
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = OPTIMIZERS[plan.optimizer](parameters, plan.rate)
    updates, costs = math.ceil(plan.samples / plan.batch), list[float]()
    for update in range(updates):
        if plan.decay == "cosine":
            optimizer.param_groups[0]["lr"] = plan.rate * (1 + math.cos(math.pi * update / updates)) / 2
        cost = _cost(network, plan.samples_from(plan.batch, generator), plan.masked)
        gradients = torch.autograd.grad(cost, parameters)
        for parameter, gradient in zip(parameters, clipped(list(gradients)), strict=True):
            parameter.grad = gradient
        optimizer.step()
        costs.append(cost.item())
        samples = (update + 1) * plan.batch
        if samples // plan.every > (samples - plan.batch) // plan.every or update + 1 == updates:
            yield samples, float(np.mean(costs))
            costs.clear()


def clipped(gradients: list[Tensor], value: float = 3.0, norm: float = 3.0) -> list[Tensor]:
    """Each entry clipped to ±value; then all of them together scaled by min(‖g‖, norm) / (‖g‖ + 10⁻⁷)."""
    bounded = [gradient.clamp(-value, value) for gradient in gradients]
    length = torch.stack([gradient.square().sum() for gradient in bounded]).sum().sqrt()
    return [gradient * (length.clamp(max=norm) / (length + 1e-7)) for gradient in bounded]


@torch.inference_mode()
def judge(network: DigitsNetwork, samples: DigitSamples) -> Judged:
    """Decode all samples and compare."""
    parts = [slice(first, first + CHUNK) for first in range(0, len(samples.inputs), CHUNK)]
    written, attention = zip(*(_written(network, samples, part) for part in parts), strict=True)
    counted = samples.target_masks > 0
    right = (np.concatenate(written) == samples.targets) & counted
    mean, agreed = None, None
    if attention[0] is not None:
        weights = np.concatenate(attention)
        mean, agreed = weights.mean(axis=0).tolist(), alignment_agreement(weights, spans(samples))
    return Judged(
        symbol_accuracy=float(right.sum() / counted.sum()),
        exact_match=float((right | ~counted).all(axis=1).mean()),
        per_position=(right.sum(axis=0) / np.maximum(counted.sum(axis=0), 1)).tolist(),
        attention_mean=mean,
        agreement=agreed,
    )


def spans(samples: DigitSamples) -> AlignmentSpans:
    """The word of each digit, with the space behind it; for the end there is none."""
    stop = np.concatenate([samples.starts[:, 1:], samples.starts[:, -1:]], axis=1)
    digit = np.arange(samples.targets.shape[1]) < samples.target_masks.sum(axis=1)[:, None] - 1
    return AlignmentSpans(samples.starts, stop, digit)


def _written(
    network: DigitsNetwork, samples: DigitSamples, part: slice
) -> tuple[Int[np.ndarray, "N T"], Float[np.ndarray, "N T S"] | None]:
    """The likeliest symbols of some of the samples, and the weights."""
    written = network(*inputs_of(samples, part), samples.targets.shape[1])
    weights = None if written.attention is None else written.attention.numpy()
    return written.logits.argmax(dim=-1).numpy(), weights


def inputs_of(samples: DigitSamples, part: slice = slice(None)) -> tuple[Int[Tensor, "N S"], Int[Tensor, " N"]]:
    """Inputs and their lengths."""
    return torch.from_numpy(samples.inputs[part]).long(), torch.from_numpy(samples.lengths[part])


def _cost(network: DigitsNetwork, batch: DigitSamples, masked: bool) -> Float[Tensor, ""]:
    """Mean cross-entropy of the symbols, with padding or without."""
    logits = network(*inputs_of(batch), batch.targets.shape[1]).logits
    targets = torch.from_numpy(batch.targets).long()
    if masked:
        targets = targets.masked_fill(torch.from_numpy(batch.target_masks) == 0, -100)
    return nn.functional.cross_entropy(logits.view(-1, NUM_OUTPUTS), targets.view(-1))
