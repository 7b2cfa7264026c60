"""States and gates along traces: equal to the network's own, and states that follow from gates."""

import numpy as np
import pytest
import torch
from inspected import KINDS, PAIRS, made, traces_of

from pellucid.decoding.ensemble import ensemble
from pellucid.errors import InputError
from pellucid.inspection.states import trace_states
from pellucid.model.network import require_seq2seq

GATES = {"gru": ["reset", "update", "candidate"], "lstm": ["input", "forget", "output", "candidate"]}


@pytest.mark.parametrize("kind", [*KINDS])
def test_states_equal_those_of_the_network(kind: str) -> None:
    transducer = made(kind)
    traces = traces_of(transducer, PAIRS)
    found, network = trace_states(transducer, traces), require_seq2seq(transducer.network)
    for trace, own in zip(traces, found, strict=True):
        ids = torch.tensor([transducer.vocabularies.source.encode(trace.source)])
        written = transducer.vocabularies.target.encode(trace.target[:-1])
        with torch.inference_mode():
            memory = network.encoder(ids, torch.tensor([len(trace.source)]))
            cache, state = network.decoder.prepare(memory), network.decoder.init_state(memory)
            for t, fed in enumerate([1, *written]):
                state = network.decoder.step(torch.tensor([fed]), state, cache).state
                np.testing.assert_allclose(own.decoder[t], state.hidden[0, -1].numpy(), atol=1e-6)
        np.testing.assert_allclose(own.encoder, memory.states[0].numpy(), atol=1e-6)
        assert own.decoder.shape[0] == len(trace.target) and own.gates == {}


@pytest.mark.parametrize("kind", [*KINDS])
def test_gates_have_their_names_and_shapes_in_any_batch(kind: str) -> None:
    transducer = made(kind)
    config, traces = transducer.config, traces_of(transducer, PAIRS)
    ways = ["forwards", "backwards"] if config.encoder.bidirectional else ["forwards"]
    layers = [f"layer {at + 1} " for at in range(2)] if config.encoder.num_layers > 1 else [""]
    encoder = {f"encoder {at}{way} {gate}" for at in layers for way in ways for gate in GATES[config.encoder.cell]}
    decoder = {f"decoder {at}{gate}" for at in layers for gate in GATES[config.decoder.cell]}
    many = trace_states(transducer, traces, gates=True)
    for trace, own in zip(traces, many, strict=True):
        assert own.gates.keys() == encoder | decoder
        alone = trace_states(transducer, [trace], gates=True)[0].gates
        for name, values in own.gates.items():
            side = config.encoder if name in encoder else config.decoder
            assert values.shape == (len(trace.source if name in encoder else trace.target), side.hidden_size)
            low = -1 if name.endswith("candidate") else 0
            assert low <= values.min() and values.max() <= 1
            np.testing.assert_allclose(values, alone[name], atol=1e-5)


def test_a_grus_states_follow_from_its_gates() -> None:
    """h' = (1 − z) n + z h, in both directions and in the decoder, from h = 0 and the bridge."""
    transducer = made()
    trace = traces_of(transducer, [("cabba", "zyx")])[0]
    own = trace_states(transducer, [trace], gates=True)[0]
    size = transducer.config.encoder.hidden_size
    for way, columns in (("forwards", slice(0, size)), ("backwards", slice(size, None))):
        before, order = np.zeros(size), range(5) if way == "forwards" else range(4, -1, -1)
        for position in order:
            update, candidate = (own.gates[f"encoder {way} {gate}"][position] for gate in ("update", "candidate"))
            before = (1 - update) * candidate + update * before
            np.testing.assert_allclose(own.encoder[position, columns], before, atol=1e-5)
    for t in range(1, 4):
        update, candidate = own.gates["decoder update"][t], own.gates["decoder candidate"][t]
        expected = (1 - update) * candidate + update * own.decoder[t - 1]
        np.testing.assert_allclose(own.decoder[t], expected, atol=1e-5)


def test_an_lstms_states_follow_from_its_gates() -> None:
    """c' = f c + i g, h' = o tanh c'."""
    transducer = made("lstm")
    trace = traces_of(transducer, [("cabba", "zyx")])[0]
    own = trace_states(transducer, [trace], gates=True)[0]
    size = transducer.config.encoder.hidden_size
    for way, columns in (("forwards", slice(0, size)), ("backwards", slice(size, None))):
        cell, order = np.zeros(size), range(5) if way == "forwards" else range(4, -1, -1)
        for position in order:
            enter, forget, leave, candidate = (own.gates[f"encoder {way} {gate}"][position] for gate in GATES["lstm"])
            cell = forget * cell + enter * candidate
            np.testing.assert_allclose(own.encoder[position, columns], leave * np.tanh(cell), atol=1e-5)
    cells = [np.arctanh(own.decoder[t] / own.gates["decoder output"][t]) for t in range(4)]
    for t in range(1, 4):
        enter, forget, _, candidate = (own.gates[f"decoder {gate}"][t] for gate in GATES["lstm"])
        np.testing.assert_allclose(cells[t], forget * cells[t - 1] + enter * candidate, atol=1e-3)


def test_the_reset_gate_is_that_of_the_equation() -> None:
    transducer = made()
    own = trace_states(transducer, traces_of(transducer, [("ab", "v")]), gates=True)[0]
    weight = {name: tensor.numpy() for name, tensor in transducer.network.state_dict().items()}
    name, size = "encoder.forward_cells.layers.0", transducer.config.encoder.hidden_size
    vector = weight["encoder.table.weight"][transducer.vocabularies.source.ids["b"]]
    sums = weight[f"{name}.input_weight"] @ vector + weight[f"{name}.input_bias"]
    sums = sums + weight[f"{name}.hidden_weight"] @ own.encoder[0, :size] + weight[f"{name}.hidden_bias"]
    np.testing.assert_allclose(own.gates["encoder forwards reset"][1], 1 / (1 + np.exp(-sums[:size])), atol=1e-5)


def test_empty_sources_and_ensembles_have_no_states() -> None:
    transducer = made()
    one, two = trace_states(transducer, transducer.predict(["", "ab"]), gates=True)
    assert one.encoder.shape == (0, two.encoder.shape[1]) and one.decoder.shape == (0, two.decoder.shape[1])
    assert trace_states(transducer, []) == []
    both = ensemble([transducer, made(seed=4)], ["a", "b"])
    with pytest.raises(InputError, match="use one of its models"):
        trace_states(both, both.predict(["abc"]))
