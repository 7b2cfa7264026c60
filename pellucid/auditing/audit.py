"""The audit: entries are scored out of fold, compared with their neighbors and rules, and ranked."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from rapidfuzz.distance import Levenshtein

from pellucid.auditing.characters import quote_visibly
from pellucid.auditing.folds import assign_folds
from pellucid.auditing.neighbors import conflicting_neighbors
from pellucid.auditing.out_of_fold_scores import MAX_MARGIN, AuditScores, Span, score_out_of_fold
from pellucid.auditing.rules import apply_rules, other_file_reasons
from pellucid.auditing.types import (
    CHARACTER_KINDS,
    AuditEntry,
    AuditOptions,
    AuditRecord,
    AuditReport,
    ModelScore,
    NearNeighbor,
    Reason,
    ReasonKind,
    TargetDifference,
)
from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers, build_tokenizers

MAX_EXPLAINED = 2_000
"""Maximum number of entries, the most suspicious ones, whose near neighbors are searched."""
KIND_ORDER: Mapping[ReasonKind, int] = {kind: number for number, kind in enumerate(get_args(ReasonKind))}
"""Position of each kind among the reasons of an entry."""


def audit_entries(
    entries: Sequence[AuditEntry],
    config: Config,
    options: AuditOptions,
    others: Mapping[str, Sequence[AuditEntry]] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> AuditReport:
    """Rank entries by how suspicious their targets are, and say why.

    Entries with a character-level error (`CHARACTER_KINDS`) come first, then all others, both by their suspicion.
    Entries that no model can score come before those whose targets the models write. Among those with the greatest
    suspicion, a target that is more unlike the output comes first.

    Args:
        entries: Entries of one file.
        config: Configuration of the networks, with the data settings of all models.
        options: Options of the audit.
        others: Entries of other files, by their names, whose sources should not occur in this one; None if there is
            none.
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
    unscored = _unscored_reasons([tokenizers.source.split(example.source) for example in examples], folds, scores)
    records = [
        _build_record(entry, scores, row, [*unscored[row], *findings.reasons[row], *from_others[row]], tokenizers)
        for row, entry in enumerate(entries)
    ]
    order = sorted(range(len(records)), key=lambda row: _rank_key(records[row], tokenizers.target))
    explained = [row for row in order if records[row].difference is not None][:MAX_EXPLAINED]
    outputs, has_contexts = [records[row].output for row in explained], config.data.context_words > 0
    near = conflicting_neighbors(entries, explained, outputs, tokenizers.target, has_contexts)
    for row, neighbors in zip(explained, near, strict=True):
        records[row] = _with_neighbors(records[row], neighbors)
    return AuditReport([records[row] for row in order], findings.notes)


def record_without_target(entry: AuditEntry) -> AuditRecord:
    """Return the record of an entry that has no target yet, and is not audited.

    Args:
        entry: The entry.
    """
    reason = Reason("no_target", "the row has no target, and is not audited", "target")
    return AuditRecord(entry.line, entry.identifier, entry.example, None, None, None, None, (reason,), ())


def record_bad_row(line: int, error: str, text: str) -> AuditRecord:
    """Return the record of a row that cannot be read, and is not audited.

    Args:
        line: Number of its line.
        error: Why it cannot be read.
        text: Its text; empty if it is unknown.
    """
    shown = f"; its text is {quote_visibly(text)}" if text else ""
    sentence = f"the row cannot be read: {error}{shown}; change the line in an editor, then audit the file again"
    return AuditRecord(line, "", Example("", ""), None, None, None, None, (Reason("bad_row", sentence),), ())


def _rank_key(record: AuditRecord, tokenizer: Tokenizer) -> tuple[bool, bool, float, float]:
    """Return the key by which records are sorted.

    The greatest suspicion is that of all targets that a model gives no probability, so that it has no order: these are
    sorted by their distance from the output, in edits per symbol of the longer text.
    """
    suspicion, distance = record.suspicion or 0.0, 0.0
    if suspicion >= MAX_MARGIN:
        given, written = tokenizer.split(record.example.target), tokenizer.split(record.output)
        distance = Levenshtein.normalized_distance(given, written)
    is_plain = not CHARACTER_KINDS.intersection(record.kinds)
    return is_plain, record.suspicion == 0, -suspicion, -distance


def _unscored_reasons(
    sources: Sequence[Sequence[str]], folds: Sequence[int], scores: AuditScores
) -> list[tuple[Reason, ...]]:
    """Return, for each entry that no model can score, the reason; no reason for the others.

    Args:
        sources: Source symbols of each entry.
        folds: Fold of each entry.
        scores: Scores of all entries.
    """
    folds_of: dict[str, set[int]] = defaultdict(set)
    for symbols, fold in zip(sources, folds, strict=True):
        for symbol in symbols:
            folds_of[symbol].add(fold)
    reasons = list[tuple[Reason, ...]]()
    for row, symbols in enumerate(sources):
        if any(score is not None for _, score in _named_scores(scores, row)):
            reasons.append(())
            continue
        unknown = ((number, symbol) for number, symbol in enumerate(symbols, 1) if len(folds_of[symbol]) == 1)
        position, symbol = next(unknown, (0, ""))
        lacking = f"the source symbol {quote_visibly(symbol)}" if position else "a part of this pair"
        text = f"no model can score this target: the rows of the other folds lack {lacking}"
        reasons.append((Reason("not_scored", text, "source" if position else "", position),))
    return reasons


