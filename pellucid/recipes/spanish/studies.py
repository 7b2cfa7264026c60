"""Studies of the training techniques that the Spanish post names: sampled softmax, buckets and padding.

N predictions or pairs, P parameters, H units, V words, C sampled words, S source positions, T target positions.
"""

import math
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from pellucid.files import make_folder, write_json
from pellucid.model.device import use_threads
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.spanish.networks import SpanishArchitecture, SpanishNetwork
from pellucid.recipes.spanish.sentences import (
    EOS,
    GO,
    PAD,
    SPECIAL,
    SentenceCorpus,
    SentenceIds,
    build_corpus,
    tokenize,
)
from pellucid.recipes.spanish.tatoeba import read_tatoeba
from pellucid.recipes.spanish.training import SentenceBatch, build_network, to_tensors
from pellucid.reporting.figures import ACCENT, MUTED, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.shapes import Float, Int
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ignore_progress, parallel_map

VOCABULARY_SIZE, NUM_SAMPLED, SOFTMAX_BATCH, SOFTMAX_LEARNING_RATE = 50_000, 512, 32, 3e-3
SENTENCE_WORDS = 7
"""Number of words of a generated sentence."""
SOFTMAX_ARCHITECTURE = SpanishArchitecture(hidden=128, embedding=128, padding="masked")
VALIDATION_INTERVAL, VALIDATION_SENTENCES, PREDICTION_CHUNK = 50, 64, 128


class SampledWords(NamedTuple):
    """Ids of distinct sampled words, and the number of draws with replacement until there were as many."""

    words: Int[np.ndarray, " C"]
    draws: int


def log_uniform_probabilities(words: Int[np.ndarray, " N"], vocabulary_size: int) -> Float[np.ndarray, " N"]:
    """Return the log-uniform probability of words: p(k) = log((k + 2) / (k + 1)) / log(V + 1).

    For words sorted by frequency it is close to Zipf's law.

    Args:
        words: Word ids k, from 0 for the most frequent word.
        vocabulary_size: Size V of the vocabulary.
    """
    probabilities: Float[np.ndarray, " N"] = np.log1p(1 / (words + 1.0)) / math.log(vocabulary_size + 1)
    return probabilities


def draw_words(generator: np.random.Generator, count: int, vocabulary_size: int) -> Int[np.ndarray, " C"]:
    """Draw words from the log-uniform distribution with replacement: k = ⌊(V + 1)^x⌋ − 1, x uniform.

    Args:
        generator: Random generator; its state changes.
        count: Number of words.
        vocabulary_size: Size V of the vocabulary.

    Returns:
        The drawn word ids.
    """
    words = np.exp(generator.random(count) * math.log(vocabulary_size + 1)).astype(np.int64) - 1
    return np.clip(words, 0, vocabulary_size - 1)


def draw_distinct_words(generator: np.random.Generator, count: int, vocabulary_size: int) -> SampledWords:
    """Draw words until `count` of them are distinct.

    Args:
        generator: Random generator; its state changes.
        count: Number of distinct words.
        vocabulary_size: Size of the vocabulary.

    Returns:
        The words in the order of their first draws, and the number of draws.

    Raises:
        ValueError: `count` is below 1 or not below the size of the vocabulary.
    """
    if not 0 < count < vocabulary_size:
        raise ValueError(
            f"expected a sample of 1 to {vocabulary_size - 1} distinct words of {vocabulary_size}, got {count}"
        )
    words = np.zeros(0, dtype=np.int64)
    while True:
        words = np.concatenate([words, draw_words(generator, 2 * count, vocabulary_size)])
        distinct, first_draws = np.unique(words, return_index=True)
        if len(distinct) >= count:
            indices = np.sort(first_draws)[:count]
            return SampledWords(words[indices], int(indices[-1]) + 1)


def inclusion_probabilities(words: Int[np.ndarray, " N"], draws: int, vocabulary_size: int) -> Float[np.ndarray, " N"]:
    """Return Q = 1 − (1 − p)^draws: the probability that a word is drawn at least once.

    Args:
        words: Word ids.
        draws: Number of draws with replacement.
        vocabulary_size: Size V of the vocabulary.
    """
    probabilities: Float[np.ndarray, " N"] = -np.expm1(
        draws * np.log1p(-log_uniform_probabilities(words, vocabulary_size))
    )
    return probabilities


