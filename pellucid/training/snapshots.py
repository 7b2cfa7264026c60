"""What a model was at each validation: its outputs for a few probes and its symbols' vectors, kept in the run folder.

Each snapshot is one safetensors file, named after the validation and the update: snapshots/000012-00001234.safetensors.
N symbols, E embedding, T target positions, S source positions, C candidates a step.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from jaxtyping import Float

from pellucid.config import Feedback
from pellucid.data.vocabulary import SPECIAL, Vocabulary
from pellucid.errors import RunError
from pellucid.files import make_folder, read_bytes, remove, write_atomic
from pellucid.inspection.distributions import distributions, entropy
from pellucid.model.embedding import SymbolTable
from pellucid.model.network import EncoderDecoder
from pellucid.search.trace import Trace
from pellucid.search.transducer import Transducer
from pellucid.training.run import SNAPSHOTS

FORMAT = 1
PROBES = 4
"""The first development examples, whose outputs are kept."""
SYMBOLS = 200
"""Vectors of so many of the commonest symbols of each side are kept."""
MOST = 200
"""Snapshots that remain, about: every second one goes when there are more, and so on."""


class Snapshot(NamedTuple):
    """What the model was after one validation."""

    update: int
    traces: list[Trace]
    entropies: list[Float[np.ndarray, " T"]]
    """Of each trace's steps, in bits."""
    source: Float[np.ndarray, "N E"]
    """The vectors of the commonest source symbols, commonest first; no columns where symbols have no learnt vector."""
    target: Float[np.ndarray, "N E"]


def take(folder: Path, transducer: Transducer, traces: Sequence[Trace], at: tuple[int, int]) -> None:
    """Write what the model is `at` a validation (its number) and an update; `traces` are those of the probes."""
    probes = [trace for trace in traces[:PROBES] if trace.target]
    entropies = [entropy(each) for each in distributions(transducer, probes)]
    network, vocabularies, config = transducer.network, transducer.vocabularies, transducer.config
    source = _vectors(network.encoder.table, config.encoder.embedding, vocabularies.source)
    if isinstance(network, EncoderDecoder):
        target = _vectors(network.decoder.table, config.decoder.embedding, vocabularies.target)
    else:  # answers that are not fed back have no vectors
        target = np.zeros((min(len(vocabularies.target.symbols), SYMBOLS), 0), np.float16)
    tensors = {"source": source, "target": target}
    for number, (trace, bits) in enumerate(zip(probes, entropies, strict=True)):
        if trace.task != "tag":  # a tag looks at its own position, which need not be written
            tensors[f"attention {number}"] = np.ascontiguousarray(trace.attention, np.float16)
        tensors[f"entropy {number}"] = np.ascontiguousarray(bits, np.float32)
    # One note, for safetensors writes several in any order: the same snapshot is the same bytes.
    notes = {"snapshot": json.dumps({"format": FORMAT, "traces": [_told(trace) for trace in probes]})}
    make_folder(folder / SNAPSHOTS)
    validation, update = at
    path = folder / SNAPSHOTS / f"{validation:06}-{update:08}.safetensors"
    write_atomic(path, safetensors.numpy.save(tensors, notes))


def cut(folder: Path, update: int) -> None:
    """Remove the snapshots beyond an update, taken after the checkpoint one goes on from, and half-written ones."""
    for begun in (folder / SNAPSHOTS).glob(".*"):
        remove(begun)
    for path in _paths(folder):
        if _numbers(path)[1] > update:
            remove(path)


def thin(folder: Path, validation: int) -> None:
    """Keep `MOST` snapshots at most, evenly: of validations divisible by a power of two, and the last one.

    What is kept depends on the number of the last validation alone, so that a training that was interrupted keeps the
    same.
    """
    step = 1
    while validation // step >= MOST:
        step *= 2
    for path in _paths(folder):
        if _numbers(path)[0] % step and _numbers(path)[0] != validation:
            remove(path)


def read_snapshots(folder: Path, beyond: int = -1) -> list[Snapshot]:
    """The snapshots of a run after an update, in their order; none where none were taken. `RunError` for a spoilt one.

    One that goes while it is looked for, as a training thins them out, is left out.
    """
    found = []
    for path in _paths(folder):
        if _numbers(path)[1] > beyond:
            try:
                found.append(_read(path))
            except RunError:
                if path.exists():
                    raise
    return found


def _read(path: Path) -> Snapshot:
    """One file."""
    content = read_bytes(path)
    try:
        tensors = safetensors.numpy.load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        notes = json.loads(header["__metadata__"]["snapshot"])
        traces = [_trace(told, _attention(told, number, tensors)) for number, told in enumerate(notes["traces"])]
        entropies = [tensors[f"entropy {number}"] for number in range(len(traces))]
        source, target = (tensors[name].astype(np.float32) for name in ("source", "target"))
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is not a snapshot of this version of Pellucid: {error}") from error
    return Snapshot(_numbers(path)[1], traces, entropies, source, target)


def _paths(folder: Path) -> list[Path]:
    """The snapshots' files, in the order of their updates."""
    paths = (folder / SNAPSHOTS).glob("[0-9]*-[0-9]*.safetensors")
    return sorted((path for path in paths if all(part.isdigit() for part in path.stem.split("-"))), key=_numbers)


def _numbers(path: Path) -> tuple[int, int]:
    """The validation and the update in a file's name."""
    validation, update = path.stem.split("-")
    return int(validation), int(update)


def _vectors(table: SymbolTable, kind: Feedback, vocabulary: Vocabulary) -> Float[np.ndarray, "N E"]:
    """The rows of the commonest symbols; no columns where each symbol is its own direction."""
    stop = SPECIAL + min(len(vocabulary.symbols), SYMBOLS)
    kept = table.weight.detach()[SPECIAL:stop].float().cpu().numpy()
    return np.ascontiguousarray(kept[:, :0] if kind == "one-hot" else kept, np.float16)


def _told(trace: Trace) -> dict[str, Any]:
    """A trace without its attention."""
    apart = ("attention", "looks", "format", "score")
    return {name: value for name, value in trace.to_dict().items() if name not in apart}


def _attention(told: dict[str, Any], number: int, tensors: dict[str, np.ndarray]) -> Float[np.ndarray, "T S"]:
    """The weights of the trace of this number; those of tags are not kept."""
    if told.get("task") == "tag":
        return np.eye(len(told["target"]), len(told["source"]), told["features"], dtype=np.float32)
    return tensors[f"attention {number}"].astype(np.float32)


def _trace(told: dict[str, Any], attention: Float[np.ndarray, "T S"]) -> Trace:
    """What `_told` has told."""
    top = told["top"]
    return Trace(
        text=told["text"],
        source=tuple(told["source"]),
        features=told["features"],
        unknown=tuple(told["unknown"]),
        target=tuple(told["target"]),
        output=told["output"],
        finished=told["finished"],
        log_probabilities=np.array(told["log_probabilities"], np.float32),
        attention=attention,
        top_symbols=tuple(tuple(symbol for symbol, _ in step) for step in top),
        top_log_probabilities=np.array([[value for _, value in step] for step in top], np.float32),
        task=told.get("task", "transduce"),
    )
