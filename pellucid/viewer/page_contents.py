"""Contents of a page, from runs and a file of examples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from secrets import token_hex
from typing import NamedTuple

import msgspec

from pellucid.data.examples import Example
from pellucid.decoding.options import Options
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.metrics import Scored
from pellucid.reporting.visible import visible_text
from pellucid.tasks.registry import task_named
from pellucid.training.run_folder import members, read_log
from pellucid.version import __version__
from pellucid.viewer.corpus_statistics import alignment, assessed, corpus, intervals, scores
from pellucid.viewer.examples import items, origins
from pellucid.viewer.inputs import Model, Sources, card, choose, evenly
from pellucid.viewer.schema import Contents, Corpus, Item, Rival
from pellucid.viewer.states import Planes, detailed, seen
from pellucid.viewer.training_history import best_update, training


def rival(model: Model, items: list[Item], judged: Assessment | None, first: Assessment | None) -> Rival:
    """A run beside the first: where the file has targets, both are judged on all its examples."""
    log = read_log(model.folder) if members(model.folder) == [model.folder] else []
    if first is None or judged is None:
        return Rival(card=card(model), items=items, log=log)
    positions, lengths = intervals(judged, {})
    return Rival(
        card=card(model),
        items=items,
        outcomes=outcomes([each.exact for each in first.scored], [each.exact for each in judged.scored]),
        differing=sum(one.output != two.output for one, two in zip(first.traces, judged.traces, strict=True)),
        scores=scores(judged),
        positions=positions,
        lengths=lengths,
        log=log,
    )


def outcomes(first: Sequence[bool], other: Sequence[bool]) -> tuple[int, int, int, int]:
    """How many examples both have right, the first alone, the other alone, and neither."""
    both = sum(one and two for one, two in zip(first, other, strict=True))
    return both, sum(first) - both, sum(other) - both, len(first) - sum(first) - sum(other) + both


CELLS = 3_000_000
"""Weights of attention that the outputs shown hold together, at most: 16 MB of a page."""


TAG = 32
"""As many of them a tag takes, with its likeliest others and what was wanted; its weights are not told."""


class Assembled(NamedTuple):
    """What a page shows, and what questions about it need."""

    contents: Contents
    models: list[Model]
    traces: list[Trace]
    """The best output of every example of the file."""
    places: Mapping[int, int]
    """Of an example's number its place among the items."""
    planes: Planes | None


class _Chosen(NamedTuple):
    """Which examples are shown, in words too; what holds for all of them."""

    numbers: list[int]
    words: str
    assessments: list[Assessment | None]
    """Of every run on the whole file; None where the file has no targets."""
    corpus: Corpus | None


def assemble(
    models: Sequence[Model], sources: Sequence[Sources], most: int, served: bool, awaited: str = ""
) -> Assembled:
    """The contents of a page about the first of the models, on the sources' first file, if there is one.

    The other models are its rivals, on the same examples. At most `most` examples are shown. Where the first has no
    model yet, `awaited` names the file that is shown once it has.
    """
    first = models[0]
    course = training(first.folder) if members(first.folder) == [first.folder] else None
    told = card(first)
    contents = Contents(
        version=__version__,
        tasks={told.task: task_named(told.task).view},
        title=visible_text(first.name),
        served=served,
        identity=token_hex(8) if served else "",
        card=told,
        training=course,
        update=best_update(course),
    )
    empty = Assembled(contents, list(models), [], {}, None)
    if first.transducer is None:
        return empty._replace(contents=_awaiting(contents, awaited))
    if not sources:
        rivals = [Rival(card=card(model), items=[]) for model in models[1:]]
        return empty._replace(contents=msgspec.structs.replace(contents, rivals=rivals))
    return _with_items(empty, first.transducer, sources[0], most)


def _awaiting(contents: Contents, file: str) -> Contents:
    """The same, told that there is no model yet, and what comes with it."""
    name = visible_text(file)
    examples = f"the examples of {name}" if file else "examples"
    told = f"No model yet: it comes with the first validation (see Training), and {examples} with it."
    title = f"{contents.title} on {name}" if file else contents.title
    return msgspec.structs.replace(contents, title=title, choice=told, awaited=True)


