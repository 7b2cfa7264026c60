"""Build traces that do not come directly from a search: lexicon entries, scored targets, samples and n-best lists."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from io import TextIOBase
from itertools import repeat

import numpy as np

from pellucid.argument_checks import convert_argument
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import extended_ids
from pellucid.data.lines import strip_newline
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.beam_search import Hypothesis
from pellucid.decoding.constraints import Lexicon
from pellucid.decoding.outputs import DecodedOutput
from pellucid.decoding.preprocessing import SearchRequest, TokenizedSource
from pellucid.decoding.sampling import SamplingConfig
from pellucid.decoding.streaming import pair_up
from pellucid.decoding.trace import END, Trace


def make_examples(sources: Iterable[str], features: Iterable[str] | None) -> list[Example] | Iterator[Example]:
    """Return one example per source, with an empty target: a list, or an iterator if `sources` is an iterator.

    Args:
        sources: Source texts. The lines of an open text file are read without their ends.
        features: One features text per source; None for a model without features.

    Raises:
        ArgumentError: An argument is not an iterable of texts.
        DataError: The numbers of sources and features differ. An iterator raises either error where it reaches it.
    """
    sources = convert_argument("sources", _without_line_ends(sources), Iterable[str])
    features = convert_argument("features", _without_line_ends(features), Iterable[str] | None)
    pairs = zip(sources, repeat("")) if features is None else pair_up(sources, features, "features", "features text")
    examples = (Example(source, "", tags) for source, tags in pairs)
    return examples if isinstance(sources, Iterator) else list(examples)


def _without_line_ends(texts: Iterable[str] | None) -> Iterable[str] | None:
    """Return the lines of an open text file without their ends; any other argument as it is, checked or not."""
    return map(strip_newline, texts) if texts is not None and issubclass(type(texts), TextIOBase) else texts


def hypothesis_of(output: DecodedOutput) -> Hypothesis:
    """Return an output as a hypothesis whose score is its log-probability, the sum over its steps.

    Args:
        output: Decoded output.
    """
    return Hypothesis(output, float(output.log_probabilities.sum(dtype=np.float64)))


def outputs_to_top_mass(traces: Sequence[Trace], top_mass: float) -> list[Trace]:
    """Return the shortest beginning of an n-best list whose probabilities sum to at least `top_mass`.

    Args:
        traces: Outputs of one source, at least one, the best first.
        top_mass: Probability mass, from 0 to 1. The first output is always returned; 1 returns all.

    Returns:
        Copies of the traces. Their field `probability` is exp(`score`), normalized over all of `traces`.
    """
    scores = np.array([trace.score for trace in traces])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    before = shares.cumsum() - shares
    rows = zip(traces, shares.tolist(), before.tolist(), strict=True)
    return [
        replace(trace, probability=share)
        for rank, (trace, share, mass_before) in enumerate(rows)
        if not rank or mass_before < top_mass or top_mass == 1  # a sum of fractions may round to 1 before the end
    ]


def lexicon_answers(
    sources: Sequence[TokenizedSource],
    lexicon: Lexicon | None,
    tokenizers: Tokenizers,
    vocabulary: Vocabulary,
    request: SearchRequest,
) -> dict[int, list[Trace]]:
    """Return the lexicon entries of sources as traces.

    Args:
        sources: Tokenized sources.
        lexicon: Lexicon; None for no entries.
        tokenizers: Tokenizers of the model.
        vocabulary: Target vocabulary.
        request: Maximum number of entries per source (`nbest`), and the constraints.

    Returns:
        The entries that satisfy the constraints, in the order of the lexicon, by the row of their source. Empty sources
        and sources without such an entry are left out.
    """
    answers: dict[int, list[Trace]] = {}
    for row, source in enumerate(sources if lexicon else ()):
        texts = lexicon.targets.get(tokenizers.source.normalize(source.text), ()) if lexicon and source.source else ()
        targets = [(text, tokenizers.target.split(text)) for text in texts]
        allowed = [
            pair
            for pair in targets
            if request.constraints.allows(row, extended_ids(pair[1], vocabulary, (source.source, source.features)))
        ]
        if allowed:
            answers[row] = [lexicon_trace(source, *pair, rank) for rank, pair in enumerate(allowed[: request.nbest], 1)]
    return answers


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
        features=source.features,
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
        added=source.added,
    )


def _draw_uniformly(traces: Sequence[Trace], sampling: SamplingConfig, number: int) -> list[Trace]:
    """Sample traces uniformly, with the probability of each draw."""
    streams = (np.random.default_rng([sampling.seed, number, index]) for index in range(sampling.samples))
    drawn = [traces[int(stream.integers(len(traces)))] for stream in streams]
    return [replace(trace, probability=1 / len(traces)) for trace in drawn]


def scored_trace(trace: Trace, text: str, symbols: Sequence[str], vocabulary: Container[str]) -> Trace:
    """Return the trace of a scored target: a copy with the target's own symbols in place of unknown ones.

    Its origin is "given", and `unknown_target` lists the positions of the symbols outside `vocabulary`.

    Args:
        trace: Trace of the target's ids, in which unknown symbols are UNK.
        text: Target text.
        symbols: Target symbols, without `END`.
        vocabulary: Symbols that the model can write.
    """
    unknown = tuple(position for position, symbol in enumerate(symbols) if symbol not in vocabulary)
    return replace(trace, target=(*symbols, END), output=text, origin="given", unknown_target=unknown)


def empty_output() -> DecodedOutput:
    """Return the output of an empty source, for which no decoder runs: no steps, and no source positions."""
    return DecodedOutput(
        ids=np.zeros(0, dtype=np.int64),
        log_probabilities=np.zeros(0, dtype=np.float32),
        weights=np.zeros((0, 0), dtype=np.float32),
        top_ids=np.zeros((0, 0), dtype=np.int64),
        top_log_probabilities=np.zeros((0, 0), dtype=np.float32),
    )


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
