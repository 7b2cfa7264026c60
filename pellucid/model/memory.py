"""Values that pass between encoder, attention, decoder and search. No module stores them.

B batch, S source positions, T target positions, R hypotheses of all sources (as many as sources, or a multiple), L
layers, D memory, H hidden, F attentional state, A attention units, N heads, P attention hops, V vocabulary, C sampled
symbols.
"""

from typing import Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pellucid.kernels.types import KernelStepOutput
from pellucid.model.recurrence import DropoutMasks, length_mask
from pellucid.shapes import Bool, Float, Int


def _select_rows(values: Tensor | None, rows: Int[Tensor, " R"]) -> Tensor | None:
    """Return some rows of the values; None for None."""
    return None if values is None else values.index_select(0, rows)


class DecoderState(NamedTuple):
    """Recurrent state of all layers between two steps, one row per source or hypothesis."""

    hidden: Float[Tensor, "B L H"]
    """h of each layer, from the bottom."""
    cell_state: Float[Tensor, "B L H"] | None = None
    """c of cells with a cell state, such as the LSTM."""
    input_feed: Float[Tensor, "B F"] | None = None
    """The attentional state of the previous step, in decoders with input feeding."""
    attention_state: Float[Tensor, "B ..."] | None = None
    """The state of the attention after the previous step, such as its weights, which are zero beyond a row's length;
    None if the attention has none."""

    def index_select(self, rows: Int[Tensor, " R"]) -> "DecoderState":
        """Return the state of some rows.

        Args:
            rows: Indices of the rows, in the order of the result.
        """
        return DecoderState(
            hidden=self.hidden.index_select(0, rows),
            cell_state=_select_rows(self.cell_state, rows),
            input_feed=_select_rows(self.input_feed, rows),
            attention_state=_select_rows(self.attention_state, rows),
        )


class Memory(NamedTuple):
    """The encoder's output, which attention reads."""

    states: Float[Tensor, "B S D"]
    """State of the top layer at each source position; zeros beyond a row's length."""
    lengths: Int[Tensor, " B"]
    """Number of positions of each source."""
    final: DecoderState
    """The final hidden state of each layer, both directions merged; its other fields are None."""
    source: Int[Tensor, "B S"] | None = None
    """The source ids, for decoders with a pointer-generator."""
    ignored: Bool[Tensor, "B S"] | None = None
    """Positions that attention must ignore because of `DecodingOptions.masked_positions`; None if there is none."""

    def length_mask(self) -> Bool[Tensor, "B S"]:
        """Return True at real positions, False at padding."""
        return length_mask(self.lengths, self.states.shape[1])

    def summary(self, kind: Literal["final", "mean"]) -> Float[Tensor, "B D"]:
        """Return one vector for each source: the final state of the top layer, or the mean state over real positions.

        Args:
            kind: Which of them.
        """
        return self.final.hidden[:, -1] if kind == "final" else self.states.sum(dim=1) / self.lengths[:, None]

    def attention_mask(self) -> Bool[Tensor, "B S"]:
        """Return True where attention is allowed: at real positions that are not ignored."""
        return self.length_mask() if self.ignored is None else self.length_mask() & ~self.ignored


@runtime_checkable
class DecoderKernel(Protocol):
    """A decoder and the memory of a batch, prepared once for all steps of a search by a kernel."""

    def index_select(self, rows: Int[Tensor, " r"]) -> "DecoderKernel":
        """Return the decoder with a selection of the active sources; neither keys nor memory are copied.

        Args:
            rows: Indices among the active sources.
        """

    def active_sources(self) -> Int[Tensor, " b"]:
        """Return the indices of the active sources, among those with which the decoder was prepared."""

    def step(
        self,
        symbols: Int[Tensor, " R"],
        hidden: Float[Tensor, "R L H"],
        cell_state: Float[Tensor, "R L H"] | None,
        attention_state: Float[Tensor, "R S"] | None = None,
    ) -> KernelStepOutput:
        """Take one step of all hypotheses; the hypotheses of a source are consecutive.

        Args:
            symbols: Symbol fed back, for each hypothesis.
            hidden: h of each hypothesis and layer.
            cell_state: c of each hypothesis and layer; None if the cell has none.
            attention_state: Attention weights of the previous step; None if the score does not read them.
        """