def _with_items(empty: Assembled, transducer: Predictor, sources: Sources, most: int) -> Assembled:
    """The same with the examples of a file."""
    first, *others = empty.models
    traces = transducer.trace(sources.examples)
    chosen = _chosen(empty.models, sources, traces, most)
    places = {number: place for place, number in enumerate(chosen.numbers)}
    found = seen(transducer, traces, places) if first.alone else None
    planes = found[1] if found else None
    listed = _listed(transducer, sources, chosen.numbers)
    contents = msgspec.structs.replace(
        empty.contents,
        title=visible_text(f"{first.name} on {sources.name}"),
        items=detailed(first, listed, planes, kept=not empty.contents.served),
        total=len(sources.examples),
        choice="; ".join(each for each in (chosen.words, sources.left_out) if each),
        corpus=chosen.corpus,
        space=found[0] if found else None,
        rivals=[
            rival(each, _items(each.ready, sources, chosen.numbers), judged, chosen.assessments[0])
            for each, judged in zip(others, chosen.assessments[1:], strict=True)
        ],
    )
    return Assembled(contents, empty.models, traces, places, planes)


def _chosen(models: Sequence[Model], sources: Sources, traces: Sequence[Trace], most: int) -> _Chosen:
    """Which examples are shown: fewer where their attention would be too large for a page."""
    model, *others = models
    judged = list[Assessment]()
    if sources.paired:
        outputs = (each.ready.trace(sources.examples) for each in others)
        judged = [assessed(model, sources, traces), *map(assessed, others, repeat(sources), outputs)]
    numbers, words = _picked(judged, traces, most)
    cells = sum(_room(traces[number]) for number in numbers)
    if cells > CELLS:
        numbers, words = _picked(judged, traces, max(1, int(len(numbers) * CELLS / cells)))
        words += "; more would make the page too large"
    if not judged:
        return _Chosen(numbers, words, [None] * len(models), None)
    places = {number: place for place, number in enumerate(numbers)}
    truth = [_truth(sources, trace, each) for trace, each in zip(traces, judged[0].scored, strict=True)]
    found = corpus(judged[0], places, alignment(model.ready, traces, truth, model.alone))
    return _Chosen(numbers, words, [*judged], found)


def _room(trace: Trace) -> int:
    """How much of a page an output takes, in weights."""
    return TAG * len(trace.target) if trace.per_position else trace.attention.size


def _truth(sources: Sources, trace: Trace, scored: Scored) -> list[tuple[int, int]] | None:
    """Where an output's symbols come from, where the file tells it."""
    return origins(trace, scored.output, scored.reference) if sources.spelled else None


def _picked(judged: Sequence[Assessment], traces: Sequence[Trace], most: int) -> tuple[list[int], str]:
    """Which examples are shown, by their scores where they have targets."""
    if judged:
        first, *others = [each.scored for each in judged]
        return choose(first, most, others)
    numbers = evenly(range(len(traces)), most)
    words = f"{len(numbers):,} of {len(traces):,} sources, drawn evenly from the file"
    return numbers, words if len(numbers) < len(traces) else f"all {len(traces):,} sources"


def _listed(transducer: Predictor, sources: Sources, numbers: Sequence[int]) -> list[tuple[Item, Trace]]:
    """The items of some examples, each with its first output."""
    examples = [sources.examples[number] for number in numbers]
    outputs = _outputs(transducer, examples)
    listed = items(transducer, [sources.known[number] for number in numbers], outputs)
    return [(item, own[0]) for item, own in zip(listed, outputs, strict=True)]


def _items(transducer: Predictor, sources: Sources, numbers: Sequence[int]) -> list[Item]:
    """The items of some examples."""
    return [item for item, _ in _listed(transducer, sources, numbers)]


def _outputs(transducer: Predictor, examples: Sequence[Example]) -> list[list[Trace]]:
    """The outputs of each example: one where search is greedy, else all of the beam, and in the first its lattice."""
    width = transducer.config.search.beam_size
    if width == 1:
        return [[trace] for trace in transducer.trace(examples)]
    found = transducer.with_options(Options(lattice=True)).hypotheses(examples, width)
    return [slim(outputs) for outputs in found]


def slim(outputs: Sequence[Trace]) -> list[Trace]:
    """Outputs of which only the first holds the lattice, which they share."""
    first, *others = outputs
    return [first, *(replace(each, lattice=None) for each in others)]
