"""Sources with their outputs, as the page lists them: what was wanted, and where the output differs from it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.data.symbols import Segmenter
from pellucid.evaluation.answers import score
from pellucid.evaluation.confusion import aligned
from pellucid.inspection.distributions import distributions, entropy
from pellucid.search.predictor import Predictor
from pellucid.search.trace import Trace
from pellucid.viewer.contents import Edit, Item
from pellucid.viewer.traces import trace_told
from pellucid.viewer.truth import origins

Kind = Literal["same", "substitution", "insertion", "deletion"]


class Known(NamedTuple):
    """What a file says of a source beside itself."""

    references: tuple[str, ...] = ()
    line: int | None = None
    spelled: bool = False
    """Whether the source is the reference's digits in words."""


def items(transducer: Predictor, known: Sequence[Known], outputs: Sequence[Sequence[Trace]]) -> list[Item]:
    """An item of each source's outputs, best first."""
    bits = iter(entropies(transducer, [trace for traces in outputs for trace in traces]))
    listed = []
    for own, traces in zip(known, outputs, strict=True):
        item = Item(
            text=traces[0].text,
            features=list(traces[0].source[: traces[0].features]),
            traces=[trace_told(trace, next(bits)) for trace in traces],
            references=list(own.references),
            line=own.line,
        )
        listed.append(_judged(item, traces[0], own, transducer) if own.references else item)
    return listed


def entropies(transducer: Predictor, traces: Sequence[Trace]) -> list[Float[np.ndarray, " T"]]:
    """The entropy in bits of each step of each trace; 0 where there was no choice."""
    chosen = [at for at, trace in enumerate(traces) if trace.target and trace.origin != "lexicon"]
    bits: list[Float[np.ndarray, " T"]] = [np.zeros(len(trace.target), np.float32) for trace in traces]
    for at, likely in zip(chosen, distributions(transducer, [traces[at] for at in chosen]), strict=True):
        bits[at] = entropy(likely)
    return bits


def edits(output: Sequence[str], reference: Sequence[str]) -> list[Edit]:
    """The steps that turn a reference into an output."""
    told, at = list[Edit](), 0
    for wanted, written in aligned(output, reference):
        if written is None:
            told.append(Edit(kind="deletion", written=None, wanted=wanted))
            continue
        kind: Kind = "insertion" if wanted is None else "same" if wanted == written else "substitution"
        told.append(Edit(kind=kind, written=at, wanted=wanted))
        at += 1
    return told


def places(trace: Trace, reference: Sequence[str], segmenter: Segmenter) -> list[Edit]:
    """The same where each symbol answers for its own place; one that is not scored counts as right."""
    told = list[Edit]()
    for at, (wanted, written) in enumerate(zip(reference, trace.target, strict=False)):
        right = written == wanted or wanted == segmenter.unscored
        told.append(Edit(kind="same" if right else "substitution", written=at, wanted=written if right else wanted))
    return told


def _judged(item: Item, best: Trace, own: Known, transducer: Predictor) -> Item:
    """An item with what its first output differs in, and where its symbols come from, if that is known."""
    (scored,) = score([best], [tuple(item.references)], transducer.segmenters)
    if scored.positional:
        steps = places(best, transducer.segmenters.target.split(item.references[0]), transducer.segmenters.target)
    else:
        steps = edits(scored.output, scored.reference)
    gold = origins(best, scored.output, scored.reference) if own.spelled else None
    return msgspec.structs.replace(item, edits=steps, errors=scored.errors, exact=scored.exact, gold=gold)
