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
from pellucid.viewer.page_contents import PageData, keep_first_lattice
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
    """Decode one source.

    Args:
        page_data: Data of the page, with its runs.
        request: Source and constraints.

    Returns:
        Source with its outputs.
    """
    return _decode_request(page_data, request)[0]


def compare_what_if(page_data: PageData, request: WhatIfRequest) -> WhatIfResponse:
    """Decode an original and a changed request with the same run, and compare their outputs.

    Args:
        page_data: Data of the page, with its runs.
        request: Requests before and after the change.

    Returns:
        Both outputs, and the divergence of each step's distribution.
    """
    if request.before.run != request.after.run:
        raise InputError("before and after must request the same run")
    before, trace = _decode_request(page_data, request.before)
    after, changed_trace = _decode_request(page_data, request.after, len(trace.target))
    model = select_run(page_data.runs, request.before.run).loaded_predictor
    one, other = (_configure_predictor(model, each) for each in (request.before, request.after))
    if not trace.source or not model.tokenizers.source.split(request.after.text):
        raise InputError("nothing to compare: a source is empty")
    given = _requested_example(request.after, model)._replace(target=trace.output)
    if not model.autoregressive and pair_error(given.source, given.target, model.tokenizers, model.config.data):
        # The new source has another number of tags, or lacks the position.
        nothing = encode_array(np.zeros(0))
        return WhatIfResponse(
            before=before, after=after, compared_output="before", rescored=after.traces[0], kl_divergence=nothing
        )
    forced = request.after.prefix != request.before.prefix
    (held,) = one.force([_requested_example(request.before, model)._replace(target=trace.output)])
    (same,) = other.force([given._replace(target=changed_trace.output) if forced else given])
    if forced and same.target[: len(changed_trace.target)] != changed_trace.target:
        same = changed_trace
    (own,), (theirs,) = step_distributions(one, [trace]), step_distributions(other, [same])
    steps = min(len(own), len(theirs))
    return WhatIfResponse(
        before=_with_forced_scores(before, held),
        after=_with_forced_scores(after, same),
        compared_output="after" if forced else "before",
        rescored=page_trace(same, step_entropies(other, [same])[0]),
        kl_divergence=encode_array(kl_divergence(own[:steps], theirs[:steps])),
    )


def _with_forced_scores(item: PageExample, held: Trace) -> PageExample:
    """Return an example whose first output has the scores of forced decoding, if forced decoding gives the same output.

    Scores of search and of forced decoding differ in the seventh digit, which would appear as a change.
    """
    first = item.traces[0]
    if first.origin == "lexicon" or first.target != list(held.target[: len(first.target)]):
        return item
    steps = len(first.target)
    told = msgspec.structs.replace(
        first,
        log_probabilities=encode_array(held.log_probabilities[:steps]),
        attention=first.attention if held.per_position else encode_array(held.attention[:steps]),
    )
    return msgspec.structs.replace(item, traces=[told, *item.traces[1:]])


def gather_states(page_data: PageData) -> CorpusStates:
    """Return the states of all outputs of the file, for the search of nearest states.

    Args:
        page_data: Data of the page, with its runs.

    Returns:
        States of the first run.
    """
    model = page_data.runs[0]
    usable = [trace for trace in page_data.traces if trace.target and trace.origin == "search"]
    if not usable or not model.supports_states:
        raise InputError("no states to search: the page has no file, or its model is an ensemble or not autoregressive")
    return collect_states(model.loaded_predictor, page_data.traces)


def export_examples(page_data: PageData) -> ExportResponse:
    """Return the first examples with all details, for a page that is saved as a file.

    Args:
        page_data: Data of the page, with its runs.

    Returns:
        Examples with states and attributions.
    """
    items = page_data.contents.examples[:MAX_DETAILED_EXAMPLES]
    numbers = {place: number for number, place in page_data.places.items()}
    listed = [(item, page_data.traces[numbers[place]]) for place, item in enumerate(items)]
    return ExportResponse(examples=add_states(page_data.runs[0], listed, page_data.projections, kept=True))


def find_neighbors(page_data: PageData, among: CorpusStates, request: NeighborsRequest) -> NeighborsResponse:
    """Return the states of the file nearest to a state, without that state itself.

    Args:
        page_data: Data of the page, with its runs.
        among: States to search.
        request: State and number of neighbors.

    Returns:
        Nearest states.
    """
    model = page_data.runs[0].loaded_predictor
    example = Example(request.text, "", model.tokenizers.features.join(request.features))
    written = request.target[:-1] if request.target[-1:] == [END] else request.target
    _check_length("target", written, max(model.max_length, model.config.data.max_length))
    if not 1 <= request.num_neighbors <= MAX_NEIGHBORS:
        raise InputError(f"num_neighbors: expected 1 to {MAX_NEIGHBORS}, got {quote(request.num_neighbors)}")
    (trace,) = model.force([example._replace(target=model.tokenizers.target.join(written))])
    (own,) = trace_states(model, [trace])
    vectors, side = (own.encoder, among.encoder) if request.side == "encoder" else (own.decoder, among.decoder)
    if not 0 <= request.position < len(vectors):
        raise InputError(f"position: expected 0 to {len(vectors) - 1}, got {quote(request.position)}")
    found = nearest_states(side, vectors[request.position], request.num_neighbors + 1)
    told = [
        _state_neighbor(page_data, request.side, near)
        for near in found
        if not (near[1] == request.position and _has_same_states(page_data.traces[near[0]], trace, request.side))
    ][: request.num_neighbors]
    following = Counter(each.next_symbol for each in told if each.next_symbol)
    return NeighborsResponse(num_searched=len(side.vectors), neighbors=told, next_symbols=following.most_common())


