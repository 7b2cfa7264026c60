"""Subcommand audit: pellucid audit FILE [--html PAGE] [--symbols] [--apply DECISIONS] [--next N --unlabeled FILE]"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import tyro
from msgspec import Meta

from pellucid.auditing.types import (
    AuditEntry,
    AuditModels,
    AuditOptions,
    NumFolds,
    NumJobs,
    reject_unused_settings,
)
from pellucid.cli.arguments import parse_arguments
from pellucid.cli.cluster_jobs import OnFlag, run_jobs_on
from pellucid.cli.csv_output import byte_order_mark, line_end
from pellucid.cli.messages import print_message
from pellucid.cli.output_files import check_output_files
from pellucid.config.settings import Config, DataConfig, Delimiter, Device, Epochs, Seed, Size
from pellucid.config.toml import build_config
from pellucid.data.examples import (
    describe_used_columns,
    file_delimiter,
    read_column_names,
    read_other_columns,
    read_partially_labeled,
    read_row_ids,
)
from pellucid.data.headers import list_names
from pellucid.data.lines import open_data_file
from pellucid.data.readers import MAX_LISTED_BAD_LINES, BadLine, resolve_format
from pellucid.data.tokenizers import symbol_kind_warnings
from pellucid.errors import ConfigError, InputError, count_noun, list_lines
from pellucid.files import follow_links, write_text

if TYPE_CHECKING:
    from pellucid.auditing.text_checks import TextChecks
    from pellucid.auditing.types import AuditRecord

MAX_SHOWN_BYTES = 200
"""Maximum number of bytes of a bad line that the worklist shows."""
MAX_PAGE_ROWS = 1_000
"""Default number of rows of a page."""
NETWORK_FIELDS = ("size", "time", "epochs", "run", "device")
"""Fields of the arguments that only networks need."""
WORKLIST_FIELDS = ("html", "page_rows", "compare", "decided", "folds", "jobs", "on")
"""Fields that only a worklist needs."""
SYMBOLS_UNUSED = ("apply", "next", "unlabeled", *WORKLIST_FIELDS, "models", "seed", *NETWORK_FIELDS)
"""Fields that have no effect where symbols are listed."""
APPLY_UNUSED = ("next", "unlabeled", *WORKLIST_FIELDS, "models", "seed", *NETWORK_FIELDS)
"""Fields that have no effect where decisions are applied."""
OtherFiles = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class AuditArguments:
    """Find entries of a dictionary whose targets are suspicious, and say why.

    Each target is compared with the output of models that were trained without its source: the folds of a
    cross-validation hold all rows of a source. --models pair-ngram takes seconds and finds most errors of a regular
    spelling; networks need minutes to hours, and pay off only if they are trained to the end. No model knows the truth:
    an irregular word that is right is suspicious, too, and an error that many rows share is not.

    Every row is in the worklist, the most suspicious first. Decisions are written into the columns decision (replace,
    keep, remove), new_target and new_source of the worklist, or exported by the page, and applied by --apply. Rows that
    were kept or corrected are left out of later worklists by --decided.
    """

    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """Pairs to audit: TSV, CSV, JSON lines or Parquet, with the columns of a training file."""
    output: Path | None = None
    """CSV file of the worklist; with --apply, the corrected file; with --next, the proposed sources. Default: standard
    output; --apply requires it. A file that exists is replaced, except a worklist with decisions."""
    html: Path | None = None
    """Also write the worklist as a page, on which rows are decided; a self-contained file, which works offline."""
    page_rows: Annotated[int, Meta(ge=1, le=20_000)] = MAX_PAGE_ROWS
    """Maximum number of rows of the page, the most suspicious ones; the first 200 of each kind of reason are added."""
    apply: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="DECISIONS")] = ()
    """Apply the decisions of a file to FILE, and write the result to --output. No model is trained. Repeat the flag for
    several files, such as those of several editors; different decisions on one row are an error."""
    symbols: bool = False
    """List the symbols of sources and of targets with the number of their rows and their first lines, the rarest first,
    as CSV. No model is trained."""
    compare: OtherFiles = ()
    """Other file, such as the test set of this training set: sources that occur in both are reported. Repeat the flag
    for several files."""
    decided: OtherFiles = ()
    """File of earlier decisions: rows that it keeps, with the same source and target, and rows that have become what it
    replaces them by, are left out of the worklist. Repeat the flag for several files."""
    next: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Propose N sources of --unlabeled to label next, the least certain first; 0: audit FILE."""
    unlabeled: Path | None = None
    """Sources without targets, for --next: text with one source per line, or a file with the source column of FILE."""
    models: AuditModels = "pair-ngram"
    """Models. pair-ngram: pair n-gram models (seconds); network: networks (minutes to hours); both: the suspicion of a
    row is the smaller of both."""
    folds: NumFolds = 5
    """Number of cross-validation folds, and so of models of each kind."""
    size: Size = "small"
    """Size preset of the networks: tiny, small, base or large."""
    time: str = ""
    """Maximum time of the training of each network: 90s, 10m, 2h; empty for no limit."""
    epochs: Epochs = 0.0
    """Maximum number of epochs of each network; 0: by the number of pairs."""
    jobs: NumJobs | None = None
    """Number of folds that are computed in parallel; 0: one per core, or as many as a cluster has CPUs for. Default: 1,
    or 0 with --on ray."""
    on: OnFlag = None
    """Compute the folds on the machines of a Ray cluster, as many at once as it has CPUs for. Networks then need --run,
    a folder that all machines share."""
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
        settings: dict[str, Any] = {"size": self.size, "seed": self.seed, "device": self.device}
        return build_config({**settings, "data": msgspec.structs.asdict(self.data), "training": training}, "flags")


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
    _check_columns(args, arguments)
    if args.apply:
        _apply(args)
    elif args.next:
        _propose(args)
    elif args.symbols:
        _list_symbols(args)
    else:
        _audit(args)
    return 0


