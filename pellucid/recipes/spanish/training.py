"""Training of the networks of 2016, 100 epochs of four updates, and their translations.

B batch, T target positions, V Spanish words.
"""

import time
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.decoding.trace import END, Trace
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.training import LasagneAdam
from pellucid.recipes.spanish.networks import SpanishArchitecture, SpanishNetwork, SpanishOutput
from pellucid.recipes.spanish.sentences import (
    EOS,
    PAD,
    PAIRS,
    SPECIAL,
    TRAINING_PAIRS,
    UNK,
    UNTRANSLATED,
    SentenceCorpus,
    SentenceIds,
    build_corpus,
    tokenize,
)

EPOCHS, BATCH, RATE, DECAY, MAX_GRADIENT_NORM = 100, 4, 1e-3, 0.99, 5.0
TOP_WORDS = 5
"""Most probable words stored for each step."""
DecoderInputs = Literal["given", "previous", "previous-updating"]
"""Decoder inputs in training: teacher forcing, or the predicted word of the step before.

"previous" stops the gradient at the embedding of the predicted word, "previous-updating" does not
(`update_embedding_for_previous`).
"""


TRANSLATED_SENTENCES = (PAIRS[1][0], PAIRS[TRAINING_PAIRS][0], UNTRANSLATED)
"""Sentences to translate: from the training set, from the validation set, from neither."""


class SpanishStudy(NamedTuple):
    """Architecture, decoder inputs, seed and length of a training."""

    name: str
    design: SpanishArchitecture
    decoder_inputs: DecoderInputs = "given"
    seed: int = 1
    epochs: int = EPOCHS


class EpochLosses(NamedTuple):
    """Mean training loss of an epoch and validation loss after it."""

    training: float
    validation: float


class SpanishAccuracy(NamedTuple):
    """Word accuracy with teacher forcing and free-running."""

    teacher_forcing: float
    free_running: float
    sentences: float
    """Free-running sentence accuracy."""


class SpanishResult(NamedTuple):
    """Result of a training."""

    name: str
    seed: int
    parameters: int
    seconds: float
    """CPU time, including validation."""
    curve: list[EpochLosses]
    training: SpanishAccuracy
    validation: SpanishAccuracy
    padding: float | None
    """Share of attention on padding over the training sentences; None without attention."""
    traces: list[Trace]
    """Translations of `TRANSLATED_SENTENCES`."""

    @property
    def best(self) -> int:
        """Return the epoch with the lowest validation loss, from 1."""
        losses = [point.validation for point in self.curve]
        return losses.index(min(losses)) + 1


class SentenceBatch(NamedTuple):
    """`SentenceIds` as tensors."""

    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    given: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]


def run_study(study: SpanishStudy) -> SpanishResult:
    """Train and evaluate on one thread."""
    return train_network(study)[1]


def train_network(study: SpanishStudy) -> tuple[SpanishNetwork, SpanishResult]:
    """Do the same as `run_study` and return the trained network, too."""
    use_threads(1)
    torch.manual_seed(study.seed)
    corpus = build_corpus(PAIRS)
    network = build_network(study.design, corpus)
    training, validation = (
        to_tensors(corpus.data.rows(0, TRAINING_PAIRS)),
        to_tensors(corpus.data.rows(TRAINING_PAIRS, len(PAIRS))),
    )
    optimizer = LasagneAdam(list(network.parameters()), RATE)
    curve, started = [], time.process_time()
    for epoch in range(study.epochs):
        optimizer.param_groups[0]["lr"] = RATE * DECAY**epoch
        losses = [
            training_step(network, optimizer, slice_rows(training, first, first + BATCH), study.decoder_inputs)
            for first in range(0, len(training.source), BATCH)
        ]
        curve.append(EpochLosses(sum(losses) / len(losses), validation_loss(network, validation)))
    seconds = time.process_time() - started
    fits = measure_accuracy(network, training), measure_accuracy(network, validation)
    padding = weight_on_padding(network, training) if network.attention is not None else None
    traces = [translate(network, corpus, sentence) for sentence in TRANSLATED_SENTENCES]
    who = (study.name, study.seed, parameter_count(network))
    return network, SpanishResult(*who, seconds, curve, *fits, padding, traces)


