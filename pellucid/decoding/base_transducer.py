"""Prediction of sequences, decoded symbol by symbol, whatever the backend that computes the steps.

PyTorch is not needed to import this module.
"""

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np

from pellucid.alignment.types import Alignment, chunks_of_sizes
from pellucid.argument_checks import convert_argument
from pellucid.data.encoding import to_ragged
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_sequence_examples
from pellucid.data.vocabulary import EOS
from pellucid.decoding.base_predictor import BasePredictor, PreparedChunk
from pellucid.decoding.beam_steps import BeamConfig
from pellucid.decoding.constraints import NO_CONSTRAINTS, Constraints
from pellucid.decoding.derived_traces import sampled_traces, scored_trace
from pellucid.decoding.hypothesis import Hypothesis, check_finite_outputs
from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking, hypothesis_scorer
from pellucid.decoding.length_limits import (
    check_length_limits,
    check_minimum,
    check_room,
    forbids_all_message,
    output_length_limits,
)
from pellucid.decoding.options import NO_OPTIONS, DecodingOptions, build_constraints, search_properties
from pellucid.decoding.outputs import BatchLengthLimits
from pellucid.decoding.pair_ngram_interpolation import (
    InterpolatedPairNgram,
    NetworkIds,
    TargetIds,
    propose_outputs,
    rank_by_interpolation,
    untrained_network_error,
)
from pellucid.decoding.preprocessing import ChunkConfig, SourceBatch, copyable_sources
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.streaming import ExampleChunk
from pellucid.decoding.trace import END, Trace
from pellucid.decoding.trace_schema import Origin
from pellucid.errors import ArgumentError, ConfigError, ConstraintError, DataError, count_noun
from pellucid.kernels.dispatch import fits_search_kernel
from pellucid.shapes import Int

TransducerT = TypeVar("TransducerT", bound="BaseTransducer")
"""Type of the predictor on which a method is called."""


