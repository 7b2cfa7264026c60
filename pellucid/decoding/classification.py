"""ClassificationPredictor: prediction with networks that give all answers at once: tags, a class or a position.

B sources of a batch, T answers of each (its positions, or one), W possible answers, S source positions, C candidates
kept for inspection, L attention hops.
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
from pellucid.decoding.answers import hypothesis_of
from pellucid.decoding.beam_search import Hypothesis
from pellucid.decoding.constraints import FREE
from pellucid.decoding.options import NO_OPTIONS, DecodingOptions
from pellucid.decoding.outputs import CANDIDATES, DecodedOutput, to_array
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import InferenceBatch, SearchRequest
from pellucid.decoding.streaming import ExampleChunk
from pellucid.decoding.trace import Trace, own_positions
from pellucid.errors import ConfigError, DataError, quote
from pellucid.model.reader import EncoderOnlyModel
from pellucid.tasks.task_settings import get_task_settings


class BatchAnswers(NamedTuple):
    """Distributions over the answers of one batch."""

    values: Float[np.ndarray, "B T W"]
    """Log-probability of each answer; −∞ for impossible answers and beyond a source's end."""
    weights: Float[np.ndarray, "B T S"]
    """Attention weights of each answer; a tag has weight 1 at its own position."""
    looks: Float[np.ndarray, "B L S"] | None
    """Attention weights of each hop, for classifiers with several."""

    def seen(self, row: int, steps: int, positions: int) -> "AnswerAttention":
        """Return the attention of one source."""
        looks = None if self.looks is None else self.looks[row, :, :positions]
        return AnswerAttention(self.weights[row, :steps, :positions], looks)


class AnswerAttention(NamedTuple):
    """Attention weights of the answers of one source."""

    weights: Float[np.ndarray, "T S"]
    looks: Float[np.ndarray, "L S"] | None


class TopAnswers(NamedTuple):
    """The most probable ids of each answer of a source."""

    ids: Int[np.ndarray, "T C"]
    values: Float[np.ndarray, "T C"]


