"""Assessments of outputs in blocks: equal to one assessment of all, with memory of a few bytes for each example."""

import random
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from sample_traces import make_diagonal_trace
from test_assessment import ROWS, build_assessment, decoded_examples, tokenizers

from pellucid.data.examples import Example
from pellucid.decoding.trace import END
from pellucid.evaluation import metrics
from pellucid.evaluation.assessment import (
    Assessment,
    AssessmentBuilder,
    DecodedExamples,
    assess_outputs,
    compare_runs,
    keep_listed,
)
from pellucid.evaluation.output_counts import OutputCounts
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS

MAX_BYTES = 100
"""Bound of the memory of each example, in bytes."""
NUM_LISTED = 3


def build_in_blocks(rows: Sequence[Sequence[tuple[str, ...]]], ends: Sequence[int], count: int) -> list[Assessment]:
    """Assess the outputs of several runs in blocks, of which those that are not listed are dropped."""
    builders = [
        AssessmentBuilder(f"run {number}", tokenizers(), tokenizers(), ERROR_RATE_METRICS, texts=True)
        for number in range(len(rows))
    ]
    for start, end in pairwise([0, *ends]):
        for builder, run_rows in zip(builders, rows, strict=True):
            groups = ["p" if index % 3 else "q" for index in range(start, end)]
            builder.add(decoded_examples(run_rows[start:end], groups))
        keep_listed(builders, count)
    return [builder.build() for builder in builders]


def make_rows(count: int, seed: int) -> list[tuple[str, ...]]:
    """Return references, the same for all seeds, with outputs that are right or wrong."""
    texts, generator = random.Random(0), random.Random(seed)
    rows = list[tuple[str, ...]]()
    for _ in range(count):
        reference = "".join(texts.choices("abc", k=texts.randint(1, 5)))
        rows.append((reference, reference if generator.random() < 0.6 else generator.choice("abcd") + reference[:-1]))
    return rows


def test_a_long_list_of_outputs_is_counted() -> None:
    """Regression test: ranks were numbers of 16 bits."""
    builder = AssessmentBuilder("run", tokenizers(), tokenizers(), ERROR_RATE_METRICS)
    right, wrong = builder.add(decoded_examples([("a", "a"), ("a", "b")], ["", ""]))
    counts = OutputCounts(None, with_texts=False)
    counts.add([wrong._replace(candidates=[*[wrong.scored] * 40_000, right.scored])])
    assert [block.tolist() for block in counts.ranks()] == [[40_001]]


def test_blocks_equal_one_block() -> None:
    rows = [make_rows(40, 1), make_rows(40, 2), make_rows(40, 3)]
    whole, parts = build_in_blocks(rows, [40], NUM_LISTED), build_in_blocks(rows, [1, 7, 8, 30, 40], NUM_LISTED)
    for one, other in zip(whole, parts, strict=True):
        assert one.to_dict() == other.to_dict() and one.outputs.keys() == other.outputs.keys()
        listed = one.worst_examples(NUM_LISTED)
        assert len(listed) == NUM_LISTED and listed == other.worst_examples(NUM_LISTED)
        assert [one.error_record(index) for index in listed] == [other.error_record(index) for index in listed]
    assert compare_runs(*whole[:2]) == compare_runs(*parts[:2])


def test_outputs_on_a_list_are_kept_and_others_are_dropped() -> None:
    rows = [make_rows(200, 1), make_rows(200, 2), make_rows(200, 3)]
    runs = build_in_blocks(rows, [50, 60, 150, 200], NUM_LISTED)
    listed = {index for run in runs for index in run.worst_examples(NUM_LISTED)}
    for other in runs[1:]:
        for one, opponent in ((runs[0], other), (other, runs[0])):
            indices = one.exclusively_right(opponent, NUM_LISTED)
            assert len(one.exclusively_right(opponent, 200)) > len(indices) == NUM_LISTED
            listed.update(indices)
    for run, run_rows in zip(runs, rows, strict=True):
        assert set(run.outputs) == listed
        assert all(run.outputs[index].trace.output == run_rows[index][1] for index in listed)
        with pytest.raises(KeyError):
            _ = run.scored


def test_without_lists_no_output_is_kept() -> None:
    (run,) = build_in_blocks([[*ROWS]], [2, 4], 0)
    assert not run.outputs and run.evaluation == build_assessment(ROWS).evaluation


def test_rows_that_are_counted_in_blocks_equal_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(1).integers(0, 4, size=(100, 3)).astype(np.int32)
    rows, counts = np.unique(table, axis=0, return_counts=True)
    for size in (1000, 7):
        monkeypatch.setattr(metrics, "BLOCK_ROWS", size)
        actual_rows, actual_counts = metrics.count_distinct_rows(table)
        np.testing.assert_array_equal(actual_rows, rows)
        np.testing.assert_array_equal(actual_counts, counts)


def test_memory_of_an_example_is_bounded() -> None:
    """Regression test: traces with their attention, examples and scored symbols were kept, 5 KB for each example."""
    trace = make_diagonal_trace(tuple("abcdefgh"), (*"abcdefgx", END))
    block = DecodedExamples([Example("abcdefgh", "abcdefgh")] * 500, [("abcdefgh",)] * 500, [""] * 500, [[trace]] * 500)

    def measure(num_blocks: int) -> int:
        """Return the bytes that an assessment of so many blocks takes."""
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        builder = AssessmentBuilder("run", tokenizers(), tokenizers(), ERROR_RATE_METRICS)
        for _ in range(num_blocks):
            builder.add(block)
            keep_listed([builder], 10)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(builder.counts) == 500 * num_blocks
        return after - before

    measure(1)  # imports and caches
    assert (measure(12) - measure(4)) / (8 * 500) < MAX_BYTES
    assert assess_outputs("run", block, tokenizers(), tokenizers(), ERROR_RATE_METRICS).counts.best.count_wrong() == 500
    assert np.isfinite(trace.score)
