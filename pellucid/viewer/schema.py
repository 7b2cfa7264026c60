"""Data schema of the page: contents, requests and responses, as JSON.

T is the number of output steps, S the number of source positions, V the size of a vocabulary.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from pellucid.config.settings import DEFAULT_TASK, Task
from pellucid.decoding.trace_schema import EncodedArray, TraceRecord
from pellucid.tasks.task_view import TaskView

PAGE_FORMAT = 1
"""Version of this schema; the page refuses any other."""


class PageStruct(msgspec.Struct, frozen=True):
    """Base class of all structs of the page."""


class AccuracyInterval(PageStruct, frozen=True, kw_only=True):
    """Accuracy of a group of examples, with its 95 % Wilson interval in per cent."""

    label: str
    correct: int
    total: int
    low: float
    high: float
    example_indices: list[int]
    """Wrong examples of the group, as indices of `PageContents.examples`; at most 200."""


class AttributionArrays(PageStruct, frozen=True, kw_only=True):
    """Attribution scores of one output besides attention weights, T × S each."""

    occlusion: EncodedArray
    """Decrease of each symbol's log-probability when the embedding of a source position is set to zero."""
    input_x_gradient: EncodedArray
    """Gradient of the log-probability with respect to the embedding, times the embedding, summed (signed)."""
    occlusion_correlation: float | None
    """Spearman correlation of attention weights and |occlusion|, mean over the steps that have one."""
    gradient_correlation: float | None


class HiddenStates(PageStruct, frozen=True, kw_only=True):
    """Encoder and decoder states of one output, and their PCA coordinates in `StateSpace`."""

    encoder: EncodedArray
    """S × D."""
    decoder: EncodedArray
    """T × H: state that predicts each symbol."""
    encoder_order: list[int]
    """Units in the order of their loading on the first principal component of this output's states."""
    decoder_order: list[int]
    gates: dict[str, EncodedArray] = {}
    """Gates by name ("encoder forwards update", …), positions × units; empty unless requested."""
    encoder_pca: EncodedArray | None = None
    """S × 2."""
    decoder_pca: EncodedArray | None = None
    """T × 2."""
    encoder_neighbors: EncodedArray | None = None
    """S × 2k: indices of the k nearest points of `StateSpace.encoder`, then their cosines."""
    decoder_neighbors: EncodedArray | None = None
    """T × 2k."""


class PageTrace(TraceRecord, frozen=True, kw_only=True, omit_defaults=False):
    """Trace of one output (decoding/trace.py), with the entropies, attributions and states that the page shows."""

    entropy: EncodedArray
    """Entropy of the output distribution of each step, in bits; no NaN."""
    entropy_is_lower_bound: bool = False
    """Whether the entropies are lower bounds, because only the top symbols are known."""
    attribution: AttributionArrays | None = None
    states: HiddenStates | None = None


class EditOperation(PageStruct, frozen=True, kw_only=True):
    """One operation of the alignment of an output with its nearest reference."""

    kind: Literal["same", "substitution", "insertion", "deletion"]
    step: int | None
    """Step of the output; None for a deletion."""
    expected: str | None
    """Symbol of the reference; None for an insertion."""


class PageExample(PageStruct, frozen=True, kw_only=True):
    """Source with its outputs, best first, and its references."""

    text: str
    features: list[str]
    traces: list[PageTrace]
    references: list[str]
    """Reference texts; empty if there are none."""
    edits: list[EditOperation] = []
    """Alignment of the first output with its nearest reference; empty without references."""
    errors: int | None = None
    exact: bool | None = None
    line: int | None = None
    """Line number in its file."""
    gold_alignment: list[tuple[int, int]] | None = None
    """Source positions [first, stop) of each step of the first output, (0, 0) if unknown; None if all are unknown."""


