"""The pair n-gram model of a training set: outputs with their probabilities, without a network.

A graphone is a pair of source symbols and the target symbols that are aligned with them. The joint probability of a
source x and an output y is the sum, over their alignments, of the probability that an n-gram model gives the sequence
of graphones. Training takes seconds for 100,000 short pairs.

S source positions, G graphones, M maximum number of target symbols of a graphone, K outputs.

References:
    Bisani and Ney 2008, Joint-sequence models for grapheme-to-phoneme conversion; Novak, Minematsu and Hirose 2016,
    Phonetisaurus.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pellucid.alignment.types import MAX_PAIR_EDGES, ChunkLimits, GraphoneKeys, SymbolPairs
from pellucid.argument_checks import argument_error, convert_argument
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.dependencies import has_package
from pellucid.errors import ArgumentError
from pellucid.kernels.runtime import defer_signals
from pellucid.pair_ngram.kneser_ney import MIN_PROBABILITY, NgramModel, fit_ngram_model
from pellucid.pair_ngram.python_search import PythonSearch
from pellucid.pair_ngram.types import SOURCE_CHUNK, GraphoneTable, SearchSettings, chunk_limits, given_target
from pellucid.shapes import Float, Int

ORDER = 8
"""Default order of the n-gram model, in graphones."""
TARGET_CHUNKS = (2, 3, 4)
"""Candidates for the maximum number of target symbols of a graphone."""
MIN_ALIGNED = 0.99
"""The smallest candidate with which this share of the examples has an alignment is chosen, else the largest. Examples
beyond `MAX_PAIR_EDGES` do not count."""
MAX_CHUNK_GRAPHONES = 20_000
"""Maximum number of graphones with the same source symbols, which bounds time and memory of a search."""
MAX_ORDER = 16
"""Maximum order of a model, which bounds the time of a search."""
LOG_TOLERANCE = 1e-3
"""Tolerance of logarithms of probabilities, which are at most 0."""
BEAM_SIZE, PRUNING_MARGIN = 64, 10.0
"""Hypotheses per source position, and the greatest difference to the best log-probability there."""


class PairOutput(NamedTuple):
    """One output."""

    target: tuple[int, ...]
    """Target ids, without the end symbol."""
    score: float
    """Natural logarithm of its joint probability with the source."""


class ChunkedPair(NamedTuple):
    """The most probable alignment of a source with a target."""

    sizes: list[tuple[int, int]]
    """Number of source and of target symbols of each chunk, in order."""
    log_probability: float
    """Joint log-probability of source and target, over their alignments in the beam."""


MAX_PYTHON_WORK = 500 * 8**2
"""Sum of the squares of the source lengths that a process searches in Python before Numba is loaded: 500 words of eight
symbols. Loading takes as long as 850 searches of words (`benchmarks/backend_thresholds.py`). The time of a search grows
with the square of the length, since the number of hypotheses grows with it."""


class _PythonWork:
    """Sum of the squares of the source lengths that this process has searched in Python."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.total = 0
        self.lock = threading.Lock()

    def add(self, length: int) -> bool:
        """Add a search, unless the total exceeds `MAX_PYTHON_WORK` with it; return whether it was added.

        Args:
            length: Source length.
        """
        with self.lock:
            if self.total + length**2 > MAX_PYTHON_WORK:
                return False
            self.total += length**2
        return True


_python_work = _PythonWork()


def _use_numba(length: int) -> bool:
    """Return whether to search a source of this length in Numba: it is loaded, or loading is worth it now."""
    if "numba" in sys.modules:
        return sys.modules["numba"] is not None
    return not _python_work.add(length) and has_package("numba")


