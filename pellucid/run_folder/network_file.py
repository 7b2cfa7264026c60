"""The parameters of PyTorch's networks in the file `model.safetensors` of a run folder."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from pellucid.run_folder.model_file import parameter_file, read_parameters
from pellucid.run_folder.torch_tensors import cpu_tensors


def encode_network(network: nn.Module, run: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a model file, without writing it. Equal parameters and metadata give equal bytes.

    Args:
        network: Network whose parameters and buffers are saved; it may be on any device.
        run: Metadata of its run (`identity.describe_run`); None if there is none.

    Raises:
        RunError: Memory is not enough.
    """
    return parameter_file(cpu_tensors(network.state_dict()), run)


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


def _parameters(path: Path, network: nn.Module) -> dict[str, Tensor]:
    """Return the parameters in a file of this network."""
    arrays = read_parameters(path, network.state_dict())
    return {name: torch.from_numpy(values) for name, values in arrays.items()}
