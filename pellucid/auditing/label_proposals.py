"""Sources to label next, by uncertainty sampling (active learning): those whose outputs are least certain.

Near duplicates of earlier proposals are left out.

References:
    Lewis and Gale 1994, "A Sequential Algorithm for Training Text Classifiers" (uncertainty sampling).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pellucid.auditing.folds import source_key
from pellucid.auditing.out_of_fold_scores import decode_by_network, fit_pair_ngram, without_features
from pellucid.auditing.types import AuditEntry, AuditOptions, SourceUncertainty
from pellucid.config.settings import Config, DataConfig, Delimiter
from pellucid.data.delimiters import format_csv
from pellucid.data.encoding import encode_sources
from pellucid.data.examples import Example, InputFormat, check_first_line, read_sources
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import DataError, count_noun
from pellucid.pair_ngram.predictor import PairNgramPredictor

NUM_OUTPUTS = 10
"""Number of outputs among which the probability of the best one is computed."""
UNKNOWN_UNCERTAINTY = 100.0
"""Uncertainty of a source with a symbol that no labeled source has: no model knows this symbol."""
MIN_DISTANCE = 0.25
"""Default minimum distance between two proposed sources."""
MAX_COMPARED = 2_000
"""Maximum number of proposed sources with which a further one is compared, the latest ones."""
COLUMNS = ("rank", "source", "features", "output", "uncertainty")


class UnlabeledSources(NamedTuple):
    """Sources without targets, and lines that are none."""

    entries: list[AuditEntry]
    """Sources with their numbers, from 1, and empty targets."""
    bad_lines: list[BadLine]
    notes: list[str]
    """Remarks on columns, on a first line that may be a header, and on rows that are left out."""


class LabelProposal(NamedTuple):
    """Source that is proposed for labeling."""

    entry: AuditEntry
    output: str
    """Output of the models, as a first suggestion."""
    uncertainty: float
    """Negative log-probability of the output, in nats; of a pair n-gram model, among its best outputs.
    `UNKNOWN_UNCERTAINTY` for a source with a symbol that no labeled source has."""


def read_unlabeled(path: Path, data: DataConfig) -> UnlabeledSources:
    """Read unlabeled sources: a table with the source column of the audited file, or one source per line.

    Args:
        path: The file.
        data: Data settings of the audited file.

    Raises:
        DataError: The file cannot be read, or its header lacks the source column.
        HeaderError: The first line looks like a header, and the settings do not say whether it is one.
    """
    entries, bad_lines, notes = list[AuditEntry](), list[BadLine](), list[str]()
    input_format = InputFormat(report=notes.append)
    items = list(read_sources(path, data, input_format))
    notes.append(check_first_line(items, path, data, input_format))
    for number, item in enumerate(items, 1):
        if isinstance(item, BadLine):
            bad_lines.append(item)
        elif item.source:
            entries.append(AuditEntry(number, item))
    num_empty = len(items) - len(entries) - len(bad_lines)
    num_repeated = len(entries) - len({(source_key(entry.example), entry.example.features) for entry in entries})
    if num_empty or num_repeated:
        rows = f"{count_noun(num_empty, 'empty row')} and {count_noun(num_repeated, 'repeated source')}"
        notes.append(f"{path}: {rows} left out")
    return UnlabeledSources(entries, bad_lines, [note for note in notes if note])


def propose_sources(
    entries: Sequence[AuditEntry],
    unlabeled: Sequence[AuditEntry],
    count: int,
    config: Config,
    options: AuditOptions,
    min_distance: float = MIN_DISTANCE,
) -> list[LabelProposal]:
    """Return the sources to label next, the least certain first.

    A source that has a target already, or that is near to one proposed before, is left out. Sources with other features
    are other sources; with contexts (`data.context_words`), features do not count.

    Args:
        entries: Labeled entries, on which the models are trained.
        unlabeled: Sources without targets.
        count: Maximum number of proposals.
        config: Configuration of the networks, with the data settings.
        options: Options; with models "both", the uncertainty is the mean of both models.
        min_distance: Minimum distance between two proposed sources, from 0 to 1: edits, divided by the length of the
            longer source.

    Raises:
        DataError: No pair n-gram model can be fitted.
        InputError: As in `train_run`.
    """
    labeled = _labeled_keys(entries, config.data)
    new = {_entry_key(entry, config.data): entry for entry in reversed(unlabeled)}
    candidates = [entry for key, entry in reversed(new.items()) if key not in labeled]
    examples = [entry.example for entry in candidates]
    by_model = list[list[SourceUncertainty]]()
    if options.models != "network":
        by_model.append(_pair_ngram_uncertainty([entry.example for entry in entries], examples, config))
    if options.models != "pair-ngram":
        by_model.append(decode_by_network([entry.example for entry in entries], examples, config, options))
    split = build_tokenizers(config.data).source.split
    known = {symbol for entry in entries for symbol in split(entry.example.source)}
    proposals = list[LabelProposal]()
    for entry, *scores in zip(candidates, *by_model, strict=True):
        is_known = known.issuperset(split(entry.example.source))
        mean = float(np.mean([score.uncertainty for score in scores]))
        proposals.append(LabelProposal(entry, scores[-1].output, mean if is_known else UNKNOWN_UNCERTAINTY))
    proposals.sort(key=lambda proposal: -proposal.uncertainty)
    return list(_without_near_duplicates(proposals, count, min_distance, config.data))


def count_labeled(entries: Sequence[AuditEntry], unlabeled: Sequence[AuditEntry], data: DataConfig) -> int:
    """Return how many different sources are labeled already, and so are not proposed.

    Args:
        entries: Labeled entries.
        unlabeled: Sources without targets.
        data: Data settings of the audited file.
    """
    return len(_labeled_keys(entries, data) & {_entry_key(entry, data) for entry in unlabeled})


def _entry_key(entry: AuditEntry, data: DataConfig) -> tuple[str, str]:
    """Return the texts by which sources are compared: the source and its features, which contexts are not."""
    return source_key(entry.example), "" if data.context_words else entry.example.features


def _labeled_keys(entries: Sequence[AuditEntry], data: DataConfig) -> set[tuple[str, str]]:
    """Return the keys of labeled entries; a source in a list without features is labeled with any features."""
    keys = {_entry_key(entry, data) for entry in entries}
    return keys | {(source, "") for source, _ in keys}


def _pair_ngram_uncertainty(
    labeled: Sequence[Example], examples: Sequence[Example], config: Config
) -> list[SourceUncertainty]:
    """Return the output and the uncertainty of each example by a pair n-gram model."""
    predictor = fit_pair_ngram(without_features(labeled), config.data)
    if predictor is None:
        raise DataError('no pair n-gram model can be fitted to these pairs: use models = "network" (--models network)')
    return list(_nbest_uncertainty(predictor, without_features(examples)))


def _nbest_uncertainty(predictor: PairNgramPredictor, examples: Sequence[Example]) -> Iterator[SourceUncertainty]:
    """Yield the output and the uncertainty of each example: −log of its share among the best outputs."""
    encoded = encode_sources(examples, predictor.tokenizers, predictor.vocabularies)
    for row in range(len(examples)):
        source = encoded.row(row)
        outputs = predictor.model.search(source, NUM_OUTPUTS) if source else []
        if not outputs:
            yield SourceUncertainty("", UNKNOWN_UNCERTAINTY)
            continue
        scores = np.array([output.score for output in outputs])
        best = predictor.target_text(outputs[0].target)
        yield SourceUncertainty(best, float(np.logaddexp.reduce(scores) - scores[0]))


def _without_near_duplicates(
    proposals: Sequence[LabelProposal], count: int, min_distance: float, data: DataConfig
) -> Iterator[LabelProposal]:
    """Yield at most `count` proposals that are not near to an earlier one with the same features, the first ones."""
    chosen, num_chosen = defaultdict[str, list[str]](list), 0
    for proposal in proposals:
        if num_chosen >= count:
            return
        source, features = _entry_key(proposal.entry, data)
        others = chosen[features][-MAX_COMPARED:]
        if not any(Levenshtein.normalized_distance(source, other) < min_distance for other in others):
            chosen[features].append(source)
            num_chosen += 1
            yield proposal


def proposals_csv(proposals: Sequence[LabelProposal], delimiter: Delimiter = ",", line_end: str = "\n") -> str:
    """Return proposals as CSV.

    Args:
        proposals: Proposals in their order.
        delimiter: Delimiter; the comma by default.
        line_end: Line end; that of Unix by default.
    """
    rows: list[Sequence[str]] = [COLUMNS]
    for rank, proposal in enumerate(proposals, 1):
        example = proposal.entry.example
        cells = (example.source, example.features, proposal.output, f"{proposal.uncertainty:.3f}")
        rows.append((str(rank), *cells))
    return format_csv(rows, delimiter, line_end)
