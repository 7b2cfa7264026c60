"""Encoder states, decoder states and gates of traces.

S source positions, T steps, D memory, H hidden, L decoder layers, N rows of a step, G numbers of all gates.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import memory_size
from pellucid.data.characters import WordCharacters
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.topk import to_array
from pellucid.decoding.trace import Trace
from pellucid.inspection.replay import (
    Replay,
    ReplayStep,
    build_replays,
    check_finite,
    evaluation_context,
    replay_steps,
    start_replay,
)
from pellucid.model.cells import RecurrentCell
from pellucid.model.decoder import AttendThenStep, Decoder
from pellucid.model.encoder import Encoder
from pellucid.model.recurrence import InputVectors, reverse_sequence, run_cell
from pellucid.shapes import Float, Int

GateValues = dict[str, Float[Tensor, "B *steps H"]]
"""Gate activations by name: "encoder forwards update", "decoder forget"; "encoder layer 2 forwards update"."""


def gates_of(cell: RecurrentCell, projected: Float[Tensor, "N G"], hidden: Float[Tensor, "N H"]) -> GateValues:
    """Return the gate activations of one step of a recurrent cell, by the cell's names of its gates.

    Args:
        cell: Recurrent cell with G preactivations.
        projected: Projected input W x + b of each row.
        hidden: Hidden state of each row before the step.
    """
    return dict(zip(cell.spec.gates, cell.spec.gate_values(*cell.preactivations(projected, hidden)), strict=True))


def encoder_gates(
    encoder: Encoder, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], characters: WordCharacters | None = None
) -> GateValues:
    """Return the gate activations of every encoder layer and direction at every source position.

    Args:
        encoder: Encoder, in evaluation mode.
        source: Source ids.
        lengths: Source lengths.
        characters: Characters of the source words; None, the default, for an encoder that reads none.

    Returns:
        Arrays B × S × H by names such as "encoder forwards update"; with several layers, "encoder layer 2 forwards
        update". Values at padding have no meaning.
    """
    inputs, _, lengths = encoder.prepare_inputs(encoder.embed(source, characters), source, lengths)
    states, gates = inputs.vectors, GateValues()
    for layer in range(encoder.config.num_layers):
        layer_name = "" if encoder.config.num_layers == 1 else f"layer {layer + 1} "
        for cell, direction in zip(encoder.cells(layer), ("forwards", "backwards"), strict=False):
            for name, values in _row_gates(cell, inputs.to_dense(), lengths, direction == "backwards").items():
                gates[f"encoder {layer_name}{direction} {name}"] = values
        states, _ = encoder.forward_layer(layer, inputs, states, lengths)
        inputs = InputVectors(states)
    return gates


def _row_gates(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"], backwards: bool
) -> GateValues:
    """Return the gates of one cell along every row."""
    ordered = reverse_sequence(inputs, lengths) if backwards else inputs
    states = run_cell(cell, ordered)
    before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
    flat = gates_of(cell, cell.project(ordered).flatten(0, 1), before.flatten(0, 1))
    gates = {name: values.view(*states.shape[:2], -1) for name, values in flat.items()}
    return {name: reverse_sequence(values, lengths) for name, values in gates.items()} if backwards else gates


def decoder_gates(decoder: Decoder, step: ReplayStep) -> GateValues:
    """Return the gate activations of every decoder layer at one step.

    Args:
        decoder: Decoder, in evaluation mode.
        step: Decoder step.

    Returns:
        Arrays B × H by names such as "decoder update"; with several layers, "decoder layer 2 update".
    """
    projected = decoder.project_symbols(decoder.oov_to_unk(step.symbols), None)
    if isinstance(decoder, AttendThenStep):
        projected = projected + decoder.context_projection(step.step.attention.context)
    elif decoder.context_projection is not None:
        projected = projected + decoder.context_projection(step.before.input_feed)
    named_gates, outputs = GateValues(), layer_outputs(decoder, step.step.state.hidden)
    for layer, cell in enumerate(decoder.cells):
        layer_name = "" if len(decoder.cells) == 1 else f"layer {layer + 1} "
        gates = gates_of(cell, cell.project(outputs[layer - 1]) if layer else projected, step.before.hidden[:, layer])
        named_gates.update({f"decoder {layer_name}{name}": values for name, values in gates.items()})
    return named_gates


def layer_outputs(decoder: Decoder, hidden: Float[Tensor, "B L H"]) -> list[Float[Tensor, "B H"]]:
    """Return the output of each decoder layer: its state after layer normalization and residual connection, if any.

    Args:
        decoder: Decoder.
        hidden: Hidden states of the L layers after a step.

    Returns:
        One tensor per layer, lowest layer first.
    """
    outputs: list[Tensor] = []
    for layer, state in enumerate(hidden.unbind(dim=1)):
        normalized: Tensor = decoder.normalizations[layer](state)
        outputs.append(outputs[-1] + normalized if decoder.config.residual and layer else normalized)
    return outputs


class DecodingStates(NamedTuple):
    """Encoder and decoder states of one trace."""

    encoder: Float[np.ndarray, "S D"]
    """Encoder state at each source position."""
    decoder: Float[np.ndarray, "T H"]
    """Hidden state of the top decoder layer after each step, before layer normalization; the step of EOS is included.
    """
    gates: dict[str, Float[np.ndarray, "positions units"]]
    """Gate activations by name ("encoder …" at source positions, "decoder …" at steps); empty unless requested."""


@check_arguments
@check_finite
def trace_states(predictor: Predictor, traces: Sequence[Trace], gates: bool = False) -> list[DecodingStates]:
    """Return the encoder and decoder states of each trace, with the forced attention of the predictor's options.

    Args:
        predictor: A single model that decodes symbol by symbol.
        traces: Traces of the model.
        gates: Whether to compute gate activations too.

    Returns:
        States of each trace, in order; empty arrays for a trace without source or output.

    Raises:
        ConfigError: The model does not decode symbol by symbol.
        ArgumentError: The model is an ensemble, a field of a trace is wrong, or a trace is of another model.
    """
    states = [empty_states(predictor)] * len(traces)
    with torch.inference_mode(), evaluation_context(predictor, len(traces)):
        for replay in build_replays(predictor, traces):
            for (number, *_), trace_state in zip(replay.sizes, _states(predictor, replay, gates), strict=True):
                states[number] = trace_state
    return states


def _states(predictor: Predictor, replay: Replay, gates: bool) -> list[DecodingStates]:
    """Return the states of one batch."""
    inference, forced = start_replay(predictor, replay)
    encoder_states, hidden, step_gates = to_array(inference.cache.memory.states), list[Tensor](), list[GateValues]()
    for step in replay_steps(inference, forced, replay.target):
        hidden.append(step.step.state.hidden[:, -1])
        if gates:
            step_gates.append(decoder_gates(inference.decoder, step))
    batch, decoder_states = replay.batch, to_array(torch.stack(hidden, dim=1))
    encoder, source_gates = predictor.network.encoder, GateValues()
    if gates:
        source_gates = encoder_gates(encoder, batch.source, batch.lengths, batch.characters)
    by_position = {name: to_array(values) for name, values in source_gates.items()}
    names = step_gates[0] if step_gates else GateValues()
    by_step = {name: to_array(torch.stack([step[name] for step in step_gates], dim=1)) for name in names}
    return [
        DecodingStates(
            encoder_states[row, :positions],
            decoder_states[row, :steps],
            {
                **{name: values[row, :positions] for name, values in by_position.items()},
                **{name: values[row, :steps] for name, values in by_step.items()},
            },
        )
        for row, (_, positions, steps) in enumerate(replay.sizes)
    ]


def empty_states(predictor: Predictor) -> DecodingStates:
    """Return the states of a trace without source or output: arrays without rows, and no gates.

    Args:
        predictor: Model, for the sizes of its states.
    """
    config = predictor.config
    return DecodingStates(np.zeros((0, memory_size(config.encoder))), np.zeros((0, config.decoder.hidden_size)), {})
