"""Training of the networks of 2016, 100 epochs of four updates, and their translations.

B batch, T target positions, V Spanish words.
"""

import time
from typing import Literal, NamedTuple

import numpy as np
import torch
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
from pellucid.shapes import Float, Int

EPOCHS, BATCH_SIZE, LEARNING_RATE, DECAY, MAX_GRADIENT_NORM = 100, 4, 1e-3, 0.99, 5.0
TOP_WORDS = 5
"""Most probable words stored for each step."""
DecoderInputs = Literal["targets", "previous", "previous-updating"]
"""Decoder inputs in training: teacher forcing, or the predicted word of the step before.

"previous" stops the gradient at the embedding of the predicted word, "previous-updating" does not
(`update_embedding_for_previous`).
"""


TRANSLATED_SENTENCES = (PAIRS[1][0], PAIRS[TRAINING_PAIRS][0], UNTRANSLATED)
"""Sentences to translate: from the training set, from the validation set, from neither."""


class SpanishExperiment(NamedTuple):
    """Architecture, decoder inputs, seed and length of a training."""

    name: str
    architecture: SpanishArchitecture
    decoder_inputs: DecoderInputs = "targets"
    seed: int = 1
    epochs: int = EPOCHS


class EpochLosses(NamedTuple):
    """Losses per sentence, in nats: mean training loss of an epoch, and validation loss after it."""

    training: float
    """With dropout, while the parameters change."""
    validation: float
    """With teacher forcing and without dropout."""


class SpanishAccuracy(NamedTuple):
    """Word accuracy with teacher forcing, and word and sentence accuracy free-running, as fractions."""

    teacher_forcing: float
    free_running: float
    sentences: float
    """Free-running sentence accuracy."""


class SpanishResult(NamedTuple):
    """Result of a training."""

    name: str
    seed: int
    parameters: int
    """Number of parameters."""
    seconds: float
    """CPU time, including validation."""
    curve: list[EpochLosses]
    """Losses of each epoch."""
    training: SpanishAccuracy
    """Accuracy on the training sentences after the last epoch."""
    validation: SpanishAccuracy
    """Accuracy on the validation sentences after the last epoch."""
    attention_on_padding: float | None
    """Fraction of the attention that is on padding, over the training sentences; None without attention."""
    traces: list[Trace]
    """Translations of `TRANSLATED_SENTENCES`."""

    @property
    def best_epoch(self) -> int:
        """Return the first epoch with the lowest validation loss, from 1."""
        losses = [point.validation for point in self.curve]
        return losses.index(min(losses)) + 1


class SentenceBatch(NamedTuple):
    """`SentenceIds` as tensors."""

    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]


def run_experiment(experiment: SpanishExperiment) -> SpanishResult:
    """Train and evaluate a network on one thread; runs in a worker process.

    Args:
        experiment: Architecture, decoder inputs, seed and number of epochs.

    Returns:
        Loss curve, accuracies and translations.
    """
    return train_network(experiment)[1]


def train_network(experiment: SpanishExperiment) -> tuple[SpanishNetwork, SpanishResult]:
    """Train and evaluate as `run_experiment` does, and return the trained network, too.

    The process then computes with one thread; PyTorch's generator is seeded.

    Args:
        experiment: Architecture, decoder inputs, seed and number of epochs.

    Returns:
        The trained network and the result of the training.
    """
    use_threads(1)
    torch.manual_seed(experiment.seed)
    corpus = build_corpus(PAIRS)
    network = build_network(experiment.architecture, corpus)
    training = to_tensors(corpus.data.rows(0, TRAINING_PAIRS))
    validation = to_tensors(corpus.data.rows(TRAINING_PAIRS, len(PAIRS)))
    optimizer = LasagneAdam(list(network.parameters()), LEARNING_RATE)
    curve, started = [], time.process_time()
    for epoch in range(experiment.epochs):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * DECAY**epoch
        losses = [
            training_step(
                network, optimizer, slice_rows(training, first, first + BATCH_SIZE), experiment.decoder_inputs
            )
            for first in range(0, len(training.source), BATCH_SIZE)
        ]
        curve.append(EpochLosses(sum(losses) / len(losses), validation_loss(network, validation)))
    seconds = time.process_time() - started
    return network, SpanishResult(
        name=experiment.name,
        seed=experiment.seed,
        parameters=parameter_count(network),
        seconds=seconds,
        curve=curve,
        training=measure_accuracy(network, training),
        validation=measure_accuracy(network, validation),
        attention_on_padding=attention_on_padding(network, training) if network.attention is not None else None,
        traces=[translate(network, corpus, sentence) for sentence in TRANSLATED_SENTENCES],
    )


def build_network(architecture: SpanishArchitecture, corpus: SentenceCorpus) -> SpanishNetwork:
    """Return a new network for the vocabularies of a corpus; its parameters are drawn from PyTorch's generator.

    Args:
        architecture: The architecture.
        corpus: Corpus with both vocabularies.
    """
    return SpanishNetwork(architecture, len(corpus.source_vocabulary.words), len(corpus.target_vocabulary.words))


