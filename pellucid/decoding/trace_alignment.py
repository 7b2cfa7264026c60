"""Alignment of the source of a trace with its output, by the attention weights of its steps."""

import numpy as np

from pellucid.alignment.attention_path import monotone_path
from pellucid.alignment.types import DEFAULT_LIMITS, Alignment, ChunkLimits
from pellucid.argument_checks import argument_error, check_arguments
from pellucid.decoding.trace import Trace, checked_fields


@check_arguments
def align_trace(trace: Trace, limits: ChunkLimits = DEFAULT_LIMITS) -> Alignment | None:
    """Return the monotone path through the attention weights of a trace (`monotone_path`).

    Features and the end symbol are no part of the alignment. The weights of several heads are averaged.

    Args:
        trace: Trace of an output, or of a given target.
        limits: Sizes that a chunk may have.

    Returns:
        The alignment, with the score of the path; None without source symbols, or if no path is within the limits.

    Raises:
        ArgumentError: A field of the trace is wrong, or there are output symbols, but no attention weights.
    """
    trace = checked_fields(trace)
    weights = trace.attention[: len(trace.symbols), trace.num_features :]
    if weights.size and not trace.attention.any():
        raise argument_error("trace", "attention weights, which this output lacks", trace)
    path = monotone_path(np.clip(weights, 0.0, 1.0), limits)
    if path is None:
        return None
    return Alignment(trace.source[trace.num_features :], trace.symbols, path.chunks, path.score)
