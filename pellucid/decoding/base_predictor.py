"""The parts of every predictor: texts or examples in, traces out, for every task and every backend.

PyTorch is not needed to import this module.

`predict`, `nbest` and `sample` take texts, and make `Example`s of them. `predict_examples`, `nbest_examples` and
`sample_examples` take examples, and prefixes for all three. `score_examples` takes examples only, and scores their
targets. The command line reads examples: `pellucid predict` calls `predict_examples`, `nbest_examples` with
--nbest or --top-mass, and `sample_examples` with --sample; `pellucid score` calls `score_examples`.

Every method that decodes accepts any iterable. For a list it returns a list. For an iterator (a generator, `map`, an
open file) it returns an iterator of the results in their order, with bounded read-ahead (`streaming`) and bounded
memory. An invalid argument raises one `ArgumentError` that names it, and options that fit no source are refused before
the first source is read; in a stream, an error of an item is raised when the item is reached, after the results before
it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, overload

import numpy as np
from msgspec import Meta

from pellucid.alignment.types import DEFAULT_LIMITS, Alignment, ChunkLimits
from pellucid.argument_checks import convert_argument
from pellucid.config.settings import BeamSize, Config, SearchConfig
from pellucid.config.task_settings import get_task_settings
from pellucid.config.toml import convert_settings, flatten_config, override_settings
from pellucid.config.validation import reject_unused
from pellucid.data.characters import collate_characters
from pellucid.data.encoding import Ragged
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vocabulary import SPECIAL_NAMES, Vocabularies
from pellucid.decoding.confidence import (
    ConfidenceModel,
    add_confidences,
    describe_search_difference,
    describe_weight_difference,
)
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.derived_traces import lexicon_traces, outputs_to_top_mass
from pellucid.decoding.hypothesis import Hypothesis, check_finite_outputs
from pellucid.decoding.hypothesis_scorer import hypothesis_scorer
from pellucid.decoding.length_limits import check_length_limits, max_output_length
from pellucid.decoding.model_sharing import DEFAULT_CARD, CardOptions, HubCommit, HubRequest, registered_sharing
from pellucid.decoding.options import NO_OPTIONS, DecodingOptions
from pellucid.decoding.outputs import empty_output
from pellucid.decoding.preprocessing import (
    ChunkConfig,
    SourceBatch,
    TokenizedSource,
    add_unknown_contexts,
    encode_source_characters,
    encode_source_chunk,
    make_examples,
    split_into_batches,
    tokenize_source,
)
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.streaming import ExampleChunk, Prefix, Result, decode_chunks
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_alignment import align_trace
from pellucid.decoding.trace_schema import Origin
from pellucid.errors import ArgumentError, ConfigError, quote
from pellucid.shapes import Int

Prefixes = Iterable[Prefix] | None
"""Prefix of each output, as a text or its symbols; None for the prefix of the options."""
Features = Iterable[str] | None
"""Features of each source; None for a model without features."""
Probability = Annotated[float, Meta(gt=0.0, le=1.0)]
SourceNumber = Annotated[int, Meta(ge=0, le=2**62)]
PredictorT = TypeVar("PredictorT", bound="BasePredictor")
"""Type of the predictor on which a method is called."""


class PreparedChunk(NamedTuple):
    """Examples that are tokenized and encoded, and the traces of their outputs so far."""

    first: int
    """Number of the first example among all given ones, from 0."""
    config: ChunkConfig
    tokenized: list[TokenizedSource]
    """Source of each example."""
    sources: Ragged
    """Source ids of each example, as the network reads them."""
    order: list[int]
    """Rows of the examples to decode, shortest first: without empty sources, and those with an entry in the lexicon."""
    traces: dict[int, list[Trace]]
    """Traces by row: at first those of the lexicon, then also those of decoded batches."""
    characters: Ragged | None = None
    """Characters of the words of each source; None for a model that reads none."""

    @property
    def num_hypotheses(self) -> int:
        """Number of hypotheses to decode, over all sources."""
        return len(self.order) * self.config.hypotheses_per_source


@dataclass(frozen=True)
class BasePredictor(ABC):
    """Base of the predictors of every task and backend: a trained network, or an ensemble, that maps texts to traces.

    Subclasses compute with a backend: `Predictor` in PyTorch, `RuntimePredictor` in NumPy. Predictors are immutable.

    Raises:
        ArgumentError: A field has a wrong type, or the network has another kind or other sizes than this class,
            the task of `config` and the vocabularies need.
    """

    config: Config
    vocabularies: Vocabularies
    network: Any
    """The parameters of the network, in the form of the backend."""
    options: DecodingOptions = NO_OPTIONS
    name: str = ""
    """Name in error messages: the run folder, or "" if there is none."""
    confidence: ConfidenceModel | None = None
    """Fitted confidence of the run, from which best outputs get their `Trace.confidence`; None without one, as of an
    ensemble."""
    folder: str = ""
    """Run folder, or folder of an ensemble, from which it was loaded; "" if there is none. `save_pretrained` copies its
    files."""

    class_is_autoregressive: ClassVar[bool] = False
    """True for predictors that decode symbol by symbol, with an encoder-decoder."""

    def __post_init__(self) -> None:
        """Check the types of the fields; `ArgumentError` names the first wrong one."""
        for name, kind in self._field_kinds().items():
            convert_argument(name, getattr(self, name), kind)
        try:
            object.__setattr__(self, "config", convert_settings(self.config))
        except ConfigError as error:
            raise ArgumentError(f"config.{error}") from None
        self._check_networks()

    def _field_kinds(self) -> dict[str, Any]:
        """Return the type of each field, in the order in which they are checked."""
        return {
            "config": Config,
            "vocabularies": Vocabularies,
            "options": DecodingOptions,
            "name": str,
            "confidence": ConfidenceModel | None,
            "folder": str,
        }

    @abstractmethod
    def _check_networks(self) -> None:
        """Check that configuration, vocabularies and networks can be of one model."""

    @property
    @abstractmethod
    def num_networks(self) -> int:
        """Number of networks that predict together."""

    @property
    @abstractmethod
    def is_ensemble(self) -> bool:
        """True for an ensemble, also for one of a single member."""

    @abstractmethod
    def _inference_context(self, num_hypotheses: int) -> AbstractContextManager[None]:
        """Return a context in which the networks compute the outputs of a chunk.

        Args:
            num_hypotheses: Number of hypotheses to decode, over all sources of the chunk.
        """

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of sources, targets and features."""
        return build_tokenizers(self.config.data, self.vocabularies.pieces)

    @cached_property
    def autoregressive(self) -> bool:
        """True if outputs are decoded symbol by symbol, as the task of the model says."""
        return get_task_settings(self.config.task).autoregressive

    @property
    def pair_ngram_weight(self) -> float:
        """Weight of a pair n-gram model in the ranking of outputs, 0 to 1; 0 for networks alone."""
        return 0.0

    @property
    def _origin(self) -> Origin:
        """Origin of the outputs of a search."""
        return "search"

    @property
    def lowest_confidence_for_unknown(self) -> bool:
        """True if outputs for sources with unknown symbols have the lowest confidence.

        They do if symbols are characters or phones, all of the training set are known, and none is copied: the network
        has then never seen an unknown symbol. An unknown word in a sentence leaves the others.
        """
        data = self.config.data
        return data.source_symbols in ("characters", "ipa") and data.min_count == 1 and not self._copies

    @property
    def max_length(self) -> int:
        """Maximum output length, in symbols without EOS.

        Raises:
            ConfigError: As in `check_length_limits`.
        """
        return max_output_length(self.config.search, self.vocabularies)

    @abstractmethod
    def with_options(self: PredictorT, options: DecodingOptions) -> PredictorT:
        """Return a predictor with other options: constraints, a lexicon, search trees, forced attention.

        Args:
            options: Options for all outputs, which replace those of this predictor.

        Raises:
            ArgumentError: The argument has a wrong type.
            ConfigError: The task does not support an option.
        """

    @abstractmethod
    def _search_chunk(self, chunk: ExampleChunk, nbest: int) -> list[list[Trace]]:
        """Return the best outputs of each example."""

    @abstractmethod
    def _score_chunk(self, chunk: ExampleChunk) -> list[Trace]:
        """Score the targets of examples."""

    def _sample_chunk(self, chunk: ExampleChunk, sampling: SamplingConfig) -> list[list[Trace]]:
        """Sample outputs of each example; `ConfigError` for a predictor that cannot."""
        raise self.unsupported_error("sample_examples")

    def check_search(self, nbest: int, has_example_prefixes: bool) -> None:
        """Check the options of a search before the first source is read.

        Args:
            nbest: Maximum number of outputs per source.
            has_example_prefixes: True if each output has its own prefix, in place of that of the options.

        Raises:
            InputError: The task or the model does not support an option, or a length limit is too large.
        """
        check_length_limits(self.config.search, self.vocabularies)

    def check_sampling(self, has_example_prefixes: bool) -> None:
        """Check the options of sampling before the first source is read.

        Args:
            has_example_prefixes: True if each output has its own prefix, in place of that of the options.

        Raises:
            InputError: As in `check_search`; also if the task is not autoregressive (`ConfigError`).
        """
        if not self.autoregressive:
            raise self.unsupported_error("sample_examples")
        self.check_search(1, has_example_prefixes)

    def check_scoring(self) -> None:
        """Check the options of forced decoding before the first source is read.

        Raises:
            InputError: As in `check_search`.
        """
        check_length_limits(self.config.search, self.vocabularies)

    def no_confidence_reason(self, nbest: int = 1, has_example_prefixes: bool = False) -> str:
        """Return why the outputs of a search have no confidence; "" if the best output of each source has one.

        The fitted confidence holds for outputs of the search to which it was fitted. Constraints and options that
        change attention make other outputs, as do another beam size and other scores.

        Args:
            nbest: Maximum number of outputs per source. Lists that enlarge the beam have no confidence.
            has_example_prefixes: True if each output has its own prefix.
        """
        fitted, options = self.confidence, self.options
        if fitted is None:
            return (
                "no confidence is fitted to the outputs of these runs together; train --ensemble fits one"
                if self.is_ensemble
                else "the run has no fitted confidence; the training command, given again, fits it"
            )
        changed = {
            "a prefix": bool(options.prefix) or has_example_prefixes,
            "forbidden symbols": bool(options.forbidden),
            "required symbols": bool(options.required),
            "attention that is forced or masked": options.changes_attention,
        }
        for name, is_given in changed.items():
            if is_given:
                return f"the confidence does not hold for outputs with {name}"
        difference = describe_search_difference(fitted.search, self.config.search, nbest, self.autoregressive)
        return difference or describe_weight_difference(fitted.pair_ngram_weight, self.pair_ngram_weight)

    def unsupported_error(self, argument: str) -> ConfigError:
        """Return the error for an operation that only autoregressive tasks support; the caller raises it.

        Args:
            argument: Name of the operation or argument.
        """
        task = quote(self.config.task)
        return ConfigError(f"{argument}: expected outputs written symbol by symbol, but the model's task is {task}")

    def with_beam(self: PredictorT, beam_size: int) -> PredictorT:
        """Return a predictor with another beam size.

        Args:
            beam_size: Number of hypotheses per source, 1 to `MAX_BEAM_SIZE`; 1 is greedy search.

        Raises:
            ArgumentError: The size has a wrong type or is out of range.
            ConfigError: As in `with_search`.
        """
        return self.with_search({"beam_size": convert_argument("beam_size", beam_size, BeamSize)})

    def with_search(self: PredictorT, search: SearchConfig | Mapping[str, Any]) -> PredictorT:
        """Return a predictor with other search settings.

        Args:
            search: Search settings: a section of a `Config`, or a dict. Settings that a dict lacks stay as they are.

        Raises:
            ArgumentError: The argument is neither.
            ConfigError: A setting is unknown or out of range, contradicts another, or is changed without effect; or a
                length limit is too large (`check_length_limits`).
        """
        section: SearchConfig | Mapping[str, Any] = convert_argument("search", search, SearchConfig | Mapping[str, Any])
        config = override_settings(self.config, {"search": section})
        before = flatten_config(self.config)
        reject_unused(config, {key for key, value in flatten_config(config).items() if value != before[key]})
        check_length_limits(config.search, self.vocabularies)
        return replace(self, config=config)

    def save_pretrained(self, folder: str | Path, card: CardOptions = DEFAULT_CARD) -> None:
        """Write a folder with everything that prediction needs, and a model card; nothing of the training data.

        `pellucid.from_pretrained` and `pellucid.load` load it, also without PyTorch, and give the same outputs. It has
        the search settings of this predictor; decoding options such as constraints are not saved.

        Args:
            folder: The folder, which must be missing or empty, and not in the run folder.
            card: License, intended use and other texts of the card.

        Raises:
            ArgumentError: An argument has a wrong type, or the predictor is not that of the folder from which it was
                loaded, or was not loaded from one folder.
            RunError: The folder is not empty, is in the run folder, or cannot be written.
        """
        path: Path = convert_argument("folder", folder, str | Path)
        registered_sharing().save(self, path, convert_argument("card", card, CardOptions))

    def push_to_hub(
        self,
        repo_id: str,
        card: CardOptions = DEFAULT_CARD,
        private: bool = False,
        commit_message: str = "",
        token: str | None = None,
    ) -> HubCommit:
        """Push the files of `save_pretrained` to a repository of the Hugging Face Hub, which is created if needed.

        Requires the extra `hub`.

        Args:
            repo_id: Repository: "user/model".
            card: License, intended use and other texts of the card.
            private: Whether a new repository is private; an existing one stays as it is.
            commit_message: Message of the commit; "" for a standard one.
            token: Access token; None for that of the variable HF_TOKEN or of `hf auth login`.

        Returns:
            The commit, whose hash `from_pretrained` takes as the revision.

        Raises:
            ArgumentError: As in `save_pretrained`.
            RunError: The hub refuses the access, or cannot be reached.
        """
        for name, value, kind in (
            ("repo_id", repo_id, str),
            ("card", card, CardOptions),
            ("private", private, bool),
            ("commit_message", commit_message, str),
            ("token", token, str | None),
        ):
            convert_argument(name, value, kind)
        return registered_sharing().push(self, HubRequest(repo_id, private, commit_message, token), card)

    @overload
    def predict(self, sources: Iterator[str], features: Features = None, prefixes: Prefixes = None) -> Iterator[Trace]:
        """Decode a stream of sources.

        Returns:
            An iterator.
        """

    @overload
    def predict(self, sources: Collection[str], features: Features = None, prefixes: Prefixes = None) -> list[Trace]:
        """Decode a list of sources.

        Returns:
            A list.
        """

    def predict(
        self, sources: Iterable[str], features: Features = None, prefixes: Prefixes = None
    ) -> list[Trace] | Iterator[Trace]:
        """Return the best output of each source text; calls `predict_examples`.

        Args:
            sources: Source texts: a list, or an iterator.
            features: Features of each source, if the model was trained with them; None for no features.
            prefixes: Prefix of each output; None for the prefix of the options.

        Returns:
            One `Trace` per source, in order: a list, or an iterator for an iterator. An empty source has an empty
            output.

        Raises:
            InputError: As in `predict_examples`; also if the numbers of sources and features differ (`DataError`).
        """
        return self.predict_examples(make_examples(sources, features), prefixes)

    @overload
    def nbest(
        self, sources: Iterator[str], count: int, features: Features = None, top_mass: float = 1.0
    ) -> Iterator[list[Trace]]:
        """Decode a stream of sources.

        Returns:
            An iterator.
        """

    @overload
    def nbest(
        self, sources: Collection[str], count: int, features: Features = None, top_mass: float = 1.0
    ) -> list[list[Trace]]:
        """Decode a list of sources.

        Returns:
            A list.
        """

    def nbest(
        self, sources: Iterable[str], count: int, features: Features = None, top_mass: float = 1.0
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Return the n-best list of each source text; calls `nbest_examples`.

        Args:
            sources: Source texts: a list, or an iterator.
            count: Maximum length of each list, 1 to `MAX_BEAM_SIZE`. The lists come from the beam of the settings; a
                greater count enlarges it.
            features: Features of each source, if the model was trained with them; None for no features.
            top_mass: Cut each list when its outputs reach this probability mass, above 0 to 1; the first output stays.

        Returns:
            One list of traces per source, the best first: a list, or an iterator for an iterator. The list of an empty
            source has one empty output.

        Raises:
            InputError: As in `nbest_examples`; also if the numbers of sources and features differ (`DataError`).
        """
        return self.nbest_examples(make_examples(sources, features), count, top_mass)

    @overload
    def sample(
        self, sources: Iterator[str], sampling: SamplingConfig, features: Features = None
    ) -> Iterator[list[Trace]]:
        """Sample from a stream of sources.

        Returns:
            An iterator.
        """

    @overload
    def sample(
        self, sources: Collection[str], sampling: SamplingConfig, features: Features = None
    ) -> list[list[Trace]]:
        """Sample from a list of sources.

        Returns:
            A list.
        """

    def sample(
        self, sources: Iterable[str], sampling: SamplingConfig, features: Features = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Sample outputs of each source text, as `sample_examples` does, with sources numbered from 0.

        Args:
            sources: Source texts: a list, or an iterator.
            sampling: Number of samples, temperature, filters and seed.
            features: Features of each source, if the model was trained with them; None for no features.

        Returns:
            One list of `sampling.samples` traces per source: a list, or an iterator for an iterator.

        Raises:
            InputError: As in `sample_examples`; also if the numbers of sources and features differ (`DataError`).
        """
        return self._check_and_sample("sample", make_examples(sources, features), sampling, 0, None)

    @overload
    def predict_examples(self, examples: Iterator[Example], prefixes: Prefixes = None) -> Iterator[Trace]:
        """Decode a stream of examples.

        Returns:
            An iterator.
        """

    @overload
    def predict_examples(self, examples: Collection[Example], prefixes: Prefixes = None) -> list[Trace]:
        """Decode a list of examples.

        Returns:
            A list.
        """

    def predict_examples(self, examples: Iterable[Example], prefixes: Prefixes = None) -> list[Trace] | Iterator[Trace]:
        """Return the best output of each example; targets are ignored. Sources of similar length share batches.

        `pellucid predict` calls this method, and so does `predict`, which takes texts.

        Args:
            examples: Examples: a list, or an iterator.
            prefixes: Prefix of each output; None for the prefix of the options.

        Returns:
            One `Trace` per example, in order: a list, or an iterator for an iterator. An empty source has an empty
            output.

        Raises:
            ArgumentError: An argument has a wrong type.
            DataError: A source is too long, or has features and the model reads none; or the numbers of examples and
                prefixes differ.
            ConfigError: The task does not support prefixes, or the length limits are too large.
            ConstraintError: No output can satisfy a prefix, required and forbidden symbols (`build_constraints`), or
                the length limits leave no room for them.
            RunError: A network computes numbers that are not finite (`NotFiniteError`); only some members of an
                ensemble copy from the source; or a forked process cannot use the GPU.
            InputError: Forced attention weights or masked positions do not fit a source or the model.
        """
        self.check_search(1, prefixes is not None)
        return self._check_and_decode(
            lambda chunk: [traces[0] for traces in self._search_with_confidence(chunk, 1)], examples, prefixes
        )

    @overload
    def nbest_examples(
        self, examples: Iterator[Example], count: int, top_mass: float = 1.0, prefixes: Prefixes = None
    ) -> Iterator[list[Trace]]:
        """Decode a stream of examples.

        Returns:
            An iterator.
        """

    @overload
    def nbest_examples(
        self, examples: Collection[Example], count: int, top_mass: float = 1.0, prefixes: Prefixes = None
    ) -> list[list[Trace]]:
        """Decode a list of examples.

        Returns:
            A list.
        """

    def nbest_examples(
        self, examples: Iterable[Example], count: int, top_mass: float = 1.0, prefixes: Prefixes = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Return the n-best list of each example; `Trace.nbest_probability` is of the list before it is cut.

        `pellucid predict --nbest` calls this method, and so does `nbest`, which takes texts.

        Args:
            examples: Examples; their targets are ignored.
            count: Maximum length of each list, 1 to `MAX_BEAM_SIZE`. The lists come from the beam of the settings; a
                greater count enlarges it.
            top_mass: Cut each list when its outputs reach this probability mass, above 0 to 1; the first output stays.
            prefixes: Prefix of each output; None for the prefix of the options.

        Returns:
            One list of traces per example, the best first: a list, or an iterator for an iterator. The list of an empty
            source has one empty output.

        Raises:
            InputError: As in `predict_examples`; also if `count` or `top_mass` is out of range (`ArgumentError`), or
                `count` is above 1 for a model with one output per source, such as a tagger (`ConfigError`).
        """
        nbest: int = convert_argument("count", count, BeamSize)
        mass: float = convert_argument("top_mass", top_mass, Probability)
        self.check_search(nbest, prefixes is not None)

        def decode_chunk(chunk: ExampleChunk) -> list[list[Trace]]:
            """Decode the n-best lists of some examples.

            Args:
                chunk: Examples.
            """
            return [outputs_to_top_mass(traces, mass) for traces in self._search_with_confidence(chunk, nbest)]

        return self._check_and_decode(decode_chunk, examples, prefixes, nbest)

    @overload
    def sample_examples(
        self, examples: Iterator[Example], sampling: SamplingConfig, first: int = 0, prefixes: Prefixes = None
    ) -> Iterator[list[Trace]]:
        """Sample from a stream of examples.

        Returns:
            An iterator.
        """

    @overload
    def sample_examples(
        self, examples: Collection[Example], sampling: SamplingConfig, first: int = 0, prefixes: Prefixes = None
    ) -> list[list[Trace]]:
        """Sample from a list of examples.

        Returns:
            A list.
        """

    def sample_examples(
        self, examples: Iterable[Example], sampling: SamplingConfig, first: int = 0, prefixes: Prefixes = None
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Sample outputs of each example from the distribution of an autoregressive model.

        A sample depends on the seed, the number of its example and its own number, and not on other examples.
        `pellucid predict --sample` calls this method.

        Args:
            examples: Examples; their targets are ignored.
            sampling: Number of samples, temperature, filters and seed.
            first: Number of the first example, from 0, which selects its random stream.
            prefixes: Prefix of each output; None for the prefix of the options.

        Returns:
            One list of `sampling.samples` traces per example, in the order of drawing: a list, or an iterator for an
            iterator.

        Raises:
            InputError: As in `predict_examples`; also if the task is not autoregressive or the options request a search
                tree (`ConfigError`).
        """
        return self._check_and_sample("sample_examples", examples, sampling, first, prefixes)

    def outputs_for_confidence(self, examples: Sequence[Example]) -> list[list[Trace]]:
        """Return the best output of each example, and the outputs that its margin needs (`output_margins`).

        Args:
            examples: Examples; their targets are ignored.

        Raises:
            InputError: As in `predict_examples`.
        """
        return list(self._check_and_decode(lambda chunk: self._search_for_margins(chunk, 1), list(examples)))

    def _check_and_sample(
        self, method: str, examples: Iterable[Example], sampling: SamplingConfig, first: int, prefixes: Prefixes
    ) -> list[list[Trace]] | Iterator[list[Trace]]:
        """Sample outputs of each example; errors name the method."""
        config: SamplingConfig = convert_argument("sampling", sampling, SamplingConfig)
        if not self.autoregressive:
            raise self.unsupported_error(method)
        number: int = convert_argument("first", first, SourceNumber)
        self.check_sampling(prefixes is not None)
        return self._check_and_decode(
            lambda chunk: self._sample_chunk(chunk, config), examples, prefixes, config.samples, number
        )

    @overload
    def score_examples(self, examples: Iterator[Example]) -> Iterator[Trace]:
        """Score a stream of examples.

        Returns:
            An iterator.
        """

    @overload
    def score_examples(self, examples: Collection[Example]) -> list[Trace]:
        """Score a list of examples.

        Returns:
            A list.
        """

    def score_examples(self, examples: Iterable[Example]) -> list[Trace] | Iterator[Trace]:
        """Score the targets of examples (forced decoding): return a `Trace` of each target as if it had been decoded.

        `Trace.unknown_target` lists the positions of target symbols that the model cannot write. In a sequence such a
        symbol has the log-probability of UNK; a tag or class has −∞, and an ignored tag 0. Of the options, only forced
        attention weights and masked positions apply.

        Args:
            examples: Examples: a list, or an iterator.

        Returns:
            One `Trace` per example, in order: a list, or an iterator for an iterator.

        Raises:
            DataError: A source is empty or too long, has features and the model reads none; or a target is too long, or
                does not fit its source (tags, positions).
            InputError: As in `predict_examples` otherwise; also if the options request a search tree (`ConfigError`).
        """
        self.check_scoring()
        return self._check_and_decode(self._score_chunk, examples)

    def align(self, pairs: Sequence[Example], limits: ChunkLimits = DEFAULT_LIMITS) -> list[Alignment | None]:
        """Align the source symbols of pairs with their target symbols, by the attention weights of forced decoding.

        Args:
            pairs: Pairs of a source and a target.
            limits: Sizes that a chunk of an alignment may have.

        Returns:
            The alignment of each pair, which is the monotone path of the highest score through the attention weights
            (`monotone_path`); None for a pair without a path within the limits.

        Raises:
            ConfigError: The model does not decode symbol by symbol, or has no attention.
            InputError: As in `score_examples`.
        """
        self.check_alignment()
        examples = convert_argument("pairs", pairs, Sequence[Example])
        limits = convert_argument("limits", limits, ChunkLimits)
        return [align_trace(trace, limits) for trace in self.score_examples(examples)]

    def check_alignment(self) -> None:
        """Raise `ConfigError` if the outputs of this model have no attention weights to align them by."""
        if not self.autoregressive:
            raise self.unsupported_error("align")
        if self.config.attention.type == "none":
            raise ConfigError(
                "align: the model has no attention (attention.type = 'none'); align the pairs without a run, by "
                "expectation-maximization"
            )

    def _check_and_decode(
        self,
        decode_chunk: Callable[[ExampleChunk], list[Result]],
        examples: Iterable[Example],
        prefixes: Prefixes = None,
        outputs_per_source: int = 1,
        first: int = 0,
    ) -> list[Result] | Iterator[Result]:
        """Check the arguments, and decode a list into a list, or a stream into a stream (`decode_chunks`)."""
        converted: list[Example] | Iterator[Example] = convert_argument("examples", examples, Iterable[Example])
        if self.options.search_tree:  # a search tree holds every hypothesis of the beam
            outputs_per_source = max(outputs_per_source, self.config.search.beam_size)

        def decode_with_contexts(chunk: ExampleChunk) -> list[Result]:
            return decode_chunk(chunk._replace(examples=add_unknown_contexts(chunk.examples, self.config.data)))

        prefixes = convert_argument("prefixes", prefixes, Prefixes)
        return decode_chunks(decode_with_contexts, converted, prefixes, outputs_per_source, first)

    def _search_with_confidence(self, chunk: ExampleChunk, nbest: int) -> list[list[Trace]]:
        """Return the best outputs of each example; the first of each has its confidence, if there is one."""
        if self.confidence is None or self.no_confidence_reason(nbest, chunk.prefixes is not None):
            return self._search_chunk(chunk, nbest)
        outputs = add_confidences(self.confidence, self._search_for_margins(chunk, nbest))
        return [traces[:nbest] for traces in outputs]

    def _search_for_margins(self, chunk: ExampleChunk, nbest: int) -> list[list[Trace]]:
        """Return the outputs of `_search_chunk`, and those that the margins of the best ones need."""
        return self._search_chunk(chunk, nbest)

    def _encode_chunk(self, chunk: ExampleChunk, config: ChunkConfig) -> PreparedChunk:
        """Tokenize and encode a chunk, and look its sources up in the lexicon.

        `_batches` yields its batches, which are decoded within `_inference_context`; `_add_traces` and `_all_traces`
        collect their outputs.
        """
        numbered = enumerate(chunk.examples, start=chunk.first + 1)
        tokenized_sources = [
            tokenize_source(example, number, self.tokenizers, self.config.data) for number, example in numbered
        ]
        tokenized_sources, sources = encode_source_chunk(
            chunk.examples, tokenized_sources, self.vocabularies, self.tokenizers, self.config
        )
        traces = lexicon_traces(
            tokenized_sources, self.options.lexicon, self.tokenizers, self.vocabularies.target, config
        )
        by_length = np.argsort(sources.lengths, kind="stable").tolist()
        order = [row for row in by_length if tokenized_sources[row].source and row not in traces]
        characters = encode_source_characters(chunk.examples, self.vocabularies, self.tokenizers, self.config)
        return PreparedChunk(chunk.first, config, tokenized_sources, sources, order, traces, characters)

    def _batches(self, prepared: PreparedChunk) -> Iterator[SourceBatch]:
        """Yield the sources to decode in batches, as arrays."""
        batches = split_into_batches(
            prepared.order, prepared.sources.lengths, prepared.config, self.config.search.batch_size, self._count_logits
        )
        for batch_rows in batches:
            rows = np.array(batch_rows)
            source, lengths = prepared.sources.pad(rows)
            positions = np.array([len(prepared.tokenized[row].source) for row in batch_rows], np.int64)
            characters = None if prepared.characters is None else collate_characters(prepared.characters, rows)
            yield SourceBatch(rows, source, lengths, positions, prepared.first, characters)

    def _count_logits(self, length: int) -> int:
        """Return the number of logits of a hypothesis that all networks compute together, for a source of a length."""
        return self.num_networks * len(self.vocabularies.target)

    def _add_traces(self, prepared: PreparedChunk, batch: SourceBatch, hypotheses: Sequence[list[Hypothesis]]) -> None:
        """Add the traces of the outputs of a batch, the best first, after checking that their numbers are finite."""
        checked = check_finite_outputs(hypotheses, self.name, self.config)
        for row, outputs in zip(batch.rows.tolist(), checked, strict=True):
            prefix_length = prepared.config.constraints.prefix_length(row)
            prepared.traces[row] = [
                self._build_trace(prepared.tokenized[row], hypothesis, rank, prefix_length)
                for rank, hypothesis in enumerate(outputs, 1)
            ]

    def _all_traces(self, prepared: PreparedChunk) -> list[list[Trace]]:
        """Return the traces of each example; those of an empty source are one empty output."""
        traces = prepared.traces
        constraints = prepared.config.constraints
        return [
            traces[row] if row in traces else [self._build_trace(tokenized, None, 1, constraints.prefix_length(row))]
            for row, tokenized in enumerate(prepared.tokenized)
        ]

    @property
    def _copies(self) -> bool:
        """True if outputs may copy source symbols outside the vocabulary."""
        return self.config.decoder.pointer_generator

    @cached_property
    def _ranks_by_log_probability(self) -> bool:
        """True if a search ranks outputs by their log-probability alone."""
        return hypothesis_scorer(self.config.search).is_log_probability

    def _forbids_all(self, constraints: Constraints) -> bool:
        """Return whether every symbol of the vocabulary is forbidden."""
        return len({*constraints.forbidden.tolist()}) == len(
            self.vocabularies.target.symbols
        )  # np.unique imports numpy.ma

    @cached_property
    def _names(self) -> np.ndarray:
        """Return the name of each target id."""
        return np.array([*SPECIAL_NAMES, *self.vocabularies.target.symbols], dtype=object)

    def _symbol_names(self, ids: Int[np.ndarray, "*shape"], source: TokenizedSource) -> np.ndarray:
        """Return the names of ids in an output of this source."""
        names = self._names
        if self._copies:
            # The id V + p is the symbol at source position p. Ids beyond the source have probability zero.
            padding = SPECIAL_NAMES[:1] * int(ids.max(initial=0))
            names = np.array([*names, *source.source, *padding], dtype=object)
        return np.asarray(names[ids])

    def _build_trace(
        self, source: TokenizedSource, hypothesis: Hypothesis | None, rank: int, prefix_length: int
    ) -> Trace:
        """Return the trace of an output, whose first symbols are a prefix; `hypothesis` is None for an empty source."""
        output = hypothesis.decoded if hypothesis is not None else empty_output()
        symbols = tuple(self._symbol_names(output.ids, source).tolist())
        pair_ngram_score = None if hypothesis is None else hypothesis.pair_ngram_score
        is_log_probability = hypothesis is None or (self._ranks_by_log_probability and pair_ngram_score is None)
        search_tree = None
        if hypothesis is not None and hypothesis.tree is not None:
            names = self._symbol_names(hypothesis.tree.ids, source)
            search_tree = hypothesis.tree.named(names, hypothesis.leaf)
        return Trace(
            text=source.text,
            source=source.source,
            num_features=source.num_features,
            unknown=source.unknown,
            target=symbols,
            output=self.tokenizers.target.join(symbols[:-1] if output.is_finished else symbols),
            finished=output.is_finished or not self.autoregressive or not source.source,
            log_probabilities=output.log_probabilities,
            attention=output.weights,
            top_symbols=tuple(map(tuple, self._symbol_names(output.top_ids, source).tolist())),
            top_log_probabilities=output.top_log_probabilities,
            origin="search" if hypothesis is None else self._origin,
            rank=rank,
            search_score=None if is_log_probability or hypothesis is None else hypothesis.score,
            pair_ngram_score=pair_ngram_score,
            forced=tuple(range(min(prefix_length, len(symbols)))),
            forced_attention=tuple(
                sorted(row.step for row in self.options.forced_attention if row.step < len(symbols))
            ),
            search_tree=search_tree,
            heads=output.heads,
            summed_features=source.summed_features,
            task=self.config.task,
            hop_weights=output.hop_weights,
        )
