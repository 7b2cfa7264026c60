"""The decoder that looks first, and steps with what it saw.

B batch, T target positions, R hypotheses of all sources, H hidden, D memory, G all gates (3H or 4H).
"""

from typing import ClassVar, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.config import AttentionConfig, DecoderConfig
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.operands import Head, Looked, Parameters
from pellucid.model.decoder import Decoder, Made, Moved, Running, Sizes, taken_apart
from pellucid.model.dropout import Noise
from pellucid.model.heads import TiedSymbol
from pellucid.model.memory import Attendable, Attended, DecoderKernel, Memory, State, Step, Unrolled
from pellucid.model.recurrence import LayerState


class AttendThenStep(Decoder):
    """c_t = attention(s_{t−1}), s_t = cell([y_{t−1}; c_t], s_{t−1}), p(y_t) from [s_t; c_t].

    Source: Bahdanau et al. 2015, appendix A.2.2, with stacked cells above the first, each reading the one below.
    """

    kind: ClassVar[str] = "attend-then-step"

    context_projection: nn.Linear

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: Sizes) -> None:
        """Sizes follow from the configurations, the memory and the number of target symbols."""
        super().__init__(config, attention, sizes, sizes.memory, config.output)

    def prepare(self, memory: Memory) -> Attendable:
        """As any decoder; for answers, laid out as a kernel reads it."""
        attendable = super().prepare(memory)
        if not use_kernel(self.request("step", attendable)):
            return attendable
        from pellucid.kernels.autograd import prepare  # Numba takes a second to import

        parameters = self._step_parameters(self.table.vectors(), attendable.noise)
        return attendable._replace(stepping=prepare(parameters, self._head_parts(), _looked(attendable)))

    def step(
        self,
        symbols: Int[Tensor, " R"],
        state: State,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Step:
        """As any decoder; by a kernel where the memory is prepared for one."""
        if attendable.stepping is not None and override is None and not self.training:
            fed = self.fed(symbols)
            step = _step_compiled(fed, state, attendable.stepping)
            made = Made(step.state.hidden[:, -1], step.attended.context, step.attended.weights)
            return step._replace(logits=self.mixed(step.logits, fed, made, attendable))
        return super().step(symbols, state, attendable, override)

    def unroll(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """As any decoder; a kernel takes all steps at once where there is one."""
        if use_kernel(self.request("unroll", attendable)):
            return self._unroll_compiled(symbols, state, attendable)
        return super().unroll(symbols, state, attendable)

    def move(
        self,
        projected: Float[Tensor, "R G"],
        running: Running,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None,
    ) -> Moved:
        """Attend from the top state before, which the look before belongs to; then take every cell one step."""
        attended: Attended = self.attention(running.layers[-1].hidden, attendable, running.looked, override)
        gates = projected + self.context_projection(attended.context)
        layers, output = self.climb(gates, running.layers, attendable.noise)
        return Moved(Running(layers, attended.looked), attended, output)

    def _unroll_compiled(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """All steps by a kernel."""
        from pellucid.kernels.autograd import unroll_decoder  # Numba takes a second to import

        symbols = self.fed(symbols)
        inputs, start = self.read(symbols, attendable.noise), taken_apart(state).layers[0]
        parameters, looked = self._step_parameters(inputs.vectors, attendable.noise), _looked(attendable)
        ids = cast(Tensor, inputs.symbols)
        done = unroll_decoder(parameters, ids, looked, start.hidden, start.cell, state.looked)
        last = LayerState(done.last, None if start.cell is None else done.cell)
        after = Running([last], None if state.looked is None else done.weights[:, -1])
        made = Made(self.normalisations[0](done.hidden), done.contexts, done.weights)
        return self.unrolled(symbols, made, attendable, after)

    def _step_parameters(self, vectors: Float[Tensor, "N E"], noise: Noise | None) -> Parameters:
        """What a kernel reads: the symbols' table projected, and the weights of cell and attention."""
        cell, score = self.cells[0], self.attention.query_weights()
        assert score is not None, "an attention without scores has no kernel"
        table = nn.functional.linear(vectors, cell.input_weight, cell.added_bias())
        dropped = None if noise is None else noise.cells[0].weight
        recurrent = cell.hidden_weight if dropped is None else dropped
        return Parameters(table, cell.reset_bias(), recurrent, self.context_projection.weight, *score)

    def _head_parts(self) -> Head:
        """The head as a kernel reads it."""
        return self.head.parts(self.table.weight) if isinstance(self.head, TiedSymbol) else self.head.parts()


def _looked(attendable: Attendable) -> Looked:
    """What a kernel looks at."""
    return Looked(attendable.keys, attendable.memory.states, attendable.memory.lengths)


def _step_compiled(symbols: Int[Tensor, " R"], state: State, prepared: DecoderKernel) -> Step:
    """One step by a kernel."""
    layer = taken_apart(state).layers[0]
    taken = prepared.step(symbols, layer.hidden, layer.cell, state.looked)
    after = LayerState(taken.hidden, None if layer.cell is None else taken.cell)
    looked = None if state.looked is None else taken.looks
    return Step(taken.logits, Running([after], looked).whole(), Attended(taken.contexts, taken.looks, looked))
