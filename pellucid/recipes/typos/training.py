"""Network and training of the typo post of 2017.

B batch, N typos, S positions (the length of the longest word), H hidden units, E embedding size (two), V symbols.

The post shows the encoder, the read-out and the decoder. Sizes, output layer and training are chosen here.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.data.synthetic import LETTERS, Typo, WordList, make_typos, read_words, split_words
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.jobs import SampleProgress
from pellucid.shapes import Float, Int
from pellucid.worker_pool import ProgressCallback

SYMBOLS = f"{LETTERS} "
"""Symbols by id; the space is the padding."""
ALPHABET = SYMBOLS[:26]
"""a to z, without hyphen and padding."""
PADDING = SYMBOLS.index(" ")
NUM_LAYERS, EMBEDDING_SIZE = 3, 2


class TypoNetworkSizes(NamedTuple):
    """Sizes of the network, which the blog post does not give."""

    hidden: int = 64
    """Units of each LSTM layer."""
    max_length: int = 16
    """Maximum letters of a word, and number of positions."""


class WrongLetterNetwork(nn.Module):
    """Network of the typo post: LSTM encoder, linear read-out, LSTM decoder of one step.

        h_1 … h_S, s = LSTM³(x_1 … x_S)    z = [h_1; …; h_S] · m + b    o = LSTM³(z; s)    p = softmax(W o + c)

    As in the post, padding is encoded like letters, and s is the state after it. The read-out, called attention, is
    neither a softmax nor dependent on the decoder, and yields a single number. m starts as N(0, 1), b at zero. The
    LSTMs are TensorFlow's `LSTMCell`: no peepholes, forget bias one, kernels uniform by Glorot & Bengio 2010 over all
    gates together. Embeddings have two dimensions and start as N(0, 1). p covers all S positions, including padding.
    """

    def __init__(self, sizes: TypoNetworkSizes) -> None:
        """Build the network and draw its parameters from PyTorch's generator.

        Args:
            sizes: Sizes of the network.
        """
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(len(SYMBOLS), EMBEDDING_SIZE)
        self.encoder = nn.LSTM(EMBEDDING_SIZE, sizes.hidden, NUM_LAYERS, batch_first=True)
        self.decoder = nn.LSTM(1, sizes.hidden, NUM_LAYERS, batch_first=True)
        self.read_out_weight = nn.Parameter(torch.randn(sizes.max_length * sizes.hidden))
        self.read_out_bias = nn.Parameter(torch.zeros(()))
        self.output = nn.Linear(sizes.hidden, sizes.max_length)
        for lstm in (self.encoder, self.decoder):
            _init_tensorflow(lstm)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, words: Int[Tensor, "B S"]) -> Float[Tensor, "B S"]:
        """Return the logit of each position, that its letter is the wrong one.

        Args:
            words: Symbol ids, padded to the maximum length S (`encode_words`).
        """
        states, final = self.encoder(self.embedding(words))
        read_out = states.flatten(1) @ self.read_out_weight + self.read_out_bias
        decoded, _ = self.decoder(read_out[:, None, None], final)
        logits: Tensor = self.output(decoded[:, 0])
        return logits


def _init_tensorflow(lstm: nn.LSTM) -> None:
    """Use one bias per gate, forget bias one; draw input and hidden weights as one kernel."""
    for layer in range(lstm.num_layers):
        input_weight, hidden_weight, input_bias, hidden_bias = (
            getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        bound = (6 / (input_weight.shape[1] + hidden_weight.shape[1] + len(input_weight))) ** 0.5
        nn.init.uniform_(input_weight, -bound, bound)
        nn.init.uniform_(hidden_weight, -bound, bound)
        nn.init.zeros_(input_bias)
        input_bias.data[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0
        nn.init.zeros_(hidden_bias)
        hidden_bias.requires_grad_(False)


POST_WORDS = ("bapk", "downwtairs", "tably", "wtnts", "wresch", "boolcase", "pareztal")
"""Misspelled words of the blog post's figure."""
DEV_WORDS, TEST_WORDS, TYPOS_PER_WORD = 2_000, 8_000, 8
"""Number of validation words and of test words, with one typo each; number of typos of each training word."""
NUM_FRAMES = 180
"""Frames of the animation of the symbol embeddings; the post's animation has the same number."""
EVALUATION_BATCH = 1_000
"""Typos per evaluation batch."""
PositionModel = Callable[[Sequence[str]], Float[np.ndarray, "N S"]]
"""Function from words to the probability of each position."""
_SYMBOL_IDS = {symbol: number for number, symbol in enumerate(SYMBOLS)}


