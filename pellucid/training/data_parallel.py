"""Data-parallel training: several processes compute the gradients of each batch together.

Worker 0 runs the training as a single process does: it reads the data, makes the batches, validates, and writes the run
folder. The others hold a copy of network and optimizer. For each update, worker 0 sends them the batch, and each worker
computes the gradients of its part. `WorkerGroup.sum_gradients` sums them, weighted by target positions, and each worker
makes the same update. So the batch size is that of all workers together, and without random numbers in the network
(dropout, scheduled sampling) the result is that of a single process, up to rounding.
"""

from collections.abc import Mapping

import msgspec
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.config.toml import check_training_extensions, validate_config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import Vocabularies
from pellucid.errors import ConfigError, RunError
from pellucid.kernels.dispatch import are_kernels_disabled
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.model.device import check_precision, find_device, move_to_device, use_determinism, use_threads
from pellucid.run_folder.torch_tensors import cpu_tensors
from pellucid.tasks.registry import build_network
from pellucid.training.checkpoint import select_prefix
from pellucid.training.fine_tuning import freeze_parts
from pellucid.training.gradients import GradientComputer
from pellucid.training.optimizer import build_optimizer
from pellucid.training.parameter_updates import ParameterUpdater, compare_parameters, update_random_numbers
from pellucid.training.training_state import TrainingState
from pellucid.training.worker_group import (
    ComparisonRequest,
    Message,
    StartRequest,
    StopRequest,
    UpdateRequest,
    WorkerGroup,
    connected_workers,
)
from pellucid.version import __version__

NETWORK, OPTIMIZER = "network.", "optimizer."
"""Prefixes of the names of the tensors of a message."""


def check_data_parallel(config: Config) -> None:
    """Check that several workers compute the same gradients as a single process.

    Args:
        config: Configuration of the training.

    Raises:
        ConfigError: A setting is not supported with several workers.
    """
    unsupported = {
        "training.sampled_softmax": config.training.sampled_softmax,
        "decoder.pointer_generator": config.decoder.pointer_generator,
        "cuda_graphs": config.cuda_graphs,
    }
    for key, value in unsupported.items():
        if value:
            raise ConfigError(f"{key} is not supported with several workers: switch it off, or train with one process")


def start_workers(state: TrainingState, workers: WorkerGroup) -> None:
    """Begin a training with several workers: worker 0 sends the others configuration, vocabularies, parameters and the
    state of the optimizer.

    Args:
        state: Training state, new or restored, whose updates are made with the workers from here on.
        workers: Workers of the training.

    Raises:
        WorkerLostError: A worker has ended.
    """
    tensors = {f"{NETWORK}{name}": value for name, value in state.predictor.network.state_dict().items()}
    tensors |= {f"{OPTIMIZER}{name}": value for name, value in state.optimizer.state().items()}
    config, vocabularies = (
        msgspec.Raw(msgspec.json.encode(value)) for value in (state.config, state.predictor.vocabularies)
    )
    workers.send(Message(StartRequest(__version__, config, vocabularies), cpu_tensors(tensors)))
    state.updater.workers = workers


def serve_updates(workers: WorkerGroup) -> None:
    """Take part in a training that worker 0 runs, until it ends. No file is read or written.

    Args:
        workers: Workers of the training, of which this process is not worker 0.

    Raises:
        RunError: Worker 0 has another version of Pellucid, or other parameters after the same updates.
        ConfigError: An extension or a device of the configuration is missing here.
        WorkerLostError: Another worker has ended.
    """
    message = workers.receive()
    if isinstance(message.request, StopRequest):
        return
    assert isinstance(message.request, StartRequest), "expected the start of the training"
    updater = _build_updater(message.request, message.tensors, workers)
    network, seed = updater.gradient_computer.network, updater.config.seed
    while not isinstance((message := workers.receive()).request, StopRequest):
        match message.request:
            case UpdateRequest() as request:
                with update_random_numbers(seed, request.update, workers.rank, updater.gradient_computer.device):
                    updater.update_with_others(Batch.from_named_tensors(message.tensors), request)
            case ComparisonRequest():
                compare_parameters(network, workers)


def serve_connected() -> None:
    """Connect this process to the other workers, and take part in the training of worker 0 until it ends.

    Raises:
        InputError: As in `connected_workers` and `serve_updates`.
    """
    with connected_workers() as workers:
        assert workers is not None and workers.rank, "expected one of several workers, and not worker 0"
        serve_updates(workers)


def _build_updater(request: StartRequest, tensors: Mapping[str, Tensor], workers: WorkerGroup) -> ParameterUpdater:
    """Return the updater of a worker, with the parameters and the state of the optimizer of worker 0."""
    if request.version != __version__:
        raise RunError(
            f"worker {workers.rank} has version {__version__} of Pellucid, and worker 0 has {request.version}: install "
            "one version on all machines"
        )
    config = validate_config(msgspec.json.decode(request.config, type=Config))
    check_training_extensions(config)
    device = find_device(config.device)
    check_precision(device, config.precision)
    use_threads(config.threads)
    use_determinism(config)
    if device.type == "cpu" and not are_kernels_disabled():
        load_kernels()
    network = build_network(config, msgspec.json.decode(request.vocabularies, type=Vocabularies))
    network.load_state_dict(select_prefix(tensors, NETWORK))
    freeze_parts(network, config)
    move_to_device(network, device)
    optimizer = build_optimizer(network, config.training)
    optimizer.restore(select_prefix(tensors, OPTIMIZER))
    return ParameterUpdater(GradientComputer(network, config), optimizer, config, workers)
