"""Traces that no search gave alone: looked up, given to be scored, or with their shares in a list."""

from collections.abc import Container, Sequence
from dataclasses import replace

import numpy as np

from pellucid.data.copies import ids_with_copies
from pellucid.data.examples import Example
from pellucid.data.symbols import Segmenters
from pellucid.data.vocabulary import Vocabulary
from pellucid.errors import DataError
from pellucid.search.decoded import Decoded
from pellucid.search.layers import Found
from pellucid.search.lexicon import Lexicon
from pellucid.search.reading import Asked, Read
from pellucid.search.sampling import Drawing
from pellucid.search.trace import END, Trace


def examples_of(sources: Sequence[str], features: Sequence[str] | None) -> list[Example]:
    """Texts as examples without targets; `DataError` where there are not as many features as sources."""
    if isinstance(sources, str):
        raise DataError("expected a list of sources, got one text: predict([text])")
    if features is not None and len(features) != len(sources):
        raise DataError(f"expected one features text for each of {len(sources)} sources, got {len(features)}")
    tags = features if features is not None else [""] * len(sources)
    return [Example(source, "", tag) for source, tag in zip(sources, tags, strict=True)]


def found_of(decoded: Decoded) -> Found:
    """An output that is ranked by its own ln p."""
    return Found(decoded, float(decoded.log_probabilities.sum(dtype=np.float64)))


def shared(traces: Sequence[Trace], until: float) -> list[Trace]:
    """Outputs with their shares of p of all of them, as far as these shares together reach `until`; one at least."""
    scores = np.array([trace.score for trace in traces])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    before = shares.cumsum() - shares
    listed = zip(traces, shares.tolist(), before.tolist(), strict=True)
    return [
        replace(trace, probability=share) for at, (trace, share, sum_) in enumerate(listed) if not at or sum_ < until
    ]


def looked_up(
    read: Sequence[Read], lexicon: Lexicon | None, segmenters: Segmenters, vocabulary: Vocabulary, asked: Asked
) -> list[list[Trace]]:
    """The lexicon's answers to each source, at most `asked.best`, of those that the constraints allow."""
    known: list[list[Trace]] = []
    for row, each in enumerate(read):
        texts = lexicon.targets.get(segmenters.source.normalised(each.text), ()) if lexicon and each.source else ()
        symbols = [(text, segmenters.target.split(text)) for text in texts]
        allowed = [
            pair
            for pair in symbols
            if asked.constraints.allow(row, ids_with_copies(pair[1], vocabulary, (each.source, each.features)))
        ]
        known.append([known_trace(each, *pair, rank) for rank, pair in enumerate(allowed[: asked.best], 1)])
    return known


def known_trace(read: Read, text: str, symbols: Sequence[str], rank: int) -> Trace:
    """What the lexicon answers: ln p is 0, for there was no choice, and so is attention, for nothing was looked at."""
    target = (*symbols, END)
    return Trace(
        text=read.text,
        source=read.source,
        features=read.features,
        unknown=(),
        target=target,
        output=text,
        finished=True,
        log_probabilities=np.zeros(len(target), np.float32),
        attention=np.zeros((len(target), len(read.source)), np.float32),
        top_symbols=tuple((symbol,) for symbol in target),
        top_log_probabilities=np.zeros((len(target), 1), np.float32),
        origin="lexicon",
        rank=rank,
        added=read.added,
    )


def _drawn_from(traces: Sequence[Trace], drawing: Drawing, number: int) -> list[Trace]:
    """As many as are asked for, with the probability that each was drawn with."""
    streams = (np.random.default_rng([drawing.seed, number, at]) for at in range(drawing.samples))
    picked = [traces[int(stream.integers(len(traces)))] for stream in streams]
    return [replace(each, probability=1 / len(traces)) for each in picked]


def given_trace(trace: Trace, text: str, symbols: Sequence[str], known: Container[str]) -> Trace:
    """What was scored, in its own spelling also where the model does not know a symbol."""
    unknown = tuple(at for at, symbol in enumerate(symbols) if symbol not in known)
    return replace(trace, target=(*symbols, END), output=text, origin="given", unknown_target=unknown)


def nothing() -> Decoded:
    """The decoding of an empty source: no step was taken."""
    return Decoded(
        ids=np.zeros(0, dtype=np.int64),
        log_probabilities=np.zeros(0, dtype=np.float32),
        weights=np.zeros((0, 0), dtype=np.float32),
        top_ids=np.zeros((0, 0), dtype=np.int64),
        top_log_probabilities=np.zeros((0, 0), dtype=np.float32),
    )


def drawn_traces(traces: Sequence[Trace], drawing: Drawing, number: int) -> list[Trace]:
    """Outputs of the source of this number as samples, numbered from 1.

    Those of a source without symbols are all the one it has. A lexicon's are drawn from its answers, all alike likely.
    """
    if traces[0].origin == "lexicon":
        traces = _drawn_from(traces, drawing, number)
    drawn = list(traces) if traces[0].source else [*traces] * drawing.samples
    return [
        replace(each, rank=rank, origin="sample" if each.origin == "search" else each.origin)
        for rank, each in enumerate(drawn, 1)
    ]