class TypoUpdate(NamedTuple):
    """One update of a training."""

    number: int
    """From 1."""
    total: int
    """Number of updates of the training."""
    loss: float


class TypoData(NamedTuple):
    """Training, validation and test typos of a seed."""

    train: list[Typo]
    """Several typos per word."""
    dev: list[Typo]
    """Validation typos, one per word."""
    test: list[Typo]
    """Test typos, one per word."""


class TypoTrainingPlan(NamedTuple):
    """Hyperparameters of a training."""

    samples: int = 800_000
    """Number of training typos seen, over all epochs."""
    batch_size: int = 32
    learning_rate: float = 0.004
    """Learning rate of Adam, with cosine decay to zero."""
    clip_norm: float = 1.0
    """Maximum norm of all gradients together."""
    num_validations: int = 20
    """Number of validations, at even intervals."""


class TypoExperiment(NamedTuple):
    """Word list, sizes, hyperparameters and seed of a training."""

    words: Path
    sizes: TypoNetworkSizes
    plan: TypoTrainingPlan
    seed: int


class TypoValidation(NamedTuple):
    """Training loss and validation accuracy after a number of training typos."""

    samples: int
    """Training typos seen so far."""
    loss: float
    """Mean training loss since the last validation; in typo-attention the validation loss."""
    accuracy: float
    """Position accuracy on the validation words, as a fraction."""


class TypoPredictions(NamedTuple):
    """Predictions of the wrong position for N typos."""

    probabilities: Float[np.ndarray, "N S"]
    """Probability of each position; also of padding, where a network allows that."""
    ranks: Int[np.ndarray, " N"]
    """Rank of the position of the wrong letter, from 1 (a correct prediction)."""


class TypoFaithfulResult(NamedTuple):
    """Result of a training of typo-faithful."""

    seed: int
    parameters: int
    """Number of trained parameters."""
    seconds: float
    """Training time without validations."""
    curve: list[TypoValidation]
    """All validations."""
    test: list[Typo]
    """Test typos."""
    predictions: TypoPredictions
    """Predictions for the test typos."""
    post_probabilities: list[list[float]]
    """Probability that each letter of the blog post's words (`POST_WORDS`) is the wrong one."""
    embeddings: Float[np.ndarray, "frames V 2"]
    """Two-dimensional symbol embeddings before training and at even intervals to the last update (`NUM_FRAMES`)."""


def make_typo_data(words: WordList, seed: int) -> TypoData:
    """Make the typos of a seed: `TYPOS_PER_WORD` of each training word, one of each validation and test word.

    Words at a distance of one letter from those of the blog post are excluded, so the latter are unseen in training. A
    misspelled form of the validation or test set does not occur in the training set, not even as a typo of another
    word. Validation and test set have `DEV_WORDS` and `TEST_WORDS` words, but together at most a third of the list.

    Args:
        words: Word list.
        seed: Seed of splits and typos.

    Returns:
        Training, validation and test typos.

    Raises:
        DataError: No word would remain for training, or every form of a word with another letter is a word.
    """
    excluded = {fit.word for post_word in POST_WORDS for fit in words.corrections(post_word)}
    included = [word for word in words.words if word not in excluded]
    scale = min(1.0, len(included) / (3 * (DEV_WORDS + TEST_WORDS)))
    splits = split_words(included, round(scale * DEV_WORDS), round(scale * TEST_WORDS), seed)
    counts = ((splits.train, TYPOS_PER_WORD), (splits.validation, 1), (splits.test, 1))
    train, dev, test = (
        make_typos(split, count, words.known, 10 * seed + index) for index, (split, count) in enumerate(counts)
    )
    held_out = {typo.wrong for typo in (*dev, *test)}
    return TypoData([typo for typo in train if typo.wrong not in held_out], dev, test)


