"""Evenly spaced samples of examples, and decoding within a time limit."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from pellucid.data.examples import Example

MAX_WEIGHTING_SOURCES = 1000
"""Maximum number of validation sources that decide the weight of the pair n-gram model; of more, evenly spaced ones are
taken."""
MAX_CONFIDENCE_PAIRS = 2000
"""Maximum number of validation pairs to which the confidence is fitted; of more, evenly spaced ones are taken."""
BLOCK_SIZE = 100
"""Number of sources that are decoded at once, before the time is compared with the time limit."""
FIRST_BLOCK_SIZE = 20
"""Number of sources that are decoded at first, if there is a time limit; then each time twice as many."""
Item = TypeVar("Item")
Decoded = TypeVar("Decoded")


def sample_evenly(items: Sequence[Item], maximum: int) -> list[Item]:
    """Return at most `maximum` evenly spaced items in their order, beginning with the first.

    Args:
        items: The items.
        maximum: Maximum number of items.
    """
    count = min(len(items), maximum)
    return [items[number * len(items) // count] for number in range(count)]


def shuffled_sample(items: Sequence[Item], maximum: int) -> list[Item]:
    """Return the items of `sample_evenly` in a fixed shuffled order, so that the first are representative.

    Args:
        items: The items.
        maximum: Maximum number of items.
    """
    sample = sample_evenly(items, maximum)
    return [sample[number] for number in np.random.default_rng(0).permutation(len(sample)).tolist()]


def decode_in_time(
    examples: Sequence[Example],
    decode: Callable[[Sequence[Example]], Sequence[Decoded]],
    seconds: float,
    minimum: int,
    num_first: int | None = None,
) -> list[Decoded]:
    """Return what `decode` gives for the first examples: for all, if the seconds suffice.

    The number of examples that are decoded at once decides how soon the decoding ends, but no result.

    Args:
        examples: Examples, whose targets are ignored.
        decode: Function that returns one result for each of at most `BLOCK_SIZE` examples.
        seconds: Time after which no more examples are decoded; may be infinite.
        minimum: Number of examples that are decoded whatever the time.
        num_first: Number of examples that are decoded at once at first; then each time twice as many, up to
            `BLOCK_SIZE`. The default is `FIRST_BLOCK_SIZE`, or `BLOCK_SIZE` if the seconds are infinite.
    """
    decoded, started_at = list[Decoded](), time.monotonic()
    default = BLOCK_SIZE if math.isinf(seconds) else FIRST_BLOCK_SIZE
    count = min(default if num_first is None else num_first, BLOCK_SIZE)
    while len(decoded) < len(examples) and (len(decoded) < minimum or time.monotonic() - started_at <= seconds):
        decoded += decode(examples[len(decoded) : len(decoded) + count])
        count = min(2 * count, BLOCK_SIZE)
    return decoded
