"""Cases of the benchmark: four sizes of GRU and LSTM networks on spelled digits, for training and decoding."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec

from pellucid.config.settings import Cell, Config, Precision
from pellucid.config.toml import build_config
from pellucid.errors import InputError, quote, suggest
from pellucid.kernels.types import CELL_LAYOUTS

BenchTask = Literal["train", "greedy", "beam"]
TASKS: tuple[BenchTask, ...] = get_args(BenchTask)
CELLS = cast(tuple[Cell, ...], tuple(CELL_LAYOUTS))
"""Recurrent cells that the kernels support."""
DIGITS = 20
"""Digits of every pair, which has about 99 source symbols and 20 target symbols."""
BEAM_SIZE = 5
"""Beam size of the task beam."""
NUM_BATCHES = 50
"""Number of batches in the training data."""
BATCHES_PER_CALL = 4
"""Number of batches decoded by one call; the batches of a call are sorted by length."""


class BenchCase(msgspec.Struct, frozen=True):
    """Sizes of a network and of its batch."""

    hidden: int
    """H, hidden units of the decoder; each direction of the encoder has half of it."""
    embedding: int
    """E, size of an embedding."""
    units: int
    """A, attention units of additive attention."""
    batch: int
    """B, pairs per batch."""


CASES: dict[str, BenchCase] = {
    "tiny": BenchCase(10, 10, 20, 100),
    "small": BenchCase(128, 64, 128, 64),
    "medium": BenchCase(256, 64, 256, 64),
    "large": BenchCase(512, 256, 512, 32),
}


class BenchRequest(msgspec.Struct, frozen=True):
    """Arguments of one measurement."""

    task: BenchTask
    name: str
    """Displayed name of the case."""
    case: BenchCase
    cell: Cell
    digits: int = DIGITS
    """Number of digits of every pair."""
    threads: int = 1
    """CPU threads."""
    repeats: int = 5
    """Number of repeats over which medians and extremes are computed."""
    seconds: float = 5.0
    """Minimum seconds for which steps are timed, after the warmup."""
    plain: bool = False
    """Use plain PyTorch without kernels."""
    precision: Precision = "float32"
    """Precision of the products of an update: float32, or bf16."""


class BenchSelection(NamedTuple):
    """Selected tasks, cases and cells, every combination of which is measured."""

    tasks: Sequence[BenchTask]
    cases: Sequence[str]
    cells: Sequence[Cell]


def select_cases(task: str, cases: Sequence[str], cells: Sequence[str]) -> BenchSelection:
    """Return the tasks, cases and cells that the arguments of `pellucid bench` name, without repetitions.

    Args:
        task: "train", "greedy", "beam" or "all".
        cases: Keys of `CASES`; empty selects all.
        cells: "gru" or "lstm"; empty selects both.

    Raises:
        InputError: A name is unknown; the message lists the known ones.
    """
    tasks = TASKS if task == "all" else (_choose(task, TASKS, "task", ("all",)),)
    selected_cases = tuple(_choose(name, tuple(CASES), "case") for name in dict.fromkeys(cases)) or tuple(CASES)
    return BenchSelection(
        tasks, selected_cases, tuple(_choose(cell, CELLS, "cell") for cell in dict.fromkeys(cells)) or CELLS
    )


def bench_config(request: BenchRequest) -> Config:
    """Return the configuration of a measurement.

    There is no dropout, and other settings are defaults. Neither the end of training nor a validation is reached. Every
    output is as long as the number of digits, since an untrained network would not end it.

    Args:
        request: The measurement.
    """
    sizes: dict[str, Any] = {"cell": request.cell, "embedding_size": request.case.embedding, "dropout": 0.0}
    settings = {
        "threads": request.threads,
        "precision": request.precision,
        "encoder": {**sizes, "hidden_size": request.case.hidden // 2},
        "decoder": {**sizes, "hidden_size": request.case.hidden},
        "attention": {"size": request.case.units},
        "training": {"batch_size": request.case.batch, "epochs": 1e6, "eval_interval": 1e9, "pair_ngram": False},
        "search": _search_settings(request),
    }
    return build_config(settings, origin="benchmark")


def batches_per_call(task: BenchTask) -> int:
    """Return the number of batches that one timed call processes: 1 for an update, `BATCHES_PER_CALL` for decoding.

    Args:
        task: The task.
    """
    return 1 if task == "train" else BATCHES_PER_CALL


def _search_settings(request: BenchRequest) -> dict[str, Any]:
    """Return the settings of search."""
    lengths = {"min_length": request.digits, "max_length": request.digits}
    return {**lengths, "batch_size": request.case.batch, "beam_size": BEAM_SIZE if request.task == "beam" else 1}


def _choose(name: str, choices: Sequence[Any], kind: str, keywords: Sequence[str] = ()) -> Any:  # noqa: ANN401
    """Return the name if it is one of the choices; an error message also lists the keywords."""
    if name not in choices:
        listed = ", ".join([*choices, *keywords])
        raise InputError(f"there is no {kind} {quote(name)}{suggest(name, [*choices, *keywords])} ({listed})")
    return name
