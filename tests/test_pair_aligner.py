"""alignment/pair_aligner.py and alignment/types.py: pairs with known alignments, and the forms of an alignment."""

import json
from itertools import product

import pytest

from pellucid.alignment.pair_aligner import align_symbols
from pellucid.alignment.types import AlignedChunk, Alignment, ChunkLimits, no_alignment_reason
from pellucid.data.synthetic import digit_spans, make_typos, spelled_digits
from pellucid.errors import ArgumentError, ConfigError, DataError

WORDS = ("thing", "thin", "night", "knot", "nothing", "chip", "chin", "ship", "shin", "this", "that", "hat", "hit")
THIGH = Alignment(
    ("t", "h", "i", "g", "h"), ("θ", "aɪ"), (AlignedChunk(0, 2, 0, 1), AlignedChunk(2, 5, 1, 2)), -1.23456789
)


def test_spelled_digits_are_aligned_exactly() -> None:
    examples = spelled_digits(200, 1, 6, seed=1)
    pairs = [(list(example.source), list(example.target)) for example in examples]
    for pair, alignment in zip(pairs, align_symbols(pairs, ChunkLimits(6, 1, insertions=False)), strict=True):
        assert alignment is not None
        spans = digit_spans(pair[0], "".join(pair[1]))
        assert spans is not None
        expected = {(s, t) for t, (first, stop) in enumerate(spans) for s in range(first, stop)}
        assert {(s, t) for s, t in alignment.links if pair[0][s] != " "} == expected


def test_a_wrong_letter_is_aligned_with_the_right_one() -> None:
    typos = make_typos(WORDS, 4, set(WORDS), seed=1)
    alignments = align_symbols([(list(typo.wrong), list(typo.right)) for typo in typos], ChunkLimits(1, 1))
    diagonal = [alignment is not None and all(s == t for s, t in alignment.links) for alignment in alignments]
    assert sum(diagonal) >= 0.95 * len(typos)


def test_digraphs_become_chunks() -> None:
    parts = {"th": "θ", "sh": "ʃ", "t": "t", "h": "h", "s": "s", "i": "ɪ", "a": "a", "o": "ɒ", "n": "n", "p": "p"}
    consonants = [part for part in parts if part not in "aio"]
    words = list(product(consonants, "aio", consonants))
    found = align_symbols([(list("".join(word)), [parts[part] for part in word]) for word in words])
    expected = [" ".join(f"{'|'.join(part)}}}{parts[part]}" for part in word) for word in words]
    assert [alignment.to_phonetisaurus() for alignment in found if alignment] == expected


def test_pairs_without_an_alignment_keep_their_places() -> None:
    limits = ChunkLimits(insertions=False)
    pairs = [(["a"], list("xyz")), (list("ab"), list("xy")), ([], ["x"]), (list("abcdef"), [])]
    found = align_symbols(pairs, limits)
    assert [alignment is None for alignment in found] == [True, False, True, False]
    assert found[3] is not None and found[3].links == [] and len(found[3].chunks) == 6
    assert align_symbols([]) == [] and align_symbols(pairs[:1], limits) == [None]
    assert no_alignment_reason(1, 3, limits) == (
        "1 source and 3 target symbols cannot be divided into chunks of at most 2-1 or 1-2 symbols, without "
        "insertions, with deletions"
    )
    assert "of at most 2-2 symbols" in no_alignment_reason(1, 3, limits._replace(many_to_many=True))
    assert "of at most 1-2 symbols" in no_alignment_reason(1, 3, limits._replace(max_source=1))
    assert no_alignment_reason(2, 2, limits) == "" and "too long" in no_alignment_reason(10_000, 10_000, limits)


def test_alignments_are_the_same_each_time() -> None:
    pairs = [(list(word), list(word.upper())) for word in WORDS]
    assert align_symbols(pairs) == align_symbols(pairs)


def test_too_many_symbols_for_large_chunks_are_refused() -> None:
    pairs = [([f"s{number}"], [f"t{number}"]) for number in range(3000)]
    with pytest.raises(ConfigError, match=r"3,000 different source symbols .*: lower limits\.max_source"):
        align_symbols(pairs, ChunkLimits(16, 16))
    with pytest.raises(ArgumentError, match="limits"):
        align_symbols([(["a"], ["b"])], ChunkLimits(0, 1))


def test_forms_of_an_alignment() -> None:
    assert THIGH.symbols == [(("t", "h"), ("θ",)), (("i", "g", "h"), ("aɪ",))]
    assert THIGH.links == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)]
    assert THIGH.to_pharaoh() == "0-0 1-0 2-1 3-1 4-1"
    assert THIGH.to_phonetisaurus() == "t|h}θ i|g|h}aɪ"
    assert json.loads(THIGH.to_json()) == {
        "source": ["t", "h", "i", "g", "h"],
        "target": ["θ", "aɪ"],
        "chunks": [[0, 2, 0, 1], [2, 5, 1, 2]],
        "score": -1.234568,
    }
    changes = Alignment(("a",), ("b",), (AlignedChunk(0, 1, 0, 0), AlignedChunk(1, 1, 0, 1)), 0.0)
    assert changes.to_phonetisaurus() == "a}_ _}b" and changes.to_pharaoh() == ""


@pytest.mark.parametrize(
    ("symbol", "reason"),
    [
        ("a|b", "'|' separates symbols there"),
        ("}", "'}' separates symbols there"),
        ("_", "'_' stands for no symbol there"),
        (" ", "it contains white space"),
        ("", "it is empty"),
    ],
)
def test_symbols_that_phonetisaurus_cannot_read_are_refused(symbol: str, reason: str) -> None:
    alignment = Alignment((symbol,), ("b",), (AlignedChunk(0, 1, 0, 1),), 0.0)
    with pytest.raises(DataError) as error:
        alignment.to_phonetisaurus()
    assert str(error.value).endswith(f"cannot be written in the corpus format of Phonetisaurus: {reason}")
    assert json.loads(alignment.to_json())["source"] == [symbol]