@dataclass(frozen=True, eq=False)
class PairNgram:
    """A pair n-gram model.

    Raises:
        ArgumentError: A field has a wrong type, or its contents do not fit the other fields.

    Attributes:
        numbering: Numbering of the graphones.
        graphones: Keys of the graphones in ascending order. Token g of `model` is graphone g; the two tokens after them
            are begin and end.
        model: N-gram model over graphones.
    """

    numbering: GraphoneKeys
    graphones: Int[np.ndarray, " G"]
    model: NgramModel

    def __post_init__(self) -> None:
        """Check types and contents, so that no search reads outside the arrays or loops forever."""
        numbering: GraphoneKeys = convert_argument("numbering", self.numbering, GraphoneKeys)
        object.__setattr__(self, "numbering", numbering)
        if not isinstance(self.model, NgramModel):
            raise argument_error("model", "an NgramModel", self.model)
        kinds = dict(zip(NgramModel._fields, (np.int32, np.float32, np.float32, np.int32, np.int32), strict=True))
        arrays: dict[str, tuple[object, Any]] = {"graphones": (self.graphones, np.int64)}
        arrays |= {f"model.{name}": (getattr(self.model, name), kind) for name, kind in kinds.items()}
        for name, (values, kind) in arrays.items():
            if not isinstance(values, np.ndarray) or values.dtype != kind or values.ndim != 1 or not len(values):
                raise argument_error(name, f"a one-dimensional array of {np.dtype(kind)}", values)
        if error := _structure_error(self):
            raise ArgumentError(error)

    @cached_property
    def table(self) -> GraphoneTable:
        """The graphones, as the search reads them."""
        size = len(self.graphones)
        factor = (self.numbering.target_size + 1) ** self.numbering.target_chunk
        chunk_keys, first_graphone = np.unique(self.graphones // factor, return_index=True)
        target, lengths = _split_keys(self.graphones % factor, self.numbering)
        unigrams = self.model.token[1 : self.model.first_child[1]]
        return GraphoneTable(
            chunk_keys=chunk_keys,
            first_graphone=np.append(first_graphone, size),
            target=target,
            target_length=lengths,
            source_size=self.numbering.source_size,
            begin_node=1 + int(np.searchsorted(unigrams, size)),
            end_token=size + 1,
            unseen_log_probability=float(self.model.log_probability[1 : 1 + len(unigrams)].min()),
        )

    def search(self, source: Sequence[int], count: int, beam_size: int = BEAM_SIZE) -> list[PairOutput]:
        """Return the most probable outputs of a source, the best first; fewer than `count` if the beam holds fewer.

        The score of an output y is log p(x, y) = log Σ_a Π_k p(g_k | g_1 … g_(k−1)), where a are the alignments of the
        source x with y into graphones g_1, g_2, …, the last of which is the end. Alignments outside the beam, and those
        of which a part is less probable than the best one there by more than `PRUNING_MARGIN`, are left out.

        The arguments are not checked: that takes as long as the search.

        Args:
            source: Source ids.
            count: Maximum number of outputs, at least 1.
            beam_size: Hypotheses per source position.
        """
        outputs, scores = self._search(source, None, SearchSettings(max(beam_size, count), PRUNING_MARGIN, count))
        return [
            PairOutput(self._target_ids(output), float(score)) for output, score in zip(outputs, scores, strict=True)
        ]

    def _search(
        self, source: Sequence[int], target: Sequence[int] | None, settings: SearchSettings
    ) -> tuple[Int[np.ndarray, "K S"], Float[np.ndarray, " K"]]:
        """Return the graphones and the scores of the best outputs; in Python as long as loading Numba is not worth it.

        `target` is None for a search of all outputs.
        """
        if not _use_numba(len(source)):
            return self._python_search.search_outputs(list(source), None if target is None else list(target), settings)
        from pellucid.pair_ngram.numba_search import search_outputs  # Numba takes a second to import

        ids = np.array(source, np.int64)
        given = given_target(target)
        with defer_signals():
            return search_outputs(self.model, self.table, ids, given, settings)

    @cached_property
    def _python_search(self) -> PythonSearch:
        """Search in Python."""
        return PythonSearch(self.model, self.table)

    def log_probability(self, source: Sequence[int], target: Sequence[int]) -> float:
        """Return the log-probability of a source with a target; −∞ if they have no alignment.

        The arguments are not checked: that takes as long as the computation.

        Args:
            source: Source ids.
            target: Target ids, without the end symbol.
        """
        _, scores = self._search(source, target, SearchSettings(BEAM_SIZE, PRUNING_MARGIN, 1))
        return float(scores[0]) if len(scores) else -np.inf

    def score(self, source: Sequence[int], target: Sequence[int]) -> float:
        """Return the log-probability of a source with a target; without an alignment, a lower finite number.

        It is (max(S, T) + 1) log p(unseen graphone) for S source and T target symbols, as if each of them were an
        unseen graphone, and the end unseen as well: no more than the sum over all alignments, if there is a source.

        Args:
            source: Source ids.
            target: Target ids, without the end symbol.
        """
        log_probability = self.log_probability(source, target)
        lowest = self.table.unseen_log_probability * (max(len(source), len(target)) + 1)
        return log_probability if np.isfinite(log_probability) else lowest

    def align(self, source: Sequence[int], target: Sequence[int]) -> ChunkedPair | None:
        """Return the most probable alignment of a source with a target, and their log-probability, from one search.

        Args:
            source: Source ids.
            target: Target ids, without the end symbol.

        Returns:
            The sizes of the chunks, with what `log_probability` returns; None without an alignment (`chunk_limits`).
        """
        outputs, scores = self._search(source, target, SearchSettings(BEAM_SIZE, PRUNING_MARGIN, 1))
        if not len(outputs):
            return None
        return ChunkedPair(self._chunk_sizes(outputs[0].tolist(), len(source), list(target)), float(scores[0]))

    def covers_source(self, source: Sequence[int]) -> bool:
        """Return whether a source can be divided into chunks of training pairs, so that `search` skips no symbol.

        Args:
            source: Source ids.
        """
        digits, keys = np.array(source, np.int64) + 1, self.table.chunk_keys
        singles = np.isin(digits, keys).tolist()
        pairs = np.isin(digits[:-1] * (self.table.source_size + 1) + digits[1:], keys).tolist()
        divides = [True]  # whether the first p symbols can be divided, for each p
        for position, is_chunk in enumerate(singles):
            ends_pair = position > 0 and divides[position - 1] and pairs[position - 1]
            divides.append(ends_pair or (divides[position] and is_chunk))
        return divides[-1]

    def has_known_alignment(self, source: Sequence[int], target: Sequence[int]) -> bool:
        """Return whether the most probable alignment of a source with a target has graphones of training pairs only.

        An unseen graphone has the same probability for any target symbols, so such a score cannot compare targets.

        Args:
            source: Source ids.
            target: Target ids, without the end symbol.
        """
        outputs, _ = self._search(source, target, SearchSettings(BEAM_SIZE, PRUNING_MARGIN, 1))
        rest = len(source)
        for graphone in outputs[0].tolist() if len(outputs) else ():
            if rest and graphone < 0:
                return False
            rest -= self._num_source_symbols(graphone) if rest else 0
        return rest == 0

    def _num_source_symbols(self, graphone: int) -> int:
        """Return the number of source symbols of a graphone; one if it is none of the table (−1)."""
        chunk = int(np.searchsorted(self.table.first_graphone, graphone, side="right")) - 1
        return 1 if graphone < 0 or self.table.chunk_keys[chunk] <= self.table.source_size else SOURCE_CHUNK

    def _chunk_sizes(self, graphones: list[int], length: int, target: list[int]) -> list[tuple[int, int]]:
        """Return the numbers of source and target symbols of graphones, which are given from the last to the first.

        The graphone −1 is an unknown source symbol with any number of target symbols. If the target can be
        divided among several of them in more than one way, the first one, from the left, has one target symbol if this
        is possible, else none, else the smallest possible number; then the next one, in the same way.
        """
        table = self.table
        rest = length
        path = list[tuple[int, list[int] | None]]()  # source symbols and target ids of each chunk
        for graphone in graphones:
            if not rest:
                break
            num_source = self._num_source_symbols(graphone)
            ids = None if graphone < 0 else table.target[graphone, : table.target_length[graphone]].tolist()
            path.append((num_source, ids))
            rest -= num_source
        path.reverse()
        # For each step, from the last: target positions from which the remaining chunks give the rest of the target.
        starts = [set[int]() for _ in path] + [{len(target)}]
        for step in range(len(path) - 1, -1, -1):
            ids = path[step][1]
            target_counts = range(table.target.shape[1] + 1) if ids is None else [len(ids)]
            reached = {end - count for end in starts[step + 1] for count in target_counts if count <= end}
            starts[step] = {start for start in reached if ids is None or target[start : start + len(ids)] == ids}
        sizes = list[tuple[int, int]]()
        start = 0
        for step, (num_source, ids) in enumerate(path):
            target_counts = [1, 0, *range(2, table.target.shape[1] + 1)] if ids is None else [len(ids)]
            num_target = next(count for count in target_counts if start + count in starts[step + 1])
            sizes.append((num_source, num_target))
            start += num_target
        return sizes

    def _target_ids(self, output: Int[np.ndarray, " steps"]) -> tuple[int, ...]:
        """Return the target ids of graphones, which are given from the last to the first."""
        table = self.table
        return tuple(
            int(symbol)
            for graphone in output[::-1]
            if graphone >= 0
            for symbol in table.target[graphone, : table.target_length[graphone]]
        )


def fit_pair_ngram(pairs: SymbolPairs, source_size: int, target_size: int, order: int = ORDER) -> PairNgram | None:
    """Fit a model to examples; examples without an alignment are left out.

    Args:
        pairs: Sources and targets, without end symbols and without unknown target symbols.
        source_size: Number of source ids.
        target_size: Number of target ids.
        order: Order of the n-gram model.

    Returns:
        The model; None if no example has an alignment, or the vocabularies are too large or too varied
        (`MAX_CHUNK_GRAPHONES`).
    """
    from pellucid.alignment.lattice import align_pairs, alignable_rows, estimate_graphones

    numbering = _choose_numbering(pairs, source_size, target_size)
    if numbering is None:
        return None
    limits = chunk_limits(numbering.target_chunk)
    if not len(alignable_rows(pairs, limits)):
        return None
    alignments = align_pairs(pairs, numbering, limits, estimate_graphones(pairs, numbering, limits))
    graphones, tokens = np.unique(alignments.graphones, return_inverse=True)
    factor = (target_size + 1) ** numbering.target_chunk
    if np.unique(graphones // factor, return_counts=True)[1].max() > MAX_CHUNK_GRAPHONES:
        return None
    size = len(graphones)
    count = len(alignments.offsets) - 1
    begins = alignments.offsets[:-1] + 2 * np.arange(count)
    ends = alignments.offsets[1:] + 2 * np.arange(count) + 1
    sequence = np.empty(len(tokens) + 2 * count, np.int64)
    is_graphone = np.ones(len(sequence), bool)
    is_graphone[begins] = is_graphone[ends] = False
    sequence[is_graphone] = tokens
    sequence[begins] = size
    sequence[ends] = size + 1
    is_begin = np.zeros(len(sequence), bool)
    is_begin[begins] = True
    return PairNgram(numbering, graphones, fit_ngram_model(sequence, is_begin, size + 2, order))


def _choose_numbering(pairs: SymbolPairs, source_size: int, target_size: int) -> GraphoneKeys | None:
    """Return the numbering with the smallest target chunk that aligns enough pairs, else the one with the largest.

    None if the keys of no candidate are integers of 63 bits.
    """
    candidates = [GraphoneKeys(source_size, target_size, SOURCE_CHUNK, chunk) for chunk in TARGET_CHUNKS]
    candidates = [numbering for numbering in candidates if numbering.fits_int64]
    for numbering in candidates:
        if _has_enough_alignments(pairs, chunk_limits(numbering.target_chunk)):
            return numbering
    return candidates[-1] if candidates else None


def _has_enough_alignments(pairs: SymbolPairs, limits: ChunkLimits) -> bool:
    """Return whether `MIN_ALIGNED` of the examples have an alignment; longer chunks do not help those with too many
    edges, which do not count."""
    from pellucid.alignment.lattice import alignable_rows

    edges = limits.count_edges(np.diff(pairs.source_offsets), np.diff(pairs.target_offsets))
    num_short = int(np.count_nonzero(edges <= MAX_PAIR_EDGES))
    return len(alignable_rows(pairs, limits)) >= MIN_ALIGNED * num_short


def _split_keys(
    keys: Int[np.ndarray, " G"], numbering: GraphoneKeys
) -> tuple[Int[np.ndarray, "G M"], Int[np.ndarray, " G"]]:
    """Return the target ids of each key, from the left, and their number."""
    base = numbering.target_size + 1
    width = numbering.target_chunk
    digits = np.stack([keys // base**place % base for place in range(width - 1, -1, -1)], axis=1)
    lengths = (digits > 0).sum(axis=1)
    target = np.zeros(digits.shape, np.int64)
    for column in range(width):  # digits are to the right
        has_column = column < lengths
        target[has_column, column] = digits[has_column, width - lengths[has_column] + column] - 1
    return target, lengths


def _structure_error(ngram: PairNgram) -> str:
    """Return what would make a search read outside the arrays or loop forever; "" if nothing does."""
    return _graphones_error(ngram) or _trie_error(ngram.model, len(ngram.graphones)) or _table_error(ngram)


def _graphones_error(ngram: PairNgram) -> str:
    """Return what is wrong with the graphones and their numbering."""
    numbering, graphones = ngram.numbering, ngram.graphones
    if numbering.target_chunk not in TARGET_CHUNKS or min(numbering.source_size, numbering.target_size) < 1:
        return "numbering: expected positive sizes, and target_chunk 2, 3 or 4"
    if numbering.source_chunk != SOURCE_CHUNK:
        return f"numbering: expected source_chunk {SOURCE_CHUNK}"
    factor = (numbering.target_size + 1) ** numbering.target_chunk
    if not numbering.fits_int64 or (np.diff(graphones) <= 0).any():
        return "graphones: expected ascending numbers"
    if graphones[0] < 0 or graphones[-1] // factor >= (numbering.source_size + 1) ** SOURCE_CHUNK:
        return "graphones: expected numbers that fit the vocabularies"
    return ""


def _trie_error(model: NgramModel, num_graphones: int) -> str:
    """Return what is wrong with the arrays of the n-gram model."""
    nodes = len(model.token)
    children = model.first_child
    lengths = [len(model.log_probability), len(model.backoff), len(model.suffix), len(children) - 1]
    if lengths != [nodes] * len(lengths) or num_graphones >= nodes:
        return "model: expected arrays of one length (first_child of one more), and more n-grams than graphones"
    if model.token.min() < 0 or model.token.max() >= num_graphones + 2:
        return f"token: expected numbers from 0 to {num_graphones + 1}"
    if children[0] != 1 or children[1] < 2 or children[-1] != nodes or (np.diff(children) < 0).any():
        return "first_child: expected ascending numbers from 1 to the number of n-grams"
    if (children[:-1] <= np.arange(nodes)).any():
        return "first_child: expected numbers of later n-grams"
    is_sibling = np.ones(nodes, bool)  # of the n-gram before it
    is_sibling[0] = is_sibling[children[:-1][children[:-1] < nodes]] = False
    if (np.diff(model.token)[is_sibling[1:]] <= 0).any():
        return "token: expected ascending numbers among the n-grams that continue the same one"
    return _suffix_error(model) or _score_error(model)


def _suffix_error(model: NgramModel) -> str:
    """Return what is wrong with the suffixes: each is an n-gram of one token less."""
    start, end, order = 0, 1, 0
    while end < len(model.token):
        lower_start, lower_end, start, end, order = start, end, end, int(model.first_child[end]), order + 1
        suffix = model.suffix[start:end]
        if order > MAX_ORDER or suffix.min(initial=lower_start) < lower_start or suffix.max(initial=0) >= lower_end:
            return f"suffix: expected n-grams of one token less, and n-grams of at most {MAX_ORDER} tokens"
    return "" if model.suffix[0] == 0 else "suffix: expected 0 for the empty n-gram"


def _score_error(model: NgramModel) -> str:
    """Return what is wrong with the logarithms."""
    scores = np.concatenate([model.log_probability, model.backoff])
    if (
        not np.isfinite(scores).all()
        or scores.max() > LOG_TOLERANCE
        or scores.min() < np.log(MIN_PROBABILITY) - LOG_TOLERANCE
    ):
        return "log_probability, backoff: expected logarithms of probabilities"
    return ""


def _table_error(ngram: PairNgram) -> str:
    """Return what is wrong with the table of graphones, which the search reads."""
    table = ngram.table
    tokens = ngram.model.token
    if table.begin_node >= len(tokens) or tokens[table.begin_node] != len(ngram.graphones):
        return "token: expected the start of a sequence among the n-grams of one token"
    if np.diff(table.first_graphone).max() > MAX_CHUNK_GRAPHONES:
        return f"graphones: expected at most {MAX_CHUNK_GRAPHONES:,} with the same source symbols"
    is_used = np.arange(table.target.shape[1]) < table.target_length[:, None]
    if (table.target[is_used] < NUM_SPECIAL).any():  # special symbols, and gaps between symbols
        return f"graphones: expected target ids from {NUM_SPECIAL} on"
    return ""