def _check_files(args: AuditArguments) -> None:
    """Raise `InputError` if a file cannot be written, or would replace one that is read.

    With --apply, --output may be FILE itself.
    """
    check_output_files(args, {"output": "", "html": ".html"}, replaced=["file"] if args.apply else [])
    is_worklist = not (args.apply or args.next or args.symbols)
    if is_worklist and args.output is not None and args.output.exists() and args.output.stat().st_size:
        _check_decisions(args.output)


def _check_columns(args: AuditArguments, arguments: Sequence[str]) -> None:
    """Raise `ConfigError` for a header of more than two columns of which the user has chosen none."""
    given = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    if args.data.header is not True or given & {"--source-column", "--target-column"}:
        return
    names = read_column_names(args.file, args.data)
    if len(names) > 2:
        raise ConfigError(
            f"{args.file}:1: the header has {len(names)} columns, named {list_names(names)}: choose two of them with "
            "--source-column NAME and --target-column NAME"
        )


def _check_decisions(path: Path) -> None:
    """Raise `InputError` if a file that a new worklist would replace has decisions, or cannot be read as a worklist."""
    from pellucid.auditing.decisions import read_decisions

    try:
        decisions = read_decisions(path)
    except InputError as error:
        raise InputError(
            f"--output {path} exists, and only an earlier worklist without decisions is replaced ({error}): name "
            "another file"
        ) from error
    if decisions:
        raise InputError(
            f"--output {path} has {count_noun(len(decisions), 'decision')}, which a new worklist would replace: apply "
            "them by --apply, or name another file"
        )


def _check_arguments(args: AuditArguments) -> None:
    """Raise `ConfigError` for contradicting options, and for options without effect."""
    if args.apply and args.output is None:
        raise ConfigError("--apply needs --output, the corrected file, which may be FILE itself")
    if not args.apply and bool(args.next) != (args.unlabeled is not None):
        raise ConfigError("--next N and --unlabeled FILE belong together: give both or none")
    if args.data.input_format == "text":
        raise ConfigError("--input-format text has no targets: audit one file of pairs")
    reject_unused_settings(args.data)
    uses_networks = args.models != "pair-ngram"
    if args.on and uses_networks and args.run is None:
        raise ConfigError("--on ray: networks need --run DIR, a folder that all machines of the cluster share")
    for is_unused, names, reason in (
        (bool(args.apply), APPLY_UNUSED, "--apply trains no model and makes no worklist: leave out {flags}"),
        (args.symbols, SYMBOLS_UNUSED, "--symbols lists symbols and makes no worklist: leave out {flags}"),
        (bool(args.next), WORKLIST_FIELDS, "--next proposes sources and makes no worklist: leave out {flags}"),
        (args.html is None, ("page_rows",), "{flags} is for the page: give --html"),
        (not uses_networks, NETWORK_FIELDS, "{flags}: only for networks; give --models network or both"),
        (
            bool(args.next) and not uses_networks,
            ("seed",),
            "{flags} has no effect: --next draws random numbers only for networks; leave it out, or give --models "
            "network or both",
        ),
    ):
        if is_unused and (given := _given_flags(args, names)):
            raise ConfigError(reason.format(flags=given))


def _given_flags(args: AuditArguments, names: Sequence[str]) -> str:
    """Return the flags among some whose values are not the defaults, as text: "--time and --epochs"; "" if none is."""
    defaults = {each.name: each.default for each in fields(args)}
    flags = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) != defaults[name]]
    return " and ".join(filter(None, [", ".join(flags[:-1]), *flags[-1:]]))