@dataclass(frozen=True)
class ClassificationPredictor(Predictor):
    """Predictor of tags, classes and positions. It needs no search."""

    def with_options(self, options: DecodingOptions) -> "ClassificationPredictor":
        """Raise `ConfigError` for any option: options apply to outputs that are decoded symbol by symbol."""
        options = convert_argument("options", options, DecodingOptions)
        for field in fields(DecodingOptions):
            if getattr(options, field.name) != getattr(NO_OPTIONS, field.name):
                raise self.refused(field.name)
        return self

    def _forced(self, part: ExampleChunk) -> list[Trace]:
        """Score the targets of examples.

        The log-probability of a tag or class that training never saw is −∞; of an ignored tag it is 0.

        Raises:
            DataError: A target does not fit its source.
        """
        given = part.examples
        for number, example in enumerate(given, start=part.first + 1):
            fault = pair_error(example.source, example.target, self.tokenizers, self.config.data)
            if fault or not self.tokenizers.source.split(example.source):
                raise DataError(f"pair {number}: {fault or 'the source is empty'}")
        symbols = [self.tokenizers.target.split(example.target) for example in given]

        def score(work: InferenceBatch) -> list[list[Hypothesis]]:
            """Score one batch."""
            likely = self.likely(work)
            rows = zip(work.rows.tolist(), work.positions.tolist(), strict=True)
            return [[self._given(likely, at, symbols[row], size)] for at, (row, size) in enumerate(rows)]

        traces = self._lists(part, SearchRequest(1, 1, FREE), score)
        scored = zip(traces, given, symbols, strict=True)
        known = {*self.vocabularies.target.symbols, self.tokenizers.target.ignored_tag}
        return [_as_given(own, example.target, each, known) for (own,), example, each in scored]

    def distributions(self, examples: Iterable[Example]) -> list[Float[np.ndarray, "T W"]]:
        """Return the log-probabilities of all answers, one array per example; an empty source has no row."""
        given: list[Example] = convert_argument("examples", examples, Sequence[Example])
        size = len(self.vocabularies.target)
        rows = [np.zeros((0, size)) for _ in given]

        def note(work: InferenceBatch) -> list[list[Hypothesis]]:
            """Store the distributions of one batch."""
            likely = self.likely(work)
            for at, (row, steps) in enumerate(zip(work.rows.tolist(), self._steps(work, likely), strict=True)):
                own = likely.values[at, :steps]
                rows[row] = np.full((steps, size), -np.inf)  # of positions there are more than a source has
                rows[row][:, : own.shape[1]] = own
            return self._answered(work, 1)

        self._lists(ExampleChunk(given), SearchRequest(1, 1, FREE), note)
        return rows

    def likely(self, work: InferenceBatch) -> BatchAnswers:
        """Return the mean probabilities and attention weights of all networks for a batch."""
        found, weights, looks = list[Tensor](), list[Tensor](), list[Tensor]()
        orders = self.members.orders or (None,)
        read = zip(self.networks, self.own_sources(work.source), orders, strict=True)
        for network, source, order in read:
            reader = cast(EncoderOnlyModel, network)
            made = reader.answer(reader.encoder(source, work.lengths))
            logits = made.logits if order is None else made.logits[:, :, order]
            logits[:, :, :NUM_SPECIAL] = -torch.inf
            found.append(logits.log_softmax(dim=-1))
            weights.append(made.weights)
            looks += [] if made.hop_weights is None or made.hop_weights.shape[1] == 1 else [made.hop_weights]
        mean = found[0] if len(found) == 1 else torch.stack(found).logsumexp(dim=0) - math.log(len(found))
        own = self._per_position
        attention = _own_places(mean.shape[1], len(mean)) if own else to_array(torch.stack(weights).mean(dim=0))
        several = to_array(torch.stack(looks).mean(dim=0)) if looks and len(looks) == len(found) else None
        return BatchAnswers(to_array(mean), attention, several)

    def _searched(self, part: ExampleChunk, best: int) -> list[list[Trace]]:
        """Return the most probable answers of each example; prefixes and several taggings raise `ConfigError`."""
        if part.prefixes is not None:
            raise self.refused("prefixes")
        if best > 1 and self._per_position:
            raise self._single("one tagging; its traces hold each tag's rivals")
        return self._lists(part, SearchRequest(best, best, FREE), lambda work: self._answered(work, best))

    def _answered(self, work: InferenceBatch, best: int) -> list[list[Hypothesis]]:
        """Answer one batch: the most probable tags, or the `best` most probable classes or positions."""
        likely = self.likely(work)
        top = torch.from_numpy(likely.values).topk(min(max(best, CANDIDATES), likely.values.shape[2] - NUM_SPECIAL))
        ids, values, answered = to_array(top.indices), to_array(top.values), list[list[Hypothesis]]()
        if best > 1 and likely.values.shape[1] > 1:
            raise self._single("one output; its traces hold each answer's rivals")
        for at, steps in enumerate(self._steps(work, likely)):
            there = int(np.isfinite(values[at, 0]).sum())  # a source may have fewer positions than its neighbours
            own = TopAnswers(ids[at, :steps, :there], values[at, :steps, :there])
            seen = likely.seen(at, steps, int(work.positions[at]))
            answered.append([_found(own, rank, seen) for rank in range(min(best, there))])
        return answered

    def _single(self, what: str) -> ConfigError:
        """Return the error for an n-best list of a task with one output per source."""
        return ConfigError(f"nbest: a model whose task is {quote(self.config.task)} gives {what}")

    @property
    def _per_position(self) -> bool:
        """True if each source position has its own answer."""
        return get_task_settings(self.config.task).per_position

    def _steps(self, work: InferenceBatch, likely: BatchAnswers) -> list[int]:
        """Return the number of answers of each source of a batch."""
        positions: list[int] = work.positions.tolist()
        return positions if self._per_position else [likely.values.shape[1]] * len(positions)

    def _given(self, likely: BatchAnswers, at: int, symbols: Sequence[str], positions: int) -> Hypothesis:
        """Return given answers in the form of decoded ones."""
        steps, unscored = len(symbols), self.tokenizers.target.ignored_tag
        ids, values = np.array(self.vocabularies.target.encode(symbols)), likely.values[at, : len(symbols)]
        own = values[np.arange(steps), ids]
        if unscored:
            own = np.where([symbol == unscored for symbol in symbols], np.float32(0), own)
        top = torch.from_numpy(values).topk(min(CANDIDATES, int(np.isfinite(values[0]).sum())))
        seen = likely.seen(at, steps, positions)
        return hypothesis_of(
            DecodedOutput(ids, own, seen.weights, to_array(top.indices), to_array(top.values), looks=seen.looks)
        )


def _found(best: TopAnswers, rank: int, seen: AnswerAttention) -> Hypothesis:
    """Return the answers of one rank, with the most probable candidates of each step."""
    top = best.ids[:, :CANDIDATES], best.values[:, :CANDIDATES]
    return hypothesis_of(DecodedOutput(best.ids[:, rank], best.values[:, rank], seen.weights, *top, looks=seen.looks))


def _own_places(answers: int, rows: int) -> Float[np.ndarray, "B T T"]:
    """Return one identity matrix, shared by all rows: each tag attends to its own position."""
    return np.broadcast_to(own_positions(answers, answers, 0), (rows, answers, answers))


def _as_given(trace: Trace, text: str, symbols: Sequence[str], known: Container[str]) -> Trace:
    """Return the trace of a scored target, with the target's own spelling of symbols outside the vocabulary."""
    unknown = tuple(at for at, symbol in enumerate(symbols) if symbol not in known)
    return replace(trace, target=tuple(symbols), output=text, origin="given", unknown_target=unknown)
