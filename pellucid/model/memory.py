"""The values that pass between encoder, attention, decoder and search. Nothing of them is ever stored on a module.

B batch, S source positions, T target positions, R hypotheses of all sources (as many as sources, or a multiple), L
layers, D memory, H hidden, F what is fed, A attention units, N heads, V vocabulary.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.kernels.types import RawStepOutput
from pellucid.model.recurrence import DropoutMasks


class State(NamedTuple):
    """Recurrent state carried from one step to the next; every part has the batch first."""

    hidden: Float[Tensor, "B L H"]
    cell: Float[Tensor, "B L H"] | None = None
    """c of cells that have a cell state, as the LSTM."""
    input_feed: Float[Tensor, "B F"] | None = None
    """The attentional state of the step before, in decoders with input feeding."""
    attention_state: Float[Tensor, "B S"] | None = None
    """The attention weights of the step before, zero beyond a row's length, where attention reads them."""

    def index_select(self, rows: Int[Tensor, " R"]) -> "State":
        """Return the state of the chosen rows, in their order."""
        cell, input_feed, attention_state = (None if part is None else part.index_select(0, rows) for part in self[1:])
        return State(self.hidden.index_select(0, rows), cell, input_feed, attention_state)


class Memory(NamedTuple):
    """The encoder's output, which attention reads."""

    states: Float[Tensor, "B S D"]
    """One state a source position; zeros beyond a row's length."""
    lengths: Int[Tensor, " B"]
    final: State
    """The state after reading everything, both directions merged, one a layer."""
    source: Int[Tensor, "B S"] | None = None
    """The source ids, for decoders that copy them."""
    masked: Bool[Tensor, "B S"] | None = None
    """Positions that a user hides from attention; None for none."""

    def mask(self) -> Bool[Tensor, "B S"]:
        """Return True at real positions, False at padding."""
        return torch.arange(self.states.shape[1], device=self.states.device) < self.lengths[:, None]

    def attention_mask(self) -> Bool[Tensor, "B S"]:
        """Return True where attention may be: at real positions that are not hidden."""
        return self.mask() if self.masked is None else self.mask() & ~self.masked


@runtime_checkable
class DecoderKernel(Protocol):
    """A decoder laid out once for all steps of a search, and the step itself."""

    def index_select(self, rows: Int[Tensor, " r"]) -> "DecoderKernel":
        """Return the decoder with the chosen of the running sources; only their numbers are copied."""

    def running(self) -> Int[Tensor, " b"]:
        """Return the numbers of the running sources."""

    def step(
        self,
        symbols: Int[Tensor, " R"],
        hidden: Float[Tensor, "R H"],
        cell: Float[Tensor, "R H"] | None,
        attention_state: Float[Tensor, "R S"] | None = None,
    ) -> RawStepOutput:
        """Take one step of all hypotheses, those of a source one after the other."""


class AttentionCache(NamedTuple):
    """A memory with the keys of attention, which are computed once a source."""

    memory: Memory
    keys: Float[Tensor, "B S A"]
    kernel: DecoderKernel | None = None
    """The same as a kernel reads it, with the decoder's weights; `index_select` then leaves memory and keys whole."""
    dropout_masks: DropoutMasks | None = None
    """Dropout masks of all steps; None outside training."""
    places: Int[Tensor, "B S"] | None = None
    """The target id that each position's symbol has when it is copied; None where nothing is."""

    def index_select(self, rows: Int[Tensor, " R"]) -> "AttentionCache":
        """Return the chosen rows, in their order."""
        places = None if self.places is None else self.places.index_select(0, rows)
        if self.kernel is not None:
            return self._replace(kernel=self.kernel.index_select(rows), places=places)
        memory = Memory(
            states=self.memory.states.index_select(0, rows),
            lengths=self.memory.lengths.index_select(0, rows),
            final=self.memory.final.index_select(rows),
            source=None if self.memory.source is None else self.memory.source.index_select(0, rows),
            masked=None if self.memory.masked is None else self.memory.masked.index_select(0, rows),
        )
        masks = None if self.dropout_masks is None else self.dropout_masks.index_select(rows)
        return AttentionCache(memory, self.keys.index_select(0, rows), dropout_masks=masks, places=places)

    def materialize(self) -> "AttentionCache":
        """Return the rows themselves where a kernel holds only their numbers."""
        if self.kernel is None:
            return self
        taken = self._replace(kernel=None, places=None).index_select(self.kernel.running())
        return taken._replace(places=self.places)


class AttentionOutput(NamedTuple):
    """Context and weights of one attention of all queries."""

    context: Float[Tensor, "R D"]
    weights: Float[Tensor, "R S"]
    attention_state: Float[Tensor, "R S"] | None = None
    """The weights that the next step reads; None where it reads none."""
    heads: Float[Tensor, "R N S"] | None = None
    """The weights of each head, of which `weights` are the mean; None where there is but one."""


class Step(NamedTuple):
    """Results of one decoder step."""

    logits: Float[Tensor, "R V"]
    state: State
    attended: AttentionOutput


class Seq2SeqOutput(NamedTuple):
    """Results of all steps over known symbols."""

    logits: Float[Tensor, "B T V"]
    weights: Float[Tensor, "B T S"]
    state: State
    """The state after the last step."""
    heads: Float[Tensor, "B T N S"] | None = None
    """The weights of each head, where there are several."""
    generated: Float[Tensor, "B T V"] | None = None
    """The logits without copying; None where nothing is copied."""
    looks: Float[Tensor, "B R S"] | None = None
    """The weights of every attention step of an answer, where `weights` are those of the last."""