def sampled_softmax_loss(
    outputs: Float[Tensor, "N H"], targets: Int[Tensor, " N"], softmax: nn.Linear, sample: SampledWords
) -> Float[Tensor, ""]:
    """Return the mean over predictions of the cross-entropy of the target among itself and the sampled words.

    Each logit is reduced by log Q of its word. Samples equal to the target are masked.

    Args:
        outputs: Decoder outputs.
        targets: Ids of the target words.
        softmax: Output layer over all V words.
        sample: Sampled words, which all predictions share.

    References:
        Jean et al. 2015, section 3; TensorFlow 0.11, `nn.sampled_softmax_loss`.
    """
    words = torch.from_numpy(sample.words)
    weight, bias = softmax.weight, softmax.bias
    target_correction, sample_correction = (
        torch.from_numpy(np.log(inclusion_probabilities(ids, sample.draws, softmax.out_features))).float()
        for ids in (targets.numpy(), sample.words)
    )
    target_logits = (outputs * weight[targets]).sum(dim=1) + bias[targets] - target_correction
    sample_logits = outputs @ weight[words].T + bias[words] - sample_correction
    sample_logits = sample_logits.masked_fill(words == targets[:, None], -torch.inf)
    return (torch.cat([target_logits[:, None], sample_logits], dim=1).logsumexp(dim=1) - target_logits).mean()


