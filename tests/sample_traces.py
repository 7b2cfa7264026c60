"""Traces with chosen attention weights and probabilities, made without a model."""

import json
from collections.abc import Sequence

import numpy as np

from pellucid.decoding.trace import END, Trace


def make_trace(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    probabilities: Sequence[float] | None = None,
    features: int = 0,
    unknown: tuple[int, ...] = (),
) -> Trace:
    """Return a trace with these attention weights and probabilities; the other candidates are always "x" and "y"."""
    top_probabilities = np.array(probabilities if probabilities is not None else [0.9] * len(target))
    rest = 1 - top_probabilities
    candidate_probabilities = (
        np.stack([top_probabilities, rest * 0.75, rest * 0.25], axis=1) if len(target) else np.ones((0, 3))
    )
    with np.errstate(divide="ignore"):
        log_probabilities, candidates = np.log(top_probabilities), np.log(candidate_probabilities)
    return Trace(
        text="".join(source[features:]),
        source=tuple(source),
        num_features=features,
        unknown=unknown,
        target=tuple(target),
        output="".join(symbol for symbol in target if symbol != END),
        finished=END in target,
        log_probabilities=log_probabilities.astype(np.float32),
        attention=np.array(weights, dtype=np.float32).reshape(len(target), len(source)),
        top_symbols=tuple((symbol, "x", "y") for symbol in target),
        top_log_probabilities=candidates.astype(np.float32),
    )


def write_former_version(text: str) -> str:
    """Return the JSON of a trace in the former version of the schema."""
    names = {
        "num_features": "features",
        "summed_features": "added",
        "search_tree": "lattice",
        "nbest_probability": "probability",
    }
    values = {names.get(name, name): value for name, value in json.loads(text).items()}
    return json.dumps({**values, "version": 3})


def make_small_trace() -> Trace:
    """Return a trace with three source symbols and two target symbols."""
    return make_trace(
        "abc", ["A", "B", END], [[0.8, 0.2, 0.0], [0.3, 0.6, 0.1], [0.0, 0.004, 0.996]], [0.93, 0.5, 0.999]
    )


def make_diagonal_trace(source: Sequence[str], target: Sequence[str]) -> Trace:
    """Return a trace whose steps attend to one position each, evenly from the first to the last one."""
    weights = np.zeros((len(target), len(source)))
    for step in range(len(target)):
        weights[step, step * len(source) // len(target)] = 1.0
    return make_trace(source, target, weights.tolist())


HOSTILE_SYMBOLS = ("</script><b>", "<s>", "\u202e", "\t", "\x1b[31m", " ", "$x$", "&amp;", "\ud800", '"')
"""Symbols with a special meaning in HTML, terminals, mathematical text, XML or UTF-8."""
