"""Studies of the training techniques that the Spanish post names: sampled softmax, buckets and padding.

N predictions or pairs, H units, V words, C sampled words, S source positions, T target positions.
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
from jaxtyping import Float, Int
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
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ignore_progress, parallel_map

VOCABULARY_SIZE, NUM_SAMPLED, SOFTMAX_BATCH, SOFTMAX_RATE = 50_000, 512, 32, 3e-3
SENTENCE_WORDS = 7
"""Words of a generated sentence."""
SOFTMAX_ARCHITECTURE = SpanishArchitecture(hidden=128, embedding=128, padding="masked")
VALIDATION_INTERVAL, VALIDATION_SENTENCES, PREDICTION_CHUNK = 50, 64, 128


class SampledWords(NamedTuple):
    """Distinct sampled words and the number of draws they took."""

    words: Int[np.ndarray, " C"]
    draws: int


def log_uniform_probabilities(words: Int[np.ndarray, " N"], vocabulary: int) -> Float[np.ndarray, " N"]:
    """Return p(k) = log((k + 2) / (k + 1)) / log(V + 1), close to Zipf's law for words sorted by frequency."""
    found: Float[np.ndarray, " N"] = np.log1p(1 / (words + 1.0)) / math.log(vocabulary + 1)
    return found


def draw_words(generator: np.random.Generator, count: int, vocabulary: int) -> Int[np.ndarray, " C"]:
    """Draw words from the log-uniform distribution with replacement: k = ⌊(V + 1)^x⌋ − 1, x uniform."""
    drawn = np.exp(generator.random(count) * math.log(vocabulary + 1)).astype(np.int64) - 1
    return np.clip(drawn, 0, vocabulary - 1)


def draw_distinct_words(generator: np.random.Generator, count: int, vocabulary: int) -> SampledWords:
    """Draw words until `count` of them are distinct.

    Args:
        generator: Random generator.
        count: Number of distinct words.
        vocabulary: Size of the vocabulary.

    Raises:
        ValueError: `count` is not between 1 and the size of the vocabulary.
    """
    if not 0 < count < vocabulary:
        raise ValueError(f"expected a sample of 1 to {vocabulary - 1} distinct words of {vocabulary}, got {count}")
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        drawn = np.concatenate([drawn, draw_words(generator, 2 * count, vocabulary)])
        words, places = np.unique(drawn, return_index=True)
        if len(words) >= count:
            last = np.sort(places)[:count]
            return SampledWords(drawn[last], int(last[-1]) + 1)


def inclusion_probabilities(words: Int[np.ndarray, " N"], draws: int, vocabulary: int) -> Float[np.ndarray, " N"]:
    """Return Q = 1 − (1 − p)^draws: the probability that a word is in the sample."""
    found: Float[np.ndarray, " N"] = -np.expm1(draws * np.log1p(-log_uniform_probabilities(words, vocabulary)))
    return found