class SampledOutputs(NamedTuple):
    """Symbols to which the training loss is restricted at all steps (sampled softmax)."""

    target: Int[Tensor, "B T"]
    """Target of each step."""
    symbols: Int[Tensor, " C"]
    """Sampled ids, distinct and in ascending order, which all steps share."""


class DecoderCache(NamedTuple):
    """Inputs of a decoder that are equal at all steps: a memory, the keys of attention, and optional parts.

    `Decoder.build_cache` computes all of them before the first step.
    """

    memory: Memory
    keys: Float[Tensor, "B S A"]
    kernel: DecoderKernel | None = None
    """Memory, keys and decoder weights as a kernel reads them; `index_select` then does not copy memory and keys."""
    dropout_masks: DropoutMasks | None = None
    """Dropout masks of all steps; None outside training."""
    copy_ids: Int[Tensor, "B S"] | None = None
    """The target id of each position's symbol when it is copied; None without a pointer-generator."""
    sampled_outputs: SampledOutputs | None = None
    """Symbols whose logits `Decoder.unroll` computes; None for all."""

    def index_select(self, rows: Int[Tensor, " R"]) -> "DecoderCache":
        """Return the cache of some sources.

        Args:
            rows: Rows of the sources, in the order of the result.
        """
        copy_ids = _select_rows(self.copy_ids, rows)
        if self.kernel is not None:
            return self._replace(kernel=self.kernel.index_select(rows), copy_ids=copy_ids)
        memory = Memory(
            states=self.memory.states.index_select(0, rows),
            lengths=self.memory.lengths.index_select(0, rows),
            final=self.memory.final.index_select(rows),
            source=_select_rows(self.memory.source, rows),
            ignored=_select_rows(self.memory.ignored, rows),
        )
        masks = None if self.dropout_masks is None else self.dropout_masks.index_select(rows)
        return DecoderCache(memory, self.keys.index_select(0, rows), dropout_masks=masks, copy_ids=copy_ids)

    def materialize(self) -> "DecoderCache":
        """Return the cache without a kernel, with memory and keys of the selected sources alone.

        `index_select` does not copy them while there is a kernel. Without one, return the cache unchanged.
        """
        if self.kernel is None:
            return self
        selected = self._replace(kernel=None, copy_ids=None).index_select(self.kernel.active_sources())
        return selected._replace(copy_ids=self.copy_ids)


class AttentionOutput(NamedTuple):
    """Contexts and attention weights of all queries, at one step."""

    context: Float[Tensor, "R D"]
    weights: Float[Tensor, "R S"]
    """Weights of each query. They sum to one, with monotonic attention to at most one, without attention to zero."""
    attention_state: Float[Tensor, "R ..."] | None = None
    """The state that the next step reads, such as the weights, one row per query; None if it reads none."""
    heads: Float[Tensor, "R N S"] | None = None
    """The weights of each head, of which `weights` are the mean; None for a single head."""


class DecoderStepOutput(NamedTuple):
    """Result of `Decoder.step`: the logits, the state and the attention of all hypotheses."""

    logits: Float[Tensor, "R V"]
    """Logits of the next symbols; with a pointer-generator, log-probabilities of V + S symbols."""
    state: DecoderState
    """State after the step."""
    attention: AttentionOutput


class NetworkOutput(NamedTuple):
    """Results of a network for a batch: of all decoder steps over known symbols, or of all labels of a classifier."""

    logits: Float[Tensor, "B T V"]
    """Logits of each target position; with a pointer-generator, log-probabilities of V + S symbols. With
    `target_logits`, only those of the sampled symbols."""
    weights: Float[Tensor, "B _ S"]
    """Attention weights of each target position, or of the class alone, which tags follow; S is 0 for a tagger."""
    state: DecoderState
    """The decoder state after the last step; without a decoder, the final state of the encoder."""
    heads: Float[Tensor, "B T N S"] | None = None
    """The weights of each head; None for a single head."""
    vocabulary_logits: Float[Tensor, "B T V"] | None = None
    """The logits before copies are mixed in; None without a pointer-generator."""
    hop_weights: Float[Tensor, "B P S"] | None = None
    """The weights of each of P attention hops of a classifier, the last of which are `weights`; else None."""
    target_logits: Float[Tensor, "B T"] | None = None
    """Logit of each target, if `logits` are those of sampled symbols; else None."""