@dataclass(frozen=True)
class BaseTransducer(BasePredictor):
    """Base of the predictors of encoder-decoders, which decode symbol by symbol, whatever the backend.

    Raises:
        ArgumentError: A field has a wrong type.
    """

    pair_ngram: InterpolatedPairNgram | None = None
    """Pair n-gram model whose outputs and scores take part in searches, by the ids of one network, unless its weight is
    0; None if there is none. Scores of given targets and samples are those of the network alone."""

    class_is_autoregressive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the types of the fields, and the sizes of the pair n-gram model."""
        super().__post_init__()
        pair_ngram = convert_argument("pair_ngram", self.pair_ngram, InterpolatedPairNgram | None)
        if pair_ngram is not None:
            self._check_pair_ngram(pair_ngram)

    def _check_pair_ngram(self, pair_ngram: InterpolatedPairNgram) -> None:
        """Raise `ArgumentError` for a pair n-gram model of other sizes than those of vocabularies and ensemble."""
        if pair_ngram.network_index >= self.num_networks:
            raise ArgumentError(
                f"pair_ngram.network_index: expected less than {self.num_networks}, got {pair_ngram.network_index}"
            )
        num_source, num_target = len(self.vocabularies.source), len(self.vocabularies.target)
        numbering = pair_ngram.model.numbering
        # The pair n-gram model of an ensemble has the source ids of one network, which may be fewer.
        is_subset = self.is_ensemble and numbering.source_size < num_source
        if numbering.target_size != num_target or (numbering.source_size != num_source and not is_subset):
            raise ArgumentError(
                f"pair_ngram: expected a model of {num_source} source and {num_target} target ids, the sizes of the "
                f"vocabularies, got {numbering.source_size} and {numbering.target_size}: it belongs to another run"
            )

    def with_options(self: TransducerT, options: DecodingOptions) -> TransducerT:
        """Return a predictor with other options. Options that do not fit raise `InputError` when a method decodes.

        Args:
            options: Options for all outputs, which replace those of this predictor.

        Raises:
            ArgumentError: The argument has a wrong type.
        """
        return replace(self, options=convert_argument("options", options, DecodingOptions))

    def check_search(self, nbest: int, has_example_prefixes: bool) -> None:
        """Check the options of a search before the first source is read.

        Args:
            nbest: Maximum number of outputs per source.
            has_example_prefixes: True if each output has its own prefix, in place of that of the options.

        Raises:
            InputError: A symbol or a position of the options does not exist, or no output can satisfy the options.
            RunError: The search leaves the outputs to a network whose training has not reached its first validation.
        """
        if not self._uses_pair_ngram:
            self.require_trained_network()
        self._check_constraints(has_example_prefixes)
        self._check_attention_options()

    def check_sampling(self, has_example_prefixes: bool) -> None:
        """Check the options of sampling before the first source is read.

        Args:
            has_example_prefixes: True if each output has its own prefix, in place of that of the options.

        Raises:
            InputError: As in `check_search`; also if the options request a search tree (`ConfigError`).
            RunError: The training of the network has not reached its first validation.
        """
        self.require_trained_network()
        self._refuse_search_tree("sampling")
        super().check_sampling(has_example_prefixes)

    def check_scoring(self) -> None:
        """Check the options of forced decoding.

        Raises:
            InputError: As in `check_search`; also if the options request a search tree (`ConfigError`).
            RunError: The training of the network has not reached its first validation.
        """
        self.require_trained_network()
        self._refuse_search_tree("scoring given targets")
        self._check_attention_options()

    def check_alignment(self) -> None:
        """Check that the network has attention weights to align pairs by.

        Raises:
            ConfigError: The network has no attention.
            RunError: The training of the network has not reached its first validation.
        """
        self.require_trained_network()
        super().check_alignment()

    def require_trained_network(self) -> None:
        """Check that outputs, scores and attention weights of the network can be used.

        Raises:
            RunError: The training of the network has not reached its first validation, so that the pair n-gram model
                predicts alone.
        """
        if self.pair_ngram is not None and self.pair_ngram.predicts_alone:
            raise untrained_network_error(self.name)

    def _check_constraints(self, has_example_prefixes: bool) -> None:
        """Raise `InputError` for constraints and length limits that no output can satisfy, whatever its source is."""
        check_length_limits(self.config.search, self.vocabularies)
        if self.options is NO_OPTIONS:
            return
        max_length = self.max_length
        copies = self._copies
        tokenizer, vocabulary = self.tokenizers.target, self.vocabularies.target
        prefix = () if has_example_prefixes else tuple(tokenizer.split(self.options.prefix))
        # A model that copies can write the symbols of a source, which are not known yet.
        known = [prefix] if prefix and not copies else []
        constraints = build_constraints(self.options, known, tokenizer, vocabulary, [] if copies else None)
        check_room(len(prefix) + len({*self.options.required} - {*prefix}), max_length)
        minimum = min(self.config.search.min_length, max_length)
        if minimum and not copies and self._forbids_all(constraints):
            raise ConstraintError(forbids_all_message(vocabulary, "outputs have", minimum))

    @abstractmethod
    def _run_search(self, batch: SourceBatch, config: BeamConfig, fits_kernel: bool) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source of a batch.

        Args:
            batch: Sources.
            config: Settings of the search.
            fits_kernel: Whether a kernel may take all steps of the search, if one supports the model.
        """

    @abstractmethod
    def _score_batch(
        self, batch: SourceBatch, targets: Int[np.ndarray, "B T"], target_lengths: Int[np.ndarray, " B"]
    ) -> list[Hypothesis]:
        """Score targets as if they had been decoded.

        Args:
            batch: Sources.
            targets: Target ids, each ending with EOS, then padding.
            target_lengths: Target lengths, including EOS.
        """

    @abstractmethod
    def _sample_batch(
        self,
        batch: SourceBatch,
        numbers: Int[np.ndarray, " B"],
        limits: BatchLengthLimits,
        constraints: Constraints,
        sampling: SamplingConfig,
    ) -> list[list[Hypothesis]]:
        """Sample outputs of each source of a batch.

        Args:
            batch: Sources.
            numbers: Number of each source, which selects its random streams.
            limits: Length limits of the outputs.
            constraints: Constraints of the outputs.
            sampling: Number of samples, temperature, filters and seed.
        """

    @abstractmethod
    def _network_ids(self, network: int) -> NetworkIds:
        """Return the ids of a network for those of the predictor.

        Args:
            network: Number of the network.
        """

    @abstractmethod
    def _check_attention_options(self) -> None:
        """Raise `InputError` for forced attention and masked positions that fit no source or not the model."""

    @property
    def _max_steps(self) -> int:
        """Maximum number of symbols of an output, decoded or given."""
        return max(self.max_length, self.config.data.max_sequence_length)

    def _search_chunk(self, chunk: ExampleChunk, nbest: int) -> list[list[Trace]]:
        """Return the best outputs of each example."""
        return self._search(chunk, max(nbest, self.config.search.beam_size), nbest, self._uses_pair_ngram)

    def _search_for_margins(self, chunk: ExampleChunk, nbest: int) -> list[list[Trace]]:
        """Return the best outputs of each example; at least two if a pair n-gram model ranks them."""
        beam_size = max(nbest, self.config.search.beam_size)
        adds_pair_ngram = self._uses_pair_ngram
        return self._search(chunk, beam_size, max(nbest, 2) if adds_pair_ngram else nbest, adds_pair_ngram)

    def ranked_outputs(self, examples: Sequence[Example]) -> list[list[Trace]]:
        """Return all outputs of the search and of the pair n-gram model, if there is one, ranked by their scores.

        With the weight 0 of the pair n-gram model, those of the search are first, in its order.

        Args:
            examples: Examples; their targets are ignored.

        Raises:
            InputError: As in `predict_examples`.
        """
        beam_size = self.config.search.beam_size
        adds_outputs = self._allows_pair_ngram
        return list(
            self._check_and_decode(lambda chunk: self._search(chunk, beam_size, sys.maxsize, adds_outputs), examples)
        )

    def _search(self, chunk: ExampleChunk, beam_size: int, nbest: int, adds_pair_ngram: bool) -> list[list[Trace]]:
        """Return at most `nbest` outputs of each example, from a beam of the given size.

        `adds_pair_ngram` adds those of the pair n-gram model, whatever its weight is.
        """
        constraints = self._constraints(chunk)
        search = self.config.search
        # All constraints of the chunk decide, so that the composition of a batch changes nothing.
        fits_kernel = fits_search_kernel(search_properties(search, self.options, constraints, self.is_ensemble))
        score = hypothesis_scorer(search)
        num_kept = beam_size if adds_pair_ngram else min(nbest, beam_size)
        prepared = self._encode_chunk(chunk, ChunkConfig(beam_size, nbest, constraints))
        with self._inference_context(prepared.num_hypotheses):
            for batch in self._batches(prepared):
                limits, batch_constraints = self._length_limits(prepared, batch), constraints.take(batch.rows)
                config = BeamConfig(limits, beam_size, num_kept, score, batch_constraints, self.options.search_tree)
                hypotheses = self._run_search(batch, config, fits_kernel)
                if adds_pair_ngram:
                    # Ranking needs numbers. `_add_traces` checks again: the added outputs have new scores.
                    checked = check_finite_outputs(hypotheses, self.name, self.config)
                    hypotheses = self._rerank_with_pair_ngram(batch, checked, config, nbest)
                self._add_traces(prepared, batch, hypotheses)
        return self._all_traces(prepared)

    def _length_limits(self, prepared: PreparedChunk, batch: SourceBatch) -> BatchLengthLimits:
        """Return the length limits of the outputs of a batch; raise `ConstraintError` if no output can satisfy them."""
        sources = [prepared.tokenized[row] for row in batch.rows.tolist()]
        constraints = prepared.config.constraints
        limits = output_length_limits(sources, self.config.search, self.max_length, constraints.take(batch.rows))
        if self._forbids_all(constraints):
            check_minimum(sources, limits, batch.rows + prepared.first, self.vocabularies.target, self._copies)
        return limits

    @property
    def pair_ngram_weight(self) -> float:
        """Weight of the pair n-gram model in the ranking of outputs, 0 to 1; 0 if it takes no part."""
        return self.pair_ngram.weight if self.pair_ngram is not None and self._uses_pair_ngram else 0.0

    @property
    def _uses_pair_ngram(self) -> bool:
        """True if a pair n-gram model takes part in searches: one of a weight above 0."""
        return self.pair_ngram is not None and self.pair_ngram.weight > 0 and self._allows_pair_ngram

    @property
    def _allows_pair_ngram(self) -> bool:
        """True if there is a pair n-gram model, of any weight, and searches may rank by it.

        They do not if the search settings exclude it (`allows_pair_ngram_ranking`), or if options change attention,
        which shows an effect on the network.
        """
        allows_ranking = allows_pair_ngram_ranking(self.config.search)
        return self.pair_ngram is not None and allows_ranking and not self.options.changes_attention

    @property
    def _origin(self) -> Origin:
        """Origin of the outputs of a search: the pair n-gram model alone, if it ranks them alone."""
        return "pair_ngram" if self.pair_ngram is not None and self.pair_ngram.predicts_alone else "search"

    def _rerank_with_pair_ngram(
        self, batch: SourceBatch, hypotheses: Sequence[Sequence[Hypothesis]], config: BeamConfig, nbest: int
    ) -> list[list[Hypothesis]]:
        """Return the best outputs of each source by the network and by the pair n-gram model.

        `hypotheses` are those of the network's search with `config`. The network scores those that the pair n-gram
        model adds.
        """
        assert self.pair_ngram is not None
        ids = self._network_ids(self.pair_ngram.network_index)
        added, scores = propose_outputs(self.pair_ngram, ids, batch, hypotheses, config.limits, config.constraints)
        candidates = list(map(list, hypotheses))
        for (row, _), hypothesis in zip(added, self._score_outputs(batch, added), strict=True):
            candidates[row].append(hypothesis._replace(tree=hypotheses[row][0].tree))
        weight = self.pair_ngram.weight
        return [
            rank_by_interpolation(source_hypotheses, pair_ngram_scores, weight, nbest)
            for source_hypotheses, pair_ngram_scores in zip(candidates, scores, strict=True)
        ]

    def _score_outputs(self, batch: SourceBatch, outputs: Sequence[tuple[int, TargetIds]]) -> list[Hypothesis]:
        """Return outputs, given by the row of their source and their target ids, with the network's probabilities."""
        if not outputs:
            return []
        targets = to_ragged([*target, EOS] for _, target in outputs)
        return self._score_batch(batch.take([row for row, _ in outputs]), *targets.pad(np.arange(len(outputs))))

    def predict_by_pair_ngram(self, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        """Return the most probable output of each source by the pair n-gram model alone, as symbols.

        The network, its search and the options, such as a lexicon, take no part.

        Args:
            examples: Examples; only their sources are read.

        Returns:
            Symbols of each output, without EOS; none for an empty source.

        Raises:
            ConfigError: There is no pair n-gram model.
        """
        if self.pair_ngram is None:
            raise ConfigError("the predictor has no pair n-gram model")
        model = self.pair_ngram.model
        network_ids = self._network_ids(self.pair_ngram.network_index)
        outputs = list[tuple[str, ...]]()
        for example in convert_argument("examples", examples, Sequence[Example]):
            ids = self.vocabularies.source.encode(self.tokenizers.source.split(example.source))
            found = model.search(network_ids.map_source(ids, model.numbering.source_size), 1) if ids else []
            target = network_ids.unmap_target(found[0].target) if found else ()
            outputs.append(self.vocabularies.target.decode(target))
        return outputs

    def align_by_pair_ngram(self, pairs: Sequence[Example]) -> list[Alignment | None]:
        """Align the source symbols of pairs with their target symbols, by the pair n-gram model of the run.

        A chunk has one source symbol and 0 to M target symbols, or two source symbols and one target symbol, where M is
        the maximum of the model, 2 to 4.

        Args:
            pairs: Pairs of a source and a target; features are not read.

        Returns:
            The most probable alignment of each pair, whose score is the joint log-probability of source and target;
            None for a pair without an alignment.

        Raises:
            ConfigError: There is no pair n-gram model.
        """
        self.check_pair_ngram_alignment()
        examples: list[Example] = convert_argument("pairs", pairs, Sequence[Example])
        return [self._align_by_pair_ngram(example) for example in examples]

    def check_pair_ngram_alignment(self) -> None:
        """Raise `ConfigError` if there is no pair n-gram model."""
        if self.pair_ngram is None:
            raise ConfigError("the run has no pair n-gram model; align the pairs by attention, or without a run")

    def _align_by_pair_ngram(self, example: Example) -> Alignment | None:
        """Return the most probable alignment of a pair."""
        assert self.pair_ngram is not None
        model = self.pair_ngram.model
        network_ids = self._network_ids(self.pair_ngram.network_index)
        source = tuple(self.tokenizers.source.split(example.source))
        target = tuple(self.tokenizers.target.split(example.target))
        source_ids = network_ids.map_source(self.vocabularies.source.encode(source), model.numbering.source_size)
        target_ids = network_ids.map_target(self.vocabularies.target.encode(target))
        aligned = model.align(source_ids, target_ids) if source_ids else None
        if aligned is None:
            return None
        return Alignment(source, target, chunks_of_sizes(aligned.sizes), min(0.0, aligned.log_probability))

    def _refuse_search_tree(self, operation: str) -> None:
        """Raise `ConfigError` if the options request a search tree, for an operation without a beam."""
        if self.options.search_tree:
            raise ConfigError(
                f"options.search_tree: {operation} has no search tree: use predict, nbest, trace or hypotheses"
            )

    def _sample_chunk(self, chunk: ExampleChunk, sampling: SamplingConfig) -> list[list[Trace]]:
        """Sample outputs of each example."""
        constraints = self._constraints(chunk)
        prepared = self._encode_chunk(chunk, ChunkConfig(sampling.samples, sys.maxsize, constraints))
        with self._inference_context(prepared.num_hypotheses):
            for batch in self._batches(prepared):
                numbers = batch.rows + chunk.first
                limits, batch_constraints = self._length_limits(prepared, batch), constraints.take(batch.rows)
                hypotheses = self._sample_batch(batch, numbers, limits, batch_constraints, sampling)
                self._add_traces(prepared, batch, hypotheses)
        lists = self._all_traces(prepared)
        return [sampled_traces(traces, sampling, number) for number, traces in enumerate(lists, chunk.first)]

    def _score_chunk(self, chunk: ExampleChunk) -> list[Trace]:
        """Score the targets of examples."""
        examples = chunk.examples
        for number, example in enumerate(examples, start=chunk.first + 1):
            if not self.tokenizers.source.split(example.source):
                raise DataError(f"source {number} is empty: its target cannot be scored")
        symbols = [self.tokenizers.target.split(example.target) for example in examples]
        max_length = self._max_steps
        for number, target_symbols in enumerate(symbols, start=chunk.first + 1):
            if len(target_symbols) > max_length:
                raise DataError(
                    f"target {number} has {count_noun(len(target_symbols), 'symbol')}; at most {max_length} can be "
                    "scored"
                )
        vocabularies = self.vocabularies
        targets = encode_sequence_examples(examples, self.tokenizers, vocabularies, self.config).target
        scorer = replace(self, options=self.options.attention_options)
        prepared = scorer._encode_chunk(chunk, ChunkConfig(1, 1, NO_CONSTRAINTS))
        with scorer._inference_context(prepared.num_hypotheses):
            for batch in scorer._batches(prepared):
                scores = scorer._score_batch(batch, *targets.pad(batch.rows))
                scorer._add_traces(prepared, batch, [[hypothesis] for hypothesis in scores])
        ids = vocabularies.target.ids
        scored = list[Trace]()
        for (trace,), example, target_symbols in zip(scorer._all_traces(prepared), examples, symbols, strict=True):
            known = {*ids, *trace.source[trace.num_features :]} if self._copies else ids
            scored.append(scored_trace(trace, example.target, target_symbols, known, (END,)))
        return scored

    def _constraints(self, chunk: ExampleChunk) -> Constraints:
        """Return the constraints of the options, in ids."""
        sources = copyable_sources(chunk.examples, self.tokenizers, self.config)
        texts = [self.options.prefix] * len(chunk.examples) if chunk.prefixes is None else chunk.prefixes
        first = None if chunk.prefixes is None else chunk.first
        max_length = self.max_length
        constraints = build_constraints(
            self.options, texts, self.tokenizers.target, self.vocabularies.target, sources, first
        )
        for row in range(0 if chunk.prefixes is None else len(chunk.examples)):
            if constraints.min_length(row) > max_length:
                raise ConstraintError(
                    f"prefix of source {chunk.first + row + 1}: the prefix and the required symbols take "
                    f"{constraints.min_length(row)} symbols, but search.max_length is {max_length}"
                )
        return constraints
