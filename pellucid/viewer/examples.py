"""Sources with their outputs, and how outputs differ from references."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.data.examples import Example
from pellucid.data.synthetic import digit_spans, spell
from pellucid.data.tokenizers import Segmenter
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.evaluation.assessment import score
from pellucid.evaluation.confusion import aligned
from pellucid.inspection.attribution import Evidence
from pellucid.inspection.distributions import distributions, entropy
from pellucid.viewer import schema as contents
from pellucid.viewer.schema import EditOperation, PageExample, PageTrace

UNKNOWN_ORIGIN = (0, 0)
"""Of a symbol whose origin is not known, as that of the end."""


def are_spelled_digits(examples: Sequence[Example]) -> bool:
    """Whether every source of a file is its target, spelled out in words."""
    digits = [each.target for each in examples]
    return bool(digits) and all(
        target.isascii() and target.isdigit() and each.source == spell(target)
        for each, target in zip(examples, digits, strict=True)
    )


def gold_alignment(trace: Trace, output: Sequence[str], reference: Sequence[str]) -> list[tuple[int, int]] | None:
    """The positions [first, stop) of each step of an output, aligned with its reference by the fewest edits.

    A wrong symbol comes from where the one that was wanted in its place does. None where the source is no such words.
    """
    spans = digit_spans(trace.source[trace.features :], "".join(reference))
    if spans is None or len(spans) != len(reference):
        return None
    found = [UNKNOWN_ORIGIN] * len(trace.target)
    step = place = 0
    for wanted, written in aligned(output, reference):
        if wanted is not None and written is not None and step < len(found):
            first, stop = spans[place]
            found[step] = (first + trace.features, stop + trace.features)
        step, place = step + (written is not None), place + (wanted is not None)
    return found


MAX_UNKNOWN_PROBABILITY = 1e-4
"""Probability of the symbols that are not known, up to which an entropy is taken for the whole."""


def page_trace(trace: Trace, bits: Float[np.ndarray, " T"], least: bool = False) -> PageTrace:
    """A trace, with the entropy of each of its steps, or the `least` that they have; without the weights of heads."""
    record = replace(trace, heads=None).to_record(compact=True)
    return PageTrace(**msgspec.structs.asdict(record), entropy=encode_array(bits), entropy_is_lower_bound=least)


def entropy_lower_bound(trace: Trace) -> Float[np.ndarray, " T"]:
    """The entropy in bits that a step has at least, from its likeliest symbols alone: all others count as one.

    For a trace whose model is not at hand.
    """
    shares = _top_probabilities(trace)
    return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1), np.float32)


def page_trace_without_model(trace: Trace) -> PageTrace:
    """A trace whose model is not at hand: its entropies are whole where its likeliest symbols leave nothing out."""
    return page_trace(
        trace, entropy_lower_bound(trace), bool((_top_probabilities(trace)[:, -1] > MAX_UNKNOWN_PROBABILITY).any())
    )


def _top_probabilities(trace: Trace) -> Float[np.ndarray, "T k"]:
    """The probabilities of each step's likeliest symbols, and last that of all others together."""
    likely = np.exp(trace.top_log_probabilities.astype(np.float64))
    rest = np.clip(1 - likely.sum(axis=1, keepdims=True), 0, 1)
    return np.concatenate([likely, rest], axis=1)


def attribution_arrays(evidence: Evidence) -> contents.AttributionArrays:
    """What else says which positions mattered."""
    return contents.AttributionArrays(
        occlusion=encode_array(evidence.erasure),
        input_x_gradient=encode_array(evidence.gradient),
        occlusion_correlation=evidence.erasure_agreement,
        gradient_correlation=evidence.gradient_agreement,
    )


EditKind = Literal["same", "substitution", "insertion", "deletion"]


class SourceMetadata(NamedTuple):
    """What a file says of a source beside itself."""

    references: tuple[str, ...] = ()
    line: int | None = None
    spelled: bool = False
    """Whether the source is the reference's digits in words."""


def page_examples(
    transducer: Predictor, known: Sequence[SourceMetadata], outputs: Sequence[Sequence[Trace]]
) -> list[PageExample]:
    """An item of each source's outputs, best first."""
    bits = iter(step_entropies(transducer, [trace for traces in outputs for trace in traces]))
    listed = []
    for own, traces in zip(known, outputs, strict=True):
        item = PageExample(
            text=traces[0].text,
            features=list(traces[0].source[: traces[0].features]),
            traces=[page_trace(trace, next(bits)) for trace in traces],
            references=list(own.references),
            line=own.line,
        )
        listed.append(_with_errors(item, traces[0], own, transducer) if own.references else item)
    return listed


def step_entropies(transducer: Predictor, traces: Sequence[Trace]) -> list[Float[np.ndarray, " T"]]:
    """The entropy in bits of each step of each trace; 0 where there was no choice."""
    chosen = [at for at, trace in enumerate(traces) if trace.target and trace.origin != "lexicon"]
    bits: list[Float[np.ndarray, " T"]] = [np.zeros(len(trace.target), np.float32) for trace in traces]
    for at, likely in zip(chosen, distributions(transducer, [traces[at] for at in chosen]), strict=True):
        bits[at] = entropy(likely)
    return bits


def edit_operations(output: Sequence[str], reference: Sequence[str]) -> list[EditOperation]:
    """The steps that turn a reference into an output."""
    told, at = list[EditOperation](), 0
    for wanted, written in aligned(output, reference):
        if written is None:
            told.append(EditOperation(kind="deletion", step=None, expected=wanted))
            continue
        kind: EditKind = "insertion" if wanted is None else "same" if wanted == written else "substitution"
        told.append(EditOperation(kind=kind, step=at, expected=wanted))
        at += 1
    return told


def positional_edits(trace: Trace, reference: Sequence[str], segmenter: Segmenter) -> list[EditOperation]:
    """The same where each symbol answers for its own place; one that is not scored counts as right."""
    told = list[EditOperation]()
    for at, (wanted, written) in enumerate(zip(reference, trace.target, strict=False)):
        right = written == wanted or wanted == segmenter.unscored
        told.append(
            EditOperation(kind="same" if right else "substitution", step=at, expected=written if right else wanted)
        )
    return told


def _with_errors(item: PageExample, best: Trace, own: SourceMetadata, transducer: Predictor) -> PageExample:
    """An item with what its first output differs in, and where its symbols come from, if that is known."""
    (scored,) = score([best], [tuple(item.references)], transducer.segmenters)
    if scored.positional:
        steps = positional_edits(
            best, transducer.segmenters.target.split(item.references[0]), transducer.segmenters.target
        )
    else:
        steps = edit_operations(scored.output, scored.reference)
    gold = gold_alignment(best, scored.output, scored.reference) if own.spelled else None
    return msgspec.structs.replace(item, edits=steps, errors=scored.errors, exact=scored.exact, gold_alignment=gold)
