"""Metrics of texts: compared with sacrebleu, plain recurrences, and values by hand."""

import random

import pytest
import sacrebleu

from pellucid.errors import InputError
from pellucid.evaluation.metrics import bleu, chrf, score_texts

WORDS = ["the", "cat", "sat", "on", "a", "mat", "it's", "red,", "and", "small."]


def texts(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(count)]


def test_bleu_and_chrf_are_sacrebleus_with_their_signatures() -> None:
    outputs, one, other = texts(40, 1), texts(40, 1), texts(40, 3)
    one = [text if at % 3 else texts(1, at)[0] for at, text in enumerate(one)]
    references = [[a, b] for a, b in zip(one, other, strict=True)]
    assert bleu(outputs, references).score == pytest.approx(sacrebleu.corpus_bleu(outputs, [one, other]).score)
    assert chrf(outputs, references).score == pytest.approx(sacrebleu.corpus_chrf(outputs, [one, other]).score)
    signature = bleu(outputs, references).signature
    assert signature == f"nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert chrf(outputs, references).signature.startswith("nrefs:2|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_examples_may_have_references_in_different_numbers() -> None:
    outputs = ["the cat sat on a mat", "it's red, and small."]
    found = score_texts(outputs, [["a cat", "the cat sat on a mat"], ["it's red, and small."]])
    assert found.bleu.score == pytest.approx(100) and found.chrf.score == pytest.approx(100)
    assert "nrefs:var" in found.bleu.signature
    assert found.word_edit_rate == found.character_error_rate == 0 and found.words == 10


def test_word_edit_rate_by_hand() -> None:
    outputs = ["the cat sat", "a  mat", ""]
    found = score_texts(outputs, [["the red, cat sat"], ["a mat", "a small. mat"], ["on"]])
    assert found.words == 7 and found.word_edit_rate == pytest.approx(100 * 2 / 7)
    # characters: "red, " left out; "a  mat" has one space too many; "on" left out, of 16 + 5 + 2
    assert found.character_error_rate == pytest.approx(100 * (5 + 1 + 2) / (16 + 5 + 2))
    low, high = found.word_edit_rate_ci95
    assert low <= found.word_edit_rate <= high


def test_order_changes_nothing() -> None:
    outputs, references = texts(30, 5), [[text] for text in texts(30, 6)]
    order = random.Random(2).sample(range(30), 30)
    mixed = score_texts([outputs[at] for at in order], [references[at] for at in order]).to_dict()
    found = score_texts(outputs, references).to_dict()
    assert mixed.pop("bleu")["score"] == pytest.approx(found.pop("bleu")["score"])
    assert mixed.pop("chrf")["score"] == pytest.approx(found.pop("chrf")["score"])
    assert mixed == found


@pytest.mark.parametrize(
    ("outputs", "references", "rate"), [([""], [[""]], 0), (["a"], [[""]], 100), ([""], [["a"]], 100)]
)
def test_empty_texts_are_scored(outputs: list[str], references: list[list[str]], rate: float) -> None:
    found = score_texts(outputs, references)
    assert found.word_edit_rate == found.character_error_rate == rate
    assert found.bleu.score == 0 and 0 <= found.chrf.score <= 100


@pytest.mark.parametrize(("outputs", "references"), [([], []), (["a"], [[]])])
def test_missing_references_are_refused(outputs: list[str], references: list[list[str]]) -> None:
    with pytest.raises(InputError, match="expected at least one output"):
        score_texts(outputs, references)
