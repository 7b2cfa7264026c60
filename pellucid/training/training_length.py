"""Length of a training: its default number of epochs, batch size and interval of validations."""

import math

from pellucid.config.settings import TrainingConfig
from pellucid.errors import count_noun

MIN_EVAL_INTERVAL = 1e-6
"""Minimum number of epochs between validations, which bounds their number; it is less than an update."""
EPOCH_TOLERANCE = 1e-9
"""Number of epochs by which a training may be shorter than its maximum, for the rounding of fractions of an epoch."""
MIN_VALIDATIONS = 8
"""Minimum number of validations of a training of at least as many epochs, if their interval is derived."""
EXAMPLES_PER_VALIDATION = 20
"""Minimum number of training examples for each validation of one example, if the interval is derived."""
EXAMPLES_PER_TIMED_VALIDATION = 7
"""Minimum number of training examples per validation example if a time limit determines the interval.

The validations then take at most about a tenth of the time.
"""


def has_equal_epochs(config: TrainingConfig) -> bool:
    """Return whether all epochs have the same number of batches, which batches that are measured in tokens have not.

    Args:
        config: Training settings.
    """
    return config.batch_type == "examples"


def describe_updates(updates: int, is_exact: bool) -> str:
    """Return a maximum number of updates in words: "2,265 updates", or "about 2,265 updates".

    Args:
        updates: Number of updates.
        is_exact: Whether the number is exact (`has_equal_epochs`).
    """
    return f"{'' if is_exact else 'about '}{count_noun(updates, 'update')}"


def num_drawn(num_new: int, fraction: float) -> int:
    """Return the number of earlier pairs that are drawn for an epoch, so that they are a fraction of its pairs.

    Args:
        num_new: Number of other training examples.
        fraction: Fraction of the earlier pairs among all, from 0 to below 1.
    """
    return round(num_new * fraction / (1 - fraction))


def examples_per_epoch(num_new: int, config: TrainingConfig) -> int:
    """Return the number of training examples of an epoch, those drawn from the earlier pairs included.

    Args:
        num_new: Number of other training examples.
        config: Training settings, which may name a file of earlier pairs (`mix_in`).
    """
    return num_new + (num_drawn(num_new, config.mix_in_fraction) if config.mix_in else 0)


def derived_epochs(examples: int) -> float:
    """Return the default maximum number of epochs for n examples.

    It is 30 √(3600 / n), at most 200, below 3,600 examples, and 30 (3600 / n)^⅛ from there on (docs/log.md).

    Args:
        examples: n, the number of training examples, at least 1.
    """
    epochs: float = 30.0 * (3600 / examples) ** (0.5 if examples < 3600 else 0.125)
    return min(200.0, epochs)


def derived_batch_size(examples: int) -> int:
    """Return the default batch size: the power of two from 8 to 64 that is nearest to √n / 4 on a logarithmic scale.

    It is 8 for 1,000 examples, 16 for 3,600, 32 for 10,000, and 64 from 32,768. On small data, many small updates give
    better accuracy (docs/log.md).

    Args:
        examples: n, the number of training examples, at least 1.
    """
    size: int = 2 ** min(6, max(3, round(math.log2(math.sqrt(examples) / 4))))
    return size


def derived_eval_interval(
    examples: int, validation_examples: int, epochs: float, expected_epochs: float = math.inf
) -> float:
    """Return the default number of epochs between validations.

    For n training and m validation examples it is ⌈20 m / n⌉, at least 1 and at most an eighth of all epochs. To decode
    an example and compute its loss takes about half of the time of training on it. So the validations take less than
    3 % of the time, except with a large validation set for a short training (docs/guides/training.md).

    Args:
        examples: n, the number of training examples of an epoch, at least 1.
        validation_examples: m, the number of validation examples.
        epochs: Maximum number of epochs.
        expected_epochs: Estimated number of epochs for which a time limit is enough; infinite without an estimate. The
            interval is then at most an eighth of them, but not so short that the validations would take more than
            about a tenth of the time.
    """
    interval = math.ceil(EXAMPLES_PER_VALIDATION * validation_examples / examples)
    longest = math.floor(epochs / MIN_VALIDATIONS)
    if expected_epochs < epochs:
        shortest = math.ceil(EXAMPLES_PER_TIMED_VALIDATION * validation_examples / examples)
        longest = min(longest, max(shortest, math.floor(expected_epochs / MIN_VALIDATIONS)))
    return float(max(1, min(interval, longest)))


def max_updates(epochs: float, updates_per_epoch: float) -> int:
    """Return the number of updates after which a training has made its maximum number of epochs (`is_out_of_epochs`).

    Args:
        epochs: Maximum number of epochs, which may be a fraction.
        updates_per_epoch: Number of updates of an epoch, which may be an estimate.
    """
    return max(1, math.ceil((epochs - EPOCH_TOLERANCE) * updates_per_epoch))
