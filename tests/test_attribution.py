"""Occlusion and gradient × input, compared with explicit computations and with central differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from small_networks import make_config, make_vocabularies, randomize_parameters
from untrained_models import MODEL_SETTINGS, PAIRS, make_traces, make_transducer

from pellucid.data.examples import Example
from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.inference import SingleModelInference, initialize_from_memory
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, InputError
from pellucid.inspection import attribution as module
from pellucid.inspection.attribution import attribute, input_x_gradient, occlusion, rank_correlation
from pellucid.inspection.replay import build_replays
from pellucid.model.recurrence import InputVectors
from pellucid.tasks.registry import build_network


def log_probabilities_of(transducer: Transducer, trace: Trace, change: torch.Tensor) -> np.ndarray:
    """Return the log-probabilities of the symbols of a trace in float64, after this change of the embeddings."""
    (replay,) = build_replays(transducer, [trace])
    encoder, batch = transducer.network.encoder, replay.batch
    with torch.inference_mode():
        vectors = encoder.table(encoder.oov_to_unk(batch.source)) + change
        inference = initialize_from_memory(
            transducer.network, encoder.forward_embedded(InputVectors(vectors), batch.source, batch.lengths)
        )
        symbols, log_probabilities = torch.tensor([1]), list[float]()
        for symbol in replay.target[0]:
            output = inference.step(symbols)
            step_log_probabilities = output.logits[0, [2, *range(4, output.logits.shape[1])]].log_softmax(dim=0)
            log_probabilities.append(float(step_log_probabilities[0 if symbol == 2 else int(symbol) - 3]))
            assert isinstance(output.after, SingleModelInference)
            inference, symbols = output.after, symbol[None]
        return np.array(log_probabilities)


def embeddings_of(transducer: Transducer, trace: Trace) -> torch.Tensor:
    (replay,) = build_replays(transducer, [trace])
    encoder = transducer.network.encoder
    with torch.inference_mode():
        vectors: torch.Tensor = encoder.table(encoder.oov_to_unk(replay.batch.source))
    return vectors


@pytest.mark.parametrize("kind", [*MODEL_SETTINGS])
def test_occlusion_zeroes_the_embedding_of_one_position(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transducer = make_transducer(kind)
    trace = make_traces(transducer, [("cabba", "zyxw")])[0]
    vectors, result = embeddings_of(transducer, trace), attribute(transducer, trace)
    for position in range(5):
        change = torch.zeros_like(vectors)
        change[0, position] = -vectors[0, position]
        occluded = log_probabilities_of(transducer, trace, change)
        np.testing.assert_allclose(result.occlusion[:, position], trace.log_probabilities - occluded, atol=2e-5)
    monkeypatch.setattr(module, "MAX_REPLAY_POSITIONS", 11)
    np.testing.assert_allclose(attribute(transducer, trace).occlusion, result.occlusion, atol=2e-5)


@pytest.mark.parametrize("features", ["V", "VN", ""])
def test_summed_features_are_not_occluded(features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the last summed feature was occluded in the scores of the whole source."""
    data = {"features_column": "3", "features_symbols": "characters"}
    config = make_config({"data": data, "encoder": {"feature_merge": "sum"}, "search": {"max_length": 6}})
    vocabularies = make_vocabularies("abc", features="VN")
    network = build_network(config, vocabularies).double().eval()
    randomize_parameters(network, 3)
    transducer = Transducer(config, vocabularies, network)
    (trace,) = transducer.score_examples([Example("cabba", "zyxw", features)])
    vectors, result = embeddings_of(transducer, trace), attribute(transducer, trace)
    assert vectors.shape[1] == len(features) + 5 and result.occlusion.shape == (5, 5)
    for position in range(5):
        change = torch.zeros_like(vectors)
        change[0, len(features) + position] = -vectors[0, len(features) + position]
        occluded = log_probabilities_of(transducer, trace, change)
        np.testing.assert_allclose(result.occlusion[:, position], trace.log_probabilities - occluded, atol=2e-5)
    monkeypatch.setattr(module, "MAX_REPLAY_POSITIONS", 11)
    np.testing.assert_allclose(attribute(transducer, trace).occlusion, result.occlusion, atol=2e-5)


