"""Three ways to put sentences into batches: all as long as the longest, by TensorFlow's buckets, lengths alike.

N pairs, S source positions, T target positions.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.model.device import use_threads
from pellucid.recipes.spanish.networks import Design, SpanishNetwork
from pellucid.recipes.spanish.sentences import PAD, Corpus, Data, corpus_of
from pellucid.recipes.spanish.training import Tensors, network_for, tensors

BUCKETS = ((5, 10), (10, 15), (20, 25), (40, 50))
"""Source and target sizes, _GO and _EOS counted: those of TensorFlow's tutorial."""
BATCH = 64
Scheme = Literal["longest", "buckets", "alike"]
Padding = Literal["attended", "masked"]
PADDINGS: tuple[Padding, ...] = ("attended", "masked")
SCHEMES: tuple[Scheme, ...] = ("longest", "buckets", "alike")


class Measured(NamedTuple):
    """One way to batch."""

    scheme: Scheme
    padding: Padding
    batches: int
    source_padding: float
    """The share of padding among all source positions."""
    target_padding: float
    seconds: float
    """Of one pass, forwards and backwards, without an update."""
    losses: Float[np.ndarray, " N"]
    """Of each sentence, summed over its words."""
    gradient: Float[np.ndarray, " P"]
    """Of the summed loss of all sentences, by all parameters."""


def bucket_of(source: int, target: int, buckets: Sequence[tuple[int, int]] = BUCKETS) -> int | None:
    """The first bucket that holds a pair; None where none does."""
    fitting = (at for at, (S, T) in enumerate(buckets) if source <= S and target <= T)
    return next(fitting, None)


def batches_of(data: Data, scheme: Scheme) -> Iterator[tuple[Int[np.ndarray, " B"], tuple[int, int]]]:
    """The rows of each batch, and how wide its source and its target are.

    The model of every bucket has the same parameters (model_with_buckets): here, one network at several widths.
    """
    lengths, sizes = data.lengths, (data.given != PAD).sum(axis=1)
    if scheme == "longest":
        groups, wide = [np.arange(len(lengths))], [(int(lengths.max()), int(sizes.max()))]
    elif scheme == "buckets":
        own = np.array([bucket_of(int(s), int(t)) for s, t in zip(lengths, sizes, strict=True)])
        groups, wide = [np.flatnonzero(own == at) for at in range(len(BUCKETS))], list(BUCKETS)
    else:
        order = np.lexsort((lengths, sizes))
        groups = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
        wide = [(int(lengths[rows].max()), int(sizes[rows].max())) for rows in groups]
    for rows, widths in zip(groups, wide, strict=True):
        for first in range(0, len(rows), BATCH):
            yield rows[first : first + BATCH], widths


def cut(data: Data, rows: Int[np.ndarray, " B"], widths: tuple[int, int]) -> Tensors:
    """Some pairs at some widths."""
    S, T = widths
    some = Data(data.source[rows, :S], data.lengths[rows], data.given[rows, :T], data.targets[rows, :T])
    return tensors(Data(*(_widened(each, width) for each, width in zip(some, (S, 0, T, T), strict=True))))


def _widened(column: np.ndarray, width: int) -> np.ndarray:
    """Padding behind what is narrower than its bucket."""
    if column.ndim == 1 or column.shape[1] >= width:
        return column
    return np.pad(column, ((0, 0), (0, width - column.shape[1])), constant_values=PAD)


def sentence_costs(network: SpanishNetwork, batch: Tensors) -> Float[Tensor, " B"]:
    """Σ_t w_t · −ln p(target_t) of each sentence; the target weight w is 0 on padding, else 1."""
    logits = network.softmax(network(network.encode(batch.source, batch.lengths), batch.given).outputs)
    each = nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
    costs: Float[Tensor, " B"] = (each * batch.targets.flatten().sign()).view(batch.targets.shape).sum(dim=1)
    return costs


def sequence_loss(costs: Float[Tensor, " B"], words: Int[Tensor, " B"]) -> Float[Tensor, ""]:
    """(1 / B) Σ_b cost_b / (words_b + 10⁻¹²): TensorFlow's sequence_loss, a mean of means over words."""
    return (costs / (words + 1e-12)).mean()


class Job(NamedTuple):
    """One measurement, for a process of its own."""

    pairs: Sequence[tuple[str, str]]
    scheme: Scheme
    padding: Padding
    hidden: int = 128


def measure(job: Job) -> Measured:
    """One pass with a new network, always the same one, without dropout; on one thread."""
    use_threads(1)
    corpus: Corpus = corpus_of(job.pairs)
    torch.manual_seed(1)
    network = network_for(Design(hidden=job.hidden, embedding=job.hidden, padding=job.padding), corpus).eval()
    losses, batches, positions, padding = np.zeros(len(job.pairs)), 0, np.zeros(2), np.zeros(2)
    started = time.process_time()
    for rows, widths in batches_of(corpus.data, job.scheme):
        batch = cut(corpus.data, rows, widths)
        costs = sentence_costs(network, batch)
        torch.autograd.backward(costs.sum())
        losses[rows] = costs.detach().numpy()
        batches += 1
        for side, column in enumerate((batch.source, batch.targets)):
            positions[side] += column.numel()
            padding[side] += int((column == PAD).sum())
    seconds = time.process_time() - started
    gradient = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]).numpy()
    source, target = (padding / positions).tolist()
    return Measured(job.scheme, job.padding, batches, source, target, seconds, losses, gradient)
