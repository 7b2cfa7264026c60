"""Predictor: texts in, Traces out, whatever the task of the network is.

Every method that decodes takes any iterable. Of a list it returns a list. Of an iterator (a generator, `map`, an open
file) it returns an iterator of the results in their order, which reads at most `streaming.SOURCES` ahead, and fewer
where they are long or have many outputs: it needs bounded memory, whatever the length of the stream. What an argument
cannot be is one `ArgumentError` that names it; of a stream, it is raised in the place of the item.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, TypeVar, overload

import msgspec
import numpy as np
import torch
from jaxtyping import Int
from msgspec import Meta
from torch import Tensor

from pellucid.arguments import convert_argument
from pellucid.config.settings import Config, SearchConfig, Width
from pellucid.config.toml import checked, flattened
from pellucid.config.validation import refuse_idle
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Segmenters, segmenters
from pellucid.data.vocabulary import EOS, SPECIAL_NAMES, Vocabularies
from pellucid.decoding.answers import examples_of, looked_up, nothing, shared
from pellucid.decoding.beam_search import Found, finite_outputs
from pellucid.decoding.candidate_scorer import score_of
from pellucid.decoding.inference import NO_MEMBERS, Members, all_evaluating
from pellucid.decoding.options import NO_OPTIONS, Options
from pellucid.decoding.preprocessing import (
    Asked,
    Read,
    Work,
    batched,
    greatest_length,
    ids_of,
    read_example,
    spans_for,
)
from pellucid.decoding.sampling import Drawing
from pellucid.decoding.streaming import Part, Prefix, Result, decode_parts
from pellucid.decoding.trace import Trace
from pellucid.errors import ConfigError, quote
from pellucid.kernels.dispatch import inference_kernels
from pellucid.model.device import check_process
from pellucid.model.network import Network
from pellucid.tasks.task_settings import settings_of

Prefixes = Iterable[Prefix] | None
"""What each output begins with, a text or its symbols; None where the options say it."""
Features = Iterable[str] | None
"""The features of each source; None for a model without."""
Probability = Annotated[float, Meta(gt=0.0, le=1.0)]
Number = Annotated[int, Meta(ge=0, le=2**62)]
Own = TypeVar("Own", bound="Predictor")
"""The kind of predictor that a method is called on."""


@dataclass(frozen=True)
class Predictor(ABC):
    """A network, or several as an ensemble, with all that turns texts into Traces. Each kind of task has its own."""

    config: Config
    vocabularies: Vocabularies
    network: Network
    """Of an ensemble the first one, whose configuration searches."""
    options: Options = NO_OPTIONS
    name: str = ""
    """What errors call it: its run folder."""
    members: Members = NO_MEMBERS
    """The networks of an ensemble; empty for one network."""

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
    def networks(self) -> tuple[Network, ...]:
        """All networks that predict together."""
        return self.members.networks or (self.network,)

    @cached_property
    def autoregressive(self) -> bool:
        """Whether outputs are written symbol by symbol."""
        return settings_of(self.config.task).autoregressive

    @property
    def is_ensemble(self) -> bool:
        """Whether several networks predict together, or could: an ensemble may have one member."""
        return bool(self.members.networks)

    @property
    def max_length(self) -> int:
        """The greatest output length, in symbols; `ConfigError` where no output can be long enough."""
        return greatest_length(self.config.search, self.vocabularies)

    def own_sources(self, source: Int[Tensor, "B S"]) -> list[Int[Tensor, "B S"]]:
        """What each network reads, in ids of its own."""
        return self.members.own(source) if self.is_ensemble else [source]

    def evaluating(self) -> AbstractContextManager[None]:
        """Within, all networks are in evaluation mode."""
        return all_evaluating(self.networks)

    @abstractmethod
    def with_options(self, options: Options) -> "Predictor":
        """The same, with constraints, a lexicon, lattices, or given attention. `ConfigError` where it has no such."""

    @abstractmethod
    def _searched(self, part: Part, best: int) -> list[list[Trace]]:
        """The best outputs of each example."""

    @abstractmethod
    def _forced(self, part: Part) -> list[Trace]:
        """The targets of examples as though they had been decoded."""

    def _samples(self, part: Part, drawing: Drawing) -> list[list[Trace]]:
        """Outputs of each example, drawn at random. `ConfigError` unless outputs are written symbol by symbol."""
        raise self.refused("sample")

    def refused(self, what: str) -> ConfigError:
        """The error of what only outputs have that are written symbol by symbol."""
        task = quote(self.config.task)
        return ConfigError(f"{what}: this is for outputs written symbol by symbol, but the model's task is {task}")

    def with_beam(self: Own, width: int) -> Own:
        """The same, searching with so many hypotheses; 1 is greedy. `ConfigError` for what is no width."""
        return self.with_search(msgspec.structs.replace(self.config.search, beam_size=width))

    def with_search(self: Own, search: SearchConfig) -> Own:
        """The same, searching by other settings. `ConfigError` for what contradicts itself, and for changes in vain."""
        search = convert_argument("search", search, SearchConfig)
        config, before = checked(msgspec.structs.replace(self.config, search=search)), flattened(self.config)
        refuse_idle(config, {key for key, value in flattened(config).items() if value != before[key]})
        greatest_length(config.search, self.vocabularies)
        return replace(self, config=config)

    @overload
    def predict(self, sources: Iterator[str], features: Features = None, prefixes: Prefixes = None) -> Iterator[Trace]:
        """Of a stream."""

    @overload
    def predict(self, sources: Collection[str], features: Features = None, prefixes: Prefixes = None) -> list[Trace]:
        """Of a list."""

    def predict(
        self, sources: Iterable[str], features: Features = None, prefixes: Prefixes = None
    ) -> list[Trace] | Iterator[Trace]:
        """Decode each source, with its features where the model was trained with them.

        One Trace a source, in their order. An empty source gives an empty output. `prefixes` are what each output
        begins with. `DataError` for a source that is too long, and for too many or too few features or prefixes.
        """
        return self.trace(examples_of(sources, features), prefixes)

    @overload
    def nbest(
        self, sources: Iterator[str], count: int, features: Features = None, until: float = 1.0
    ) -> Iterator[list[Trace]]:
        """Of a stream."""

    @overload
    def nbest(
        self, sources: Collection[str], count: int, features: Features = None, until: float = 1.0
    ) -> list[list[Trace]]:
        """Of a list."""

    def nbest(
        self, sources: Iterable[str], count: int, features: Features = None, until: float = 1.0
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """`hypotheses` of texts."""
        return self.hypotheses(examples_of(sources, features), count, until)

    @overload
    def sample(self, sources: Iterator[str], drawing: Drawing, features: Features = None) -> Iterator[list[Trace]]:
        """Of a stream."""

    @overload
    def sample(self, sources: Collection[str], drawing: Drawing, features: Features = None) -> list[list[Trace]]:
        """Of a list."""

    def sample(
        self, sources: Iterable[str], drawing: Drawing, features: Features = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """`samples` of texts, numbered from 0."""
        return self.samples(examples_of(sources, features), drawing)

    @overload
    def trace(self, examples: Iterator[Example], prefixes: Prefixes = None) -> Iterator[Trace]:
        """Of a stream."""

    @overload
    def trace(self, examples: Collection[Example], prefixes: Prefixes = None) -> list[Trace]:
        """Of a list."""

    def trace(self, examples: Iterable[Example], prefixes: Prefixes = None) -> list[Trace] | Iterator[Trace]:
        """Decode examples (their targets are not looked at): near-equal lengths together, results in their order."""
        return self._decode(lambda part: [traces[0] for traces in self._searched(part, 1)], examples, prefixes)

    @overload
    def hypotheses(
        self, examples: Iterator[Example], count: int, until: float = 1.0, prefixes: Prefixes = None
    ) -> Iterator[list[Trace]]:
        """Of a stream."""

    @overload
    def hypotheses(
        self, examples: Collection[Example], count: int, until: float = 1.0, prefixes: Prefixes = None
    ) -> list[list[Trace]]:
        """Of a list."""

    def hypotheses(
        self, examples: Iterable[Example], count: int, until: float = 1.0, prefixes: Prefixes = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """The best outputs of each example, at most `count`, with their shares of the probability of those.

        The beam is at least as wide as the list is long. With `until`, only as many of them as have that share of
        their probability together (the first always).
        """
        most: int = convert_argument("count", count, Width)
        share: float = convert_argument("until", until, Probability)

        def decode(part: Part) -> list[list[Trace]]:
            """The lists of some examples."""
            return [shared(traces, share) for traces in self._searched(part, most)]

        return self._decode(decode, examples, prefixes, most)

    @overload
    def samples(
        self, examples: Iterator[Example], drawing: Drawing, first: int = 0, prefixes: Prefixes = None
    ) -> Iterator[list[Trace]]:
        """Of a stream."""

    @overload
    def samples(
        self, examples: Collection[Example], drawing: Drawing, first: int = 0, prefixes: Prefixes = None
    ) -> list[list[Trace]]:
        """Of a list."""

    def samples(
        self, examples: Iterable[Example], drawing: Drawing, first: int = 0, prefixes: Prefixes = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Outputs drawn at random. What is drawn depends on the seed and on an example's number, from `first` on."""
        how: Drawing = convert_argument("drawing", drawing, Drawing)
        number: int = convert_argument("first", first, Number)
        return self._decode(lambda part: self._samples(part, how), examples, prefixes, how.samples, number)

    @overload
    def force(self, examples: Iterator[Example]) -> Iterator[Trace]:
        """Of a stream."""

    @overload
    def force(self, examples: Collection[Example]) -> list[Trace]:
        """Of a list."""

    def force(self, examples: Iterable[Example]) -> list[Trace] | Iterator[Trace]:
        """Score given pairs: a Trace of each target as though it had been decoded.

        A target symbol that the model does not know counts as the unknown one; its position stands in
        `unknown_target`. `DataError` for an empty source.
        """
        return self._decode(self._forced, examples)

    def _decode(
        self,
        decode: Callable[[Part], list[Result]],
        examples: Iterable[Example],
        prefixes: Prefixes = None,
        outputs: int = 1,
        first: int = 0,
    ) -> list[Result] | Iterator[Result]:
        """Decode a list into a list, or a stream into a stream, of which each example has so many outputs."""
        given: list[Example] | Iterator[Example] = convert_argument("examples", examples, Iterable[Example])
        if self.options.lattice:  # which holds every hypothesis
            outputs = max(outputs, self.config.search.beam_size)
        return decode_parts(decode, given, convert_argument("prefixes", prefixes, Prefixes), outputs, first)

    def _lists(self, part: Part, asked: Asked, decode: Callable[[Work], list[list[Found]]]) -> list[list[Trace]]:
        """Decode examples batch by batch, but for those without symbols, and those that the lexicon answers."""
        numbered = enumerate(part.examples, start=part.first + 1)
        read = [read_example(example, number, self.segmenters, self.config.data) for number, example in numbered]
        read, sources = ids_of(part.examples, read, self.vocabularies, self.segmenters, self.config)
        traces = looked_up(read, self.options.lexicon, self.segmenters, self.vocabularies.target, asked)
        shortest_first = np.argsort(sources.lengths, kind="stable").tolist()
        order = [row for row in shortest_first if read[row].source and row not in traces]
        device, size = next(self.network.parameters()).device, self.config.search.batch_size
        check_process(device)
        with torch.inference_mode(), self.evaluating(), inference_kernels(len(order) * asked.width, device.type):
            for own_rows in batched(order, sources.lengths, asked, size):
                rows = np.array(own_rows)
                source, lengths = sources.padded(rows)
                own = [read[row] for row in rows.tolist()]
                spans = spans_for(own, self.config.search, self.max_length, asked.constraints.take(rows))
                positions = torch.tensor([len(each.source) for each in own], device=device)
                work = Work(rows, source.to(device), lengths.to(device), spans, positions, part.first)
                for row, found in zip(rows.tolist(), finite_outputs(decode(work), self.name), strict=True):
                    begun = asked.constraints.begun(row)
                    traces[row] = [self._trace(read[row], one, rank, begun) for rank, one in enumerate(found, 1)]
        return [
            traces[row] if row in traces else [self._trace(each, None, 1, asked.constraints.begun(row))]
            for row, each in enumerate(read)
        ]

    @cached_property
    def _names(self) -> np.ndarray:
        """How each target id is shown."""
        target = self.vocabularies.target
        return np.array([target.symbol(identity, SPECIAL_NAMES) for identity in range(len(target))], dtype=object)

    def _named(self, ids: Int[np.ndarray, "*shape"], read: Read) -> np.ndarray:
        """How ids are shown in an output of this source."""
        names = self._names
        if (
            self.config.decoder.pointer_generator
        ):  # V + p is the symbol at source position p; beyond it, nothing is likely
            beyond = SPECIAL_NAMES[:1] * int(ids.max(initial=0))
            names = np.array([*names, *read.source, *beyond], dtype=object)
        return np.asarray(names[ids])

    def _trace(self, read: Read, found: Found | None, rank: int, begun: int) -> Trace:
        """Ids back to symbols, of which `begun` were given; `found` is None for a source without any."""
        decoded = found.decoded if found is not None else nothing()
        ended = bool(len(decoded.ids)) and int(decoded.ids[-1]) == EOS
        symbols = tuple(self._named(decoded.ids, read).tolist())
        plain, tree = found is None or score_of(self.config.search).plain, found.tree if found is not None else None
        return Trace(
            text=read.text,
            source=read.source,
            features=read.features,
            unknown=read.unknown,
            target=symbols,
            output=self.segmenters.target.join(symbols[:-1] if ended else symbols),
            finished=ended or not self.autoregressive or not read.source,
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
            task=self.config.task,
            looks=decoded.looks,
        )