def sampled_softmax_loss(
    outputs: Float[Tensor, "N H"], targets: Int[Tensor, " N"], softmax: nn.Linear, drawn: SampledWords
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of each target among itself and the sampled words.

    Each logit is reduced by log Q of its word. Samples equal to the target are masked.

    Args:
        outputs: Decoder outputs.
        targets: Target words.
        softmax: Output layer.
        drawn: Sampled words.

    References:
        Jean et al. 2015, section 3; TensorFlow 0.11, `nn.sampled_softmax_loss`.
    """
    words = torch.from_numpy(drawn.words)
    vocabulary = softmax.out_features
    weight, bias = softmax.weight, softmax.bias
    corrected = [
        torch.from_numpy(np.log(inclusion_probabilities(each, drawn.draws, vocabulary))).float()
        for each in (targets.numpy(), drawn.words)
    ]
    own = (outputs * weight[targets]).sum(dim=1) + bias[targets] - corrected[0]
    others = outputs @ weight[words].T + bias[words] - corrected[1]
    others = others.masked_fill(words == targets[:, None], -torch.inf)
    return (torch.cat([own[:, None], others], dim=1).logsumexp(dim=1) - own).mean()


def full_softmax_loss(
    outputs: Float[Tensor, "N H"], targets: Int[Tensor, " N"], softmax: nn.Linear
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy over the full vocabulary."""
    return nn.functional.cross_entropy(softmax(outputs), targets)


class SoftmaxStudy(NamedTuple):
    """Loss, length and seed of a training."""

    cost: Literal["full", "sampled"]
    updates: int
    seed: int
    vocabulary: int = VOCABULARY_SIZE
    sampled: int = NUM_SAMPLED


class SoftmaxValidation(NamedTuple):
    """Validation loss by the full softmax after some updates and seconds of training."""

    updates: int
    seconds: float
    loss: float


class SoftmaxResult(NamedTuple):
    """Result of a training."""

    plan: SoftmaxStudy
    curve: list[SoftmaxValidation]
    update_seconds: float
    """Median time of an update."""
    cost_seconds: float
    """Median time of the loss and its gradient with respect to the decoder outputs."""


def generate_sentences(generator: np.random.Generator, count: int, vocabulary: int) -> SentenceBatch:
    """Draw sentences of log-uniform words; the translation of word k is word k."""
    words = draw_words(generator, count * SENTENCE_WORDS, vocabulary - len(SPECIAL)).reshape(
        count, SENTENCE_WORDS
    ) + len(SPECIAL)
    first, last = (np.full((count, 1), each) for each in (GO, EOS))
    columns = words, np.full(count, SENTENCE_WORDS), np.hstack([first, words]), np.hstack([words, last])
    return SentenceBatch(*map(torch.from_numpy, columns))


def train_softmax(plan: SoftmaxStudy) -> SoftmaxResult:
    """Train on generated sentences on one thread; validation always uses the full softmax."""
    use_threads(1)
    torch.manual_seed(plan.seed)
    network = SpanishNetwork(SOFTMAX_ARCHITECTURE, plan.vocabulary, plan.vocabulary)
    held_out = generate_sentences(np.random.default_rng([plan.seed, 1]), VALIDATION_SENTENCES, plan.vocabulary)
    generator = np.random.default_rng([plan.seed, 2])
    optimizer = torch.optim.Adam(network.parameters(), SOFTMAX_RATE, fused=True)
    curve, updates, costs, spent = (
        [SoftmaxValidation(0, 0.0, held_out_loss(network, held_out))],
        list[float](),
        list[float](),
        0.0,
    )
    for number in range(1, plan.updates + 1):
        batch = generate_sentences(generator, SOFTMAX_BATCH, plan.vocabulary)
        started = time.process_time()
        costs.append(_softmax_step(network, optimizer, batch, (plan, generator)))
        updates.append(time.process_time() - started)
        spent += updates[-1]
        if number % VALIDATION_INTERVAL == 0 or number == plan.updates:
            curve.append(SoftmaxValidation(number, spent, held_out_loss(network, held_out)))
    return SoftmaxResult(plan, curve, float(np.median(updates)), float(np.median(costs)))


def _softmax_step(
    network: SpanishNetwork,
    optimizer: torch.optim.Adam,
    batch: SentenceBatch,
    study: tuple[SoftmaxStudy, np.random.Generator],
) -> float:
    """Make one update; return the seconds of the loss and its gradient."""
    plan, generator = study
    network.train()
    optimizer.zero_grad()
    written = network(network.encode(batch.source, batch.lengths), batch.given).outputs.flatten(0, 1)
    cut = written.detach().requires_grad_()
    started = time.process_time()
    if plan.cost == "full":
        cost = full_softmax_loss(cut, batch.targets.flatten(), network.softmax)
    else:
        drawn = draw_distinct_words(generator, plan.sampled, plan.vocabulary)
        cost = sampled_softmax_loss(cut, batch.targets.flatten(), network.softmax, drawn)
    torch.autograd.backward(cost)
    took = time.process_time() - started
    written.backward(cut.grad)
    optimizer.step()
    return took


@torch.no_grad()
def held_out_loss(network: SpanishNetwork, data: SentenceBatch) -> float:
    """Return the mean cross-entropy over the full vocabulary, in chunks, since the logits are large."""
    network.eval()
    outputs = network(network.encode(data.source, data.lengths), data.given).outputs.flatten(0, 1)
    targets = data.targets.flatten()
    parts = [slice(first, first + PREDICTION_CHUNK) for first in range(0, len(targets), PREDICTION_CHUNK)]
    costs = [
        full_softmax_loss(outputs[part], targets[part], network.softmax).item() * len(targets[part]) for part in parts
    ]
    return sum(costs) / len(targets)


BUCKETS = ((5, 10), (10, 15), (20, 25), (40, 50))
"""Source and target lengths with _GO and _EOS, as in TensorFlow's tutorial."""
PASS_BATCH = 64
BatchingScheme = Literal["longest", "buckets", "alike"]
PaddingMode = Literal["attended", "masked"]
PADDING_MODES: tuple[PaddingMode, ...] = ("attended", "masked")
BATCHING_SCHEMES: tuple[BatchingScheme, ...] = ("longest", "buckets", "alike")


class BatchingMeasurement(NamedTuple):
    """Cost and results of one batching scheme."""

    scheme: BatchingScheme
    padding: PaddingMode
    batches: int
    source_padding: float
    """Share of padding among source positions."""
    target_padding: float
    seconds: float
    """Forward and backward pass over all sentences, without an update."""
    losses: Float[np.ndarray, " N"]
    """Loss of each sentence, summed over its words."""
    gradient: Float[np.ndarray, " P"]
    """Gradient of the summed loss with respect to all parameters."""


def find_bucket(source: int, target: int, buckets: Sequence[tuple[int, int]] = BUCKETS) -> int | None:
    """Return the first bucket that holds a pair, or None."""
    fitting = (at for at, (S, T) in enumerate(buckets) if source <= S and target <= T)
    return next(fitting, None)


def plan_batches(data: SentenceIds, scheme: BatchingScheme) -> Iterator[tuple[Int[np.ndarray, " B"], tuple[int, int]]]:
    """Yield the rows of each batch with its source and target length.

    All buckets share the parameters (`model_with_buckets`): one network serves several lengths.
    """
    lengths, sizes = data.lengths, (data.given != PAD).sum(axis=1)
    if scheme == "longest":
        groups, wide = [np.arange(len(lengths))], [(int(lengths.max()), int(sizes.max()))]
    elif scheme == "buckets":
        own = np.array([find_bucket(int(s), int(t)) for s, t in zip(lengths, sizes, strict=True)])
        groups, wide = [np.flatnonzero(own == at) for at in range(len(BUCKETS))], list(BUCKETS)
    else:
        order = np.lexsort((lengths, sizes))
        groups = [order[first : first + PASS_BATCH] for first in range(0, len(order), PASS_BATCH)]
        wide = [(int(lengths[rows].max()), int(sizes[rows].max())) for rows in groups]
    for rows, widths in zip(groups, wide, strict=True):
        for first in range(0, len(rows), PASS_BATCH):
            yield rows[first : first + PASS_BATCH], widths


def cut_batch(data: SentenceIds, rows: Int[np.ndarray, " B"], widths: tuple[int, int]) -> SentenceBatch:
    """Return some pairs at given lengths."""
    S, T = widths
    some = SentenceIds(data.source[rows, :S], data.lengths[rows], data.given[rows, :T], data.targets[rows, :T])
    return to_tensors(SentenceIds(*(_pad_columns(each, width) for each, width in zip(some, (S, 0, T, T), strict=True))))


def _pad_columns(column: np.ndarray, width: int) -> np.ndarray:
    """Pad a column to the length of its bucket."""
    if column.ndim == 1 or column.shape[1] >= width:
        return column
    return np.pad(column, ((0, 0), (0, width - column.shape[1])), constant_values=PAD)


def sentence_losses(network: SpanishNetwork, batch: SentenceBatch) -> Float[Tensor, " B"]:
    """Return Σ_t w_t · −log p(target_t) of each sentence; w is 0 on padding, else 1."""
    logits = network.softmax(network(network.encode(batch.source, batch.lengths), batch.given).outputs)
    each = nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
    costs: Float[Tensor, " B"] = (each * batch.targets.flatten().sign()).view(batch.targets.shape).sum(dim=1)
    return costs


def sequence_loss(costs: Float[Tensor, " B"], words: Int[Tensor, " B"]) -> Float[Tensor, ""]:
    """Return (1 / B) Σ_b loss_b / (words_b + 10⁻¹²), TensorFlow's `sequence_loss`: a mean of means over words."""
    return (costs / (words + 1e-12)).mean()


class BatchingJob(NamedTuple):
    """One measurement, in a worker process."""

    pairs: Sequence[tuple[str, str]]
    scheme: BatchingScheme
    padding: PaddingMode
    hidden: int = 128


def measure_batching(job: BatchingJob) -> BatchingMeasurement:
    """Run one pass with a new network (always the same one, without dropout) on one thread."""
    use_threads(1)
    corpus: SentenceCorpus = build_corpus(job.pairs)
    torch.manual_seed(1)
    network = build_network(
        SpanishArchitecture(hidden=job.hidden, embedding=job.hidden, padding=job.padding), corpus
    ).eval()
    losses, batches, positions, padding = np.zeros(len(job.pairs)), 0, np.zeros(2), np.zeros(2)
    started = time.process_time()
    for rows, widths in plan_batches(corpus.data, job.scheme):
        batch = cut_batch(corpus.data, rows, widths)
        costs = sentence_losses(network, batch)
        torch.autograd.backward(costs.sum())
        losses[rows] = costs.detach().numpy()
        batches += 1
        for side, column in enumerate((batch.source, batch.targets)):
            positions[side] += column.numel()
            padding[side] += int((column == PAD).sum())
    seconds = time.process_time() - started
    gradient = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]).numpy()
    source, target = (padding / positions).tolist()
    return BatchingMeasurement(job.scheme, job.padding, batches, source, target, seconds, losses, gradient)