def to_tensors(data: SentenceIds) -> SentenceBatch:
    """Return ids as tensors.

    Args:
        data: Word ids as arrays.
    """
    return SentenceBatch(*map(torch.from_numpy, data))


def slice_rows(batch: SentenceBatch, first: int, stop: int) -> SentenceBatch:
    """Return a range of the pairs.

    Args:
        batch: The pairs.
        first: Index of the first pair.
        stop: Index after the last pair.
    """
    return SentenceBatch(*(column[first:stop] for column in batch))


def training_step(
    network: SpanishNetwork, optimizer: LasagneAdam, batch: SentenceBatch, decoder_inputs: DecoderInputs
) -> float:
    """Make one update, with dropout and clipped gradients; the network is in training mode afterwards.

    Args:
        network: The network; its parameters change.
        optimizer: Its optimizer.
        batch: Sentence pairs.
        decoder_inputs: Decoder inputs in training.

    Returns:
        Loss of the batch before the update (`sentence_loss`).
    """
    network.train()
    for parameter in network.parameters():
        parameter.grad = None
    loss = sentence_loss(network.softmax(decode_batch(network, batch, decoder_inputs).outputs), batch.targets)
    torch.autograd.backward(loss)
    clip_global_norm(network)
    optimizer.step()
    return loss.item()


def decode_batch(network: SpanishNetwork, batch: SentenceBatch, decoder_inputs: DecoderInputs) -> SpanishOutput:
    """Return the decoder outputs of a batch, before the softmax layer.

    Args:
        network: The network.
        batch: Sentence pairs.
        decoder_inputs: Decoder inputs: the targets (teacher forcing) or the predicted words.
    """
    encoded = network.encode(batch.source, batch.lengths)
    if decoder_inputs == "targets":
        output: SpanishOutput = network(encoded, batch.inputs)
        return output
    return network.feed_previous(encoded, batch.inputs.shape[1], decoder_inputs == "previous-updating")


