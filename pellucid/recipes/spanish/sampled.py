"""Sampled softmax: the loss of a few words in place of all, in training alone; as TensorFlow's `sampled_softmax_loss`.

N predictions, H units, V words, C sampled words.
"""

import math
import time
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.model.device import use_threads
from pellucid.recipes.spanish.networks import Design, SpanishNetwork
from pellucid.recipes.spanish.sentences import EOS, GO, SPECIAL
from pellucid.recipes.spanish.training import Tensors

VOCABULARY, SAMPLED, BATCH, RATE = 50_000, 512, 32, 3e-3
WORDS = 7
"""Of every made-up sentence."""
DESIGN = Design(hidden=128, embedding=128, padding="masked")
EVERY, HELD_OUT, CHUNK = 50, 64, 128


class Drawn(NamedTuple):
    """Different words, and how many draws it took to have so many."""

    words: Int[np.ndarray, " C"]
    draws: int


def log_uniform(words: Int[np.ndarray, " N"], vocabulary: int) -> Float[np.ndarray, " N"]:
    """p(k) = ln((k + 2) / (k + 1)) / ln(V + 1): about what words have that are numbered by their frequency (Zipf)."""
    found: Float[np.ndarray, " N"] = np.log1p(1 / (words + 1.0)) / math.log(vocabulary + 1)
    return found


def draw_words(generator: np.random.Generator, count: int, vocabulary: int) -> Int[np.ndarray, " C"]:
    """So many words by `log_uniform`, with repetition: k = ⌊(V + 1)^x⌋ − 1, x uniform."""
    drawn = np.exp(generator.random(count) * math.log(vocabulary + 1)).astype(np.int64) - 1
    return np.clip(drawn, 0, vocabulary - 1)


def draw_different(generator: np.random.Generator, count: int, vocabulary: int) -> Drawn:
    """Words drawn until so many are different."""
    if not 0 < count < vocabulary:
        raise ValueError(f"of {vocabulary} words {count} different ones cannot be a sample")
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        drawn = np.concatenate([drawn, draw_words(generator, 2 * count, vocabulary)])
        words, places = np.unique(drawn, return_index=True)
        if len(words) >= count:
            last = np.sort(places)[:count]
            return Drawn(drawn[last], int(last[-1]) + 1)


def expected(words: Int[np.ndarray, " N"], draws: int, vocabulary: int) -> Float[np.ndarray, " N"]:
    """Q = 1 − (1 − p)^draws: how probable it was that a word is among those drawn."""
    found: Float[np.ndarray, " N"] = -np.expm1(draws * np.log1p(-log_uniform(words, vocabulary)))
    return found


def sampled_cost(
    outputs: Float[Tensor, "N H"], targets: Int[Tensor, " N"], softmax: nn.Linear, drawn: Drawn
) -> Float[Tensor, ""]:
    """Mean cross-entropy of each target among itself and the drawn words, each logit less ln Q of its word.

    A drawn word that is the target itself is left out. Source: Jean et al. 2015, section 3; TensorFlow 0.11,
    `nn.sampled_softmax_loss`.
    """
    words = torch.from_numpy(drawn.words)
    vocabulary = softmax.out_features
    weight, bias = softmax.weight, softmax.bias
    corrected = [
        torch.from_numpy(np.log(expected(each, drawn.draws, vocabulary))).float()
        for each in (targets.numpy(), drawn.words)
    ]
    own = (outputs * weight[targets]).sum(dim=1) + bias[targets] - corrected[0]
    others = outputs @ weight[words].T + bias[words] - corrected[1]
    others = others.masked_fill(words == targets[:, None], -torch.inf)
    return (torch.cat([own[:, None], others], dim=1).logsumexp(dim=1) - own).mean()


def full_cost(outputs: Float[Tensor, "N H"], targets: Int[Tensor, " N"], softmax: nn.Linear) -> Float[Tensor, ""]:
    """Mean cross-entropy over all words."""
    return nn.functional.cross_entropy(softmax(outputs), targets)


