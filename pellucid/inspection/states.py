"""The vectors behind a decoding.

S source positions, T steps, D memory, H hidden.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pellucid.config import memory_size
from pellucid.inspection.gates import Gates, decoder_gates, encoder_gates
from pellucid.inspection.replaying import Replay, answering, begun, replays, taken
from pellucid.search.decoded import array
from pellucid.search.predictor import Predictor
from pellucid.search.trace import Trace


class States(NamedTuple):
    """Those of one trace."""

    encoder: Float[np.ndarray, "S D"]
    """What attention reads at each source position."""
    decoder: Float[np.ndarray, "T H"]
    """The top state that wrote each symbol."""
    gates: dict[str, Float[np.ndarray, "positions units"]]
    """By name (inspection/gates.py), at source positions or steps; empty unless asked for."""


def states(transducer: Predictor, traces: Sequence[Trace], gates: bool = False) -> list[States]:
    """The states along each trace, with the attention that the transducer's options give.

    A trace without source or output has none. `InputError` for an ensemble, whose models each have their own.
    """
    found = [_nothing(transducer)] * len(traces)
    with torch.inference_mode(), answering(transducer, len(traces)):
        for replay in replays(transducer, traces):
            for (number, *_), each in zip(replay.sizes, _states(transducer, replay, gates), strict=True):
                found[number] = each
    return found


def _states(transducer: Predictor, replay: Replay, gates: bool) -> list[States]:
    """Those of one batch."""
    alone, guide = begun(transducer, replay)
    read, written, opened = array(alone.attendable.memory.states), list[Tensor](), list[Gates]()
    for step in taken(alone, guide, replay.target):
        written.append(step.step.state.hidden[:, -1])
        if gates:
            opened.append(decoder_gates(alone.decoder, step))
    work, wrote = replay.work, array(torch.stack(written, dim=1))
    inside = encoder_gates(transducer.network.encoder, work.source, work.lengths) if gates else Gates()
    entering = {name: array(values) for name, values in inside.items()}
    leaving = {name: array(torch.stack([each[name] for each in opened], dim=1)) for name in (opened or [Gates()])[0]}
    return [
        States(
            read[row, :positions],
            wrote[row, :steps],
            {
                **{name: values[row, :positions] for name, values in entering.items()},
                **{name: values[row, :steps] for name, values in leaving.items()},
            },
        )
        for row, (_, positions, steps) in enumerate(replay.sizes)
    ]


def _nothing(transducer: Predictor) -> States:
    """The states of no step."""
    config = transducer.config
    return States(np.zeros((0, memory_size(config.encoder))), np.zeros((0, config.decoder.hidden_size)), {})
