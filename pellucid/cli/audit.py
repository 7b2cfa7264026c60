"""Subcommand audit: pellucid audit FILE [--output CSV] [--html PAGE] [--apply DECISIONS] [--next N --unlabeled FILE]"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import tyro
from msgspec import Meta

from pellucid.auditing.types import AuditModels, AuditOptions, DictionaryEntry, NumFolds, NumJobs
from pellucid.cli.arguments import parse_arguments
from pellucid.cli.csv_output import byte_order_mark
from pellucid.cli.messages import print_message
from pellucid.cli.output_files import check_output_file
from pellucid.cli.sources import count_noun
from pellucid.config.settings import Config, DataConfig, Delimiter, Device, Epochs, Seed, Size
from pellucid.config.toml import build_config
from pellucid.data.examples import (
    describe_used_columns,
    empty_text_error,
    file_delimiter,
    read_examples,
    read_other_columns,
    read_row_ids,
)
from pellucid.data.readers import BadLine
from pellucid.errors import ConfigError, InputError
from pellucid.files import write_text

if TYPE_CHECKING:
    from pellucid.auditing.types import AuditRecord

MAX_LISTED_LINES = 20
"""Maximum number of bad lines that are named."""
MAX_PAGE_ROWS = 1_000
"""Default number of rows of a page."""
OtherFiles = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class AuditArguments:
    """Find entries of a dictionary whose targets are suspicious, and say why.

    Each target is compared with the output of models that were trained without its source: the folds of a
    cross-validation hold all rows of a source. --models pair-ngram takes seconds and finds most errors of a regular
    spelling; networks need minutes to hours, and pay off only if they are trained to the end. No model knows the truth:
    an irregular word that is right is suspicious, too, and an error that many rows share is not.

    Every row is in the worklist, the most suspicious first. Decisions are written into the columns decision (replace,
    keep, remove) and new_target of the worklist, or exported by the page, and applied by --apply.
    """

    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """Pairs to audit: TSV, CSV, JSON lines or Parquet, with the columns of a training file."""
    output: Path | None = None
    """CSV file of the worklist; with --apply, the corrected file; with --next, the proposed sources. Default: standard
    output; --apply requires it."""
    html: Path | None = None
    """Also write the worklist as a page, on which rows are decided; one file that needs no network."""
    page_rows: Annotated[int, Meta(ge=1, le=20_000)] = MAX_PAGE_ROWS
    """Maximum number of rows of the page, the most suspicious ones."""
    apply: Annotated[Path | None, tyro.conf.arg(metavar="DECISIONS")] = None
    """Apply the decisions of a file to FILE, and write the result to --output. No model is trained."""
    compare: OtherFiles = ()
    """Other file, such as the test set of this training set: sources that occur in both are reported. Repeat the flag
    for several files."""
    next: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Propose N sources of --unlabeled to label next, the least certain first; 0: audit FILE."""
    unlabeled: Path | None = None
    """Sources without targets, for --next: text with one source per line, or a file with the source column of FILE."""
    models: AuditModels = "pair-ngram"
    """Models. pair-ngram: pair n-gram models (seconds); network: networks (minutes to hours); both: a row is as
    suspicious as the model that objects less holds it."""
    folds: NumFolds = 5
    """Number of cross-validation folds, and so of models of each kind."""
    size: Size = "small"
    """Size preset of the networks: tiny, small, base or large."""
    time: str = ""
    """Maximum time of the training of each network: 90s, 10m, 2h; empty for no limit."""
    epochs: Epochs = 0.0
    """Maximum number of epochs of each network; 0: by the number of pairs."""
    jobs: NumJobs = 1
    """Number of folds that are computed in parallel; 0: one per core."""
    seed: Seed = 1
    """Random seed of the folds and of the networks."""
    run: Path | None = None
    """Folder that keeps the networks, from which an interrupted audit is resumed. Default: a temporary folder."""
    device: Device = "cpu"
    """Device of the networks: cpu, cuda (one GPU), or auto (a GPU if there is one)."""
    data: Annotated[DataConfig, tyro.conf.arg(name="")] = field(default_factory=lambda: DataConfig(on_bad_line="skip"))

    def build_config(self) -> Config:
        """Return the configuration of the networks."""
        training = {"time_limit": self.time, "epochs": self.epochs, "pair_ngram": False}
        data = {name: value for name, value in msgspec.structs.asdict(self.data).items()}
        settings: dict[str, Any] = {"size": self.size, "seed": self.seed, "device": self.device}
        return build_config({**settings, "data": data, "training": training}, "flags")


