"""Copying, augmentation and added features in one training, from files to outputs, stopped and resumed."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from small import config_of, vocabularies
from trained_runs import assert_same_outcome, train_to_end, write_pairs

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_extended
from pellucid.data.tokenizers import build_tokenizers
from pellucid.decoding.sampling import SamplingConfig
from pellucid.training.events import ValidationCompleted
from pellucid.training.run_folder import load
from pellucid.training.session import train_run
from pellucid.training.training_data import COPY_TAG, DataAugmented, TrainingFiles


def tagged_pairs(count: int, seed: int) -> list[Example]:
    """Three letters and a sign that stands once or twice, written as they are; the tag says whether in capitals."""
    generator, made = Random(seed), []
    for _ in range(count):
        letters, sign = "".join(generator.choices("abc", k=3)), chr(0x4E00 + generator.randrange(4000))
        up = generator.random() < 0.5
        target = (letters.upper() if up else letters) + sign
        made.append(Example(letters + sign, target, "UP;NOUN" if up else "LOW;NOUN"))
    return made


def combined_config() -> Config:
    """All three, small; a sign has to stand three times to be known."""
    training = {"epochs": 12, "learning_rate": 0.01, "eval_interval": 3, "metric": "loss", "augmentation": "copy"}
    sizes = {"hidden_size": 16, "embedding_size": 16}
    return config_of(
        {
            "data": {"features_column": "3", "min_count": 5},
            "encoder": {**sizes, "features": "sum"},
            "decoder": {"pointer_generator": True, "hidden_size": 32, "embedding_size": 16},
            "training": {**training, "augmentation_ratio": 0.3},
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TrainingFiles:
    folder = tmp_path_factory.mktemp("combined")
    train, dev = tagged_pairs(300, 1), tagged_pairs(30, 2)
    return TrainingFiles(write_pairs(folder / "train.tsv", train), write_pairs(folder / "dev.tsv", dev))


@pytest.fixture(scope="module")
def uninterrupted_run(files: TrainingFiles) -> Path:
    """A run that nobody disturbed."""
    folder = files.train.parent / "whole"
    events = train_to_end(files, folder, combined_config())
    assert any(isinstance(event, DataAugmented) and event.made == 90 for event in events)
    return folder


def test_copy_positions_start_after_added_features() -> None:
    known = vocabularies("ab", "ab", ["UP"])
    cut, example = build_tokenizers(combined_config().data), [Example("aQbR", "Rab", "UP;UP")]
    size, read = len(known.target), len(known.source) + len(known.features)
    for added, shift in ((False, 2), (True, 0)):
        encoded = encode_extended(example, cut, known, added)
        assert encoded.target.values.tolist()[0] == size + 3 + shift
        assert encoded.source.values.tolist()[3] == read + size + 1 + shift


def test_all_options_train_together_and_unseen_symbols_are_copied(uninterrupted_run: Path) -> None:
    model = load(uninterrupted_run)
    assert COPY_TAG in model.vocabularies.features.symbols and "\u5000" not in model.vocabularies.target.symbols
    sources, tags = ["abc𝒳", "cab\u5fff", "b𝒳c"], ["UP;NOUN", "LOW;NOUN", ""]
    for search in (model, model.with_beam(3)):
        up, low, bare = search.predict(sources, features=tags)
        assert up.output[-1] == "𝒳" and low.output[-1] == "\u5fff" and "𝒳" in bare.output
        assert (up.source, up.features, up.added) == (("a", "b", "c", "𝒳"), 0, ("UP", "NOUN"))
        assert up.output[:3].isupper() and low.output[:3].islower()
        assert up.attention.shape == (len(up.target), 4)
        np.testing.assert_allclose(up.attention.sum(axis=1), 1, atol=1e-5)
    (forced,) = model.force([Example("abc𝒳", up.output, "UP;NOUN")])
    assert forced.score == pytest.approx(model.predict(sources, tags)[0].score, abs=1e-4)
    assert not forced.unknown_target
    begun = model.predict(["abc𝒳"], ["UP;NOUN"], prefixes=["𝒳"])[0]
    assert begun.target[0] == "𝒳" and begun.forced == (0,)
    (drawn,) = model.sample(["abc𝒳"], SamplingConfig(samples=3), ["LOW;NOUN"])
    assert all(trace.added == ("LOW", "NOUN") for trace in drawn)


def test_a_stopped_training_resumes_bit_for_bit(files: TrainingFiles, uninterrupted_run: Path) -> None:
    folder = files.train.parent / "stopped"
    events = train_run(files, folder, combined_config())
    for event in events:
        if isinstance(event, ValidationCompleted) and event.progress.epoch >= 5:
            break
    events.close()
    train_to_end(files, folder, combined_config())
    assert_same_outcome(uninterrupted_run, folder)


def test_batch_composition_changes_nothing(uninterrupted_run: Path) -> None:
    model = load(uninterrupted_run)
    sources, tags = ["abc𝒳", "a", "cabcabcab\u5fff"], ["UP;NOUN", "LOW;NOUN;UP", ""]
    together = model.predict(sources, features=tags)
    for source, tag, trace in zip(sources, tags, together, strict=True):
        (alone,) = model.predict([source], features=[tag])
        assert alone.output == trace.output and alone.score == pytest.approx(trace.score, abs=1e-4)