def run_experiment(experiment: TypoExperiment, on_progress: ProgressCallback) -> TypoFaithfulResult:
    """Train and evaluate a network on one thread; the result depends only on the experiment, except for its seconds.

    Args:
        experiment: Word list, sizes, hyperparameters and seed.
        on_progress: Progress callback.

    Returns:
        Validation curve, predictions and the embeddings over the training.

    Raises:
        DataError: The word list cannot be read, or has too few words.
    """
    use_threads(1)
    data = make_typo_data(read_words(experiment.words, max_length=experiment.sizes.max_length), experiment.seed)
    torch.manual_seed(experiment.seed)
    network = WrongLetterNetwork(experiment.sizes)
    embeddings, model, plan = [embedding_vectors(network)], partial(position_probabilities, network), experiment.plan
    steps = record_embeddings(training_steps(network, experiment, data.train), network, embeddings)
    curve, seconds = train_with_validation(
        steps, plan.batch_size, plan.num_validations, lambda: predict_positions(model, data.dev), on_progress
    )
    return TypoFaithfulResult(
        seed=experiment.seed,
        parameters=parameter_count(network),
        seconds=seconds,
        curve=curve,
        test=data.test,
        predictions=predict_positions(model, data.test),
        post_probabilities=predict_post_words(model),
        embeddings=np.stack(embeddings),
    )


def train_with_validation(
    updates: Iterable[TypoUpdate],
    batch_size: int,
    num_validations: int,
    evaluate: Callable[[], TypoPredictions],
    on_progress: ProgressCallback,
) -> tuple[list[TypoValidation], float]:
    """Make all updates of a training and validate at even intervals.

    Args:
        updates: Updates of the training, each made when it is requested.
        batch_size: Number of typos of an update.
        num_validations: Number of validations.
        evaluate: Function that predicts the validation typos.
        on_progress: Progress callback, called with a `SampleProgress` after each validation.

    Returns:
        The validations, and the seconds of the updates alone.
    """
    curve, losses, seconds, started = list[TypoValidation](), list[float](), 0.0, time.perf_counter()
    for update in updates:
        losses.append(update.loss)
        if _is_due(update, num_validations):
            seconds += time.perf_counter() - started
            accuracy = float((evaluate().ranks == 1).mean())
            samples, total = update.number * batch_size, update.total * batch_size
            curve.append(TypoValidation(samples, float(np.mean(losses)), accuracy))
            on_progress(SampleProgress(samples, total, f"position accuracy {100 * accuracy:5.2f} %"))
            losses, started = [], time.perf_counter()
    return curve, seconds


def record_embeddings(
    updates: Iterable[TypoUpdate], network: WrongLetterNetwork, embeddings: list[Float[np.ndarray, "V 2"]]
) -> Iterator[TypoUpdate]:
    """Yield the updates, and append the symbol embeddings after some of them, at even intervals.

    Args:
        updates: Updates of the training.
        network: The network.
        embeddings: Embeddings so far; `NUM_FRAMES` − 1 are appended, if there are as many updates.
    """
    for update in updates:
        if _is_due(update, NUM_FRAMES - 1):
            embeddings.append(embedding_vectors(network))
        yield update


def _is_due(update: TypoUpdate, num_events: int) -> bool:
    """Return True if one of `num_events` evenly spaced events follows this update."""
    number, total = update.number, update.total
    return number * num_events // total > (number - 1) * num_events // total