NAME, TITLE = "spanish-studies", "Sampled softmax, buckets and padding"
FULL_UPDATES, SAMPLED_UPDATE_RATIO, NUM_SENTENCES = 200, 5, 2_000
"""Updates with the full softmax; ratio of updates with the sampled one; sentences for the batching study."""
INTRODUCTION = """\
The post of 2016 names two techniques for larger data. Sampled softmax: in training, the loss of each word is computed
among itself and 512 sampled words instead of all 50,000, corrected by their sampling probabilities; decoding always
uses all words. It is measured with a network of 128 units on generated sentences, whose words follow Zipf's law and
are translated by a dictionary; both trainings are validated with the full softmax.

Buckets: sentences of similar lengths share one of four fixed sizes, with one set of parameters. They are compared
with full padding (all sentences as long as the longest, as in the post) and with batches of similar lengths; and with
padding attended or masked. They are measured on sentences of Tatoeba, one pass with the same network of 128 units.

Seconds are CPU time on one thread; the machine had other work."""
SCHEME_NAMES = {"longest": "all as long as the longest", "buckets": "buckets", "alike": "like lengths"}


class BatchingComparison(NamedTuple):
    """A batching scheme compared with the first scheme under the same padding."""

    measured: BatchingMeasurement
    loss: float
    """Mean loss of a sentence."""
    off: float
    """Maximum relative difference of a sentence's loss."""
    gradient_off: float
    """‖g − g₁‖ / ‖g₁‖."""


