"""The audit: entries are scored out of fold, compared with their neighbors and rules, and ranked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from rapidfuzz.distance import Levenshtein

from pellucid.auditing.folds import assign_folds
from pellucid.auditing.neighbors import conflicting_neighbors
from pellucid.auditing.out_of_fold_scores import FoldScores, Span, score_out_of_fold
from pellucid.auditing.rules import apply_rules, other_file_reasons
from pellucid.auditing.types import (
    WRITING_KINDS,
    AuditOptions,
    AuditRecord,
    AuditReport,
    DictionaryEntry,
    MemberScores,
    NearNeighbor,
    Reason,
    ReasonKind,
    TargetDifference,
)
from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, build_tokenizers
from pellucid.errors import quote

MAX_EXPLAINED = 2_000
"""Maximum number of entries, the most suspicious ones, whose near neighbors are searched."""
KIND_ORDER: Mapping[ReasonKind, int] = {kind: number for number, kind in enumerate(get_args(ReasonKind))}
"""Position of each kind among the reasons of an entry."""


def audit_entries(
    entries: Sequence[DictionaryEntry],
    config: Config,
    options: AuditOptions,
    others: Mapping[str, Sequence[DictionaryEntry]] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> AuditReport:
    """Rank entries by how suspicious their targets are, and say why.

    Entries with an error of writing (`WRITING_KINDS`) come first, then all others, both by their suspicion.

    Args:
        entries: Entries of one file.
        config: Configuration of the networks, with the data settings of all models.
        options: Options of the audit.
        others: Entries of other files, by their names, whose sources should not occur in this one; None for none.
        report: Function that receives messages about the progress; none by default.

    Returns:
        One record per entry.

    Raises:
        DataError: There is a single source, or no pair n-gram model can be fitted.
        InputError: As in `train_run`.
    """
    examples = [entry.example for entry in entries]
    folds = assign_folds(examples, options.folds, options.seed)
    tokenizers = build_tokenizers(config.data)
    findings = apply_rules(entries, tokenizers)
    from_others = other_file_reasons(entries, others or {})
    scores = score_out_of_fold(examples, folds, config, options, report)
    records = [
        _build_record(entry, scores, row, [*findings.reasons[row], *from_others[row]], tokenizers.target)
        for row, entry in enumerate(entries)
    ]
    order = sorted(range(len(records)), key=lambda row: _rank_key(records[row]))
    explained = [row for row in order if records[row].difference is not None][:MAX_EXPLAINED]
    near = conflicting_neighbors(entries, explained, [records[row].output for row in explained], tokenizers.target)
    for row, neighbors in zip(explained, near, strict=True):
        records[row] = _with_neighbors(records[row], neighbors)
    return AuditReport([records[row] for row in order], findings.notes)


def _rank_key(record: AuditRecord) -> tuple[bool, float]:
    """Return the key by which records are sorted."""
    return not WRITING_KINDS.intersection(record.kinds), -record.suspicion


def _build_record(
    entry: DictionaryEntry, scores: FoldScores, row: int, reasons: Sequence[Reason], tokenizer: Tokenizer
) -> AuditRecord:
    """Return the record of an entry, without its neighbors."""
    ngram = scores.pair_ngram[row] if scores.pair_ngram else None
    network = scores.network[row] if scores.network else None
    named = (("pair n-gram model", ngram), ("network", network))
    members = [(name, member) for name, member in named if member is not None]
    suspicion = min(member.margin for _, member in members)
    output, margin = members[-1][1]
    is_judged = bool(output) or margin > 0  # a pair n-gram model may have no output for a source
    difference = first_difference(tokenizer, entry.example, output, scores.chunks[row]) if is_judged else None
    prediction = [] if difference is None else [prediction_reason(output, difference, members)]
    ordered = sorted([*prediction, *reasons], key=lambda reason: KIND_ORDER[reason.kind])
    return AuditRecord(
        entry.line, entry.identifier, entry.example, suspicion, ngram, network, difference, tuple(ordered), ()
    )


def first_difference(
    tokenizer: Tokenizer, example: Example, output: str, chunks: Sequence[Span]
) -> TargetDifference | None:
    """Return the first difference between the target of an example and an output, by a minimum of edits.

    Args:
        tokenizer: Tokenizer of the targets.
        example: The example.
        output: Output of the models, which may be empty.
        chunks: Alignment of the source with the output; empty if there is none.

    Returns:
        The difference; None if they are equal.
    """
    given, written = tokenizer.split(example.target), tokenizer.split(output)
    edits = [edit for edit in Levenshtein.opcodes(given, written) if edit.tag != "equal"]
    if not edits:
        return None
    edit = edits[0]
    chunk = next((chunk for chunk in chunks if chunk[2] <= edit.dest_start < chunk[3]), None)
    source = example.source[chunk[0] : chunk[1]] if chunk is not None else ""
    return TargetDifference(
        edit.src_start + 1,
        _symbol_offset(tokenizer, given, edit.src_start),
        tokenizer.join(given[edit.src_start : edit.src_end]),
        tokenizer.join(written[edit.dest_start : edit.dest_end]),
        0 if chunk is None else chunk[0] + 1,
        source,
    )


def _symbol_offset(tokenizer: Tokenizer, symbols: list[str], position: int) -> int:
    """Return the number of characters of a joined text before a symbol; all of them if there is no such symbol."""
    if position >= len(symbols):
        return len(tokenizer.join(symbols))
    return len(tokenizer.join(symbols[: position + 1])) - len(symbols[position])


def prediction_reason(output: str, difference: TargetDifference, members: Sequence[tuple[str, MemberScores]]) -> Reason:
    """Return the reason that the models write another output.

    Args:
        output: Output of the models.
        difference: First difference.
        members: Name and scores of each kind of model.
    """
    odds = " and ".join(f"{scores.margin:.1f} nats by the {name}" for name, scores in members)
    given, expected = (quote(text) if text else "nothing" for text in (difference.given, difference.expected))
    place = f" for {quote(difference.source_symbols)}" if difference.source_symbols else ""
    text = (
        f"the models write {quote(output)}: {expected}{place} in place of {given} at target symbol "
        f"{difference.position} (more probable by {odds})"
    )
    return Reason("prediction", text, "target", difference.position)


def _with_neighbors(record: AuditRecord, neighbors: tuple[NearNeighbor, ...]) -> AuditRecord:
    """Return a record with its near neighbors, and with a reason if there are any."""
    if not neighbors:
        return record
    shown = ", ".join(f"{quote(near.source)} → {quote(near.target)}" for near in neighbors)
    lines = tuple(near.line for near in neighbors)
    reason = Reason("neighbors", f"similar sources agree with the models: {shown}", lines=lines)
    reasons = sorted([*record.reasons, reason], key=lambda each: KIND_ORDER[each.kind])
    return replace(record, neighbors=neighbors, reasons=tuple(reasons))
