"""The best outputs of every source, and how often a right one is among the first k."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.data.batches import encode_sources
from pellucid.data.examples import Example
from pellucid.errors import InputError
from pellucid.evaluation.intervals import Interval, wilson
from pellucid.evaluation.metrics import Scored
from pellucid.kernels.choice import for_answers
from pellucid.search.beam import beam
from pellucid.search.decoded import Decoded, Limits
from pellucid.search.trace import Trace
from pellucid.search.transducer import Transducer, evaluating


class Oracle(NamedTuple):
    """The share of examples, in per cent, of which one of the first k outputs is right."""

    k: int
    accuracy: float
    ci95: Interval


def n_best(transducer: Transducer, examples: Sequence[Example], count: int) -> list[list[Trace]]:
    """At most `count` outputs of each source, likeliest first; an empty source has one, which is empty.

    The first is that of `Transducer.trace`. `InputError` where the beam is narrower than `count`.
    """
    search = transducer.config.search
    if count > search.beam_width:
        raise InputError(f"{count} outputs of each source need a beam of {count} at least, got {search.beam_width}")
    if count == 1:
        return [[trace] for trace in transducer.trace(examples)]
    read = [transducer._read(example, number) for number, example in enumerate(examples, start=1)]
    sources = encode_sources(list(examples), transducer.segmenters, transducer.vocabularies)
    order = [row for row in np.argsort(sources.lengths, kind="stable").tolist() if read[row].source]
    limits = Limits(search.minimum_length, transducer.maximum_length)
    device, unknown = next(transducer.network.parameters()).device, transducer._unknown(sources)
    found: dict[int, list[Decoded]] = {}
    with evaluating(transducer.network), for_answers(len(order) * search.beam_width, device):
        for start in range(0, len(order), search.batch_size):
            rows = order[start : start + search.batch_size]
            source, lengths = sources.padded(np.array(rows))
            given = (transducer.network, source.to(device), lengths.to(device), limits, search.beam_width, count)
            found.update(zip(rows, beam(*given), strict=True))
    return [
        [transducer._trace(each, decoded, tuple(unknown.get(row, ()))) for decoded in found.get(row, [None])]
        for row, each in enumerate(read)
    ]


def oracle(candidates: Sequence[Sequence[Scored]], count: int) -> list[Oracle]:
    """Oracle accuracy for k from 1 to `count`: an example is right where any of its first k outputs is a reference.

    Transliteration reports it as 1-, 2- and 3-best accuracy. Interval: Wilson's.
    """
    ranks = _ranks(candidates)
    right = [sum(rank is not None and rank <= k for rank in ranks) for k in range(1, count + 1)]
    total = max(1, len(ranks))
    return [Oracle(k, 100 * hits / total, wilson(hits, total).percent) for k, hits in enumerate(right, start=1)]


def reciprocal_rank(candidates: Sequence[Sequence[Scored]]) -> float:
    """Mean over examples of 1 / (place of the first right output), 0 where none is right; a share of 1.

    Source: E. M. Voorhees (1999), "The TREC-8 question answering track report"; MRR of the NEWS transliteration tasks.
    """
    ranks = _ranks(candidates)
    return sum(1 / rank for rank in ranks if rank is not None) / max(1, len(ranks))


def _ranks(candidates: Sequence[Sequence[Scored]]) -> list[int | None]:
    """The place, from 1, of each example's first right output; None where there is none."""
    return [next((place for place, each in enumerate(own, start=1) if each.exact), None) for own in candidates]
