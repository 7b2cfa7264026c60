"""A session to one file and back: parameters, the optimiser's moments, and where training stands.

Everything is in one safetensors file, so a checkpoint is whole or absent, and reading one runs no code.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from pellucid.errors import RunError
from pellucid.files import read_bytes, write_atomic
from pellucid.training.loop import Progress, Session

FORMAT, SESSION_FORMAT = 1, 2
"""Of a file of parameters, and of a checkpoint."""


def save_network(path: Path, network: nn.Module) -> None:
    """Write the parameters alone."""
    write_atomic(path, safetensors.torch.save(_plain(network.state_dict()), {"format": str(FORMAT)}))


def load_network(path: Path, network: nn.Module) -> None:
    """Read parameters into a network built for them; every name and shape must agree, every number be finite."""
    tensors, _ = _read(path)
    _check(path, network.state_dict(), tensors)
    network.load_state_dict(tensors)


def check_network(path: Path, network: nn.Module) -> None:
    """`RunError` where a file does not hold the parameters of a network like this one."""
    tensors, _ = _read(path)
    _check(path, network.state_dict(), tensors)


def save_session(path: Path, session: Session, fingerprint: str) -> None:
    """Write all that `restore_session` needs; `fingerprint` tells which data it belongs to."""
    tensors = {f"network.{name}": value for name, value in session.transducer.network.state_dict().items()}
    tensors |= {f"optimizer.{name}": value for name, value in session.optimizer.state().items()}
    if session.average is not None:
        tensors |= {f"average.{name}": value for name, value in session.average.state().items()}
    notes = {
        "format": str(SESSION_FORMAT),
        "progress": msgspec.json.encode(session.progress).decode(),
        "fingerprint": fingerprint,
    }
    write_atomic(path, safetensors.torch.save(_plain(tensors), notes))


def restore_session(path: Path, session: Session, fingerprint: str) -> None:
    """Bring a new session to where the saved one stood, bit for bit; `RunError` for other data or another model."""
    tensors, notes = _read(path, SESSION_FORMAT)
    progress = _progress(path, notes)
    if notes.get("fingerprint") != fingerprint:
        raise RunError(f"{path.parent} was trained on other data; name another run folder, or give the data it had")
    network, optimizer = _part(tensors, "network."), _part(tensors, "optimizer.")
    _check(path, session.transducer.network.state_dict(), network)
    _check(path, session.optimizer.state(), optimizer)
    average = _part(tensors, "average.")
    _check(path, {} if session.average is None else session.average.state(), average)
    session.transducer.network.load_state_dict(network)
    session.optimizer.restore(optimizer)
    if session.average is not None:
        session.average.restore(average)
    session.progress = progress


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _progress(path: Path, notes: dict[str, str]) -> Progress:
    """Where the training of a checkpoint stands."""
    try:
        return msgspec.json.decode(notes.get("progress", ""), type=Progress)
    except msgspec.DecodeError as error:
        raise RunError(f"{path} is not a checkpoint of this version of Pellucid: {error}") from error


def _read(path: Path, format: int = FORMAT) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the notes of a file."""
    content = read_bytes(path)
    try:
        tensors = safetensors.torch.load(content)
        notes = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
    except (safetensors.SafetensorError, ValueError) as error:
        raise RunError(f"{path} is not a whole safetensors file: {error}") from error
    if notes.get("format", str(format)) != str(format):
        raise RunError(f"{path} is of format {notes['format']}, and this version of Pellucid reads format {format}")
    return tensors, notes


def _check(path: Path, own: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse tensors of other names or shapes than one's own, and numbers that are none."""
    wanted = {name: list(value.shape) for name, value in own.items()}
    found = {name: list(value.shape) for name, value in tensors.items()}
    strange, absent = sorted(found.keys() - wanted.keys()), sorted(wanted.keys() - found.keys())
    if strange and absent:
        names = f"it holds {strange[0]}, which no parameter here is called, and lacks {absent[0]}"
        raise RunError(
            f"{path} does not fit the run's configuration and vocabulary: {names}; it may be of another version of "
            "Pellucid: train it anew, or read it with the version that wrote it"
        )
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            what = f"{name} is {found.get(name, 'missing')} there and {wanted.get(name, 'missing')} here"
            raise RunError(f"{path} does not fit the run's configuration and vocabulary: {what}")
        if not bool(tensors[name].isfinite().all()):
            raise RunError(f"{path} holds numbers that are not finite, in {name}")


def _plain(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Detached, contiguous tensors on the processor, each with its own memory, as safetensors asks."""
    held = {name: torch.as_tensor(value).detach() for name, value in tensors.items()}
    return {name: value.to("cpu", copy=True).contiguous() for name, value in held.items()}
