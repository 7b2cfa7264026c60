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
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.data.synthetic import LETTERS, Typo, WordList, make_typos, read_words, split_words
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.jobs import SampleProgress
from pellucid.worker_pool import ProgressCallback

SYMBOLS = f"{LETTERS} "
"""Symbols by id; the space is the padding."""
ALPHABET = SYMBOLS[:26]
"""a to z, without hyphen and padding."""
PADDING = SYMBOLS.index(" ")
NUM_LAYERS, EMBEDDING_SIZE = 3, 2


class TypoNetworkSizes(NamedTuple):
    """Sizes that the post does not give."""

    hidden: int = 64
    longest: int = 16


class TypoNetwork(nn.Module):
    """Network of the typo post: LSTM encoder, linear read-out, LSTM decoder of one step.

        h_1 … h_S, s = LSTM³(x_1 … x_S)    z = [h_1; …; h_S] · m + b    o = LSTM³(z; s)    p = softmax(W o + c)

    Kept from the post: padding is read like letters, and s is the state after it. The read-out, called attention, is
    neither a softmax nor dependent on the decoder, and yields a single number. m starts as N(0, 1), b at zero. The
    LSTMs are TensorFlow's `LSTMCell`: no peepholes, forget bias one, kernels uniform by Glorot & Bengio 2010 over all
    gates together. Embeddings have two dimensions and start as N(0, 1). p covers all S positions, including padding.
    """

    def __init__(self, sizes: TypoNetworkSizes) -> None:
        """Build the network and draw its parameters from PyTorch's generator."""
        super().__init__()
        self.sizes = sizes
        self.table = nn.Embedding(len(SYMBOLS), EMBEDDING_SIZE)
        self.encoder = nn.LSTM(EMBEDDING_SIZE, sizes.hidden, NUM_LAYERS, batch_first=True)
        self.decoder = nn.LSTM(1, sizes.hidden, NUM_LAYERS, batch_first=True)
        self.matrix = nn.Parameter(torch.randn(sizes.longest * sizes.hidden))
        self.bias = nn.Parameter(torch.zeros(()))
        self.output = nn.Linear(sizes.hidden, sizes.longest)
        for stack in (self.encoder, self.decoder):
            _init_tensorflow(stack)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, words: Int[Tensor, "B S"]) -> Float[Tensor, "B S"]:
        """Return the logit of each position; words are padded to the longest."""
        states, last = self.encoder(self.table(words))
        read_out = states.flatten(1) @ self.matrix + self.bias
        decoded, _ = self.decoder(read_out[:, None, None], last)
        logits: Tensor = self.output(decoded[:, 0])
        return logits


