"""Sources with their outputs, and how outputs differ from references."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.data.examples import Example
from pellucid.data.synthetic import digit_spans, spell_digits
from pellucid.data.tokenizers import Tokenizer
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.confusion import align_symbols
from pellucid.inspection.attribution import Evidence
from pellucid.inspection.distributions import distributions, entropy
from pellucid.viewer import schema as contents
from pellucid.viewer.schema import Edit, Item, PageTrace

NOWHERE = (0, 0)
"""Of a symbol whose origin is not known, as that of the end."""


def spelled(examples: Sequence[Example]) -> bool:
    """Whether every source of a file is its target, spelled out in words."""
    digits = [each.target for each in examples]
    return bool(digits) and all(
        target.isascii() and target.isdigit() and each.source == spell_digits(target)
        for each, target in zip(examples, digits, strict=True)
    )


def origins(trace: Trace, output: Sequence[str], reference: Sequence[str]) -> list[tuple[int, int]] | None:
    """The positions [first, stop) of each step of an output, aligned with its reference by the fewest edits.

    A wrong symbol comes from where the one that was wanted in its place does. None where the source is no such words.
    """
    spans = digit_spans(trace.source[trace.features :], "".join(reference))
    if spans is None or len(spans) != len(reference):
        return None
    found = [NOWHERE] * len(trace.target)
    step = place = 0
    for wanted, written in align_symbols(output, reference):
        if wanted is not None and written is not None and step < len(found):
            first, stop = spans[place]
            found[step] = (first + trace.features, stop + trace.features)
        step, place = step + (written is not None), place + (wanted is not None)
    return found


REST = 1e-4
"""Probability of the symbols that are not known, up to which an entropy is taken for the whole."""


def trace_told(trace: Trace, bits: Float[np.ndarray, " T"], least: bool = False) -> PageTrace:
    """A trace, with the entropy of each of its steps, or the `least` that they have; without the weights of heads."""
    record = replace(trace, heads=None).to_record(compact=True)
    return PageTrace(**msgspec.structs.asdict(record), entropy=encode_array(bits), entropy_least=least)


def least_entropy(trace: Trace) -> Float[np.ndarray, " T"]:
    """The entropy in bits that a step has at least, from its likeliest symbols alone: all others count as one.

    For a trace whose model is not at hand.
    """
    shares = _shares(trace)
    return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1), np.float32)


def alone_told(trace: Trace) -> PageTrace:
    """A trace whose model is not at hand: its entropies are whole where its likeliest symbols leave nothing out."""
    return trace_told(trace, least_entropy(trace), bool((_shares(trace)[:, -1] > REST).any()))


def _shares(trace: Trace) -> Float[np.ndarray, "T k"]:
    """The probabilities of each step's likeliest symbols, and last that of all others together."""
    likely = np.exp(trace.top_log_probabilities.astype(np.float64))
    rest = np.clip(1 - likely.sum(axis=1, keepdims=True), 0, 1)
    return np.concatenate([likely, rest], axis=1)


def evidence_told(evidence: Evidence) -> contents.Evidence:
    """What else says which positions mattered."""
    return contents.Evidence(
        erasure=encode_array(evidence.erasure),
        gradient=encode_array(evidence.gradient),
        erasure_agreement=evidence.erasure_agreement,
        gradient_agreement=evidence.gradient_agreement,
    )


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
    for wanted, written in align_symbols(output, reference):
        if written is None:
            told.append(Edit(kind="deletion", written=None, wanted=wanted))
            continue
        kind: Kind = "insertion" if wanted is None else "same" if wanted == written else "substitution"
        told.append(Edit(kind=kind, written=at, wanted=wanted))
        at += 1
    return told


def places(trace: Trace, reference: Sequence[str], tokenizer: Tokenizer) -> list[Edit]:
    """The same where each symbol answers for its own place; one that is not scored counts as right."""
    told = list[Edit]()
    for at, (wanted, written) in enumerate(zip(reference, trace.target, strict=False)):
        right = written == wanted or wanted == tokenizer.ignored_tag
        told.append(Edit(kind="same" if right else "substitution", written=at, wanted=written if right else wanted))
    return told


def _judged(item: Item, best: Trace, own: Known, transducer: Predictor) -> Item:
    """An item with what its first output differs in, and where its symbols come from, if that is known."""
    (scored,) = score_traces([best], [tuple(item.references)], transducer.tokenizers)
    if scored.positional:
        steps = places(best, transducer.tokenizers.target.split(item.references[0]), transducer.tokenizers.target)
    else:
        steps = edits(scored.output, scored.reference)
    gold = origins(best, scored.output, scored.reference) if own.spelled else None
    return msgspec.structs.replace(item, edits=steps, errors=scored.errors, exact=scored.exact, gold=gold)