def _apply(args: AuditArguments) -> None:
    """Apply decisions to FILE."""
    from pellucid.auditing.decisions import apply_decisions, read_all_decisions

    assert args.output is not None
    decisions = read_all_decisions(args.apply)
    if not decisions:
        print_message(f"note: there is no decision in {', '.join(map(str, args.apply))}")
    counts = apply_decisions(args.file, args.data, decisions, args.output)
    for warning in counts.warnings:
        print_message(f"warning: {warning}")
    sources = f"{count_noun(counts.new_sources, 'source')} replaced, " if counts.new_sources else ""
    print_message(
        f"{args.output}: {count_noun(counts.replaced, 'target')} replaced, {sources}"
        f"{count_noun(counts.removed, 'row')} removed, {count_noun(counts.kept, 'row')} kept, "
        f"{counts.undecided:,} without a decision"
    )


class AuditedFile(NamedTuple):
    """Entries of a file."""

    entries: list[AuditEntry]
    open_entries: list[AuditEntry]
    """Entries whose targets are empty: nobody has filled them yet."""
    bad_lines: list[BadLine]


def _read_entries(path: Path, data: DataConfig) -> AuditedFile:
    """Return the entries of a file; bad lines are counted and named on standard error."""

    reading, without_target = read_partially_labeled(path, data)
    identifiers = read_row_ids(path, data)
    note = describe_used_columns(path, data)
    print_message(f"{path}: {count_noun(len(reading.examples), 'pair')}{f'; {note}' if note else ''}")
    _report_bad_lines(reading.bad_lines)
    if without_target:
        lines = list_lines([line for line, _ in without_target])
        print_message(f"{path}: {count_noun(len(without_target), 'row')} without a target: not audited ({lines})")
    if reading.num_blank_lines:
        print_message(f"{path}: {count_noun(reading.num_blank_lines, 'blank line')}, skipped")
    entries = [
        AuditEntry(line, example, identifiers.get(line, ""))
        for line, example in zip(reading.line_numbers, reading.examples, strict=True)
    ]
    return AuditedFile(
        entries,
        [AuditEntry(line, example, identifiers.get(line, "")) for line, example in without_target],
        reading.bad_lines,
    )


def _report_bad_lines(bad_lines: Sequence[BadLine]) -> None:
    """Count and name bad lines, which are not audited."""
    if bad_lines:
        print_message(f"{count_noun(len(bad_lines), 'bad line')}, not audited:")
    for line in bad_lines[:MAX_LISTED_BAD_LINES]:
        print_message(str(line))
    if len(bad_lines) > MAX_LISTED_BAD_LINES:
        print_message(f"... and {len(bad_lines) - MAX_LISTED_BAD_LINES:,} more")


def _line_texts(path: Path, bad_lines: Sequence[BadLine], data: DataConfig) -> dict[int, str]:
    """Return the texts of bad lines, by their numbers; none if the file is not a file of lines, or can be read only
    once.

    Args:
        path: The file.
        bad_lines: Its bad lines.
        data: Data settings.
    """
    if not bad_lines or not path.is_file() or resolve_format(path, data) == "parquet":
        return {}
    wanted, texts = {bad.line for bad in bad_lines}, dict[int, str]()
    with open_data_file(path) as file:
        for number, line in enumerate(file, 1):
            if number in wanted:
                texts[number] = line[:MAX_SHOWN_BYTES].decode(errors="replace").removeprefix("\ufeff").rstrip("\r\n")
    return texts


def _options(args: AuditArguments) -> AuditOptions:
    """Return the options of the models."""
    jobs = args.jobs if args.jobs is not None else 0 if args.on else 1
    return AuditOptions(models=args.models, folds=args.folds, seed=args.seed, jobs=jobs, run=args.run)


