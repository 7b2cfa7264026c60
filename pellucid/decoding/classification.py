"""ClassificationPredictor: the predictor of networks that give all their answers at once: tags, a class, a position.

B sources of a batch, T answers of each (its positions, or one), W ids that can be answered with, S source positions, C
candidates kept for inspection, L looks.
"""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.arguments import convert_argument
from pellucid.data.examples import Example, pair_error
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.decoding.answers import found_of
from pellucid.decoding.beam_search import Found
from pellucid.decoding.constraints import FREE
from pellucid.decoding.options import NO_OPTIONS, Options
from pellucid.decoding.outputs import CANDIDATES, Decoded, array
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import Asked, Work
from pellucid.decoding.streaming import Part
from pellucid.decoding.trace import Trace
from pellucid.errors import ConfigError, DataError, quote
from pellucid.model.reader import Reader
from pellucid.tasks.task_settings import get_task_settings


class Likely(NamedTuple):
    """What a batch is answered with."""

    values: Float[np.ndarray, "B T W"]
    """ln p of each id; −∞ for those of no answer, and for positions beyond a source's end."""
    weights: Float[np.ndarray, "B T S"]
    """Where each answer looked: at its own position, or by attention."""
    looks: Float[np.ndarray, "B L S"] | None
    """Of answers that took several looks, each of them."""

    def seen(self, row: int, steps: int, positions: int) -> "Seen":
        """Those of one source."""
        looks = None if self.looks is None else self.looks[row, :, :positions]
        return Seen(self.weights[row, :steps, :positions], looks)


class Seen(NamedTuple):
    """Where the answers of one source looked."""

    weights: Float[np.ndarray, "T S"]
    looks: Float[np.ndarray, "L S"] | None


class Best(NamedTuple):
    """The likeliest ids of each answer of a source."""

    ids: Int[np.ndarray, "T C"]
    values: Float[np.ndarray, "T C"]