def _named_scores(scores: AuditScores, row: int) -> list[tuple[str, ModelScore | None]]:
    """Return the name and the score of each kind of model that is used, of the networks last."""
    named = (("pair n-gram model", scores.pair_ngram), ("network", scores.network))
    return [(name, each[row]) for name, each in named if each]


def _build_record(
    entry: AuditEntry, scores: AuditScores, row: int, reasons: Sequence[Reason], tokenizers: Tokenizers
) -> AuditRecord:
    """Return the record of an entry, without its neighbors."""
    named = dict(_named_scores(scores, row))
    scored = [score for score in named.values() if score is not None]
    suspicion = min((score.margin for score in scored), default=None)
    difference, prediction = None, list[Reason]()
    if scored:
        difference = first_difference(tokenizers, entry.example, scored[-1].output, scores.chunks[row])
    if difference is not None:
        prediction.append(prediction_reason(difference, named))
    ordered = sorted([*prediction, *reasons], key=lambda reason: KIND_ORDER[reason.kind])
    ngram, network = named.get("pair n-gram model"), named.get("network")
    return AuditRecord(
        entry.line, entry.identifier, entry.example, suspicion, ngram, network, difference, tuple(ordered), ()
    )


def first_difference(
    tokenizers: Tokenizers, example: Example, output: str, chunks: Sequence[Span]
) -> TargetDifference | None:
    """Return the first difference between the target of an example and an output, by a minimum of edits.

    Args:
        tokenizers: Tokenizers of sources and targets.
        example: The example.
        output: Output of the models, which may be empty.
        chunks: Alignment of the source with the output; empty if there is none.

    Returns:
        The difference; None if they are equal.
    """
    tokenizer = tokenizers.target
    given, written = tokenizer.split(example.target), tokenizer.split(output)
    edits = [edit for edit in Levenshtein.opcodes(given, written) if edit.tag != "equal"]
    if not edits:
        return None
    edit = edits[0]
    chunk = next((chunk for chunk in chunks if chunk[2] <= edit.dest_start < chunk[3]), None)
    source = tokenizers.source.split(example.source)[chunk[0] : chunk[1]] if chunk is not None else []
    return TargetDifference(
        edit.src_start + 1,
        _symbol_offset(tokenizer, given, edit.src_start),
        tokenizer.join(given[edit.src_start : edit.src_end]),
        tokenizer.join(written[edit.dest_start : edit.dest_end]),
        0 if chunk is None else chunk[0] + 1,
        tokenizers.source.join(source),
    )


def _symbol_offset(tokenizer: Tokenizer, symbols: list[str], position: int) -> int:
    """Return the number of characters of a joined text before a symbol; all of them if there is no such symbol."""
    if position >= len(symbols):
        return len(tokenizer.join(symbols))
    return len(tokenizer.join(symbols[: position + 1])) - len(symbols[position])


def prediction_reason(difference: TargetDifference, scores: Mapping[str, ModelScore | None]) -> Reason:
    """Return the reason that a model writes another output.

    Args:
        difference: First difference between the target and the output of the last model that scores it.
        scores: Score by each kind of model that is used, by its name; at least one scores the target.
    """
    name, score = [(name, score) for name, score in scores.items() if score is not None][-1]
    given, expected = (quote_visibly(text) if text else "nothing" for text in (difference.given, difference.expected))
    source_phrase = f" for {quote_visibly(difference.source_symbols)}" if difference.source_symbols else ""
    others = "".join(f"; the {other} {_describe_score(scores[other])}" for other in scores if other != name)
    text = (
        f"the {name} writes {quote_visibly(score.output)}: {expected}{source_phrase} in place of {given} at target "
        f"symbol {difference.position} (more probable by {score.margin:.1f} nats{others})"
    )
    return Reason("prediction", text, "target", difference.position)


def _describe_score(score: ModelScore | None) -> str:
    """Return the score of a target by a model, as the end of a sentence whose subject is the model."""
    if score is None:
        return "cannot score this target"
    return f"prefers another output by {score.margin:.1f} nats" if score.margin > 0 else "writes the target"


def _with_neighbors(record: AuditRecord, neighbors: tuple[NearNeighbor, ...]) -> AuditRecord:
    """Return a record with its near neighbors, and with a reason if there are any."""
    if not neighbors:
        return record
    shown = ", ".join(f"{quote_visibly(near.source)} → {quote_visibly(near.target)}" for near in neighbors)
    lines = tuple(near.line for near in neighbors)
    reason = Reason("neighbors", f"similar sources agree with the output: {shown}", lines=lines)
    reasons = sorted([*record.reasons, reason], key=lambda each: KIND_ORDER[each.kind])
    return replace(record, neighbors=neighbors, reasons=tuple(reasons))
