"""Pointer network over two letter language models that predicts the wrong letter, and its training.

B batch, N words or typos, S letters, H hidden units, E embedding size, V symbols, A attention units.
"""

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from pellucid.data.synthetic import Typo, read_words
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.jobs import SampleProgress
from pellucid.recipes.typos.report import TypoRun
from pellucid.recipes.typos.training import (
    EVALUATION_BATCH,
    PADDING,
    SYMBOLS,
    TypoUpdate,
    encode_words,
    make_typo_data,
    predict_positions,
    predict_post_words,
    train_with_validation,
)
from pellucid.shapes import Bool, Float, Int
from pellucid.worker_pool import ProgressCallback


class PointerSizes(NamedTuple):
    """Sizes of the network."""

    embedding: int = 64
    language_model: int = 256
    """Hidden units H of the language models, per direction."""
    context: int = 192
    """Hidden units of the LSTM over their states, per direction; A is twice that number."""
    max_length: int = 16
    """Maximum letters of a word."""


class LetterContexts(NamedTuple):
    """States of both language models before and after each letter, which do not depend on the letter."""

    before: Float[Tensor, "B S H"]
    """State after the preceding letters; zero at the first."""
    after: Float[Tensor, "B S H"]
    """State after the following letters, read backwards; zero at the last."""
    ends: Float[Tensor, "B 2H"]
    """Final states of both models, side by side, after the whole word."""


class LetterPredictions(NamedTuple):
    """Log-probabilities of the letter at each position, by both language models."""

    forward: Float[Tensor, "B S V"]
    """log p(· | x_1 … x_{s−1})."""
    backward: Float[Tensor, "B S V"]
    """log p(· | x_S … x_{s+1})."""