def _state_neighbor(page_data: PageData, side: str, near: tuple[int, int, float]) -> StateNeighbor:
    """Return a neighbor from the index of its example, its position and its similarity."""
    number, position, similarity = near
    trace = page_data.traces[number]
    symbols = trace.source if side == "encoder" else trace.target
    following = symbols[position + 1] if position + 1 < len(symbols) else ""
    space = symbol_separator(page_data.runs[0].loaded_predictor, side)
    own = state_point(symbols, position, page_data.places.get(number, -1), space)
    return StateNeighbor(point=own, similarity=similarity, next_symbol=following)


def _has_same_states(one: Trace, other: Trace, side: str) -> bool:
    """Return whether two traces have the same states on one side."""
    return one.source == other.source and (side == "encoder" or one.target == other.target)


def _decode_request(page_data: PageData, request: DecodeRequest, steps: int = 0) -> tuple[PageExample, Trace]:
    """Return the example of a request and its first output; `steps` as in `_check_overrides`."""
    model = select_run(page_data.runs, request.run)
    predictor = _configure_predictor(model.loaded_predictor, request)
    if (request.states or request.gates) and not model.supports_states:
        raise InputError("no decoder states: the model is an ensemble, or not autoregressive")
    outputs = keep_first_lattice(_decode_outputs(predictor, request))
    _check_overrides(model.loaded_predictor, request, max(steps, *(len(each.target) for each in outputs)))
    (item,) = page_examples(predictor, [SourceMetadata()], [outputs])
    projections = page_data.projections if request.run == 0 else None
    first = add_requested_details(item.traces[0], outputs[0], predictor, projections, request)
    return PageExample(
        text=request.text, features=item.features, traces=[first, *item.traces[1:]], references=[]
    ), outputs[0]


def _decode_outputs(predictor: Predictor, request: DecodeRequest) -> list[Trace]:
    """Return the outputs of a request. A prefix that includes the end symbol is scored by forced decoding."""
    example = _requested_example(request, predictor)
    if request.prefix[-1:] == [END]:
        _check_length("prefix", request.prefix[:-1], predictor.max_length)
        text = predictor.tokenizers.target.join(request.prefix[:-1])
        scored = predictor.force([example._replace(target=text)])
        return [replace(each, forced=tuple(range(len(each.target)))) for each in scored]
    prefixes = [request.prefix] if request.prefix else None
    try:
        if request.num_outputs == 1:
            return predictor.trace([example], prefixes=prefixes)
        (found,) = predictor.hypotheses([example], request.num_outputs, prefixes=prefixes)
    except InputError as error:
        if not (about := re.match("prefix of source 1:", f"{error}")):
            raise
        raise InputError("prefix:" + f"{error}"[about.end() :]) from None
    return found


def _check_length(name: str, symbols: Sequence[str], longest: int) -> None:
    """Raise `InputError` for more symbols than the model may write: long requests block all others."""
    if len(symbols) > longest:
        raise InputError(f"{name}: expected at most {longest} symbols, got {len(symbols)}")


def _check_overrides(model: Predictor, request: DecodeRequest, steps: int) -> None:
    """Raise `InputError` if all attention overrides are beyond the outputs with and without the overrides.

    Overrides beyond the output may take effect: one override may lengthen the output, and another may shorten it. All
    are kept, and the trace lists the steps at which they took effect.
    """
    first = min((each.step for each in request.attention_overrides), default=-1)
    if first < steps:
        return
    free = msgspec.structs.replace(request, attention_overrides=[], num_outputs=1, lattice=False)
    steps = max(steps, len(_decode_outputs(_configure_predictor(model, free), free)[0].target))
    if first >= steps:
        raise InputError(f"attention_overrides: no step {quote(first)}: the output has 0 to {steps - 1}")


def _requested_example(request: DecodeRequest, predictor: Predictor) -> Example:
    """Return the source of a request."""
    return Example(request.text, "", predictor.tokenizers.features.join(request.features))


def _configure_predictor(model: Predictor, request: DecodeRequest) -> Predictor:
    """Return a predictor with the options of a request; `InputError` for invalid options."""
    for name, value in (("beam_size", request.beam_size), ("num_outputs", request.num_outputs)):
        if not 1 <= value <= MAX_BEAM_SIZE:
            raise InputError(f"{name}: expected 1 to {MAX_BEAM_SIZE}, got {quote(value)}")
    painted = tuple(ForcedAttention(each.step, tuple(each.weights)) for each in request.attention_overrides)
    options = DecodingOptions(lattice=request.lattice, painted=painted, masked=tuple(request.masked_positions))
    return model.with_beam(request.beam_size).with_options(options)
