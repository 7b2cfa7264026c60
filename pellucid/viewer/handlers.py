"""Request handlers of the page: functions from a request to its response.

An invalid request raises `InputError`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from pellucid.data.examples import Example, pair_error
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import END, Trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.errors import InputError, quote
from pellucid.inspection.distributions import kl_divergence, step_distributions
from pellucid.inspection.state_space import CorpusStates, collect_states, nearest_states
from pellucid.inspection.states import trace_states
from pellucid.viewer.examples import SourceMetadata, page_examples, page_trace, step_entropies
from pellucid.viewer.inputs import select_run
from pellucid.viewer.page_contents import PageData, keep_first_search_tree
from pellucid.viewer.schema import (
    DecodeRequest,
    ExportResponse,
    NeighborsRequest,
    NeighborsResponse,
    PageExample,
    StateNeighbor,
    WhatIfRequest,
    WhatIfResponse,
)
from pellucid.viewer.states import (
    MAX_DETAILED_EXAMPLES,
    add_requested_details,
    add_states,
    state_point,
    symbol_separator,
)

MAX_BEAM_SIZE = 64
"""Maximum beam size, and number of outputs, of a request."""
MAX_NEIGHBORS = 200
"""Maximum number of neighbors of a request."""


def decode_source(page_data: PageData, request: DecodeRequest) -> PageExample:
    """Decode one source with the constraints of a request, and add the requested details.

    Args:
        page_data: Data of the page, with its runs.
        request: Source, run, constraints and details.

    Returns:
        Source with its outputs, best first; attributions and states are in the first one.

    Raises:
        InputError: The request is invalid: an unknown run, a beam size or number of outputs out of range, a symbol that
            the model cannot write, constraints on a model that has no such steps, or states of an ensemble.
    """
    return _decode_request(page_data, request)[0]


def compare_what_if(page_data: PageData, request: WhatIfRequest) -> WhatIfResponse:
    """Decode an original and a changed request with the same run, and compare their first outputs.

    Args:
        page_data: Data of the page, with its runs.
        request: Requests before and after the change.

    Returns:
        Both outputs, the compared output scored under the change, and the KL divergence of each step's distribution,
        along each output, in bits; no divergences if the changed source cannot have the compared output.

    Raises:
        InputError: The requests name different runs, a source is empty, or one is invalid as in `decode_source`.
    """
    if request.before.run != request.after.run:
        raise InputError("before and after must request the same run")
    before, trace = _decode_request(page_data, request.before)
    after, changed_trace = _decode_request(page_data, request.after, len(trace.target))
    model = select_run(page_data.runs, request.before.run).loaded_predictor
    original_predictor, changed_predictor = (
        _configure_predictor(model, decode_request) for decode_request in (request.before, request.after)
    )
    if not trace.source or not model.tokenizers.source.split(request.after.text):
        raise InputError("nothing to compare: a source is empty")
    changed_example = _requested_example(request.after, model)._replace(target=trace.output)
    if not model.autoregressive and pair_error(
        changed_example.source, changed_example.target, model.tokenizers, model.config.data
    ):
        # The new source has another number of tags, or lacks the position.
        empty = encode_array(np.zeros(0))
        return WhatIfResponse(
            before=before, after=after, compared_output="before", rescored=after.traces[0], kl_divergence=empty
        )
    is_prefix_changed = request.after.prefix != request.before.prefix
    (rescored_original,) = original_predictor.score_examples(
        [_requested_example(request.before, model)._replace(target=trace.output)]
    )
    (rescored,) = changed_predictor.score_examples(
        [changed_example._replace(target=changed_trace.output) if is_prefix_changed else changed_example]
    )
    if is_prefix_changed and rescored.target[: len(changed_trace.target)] != changed_trace.target:
        rescored = changed_trace
    (old_distributions,), (new_distributions,) = (
        step_distributions(original_predictor, [trace]),
        step_distributions(changed_predictor, [changed_trace if model.autoregressive else rescored]),
    )
    steps = min(len(old_distributions), len(new_distributions))
    return WhatIfResponse(
        before=_with_forced_scores(before, rescored_original),
        after=_with_forced_scores(after, rescored),
        compared_output="after" if is_prefix_changed else "before",
        rescored=page_trace(rescored, step_entropies(changed_predictor, [rescored])[0]),
        kl_divergence=encode_array(kl_divergence(old_distributions[:steps], new_distributions[:steps])),
    )


def _with_forced_scores(item: PageExample, rescored: Trace) -> PageExample:
    """Return an example whose first output has the scores of forced decoding, if forced decoding gives the same output.

    Scores of search and of forced decoding differ in the seventh digit, which would appear as a change.
    """
    output = item.traces[0]
    if output.origin == "lexicon" or output.target != list(rescored.target[: len(output.target)]):
        return item
    steps = len(output.target)
    trace = msgspec.structs.replace(
        output,
        log_probabilities=encode_array(rescored.log_probabilities[:steps]),
        attention=output.attention if rescored.per_position else encode_array(rescored.attention[:steps]),
    )
    return msgspec.structs.replace(item, traces=[trace, *item.traces[1:]])


def gather_states(page_data: PageData) -> CorpusStates:
    """Return the states of the first run's outputs for the file of the page, in which nearest states are searched.

    Args:
        page_data: Data of the page, with its runs.

    Returns:
        States of the outputs in file order, at most about 200,000 per side.

    Raises:
        InputError: The page has no file with outputs, or the run is an ensemble or does not decode symbol by symbol.
    """
    model = page_data.runs[0]
    decoded = [trace for trace in page_data.traces if trace.target and trace.origin == "search"]
    if not decoded or not model.supports_states:
        raise InputError("no states to search: the page has no file, or its model is an ensemble or not autoregressive")
    return collect_states(model.loaded_predictor, page_data.traces)


def export_examples(page_data: PageData) -> ExportResponse:
    """Return the first `MAX_DETAILED_EXAMPLES` examples with details, for a page that is saved as a file.

    Args:
        page_data: Data of the page, with its runs.

    Returns:
        Examples with states, nearest points and attributions. Outputs with more than `MAX_OCCLUSION_WEIGHTS` attention
        weights have projected states only; examples of a run without states have no details.
    """
    examples = page_data.contents.examples[:MAX_DETAILED_EXAMPLES]
    file_indices = {page_index: file_index for file_index, page_index in page_data.page_indices.items()}
    examples_with_traces = [
        (example, page_data.traces[file_indices[page_index]]) for page_index, example in enumerate(examples)
    ]
    return ExportResponse(
        examples=add_states(page_data.runs[0], examples_with_traces, page_data.projections, exported=True)
    )


def find_neighbors(page_data: PageData, corpus_states: CorpusStates, request: NeighborsRequest) -> NeighborsResponse:
    """Return the states of the file that are nearest to a state by their cosine, without that state itself.

    Args:
        page_data: Data of the page, whose first run is used.
        corpus_states: States to search, from `gather_states`.
        request: Source, output and position of the state, and the number of neighbors.

    Returns:
        Nearest states, and counts of the symbols that follow them.

    Raises:
        InputError: The target is too long or has a symbol that the model cannot write, the position is out of range, or
            the number of neighbors is not 1 to `MAX_NEIGHBORS`.
    """
    model = page_data.runs[0].loaded_predictor
    example = Example(request.text, "", model.tokenizers.features.join(request.features))
    symbols = request.target[:-1] if request.target[-1:] == [END] else request.target
    _check_length("target", symbols, max(model.max_length, model.config.data.max_sequence_length))
    if not 1 <= request.num_neighbors <= MAX_NEIGHBORS:
        raise InputError(f"num_neighbors: expected 1 to {MAX_NEIGHBORS}, got {quote(request.num_neighbors)}")
    (trace,) = model.score_examples([example._replace(target=model.tokenizers.target.join(symbols))])
    (states,) = trace_states(model, [trace])
    vectors, side = (
        (states.encoder, corpus_states.encoder)
        if request.side == "encoder"
        else (states.decoder, corpus_states.decoder)
    )
    if not 0 <= request.position < len(vectors):
        raise InputError(f"position: expected 0 to {len(vectors) - 1}, got {quote(request.position)}")
    candidates = nearest_states(side, vectors[request.position], request.num_neighbors + 1)
    neighbors = [
        _state_neighbor(page_data, request.side, candidate)
        for candidate in candidates
        if not (
            candidate[1] == request.position and _has_same_states(page_data.traces[candidate[0]], trace, request.side)
        )
    ][: request.num_neighbors]
    next_symbols = Counter(neighbor.next_symbol for neighbor in neighbors if neighbor.next_symbol)
    return NeighborsResponse(
        num_searched=len(side.vectors), neighbors=neighbors, next_symbols=next_symbols.most_common()
    )


def _state_neighbor(page_data: PageData, side: str, candidate: tuple[int, int, float]) -> StateNeighbor:
    """Return a neighbor from the index of its example in the file, its position and its similarity."""
    file_index, position, similarity = candidate
    trace = page_data.traces[file_index]
    symbols = trace.source if side == "encoder" else trace.target
    next_symbol = symbols[position + 1] if position + 1 < len(symbols) else ""
    separator = symbol_separator(page_data.runs[0].loaded_predictor, side)
    point = state_point(symbols, position, page_data.page_indices.get(file_index, -1), separator)
    return StateNeighbor(point=point, similarity=similarity, next_symbol=next_symbol)


def _has_same_states(one: Trace, other: Trace, side: str) -> bool:
    """Return whether two traces have the same states on one side."""
    return one.source == other.source and (side == "encoder" or one.target == other.target)


def _decode_request(page_data: PageData, request: DecodeRequest, steps: int = 0) -> tuple[PageExample, Trace]:
    """Return the example of a request and its first output; `steps` as in `_check_forced_attention`."""
    model = select_run(page_data.runs, request.run)
    predictor = _configure_predictor(model.loaded_predictor, request)
    if (request.states or request.gates) and not model.supports_states:
        raise InputError("no decoder states: the model is an ensemble, or not autoregressive")
    outputs = keep_first_search_tree(_decode_outputs(predictor, request))
    _check_forced_attention(model.loaded_predictor, request, max(steps, *(len(trace.target) for trace in outputs)))
    (example,) = page_examples(predictor, [SourceMetadata()], [outputs])
    projections = page_data.projections if request.run == 0 else None
    trace_with_details = add_requested_details(example.traces[0], outputs[0], predictor, projections, request)
    return PageExample(
        text=request.text, features=example.features, traces=[trace_with_details, *example.traces[1:]], references=[]
    ), outputs[0]


def _decode_outputs(predictor: Predictor, request: DecodeRequest) -> list[Trace]:
    """Return the outputs of a request. A prefix that includes the end symbol is scored by forced decoding."""
    example = _requested_example(request, predictor)
    if request.prefix[-1:] == [END]:
        _check_length("prefix", request.prefix[:-1], predictor.max_length)
        text = predictor.tokenizers.target.join(request.prefix[:-1])
        scored = predictor.score_examples([example._replace(target=text)])
        return [replace(trace, forced=tuple(range(len(trace.target)))) for trace in scored]
    prefixes = [request.prefix] if request.prefix else None
    try:
        if request.num_outputs == 1:
            return predictor.predict_examples([example], prefixes=prefixes)
        (outputs,) = predictor.nbest_examples([example], request.num_outputs, prefixes=prefixes)
    except InputError as error:
        if not (match := re.match("prefix of source 1:", f"{error}")):
            raise
        raise InputError("prefix:" + f"{error}"[match.end() :]) from None
    return outputs


def _check_length(name: str, symbols: Sequence[str], max_length: int) -> None:
    """Raise `InputError` for more symbols than the model may write: long requests block all others."""
    if len(symbols) > max_length:
        raise InputError(f"{name}: expected at most {max_length} symbols, got {len(symbols)}")


def _check_forced_attention(model: Predictor, request: DecodeRequest, steps: int) -> None:
    """Raise `InputError` if all forced attention is beyond the outputs with and without it.

    A row beyond the output may take effect: one row may lengthen the output, and another may shorten it. All are kept,
    and the trace lists the steps at which they took effect.
    """
    first = min((row.step for row in request.forced_attention), default=-1)
    if first < steps:
        return
    unforced = msgspec.structs.replace(request, forced_attention=[], num_outputs=1, search_tree=False)
    steps = max(steps, len(_decode_outputs(_configure_predictor(model, unforced), unforced)[0].target))
    if first >= steps:
        raise InputError(f"forced_attention: no step {quote(first)}: the output has 0 to {steps - 1}")


def _requested_example(request: DecodeRequest, predictor: Predictor) -> Example:
    """Return the source of a request."""
    return Example(request.text, "", predictor.tokenizers.features.join(request.features))


def _configure_predictor(model: Predictor, request: DecodeRequest) -> Predictor:
    """Return a predictor with the options of a request; `InputError` for invalid options."""
    for name, value in (("beam_size", request.beam_size), ("num_outputs", request.num_outputs)):
        if not 1 <= value <= MAX_BEAM_SIZE:
            raise InputError(f"{name}: expected 1 to {MAX_BEAM_SIZE}, got {quote(value)}")
    forced_attention = tuple(ForcedAttention(row.step, tuple(row.weights)) for row in request.forced_attention)
    options = DecodingOptions(
        search_tree=request.search_tree,
        forced_attention=forced_attention,
        masked_positions=tuple(request.masked_positions),
    )
    # Labels have no beam: a request with beam size 1 leaves their settings as they are.
    searched = model.with_beam(request.beam_size) if model.autoregressive or request.beam_size > 1 else model
    return searched.with_options(options)
