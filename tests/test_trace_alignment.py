"""decoding/trace_alignment.py, Predictor.align and pellucid.align: alignments of the pairs of a trained run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trained_runs import digits_run, make_copy_examples, make_small_config, train_to_end, write_copy_files

import pellucid
from pellucid.alignment.types import ChunkLimits
from pellucid.config.settings import DataConfig
from pellucid.config.toml import override_settings
from pellucid.data.examples import Example
from pellucid.decoding.pair_ngram_interpolation import InterpolatedPairNgram
from pellucid.decoding.trace_alignment import align_trace
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError, ConfigError
from pellucid.pair_ngram.model import PairNgram
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor
from pellucid.run_folder.predictor_loader import load

PAIRS = [Example("one two", "12"), Example("nine", "9")]


def test_alignment_of_a_trace_ignores_features_and_the_end() -> None:
    trace = load(digits_run().run).score_examples(PAIRS)[0]
    steps, weights = len(trace.target), np.zeros((len(trace.target), 8), np.float32)
    weights[0, 3], weights[1, 5], weights[2:, 0] = 1, 1, 1
    trace = replace(trace, source=("F", *trace.source), num_features=1, attention=weights)
    assert steps == 3
    alignment = align_trace(trace)
    assert alignment is not None and alignment.source == tuple("one two") and alignment.target == ("1", "2")
    assert alignment.links == [(2, 0), (4, 1)]
    assert align_trace(trace, ChunkLimits(1, 1, deletions=False)) is None


def test_a_trace_without_attention_is_refused() -> None:
    trace = load(digits_run().run).score_examples(PAIRS)[0]
    with pytest.raises(ArgumentError, match="trace: expected attention weights"):
        align_trace(replace(trace, attention=np.zeros_like(trace.attention)))


def test_the_model_aligns_pairs_by_its_attention() -> None:
    model = load(digits_run().run)
    expected = [align_trace(trace) for trace in model.score_examples(PAIRS)]
    assert model.align(PAIRS) == expected == pellucid.align(PAIRS, model) == pellucid.align(PAIRS, digits_run().run)
    short = pellucid.align([("one", "1"), ("a", "12345")], model, ChunkLimits(insertions=False))
    assert short[0] is not None and short[0].target == ("1",) and short[1] is None
    pairs = [("one", "1")]  # rows of a table
    assert pellucid.align(pairs, model)[0] == model.align([Example("one", "1")])[0]


def test_files_are_aligned_without_a_run(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    words = ["ab", "ba", "aab", "bba", "b"]
    path.write_text("\n".join(f"{word}\t{' '.join(word.upper())}\n" for word in words))
    limits = ChunkLimits(1, 1)
    found = pellucid.align(path, limits=limits, data={"target_symbols": "words"})
    expected = [" ".join(f"{letter}}}{letter.upper()}" for letter in word) for word in words]
    assert [alignment.to_phonetisaurus() for alignment in found if alignment] == expected
    assert pellucid.align([(word, word.upper()) for word in words], limits=limits) == found
    assert pellucid.align(path, limits=limits, data=DataConfig(target_symbols="words")) == found


def test_arguments_without_effect_are_refused() -> None:
    run = digits_run().run
    with pytest.raises(ArgumentError, match="method: 'attention' needs a run"):
        pellucid.align(PAIRS, method="attention")
    with pytest.raises(ArgumentError, match="data: expected None with a run"):
        pellucid.align(PAIRS, run, data={"target_symbols": "words"})
    with pytest.raises(ArgumentError, match="limits: the pair n-gram model"):
        pellucid.align(PAIRS, run, ChunkLimits(1, 1), "em")
    with pytest.raises(ConfigError, match="data: subwords are learned by a training"):
        pellucid.align(PAIRS, data={"source_symbols": "subwords"})
    with pytest.raises(ConfigError, match="no pair n-gram model"):
        pellucid.align(PAIRS, run, method="em")


def test_a_model_without_attention_aligns_nothing(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    config = make_small_config({"epochs": 1})
    train_to_end(files, tmp_path / "run", override_settings(config, {"attention": {"type": "none"}}))
    with pytest.raises(ConfigError, match=r"the model has no attention \(attention.type = 'none'\)"):
        pellucid.align(make_copy_examples(2, 1), tmp_path / "run")


def test_the_pair_ngram_model_of_a_run_aligns_pairs() -> None:
    model = require_transducer(load(digits_run().run), "model")
    examples = [Example("one two", "12"), Example("two one", "21"), Example("one", "1"), Example("two", "2")] * 5
    fitted = fit_pair_ngram_predictor(examples, model.tokenizers, model.vocabularies)
    assert fitted is not None
    model = replace(model, pair_ngram=InterpolatedPairNgram(fitted.model, 0.5, 0))
    found = pellucid.align(examples[:4], model, method="em")
    for example, alignment in zip(examples, found, strict=False):
        assert alignment is not None and "".join(alignment.source) == example.source
        assert "".join(alignment.target) == example.target
        digit = {
            example.source.index(word): target
            for word, target in (("one", "1"), ("two", "2"))
            if word in example.source
        }
        for source, target in alignment.links:
            starts = [start for start in digit if start <= source < start + 3]
            assert [digit[start] for start in starts] == [alignment.target[target]]
    with pytest.MonkeyPatch.context() as patch:
        searches, search = list[int](), PairNgram._search

        def count_search(*arguments: Any) -> object:  # noqa: ANN401 (any arguments)
            searches.append(1)
            return search(*arguments)

        patch.setattr(PairNgram, "_search", count_search)
        assert model.align_by_pair_ngram(examples[:4]) == found
        assert len(searches) == 4, "regression test: two searches for each pair"
    unseen = model.align_by_pair_ngram([Example("ten", "99"), Example("one", "123456789")])
    assert unseen[0] is not None and len(unseen[0].source) == 3 and unseen[0].target == ("9", "9")
    assert unseen[1] is None
