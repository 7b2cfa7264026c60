"""The decoder that steps first, and looks from where it came to.

B batch, R hypotheses of all sources, H hidden, D memory, G all gates (3H or 4H).
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pellucid.config import AttentionConfig, DecoderConfig
from pellucid.model.decoder import Decoder, Moved, Running, Sizes
from pellucid.model.heads import joined, size_read
from pellucid.model.memory import Attendable, Attended, Memory, State


class StepThenAttend(Decoder):
    """s_t = cell(y_{t−1}, s_{t−1}), c_t = attention(s_t), a_t = tanh(W_c [s_t; c_t]), p(y_t) from a_t.

    With input feeding the cell reads [y_{t−1}; a_{t−1}], a_0 = 0. In a stack, s_t is the output of the top. Source:
    Luong et al. 2015, sections 3 (equation 5), 3.1 and 3.3.
    """

    kind: ClassVar[str] = "step-then-attend"

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: Sizes) -> None:
        """W_c reads what `config.output` names, and gives as many numbers as a state has."""
        super().__init__(config, attention, sizes, config.hidden_size if config.input_feeding else 0, "state")
        read = size_read(config.output, config.hidden_size, sizes.memory)
        self.combination = nn.Linear(read, config.hidden_size, bias=False)

    def start(self, memory: Memory) -> State:
        """As any decoder; before the first step, nothing was come to."""
        state = super().start(memory)
        return (
            state if self.context_projection is None else state._replace(context=torch.zeros_like(state.hidden[:, 0]))
        )

    def move(
        self,
        projected: Float[Tensor, "R G"],
        running: Running,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None,
    ) -> Moved:
        """Take every cell one step, attend from the output of the top, and join the two."""
        gates = projected
        if self.context_projection is not None:
            gates = projected + self.context_projection(running.fed)
        layers, top = self.climb(gates, running.layers, attendable.noise)
        attended: Attended = self.attention(top, attendable, running.looked, override)
        combined = torch.tanh(self.combination(joined(self.config.output, top, attended.context)))
        fed = None if self.context_projection is None else combined
        return Moved(Running(layers, attended.looked, fed), attended, combined)
