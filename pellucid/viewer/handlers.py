"""What a page may ask of its models: pure functions from a question to its answer.

A mistake in a question is an `InputError`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from pellucid.data.examples import Example, pair_fault
from pellucid.decoding.options import Options, Painted
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import END, Trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.errors import InputError, quote
from pellucid.inspection.distributions import distributions, divergence
from pellucid.inspection.state_space import Gathered, gather, nearest
from pellucid.inspection.states import states
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
"""Hypotheses of a beam, and outputs of a source, that a page may ask for."""
MAX_NEIGHBORS = 200
"""Neighbors that a page may ask for."""


def decode_source(shown: PageData, asked: DecodeRequest) -> PageExample:
    """Decode one source as it is asked."""
    return _decode_request(shown, asked)[0]


def compare_what_if(shown: PageData, changed: WhatIfRequest) -> WhatIfResponse:
    """Two questions of one model, and what became of the first one's output under the second."""
    if changed.before.run != changed.after.run:
        raise InputError("before and after ask different models: a what-if is asked of one")
    before, trace = _decode_request(shown, changed.before)
    after, changed_trace = _decode_request(shown, changed.after, len(trace.target))
    model = select_run(shown.models, changed.before.run).ready
    one, other = (_configure_predictor(model, asked) for asked in (changed.before, changed.after))
    if not trace.source or not model.segmenters.source.split(changed.after.text):
        raise InputError("there is nothing to compare: a source is empty")
    given = _requested_example(changed.after, model)._replace(target=trace.output)
    if not model.autoregressive and pair_fault(given.source, given.target, model.segmenters, model.config.data):
        # Tags of another number, or a position that is no longer there: the new source has no such answer.
        nothing = encode_array(np.zeros(0))
        return WhatIfResponse(
            before=before, after=after, compared_output="before", rescored=after.traces[0], kl_divergence=nothing
        )
    forced = changed.after.prefix != changed.before.prefix
    (held,) = one.force([_requested_example(changed.before, model)._replace(target=trace.output)])
    (same,) = other.force([given._replace(target=changed_trace.output) if forced else given])
    if forced and same.target[: len(changed_trace.target)] != changed_trace.target:
        same = changed_trace
    (own,), (theirs,) = distributions(one, [trace]), distributions(other, [same])
    steps = min(len(own), len(theirs))
    return WhatIfResponse(
        before=_with_forced_scores(before, held),
        after=_with_forced_scores(after, same),
        compared_output="after" if forced else "before",
        rescored=page_trace(same, step_entropies(other, [same])[0]),
        kl_divergence=encode_array(divergence(own[:steps], theirs[:steps])),
    )