def main(arguments: list[str]) -> int:
    """Audit a file, apply decisions to it, or propose sources to label.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument is invalid, or a file cannot be read or written.
    """
    args = parse_arguments(AuditArguments, "audit", arguments)
    _check_arguments(args)
    _check_files(args)
    if args.apply is not None:
        _apply(args, args.apply)
    elif args.next:
        _propose(args)
    else:
        _audit(args)
    return 0


def _check_files(args: AuditArguments) -> None:
    """Raise `InputError` if a file cannot be written, or would replace one that is read.

    With --apply, --output may be FILE itself.
    """
    inputs = [args.apply, args.unlabeled, *args.compare, *([] if args.apply else [args.file])]
    check_output_file("--output", args.output, inputs)
    check_output_file("--html", args.html, inputs, ending=".html")
    is_worklist = args.apply is None and not args.next
    if is_worklist and args.output is not None and args.output.exists() and args.output.stat().st_size:
        _check_decisions(args.output)


def _check_decisions(path: Path) -> None:
    """Raise `InputError` if a file that a new worklist would replace has decisions, or cannot be read as a worklist."""
    from pellucid.auditing.decisions import read_decisions

    try:
        decisions = read_decisions(path)
    except InputError as error:
        raise InputError(
            f"--output {path} exists and is no worklist without decisions ({error}): name another file"
        ) from error
    if decisions:
        raise InputError(
            f"--output {path} has {count_noun(len(decisions), 'decision')}, which a new worklist would replace: apply "
            "them by --apply, or name another file"
        )


def _check_arguments(args: AuditArguments) -> None:
    """Raise `ConfigError` for contradicting options."""
    if args.apply is not None and args.output is None:
        raise ConfigError("--apply needs --output, the corrected file, which may be FILE itself")
    if args.apply is not None and (args.html or args.compare or args.next):
        raise ConfigError("--apply trains no model and makes no worklist: leave out --html, --compare and --next")
    if bool(args.next) != (args.unlabeled is not None):
        raise ConfigError("--next N and --unlabeled FILE belong together: give both or none")
    if args.next and (args.html or args.compare):
        raise ConfigError("--next proposes sources and makes no worklist: leave out --html and --compare")
    if args.data.input_format == "text":
        raise ConfigError("--input-format text has no targets: audit one file of pairs")
    if args.data.group_column or args.data.ignored_tag or args.data.class_column:
        raise ConfigError("--group-column, --ignored-tag and --class-column have no effect in an audit: leave them out")
    if args.models == "pair-ngram" and (args.time or args.epochs or args.run is not None):
        raise ConfigError("--time, --epochs and --run are for networks: give --models network or both")


def _apply(args: AuditArguments, decisions_file: Path) -> None:
    """Apply decisions to FILE."""
    from pellucid.auditing.decisions import apply_decisions, read_decisions

    assert args.output is not None
    counts = apply_decisions(args.file, args.data, read_decisions(decisions_file), args.output)
    print_message(
        f"{args.output}: {count_noun(counts.replaced, 'target')} replaced, {count_noun(counts.removed, 'row')} "
        f"removed, {counts.kept:,} marked as right, {counts.undecided:,} without a decision"
    )