class Statistic(PageStruct, frozen=True, kw_only=True):
    """One score or statistic of a corpus, with its interval."""

    name: str
    value: float | None  # None if it was not computed; the definition says why
    unit: str
    low: float | None
    high: float | None
    definition: str
    """Definition in a sentence, with its reference."""


class Histogram(PageStruct, frozen=True, kw_only=True):
    """Histogram of a quantity over a corpus."""

    name: str
    labels: list[str]
    counts: list[int]
    definition: str


class ConfusionCount(PageStruct, frozen=True, kw_only=True):
    """Count of one symbol error. None is no symbol: an insertion or a deletion."""

    expected: str | None
    predicted: str | None
    count: int
    num_expected: int
    example_indices: list[int]
    """As in `AccuracyInterval`."""


class CorpusStatistics(PageStruct, frozen=True, kw_only=True):
    """Statistics over all scored examples, not only the shown ones."""

    num_examples: int
    scores: list[Statistic]
    positions: list[AccuracyInterval]
    lengths: list[AccuracyInterval]
    confusions: list[ConfusionCount]
    """Most frequent first."""
    alignment: list[Statistic]
    distributions: list[Histogram]
    mean_attention: EncodedArray | None
    """Mean attention weights on a grid: tenths of the output (rows) × tenths of the source (columns)."""


class TrainingFrame(PageStruct, frozen=True, kw_only=True):
    """Snapshot at one validation: outputs for the probe examples, and PCA coordinates of the symbol embeddings."""

    update: int
    samples: int
    metrics: dict[str, float]
    probes: list[PageTrace]
    source_pca: EncodedArray | None = None
    """V × 2, aligned with the previous frame (Procrustes)."""
    target_pca: EncodedArray | None = None


class TrainingHistory(PageStruct, frozen=True, kw_only=True):
    """Training log and snapshots of a run."""

    log: list[dict[str, Any]]
    """Lines of the training log."""
    frames: list[TrainingFrame]
    source_symbols: list[str]
    """Symbols of the rows of `TrainingFrame.source_pca`."""
    target_symbols: list[str]
    finished: bool  # whether training is finished; otherwise the server sends new events
    running: bool  # whether a process trains now; an unfinished training that is not running was interrupted
    loss_unit: str = ""  # unit over which the losses are averaged
    loss_caption: str = ""  # definition of the losses, and why they may differ


class StatePoint(PageStruct, frozen=True, kw_only=True):
    """State of one symbol in the corpus."""

    example: int
    """Index in `PageContents.examples`, or −1 for an example that is not shown."""
    context: str
    """Symbol between ‹ and ›, with the symbols around it."""
    symbol: str
    position: int
    next_symbol: str = ""


class StateProjection(PageStruct, frozen=True, kw_only=True):
    """States of the corpus, projected on their first two principal components."""

    coordinates: EncodedArray
    points: list[StatePoint]
    explained_variance_ratio: tuple[float, float]
    """Share of the variance of each component."""


class StateSpace(PageStruct, frozen=True, kw_only=True):
    """Projected encoder and decoder states of many examples."""

    encoder: StateProjection
    decoder: StateProjection


class ModelCard(PageStruct, frozen=True, kw_only=True):
    """Description of a model."""

    name: str
    facts: list[tuple[str, str]]
    """Labels and values: sizes, data, scores."""
    config: str
    """Settings as TOML."""
    has_attention: bool
    task: Task = DEFAULT_TASK


class ComparedRun(PageStruct, frozen=True, kw_only=True):
    """Another run on the same examples."""

    card: ModelCard
    examples: list[PageExample]
    """In the order of `PageContents.examples`."""
    outcomes: tuple[int, int, int, int] | None = None
    """Number of examples of the file correct in both runs, in the first only, in this one only, in neither."""
    num_differing: int | None = None
    scores: list[Statistic] = []
    """Scores on the whole file, as in `CorpusStatistics`."""
    positions: list[AccuracyInterval] = []
    lengths: list[AccuracyInterval] = []
    log: list[dict[str, Any]] = []


