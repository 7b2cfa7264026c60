"""The file `model.safetensors` of a run folder: the parameters of a network."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from pellucid.run_folder.advice import RESTORE_OR_TRAIN, add_advice
from pellucid.run_folder.progress import CHECKPOINT_FORMAT
from pellucid.run_folder.tensor_file import (
    check_digest,
    check_format,
    check_tensors,
    cpu_tensors,
    open_tensors,
    read_tensors,
    tensor_digest,
    tensor_file,
)

FORMAT = 2
"""Format version."""
FINGERPRINT, SETTINGS, VOCABULARY_DIGEST, UPDATE, VERSIONS = (
    *("fingerprint", "settings", "vocabulary", "update", "versions"),
)
RUN_KEYS = (FINGERPRINT, SETTINGS, VOCABULARY_DIGEST, UPDATE, VERSIONS)
"""Keys of the metadata that tell of which run and update the parameters are (`identity.describe_run`)."""


def network_file(network: nn.Module, run: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a model file, without writing it. Equal parameters and metadata give equal bytes.

    Args:
        network: Network whose parameters and buffers are saved; it may be on any device.
        run: Metadata of its run (`identity.describe_run`); None for none.

    Raises:
        RunError: Memory does not suffice.
    """
    return parameter_file(cpu_tensors(network.state_dict()), run)


def parameter_file(tensors: Mapping[str, Tensor], run: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a safetensors file of parameters, with a format version and a checksum in its metadata.

    Args:
        tensors: Parameters by name, contiguous and on the CPU.
        run: Metadata of their run; None for none.

    Raises:
        RunError: Memory does not suffice.
    """
    metadata = dict(run or {})
    digest = tensor_digest(tensors, _signed(metadata))
    return tensor_file(tensors, {"format": str(FORMAT), **metadata, "sha256": digest})


def load_parameters(path: Path, network: nn.Module) -> None:
    """Load the parameters of a model file into a network.

    Args:
        path: Model file.
        network: Network that is changed; its parameters have the names, types and shapes of the file.

    Raises:
        RunError: The file is missing or damaged (its checksum is missing or wrong), has another format version or
            parameters of other names, types or shapes, or a number is not finite. The network is then unchanged.
    """
    network.load_state_dict(_parameters(path, network))


def check_network(path: Path, network: nn.Module) -> None:
    """Check everything that `load_parameters` checks, without changing the network.

    Args:
        path: Model file.
        network: Network of the expected names, types and shapes; its values are not compared.

    Raises:
        RunError: `load_parameters` would raise it.
    """
    _parameters(path, network)


def check_header(path: Path, network: nn.Module) -> None:
    """Check the header of a model file against a network, without reading the parameters.

    Args:
        path: Model file.
        network: The network, possibly on the meta device, so that no memory is used before the check.

    Raises:
        RunError: The file is missing or has no valid header; names, types or shapes differ; or the file has another
            format version.
    """
    with add_advice(RESTORE_OR_TRAIN), open_tensors(path) as stored:
        check_format(stored, FORMAT)
        check_tensors(stored, network.state_dict())


def _parameters(path: Path, network: nn.Module) -> dict[str, Tensor]:
    """Return the parameters in a file of this network."""
    with add_advice(RESTORE_OR_TRAIN), open_tensors(path) as stored:
        check_format(stored, FORMAT)
        tensors = read_tensors(stored, network.state_dict())
        check_digest(stored, tensor_digest(tensors, _signed(stored.metadata)))
        return tensors


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
