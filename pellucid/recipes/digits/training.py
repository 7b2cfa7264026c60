"""Training of a digit network: new samples at every update, validation at fixed intervals, and the result.

N samples, T target positions, S input positions, V symbols.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.data.synthetic import NUM_OUTPUTS, DigitSamples, draw_digits, reverse_inputs
from pellucid.evaluation.alignment import AlignmentAgreement, AlignmentSpans, alignment_agreement
from pellucid.kernels.dispatch import load_enabled_kernels
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.networks import DecoderKind, DigitsArchitecture, SpelledDigitsNetwork
from pellucid.recipes.jobs import SampleProgress
from pellucid.shapes import Float, Int
from pellucid.worker_pool import ProgressCallback

EVALUATION_BATCH = 500
"""Samples per evaluation batch."""
SAMPLE_BUDGETS: Mapping[DecoderKind, int] = {"repeat": 300_000, "attention": 150_000}
"""Number of training samples of the notebook's two runs, by decoder."""
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

    def __init__(self, parameters: list[nn.Parameter], learning_rate: float) -> None:
        """Start with zero moments.

        Args:
            parameters: Parameters to optimize; their gradients must be set at every step.
            learning_rate: Learning rate η, stored as "lr" of the parameter group.
        """
        super().__init__(parameters, {"lr": learning_rate})
        self.updates = 0
        self.moments = [(torch.zeros_like(parameter), torch.zeros_like(parameter)) for parameter in parameters]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters with their gradients.

        Args:
            closure: Not supported; must be None.
        """
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
    """Number of training samples, each seen once."""
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
    """Number of validation samples, which all validations share."""
    reverse_inputs: bool = False
    """Source symbols are in reverse order."""

    def draw_samples(self, count: int, generator: np.random.Generator) -> DigitSamples:
        """Return new samples with a random number of digits in the range `digits`.

        Args:
            count: Number of samples.
            generator: Random generator; its state changes.
        """
        samples = draw_digits(count, *self.digits, generator)
        return reverse_inputs(samples) if self.reverse_inputs else samples


class DigitsValidation(NamedTuple):
    """One validation; accuracies are fractions."""

    samples: int
    """Training samples seen so far."""
    loss: float
    """Mean training loss since the last validation, in nats per symbol; for Pellucid's models the validation loss."""
    symbol_accuracy: float
    exact_match: float


class DigitsEvaluation(NamedTuple):
    """Scores on validation or test samples, as fractions; positions after a target's end are excluded."""

    symbol_accuracy: float
    """Fraction of correct symbols, including the end symbol."""
    exact_match: float
    per_position: list[float]
    """Symbol accuracy at each target position; 0 where no target is as long."""
    attention_mean: list[list[float]] | None
    """Mean attention weights over the samples, T × S; None without attention."""
    agreement: AlignmentAgreement | None
    """Agreement of the attention weights with the words of the digits, including the space after each word; None
    without attention.
    """


class DigitsExperiment(NamedTuple):
    """Architecture, hyperparameters and seed of a training."""

    name: str
    architecture: DigitsArchitecture
    plan: DigitsTrainingPlan
    seed: int


class DigitsResult(NamedTuple):
    """Result of a training."""

    name: str
    seed: int
    parameters: int
    """Number of trained parameters."""
    seconds: float
    """Training time without validations; for Pellucid's models with them."""
    curve: list[DigitsValidation]
    """All validations."""
    final: DigitsEvaluation
    """Scores at the last validation, on the validation samples; for Pellucid's models on the test pairs."""
    interrupted: bool = False
    """Training was interrupted by Ctrl-C; the result is that of the last validation."""

    @property
    def accuracy(self) -> float:
        """Return the final symbol accuracy, as a fraction."""
        return self.final.symbol_accuracy


def discard_progress(event: object) -> None:
    """Ignore a progress message; the default progress callback.

    Args:
        event: Progress message.
    """


def run_experiment(experiment: DigitsExperiment, on_progress: ProgressCallback = discard_progress) -> DigitsResult:
    """Train and evaluate on one thread; the result depends only on the experiment, except for its seconds.

    Ctrl-C ends the training; the result is then that of the last validation.

    Args:
        experiment: Architecture, hyperparameters and seed.
        on_progress: Progress callback, called with a `SampleProgress` after each validation.

    Returns:
        The validation curve, and the scores of the last validation.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed before the first validation.
    """
    return train_network(experiment, on_progress)[1]


def train_network(
    experiment: DigitsExperiment, on_progress: ProgressCallback = discard_progress
) -> tuple[SpelledDigitsNetwork, DigitsResult]:
    """Train and evaluate as `run_experiment` does, and return the trained network, too.

    The process then computes with one thread; PyTorch's generator is seeded.

    Args:
        experiment: Architecture, hyperparameters and seed.
        on_progress: Progress callback, called with a `SampleProgress` after each validation.

    Returns:
        The trained network and the result of the training.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed before the first validation.
    """
    use_threads(1)
    load_enabled_kernels()  # before the time is measured
    torch.manual_seed(experiment.seed)
    network = SpelledDigitsNetwork(experiment.architecture)
    validation = experiment.plan.draw_samples(
        experiment.plan.validation_samples, np.random.default_rng([experiment.seed, 1])
    )
    curve, evaluations = list[DigitsValidation](), list[DigitsEvaluation]()
    seconds, interrupted = 0.0, False
    started = time.perf_counter()
    try:
        for samples, loss in training_steps(network, experiment.plan, experiment.seed):
            seconds += time.perf_counter() - started
            evaluations.append(evaluate_network(network, validation))
            curve.append(DigitsValidation(samples, loss, evaluations[-1].symbol_accuracy, evaluations[-1].exact_match))
            on_progress(
                SampleProgress(
                    samples, experiment.plan.samples, f"symbol accuracy {100 * curve[-1].symbol_accuracy:5.2f} %"
                )
            )
            started = time.perf_counter()
    except KeyboardInterrupt:
        if not curve:
            raise
        interrupted = True
    final = evaluations[len(curve) - 1]
    num_parameters = parameter_count(network)
    return network, DigitsResult(experiment.name, experiment.seed, num_parameters, seconds, curve, final, interrupted)