class PageContents(PageStruct, frozen=True, kw_only=True):
    """Contents of the page."""

    format: Annotated[int, msgspec.Meta(ge=1)] = PAGE_FORMAT
    version: str
    title: str
    tasks: dict[str, TaskView] = {}
    """Display of the outputs of each task, by task name."""
    served: bool
    """Whether a server answers requests; a saved page has none."""
    page_id: str = ""  # identifies the contents; the server refuses requests of other pages
    card: ModelCard | None = None
    examples: list[PageExample] = []
    num_examples: int = 0
    """Number of examples of the file, of which `examples` may be a selection."""
    selection_note: str = ""  # description of the selection
    corpus: CorpusStatistics | None = None
    training: TrainingHistory | None = None
    state_space: StateSpace | None = None
    compared_runs: list[ComparedRun] = []
    update: int | None = None  # update of the shown checkpoint, if training was unfinished when it was loaded
    awaiting_model: bool = False  # whether the run has no model yet; `selection_note` then says so


class AttentionOverride(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attention weights of one step, set by the user."""

    step: int
    weights: list[float]
    """S weights; they are normalized to sum to one."""


class DecodeRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to decode a source, with optional constraints on its output and its attention."""

    text: str
    features: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    """First symbols of the output (forced decoding)."""
    attention_overrides: list[AttentionOverride] = field(default_factory=list)
    masked_positions: list[int] = field(default_factory=list)
    """Source positions masked in attention."""
    beam_size: int = 1
    num_outputs: int = 1
    lattice: bool = False
    attribution: bool = False
    states: bool = False
    gates: bool = False
    run: int = 0
    """Index of the run: 0 for the first, then those of `PageContents.compared_runs`."""


class WhatIfRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to decode an original and a changed source or constraint, and to compare the outputs."""

    before: DecodeRequest
    after: DecodeRequest


class WhatIfResponse(PageStruct, frozen=True, kw_only=True):
    """Outputs before and after a change, and the change of each step's distribution."""

    before: PageExample
    after: PageExample
    compared_output: Literal["before", "after"]
    """Output along which both distributions are computed.

    "before": the output before the change, which is scored under the change. "after": a different prefix is forced, so
    each distribution is computed along its own output, and steps are paired by their index.
    """
    rescored: PageTrace
    """Compared output, scored by forced decoding under the change.

    If the changed source cannot have these tags or this position, the first output after the change; `kl_divergence` is
    then empty.
    """
    kl_divergence: EncodedArray
    """KL(before ‖ after) of the distribution of each paired step, in bits."""


class NeighborsRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request for the states nearest to one state."""

    text: str
    features: list[str] = field(default_factory=list)
    target: list[str]
    """Symbols of the output, including the end symbol if it was written."""
    side: Literal["encoder", "decoder"]
    position: int
    num_neighbors: int = 20


class EmptyRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request without parameters."""


class ReloadResponse(PageStruct, frozen=True, kw_only=True):
    """Response after the newest checkpoint was loaded; a reload of the page shows it."""

    update: int | None
    """Update of the checkpoint, if training continues."""


class ExportResponse(PageStruct, frozen=True, kw_only=True):
    """First examples with everything that a page without a server needs."""

    examples: list[PageExample]


class StateNeighbor(PageStruct, frozen=True, kw_only=True):
    """State of the corpus near a requested state."""

    point: StatePoint
    similarity: float
    """Cosine similarity."""
    next_symbol: str
    """Next symbol of the output (decoder) or of the source (encoder)."""


class NeighborsResponse(PageStruct, frozen=True, kw_only=True):
    """Nearest states, nearest first, with counts of the symbols that follow them."""

    num_searched: int
    """Number of states searched."""
    neighbors: list[StateNeighbor]
    next_symbols: list[tuple[str, int]]
