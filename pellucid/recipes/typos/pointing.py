"""One training of attention that foretells: first on words as they are, then on typos.

N words or typos, S positions, V symbols.
"""

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.data.synthetic import Typo, read_words
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.following import Reached
from pellucid.recipes.typos.foretelling import ForetellingPointer, Widths, foretelling_loss
from pellucid.recipes.typos.report import Run
from pellucid.recipes.typos.study import CHUNK, Step, answers, data_of, examples_of, numbered, validated
from pellucid.worker_pool import ProgressCallback

POOL = 64
"""Batches whose rows are sorted by length together."""


class Course(NamedTuple):
    """How the network is trained."""

    passes: int = 12
    """Over the words that typos are made of, foretelling alone."""
    samples: int = 1_200_000
    """Typos, after that."""
    batch: int = 64
    rate: float = 0.002
    """Of Adam, in both parts; it falls along half a cosine to zero."""
    warm: int = 200
    """Updates of the second part over which the rate rises: the energies start with no knowledge of what they read."""
    foretelling: float = 0.3
    """Weight of the foretelling loss beside that of the position and the letter."""
    dropped: tuple[float, float] = (0.1, 0.2)
    """Dropout of the letters' vectors and of the sides' states, in the first part."""
    norm: float = 1.0
    """Gradients longer than this are shortened to it."""
    validations: int = 20


class Job(NamedTuple):
    """One training: on typos of which list, of which widths, how, from which seed."""

    words: Path
    widths: Widths
    course: Course
    seed: int


class Rows(NamedTuple):
    """Words as numbers."""

    words: Int[Tensor, "N S"]
    lengths: Int[Tensor, " N"]

    def take(self, rows: Int[Tensor, " B"]) -> "Rows":
        """Some of them, no wider than the longest."""
        lengths = self.lengths[rows]
        return Rows(self.words[rows, : int(lengths.max())], lengths)


class Corrections(NamedTuple):
    """What is to be found in typos."""

    positions: Int[Tensor, " N"]
    """Counted from 0."""
    letters: Int[Tensor, " N"]
    """The letter that was meant there."""


def conduct(job: Job, tell: ProgressCallback) -> Run:
    """Train and judge, on one thread; the outcome is a function of the job, its seconds apart."""
    use_threads(1)
    data = data_of(read_words(job.words, max_length=job.widths.longest), job.seed)
    torch.manual_seed(job.seed)
    network = ForetellingPointer(job.widths)
    chances, course, started = partial(chances_of, network), job.course, time.perf_counter()
    learn_words(network, job, sorted({typo.right for typo in data.train}), tell)
    reading = time.perf_counter() - started
    steps = learn_typos(network, job, data.train)
    curve, seconds = validated(steps, course.batch, course.validations, lambda: answers(chances, data.dev), tell)
    return Run(
        seed=job.seed,
        parameters=parameter_count(network),
        seconds=reading + seconds,
        curve=curve,
        test=data.test,
        answers=answers(chances, data.test),
        examples=examples_of(chances),
    )


def learn_words(network: ForetellingPointer, job: Job, words: Sequence[str], tell: ProgressCallback) -> None:
    """Learn which letters stand beside which, from words as they are; told after each pass."""
    rows, course = rows_of(words, job.widths.longest), job.course
    once = math.ceil(len(words) / course.batch)
    updates, costs = course.passes * once, list[float]()
    optimizer = torch.optim.Adam(network.parameters(), course.rate)
    for update, chosen in enumerate(_batches(rows.lengths, course.batch, updates, job.seed), 1):
        part = rows.take(chosen)
        sides = network.read(*part, dropped=course.dropped[0])
        cost = foretelling_loss(part.words, network.foretell(sides, dropped=course.dropped[1]))
        _step(network, optimizer, cost, course, (update - 1) / updates)
        costs.append(cost.item())
        if update % once == 0:
            bits = float(np.mean(costs)) / 2 / math.log(2)
            tell(Reached(update * course.batch, updates * course.batch, f"a letter is foretold with {bits:.3f} bits"))
            costs = []


def learn_typos(network: ForetellingPointer, job: Job, data: Sequence[Typo]) -> Iterator[Step]:
    """Learn where typos are and what was meant."""
    rows, course = rows_of([typo.wrong for typo in data], job.widths.longest), job.course
    right = numbered([typo.right for typo in data], job.widths.longest)
    positions = torch.tensor([typo.position - 1 for typo in data])
    sought = Corrections(positions, right[torch.arange(len(data)), positions])
    updates = math.ceil(course.samples / course.batch)
    optimizer = torch.optim.Adam(network.parameters(), course.rate)
    for update, chosen in enumerate(_batches(rows.lengths, course.batch, updates, job.seed), 1):
        part = rows.take(chosen)
        found, foretold = network(*part)
        cost = -found[torch.arange(len(chosen)), sought.positions[chosen], sought.letters[chosen]].mean()
        loss = cost + course.foretelling * foretelling_loss(part.words, foretold)
        _step(network, optimizer, loss, course, (update - 1) / updates, min(1.0, update / course.warm))
        yield update, updates, cost.item()


@torch.inference_mode()
def chances_of(network: ForetellingPointer, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """The weight on each position of each word; zero behind its end."""
    rows, found = rows_of(words, network.widths.longest), np.zeros((len(words), network.widths.longest))
    for first in range(0, len(words), CHUNK):
        part = rows.take(torch.arange(first, min(first + CHUNK, len(words))))
        weights = network(*part)[0].exp().sum(dim=2)
        found[first : first + CHUNK, : weights.shape[1]] = weights
    return found


def rows_of(words: Sequence[str], longest: int) -> Rows:
    """Words as numbers, with their lengths."""
    return Rows(numbered(words, longest), torch.tensor([len(word) for word in words]))


def _step(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Float[Tensor, ""],
    course: Course,
    done: float,
    warmth: float = 1.0,
) -> None:
    """One update after the share `done` of all."""
    for group in optimizer.param_groups:
        group["lr"] = course.rate * warmth * (1 + math.cos(math.pi * done)) / 2
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), course.norm)
    optimizer.step()


def _batches(lengths: Int[Tensor, " N"], batch: int, updates: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Rows of like length for each update: all of them at each pass, in another order; the last batch may be small."""
    generator, made = np.random.default_rng([seed, 1]), 0
    while True:
        order = generator.permutation(len(lengths))
        for first in range(0, len(order), POOL * batch):
            pool = torch.from_numpy(order[first : first + POOL * batch])
            parts = torch.split(pool[lengths[pool].argsort(stable=True)], batch)
            for part in generator.permutation(len(parts)):
                if made == updates:
                    return
                made += 1
                yield parts[part]
