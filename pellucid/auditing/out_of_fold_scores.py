"""Out-of-fold scores: each entry is scored by models that were trained without its source.

The margin of an entry with source x and target y is log p(y*, x) − log p(y, x), where y* is the best output of the
model. Pair n-gram models give joint probabilities, networks conditional ones; the difference does not depend on this.
Margins are compared in docs/audit.md with those per symbol.

A model that has not seen a part of the source cannot tell a right target from a wrong one: in a pair n-gram model, all
outputs of an unknown symbol have the same cost. If such a model finds the target the most probable output, the target
has no score by it; a positive margin counts (`_score_target`).
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec

from pellucid.auditing.types import AuditOptions, ModelScore, SourceUncertainty
from pellucid.config.settings import Config, DataConfig, reads_features
from pellucid.data.encoding import encode_examples
from pellucid.data.examples import Example, training_columns
from pellucid.data.in_memory import read_table
from pellucid.data.tokenizers import Tokenizer
from pellucid.data.vocabulary import UNK, learn_tokenizers, learn_vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DataError
from pellucid.kernels.dispatch import will_compile
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.pair_ngram.model import PairNgram
from pellucid.pair_ngram.predictor import PairNgramPredictor, fit_pair_ngram_predictor
from pellucid.run_folder.predictor_loader import load_without_warnings
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingSets
from pellucid.worker_pool import ignore_progress, parallel_map, uses_local_pool

MAX_MARGIN = 100.0
"""Greatest margin, also that of a target to which a pair n-gram model gives no probability: it cannot be aligned."""
Span = tuple[int, int, int, int]
"""Source start, source stop, target start, target stop of a chunk, in symbols; in characters where symbols are
subwords, which each fold learns anew."""


class FoldJob(NamedTuple):
    """One fold: training examples, and the examples to score."""

    number: int
    """Number of the fold, from 1."""
    training: list[Example]
    held_out: list[Example]
    config: Config
    options: AuditOptions
    folder: Path
    """Folder of the network's run."""


class AuditScores(NamedTuple):
    """Scores of examples, those of a fold or all, in their order."""

    pair_ngram: list[ModelScore | None]
    """Empty if pair n-gram models are not used; None for a target that the model cannot score."""
    network: list[ModelScore | None]
    """Empty if networks are not used; None for a target that the network cannot score."""
    chunks: list[tuple[Span, ...]]
    """Alignment of each source with the best output that differs from the target; empty where there is none."""


def score_out_of_fold(
    examples: Sequence[Example],
    folds: Sequence[int],
    config: Config,
    options: AuditOptions,
    report: Callable[[str], None] = lambda message: None,
) -> AuditScores:
    """Score all examples by models that were trained on the other folds.

    Args:
        examples: Examples.
        folds: Fold of each example, from 0.
        config: Configuration of the networks, with the data settings of all models.
        options: Options of the audit.
        report: Function that receives messages about the progress; none by default.

    Returns:
        The scores, in the order of the examples; they do not depend on the number of jobs.

    Raises:
        DataError: No pair n-gram model can be fitted, although they are used.
        InputError: As in `train_run`.
    """
    with run_folder(options) as folder:
        jobs = _plan_folds(examples, folds, config, options, folder)
        if options.models != "pair-ngram" and options.jobs != 1 and uses_local_pool() and will_compile():
            load_kernels()  # once, before the workers load them from the disk; each machine of a cluster has its own
        results = list[AuditScores]()
        found = parallel_map(partial(ignore_progress, score_fold), jobs, max_workers=options.jobs)
        for job, scores in zip(jobs, found, strict=True):
            results.append(scores)
            report(f"fold {len(results)} of {len(jobs)}: done ({len(job.held_out):,} held out)")
    return _restore_order(folds, results)


def _plan_folds(
    examples: Sequence[Example], folds: Sequence[int], config: Config, options: AuditOptions, folder: Path
) -> list[FoldJob]:
    """Return one job for each fold."""
    jobs = list[FoldJob]()
    for number in sorted(set(folds)):
        training = [example for example, fold in zip(examples, folds, strict=True) if fold != number]
        held_out = [example for example, fold in zip(examples, folds, strict=True) if fold == number]
        jobs.append(FoldJob(number + 1, training, held_out, config, options, folder / f"fold-{number + 1}"))
    return jobs


def _restore_order(folds: Sequence[int], results: Sequence[AuditScores]) -> AuditScores:
    """Return the scores of all folds in the order of the examples."""
    rows = [iter(range(len(result.chunks))) for result in results]
    order = [(results[fold], next(rows[fold])) for fold in folds]
    return AuditScores(
        [result.pair_ngram[row] for result, row in order if result.pair_ngram],
        [result.network[row] for result, row in order if result.network],
        [result.chunks[row] for result, row in order],
    )


