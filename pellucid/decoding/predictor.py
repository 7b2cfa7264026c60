"""Predictor: texts in, traces out, for every task.

Every method that decodes accepts any iterable. For a list it returns a list. For an iterator (a generator, `map`, an
open file) it returns an iterator of the results in their order, with bounded read-ahead (`streaming`) and bounded
memory. An invalid argument raises one `ArgumentError` that names it; in a stream it is raised when the item is reached.
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
from pellucid.config.toml import flatten_config, validate_config
from pellucid.config.validation import reject_unused
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vocabulary import EOS, SPECIAL_NAMES, Vocabularies
from pellucid.decoding.answers import empty_output, lexicon_answers, make_examples, outputs_to_top_mass
from pellucid.decoding.beam_search import Hypothesis, check_finite_outputs
from pellucid.decoding.candidate_scorer import candidate_scorer
from pellucid.decoding.inference import NO_MEMBERS, EnsembleMembers, check_members, evaluation_modes
from pellucid.decoding.options import NO_OPTIONS, DecodingOptions
from pellucid.decoding.preprocessing import (
    InferenceBatch,
    SearchRequest,
    TokenizedSource,
    batched,
    check_minimum,
    encode_source_batch,
    max_output_length,
    output_length_limits,
    read_example,
)
from pellucid.decoding.sampling import SamplingConfig
from pellucid.decoding.streaming import ExampleChunk, Prefix, Result, decode_parts
from pellucid.decoding.trace import Trace
from pellucid.errors import ConfigError, quote
from pellucid.kernels.dispatch import inference_kernels
from pellucid.model.device import check_process
from pellucid.model.network import Network
from pellucid.tasks.task_settings import get_task_settings

Prefixes = Iterable[Prefix] | None
"""Prefix of each output, as a text or its symbols; None for the prefix of the options."""
Features = Iterable[str] | None
"""Features of each source; None for a model without features."""
Probability = Annotated[float, Meta(gt=0.0, le=1.0)]
Number = Annotated[int, Meta(ge=0, le=2**62)]
Own = TypeVar("Own", bound="Predictor")
"""Type of the predictor on which a method is called."""


@dataclass(frozen=True)
class Predictor(ABC):
    """A trained network, or an ensemble, with its vocabularies and settings. Each kind of task has a subclass."""

    config: Config
    vocabularies: Vocabularies
    network: Network
    """The network; of an ensemble the first member, whose configuration controls the search."""
    options: DecodingOptions = NO_OPTIONS
    name: str = ""
    """Name in error messages: the run folder."""
    members: EnsembleMembers = NO_MEMBERS
    """Members of an ensemble; empty for one network."""

    def __post_init__(self) -> None:
        """Check the types of the fields; `ArgumentError` names the first wrong one."""
        kinds = {
            "config": Config,
            "vocabularies": Vocabularies,
            "network": Network,
            "options": DecodingOptions,
            "name": str,
        }
        for name, kind in kinds.items():
            convert_argument(name, getattr(self, name), kind)
        check_members(self.members)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of sources, targets and features."""
        return build_tokenizers(self.config.data, self.vocabularies.pieces)

    @property
    def networks(self) -> tuple[Network, ...]:
        """All networks that predict together."""
        return self.members.networks or (self.network,)

    @cached_property
    def autoregressive(self) -> bool:
        """True if outputs are decoded symbol by symbol."""
        return get_task_settings(self.config.task).autoregressive

    @property
    def is_ensemble(self) -> bool:
        """True for an ensemble, also for one of a single member."""
        return bool(self.members.networks)

    @property
    def max_length(self) -> int:
        """Return the maximum output length, in symbols; `ConfigError` if the limits exclude every length."""
        return max_output_length(self.config.search, self.vocabularies)

    def own_sources(self, source: Int[Tensor, "B S"]) -> list[Int[Tensor, "B S"]]:
        """Return the source ids of each network."""
        return self.members.own(source) if self.is_ensemble else [source]

    def evaluating(self) -> AbstractContextManager[None]:
        """Keep all networks in evaluation mode inside the context."""
        return evaluation_modes(self.networks)

    @abstractmethod
    def with_options(self, options: DecodingOptions) -> "Predictor":
        """Return a predictor with other options: constraints, a lexicon, search trees, forced attention.

        Raises:
            ConfigError: The task does not support an option.
        """

    @abstractmethod
    def _searched(self, part: ExampleChunk, best: int) -> list[list[Trace]]:
        """Return the best outputs of each example."""

    @abstractmethod
    def _forced(self, part: ExampleChunk) -> list[Trace]:
        """Score the targets of examples."""

    def _samples(self, part: ExampleChunk, drawing: SamplingConfig) -> list[list[Trace]]:
        """Sample outputs of each example; `ConfigError` for tasks that are not autoregressive."""
        raise self.refused("sample")

    def refused(self, what: str) -> ConfigError:
        """Return the error for an operation that only autoregressive tasks support."""
        task = quote(self.config.task)
        return ConfigError(f"{what}: this is for outputs written symbol by symbol, but the model's task is {task}")

    def with_beam(self: Own, width: int) -> Own:
        """Return a predictor with another beam size; 1 is greedy search. An invalid size raises `ConfigError`."""
        return self.with_search(msgspec.structs.replace(self.config.search, beam_size=width))

    def with_search(self: Own, search: SearchConfig) -> Own:
        """Return a predictor with other search settings; contradictory or ineffective ones raise `ConfigError`."""
        search = convert_argument("search", search, SearchConfig)
        config, before = (
            validate_config(msgspec.structs.replace(self.config, search=search)),
            flatten_config(self.config),
        )
        reject_unused(config, {key for key, value in flatten_config(config).items() if value != before[key]})
        max_output_length(config.search, self.vocabularies)
        return replace(self, config=config)

    @overload
    def predict(self, sources: Iterator[str], features: Features = None, prefixes: Prefixes = None) -> Iterator[Trace]:
        """Return an iterator for a stream."""

    @overload
    def predict(self, sources: Collection[str], features: Features = None, prefixes: Prefixes = None) -> list[Trace]:
        """Return a list for a list."""

    def predict(
        self, sources: Iterable[str], features: Features = None, prefixes: Prefixes = None
    ) -> list[Trace] | Iterator[Trace]:
        """Decode each source.

        Args:
            sources: Source texts: a list, or an iterator.
            features: Features of each source, if the model was trained with them.
            prefixes: Prefix of each output.

        Returns:
            One `Trace` per source, in order: a list, or an iterator for an iterator. An empty source has an empty
            output.

        Raises:
            DataError: A source is too long, or the numbers of sources, features and prefixes differ.
        """
        return self.trace(make_examples(sources, features), prefixes)

    @overload
    def nbest(
        self, sources: Iterator[str], count: int, features: Features = None, until: float = 1.0
    ) -> Iterator[list[Trace]]:
        """Return an iterator for a stream."""

    @overload
    def nbest(
        self, sources: Collection[str], count: int, features: Features = None, until: float = 1.0
    ) -> list[list[Trace]]:
        """Return a list for a list."""

    def nbest(
        self, sources: Iterable[str], count: int, features: Features = None, until: float = 1.0
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Return the n-best list of each source text; see `hypotheses`."""
        return self.hypotheses(make_examples(sources, features), count, until)

    @overload
    def sample(
        self, sources: Iterator[str], drawing: SamplingConfig, features: Features = None
    ) -> Iterator[list[Trace]]:
        """Return an iterator for a stream."""

    @overload
    def sample(self, sources: Collection[str], drawing: SamplingConfig, features: Features = None) -> list[list[Trace]]:
        """Return a list for a list."""

    def sample(
        self, sources: Iterable[str], drawing: SamplingConfig, features: Features = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Sample outputs of each source text, numbered from 0; see `samples`."""
        return self.samples(make_examples(sources, features), drawing)

    @overload
    def trace(self, examples: Iterator[Example], prefixes: Prefixes = None) -> Iterator[Trace]:
        """Return an iterator for a stream."""

    @overload
    def trace(self, examples: Collection[Example], prefixes: Prefixes = None) -> list[Trace]:
        """Return a list for a list."""

    def trace(self, examples: Iterable[Example], prefixes: Prefixes = None) -> list[Trace] | Iterator[Trace]:
        """Decode examples, ignoring their targets. Sources of similar length share batches; results are in order."""
        return self._decode(lambda part: [traces[0] for traces in self._searched(part, 1)], examples, prefixes)

    @overload
    def hypotheses(
        self, examples: Iterator[Example], count: int, until: float = 1.0, prefixes: Prefixes = None
    ) -> Iterator[list[Trace]]:
        """Return an iterator for a stream."""

    @overload
    def hypotheses(
        self, examples: Collection[Example], count: int, until: float = 1.0, prefixes: Prefixes = None
    ) -> list[list[Trace]]:
        """Return a list for a list."""

    def hypotheses(
        self, examples: Iterable[Example], count: int, until: float = 1.0, prefixes: Prefixes = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Return the n-best list of each example, with the probability of each output normalized over the list.

        Args:
            examples: Examples; their targets are ignored.
            count: Length of each list. The beam is at least as large.
            until: Cut each list when its outputs reach this probability mass; the first output always stays.
            prefixes: Prefix of each output.
        """
        most: int = convert_argument("count", count, Width)
        share: float = convert_argument("until", until, Probability)

        def decode(part: ExampleChunk) -> list[list[Trace]]:
            """Decode the lists of some examples."""
            return [outputs_to_top_mass(traces, share) for traces in self._searched(part, most)]

        return self._decode(decode, examples, prefixes, most)

    @overload
    def samples(
        self, examples: Iterator[Example], drawing: SamplingConfig, first: int = 0, prefixes: Prefixes = None
    ) -> Iterator[list[Trace]]:
        """Return an iterator for a stream."""

    @overload
    def samples(
        self, examples: Collection[Example], drawing: SamplingConfig, first: int = 0, prefixes: Prefixes = None
    ) -> list[list[Trace]]:
        """Return a list for a list."""

    def samples(
        self, examples: Iterable[Example], drawing: SamplingConfig, first: int = 0, prefixes: Prefixes = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Sample outputs of each example.

        A sample depends on the seed and the number of its example, counted from `first`, and not on other examples.
        """
        how: SamplingConfig = convert_argument("drawing", drawing, SamplingConfig)
        number: int = convert_argument("first", first, Number)
        return self._decode(lambda part: self._samples(part, how), examples, prefixes, how.samples, number)

    @overload
    def force(self, examples: Iterator[Example]) -> Iterator[Trace]:
        """Return an iterator for a stream."""

    @overload
    def force(self, examples: Collection[Example]) -> list[Trace]:
        """Return a list for a list."""

    def force(self, examples: Iterable[Example]) -> list[Trace] | Iterator[Trace]:
        """Score the targets of examples: return a `Trace` of each target as if it had been decoded.

        A target symbol outside the vocabulary counts as UNK; `Trace.unknown_target` lists its position.

        Raises:
            DataError: A source is empty.
        """
        return self._decode(self._forced, examples)

    def _decode(
        self,
        decode: Callable[[ExampleChunk], list[Result]],
        examples: Iterable[Example],
        prefixes: Prefixes = None,
        outputs: int = 1,
        first: int = 0,
    ) -> list[Result] | Iterator[Result]:
        """Decode a list into a list, or a stream into a stream, with a given number of outputs per example."""
        given: list[Example] | Iterator[Example] = convert_argument("examples", examples, Iterable[Example])
        if self.options.lattice:  # which holds every hypothesis
            outputs = max(outputs, self.config.search.beam_size)
        return decode_parts(decode, given, convert_argument("prefixes", prefixes, Prefixes), outputs, first)

    def _lists(
        self, part: ExampleChunk, asked: SearchRequest, decode: Callable[[InferenceBatch], list[list[Hypothesis]]]
    ) -> list[list[Trace]]:
        """Decode examples batch by batch, except empty sources and those that the lexicon answers."""
        numbered = enumerate(part.examples, start=part.first + 1)
        read = [read_example(example, number, self.tokenizers, self.config.data) for number, example in numbered]
        read, sources = encode_source_batch(part.examples, read, self.vocabularies, self.tokenizers, self.config)
        traces = lexicon_answers(read, self.options.lexicon, self.tokenizers, self.vocabularies.target, asked)
        shortest_first = np.argsort(sources.lengths, kind="stable").tolist()
        order = [row for row in shortest_first if read[row].source and row not in traces]
        device, size = next(self.network.parameters()).device, self.config.search.batch_size
        check_process(device)
        with torch.inference_mode(), self.evaluating(), inference_kernels(len(order) * asked.width, device.type):
            for own_rows in batched(order, sources.lengths, asked, size):
                rows = np.array(own_rows)
                source, lengths = sources.pad(rows)
                own = [read[row] for row in rows.tolist()]
                spans = output_length_limits(own, self.config.search, self.max_length, asked.constraints.take(rows))
                if self._forbids_all(asked):
                    check_minimum(own, spans, rows + part.first, self.vocabularies.target, self._copies)
                positions = torch.tensor([len(each.source) for each in own], device=device)
                work = InferenceBatch(rows, source.to(device), lengths.to(device), spans, positions, part.first)
                for row, found in zip(rows.tolist(), check_finite_outputs(decode(work), self.name), strict=True):
                    begun = asked.constraints.begun(row)
                    traces[row] = [self._trace(read[row], one, rank, begun) for rank, one in enumerate(found, 1)]
        return [
            traces[row] if row in traces else [self._trace(each, None, 1, asked.constraints.begun(row))]
            for row, each in enumerate(read)
        ]

    @property
    def _copies(self) -> bool:
        """True if outputs may copy source symbols outside the vocabulary."""
        return self.config.decoder.pointer_generator

    @cached_property
    def _ranked_by_score(self) -> bool:
        """True if a search ranks outputs by their log-probability alone."""
        return candidate_scorer(self.config.search).plain

    def _forbids_all(self, asked: SearchRequest) -> bool:
        """Return whether every symbol of the vocabulary is forbidden."""
        return len(np.unique(asked.constraints.forbidden)) == len(self.vocabularies.target.symbols)

    @cached_property
    def _names(self) -> np.ndarray:
        """Return the name of each target id."""
        target = self.vocabularies.target
        return np.array([target.symbol(identity, SPECIAL_NAMES) for identity in range(len(target))], dtype=object)

    def _named(self, ids: Int[np.ndarray, "*shape"], read: TokenizedSource) -> np.ndarray:
        """Return the names of ids in an output of this source."""
        names = self._names
        if (
            self.config.decoder.pointer_generator
        ):  # V + p is the symbol at source position p; beyond it, nothing is likely
            beyond = SPECIAL_NAMES[:1] * int(ids.max(initial=0))
            names = np.array([*names, *read.source, *beyond], dtype=object)
        return np.asarray(names[ids])

    def _trace(self, read: TokenizedSource, found: Hypothesis | None, rank: int, begun: int) -> Trace:
        """Return the trace of an output; its first `begun` symbols were given. `found` is None for an empty source."""
        decoded = found.decoded if found is not None else empty_output()
        ended = bool(len(decoded.ids)) and int(decoded.ids[-1]) == EOS
        symbols = tuple(self._named(decoded.ids, read).tolist())
        plain, tree = found is None or self._ranked_by_score, found.tree if found is not None else None
        painted = [each.step for each in self.options.painted if each.step < len(symbols)]
        return Trace(
            text=read.text,
            source=read.source,
            features=read.features,
            unknown=read.unknown,
            target=symbols,
            output=self.tokenizers.target.join(symbols[:-1] if ended else symbols),
            finished=ended or not self.autoregressive or not read.source,
            log_probabilities=decoded.log_probabilities,
            attention=decoded.weights,
            top_symbols=tuple(map(tuple, self._named(decoded.top_ids, read).tolist())),
            top_log_probabilities=decoded.top_log_probabilities,
            rank=rank,
            search_score=None if plain or found is None else found.score,
            forced=tuple(range(min(begun, len(symbols)))),
            painted=tuple(sorted(painted)),
            lattice=None if tree is None or found is None else tree.named(self._named(tree.ids, read), found.leaf),
            heads=decoded.heads,
            added=read.added,
            task=self.config.task,
            looks=decoded.looks,
        )
