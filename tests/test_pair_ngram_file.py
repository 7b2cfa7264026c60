"""run_folder/pair_ngram_file.py: saved models are restored exactly; damaged and malicious files are refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.errors import RunError
from pellucid.pair_ngram.kneser_ney import MIN_PROBABILITY
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor
from pellucid.run_folder.pair_ngram_file import (
    SavedPairNgram,
    _signed,
    has_provisional_weight,
    load_pair_ngram,
    save_pair_ngram,
)
from pellucid.run_folder.tensor_file import tensor_digest

EXAMPLES = [Example(f"{number:03}", f"{number:03}".replace("1", "xy")) for number in range(150)]
TOKENIZERS = build_tokenizers(DataConfig())
VOCABULARIES = learn_vocabularies(EXAMPLES, TOKENIZERS, 1)


@pytest.fixture(scope="module")
def saved() -> SavedPairNgram:
    """Return a fitted model with a weight."""
    predictor = fit_pair_ngram_predictor(EXAMPLES, TOKENIZERS, VOCABULARIES)
    assert predictor is not None
    return SavedPairNgram(predictor.model, 0.35)


def test_a_model_is_restored_exactly(saved: SavedPairNgram, tmp_path: Path) -> None:
    path, again = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    for weight in (None, 0.0, 0.35):
        save_pair_ngram(path, saved._replace(weight=weight))
        restored = load_pair_ngram(path, VOCABULARIES)
        assert has_provisional_weight(path) == (weight is None)
        assert restored.weight == weight and restored.model.numbering == saved.model.numbering
        for actual, expected in zip(restored.model.model, saved.model.model, strict=True):
            assert actual.dtype == expected.dtype and np.array_equal(actual, expected)
        ids = VOCABULARIES.source.encode(tuple("117"))
        assert restored.model.search(ids, 3) == saved.model.search(ids, 3)
        save_pair_ngram(again, restored)
        assert again.read_bytes() == path.read_bytes()


def write_changed(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write a file with a valid checksum."""
    metadata = {name: value for name, value in metadata.items() if name != "sha256"}
    save_file(tensors, path, {**metadata, "sha256": tensor_digest(tensors, _signed(metadata))})