def _read_entries(path: Path, data: DataConfig) -> list[DictionaryEntry]:
    """Return the entries of a file; bad lines are counted and named on standard error."""
    reading = read_examples(path, data)
    identifiers = read_row_ids(path, data)
    note = describe_used_columns(path, data)
    print_message(f"{path}: {count_noun(len(reading.examples), 'pair')}{f'; {note}' if note else ''}")
    others = [line for line in reading.bad_lines if line.reason != empty_text_error("target")]
    _report_bad_lines(others)
    if num_open := len(reading.bad_lines) - len(others):  # rows that nobody has filled yet
        print_message(f"{count_noun(num_open, 'row')} without a target: not audited")
    if reading.num_blank_lines:
        print_message(f"{path}: {count_noun(reading.num_blank_lines, 'blank line')}, skipped")
    return [
        DictionaryEntry(line, example, identifiers.get(line, ""))
        for line, example in zip(reading.line_numbers, reading.examples, strict=True)
    ]


def _report_bad_lines(bad_lines: Sequence[BadLine]) -> None:
    """Count and name bad lines, which are in no worklist."""
    if bad_lines:
        print_message(f"{count_noun(len(bad_lines), 'bad line')}, not in the worklist:")
    for line in bad_lines[:MAX_LISTED_LINES]:
        print_message(str(line))
    if len(bad_lines) > MAX_LISTED_LINES:
        print_message(f"... and {len(bad_lines) - MAX_LISTED_LINES:,} more")


def _options(args: AuditArguments) -> AuditOptions:
    """Return the options of the models."""
    return AuditOptions(models=args.models, folds=args.folds, seed=args.seed, jobs=args.jobs, run=args.run)


def _audit(args: AuditArguments) -> None:
    """Audit FILE and write its worklist."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.auditing.audit import audit_entries
    from pellucid.auditing.worklist import worklist_csv

    config = args.build_config()
    entries = _read_entries(args.file, config.data)
    others = {str(path): _read_entries(path, config.data) for path in args.compare}
    audited = audit_entries(entries, config, _options(args), others, print_message)
    for note in audited.notes:
        print_message(f"note: {note}")
    bom = byte_order_mark(args.file)
    delimiter, columns = file_delimiter(args.file, config.data), read_other_columns(args.file, config.data)
    _write(args.output, bom + worklist_csv(audited.records, columns, delimiter))
    if args.html is not None:
        _write_page(args, args.html, audited.records, delimiter)
    counts = Counter(kind for record in audited.records for kind in record.kinds)
    listed = ", ".join(f"{kind} {count:,}" for kind, count in counts.most_common())
    print_message(f"rows by reason: {listed or 'none'}")
    if args.output is not None:
        print_message(
            f"{args.output}: {count_noun(len(audited.records), 'row')}. Next: write replace, keep or remove into the "
            "column decision, and apply the file with --apply"
        )


def _write_page(args: AuditArguments, path: Path, records: Sequence["AuditRecord"], delimiter: Delimiter) -> None:
    """Write the page of a worklist."""
    from pellucid.auditing.worklist_page import worklist_page

    write_text(path, worklist_page(records[: args.page_rows], args.file.name, len(records), delimiter))
    shown = min(args.page_rows, len(records))
    if shown < len(records):
        print_message(
            f"{path}: the {shown:,} most suspicious of {len(records):,} rows; --page-rows sets their number, and "
            "--output has all"
        )
    else:
        print_message(f"{path}: all {count_noun(shown, 'row')}")


def _write(path: Path | None, text: str) -> None:
    """Write a result to a file or to standard output."""
    if path is None:
        sys.stdout.write(text)
    else:
        write_text(path, text)


def _propose(args: AuditArguments) -> None:
    """Write the sources that should be labeled next."""
    from pellucid.auditing.label_proposals import proposals_csv, propose_sources, read_unlabeled

    assert args.unlabeled is not None
    config = args.build_config()
    entries = _read_entries(args.file, config.data)
    unlabeled = read_unlabeled(args.unlabeled, config.data)
    _report_bad_lines(unlabeled.bad_lines)
    proposals = propose_sources(entries, unlabeled.entries, args.next, config, _options(args))
    if len(proposals) < args.next:
        print_message(f"only {count_noun(len(proposals), 'source')} of {args.unlabeled} are new and different")
    _write(args.output, proposals_csv(proposals))
