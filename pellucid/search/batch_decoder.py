"""BatchDecoder: a trained network with all it needs to turn batches of examples into Traces."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.arguments import convert_argument
from pellucid.config import Config
from pellucid.data.symbols import Segmenters, segmenters
from pellucid.data.vocabulary import EOS, SPECIAL_NAMES, Vocabularies
from pellucid.errors import DataError, InputError
from pellucid.kernels.choice import for_answers
from pellucid.model.device import check_process
from pellucid.model.network import Network
from pellucid.search.answers import drawn_traces, found_of, given_trace, looked_up, nothing
from pellucid.search.beam import Wanted, beam, stepwise
from pellucid.search.constraints import FREE, Constraints
from pellucid.search.decoded import Limits
from pellucid.search.forcing import force
from pellucid.search.greedy import greedy
from pellucid.search.layers import Found, finite_outputs
from pellucid.search.options import NO_OPTIONS, Options, constraints_of, prefixes_of
from pellucid.search.painting import guided, rows_of
from pellucid.search.reading import (
    Asked,
    Read,
    Work,
    copied_from,
    greatest_length,
    has_ratios,
    ids_of,
    read_example,
    spans_for,
    targets_of,
)
from pellucid.search.running import Alone, Running, begin, evaluating
from pellucid.search.sampling import Drawing, sample
from pellucid.search.score import score_of
from pellucid.search.streaming import Part
from pellucid.search.trace import Trace


@dataclass(frozen=True)
class BatchDecoder:
    """Examples in, Traces out, batch by batch: a network, its vocabularies, and its configuration."""

    config: Config
    vocabularies: Vocabularies
    network: Network
    options: Options = NO_OPTIONS
    name: str = ""
    """What errors call it: its run folder."""

    def __post_init__(self) -> None:
        """Refuse fields of another type, with an `ArgumentError` that names the first."""
        kinds = {"config": Config, "vocabularies": Vocabularies, "network": Network, "options": Options, "name": str}
        for name, kind in kinds.items():
            convert_argument(name, getattr(self, name), kind)

    @cached_property
    def segmenters(self) -> Segmenters:
        """How each column's text is cut into symbols."""
        return segmenters(self.config.data, self.vocabularies.pieces)

    @property
    def maximum_length(self) -> int:
        """The greatest output length, in symbols; `ConfigError` where no output can be long enough."""
        return greatest_length(self.config.search, self.vocabularies)

    @cached_property
    def _names(self) -> np.ndarray:
        """How each target id is shown."""
        target = self.vocabularies.target
        return np.array([target.symbol(identity, SPECIAL_NAMES) for identity in range(len(target))], dtype=object)

    def _searched(self, part: Part, best: int) -> list[list[Trace]]:
        """The best outputs of each example, by what the settings ask for."""
        constraints, width = self._constraints(part), max(best, self.config.search.beam_width)
        score, lattice = score_of(self.config.search), self.options.lattice

        def search(work: Work) -> list[list[Found]]:
            """One batch."""
            if score.plain and not (
                constraints.any or lattice or has_ratios(self.config.search) or self.options.guides
            ):
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
            if not self.segmenters.source.split(example.source):
                raise DataError(f"source {number} is empty: there is nothing to score its target by")
        symbols = [self.segmenters.target.split(example.target) for example in given]
        longest = max(self.maximum_length, self.config.data.maximum_length)
        for number, each in enumerate(symbols, start=part.first + 1):
            if len(each) > longest:
                raise DataError(f"target {number} has {len(each)} symbols; at most {longest} can be scored")
        known, copying = self.vocabularies, self.config.decoder.copying
        targets = targets_of(given, symbols, known, self.segmenters, self.config)

        def score(work: Work) -> list[list[Found]]:
            """One batch."""
            target, steps = targets.padded(work.rows)
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
        read = copied_from(part.examples, self.segmenters, self.config)
        texts = prefixes_of(self.options, len(part.examples), part.prefixes)
        first, longest = None if part.prefixes is None else part.first, self.maximum_length
        constraints = constraints_of(self.options, texts, self.segmenters.target, self.vocabularies.target, read, first)
        for row in range(0 if part.prefixes is None else len(part.examples)):
            if constraints.least(row) > longest:
                raise InputError(
                    f"prefix of source {part.first + row + 1}: the prefix and the required symbols take "
                    f"{constraints.least(row)} symbols, but search.maximum_length is {longest}"
                )
        return constraints

    def _lists(self, part: Part, asked: Asked, decode: Callable[[Work], list[list[Found]]]) -> list[list[Trace]]:
        """Decode examples batch by batch, but for those without symbols, and those that the lexicon answers."""
        numbered = enumerate(part.examples, start=part.first + 1)
        read = [read_example(example, number, self.segmenters, self.config.data) for number, example in numbered]
        read, sources = ids_of(part.examples, read, self.vocabularies, self.segmenters, self.config)
        traces = looked_up(read, self.options.lexicon, self.segmenters, self.vocabularies.target, asked)
        shortest_first = np.argsort(sources.lengths, kind="stable").tolist()
        order = [row for row in shortest_first if read[row].source and row not in traces]
        device, size = next(self.network.parameters()).device, asked.sources(self.config.search.batch_size)
        check_process(device)
        with torch.inference_mode(), self.evaluating(), for_answers(len(order) * asked.width, device):
            for start in range(0, len(order), size):
                rows = np.array(order[start : start + size])
                source, lengths = sources.padded(rows)
                own = [read[row] for row in rows.tolist()]
                spans = spans_for(own, self.config.search, self.maximum_length, asked.constraints.take(rows))
                positions = torch.tensor([len(each.source) for each in own], device=device)
                work = Work(rows, source.to(device), lengths.to(device), spans, positions, part.first)
                for row, found in zip(rows.tolist(), finite_outputs(decode(work), self.name), strict=True):
                    begun = asked.constraints.begun(row)
                    traces[row] = [self._trace(read[row], one, rank, begun) for rank, one in enumerate(found, 1)]
        return [
            traces[row] if row in traces else [self._trace(each, None, 1, asked.constraints.begun(row))]
            for row, each in enumerate(read)
        ]

    @property
    def networks(self) -> tuple[Network, ...]:
        """All that write together."""
        return (self.network,)

    def own_sources(self, source: Int[Tensor, "B S"]) -> list[Int[Tensor, "B S"]]:
        """What each of them reads, in ids of its own."""
        return [source]

    def joined(self, members: Sequence[Alone]) -> Running:
        """The hypotheses of each network as those of all that write together."""
        return members[0]

    def begin(self, work: Work) -> Running:
        """What writes, before its first step, its attention given as the options say (else an `InputError`)."""
        rows = self.painted_rows(work)  # first, for it refuses what cannot be hidden
        return guided(self._begin(work), rows)

    def painted_rows(self, work: Work) -> dict[int, Float[Tensor, " S"]]:
        """The attention that the options give; an `InputError` for what a source or the model cannot have."""
        longest = max(self.maximum_length, self.config.data.maximum_length)
        return rows_of(self.options, work, self.networks, longest)

    def _begin(self, work: Work) -> Running:
        """The same without painted rows."""
        return begin(self.network, work.source, work.lengths, self.options.masked)

    def evaluating(self) -> AbstractContextManager[None]:
        """Within, everything that writes is in evaluation mode."""
        return evaluating(self.network)

    def _search_plainly(self, work: Work, width: int, best: int) -> list[list[Found]]:
        """One batch by ln p and nothing else, by a kernel where there is one."""
        limits = Limits(self.config.search.minimum_length, self.maximum_length)
        if width == 1:
            outputs = [[each] for each in greedy(self.network, work.source, work.lengths, limits)]
        else:
            outputs = beam(self.network, work.source, work.lengths, limits, width, best)
        return [[found_of(each) for each in own] for own in outputs]

    def _named(self, ids: Int[np.ndarray, "*shape"], read: Read) -> np.ndarray:
        """How ids are shown in an output of this source."""
        names = self._names
        if self.config.decoder.copying:  # V + p is the symbol at source position p; beyond it, nothing is likely
            beyond = SPECIAL_NAMES[:1] * int(ids.max(initial=0))
            names = np.array([*names, *read.source, *beyond], dtype=object)
        return np.asarray(names[ids])

    def _trace(self, read: Read, found: Found | None, rank: int, begun: int) -> Trace:
        """Ids back to symbols, of which `begun` were given; `found` is None for a source without any."""
        decoded = found.decoded if found is not None else nothing()
        finished = bool(len(decoded.ids)) and int(decoded.ids[-1]) == EOS
        symbols = tuple(self._named(decoded.ids, read).tolist())
        plain, tree = found is None or score_of(self.config.search).plain, found.tree if found is not None else None
        return Trace(
            text=read.text,
            source=read.source,
            features=read.features,
            unknown=read.unknown,
            target=symbols,
            output=self.segmenters.target.join(symbols[:-1] if finished else symbols),
            finished=finished or not read.source,
            log_probabilities=decoded.log_probabilities,
            attention=decoded.weights,
            top_symbols=tuple(map(tuple, self._named(decoded.top_ids, read).tolist())),
            top_log_probabilities=decoded.top_log_probabilities,
            rank=rank,
            search_score=None if plain or found is None else found.score,
            forced=tuple(range(min(begun, len(symbols)))),
            painted=tuple(sorted(each.step for each in self.options.painted if each.step < len(symbols))),
            lattice=None if tree is None or found is None else tree.named(self._named(tree.ids, read), found.leaf),
            heads=decoded.heads,
            added=read.added,
        )