def full_softmax_loss(
    outputs: Float[Tensor, "N H"], targets: Int[Tensor, " N"], softmax: nn.Linear
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy over the full vocabulary.

    Args:
        outputs: Decoder outputs.
        targets: Target words.
        softmax: Output layer.
    """
    return nn.functional.cross_entropy(softmax(outputs), targets)


class SoftmaxExperiment(NamedTuple):
    """Loss, length and seed of a training on generated sentences."""

    loss: Literal["full", "sampled"]
    """Full or sampled softmax in training."""
    updates: int
    """Number of updates."""
    seed: int
    vocabulary_size: int = VOCABULARY_SIZE
    num_sampled: int = NUM_SAMPLED
    """Number of sampled words of an update."""


class SoftmaxValidation(NamedTuple):
    """Validation loss by the full softmax after a number of updates."""

    updates: int
    seconds: float
    """CPU seconds of the updates so far."""
    loss: float
    """Mean cross-entropy per word, in nats."""


class SoftmaxResult(NamedTuple):
    """Result of a training."""

    experiment: SoftmaxExperiment
    curve: list[SoftmaxValidation]
    update_seconds: float
    """Median CPU seconds of an update."""
    loss_seconds: float
    """Median CPU seconds of the loss and its gradient with respect to the decoder outputs."""


def generate_sentences(generator: np.random.Generator, count: int, vocabulary_size: int) -> SentenceBatch:
    """Draw sentences of log-uniform words; the translation of word k is word k.

    Args:
        generator: Random generator; its state changes.
        count: Number of sentences, each of `SENTENCE_WORDS` words.
        vocabulary_size: Size V of the vocabulary, with the special words.

    Returns:
        A batch of sentences with their translations.
    """
    words = draw_words(generator, count * SENTENCE_WORDS, vocabulary_size - len(SPECIAL))
    words = words.reshape(count, SENTENCE_WORDS) + len(SPECIAL)
    go, eos = (np.full((count, 1), symbol) for symbol in (GO, EOS))
    columns = words, np.full(count, SENTENCE_WORDS), np.hstack([go, words]), np.hstack([words, eos])
    return SentenceBatch(*map(torch.from_numpy, columns))


def train_softmax(experiment: SoftmaxExperiment) -> SoftmaxResult:
    """Train on generated sentences on one thread; validation always uses the full softmax. Runs in a worker process.

    Args:
        experiment: Loss, length and seed of the training.

    Returns:
        Validation curve, from before the first update, and times.
    """
    use_threads(1)
    torch.manual_seed(experiment.seed)
    network = SpanishNetwork(SOFTMAX_ARCHITECTURE, experiment.vocabulary_size, experiment.vocabulary_size)
    held_out = generate_sentences(
        np.random.default_rng([experiment.seed, 1]), VALIDATION_SENTENCES, experiment.vocabulary_size
    )
    generator = np.random.default_rng([experiment.seed, 2])
    optimizer = torch.optim.Adam(network.parameters(), SOFTMAX_LEARNING_RATE, fused=True)
    curve = [SoftmaxValidation(0, 0.0, held_out_loss(network, held_out))]
    update_seconds, loss_seconds, total_seconds = list[float](), list[float](), 0.0
    for update in range(1, experiment.updates + 1):
        batch = generate_sentences(generator, SOFTMAX_BATCH, experiment.vocabulary_size)
        started = time.process_time()
        loss_seconds.append(_softmax_step(network, optimizer, batch, experiment, generator))
        update_seconds.append(time.process_time() - started)
        total_seconds += update_seconds[-1]
        if update % VALIDATION_INTERVAL == 0 or update == experiment.updates:
            curve.append(SoftmaxValidation(update, total_seconds, held_out_loss(network, held_out)))
    return SoftmaxResult(experiment, curve, float(np.median(update_seconds)), float(np.median(loss_seconds)))


def _softmax_step(
    network: SpanishNetwork,
    optimizer: torch.optim.Adam,
    batch: SentenceBatch,
    experiment: SoftmaxExperiment,
    generator: np.random.Generator,
) -> float:
    """Make one update; return the seconds of the loss and its gradient."""
    network.train()
    optimizer.zero_grad()
    outputs = network(network.encode(batch.source, batch.lengths), batch.inputs).outputs.flatten(0, 1)
    detached = outputs.detach().requires_grad_()
    started = time.process_time()
    if experiment.loss == "full":
        loss = full_softmax_loss(detached, batch.targets.flatten(), network.softmax)
    else:
        sample = draw_distinct_words(generator, experiment.num_sampled, experiment.vocabulary_size)
        loss = sampled_softmax_loss(detached, batch.targets.flatten(), network.softmax, sample)
    torch.autograd.backward(loss)
    loss_seconds = time.process_time() - started
    outputs.backward(detached.grad)
    optimizer.step()
    return loss_seconds


@torch.no_grad()
def held_out_loss(network: SpanishNetwork, data: SentenceBatch) -> float:
    """Return the mean cross-entropy per target word over the full vocabulary.

    The logits are computed in chunks, since they are large. The network is in evaluation mode afterwards.

    Args:
        network: The network.
        data: Sentence pairs without padding.
    """
    network.eval()
    outputs = network(network.encode(data.source, data.lengths), data.inputs).outputs.flatten(0, 1)
    targets = data.targets.flatten()
    chunks = [slice(first, first + PREDICTION_CHUNK) for first in range(0, len(targets), PREDICTION_CHUNK)]
    losses = [
        full_softmax_loss(outputs[chunk], targets[chunk], network.softmax).item() * len(targets[chunk])
        for chunk in chunks
    ]
    return sum(losses) / len(targets)


BUCKETS = ((5, 10), (10, 15), (20, 25), (40, 50))
"""Source and target lengths with _GO and _EOS, as in TensorFlow's tutorial."""
BATCH_SIZE = 64
BatchingScheme = Literal["longest", "buckets", "sorted"]
PaddingMode = Literal["attended", "masked"]
PADDING_MODES: tuple[PaddingMode, ...] = ("attended", "masked")
BATCHING_SCHEMES: tuple[BatchingScheme, ...] = ("longest", "buckets", "sorted")


class BatchingMeasurement(NamedTuple):
    """Cost and results of one batching scheme."""

    scheme: BatchingScheme
    padding: PaddingMode
    """Attention covers padding, or masks it."""
    num_batches: int
    source_padding: float
    """Fraction of padding among source positions."""
    target_padding: float
    """Fraction of padding among target positions."""
    seconds: float
    """CPU seconds of a forward and backward pass over all sentences, without an update."""
    losses: Float[np.ndarray, " N"]
    """Loss of each sentence, summed over its words."""
    gradient: Float[np.ndarray, " P"]
    """Gradient of the summed loss with respect to all parameters."""


def find_bucket(source_length: int, target_length: int, buckets: Sequence[tuple[int, int]] = BUCKETS) -> int | None:
    """Return the index of the first bucket that holds a pair, or None if none does.

    Args:
        source_length: Number of source words.
        target_length: Number of target words with _GO and _EOS.
        buckets: Source and target length of each bucket, in ascending order.
    """
    fitting = (index for index, (S, T) in enumerate(buckets) if source_length <= S and target_length <= T)
    return next(fitting, None)


def plan_batches(data: SentenceIds, scheme: BatchingScheme) -> Iterator[tuple[Int[np.ndarray, " B"], tuple[int, int]]]:
    """Yield the indices of the pairs of each batch, at most `BATCH_SIZE`, with the source and target length of the
    batch.

    All buckets share the parameters (`model_with_buckets`): one network serves several lengths.

    Args:
        data: Word ids of all pairs.
        scheme: "longest" (all batches as long as the longest pair), "buckets" (pairs that fit no bucket are left out),
            or "sorted" (pairs of similar length share a batch).
    """
    lengths, target_lengths = data.lengths, (data.inputs != PAD).sum(axis=1)
    if scheme == "longest":
        groups, widths = [np.arange(len(lengths))], [(int(lengths.max()), int(target_lengths.max()))]
    elif scheme == "buckets":
        buckets = np.array([find_bucket(int(s), int(t)) for s, t in zip(lengths, target_lengths, strict=True)])
        groups, widths = [np.flatnonzero(buckets == index) for index in range(len(BUCKETS))], list(BUCKETS)
    else:
        order = np.lexsort((lengths, target_lengths))
        groups = [order[first : first + BATCH_SIZE] for first in range(0, len(order), BATCH_SIZE)]
        widths = [(int(lengths[rows].max()), int(target_lengths[rows].max())) for rows in groups]
    for rows, width in zip(groups, widths, strict=True):
        for first in range(0, len(rows), BATCH_SIZE):
            yield rows[first : first + BATCH_SIZE], width


def cut_batch(data: SentenceIds, rows: Int[np.ndarray, " B"], widths: tuple[int, int]) -> SentenceBatch:
    """Return selected pairs, truncated or padded to given lengths.

    Args:
        data: Word ids of all pairs.
        rows: Indices of the pairs.
        widths: Source and target length of the batch.
    """
    S, T = widths
    padded = SentenceIds(
        source=_pad_columns(data.source[rows, :S], S),
        lengths=data.lengths[rows],
        inputs=_pad_columns(data.inputs[rows, :T], T),
        targets=_pad_columns(data.targets[rows, :T], T),
    )
    return to_tensors(padded)


def _pad_columns(column: np.ndarray, width: int) -> np.ndarray:
    """Pad a column to the length of its bucket."""
    if column.shape[1] >= width:
        return column
    return np.pad(column, ((0, 0), (0, width - column.shape[1])), constant_values=PAD)


def sentence_losses(network: SpanishNetwork, batch: SentenceBatch) -> Float[Tensor, " B"]:
    """Return the loss Σ_t w_t · −log p(target_t) of each sentence with teacher forcing; w is 0 on padding, else 1.

    Args:
        network: The network.
        batch: Sentence pairs.
    """
    logits = network.softmax(network(network.encode(batch.source, batch.lengths), batch.inputs).outputs)
    word_losses = nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
    word_losses = word_losses * batch.targets.flatten().sign()
    losses: Float[Tensor, " B"] = word_losses.view(batch.targets.shape).sum(dim=1)
    return losses


def sequence_loss(losses: Float[Tensor, " B"], words: Int[Tensor, " B"]) -> Float[Tensor, ""]:
    """Return (1 / B) Σ_b loss_b / (words_b + 10⁻¹²), TensorFlow's `sequence_loss`: a mean of means over words.

    Args:
        losses: Loss of each sentence, summed over its words.
        words: Number of words of each sentence.
    """
    return (losses / (words + 1e-12)).mean()


class BatchingJob(NamedTuple):
    """Sentences and settings of one measurement of a batching scheme."""

    pairs: Sequence[tuple[str, str]]
    """English and Spanish sentences."""
    scheme: BatchingScheme
    padding: PaddingMode
    hidden: int = 128
    """Number of hidden units, and size of the embeddings."""


def measure_batching(job: BatchingJob) -> BatchingMeasurement:
    """Run one forward and backward pass over all sentences, without dropout and updates, on one thread.

    The network is new, with the same parameters for every scheme. Runs in a worker process.

    Args:
        job: Pairs, batching scheme and padding.

    Returns:
        Time, losses and gradient of the pass.
    """
    use_threads(1)
    corpus: SentenceCorpus = build_corpus(job.pairs)
    torch.manual_seed(1)
    network = build_network(
        SpanishArchitecture(hidden=job.hidden, embedding=job.hidden, padding=job.padding), corpus
    ).eval()
    losses, num_batches, positions, padding = np.zeros(len(job.pairs)), 0, np.zeros(2), np.zeros(2)
    started = time.process_time()
    for rows, widths in plan_batches(corpus.data, job.scheme):
        batch = cut_batch(corpus.data, rows, widths)
        batch_losses = sentence_losses(network, batch)
        torch.autograd.backward(batch_losses.sum())
        losses[rows] = batch_losses.detach().numpy()
        num_batches += 1
        for side, column in enumerate((batch.source, batch.targets)):
            positions[side] += column.numel()
            padding[side] += int((column == PAD).sum())
    seconds = time.process_time() - started
    gradient = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]).numpy()
    source, target = (padding / positions).tolist()
    return BatchingMeasurement(job.scheme, job.padding, num_batches, source, target, seconds, losses, gradient)


