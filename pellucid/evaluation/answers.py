"""Traces beside the answers that were wanted: what every metric is computed from."""

from collections.abc import Sequence

from pellucid.data.examples import Example
from pellucid.data.symbols import Segmenters
from pellucid.evaluation.metrics import Scored
from pellucid.search.trace import Trace


def merge_references(examples: Sequence[Example]) -> list[tuple[Example, tuple[str, ...]]]:
    """Examples of one source (and features) as one, with every distinct target any of them has, in the file's order."""
    targets: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Example] = {}
    for example in examples:
        key = (example.source, example.features)
        first.setdefault(key, example)
        known = targets.setdefault(key, [])
        if example.target not in known:
            known.append(example.target)
    return [(first[key], tuple(targets[key])) for key in first]


def score(traces: Sequence[Trace], references: Sequence[Sequence[str]], segmenters: Segmenters) -> list[Scored]:
    """Each trace against its references (texts), as symbols; of tags those that are scored (by the first reference)."""
    return [
        _scored(trace, tuple(tuple(segmenters.target.split(text)) for text in texts), segmenters.target.unscored)
        for trace, texts in zip(traces, references, strict=True)
    ]


def _scored(trace: Trace, references: tuple[tuple[str, ...], ...], unscored: str) -> Scored:
    """One trace and its references as symbols, less those at unscored positions."""
    output, length = trace.symbols, len(trace.source) - trace.features
    sure = tuple(trace.log_probabilities.tolist()) if trace.per_position else ()
    if unscored and references:
        kept = [at for at, symbol in enumerate(references[0]) if symbol != unscored]
        output, sure = (tuple(each[at] for at in kept if at < len(each)) for each in (output, sure))
        references = tuple(tuple(each[at] for at in kept if at < len(each)) for each in references)
    return Scored(output, references, length, not trace.autoregressive, sure)
