"""What a page may ask of its models: pure functions from a question to its answer.

A mistake in a question is an `InputError`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from pellucid.data.examples import Example, pair_error
from pellucid.decoding.options import Options, Painted
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import END, Trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.errors import InputError, quote
from pellucid.inspection.distributions import distributions, divergence
from pellucid.inspection.state_space import Gathered, gather, nearest
from pellucid.inspection.states import states
from pellucid.viewer.examples import Known, entropies, items, trace_told
from pellucid.viewer.inputs import chosen
from pellucid.viewer.page_contents import Assembled, slim
from pellucid.viewer.schema import Asked, Changed, Difference, Item, Kept, Nearby, Neighbour, Neighbours
from pellucid.viewer.states import DETAILED, detailed, point, spacing, with_details

MAX_BEAM_SIZE = 64
"""Hypotheses of a beam, and outputs of a source, that a page may ask for."""
NEAREST = 200
"""Neighbours that a page may ask for."""


def decode(shown: Assembled, asked: Asked) -> Item:
    """Decode one source as it is asked."""
    return _answer(shown, asked)[0]


def what_if(shown: Assembled, changed: Changed) -> Difference:
    """Two questions of one model, and what became of the first one's output under the second."""
    if changed.before.rival != changed.after.rival:
        raise InputError("before and after ask different models: a what-if is asked of one")
    before, trace = _answer(shown, changed.before)
    after, changed_trace = _answer(shown, changed.after, len(trace.target))
    model = chosen(shown.models, changed.before.rival).ready
    compared = (msgspec.structs.replace(asked, lattice=False) for asked in (changed.before, changed.after))
    one, other = (_optioned(model, asked) for asked in compared)
    if not trace.source or not model.tokenizers.source.split(changed.after.text):
        raise InputError("there is nothing to compare: a source is empty")
    given = _example(changed.after, model)._replace(target=trace.output)
    if not model.autoregressive and pair_error(given.source, given.target, model.tokenizers, model.config.data):
        # Tags of another number, or a position that is no longer there: the new source has no such answer.
        nothing = encode_array(np.zeros(0))
        return Difference(before=before, after=after, along="before", same=after.traces[0], divergence=nothing)
    forced = changed.after.prefix != changed.before.prefix
    (held,) = one.force([_example(changed.before, model)._replace(target=trace.output)])
    (same,) = other.force([given._replace(target=changed_trace.output) if forced else given])
    if forced and same.target[: len(changed_trace.target)] != changed_trace.target:
        same = changed_trace
    (own,), (theirs,) = distributions(one, [trace]), distributions(other, [same])
    steps = min(len(own), len(theirs))
    return Difference(
        before=_by_force(before, held),
        after=_by_force(after, same),
        along="after" if forced else "before",
        same=trace_told(same, entropies(other, [same])[0]),
        divergence=encode_array(divergence(own[:steps], theirs[:steps])),
    )


def _by_force(item: Item, held: Trace) -> Item:
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


def gathered(shown: Assembled) -> Gathered:
    """The states of all outputs of the file, in which neighbours are looked for."""
    model = shown.models[0]
    usable = [trace for trace in shown.traces if trace.target and trace.origin == "search"]
    if not usable or not model.alone:
        raise InputError(
            "there are no states to search: the page has no file, or its model is an ensemble or has no steps"
        )
    return gather(model.ready, shown.traces)


def kept(shown: Assembled) -> Kept:
    """What a page that is saved holds beside what it shows."""
    items = shown.contents.items[:DETAILED]
    numbers = {place: number for number, place in shown.places.items()}
    listed = [(item, shown.traces[numbers[place]]) for place, item in enumerate(items)]
    return Kept(items=detailed(shown.models[0], listed, shown.planes, kept=True))


def neighbours(shown: Assembled, among: Gathered, nearby: Nearby) -> Neighbours:
    """The states of the file nearest to one that is asked for, less that state itself."""
    model = shown.models[0].ready
    example = Example(nearby.text, "", model.tokenizers.features.join(nearby.features))
    written = nearby.target[:-1] if nearby.target[-1:] == [END] else nearby.target
    _check_length("target", written, max(model.max_length, model.config.data.max_length))
    if not 1 <= nearby.count <= NEAREST:
        raise InputError(f"count: expected 1 to {NEAREST}, got {quote(nearby.count)}")
    (trace,) = model.force([example._replace(target=model.tokenizers.target.join(written))])
    (own,) = states(model, [trace])
    vectors, side = (own.encoder, among.encoder) if nearby.side == "encoder" else (own.decoder, among.decoder)
    if not 0 <= nearby.position < len(vectors):
        raise InputError(f"position: expected 0 to {len(vectors) - 1}, got {quote(nearby.position)}")
    found = nearest(side, vectors[nearby.position], nearby.count + 1)
    told = [
        _neighbour(shown, nearby.side, near)
        for near in found
        if not (near[1] == nearby.position and _same(shown.traces[near[0]], trace, nearby.side))
    ][: nearby.count]
    following = Counter(each.following for each in told if each.following)
    return Neighbours(searched=len(side.vectors), neighbours=told, following=following.most_common())


