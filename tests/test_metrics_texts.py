"""Metrics of texts, compared with sacrebleu and with values by hand."""

import random

import pytest
import sacrebleu

from pellucid.errors import ArgumentError
from pellucid.evaluation.metrics import bleu, chrf, score_texts

WORDS = ["the", "cat", "sat", "on", "a", "mat", "it's", "red,", "and", "small."]


def make_texts(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(count)]


def test_bleu_and_chrf_equal_those_of_sacrebleu() -> None:
    outputs, one, other = make_texts(40, 1), make_texts(40, 1), make_texts(40, 3)
    one = [text if index % 3 else make_texts(1, index)[0] for index, text in enumerate(one)]
    references = [[a, b] for a, b in zip(one, other, strict=True)]
    assert bleu(outputs, references).score == pytest.approx(sacrebleu.corpus_bleu(outputs, [one, other]).score)
    assert chrf(outputs, references).score == pytest.approx(sacrebleu.corpus_chrf(outputs, [one, other]).score)
    signature = bleu(outputs, references).signature
    assert signature == f"nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert chrf(outputs, references).signature.startswith("nrefs:2|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_examples_may_have_different_numbers_of_references() -> None:
    outputs = ["the cat sat on a mat", "it's red, and small."]
    scores = score_texts(outputs, [["a cat", "the cat sat on a mat"], ["it's red, and small."]])
    assert scores.bleu.score == pytest.approx(100) and scores.chrf.score == pytest.approx(100)
    assert "nrefs:var" in scores.bleu.signature
    assert scores.word_error_rate == scores.character_error_rate == 0 and scores.words == 10


def test_word_error_rate_equals_a_value_by_hand() -> None:
    outputs = ["the cat sat", "a  mat", ""]
    scores = score_texts(outputs, [["the red, cat sat"], ["a mat", "a small. mat"], ["on"]])
    assert scores.words == 7 and scores.word_error_rate == pytest.approx(100 * 2 / 7)
    # Errors of characters: "red, " is missing, "a  mat" has one extra space, "on" is missing; of 16 + 5 + 2.
    assert scores.character_error_rate == pytest.approx(100 * (5 + 1 + 2) / (16 + 5 + 2))
    low, high = scores.word_error_rate_ci95
    assert low <= scores.word_error_rate <= high


def test_the_order_of_texts_does_not_change_scores() -> None:
    outputs, references = make_texts(30, 5), [[text] for text in make_texts(30, 6)]
    order = random.Random(2).sample(range(30), 30)
    shuffled = score_texts([outputs[index] for index in order], [references[index] for index in order]).to_dict()
    expected = score_texts(outputs, references).to_dict()
    assert shuffled.pop("bleu")["score"] == pytest.approx(expected.pop("bleu")["score"])
    assert shuffled.pop("chrf")["score"] == pytest.approx(expected.pop("chrf")["score"])
    assert shuffled == expected


@pytest.mark.parametrize(
    ("outputs", "references", "rate"), [([""], [[""]], 0), (["a"], [[""]], 100), ([""], [["a"]], 100)]
)
def test_empty_texts_are_scored(outputs: list[str], references: list[list[str]], rate: float) -> None:
    scores = score_texts(outputs, references)
    assert scores.word_error_rate == scores.character_error_rate == rate
    assert scores.bleu.score == 0 and 0 <= scores.chrf.score <= 100


@pytest.mark.parametrize(
    ("outputs", "references", "message"),
    [
        ([], [], r"^outputs: expected at least one output, got \[\]$"),
        (["a", "b"], [["a"], []], r"^references\[1\]: expected at least one reference, got \[\]$"),
    ],
)
def test_missing_references_are_refused(outputs: list[str], references: list[list[str]], message: str) -> None:
    for score in (score_texts, bleu, chrf):
        with pytest.raises(ArgumentError, match=message):
            score(outputs, references)
