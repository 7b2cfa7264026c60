"""Traces of predictions of the classification tasks, made without a model."""

from collections.abc import Sequence

import numpy as np

from pellucid.config.settings import TaskName
from pellucid.decoding.trace import Trace


def make_prediction_trace(
    task: TaskName, source: str, predictions: Sequence[str], top_symbols: Sequence[str] | None = None
) -> Trace:
    """Return the trace of a source of characters with its predictions.

    The candidates of every step are `top_symbols`, or else only the prediction.
    """
    candidates = [tuple(top_symbols) if top_symbols is not None else (prediction,) for prediction in predictions]
    return Trace(
        text=source,
        source=tuple(source),
        num_features=0,
        unknown=(),
        target=tuple(predictions),
        output="".join(predictions),
        finished=True,
        log_probabilities=np.full(len(predictions), -0.5, np.float32),
        attention=np.ones((len(predictions), len(source)), np.float32) / len(source),
        top_symbols=tuple(candidates),
        top_log_probabilities=np.full((len(predictions), len(candidates[0])), -0.5, np.float32),
        task=task,
    )
