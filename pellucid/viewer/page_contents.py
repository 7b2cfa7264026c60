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
from pellucid.viewer.corpus_statistics import (
    accuracy_intervals,
    assess_outputs,
    attention_statistics,
    corpus_statistics,
    score_statistics,
)
from pellucid.viewer.examples import gold_alignment, page_examples
from pellucid.viewer.inputs import ExampleFile, ViewedRun, model_card, sample_evenly, select_examples
from pellucid.viewer.schema import ComparedRun, CorpusStatistics, PageContents, PageExample
from pellucid.viewer.states import FittedProjections, add_states, project_states
from pellucid.viewer.training_history import best_checkpoint_update, training_history


def compared_run(
    model: ViewedRun, items: list[PageExample], judged: Assessment | None, first: Assessment | None
) -> ComparedRun:
    """A run beside the first: where the file has targets, both are judged on all its examples."""
    log = read_log(model.folder) if members(model.folder) == [model.folder] else []
    if first is None or judged is None:
        return ComparedRun(card=model_card(model), examples=items, log=log)
    positions, lengths = accuracy_intervals(judged, {})
    return ComparedRun(
        card=model_card(model),
        examples=items,
        outcomes=paired_outcomes([each.exact for each in first.scored], [each.exact for each in judged.scored]),
        num_differing=sum(one.output != two.output for one, two in zip(first.traces, judged.traces, strict=True)),
        scores=score_statistics(judged),
        positions=positions,
        lengths=lengths,
        log=log,
    )


def paired_outcomes(first: Sequence[bool], other: Sequence[bool]) -> tuple[int, int, int, int]:
    """How many examples both have right, the first alone, the other alone, and neither."""
    both = sum(one and two for one, two in zip(first, other, strict=True))
    return both, sum(first) - both, sum(other) - both, len(first) - sum(first) - sum(other) + both


MAX_WEIGHTS = 3_000_000
"""Weights of attention that the outputs shown hold together, at most: 16 MB of a page."""


WEIGHTS_PER_TAG = 32
"""As many of them a tag takes, with its likeliest others and what was wanted; its weights are not told."""


class PageData(NamedTuple):
    """What a page shows, and what questions about it need."""

    contents: PageContents
    models: list[ViewedRun]
    traces: list[Trace]
    """The best output of every example of the file."""
    places: Mapping[int, int]
    """Of an example's number its place among the items."""
    planes: FittedProjections | None


class _Selection(NamedTuple):
    """Which examples are shown, in words too; what holds for all of them."""

    numbers: list[int]
    words: str
    assessments: list[Assessment | None]
    """Of every run on the whole file; None where the file has no targets."""
    corpus: CorpusStatistics | None


def assemble_page(
    models: Sequence[ViewedRun], sources: Sequence[ExampleFile], most: int, served: bool, pending_file: str = ""
) -> PageData:
    """The contents of a page about the first of the models, on the sources' first file, if there is one.

    The other models are its rivals, on the same examples. At most `most` examples are shown. Where the first has no
    model yet, `pending_file` names the file that is shown once it has.
    """
    first = models[0]
    course = training_history(first.folder) if members(first.folder) == [first.folder] else None
    told = model_card(first)
    contents = PageContents(
        version=__version__,
        tasks={told.task: task_named(told.task).view},
        title=visible_text(first.name),
        served=served,
        page_id=token_hex(8) if served else "",
        card=told,
        training=course,
        update=best_checkpoint_update(course),
    )
    empty = PageData(contents, list(models), [], {}, None)
    if first.transducer is None:
        return empty._replace(contents=_without_model(contents, pending_file))
    if not sources:
        rivals = [ComparedRun(card=model_card(model), examples=[]) for model in models[1:]]
        return empty._replace(contents=msgspec.structs.replace(contents, compared_runs=rivals))
    return _with_examples(empty, first.transducer, sources[0], most)


def _without_model(contents: PageContents, file: str) -> PageContents:
    """The same, told that there is no model yet, and what comes with it."""
    name = visible_text(file)
    examples = f"the examples of {name}" if file else "examples"
    told = f"No model yet: it comes with the first validation (see Training), and {examples} with it."
    title = f"{contents.title} on {name}" if file else contents.title
    return msgspec.structs.replace(contents, title=title, selection_note=told, awaiting_model=True)


