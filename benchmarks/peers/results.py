"""Results of the benchmark in a JSON file that is complete after every measurement."""

import json
import statistics
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from benchmarks.peers.cases import Cell, Task


@dataclass
class Record:
    """One measurement of one system, or the reason of its failure."""

    case: str
    cell: Cell
    system: str
    task: Task
    repeat: int
    rate: float | None = None
    """Samples (train) or sentences (greedy, beam) per CPU second in the steady state."""
    start_wall: float | None = None
    """Wall seconds from the start of the process to the end of the first update."""
    start_cpu: float | None = None
    """CPU seconds of the same time."""
    peak_mib: float | None = None
    reason: str = ""
    """Reason of a failure; empty for a successful measurement."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Raw values from which the numbers are computed."""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Return case, cell, system, task and repeat, which identify the measurement."""
        return self.case, self.cell, self.system, self.task, self.repeat


class StoredRecord(Protocol):
    """Dataclass of one measurement."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    reason: str

    @property
    def key(self) -> tuple[object, ...]:
        """Return the values that identify the measurement."""


StoredRecordType = TypeVar("StoredRecordType", bound=StoredRecord)


class RecordFile(Generic[StoredRecordType]):
    """JSON file of records, of earlier runs and of this one."""

    def __init__(self, path: Path, record_type: type[StoredRecordType]) -> None:
        """Read the file if it exists.

        Args:
            path: The JSON file.
            record_type: Dataclass of the records.
        """
        self.path = path
        self.lock = threading.Lock()
        content = json.loads(path.read_text("utf-8")) if path.exists() else {"machine": {}, "records": []}
        self.machine: dict[str, Any] = content["machine"]
        self.records = [record_type(**record) for record in content["records"]]

    def is_measured(self, key: tuple[object, ...]) -> bool:
        """Return True if there is a successful measurement.

        Args:
            key: Key of a record.
        """
        return any(record.key == key and not record.reason for record in self.records)

    def add(self, record: StoredRecordType) -> None:
        """Add a record, which replaces an older one with the same key, and write the file.

        Args:
            record: The record.
        """
        with self.lock:
            self.records = [other for other in self.records if other.key != record.key] + [record]
            self.write()

    def write(self) -> None:
        """Write the file."""
        content = {"machine": self.machine, "records": [asdict(record) for record in self.records]}
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")
        temporary.replace(self.path)


class Results(RecordFile[Record]):
    """Records of the rates of the systems."""

    def __init__(self, path: Path) -> None:
        """Read the file if it exists.

        Args:
            path: The JSON file.
        """
        super().__init__(path, Record)


def median_field(records: Sequence[Record], field_name: str) -> float | None:
    """Return the median of a field over repeats; None without a value.

    Args:
        records: Records of the repeats.
        field_name: Name of the field.
    """
    values = [value for record in records if (value := getattr(record, field_name)) is not None]
    return statistics.median(values) if values else None
