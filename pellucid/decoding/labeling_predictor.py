"""LabelingPredictor: prediction with networks that give all labels at once: tags, a class or a position.

B sources of a batch, T labels of each (its positions, or one), W possible labels, S source positions, C candidates
kept for inspection, L attention hops.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from pellucid.argument_checks import convert_argument
from pellucid.config.task_settings import get_task_settings
from pellucid.data.examples import Example, pair_error
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.decoding.constraints import NO_CONSTRAINTS
from pellucid.decoding.derived_traces import scored_trace
from pellucid.decoding.hypothesis import Hypothesis, check_finite_outputs, hypothesis_of
from pellucid.decoding.inference import log_mean_exp
from pellucid.decoding.options import NO_OPTIONS, DecodingOptions
from pellucid.decoding.outputs import CANDIDATES, DecodedOutput
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import ChunkConfig, SourceBatch
from pellucid.decoding.streaming import ExampleChunk
from pellucid.decoding.topk import to_array
from pellucid.decoding.trace import Trace, identity_attention
from pellucid.errors import ConfigError, DataError, quote
from pellucid.model.labeling_networks import LabelingNetwork
from pellucid.shapes import Float, Int


class BatchLabels(NamedTuple):
    """Distributions over the labels of one batch, averaged over the networks."""

    log_probabilities: Float[np.ndarray, "B T W"]
    """Log-probability of each label; −∞ for impossible labels and beyond a source's end."""
    weights: Float[np.ndarray, "B A S"]
    """Attention weights of each label, or of the first A: a tag has weight 1 at its own position."""
    hop_weights: Float[np.ndarray, "B L S"] | None
    """Attention weights of each hop, if every network has several; else None."""

    def attention_of(self, row: int, steps: int, positions: int) -> "LabelAttention":
        """Return the attention weights of one source, without padding.

        Args:
            row: Row of the source in the batch.
            steps: Number of its labels.
            positions: Number of its positions.
        """
        hop_weights = None if self.hop_weights is None else self.hop_weights[row, :, :positions]
        weights = self.weights[row, :steps, :positions]
        if len(weights) < steps:  # those of a class, which tags follow
            weights = np.concatenate([weights, identity_attention(steps - len(weights), positions, 0)])
        return LabelAttention(weights, hop_weights)


class LabelAttention(NamedTuple):
    """Attention weights of the labels of one source."""

    weights: Float[np.ndarray, "T S"]
    hop_weights: Float[np.ndarray, "L S"] | None
    """Attention weights of each hop; None for one hop."""


class TopLabels(NamedTuple):
    """The most probable ids for each label of a source, the most probable first."""

    ids: Int[np.ndarray, "T C"]
    log_probabilities: Float[np.ndarray, "T C"]


LabelingPredictorT = TypeVar("LabelingPredictorT", bound="LabelingPredictor")
"""Type of the predictor on which a method is called."""


