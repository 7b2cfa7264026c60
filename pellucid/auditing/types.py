"""Values of an audit: entries, reasons, records and options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from pellucid.argument_checks import CheckedFields
from pellucid.config.settings import DEFAULT_TASK, DataConfig
from pellucid.data.examples import Example
from pellucid.errors import ConfigError, quote

AuditModels = Literal["pair-ngram", "network", "both"]
"""Models whose predictions are compared with the targets."""
NumFolds = Annotated[int, Meta(ge=2, le=100)]
NumJobs = Annotated[int, Meta(ge=0, le=1024)]
ReasonKind = Literal[
    "prediction",
    "not_scored",
    "neighbors",
    "conflict",
    "duplicate",
    "other_file",
    "bad_row",
    "exchanged",
    "mixed_scripts",
    "look_alike",
    "normalization",
    "invisible",
    "surrounding_space",
    "missing_character",
    "rare_character",
    "rare_symbol",
    "copied",
    "length",
    "no_target",
]
"""Kinds of reasons, in the order in which those of an entry are listed."""
CHARACTER_KINDS: frozenset[ReasonKind] = frozenset(
    {
        *("exchanged", "mixed_scripts", "look_alike", "normalization", "invisible", "surrounding_space"),
        *("missing_character", "rare_character"),
    }
)
"""Kinds of character-level errors, which are visible without a model; their entries come first."""
Column = Literal["", "source", "target"]


def reject_unused_settings(data: DataConfig, task: str = DEFAULT_TASK) -> None:
    """Raise `ConfigError` for data settings that have no effect in an audit, and for another task than the default.

    Args:
        data: Data settings.
        task: Task; by default the one whose targets are sequences.

    Raises:
        ConfigError: A setting has no effect, or the task is another one.
    """
    if task != DEFAULT_TASK:
        raise ConfigError(f"task = {quote(task)} is not possible in an audit, which compares sequences: leave it out")
    settings = {
        "data.group_column (--group-column)": data.group_column,
        "data.ignored_tag (--ignored-tag)": data.ignored_tag,
        "data.class_column (--class-column)": data.class_column,
    }
    for name, value in settings.items():
        if value:
            raise ConfigError(f"{name} has no effect in an audit: leave it out")


class AuditEntry(NamedTuple):
    """Row of the audited file, of another file of pairs, or of a file of unlabeled sources."""

    line: int
    """Number of its line, from 1; of a row of a table in memory or of Parquet, the number of the row."""
    example: Example
    identifier: str = ""
    """Cell of the column "id"; empty if there is none."""


class Reason(NamedTuple):
    """One reason to look at an entry."""

    kind: ReasonKind
    text: str
    """The reason in plain words."""
    column: Column = ""
    """Column with the finding; empty for a finding about the pair."""
    position: int = 0
    """Position of the symbol or character, from 1; 0 if there is none."""
    lines: tuple[int, ...] = ()
    """First lines of other entries that the reason refers to; the text says how many there are."""
    characters: str = ""
    """Different characters of the column that are mistaken, such as letters of another script."""
    replacements: tuple[tuple[str, str], ...] = ()
    """Texts within the column to replace, and what replaces them, where the correction is known."""


class TargetDifference(NamedTuple):
    """First difference between a target and the output of the models, by a minimum of edits."""

    position: int
    """Position in the target, from 1, at which they differ; that of the next symbol where one is missing."""
    offset: int
    """Number of characters before it."""
    given: str
    """Target symbols there; empty where symbols are missing."""
    expected: str
    """Symbols of the output in their place; empty where the target has too many."""
    source_position: int = 0
    """Position of the source symbol, from 1, that the expected symbols are aligned with; 0 if it is unknown."""
    source_symbols: str = ""
    """Source symbols of that chunk of the alignment."""


class NearNeighbor(NamedTuple):
    """Entry with a similar source, whose target agrees with the output of the models."""

    line: int
    source: str
    target: str


class ModelScore(NamedTuple):
    """Out-of-fold score of one target by one kind of model."""

    output: str
    """Best output, which a network may leave empty."""
    margin: float
    """Log-probability of the best output minus that of the target, in nats; 0 if they are equal."""


class SourceUncertainty(NamedTuple):
    """Best output of a source, and how uncertain it is."""

    output: str
    uncertainty: float


@dataclass(frozen=True)
class AuditRecord:
    """One audited entry: how suspicious its target is, and why."""

    line: int
    identifier: str
    example: Example
    suspicion: float | None
    """Log-probability of the best output minus that of the target, in nats, by models that were trained without this
    source; the smaller one of both kinds of models, if both can score the target. 0: their output is the target. 4.6:
    their output is 100 times as probable as the target. None: no model can score the target, such as that
    of a source with a symbol that no other source has."""
    pair_ngram: ModelScore | None
    """Score by the pair n-gram models; None if they are not used, or cannot score the target."""
    network: ModelScore | None
    """Score by the networks; None if they are not used, or cannot score the target."""
    difference: TargetDifference | None
    """First difference between target and output; None if they are equal or there is no output."""
    reasons: tuple[Reason, ...]
    neighbors: tuple[NearNeighbor, ...]

    @property
    def output(self) -> str:
        """Output of the networks, if they score the target, else of the pair n-gram models; "" if none does."""
        score = self.network or self.pair_ngram
        return score.output if score is not None else ""

    @property
    def kinds(self) -> tuple[ReasonKind, ...]:
        """Kinds of the reasons, each once, in their order."""
        return tuple(dict.fromkeys(reason.kind for reason in self.reasons))

    @property
    def has_source_error(self) -> bool:
        """True if the source has a character-level error, or is that of the target: no other target corrects it."""
        return any(
            reason.kind == "exchanged" or (reason.kind in CHARACTER_KINDS and reason.column == "source")
            for reason in self.reasons
        )


@dataclass(frozen=True, kw_only=True)
class AuditOptions(CheckedFields):
    """Options of an audit.

    Raises:
        ArgumentError: A field does not match its annotation.
    """

    models: AuditModels = "pair-ngram"
    """Models: pair n-gram models (seconds), networks (minutes to hours), or both."""
    folds: NumFolds = 5
    """Number of cross-validation folds: each model is trained without one of them, and scores it."""
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 1
    """Random seed of the folds."""
    jobs: NumJobs = 1
    """Number of folds that are computed in parallel processes; 0: one per core."""
    run: Path | None = None
    """Folder of the networks' runs, which an interrupted audit resumes; None for a temporary folder."""


@dataclass(frozen=True)
class AuditReport:
    """Result of an audit."""

    records: list[AuditRecord]
    """One record per entry, the most suspicious first."""
    notes: list[str] = field(default_factory=list)
    """Remarks on the whole file, such as a finding that most rows have."""
