"""Pellucid's own networks on the lessons' task: trained as any run is, judged as the lessons' networks are.

N traces, T target positions, S source positions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pellucid.config.settings import Config
from pellucid.data.synthetic import WORD_SIZES, spelled_digits, write_pairs
from pellucid.decoding.trace import Trace
from pellucid.evaluation.alignment import AlignmentAgreement, AlignmentSpans, alignment_agreement
from pellucid.files import make_folder
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.study import Judged, Outcome, Point, unheard
from pellucid.reporting.figures import mean_attention
from pellucid.training.ensemble_training import throttle
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import Files, train_run
from pellucid.viewer.reports import ScoredRun, score_run
from pellucid.worker_pool import ProgressCallback


class Task(NamedTuple):
    """One training: its name, where it goes, what it sees."""

    name: str
    """Empty where there is only one of a seed."""
    out: Path
    seed: int
    samples: int
    config: Config
    digits: tuple[int, int] = (20, 20)
    """Fewest and most of a pair."""
    development: int = 1_000
    test: int = 5_000


class Result(NamedTuple):
    """A trained run, what it is worth, and the same in the lessons' terms."""

    folder: Path
    judgement: ScoredRun
    outcome: Outcome


def train_and_judge(task: Task, tell: ProgressCallback = unheard) -> Result:
    """Train on pairs that are each seen once, and judge on pairs that were not seen."""
    tag = f"{task.name} seed {task.seed}".strip().replace(" ", "-")
    data, folder = task.out / "data" / tag, task.out / "runs" / tag
    make_folder(data)
    counts = {"train": task.samples, "dev": task.development, "test": task.test}
    pairs = {
        name: spelled_digits(count, *task.digits, 10 * task.seed + place)
        for place, (name, count) in enumerate(counts.items())
    }
    for name, examples in pairs.items():
        write_pairs(data / f"{name}.tsv", examples)
    events = train_run(Files(data / "train.tsv", data / "dev.tsv"), folder, task.config)
    for _, told in throttle(events):
        if told is not None:
            tell(told)
    judgement = score_run(load(folder), pairs["test"])
    return Result(folder, judgement, outcome_of(task, folder, judgement))


def outcome_of(task: Task, folder: Path, judgement: ScoredRun) -> Outcome:
    """A run in the lessons' terms: its log as a curve, its judgement in shares of 1."""
    log = read_log(folder)
    curve = [
        Point(record["samples"], record["loss"], record["symbol_accuracy"] / 100, record["exact_match"] / 100)
        for record in log
        if record["event"] == "validated"
    ]
    evaluation = judgement.evaluation
    final = Judged(
        symbol_accuracy=evaluation.symbol_accuracy / 100,
        exact_match=evaluation.exact_match / 100,
        per_position=[position.right / max(position.total, 1) for position in evaluation.positions],
        attention_mean=mean_attention(judgement.traces)[: len(evaluation.positions)].tolist(),
        agreement=agreement_of(judgement.traces, [target for (target,) in judgement.references]),
    )
    seconds = [record["seconds"] for record in log if record["event"] == "stopped"][-1]
    return Outcome(task.name, task.seed, parameter_count(judgement.predictor.network), seconds, curve, final)


def agreement_of(traces: Sequence[Trace], digits: Sequence[str]) -> AlignmentAgreement:
    """The weights of each written symbol against the word of the digit that belongs in its place."""
    steps = max(len(trace.target) for trace in traces)
    weights = np.zeros((len(traces), steps, max(len(trace.source) for trace in traces)), np.float32)
    first, stop = (np.zeros(weights.shape[:2], np.int64) for _ in range(2))
    known = np.zeros(weights.shape[:2], np.bool_)
    for row, (trace, answer) in enumerate(zip(traces, digits, strict=True)):
        count = min(len(trace.target), len(answer))
        ends = word_ends(answer)[:count]
        weights[row, : trace.attention.shape[0], : trace.attention.shape[1]] = trace.attention
        stop[row, :count], known[row, :count] = ends, True
        first[row, 1:count] = ends[:-1]
    return alignment_agreement(weights, AlignmentSpans(first, stop, known))


def word_ends(digits: str) -> Int[np.ndarray, " T"]:
    """Where the word of each digit ends, the space behind it included."""
    return np.cumsum(WORD_SIZES[[int(digit) for digit in digits]])


def samples_to(outcome: Outcome, accuracy: float) -> int | None:
    """The samples seen at the first validation that reached so much, if one did."""
    return next((point.samples for point in outcome.curve if point.symbol_accuracy >= accuracy), None)
