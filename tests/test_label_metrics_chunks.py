import pytest

from pellucid.evaluation.label_metrics import Chunk, chunk_metrics_for_log, extract_chunks, has_chunks, score_chunks
from pellucid.evaluation.metrics import ScoredExample


def scored(output: str, reference: str) -> ScoredExample:
    return ScoredExample(tuple(output.split()), (tuple(reference.split()),), len(reference.split()), positional=True)


@pytest.mark.parametrize(
    ("tags", "found"),
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
def test_chunks_equal_those_of_conlleval(tags: str, found: list[tuple[int, int, str]]) -> None:
    assert extract_chunks(tags.split()) == {Chunk(*each) for each in found}


def test_rates_are_over_all_chunks_together() -> None:
    """Worked by hand: 5 chunks wanted, 4 found, 2 of them in their place and of their type."""
    found = score_chunks(
        [
            scored("B-a I-a O B-b", "B-a I-a O B-b"),  # 2 right of 2 found, 2 wanted
            scored("B-a O O", "B-a I-a O"),  # its end is wrong: 0 of 1, 1 wanted
            scored("O O B-b", "B-c O B-a"),  # its type is wrong: 0 of 1, 2 wanted
        ]
    )
    assert (found.num_correct, found.num_predicted, found.num_reference) == (2, 4, 5)
    assert (found.precision, found.recall) == (50.0, 40.0) and found.f1 == pytest.approx(100 * 4 / 9)
    assert found.f1_ci95.low <= found.f1 <= found.f1_ci95.high


def test_without_any_chunk_all_rates_are_zero() -> None:
    found = score_chunks([scored("O O", "O O")])
    assert (found.precision, found.recall, found.f1) == (0.0, 0.0, 0.0)
    assert not has_chunks(["O", "H", "I-x"]) and has_chunks(["O", "B-x"])


def test_the_training_log_has_the_same_span_f1() -> None:
    rows = [scored("B-a I-a O B-b", "B-a I-a O B-b"), scored("B-a O O", "B-a I-a O"), scored("O O B-b", "B-c O B-a")]
    assert chunk_metrics_for_log(rows) == {"span_f1": score_chunks(rows).f1}
    assert chunk_metrics_for_log([scored("O B-a", "O B-a"), scored("O", "O")]) == {"span_f1": 100.0}
    assert chunk_metrics_for_log([scored("B-a O", "O O")]) == {} == chunk_metrics_for_log([scored("H E", "H C")])


def test_sentences_without_chunks_do_not_widen_the_interval() -> None:
    """The one chunk is right: no resample has an F1 below 100, and those without it have none."""
    found = score_chunks([scored("O B-a", "O B-a"), *[scored("O", "O")] * 19])
    assert (found.f1, *found.f1_ci95) == (100.0, 100.0, 100.0)
