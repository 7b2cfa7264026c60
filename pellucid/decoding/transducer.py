"""Prediction of sequences, decoded symbol by symbol with greedy search, beam search or sampling."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from pellucid.arguments import convert_argument
from pellucid.decoding.answers import hypothesis_of, sampled_traces, scored_trace
from pellucid.decoding.beam_search import BeamConfig, Hypothesis, beam, stepwise
from pellucid.decoding.candidate_scorer import candidate_scorer
from pellucid.decoding.constraints import FREE, Constraints
from pellucid.decoding.forced_attention import attention_rows, force_attention
from pellucid.decoding.forced_decoding import score_targets
from pellucid.decoding.greedy import greedy
from pellucid.decoding.inference import Inference, SingleModelInference, encode_and_initialize
from pellucid.decoding.options import DecodingOptions, build_constraints, resolve_prefixes
from pellucid.decoding.outputs import LengthLimits
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import InferenceBatch, SearchRequest, copyable_sources, encode_targets
from pellucid.decoding.sampling import SamplingConfig, sample
from pellucid.decoding.streaming import ExampleChunk
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError, ConfigError, ConstraintError, DataError
from pellucid.kernels.backend import Request, parts_given, settings_of
from pellucid.kernels.dispatch import searches_whole_batches
from pellucid.model.requests import request_of


@dataclass(frozen=True)
class Transducer(Predictor):
    """Predictor of an encoder-decoder, which decodes symbol by symbol."""

    combines_networks: ClassVar[bool] = False
    """Whether it has members."""

    def __post_init__(self) -> None:
        """Refuse fields of another type, and members, which an `Ensemble` has."""
        super().__post_init__()
        if self.members.networks and not self.combines_networks:
            raise ArgumentError(
                "members: a Transducer has one network, which `network` is; pellucid.load([...]) makes an Ensemble"
            )

    def with_options(self, options: DecodingOptions) -> "Transducer":
        """Return a predictor with other options; a bad option raises `InputError` when it is used."""
        return replace(self, options=convert_argument("options", options, DecodingOptions))

    def joined(self, members: Sequence[SingleModelInference]) -> Inference:
        """Combine the hypotheses of the networks."""
        return members[0]

    def begin(self, work: InferenceBatch) -> Inference:
        """Return the model before its first step, with the forced attention of the options.

        Raises:
            InputError: The attention does not fit a source or the model.
        """
        rows = self.painted_rows(work)  # first, for it refuses what cannot be hidden
        return force_attention(self._begin(work), rows)

    def painted_rows(self, work: InferenceBatch) -> dict[int, Float[Tensor, " S"]]:
        """Return the forced attention rows of the options; `InputError` if they do not fit."""
        longest = max(self.max_length, self.config.data.max_length)
        return attention_rows(self.options, work, self.networks, longest)

    def _begin(self, work: InferenceBatch) -> Inference:
        """Return the model before its first step, without forced attention."""
        return encode_and_initialize(self.network, work.source, work.lengths, self.options.masked)

    def _searched(self, part: ExampleChunk, best: int) -> list[list[Trace]]:
        """Return the best outputs of each example."""
        constraints, width = self._constraints(part), max(best, self.config.search.beam_size)
        score, lattice = candidate_scorer(self.config.search), self.options.lattice
        plainly = searches_whole_batches(self._request(constraints))

        def search(work: InferenceBatch) -> list[list[Hypothesis]]:
            """Search one batch."""
            if plainly:
                return self._search_plainly(work, width, best)
            wanted = BeamConfig(work.spans, width, best, score, constraints.take(work.rows), lattice)
            return stepwise(self.begin(work), work.positions, wanted)

        return self._lists(part, SearchRequest(width, best, constraints), search)

    def _refuse_lattice(self, what: str) -> None:
        """Raise a `ConfigError` where the options ask for a lattice, which what is done here does not have."""
        if self.options.lattice:
            raise ConfigError(
                f"options.lattice: {what} considers no other hypotheses: predict, nbest, trace and hypotheses do"
            )

    def _samples(self, part: ExampleChunk, drawing: SamplingConfig) -> list[list[Trace]]:
        """Sample outputs of each example."""
        self._refuse_lattice("sampling")
        constraints = self._constraints(part)

        def draw(work: InferenceBatch) -> list[list[Hypothesis]]:
            """Sample one batch."""
            wanted = BeamConfig(work.spans, 1, constraints=constraints.take(work.rows))
            drawn = sample(self.begin(work), work.positions, work.rows + part.first, wanted, drawing)
            return [[hypothesis_of(each) for each in outputs] for outputs in drawn]

        lists = self._lists(part, SearchRequest(drawing.samples, sys.maxsize, constraints), draw)
        return [sampled_traces(traces, drawing, number) for number, traces in enumerate(lists, part.first)]

    def _forced(self, part: ExampleChunk) -> list[Trace]:
        """Score the targets of examples."""
        self._refuse_lattice("scoring given targets")
        given = part.examples
        for number, example in enumerate(given, start=part.first + 1):
            if not self.tokenizers.source.split(example.source):
                raise DataError(f"source {number} is empty: there is nothing to score its target by")
        symbols = [self.tokenizers.target.split(example.target) for example in given]
        longest = max(self.max_length, self.config.data.max_length)
        for number, each in enumerate(symbols, start=part.first + 1):
            if len(each) > longest:
                raise DataError(f"target {number} has {len(each)} symbols; at most {longest} can be scored")
        known, copying = self.vocabularies, self.config.decoder.pointer_generator
        targets = encode_targets(given, symbols, known, self.tokenizers, self.config)

        def score(work: InferenceBatch) -> list[list[Hypothesis]]:
            """Score one batch."""
            target, steps = targets.pad(work.rows)
            device = work.lengths.device
            outputs = score_targets(self.begin(work), work.positions, target.to(device), steps.to(device))
            return [[hypothesis_of(each)] for each in outputs]

        scored = replace(self, options=self.options.guiding)._lists(part, SearchRequest(1, 1, FREE), score)
        ids = known.target.ids
        return [
            scored_trace(traces[0], example.target, each, {*ids, *traces[0].source} if copying else ids)
            for traces, example, each in zip(scored, given, symbols, strict=True)
        ]

    def _constraints(self, part: ExampleChunk) -> Constraints:
        """Return the constraints of the options, in ids."""
        read = copyable_sources(part.examples, self.tokenizers, self.config)
        texts = resolve_prefixes(self.options, len(part.examples), part.prefixes)
        first, longest = None if part.prefixes is None else part.first, self.max_length
        constraints = build_constraints(
            self.options, texts, self.tokenizers.target, self.vocabularies.target, read, first
        )
        for row in range(0 if part.prefixes is None else len(part.examples)):
            if constraints.least(row) > longest:
                raise ConstraintError(
                    f"prefix of source {part.first + row + 1}: the prefix and the required symbols take "
                    f"{constraints.least(row)} symbols, but search.max_length is {longest}"
                )
        return constraints

    def _request(self, constraints: Constraints) -> Request:
        """Return the kernel request of a search, with every setting, option and constraint."""
        facts = (
            *settings_of("search", self.config.search),
            *parts_given("options", self.options),
            *parts_given("constraints", constraints),
        )
        return request_of("search", next(self.network.parameters()), facts)

    def _search_plainly(self, work: InferenceBatch, width: int, best: int) -> list[list[Hypothesis]]:
        """Search one batch by log-probability alone, in a kernel if one supports it."""
        limits = LengthLimits(self.config.search.min_length, self.max_length)
        if width == 1:
            outputs = [[each] for each in greedy(self.network, work.source, work.lengths, limits)]
        else:
            outputs = beam(self.network, work.source, work.lengths, limits, width, best)
        return [[hypothesis_of(each) for each in own] for own in outputs]


def require_transducer(predictor: Predictor, what: str) -> Transducer:
    """Return the predictor if it decodes symbol by symbol.

    Raises:
        ConfigError: It does not; the message names `what` was requested.
    """
    if not isinstance(predictor, Transducer):
        raise predictor.refused(what)
    return predictor