class LanguageModelPointer(nn.Module):
    """Pointer network over two letter language models.

    p(s, c) is the probability that letter s is wrong and c is right. The attention weight of s is Σ_c p(s, c).

        f_s = LSTM(x_1 … x_s)    log p_f = log softmax(F f_{s−1})
        b_s = LSTM(x_S … x_s)    log p_b = log softmax(G b_{s+1})
        r = BiLSTM([f_{s−1}; b_{s+1}; x_s])    k_s = tanh(U r_s + W [f_S; b_1] + d)
        e_{s,c} = v_c · k_s + w_1 Σ_{t<s} log p_f(x_t) + w_2 Σ_{t>s} log p_b(x_t)
                  + w_3 log p_f(x_s) + w_4 log p_b(x_s) + w_5 log p_f(c at s) + w_6 log p_b(c at s)    for all c ≠ x_s
        p(s, c) = exp e_{s,c} / Σ_{t,a} exp e_{t,a}

    The first two lines are language models in both directions. The energy is that of additive attention with a vector v
    for each candidate letter. The sums are the log-probabilities of the letters before and after s: if s is wrong, all
    other letters are letters of a word.

    References:
        Rei 2017, section 3 (language models); Bahdanau et al. 2015, appendix A.1.2 (additive attention).
    """

    def __init__(self, sizes: PointerSizes) -> None:
        """Build the network and draw its parameters from PyTorch's generator.

        Args:
            sizes: Sizes of the network.
        """
        super().__init__()
        self.sizes = sizes
        hidden, units, num_symbols = sizes.language_model, 2 * sizes.context, len(SYMBOLS)
        self.embedding = nn.Embedding(num_symbols, sizes.embedding)
        self.language_models = nn.LSTM(sizes.embedding, hidden, batch_first=True, bidirectional=True)
        self.forward_head, self.backward_head = nn.Linear(hidden, num_symbols), nn.Linear(hidden, num_symbols)
        context_input_size = 2 * hidden + sizes.embedding
        self.context_lstm = nn.LSTM(context_input_size, sizes.context, batch_first=True, bidirectional=True)
        self.key_projection = nn.Linear(2 * sizes.context, units)
        self.query_projection = nn.Linear(2 * hidden, units, bias=False)
        self.letter_scores = nn.Linear(units, num_symbols)
        self.score_weights = nn.Parameter(torch.tensor([0.5, 0.5, -0.1, -0.1, 0.5, 0.5]))

    def encode_contexts(
        self, words: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], dropout: float = 0.0
    ) -> LetterContexts:
        """Return the states of both language models before and after each letter.

        Args:
            words: Letter ids, padded.
            lengths: Letters of each word.
            dropout: Dropout probability of the embeddings.
        """
        vectors = nn.functional.dropout(self.embedding(words), dropout)
        states, (final, _) = self.language_models(_pack(vectors, lengths))
        forward, backward = _unpack(states, words.shape[1]).chunk(2, dim=2)
        zeros = torch.zeros_like(forward[:, :1])
        before = torch.cat([zeros, forward[:, :-1]], dim=1)
        after = torch.cat([backward[:, 1:], zeros], dim=1)
        return LetterContexts(before, after, torch.cat([final[0], final[1]], dim=1))

    def predict_letters(self, contexts: LetterContexts, dropout: float = 0.0) -> LetterPredictions:
        """Return the log-probabilities of the letter at each position, by both language models.

        Args:
            contexts: States of both language models.
            dropout: Dropout probability of these states.
        """
        heads = ((self.forward_head, contexts.before), (self.backward_head, contexts.after))
        return LetterPredictions(
            *(head(nn.functional.dropout(states, dropout)).log_softmax(dim=2) for head, states in heads)
        )

    def forward(
        self, words: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S V"], LetterPredictions]:
        """Return log p(s, c), and the predictions of the language models.

        log p(s, c) is −∞ where c is the letter itself or the padding symbol, or s is padding.

        Args:
            words: Letter ids, padded.
            lengths: Letters of each word.
        """
        contexts = self.encode_contexts(words, lengths)
        predictions = self.predict_letters(contexts)
        context_inputs = torch.cat([contexts.before, contexts.after, self.embedding(words)], dim=2)
        states = _unpack(self.context_lstm(_pack(context_inputs, lengths))[0], words.shape[1])
        keys = torch.tanh(self.key_projection(states) + self.query_projection(contexts.ends)[:, None])
        energies = self.letter_scores(keys) + self._language_model_terms(words, predictions)
        is_padding_symbol = torch.arange(len(SYMBOLS)) == PADDING
        is_candidate = letter_mask(words)[:, :, None] & ~is_padding_symbol & ~_input_letter_mask(words)
        log_probabilities = energies.masked_fill(~is_candidate, -torch.inf).flatten(1).log_softmax(dim=1)
        return log_probabilities.view_as(energies), predictions

    def _language_model_terms(
        self, words: Int[Tensor, "B S"], predictions: LetterPredictions
    ) -> Float[Tensor, "B S V"]:
        """Return the weighted log-probabilities of the language models in the energy."""
        forward, backward = (letter_log_probabilities(words, direction) for direction in predictions)
        before = forward.cumsum(dim=1) - forward
        after = backward.sum(dim=1, keepdim=True) - backward.cumsum(dim=1)
        position_terms = torch.stack([before, after, forward, backward], dim=2) @ self.score_weights[:4]
        return (
            position_terms[:, :, None]
            + self.score_weights[4] * predictions.forward
            + self.score_weights[5] * predictions.backward
        )


def language_model_loss(words: Int[Tensor, "B S"], predictions: LetterPredictions) -> Float[Tensor, ""]:
    """Return the mean over letters of −log p in nats, summed over both directions; padding is excluded.

    Args:
        words: Letter ids, padded.
        predictions: Predictions of both language models.
    """
    return (
        -(
            letter_log_probabilities(words, predictions.forward) + letter_log_probabilities(words, predictions.backward)
        ).sum()
        / letter_mask(words).sum()
    )


def letter_log_probabilities(words: Int[Tensor, "B S"], predictions: Float[Tensor, "B S V"]) -> Float[Tensor, "B S"]:
    """Return the log-probability of each letter of the words; zero on padding.

    Args:
        words: Letter ids, padded.
        predictions: Log-probabilities of the letter at each position, of one direction.
    """
    return predictions.gather(2, words[:, :, None])[:, :, 0] * letter_mask(words)


def letter_mask(words: Int[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """Return True at letters and False at padding.

    Args:
        words: Letter ids, padded.
    """
    return words != PADDING


def _input_letter_mask(words: Int[Tensor, "B S"]) -> Bool[Tensor, "B S V"]:
    """Return True at the letter that the word has at each position."""
    return torch.arange(len(SYMBOLS)) == words[:, :, None]


def _pack(vectors: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> PackedSequence:
    """Pack rows of any order without padding."""
    return pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)


def _unpack(states: PackedSequence, width: int) -> Float[Tensor, "B S D"]:
    """Unpack states to rows of a given width, with zeros on padding."""
    padded: Tensor = pad_packed_sequence(states, batch_first=True, total_length=width)[0]
    return padded


SORTING_POOL = 64
"""Number of batches whose rows are sorted by length together."""


class PointerTrainingPlan(NamedTuple):
    """Hyperparameters of both stages of the training."""

    language_model_epochs: int = 12
    """Epochs of the language models over the words of the training typos."""
    samples: int = 1_200_000
    """Number of typos seen in the second stage, over all epochs."""
    batch_size: int = 64
    learning_rate: float = 0.002
    """Learning rate of Adam in both stages, with cosine decay to zero."""
    warmup_updates: int = 200
    """Updates with linear warm-up of the learning rate at the start of the second stage, whose energies are
    untrained.
    """
    language_model_weight: float = 0.3
    """Weight of the language model loss in the second stage."""
    embedding_dropout: float = 0.1
    """Dropout probability of the embeddings in the first stage."""
    state_dropout: float = 0.2
    """Dropout probability of the language model states in the first stage."""
    clip_norm: float = 1.0
    """Maximum norm of all gradients together."""
    num_validations: int = 20
    """Number of validations of the second stage, at even intervals."""


class PointerExperiment(NamedTuple):
    """Word list, sizes, hyperparameters and seed of a training."""

    words: Path
    sizes: PointerSizes
    plan: PointerTrainingPlan
    seed: int


class WordBatch(NamedTuple):
    """Letter ids of words with their lengths."""

    words: Int[Tensor, "N S"]
    lengths: Int[Tensor, " N"]

    def select(self, rows: Int[Tensor, " B"]) -> "WordBatch":
        """Return selected rows, padded to the longest of them.

        Args:
            rows: Indices of the rows; at least one.
        """
        lengths = self.lengths[rows]
        return WordBatch(self.words[rows, : int(lengths.max())], lengths)


class TypoTargets(NamedTuple):
    """Targets of the second stage, for N typos."""

    positions: Int[Tensor, " N"]
    """Position of the wrong letter, from 0."""
    letters: Int[Tensor, " N"]
    """Id of the right letter at that position."""


def train_pointer(experiment: PointerExperiment, on_progress: ProgressCallback) -> TypoRun:
    """Train both stages and evaluate the network on one thread; runs in a worker process.

    The result depends only on the experiment, except for its seconds. PyTorch's generator is seeded.

    Args:
        experiment: Word list, sizes, hyperparameters and seed.
        on_progress: Progress callback, called with a `SampleProgress` after each epoch of the first stage and after
            each validation.

    Returns:
        The training with its predictions.

    Raises:
        DataError: The word list cannot be read, or has too few words.
    """
    use_threads(1)
    data = make_typo_data(read_words(experiment.words, max_length=experiment.sizes.max_length), experiment.seed)
    torch.manual_seed(experiment.seed)
    network = LanguageModelPointer(experiment.sizes)
    model, plan, started = partial(pointer_probabilities, network), experiment.plan, time.perf_counter()
    train_language_models(network, experiment, sorted({typo.right for typo in data.train}), on_progress)
    language_model_seconds = time.perf_counter() - started
    steps = train_on_typos(network, experiment, data.train)
    curve, seconds = train_with_validation(
        steps, plan.batch_size, plan.num_validations, lambda: predict_positions(model, data.dev), on_progress
    )
    return TypoRun(
        seed=experiment.seed,
        parameters=parameter_count(network),
        seconds=language_model_seconds + seconds,
        curve=curve,
        test=data.test,
        predictions=predict_positions(model, data.test),
        post_probabilities=predict_post_words(model),
    )


def train_language_models(
    network: LanguageModelPointer, experiment: PointerExperiment, words: Sequence[str], on_progress: ProgressCallback
) -> None:
    """Train both language models on words (the first stage); report progress after each epoch.

    Args:
        network: The network; its parameters change.
        experiment: Word list, sizes, hyperparameters and seed.
        words: Training words.
        on_progress: Progress callback, called with a `SampleProgress` after each epoch.
    """
    data, plan = encode_rows(words, experiment.sizes.max_length), experiment.plan
    updates_per_epoch = math.ceil(len(words) / plan.batch_size)
    num_updates, losses = plan.language_model_epochs * updates_per_epoch, list[float]()
    optimizer = torch.optim.Adam(network.parameters(), plan.learning_rate)
    for update, rows in enumerate(_length_batches(data.lengths, plan.batch_size, num_updates, experiment.seed), 1):
        batch = data.select(rows)
        contexts = network.encode_contexts(*batch, dropout=plan.embedding_dropout)
        loss = language_model_loss(batch.words, network.predict_letters(contexts, dropout=plan.state_dropout))
        _update(network, optimizer, loss, plan, (update - 1) / num_updates)
        losses.append(loss.item())
        if update % updates_per_epoch == 0:
            bits = float(np.mean(losses)) / 2 / math.log(2)
            samples, total = update * plan.batch_size, num_updates * plan.batch_size
            on_progress(SampleProgress(samples, total, f"language models {bits:.3f} bits per letter"))
            losses = []


def train_on_typos(
    network: LanguageModelPointer, experiment: PointerExperiment, typos: Sequence[Typo]
) -> Iterator[TypoUpdate]:
    """Train the whole network on typos (the second stage); each update is made when it is requested.

    Args:
        network: The network; its parameters change.
        experiment: Word list, sizes, hyperparameters and seed.
        typos: Training typos.

    Yields:
        Each update, with its loss without that of the language models.
    """
    words, plan = encode_rows([typo.wrong for typo in typos], experiment.sizes.max_length), experiment.plan
    right_words = encode_words([typo.right for typo in typos], experiment.sizes.max_length)
    positions = torch.tensor([typo.position - 1 for typo in typos])
    targets = TypoTargets(positions, right_words[torch.arange(len(typos)), positions])
    num_updates = math.ceil(plan.samples / plan.batch_size)
    optimizer = torch.optim.Adam(network.parameters(), plan.learning_rate)
    for update, rows in enumerate(_length_batches(words.lengths, plan.batch_size, num_updates, experiment.seed), 1):
        batch = words.select(rows)
        log_probabilities, predictions = network(*batch)
        typo_loss = -log_probabilities[torch.arange(len(rows)), targets.positions[rows], targets.letters[rows]].mean()
        loss = typo_loss + plan.language_model_weight * language_model_loss(batch.words, predictions)
        _update(network, optimizer, loss, plan, (update - 1) / num_updates, min(1.0, update / plan.warmup_updates))
        yield TypoUpdate(update, num_updates, typo_loss.item())


@torch.inference_mode()
def pointer_probabilities(network: LanguageModelPointer, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """Return the attention weights of each word, which are the probabilities of its positions; zero on padding.

    Args:
        network: The network.
        words: The words, each of at most S letters.
    """
    data = encode_rows(words, network.sizes.max_length)
    probabilities = np.zeros((len(words), network.sizes.max_length))
    for first in range(0, len(words), EVALUATION_BATCH):
        batch = data.select(torch.arange(first, min(first + EVALUATION_BATCH, len(words))))
        weights = network(*batch)[0].exp().sum(dim=2)
        probabilities[first : first + EVALUATION_BATCH, : weights.shape[1]] = weights
    return probabilities


def encode_rows(words: Sequence[str], max_length: int) -> WordBatch:
    """Return words as letter ids with their lengths.

    Args:
        words: Words of the letters in `LETTERS`.
        max_length: Number S of columns, at least the length of the longest word.
    """
    return WordBatch(encode_words(words, max_length), torch.tensor([len(word) for word in words]))


def _update(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Float[Tensor, ""],
    plan: PointerTrainingPlan,
    progress: float,
    warmup: float = 1.0,
) -> None:
    """Make one update.

    Args:
        network: The network.
        optimizer: Its optimizer.
        loss: The loss.
        plan: Hyperparameters.
        progress: Fraction of the updates made before, for the cosine decay.
        warmup: Warm-up factor of the learning rate.
    """
    for group in optimizer.param_groups:
        group["lr"] = plan.learning_rate * warmup * (1 + math.cos(math.pi * progress)) / 2
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), plan.clip_norm)
    optimizer.step()


def _length_batches(
    lengths: Int[Tensor, " N"], batch_size: int, num_updates: int, seed: int
) -> Iterator[Int[Tensor, " B"]]:
    """Yield the rows of each update: shuffled epochs, rows of similar length together, the last batch may be small."""
    generator, update = np.random.default_rng([seed, 1]), 0
    while True:
        order = generator.permutation(len(lengths))
        for first in range(0, len(order), SORTING_POOL * batch_size):
            pool = torch.from_numpy(order[first : first + SORTING_POOL * batch_size])
            batches = torch.split(pool[lengths[pool].argsort(stable=True)], batch_size)
            for index in generator.permutation(len(batches)):
                if update == num_updates:
                    return
                update += 1
                yield batches[index]
