"""The journal of a study: every operation of the study as one JSON object per line, in Optuna's format.

Optuna replays the lines without checking their content, so that all lines are checked before it reads them. Lines of
several processes follow each other in any order: each is written as a whole, under the lock of the journal.
"""

from datetime import datetime
from os import SEEK_END
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pellucid.errors import RunError, abbreviate_reason
from pellucid.files import NESTING_ERROR, file_exists, open_regular, parse_json, read_bytes, write_atomic
from pellucid.tuning.space import Value

JOURNAL = "study.journal"
"""Name of the journal."""
STUDY_ID = "study.id"
"""Name of the file that identifies the study of a database, whose trials are in a folder."""
STUDY_FILES = (JOURNAL, STUDY_ID, "space.txt", "trials", "best.toml", "trials.json", "report.html")
"""Names of the files and folders of a search in its folder."""
STUDY_NAME = "pellucid"
"""Name of the only study in a journal."""
MAX_JOURNAL_SIZE = 2**27
"""Maximum size of a journal in bytes: a trial has some kilobytes."""
MAX_LINE_SIZE = 2**20
"""Maximum length of a line in bytes: Python needs many times the memory of the JSON that it parses."""
LINE_START = b'{"op_code"'
"""Start of every line."""
Number = Annotated[int, Meta(ge=0, lt=2**31)]
StudyNumber = Literal[0]
Empty = Annotated[dict[str, Any], Meta(max_length=0)]
ProcessId = Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?$")]
"""Identifier of the process that runs a trial; empty if there is none."""
SystemKey = Annotated[str, Meta(pattern=r"^(tpe:relative_params:|completed_rung_)[0-9]{1,4}$")]
"""Key that Optuna's sampler or pruner adds to a trial."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="op_code"):
    """A line of the journal."""


class StudyCreated(_Entry, frozen=True, kw_only=True, tag=0):
    """The study is created; the first line."""

    study_name: Literal["pellucid"]
    directions: Annotated[tuple[Literal[1, 2], ...], Meta(min_length=1, max_length=1)]
    """1 to minimize the metric, 2 to maximize it."""


class StudyDescription(msgspec.Struct, frozen=True):
    """Properties that all trials of a study share."""

    data: str
    """Hash of the data files."""
    settings: dict[str, Any]
    """Settings that are not searched, by key."""
    space: list[str]
    """Search space, one line per setting."""


class _StudyAttributes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    description: StudyDescription


class StudyDescribed(_Entry, frozen=True, kw_only=True, tag=2):
    """The study is described; before the first trial."""

    study_id: StudyNumber
    user_attr: _StudyAttributes


class _RetryAttributes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    retry_of: Number | UnsetType = UNSET
    """Number of the failed trial that is repeated."""
    tries: Number | UnsetType = UNSET


class _FixedParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fixed_params: dict[str, Value] | UnsetType = UNSET


class TrialCreated(_Entry, frozen=True, kw_only=True, tag=4):
    """A trial starts, or waits with given values (state 4)."""

    study_id: StudyNumber
    datetime_start: datetime | None
    state: Literal[0, 4] = 0
    value: None = None
    values: None = None
    distributions: Empty = msgspec.field(default_factory=dict)
    params: Empty = msgspec.field(default_factory=dict)
    user_attrs: _RetryAttributes = _RetryAttributes()
    system_attrs: _FixedParameters = _FixedParameters()
    intermediate_values: Empty = msgspec.field(default_factory=dict)


class _TrialEntry(_Entry, frozen=True, kw_only=True):
    trial_id: Number


class ParameterSet(_TrialEntry, frozen=True, kw_only=True, tag=5):
    """A trial receives the value of a searched setting."""

    param_name: str
    param_value_internal: float
    """The value, or the index of a choice."""
    distribution: str
    """The dimension, as Optuna writes it in JSON."""


class StateSet(_TrialEntry, frozen=True, kw_only=True, tag=6):
    """A trial starts (state 0), finishes (1), is pruned (2) or fails (3)."""

    state: Literal[0, 1, 2, 3]
    values: Annotated[tuple[float, ...], Meta(min_length=1, max_length=1)] | None
    datetime_start: datetime | UnsetType = UNSET
    datetime_complete: datetime | UnsetType = UNSET


class ValidationReported(_TrialEntry, frozen=True, kw_only=True, tag=7):
    """A trial is validated."""

    step: Annotated[int, Meta(ge=1, lt=2**31)]
    intermediate_value: float


class PruneRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decision to prune a trial."""

    validation: Number
    reason: str


