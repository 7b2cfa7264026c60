"""training/augmentation.py: synthetic pairs, their number, their dependence on the seed, and their use in training."""

from pathlib import Path

import numpy as np
import pytest
from trained_runs import (
    DataFiles,
    comparable_log_records,
    make_small_config,
    train_to_end,
    write_copy_files,
    write_digit_files,
    write_pairs,
)

from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import load_vocabularies
from pellucid.errors import DataError
from pellucid.reporting.progress import training_progress
from pellucid.run_folder.predictor_loader import load
from pellucid.training.augmentation import COPY_TAG, copy_pairs, hallucinate_pairs
from pellucid.training.events import DataAugmented, ModelBuilt, ValidationCompleted

WORD_TOKENIZERS = build_tokenizers(make_small_config(data={"target_symbols": "words"}).data)
CHARACTER_TOKENIZERS = build_tokenizers(make_small_config().data)


def test_copies_are_targets_joined_as_sources_in_equal_numbers() -> None:
    examples = [Example("one", "w ʌ n", "V"), Example("two", "t uː"), Example("six", "s ɪ k s")]
    copies = copy_pairs(examples, WORD_TOKENIZERS, 7, np.random.default_rng(1))
    assert len(copies) == 7 and set(copies[:3]) == set(copies[3:6])
    assert set(copies) == {
        Example("wʌn", "w ʌ n", COPY_TAG),
        Example("tuː", "t uː", COPY_TAG),
        Example("sɪks", "s ɪ k s", COPY_TAG),
    }
    assert copy_pairs(examples, WORD_TOKENIZERS, 7, np.random.default_rng(1)) == copies
    assert copy_pairs(examples, WORD_TOKENIZERS, 0, np.random.default_rng(1)) == []


def test_only_stems_are_replaced_and_equally_on_both_sides() -> None:
    """In walking → walked, walk is the stem and ing → ed is unchanged; go → went has no stem."""
    examples = [Example("walking", "walked", "PST"), Example("go", "went"), Example("hoping", "hoped")]
    hallucinated = hallucinate_pairs(examples, CHARACTER_TOKENIZERS, 40, np.random.default_rng(1))
    assert len(hallucinated) == 40 and len(set(hallucinated)) > 30
    shared_symbols = {symbol for each in examples for symbol in each.source} & {
        s for each in examples for s in each.target
    }
    for each in hallucinated:
        stem = each.source.removesuffix("ing")
        assert each.target == stem + "ed" and set(stem) <= shared_symbols
        assert (len(stem), each.features) in {(4, "PST"), (3, "")}
    assert {len(each.source) for each in hallucinated} == {6, 7}


def test_pairs_without_shared_symbols_cannot_be_hallucinated() -> None:
    with pytest.raises(DataError, match=r'training\.augmentation = "hallucinate" needs pairs whose sides share 3'):
        hallucinate_pairs([Example("abc", "xyz")], CHARACTER_TOKENIZERS, 1, np.random.default_rng(1))


def augmentation_config(kind: str, ratio: float, seed: int = 1) -> Config:
    import msgspec

    config = make_small_config({"epochs": 1, "augmentation": kind, "augmentation_ratio": ratio})
    return msgspec.structs.replace(config, seed=seed)


def test_training_reports_and_logs_synthetic_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = train_to_end(write_digit_files(tmp_path), tmp_path / "run", augmentation_config("copy", 0.4))
    (augmented,) = [event for event in events if isinstance(event, DataAugmented)]
    assert augmented == DataAugmented("copy", 60, 24)
    (line,) = [record for record in comparable_log_records(tmp_path / "run") if record["event"] == "augmented"]
    assert line == {"event": "augmented", "kind": "copy", "examples": 60, "made": 24}
    with training_progress() as reporter:
        reporter.report(augmented)
    assert "augmentation: 24 copied targets in addition to 60 examples" in capsys.readouterr().err
    validated = [event for event in events if isinstance(event, ValidationCompleted)]
    assert validated[-1].progress.samples == 84 and len(validated[-1].traces) == 20
    assert "84 examples" in (tmp_path / "run" / "card.md").read_text() and "24 of them synthetic" in (
        tmp_path / "run" / "card.md"
    ).read_text("utf-8")


def test_synthetic_pairs_extend_the_vocabularies_by_the_copy_tag(tmp_path: Path) -> None:
    events = train_to_end(write_digit_files(tmp_path), tmp_path / "run", augmentation_config("copy", 1.0))
    result = load_vocabularies(tmp_path / "run" / "vocabulary.json", DataConfig())
    assert set("0123456789") <= set(result.source.symbols) and "".join(result.features.symbols) == COPY_TAG
    assert load(tmp_path / "run").predict(["one"])[0].num_features == 0
    (built,) = [event for event in events if isinstance(event, ModelBuilt)]
    unaugmented_events = train_to_end(write_digit_files(tmp_path), tmp_path / "none", augmentation_config("none", 1.0))
    unaugmented = next(event for event in unaugmented_events if isinstance(event, ModelBuilt))
    assert built.num_parameters > unaugmented.num_parameters


def test_another_seed_gives_other_pairs(tmp_path: Path) -> None:
    words = [Example(f"{stem}ing", f"{stem}ed") for stem in ("walk", "talk", "jump", "look", "help", "turn")]
    files = DataFiles(write_pairs(tmp_path / "a.tsv", words), write_copy_files(tmp_path / "b").valid)
    counts: list[tuple[int, ...]] = []
    for seed in (1, 1, 2):
        folder = tmp_path / f"run{len(counts)}"
        train_to_end(files, folder, augmentation_config("hallucinate", 2.0, seed))
        counts.append(load_vocabularies(folder / "vocabulary.json", DataConfig()).source.counts)
    assert counts[0] == counts[1] != counts[2]
