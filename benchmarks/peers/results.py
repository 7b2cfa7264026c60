"""What was measured, kept in a JSON file that is whole after every measurement."""

import json
import statistics
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import Cell, Task


@dataclass
class Record:
    """One measurement of one system, or the reason why there is none."""

    case: str
    cell: Cell
    system: str
    task: Task
    repeat: int
    rate: float | None = None
    """Samples (train) or sentences (greedy, beam) a processor second in steady state."""
    start_wall: float | None = None
    """Seconds from the start of the process to the end of the first update."""
    start_cpu: float | None = None
    peak_mib: float | None = None
    reason: str = ""
    """Why there is no number."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Everything that the numbers were made of."""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What was measured."""
        return self.case, self.cell, self.system, self.task, self.repeat


class Results:
    """The records of a run, old and new."""

    def __init__(self, path: Path) -> None:
        """Read what an earlier run has left."""
        self.path = path
        self.lock = threading.Lock()
        told = json.loads(path.read_text("utf-8")) if path.exists() else {"machine": {}, "records": []}
        self.machine: dict[str, Any] = told["machine"]
        self.records = [Record(**record) for record in told["records"]]

    def has(self, key: tuple[str, str, str, str, int]) -> bool:
        """Whether it was measured already; what failed is tried again."""
        return any(record.key == key and not record.reason for record in self.records)

    def add(self, record: Record) -> None:
        """Keep a record, in place of an older one of the same, and write the file."""
        with self.lock:
            self.records = [other for other in self.records if other.key != record.key] + [record]
            self.write()

    def write(self) -> None:
        """Write everything."""
        told = {"machine": self.machine, "records": [asdict(record) for record in self.records]}
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(told, indent=1, ensure_ascii=False), "utf-8")
        part.replace(self.path)


def median(records: Sequence[Record], what: str) -> float | None:
    """The median of one number over repeats; None where there is none."""
    found = [value for record in records if (value := getattr(record, what)) is not None]
    return statistics.median(found) if found else None
