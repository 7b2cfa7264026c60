"""Traces that do not come directly from a search: lexicon entries, scored targets, samples, and cut n-best lists."""

from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from pellucid.data.extended_vocabulary import EncoderInput, extended_ids
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.preprocessing import ChunkConfig, TokenizedSource
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import END, Trace


def outputs_to_top_mass(traces: Sequence[Trace], top_mass: float) -> list[Trace]:
    """Return the shortest beginning of an n-best list whose probabilities sum to at least `top_mass`.

    Args:
        traces: Outputs of one source, at least one, the best first.
        top_mass: Probability mass, from 0 to 1. The first output is always returned; 1 returns all.

    Returns:
        Copies of the traces. Their `nbest_probability` is exp(s) normalized over all of `traces`, where s is the score
        that ranked them: `search_score` if they have it, else the log-probability.
    """
    scores = np.array([trace.score if trace.search_score is None else trace.search_score for trace in traces])
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    before = probabilities.cumsum() - probabilities
    rows = zip(traces, probabilities.tolist(), before.tolist(), strict=True)
    return [
        replace(trace, nbest_probability=probability)
        for rank, (trace, probability, mass_before) in enumerate(rows)
        if not rank or mass_before < top_mass or top_mass == 1  # a sum of fractions may round to 1 before the end
    ]


def lexicon_traces(
    sources: Sequence[TokenizedSource],
    lexicon: Lexicon | None,
    tokenizers: Tokenizers,
    vocabulary: Vocabulary,
    config: ChunkConfig,
) -> dict[int, list[Trace]]:
    """Return the lexicon entries of sources as traces.

    Args:
        sources: Tokenized sources.
        lexicon: Lexicon; None for no entries.
        tokenizers: Tokenizers of the model.
        vocabulary: Target vocabulary.
        config: Maximum number of entries per source, and the constraints.

    Returns:
        The entries that satisfy the constraints, in the order of the lexicon, by the row of their source. Empty sources
        and sources without such an entry are left out.
    """
    entries: dict[int, list[Trace]] = {}
    for row, source in enumerate(sources if lexicon else ()):
        texts = lexicon.targets.get(tokenizers.source.normalize(source.text), ()) if lexicon and source.source else ()
        targets = ((text, tokenizers.target.split(text)) for text in texts)
        encoder_input = EncoderInput(source.source, source.num_features)
        allowed = (
            (text, symbols)
            for text, symbols in targets
            if config.constraints.allows(row, extended_ids(symbols, vocabulary, encoder_input))
        )
        # The targets of a source may be many, and so may its occurrences: no more of them are split than are needed.
        traces = [
            lexicon_trace(source, text, symbols, rank)
            for rank, (text, symbols) in enumerate(islice(allowed, config.max_lexicon_entries), 1)
        ]
        if traces:
            entries[row] = traces
    return entries


def lexicon_trace(source: TokenizedSource, text: str, symbols: Sequence[str], rank: int) -> Trace:
    """Return the trace of a lexicon entry: log-probability 0 at every step, attention weights 0, origin "lexicon".

    Args:
        source: Tokenized source.
        text: Target text.
        symbols: Target symbols, without `END`.
        rank: Rank among the entries of the source, from 1.
    """
    target = (*symbols, END)
    return Trace(
        text=source.text,
        source=source.source,
        num_features=source.num_features,
        unknown=source.unknown,
        target=target,
        output=text,
        finished=True,
        log_probabilities=np.zeros(len(target), np.float32),
        attention=np.zeros((len(target), len(source.source)), np.float32),
        top_symbols=tuple((symbol,) for symbol in target),
        top_log_probabilities=np.zeros((len(target), 1), np.float32),
        origin="lexicon",
        rank=rank,
        summed_features=source.summed_features,
    )


def _draw_uniformly(traces: Sequence[Trace], sampling: SamplingConfig, number: int) -> list[Trace]:
    """Sample traces uniformly, with the probability of each draw."""
    streams = (np.random.default_rng([sampling.seed, number, index]) for index in range(sampling.samples))
    drawn = [traces[int(stream.integers(len(traces)))] for stream in streams]
    return [replace(trace, nbest_probability=1 / len(traces)) for trace in drawn]


def scored_trace(
    trace: Trace, text: str, symbols: Sequence[str], vocabulary: Container[str], end: Sequence[str] = ()
) -> Trace:
    """Return the trace of a scored target: a copy with the target's own symbols in place of unknown ones.

    Its origin is "given", and `unknown_target` lists the positions of the symbols outside `vocabulary`.

    Args:
        trace: Trace of the target's ids, in which unknown symbols are UNK.
        text: Target text.
        symbols: Target symbols, without `END`.
        vocabulary: Symbols that the model can write.
        end: Symbols of the trace after those of the target: `END` in a sequence, none in labels.
    """
    unknown = tuple(position for position, symbol in enumerate(symbols) if symbol not in vocabulary)
    return replace(trace, target=(*symbols, *end), output=text, origin="given", unknown_target=unknown)


def sampled_traces(traces: Sequence[Trace], sampling: SamplingConfig, number: int) -> list[Trace]:
    """Return `sampling.samples` traces of one source, whose `rank` is the number of the sample, from 1.

    Args:
        traces: One output per sample, in the order of the samples; or the lexicon entries of the source, from which the
            samples are drawn uniformly with replacement; or the one output of an empty source, which is repeated.
        sampling: Number of samples and seed.
        number: Number of the source, from 0, which selects the random stream.
    """
    if traces[0].origin == "lexicon":
        traces = _draw_uniformly(traces, sampling, number)
    drawn = list(traces) if traces[0].source else [*traces] * sampling.samples
    return [
        replace(trace, rank=rank, origin="sample" if trace.origin == "search" else trace.origin)
        for rank, trace in enumerate(drawn, 1)
    ]