def _neighbour(shown: Assembled, side: str, near: tuple[int, int, float]) -> Neighbour:
    """One of them: the number of its example, its position, and how near it is."""
    number, position, similarity = near
    trace = shown.traces[number]
    symbols = trace.source if side == "encoder" else trace.target
    following = symbols[position + 1] if position + 1 < len(symbols) else ""
    space = spacing(shown.models[0].ready, side)
    own = point(symbols, position, shown.places.get(number, -1), space)
    return Neighbour(point=own, similarity=similarity, following=following)


def _same(one: Trace, other: Trace, side: str) -> bool:
    """Whether the states of two traces are the same."""
    return one.source == other.source and (side == "encoder" or one.target == other.target)


def _answer(shown: Assembled, asked: Asked, steps: int = 0) -> tuple[Item, Trace]:
    """The item of a question, and its first output; `steps` as in `_check_painted`."""
    model = chosen(shown.models, asked.rival)
    transducer = _optioned(model.ready, asked)
    if (asked.states or asked.gates) and not model.alone:
        raise InputError("there are no states of steps: the model is an ensemble, or writes nothing symbol by symbol")
    outputs = slim(_outputs(transducer, asked))
    _check_painted(model.ready, asked, max(steps, *(len(each.target) for each in outputs)))
    (item,) = items(transducer, [Known()], [outputs])
    planes = shown.planes if asked.rival == -1 else None
    first = with_details(item.traces[0], outputs[0], transducer, planes, asked)
    return Item(text=asked.text, features=item.features, traces=[first, *item.traces[1:]], references=[]), outputs[0]


def _outputs(transducer: Predictor, asked: Asked) -> list[Trace]:
    """The outputs of a question. One whose end is given as well is scored: there is nothing to search, all is given."""
    example = _example(asked, transducer)
    if asked.prefix[-1:] == [END]:
        _check_length("begin with", asked.prefix[:-1], transducer.max_length)
        text = transducer.tokenizers.target.join(asked.prefix[:-1])
        scored = transducer.force([example._replace(target=text)])
        return [replace(each, forced=tuple(range(len(each.target)))) for each in scored]
    prefixes = [asked.prefix] if asked.prefix else None
    try:
        if asked.outputs == 1:
            return transducer.trace([example], prefixes=prefixes)
        (found,) = transducer.hypotheses([example], asked.outputs, prefixes=prefixes)
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


def _check_painted(model: Predictor, asked: Asked, steps: int) -> None:
    """`InputError` where the first row is beyond the `steps` of the outputs, and of the output without painted rows.

    A later row may be: one row makes the output longer, the next is given to a step that came of it, and a third makes
    the output shorter again. All are kept, and the output tells which of them it came to.
    """
    first = min((each.step for each in asked.painted), default=-1)
    if first < steps:
        return
    free = msgspec.structs.replace(asked, painted=[], outputs=1, lattice=False)
    steps = max(steps, len(_outputs(_optioned(model, free), free)[0].target))
    if first >= steps:
        raise InputError(f"painted: there is no step {quote(first)}: the output has 0 to {steps - 1}")


def _example(asked: Asked, transducer: Predictor) -> Example:
    """The source of a question."""
    return Example(asked.text, "", transducer.tokenizers.features.join(asked.features))


def _optioned(model: Predictor, asked: Asked) -> Predictor:
    """A model that decodes as it is asked; `InputError` for what cannot be asked."""
    for name, value in (("beam_size", asked.beam_size), ("outputs", asked.outputs)):
        if not 1 <= value <= MAX_BEAM_SIZE:
            raise InputError(f"{name}: expected 1 to {MAX_BEAM_SIZE}, got {quote(value)}")
    painted = tuple(Painted(each.step, tuple(each.weights)) for each in asked.painted)
    searched = asked.prefix[-1:] != [END]  # else the output is given, and no other hypothesis is considered
    options = Options(lattice=asked.lattice and searched, painted=painted, masked=tuple(asked.masked))
    return model.with_beam(asked.beam_size).with_options(options)
