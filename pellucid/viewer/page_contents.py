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
from pellucid.version import __version__
from pellucid.viewer.corpus_statistics import (
    accuracy_intervals,
    assess_run,
    attention_statistics,
    corpus_statistics,
    score_statistics,
)
from pellucid.viewer.examples import gold_alignment, page_examples
from pellucid.viewer.inputs import ViewedFile, ViewedRun, model_card, sample_with_ends, select_examples
from pellucid.viewer.schema import ComparedRun, CorpusStatistics, PageContents, PageExample
from pellucid.viewer.states import FittedProjections, add_states, project_states
from pellucid.viewer.training_history import training_history, unfinished_best_update


def compared_run(
    model: ViewedRun, examples: list[PageExample], assessment: Assessment | None, first_assessment: Assessment | None
) -> ComparedRun:
    """Return the data of a compared run for the page: model card, outputs, log and scores.

    Args:
        model: Compared run.
        examples: Its outputs for the shown examples, in their order.
        assessment: Its assessment on the whole file; None if the file has no targets, and then there are no scores.
        first_assessment: Assessment of the first run on the same file, with which outcomes are paired; None likewise.

    Raises:
        RunError: The list of members of an ensemble cannot be read.
    """
    log = [] if model.is_ensemble else model.log.records
    if first_assessment is None or assessment is None:
        return ComparedRun(card=model_card(model), examples=examples, log=log)
    positions, lengths = accuracy_intervals(assessment, {})
    return ComparedRun(
        card=model_card(model),
        examples=examples,
        outcomes=paired_outcomes(
            [example.exact for example in first_assessment.scored], [example.exact for example in assessment.scored]
        ),
        num_differing=sum(
            first_trace.output != other_trace.output
            for first_trace, other_trace in zip(first_assessment.traces, assessment.traces, strict=True)
        ),
        scores=score_statistics(assessment),
        positions=positions,
        lengths=lengths,
        log=log,
    )


def paired_outcomes(first: Sequence[bool], other: Sequence[bool]) -> tuple[int, int, int, int]:
    """Count the examples by their correctness in two runs.

    Args:
        first: Correctness of each example in the first run.
        other: Correctness of each example in the other run.

    Returns:
        Numbers of examples correct in both runs, in the first only, in the other only, in neither.
    """
    both = sum(first_correct and other_correct for first_correct, other_correct in zip(first, other, strict=True))
    return both, sum(first) - both, sum(other) - both, len(first) - sum(first) - sum(other) + both


MAX_WEIGHTS = 3_000_000
"""Maximum total number of attention weights of the shown outputs: 16 MB of a page."""


WEIGHTS_PER_TAG = 32
"""Size of a tag with its candidates, in weights; a tag has no attention weights."""


class PageData(NamedTuple):
    """Contents of the page, and the data that the server needs to answer its requests."""

    contents: PageContents
    runs: list[ViewedRun]
    """Shown run, then the compared runs."""
    traces: list[Trace]
    """Best output of the first run for every example of the file; empty without a file."""
    page_indices: Mapping[int, int]
    """Indices of the shown examples on the page, by their index in the file."""
    projections: FittedProjections | None
    """Projection of the first run's states; None if it has none (an ensemble, or not autoregressive)."""


class _Selection(NamedTuple):
    """Selected examples, with a description and the statistics of the whole file."""

    file_indices: list[int]
    """Indices of the selected examples in the file."""
    description: str
    assessments: list[Assessment | None]
    """Assessment of each run on the whole file; None if the file has no targets."""
    corpus: CorpusStatistics | None


def assemble_page(
    models: Sequence[ViewedRun], sources: Sequence[ViewedFile], max_examples: int, served: bool, pending_file: str = ""
) -> PageData:
    """Decode and score a file with all runs, and return the data of the page: run, training, examples, comparisons.

    Args:
        models: Shown run, then the compared runs; all have the same task.
        sources: Example files, of which the first is used; empty for a page without examples.
        max_examples: Maximum number of shown examples. Fewer are shown if their attention weights would make the page
            too large (`MAX_WEIGHTS`).
        served: Whether a server answers requests of the page; a page without a server holds all details itself.
        pending_file: Name of the example file, shown while the run has no model yet; "" if there is none.

    Raises:
        RunError: A run has no model yet, except the first; or a snapshot or another file of a run is damaged.
        ConfigError: The saved configuration of a run is not valid.
    """
    first = models[0]
    history = None if first.is_ensemble else training_history(first)
    card = model_card(first)
    contents = PageContents(
        version=__version__,
        tasks={card.task: get_task(card.task).view},
        title=visible_text(first.name),
        served=served,
        page_id=token_hex(8) if served else "",
        card=card,
        training=history,
        update=unfinished_best_update(history),
    )
    empty = PageData(contents, list(models), [], {}, None)
    if first.predictor is None:
        return empty._replace(contents=_without_model(contents, pending_file))
    if not sources:
        compared_runs = [ComparedRun(card=model_card(model), examples=[]) for model in models[1:]]
        return empty._replace(contents=msgspec.structs.replace(contents, compared_runs=compared_runs))
    return _with_examples(empty, first.predictor, sources[0], max_examples)


def _without_model(contents: PageContents, file: str) -> PageContents:
    """Return contents for a run that has no model yet."""
    name = visible_text(file)
    examples = f"the examples of {name}" if file else "examples"
    note = f"No model yet. The page will show {examples} after the first validation (see Training)."
    title = f"{contents.title} on {name}" if file else contents.title
    return msgspec.structs.replace(contents, title=title, selection_note=note, awaiting_model=True)


