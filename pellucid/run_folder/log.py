"""The log of a run, `log.jsonl`: one record per line."""

import json
import os
from collections import Counter
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid.argument_checks import check_arguments
from pellucid.errors import RunError
from pellucid.files import file_exists, open_regular, sync_folder, write_atomic
from pellucid.limits import check_module_limits, read_module_limit
from pellucid.run_folder.advice import RESTORE_OR_REMOVE_LOG, add_advice
from pellucid.run_folder.log_records import parse_record
from pellucid.run_folder.progress import Progress
from pellucid.run_folder.run_files import LOG, member_folders

MAX_LOG_SIZE = read_module_limit("PELLUCID_MAX_LOG_MIB", 128)
"""Maximum bytes of a log: about a million lines, and a training logs one line for 50 updates."""
MAX_RECORD_SIZE = 2**20
"""Bytes of a line of the log; a longer line is damaged."""
MAX_WINDOWS = 2**13
"""Number of training losses, and of validations, up to which a `RunLog` holds all; later ones are thinned."""
MAX_REPEATS = {"stepped": MAX_WINDOWS, "validated": MAX_WINDOWS, "read": 8}
"""Number of records of an event up to which a `RunLog` holds all; a training reads two files."""
MAX_OTHER_REPEATS = 2**10
"""The same for other events, of which each start of a training writes one at most."""


@dataclass
class RunLog:
    """Log of a run that has been read once; it takes little memory, also if the log is long.

    All records are held, except that those of an event after the first `MAX_REPEATS` are thinned: each time their
    number doubles, half as many of the following ones are held. The best validations so far are counted apart from the
    others. Which records are held depends only on the records before them, so the records of a growing log begin with
    those of the shorter log. Lists are held in records of data files only.
    """

    path: Path
    """The file, for messages."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """Records in order."""
    last_progress: dict[str, Any] | None = None
    """Last record with the numbers of updates, samples and seconds; None if there is none."""
    num_damaged: int = 0
    """Number of damaged lines."""
    counts: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """Number of records by event, including those that are not held; of best validations, with True."""
    last_best: dict[str, Any] | None = None
    """Record of the last best validation; None if there is none."""
    num_omitted: int = 0
    """Number of records that are not held, except training losses."""

    def add(self, record: dict[str, Any]) -> None:
        """Add a record at the end.

        Args:
            record: Log record.
        """
        if "update" in record:
            self.last_progress = record
        event, is_best = record["event"], record.get("best") is True
        if is_best:
            self.last_best = record
        index = self.counts[event, is_best]
        self.counts[event, is_best] += 1
        if index % (1 << (index // MAX_REPEATS.get(event, MAX_OTHER_REPEATS)).bit_length()):
            self.num_omitted += event != "stepped"
            return
        if event != "read" and any(isinstance(value, list) for value in record.values()):
            record = {key: value for key, value in record.items() if not isinstance(value, list)}
        self.records.append(record)

    @property
    def fingerprint(self) -> str:
        """Hash of the settings and the data of the training; empty for a log of an earlier version."""
        return next((record["fingerprint"] for record in self.all("started") if "fingerprint" in record), "")

    @property
    def has_stopped(self) -> bool:
        """True if the training reached its end (event "stopped"), rather than an interruption."""
        return self.first("stopped") is not None

    @property
    def num_shared_examples(self) -> int:
        """Number of validation examples that are training examples, too; 0 for a log of an earlier version."""
        return sum(record.get("shared", 0) for record in self.all("read"))

    def first(self, event: str) -> dict[str, Any] | None:
        """Return the first record of an event; None if there is none.

        Args:
            event: Name of the event, such as "validated".
        """
        return next((record for record in self.records if record["event"] == event), None)

    def all(self, event: str) -> list[dict[str, Any]]:
        """Return the records of an event in order.

        Args:
            event: Name of the event, such as "validated".
        """
        return [record for record in self.records if record["event"] == event]

    def best_validation(self, progress: Progress) -> dict[str, Any] | None:
        """Return the record of the best validation, or None if the log lacks it.

        A record with another loss is of another run.

        Args:
            progress: Progress in the checkpoint.
        """
        if progress.best_validation_score is None:
            return None
        best_records = [record for record in self.all("validated") if record["best"]]
        best_records += [] if self.last_best is None else [self.last_best]
        expected = progress.best_update, -progress.best_validation_score[2]
        return next((record for record in best_records if (record["update"], record["loss"]) == expected), None)

    def describe_damage(self) -> list[str]:
        """Return a list of one sentence with the number of damaged lines in the log, or an empty list."""
        if not self.num_damaged:
            return []
        return [f"{self.path}: {self.num_damaged:,} damaged line{'' if self.num_damaged == 1 else 's'} skipped"]

    def describe_omissions(self) -> list[str]:
        """Return a list of one sentence with the number of records that are not held, or an empty list."""
        if not self.num_omitted:
            return []
        return [f"{self.path}: {self.num_omitted:,} repeated record{'' if self.num_omitted == 1 else 's'} left out"]

    def describe_missing_validation(self, progress: Progress) -> list[str]:
        """Return a list of one sentence if the log lacks the best validation of a checkpoint, or an empty list.

        Args:
            progress: Progress in the checkpoint.
        """
        if progress.best_validation_score is None or self.best_validation(progress) is not None:
            return []
        return [
            f"{self.path} lacks the best validation, at update {progress.best_update:,}: lines were removed, or the "
            "file is of another run; restore it from a copy of the run"
        ]


@check_arguments
def load_run_log(folder: str | Path) -> RunLog:
    """Read the log of a run once, in bounded memory; damaged lines are counted and left out (see `parse_record`).

    Args:
        folder: Run folder; without a log there are no records.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    log = RunLog(Path(folder) / LOG)
    for _, record in _read_lines(log.path):
        if record is None:
            log.num_damaged += 1
        else:
            log.add(record)
    return log


