"""The values that pass between encoder, attention, decoder and search. Nothing of them is ever stored on a module.

B batch, S source positions, T target positions, R hypotheses of all sources (as many as sources, or a multiple), L
layers, D memory, H hidden, F what is fed, A attention units, N heads, V vocabulary.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.kernels.types import Taken
from pellucid.model.recurrence import Noise


class State(NamedTuple):
    """What a recurrent network carries from one step to the next; every part has the batch first."""

    hidden: Float[Tensor, "B L H"]
    cell: Float[Tensor, "B L H"] | None = None
    """The cell of an LSTM; a GRU has none."""
    context: Float[Tensor, "B F"] | None = None
    """What a step came to, in decoders that feed it to the next one."""
    looked: Float[Tensor, "B S"] | None = None
    """What attention carries from a look to the next, zero beyond a row's length; None where it carries nothing."""

    def take(self, rows: Int[Tensor, " R"]) -> "State":
        """The state of the chosen rows, in their order: all that search needs to know of recurrence."""
        cell, context, looked = (None if part is None else part.index_select(0, rows) for part in self[1:])
        return State(self.hidden.index_select(0, rows), cell, context, looked)


class Memory(NamedTuple):
    """What the encoder leaves behind."""

    states: Float[Tensor, "B S D"]
    """One state a source position; zeros beyond a row's length."""
    lengths: Int[Tensor, " B"]
    final: State
    """The state after reading everything, both directions merged, one a layer."""
    source: Int[Tensor, "B S"] | None = None
    """The ids that were read, for decoders that copy them."""
    masked: Bool[Tensor, "B S"] | None = None
    """Positions that a person hides from attention; None where nobody does."""

    def mask(self) -> Bool[Tensor, "B S"]:
        """True at real positions, False at padding."""
        return torch.arange(self.states.shape[1], device=self.states.device) < self.lengths[:, None]

    def seen(self) -> Bool[Tensor, "B S"]:
        """True where attention may look: at real positions that nobody hides."""
        return self.mask() if self.masked is None else self.mask() & ~self.masked


@runtime_checkable
class DecoderKernel(Protocol):
    """What all steps of a search read, laid out once, and the step itself."""

    def take(self, rows: Int[Tensor, " r"]) -> "DecoderKernel":
        """The chosen of the running sources, in their order; nothing but their numbers is copied."""

    def running(self) -> Int[Tensor, " b"]:
        """The numbers of the running sources."""

    def step(
        self,
        symbols: Int[Tensor, " R"],
        hidden: Float[Tensor, "R H"],
        cell: Float[Tensor, "R H"] | None,
        looked: Float[Tensor, "R S"] | None = None,
    ) -> Taken:
        """One step of all hypotheses, those of a source one after the other; by location, given the weights before."""


class Attendable(NamedTuple):
    """A memory with what attention computes from it once a source, not once a step."""

    memory: Memory
    keys: Float[Tensor, "B S A"]
    stepping: DecoderKernel | None = None
    """The same as a kernel reads it, with the decoder's weights; memory and keys then stay whole, whatever is taken."""
    noise: Noise | None = None
    """What dropout takes away at all steps; None outside training."""
    places: Int[Tensor, "B S"] | None = None
    """The target id that each position's symbol has when it is copied; None where nothing is."""

    def take(self, rows: Int[Tensor, " R"]) -> "Attendable":
        """The chosen rows, in their order."""
        places = None if self.places is None else self.places.index_select(0, rows)
        if self.stepping is not None:
            return self._replace(stepping=self.stepping.take(rows), places=places)
        memory = Memory(
            states=self.memory.states.index_select(0, rows),
            lengths=self.memory.lengths.index_select(0, rows),
            final=self.memory.final.take(rows),
            source=None if self.memory.source is None else self.memory.source.index_select(0, rows),
            masked=None if self.memory.masked is None else self.memory.masked.index_select(0, rows),
        )
        noise = None if self.noise is None else self.noise.take(rows)
        return Attendable(memory, self.keys.index_select(0, rows), noise=noise, places=places)

    def whole(self) -> "Attendable":
        """The rows themselves where a kernel has taken them by their numbers alone."""
        if self.stepping is None:
            return self
        taken = self._replace(stepping=None, places=None).take(self.stepping.running())
        return taken._replace(places=self.places)


class Attended(NamedTuple):
    """One look at the memory."""

    context: Float[Tensor, "R D"]
    weights: Float[Tensor, "R S"]
    looked: Float[Tensor, "R S"] | None = None
    """What the next look is given of this one; None where it needs nothing."""
    heads: Float[Tensor, "R N S"] | None = None
    """The weights of each head, of which `weights` are the mean; None where there is but one."""


class Step(NamedTuple):
    """What one decoder step gives."""

    logits: Float[Tensor, "R V"]
    state: State
    attended: Attended


class Unrolled(NamedTuple):
    """What all steps over known symbols give together."""

    logits: Float[Tensor, "B T V"]
    weights: Float[Tensor, "B T S"]
    state: State
    """The state after the last step."""
    heads: Float[Tensor, "B T N S"] | None = None
    """The weights of each head, where there are several."""
    generated: Float[Tensor, "B T V"] | None = None
    """What the logits would be without copying; None where nothing is copied."""
    looks: Float[Tensor, "B R S"] | None = None
    """The weights of every look that an answer took, where `weights` are those of the last."""