class _TrialAttributes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: str | UnsetType = UNSET
    seconds: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    score: float | UnsetType | None = UNSET
    prune: PruneRecord | UnsetType = UNSET
    process: ProcessId | UnsetType = UNSET
    deaths: Number | UnsetType = UNSET
    """Number of processes that died while they ran the trial."""


class TrialAttributeSet(_TrialEntry, frozen=True, kw_only=True, tag=8):
    """A trial receives a part of its result, or the process that runs it."""

    user_attr: _TrialAttributes


class SystemAttributeSet(_TrialEntry, frozen=True, kw_only=True, tag=9):
    """Optuna's sampler or pruner adds a value to a trial."""

    system_attr: dict[SystemKey, float | str]


JournalEntry = (
    StudyCreated
    | StudyDescribed
    | TrialCreated
    | ParameterSet
    | StateSet
    | ValidationReported
    | TrialAttributeSet
    | SystemAttributeSet
)


def read_journal(journal: Path) -> list[JournalEntry]:
    """Return the entries of a journal, one per line. An incomplete last line of a killed process is removed.

    Args:
        journal: The journal; a missing or empty one has no entries. The caller holds its lock, so that no process is
            writing the last line.

    Raises:
        RunError: The file is not a regular file, cannot be read, or has more than `MAX_JOURNAL_SIZE` bytes; or a line
            is damaged, or is none that a study of Pellucid writes. The file is then unchanged.
    """
    if not file_exists(journal):
        return []
    content = read_bytes(journal, limit=MAX_JOURNAL_SIZE)
    *lines, rest = content.split(b"\n")
    entries = [_parse_line(journal, number, line) for number, line in enumerate(lines, 1)]
    num_trials = 0
    for number, entry in enumerate(entries, 1):
        if (number == 1) != isinstance(entry, StudyCreated):
            raise journal_error(journal, number, "expected the study in the first line, and in no other")
        if (number == 2) != isinstance(entry, StudyDescribed):
            raise journal_error(journal, number, "expected the description of the study in line 2, and in no other")
        num_trials += isinstance(entry, TrialCreated)
        if isinstance(entry, _TrialEntry) and entry.trial_id >= num_trials:
            raise journal_error(journal, number, f"there is no trial {entry.trial_id} yet")
    if rest:
        if rest[: len(LINE_START)] != LINE_START[: len(rest)]:
            raise journal_error(journal, len(lines) + 1, "expected a JSON object with the key op_code first")
        cut_incomplete_line(journal)
    return entries


def cut_incomplete_line(journal: Path) -> None:
    """Remove the incomplete last line that a killed process left. The caller holds the lock of the journal.

    The file is replaced, not shortened: another process may be reading it without the lock, and would join the start of
    that line and the end of the next one.

    Args:
        journal: The journal, which exists.

    Raises:
        RunError: The file cannot be read or written.
    """
    with open_regular(journal) as file:
        size = file.seek(0, SEEK_END)
        file.seek(max(0, size - 1))
        if file.read(1) in (b"", b"\n"):
            return
    content = read_bytes(journal)
    write_atomic(journal, content[: content.rfind(b"\n") + 1])


def journal_error(journal: Path | str, line: int, reason: str) -> RunError:
    """Return the error of a journal with a damaged line.

    Args:
        journal: The journal.
        line: Number of the line, from 1.
        reason: Description of the fault.
    """
    return RunError(
        f"{journal}:{line}: the line is damaged, or is not of a study of Pellucid: {reason}; restore the file, or name "
        "a new folder"
    )


def _parse_line(journal: Path, number: int, line: bytes) -> JournalEntry:
    """Return the entry of a line."""
    if len(line) > MAX_LINE_SIZE:
        raise journal_error(journal, number, f"it has more than {MAX_LINE_SIZE:,} bytes")
    try:
        entry: JournalEntry = msgspec.json.decode(line, type=JournalEntry)
        parse_json(line)  # msgspec silently takes the last value of a repeated key
    except RecursionError:
        raise journal_error(journal, number, NESTING_ERROR) from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise journal_error(journal, number, abbreviate_reason(error).replace("`", "")) from None
    return entry
