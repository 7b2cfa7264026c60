"""Reading of a run folder without PyTorch: settings, vocabularies and parameters."""

from dataclasses import dataclass
from pathlib import Path

from pellucid.config.settings import Config
from pellucid.data.vocabulary import Vocabularies
from pellucid.run_folder.identity import ModelIdentity
from pellucid.run_folder.model_file import read_parameters
from pellucid.run_folder.run_files import MODEL
from pellucid.run_folder.run_parts import read_run_settings
from pellucid.run_folder.tensor_file import array_of_shape
from pellucid.runtime.parameters import Array, NetworkArrays, build_network_arrays
from pellucid.runtime.support import check_supported


@dataclass(frozen=True, eq=False)
class RunArrays:
    """Content of a run folder: settings, vocabularies, and the parameters of the network as arrays."""

    folder: Path
    config: Config
    vocabularies: Vocabularies
    identity: ModelIdentity
    """Identity of the model, with which other files of the run are compared."""
    network: NetworkArrays


def read_run(folder: Path, needs_validated_model: bool = True) -> RunArrays:
    """Read a run folder without PyTorch and Numba.

    Args:
        folder: Run folder, not that of an ensemble.
        needs_validated_model: Whether a model without a validation is an error. True by default.

    Returns:
        Settings, vocabularies and parameters, after all checks of the files that `pellucid.load` makes.

    Raises:
        UnsupportedError: The runtime does not support a setting of the run; the message names it.
        RunError: A file is missing, damaged or of another run.
        ConfigError: The saved settings are not valid.
    """
    config, vocabularies, identity = read_run_settings(folder, needs_validated_model=needs_validated_model)
    check_supported(config)
    network = read_network(folder / MODEL, config, vocabularies)
    return RunArrays(folder, config, vocabularies, identity, network)


def read_network(path: Path, config: Config, vocabularies: Vocabularies) -> NetworkArrays:
    """Read the parameters of a model file.

    Args:
        path: Model file.
        config: Configuration of the run, which the runtime supports.
        vocabularies: Vocabularies of the run.

    Raises:
        RunError: The file is missing or damaged, or does not fit the configuration and the vocabularies.
    """
    expected: dict[str, Array] = {}

    def record(name: str, shape: tuple[int, ...]) -> Array:
        """Return an array of the shape without memory, after storing it as expected in the file."""
        expected[name] = array_of_shape(shape)
        return expected[name]

    build_network_arrays(config, vocabularies, record)
    arrays = read_parameters(path, expected)
    return build_network_arrays(config, vocabularies, lambda name, _: arrays[name])