def _with_examples(empty: PageData, predictor: Predictor, sources: ViewedFile, max_examples: int) -> PageData:
    """Add the examples of a file."""
    first, *others = empty.runs
    traces = predictor.predict_examples(sources.examples)
    selection = _select_and_score(empty.runs, sources, traces, max_examples)
    page_indices = {file_index: page_index for page_index, file_index in enumerate(selection.file_indices)}
    projected = project_states(predictor, traces, page_indices) if first.supports_states else None
    projections = projected[1] if projected else None
    examples = _examples_with_traces(predictor, sources, selection.file_indices)
    contents = msgspec.structs.replace(
        empty.contents,
        title=visible_text(f"{first.name} on {sources.name}"),
        examples=add_states(first, examples, projections, exported=not empty.contents.served),
        num_examples=len(sources.examples),
        selection_note="; ".join(part for part in (selection.description, sources.note) if part),
        corpus=selection.corpus,
        state_space=projected[0] if projected else None,
        compared_runs=[
            compared_run(
                other,
                _decode_examples(other.loaded_predictor, sources, selection.file_indices),
                assessment,
                selection.assessments[0],
            )
            for other, assessment in zip(others, selection.assessments[1:], strict=True)
        ],
    )
    return PageData(contents, empty.runs, traces, page_indices, projections)


def _select_and_score(
    models: Sequence[ViewedRun], sources: ViewedFile, traces: Sequence[Trace], max_examples: int
) -> _Selection:
    """Score all runs and select the shown examples; fewer if their attention weights would make the page too large."""
    model, *others = models
    assessments = list[Assessment]()
    if sources.has_targets:
        outputs = (other.loaded_predictor.predict_examples(sources.examples) for other in others)
        assessments = [assess_run(model, sources, traces), *map(assess_run, others, repeat(sources), outputs)]
    file_indices, description = _select(assessments, traces, max_examples)
    num_weights = sum(_num_weights(traces[index]) for index in file_indices)
    if num_weights > MAX_WEIGHTS:
        file_indices, description = _select(
            assessments, traces, max(1, int(len(file_indices) * MAX_WEIGHTS / num_weights))
        )
        description += "; more would make the page too large"
    if not assessments:
        return _Selection(file_indices, description, [None] * len(models), None)
    page_indices = {file_index: page_index for page_index, file_index in enumerate(file_indices)}
    gold_alignments = [
        _gold_alignment(sources, trace, other) for trace, other in zip(traces, assessments[0].scored, strict=True)
    ]
    corpus = corpus_statistics(
        assessments[0],
        page_indices,
        attention_statistics(model.loaded_predictor, traces, gold_alignments, model.supports_states),
    )
    return _Selection(file_indices, description, [*assessments], corpus)


def _num_weights(trace: Trace) -> int:
    """Return the number of attention weights that an output adds to the page."""
    return WEIGHTS_PER_TAG * len(trace.target) if trace.per_position else trace.attention.size


def _gold_alignment(sources: ViewedFile, trace: Trace, scored: ScoredExample) -> list[tuple[int, int]] | None:
    """Return the gold alignment of an output, if the file determines it."""
    return gold_alignment(trace, scored.output, scored.reference) if sources.is_spelled else None


def _select(assessments: Sequence[Assessment], traces: Sequence[Trace], max_examples: int) -> tuple[list[int], str]:
    """Select the shown examples, by their scores if they have targets."""
    if assessments:
        first, *others = [assessment.scored for assessment in assessments]
        return select_examples(first, max_examples, others)
    file_indices = sample_with_ends(range(len(traces)), max_examples)
    if len(file_indices) < len(traces):
        return file_indices, f"{len(file_indices):,} of {len(traces):,} sources, sampled evenly from the file"
    return file_indices, f"all {len(traces):,} sources" if len(traces) != 1 else "one source"


def _examples_with_traces(
    predictor: Predictor, sources: ViewedFile, file_indices: Sequence[int]
) -> list[tuple[PageExample, Trace]]:
    """Decode some examples; return each with its first output."""
    examples = [sources.examples[index] for index in file_indices]
    outputs = _decode_outputs(predictor, examples)
    page_items = page_examples(predictor, [sources.metadata[index] for index in file_indices], outputs)
    return [(item, traces[0]) for item, traces in zip(page_items, outputs, strict=True)]


def _decode_examples(predictor: Predictor, sources: ViewedFile, file_indices: Sequence[int]) -> list[PageExample]:
    """Decode some examples."""
    return [example for example, _ in _examples_with_traces(predictor, sources, file_indices)]


def _decode_outputs(predictor: Predictor, examples: Sequence[Example]) -> list[list[Trace]]:
    """Return the outputs of each example: one for labels and greedy search, else the beam, whose first has the tree."""
    beam_size = predictor.config.search.beam_size if predictor.autoregressive else 1
    if beam_size == 1:
        return [[trace] for trace in predictor.predict_examples(examples)]
    outputs_per_example = predictor.with_options(DecodingOptions(search_tree=True)).nbest_examples(examples, beam_size)
    return [keep_first_search_tree(outputs) for outputs in outputs_per_example]


def keep_first_search_tree(outputs: Sequence[Trace]) -> list[Trace]:
    """Return the outputs of one source, of which only the first keeps the search tree that they share.

    Args:
        outputs: Outputs of one source, best first; at least one.
    """
    first, *others = outputs
    return [first, *(replace(trace, search_tree=None) for trace in others)]