def read_file(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


Change = Callable[[dict[str, torch.Tensor], dict[str, str]], None]


def set_tensor(name: str, index: int, value: float) -> Change:
    def change(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
        tensors[name][index] = value

    return change


def set_metadata(name: str, value: str) -> Change:
    def change(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
        metadata[name] = value

    return change


def cut_tensor(name: str) -> Change:
    def change(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
        tensors[name] = tensors[name][:-1].contiguous()

    return change


CHANGES: dict[str, tuple[Change, str]] = {
    "negative graphone": (set_tensor("graphones", 0, -1), "graphones"),
    "unsorted graphones": (set_tensor("graphones", 0, 2**40), "graphones"),
    "graphone of another vocabulary": (set_tensor("graphones", -1, 2**60), "graphones"),
    "special target id": (set_tensor("graphones", -1, 2**62), "graphones"),
    "unsorted children": (set_tensor("token", 1, 0), "token"),
    "suffix of another length": (set_tensor("suffix", -1, 1), "suffix"),
    "large token": (set_tensor("token", 5, 2**30), "token"),
    "negative token": (set_tensor("token", 5, -1), "token"),
    "no begin": (set_tensor("token", 1, 0), "token"),
    "child outside": (set_tensor("first_child", -2, 2**30), "first_child"),
    "circular child": (set_tensor("first_child", 3, 2), "first_child"),
    "child of the root": (set_tensor("first_child", 0, 0), "first_child"),
    "circular suffix": (set_tensor("suffix", 40, 40), "suffix"),
    "negative suffix": (set_tensor("suffix", 40, -3), "suffix"),
    "probability above one": (set_tensor("log_probability", 7, 5.0), "log_probability"),
    "infinite backoff": (set_tensor("backoff", 7, float("-inf")), "backoff"),
    "NaN": (set_tensor("log_probability", 7, float("nan")), "log_probability"),
    "impossibly low": (set_tensor("log_probability", 7, -3e38), "log_probability"),
    "short tensor": (cut_tensor("suffix"), "suffix"),
    "short first tensor": (cut_tensor("token"), "backoff"),
    "weight above one": (set_metadata("weight", "1.5"), "weight"),
    "weight NaN": (set_metadata("weight", "nan"), "weight"),
    "weight of many digits": (set_metadata("weight", "0." + "1" * 5000 + "e9"), "weight"),
    **{f"weight {text!r}": (set_metadata("weight", text), "weight") for text in ("0_1", " 0.5\n", "\u0660")},
    "text as weight": (set_metadata("weight", "much"), "weight"),
    "chunk": (set_metadata("target_chunk", "9"), "target_chunk"),
    "no chunk": (set_metadata("target_chunk", ""), "target_chunk"),
    "format": (set_metadata("format", "7"), "format 7"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_impossible_contents_are_refused(saved: SavedPairNgram, tmp_path: Path, change: str) -> None:
    path, (apply, field) = tmp_path / "pair_ngram.safetensors", CHANGES[change]
    save_pair_ngram(path, saved)
    tensors, metadata = read_file(path)
    if change == "no begin":
        begin = int((tensors["token"] == len(tensors["graphones"])).nonzero()[0])
        tensors["token"][begin] = 0
    elif change == "unsorted children":
        tensors["token"][1:3] = tensors["token"][1:3].flip(0)
    elif change == "special target id":
        base = len(VOCABULARIES.target) + 1
        tensors["graphones"] -= tensors["graphones"][0] % base - 1  # the first graphone writes id 0, padding
    else:
        apply(tensors, metadata)
    write_changed(path, tensors, metadata)
    with pytest.raises(RunError) as caught:
        load_pair_ngram(path, VOCABULARIES)
    assert str(path) in str(caught.value) and field in str(caught.value)


def test_changed_bits_are_noticed(saved: SavedPairNgram, tmp_path: Path) -> None:
    path = tmp_path / "pair_ngram.safetensors"
    save_pair_ngram(path, saved)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        load_pair_ngram(path, VOCABULARIES)
    path.write_bytes(content[:-3])
    with pytest.raises(RunError, match="not a whole safetensors file"):
        load_pair_ngram(path, VOCABULARIES)


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_are_refused_or_searches_end(saved: SavedPairNgram, tmp_path: Path, seed: int) -> None:
    path, generator = tmp_path / "pair_ngram.safetensors", np.random.default_rng(seed)
    save_pair_ngram(path, saved)
    tensors, metadata = read_file(path)
    for _ in range(int(generator.integers(1, 4))):
        values = tensors[str(generator.choice(sorted(tensors)))]
        other = values[int(generator.integers(len(values)))].clone()
        values[int(generator.integers(len(values)))] = other
    write_changed(path, tensors, metadata)
    try:
        restored = load_pair_ngram(path, VOCABULARIES)
    except RunError as error:
        assert str(path) in str(error)
        return
    check_searches(restored)


@pytest.mark.parametrize("seed", range(20))
def test_searches_with_any_logarithms_within_their_range_end(saved: SavedPairNgram, tmp_path: Path, seed: int) -> None:
    """Regression test: of 40 files with random changes, 31 were refused, so no search in them was tested."""
    path, generator = tmp_path / "pair_ngram.safetensors", np.random.default_rng(seed)
    save_pair_ngram(path, saved)
    tensors, metadata = read_file(path)
    for name in ("log_probability", "backoff"):
        is_changed = generator.random(len(tensors[name])) < generator.random()
        changed = generator.uniform(np.log(MIN_PROBABILITY), 0, int(is_changed.sum())).astype(np.float32)
        tensors[name][torch.from_numpy(is_changed)] = torch.from_numpy(changed)
    write_changed(path, tensors, metadata)
    check_searches(load_pair_ngram(path, VOCABULARIES))


def check_searches(restored: SavedPairNgram) -> None:
    """Search a few sources: each search ends, and writes symbols of the vocabulary."""
    for text in ("117", "999", "0", "1" * 30):
        ids = VOCABULARIES.source.encode(tuple(text))
        outputs = restored.model.search(ids, 5)
        assert all(0 <= symbol < len(VOCABULARIES.target) for output in outputs for symbol in output.target)
        assert not np.isnan(restored.model.log_probability(ids, VOCABULARIES.target.encode(tuple("0xy"))))
