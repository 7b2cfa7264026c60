"""Data schema of the page: contents, requests and responses, as JSON.

T is the number of output steps, S the number of source positions, V the size of a vocabulary.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from pellucid.config.settings import DEFAULT_TASK, TaskName
from pellucid.decoding.trace_schema import EncodedArray, TraceRecord
from pellucid.tasks.task_view import TaskView

PAGE_FORMAT = 1
"""Version of this schema; the page refuses any other."""


class PageStruct(msgspec.Struct, frozen=True):
    """Base class of the structs that the page reads or sends as JSON."""


class AccuracyInterval(PageStruct, frozen=True, kw_only=True):
    """Accuracy of a group of examples, with its 95 % Wilson interval in percent."""

    label: str
    """Target position, source length, or range of lengths: "3", "4–5"."""
    correct: int
    """Number of correct symbols or outputs."""
    total: int
    """Number of symbols or outputs."""
    low: float
    """Lower end of the interval, in percent."""
    high: float
    """Upper end of the interval, in percent."""
    example_indices: list[int]
    """Wrong examples of the group, as indices of `PageContents.examples`; at most 200."""


class AttributionArrays(PageStruct, frozen=True, kw_only=True):
    """Attribution scores of one output, T × S each, which the page shows beside the attention weights."""

    occlusion: EncodedArray
    """Decrease of each symbol's log-probability (nats) when the embedding of a source position is set to zero."""
    input_x_gradient: EncodedArray
    """Gradient of the log-probability with respect to the embedding, times the embedding, summed (signed)."""
    occlusion_correlation: float | None
    """Spearman correlation of attention weights and |occlusion|, mean over the steps that have one; None if none has.
    """
    input_x_gradient_correlation: float | None
    """Spearman correlation of attention weights and |gradient × input|, in the same way."""


class HiddenStates(PageStruct, frozen=True, kw_only=True):
    """Encoder and decoder states of one output, and their PCA coordinates in `StateSpace`."""

    encoder: EncodedArray
    """Encoder states, S × D; empty in a served page unless requested."""
    decoder: EncodedArray
    """Top decoder state after each step, T × H; empty in a served page unless requested."""
    encoder_order: list[int]
    """Units in the order of their loading on the first principal component of this output's states."""
    decoder_order: list[int]
    """Units of the decoder in the same order."""
    gates: dict[str, EncodedArray] = {}
    """Gates by name ("encoder forwards update", …), positions × units; empty unless requested."""
    encoder_pca: EncodedArray | None = None
    """Coordinates in `StateSpace.encoder`, S × 2; None without such a projection."""
    decoder_pca: EncodedArray | None = None
    """Coordinates in `StateSpace.decoder`, T × 2; None without such a projection."""
    encoder_neighbors: EncodedArray | None = None
    """S × 2k: indices of the k nearest points of `StateSpace.encoder`, then their cosines; only in a saved page."""
    decoder_neighbors: EncodedArray | None = None
    """T × 2k, in the same way."""