def build_network(design: SpanishArchitecture, corpus: SentenceCorpus) -> SpanishNetwork:
    """Return a network for the vocabularies of a corpus."""
    return SpanishNetwork(design, len(corpus.english.words), len(corpus.spanish.words))


def to_tensors(data: SentenceIds) -> SentenceBatch:
    """Return ids as tensors."""
    return SentenceBatch(*map(torch.from_numpy, data))


def slice_rows(all_of_them: SentenceBatch, first: int, stop: int) -> SentenceBatch:
    """Return some of the pairs."""
    return SentenceBatch(*(column[first:stop] for column in all_of_them))


def training_step(
    network: SpanishNetwork, optimizer: LasagneAdam, batch: SentenceBatch, feeding: DecoderInputs
) -> float:
    """Make one update; return its loss."""
    network.train()
    for parameter in network.parameters():
        parameter.grad = None
    cost = sentence_loss(network.softmax(decode_batch(network, batch, feeding).outputs), batch.targets)
    torch.autograd.backward(cost)
    clip_global_norm(network)
    optimizer.step()
    return cost.item()


def decode_batch(network: SpanishNetwork, batch: SentenceBatch, feeding: DecoderInputs) -> SpanishOutput:
    """Return the decoder outputs of a batch."""
    encoded = network.encode(batch.source, batch.lengths)
    if feeding == "given":
        written: SpanishOutput = network(encoded, batch.given)
        return written
    return network.feed_previous(encoded, batch.given.shape[1], feeding == "previous-updating")


