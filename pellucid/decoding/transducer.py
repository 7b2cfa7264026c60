"""Transducer: the predictor of outputs that are written symbol by symbol, by greedy search, beam search or sampling."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from pellucid.arguments import convert_argument
from pellucid.decoding.answers import drawn_traces, found_of, given_trace
from pellucid.decoding.beam_search import Found, Wanted, beam, stepwise
from pellucid.decoding.candidate_scorer import score_of
from pellucid.decoding.constraints import FREE, Constraints
from pellucid.decoding.forced_attention import guided, rows_of
from pellucid.decoding.forced_decoding import force
from pellucid.decoding.greedy import greedy
from pellucid.decoding.inference import Alone, Running, begin
from pellucid.decoding.options import Options, constraints_of, prefixes_of
from pellucid.decoding.outputs import Limits
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import Asked, Work, copied_from, targets_of
from pellucid.decoding.sampling import Drawing, sample
from pellucid.decoding.streaming import Part
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError
from pellucid.kernels.backend import Request, parts_given, settings_of
from pellucid.kernels.dispatch import searches_whole_batches
from pellucid.model.requests import request_of


@dataclass(frozen=True)
class Transducer(Predictor):
    """An encoder-decoder that writes its output symbol by symbol."""

    def with_options(self, options: Options) -> "Transducer":
        """The same, with constraints, a lexicon, lattices, or given attention; using bad ones raises `InputError`."""
        return replace(self, options=convert_argument("options", options, Options))

    def joined(self, members: Sequence[Alone]) -> Running:
        """The hypotheses of each network as those of all that write together."""
        return members[0]

    def begin(self, work: Work) -> Running:
        """What writes, before its first step, its attention given as the options say (else an `InputError`)."""
        rows = self.painted_rows(work)  # first, for it refuses what cannot be hidden
        return guided(self._begin(work), rows)

    def painted_rows(self, work: Work) -> dict[int, Float[Tensor, " S"]]:
        """The attention that the options give; an `InputError` for what a source or the model cannot have."""
        longest = max(self.max_length, self.config.data.max_length)
        return rows_of(self.options, work, self.networks, longest)

    def _begin(self, work: Work) -> Running:
        """The same without painted rows."""
        return begin(self.network, work.source, work.lengths, self.options.masked)

    def _searched(self, part: Part, best: int) -> list[list[Trace]]:
        """The best outputs of each example, by what the settings ask for."""
        constraints, width = self._constraints(part), max(best, self.config.search.beam_size)
        score, lattice = score_of(self.config.search), self.options.lattice
        plainly = searches_whole_batches(self._request(constraints))

        def search(work: Work) -> list[list[Found]]:
            """One batch."""
            if plainly:
                return self._search_plainly(work, width, best)
            wanted = Wanted(work.spans, width, best, score, constraints.take(work.rows), lattice)
            return stepwise(self.begin(work), work.positions, wanted)

        return self._lists(part, Asked(width, best, constraints), search)

    def _samples(self, part: Part, drawing: Drawing) -> list[list[Trace]]:
        """Outputs of each example, drawn at random."""
        constraints = self._constraints(part)

        def draw(work: Work) -> list[list[Found]]:
            """One batch."""
            wanted = Wanted(work.spans, 1, constraints=constraints.take(work.rows))
            drawn = sample(self.begin(work), work.positions, work.rows + part.first, wanted, drawing)
            return [[found_of(each) for each in outputs] for outputs in drawn]

        lists = self._lists(part, Asked(drawing.samples, sys.maxsize, constraints), draw)
        return [drawn_traces(traces, drawing, number) for number, traces in enumerate(lists, part.first)]

    def _forced(self, part: Part) -> list[Trace]:
        """The targets of examples as though they had been decoded."""
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
        targets = targets_of(given, symbols, known, self.tokenizers, self.config)

        def score(work: Work) -> list[list[Found]]:
            """One batch."""
            target, steps = targets.pad(work.rows)
            device = work.lengths.device
            outputs = force(self.begin(work), work.positions, target.to(device), steps.to(device))
            return [[found_of(each)] for each in outputs]

        scored = replace(self, options=self.options.guiding)._lists(part, Asked(1, 1, FREE), score)
        ids = known.target.ids
        return [
            given_trace(traces[0], example.target, each, {*ids, *traces[0].source} if copying else ids)
            for traces, example, each in zip(scored, given, symbols, strict=True)
        ]

    def _constraints(self, part: Part) -> Constraints:
        """The options in ids."""
        read = copied_from(part.examples, self.tokenizers, self.config)
        texts = prefixes_of(self.options, len(part.examples), part.prefixes)
        first, longest = None if part.prefixes is None else part.first, self.max_length
        constraints = constraints_of(self.options, texts, self.tokenizers.target, self.vocabularies.target, read, first)
        for row in range(0 if part.prefixes is None else len(part.examples)):
            if constraints.least(row) > longest:
                raise InputError(
                    f"prefix of source {part.first + row + 1}: the prefix and the required symbols take "
                    f"{constraints.least(row)} symbols, but search.max_length is {longest}"
                )
        return constraints

    def _request(self, constraints: Constraints) -> Request:
        """Return what is asked of a search: every setting, every option and every constraint."""
        facts = (
            *settings_of("search", self.config.search),
            *parts_given("options", self.options),
            *parts_given("constraints", constraints),
        )
        return request_of("search", next(self.network.parameters()), facts)

    def _search_plainly(self, work: Work, width: int, best: int) -> list[list[Found]]:
        """One batch by ln p and nothing else, by a kernel where there is one."""
        limits = Limits(self.config.search.min_length, self.max_length)
        if width == 1:
            outputs = [[each] for each in greedy(self.network, work.source, work.lengths, limits)]
        else:
            outputs = beam(self.network, work.source, work.lengths, limits, width, best)
        return [[found_of(each) for each in own] for own in outputs]


def require_transducer(predictor: Predictor, what: str) -> Transducer:
    """Return the predictor, if it writes symbol by symbol; else raise `ConfigError` about what was asked of it."""
    if not isinstance(predictor, Transducer):
        raise predictor.refused(what)
    return predictor