@check_arguments
def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """Return all records of the log of a run in order; damaged lines are left out (see `parse_record`).

    A long log takes much memory; `load_run_log` takes little.

    Args:
        folder: Run folder; without a log there are no records.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    return [record for _, record in _read_lines(Path(folder) / LOG) if record is not None]


@check_arguments
def read_training_checksums(folder: str | Path) -> tuple[str, ...]:
    """Return the SHA-256 of the training file of a run, or of each member of an ensemble, in hexadecimal.

    Of parallel files, the checksum of the targets follows that of the sources. A checksum is empty if it is unknown, as
    of a run without a log, or one that was trained on pairs in memory.

    Args:
        folder: Run folder, or folder of an ensemble.

    Raises:
        RunError: The list of members cannot be read.
    """
    return tuple(_training_checksum(run) for run in member_folders(folder))


def _training_checksum(run: Path) -> str:
    """Return the checksum of the training file of one run, which its log names first."""
    with suppress(RunError), closing(_read_lines(run / LOG)) as lines:
        for _, record in lines:
            if record is not None and record["event"] == "read":
                return "".join(record.get(name) or "" for name in ("sha256", "target_sha256"))
    return ""


def append_log(folder: Path, *records: dict[str, Any]) -> None:
    """Append records to the log of a run, one JSON object per line; the log is created if it is missing.

    A new log is flushed to disk; later records are flushed by `sync_log`.

    Args:
        folder: Run folder, which exists.
        *records: Log records.

    Raises:
        RunError: The log is not a regular file, or cannot be written.
    """
    with open_regular(folder / LOG, mode="ab") as file:
        is_new = not os.fstat(file.fileno()).st_size
        file.write(b"".join(map(_log_line, records)))
        if is_new:
            file.flush()
            os.fsync(file.fileno())
            sync_folder(folder)


def sync_log(folder: Path) -> None:
    """Flush the log of a run to disk. What is written after a record, and relies on it, is written after this.

    Args:
        folder: Run folder; a missing log is created, and is empty.

    Raises:
        RunError: The log is not a regular file, or cannot be written.
    """
    with open_regular(folder / LOG, mode="ab") as file:
        os.fsync(file.fileno())


def truncate_log(folder: Path, progress: Progress, fingerprint: str) -> RunLog:
    """Remove the log lines of later updates and validations than those of a checkpoint, and damaged lines.

    The log is read once. A log without such lines is not rewritten; a missing log is skipped.

    Args:
        folder: Run folder.
        progress: Progress in the checkpoint.
        fingerprint: Hash of the settings and the data of the training; empty for no comparison.

    Returns:
        Log of the remaining lines, with the number of damaged lines that were removed.

    Raises:
        RunError: The log cannot be read or written, is larger than `MAX_LOG_SIZE`, or is of another training. It is
            then unchanged.
    """
    log, content, is_changed = RunLog(folder / LOG), bytearray(), False
    for line, record in _read_lines(log.path):
        log.num_damaged += record is None
        valid = record if record is not None and _is_reached(record, progress) else None
        kept = b"" if valid is None else _log_line(valid)
        content += kept
        is_changed = is_changed or kept != line
        if valid is not None:
            log.add(valid)
    if fingerprint and log.fingerprint not in ("", fingerprint):
        raise other_log_error(log.path)
    if is_changed:
        write_atomic(log.path, bytes(content))
    return log


def other_log_error(path: Path) -> RunError:
    """Return the error for a log that is not of the run in whose folder it is.

    Args:
        path: The log.
    """
    return RunError(f"{path} is of a training with other data or settings (fingerprint); {RESTORE_OR_REMOVE_LOG}")


def _is_reached(record: dict[str, Any], progress: Progress) -> bool:
    """Return whether a record is of no later update or validation than a checkpoint."""
    return bool(record.get("update", 0) <= progress.update and record.get("validation", 0) <= progress.validations)


def _read_lines(path: Path) -> Generator[tuple[bytes, dict[str, Any] | None]]:
    """Yield each line of a log and its record; None for a damaged one, or for one that is too long.

    An empty line has no record and is not damaged; it is yielded with the line after it.
    """
    if not file_exists(path):
        return
    check_module_limits()
    with add_advice(RESTORE_OR_REMOVE_LOG), open_regular(path, RunError) as file:
        _check_log_size(path, os.fstat(file.fileno()).st_size)
        blank, size = b"", 0
        while line := file.readline(MAX_RECORD_SIZE):
            size += len(line)
            is_long = len(line) == MAX_RECORD_SIZE and not line.endswith(b"\n")
            rest = line
            while is_long and not rest.endswith(b"\n") and rest:
                rest = file.readline(MAX_RECORD_SIZE)
                size += len(rest)
                _check_log_size(path, size)
            _check_log_size(path, size)  # virtual files of the system have size 0, and some have no end
            if is_long:
                yield line, None
            elif text := line.decode("utf-8", "replace").removesuffix("\n"):
                yield blank + line, parse_record(text)
                blank = b""
            else:
                blank = line


def _check_log_size(path: Path, size: int) -> None:
    """Raise `RunError` if a log has more bytes than `MAX_LOG_SIZE`."""
    if size > MAX_LOG_SIZE:
        raise RunError(f"{path} is too large: it has more than {MAX_LOG_SIZE:,} bytes")


def _log_line(record: dict[str, Any]) -> bytes:
    """Return a record as one line."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