def _audit(args: AuditArguments) -> None:
    """Audit FILE and write its worklist."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.auditing.audit import audit_entries, record_bad_row, record_without_target
    from pellucid.auditing.decisions import exclude_decided, read_decided_pairs
    from pellucid.auditing.worklist import worklist_csv
    from pellucid.auditing.worklist_page import worklist_page

    config = args.build_config()
    kept = read_decided_pairs(args.decided)
    entries, open_entries, bad_lines = _read_entries(args.file, config.data)
    texts = _line_texts(args.file, bad_lines, config.data)
    if not args.file.is_file():
        print_message(
            f"note: {args.file} can be read only once: the worklist has neither its ids nor its other columns, and is "
            "separated by commas; audit a file to keep them"
        )
    sources, targets = ([getattr(entry.example, side) for entry in entries] for side in ("source", "target"))
    for warning in symbol_kind_warnings(sources, targets, config.data):
        print_message(f"warning: {warning}")
    others = {str(path): _read_entries(path, config.data).entries for path in args.compare}
    run = None if args.models == "pair-ngram" else args.run
    with run_jobs_on(args.on, run, config.threads, config.device):
        audited = audit_entries(entries, config, _options(args), others, print_message)
    for note in audited.notes:
        print_message(f"note: {note}")
    bad_rows = [record_bad_row(bad.line, bad.reason, texts.get(bad.line, "")) for bad in bad_lines]
    all_records = [*bad_rows, *audited.records, *map(record_without_target, open_entries)]
    records = exclude_decided(all_records, kept)
    if args.decided:
        num_decided = len(all_records) - len(records)
        print_message(f"{count_noun(num_decided, 'row')} left out, kept or corrected by earlier decisions")
    (delimiter, end), columns = _table_layout(args.file, config.data), read_other_columns(args.file, config.data)
    worklist = worklist_csv(records, columns, delimiter, end)
    _write(args.output, byte_order_mark(args.file) + worklist)
    if args.html is not None:
        page = worklist_page(
            records, args.file.name, args.page_rows, columns, delimiter, _check_texts(entries, config.data)
        )
        _write_page(args.html, page, records, args.page_rows)
    counts = Counter(kind for record in records for kind in record.kinds)
    listed = ", ".join(f"{kind} {count:,}" for kind, count in counts.most_common())
    print_message(f"rows by reason: {listed or 'none'}")
    if args.output is not None:
        print_message(
            f"{args.output}: {count_noun(len(records), 'row')}. Next: write replace, keep or remove into the "
            "column decision, and apply the file with --apply"
        )


def _table_layout(path: Path, data: DataConfig) -> tuple[Delimiter, str]:
    """Return the delimiter and the line end of a file, which the tables about it have, too."""
    return file_delimiter(path, data), line_end(path, resolve_format(path, data))


def _check_texts(entries: Sequence[AuditEntry], data: DataConfig) -> list["TextChecks"]:
    """Return the checks of sources and of targets."""
    from pellucid.auditing.text_checks import check_column
    from pellucid.data.tokenizers import build_tokenizers

    tokenizers, examples = build_tokenizers(data), [entry.example for entry in entries]
    return [
        check_column([example.source for example in examples], tokenizers.source),
        check_column([example.target for example in examples], tokenizers.target),
    ]


def _list_symbols(args: AuditArguments) -> None:
    """Write the symbols of sources and of targets, and how often they occur."""
    from pellucid.auditing.symbol_list import list_symbols, symbols_csv

    symbols = list_symbols(_read_entries(args.file, args.data).entries, args.data)
    delimiter, end = _table_layout(args.file, args.data)
    _write(args.output, byte_order_mark(args.file) + symbols_csv(symbols, delimiter, end))
    if args.output is not None:
        print_message(f"{args.output}: {count_noun(len(symbols), 'symbol')}, the rarest of each column first")


def _write_page(path: Path, page: str, records: Sequence["AuditRecord"], max_rows: int) -> None:
    """Write the page of a worklist."""
    from pellucid.auditing.worklist_page import describe_page_rows, page_records

    write_text(follow_links(path), page)
    num_shown = len(page_records(records, max_rows))
    if num_shown < len(records):
        rows = describe_page_rows(num_shown, len(records), max_rows)
        print_message(f"{path}: {rows}; --page-rows sets their number, and --output has all")
    else:
        print_message(f"{path}: all {count_noun(num_shown, 'row')}")


def _write(path: Path | None, text: str) -> None:
    """Write a result to a file or to standard output."""
    if path is None:
        sys.stdout.write(text)
    else:
        write_text(follow_links(path), text)


def _propose(args: AuditArguments) -> None:
    """Write the sources that should be labeled next."""
    from pellucid.auditing.label_proposals import count_labeled, proposals_csv, propose_sources, read_unlabeled

    assert args.unlabeled is not None
    config = args.build_config()
    entries = _read_entries(args.file, config.data).entries
    unlabeled = read_unlabeled(args.unlabeled, config.data)
    for note in unlabeled.notes:
        print_message(f"note: {note}")
    _report_bad_lines(unlabeled.bad_lines)
    if num_labeled := count_labeled(entries, unlabeled.entries, config.data):
        have = "has a target" if num_labeled == 1 else "have targets"
        print_message(
            f"{args.unlabeled}: {count_noun(num_labeled, 'source')} left out, which {have} in {args.file} already"
        )
    proposals = propose_sources(entries, unlabeled.entries, args.next, config, _options(args))
    if len(proposals) < args.next:
        print_message(f"only {count_noun(len(proposals), 'source')} of {args.unlabeled} are new and different")
    delimiter, end = _table_layout(args.file, config.data)
    _write(args.output, byte_order_mark(args.file) + proposals_csv(proposals, delimiter, end))