def training_steps(network: SpelledDigitsNetwork, plan: DigitsTrainingPlan, seed: int) -> Iterator[tuple[int, float]]:
    """Train a network on new samples, one generator step per validation interval; gradients are clipped.

    Args:
        network: The network; its parameters change.
        plan: Hyperparameters.
        seed: Seed of the samples.

    Yields:
        Samples seen, and mean loss since the last validation, whenever a validation is due and at the end.
    """
    generator = np.random.default_rng([seed, 0])
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = OPTIMIZERS[plan.optimizer](parameters, plan.learning_rate)
    num_updates, losses = math.ceil(plan.samples / plan.batch_size), list[float]()
    for update in range(num_updates):
        if plan.decay == "cosine":
            optimizer.param_groups[0]["lr"] = plan.learning_rate * (1 + math.cos(math.pi * update / num_updates)) / 2
        loss = _batch_loss(network, plan.draw_samples(plan.batch_size, generator), plan.masked)
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, clip_gradients(list(gradients)), strict=True):
            parameter.grad = gradient
        optimizer.step()
        losses.append(loss.item())
        samples = (update + 1) * plan.batch_size
        is_due = samples // plan.eval_interval > (samples - plan.batch_size) // plan.eval_interval
        if is_due or update + 1 == num_updates:
            yield samples, float(np.mean(losses))
            losses.clear()


def clip_gradients(gradients: list[Tensor], value: float = 3.0, norm: float = 3.0) -> list[Tensor]:
    """Clip each entry to ±value, then scale all gradients by min(‖g‖, norm) / (‖g‖ + 10⁻⁷).

    Args:
        gradients: Gradient of each parameter.
        value: Maximum absolute value of an entry.
        norm: Maximum norm of all gradients together.

    Returns:
        The clipped gradients; the given tensors are unchanged.
    """
    clipped = [gradient.clamp(-value, value) for gradient in gradients]
    total_norm = torch.stack([gradient.square().sum() for gradient in clipped]).sum().sqrt()
    return [gradient * (total_norm.clamp(max=norm) / (total_norm + 1e-7)) for gradient in clipped]


@torch.inference_mode()
def evaluate_network(network: SpelledDigitsNetwork, samples: DigitSamples) -> DigitsEvaluation:
    """Predict the most probable symbol at each target position of all samples, and score the predictions.

    Args:
        network: The network.
        samples: The samples.

    Returns:
        Accuracies as fractions, without padding; mean attention weights, and their agreement with the words.
    """
    batches = [slice(first, first + EVALUATION_BATCH) for first in range(0, len(samples.inputs), EVALUATION_BATCH)]
    outputs, attention = zip(*(_decode_batch(network, samples, rows) for rows in batches), strict=True)
    mask = samples.target_masks > 0
    is_correct = (np.concatenate(outputs) == samples.targets) & mask
    attention_mean, agreement = None, None
    if attention[0] is not None:
        weights = np.concatenate(attention)
        attention_mean = weights.mean(axis=0).tolist()
        agreement = alignment_agreement(weights, word_spans(samples))
    return DigitsEvaluation(
        symbol_accuracy=float(is_correct.sum() / mask.sum()),
        exact_match=float((is_correct | ~mask).all(axis=1).mean()),
        per_position=(is_correct.sum(axis=0) / np.maximum(mask.sum(axis=0), 1)).tolist(),
        attention_mean=attention_mean,
        agreement=agreement,
    )


def word_spans(samples: DigitSamples) -> AlignmentSpans:
    """Return the source span of each digit's word, including the space after it; the end symbol and padding have none.

    Args:
        samples: The samples.
    """
    stop = np.concatenate([samples.starts[:, 1:], samples.starts[:, -1:]], axis=1)
    is_digit = np.arange(samples.targets.shape[1]) < samples.target_masks.sum(axis=1)[:, None] - 1
    return AlignmentSpans(samples.starts, stop, is_digit)


def _decode_batch(
    network: SpelledDigitsNetwork, samples: DigitSamples, rows: slice
) -> tuple[Int[np.ndarray, "N T"], Float[np.ndarray, "N T S"] | None]:
    """Return the most probable symbols and the attention weights of a slice of the samples."""
    output = network(*to_tensors(samples, rows), samples.targets.shape[1])
    weights = None if output.attention is None else output.attention.numpy()
    return output.logits.argmax(dim=-1).numpy(), weights


def to_tensors(samples: DigitSamples, rows: slice = slice(None)) -> tuple[Int[Tensor, "N S"], Int[Tensor, " N"]]:
    """Return inputs (letter ids) and lengths of samples as tensors, the arguments of the network.

    Args:
        samples: The samples.
        rows: Selected samples; all by default.
    """
    return torch.from_numpy(samples.inputs[rows]).long(), torch.from_numpy(samples.lengths[rows])


def _batch_loss(network: SpelledDigitsNetwork, batch: DigitSamples, masked: bool) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the symbols, with or without padding."""
    logits = network(*to_tensors(batch), batch.targets.shape[1]).logits
    targets = torch.from_numpy(batch.targets).long()
    if masked:
        targets = targets.masked_fill(torch.from_numpy(batch.target_masks) == 0, -100)
    return nn.functional.cross_entropy(logits.view(-1, NUM_OUTPUTS), targets.view(-1))
