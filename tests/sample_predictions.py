"""Traces of answers that no model gave."""

from collections.abc import Sequence

import numpy as np

from pellucid.config.settings import Task
from pellucid.decoding.trace import Trace


def make_prediction_trace(
    task: Task, source: str, predictions: Sequence[str], top_symbols: Sequence[str] | None = None
) -> Trace:
    """A source of characters with its answers, each with the same likeliest ones (itself alone)."""
    best = [tuple(top_symbols) if top_symbols is not None else (each,) for each in predictions]
    return Trace(
        text=source,
        source=tuple(source),
        features=0,
        unknown=(),
        target=tuple(predictions),
        output="".join(predictions),
        finished=True,
        log_probabilities=np.full(len(predictions), -0.5, np.float32),
        attention=np.ones((len(predictions), len(source)), np.float32) / len(source),
        top_symbols=tuple(best),
        top_log_probabilities=np.full((len(predictions), len(best[0])), -0.5, np.float32),
        task=task,
    )
