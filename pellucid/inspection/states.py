"""Encoder states, decoder states and gates of traces.

S source positions, T steps, D memory, H hidden.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.arguments import check_arguments
from pellucid.config.settings import memory_size
from pellucid.decoding.outputs import to_array
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.inspection.replay import Replay, ReplayStep, build_replays, inference_mode, replay_steps, start_replay
from pellucid.model.cells import RecurrentCell
from pellucid.model.decoder import AttendThenStep, Decoder
from pellucid.model.encoder import Encoder
from pellucid.model.recurrence import Inputs, reverse_sequence, run_forward

Gates = dict[str, Float[Tensor, "B *steps H"]]
"""Gate activations by name: "encoder forwards update", "decoder forget"; "encoder layer 2 forwards update"."""


def gates_of(cell: RecurrentCell, projected: Float[Tensor, "N G"], hidden: Float[Tensor, "N H"]) -> Gates:
    """Return the gates of one cell step, from W x + b and the previous state."""
    return dict(zip(cell.spec.gates, cell.spec.gate_values(*cell.preactivations(projected, hidden)), strict=True))


def encoder_gates(encoder: Encoder, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Gates:
    """Return the gates of every encoder layer and direction at every position; padding is undefined."""
    inputs, _, lengths = encoder.prepare_inputs(encoder.table.embed(encoder.oov_to_unk(source), None), source, lengths)
    states, found = inputs.vectors, Gates()
    for layer in range(encoder.config.num_layers):
        own = "" if encoder.config.num_layers == 1 else f"layer {layer + 1} "
        for cell, way in zip(encoder.cells(layer), ("forwards", "backwards"), strict=False):
            for name, values in _along(cell, inputs.to_dense(), lengths, way == "backwards").items():
                found[f"encoder {own}{way} {name}"] = values
        states, _ = encoder.forward_layer(layer, inputs, states, lengths)
        inputs = Inputs(states)
    return found


def _along(cell: RecurrentCell, spread: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"], backwards: bool) -> Gates:
    """Return the gates of one cell along every row."""
    read = reverse_sequence(spread, lengths) if backwards else spread
    states = run_forward(cell, read)
    before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
    flat = gates_of(cell, cell.project(read).flatten(0, 1), before.flatten(0, 1))
    whole = {name: values.view(*states.shape[:2], -1) for name, values in flat.items()}
    return {name: reverse_sequence(values, lengths) for name, values in whole.items()} if backwards else whole


def decoder_gates(decoder: Decoder, taken: ReplayStep) -> Gates:
    """Return the gates of every decoder layer at one step."""
    projected = decoder.project(decoder.oov_to_unk(taken.symbols), None)
    if isinstance(decoder, AttendThenStep):
        projected = projected + decoder.context_projection(taken.step.attention.context)
    elif decoder.context_projection is not None:
        projected = projected + decoder.context_projection(taken.before.input_feed)
    found, outputs = Gates(), outputs_of(decoder, taken.step.state.hidden)
    for layer, cell in enumerate(decoder.cells):
        own = "" if len(decoder.cells) == 1 else f"layer {layer + 1} "
        gates = gates_of(cell, cell.project(outputs[layer - 1]) if layer else projected, taken.before.hidden[:, layer])
        found.update({f"decoder {own}{name}": values for name, values in gates.items()})
    return found


def outputs_of(decoder: Decoder, hidden: Float[Tensor, "B L H"]) -> list[Float[Tensor, "B H"]]:
    """Return the output of each layer: its state, after layer normalization and residual connections."""
    outputs: list[Tensor] = []
    for layer, state in enumerate(hidden.unbind(dim=1)):
        risen: Tensor = decoder.normalizations[layer](state)
        outputs.append(outputs[-1] + risen if decoder.config.residual and layer else risen)
    return outputs


class DecodingStates(NamedTuple):
    """States of one trace."""

    encoder: Float[np.ndarray, "S D"]
    """Encoder state at each source position."""
    decoder: Float[np.ndarray, "T H"]
    """Top decoder state at each step."""
    gates: dict[str, Float[np.ndarray, "positions units"]]
    """Gate activations by name, at source positions or steps; empty unless requested."""


@check_arguments
def trace_states(transducer: Predictor, traces: Sequence[Trace], gates: bool = False) -> list[DecodingStates]:
    """Return the states of each trace, with the forced attention of the options.

    A trace without source or output has no states.

    Raises:
        InputError: The predictor is an ensemble.
    """
    found = [nothing(transducer)] * len(traces)
    with torch.inference_mode(), inference_mode(transducer, len(traces)):
        for replay in build_replays(transducer, traces):
            for (number, *_), each in zip(replay.sizes, _states(transducer, replay, gates), strict=True):
                found[number] = each
    return found


def _states(transducer: Predictor, replay: Replay, gates: bool) -> list[DecodingStates]:
    """Return the states of one batch."""
    alone, guide = start_replay(transducer, replay)
    read, written, opened = to_array(alone.attendable.memory.states), list[Tensor](), list[Gates]()
    for step in replay_steps(alone, guide, replay.target):
        written.append(step.step.state.hidden[:, -1])
        if gates:
            opened.append(decoder_gates(alone.decoder, step))
    work, wrote = replay.work, to_array(torch.stack(written, dim=1))
    inside = encoder_gates(transducer.network.encoder, work.source, work.lengths) if gates else Gates()
    entering = {name: to_array(values) for name, values in inside.items()}
    leaving = {name: to_array(torch.stack([each[name] for each in opened], dim=1)) for name in (opened or [Gates()])[0]}
    return [
        DecodingStates(
            read[row, :positions],
            wrote[row, :steps],
            {
                **{name: values[row, :positions] for name, values in entering.items()},
                **{name: values[row, :steps] for name, values in leaving.items()},
            },
        )
        for row, (_, positions, steps) in enumerate(replay.sizes)
    ]


def nothing(transducer: Predictor) -> DecodingStates:
    """The states of no step."""
    config = transducer.config
    return DecodingStates(np.zeros((0, memory_size(config.encoder))), np.zeros((0, config.decoder.hidden_size)), {})
