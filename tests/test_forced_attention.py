"""Forced attention and masked positions, with every decoding method and every kind of model.

B batch, S source positions, T target positions, K hypotheses.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    SEEDS,
    VOCABULARY_SIZE,
    batches,
    configs_with_options,
    few_examples,
    make_network,
    make_vocabularies,
    randomize_parameters,
)
from small_networks import make_config as config_from
from test_ensemble import build_member
from test_transducer import transducer_of

import pellucid.decoding.transducer as module
from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.vocabulary import BOS
from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.forced_attention import force_attention
from pellucid.decoding.inference import encode_and_initialize
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, InputError
from pellucid.tasks.registry import build_network

SEARCH = {"max_length": 6, "beam_size": 3}
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "gru": {},
    "lstm": {"encoder": {"cell": "lstm"}, "decoder": {"cell": "lstm"}},
    "stacked": {"decoder": {"num_layers": 2, "residual": True}},
    "luong": {"attention": {"type": "general"}, "decoder": {"order": "step-then-attend", "input_feeding": True}},
    "location": {"attention": {"type": "location", "filters": 2, "filter_radius": 1}},
    "monotonic": {"attention": {"type": "monotonic"}},
    "heads": {"attention": {"num_heads": 2}},
    "copying": {"decoder": {"pointer_generator": True}},
    "none": {"attention": {"type": "none"}},
}
ONE_HOT = ForcedAttention(1, (0.0, 0.0, 1.0))


def build_model(kind: str) -> Transducer:
    """Return an untrained transducer with the settings of this kind, in float64."""
    return transducer_of({**MODEL_SETTINGS[kind], "search": SEARCH})


def assert_traces_close(one: Trace, two: Trace, tolerance: float = 1e-5) -> None:
    assert (one.target, one.output) == (two.target, two.output)
    np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, atol=tolerance)
    np.testing.assert_allclose(one.attention, two.attention, atol=tolerance)


@pytest.mark.parametrize("kind", [*MODEL_SETTINGS])
def test_a_forced_row_appears_unchanged_in_every_decoding(kind: str) -> None:
    options = DecodingOptions(
        forced_attention=(ForcedAttention(1, (1.0, 0.0, 3.0)), ForcedAttention(0, (0.0, 2.0, 0.0)))
    )
    model = build_model(kind).with_options(options)
    traces = [
        *model.nbest(["abc"], 3)[0],
        model.with_beam(1).predict(["abc"])[0],
        *model.sample(["abc"], SamplingConfig(samples=2))[0],
        model.score_examples([Example("abc", "vwx")])[0],
    ]
    assert any(trace.forced_attention == (0, 1) for trace in traces)
    for trace in traces:
        expected = [[0.0, 1.0, 0.0], [0.25, 0.0, 0.75]][: len(trace.target)]
        np.testing.assert_allclose(trace.attention[:2], expected, atol=1e-7)
        assert trace.forced_attention == tuple(range(min(2, len(trace.target)))) and trace.forced == ()
        assert json.loads(trace.to_json())["forced_attention"] == list(trace.forced_attention)


@pytest.mark.parametrize("score", ["additive", "location", "monotonic", "none"])
def test_added_features_have_no_forced_weights(score: str) -> None:
    data = {"features_column": "3", "features_symbols": "characters"}
    settings = {"data": data, "encoder": {"feature_merge": "sum"}, "attention": {"type": score}, "search": SEARCH}
    transducer = transducer_of(settings, features="VN")
    model = transducer.with_options(DecodingOptions(forced_attention=(ONE_HOT,)))
    sources, features = ["abc", "cab", "bca"], ["V", "VN", ""]
    outputs = [*model.predict(sources, features), *model.with_beam(1).predict(sources, features)]
    outputs += [trace for traces in model.sample(sources, SamplingConfig(samples=2), features) for trace in traces]
    outputs += model.score_examples([Example("abc", "vwx", "VN"), Example("cab", "vwx", "")])
    for trace in outputs:
        assert trace.attention.shape == (len(trace.target), 3)
        assert len(trace.target) < 2 or trace.attention[1].tolist() == [0, 0, 1]
    with pytest.raises(InputError, match="has 5 weights, but source 1 has 3 positions"):
        transducer.with_options(DecodingOptions(forced_attention=(ForcedAttention(0, (1.0,) * 5),))).predict(
            ["abc"], ["VN"]
        )


@pytest.mark.parametrize("kind", [kind for kind in MODEL_SETTINGS if kind != "none"])
def test_a_masked_position_has_no_weight_in_any_decoding(kind: str) -> None:
    with_tree = build_model(kind).with_options(DecodingOptions(masked_positions=(1,), search_tree=True))
    without_tree = build_model(kind).with_options(DecodingOptions(masked_positions=(1,)))
    traces = [
        *with_tree.nbest(["abc"], 3)[0],
        with_tree.with_beam(1).predict(["abc"])[0],
        *without_tree.sample(["abc"], SamplingConfig(samples=2))[0],
        without_tree.score_examples([Example("abc", "vwx")])[0],
    ]
    for trace in traces:
        assert not trace.attention[:, 1].any() and trace.forced_attention == ()
        if kind != "monotonic":  # a monotonic scan may end without attending
            np.testing.assert_allclose(trace.attention.sum(axis=1), 1, atol=1e-6)
        if trace.search_tree is not None:
            assert not trace.search_tree.attention[:, 1].any()


@few_examples
@given(configs_with_options(), batches(), SEEDS, st.integers(0, 5))
def test_masking_equals_a_softmax_over_scores_with_minus_infinity(
    config: Config, batch: Batch, seed: int, position: int
) -> None:
    """At the first step, the remaining weights keep their proportions, for one head and for each of several heads."""
    longer = batch.source_lengths > max(position, 1)
    if not longer.any() or config.attention.type in ("none", "monotonic"):
        return
    source, lengths = batch.source[longer], batch.source_lengths[longer]
    network = make_network(config, seed)
    inference, masked_inference = (
        encode_and_initialize(network, source, lengths, masked) for masked in ((), (position,))
    )
    symbols = torch.full_like(lengths, BOS)
    steps = [each.decoder.step(symbols, each.state, each.cache).attention for each in (inference, masked_inference)]
    heads = [step.weights[:, None] if step.heads is None else step.heads for step in steps]
    scores = heads[0].log()
    scores[:, :, position] = -torch.inf
    torch.testing.assert_close(heads[1], scores.softmax(dim=-1), rtol=1e-9, atol=1e-12)
    remaining = heads[0].clone()
    remaining[:, :, position] = 0
    torch.testing.assert_close(heads[1], remaining / remaining.sum(dim=-1, keepdim=True), rtol=1e-9, atol=1e-12)


def test_masking_equals_scores_of_minus_infinity_at_every_step() -> None:
    """The reference computes dot-product scores at every step and sets that of the masked position to −∞."""
    transducer = transducer_of({"attention": {"type": "general"}, "search": SEARCH})
    masked_trace = transducer.with_options(DecodingOptions(masked_positions=(2,))).score_examples(
        [Example("abca", "vwxy")]
    )[0]
    vocabs, network = transducer.vocabularies, transducer.network
    source = torch.tensor([[*vocabs.source.encode("abca")]])
    with torch.no_grad():
        inference = encode_and_initialize(network, source, torch.tensor([4]))
        states, keys = inference.cache.memory.states, inference.cache.keys
        state, rows = inference.state, []
        for symbol in [BOS, *vocabs.target.encode("vwxy")]:
            scores = keys[0] @ state.hidden[0, -1]
            scores[2] = -torch.inf
            weights = torch.exp(scores - scores.max())
            weights = weights / weights.sum()
            rows.append(weights)
            step = inference.decoder.step(torch.tensor([symbol]), state, inference.cache, weights[None])
            state = step.state
    assert states.shape[1] == 4
    np.testing.assert_allclose(masked_trace.attention, torch.stack(rows).numpy(), atol=1e-6)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def compute_forced_log_probabilities(
    transducer: Transducer, source: str, target: str, rows: dict[int, np.ndarray]
) -> np.ndarray:
    """Return log-probabilities of a target, computed in NumPy; `rows` replace rows of the attention weights."""
    weight = {name: tensor.numpy() for name, tensor in transducer.network.state_dict().items()}

    def step_gru(name: str, preactivations: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return the next state of a GRU, given W x + b."""
        recurrent = weight[f"{name}.hidden_weight"] @ state + weight[f"{name}.hidden_bias"]
        (r, z, n), (ur, uz, un) = np.split(preactivations, 3), np.split(recurrent, 3)
        reset, update = sigmoid(r + ur), sigmoid(z + uz)
        return np.asarray((1 - update) * np.tanh(n + reset * un) + update * state)

    def encode_direction(name: str, ids: list[int]) -> list[np.ndarray]:
        """Return the encoder states of one direction."""
        state, states = np.zeros(len(weight[f"{name}.hidden_weight"]) // 3), []
        for symbol in ids:
            vector = weight["encoder.table.weight"][symbol]
            preactivations = weight[f"{name}.input_weight"] @ vector + weight[f"{name}.input_bias"]
            state = step_gru(name, preactivations, state)
            states.append(state)
        return states

    ids = transducer.vocabularies.source.encode(source)
    forward = encode_direction("encoder.forward_cells.layers.0", ids)
    backward = encode_direction("encoder.backward_cells.layers.0", ids[::-1])
    memory = np.concatenate([np.stack(forward), np.stack(backward[::-1])], axis=1)
    final = np.concatenate([forward[-1], backward[-1]])
    state = np.tanh(weight["decoder.bridge.weight"] @ final + weight["decoder.bridge.bias"])
    keys = (
        memory @ weight["decoder.attention.key_projection.weight"].T + weight["decoder.attention.key_projection.bias"]
    )
    target_ids, log_probabilities = transducer.vocabularies.target.encode(target), []
    for t, (previous, expected) in enumerate(zip([BOS, *target_ids], [*target_ids, 2], strict=True)):
        query = weight["decoder.attention.query_projection.weight"] @ state
        scores = np.tanh(query + keys) @ weight["decoder.attention.energy"]
        alpha = rows[t] if t in rows else np.exp(scores) / np.exp(scores).sum()
        context = alpha @ memory
        name = "decoder.cells.layers.0"
        preactivations = (
            weight[f"{name}.input_weight"] @ weight["decoder.table.weight"][previous] + weight[f"{name}.input_bias"]
        )
        state = step_gru(name, preactivations + weight["decoder.context_projection.weight"] @ context, state)
        readout = np.concatenate([state, context])
        logits = weight["decoder.head.projection.weight"] @ readout + weight["decoder.head.projection.bias"]
        logits[[0, 1, 3]] = -np.inf
        log_probabilities.append(logits[expected] - np.log(np.exp(logits).sum()))
    return np.array(log_probabilities)


@pytest.mark.parametrize(
    "rows", [{}, {1: (0.0, 0.0, 1.0)}, {0: (1.0, 0.0, 0.0), 2: (0.0, 1.0, 0.0)}, {3: (0.2, 0.3, 0.5)}]
)
def test_forced_attention_equals_a_reference_with_replaced_softmax_rows(rows: dict[int, tuple[float, ...]]) -> None:
    transducer = transducer_of({"search": SEARCH})
    forced_attention = tuple(ForcedAttention(step, weights) for step, weights in rows.items())
    actual = transducer.with_options(DecodingOptions(forced_attention=forced_attention)).score_examples(
        [Example("abc", "vwx")]
    )[0]
    expected = compute_forced_log_probabilities(
        transducer, "abc", "vwx", {step: np.array(weights) for step, weights in rows.items()}
    )
    np.testing.assert_allclose(actual.log_probabilities, expected, atol=1e-5)


@pytest.mark.parametrize(
    "options", [DecodingOptions(), DecodingOptions(masked_positions=(0,)), DecodingOptions(forced_attention=(ONE_HOT,))]
)
@pytest.mark.parametrize("kind", [*MODEL_SETTINGS])
def test_batched_hypotheses_have_the_attention_of_forced_decoding(kind: str, options: DecodingOptions) -> None:
    """Beam size 5, batch size 8: the viewer's acceptance test (d), also with forced attention and with masks."""
    if kind == "none" and options.masked_positions:
        return
    model, beam_model = build_model(kind).with_options(options), build_model(kind).with_options(options).with_beam(5)
    sources = ["abc", "cab", "bbb", "aac", "bca", "ccc", "cba", "aba"]
    if not (options.forced_attention or options.masked_positions):
        sources = ["abc", "a", "cabca", "bb", "acbacb", "c", "cba", "ab"]
    lists = beam_model.nbest_examples([Example(source, "") for source in sources], 5)
    for source, traces in zip(sources, lists, strict=True):
        assert len(traces) == 5
        for trace in (each for each in traces if each.finished):
            forced = model.score_examples([Example(source, trace.output)])[0]
            np.testing.assert_allclose(trace.attention, forced.attention, atol=1e-5)
            np.testing.assert_allclose(trace.log_probabilities, forced.log_probabilities, atol=1e-5)
            assert trace.forced_attention == forced.forced_attention


def test_every_ensemble_member_uses_the_row_and_the_mask() -> None:
    models = [build_member(3), build_member(4, cell="lstm"), build_member(5, score="location")]
    combined = combine_transducers(models, ["a", "b", "c"])
    for options in (DecodingOptions(forced_attention=(ONE_HOT,)), DecodingOptions(masked_positions=(1,))):
        pairs = [Example("abc", "vw")]
        traces = [model.with_options(options).score_examples(pairs)[0] for model in models]
        actual = combined.with_options(options).score_examples(pairs)[0]
        mean = np.mean([np.exp(each.log_probabilities) for each in traces], axis=0)
        np.testing.assert_allclose(actual.log_probabilities, np.log(mean), atol=1e-5)
        np.testing.assert_allclose(actual.attention, np.mean([each.attention for each in traces], axis=0), atol=1e-5)
        hypotheses = combined.with_options(options).nbest(["abc"], 3)[0]
        assert all(not each.attention[:, 1].any() for each in hypotheses if options.masked_positions)
        assert all(
            each.forced_attention == (1,) for each in hypotheses if options.forced_attention and len(each.target) > 1
        )
    mixed = combine_transducers([build_member(3), build_member(4, score="none")], ["a", "b"])
    assert not mixed.with_options(DecodingOptions(masked_positions=(1,))).predict(["abc"])[0].attention[:, 1].any()


def test_forced_attention_of_a_bottleneck_reads_the_named_states() -> None:
    bottleneck = build_model("none")
    unforced, forced = (
        bottleneck.with_options(options).score_examples([Example("abc", "vwx")])[0]
        for options in (DecodingOptions(), DecodingOptions(forced_attention=(ONE_HOT,)))
    )
    assert not unforced.attention.any() and forced.attention.sum() == 1
    assert unforced.log_probabilities[0] == forced.log_probabilities[0]
    assert not np.isclose(unforced.log_probabilities[1:], forced.log_probabilities[1:]).any()


def test_masked_positions_are_removed_from_forced_rows() -> None:
    options = DecodingOptions(forced_attention=(ForcedAttention(0, (1.0, 1.0, 2.0)),), masked_positions=(2,))
    trace = build_model("gru").with_options(options).predict(["abc"])[0]
    np.testing.assert_allclose(trace.attention[0], [0.5, 0.5, 0.0], atol=1e-7)


def test_rows_with_an_infinite_sum_are_scaled() -> None:
    options = DecodingOptions(forced_attention=(ForcedAttention(0, (1e308, 1e308, 5e-324)),))
    trace = build_model("gru").with_options(options).predict(["abc"])[0]
    np.testing.assert_allclose(trace.attention[0], [0.5, 0.5, 0.0], atol=1e-7)


@pytest.mark.parametrize("kind", ["gru", "copying", "location", "none"])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_empty_what_if_options_change_no_bit(kind: str, beam_size: int) -> None:
    """Outputs are equal bit for bit: the viewer's acceptance test (h)."""
    transducer = build_model(kind).with_beam(beam_size)
    with_empty_options = transducer.with_options(DecodingOptions(forced_attention=(), masked_positions=()))
    for one, two in zip(transducer.nbest(["abc"], 3)[0], with_empty_options.nbest(["abc"], 3)[0], strict=True):
        assert one.target == two.target
        for name in ("log_probabilities", "attention", "top_log_probabilities"):
            assert np.array_equal(getattr(one, name), getattr(two, name))
    repeated = with_empty_options.nbest_examples([Example("abc", "")], 3, prefixes=[[]])[0]
    assert [each.to_json(compact=True) for each in repeated] == [
        each.to_json(compact=True) for each in transducer.nbest(["abc"], 3)[0]
    ]


@pytest.mark.parametrize("kind", ["gru", "lstm", "luong", "location"])
def test_forcing_the_models_own_weights_changes_only_rounding(kind: str) -> None:
    transducer = build_model(kind)
    original = transducer.predict(["abc"])[0]
    rows = tuple(ForcedAttention(step, tuple(row.tolist())) for step, row in enumerate(original.attention))
    assert_traces_close(original, transducer.with_options(DecodingOptions(forced_attention=rows)).predict(["abc"])[0])


@pytest.mark.parametrize("name", ["greedy", "beam_search"])
def test_forced_attention_uses_no_whole_search_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a whole-search kernel does not support forced attention")

    transducer = build_model("gru").with_beam(1 if name == "greedy" else 3)
    monkeypatch.setattr(module, name, refuse)
    for options in (DecodingOptions(forced_attention=(ONE_HOT,)), DecodingOptions(masked_positions=(0,))):
        assert transducer.with_options(options).predict(["abc"])[0].output is not None
    with pytest.raises(AssertionError):
        transducer.predict(["abc"])


def test_kernels_and_torch_agree_on_forced_attention() -> None:
    """Compiled single steps in float32 agree with PyTorch in float64."""
    config = config_from({"search": SEARCH})
    vocabs = make_vocabularies("abc")
    network = build_network(config, vocabs).eval()
    randomize_parameters(network, 3)
    reference = Transducer(config, vocabs, build_network(config, vocabs).double().eval())
    reference.network.load_state_dict(network.state_dict())
    for options in (DecodingOptions(forced_attention=(ONE_HOT,)), DecodingOptions(masked_positions=(1,))):
        one, two = (
            each.with_options(options).score_examples([Example("abc", "vwxyz")])[0]
            for each in (Transducer(config, vocabs, network), reference)
        )
        assert_traces_close(one, two, 1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DecodingOptions(forced_attention=(ForcedAttention(-1, (1.0, 0.0, 0.0)),)), "there is no step -1"),
        (DecodingOptions(forced_attention=(ForcedAttention(10**6, (1.0, 0.0, 0.0)),)), "there is no step 1000000"),
        (
            DecodingOptions(forced_attention=(ForcedAttention(0, (1.0, 0.0)),)),
            "step 0 has 2 weights, but source 1 has 3 positions",
        ),
        (
            DecodingOptions(forced_attention=(ForcedAttention(0, (0.0, 0.0, 0.0)),)),
            "step 0 has no weight above 0: expected",
        ),
        (
            DecodingOptions(forced_attention=(ForcedAttention(0, (0.0, 1.0, 0.0)),), masked_positions=(1,)),
            "no weight above 0 outside masked positions",
        ),
        (
            DecodingOptions(
                forced_attention=(ForcedAttention(0, (0.0, 1.0, 0.0)), ForcedAttention(0, (1.0, 0.0, 0.0)))
            ),
            "step 0 is given twice",
        ),
        (DecodingOptions(masked_positions=(3,)), "there is no position 3: source 1 has 0 to 2"),
        (DecodingOptions(masked_positions=(-1,)), "there is no position -1"),
        (DecodingOptions(masked_positions=(0, 2, 1)), "all positions of source 1 are masked"),
    ],
)
def test_invalid_forced_attention_is_refused(options: DecodingOptions, message: str) -> None:
    transducer = build_model("gru").with_options(options)
    calls: list[Callable[[], object]] = [
        lambda: transducer.predict(["abc"]),
        lambda: transducer.nbest(["abc"], 2),
        lambda: transducer.sample(["abc"], SamplingConfig()),
        lambda: transducer.score_examples([Example("abc", "v")]),
    ]
    for call in calls:
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_forced_weight_is_finite_and_not_negative(weight: float) -> None:
    with pytest.raises(ArgumentError, match=rf"^weights\[1\]: expected a .*number.*, got {weight}$"):
        ForcedAttention(0, (1.0, weight, 0.0))


