"""States and gates of traces equal those of the network, and the states follow from the gates."""

import numpy as np
import pytest
import torch
from untrained_models import MODEL_SETTINGS, PAIRS, make_traces, make_transducer

from pellucid.decoding.ensemble import combine_transducers
from pellucid.errors import InputError
from pellucid.inspection.states import trace_states
from pellucid.model.network import require_encoder_decoder

GATES = {"gru": ["reset", "update", "candidate"], "lstm": ["input", "forget", "output", "candidate"]}


@pytest.mark.parametrize("kind", [*MODEL_SETTINGS])
def test_states_equal_those_of_the_network(kind: str) -> None:
    transducer = make_transducer(kind)
    traces = make_traces(transducer, PAIRS)
    result, network = trace_states(transducer, traces), require_encoder_decoder(transducer.network)
    for trace, states in zip(traces, result, strict=True):
        ids = torch.tensor([transducer.vocabularies.source.encode(trace.source)])
        target_ids = transducer.vocabularies.target.encode(trace.target[:-1])
        with torch.inference_mode():
            memory = network.encoder(ids, torch.tensor([len(trace.source)]))
            cache, state = network.decoder.build_cache(memory), network.decoder.init_state(memory)
            for t, symbol in enumerate([1, *target_ids]):
                state = network.decoder.step(torch.tensor([symbol]), state, cache).state
                np.testing.assert_allclose(states.decoder[t], state.hidden[0, -1].numpy(), atol=1e-6)
        np.testing.assert_allclose(states.encoder, memory.states[0].numpy(), atol=1e-6)
        assert states.decoder.shape[0] == len(trace.target) and states.gates == {}


@pytest.mark.parametrize("kind", [*MODEL_SETTINGS])
def test_gates_have_their_names_and_shapes_in_any_batch(kind: str) -> None:
    transducer = make_transducer(kind)
    config, traces = transducer.config, make_traces(transducer, PAIRS)
    directions = ["forwards", "backwards"] if config.encoder.bidirectional else ["forwards"]
    layers = [f"layer {index + 1} " for index in range(2)] if config.encoder.num_layers > 1 else [""]
    encoder = {
        f"encoder {index}{direction} {gate}"
        for index in layers
        for direction in directions
        for gate in GATES[config.encoder.cell]
    }
    decoder = {f"decoder {index}{gate}" for index in layers for gate in GATES[config.decoder.cell]}
    many = trace_states(transducer, traces, gates=True)
    for trace, states in zip(traces, many, strict=True):
        assert states.gates.keys() == encoder | decoder
        single = trace_states(transducer, [trace], gates=True)[0].gates
        for name, values in states.gates.items():
            side = config.encoder if name in encoder else config.decoder
            assert values.shape == (len(trace.source if name in encoder else trace.target), side.hidden_size)
            low = -1 if name.endswith("candidate") else 0
            assert low <= values.min() and values.max() <= 1
            np.testing.assert_allclose(values, single[name], atol=1e-5)


def test_a_grus_states_follow_from_its_gates() -> None:
    """The equation is h' = (1 − z) n + z h, in both encoder directions and in the decoder."""
    transducer = make_transducer()
    trace = make_traces(transducer, [("cabba", "zyx")])[0]
    states = trace_states(transducer, [trace], gates=True)[0]
    size = transducer.config.encoder.hidden_size
    for direction, columns in (("forwards", slice(0, size)), ("backwards", slice(size, None))):
        before, order = np.zeros(size), range(5) if direction == "forwards" else range(4, -1, -1)
        for position in order:
            update, candidate = (
                states.gates[f"encoder {direction} {gate}"][position] for gate in ("update", "candidate")
            )
            before = (1 - update) * candidate + update * before
            np.testing.assert_allclose(states.encoder[position, columns], before, atol=1e-5)
    for t in range(1, 4):
        update, candidate = states.gates["decoder update"][t], states.gates["decoder candidate"][t]
        expected = (1 - update) * candidate + update * states.decoder[t - 1]
        np.testing.assert_allclose(states.decoder[t], expected, atol=1e-5)


def test_an_lstms_states_follow_from_its_gates() -> None:
    """The equations are c' = f c + i g and h' = o tanh c'."""
    transducer = make_transducer("lstm")
    trace = make_traces(transducer, [("cabba", "zyx")])[0]
    states = trace_states(transducer, [trace], gates=True)[0]
    size = transducer.config.encoder.hidden_size
    for direction, columns in (("forwards", slice(0, size)), ("backwards", slice(size, None))):
        cell, order = np.zeros(size), range(5) if direction == "forwards" else range(4, -1, -1)
        for position in order:
            input_gate, forget_gate, output_gate, candidate = (
                states.gates[f"encoder {direction} {gate}"][position] for gate in GATES["lstm"]
            )
            cell = forget_gate * cell + input_gate * candidate
            np.testing.assert_allclose(states.encoder[position, columns], output_gate * np.tanh(cell), atol=1e-5)
    cells = [np.arctanh(states.decoder[t] / states.gates["decoder output"][t]) for t in range(4)]
    for t in range(1, 4):
        input_gate, forget_gate, _, candidate = (states.gates[f"decoder {gate}"][t] for gate in GATES["lstm"])
        np.testing.assert_allclose(cells[t], forget_gate * cells[t - 1] + input_gate * candidate, atol=1e-3)


def test_the_reset_gate_is_that_of_the_equation() -> None:
    transducer = make_transducer()
    states = trace_states(transducer, make_traces(transducer, [("ab", "v")]), gates=True)[0]
    weight = {name: tensor.numpy() for name, tensor in transducer.network.state_dict().items()}
    name, size = "encoder.forward_cells.layers.0", transducer.config.encoder.hidden_size
    vector = weight["encoder.table.weight"][transducer.vocabularies.source.ids["b"]]
    sums = weight[f"{name}.input_weight"] @ vector + weight[f"{name}.input_bias"]
    sums = sums + weight[f"{name}.hidden_weight"] @ states.encoder[0, :size] + weight[f"{name}.hidden_bias"]
    np.testing.assert_allclose(states.gates["encoder forwards reset"][1], 1 / (1 + np.exp(-sums[:size])), atol=1e-5)


def test_empty_sources_and_ensembles_have_no_states() -> None:
    transducer = make_transducer()
    one, two = trace_states(transducer, transducer.predict(["", "ab"]), gates=True)
    assert one.encoder.shape == (0, two.encoder.shape[1]) and one.decoder.shape == (0, two.decoder.shape[1])
    assert trace_states(transducer, []) == []
    combined = combine_transducers([transducer, make_transducer(seed=4)], ["a", "b"])
    with pytest.raises(InputError, match="use one of its models"):
        trace_states(combined, combined.predict(["abc"]))