def sentence_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return (1 / B) Σ_b Σ_t −log p(target) without padding: the mean over sentences of sums over words.

    Args:
        logits: Logits of the target words.
        targets: Target word ids, padded with _PAD (0).
    """
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * targets.flatten().sign()).sum() / len(targets)


def clip_global_norm(network: nn.Module) -> None:
    """Scale all gradients in place by 5 / max(‖g‖, 5), where ‖g‖ is their norm together (`clip_by_global_norm`).

    Args:
        network: The network; its gradients change.
    """
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    total_norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    for gradient in gradients:
        gradient.mul_(MAX_GRADIENT_NORM / total_norm.clamp(min=MAX_GRADIENT_NORM))


@torch.no_grad()
def validation_loss(network: SpanishNetwork, data: SentenceBatch) -> float:
    """Return the loss per sentence with teacher forcing, without dropout; the network is in evaluation mode afterwards.

    Args:
        network: The network.
        data: Sentence pairs.
    """
    network.eval()
    return float(sentence_loss(network.softmax(decode_batch(network, data, "targets").outputs), data.targets))


@torch.no_grad()
def measure_accuracy(network: SpanishNetwork, data: SentenceBatch) -> SpanishAccuracy:
    """Return word accuracy with teacher forcing, and word and sentence accuracy free-running; padding is excluded.

    The network is in evaluation mode afterwards.

    Args:
        network: The network.
        data: Sentence pairs.
    """
    network.eval()
    mask = data.targets != PAD
    teacher_forcing, free_running = (
        (network.softmax(decode_batch(network, data, decoder_inputs).outputs).argmax(dim=2) == data.targets)
        for decoder_inputs in ("targets", "previous")
    )
    sentences = (free_running | ~mask).all(dim=1)
    return SpanishAccuracy(
        teacher_forcing=float(teacher_forcing[mask].float().mean()),
        free_running=float(free_running[mask].float().mean()),
        sentences=float(sentences.float().mean()),
    )


@torch.no_grad()
def translate(network: SpanishNetwork, corpus: SentenceCorpus, sentence: str) -> Trace:
    """Translate a sentence greedily with a batch of one, and with padding and steps of the corpus, as the author's
    script.

    Decoding does not stop at the end symbol; the trace holds the words up to the first _EOS. Attention covers padding.

    Args:
        network: The network.
        corpus: Corpus with both vocabularies and the lengths.
        sentence: English sentence.

    Returns:
        The translation with its attention weights (the mean over heads; zeros without attention). The network is in
        evaluation mode afterwards.
    """
    network.eval()
    tokens = tokenize(sentence)
    ids, width = corpus.source_vocabulary.ids(tokens), corpus.data.source.shape[1]
    encoded = network.encode(torch.tensor([[*ids, *[PAD] * (width - len(ids))]]), torch.tensor([len(ids)]))
    output = network.feed_previous(encoded, corpus.data.inputs.shape[1], update_embedding_for_previous=False)
    top = network.softmax(output.outputs[0]).log_softmax(dim=1).topk(TOP_WORDS)
    vocabulary = corpus.target_vocabulary.words
    words = [vocabulary[word] for word in top.indices[:, 0].tolist()]
    finished = SPECIAL[EOS] in words
    stop = words.index(SPECIAL[EOS]) if finished else len(words)
    steps = stop + finished
    weights = output.weights[0].sum(dim=1) / max(output.weights.shape[2], 1)  # mean over heads; zero without attention
    return Trace(
        text=sentence,
        source=(*tokens, *[SPECIAL[PAD]] * (width - len(ids))),
        num_features=0,
        unknown=tuple(index for index, word in enumerate(ids) if word == UNK),
        target=(*words[:stop], *([END] * finished)),
        output=" ".join(words[:stop]),
        finished=finished,
        log_probabilities=top.values[:steps, 0].numpy(),
        attention=weights[:steps].numpy() if output.weights.shape[2] else np.zeros((steps, width), np.float32),
        top_symbols=tuple(tuple(vocabulary[word] for word in row) for row in top.indices[:steps].tolist()),
        top_log_probabilities=top.values[:steps].numpy(),
    )


@torch.no_grad()
def attention_on_padding(network: SpanishNetwork, data: SentenceBatch) -> float:
    """Return the mean fraction of the attention that is on padding, over all target words, with teacher forcing.

    The network is in evaluation mode afterwards.

    Args:
        network: Network with attention.
        data: Sentence pairs.
    """
    network.eval()
    weights = decode_batch(network, data, "targets").weights.mean(dim=2)
    is_padding = torch.arange(weights.shape[2]) >= data.lengths[:, None]
    return float((weights * is_padding[:, None]).sum(dim=2)[data.targets != PAD].mean())


class TensorShape(NamedTuple):
    """Name, symbolic dimensions and sizes of a tensor."""

    name: str
    symbolic: str
    """Dimensions in the post, as symbols."""
    sizes: tuple[int, ...]


@torch.no_grad()
def tensor_shapes(network: SpanishNetwork, batch: SentenceBatch) -> list[TensorShape]:
    """Return the shapes of all tensors from the inputs to the loss, as the post lists them.

    N sentences, H units, C Spanish words; max_len is S for the source and T for the target.

    Args:
        network: Network with attention.
        batch: Sentence pairs.
    """
    assert network.attention is not None, "a decoder without attention has no attention tensors"
    encoded = network.encode(batch.source, batch.lengths)
    state, features = network.init_decoder(encoded)
    assert features is not None
    embedded = network.target_embedding[batch.inputs[:, 0]]
    step = network.step(embedded, state, features)
    head_outputs, attention = step.new_state.head_outputs, network.attention
    query = attention.queries[0](step.new_state.state)
    output = network(encoded, batch.inputs)
    logits = network.softmax(output.outputs).flatten(0, 1)
    states_4d = encoded.outputs[:, :, None]
    tensors: list[tuple[str, str, Tensor]] = [
        ("encoder inputs", "N, max_len", batch.source),
        ("lengths", "N", batch.lengths),
        ("encoder inputs, embedded", "N, max_len, H", network.source_embedding[batch.source]),
        ("encoder outputs = attention states", "N, max_len, H", encoded.outputs),
        ("encoder state = first decoder state", "N, H", encoded.state),
        ("decoder inputs", "N, max_len", batch.inputs),
        ("decoder inputs, time-major, one of a list of max_len", "N", batch.inputs[:, 0]),
        ("one decoder input, embedded", "N, H", embedded),
        ("attention states in four dimensions", "N, max_len, 1, H", states_4d),
        ("filter of the 1×1 convolution", "1, 1, H, H", attention.projections[0][None, None]),
        ("features (the post: N, height', 3, H)", "N, max_len, 1, H", features.keys[0][:, :, None]),
        ("context before the first step, of each head", "N, H", state.head_outputs.contexts[:, 0]),
        ("input and context merged", "N, H", step.merged),
        ("cell output", "N, H", step.cell_output),
        ("new state", "N, H", step.new_state.state),
        ("query after its MLP", "N, H", query),
        ("query in four dimensions", "N, 1, 1, H", query[:, None, None]),
        ("scores e", "N, max_len", attention.compute_scores(step.new_state.state, features)[:, 0]),
        ("weights α", "N, max_len, 1, 1", head_outputs.weights[:, 0, :, None, None]),
        ("context c", "N, H", head_outputs.contexts[:, 0]),
        ("decoder output of one step", "N, H", step.output),
        ("all outputs", "max_len, N, H", output.outputs.transpose(0, 1)),
        ("all outputs, flattened", "N·max_len, H", output.outputs.flatten(0, 1)),
        ("logits", "N·max_len, C", logits),
        ("targets, flattened", "N·max_len", batch.targets.flatten()),
        ("loss", "", sentence_loss(logits.unflatten(0, batch.targets.shape), batch.targets)),
    ]
    return [TensorShape(name, symbolic, tuple(tensor.shape)) for name, symbolic, tensor in tensors]
