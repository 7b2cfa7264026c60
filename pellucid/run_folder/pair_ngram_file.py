"""The file `pair_ngram.safetensors` of a run folder: a pair n-gram model and its weight in predictions.

A graphone is a pair of source symbols and the target symbols that are aligned with them.

G graphones, n n-grams.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.alignment.types import GraphoneKeys
from pellucid.data.vocabulary import Vocabularies
from pellucid.errors import ArgumentError, RunError, abbreviate
from pellucid.files import file_exists, write_atomic
from pellucid.pair_ngram.kneser_ney import NgramModel
from pellucid.pair_ngram.model import TARGET_CHUNKS, PairNgram
from pellucid.pair_ngram.types import SOURCE_CHUNK
from pellucid.run_folder.advice import RESTORE_OR_REPEAT, add_advice
from pellucid.run_folder.tensor_file import (
    TensorFile,
    array_of_shape,
    check_digest,
    check_format,
    open_tensors,
    read_arrays,
    tensor_digest,
    tensor_file,
)

FORMAT = 1
"""Format version."""
MAX_DIGITS = 32
"""Maximum length of a number in the metadata."""
MAX_NGRAMS = 2**27
"""Maximum number of n-grams in a file that is read."""
TYPES = {
    "graphones": np.int64,
    "token": np.int32,
    "log_probability": np.float32,
    "backoff": np.float32,
    "suffix": np.int32,
    "first_child": np.int32,
}
"""Type of each array in the file."""

NUMBER = re.compile(r"[0-9.]+([eE][+-]?[0-9]+)?")
"""Syntax of numbers in the metadata: ASCII digits only, no underscores."""


class SavedPairNgram(NamedTuple):
    """Content of the file."""

    model: PairNgram
    weight: float | None
    """Weight of its scores, 0 to 1; None until the end of the training, when it is chosen (`provisional_weight`)."""
    fingerprint: str = ""
    """Hash of the settings and data of its training, as in the checkpoint."""


def save_pair_ngram(path: Path, saved: SavedPairNgram) -> None:
    """Write a pair n-gram model; equal models give equal bytes.

    Args:
        path: File; written atomically.
        saved: Model and weight.

    Raises:
        RunError: The file cannot be written, or there is not enough memory.
    """
    model, numbering = saved.model, saved.model.numbering
    arrays = {"graphones": model.graphones, **model.model._asdict()}
    typed = {name: np.ascontiguousarray(values, TYPES[name]) for name, values in arrays.items()}
    weight = {} if saved.weight is None else {"weight": str(saved.weight)}
    metadata = {"format": str(FORMAT), "target_chunk": str(numbering.target_chunk), **weight}
    metadata["fingerprint"] = saved.fingerprint
    write_atomic(path, tensor_file(typed, {**metadata, "sha256": tensor_digest(typed, _signed(metadata))}))


def load_pair_ngram(path: Path, vocabularies: Vocabularies) -> SavedPairNgram:
    """Read a pair n-gram model.

    Args:
        path: File.
        vocabularies: Vocabularies of the run.

    Raises:
        RunError: The file is missing or damaged, has another format version, or does not fit the vocabularies.
    """
    with add_advice(RESTORE_OR_REPEAT), open_tensors(path) as stored:
        check_format(stored, FORMAT)
        target_chunk = _read_number(stored, "target_chunk", int, lambda value: value in TARGET_CHUNKS)
        weight = None
        if "weight" in stored.metadata:
            weight = _read_number(stored, "weight", float, lambda value: 0 <= value <= 1)
        shapes = {name: stored.tensors[name].shape for name in ("graphones", "token") if name in stored.tensors}
        graphones, nodes = (
            shape[0] if len(shape) == 1 else 0 for shape in (shapes.get("graphones", ()), shapes.get("token", ()))
        )
        if not (0 < graphones < nodes <= MAX_NGRAMS):
            raise RunError(
                f"{path}: expected 1 to {MAX_NGRAMS:,} n-grams, and fewer pairs of source and target symbols, got "
                f"{nodes} and {graphones}"
            )
        sizes = {name: nodes for name in TYPES} | {"graphones": graphones, "first_child": nodes + 1}
        expected = {name: array_of_shape((sizes[name],), kind) for name, kind in TYPES.items()}
        arrays = read_arrays(stored, expected)
        metadata = {key: value for key, value in stored.metadata.items() if key != "sha256"}
        check_digest(stored, tensor_digest(arrays, _signed(metadata)))
    numbering = GraphoneKeys(len(vocabularies.source), len(vocabularies.target), SOURCE_CHUNK, target_chunk)
    try:
        model = PairNgram(numbering, arrays.pop("graphones"), NgramModel(**arrays))
    except ArgumentError as error:
        raise RunError(f"{path}: {error}; run the training command again, which writes it anew") from error
    return SavedPairNgram(model, weight, stored.metadata.get("fingerprint", ""))


def has_provisional_weight(path: Path) -> bool:
    """Return whether a file holds a model whose weight is not chosen yet; False without the file.

    Args:
        path: File.

    Raises:
        RunError: The file is damaged.
    """
    if not file_exists(path):
        return False
    with open_tensors(path) as stored:
        return "weight" not in stored.metadata


def _signed(metadata: dict[str, str]) -> str:
    """Return the metadata as one text for the checksum."""
    return "\n".join(f"{key}={metadata[key]}" for key in sorted(metadata))


def _read_number(stored: TensorFile, name: str, kind: type[Any], is_valid: Callable[[Any], bool]) -> Any:  # noqa: ANN401
    """Return a number of the metadata; `RunError` unless it is valid."""
    text = stored.metadata.get(name, "")
    try:
        value = kind(text) if NUMBER.fullmatch(text) and len(text) <= MAX_DIGITS else None
    except ValueError:
        value = None
    if value is None or not is_valid(value):
        raise RunError(f"{stored.path}: {name}: expected a valid number, got {abbreviate(text)}")
    return value
