"""Pointer-generator, augmentation and added features in one run: training, decoding and resuming."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from small_networks import make_config, make_vocabularies
from trained_runs import assert_runs_identical, train_to_end, write_pairs

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_extended
from pellucid.data.tokenizers import build_tokenizers
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.run_folder.predictor_loader import load
from pellucid.training.augmentation import COPY_TAG
from pellucid.training.events import DataAugmented, ValidationCompleted
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles


def make_tagged_pairs(count: int, seed: int) -> list[Example]:
    """Return pairs of three letters and a rare character to copy; the tag determines whether letters are uppercase."""
    generator, pairs = Random(seed), []
    for _ in range(count):
        letters, rare_character = "".join(generator.choices("abc", k=3)), chr(0x4E00 + generator.randrange(4000))
        is_uppercase = generator.random() < 0.5
        target = (letters.upper() if is_uppercase else letters) + rare_character
        pairs.append(Example(letters + rare_character, target, "UP;NOUN" if is_uppercase else "LOW;NOUN"))
    return pairs


def combined_config() -> Config:
    """Return a small configuration with all three options. Symbols with fewer than five occurrences are unknown."""
    training = {"epochs": 12, "learning_rate": 0.01, "eval_interval": 3, "metric": "loss", "augmentation": "copy"}
    sizes = {"hidden_size": 16, "embedding_size": 16}
    return make_config(
        {
            "data": {"features_column": "3", "min_count": 5},
            "encoder": {**sizes, "feature_merge": "sum"},
            "decoder": {"pointer_generator": True, "hidden_size": 32, "embedding_size": 16},
            "training": {**training, "augmentation_ratio": 0.3},
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TrainingFiles:
    folder = tmp_path_factory.mktemp("combined")
    train, dev = make_tagged_pairs(300, 1), make_tagged_pairs(30, 2)
    return TrainingFiles(write_pairs(folder / "train.tsv", train), write_pairs(folder / "dev.tsv", dev))


@pytest.fixture(scope="module")
def uninterrupted_run(files: TrainingFiles) -> Path:
    """Train a run without an interruption."""
    folder = files.train.parent / "whole"
    events = train_to_end(files, folder, combined_config())
    assert any(isinstance(event, DataAugmented) and event.num_synthetic == 90 for event in events)
    return folder


def test_copy_positions_start_after_added_features() -> None:
    vocabulary = make_vocabularies("ab", "ab", ["UP"])
    tokenizers, example = build_tokenizers(combined_config().data), [Example("aQbR", "Rab", "UP;UP")]
    target_size, source_size = len(vocabulary.target), len(vocabulary.source) + len(vocabulary.features)
    for added, shift in ((False, 2), (True, 0)):
        encoded = encode_extended(example, tokenizers, vocabulary, added)
        assert encoded.target.values.tolist()[0] == target_size + 3 + shift
        assert encoded.source.values.tolist()[3] == source_size + target_size + 1 + shift


def test_all_options_train_together_and_unseen_symbols_are_copied(uninterrupted_run: Path) -> None:
    model = load(uninterrupted_run)
    assert COPY_TAG in model.vocabularies.features.symbols and "\u5000" not in model.vocabularies.target.symbols
    sources, tags = ["abc𝒳", "cab\u5fff", "b𝒳c"], ["UP;NOUN", "LOW;NOUN", ""]
    for search in (model, model.with_beam(3)):
        uppercase, lowercase, without_tag = search.predict(sources, features=tags)
        assert uppercase.output[-1] == "𝒳" and lowercase.output[-1] == "\u5fff" and "𝒳" in without_tag.output
        assert (uppercase.source, uppercase.num_features, uppercase.summed_features) == (
            ("a", "b", "c", "𝒳"),
            0,
            ("UP", "NOUN"),
        )
        assert uppercase.output[:3].isupper() and lowercase.output[:3].islower()
        assert uppercase.attention.shape == (len(uppercase.target), 4)
        np.testing.assert_allclose(uppercase.attention.sum(axis=1), 1, atol=1e-5)
    (forced,) = model.score_examples([Example("abc𝒳", uppercase.output, "UP;NOUN")])
    assert forced.score == pytest.approx(model.predict(sources, tags)[0].score, abs=1e-4)
    assert not forced.unknown_target
    prefixed = model.predict(["abc𝒳"], ["UP;NOUN"], prefixes=["𝒳"])[0]
    assert prefixed.target[0] == "𝒳" and prefixed.forced == (0,)
    (samples,) = model.sample(["abc𝒳"], SamplingConfig(samples=3), ["LOW;NOUN"])
    assert all(trace.summed_features == ("LOW", "NOUN") for trace in samples)


@pytest.mark.slow
def test_stopped_run_resumes_bit_for_bit(files: TrainingFiles, uninterrupted_run: Path) -> None:
    folder = files.train.parent / "stopped"
    events = train_run(files, folder, combined_config())
    for event in events:
        if isinstance(event, ValidationCompleted) and event.progress.epoch >= 5:
            break
    events.close()
    train_to_end(files, folder, combined_config())
    assert_runs_identical(uninterrupted_run, folder)


def test_outputs_are_independent_of_batch_composition(uninterrupted_run: Path) -> None:
    model = load(uninterrupted_run)
    sources, tags = ["abc𝒳", "a", "cabcabcab\u5fff"], ["UP;NOUN", "LOW;NOUN;UP", ""]
    batched = model.predict(sources, features=tags)
    for source, tag, trace in zip(sources, tags, batched, strict=True):
        (single,) = model.predict([source], features=[tag])
        assert single.output == trace.output and single.score == pytest.approx(trace.score, abs=1e-4)