def score_fold(job: FoldJob) -> AuditScores:
    """Train the models of a fold and score its examples.

    Args:
        job: The fold.

    Raises:
        DataError: No pair n-gram model can be fitted, although they are used.
        InputError: As in `train_run`.
    """
    held_out = without_features(job.held_out)
    ngram = fit_pair_ngram(without_features(job.training), job.config.data)
    if ngram is None and job.options.models != "network":
        raise DataError(
            "no pair n-gram model can be fitted to these pairs: none can be aligned, or there are too many symbols; "
            'use models = "network" (--models network)'
        )
    by_ngram = [] if ngram is None or job.options.models == "network" else score_by_pair_ngram(ngram, held_out)
    by_network = [] if job.options.models == "pair-ngram" else score_by_network(job)
    if ngram is None:
        return AuditScores(by_ngram, by_network, [()] * len(held_out))
    pairs = zip_longest(by_network, by_ngram)
    outputs = [score.output if (score := network or own) is not None else "" for network, own in pairs]
    return AuditScores(by_ngram, by_network, align_outputs(ngram, held_out, outputs))


def fit_pair_ngram(examples: Sequence[Example], data: DataConfig) -> PairNgramPredictor | None:
    """Fit a pair n-gram model to examples, with tokenizers and vocabularies that are learned from them.

    Args:
        examples: Examples without features.
        data: Data settings.

    Returns:
        The model; None if no pair can be aligned, or there are too many symbols.
    """
    tokenizers = learn_tokenizers(examples, data)
    return fit_pair_ngram_predictor(examples, tokenizers, learn_vocabularies(examples, tokenizers, data.min_count))


def without_features(examples: Sequence[Example]) -> list[Example]:
    """Return examples without features, which pair n-gram models do not read.

    Args:
        examples: Examples.
    """
    return [example._replace(features="") for example in examples]


def score_by_pair_ngram(predictor: PairNgramPredictor, examples: Sequence[Example]) -> list[ModelScore | None]:
    """Return the best outputs of a pair n-gram model, and the margins of the targets.

    Args:
        predictor: The model.
        examples: Examples, none of which the model was fitted to.

    Returns:
        The scores; None for a target that the model cannot score.
    """
    encoded = encode_examples(examples, predictor.tokenizers, predictor.vocabularies)
    scores = list[ModelScore | None]()
    for row, example in enumerate(examples):
        source, target = encoded.source.row(row), encoded.target.row(row)[:-1]
        outputs = predictor.model.search(source, 1) if source else []
        if not outputs:
            scores.append(None)
            continue
        best = outputs[0]
        is_output = list(best.target) == target
        score = best.score if is_output else predictor.model.log_probability(source, target)
        decoded = ModelScore(predictor.target_text(best.target), best.score - score)
        is_seen = decoded.margin > 0 or _has_seen(predictor.model, source, target, is_output)
        scores.append(_score_target(predictor.tokenizers.target, example.target, decoded, is_seen))
    return scores


def _has_seen(model: PairNgram, source: list[int], target: list[int], is_output: bool) -> bool:
    """Return whether a model has seen all parts of a source in training pairs, with those of its target.

    Args:
        model: The model.
        source: Source ids.
        target: Target ids.
        is_output: True if the target is the best output of the source.
    """
    if UNK in source:
        return False
    return (is_output and model.covers_source(source)) or model.has_known_alignment(source, target)


def train_network(examples: Sequence[Example], config: Config, folder: Path) -> Predictor:
    """Train a network on examples, or finish its training, and return its predictor.

    Args:
        examples: Training examples, a tenth of which select the parameters.
        config: Configuration of the audit.
        folder: Run folder.

    Raises:
        InputError: As in `train_run`.
    """
    config = table_config(config)
    table = read_table("pairs", table_rows(examples, config), "", training_columns(config.data))
    for _ in train_run(TrainingSets(table, None), folder, config):
        pass
    return load_without_warnings(folder, config.device)


def decode_by_network(
    labeled: Sequence[Example], examples: Sequence[Example], config: Config, options: AuditOptions
) -> list[SourceUncertainty]:
    """Return the output of each example, and its negative log-probability, by a network trained on labeled examples.

    Args:
        labeled: Training examples.
        examples: Examples; their targets are ignored.
        config: Configuration of the audit.
        options: Options, of which the run folder counts.

    Raises:
        InputError: As in `train_run`.
    """
    with run_folder(options) as folder:
        traces = train_network(labeled, config, folder / "all").predict_examples(examples)
    return [SourceUncertainty(trace.output, -trace.score) for trace in traces]


