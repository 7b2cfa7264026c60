"""Examples of the page: sources with their outputs, and the alignment of outputs with references."""

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
from pellucid.inspection.attribution import Attribution
from pellucid.inspection.distributions import entropy, step_distributions
from pellucid.viewer import schema as contents
from pellucid.viewer.schema import EditOperation, PageExample, PageTrace

UNKNOWN_ORIGIN = (0, 0)
"""Positions of a symbol without a known origin, such as the end symbol."""


def are_spelled_digits(examples: Sequence[Example]) -> bool:
    """Return whether every source spells the digits of its target in words.

    Args:
        examples: Examples of a file.

    Returns:
        True if the file determines the gold alignment.
    """
    digits = [example.target for example in examples]
    return bool(digits) and all(
        target.isascii() and target.isdigit() and example.source == spell_digits(target)
        for example, target in zip(examples, digits, strict=True)
    )


def gold_alignment(trace: Trace, output: Sequence[str], reference: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the source positions [first, stop) of each step of an output, aligned with its reference by minimum edits.

    A wrong symbol has the source positions of the symbol expected in its place.

    Args:
        trace: Output.
        output: Symbols of the output.
        reference: Symbols of the reference.

    Returns:
        Positions of each step, or None if the source does not spell the reference.
    """
    spans = digit_spans(trace.source[trace.features :], "".join(reference))
    if spans is None or len(spans) != len(reference):
        return None
    alignment = [UNKNOWN_ORIGIN] * len(trace.target)
    step = position = 0
    for expected, predicted in align_symbols(output, reference):
        if expected is not None and predicted is not None and step < len(alignment):
            first, stop = spans[position]
            alignment[step] = (first + trace.features, stop + trace.features)
        step, position = step + (predicted is not None), position + (expected is not None)
    return alignment


MAX_UNKNOWN_PROBABILITY = 1e-4
"""Maximum probability outside the top symbols up to which an entropy counts as exact."""


def page_trace(trace: Trace, bits: Float[np.ndarray, " T"], is_lower_bound: bool = False) -> PageTrace:
    """Return a trace with the entropy of each step, without the weights of attention heads.

    Args:
        trace: Trace.
        bits: Entropy of each step in bits.
        is_lower_bound: Whether the entropies are lower bounds.

    Returns:
        Trace of the page.
    """
    record = replace(trace, heads=None).to_record(compact=True)
    return PageTrace(
        **msgspec.structs.asdict(record), entropy=encode_array(bits), entropy_is_lower_bound=is_lower_bound
    )


def entropy_lower_bound(trace: Trace) -> Float[np.ndarray, " T"]:
    """Return a lower bound of the entropy of each step in bits; all symbols outside the top symbols count as one.

    For traces whose model is not available.

    Args:
        trace: Trace.

    Returns:
        Entropies.
    """
    shares = _top_probabilities(trace)
    return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1), np.float32)


def page_trace_without_model(trace: Trace) -> PageTrace:
    """Return a trace whose model is not available; entropies are lower bounds unless the top symbols are complete.

    Args:
        trace: Trace.

    Returns:
        Trace of the page.
    """
    return page_trace(
        trace, entropy_lower_bound(trace), bool((_top_probabilities(trace)[:, -1] > MAX_UNKNOWN_PROBABILITY).any())
    )


def _top_probabilities(trace: Trace) -> Float[np.ndarray, "T k"]:
    """Return the probabilities of the top symbols of each step, and the sum of all others as the last column."""
    probabilities = np.exp(trace.top_log_probabilities.astype(np.float64))
    remainder = np.clip(1 - probabilities.sum(axis=1, keepdims=True), 0, 1)
    return np.concatenate([probabilities, remainder], axis=1)


def attribution_arrays(attribution: Attribution) -> contents.AttributionArrays:
    """Return attribution scores in the page's schema.

    Args:
        attribution: Attribution scores.

    Returns:
        Encoded arrays.
    """
    return contents.AttributionArrays(
        occlusion=encode_array(attribution.occlusion),
        input_x_gradient=encode_array(attribution.gradient),
        occlusion_correlation=attribution.occlusion_correlation,
        gradient_correlation=attribution.gradient_correlation,
    )


EditKind = Literal["same", "substitution", "insertion", "deletion"]


class SourceMetadata(NamedTuple):
    """Metadata of a source in its file."""

    references: tuple[str, ...] = ()
    line: int | None = None
    is_spelled: bool = False
    """Whether the source spells the digits of the reference."""


def page_examples(
    predictor: Predictor, metadata: Sequence[SourceMetadata], outputs: Sequence[Sequence[Trace]]
) -> list[PageExample]:
    """Return the examples of the page.

    Args:
        predictor: Model of the outputs.
        metadata: Metadata of each source.
        outputs: Outputs of each source, best first.

    Returns:
        One example per source.
    """
    bits = iter(step_entropies(predictor, [trace for traces in outputs for trace in traces]))
    examples = []
    for source_metadata, traces in zip(metadata, outputs, strict=True):
        item = PageExample(
            text=traces[0].text,
            features=list(traces[0].source[: traces[0].features]),
            traces=[page_trace(trace, next(bits)) for trace in traces],
            references=list(source_metadata.references),
            line=source_metadata.line,
        )
        examples.append(
            _with_errors(item, traces[0], source_metadata, predictor) if source_metadata.references else item
        )
    return examples


def step_entropies(predictor: Predictor, traces: Sequence[Trace]) -> list[Float[np.ndarray, " T"]]:
    """Return the entropy of each step of each trace, in bits; 0 for lexicon entries.

    Args:
        predictor: Model of the traces.
        traces: Traces.

    Returns:
        Entropies of each trace.
    """
    decoded = [index for index, trace in enumerate(traces) if trace.target and trace.origin != "lexicon"]
    bits: list[Float[np.ndarray, " T"]] = [np.zeros(len(trace.target), np.float32) for trace in traces]
    for index, distributions in zip(
        decoded, step_distributions(predictor, [traces[index] for index in decoded]), strict=True
    ):
        bits[index] = entropy(distributions)
    return bits


def edit_operations(output: Sequence[str], reference: Sequence[str]) -> list[EditOperation]:
    """Return the operations that turn a reference into an output.

    Args:
        output: Symbols of the output.
        reference: Symbols of the reference.

    Returns:
        Operations in output order.
    """
    operations, step = list[EditOperation](), 0
    for expected, predicted in align_symbols(output, reference):
        if predicted is None:
            operations.append(EditOperation(kind="deletion", step=None, expected=expected))
            continue
        kind: EditKind = "insertion" if expected is None else "same" if expected == predicted else "substitution"
        operations.append(EditOperation(kind=kind, step=step, expected=expected))
        step += 1
    return operations


def positional_edits(trace: Trace, reference: Sequence[str], tokenizer: Tokenizer) -> list[EditOperation]:
    """Return one operation per position, for tags; an unscored tag counts as correct.

    Args:
        trace: Tagged output.
        reference: Tags of the reference.
        tokenizer: Tokenizer of the targets.

    Returns:
        Operations in source order.
    """
    operations = list[EditOperation]()
    for step, (expected, predicted) in enumerate(zip(reference, trace.target, strict=False)):
        is_correct = predicted == expected or expected == tokenizer.ignored_tag
        operations.append(
            EditOperation(
                kind="same" if is_correct else "substitution", step=step, expected=predicted if is_correct else expected
            )
        )
    return operations


def _with_errors(item: PageExample, best: Trace, metadata: SourceMetadata, predictor: Predictor) -> PageExample:
    """Return an example with the errors of its first output, and its gold alignment if it is known."""
    (scored,) = score_traces([best], [tuple(item.references)], predictor.tokenizers)
    if scored.positional:
        edits = positional_edits(
            best, predictor.tokenizers.target.split(item.references[0]), predictor.tokenizers.target
        )
    else:
        edits = edit_operations(scored.output, scored.reference)
    gold = gold_alignment(best, scored.output, scored.reference) if metadata.is_spelled else None
    return msgspec.structs.replace(item, edits=edits, errors=scored.errors, exact=scored.exact, gold_alignment=gold)
