"""Attention that points at the letter which language models from both sides predict least, and its training.

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
from jaxtyping import Bool, Float, Int
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
from pellucid.worker_pool import ProgressCallback


class PointerSizes(NamedTuple):
    """Sizes of the network."""

    embedding: int = 64
    sides: int = 256
    """H of the language models, per direction."""
    around: int = 192
    """H of the LSTM over their states, per direction; A is twice that."""
    longest: int = 16


class LetterContexts(NamedTuple):
    """States of both language models around each letter, which do not depend on the letter."""

    before: Float[Tensor, "B S H"]
    """State after the preceding letters; zero at the first."""
    after: Float[Tensor, "B S H"]
    """State after the following letters, read backwards; zero at the last."""
    ends: Float[Tensor, "B 2H"]
    """States of both models after the whole word."""


class LetterPredictions(NamedTuple):
    """Log-probabilities of the letter at each position, by both language models."""

    forwards: Float[Tensor, "B S V"]
    """log p(· | x_1 … x_{s−1})."""
    backwards: Float[Tensor, "B S V"]
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
    other letters are those of a word.

    References:
        Rei 2017, section 3 (language models); Bahdanau et al. 2015, appendix A.1.2 (additive attention).
    """

    def __init__(self, sizes: PointerSizes) -> None:
        """Build the network and draw its parameters from PyTorch's generator."""
        super().__init__()
        self.sizes = sizes
        hidden, units, symbols = sizes.sides, 2 * sizes.around, len(SYMBOLS)
        self.table = nn.Embedding(symbols, sizes.embedding)
        self.sides = nn.LSTM(sizes.embedding, hidden, batch_first=True, bidirectional=True)
        self.forwards, self.backwards = nn.Linear(hidden, symbols), nn.Linear(hidden, symbols)
        entering = 2 * hidden + sizes.embedding
        self.around = nn.LSTM(entering, sizes.around, batch_first=True, bidirectional=True)
        self.keys = nn.Linear(2 * sizes.around, units)
        self.query = nn.Linear(2 * hidden, units, bias=False)
        self.letters = nn.Linear(units, symbols)
        self.score_weights = nn.Parameter(torch.tensor([0.5, 0.5, -0.1, -0.1, 0.5, 0.5]))

    def encode_contexts(
        self, words: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], dropped: float = 0.0
    ) -> LetterContexts:
        """Return the states of both language models around each letter.

        Args:
            words: Letter ids, padded.
            lengths: Letters of each word.
            dropped: Dropout of the embeddings.
        """
        vectors = nn.functional.dropout(self.table(words), dropped)
        states, (last, _) = self.sides(_pack(vectors, lengths))
        forwards, backwards = _unpack(states, words.shape[1]).chunk(2, dim=2)
        nothing = torch.zeros_like(forwards[:, :1])
        before = torch.cat([nothing, forwards[:, :-1]], dim=1)
        after = torch.cat([backwards[:, 1:], nothing], dim=1)
        return LetterContexts(before, after, torch.cat([last[0], last[1]], dim=1))

    def predict_letters(self, contexts: LetterContexts, dropped: float = 0.0) -> LetterPredictions:
        """Return the log-probabilities of the letter at each position.

        Args:
            contexts: States of both language models.
            dropped: Dropout of these states.
        """
        heads = ((self.forwards, contexts.before), (self.backwards, contexts.after))
        return LetterPredictions(
            *(head(nn.functional.dropout(states, dropped)).log_softmax(dim=2) for head, states in heads)
        )

    def forward(
        self, words: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S V"], LetterPredictions]:
        """Return log p(s, c) and the predictions of the language models.

        log p(s, c) is −∞ where c is the letter itself or the padding symbol, or s is padding.
        """
        sides = self.encode_contexts(words, lengths)
        predictions = self.predict_letters(sides)
        entering = torch.cat([sides.before, sides.after, self.table(words)], dim=2)
        around = _unpack(self.around(_pack(entering, lengths))[0], words.shape[1])
        keys = torch.tanh(self.keys(around) + self.query(sides.ends)[:, None])
        energies = self.letters(keys) + self._language_model_terms(words, predictions)
        allowed = letter_mask(words)[:, :, None] & (torch.arange(len(SYMBOLS)) != PADDING) & ~_own_letter_mask(words)
        flat = energies.masked_fill(~allowed, -torch.inf).flatten(1).log_softmax(dim=1)
        return flat.view_as(energies), predictions

    def _language_model_terms(
        self, words: Int[Tensor, "B S"], predictions: LetterPredictions
    ) -> Float[Tensor, "B S V"]:
        """Return the terms with w."""
        forwards, backwards = (letter_log_probabilities(words, side) for side in predictions)
        before = forwards.cumsum(dim=1) - forwards
        after = backwards.sum(dim=1, keepdim=True) - backwards.cumsum(dim=1)
        alone = torch.stack([before, after, forwards, backwards], dim=2) @ self.score_weights[:4]
        return (
            alone[:, :, None]
            + self.score_weights[4] * predictions.forwards
            + self.score_weights[5] * predictions.backwards
        )


def language_model_loss(words: Int[Tensor, "B S"], predictions: LetterPredictions) -> Float[Tensor, ""]:
    """Return the mean of −log p over all letters, summed over both directions."""
    return (
        -(
            letter_log_probabilities(words, predictions.forwards)
            + letter_log_probabilities(words, predictions.backwards)
        ).sum()
        / letter_mask(words).sum()
    )


def letter_log_probabilities(words: Int[Tensor, "B S"], side: Float[Tensor, "B S V"]) -> Float[Tensor, "B S"]:
    """Return the log-probability of each letter of the words; zero on padding."""
    return side.gather(2, words[:, :, None])[:, :, 0] * letter_mask(words)


def letter_mask(words: Int[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """Return True at letters and False at padding."""
    return words != PADDING


def _own_letter_mask(words: Int[Tensor, "B S"]) -> Bool[Tensor, "B S V"]:
    """Return True at the letter of each position."""
    return torch.arange(len(SYMBOLS)) == words[:, :, None]


def _pack(vectors: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> PackedSequence:
    """Pack rows of any order without padding."""
    return pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)


def _unpack(states: PackedSequence, width: int) -> Float[Tensor, "B S D"]:
    """Unpack states to rows of a given width, with zeros on padding."""
    padded: Tensor = pad_packed_sequence(states, batch_first=True, total_length=width)[0]
    return padded


SORTING_POOL = 64
"""Batches whose rows are sorted together by length."""


class PointerTrainingPlan(NamedTuple):
    """Hyperparameters of the training."""

    passes: int = 12
    """Epochs of the language models over the words of the training typos."""
    samples: int = 1_200_000
    """Typos of the second part."""
    batch: int = 64
    rate: float = 0.002
    """Learning rate of Adam in both parts, with cosine decay to zero."""
    warm: int = 200
    """Warm-up updates of the second part, since the energies are still untrained."""
    foretelling: float = 0.3
    """Weight of the language model loss in the second part."""
    dropped: tuple[float, float] = (0.1, 0.2)
    """Dropout of embeddings and of language model states in the first part."""
    norm: float = 1.0
    """Maximum norm of the gradients."""
    validations: int = 20


class PointerJob(NamedTuple):
    """Word list, sizes, hyperparameters and seed of a training."""

    words: Path
    sizes: PointerSizes
    plan: PointerTrainingPlan
    seed: int


class WordBatch(NamedTuple):
    """Letter ids of words with their lengths."""

    words: Int[Tensor, "N S"]
    lengths: Int[Tensor, " N"]

    def take(self, rows: Int[Tensor, " B"]) -> "WordBatch":
        """Return some rows, without superfluous padding."""
        lengths = self.lengths[rows]
        return WordBatch(self.words[rows, : int(lengths.max())], lengths)


class TypoTargets(NamedTuple):
    """Targets of the training on typos."""

    positions: Int[Tensor, " N"]
    """Wrong position, from 0."""
    letters: Int[Tensor, " N"]
    """Right letter of that position."""


def train_pointer(job: PointerJob, tell: ProgressCallback) -> TypoRun:
    """Train and evaluate on one thread; the result is a function of the job, except for its seconds."""
    use_threads(1)
    data = make_typo_data(read_words(job.words, max_length=job.sizes.longest), job.seed)
    torch.manual_seed(job.seed)
    network = LanguageModelPointer(job.sizes)
    chances, plan, started = partial(pointer_probabilities, network), job.plan, time.perf_counter()
    train_language_models(network, job, sorted({typo.right for typo in data.train}), tell)
    reading = time.perf_counter() - started
    steps = train_on_typos(network, job, data.train)
    curve, seconds = train_with_validation(
        steps, plan.batch, plan.validations, lambda: predict_positions(chances, data.dev), tell
    )
    return TypoRun(
        seed=job.seed,
        parameters=parameter_count(network),
        seconds=reading + seconds,
        curve=curve,
        test=data.test,
        answers=predict_positions(chances, data.test),
        examples=predict_post_words(chances),
    )


def train_language_models(
    network: LanguageModelPointer, job: PointerJob, words: Sequence[str], tell: ProgressCallback
) -> None:
    """Train the language models on words; report progress after each epoch."""
    rows, plan = encode_rows(words, job.sizes.longest), job.plan
    once = math.ceil(len(words) / plan.batch)
    updates, costs = plan.passes * once, list[float]()
    optimizer = torch.optim.Adam(network.parameters(), plan.rate)
    for update, chosen in enumerate(_length_batches(rows.lengths, plan.batch, updates, job.seed), 1):
        part = rows.take(chosen)
        sides = network.encode_contexts(*part, dropped=plan.dropped[0])
        cost = language_model_loss(part.words, network.predict_letters(sides, dropped=plan.dropped[1]))
        _update(network, optimizer, cost, plan, (update - 1) / updates)
        costs.append(cost.item())
        if update % once == 0:
            bits = float(np.mean(costs)) / 2 / math.log(2)
            tell(SampleProgress(update * plan.batch, updates * plan.batch, f"language models {bits:.3f} bits a letter"))
            costs = []


def train_on_typos(network: LanguageModelPointer, job: PointerJob, data: Sequence[Typo]) -> Iterator[TypoUpdate]:
    """Train the whole network on typos.

    Yields:
        Each update, with its loss.
    """
    rows, plan = encode_rows([typo.wrong for typo in data], job.sizes.longest), job.plan
    right = encode_words([typo.right for typo in data], job.sizes.longest)
    positions = torch.tensor([typo.position - 1 for typo in data])
    sought = TypoTargets(positions, right[torch.arange(len(data)), positions])
    updates = math.ceil(plan.samples / plan.batch)
    optimizer = torch.optim.Adam(network.parameters(), plan.rate)
    for update, chosen in enumerate(_length_batches(rows.lengths, plan.batch, updates, job.seed), 1):
        part = rows.take(chosen)
        found, predictions = network(*part)
        cost = -found[torch.arange(len(chosen)), sought.positions[chosen], sought.letters[chosen]].mean()
        loss = cost + plan.foretelling * language_model_loss(part.words, predictions)
        _update(network, optimizer, loss, plan, (update - 1) / updates, min(1.0, update / plan.warm))
        yield update, updates, cost.item()


@torch.inference_mode()
def pointer_probabilities(network: LanguageModelPointer, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """Return the attention weights of each word; zero on padding."""
    rows, found = encode_rows(words, network.sizes.longest), np.zeros((len(words), network.sizes.longest))
    for first in range(0, len(words), EVALUATION_BATCH):
        part = rows.take(torch.arange(first, min(first + EVALUATION_BATCH, len(words))))
        weights = network(*part)[0].exp().sum(dim=2)
        found[first : first + EVALUATION_BATCH, : weights.shape[1]] = weights
    return found


def encode_rows(words: Sequence[str], longest: int) -> WordBatch:
    """Return words as letter ids with their lengths."""
    return WordBatch(encode_words(words, longest), torch.tensor([len(word) for word in words]))


def _update(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Float[Tensor, ""],
    plan: PointerTrainingPlan,
    done: float,
    warmup: float = 1.0,
) -> None:
    """Make one update.

    Args:
        network: The network.
        optimizer: Its optimizer.
        loss: The loss.
        plan: Hyperparameters.
        done: Fraction of the updates made, for the cosine decay.
        warmup: Factor of the warm-up.
    """
    for group in optimizer.param_groups:
        group["lr"] = plan.rate * warmup * (1 + math.cos(math.pi * done)) / 2
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), plan.norm)
    optimizer.step()


def _length_batches(lengths: Int[Tensor, " N"], batch: int, updates: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Yield the rows of each update: shuffled epochs, rows of similar length together, the last batch may be small."""
    generator, made = np.random.default_rng([seed, 1]), 0
    while True:
        order = generator.permutation(len(lengths))
        for first in range(0, len(order), SORTING_POOL * batch):
            pool = torch.from_numpy(order[first : first + SORTING_POOL * batch])
            parts = torch.split(pool[lengths[pool].argsort(stable=True)], batch)
            for part in generator.permutation(len(parts)):
                if made == updates:
                    return
                made += 1
                yield parts[part]