@dataclass(frozen=True)
class ClassificationPredictor(Predictor):
    """Networks that answer each source at once: there is nothing to search."""

    def with_options(self, options: Options) -> "ClassificationPredictor":
        """The same; `ConfigError` for any option, for all are of outputs written symbol by symbol."""
        options = convert_argument("options", options, Options)
        for field in fields(Options):
            if getattr(options, field.name) != getattr(NO_OPTIONS, field.name):
                raise self.refused(field.name)
        return self

    def _forced(self, part: Part) -> list[Trace]:
        """The targets of examples as though they had been answered.

        ln p of a tag or class never seen in training is −∞: it cannot be answered; of a tag that is not scored it is 0.
        `DataError` for a target that is none of its source.
        """
        given = part.examples
        for number, example in enumerate(given, start=part.first + 1):
            fault = pair_error(example.source, example.target, self.tokenizers, self.config.data)
            if fault or not self.tokenizers.source.split(example.source):
                raise DataError(f"pair {number}: {fault or 'the source is empty'}")
        symbols = [self.tokenizers.target.split(example.target) for example in given]

        def score(work: Work) -> list[list[Found]]:
            """One batch."""
            likely = self.likely(work)
            rows = zip(work.rows.tolist(), work.positions.tolist(), strict=True)
            return [[self._given(likely, at, symbols[row], size)] for at, (row, size) in enumerate(rows)]

        traces = self._lists(part, Asked(1, 1, FREE), score)
        scored = zip(traces, given, symbols, strict=True)
        known = {*self.vocabularies.target.symbols, self.tokenizers.target.ignored_tag}
        return [_as_given(own, example.target, each, known) for (own,), example, each in scored]

    def distributions(self, examples: Iterable[Example]) -> list[Float[np.ndarray, "T W"]]:
        """ln p of all ids at each answer, example by example; of a source without symbols there is no row."""
        given: list[Example] = convert_argument("examples", examples, Sequence[Example])
        size = len(self.vocabularies.target)
        rows = [np.zeros((0, size)) for _ in given]

        def note(work: Work) -> list[list[Found]]:
            """One batch, kept as it is."""
            likely = self.likely(work)
            for at, (row, steps) in enumerate(zip(work.rows.tolist(), self._steps(work, likely), strict=True)):
                own = likely.values[at, :steps]
                rows[row] = np.full((steps, size), -np.inf)  # of positions there are more than a source has
                rows[row][:, : own.shape[1]] = own
            return self._answered(work, 1)

        self._lists(Part(given), Asked(1, 1, FREE), note)
        return rows

    def likely(self, work: Work) -> Likely:
        """What all networks make of a batch: the mean of their p, and of their weights."""
        found, weights, looks = list[Tensor](), list[Tensor](), list[Tensor]()
        orders = self.members.orders or (None,)
        read = zip(self.networks, self.own_sources(work.source), orders, strict=True)
        for network, source, order in read:
            reader = cast(Reader, network)
            made = reader.answer(reader.encoder(source, work.lengths))
            logits = made.logits if order is None else made.logits[:, :, order]
            logits[:, :, :NUM_SPECIAL] = -torch.inf
            found.append(logits.log_softmax(dim=-1))
            weights.append(made.weights)
            looks += [] if made.looks is None or made.looks.shape[1] == 1 else [made.looks]
        mean = found[0] if len(found) == 1 else torch.stack(found).logsumexp(dim=0) - math.log(len(found))
        own = self._per_position
        attention = _own_places(mean.shape[1], len(mean)) if own else array(torch.stack(weights).mean(dim=0))
        several = array(torch.stack(looks).mean(dim=0)) if looks and len(looks) == len(found) else None
        return Likely(array(mean), attention, several)

    def _searched(self, part: Part, best: int) -> list[list[Trace]]:
        """The likeliest answers of each example; `ConfigError` for prefixes, and for several taggings."""
        if part.prefixes is not None:
            raise self.refused("prefixes")
        if best > 1 and self._per_position:
            raise self._single("one tagging; its traces hold each tag's rivals")
        return self._lists(part, Asked(best, best, FREE), lambda work: self._answered(work, best))

    def _answered(self, work: Work, best: int) -> list[list[Found]]:
        """One batch: the likeliest tags, or the `best` likeliest classes or positions."""
        likely = self.likely(work)
        top = torch.from_numpy(likely.values).topk(min(max(best, CANDIDATES), likely.values.shape[2] - NUM_SPECIAL))
        ids, values, answered = array(top.indices), array(top.values), list[list[Found]]()
        if best > 1 and likely.values.shape[1] > 1:
            raise self._single("one output; its traces hold each answer's rivals")
        for at, steps in enumerate(self._steps(work, likely)):
            there = int(np.isfinite(values[at, 0]).sum())  # a source may have fewer positions than its neighbours
            own = Best(ids[at, :steps, :there], values[at, :steps, :there])
            seen = likely.seen(at, steps, int(work.positions[at]))
            answered.append([_found(own, rank, seen) for rank in range(min(best, there))])
        return answered

    def _single(self, what: str) -> ConfigError:
        """The error of a list of outputs where a source has only one."""
        return ConfigError(f"nbest: a model whose task is {quote(self.config.task)} gives {what}")

    @property
    def _per_position(self) -> bool:
        """Whether each source position has its own answer."""
        return get_task_settings(self.config.task).per_position

    def _steps(self, work: Work, likely: Likely) -> list[int]:
        """How many answers each source of a batch has."""
        positions: list[int] = work.positions.tolist()
        return positions if self._per_position else [likely.values.shape[1]] * len(positions)

    def _given(self, likely: Likely, at: int, symbols: Sequence[str], positions: int) -> Found:
        """Given answers as though they had been found."""
        steps, unscored = len(symbols), self.tokenizers.target.ignored_tag
        ids, values = np.array(self.vocabularies.target.encode(symbols)), likely.values[at, : len(symbols)]
        own = values[np.arange(steps), ids]
        if unscored:
            own = np.where([symbol == unscored for symbol in symbols], np.float32(0), own)
        top = torch.from_numpy(values).topk(min(CANDIDATES, int(np.isfinite(values[0]).sum())))
        seen = likely.seen(at, steps, positions)
        return found_of(Decoded(ids, own, seen.weights, array(top.indices), array(top.values), looks=seen.looks))


def _found(best: Best, rank: int, seen: Seen) -> Found:
    """The answers of one rank, with the likeliest ones of each step."""
    top = best.ids[:, :CANDIDATES], best.values[:, :CANDIDATES]
    return found_of(Decoded(best.ids[:, rank], best.values[:, rank], seen.weights, *top, looks=seen.looks))


def _own_places(answers: int, rows: int) -> Float[np.ndarray, "B T T"]:
    """Weights of answers that each look at their own position: one identity, which all rows share."""
    return np.broadcast_to(np.eye(answers, dtype=np.float32), (rows, answers, answers))


def _as_given(trace: Trace, text: str, symbols: Sequence[str], known: Container[str]) -> Trace:
    """What was scored, in its own spelling, also where the model does not know a symbol."""
    unknown = tuple(at for at, symbol in enumerate(symbols) if symbol not in known)
    return replace(trace, target=tuple(symbols), output=text, origin="given", unknown_target=unknown)