def _with_forced_scores(item: PageExample, held: Trace) -> PageExample:
    """An item whose first output has the numbers of its forced pass, if that is the same output.

    The search's own differ in the seventh digit: compared with forced ones, they would tell of a change where none is.
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


def gather_states(shown: PageData) -> Gathered:
    """The states of all outputs of the file, in which neighbors are looked for."""
    model = shown.models[0]
    usable = [trace for trace in shown.traces if trace.target and trace.origin == "search"]
    if not usable or not model.alone:
        raise InputError(
            "there are no states to search: the page has no file, or its model is an ensemble or has no steps"
        )
    return gather(model.ready, shown.traces)


def export_examples(shown: PageData) -> ExportResponse:
    """What a page that is saved holds beside what it shows."""
    items = shown.contents.examples[:MAX_DETAILED_EXAMPLES]
    numbers = {place: number for number, place in shown.places.items()}
    listed = [(item, shown.traces[numbers[place]]) for place, item in enumerate(items)]
    return ExportResponse(examples=add_states(shown.models[0], listed, shown.planes, kept=True))


def find_neighbors(shown: PageData, among: Gathered, nearby: NeighborsRequest) -> NeighborsResponse:
    """The states of the file nearest to one that is asked for, less that state itself."""
    model = shown.models[0].ready
    example = Example(nearby.text, "", model.segmenters.features.join(nearby.features))
    written = nearby.target[:-1] if nearby.target[-1:] == [END] else nearby.target
    _check_length("target", written, max(model.max_length, model.config.data.max_length))
    if not 1 <= nearby.num_neighbors <= MAX_NEIGHBORS:
        raise InputError(f"num_neighbors: expected 1 to {MAX_NEIGHBORS}, got {quote(nearby.num_neighbors)}")
    (trace,) = model.force([example._replace(target=model.segmenters.target.join(written))])
    (own,) = states(model, [trace])
    vectors, side = (own.encoder, among.encoder) if nearby.side == "encoder" else (own.decoder, among.decoder)
    if not 0 <= nearby.position < len(vectors):
        raise InputError(f"position: expected 0 to {len(vectors) - 1}, got {quote(nearby.position)}")
    found = nearest(side, vectors[nearby.position], nearby.num_neighbors + 1)
    told = [
        _state_neighbor(shown, nearby.side, near)
        for near in found
        if not (near[1] == nearby.position and _has_same_states(shown.traces[near[0]], trace, nearby.side))
    ][: nearby.num_neighbors]
    following = Counter(each.next_symbol for each in told if each.next_symbol)
    return NeighborsResponse(num_searched=len(side.vectors), neighbors=told, next_symbols=following.most_common())


def _state_neighbor(shown: PageData, side: str, near: tuple[int, int, float]) -> StateNeighbor:
    """One of them: the number of its example, its position, and how near it is."""
    number, position, similarity = near
    trace = shown.traces[number]
    symbols = trace.source if side == "encoder" else trace.target
    following = symbols[position + 1] if position + 1 < len(symbols) else ""
    space = symbol_separator(shown.models[0].ready, side)
    own = state_point(symbols, position, shown.places.get(number, -1), space)
    return StateNeighbor(point=own, similarity=similarity, next_symbol=following)


def _has_same_states(one: Trace, other: Trace, side: str) -> bool:
    """Whether the states of two traces are the same."""
    return one.source == other.source and (side == "encoder" or one.target == other.target)


def _decode_request(shown: PageData, asked: DecodeRequest, steps: int = 0) -> tuple[PageExample, Trace]:
    """The item of a question, and its first output; `steps` as in `_check_overrides`."""
    model = select_run(shown.models, asked.run)
    transducer = _configure_predictor(model.ready, asked)
    if (asked.states or asked.gates) and not model.alone:
        raise InputError("there are no states of steps: the model is an ensemble, or writes nothing symbol by symbol")
    outputs = keep_first_lattice(_decode_outputs(transducer, asked))
    _check_overrides(model.ready, asked, max(steps, *(len(each.target) for each in outputs)))
    (item,) = page_examples(transducer, [SourceMetadata()], [outputs])
    planes = shown.planes if asked.run == 0 else None
    first = add_requested_details(item.traces[0], outputs[0], transducer, planes, asked)
    return PageExample(
        text=asked.text, features=item.features, traces=[first, *item.traces[1:]], references=[]
    ), outputs[0]


def _decode_outputs(transducer: Predictor, asked: DecodeRequest) -> list[Trace]:
    """The outputs of a question. One whose end is given as well is scored: there is nothing to search, all is given."""
    example = _requested_example(asked, transducer)
    if asked.prefix[-1:] == [END]:
        _check_length("begin with", asked.prefix[:-1], transducer.max_length)
        text = transducer.segmenters.target.join(asked.prefix[:-1])
        scored = transducer.force([example._replace(target=text)])
        return [replace(each, forced=tuple(range(len(each.target)))) for each in scored]
    prefixes = [asked.prefix] if asked.prefix else None
    try:
        if asked.num_outputs == 1:
            return transducer.trace([example], prefixes=prefixes)
        (found,) = transducer.hypotheses([example], asked.num_outputs, prefixes=prefixes)
    except InputError as error:
        if not (about := re.match("prefix of source 1:", f"{error}")):
            raise
        # The page has a field of this name where other programs have a prefix.
        raise InputError("begin with:" + f"{error}"[about.end() :]) from None
    return found


def _check_length(name: str, symbols: Sequence[str], longest: int) -> None:
    """`InputError` for more symbols than the model may write: nobody else is answered while they are computed."""
    if len(symbols) > longest:
        raise InputError(f"{name}: expected at most {longest} symbols, got {len(symbols)}")


def _check_overrides(model: Predictor, asked: DecodeRequest, steps: int) -> None:
    """`InputError` where the first row is beyond the `steps` of the outputs, and of the output without painted rows.

    A later row may be: one row makes the output longer, the next is given to a step that came of it, and a third makes
    the output shorter again. All are kept, and the output tells which of them it came to.
    """
    first = min((each.step for each in asked.attention_overrides), default=-1)
    if first < steps:
        return
    free = msgspec.structs.replace(asked, attention_overrides=[], num_outputs=1, lattice=False)
    steps = max(steps, len(_decode_outputs(_configure_predictor(model, free), free)[0].target))
    if first >= steps:
        raise InputError(f"attention_overrides: there is no step {quote(first)}: the output has 0 to {steps - 1}")


def _requested_example(asked: DecodeRequest, transducer: Predictor) -> Example:
    """The source of a question."""
    return Example(asked.text, "", transducer.segmenters.features.join(asked.features))


def _configure_predictor(model: Predictor, asked: DecodeRequest) -> Predictor:
    """A model that decodes as it is asked; `InputError` for what cannot be asked."""
    for name, value in (("beam_size", asked.beam_size), ("num_outputs", asked.num_outputs)):
        if not 1 <= value <= MAX_BEAM_SIZE:
            raise InputError(f"{name}: expected 1 to {MAX_BEAM_SIZE}, got {quote(value)}")
    painted = tuple(Painted(each.step, tuple(each.weights)) for each in asked.attention_overrides)
    options = Options(lattice=asked.lattice, painted=painted, masked=tuple(asked.masked_positions))
    return model.with_beam(asked.beam_size).with_options(options)