@dataclass(frozen=True)
class LabelingPredictor(Predictor):
    """Predictor of tags, classes and positions, by one network or several: no search, and no options."""

    def with_options(self: LabelingPredictorT, options: DecodingOptions) -> LabelingPredictorT:
        """Return this predictor if no option is set; options apply to outputs that are decoded symbol by symbol.

        Args:
            options: Options, all of which must have their default.

        Raises:
            ArgumentError: The argument has a wrong type.
            ConfigError: An option is set.
        """
        options = convert_argument("options", options, DecodingOptions)
        for field in fields(DecodingOptions):
            if getattr(options, field.name) != getattr(NO_OPTIONS, field.name):
                raise self.unsupported_error(field.name)
        return self

    def _score_chunk(self, chunk: ExampleChunk) -> list[Trace]:
        """Score the targets of examples.

        The log-probability of a tag or class that training never saw is −∞; of an ignored tag it is 0.

        Raises:
            DataError: A target does not fit its source.
        """
        examples = chunk.examples
        for number, example in enumerate(examples, start=chunk.first + 1):
            error = pair_error(example.source, example.target, self.tokenizers, self.config.data)
            if error or not self.tokenizers.source.split(example.source):
                raise DataError(f"pair {number}: {error or 'the source is empty'}")
        symbols = [self.tokenizers.target.split(example.target) for example in examples]
        prepared = self._encode_chunk(chunk, ChunkConfig(1, 1, NO_CONSTRAINTS))
        with self._inference_context(prepared.num_hypotheses):
            for batch in self._batches(prepared):
                labels = self.label_distributions(batch)
                rows = enumerate(zip(batch.rows.tolist(), batch.positions.tolist(), strict=True))
                scores = [[self._score_labels(labels, index, symbols[row], size)] for index, (row, size) in rows]
                self._add_traces(prepared, batch, scores)
        scored = zip(self._all_traces(prepared), examples, symbols, strict=True)
        vocabulary = {*self.vocabularies.target.symbols, self.tokenizers.target.ignored_tag}
        return [scored_trace(trace, example.target, target, vocabulary) for (trace,), example, target in scored]

    def distributions(self, examples: Iterable[Example]) -> list[Float[np.ndarray, "T W"]]:
        """Return the log-probability of each possible label.

        Args:
            examples: Examples; their targets are ignored. Any iterable is read at once.

        Returns:
            One array per example, in order, with one row per label and one column per target id; −∞ for special ids
            and for positions that the source does not have. An empty source has no row.

        Raises:
            ArgumentError: The argument has a wrong type.
            DataError: A source is too long, or has features and the model reads none.
            RunError: A network computes numbers that are not finite (`NotFiniteError`), or a forked process cannot use
                the GPU.
        """
        inputs: list[Example] = convert_argument("examples", examples, Sequence[Example])
        size = len(self.vocabularies.target)
        rows = [np.zeros((0, size)) for _ in inputs]
        prepared = self._encode_chunk(ExampleChunk(inputs), ChunkConfig(1, 1, NO_CONSTRAINTS))
        with self._inference_context(prepared.num_hypotheses):
            for batch in self._batches(prepared):
                labels = self.label_distributions(batch)
                check_finite_outputs(self._rank_labels(batch, labels, 1), self.name, self.config)
                steps_of_sources = self._steps(batch, labels)
                for index, (row, steps) in enumerate(zip(batch.rows.tolist(), steps_of_sources, strict=True)):
                    values = labels.log_probabilities[index, :steps]
                    # A batch of a pointing task may have fewer columns than there are target ids.
                    rows[row] = np.full((steps, size), -np.inf)
                    rows[row][:, : values.shape[1]] = values
        return rows

    def label_distributions(self, batch: SourceBatch) -> BatchLabels:
        """Run all networks on a batch, and return the mean of their probabilities and attention weights.

        Args:
            batch: Sources of the batch.
        """
        log_probabilities, weights, all_hops = list[Tensor](), list[Tensor](), list[Tensor]()
        orders = self.members.target_id_maps or (None,)
        inputs = zip(self.map_source_ids(batch.source), self.map_characters(batch.characters), strict=True)
        for network, (source, characters), order in zip(self.networks, inputs, orders, strict=True):
            model = cast(LabelingNetwork, network)
            output = model.forward_memory(model.encoder(source, batch.lengths, characters))
            logits = output.logits if order is None else output.logits[:, :, order]
            logits[:, :, :NUM_SPECIAL] = -torch.inf
            log_probabilities.append(logits.log_softmax(dim=-1))
            weights.append(output.weights)
            all_hops += [] if output.hop_weights is None or output.hop_weights.shape[1] == 1 else [output.hop_weights]
        mean = log_probabilities[0] if len(log_probabilities) == 1 else log_mean_exp(torch.stack(log_probabilities))
        per_position = self._per_position
        attention = (
            _identity_weights(mean.shape[1], len(mean)) if per_position else to_array(torch.stack(weights).mean(dim=0))
        )
        hops = (
            to_array(torch.stack(all_hops).mean(dim=0))
            if all_hops and len(all_hops) == len(log_probabilities)
            else None
        )
        return BatchLabels(to_array(mean), attention, hops)

    def check_search(self, nbest: int, has_example_prefixes: bool) -> None:
        """Raise `ConfigError` for prefixes and several taggings, and as in `Predictor.check_search`.

        Args:
            nbest: Maximum number of outputs per source.
            has_example_prefixes: True if each output has its own prefix.
        """
        super().check_search(nbest, has_example_prefixes)
        if has_example_prefixes:
            raise self.unsupported_error("prefixes")
        if nbest > 1 and (self._per_position or self._class_first):
            raise self._single_output_error("one tagging; its traces hold the candidates of each tag")

    def _search_chunk(self, chunk: ExampleChunk, nbest: int) -> list[list[Trace]]:
        """Return the most probable labels of each example."""
        prepared = self._encode_chunk(chunk, ChunkConfig(nbest, nbest, NO_CONSTRAINTS))
        with self._inference_context(prepared.num_hypotheses):
            for batch in self._batches(prepared):
                labels = self.label_distributions(batch)
                self._add_traces(prepared, batch, self._rank_labels(batch, labels, nbest))
        return self._all_traces(prepared)

    def _rank_labels(self, batch: SourceBatch, labels: BatchLabels, nbest: int) -> list[list[Hypothesis]]:
        """Return the most probable tags of each source, or its `nbest` most probable classes or positions."""
        num_labels = labels.log_probabilities.shape[2] - NUM_SPECIAL
        top = torch.from_numpy(labels.log_probabilities).topk(min(max(nbest, CANDIDATES), num_labels))
        ids = to_array(top.indices)
        values = to_array(top.values)
        ranked = list[list[Hypothesis]]()
        if nbest > 1 and labels.log_probabilities.shape[1] > 1:
            raise self._single_output_error("one output; its traces hold the candidates of each label")
        for index, steps in enumerate(self._steps(batch, labels)):
            # A source may have fewer positions than others, and there may be fewer classes than tags.
            possible = int(np.isfinite(values[index, :steps]).sum(axis=1).max())
            candidates = TopLabels(ids[index, :steps, :possible], values[index, :steps, :possible])
            attention = labels.attention_of(index, steps, int(batch.positions[index]))
            ranked.append([_ranked_hypothesis(candidates, rank, attention) for rank in range(min(nbest, possible))])
        return ranked

    def _single_output_error(self, output: str) -> ConfigError:
        """Return the error for an n-best list of a task with one output per source."""
        return ConfigError(f"count: expected 1, because a model whose task is {quote(self.config.task)} gives {output}")

    @property
    def _per_position(self) -> bool:
        """True if each source position has its own label."""
        return get_task_settings(self.config.task).per_position

    @property
    def _class_first(self) -> bool:
        """True if the tags of a source follow its class."""
        return get_task_settings(self.config.task).class_first

    def _count_logits(self, length: int) -> int:
        """Return the number of logits of all labels of a source of a length."""
        return super()._count_logits(length) * (
            length if self._per_position else length + 1 if self._class_first else 1
        )

    def _steps(self, batch: SourceBatch, labels: BatchLabels) -> list[int]:
        """Return the number of labels of each source of a batch."""
        positions: list[int] = batch.positions.tolist()
        if self._class_first:
            return [length + 1 for length in positions]
        return positions if self._per_position else [labels.log_probabilities.shape[1]] * len(positions)

    def _score_labels(self, labels: BatchLabels, index: int, symbols: Sequence[str], positions: int) -> Hypothesis:
        """Return the hypothesis of given labels, with their log-probabilities."""
        steps = len(symbols)
        ignored = self.tokenizers.target.ignored_tag
        ids = np.array(self.vocabularies.target.encode(symbols))
        values = labels.log_probabilities[index, :steps]
        log_probabilities = values[np.arange(steps), ids]
        if ignored:
            log_probabilities = np.where([symbol == ignored for symbol in symbols], np.float32(0), log_probabilities)
        top = torch.from_numpy(values).topk(min(CANDIDATES, int(np.isfinite(values).sum(axis=1).max())))
        attention = labels.attention_of(index, steps, positions)
        return hypothesis_of(
            DecodedOutput(
                ids,
                log_probabilities,
                attention.weights,
                to_array(top.indices),
                to_array(top.values),
                hop_weights=attention.hop_weights,
            )
        )


def _ranked_hypothesis(candidates: TopLabels, rank: int, attention: LabelAttention) -> Hypothesis:
    """Return the labels of one rank, with the most probable candidates of each step."""
    top = candidates.ids[:, :CANDIDATES], candidates.log_probabilities[:, :CANDIDATES]
    return hypothesis_of(
        DecodedOutput(
            candidates.ids[:, rank],
            candidates.log_probabilities[:, rank],
            attention.weights,
            *top,
            hop_weights=attention.hop_weights,
        )
    )


def _identity_weights(labels: int, rows: int) -> Float[np.ndarray, "B T T"]:
    """Return one identity matrix, shared by all rows: each tag attends to its own position."""
    return np.broadcast_to(identity_attention(labels, labels, 0), (rows, labels, labels))