def run_spanish_studies(request: RecipeRequest) -> Iterator[str]:
    """Run both studies.

    Args:
        request: The recipe's request; `samples` counts the sentences of the full softmax and those of the batching
            study.

    Yields:
        A line per training and per scheme, and the path of the report.
    """
    make_folder(request.out)
    updates = max(1, request.samples // SOFTMAX_BATCH) if request.samples else FULL_UPDATES
    plans = [SoftmaxStudy("full", updates, 1), SoftmaxStudy("sampled", SAMPLED_UPDATE_RATIO * updates, 1)]
    outcomes = []
    for outcome in parallel_map(partial(ignore_progress, train_softmax), plans):
        outcomes.append(outcome)
        yield _softmax_line(outcome)
    yield describe_softmax(outcomes)
    pairs, left_out = _draw_pairs(request.data, request.samples or NUM_SENTENCES)
    jobs = [BatchingJob(pairs, scheme, padding) for padding in PADDING_MODES for scheme in BATCHING_SCHEMES]
    compared = compare_batching(list(parallel_map(partial(ignore_progress, measure_batching), jobs)))
    yield from map(_batching_line, compared)
    write_json(request.out / "report.json", _report_json(outcomes, compared, (len(pairs), left_out)))
    report = Report(
        title=TITLE, introduction=INTRODUCTION, parts=list(_report_parts(outcomes, compared, (len(pairs), left_out)))
    )
    write_report(request.out / "report.html", report)
    yield f"report: {request.out / 'report.html'}"


def compare_batching(measured: Sequence[BatchingMeasurement]) -> list[BatchingComparison]:
    """Compare each scheme with the first one under the same padding."""
    compared = []
    for own in measured:
        first = next(each for each in measured if each.padding == own.padding)
        off = float(np.max(np.abs(own.losses - first.losses) / first.losses))
        length = float(np.linalg.norm(first.gradient))
        gradient_off = float(np.linalg.norm(own.gradient - first.gradient)) / length
        compared.append(BatchingComparison(own, float(own.losses.mean()), off, gradient_off))
    return compared


def describe_softmax(outcomes: Sequence[SoftmaxResult]) -> str:
    """Describe the savings and the costs of sampling."""
    full, fewer = outcomes
    budget = full.curve[-1]
    same = next(point for point in fewer.curve if point.updates >= budget.updates)
    in_time = [point for point in fewer.curve if point.seconds <= budget.seconds][-1]
    return (
        f"An update by {NUM_SAMPLED} sampled words takes {1000 * fewer.update_seconds:.0f} ms, by all "
        f"{VOCABULARY_SIZE:,} {1000 * full.update_seconds:.0f} ms (the loss alone {1000 * fewer.cost_seconds:.1f} and "
        f"{1000 * full.cost_seconds:.0f} ms; the rest is the network, and Adam over all parameters). After "
        f"{budget.updates} updates the loss of held-out words, by all words, is {budget.loss:.3f} with the full "
        f"softmax and {same.loss:.3f} with the sampled one; in the time of the full one, {budget.seconds:.0f} s, the "
        f"sampled one makes {in_time.updates} updates and comes to {in_time.loss:.3f}."
    )


def _draw_pairs(data: Path, count: int) -> tuple[list[tuple[str, str]], int]:
    """Draw sentences that fit the largest bucket; return them and the number of rejected ones."""
    drawn = random.Random(1).sample(list(read_tatoeba(data, 0).train), count)
    pairs = [(pair.source, pair.target) for pair in drawn]
    held = [pair for pair in pairs if find_bucket(len(tokenize(pair[0])), len(tokenize(pair[1])) + 2) is not None]
    return held, len(pairs) - len(held)


def _softmax_line(outcome: SoftmaxResult) -> str:
    """Return the line of a training."""
    last = outcome.curve[-1]
    return (
        f"{outcome.plan.cost} softmax: loss {last.loss:.3f} after {last.updates} updates in {last.seconds:.0f} s, "
        f"{1000 * outcome.update_seconds:.0f} ms an update, {1000 * outcome.cost_seconds:.1f} ms of it for the loss"
    )


def _batching_line(each: BatchingComparison) -> str:
    """Return the line of a batching scheme."""
    own = each.measured
    return (
        f"{SCHEME_NAMES[own.scheme]}, padding {own.padding}: {100 * own.source_padding:.1f} % and "
        f"{100 * own.target_padding:.1f} % padding, {own.seconds:.1f} s a pass, {each.loss:.4f} a sentence, losses off "
        f"by up to {each.off:.1e}, gradient by {each.gradient_off:.1e}"
    )


def _report_parts(
    outcomes: Sequence[SoftmaxResult], compared: Sequence[BatchingComparison], pairs: tuple[int, int]
) -> Iterator[ReportPart]:
    """Yield figures, tables and conclusions."""
    title = "Sampled softmax"
    caption = "Validation loss by the full softmax over seconds of training: full softmax, and 512 sampled words."
    yield ReportFigure(title, caption, to_svg(sampled_figure(outcomes)))
    yield ReportText(title, describe_softmax(outcomes))
    rows = [
        [
            each.plan.cost,
            f"{each.curve[-1].updates:,}",
            f"{each.curve[-1].seconds:.0f}",
            f"{1000 * each.update_seconds:.1f}",
            f"{1000 * each.cost_seconds:.1f}",
            f"{each.curve[0].loss:.3f}",
            f"{each.curve[-1].loss:.3f}",
        ]
        for each in outcomes
    ]
    heads = ["softmax", "updates", "seconds", "ms an update", "ms of it the loss", "loss at first", "at last"]
    yield ReportTable(title, "Medians on one thread.", heads, rows)
    title, (held, left_out) = "Buckets, like lengths, masking", pairs
    caption = (
        f"One pass over {held:,} sentences, buckets {', '.join(f'{s}×{t}' for s, t in BUCKETS)}; {left_out} drawn "
        "sentences fit in none. Off: maximum relative difference of a sentence's loss, and relative difference of the "
        "gradient, from the first row with the same padding."
    )
    heads = ["batches", "padding is", "source padding", "target padding", "batches of 64 or less", "seconds"]
    yield ReportTable(
        title, caption, [*heads, "loss a sentence", "losses off by", "gradient off by"], list(_batching_rows(compared))
    )
    yield ReportText(title, BATCHING_CONCLUSION)


BATCHING_CONCLUSION = """\
With masked padding the batching scheme changes the time only: loss and gradient are equal up to rounding, so buckets,
similar lengths and full padding are the same model. With attended padding, as in the post, the result for a sentence
depends on the width of its batch: buckets leave less padding to attend, masking none. Batches of similar lengths need
no predefined sizes; Pellucid masks padding and batches in this way."""


def _batching_rows(compared: Sequence[BatchingComparison]) -> Iterator[list[str]]:
    """Yield the table rows of the batching schemes."""
    for each in compared:
        own = each.measured
        yield [
            SCHEME_NAMES[own.scheme],
            own.padding,
            f"{100 * own.source_padding:.1f} %",
            f"{100 * own.target_padding:.1f} %",
            str(own.batches),
            f"{own.seconds:.1f}",
            f"{each.loss:.4f}",
            f"{each.off:.1e}",
            f"{each.gradient_off:.1e}",
        ]


def sampled_figure(outcomes: Sequence[SoftmaxResult]) -> Figure:
    """Draw validation loss over seconds of training."""
    figure = empty_figure(7.2, 3.6)
    axes = figure.add_subplot()
    for outcome, color in zip(outcomes, (MUTED, ACCENT), strict=True):
        seconds, losses = [point.seconds for point in outcome.curve], [point.loss for point in outcome.curve]
        axes.plot(seconds, losses, "o-", color=color, markersize=3, linewidth=1.6, label=f"{outcome.plan.cost} softmax")
    style_axes(axes)
    axes.set_ylabel("loss per word, full softmax", color=MUTED)
    axes.set_xlabel("seconds of training", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _report_json(
    outcomes: Sequence[SoftmaxResult], compared: Sequence[BatchingComparison], pairs: tuple[int, int]
) -> dict[str, Any]:
    """Return report.json."""
    return {
        "name": NAME,
        "sampled_softmax": [
            {
                **outcome.plan._asdict(),
                "update_seconds": outcome.update_seconds,
                "loss_seconds": outcome.cost_seconds,
                "curve": [point._asdict() for point in outcome.curve],
            }
            for outcome in outcomes
        ],
        "sentences": pairs[0],
        "left_out": pairs[1],
        "batching": [
            {
                **{"scheme": own.scheme, "padding": own.padding, "batches": own.batches, "seconds": own.seconds},
                **{"source_padding": own.source_padding, "target_padding": own.target_padding},
                **{"loss": each.loss, "losses_off": each.off, "gradient_off": each.gradient_off},
            }
            for each in compared
            for own in (each.measured,)
        ],
    }
