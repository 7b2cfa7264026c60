"""Data schema of the page: its contents, its requests and the responses of the server."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from pellucid.config.settings import DEFAULT_TASK, Task
from pellucid.decoding.trace_schema import EncodedArray, TraceRecord
from pellucid.tasks.task_view import TaskView

PAGE_FORMAT = 1
"""Of the page's contents; the page refuses any other."""


class PageStruct(msgspec.Struct, frozen=True):
    """What all of them are."""


class AccuracyInterval(PageStruct, frozen=True, kw_only=True):
    """A share right among some, with its 95 % interval in per cent."""

    label: str
    correct: int
    total: int
    low: float
    high: float
    example_indices: list[int]
    """The items that are wrong there, as places in `Contents.items`; at most 200."""


class AttributionArrays(PageStruct, frozen=True, kw_only=True):
    """What else says which positions mattered: T × S each, beside attention."""

    occlusion: EncodedArray
    """ln p of each symbol, less what it is with that source position hidden."""
    input_x_gradient: EncodedArray
    """The gradient of ln p with respect to the position's embedding, times the embedding, summed (signed)."""
    occlusion_correlation: float | None
    """Spearman's rank correlation of attention and |erasure|, mean over the steps that have one."""
    gradient_correlation: float | None


class HiddenStates(PageStruct, frozen=True, kw_only=True):
    """The vectors behind a decoding, and where they lie in the plane of `StateSpace`."""

    encoder: EncodedArray
    """S × D."""
    decoder: EncodedArray
    """T × H: the state that wrote each symbol."""
    encoder_order: list[int]
    """Units in the order of their weight in the first principal component over this decoding's positions."""
    decoder_order: list[int]
    gates: dict[str, EncodedArray] = {}
    """By name ("encoder forwards update", …): positions × units; empty unless asked for."""
    encoder_pca: EncodedArray | None = None
    """S × 2."""
    decoder_pca: EncodedArray | None = None
    """T × 2."""
    encoder_neighbors: EncodedArray | None = None
    """S × 2k: the places of the k nearest other states among the points of `Space.encoder`, then their cosines."""
    decoder_neighbors: EncodedArray | None = None
    """T × 2k."""


class PageTrace(TraceRecord, frozen=True, kw_only=True, omit_defaults=False):
    """One output and how each of its symbols came to be (decoding/trace.py), with what the page shows beside it."""

    entropy: EncodedArray
    """In bits, of each step's distribution over the symbols that could be written; NaN-free."""
    entropy_is_lower_bound: bool = False
    """Whether the entropy may be greater, for only the likeliest symbols are known."""
    attribution: AttributionArrays | None = None
    states: HiddenStates | None = None


class EditOperation(PageStruct, frozen=True, kw_only=True):
    """One step of the alignment of an output with its nearest reference."""

    kind: Literal["same", "substitution", "insertion", "deletion"]
    step: int | None
    """The step; None for a deletion."""
    expected: str | None
    """The reference's symbol; None for an insertion."""


class PageExample(PageStruct, frozen=True, kw_only=True):
    """One source with its outputs, best first, and what was wanted."""

    text: str
    features: list[str]
    traces: list[PageTrace]
    references: list[str]
    """Texts; empty where nothing is known."""
    edits: list[EditOperation] = []
    """Of the first output against its nearest reference; empty where nothing is known."""
    errors: int | None = None
    exact: bool | None = None
    line: int | None = None
    """In the file it came from."""
    gold_alignment: list[tuple[int, int]] | None = None
    """Where the truth is known: the positions [first, stop) of each step of the first output; (0, 0) where not."""


class Statistic(PageStruct, frozen=True, kw_only=True):
    """One number about the attention of a corpus."""

    name: str
    value: float | None  # None where it was not computed: the definition then says why
    unit: str
    low: float | None
    high: float | None
    definition: str
    """What it is, with its source, in a sentence."""


class Histogram(PageStruct, frozen=True, kw_only=True):
    """How often a value came."""

    name: str
    labels: list[str]
    counts: list[int]
    definition: str


class ConfusionCount(PageStruct, frozen=True, kw_only=True):
    """One kind of error; None stands for no symbol."""

    expected: str | None
    predicted: str | None
    count: int
    num_expected: int
    example_indices: list[int]
    """As in `AccuracyInterval`."""


class CorpusStatistics(PageStruct, frozen=True, kw_only=True):
    """What holds for all examples that were judged, not only for those shown."""

    num_examples: int
    scores: list[Statistic]
    positions: list[AccuracyInterval]
    lengths: list[AccuracyInterval]
    confusions: list[ConfusionCount]
    """Most frequent first."""
    alignment: list[Statistic]
    distributions: list[Histogram]
    mean_attention: EncodedArray | None
    """Mean weights over a grid: output in tenths (rows) by source in tenths (columns)."""


class TrainingFrame(PageStruct, frozen=True, kw_only=True):
    """A validation: what the model wrote for the probes then, and where its symbols' vectors lay."""

    update: int
    samples: int
    metrics: dict[str, float]
    probes: list[PageTrace]
    source_pca: EncodedArray | None = None
    """V × 2, turned onto the frame before (Procrustes)."""
    target_pca: EncodedArray | None = None


class TrainingHistory(PageStruct, frozen=True, kw_only=True):
    """How the model came to be."""

    log: list[dict[str, Any]]
    """The lines of the run's log."""
    frames: list[TrainingFrame]
    source_symbols: list[str]
    """Of the planes' rows."""
    target_symbols: list[str]
    finished: bool  # whether training is over; otherwise the service tells what comes
    running: bool  # whether somebody trains now; where training is not over either, it was interrupted
    loss_unit: str = ""  # what the losses are a mean over
    loss_caption: str = ""  # what the losses are, and why they may stand apart


