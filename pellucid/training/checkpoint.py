"""Checkpoints: parameters, optimizer moments and training progress in one safetensors file.

One file is either complete or absent, and reading it runs no code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from pellucid.errors import RunError, abbreviate_reason, quote
from pellucid.files import write_atomic
from pellucid.run_folder.advice import RESTORE_OR_RENAME, add_advice
from pellucid.run_folder.progress import CHECKPOINT_FORMAT, Progress, decode_progress
from pellucid.run_folder.tensor_file import (
    TYPE_NAMES,
    TensorFile,
    array_of_shape,
    check_digest,
    check_format,
    encode_tensors,
    open_tensors,
    tensor_digest,
)
from pellucid.run_folder.torch_tensors import cpu_tensors, read_tensors
from pellucid.training.loop import divergence_error
from pellucid.training.optimizer import Adam, Optimizer
from pellucid.training.progress_check import check_progress
from pellucid.training.torch_optimizer import TorchOptimizer
from pellucid.training.training_state import TrainingState

MEAN_BOUND = 8.0
"""Upper bound of the first Adam moment, in square roots of the second moment.

By the Cauchy-Schwarz inequality, (1 − β₁) / √((1 − β₂) (1 − β₁² / β₂)) ≈ 7.3, plus a margin for rounding.
"""
MEAN_SLACK = 1e-18
"""Absolute slack of that bound: squares of smaller numbers underflow in float32."""


class DataMismatchError(RunError):
    """A checkpoint is of a training on other data."""


def save_training_state(path: Path, state: TrainingState, fingerprint: str) -> None:
    """Write a checkpoint: parameters, optimizer moments, weight average and progress.

    Args:
        path: Checkpoint file; written atomically.
        state: Training state.
        fingerprint: Hash of the settings and the data, which `restore_training_state` compares.

    Raises:
        DivergenceError: A parameter, moment or average is not finite; nothing is written.
        RunError: The file cannot be written, or there is not enough memory.
    """
    tensors, progress = cpu_tensors(_tensors_of(state)), msgspec.json.encode(state.progress).decode()
    for name, value in sorted(tensors.items()):
        if not bool(value.isfinite().all()):
            raise divergence_error(state, f"{name} is not finite")
    metadata = {
        "format": str(CHECKPOINT_FORMAT),
        "progress": progress,
        "fingerprint": fingerprint,
        "sha256": tensor_digest(tensors, progress),
    }
    write_atomic(path, encode_tensors(tensors, metadata))


def restore_training_state(path: Path, state: TrainingState, fingerprint: str) -> None:
    """Restore a training state from a checkpoint, bit for bit.

    Args:
        path: Checkpoint file.
        state: New training state with the same settings and data, which is changed.
        fingerprint: Hash of the settings and the data.

    Raises:
        RunError: The file is missing or damaged, has another format version, or belongs to other data or another
            model; or its progress, step counts or moments are impossible. The training state is then unchanged.
    """
    with add_advice(RESTORE_OR_RENAME):
        tensors, progress = _read_checkpoint(path, state, fingerprint)
    state.predictor.network.load_state_dict(select_prefix(tensors, "network."))
    state.optimizer.restore(select_prefix(tensors, "optimizer."))
    if state.average is not None:
        state.average.restore(select_prefix(tensors, "average."))
    state.progress, state.checkpoint = progress, (path, progress.update)


def _read_checkpoint(path: Path, state: TrainingState, fingerprint: str) -> tuple[dict[str, Tensor], Progress]:
    """Return the tensors and the progress in a checkpoint, after all checks."""
    with open_tensors(path) as stored:
        check_format(stored, CHECKPOINT_FORMAT)
        progress = decode_progress(stored)
        if stored.metadata.get("fingerprint") != fingerprint:
            raise DataMismatchError(
                f"{path} is of a training on other data (its fingerprint differs); name another run folder, give the "
                "same data, or restore the file"
            )
        tensors = read_tensors(stored, _expected_tensors(state, stored))
    try:
        check_progress(state, progress)
    except ValueError as error:
        raise RunError(f"{path}: {abbreviate_reason(error)}") from error
    _check_counts(path, tensors, progress.update, state.optimizer)
    if isinstance(state.optimizer, Adam):
        _check_moments(path, select_prefix(tensors, "optimizer."))
    check_digest(stored, tensor_digest(tensors, stored.metadata["progress"]))
    if isinstance(state.optimizer, TorchOptimizer):
        try:
            state.optimizer.check_state(select_prefix(tensors, "optimizer."))
        except ValueError as error:
            raise RunError(
                f"{path}: the optimizer {quote(state.optimizer.name)}: {abbreviate_reason(error)}"
            ) from error
    return tensors, progress


def _expected_tensors(state: TrainingState, stored: TensorFile) -> dict[str, Any]:
    """Return tensors of the names, types and shapes that a checkpoint must have, without their values.

    The state of an optimizer of another package has those of the file: it is known after the first update only.
    """
    expected = _tensors_of(state)
    if isinstance(state.optimizer, Adam):
        return expected
    types = {short: long for long, short in TYPE_NAMES.items()}
    others = {name: value for name, value in expected.items() if not name.startswith("optimizer.")}
    return others | {
        name: array_of_shape(info.shape, types[info.dtype])
        for name, info in stored.tensors.items()
        if name.startswith("optimizer.") and info.dtype in types
    }


def _tensors_of(state: TrainingState) -> dict[str, Any]:
    """Return all tensors of a training state by their names in a checkpoint."""
    tensors = {f"network.{name}": value for name, value in state.predictor.network.state_dict().items()}
    tensors |= {f"optimizer.{name}": value for name, value in state.optimizer.state().items()}
    if state.average is not None:
        tensors |= {f"average.{name}": value for name, value in state.average.state().items()}
    return tensors


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, under their names without it.

    Args:
        tensors: Tensors by name.
        prefix: The prefix: "network.".
    """
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _check_counts(path: Path, tensors: dict[str, Tensor], updates: int, optimizer: Optimizer) -> None:
    """Check that the step counts of parameters and averages do not exceed the number of updates."""
    prefixes = ("optimizer.", "average.") if isinstance(optimizer, Adam) else ("average.",)
    for name, value in sorted(tensors.items()):
        counts = name.startswith(prefixes) and name.endswith("count")
        if counts and (value.is_floating_point() or not 0 <= int(value) <= updates):
            raise RunError(f"{path}: {name}: expected a whole number from 0 to {updates}, got {value.item()}")


def _check_moments(path: Path, state: dict[str, Tensor]) -> None:
    """Check that the moments are possible for Adam; others would make an update overflow."""
    for name in sorted(name.removesuffix(".square") for name in state if name.endswith(".square")):
        mean, square = state[f"{name}.mean"], state[f"{name}.square"]
        if int(state[f"{name}.count"]) == 0 and bool(square.any()):
            raise RunError(f"{path}: optimizer.{name}.count: expected at least 1 with these moments, got 0")
        if bool((square < 0).any()):
            raise RunError(f"{path}: optimizer.{name}.square: expected no number below 0, got {float(square.min()):g}")
        impossible = mean.abs() > MEAN_BOUND * square.sqrt() + MEAN_SLACK
        if bool(impossible.any()):
            value = float(mean[impossible].abs().max())
            raise RunError(
                f"{path}: optimizer.{name}.mean: expected numbers within {MEAN_BOUND:g} roots of those of "
                f"optimizer.{name}.square, got {value:g}"
            )
