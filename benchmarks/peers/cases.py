"""The four cases of the benchmark: sizes of networks and batches, and typical rates."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Cell = Literal["gru", "lstm"]
Task = Literal["train", "start", "greedy", "beam"]
CELLS: tuple[Cell, ...] = ("gru", "lstm")
TASKS: tuple[Task, ...] = ("train", "start", "greedy", "beam")
NUM_DIGITS = 20
"""Digits of every pair, and symbols of every output."""
DECODING_BATCH_SIZE = 64
"""Batch size of decoding, for every system."""
BEAM_SIZE = 5


class Case(NamedTuple):
    """Sizes of a network and its batch."""

    name: str
    hidden_size: int
    """Units of the decoder, and of both encoder directions together."""
    embedding_size: int
    attention_size: int
    """Hidden size of additive attention, in systems with a setting for it."""
    batch_size: int
    updates_per_block: int
    """Updates of a block, for which one rate is computed."""
    typical_rates: Mapping[Task, float]
    """Samples or sentences per second of a typical system; they determine the size of the first attempt."""


CASES = {
    case.name: case
    for case in (
        Case("tiny", 10, 10, 20, 100, 20, {"train": 1200, "greedy": 1500, "beam": 450}),
        Case("small", 128, 64, 128, 64, 8, {"train": 180, "greedy": 400, "beam": 80}),
        Case("medium", 256, 64, 256, 64, 3, {"train": 60, "greedy": 120, "beam": 22}),
        Case("large", 512, 256, 512, 32, 2, {"train": 20, "greedy": 40, "beam": 8}),
    )
}
