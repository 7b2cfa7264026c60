"""How the networks of 2016 were trained: 100 epochs of four updates; and what they write.

B batch, T target positions, V Spanish words.
"""

import time
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.model.network import parameter_count
from pellucid.model.threads import use_threads
from pellucid.recipes.digits.study import LasagneAdam
from pellucid.recipes.spanish.networks import Design, SpanishNetwork, Written
from pellucid.recipes.spanish.sentences import PAD, PAIRS, TRAINED, Corpus, Data, corpus_of

EPOCHS, BATCH, RATE, DECAY, LONGEST_GRADIENT = 100, 4, 1e-3, 0.99, 5.0
Feeding = Literal["given", "previous", "previous-updating"]
"""What a step of training is given: the right word; or the likeliest word of the step before, embedded without a
gradient (`update_embedding_for_previous` False), or with one."""


class Study(NamedTuple):
    """One training."""

    name: str
    design: Design
    feeding: Feeding = "given"
    seed: int = 1
    epochs: int = EPOCHS


class Point(NamedTuple):
    """One epoch: the mean loss of its batches in training, and the validation loss after it."""

    training: float
    validation: float


class Fit(NamedTuple):
    """A network on some pairs: the share of its words that are right with the right word given, and free-running."""

    given: float
    alone: float
    sentences: float
    """The share of the sentences that are right to the end, free-running."""


class Outcome(NamedTuple):
    """What came of one training."""

    name: str
    seed: int
    parameters: int
    seconds: float
    curve: list[Point]
    training: Fit
    validation: Fit

    @property
    def best(self) -> int:
        """The epoch after which the validation loss was least, from 1."""
        losses = [point.validation for point in self.curve]
        return losses.index(min(losses)) + 1


class Tensors(NamedTuple):
    """`Data` as tensors."""

    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    given: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]


def conduct(study: Study) -> Outcome:
    """Train and judge, on one thread."""
    return conduct_and_keep(study)[1]


def conduct_and_keep(study: Study) -> tuple[SpanishNetwork, Outcome]:
    """As `conduct`, with the trained network."""
    use_threads(1)
    torch.manual_seed(study.seed)
    corpus = corpus_of(PAIRS)
    network = network_for(study.design, corpus)
    training, validation = tensors(corpus.data.rows(0, TRAINED)), tensors(corpus.data.rows(TRAINED, len(PAIRS)))
    optimizer = LasagneAdam(list(network.parameters()), RATE)
    curve, started = [], time.perf_counter()
    for epoch in range(study.epochs):
        optimizer.param_groups[0]["lr"] = RATE * DECAY**epoch
        losses = [
            update(network, optimizer, rows(training, first, first + BATCH), study.feeding)
            for first in range(0, len(training.source), BATCH)
        ]
        curve.append(Point(sum(losses) / len(losses), validation_loss(network, validation)))
    seconds = time.perf_counter() - started
    fits = fit_of(network, training), fit_of(network, validation)
    return network, Outcome(study.name, study.seed, parameter_count(network), seconds, curve, *fits)


def network_for(design: Design, corpus: Corpus) -> SpanishNetwork:
    """A network for the words of a corpus."""
    return SpanishNetwork(design, len(corpus.english.words), len(corpus.spanish.words))


def tensors(data: Data) -> Tensors:
    """Ids as tensors."""
    return Tensors(*map(torch.from_numpy, data))


def rows(all_of_them: Tensors, first: int, stop: int) -> Tensors:
    """Some of the pairs."""
    return Tensors(*(column[first:stop] for column in all_of_them))


def update(network: SpanishNetwork, optimizer: LasagneAdam, batch: Tensors, feeding: Feeding) -> float:
    """One update by one batch; its loss."""
    network.train()
    for parameter in network.parameters():
        parameter.grad = None
    cost = summed_cost(network.softmax(write(network, batch, feeding).outputs), batch.targets)
    torch.autograd.backward(cost)
    clip_together(network)
    optimizer.step()
    return cost.item()


def write(network: SpanishNetwork, batch: Tensors, feeding: Feeding) -> Written:
    """What the decoder writes for a batch."""
    encoded = network.encode(batch.source, batch.lengths)
    if feeding == "given":
        written: Written = network(encoded, batch.given)
        return written
    return network.feed_previous(encoded, batch.given.shape[1], feeding == "previous-updating")


def summed_cost(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """(1 / B) Σ_b Σ_t −ln p(target), padding left out: the mean over sentences of sums over their words.

    The logits are flattened to B·T rows, the targets to B·T numbers.
    """
    each = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (each * targets.flatten().sign()).sum() / len(targets)


def clip_together(network: nn.Module) -> None:
    """All gradients by 5 / max(‖g‖, 5): TensorFlow's clip_by_global_norm."""
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    length = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    for gradient in gradients:
        gradient.mul_(LONGEST_GRADIENT / length.clamp(min=LONGEST_GRADIENT))


@torch.no_grad()
def validation_loss(network: SpanishNetwork, data: Tensors) -> float:
    """The loss with the right words given, without dropout."""
    network.eval()
    return float(summed_cost(network.softmax(write(network, data, "given").outputs), data.targets))


@torch.no_grad()
def fit_of(network: SpanishNetwork, data: Tensors) -> Fit:
    """How many words are right, with the right words given and free-running; padding is not counted."""
    network.eval()
    counted = data.targets != PAD
    given, alone = (
        (network.softmax(write(network, data, feeding).outputs).argmax(dim=2) == data.targets)
        for feeding in ("given", "previous")
    )
    whole = (alone | ~counted).all(dim=1)
    return Fit(float(given[counted].float().mean()), float(alone[counted].float().mean()), float(whole.float().mean()))


class Translation(NamedTuple):
    """The words of all steps, which no end stops, and the weights of the looks."""

    words: list[str]
    weights: Float[Tensor, "T M S"]

    @property
    def text(self) -> str:
        """The words before the first _EOS."""
        stop = self.words.index("_EOS") if "_EOS" in self.words else len(self.words)
        return " ".join(self.words[:stop])


@torch.no_grad()
def translate(network: SpanishNetwork, corpus: Corpus, tokens: list[str]) -> Translation:
    """A sentence as the author's script has it: batch of one, padded as the data, as many steps, the likeliest word."""
    network.eval()
    width, steps = corpus.data.source.shape[1], corpus.data.given.shape[1]
    ids = corpus.english.ids(tokens)
    source = torch.tensor([[*ids, *[PAD] * (width - len(ids))]])
    encoded = network.encode(source, torch.tensor([len(ids)]))
    written = network.feed_previous(encoded, steps, update_embedding_for_previous=False)
    likeliest = network.softmax(written.outputs).argmax(dim=2)[0].tolist()
    return Translation([corpus.spanish.words[word] for word in likeliest], written.weights[0])
