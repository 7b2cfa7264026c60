"""Pairs of an evaluation: their order, merged references, and ids."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from pellucid.data.examples import Example, ExampleFile
from pellucid.evaluation import evaluation_pairs
from pellucid.evaluation.evaluation_pairs import EvaluationPairs, RowIds, StoredPair


def ignore(note: str) -> None:
    """Ignore a note."""


def read_pairs(
    pairs: Sequence[tuple[str, ...]],
    groups: Sequence[str] | None = None,
    multi_reference: bool = False,
    block_size: int = 1000,
    report: Callable[[str], None] = ignore,
) -> list[tuple[Example, tuple[str, ...], str, int]]:
    """Return the examples of pairs that are read in blocks, with references, groups and lines."""
    read, examples = EvaluationPairs(multi_reference, "pairs"), [Example(*pair) for pair in pairs]
    all_groups = [""] * len(pairs) if groups is None else groups
    for first in range(0, len(pairs), block_size):
        block = examples[first : first + block_size]
        lines = list(range(first + 1, first + 1 + len(block)))
        read.add(ExampleFile(block, lines, [], 0), all_groups[first : first + block_size])
    read.arrange(report, str)
    rows = list[tuple[Example, tuple[str, ...], str, int]]()
    for chunk in read.chunks():
        assert chunk.outputs == [] and chunk.ids == ()
        rows += zip(chunk.examples, chunk.references, chunk.groups, chunk.lines, strict=True)
    return rows


PAIRS = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "1"), ("b", "2"), ("c", "1")]


@pytest.mark.parametrize("block_size", [1, 2, 1000])
def test_references_of_one_source_are_merged_in_order_without_duplicates(block_size: int) -> None:
    assert read_pairs(PAIRS, multi_reference=True, block_size=block_size) == [
        (Example("a", "1"), ("1", "3"), "", 1),
        (Example("b", "2"), ("2",), "", 2),
        (Example("c", "1"), ("1",), "", 6),
    ]


def test_sources_with_different_features_stay_separate() -> None:
    rows = read_pairs([("a", "1", "x"), ("a", "2", "y"), ("a", "3", "x")], multi_reference=True)
    assert [(references, line) for _, references, _, line in rows] == [(("1", "3"), 1), (("2",), 2)]


def test_groups_have_the_order_of_their_first_pairs() -> None:
    groups = ["q", "p", "q", "p", "p", "q"]
    rows = read_pairs(PAIRS, groups, block_size=4)
    assert [(group, line) for _, _, group, line in rows] == [("q", 1), ("q", 3), ("q", 6), ("p", 2), ("p", 4), ("p", 5)]
    merged = read_pairs(PAIRS, groups, multi_reference=True)
    assert [(group, line, references) for _, references, group, line in merged] == [
        ("q", 1, ("1", "3")),
        ("q", 6, ("1",)),
        ("p", 2, ("2",)),
        ("p", 4, ("1",)),
    ]


def test_sources_with_several_targets_are_noted() -> None:
    notes = list[str]()
    read_pairs(PAIRS, report=notes.append, block_size=2)
    (note,) = notes
    assert note.startswith("note: 1 further targets repeat the source of an earlier pair")
    read_pairs(PAIRS, report=notes.append, multi_reference=True)
    assert len(notes) == 1


def test_ids_are_found_by_line_also_where_rows_lack_one() -> None:
    ids = RowIds(iter([(2, "x"), (3, "y"), (7, "z")]))
    assert [ids.find(line) for line in (2, 4, 6, 7, 9)] == ["x", "", "", "z", ""]


class CountedText(str):
    """Text whose comparisons are counted."""

    num_comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedText.num_comparisons += 1
        return str.__eq__(self, other) is True

    __hash__ = str.__hash__


class CountedPairs:
    """Pairs in memory in place of those in a temporary file, whose reads are counted."""

    num_reads = 0

    def __init__(self, kind: type) -> None:
        self.kind, self.pairs = kind, list[StoredPair]()

    def __len__(self) -> int:
        return len(self.pairs)

    def extend(self, pairs: Iterable[StoredPair]) -> None:
        """Append pairs."""
        self.pairs.extend(pairs)

    def __getitem__(self, number: int) -> StoredPair:
        CountedPairs.num_reads += 1
        return self.pairs[number]


def test_many_targets_of_a_source_take_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair is read once, and its target is compared with an equal one only, not with all before it."""
    monkeypatch.setattr(evaluation_pairs, "RecordFile", CountedPairs)
    num_targets = 2000
    pairs = [("a", CountedText(number % num_targets)) for number in range(2 * num_targets)]
    CountedText.num_comparisons = CountedPairs.num_reads = 0
    [(_, targets, _, _)] = read_pairs(pairs, multi_reference=True)
    assert len(targets) == num_targets and CountedPairs.num_reads == len(pairs)
    assert num_targets <= CountedText.num_comparisons <= len(pairs)


def test_examples_without_groups_keep_their_order_in_chunks() -> None:
    rows = read_pairs([(f"{number}", "x") for number in range(3000)], block_size=700)
    assert [int(example.source) for example, _, _, _ in rows] == list(range(3000))
