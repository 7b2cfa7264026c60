"""Assembly of the page's contents from runs and a file of examples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from secrets import token_hex
from typing import NamedTuple

import msgspec

from pellucid.data.examples import Example
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.metrics import ScoredExample
from pellucid.reporting.display_text import visible_text
from pellucid.tasks.registry import get_task
from pellucid.training.run_folder import members, read_log
from pellucid.version import __version__
from pellucid.viewer.corpus_statistics import (
    accuracy_intervals,
    assess_run,
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
    """Return the data of a compared run; scores only if the file has targets.

    Args:
        model: Compared run.
        items: Its outputs for the shown examples.
        judged: Its assessment on the whole file.
        first: Assessment of the first run.

    Returns:
        Compared run.
    """
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
    """Count paired outcomes.

    Args:
        first: Correctness of each example in the first run.
        other: Correctness of each example in the other run.

    Returns:
        Number of examples correct in both runs, in the first only, in the other only, in neither.
    """
    both = sum(one and two for one, two in zip(first, other, strict=True))
    return both, sum(first) - both, sum(other) - both, len(first) - sum(first) - sum(other) + both


MAX_WEIGHTS = 3_000_000
"""Maximum total number of attention weights of the shown outputs: 16 MB of a page."""


WEIGHTS_PER_TAG = 32
"""Size of a tag with its candidates, in weights; a tag has no attention weights."""


class PageData(NamedTuple):
    """Contents of the page, and the data that requests need."""

    contents: PageContents
    runs: list[ViewedRun]
    traces: list[Trace]
    """Best output of every example of the file."""
    places: Mapping[int, int]
    """Places of the shown examples by their index in the file."""
    projections: FittedProjections | None


class _Selection(NamedTuple):
    """Selected examples, with a description and the statistics of the whole file."""

    numbers: list[int]
    words: str
    assessments: list[Assessment | None]
    """Assessment of each run on the whole file; None if the file has no targets."""
    corpus: CorpusStatistics | None


def assemble_page(
    models: Sequence[ViewedRun], sources: Sequence[ExampleFile], max_examples: int, served: bool, pending_file: str = ""
) -> PageData:
    """Assemble the contents of a page.

    Args:
        models: Shown run, then the compared runs.
        sources: Example files, of which the first is used.
        max_examples: Maximum number of shown examples.
        served: Whether a server answers requests of the page.
        pending_file: Name of the file that is shown once the first run has a model.

    Returns:
        Page data.
    """
    first = models[0]
    course = training_history(first.folder) if members(first.folder) == [first.folder] else None
    told = model_card(first)
    contents = PageContents(
        version=__version__,
        tasks={told.task: get_task(told.task).view},
        title=visible_text(first.name),
        served=served,
        page_id=token_hex(8) if served else "",
        card=told,
        training=course,
        update=best_checkpoint_update(course),
    )
    empty = PageData(contents, list(models), [], {}, None)
    if first.predictor is None:
        return empty._replace(contents=_without_model(contents, pending_file))
    if not sources:
        rivals = [ComparedRun(card=model_card(model), examples=[]) for model in models[1:]]
        return empty._replace(contents=msgspec.structs.replace(contents, compared_runs=rivals))
    return _with_examples(empty, first.predictor, sources[0], max_examples)


def _without_model(contents: PageContents, file: str) -> PageContents:
    """Return contents for a run that has no model yet."""
    name = visible_text(file)
    examples = f"the examples of {name}" if file else "examples"
    told = f"No model yet. The page will show {examples} after the first validation (see Training)."
    title = f"{contents.title} on {name}" if file else contents.title
    return msgspec.structs.replace(contents, title=title, selection_note=told, awaiting_model=True)


def _with_examples(empty: PageData, predictor: Predictor, sources: ExampleFile, max_examples: int) -> PageData:
    """Add the examples of a file."""
    first, *others = empty.runs
    traces = predictor.trace(sources.examples)
    chosen = _select_and_score(empty.runs, sources, traces, max_examples)
    places = {number: place for place, number in enumerate(chosen.numbers)}
    found = project_states(predictor, traces, places) if first.supports_states else None
    projections = found[1] if found else None
    listed = _examples_with_traces(predictor, sources, chosen.numbers)
    contents = msgspec.structs.replace(
        empty.contents,
        title=visible_text(f"{first.name} on {sources.name}"),
        examples=add_states(first, listed, projections, kept=not empty.contents.served),
        num_examples=len(sources.examples),
        selection_note="; ".join(each for each in (chosen.words, sources.note) if each),
        corpus=chosen.corpus,
        state_space=found[0] if found else None,
        compared_runs=[
            compared_run(
                each, _decode_examples(each.loaded_predictor, sources, chosen.numbers), judged, chosen.assessments[0]
            )
            for each, judged in zip(others, chosen.assessments[1:], strict=True)
        ],
    )
    return PageData(contents, empty.runs, traces, places, projections)


def _select_and_score(
    models: Sequence[ViewedRun], sources: ExampleFile, traces: Sequence[Trace], max_examples: int
) -> _Selection:
    """Score all runs and select the shown examples; fewer if their attention weights would make the page too large."""
    model, *others = models
    judged = list[Assessment]()
    if sources.has_targets:
        outputs = (each.loaded_predictor.trace(sources.examples) for each in others)
        judged = [assess_run(model, sources, traces), *map(assess_run, others, repeat(sources), outputs)]
    numbers, words = _select(judged, traces, max_examples)
    cells = sum(_num_weights(traces[number]) for number in numbers)
    if cells > MAX_WEIGHTS:
        numbers, words = _select(judged, traces, max(1, int(len(numbers) * MAX_WEIGHTS / cells)))
        words += "; more would make the page too large"
    if not judged:
        return _Selection(numbers, words, [None] * len(models), None)
    places = {number: place for place, number in enumerate(numbers)}
    truth = [_gold_alignment(sources, trace, each) for trace, each in zip(traces, judged[0].scored, strict=True)]
    found = corpus_statistics(
        judged[0], places, attention_statistics(model.loaded_predictor, traces, truth, model.supports_states)
    )
    return _Selection(numbers, words, [*judged], found)


def _num_weights(trace: Trace) -> int:
    """Return the number of attention weights that an output adds to the page."""
    return WEIGHTS_PER_TAG * len(trace.target) if trace.per_position else trace.attention.size


def _gold_alignment(sources: ExampleFile, trace: Trace, scored: ScoredExample) -> list[tuple[int, int]] | None:
    """Return the gold alignment of an output, if the file determines it."""
    return gold_alignment(trace, scored.output, scored.reference) if sources.is_spelled else None


def _select(judged: Sequence[Assessment], traces: Sequence[Trace], max_examples: int) -> tuple[list[int], str]:
    """Select the shown examples, by their scores if they have targets."""
    if judged:
        first, *others = [each.scored for each in judged]
        return select_examples(first, max_examples, others)
    numbers = sample_evenly(range(len(traces)), max_examples)
    words = f"{len(numbers):,} of {len(traces):,} sources, sampled evenly from the file"
    return numbers, words if len(numbers) < len(traces) else f"all {len(traces):,} sources"


def _examples_with_traces(
    predictor: Predictor, sources: ExampleFile, numbers: Sequence[int]
) -> list[tuple[PageExample, Trace]]:
    """Decode some examples; return each with its first output."""
    examples = [sources.examples[number] for number in numbers]
    outputs = _decode_outputs(predictor, examples)
    listed = page_examples(predictor, [sources.metadata[number] for number in numbers], outputs)
    return [(item, own[0]) for item, own in zip(listed, outputs, strict=True)]


def _decode_examples(predictor: Predictor, sources: ExampleFile, numbers: Sequence[int]) -> list[PageExample]:
    """Decode some examples."""
    return [item for item, _ in _examples_with_traces(predictor, sources, numbers)]


def _decode_outputs(predictor: Predictor, examples: Sequence[Example]) -> list[list[Trace]]:
    """Return the outputs of each example: one for greedy search, else the beam, with the search tree in the first."""
    width = predictor.config.search.beam_size
    if width == 1:
        return [[trace] for trace in predictor.trace(examples)]
    found = predictor.with_options(DecodingOptions(lattice=True)).hypotheses(examples, width)
    return [keep_first_lattice(outputs) for outputs in found]


def keep_first_lattice(outputs: Sequence[Trace]) -> list[Trace]:
    """Return outputs of which only the first holds the search tree that they share.

    Args:
        outputs: Outputs of one source.

    Returns:
        The same outputs.
    """
    first, *others = outputs
    return [first, *(replace(each, lattice=None) for each in others)]