@pytest.mark.parametrize("kind", [kind for kind in MODEL_SETTINGS if kind != "monotonic"])
def test_gradient_times_input_equals_central_differences(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradient × input is the derivative of the log-probability with respect to a factor of one embedding, at 1."""
    transducer = make_transducer(kind)
    trace = make_traces(transducer, [("cab", "zyx")])[0]
    result, step = attribute(transducer, trace).input_x_gradient, 1e-5
    vectors = embeddings_of(transducer, trace)
    for position in range(3):
        change = torch.zeros_like(vectors)
        change[0, position] = vectors[0, position]
        log_probabilities = [log_probabilities_of(transducer, trace, change * factor) for factor in (step, -step)]
        np.testing.assert_allclose(
            result[:, position], (log_probabilities[0] - log_probabilities[1]) / (2 * step), atol=1e-5
        )
    monkeypatch.setattr(module, "MAX_KEY_SCALARS", 1)
    np.testing.assert_allclose(attribute(transducer, trace).input_x_gradient, result, atol=1e-6)


def test_embeddings_and_training_mode_are_unchanged() -> None:
    transducer = make_transducer(double=False)
    trace = transducer.predict(["abc"])[0]
    before = {name: tensor.clone() for name, tensor in transducer.network.state_dict().items()}
    transducer.network.train()
    attribute(transducer, trace)
    assert transducer.network.training and torch.is_grad_enabled()
    assert all(torch.equal(before[name], tensor) for name, tensor in transducer.network.state_dict().items())
    assert all(parameter.grad is None for parameter in transducer.network.parameters())


def test_attribution_is_independent_of_kernels_and_inference_mode() -> None:
    double_precision, single_precision = make_transducer(), make_transducer(double=False)
    single_precision.network.load_state_dict(double_precision.network.state_dict())
    trace = make_traces(double_precision, [("cabba", "zyxw")])[0]
    expected = attribute(double_precision, trace)
    with torch.inference_mode():
        actual = attribute(single_precision, trace)
    np.testing.assert_allclose(expected.occlusion, actual.occlusion, atol=1e-4)
    np.testing.assert_allclose(expected.input_x_gradient, actual.input_x_gradient, atol=1e-4)


def test_ensemble_of_equal_models_has_the_scores_of_the_model() -> None:
    transducer = make_transducer()
    trace = make_traces(transducer, [("abc", "vwx")])[0]
    expected, actual = (
        attribute(transducer, trace),
        attribute(combine_transducers([transducer, transducer], ["a", "b"]), trace),
    )
    np.testing.assert_allclose(expected.occlusion, actual.occlusion, atol=1e-5)
    np.testing.assert_allclose(expected.input_x_gradient, actual.input_x_gradient, atol=1e-5)


def test_attribution_respects_forced_attention() -> None:
    """Forcing every step to attend to the last position changes occlusion and gradient."""
    transducer = make_transducer()
    to_last_position = tuple(ForcedAttention(step, (0.0, 0.0, 1.0)) for step in range(4))
    trace = make_traces(transducer, [("abc", "vwx")])[0]
    free, forced = (
        attribute(transducer, trace),
        attribute(transducer.with_options(DecodingOptions(forced_attention=to_last_position)), trace),
    )
    assert not np.allclose(free.input_x_gradient, forced.input_x_gradient)
    assert not np.allclose(free.occlusion, forced.occlusion)


def test_impossible_options_are_refused() -> None:
    transducer = make_transducer()
    trace = make_traces(transducer, [("abc", "vwx")])[0]
    with pytest.raises(InputError, match="there is no position 3"):
        attribute(transducer.with_options(DecodingOptions(masked_positions=(3,))), trace)


def test_empty_traces_have_no_scores_and_unknown_symbols_are_scored() -> None:
    transducer = make_transducer()
    empty = attribute(transducer, transducer.predict([""])[0])
    assert empty.occlusion.shape == (0, 0) and empty.occlusion_correlation is None
    with_unknown = attribute(transducer, make_traces(transducer, [("a?", "vé")])[0])
    assert np.isfinite(with_unknown.occlusion).all() and np.isfinite(with_unknown.input_x_gradient).all()


@pytest.mark.parametrize("kind", ["gru", "none"])
def test_correlation_is_the_mean_over_the_rows(kind: str) -> None:
    transducer = make_transducer(kind)
    for trace in make_traces(transducer, PAIRS):
        actual = attribute(transducer, trace)
        if kind == "none" or len(trace.source) == 1:
            assert actual.occlusion_correlation is None and actual.input_x_gradient_correlation is None
            continue
        rows = zip(trace.attention, np.abs(actual.occlusion), strict=True)
        expected = np.mean([spearmanr(*row).statistic for row in rows])
        assert actual.occlusion_correlation == pytest.approx(expected)


def test_correlation_omits_constant_steps() -> None:
    attention = np.array([[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.3, 0.2]])
    scores = np.array([[1.0, 2.0, 2.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    tied_correlation = spearmanr(attention[0], scores[0]).statistic
    assert rank_correlation(attention, scores) == pytest.approx((tied_correlation + 1) / 2)
    assert (
        rank_correlation(attention[1:2], scores[1:2]) is None and rank_correlation(attention, np.zeros((3, 3))) is None
    )


@pytest.mark.parametrize("function", [occlusion, input_x_gradient])
def test_a_trace_in_place_of_a_replay_is_refused(function: Callable[..., Any]) -> None:
    transducer = make_transducer("gru")
    traces = make_traces(transducer, [("cab", "zy"), ("abc", "yz")])
    (replay,) = build_replays(transducer, traces)
    for value in (traces[0], "cab", None):
        with pytest.raises(ArgumentError, match=r"^replay: expected "):
            function(transducer, value)
    with pytest.raises(ArgumentError, match=r"^replay: expected a replay of one trace .* got "):
        function(transducer, replay)
    with pytest.raises(ArgumentError, match=r"^predictor: expected "):
        function(traces[0], replay)
    (single,) = build_replays(transducer, traces[:1])
    assert function(transducer, single).shape == (3, 3)
