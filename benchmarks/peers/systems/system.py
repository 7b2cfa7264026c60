"""What the benchmark has to know of a system."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from benchmarks.peers.cases import DECODING_BATCH, Case, Cell, Task
from benchmarks.peers.data import Data
from benchmarks.peers.measure import Command

LEARNING_RATE = 0.001
CLIP_NORM = 1.0
SPECIAL = re.compile(r"<[^<>]*>")


class Job(NamedTuple):
    """One network of one system: its sizes, its data, and the folder where its files are."""

    case: Case
    cell: Cell
    data: Data
    folder: Path
    python: Path
    """The interpreter of the system's environment."""


class System(ABC):
    """How one system is installed, trained and made to decode through its own command line."""

    name: ClassVar[str]
    title: ClassVar[str]
    pip: ClassVar[Sequence[Sequence[str]]] = ()
    """Arguments of pip, one list a call, in the system's environment; none for the system of this checkout."""
    pace: ClassVar[Mapping[Task, float]] = {}
    """Speed against a usual system: a first guess of how much to measure, no more."""
    parameters_told: ClassVar[str]
    """Regular expression: the number of parameters in the log of a training."""
    updates_told: ClassVar[str]
    """Regular expression: the updates that the log of a training tells of; the last match counts."""
    short_file: ClassVar[int] = DECODING_BATCH
    """Sentences of the short file: enough to bring with them all that a long file does at its start."""
    notes: ClassVar[str] = ""
    """What a reader of the table must know."""

    @abstractmethod
    def probe(self, python: Path) -> Sequence[str]:
        """A command that succeeds if the system is installed."""

    def prepare(self, job: Job) -> Sequence[Command]:
        """What has to be run before the first training and is not measured."""
        return ()

    @abstractmethod
    def train(self, job: Job, updates: int) -> Command:
        """Write the configuration of a new training of so many updates; the command."""

    @abstractmethod
    def decode(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Write the configuration of decoding the first `count` sources into a file; the command."""

    def outputs(self, path: Path) -> list[str]:
        """The decoded texts, one character a symbol: a special one such as <unk> is a question mark."""
        return [SPECIAL.sub("?", line.replace(" ", "")) for line in path.read_text("utf-8").splitlines()]

    def parameters(self, log: str) -> int | None:
        """How many parameters the system says it trains."""
        found = re.search(self.parameters_told, log)
        return int(re.sub(r"\D", "", found[1])) if found else None

    def updates(self, log: str) -> int | None:
        """How many updates the system says it has made."""
        found = re.findall(self.updates_told, log)
        return int(found[-1]) if found else None


def write_yaml(path: Path, settings: Mapping[str, Any]) -> Path:
    """Write settings as YAML, of which JSON is a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=1), "utf-8")
    return path