NAME, TITLE = "spanish-studies", "Sampled softmax, buckets and padding"
FULL_UPDATES, SAMPLED_UPDATE_RATIO, NUM_SENTENCES = 200, 5, 2_000
"""Updates with the full softmax, ratio of the updates with the sampled one to them, sentences of the batching study."""
INTRODUCTION = """\
The post of 2016 names two techniques for larger data. Sampled softmax: in training, the loss of each word is computed
among itself and 512 sampled words instead of all 50,000, corrected by their sampling probabilities; decoding always
uses all words. It is measured with a network of 128 units on generated sentences, whose words follow Zipf's law and
are translated by a dictionary; both training runs are validated with the full softmax.

Buckets: sentences of similar lengths share one of four fixed sizes, with one set of parameters. They are compared
with full padding (all sentences as long as the longest, as in the post) and with batches of similar lengths; and with
padding attended or masked. They are measured on sentences of Tatoeba, one pass with the same network of 128 units.

Seconds are CPU time on one thread; the machine had other work."""
SCHEME_NAMES = {"longest": "full padding", "buckets": "buckets", "sorted": "similar lengths"}


class BatchingComparison(NamedTuple):
    """A batching scheme compared with the first scheme under the same padding."""

    measurement: BatchingMeasurement
    loss: float
    """Mean loss of a sentence."""
    loss_difference: float
    """Maximum relative difference of a sentence's loss."""
    gradient_difference: float
    """‖g − g₁‖ / ‖g₁‖ for the gradient g₁ of the first scheme."""