class PageTrace(TraceRecord, frozen=True, kw_only=True, omit_defaults=False):
    """Trace of one output (decoding/trace.py), with the entropies, attributions and states that the page shows."""

    entropy: EncodedArray
    """Entropy of the output distribution of each step, in bits; no NaN."""
    entropy_is_lower_bound: bool = False
    """Whether the entropies are lower bounds, because only the most probable symbols are known."""
    alignment: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Monotone path through the attention weights: source positions [start, stop) and steps [start, stop) of each chunk
    (alignment/attention_path.py); empty without attention."""
    attribution: AttributionArrays | None = None
    """Attribution scores; None unless computed."""
    states: HiddenStates | None = None
    """States; None unless the model is a single one that decodes symbol by symbol."""


class EditOperation(PageStruct, frozen=True, kw_only=True):
    """One operation of the alignment of an output with its nearest reference."""

    kind: Literal["same", "substitution", "insertion", "deletion"]
    step: int | None
    """Step of the output, from 0; None for a deletion."""
    expected: str | None
    """Symbol of the reference; None for an insertion."""


class PageExample(PageStruct, frozen=True, kw_only=True):
    """Source with its outputs, best first, and its references."""

    text: str
    """Source as text, without features."""
    features: list[str]
    """Feature symbols before the source; empty if they are added to its symbols."""
    traces: list[PageTrace]
    """Outputs, best first."""
    references: list[str]
    """Reference texts; empty if there are none."""
    edits: list[EditOperation] = []
    """Alignment of the first output with its nearest reference; empty without references."""
    errors: int | None = None
    """Number of errors of the first output; None without references."""
    exact: bool | None = None
    """Whether the first output equals a reference; None without references."""
    line: int | None = None
    """Line number in its file, from 1; None for a source from elsewhere."""
    row_id: str = ""
    """Cell of the column "id" of its line; "" if the file has no such column."""
    gold_alignment: list[tuple[int, int]] | None = None
    """Source positions [first, stop) of each step of the first output, (0, 0) if unknown; None if all are unknown."""


class Statistic(PageStruct, frozen=True, kw_only=True):
    """One score or statistic of a corpus, with its interval."""

    name: str
    """Display name."""
    value: float | None  # None if it was not computed; the definition says why
    unit: str
    """Unit of the value, such as "%" or "bits"."""
    low: float | None
    """Lower end of the 95 % interval; None without an interval."""
    high: float | None
    """Upper end of the 95 % interval; None without an interval."""
    definition: str
    """Definition in a sentence, with its reference."""


class Histogram(PageStruct, frozen=True, kw_only=True):
    """Histogram of a quantity over a corpus."""

    name: str
    """Display name of the quantity."""
    labels: list[str]
    """Label of each bin."""
    counts: list[int]
    """Count of each bin."""
    definition: str
    """Definition of the quantity in a sentence."""


class ConfusionCount(PageStruct, frozen=True, kw_only=True):
    """Count of one symbol error. None is no symbol: an insertion or a deletion."""

    expected: str | None
    """Symbol of the reference; None for an insertion."""
    predicted: str | None
    """Symbol of the output; None for a deletion."""
    count: int
    """Number of such errors."""
    num_expected: int
    """Number of times that the expected symbol occurs in the references; 0 for an insertion."""
    example_indices: list[int]
    """Examples with this error, as indices of `PageContents.examples`; at most 200."""


class CorpusStatistics(PageStruct, frozen=True, kw_only=True):
    """Statistics over all scored examples, not only the shown ones."""

    num_examples: int
    """Number of scored examples."""
    scores: list[Statistic]
    """Main scores of the task."""
    positions: list[AccuracyInterval]
    """Accuracy of symbols at each target position."""
    lengths: list[AccuracyInterval]
    """Accuracy of outputs for each source length or range of lengths."""
    confusions: list[ConfusionCount]
    """Symbol errors, most frequent first."""
    alignment: list[Statistic]
    """Statistics of attention weights and of states; empty without attention."""
    distributions: list[Histogram]
    """Histograms of attention statistics; empty without attention."""
    mean_attention: EncodedArray | None
    """Mean attention weights on a grid: tenths of the output (rows) × tenths of the source (columns); None without
    attention.
    """


class TrainingFrame(PageStruct, frozen=True, kw_only=True):
    """Snapshot at one validation: outputs for a few examples, and PCA coordinates of the symbol embeddings."""

    update: int
    """Number of updates."""
    samples: int
    """Number of training examples so far; 0 if the log lacks the validation."""
    metrics: dict[str, float]
    """Validation metrics and losses by their keys in the log."""
    probes: list[PageTrace]
    """Outputs of the first validation examples."""
    source_pca: EncodedArray | None = None
    """Coordinates of the source embeddings, V × 2, aligned with the previous frame (Procrustes); None without learned
    embeddings.
    """
    target_pca: EncodedArray | None = None
    """Coordinates of the target embeddings, in the same way."""


class TrainingHistory(PageStruct, frozen=True, kw_only=True):
    """Training log and snapshots of a run, for the training tab."""

    log: list[dict[str, Any]]
    """Records of the training log."""
    frames: list[TrainingFrame]
    """Frames in the order of their updates."""
    source_symbols: list[str]
    """Symbols of the rows of `TrainingFrame.source_pca`."""
    target_symbols: list[str]
    """Symbols of the rows of `TrainingFrame.target_pca`."""
    finished: bool  # whether all updates are made; the record of the confidence may follow
    running: bool  # whether the process runs now; an unfinished training that is not running was interrupted
    loss_unit: str = ""  # unit over which the losses are averaged
    loss_caption: str = ""  # definition of the losses, and why they may differ


class StatePoint(PageStruct, frozen=True, kw_only=True):
    """Symbol whose encoder or decoder state is a point of a projection, with its context."""

    example: int
    """Index in `PageContents.examples`, or −1 for an example that is not shown."""
    context: str
    """Symbol between ‹ and ›, with the symbols around it."""
    symbol: str
    """Source symbol (encoder) or output symbol (decoder)."""
    position: int
    """Position of the symbol, from 0."""
    next_symbol: str = ""
    """Symbol after it; empty for the last one."""


class StateProjection(PageStruct, frozen=True, kw_only=True):
    """Encoder or decoder states of many examples, projected on their first two principal components."""

    coordinates: EncodedArray
    """Coordinates of each point, n × 2."""
    points: list[StatePoint]
    """Symbol and context of each point."""
    explained_variance_ratio: tuple[float, float]
    """Fraction of the variance of each component, 0 to 1."""


class StateSpace(PageStruct, frozen=True, kw_only=True):
    """Projected encoder and decoder states of many examples."""

    encoder: StateProjection
    decoder: StateProjection


class Formula(PageStruct, frozen=True, kw_only=True):
    """An equation or a symbol."""

    latex: str
    mathml: str
    """A MathML element."""


class FormulaSymbol(PageStruct, frozen=True, kw_only=True):
    """A symbol of the equations of a network, or several of the same size."""

    symbol: Formula
    meaning: str
    """Meaning in a few words."""
    size: str
    """Its size: "32 × 16"."""
    num_parameters: int
    """Number of trained parameters; 0 for none."""


class FormulaSection(PageStruct, frozen=True, kw_only=True):
    """Equations of one part of a network."""

    title: str
    """Name of the part."""
    equations: list[Formula]
    """Equations in the order of computation."""
    symbols: list[FormulaSymbol]
    """Symbols that have a size."""
    note: str
    """Sentences on what the equations leave out; "" if there is none."""


class ModelCard(PageStruct, frozen=True, kw_only=True):
    """Description of a run: architecture, sizes, training and settings."""

    name: str
    """Name of the run on the page."""
    facts: list[tuple[str, str]]
    """Labels and values: sizes, data, scores."""
    config: str
    """Settings as TOML."""
    has_attention: bool
    """Whether outputs have attention weights."""
    task: TaskName = DEFAULT_TASK
    """Name of the task."""
    equations: list[FormulaSection] = []
    """Equations of the network; empty without a model, and for a task that has none."""


class ComparedRun(PageStruct, frozen=True, kw_only=True):
    """Another run on the same examples, compared with the first."""

    card: ModelCard
    examples: list[PageExample]
    """Outputs of this run, in the order of `PageContents.examples`."""
    outcomes: tuple[int, int, int, int] | None = None
    """Number of examples of the file correct in both runs, in the first only, in this one only, in neither; None
    without targets.
    """
    num_differing: int | None = None
    """Number of examples of the file whose outputs differ between the first run and this one; None without targets."""
    scores: list[Statistic] = []
    """Scores on the whole file, as in `CorpusStatistics`; empty without targets."""
    positions: list[AccuracyInterval] = []
    """Accuracy by target position, as in `CorpusStatistics`; empty without targets."""
    lengths: list[AccuracyInterval] = []
    """Accuracy by source length, as in `CorpusStatistics`; empty without targets."""
    log: list[dict[str, Any]] = []
    """Records of its training log; empty for an ensemble."""


class PageContents(PageStruct, frozen=True, kw_only=True):
    """Contents of the page."""

    format: Annotated[int, msgspec.Meta(ge=1)] = PAGE_FORMAT
    """Version of this schema."""
    version: str
    """Version of Pellucid."""
    title: str
    """Title of the page."""
    tasks: dict[str, TaskView] = {}
    """Display of the outputs of each task, by task name."""
    served: bool
    """Whether a server answers requests; a saved page has none."""
    page_id: str = ""  # identifies the contents; the server refuses requests of other pages
    card: ModelCard | None = None
    """Description of the shown run; None for a page of one trace."""
    examples: list[PageExample] = []
    """Shown examples with the outputs of the first run."""
    num_examples: int = 0
    """Number of examples of the file, of which `examples` may be a selection."""
    selection_note: str = ""  # description of the selection
    corpus: CorpusStatistics | None = None
    """Statistics over the file; None without targets."""
    training: TrainingHistory | None = None
    """Training history of the shown run; None for an ensemble and for a model without a log."""
    state_space: StateSpace | None = None
    """Projected states of the file; None if the run has none (an ensemble, or not autoregressive)."""
    compared_runs: list[ComparedRun] = []
    """Further runs on the same examples."""
    update: int | None = None  # update of the shown checkpoint, if training was unfinished when it was loaded
    awaiting_model: bool = False  # whether the run has no model yet; `selection_note` then says so


class ForcedAttentionRow(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attention weights of one step, set by the user."""

    step: int
    """Step of the output, from 0."""
    weights: list[float]
    """S weights; they are normalized to sum to one."""


class DecodeRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to decode a source, with optional constraints on its output and its attention."""

    text: str
    """Source as text, without features."""
    features: list[str] = field(default_factory=list)
    """Feature symbols of the source."""
    prefix: list[str] = field(default_factory=list)
    """First symbols of the output; one that ends with the end symbol is the whole output, which is then scored."""
    forced_attention: list[ForcedAttentionRow] = field(default_factory=list)
    """Attention weights of some steps, in place of the model's own."""
    masked_positions: list[int] = field(default_factory=list)
    """Source positions masked in attention, from 0."""
    beam_size: int = 1
    """Beam size, 1 to 64; 1 is greedy search."""
    num_outputs: int = 1
    """Number of outputs, 1 to 64."""
    search_tree: bool = False
    """Whether the first output holds the search tree."""
    attribution: bool = False
    """Whether the first output has attribution scores."""
    states: bool = False
    """Whether the first output has its states."""
    gates: bool = False
    """Whether the first output has its states and gates."""
    run: int = 0
    """Index of the run: 0 for the first, then those of `PageContents.compared_runs`."""


class WhatIfRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to decode an original and a changed source or constraint, and to compare the outputs."""

    before: DecodeRequest
    """Original request."""
    after: DecodeRequest
    """Changed request, of the same run."""


class WhatIfResponse(PageStruct, frozen=True, kw_only=True):
    """Outputs before and after a change, and the change of each step's distribution."""

    before: PageExample
    after: PageExample
    compared_output: Literal["before", "after"]
    """Output that is scored under the change.

    "before": the output before the change. "after": the output after it, because a different prefix is forced.
    """
    rescored: PageTrace
    """Compared output, scored by forced decoding under the change.

    If the changed source cannot have these tags or this position, the first output after the change; `kl_divergence` is
    then empty.
    """
    kl_divergence: EncodedArray
    """KL(before ‖ after) of the distribution of each step that both outputs have, along each output, in bits."""


class NeighborsRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request for the states nearest to one state."""

    text: str
    """Source as text, without features."""
    features: list[str] = field(default_factory=list)
    """Feature symbols of the source."""
    target: list[str]
    """Symbols of the output, including the end symbol if it was written."""
    side: Literal["encoder", "decoder"]
    """Kind of the state."""
    position: int
    """Source position or step of the state, from 0."""
    num_neighbors: int = 20
    """Maximum number of neighbors, 1 to 200."""


class EmptyRequest(PageStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request without parameters."""


class ReloadResponse(PageStruct, frozen=True, kw_only=True):
    """Response after the newest checkpoint was loaded; a reload of the page shows it."""

    update: int | None
    """Number of updates of the model that was loaded; None if its training is finished."""


class ExportResponse(PageStruct, frozen=True, kw_only=True):
    """First examples with states and attributions, which the served page embeds when it is saved as a file."""

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
    """Nearest states, nearest first."""
    next_symbols: list[tuple[str, int]]
    """Symbols that follow the neighbors with their counts, most frequent first."""
