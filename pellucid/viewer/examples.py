"""Examples of the page: sources with their outputs, and the alignment of outputs with references."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from pellucid.data.examples import Example
from pellucid.data.synthetic import digit_spans, spell_digits
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_alignment import align_trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.confusion import align_symbols
from pellucid.inspection.attribution import Attribution
from pellucid.inspection.distributions import entropy, step_distributions
from pellucid.shapes import Float
from pellucid.viewer.schema import AttributionArrays, EditOperation, PageExample, PageTrace

UNKNOWN_ORIGIN = (0, 0)
"""Positions of a symbol without a known origin, such as the end symbol."""


def are_spelled_digits(examples: Sequence[Example]) -> bool:
    """Return whether every source spells the digits of its target in words, so that the gold alignment is known.

    Args:
        examples: Examples of a file; False for none.
    """
    return bool(examples) and all(
        target.isascii() and target.isdigit() and source == spell_digits(target) for source, target, *_ in examples
    )


def gold_alignment(trace: Trace, output: Sequence[str], reference: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the source positions that each step of an output should attend to, for sources of spelled digits.

    The output is aligned with its reference by minimum edits. A substituted symbol has the source positions of the
    symbol expected in its place; inserted symbols and EOS have (0, 0).

    Args:
        trace: Output, for its source.
        output: Symbols of the output, without EOS.
        reference: Symbols of the reference: digits.

    Returns:
        Positions [first, stop) of each step; None if the source does not spell the reference.
    """
    spans = digit_spans(trace.source[trace.num_features :], "".join(reference))
    if spans is None or len(spans) != len(reference):
        return None
    alignment = [UNKNOWN_ORIGIN] * len(trace.target)
    step = position = 0
    for expected, predicted in align_symbols(output, reference):
        if expected is not None and predicted is not None and step < len(alignment):
            first, stop = spans[position]
            alignment[step] = (first + trace.num_features, stop + trace.num_features)
        step, position = step + (predicted is not None), position + (expected is not None)
    return alignment


MAX_UNKNOWN_PROBABILITY = 1e-4
"""Maximum probability outside the top symbols up to which an entropy counts as exact."""


def page_trace(trace: Trace, bits: Float[np.ndarray, " T"], is_lower_bound: bool = False) -> PageTrace:
    """Return a trace in the page's schema, with the entropy of each step and without the weights of attention heads.

    Args:
        trace: Trace.
        bits: Entropy of the distribution of each step, in bits.
        is_lower_bound: Whether the entropies are lower bounds.
    """
    record = replace(trace, heads=None).to_record(compact=True)
    return PageTrace(
        **msgspec.structs.asdict(record),
        entropy=encode_array(bits),
        entropy_is_lower_bound=is_lower_bound,
        alignment=page_alignment(trace),
    )


MAX_ALIGNED_CELLS = 2**16
"""Maximum number of weights of a trace whose alignment the page shows; longer outputs would delay the page."""


def page_alignment(trace: Trace) -> list[tuple[int, int, int, int]]:
    """Return the chunks of the monotone path through the attention weights of a trace, by positions in `Trace.source`.

    Args:
        trace: Trace.

    Returns:
        The chunks; none for other tasks than sequences, without attention, and for long outputs.
    """
    if not trace.autoregressive or not trace.attention.any() or trace.attention.size > MAX_ALIGNED_CELLS:
        return []
    alignment, first = align_trace(trace), trace.num_features
    chunks = () if alignment is None else alignment.chunks
    return [
        (chunk.source_start + first, chunk.source_stop + first, chunk.target_start, chunk.target_stop)
        for chunk in chunks
    ]


def entropy_lower_bound(trace: Trace) -> Float[np.ndarray, " T"]:
    """Return a lower bound of the entropy of each step, in bits, from the most probable symbols that a trace stores.

    All other symbols count as one. It serves for traces whose model is not available.

    Args:
        trace: Trace.
    """
    shares = _top_probabilities(trace)
    return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1), np.float32)


def page_trace_without_model(trace: Trace) -> PageTrace:
    """Return a trace whose model is not available in the page's schema, with `entropy_lower_bound` as its entropies.

    They count as exact if, at every step, the stored symbols have all probability but `MAX_UNKNOWN_PROBABILITY`.

    Args:
        trace: Trace.
    """
    return page_trace(
        trace, entropy_lower_bound(trace), bool((_top_probabilities(trace)[:, -1] > MAX_UNKNOWN_PROBABILITY).any())
    )