def run_spanish_studies(request: RecipeRequest) -> Iterator[str]:
    """Compare sampled and full softmax, then batching schemes and padding.

    Args:
        request: The recipe's request; `samples` counts the training sentences of the full softmax and those of the
            batching study. `seeds` is not used.

    Yields:
        A line per training, a comparison of both, a line per batching scheme and padding, and the path of the report.

    Raises:
        DataError: The sentences of Tatoeba are missing or damaged.
        RunError: A report cannot be written.
    """
    make_folder(request.out)
    updates = max(1, request.samples // SOFTMAX_BATCH) if request.samples else FULL_UPDATES
    softmax_experiments = [
        SoftmaxExperiment("full", updates, 1),
        SoftmaxExperiment("sampled", SAMPLED_UPDATE_RATIO * updates, 1),
    ]
    results = []
    for result in parallel_map(partial(ignore_progress, train_softmax), softmax_experiments):
        results.append(result)
        yield _softmax_line(result)
    full, sampled = results
    yield compare_softmax(full, sampled)
    pairs, num_rejected = _draw_pairs(request.data, request.samples or NUM_SENTENCES)
    jobs = [BatchingJob(pairs, scheme, padding) for padding in PADDING_MODES for scheme in BATCHING_SCHEMES]
    comparisons = compare_batching(list(parallel_map(partial(ignore_progress, measure_batching), jobs)))
    yield from map(_batching_line, comparisons)
    write_json(request.out / "report.json", _report_json(results, comparisons, len(pairs), num_rejected))
    report = Report(
        title=TITLE,
        introduction=INTRODUCTION,
        parts=list(_report_parts(results, comparisons, len(pairs), num_rejected)),
    )
    write_report(request.out / "report.html", report)
    yield f"report: {request.out / 'report.html'}"


def compare_batching(measurements: Sequence[BatchingMeasurement]) -> list[BatchingComparison]:
    """Compare each scheme with the first one under the same padding.

    Args:
        measurements: Measurements; the first one of each padding is the baseline.

    Returns:
        A comparison of each measurement with its baseline.
    """
    comparisons = []
    for measurement in measurements:
        baseline = next(other for other in measurements if other.padding == measurement.padding)
        loss_difference = float(np.max(np.abs(measurement.losses - baseline.losses) / baseline.losses))
        norm = float(np.linalg.norm(baseline.gradient))
        gradient_difference = float(np.linalg.norm(measurement.gradient - baseline.gradient)) / norm
        mean_loss = float(measurement.losses.mean())
        comparisons.append(BatchingComparison(measurement, mean_loss, loss_difference, gradient_difference))
    return comparisons


def compare_softmax(full: SoftmaxResult, sampled: SoftmaxResult) -> str:
    """Describe how much time sampled softmax saves and what it costs in loss.

    Args:
        full: Result with the full softmax.
        sampled: Result with the sampled softmax; it has at least as many updates.

    Returns:
        A paragraph of the report.
    """
    last = full.curve[-1]
    equal_updates = next(point for point in sampled.curve if point.updates >= last.updates)
    equal_time = [point for point in sampled.curve if point.seconds <= last.seconds][-1]
    return (
        f"An update with {NUM_SAMPLED} sampled words takes {1000 * sampled.update_seconds:.0f} ms, with all "
        f"{VOCABULARY_SIZE:,} words {1000 * full.update_seconds:.0f} ms (the loss alone "
        f"{1000 * sampled.loss_seconds:.1f} and {1000 * full.loss_seconds:.0f} ms; the remainder is the network, and "
        f"Adam over all parameters). After {last.updates} updates the validation loss by the full softmax is "
        f"{last.loss:.3f} for the full softmax and {equal_updates.loss:.3f} for the sampled one. In the time of the "
        f"full softmax, {last.seconds:.0f} s, the sampled one makes {equal_time.updates} updates and reaches "
        f"{equal_time.loss:.3f}."
    )


def _draw_pairs(data: Path, count: int) -> tuple[list[tuple[str, str]], int]:
    """Draw sentences that fit the largest bucket; return them and the number of rejected ones."""
    examples = random.Random(1).sample(list(read_tatoeba(data, 0).train), count)
    pairs = [(example.source, example.target) for example in examples]
    fitting = [pair for pair in pairs if find_bucket(len(tokenize(pair[0])), len(tokenize(pair[1])) + 2) is not None]
    return fitting, len(pairs) - len(fitting)


def _softmax_line(result: SoftmaxResult) -> str:
    """Return the line of a training."""
    last = result.curve[-1]
    return (
        f"{result.experiment.loss} softmax: loss {last.loss:.3f} after {last.updates} updates in {last.seconds:.0f} s, "
        f"{1000 * result.update_seconds:.0f} ms per update, of which {1000 * result.loss_seconds:.1f} ms for the loss"
    )


def _batching_line(comparison: BatchingComparison) -> str:
    """Return the line of a batching scheme."""
    measurement = comparison.measurement
    return (
        f"{SCHEME_NAMES[measurement.scheme]}, padding {measurement.padding}: {100 * measurement.source_padding:.1f} % "
        f"of the source and {100 * measurement.target_padding:.1f} % of the target positions are padding, "
        f"{measurement.seconds:.1f} s per pass, loss per sentence {comparison.loss:.4f}, relative differences: losses "
        f"up to {comparison.loss_difference:.1e}, gradient {comparison.gradient_difference:.1e}"
    )


def _report_parts(
    results: Sequence[SoftmaxResult], comparisons: Sequence[BatchingComparison], num_pairs: int, num_rejected: int
) -> Iterator[ReportPart]:
    """Yield figures, tables and conclusions."""
    title = "Sampled softmax"
    caption = "Validation loss by the full softmax over seconds of training: full softmax, and 512 sampled words."
    yield ReportFigure(title, caption, to_svg(sampled_figure(results)))
    full, sampled = results
    yield ReportText(title, compare_softmax(full, sampled))
    rows = [
        [
            result.experiment.loss,
            f"{result.curve[-1].updates:,}",
            f"{result.curve[-1].seconds:.0f}",
            f"{1000 * result.update_seconds:.1f}",
            f"{1000 * result.loss_seconds:.1f}",
            f"{result.curve[0].loss:.3f}",
            f"{result.curve[-1].loss:.3f}",
        ]
        for result in results
    ]
    heads = ["softmax", "updates", "seconds", "ms per update", "ms for the loss", "initial loss", "final loss"]
    yield ReportTable(title, "Medians on one thread.", heads, rows)
    title = "Buckets, similar lengths, masking"
    caption = (
        f"One pass over {num_pairs:,} sentences, buckets {', '.join(f'{s}×{t}' for s, t in BUCKETS)}; "
        f"{num_rejected} drawn sentences fit in none. Differences: maximum relative difference of a sentence's loss, "
        "and relative difference of the gradient, from the first row with the same padding."
    )
    heads = ["scheme", "padding is", "source padding", "target padding", "batches", "seconds"]
    heads += ["loss per sentence", "loss difference", "gradient difference"]
    yield ReportTable(title, caption, heads, list(_batching_rows(comparisons)))
    yield ReportText(title, BATCHING_CONCLUSION)


BATCHING_CONCLUSION = """\
With masked padding the batching scheme changes the time only: loss and gradient are equal up to rounding, so buckets,
similar lengths and full padding give the same model. With attended padding, as in the post, the result for a sentence
depends on the width of its batch: attention covers less padding with buckets, and none with a mask. Batches of similar
lengths need no predefined sizes; Pellucid masks padding and batches in this way."""


def _batching_rows(comparisons: Sequence[BatchingComparison]) -> Iterator[list[str]]:
    """Yield the table rows of the batching schemes."""
    for comparison in comparisons:
        measurement = comparison.measurement
        yield [
            SCHEME_NAMES[measurement.scheme],
            measurement.padding,
            f"{100 * measurement.source_padding:.1f} %",
            f"{100 * measurement.target_padding:.1f} %",
            str(measurement.num_batches),
            f"{measurement.seconds:.1f}",
            f"{comparison.loss:.4f}",
            f"{comparison.loss_difference:.1e}",
            f"{comparison.gradient_difference:.1e}",
        ]


def sampled_figure(results: Sequence[SoftmaxResult]) -> Figure:
    """Draw the validation loss by the full softmax over CPU seconds of training.

    Args:
        results: Result with the full softmax, then that with the sampled one.

    Returns:
        The figure.
    """
    figure = empty_figure(7.2, 3.6)
    axes = figure.add_subplot()
    for result, color in zip(results, (MUTED, ACCENT), strict=True):
        seconds, losses = [point.seconds for point in result.curve], [point.loss for point in result.curve]
        axes.plot(
            seconds, losses, "o-", color=color, markersize=3, linewidth=1.6, label=f"{result.experiment.loss} softmax"
        )
    style_axes(axes)
    axes.set_ylabel("loss per word, full softmax", color=MUTED)
    axes.set_xlabel("seconds of training", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _report_json(
    results: Sequence[SoftmaxResult], comparisons: Sequence[BatchingComparison], num_pairs: int, num_rejected: int
) -> dict[str, Any]:
    """Return report.json."""
    return {
        "name": NAME,
        "sampled_softmax": [
            {
                **result.experiment._asdict(),
                "update_seconds": result.update_seconds,
                "loss_seconds": result.loss_seconds,
                "curve": [point._asdict() for point in result.curve],
            }
            for result in results
        ],
        "sentences": num_pairs,
        "rejected": num_rejected,
        "batching": [
            {
                **{"scheme": measurement.scheme, "padding": measurement.padding},
                **{"batches": measurement.num_batches, "seconds": measurement.seconds},
                **{"source_padding": measurement.source_padding, "target_padding": measurement.target_padding},
                "loss": comparison.loss,
                "loss_difference": comparison.loss_difference,
                "gradient_difference": comparison.gradient_difference,
            }
            for comparison in comparisons
            for measurement in (comparison.measurement,)
        ],
    }
