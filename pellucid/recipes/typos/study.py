"""One training of the post's network, and what it makes of words it has never seen.

N typos, S positions.
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

from pellucid.data.synthetic import Typo, WordList, make_typos, read_words, split_words
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.following import Reached
from pellucid.recipes.typos.networks import PADDING, SYMBOLS, Sizes, TypoNetwork
from pellucid.worker_pool import ProgressCallback

EXAMPLES = ("bapk", "downwtairs", "tably", "wtnts", "wresch", "boolcase", "pareztal")
"""The words of the post's figure."""
DEVELOPMENT, TEST, EACH = 2_000, 8_000, 8
"""Words to develop on and to test on, with a typo each; typos of each word to train on."""
FRAMES = 180
"""Of the film of the embedding, as many as the post's."""
CHUNK = 1_000
"""Typos that are judged at a time."""
Step = tuple[int, int, float]
"""An update that was taken: its number, of how many, and its cost."""
Chances = Callable[[Sequence[str]], Float[np.ndarray, "N S"]]
"""What tells the probability of each position of words."""
_NUMBERS = {symbol: number for number, symbol in enumerate(SYMBOLS)}


class Data(NamedTuple):
    """The typos of a seed."""

    train: list[Typo]
    dev: list[Typo]
    test: list[Typo]


class Plan(NamedTuple):
    """How the network is trained."""

    samples: int = 800_000
    batch: int = 32
    rate: float = 0.004
    """Of Adam; it falls along half a cosine to zero."""
    norm: float = 1.0
    """Gradients longer than this are shortened to it."""
    validations: int = 20


class Study(NamedTuple):
    """One training: on typos of which list, of which sizes, how, from which seed."""

    words: Path
    sizes: Sizes
    plan: Plan
    seed: int


class Point(NamedTuple):
    """One validation."""

    samples: int
    cost: float
    """The mean cost since the validation before."""
    right: float
    """Share of positions right on the development words."""


class Answers(NamedTuple):
    """What a network says of typos."""

    chances: Float[np.ndarray, "N S"]
    """The probability of each position; beyond a word's end too, where a network allows that."""
    ranks: Int[np.ndarray, " N"]
    """The place of the wrong position among all, the likeliest first, counted from 1."""


class Outcome(NamedTuple):
    """What came of one training."""

    seed: int
    parameters: int
    seconds: float
    """Training alone."""
    curve: list[Point]
    test: list[Typo]
    answers: Answers
    examples: list[list[float]]
    """For each of the post's words the probability of each of its letters."""
    film: Float[np.ndarray, "frames V 2"]
    """The symbols' vectors from the first update to the last."""


def data_of(words: WordList, seed: int) -> Data:
    """The typos of a seed; of a short list less is developed and tested on, a third of it at most.

    Words one letter away from the post's own are in no part, so that its figure is made of unseen ones; and a form that
    is developed or tested on is not trained on, as a typo of another word either.
    """
    near = {fit.word for example in EXAMPLES for fit in words.corrections(example)}
    kept = [word for word in words.words if word not in near]
    scale = min(1.0, len(kept) / (3 * (DEVELOPMENT + TEST)))
    parts = split_words(kept, round(scale * DEVELOPMENT), round(scale * TEST), seed)
    counts = ((parts.train, EACH), (parts.dev, 1), (parts.test, 1))
    train, dev, test = (make_typos(part, each, words.known, 10 * seed + at) for at, (part, each) in enumerate(counts))
    judged = {typo.wrong for typo in (*dev, *test)}
    return Data([typo for typo in train if typo.wrong not in judged], dev, test)


def conduct(study: Study, tell: ProgressCallback) -> Outcome:
    """Train and judge, on one thread; the outcome is a function of the study, its seconds apart."""
    use_threads(1)
    data = data_of(read_words(study.words, max_length=study.sizes.longest), study.seed)
    torch.manual_seed(study.seed)
    network = TypoNetwork(study.sizes)
    film, chances, plan = [vectors_of(network)], partial(chances_of, network), study.plan
    steps = filmed(train(network, study, data.train), network, film)
    curve, seconds = validated(steps, plan.batch, plan.validations, lambda: answers(chances, data.dev), tell)
    numbers = (study.seed, parameter_count(network), seconds, curve)
    return Outcome(*numbers, data.test, answers(chances, data.test), examples_of(chances), np.stack(film))


