"""Interface of a system: its commands, and the patterns of its logs."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from benchmarks.peers.cases import DECODING_BATCH_SIZE, Case, Cell, Task
from benchmarks.peers.data import BenchmarkData, append_suffix
from benchmarks.peers.measure import Command

LEARNING_RATE = 0.001
CLIP_NORM = 1.0
SPECIAL = re.compile(r"<[^<>]*>")


class Network(NamedTuple):
    """Sizes and dropout of a network in the settings of a peer."""

    cell: Cell
    hidden_size: int
    """Units of the decoder, and of both encoder directions together."""
    embedding_size: int
    encoder_layers: int = 1
    dropout: float = 0.0
    label_smoothing: float = 0.0


class Job(NamedTuple):
    """One network of one system: sizes, data and folder of its files."""

    case: Case
    cell: Cell
    data: BenchmarkData
    folder: Path
    python: Path
    """Python interpreter of the system's environment."""

    @property
    def network(self) -> Network:
        """Return the sizes of the network; it has no dropout."""
        return Network(self.cell, self.case.hidden_size, self.case.embedding_size)


class System(ABC):
    """Installation, training and decoding of one system through its command line."""

    name: ClassVar[str]
    title: ClassVar[str]
    pip: ClassVar[Sequence[Sequence[str]]] = ()
    """Arguments of each call of pip in the system's environment; empty for the system of this checkout."""
    relative_speed: ClassVar[Mapping[Task, float]] = {}
    """Speed relative to a typical system; it determines the size of the first attempt."""
    parameters_pattern: ClassVar[str]
    """Regular expression for the number of parameters in the log of a training."""
    updates_pattern: ClassVar[str]
    """Regular expression for the number of updates in the log of a training; the last match counts."""
    short_file: ClassVar[int] = DECODING_BATCH_SIZE
    """Sentences of the short file, enough for all work of a start (loading, compiling)."""
    notes: ClassVar[str] = ""
    """Note of the table on differences of the system."""

    @abstractmethod
    def probe_command(self, python: Path) -> Sequence[str]:
        """Return a command that succeeds if the system is installed.

        Args:
            python: Python interpreter of the system's environment.
        """

    def prepare_commands(self, job: Job) -> Sequence[Command]:
        """Return the commands to run before the first training, which are not measured.

        Args:
            job: The network.
        """
        return ()

    @abstractmethod
    def train_command(self, job: Job, updates: int) -> Command:
        """Write the configuration of a new training.

        Args:
            job: The network.
            updates: Number of updates.

        Returns:
            The command of the training.
        """

    @abstractmethod
    def decode_command(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Write the configuration of decoding.

        Args:
            job: The network.
            count: Number of sources.
            beam: Beam size.
            output: File of the outputs.

        Returns:
            The command of decoding.
        """

    def read_outputs(self, path: Path) -> list[str]:
        """Return the decoded texts, one character per symbol; a special symbol such as <unk> becomes a question mark.

        Args:
            path: File of the outputs.
        """
        return [SPECIAL.sub("?", line.replace(" ", "")) for line in path.read_text("utf-8").splitlines()]

    def parse_parameters(self, log: str) -> int | None:
        """Return the number of parameters that the system reports, or None.

        Args:
            log: Log of a training.
        """
        match = re.search(self.parameters_pattern, log)
        return int(re.sub(r"\D", "", match[1])) if match else None

    def parse_updates(self, log: str) -> int | None:
        """Return the number of updates that the system reports, or None.

        Args:
            log: Log of a training.
        """
        matches = re.findall(self.updates_pattern, log)
        return int(matches[-1]) if matches else None


def corpus_settings(job: Job) -> dict[str, Any]:
    """Return the corpus and vocabulary settings that OpenNMT-py and eole share.

    Args:
        job: The network.
    """
    train, dev = job.data.train.symbols, job.data.dev.symbols
    return {
        "data": {
            "corpus_1": {"path_src": str(append_suffix(train, "src")), "path_tgt": str(append_suffix(train, "trg"))},
            "valid": {"path_src": str(append_suffix(dev, "src")), "path_tgt": str(append_suffix(dev, "trg"))},
        },
        "save_data": str(job.folder / "data"),
        "src_vocab": str(job.folder / "vocabulary.src"),
        "tgt_vocab": str(job.folder / "vocabulary.trg"),
    }


def write_yaml(path: Path, settings: Mapping[str, Any]) -> Path:
    """Write settings as JSON, which is valid YAML.

    Args:
        path: The file.
        settings: The settings.

    Returns:
        The path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=1), "utf-8")
    return path
