import pytest

from pellucid.evaluation.label_metrics import Chunk, chunk_metrics_for_log, extract_chunks, has_chunks, score_chunks
from pellucid.evaluation.metrics import ScoredExample


def build_scored_example(output: str, reference: str) -> ScoredExample:
    return ScoredExample(tuple(output.split()), (tuple(reference.split()),), len(reference.split()), positional=True)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-a", [(0, 1, "a")]),
        ("B-a I-a O", [(0, 2, "a")]),
        ("B-a B-a", [(0, 1, "a"), (1, 2, "a")]),
        ("O I-a I-a", [(1, 3, "a")]),
        ("I-a I-b", [(0, 1, "a"), (1, 2, "b")]),
        ("B-a I-b I-b", [(0, 1, "a"), (1, 3, "b")]),
        ("B-a O I-a", [(0, 1, "a"), (2, 3, "a")]),
        ("B-a I-a B-a I-a", [(0, 2, "a"), (2, 4, "a")]),
        ("PlayMusic B-x-y I-x-y", [(1, 3, "x-y")]),
        ("B I O", [(0, 2, "")]),
    ],
)
def test_chunks_equal_those_of_conlleval(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert extract_chunks(tags.split()) == {Chunk(*each) for each in expected}


def test_rates_are_over_all_chunks_together() -> None:
    """Counts by hand: 5 reference chunks, and 4 predicted chunks of which 2 have the correct span and type."""
    scores = score_chunks(
        [
            build_scored_example("B-a I-a O B-b", "B-a I-a O B-b"),  # 2 of 2 predicted are correct, 2 in the reference
            build_scored_example("B-a O O", "B-a I-a O"),  # wrong end: 0 of 1 predicted, 1 in the reference
            build_scored_example("O O B-b", "B-c O B-a"),  # wrong type: 0 of 1 predicted, 2 in the reference
        ]
    )
    assert (scores.num_correct, scores.num_predicted, scores.num_reference) == (2, 4, 5)
    assert (scores.precision, scores.recall) == (50.0, 40.0) and scores.f1 == pytest.approx(100 * 4 / 9)
    assert scores.f1_ci95.low <= scores.f1 <= scores.f1_ci95.high


def test_without_any_chunk_all_rates_are_zero() -> None:
    scores = score_chunks([build_scored_example("O O", "O O")])
    assert (scores.precision, scores.recall, scores.f1) == (0.0, 0.0, 0.0)
    assert not has_chunks(["O", "H", "I-x"]) and has_chunks(["O", "B-x"])


def test_the_training_log_has_the_same_span_f1() -> None:
    rows = [
        build_scored_example("B-a I-a O B-b", "B-a I-a O B-b"),
        build_scored_example("B-a O O", "B-a I-a O"),
        build_scored_example("O O B-b", "B-c O B-a"),
    ]
    assert chunk_metrics_for_log(rows) == {"span_f1": score_chunks(rows).f1}
    assert chunk_metrics_for_log([build_scored_example("O B-a", "O B-a"), build_scored_example("O", "O")]) == {
        "span_f1": 100.0
    }
    assert (
        chunk_metrics_for_log([build_scored_example("B-a O", "O O")])
        == {}
        == chunk_metrics_for_log([build_scored_example("H E", "H C")])
    )


def test_sentences_without_chunks_do_not_widen_the_interval() -> None:
    """The only chunk is correct: resamples with it have an F1 of 100, and those without it have none."""
    scores = score_chunks([build_scored_example("O B-a", "O B-a"), *[build_scored_example("O", "O")] * 19])
    assert (scores.f1, *scores.f1_ci95) == (100.0, 100.0, 100.0)
