"""The file `confidence.json` of a run folder: the confidence that was fitted at the end of its training."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from pellucid.config.settings import SearchConfig
from pellucid.decoding.confidence import ConfidenceModel
from pellucid.errors import ArgumentError, RunError, abbreviate_reason
from pellucid.files import check_json_format, decode_json, read_bytes, write_atomic
from pellucid.run_folder.advice import RESTORE_OR_REPEAT, add_advice

FORMAT = 1
"""Format version."""
MAX_SIZE = 1 << 20
"""Maximum size of the file that is read, in bytes."""


class _ConfidenceRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of the file: the fields of `ConfidenceModel`, with the fingerprint of the training."""

    version: Literal[1]
    """Version of the format."""
    fingerprint: str
    intercept: float
    slope: float
    num_examples: int = msgspec.field(name="examples")
    wrong_confidences: tuple[float, ...] = msgspec.field(name="wrong")
    search: SearchConfig
    pair_ngram_weight: float
    lowest_confidence_for_unknown: bool = msgspec.field(default=False, name="lowest_for_unknown")


class SavedConfidence(msgspec.Struct, frozen=True):
    """Content of the file."""

    model: ConfidenceModel
    fingerprint: str
    """Hash of the settings and data of its training, as in the checkpoint."""


def save_confidence(path: Path, saved: SavedConfidence) -> None:
    """Write a fitted confidence; equal ones give equal bytes.

    Args:
        path: File; written atomically.
        saved: Confidence and fingerprint.

    Raises:
        RunError: The file cannot be written.
    """
    values: dict[str, Any] = {field.name: getattr(saved.model, field.name) for field in fields(ConfidenceModel)}
    record = _ConfidenceRecord(version=1, fingerprint=saved.fingerprint, **values)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def load_confidence(path: Path) -> SavedConfidence:
    """Read a fitted confidence.

    Args:
        path: File.

    Raises:
        RunError: The file is missing, too large or damaged; the message names the field.
    """
    with add_advice(RESTORE_OR_REPEAT):
        content = read_bytes(path, limit=MAX_SIZE)
        check_json_format(str(path), content, FORMAT)
        try:
            record = decode_json(content, _ConfidenceRecord)
        except ValueError as error:
            raise RunError(f"{path} is damaged: {abbreviate_reason(error)}") from error
        try:
            model = ConfidenceModel(**{field.name: getattr(record, field.name) for field in fields(ConfidenceModel)})
        except ArgumentError as error:
            raise RunError(f"{path} is damaged: {error}") from error
        return SavedConfidence(model, record.fingerprint)
