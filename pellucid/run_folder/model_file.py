"""The file `model.safetensors` of a run folder: the parameters of a network, as arrays.

PyTorch is not needed to import this module; network_file.py reads and writes the parameters of its networks.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pellucid.run_folder.advice import RESTORE_OR_TRAIN, add_advice
from pellucid.run_folder.progress import CHECKPOINT_FORMAT
from pellucid.run_folder.tensor_file import (
    check_digest,
    check_format,
    check_tensors,
    open_tensors,
    read_arrays,
    tensor_digest,
    tensor_file,
)

FORMAT = 2
"""Format version."""
FINGERPRINT = "fingerprint"
SETTINGS = "settings"
VOCABULARY_DIGEST = "vocabulary"
UPDATE = "update"
VERSIONS = "versions"
VALIDATED = "validated"
RUN_KEYS = (FINGERPRINT, SETTINGS, VOCABULARY_DIGEST, UPDATE, VERSIONS, VALIDATED)
"""Keys of the metadata that tell of which run and update the parameters are (`identity.describe_run`)."""


def parameter_file(tensors: Mapping[str, Any], run: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a safetensors file of parameters, with a format version and a checksum in its metadata.

    Args:
        tensors: Arrays or tensors of parameters by name, contiguous and on the CPU.
        run: Metadata of their run; None if there is none.

    Raises:
        RunError: Memory is not enough.
    """
    metadata = dict(run or {})
    digest = tensor_digest(tensors, _signed(metadata))
    return tensor_file(tensors, {"format": str(FORMAT), **metadata, "sha256": digest})


def read_parameters(path: Path, expected: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the parameters in a model file as arrays, by name.

    Args:
        path: Model file.
        expected: Arrays or tensors of the expected types and shapes, by name; their values are not read.

    Raises:
        RunError: The file is missing or damaged (its checksum is missing or wrong), has another format version or
            parameters of other names, types or shapes, or a number is not finite.
    """
    with add_advice(RESTORE_OR_TRAIN), open_tensors(path) as stored:
        check_format(stored, FORMAT)
        arrays = read_arrays(stored, expected)
        check_digest(stored, tensor_digest(arrays, _signed(stored.metadata)))
        return arrays


def check_header(path: Path, expected: Mapping[str, Any]) -> None:
    """Check the header of a model file, without reading the parameters.

    Args:
        path: Model file.
        expected: Arrays or tensors of the expected types and shapes, by name; their values are not read.

    Raises:
        RunError: The file is missing or has no valid header; names, types or shapes differ; or the file has another
            format version.
    """
    with add_advice(RESTORE_OR_TRAIN), open_tensors(path) as stored:
        check_format(stored, FORMAT)
        check_tensors(stored, expected)


def _signed(metadata: Mapping[str, str]) -> str:
    """Return the metadata of the run as one text for the checksum; empty for a file of an earlier version."""
    return "\n".join(f"{key}={metadata[key]}" for key in RUN_KEYS if key in metadata)


def check_formats(model: Path, checkpoint: Path) -> None:
    """Check the format versions of a run's files; a missing file is skipped.

    Args:
        model: Model file.
        checkpoint: Checkpoint file.

    Raises:
        RunError: A file has another format version, or is not a safetensors file.
    """
    for path, format in ((model, FORMAT), (checkpoint, CHECKPOINT_FORMAT)):
        if path.exists():
            with add_advice(RESTORE_OR_TRAIN), open_tensors(path) as stored:
                check_format(stored, format)
