"""Traces that no search gave alone: looked up, given to be scored, or with their shares in a list."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np

from pellucid.arguments import convert_argument
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import extended_ids
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.beam_search import Found
from pellucid.decoding.constraints import Lexicon
from pellucid.decoding.outputs import Decoded
from pellucid.decoding.preprocessing import Asked, Read
from pellucid.decoding.sampling import Drawing
from pellucid.decoding.streaming import pair_up
from pellucid.decoding.trace import END, Trace


def examples_of(sources: Iterable[str], features: Iterable[str] | None) -> list[Example] | Iterator[Example]:
    """Texts as examples without targets: a list, or an iterator of an iterator.

    `ArgumentError` for what is no text; `DataError` where there are not as many features as sources.
    """
    sources = convert_argument("sources", sources, Iterable[str])
    features = convert_argument("features", features, Iterable[str] | None)
    pairs = zip(sources, repeat("")) if features is None else pair_up(sources, features, "features", "features text")
    examples = (Example(source, "", tags) for source, tags in pairs)
    return examples if isinstance(sources, Iterator) else list(examples)


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
    read: Sequence[Read], lexicon: Lexicon | None, tokenizers: Tokenizers, vocabulary: Vocabulary, asked: Asked
) -> dict[int, list[Trace]]:
    """The lexicon's answers to the sources it has, at most `asked.best` each, of those that the constraints allow."""
    known: dict[int, list[Trace]] = {}
    for row, each in enumerate(read if lexicon else ()):
        texts = lexicon.targets.get(tokenizers.source.normalize(each.text), ()) if lexicon and each.source else ()
        symbols = [(text, tokenizers.target.split(text)) for text in texts]
        allowed = [
            pair
            for pair in symbols
            if asked.constraints.allow(row, extended_ids(pair[1], vocabulary, (each.source, each.features)))
        ]
        if allowed:
            known[row] = [known_trace(each, *pair, rank) for rank, pair in enumerate(allowed[: asked.best], 1)]
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
