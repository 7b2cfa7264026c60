"""Transducer: texts in, Traces out.

Every method that decodes takes any iterable. Of a list it returns a list. Of an iterator (a generator, `map`, an open
file) it returns an iterator of the results in their order, which reads at most `streaming.SOURCES` ahead and so needs
bounded memory, whatever the length of the stream. What an argument cannot be is one `ArgumentError` that names it; of a
stream, it is raised in the place of the item.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, overload

import msgspec
from msgspec import Meta

from pellucid.agreement import refuse_idle
from pellucid.arguments import convert_argument
from pellucid.config import SearchConfig, Width
from pellucid.data.examples import Example
from pellucid.search.answers import examples_of, shared
from pellucid.search.batch_decoder import BatchDecoder
from pellucid.search.options import Options
from pellucid.search.reading import greatest_length
from pellucid.search.sampling import Drawing
from pellucid.search.streaming import Part, Prefix, Result, decode_parts
from pellucid.search.trace import Trace
from pellucid.toml import checked, flattened

Prefixes = Iterable[Prefix] | None
"""What each output begins with, a text or its symbols; None where the options say it."""
Features = Iterable[str] | None
"""The features of each source; None for a model without."""
Probability = Annotated[float, Meta(gt=0.0, le=1.0)]
Number = Annotated[int, Meta(ge=0, le=2**62)]


@dataclass(frozen=True)
class Transducer(BatchDecoder):
    """Texts in, Traces out: a network, its vocabularies, and the configuration it was trained with."""

    def with_beam(self, width: int) -> "Transducer":
        """The same, searching with so many hypotheses; 1 is greedy. `ConfigError` for what is no width."""
        return self.with_search(msgspec.structs.replace(self.config.search, beam_width=width))

    def with_search(self, search: SearchConfig) -> "Transducer":
        """The same, searching by other settings. `ConfigError` for what contradicts itself, and for changes in vain."""
        search = convert_argument("search", search, SearchConfig)
        config, before = checked(msgspec.structs.replace(self.config, search=search)), flattened(self.config)
        refuse_idle(config, {key for key, value in flattened(config).items() if value != before[key]})
        greatest_length(config.search, self.vocabularies)
        return replace(self, config=config)

    def with_options(self, options: Options) -> "Transducer":
        """The same, with constraints, a lexicon, lattices, or given attention; using bad ones raises `InputError`."""
        return replace(self, options=convert_argument("options", options, Options))

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
        return decode_parts(decode, given, convert_argument("prefixes", prefixes, Prefixes), outputs, first)