def training_steps(
    network: WrongLetterNetwork, experiment: TypoExperiment, typos: Sequence[Typo]
) -> Iterator[TypoUpdate]:
    """Train on the typos, shuffled in each epoch; each update is made when it is requested.

    Args:
        network: The network; its parameters change.
        experiment: Word list, sizes, hyperparameters and seed.
        typos: Training typos.

    Yields:
        Each update, with its loss before it.
    """
    plan = experiment.plan
    words = encode_words([typo.wrong for typo in typos], experiment.sizes.max_length)
    positions = torch.tensor([typo.position - 1 for typo in typos])
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, plan.learning_rate)
    num_updates = math.ceil(plan.samples / plan.batch_size)
    for update, rows in enumerate(_shuffled_batches(len(words), plan.batch_size, num_updates, experiment.seed), 1):
        decay = 1 + math.cos(math.pi * (update - 1) / num_updates)
        optimizer.param_groups[0]["lr"] = plan.learning_rate * decay / 2
        loss = nn.functional.cross_entropy(network(words[rows]), positions[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, plan.clip_norm)
        optimizer.step()
        yield TypoUpdate(update, num_updates, loss.item())


def predict_positions(model: PositionModel, typos: Sequence[Typo]) -> TypoPredictions:
    """Predict the wrong position of typos.

    Args:
        model: Function from words to the probability of each position.
        typos: The typos.

    Returns:
        Probability of each position, and the rank of the position of the wrong letter.
    """
    probabilities = model([typo.wrong for typo in typos])
    return TypoPredictions(probabilities, rank_positions(probabilities, typos))


def predict_post_words(model: PositionModel) -> list[list[float]]:
    """Return the probability of each letter of the blog post's words (`POST_WORDS`) to be the wrong one.

    Args:
        model: Function from words to the probability of each position.
    """
    return [row[: len(word)].tolist() for word, row in zip(POST_WORDS, model(POST_WORDS), strict=True)]


def rank_positions(probabilities: Float[np.ndarray, "N S"], typos: Sequence[Typo]) -> Int[np.ndarray, " N"]:
    """Return the rank of the position of each typo among all S positions, from 1; ties get the same, best rank.

    Args:
        probabilities: Probability of each position.
        typos: The typos.
    """
    position_probabilities = probabilities[np.arange(len(typos)), [typo.position - 1 for typo in typos]]
    ranks: Int[np.ndarray, " N"] = 1 + (probabilities > position_probabilities[:, None]).sum(axis=1)
    return ranks


@torch.inference_mode()
def position_probabilities(network: WrongLetterNetwork, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """Return the probability of each position of each word to have the wrong letter; padding has a probability, too.

    Args:
        network: The network.
        words: The words, each of at most S letters.
    """
    rows = encode_words(words, network.sizes.max_length)
    batches = [rows[first : first + EVALUATION_BATCH] for first in range(0, len(rows), EVALUATION_BATCH)]
    return np.concatenate([network(batch).softmax(dim=1).numpy() for batch in batches])


def encode_words(words: Sequence[str], max_length: int) -> Int[Tensor, "N S"]:
    """Return words as symbol ids, padded to the maximum length.

    Args:
        words: Words of the letters in `LETTERS`.
        max_length: Number S of columns, at least the length of the longest word.
    """
    rows = np.full((len(words), max_length), PADDING, np.int64)
    for row, word in zip(rows, words, strict=True):
        row[: len(word)] = [_SYMBOL_IDS[letter] for letter in word]
    return torch.from_numpy(rows)


def embedding_vectors(network: WrongLetterNetwork) -> Float[np.ndarray, "V 2"]:
    """Return a copy of the two-dimensional symbol embeddings.

    Args:
        network: The network.
    """
    return network.embedding.weight.detach().numpy().copy()


def _shuffled_batches(count: int, batch_size: int, num_updates: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Yield the rows of each update: shuffled epochs; batches continue across epochs."""
    generator, queue = np.random.default_rng([seed, 0]), np.zeros(0, np.int64)
    for _ in range(num_updates):
        while len(queue) < batch_size:
            queue = np.concatenate([queue, generator.permutation(count)])
        yield torch.from_numpy(queue[:batch_size])
        queue = queue[batch_size:]