def test_masking_needs_a_model_with_attention() -> None:
    with pytest.raises(InputError, match="no attention"):
        build_model("none").with_options(DecodingOptions(masked_positions=(0,))).predict(["abc"])


def test_features_are_positions_and_an_empty_source_has_none() -> None:
    transducer = transducer_of({"data": {"features_column": "3"}, "search": SEARCH}, features="VN")
    options = DecodingOptions(forced_attention=(ForcedAttention(0, (1.0, 0.0, 0.0)),), masked_positions=(1,))
    traces = transducer.with_options(options).predict(["ab", ""], ["V", "N"])
    assert traces[0].attention[0].tolist() == [1, 0, 0] and not traces[0].attention[:, 1].any()
    assert traces[1].forced_attention == () and traces[1].output == ""
    with pytest.raises(InputError, match="source 2 has 2 positions"):
        transducer.with_options(options).predict(["ab", "a"], ["V", "V"])


def test_prefixes_are_texts_or_symbols_and_are_recorded() -> None:
    transducer = build_model("gru")
    by_text = transducer.nbest_examples([Example("abc", "")], 2, prefixes=["vw"])[0]
    by_symbols = transducer.nbest_examples([Example("abc", "")], 2, prefixes=[["v", "w"]])[0]
    for one, two in zip(by_text, by_symbols, strict=True):
        assert one.to_json(compact=True) == two.to_json(compact=True)
        assert one.target[:2] == ("v", "w") and one.forced == (0, 1) and json.loads(one.to_json())["forced"] == [0, 1]
    assert "forced" not in json.loads(transducer.predict(["abc"])[0].to_json())
    with pytest.raises(InputError, match="prefix"):
        transducer.predict(["abc"], prefixes=[["vw"]])


def test_forced_rows_are_kept_when_hypotheses_are_selected() -> None:
    network = make_network(config_from({}), 3)
    source = torch.tensor([[4, 5, 6], [6, 5, 4]])
    rows = {1: torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)}
    with torch.no_grad():
        inference = force_attention(encode_and_initialize(network, source, torch.tensor([3, 3])), rows)
        first = inference.step(torch.tensor([BOS, BOS]))
        second = first.after.index_select(torch.tensor([0, 0, 1, 1])).step(torch.tensor([4, 5, 6, 7]))
        third = second.after.index_select(torch.tensor([3]), torch.tensor([1])).step(torch.tensor([4]))
    assert second.weights.tolist() == [[0, 1, 0]] * 4 and third.weights.shape == (1, 3) and VOCABULARY_SIZE == 9
    assert not torch.equal(third.weights, second.weights[:1])
