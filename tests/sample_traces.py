"""Traces made by hand, for the tests of pictures."""

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
    """A trace with these weights and probabilities; its runners-up are always "x" and "y"."""
    chances = np.array(probabilities if probabilities is not None else [0.9] * len(target))
    rest = np.stack([chances, (1 - chances) * 0.75, (1 - chances) * 0.25], axis=1) if len(target) else np.ones((0, 3))
    with np.errstate(divide="ignore"):
        logarithms, candidates = np.log(chances), np.log(rest)
    return Trace(
        text="".join(source[features:]),
        source=tuple(source),
        features=features,
        unknown=unknown,
        target=tuple(target),
        output="".join(symbol for symbol in target if symbol != END),
        finished=END in target,
        log_probabilities=logarithms.astype(np.float32),
        attention=np.array(weights, dtype=np.float32).reshape(len(target), len(source)),
        top_symbols=tuple((symbol, "x", "y") for symbol in target),
        top_log_probabilities=candidates.astype(np.float32),
    )


def make_small_trace() -> Trace:
    """Three letters read, two written."""
    return make_trace(
        "abc", ["A", "B", END], [[0.8, 0.2, 0.0], [0.3, 0.6, 0.1], [0.0, 0.004, 0.996]], [0.93, 0.5, 0.999]
    )


def make_diagonal_trace(source: Sequence[str], target: Sequence[str]) -> Trace:
    """A trace that reads the source evenly from its start to its end, every other position getting nothing."""
    weights = np.zeros((len(target), len(source)))
    for t in range(len(target)):
        weights[t, t * len(source) // len(target)] = 1.0
    return make_trace(source, target, weights.tolist())


HOSTILE_SYMBOLS = ("</script><b>", "<s>", "\u202e", "\t", "\x1b[31m", " ", "$x$", "&amp;", "\ud800", '"')
"""Symbols that mean something to a browser, a terminal, mathematics in text, or an encoder."""