@contextmanager
def run_folder(options: AuditOptions) -> Iterator[Path]:
    """Yield the folder of the networks: that of the options, or a temporary one, which is removed at the end.

    Args:
        options: Options of the audit.
    """
    if options.run is not None:
        yield options.run
        return
    with tempfile.TemporaryDirectory(prefix="pellucid-audit-") as folder:
        yield Path(folder)


def _score_target(tokenizer: Tokenizer, target: str, decoded: ModelScore, is_seen: bool) -> ModelScore | None:
    """Return the score of a target; None for a target without a positive margin that a model cannot score.

    Where a search misses a target that is more probable than its best output, the target is the output.

    Args:
        tokenizer: Tokenizer of the targets.
        target: The target.
        decoded: Best output of the search, with a margin that may be negative or exceed `MAX_MARGIN`.
        is_seen: True if the model has seen all parts of the source.
    """
    if decoded.margin > 0:
        return ModelScore(decoded.output, min(decoded.margin, MAX_MARGIN))
    return ModelScore(tokenizer.join(tokenizer.split(target)), 0.0) if is_seen else None


def score_by_network(job: FoldJob) -> list[ModelScore | None]:
    """Train a network on the training examples of a fold, or finish its training, and score the held-out examples.

    A network that has learned to read unknown symbols, such as rare words, scores all targets
    (`Predictor.lowest_confidence_for_unknown`).

    Args:
        job: The fold.

    Returns:
        The scores; None for a target that the network cannot score.

    Raises:
        InputError: As in `train_run`.
    """
    predictor = train_network(job.training, job.config, job.folder)
    outputs, targets = predictor.predict_examples(job.held_out), predictor.score_examples(job.held_out)
    tokenizer = predictor.tokenizers.target
    scores = list[ModelScore | None]()
    for example, output, target in zip(job.held_out, outputs, targets, strict=True):
        decoded = ModelScore(output.output, output.score - target.score)
        is_seen = not (predictor.lowest_confidence_for_unknown and output.unknown)
        scores.append(_score_target(tokenizer, example.target, decoded, is_seen))
    return scores


def table_config(config: Config) -> Config:
    """Return the configuration with which networks are trained on examples in memory, without a pair n-gram model.

    Args:
        config: Configuration of the audit.
    """
    features = "3" if reads_features(config.data) else ""
    data = msgspec.structs.replace(
        config.data,
        input_format="auto",
        delimiter="auto",
        header="auto",
        source_column="1",
        target_column="2",
        features_column=features,
        class_column="",
    )
    return msgspec.structs.replace(
        config, data=data, training=msgspec.structs.replace(config.training, pair_ngram=False)
    )


def table_rows(examples: Sequence[Example], config: Config) -> list[tuple[str, ...]]:
    """Return examples as rows of a table in memory, with features if the configuration has them.

    Args:
        examples: Examples.
        config: Configuration of `table_config`.
    """
    width = 3 if reads_features(config.data) else 2
    return [tuple(example)[:width] for example in examples]


def align_outputs(
    predictor: PairNgramPredictor, examples: Sequence[Example], outputs: Sequence[str]
) -> list[tuple[Span, ...]]:
    """Return the alignment of each source with an output that differs from the target; empty for the others.

    Args:
        predictor: Pair n-gram model.
        examples: Examples.
        outputs: Output for each.
    """
    changed = [example._replace(target=output) for example, output in zip(examples, outputs, strict=True)]
    encoded = encode_examples(changed, predictor.tokenizers, predictor.vocabularies)
    found = list[tuple[Span, ...]]()
    for row, (example, output) in enumerate(zip(examples, outputs, strict=True)):
        if not output or output == example.target:
            found.append(())
            continue
        aligned = predictor.model.align(encoded.source.row(row), encoded.target.row(row)[:-1])
        source_starts = _symbol_starts(predictor.tokenizers.source, example.source)
        target_starts = _symbol_starts(predictor.tokenizers.target, output)
        found.append(_chunk_spans(aligned.sizes if aligned else [], source_starts, target_starts))
    return found


def _symbol_starts(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the position of each symbol of a text, and their number; of subwords, in characters."""
    symbols = tokenizer.split(text)
    return list(accumulate((1 if tokenizer.subwords is None else len(symbol) for symbol in symbols), initial=0))


def _chunk_spans(
    sizes: Sequence[tuple[int, int]], source_starts: Sequence[int], target_starts: Sequence[int]
) -> tuple[Span, ...]:
    """Return the chunks of an alignment by their numbers of source and target symbols."""
    spans, row, column = list[Span](), 0, 0
    for height, width in sizes:
        source, target = source_starts[row : row + height + 1], target_starts[column : column + width + 1]
        spans.append((source[0], source[-1], target[0], target[-1]))
        row, column = row + height, column + width
    return tuple(spans)