def validated(
    steps: Iterable[Step], batch: int, validations: int, judged: Callable[[], Answers], tell: ProgressCallback
) -> tuple[list[Point], float]:
    """Take updates of so many typos to their end, and judge the development words on the way: the validations, and the
    seconds of the updates alone.
    """
    curve, costs, seconds, started = list[Point](), list[float](), 0.0, time.perf_counter()
    for update, of, cost in steps:
        costs.append(cost)
        if _is_due(update, of, validations):
            seconds += time.perf_counter() - started
            right = float((judged().ranks == 1).mean())
            curve.append(Point(update * batch, float(np.mean(costs)), right))
            tell(Reached(update * batch, of * batch, f"positions right {100 * right:5.2f} %"))
            costs, started = [], time.perf_counter()
    return curve, seconds


def filmed(steps: Iterable[Step], network: TypoNetwork, film: list[Float[np.ndarray, "V 2"]]) -> Iterator[Step]:
    """The same updates; on the way the frames of the film are added."""
    for step in steps:
        if _is_due(*step[:2], FRAMES - 1):
            film.append(vectors_of(network))
        yield step


def _is_due(update: int, of: int, times: int) -> bool:
    """Whether something that is done so many times in all, evenly, is done after this update."""
    return update * times // of > (update - 1) * times // of


def train(network: TypoNetwork, study: Study, data: Sequence[Typo]) -> Iterator[Step]:
    """Take updates over the typos, in another order at each pass."""
    plan, longest = study.plan, study.sizes.longest
    words = numbered([typo.wrong for typo in data], longest)
    positions = torch.tensor([typo.position - 1 for typo in data])
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer, updates = torch.optim.Adam(parameters, plan.rate), math.ceil(plan.samples / plan.batch)
    for update, rows in enumerate(_batches(len(words), plan.batch, updates, study.seed), 1):
        optimizer.param_groups[0]["lr"] = plan.rate * (1 + math.cos(math.pi * (update - 1) / updates)) / 2
        cost = nn.functional.cross_entropy(network(words[rows]), positions[rows])
        optimizer.zero_grad()
        cost.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, plan.norm)
        optimizer.step()
        yield update, updates, cost.item()


def answers(chances: Chances, data: Sequence[Typo]) -> Answers:
    """What a network says of typos."""
    told = chances([typo.wrong for typo in data])
    return Answers(told, ranks_of(told, data))


def examples_of(chances: Chances) -> list[list[float]]:
    """For each of the post's words the probability of each of its letters."""
    return [row[: len(word)].tolist() for word, row in zip(EXAMPLES, chances(EXAMPLES), strict=True)]


def ranks_of(chances: Float[np.ndarray, "N S"], data: Sequence[Typo]) -> Int[np.ndarray, " N"]:
    """The rank of each typo's position, from 1: one more than there are likelier ones."""
    wanted = chances[np.arange(len(data)), [typo.position - 1 for typo in data]]
    ranks: Int[np.ndarray, " N"] = 1 + (chances > wanted[:, None]).sum(axis=1)
    return ranks


@torch.inference_mode()
def chances_of(network: TypoNetwork, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """The probability of each position of each word."""
    rows = numbered(words, network.sizes.longest)
    parts = [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
    return np.concatenate([network(part).softmax(dim=1).numpy() for part in parts])


def numbered(words: Sequence[str], longest: int) -> Int[Tensor, "N S"]:
    """Words as numbers, padded to the longest."""
    rows = np.full((len(words), longest), PADDING, np.int64)
    for row, word in zip(rows, words, strict=True):
        row[: len(word)] = [_NUMBERS[letter] for letter in word]
    return torch.from_numpy(rows)


def vectors_of(network: TypoNetwork) -> Float[np.ndarray, "V 2"]:
    """The symbols' vectors as they are now."""
    return network.table.weight.detach().numpy().copy()


def _batches(count: int, batch: int, updates: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Rows for each update: all of them in a new order at each pass, the last batch of a pass whole."""
    generator, left = np.random.default_rng([seed, 0]), np.zeros(0, np.int64)
    for _ in range(updates):
        while len(left) < batch:
            left = np.concatenate([left, generator.permutation(count)])
        yield torch.from_numpy(left[:batch])
        left = left[batch:]