class StatePoint(PageStruct, frozen=True, kw_only=True):
    """A state of the corpus."""

    example: int
    """Its example, as a place in `Contents.items`, or −1 for one that is not shown."""
    context: str
    """The symbols around it, its own between ‹ and ›."""
    symbol: str
    position: int
    next_symbol: str = ""


class StateProjection(PageStruct, frozen=True, kw_only=True):
    """States of the corpus in the plane (n × 2) of their two greatest principal components."""

    coordinates: EncodedArray
    points: list[StatePoint]
    explained_variance_ratio: tuple[float, float]
    """Shares of the variance."""


class StateSpace(PageStruct, frozen=True, kw_only=True):
    """The states of many examples."""

    encoder: StateProjection
    decoder: StateProjection


class ModelCard(PageStruct, frozen=True, kw_only=True):
    """What the model is."""

    name: str
    facts: list[tuple[str, str]]
    """Label and value: sizes, data, scores."""
    config: str
    """TOML."""
    has_attention: bool
    task: Task = DEFAULT_TASK


class ComparedRun(PageStruct, frozen=True, kw_only=True):
    """Another run (or checkpoint) on the same sources; on `differing` of the file the two outputs are not the same."""

    card: ModelCard
    examples: list[PageExample]
    """In the order of `Contents.items`."""
    outcomes: tuple[int, int, int, int] | None = None
    """Examples of the file that both have right, the first alone, this one alone, neither."""
    num_differing: int | None = None
    scores: list[Statistic] = []
    """Of the whole file, as in `CorpusStatistics`."""
    positions: list[AccuracyInterval] = []
    lengths: list[AccuracyInterval] = []
    log: list[dict[str, Any]] = []


class PageContents(PageStruct, frozen=True, kw_only=True):
    """All that a page shows."""

    format: Annotated[int, msgspec.Meta(ge=1)] = PAGE_FORMAT
    version: str
    title: str
    tasks: dict[str, TaskView] = {}
    """How outputs of the tasks of all traces are shown, by the names of the tasks."""
    served: bool
    """Whether a service answers questions; a file has none."""
    page_id: str = ""  # of what a service shows: a page of another one asks in vain
    card: ModelCard | None = None
    examples: list[PageExample] = []
    num_examples: int = 0
    """How many examples the file had; more than `items` where only some are shown."""
    selection_note: str = ""  # which of them are shown, in words
    corpus: CorpusStatistics | None = None
    training: TrainingHistory | None = None
    state_space: StateSpace | None = None
    compared_runs: list[ComparedRun] = []
    update: int | None = None  # of the model shown, where training went on when it was read: none newer is shown
    awaiting_model: bool = False  # whether the run has no model yet; `choice` then says what comes with it


class AttentionOverride(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of attention that a person gives."""

    step: int
    weights: list[float]
    """S shares; they are scaled to sum to one."""


class DecodeRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source to decode, and what is given of its output and its attention."""

    text: str
    features: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    """Symbols that the output begins with."""
    attention_overrides: list[AttentionOverride] = field(default_factory=list)
    masked_positions: list[int] = field(default_factory=list)
    """Source positions hidden from attention."""
    beam_size: int = 1
    num_outputs: int = 1
    lattice: bool = False
    attribution: bool = False
    states: bool = False
    gates: bool = False
    run: int = 0
    """Which run is asked: −1 this one, else a place in `Contents.compared_runs`."""


class WhatIfRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A what-if: two questions of one model."""

    before: DecodeRequest
    after: DecodeRequest


class WhatIfResponse(PageStruct, frozen=True, kw_only=True):
    """What became of it."""

    before: PageExample
    after: PageExample
    compared_output: Literal["before", "after"]
    """Which output the distributions after go along.

    The one before: what the change does to it. The one after, where another beginning was forced: along the output
    before nothing would differ, so each goes along its own, and steps pair by their number, as far as both go.
    """
    rescored: PageTrace
    """That output under the change: the first output before (what it would now cost to say it), or the one after.

    Where the changed source cannot have those tags or that position, the first output after, and no divergence.
    """
    kl_divergence: EncodedArray
    """T: KL(before ‖ after), in bits, of each step's distribution; as many steps as pair."""


class NeighborsRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state, to find those nearest to it."""

    text: str
    features: list[str] = field(default_factory=list)
    target: list[str]
    """The symbols written, the end included where it was."""
    side: Literal["encoder", "decoder"]
    position: int
    num_neighbors: int = 20


class EmptyRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question that its address says whole."""


class ReloadResponse(PageStruct, frozen=True, kw_only=True):
    """The newest model of the run is shown: whoever loads the page anew sees it."""

    update: int | None
    """Of that model, where training goes on."""


class ExportResponse(PageStruct, frozen=True, kw_only=True):
    """The first items with all that a page in a file holds of them: it has nobody who could be asked."""

    examples: list[PageExample]


class StateNeighbor(PageStruct, frozen=True, kw_only=True):
    """A state of the corpus near to the one asked for."""

    point: StatePoint
    similarity: float
    """Cosine."""
    next_symbol: str
    """The symbol written (decoder) or read (encoder) next."""


class NeighborsResponse(PageStruct, frozen=True, kw_only=True):
    """The nearest, nearest first, and what follows them."""

    num_searched: int
    """Among so many states."""
    neighbors: list[StateNeighbor]
    next_symbols: list[tuple[str, int]]
