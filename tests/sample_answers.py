"""Traces of answers that no model gave."""

from collections.abc import Sequence

import numpy as np

from pellucid.config.settings import Task
from pellucid.decoding.trace import Trace


def answered(task: Task, source: str, answers: Sequence[str], top: Sequence[str] | None = None) -> Trace:
    """A source of characters with its answers, each with the same likeliest ones (itself alone)."""
    best = [tuple(top) if top is not None else (each,) for each in answers]
    return Trace(
        text=source,
        source=tuple(source),
        features=0,
        unknown=(),
        target=tuple(answers),
        output="".join(answers),
        finished=True,
        log_probabilities=np.full(len(answers), -0.5, np.float32),
        attention=np.ones((len(answers), len(source)), np.float32) / len(source),
        top_symbols=tuple(best),
        top_log_probabilities=np.full((len(answers), len(best[0])), -0.5, np.float32),
        task=task,
    )
