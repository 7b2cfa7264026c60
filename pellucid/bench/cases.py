"""What is measured: four networks of either cell, on numbers spelled out, in training and in decoding."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec

from pellucid.config.settings import Cell, Config
from pellucid.config.toml import from_settings
from pellucid.errors import InputError, nearest, quote
from pellucid.kernels.types import CELL_LAYOUTS

Task = Literal["train", "greedy", "beam"]
TASKS: tuple[Task, ...] = get_args(Task)
CELLS = cast(tuple[Cell, ...], tuple(CELL_LAYOUTS))
"""The cells that kernels compute."""
DIGITS = 20
"""Digits of every number: about 99 characters to read, 20 to write."""
BEAM = 5
"""Hypotheses of beam search."""
BATCHES = 50
"""Batches in the training data."""
CALL = 4
"""Batches decoded by one call: few, so that a call is short, and several, so that they are sorted by length."""


class Case(msgspec.Struct, frozen=True):
    """Sizes of a network and of its batch."""

    hidden: int
    """H of the decoder; each direction of the encoder has half as many units."""
    embedding: int
    units: int
    """A, units of the additive attention."""
    batch: int


CASES: dict[str, Case] = {
    "tiny": Case(10, 10, 20, 100),
    "small": Case(128, 64, 128, 64),
    "medium": Case(256, 64, 256, 64),
    "large": Case(512, 256, 512, 32),
}


class Asked(msgspec.Struct, frozen=True):
    """One measurement, as it is asked of a process of its own."""

    task: Task
    name: str
    """The case's name, for people."""
    case: Case
    cell: Cell
    digits: int = DIGITS
    threads: int = 1
    repeats: int = 5
    seconds: float = 5.0
    """About how long the steady state is measured."""
    plain: bool = False
    """In plain PyTorch, without kernels."""


class Wanted(NamedTuple):
    """What a person wants measured."""

    tasks: Sequence[Task]
    cases: Sequence[str]
    cells: Sequence[Cell]


def wanted(task: str, cases: Sequence[str], cells: Sequence[str]) -> Wanted:
    """What the words of a command name; all cases and both cells where none is named. `InputError` for other words."""
    tasks = TASKS if task == "all" else (_one(task, TASKS, "task", ("all",)),)
    named = tuple(_one(name, tuple(CASES), "case") for name in dict.fromkeys(cases)) or tuple(CASES)
    return Wanted(tasks, named, tuple(_one(cell, CELLS, "cell") for cell in dict.fromkeys(cells)) or CELLS)


def config_of(asked: Asked) -> Config:
    """The configuration of a measurement: a bidirectional encoder, no dropout, no end and no validation in reach.

    Every output is forced to as many symbols as there are digits, because the network is not trained.
    """
    sizes: dict[str, Any] = {"cell": asked.cell, "embedding_size": asked.case.embedding, "dropout": 0.0}
    settings = {
        "threads": asked.threads,
        "encoder": {**sizes, "hidden_size": asked.case.hidden // 2},
        "decoder": {**sizes, "hidden_size": asked.case.hidden},
        "attention": {"size": asked.case.units},
        "training": {"batch_size": asked.case.batch, "epochs": 1e6, "eval_interval": 1e9},
        "search": _search(asked),
    }
    return from_settings(settings, origin="benchmark")


def batches_a_call(task: Task) -> int:
    """Batches that one timed call takes: an update has one."""
    return 1 if task == "train" else CALL


def _search(asked: Asked) -> dict[str, Any]:
    """The settings of search."""
    forced = {"min_length": asked.digits, "max_length": asked.digits}
    return {**forced, "batch_size": asked.case.batch, "beam_size": BEAM if asked.task == "beam" else 1}


def _one(word: str, choices: Sequence[Any], what: str, more: Sequence[str] = ()) -> Any:  # noqa: ANN401
    """The word, if it is one of the choices."""
    if word not in choices:
        listed = ", ".join([*choices, *more])
        raise InputError(f"there is no {what} {quote(word)}{nearest(word, [*choices, *more])} ({listed})")
    return word