def _init_tensorflow(stack: nn.LSTM) -> None:
    """Use one bias per gate, forget bias one; draw input and hidden weights as one kernel."""
    for layer in range(stack.num_layers):
        entering, recurrent, bias, second = (
            getattr(stack, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        bound = (6 / (entering.shape[1] + recurrent.shape[1] + len(entering))) ** 0.5
        nn.init.uniform_(entering, -bound, bound)
        nn.init.uniform_(recurrent, -bound, bound)
        nn.init.zeros_(bias)
        bias.data[stack.hidden_size : 2 * stack.hidden_size] = 1.0
        nn.init.zeros_(second)
        second.requires_grad_(False)


POST_WORDS = ("bapk", "downwtairs", "tably", "wtnts", "wresch", "boolcase", "pareztal")
"""Words of the post's figure."""
DEV_WORDS, TEST_WORDS, TYPOS_PER_WORD = 2_000, 8_000, 8
"""Validation words and test words, with one typo each; typos of each training word."""
FILM_FRAMES = 180
"""Frames of the embedding's film, as many as the post's."""
EVALUATION_BATCH = 1_000
"""Typos per evaluation batch."""
TypoUpdate = tuple[int, int, float]
"""An update: its number, the total number, its loss."""
PositionModel = Callable[[Sequence[str]], Float[np.ndarray, "N S"]]
"""Function from words to the probability of each position."""
_SYMBOL_IDS = {symbol: number for number, symbol in enumerate(SYMBOLS)}


class TypoData(NamedTuple):
    """Typos of a seed."""

    train: list[Typo]
    dev: list[Typo]
    test: list[Typo]


class TypoTrainingPlan(NamedTuple):
    """Hyperparameters of a training."""

    samples: int = 800_000
    batch: int = 32
    rate: float = 0.004
    """Learning rate of Adam, with cosine decay to zero."""
    norm: float = 1.0
    """Maximum norm of the gradients."""
    validations: int = 20


class TypoStudy(NamedTuple):
    """Word list, sizes, hyperparameters and seed of a training."""

    words: Path
    sizes: TypoNetworkSizes
    plan: TypoTrainingPlan
    seed: int


class TypoValidation(NamedTuple):
    """One validation."""

    samples: int
    cost: float
    """Mean loss since the last validation."""
    right: float
    """Position accuracy on the validation words, as a fraction."""


class TypoPredictions(NamedTuple):
    """Predictions for typos."""

    probabilities: Float[np.ndarray, "N S"]
    """Probability of each position; also of padding, where a network allows that."""
    ranks: Int[np.ndarray, " N"]
    """Rank of the wrong position, from 1."""


class TypoResult(NamedTuple):
    """Result of a training."""

    seed: int
    parameters: int
    seconds: float
    """Training time without validations."""
    curve: list[TypoValidation]
    test: list[Typo]
    answers: TypoPredictions
    examples: list[list[float]]
    """Probability of each letter of the post's words."""
    film: Float[np.ndarray, "frames V 2"]
    """Embeddings from the first update to the last."""


def make_typo_data(words: WordList, seed: int) -> TypoData:
    """Make the typos of a seed.

    Words at a distance of one letter from the post's words are excluded, so that its figure is made of unseen words. A
    form in the validation or test set is not in the training set, also as a typo of another word. Validation and test
    set take at most a third of a short list.

    Args:
        words: Word list.
        seed: Seed of splits and typos.
    """
    near = {fit.word for example in POST_WORDS for fit in words.corrections(example)}
    kept = [word for word in words.words if word not in near]
    scale = min(1.0, len(kept) / (3 * (DEV_WORDS + TEST_WORDS)))
    parts = split_words(kept, round(scale * DEV_WORDS), round(scale * TEST_WORDS), seed)
    counts = ((parts.train, TYPOS_PER_WORD), (parts.dev, 1), (parts.test, 1))
    train, dev, test = (make_typos(part, each, words.known, 10 * seed + at) for at, (part, each) in enumerate(counts))
    held_out = {typo.wrong for typo in (*dev, *test)}
    return TypoData([typo for typo in train if typo.wrong not in held_out], dev, test)


def run_study(study: TypoStudy, tell: ProgressCallback) -> TypoResult:
    """Train and evaluate on one thread; the result is a function of the study, except for its seconds."""
    use_threads(1)
    data = make_typo_data(read_words(study.words, max_length=study.sizes.longest), study.seed)
    torch.manual_seed(study.seed)
    network = TypoNetwork(study.sizes)
    film, chances, plan = [embedding_vectors(network)], partial(position_probabilities, network), study.plan
    steps = record_film(training_steps(network, study, data.train), network, film)
    curve, seconds = train_with_validation(
        steps, plan.batch, plan.validations, lambda: predict_positions(chances, data.dev), tell
    )
    numbers = (study.seed, parameter_count(network), seconds, curve)
    return TypoResult(
        *numbers, data.test, predict_positions(chances, data.test), predict_post_words(chances), np.stack(film)
    )


def train_with_validation(
    steps: Iterable[TypoUpdate],
    batch: int,
    validations: int,
    evaluate: Callable[[], TypoPredictions],
    tell: ProgressCallback,
) -> tuple[list[TypoValidation], float]:
    """Make all updates and validate at even intervals.

    Args:
        steps: Updates.
        batch: Typos of an update.
        validations: Number of validations.
        evaluate: Function that predicts the validation typos.
        tell: Progress callback.

    Returns:
        The validations, and the seconds of the updates alone.
    """
    curve, costs, seconds, started = list[TypoValidation](), list[float](), 0.0, time.perf_counter()
    for update, of, cost in steps:
        costs.append(cost)
        if _is_due(update, of, validations):
            seconds += time.perf_counter() - started
            right = float((evaluate().ranks == 1).mean())
            curve.append(TypoValidation(update * batch, float(np.mean(costs)), right))
            tell(SampleProgress(update * batch, of * batch, f"positions right {100 * right:5.2f} %"))
            costs, started = [], time.perf_counter()
    return curve, seconds


def record_film(
    steps: Iterable[TypoUpdate], network: TypoNetwork, film: list[Float[np.ndarray, "V 2"]]
) -> Iterator[TypoUpdate]:
    """Pass updates through and append the frames of the film."""
    for step in steps:
        if _is_due(*step[:2], FILM_FRAMES - 1):
            film.append(embedding_vectors(network))
        yield step


def _is_due(update: int, of: int, times: int) -> bool:
    """Return True if one of `times` evenly spaced events follows this update."""
    return update * times // of > (update - 1) * times // of


def training_steps(network: TypoNetwork, study: TypoStudy, data: Sequence[Typo]) -> Iterator[TypoUpdate]:
    """Train on the typos, shuffled in each epoch.

    Yields:
        Each update, with its loss.
    """
    plan, longest = study.plan, study.sizes.longest
    words = encode_words([typo.wrong for typo in data], longest)
    positions = torch.tensor([typo.position - 1 for typo in data])
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer, updates = torch.optim.Adam(parameters, plan.rate), math.ceil(plan.samples / plan.batch)
    for update, rows in enumerate(_shuffled_batches(len(words), plan.batch, updates, study.seed), 1):
        optimizer.param_groups[0]["lr"] = plan.rate * (1 + math.cos(math.pi * (update - 1) / updates)) / 2
        cost = nn.functional.cross_entropy(network(words[rows]), positions[rows])
        optimizer.zero_grad()
        cost.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, plan.norm)
        optimizer.step()
        yield update, updates, cost.item()


def predict_positions(chances: PositionModel, data: Sequence[Typo]) -> TypoPredictions:
    """Predict the wrong position of typos."""
    predicted = chances([typo.wrong for typo in data])
    return TypoPredictions(predicted, rank_positions(predicted, data))


def predict_post_words(chances: PositionModel) -> list[list[float]]:
    """Return the probability of each letter of the post's words."""
    return [row[: len(word)].tolist() for word, row in zip(POST_WORDS, chances(POST_WORDS), strict=True)]


def rank_positions(chances: Float[np.ndarray, "N S"], data: Sequence[Typo]) -> Int[np.ndarray, " N"]:
    """Return the rank of each typo's position, from 1."""
    wanted = chances[np.arange(len(data)), [typo.position - 1 for typo in data]]
    ranks: Int[np.ndarray, " N"] = 1 + (chances > wanted[:, None]).sum(axis=1)
    return ranks


@torch.inference_mode()
def position_probabilities(network: TypoNetwork, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """Return the probability of each position of each word."""
    rows = encode_words(words, network.sizes.longest)
    parts = [rows[first : first + EVALUATION_BATCH] for first in range(0, len(rows), EVALUATION_BATCH)]
    return np.concatenate([network(part).softmax(dim=1).numpy() for part in parts])


def encode_words(words: Sequence[str], longest: int) -> Int[Tensor, "N S"]:
    """Return words as ids, padded to the longest."""
    rows = np.full((len(words), longest), PADDING, np.int64)
    for row, word in zip(rows, words, strict=True):
        row[: len(word)] = [_SYMBOL_IDS[letter] for letter in word]
    return torch.from_numpy(rows)


def embedding_vectors(network: TypoNetwork) -> Float[np.ndarray, "V 2"]:
    """Return a copy of the embeddings."""
    return network.table.weight.detach().numpy().copy()


def _shuffled_batches(count: int, batch: int, updates: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Yield the rows of each update: shuffled epochs; batches continue across epochs."""
    generator, left = np.random.default_rng([seed, 0]), np.zeros(0, np.int64)
    for _ in range(updates):
        while len(left) < batch:
            left = np.concatenate([left, generator.permutation(count)])
        yield torch.from_numpy(left[:batch])
        left = left[batch:]
