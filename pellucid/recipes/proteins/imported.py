"""The four networks of the 2016 table of protein places, built from the weights that were kept.

B proteins, S positions (400), F numbers a position (20 of a profile, or of filters), D memory, C places (10).

Weights come as a list of arrays in the order of the layers. All is computed in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.model.cells import Peepholes, PeepholeState, PeepholeStep, late_peephole_step, peephole_step
from pellucid.model.memory import Memory, State
from pellucid.model.recurrence import reverse_sequence
from pellucid.recipes.digits.networks import ContextDecoder

Weights = Sequence[Tensor]
POOLED = 5
"""Positions that the network of convolutions alone takes the greatest of."""
CONVOLUTIONS, LSTM, DECODER = slice(0, 6), 17, slice(40, 60)
"""Which arrays belong to what: the three convolutions, one direction of the LSTM, the decoder."""
STEPS = 2
"""Looks of the attention decoder; the last context goes on."""


class Proteins(NamedTuple):
    """What is to be told, and the answers."""

    profiles: Float[Tensor, "B S F"]
    """How often each of the 20 amino acids stands at a position in related proteins; zero behind the end."""
    lengths: Int[Tensor, " B"]
    places: Int[Tensor, " B"]


def dense(weights: Weights, proteins: Proteins) -> Float[Tensor, "B C"]:
    """FFN: all positions side by side into two dense layers."""
    return _classified(proteins.profiles.flatten(1), weights)


def convolutional(weights: Weights, proteins: Proteins) -> Float[Tensor, "B C"]:
    """CNN: the convolutions, the greatest of each five positions, two dense layers."""
    features = _filtered(weights[CONVOLUTIONS], proteins.profiles).transpose(1, 2)
    pooled: Tensor = nn.functional.max_pool1d(features, POOLED)
    return _classified(pooled.flatten(1), weights[6:])


def recurrent(weights: Weights, proteins: Proteins) -> Float[Tensor, "B C"]:
    """CNN-LSTM: the convolutions, an LSTM each way, what each knows at its end, two dense layers."""
    memory = _read(weights, proteins)
    return _classified(memory.final.hidden[:, -1], weights[40:])


def attending(weights: Weights, proteins: Proteins, step: PeepholeStep = late_peephole_step) -> Float[Tensor, "B C"]:
    """CNN-LSTM-attention: the convolutions, an LSTM each way, two looks of the decoder, two dense layers."""
    contexts, _ = decoder_of(weights[DECODER], step)(_read(weights, proteins), STEPS)
    return _classified(contexts[:, -1], weights[60:])


NETWORKS: Mapping[str, Callable[[Weights, Proteins], Float[Tensor, "B C"]]] = {
    "FFN": dense,
    "CNN": convolutional,
    "CNN-LSTM": recurrent,
    "CNN-LSTM-Attention": attending,
}
"""By the beginnings of their files' names."""
RIGHT_PEEPHOLE = partial(attending, step=peephole_step)
"""The attention network with the output gate's peephole before the sigmoid."""


def decoder_of(weights: Weights, step: PeepholeStep) -> ContextDecoder:
    """The digit lessons' attention decoder with stored weights.

    They are: hidden weight and bias of the gates i, f, g, o; context weights of the same; peepholes; W, U, v of
    attention; and an initial state, which is zero.
    """
    memory_size, units = weights[8].shape
    decoder = ContextDecoder(memory_size, units, weights[15].shape[1], step).double()
    own = {
        "hidden_weight": torch.cat(tuple(weights[0:8:2]), dim=1).T,
        "bias": torch.cat(tuple(weights[1:8:2])),
        "context_weight": torch.cat(tuple(weights[8:12]), dim=1).T,
        "enter_peephole": weights[12],
        "forget_peephole": weights[13],
        "leave_peephole": weights[14],
        "attention.query_projection.weight": weights[15].T,
        "attention.key_projection.weight": weights[16].T,
        "attention.key_projection.bias": weights[16].new_zeros(weights[16].shape[1]),
        "attention.energy": weights[17][:, 0],
    }
    decoder.load_state_dict(own)
    return decoder


def masked_lstm(inputs: Float[Tensor, "B S F"], lengths: Int[Tensor, " B"], weights: Weights) -> Float[Tensor, "B S H"]:
    """The states of a peephole LSTM run from its stored first state; beyond a row's length the state stands still.

    The weights are: input weight, hidden weight, bias of the gates i, f, g, o; peepholes; first cell, first hidden.
    """
    given, recurrent = torch.cat(tuple(weights[0:12:3]), dim=1), torch.cat(tuple(weights[1:12:3]), dim=1)
    entering, peepholes = inputs @ given + torch.cat(tuple(weights[2:12:3])), Peepholes(*weights[12:15])
    state = PeepholeState(weights[16].expand(len(inputs), -1), weights[15].expand(len(inputs), -1))
    states = list[Tensor]()
    for place, sums in enumerate(entering.unbind(dim=1)):
        after, inside = peephole_step(sums + state.hidden @ recurrent, state, peepholes), (place < lengths)[:, None]
        state = PeepholeState(*(torch.where(inside, new, old) for new, old in zip(after, state, strict=True)))
        states.append(state.hidden)
    return torch.stack(states, dim=1)


def _read(weights: Weights, proteins: Proteins) -> Memory:
    """The convolutions and the LSTM each way, the backward one from each protein's own end."""
    features, lengths = _filtered(weights[CONVOLUTIONS], proteins.profiles), proteins.lengths
    forward = masked_lstm(features, lengths, weights[6 : 6 + LSTM])
    mirrored = masked_lstm(_reversed(features, lengths), lengths, weights[6 + LSTM : 6 + 2 * LSTM])
    states = torch.cat([forward, _reversed(mirrored, lengths)], dim=2)
    final = torch.cat([forward[:, -1], mirrored[:, -1]], dim=1)
    return Memory(states, lengths, State(final[:, None]))


def _reversed(values: Float[Tensor, "B S F"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S F"]:
    """Each row from its own last position to its first."""
    mirrored: Tensor = reverse_sequence(values, lengths)
    return mirrored


def _filtered(weights: Weights, profiles: Float[Tensor, "B S F"]) -> Float[Tensor, "B S F"]:
    """Convolutions of widths 3 and 5 side by side, and one of width 3 over both."""
    inputs = profiles.transpose(1, 2)
    both = torch.cat([_convolved(inputs, *weights[0:2]), _convolved(inputs, *weights[2:4])], dim=1)
    return _convolved(both, *weights[4:6]).transpose(1, 2)


def _convolved(inputs: Float[Tensor, "B F S"], filters: Tensor, bias: Tensor) -> Float[Tensor, "B G S"]:
    """ReLU of a true convolution, filters flipped, that keeps the length; PyTorch's own is a correlation."""
    return torch.relu(nn.functional.conv1d(inputs, filters.flip(2), bias, padding="same"))


def _classified(features: Float[Tensor, "B D"], weights: Weights) -> Float[Tensor, "B C"]:
    """A dense layer with ReLU and one without."""
    return torch.relu(features @ weights[0] + weights[1]) @ weights[2] + weights[3]