def sentence_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return (1 / B) Σ_b Σ_t −log p(target) without padding: the mean over sentences of sums over words."""
    each = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (each * targets.flatten().sign()).sum() / len(targets)


def clip_global_norm(network: nn.Module) -> None:
    """Scale all gradients by 5 / max(‖g‖, 5) (`clip_by_global_norm`)."""
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    length = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    for gradient in gradients:
        gradient.mul_(MAX_GRADIENT_NORM / length.clamp(min=MAX_GRADIENT_NORM))


@torch.no_grad()
def validation_loss(network: SpanishNetwork, data: SentenceBatch) -> float:
    """Return the loss with teacher forcing, without dropout."""
    network.eval()
    return float(sentence_loss(network.softmax(decode_batch(network, data, "given").outputs), data.targets))


@torch.no_grad()
def measure_accuracy(network: SpanishNetwork, data: SentenceBatch) -> SpanishAccuracy:
    """Return word accuracy with teacher forcing and free-running; padding is excluded."""
    network.eval()
    counted = data.targets != PAD
    given, alone = (
        (network.softmax(decode_batch(network, data, feeding).outputs).argmax(dim=2) == data.targets)
        for feeding in ("given", "previous")
    )
    whole = (alone | ~counted).all(dim=1)
    return SpanishAccuracy(
        float(given[counted].float().mean()), float(alone[counted].float().mean()), float(whole.float().mean())
    )


@torch.no_grad()
def translate(network: SpanishNetwork, corpus: SentenceCorpus, sentence: str) -> Trace:
    """Translate a sentence greedily as the author's script does: batch of one, padding and steps of the corpus.

    Decoding does not stop at the end symbol; the trace holds the words up to the first _EOS. Attention covers padding.
    """
    network.eval()
    tokens = tokenize(sentence)
    ids, width = corpus.english.ids(tokens), corpus.data.source.shape[1]
    encoded = network.encode(torch.tensor([[*ids, *[PAD] * (width - len(ids))]]), torch.tensor([len(ids)]))
    written = network.feed_previous(encoded, corpus.data.given.shape[1], update_embedding_for_previous=False)
    top = network.softmax(written.outputs[0]).log_softmax(dim=1).topk(TOP_WORDS)
    words = [corpus.spanish.words[word] for word in top.indices[:, 0].tolist()]
    finished = SPECIAL[EOS] in words
    stop = words.index(SPECIAL[EOS]) if finished else len(words)
    steps = stop + finished
    weights = written.weights[0].sum(dim=1) / max(written.weights.shape[2], 1)  # the mean over heads; zero without
    return Trace(
        text=sentence,
        source=(*tokens, *[SPECIAL[PAD]] * (width - len(ids))),
        features=0,
        unknown=tuple(at for at, each in enumerate(ids) if each == UNK),
        target=(*words[:stop], *([END] * finished)),
        output=" ".join(words[:stop]),
        finished=finished,
        log_probabilities=top.values[:steps, 0].numpy(),
        attention=weights[:steps].numpy() if written.weights.shape[2] else np.zeros((steps, width), np.float32),
        top_symbols=tuple(tuple(corpus.spanish.words[word] for word in row) for row in top.indices[:steps].tolist()),
        top_log_probabilities=top.values[:steps].numpy(),
    )


@torch.no_grad()
def weight_on_padding(network: SpanishNetwork, data: SentenceBatch) -> float:
    """Return the mean share of attention on padding, over all words."""
    network.eval()
    weights = decode_batch(network, data, "given").weights.mean(dim=2)
    beyond = torch.arange(weights.shape[2]) >= data.lengths[:, None]
    return float((weights * beyond[:, None]).sum(dim=2)[data.targets != PAD].mean())


class TensorShape(NamedTuple):
    """Name of a tensor, its dimensions in the post and its sizes here."""

    name: str
    post: str
    sizes: tuple[int, ...]


@torch.no_grad()
def tensor_shapes(network: SpanishNetwork, batch: SentenceBatch) -> list[TensorShape]:
    """Return the shapes of all tensors of a step; the network must have attention.

    N sentences, H units, C Spanish words; max_len is S for the source and T for the target.
    """
    assert network.attention is not None, "the plain decoder has no attention to analyse"
    encoded = network.encode(batch.source, batch.lengths)
    carried, features = network.init_decoder(encoded)
    assert features is not None
    embedded = network.target_embedding[batch.given[:, 0]]
    step = network.step(embedded, carried, features)
    looked, attention = step.carried.head_outputs, network.attention
    query = attention.queries[0](step.carried.state)
    written = network(encoded, batch.given)
    logits = network.softmax(written.outputs).flatten(0, 1)
    four = encoded.outputs[:, :, None]
    listed: list[tuple[str, str, Tensor]] = [
        ("encoder inputs", "N, max_len", batch.source),
        ("lengths", "N", batch.lengths),
        ("encoder inputs, embedded", "N, max_len, H", network.source_embedding[batch.source]),
        ("encoder outputs = attention states", "N, max_len, H", encoded.outputs),
        ("encoder state = first decoder state", "N, H", encoded.state),
        ("decoder inputs", "N, max_len", batch.given),
        ("decoder inputs, time-major, one of a list of max_len", "N", batch.given[:, 0]),
        ("one decoder input, embedded", "N, H", embedded),
        ("attention states in four dimensions", "N, max_len, 1, H", four),
        ("filter of the 1×1 convolution", "1, 1, H, H", attention.projections[0][None, None]),
        ("features (the post: N, height', 3, H)", "N, max_len, 1, H", features.keys[0][:, :, None]),
        ("context before the first step, of each head", "N, H", carried.head_outputs.contexts[:, 0]),
        ("input and context merged", "N, H", step.merged),
        ("cell output", "N, H", step.cell_output),
        ("new state", "N, H", step.carried.state),
        ("query after its MLP", "N, H", query),
        ("query in four dimensions", "N, 1, 1, H", query[:, None, None]),
        ("scores e", "N, max_len", attention.scores(step.carried.state, features)[:, 0]),
        ("weights α", "N, max_len, 1, 1", looked.weights[:, 0, :, None, None]),
        ("context c", "N, H", looked.contexts[:, 0]),
        ("decoder output of one step", "N, H", step.output),
        ("all outputs", "max_len, N, H", written.outputs.transpose(0, 1)),
        ("all outputs, flattened", "N·max_len, H", written.outputs.flatten(0, 1)),
        ("logits", "N·max_len, C", logits),
        ("targets, flattened", "N·max_len", batch.targets.flatten()),
        ("loss", "", sentence_loss(logits.unflatten(0, batch.targets.shape), batch.targets)),
    ]
    return [TensorShape(name, post, tuple(tensor.shape)) for name, post, tensor in listed]
