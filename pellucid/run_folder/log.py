"""The log of a run, `log.jsonl`: one record per line."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pellucid.argument_checks import check_arguments
from pellucid.errors import RunError
from pellucid.files import file_exists, open_regular, read_bytes, write_atomic
from pellucid.run_folder.log_records import parse_record
from pellucid.run_folder.progress import Progress
from pellucid.run_folder.run_files import LOG

MAX_LOG_SIZE = 2**27
"""Maximum bytes of a log: about a million lines, and a training logs one line for 50 updates."""
MAX_RECORD_SIZE = 2**20
"""Bytes of a line of the log; a longer line is damaged."""


def append_log(folder: Path, *records: dict[str, Any]) -> None:
    """Append records to the log of a run, one JSON object per line; the log is created if it is missing.

    Args:
        folder: Run folder, which exists.
        *records: Log records.

    Raises:
        RunError: The log is not a regular file, or cannot be written.
    """
    with open_regular(folder / LOG, mode="ab") as file:
        file.write(b"".join(map(_log_line, records)))


def cut_log(folder: Path, progress: Progress) -> None:
    """Remove the log lines of later updates and validations than those of a checkpoint, and damaged lines.

    A log without such lines is not rewritten; a missing log is skipped.

    Args:
        folder: Run folder.
        progress: Progress in the checkpoint.

    Raises:
        RunError: The log cannot be read or written, or is larger than `MAX_LOG_SIZE`.
    """
    if not file_exists(folder / LOG):
        return
    valid_records = [
        record
        for record in read_log(folder)
        if record.get("update", 0) <= progress.update and record.get("validation", 0) <= progress.validations
    ]
    content = b"".join(map(_log_line, valid_records))
    if content != read_bytes(folder / LOG):
        write_atomic(folder / LOG, content)


def has_stopped(log: Sequence[dict[str, Any]]) -> bool:
    """Return whether a log records that its training reached its end (event "stopped"), rather than an interruption.

    Args:
        log: Records of the log.
    """
    return any(record["event"] == "stopped" for record in log)


@check_arguments
def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """Return the records of the log of a run in order; damaged lines are left out (see `parse_record`, `log_damage`).

    Args:
        folder: Run folder; without a log there are no records.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    folder = Path(folder)
    return [record for record in _log_lines(folder) if record is not None]


@check_arguments
def log_damage(folder: str | Path) -> list[str]:
    """Return a list of one sentence with the number of damaged lines in the log, or an empty list.

    Args:
        folder: Run folder.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    folder = Path(folder)
    count = sum(record is None for record in _log_lines(folder))
    return [f"{folder / LOG}: {count:,} damaged line{'' if count == 1 else 's'} skipped"] if count else []


def best_validation(log: Sequence[dict[str, Any]], progress: Progress) -> dict[str, Any] | None:
    """Return the log record of the best validation, or None if the log lacks it.

    Args:
        log: Records of the log.
        progress: Progress in the checkpoint.
    """
    best_records = (record for record in log if record["event"] == "validated" and record["best"])
    return next((record for record in best_records if record["update"] == progress.best_update), None)


def missing_validation(folder: Path, progress: Progress) -> list[str]:
    """Return a list of one sentence if the log lacks the best validation of a checkpoint, or an empty list.

    Args:
        folder: Run folder.
        progress: Progress in the checkpoint.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    if progress.best is None:
        return []
    if best_validation(read_log(folder), progress) is not None:
        return []
    return [f"{folder / LOG} lacks the best validation, at update {progress.best_update:,}: lines were removed"]


def _log_lines(folder: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the record of each non-empty line; None for a damaged one, or for one that is too long."""
    if not file_exists(folder / LOG):
        return
    with open_regular(folder / LOG, RunError) as file:
        if os.fstat(file.fileno()).st_size > MAX_LOG_SIZE:
            raise RunError(f"{folder / LOG} is too large: it has more than {MAX_LOG_SIZE:,} bytes")
        while line := file.readline(MAX_RECORD_SIZE):
            is_long = len(line) == MAX_RECORD_SIZE and not line.endswith(b"\n")
            while is_long and not line.endswith(b"\n") and line:
                line = file.readline(MAX_RECORD_SIZE)
            if is_long:
                yield None
            elif text := line.decode("utf-8", "replace").removesuffix("\n"):
                yield parse_record(text)


def _log_line(record: dict[str, Any]) -> bytes:
    """Return a record as one line."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