def _with_examples(empty: PageData, transducer: Predictor, sources: ExampleFile, most: int) -> PageData:
    """The same with the examples of a file."""
    first, *others = empty.models
    traces = transducer.trace(sources.examples)
    chosen = _select_and_score(empty.models, sources, traces, most)
    places = {number: place for place, number in enumerate(chosen.numbers)}
    found = project_states(transducer, traces, places) if first.alone else None
    planes = found[1] if found else None
    listed = _examples_with_traces(transducer, sources, chosen.numbers)
    contents = msgspec.structs.replace(
        empty.contents,
        title=visible_text(f"{first.name} on {sources.name}"),
        examples=add_states(first, listed, planes, kept=not empty.contents.served),
        num_examples=len(sources.examples),
        selection_note="; ".join(each for each in (chosen.words, sources.left_out) if each),
        corpus=chosen.corpus,
        state_space=found[0] if found else None,
        compared_runs=[
            compared_run(each, _decode_examples(each.ready, sources, chosen.numbers), judged, chosen.assessments[0])
            for each, judged in zip(others, chosen.assessments[1:], strict=True)
        ],
    )
    return PageData(contents, empty.models, traces, places, planes)


def _select_and_score(
    models: Sequence[ViewedRun], sources: ExampleFile, traces: Sequence[Trace], most: int
) -> _Selection:
    """Which examples are shown: fewer where their attention would be too large for a page."""
    model, *others = models
    judged = list[Assessment]()
    if sources.paired:
        outputs = (each.ready.trace(sources.examples) for each in others)
        judged = [assess_outputs(model, sources, traces), *map(assess_outputs, others, repeat(sources), outputs)]
    numbers, words = _select(judged, traces, most)
    cells = sum(_num_weights(traces[number]) for number in numbers)
    if cells > MAX_WEIGHTS:
        numbers, words = _select(judged, traces, max(1, int(len(numbers) * MAX_WEIGHTS / cells)))
        words += "; more would make the page too large"
    if not judged:
        return _Selection(numbers, words, [None] * len(models), None)
    places = {number: place for place, number in enumerate(numbers)}
    truth = [_gold_alignment(sources, trace, each) for trace, each in zip(traces, judged[0].scored, strict=True)]
    found = corpus_statistics(judged[0], places, attention_statistics(model.ready, traces, truth, model.alone))
    return _Selection(numbers, words, [*judged], found)


def _num_weights(trace: Trace) -> int:
    """How much of a page an output takes, in weights."""
    return WEIGHTS_PER_TAG * len(trace.target) if trace.per_position else trace.attention.size


def _gold_alignment(sources: ExampleFile, trace: Trace, scored: Scored) -> list[tuple[int, int]] | None:
    """Where an output's symbols come from, where the file tells it."""
    return gold_alignment(trace, scored.output, scored.reference) if sources.spelled else None


def _select(judged: Sequence[Assessment], traces: Sequence[Trace], most: int) -> tuple[list[int], str]:
    """Which examples are shown, by their scores where they have targets."""
    if judged:
        first, *others = [each.scored for each in judged]
        return select_examples(first, most, others)
    numbers = sample_evenly(range(len(traces)), most)
    words = f"{len(numbers):,} of {len(traces):,} sources, drawn evenly from the file"
    return numbers, words if len(numbers) < len(traces) else f"all {len(traces):,} sources"


def _examples_with_traces(
    transducer: Predictor, sources: ExampleFile, numbers: Sequence[int]
) -> list[tuple[PageExample, Trace]]:
    """The items of some examples, each with its first output."""
    examples = [sources.examples[number] for number in numbers]
    outputs = _decode_outputs(transducer, examples)
    listed = page_examples(transducer, [sources.known[number] for number in numbers], outputs)
    return [(item, own[0]) for item, own in zip(listed, outputs, strict=True)]


def _decode_examples(transducer: Predictor, sources: ExampleFile, numbers: Sequence[int]) -> list[PageExample]:
    """The items of some examples."""
    return [item for item, _ in _examples_with_traces(transducer, sources, numbers)]


def _decode_outputs(transducer: Predictor, examples: Sequence[Example]) -> list[list[Trace]]:
    """The outputs of each example: one where search is greedy, else all of the beam, and in the first its lattice."""
    width = transducer.config.search.beam_size
    if width == 1:
        return [[trace] for trace in transducer.trace(examples)]
    found = transducer.with_options(Options(lattice=True)).hypotheses(examples, width)
    return [keep_first_lattice(outputs) for outputs in found]


def keep_first_lattice(outputs: Sequence[Trace]) -> list[Trace]:
    """Outputs of which only the first holds the lattice, which they share."""
    first, *others = outputs
    return [first, *(replace(each, lattice=None) for each in others)]
