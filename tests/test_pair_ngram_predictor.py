"""pair_ngram/predictor.py and model.py: models of real pairs, symbols outside the vocabulary."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pellucid.config.settings import DataConfig
from pellucid.data.encoding import EncodedExamples, Ragged, encode_examples
from pellucid.data.examples import Example, read_examples
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import EOS, Vocabularies, learn_vocabularies
from pellucid.pair_ngram.predictor import (
    PairNgramPredictor,
    _choose_rows,
    count_plain_examples,
    fit_encoded_examples,
    fit_pair_ngram_predictor,
)

ROMAN = Path(__file__).parents[1] / "examples" / "roman"
TOKENIZERS = build_tokenizers(DataConfig())


def fit(examples: list[Example]) -> PairNgramPredictor | None:
    return fit_pair_ngram_predictor(examples, TOKENIZERS, vocabularies_of(examples))


def vocabularies_of(examples: list[Example]) -> Vocabularies:
    return learn_vocabularies(examples, TOKENIZERS, 1)


def test_a_substitution_cipher_is_learned() -> None:
    examples = [
        Example(f"{number:04}", f"{number:04}".translate({48 + d: 97 + d for d in range(10)})) for number in range(300)
    ]
    predictor = fit(examples)
    assert predictor is not None
    outputs = predictor.nbest([Example("0299", ""), Example("29", ""), Example("", "")], 1)
    assert outputs == [[("a", "c", "j", "j")], [("c", "j")], [()]]


def test_roman_numerals_are_learned() -> None:
    train, dev = (read_examples(ROMAN / f"{part}.tsv", DataConfig()).examples for part in ("train", "dev"))
    predictor = fit(train)
    assert predictor is not None
    lists = predictor.nbest(dev, 3)
    assert all(1 <= len(outputs) <= 3 and len(set(outputs)) == len(outputs) for outputs in lists)
    right = sum(tuple(example.target) == outputs[0] for example, outputs in zip(dev, lists, strict=True))
    assert right >= 0.95 * len(dev)


def test_unknown_symbols_are_never_written() -> None:
    examples = [Example("ab", "xy"), Example("a", "x"), Example("b", "y"), Example("ac", "xz")]
    vocabularies = vocabularies_of(examples[:3])
    predictor = fit_pair_ngram_predictor(examples, TOKENIZERS, vocabularies)
    assert predictor is not None
    assert predictor.nbest([Example("ac", "")], 1) == [[("x",)]]
    assert predictor.nbest([Example("ab", "")], 1) == [[("x", "y")]]


def test_examples_with_features_are_left_out() -> None:
    """Copied targets of augmentation have a feature, whose id is beyond those of the source symbols."""
    examples = [Example("ab", "xy"), Example("a", "x"), Example("b", "y")]
    copies = [Example("xy", "xy", "copy"), Example("xx", "xx", "copy")]
    vocabularies = vocabularies_of([*examples, *copies])
    encoded = encode_examples([*examples, *copies], TOKENIZERS, vocabularies)
    assert count_plain_examples(encoded, vocabularies) == 3, "regression test: copies counted as not fitted"
    model, count, _ = fit_encoded_examples(encoded, vocabularies)
    alone = fit_encoded_examples(encode_examples(examples, TOKENIZERS, vocabularies), vocabularies).model
    assert count == 3 and model is not None and alone is not None
    assert np.array_equal(model.graphones, alone.graphones) and all(map(np.array_equal, model.model, alone.model))


def test_evenly_spaced_examples_are_fitted_where_not_all_fit() -> None:
    """Regression test: the first ones were fitted, so letters at the end of a sorted file had no graphone."""
    examples = [Example(2 * letter, 2 * letter) for letter in "abcdefgh" for _ in range(10)]
    examples.insert(5, Example("ab" * 30, "ab" * 30))  # which alone has more cells than the limit
    vocabularies = vocabularies_of(examples)
    encoded = encode_examples(examples, TOKENIZERS, vocabularies)
    model, count, _ = fit_encoded_examples(encoded, vocabularies, max_cells=160)
    assert model is not None and 35 <= count <= 40
    sources = encode_examples([Example(letter, "") for letter in "abcdefgh"], TOKENIZERS, vocabularies).source
    assert all(model.covers_source(sources.row(row)) for row in range(8))
    assert fit_encoded_examples(encoded, vocabularies, max_cells=3) == (None, 0, 0)


def test_all_examples_within_the_limit_are_fitted_in_their_order() -> None:
    examples = [Example("ab", "xy"), Example("a", "x"), Example("b", "y")] * 3
    vocabularies = vocabularies_of(examples)
    encoded = encode_examples(examples, TOKENIZERS, vocabularies)
    assert _choose_rows(encoded, max_cells=18).tolist() == list(range(9))
    assert _choose_rows(encoded, max_cells=17).tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert _choose_rows(encode_examples([], TOKENIZERS, vocabularies), 1).tolist() == []


def test_only_examples_that_are_fitted_are_counted() -> None:
    """Regression test: those with unknown target symbols or without an alignment were counted."""
    examples = [Example("ab", "xy"), Example("a", "x"), Example("b", "y"), Example("a", "x" * 9), Example("a", "?")]
    vocabularies = vocabularies_of(examples[:4])
    fit = fit_encoded_examples(encode_examples(examples, TOKENIZERS, vocabularies), vocabularies)
    assert fit.model is not None and (fit.num_fitted, fit.num_chosen) == (3, 5)
    too_long = encode_examples([Example("a", "x" * 9)] * 2, TOKENIZERS, vocabularies)
    assert fit_encoded_examples(too_long, vocabularies) == (None, 0, 2), "regression test: 2 counted as fitted"


@pytest.mark.parametrize("examples", [[], [Example("a", "xxxxxxxxx")]], ids=["none", "too long"])
def test_examples_without_alignment_give_no_model(examples: list[Example]) -> None:
    assert fit_pair_ngram_predictor(examples, TOKENIZERS, vocabularies_of([Example("a", "x")])) is None


def test_counting_the_examples_of_a_large_set_needs_little_memory() -> None:
    """Regression test: 20 million prepared pairs took 5 GB beside the pages of the file."""
    count, length = 400_000, 20
    offsets = np.arange(count + 1) * length
    sources = Ragged(np.full(count * length, 4, np.int32), offsets)
    encoded = EncodedExamples(sources, Ragged(np.full(count, EOS, np.int32), np.arange(count + 1)))
    vocabularies = vocabularies_of([Example("a", "b")])
    tracemalloc.start()
    assert count_plain_examples(encoded, vocabularies) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64_000_000, "about 16 bytes for each id of a block, of which the set has six"