class Plan(NamedTuple):
    """One training."""

    cost: Literal["full", "sampled"]
    updates: int
    seed: int
    vocabulary: int = VOCABULARY
    sampled: int = SAMPLED


class Point(NamedTuple):
    """Where a training stands: updates, seconds of training, the full softmax's loss of held-out words."""

    updates: int
    seconds: float
    loss: float


class Outcome(NamedTuple):
    """One training."""

    plan: Plan
    curve: list[Point]
    update_seconds: float
    """The median of an update."""
    cost_seconds: float
    """The median of the loss alone, and of its gradient down to the decoder's outputs."""


def made_up(generator: np.random.Generator, count: int, vocabulary: int) -> Tensors:
    """Sentences of words by `log_uniform`, and their translations by a dictionary: word k is word k of the other."""
    words = draw_words(generator, count * WORDS, vocabulary - len(SPECIAL)).reshape(count, WORDS) + len(SPECIAL)
    first, last = (np.full((count, 1), each) for each in (GO, EOS))
    columns = words, np.full(count, WORDS), np.hstack([first, words]), np.hstack([words, last])
    return Tensors(*map(torch.from_numpy, columns))


def conduct(plan: Plan) -> Outcome:
    """Train on fresh sentences, on one thread; the validation is by all words, whatever the training was by."""
    use_threads(1)
    torch.manual_seed(plan.seed)
    network = SpanishNetwork(DESIGN, plan.vocabulary, plan.vocabulary)
    held_out = made_up(np.random.default_rng([plan.seed, 1]), HELD_OUT, plan.vocabulary)
    generator = np.random.default_rng([plan.seed, 2])
    optimizer = torch.optim.Adam(network.parameters(), RATE, fused=True)
    curve, updates, costs, spent = [Point(0, 0.0, held_out_loss(network, held_out))], list[float](), list[float](), 0.0
    for number in range(1, plan.updates + 1):
        batch = made_up(generator, BATCH, plan.vocabulary)
        started = time.process_time()
        costs.append(_update(network, optimizer, batch, (plan, generator)))
        updates.append(time.process_time() - started)
        spent += updates[-1]
        if number % EVERY == 0 or number == plan.updates:
            curve.append(Point(number, spent, held_out_loss(network, held_out)))
    return Outcome(plan, curve, float(np.median(updates)), float(np.median(costs)))


def _update(
    network: SpanishNetwork, optimizer: torch.optim.Adam, batch: Tensors, told: tuple[Plan, np.random.Generator]
) -> float:
    """One update; the seconds that the loss and its gradient took."""
    plan, generator = told
    network.train()
    optimizer.zero_grad()
    written = network(network.encode(batch.source, batch.lengths), batch.given).outputs.flatten(0, 1)
    cut = written.detach().requires_grad_()
    started = time.process_time()
    if plan.cost == "full":
        cost = full_cost(cut, batch.targets.flatten(), network.softmax)
    else:
        drawn = draw_different(generator, plan.sampled, plan.vocabulary)
        cost = sampled_cost(cut, batch.targets.flatten(), network.softmax, drawn)
    torch.autograd.backward(cost)
    took = time.process_time() - started
    written.backward(cut.grad)
    optimizer.step()
    return took


@torch.no_grad()
def held_out_loss(network: SpanishNetwork, data: Tensors) -> float:
    """Mean cross-entropy over all words, so many predictions at a time: their scores are large."""
    network.eval()
    outputs = network(network.encode(data.source, data.lengths), data.given).outputs.flatten(0, 1)
    targets = data.targets.flatten()
    parts = [slice(first, first + CHUNK) for first in range(0, len(targets), CHUNK)]
    costs = [full_cost(outputs[part], targets[part], network.softmax).item() * len(targets[part]) for part in parts]
    return sum(costs) / len(targets)