def _top_probabilities(trace: Trace) -> Float[np.ndarray, "T k"]:
    """Return the probabilities of the top symbols of each step, and the sum of all others as the last column."""
    probabilities = np.exp(trace.top_log_probabilities.astype(np.float64))
    remainder = np.clip(1 - probabilities.sum(axis=1, keepdims=True), 0, 1)
    return np.concatenate([probabilities, remainder], axis=1)


def attribution_arrays(attribution: Attribution) -> AttributionArrays:
    """Return attribution scores in the page's schema, with encoded arrays.

    Args:
        attribution: Attribution scores.
    """
    return AttributionArrays(
        occlusion=encode_array(attribution.occlusion),
        input_x_gradient=encode_array(attribution.input_x_gradient),
        occlusion_correlation=attribution.occlusion_correlation,
        input_x_gradient_correlation=attribution.input_x_gradient_correlation,
    )


EditKind = Literal["same", "substitution", "insertion", "deletion"]


class SourceMetadata(NamedTuple):
    """References of a source, and its line in its file."""

    references: tuple[str, ...] = ()
    """Correct outputs; empty if unknown."""
    line: int | None = None
    """Line number in the file, from 1; None for a source that is from no file."""
    is_spelled: bool = False
    """Whether all sources of the file spell the digits of their references."""
    row_id: str = ""
    """Cell of the column "id" of the line; "" if the file has no such column."""


def page_examples(
    predictor: Predictor, metadata: Sequence[SourceMetadata], outputs: Sequence[Sequence[Trace]]
) -> list[PageExample]:
    """Return examples in the page's schema, with entropies and, where there are references, with errors.

    Args:
        predictor: Model of the outputs, which computes the entropies.
        metadata: Metadata of each source.
        outputs: Outputs of each source, best first; at least one.

    Returns:
        One example per source, in order, without attributions and states.
    """
    bits = iter(step_entropies(predictor, [trace for traces in outputs for trace in traces]))
    examples = []
    for source_metadata, traces in zip(metadata, outputs, strict=True):
        item = PageExample(
            text=traces[0].text,
            features=list(traces[0].source[: traces[0].num_features]),
            traces=[page_trace(trace, next(bits)) for trace in traces],
            references=list(source_metadata.references),
            line=source_metadata.line,
            row_id=source_metadata.row_id,
        )
        examples.append(
            _with_errors(item, traces[0], source_metadata, predictor) if source_metadata.references else item
        )
    return examples


def step_entropies(predictor: Predictor, traces: Sequence[Trace]) -> list[Float[np.ndarray, " T"]]:
    """Return the entropy of the model's distribution at each step of each trace, in bits.

    Args:
        predictor: Model of the traces.
        traces: Traces; lexicon entries have entropy 0.

    Returns:
        Entropies of each trace, in order.
    """
    decoded = [index for index, trace in enumerate(traces) if trace.target and trace.origin != "lexicon"]
    bits: list[Float[np.ndarray, " T"]] = [np.zeros(len(trace.target), np.float32) for trace in traces]
    for index, distributions in zip(
        decoded, step_distributions(predictor, [traces[index] for index in decoded]), strict=True
    ):
        bits[index] = entropy(distributions)
    return bits


def edit_operations(output: Sequence[str], reference: Sequence[str]) -> list[EditOperation]:
    """Return the minimum edit operations that turn a reference into an output, with "same" for equal symbols.

    Args:
        output: Symbols of the output, without EOS.
        reference: Symbols of the reference.

    Returns:
        Operations in output order; the step of each is its index in the output.
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


def positional_edits(trace: Trace, reference: Sequence[str], ignored_tag: str) -> list[EditOperation]:
    """Return the comparison of tags with their reference, position by position: "same" or "substitution".

    Args:
        trace: Output of a tagger.
        reference: Tags of the reference.
        ignored_tag: Tag of positions that are not scored and count as correct; "" if there is none.

    Returns:
        One operation per tag, in source order.
    """
    operations = list[EditOperation]()
    for step, (expected, predicted) in enumerate(zip(reference, trace.target, strict=False)):
        is_correct = predicted == expected or expected == ignored_tag
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
        tokenizer = predictor.tokenizers.target
        edits = positional_edits(best, tokenizer.split(item.references[0]), tokenizer.ignored_tag)
    else:
        edits = edit_operations(scored.output, scored.reference)
    gold = gold_alignment(best, scored.output, scored.reference) if metadata.is_spelled else None
    return msgspec.structs.replace(item, edits=edits, errors=scored.errors, exact=scored.exact, gold_alignment=gold)
