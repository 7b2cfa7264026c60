"""Occlusion and gradient × input: compared with computation by hand and with central differences."""

import numpy as np
import pytest
import torch
from inspected import KINDS, PAIRS, made, traces_of
from scipy.stats import spearmanr

from pellucid.decoding.ensemble import ensemble
from pellucid.decoding.inference import SingleModelInference, initialize_from_memory
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import InputError
from pellucid.inspection import attribution as module
from pellucid.inspection.attribution import attribute, rank_correlation
from pellucid.inspection.replay import build_replays
from pellucid.model.recurrence import Inputs


def log_probabilities_of(transducer: Transducer, trace: Trace, change: torch.Tensor) -> np.ndarray:
    """ln p of a trace's symbols, in double precision, where the vectors read are changed."""
    (replay,) = build_replays(transducer, [trace])
    encoder, work = transducer.network.encoder, replay.batch
    with torch.inference_mode():
        vectors = encoder.table(encoder.oov_to_unk(work.source)) + change
        running = initialize_from_memory(
            transducer.network, encoder.forward_embedded(Inputs(vectors), work.source, work.lengths)
        )
        symbols, found = torch.tensor([1]), list[float]()
        for wanted in replay.target[0]:
            seen = running.step(symbols)
            likely = seen.logits[0, [2, *range(4, seen.logits.shape[1])]].log_softmax(dim=0)
            found.append(float(likely[0 if wanted == 2 else int(wanted) - 3]))
            assert isinstance(seen.after, SingleModelInference)
            running, symbols = seen.after, wanted[None]
        return np.array(found)


def embeddings_of(transducer: Transducer, trace: Trace) -> torch.Tensor:
    (replay,) = build_replays(transducer, [trace])
    encoder = transducer.network.encoder
    with torch.inference_mode():
        vectors: torch.Tensor = encoder.table(encoder.oov_to_unk(replay.batch.source))
    return vectors


@pytest.mark.parametrize("kind", [*KINDS])
def test_occlusion_is_a_zero_vector_at_one_position(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transducer = made(kind)
    trace = traces_of(transducer, [("cabba", "zyxw")])[0]
    vectors, found = embeddings_of(transducer, trace), attribute(transducer, trace)
    for position in range(5):
        change = torch.zeros_like(vectors)
        change[0, position] = -vectors[0, position]
        without = log_probabilities_of(transducer, trace, change)
        np.testing.assert_allclose(found.occlusion[:, position], trace.log_probabilities - without, atol=2e-5)
    monkeypatch.setattr(module, "MAX_REPLAY_POSITIONS", 11)
    np.testing.assert_allclose(attribute(transducer, trace).occlusion, found.occlusion, atol=2e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "monotonic"])
def test_gradient_times_input_is_a_central_difference(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of scaling one position's vector: d ln p(factor) / d factor at 1, from ln p in float64."""
    transducer = made(kind)
    trace = traces_of(transducer, [("cab", "zyx")])[0]
    found, step = attribute(transducer, trace).gradient, 1e-5
    vectors = embeddings_of(transducer, trace)
    for position in range(3):
        change = torch.zeros_like(vectors)
        change[0, position] = vectors[0, position]
        ends = [log_probabilities_of(transducer, trace, change * share) for share in (step, -step)]
        np.testing.assert_allclose(found[:, position], (ends[0] - ends[1]) / (2 * step), atol=1e-5)
    monkeypatch.setattr(module, "MAX_KEY_SCALARS", 1)
    np.testing.assert_allclose(attribute(transducer, trace).gradient, found, atol=1e-6)


def test_embeddings_and_training_mode_are_unchanged() -> None:
    transducer = made(double=False)
    trace = transducer.predict(["abc"])[0]
    before = {name: tensor.clone() for name, tensor in transducer.network.state_dict().items()}
    transducer.network.train()
    attribute(transducer, trace)
    assert transducer.network.training and torch.is_grad_enabled()
    assert all(torch.equal(before[name], tensor) for name, tensor in transducer.network.state_dict().items())
    assert all(parameter.grad is None for parameter in transducer.network.parameters())


def test_batches_and_kernels_and_inference_mode_change_nothing() -> None:
    exact, fast = made(), made(double=False)
    fast.network.load_state_dict(exact.network.state_dict())
    trace = traces_of(exact, [("cabba", "zyxw")])[0]
    one = attribute(exact, trace)
    with torch.inference_mode():
        two = attribute(fast, trace)
    np.testing.assert_allclose(one.occlusion, two.occlusion, atol=1e-4)
    np.testing.assert_allclose(one.gradient, two.gradient, atol=1e-4)


def test_an_ensemble_of_a_model_with_itself_has_the_same_scores() -> None:
    alone = made()
    trace = traces_of(alone, [("abc", "vwx")])[0]
    one, two = attribute(alone, trace), attribute(ensemble([alone, alone], ["a", "b"]), trace)
    np.testing.assert_allclose(one.occlusion, two.occlusion, atol=1e-5)
    np.testing.assert_allclose(one.gradient, two.gradient, atol=1e-5)


def test_forced_attention_stays_forced() -> None:
    """All looks at the last position of an encoder that reads backwards last: what it never read has no say."""
    transducer = made()
    last = tuple(ForcedAttention(step, (0.0, 0.0, 1.0)) for step in range(4))
    trace = traces_of(transducer, [("abc", "vwx")])[0]
    free, given = attribute(transducer, trace), attribute(transducer.with_options(DecodingOptions(painted=last)), trace)
    assert not np.allclose(free.gradient, given.gradient) and not np.allclose(free.occlusion, given.occlusion)


def test_impossible_options_are_refused() -> None:
    transducer = made()
    trace = traces_of(transducer, [("abc", "vwx")])[0]
    with pytest.raises(InputError, match="there is no position 3"):
        attribute(transducer.with_options(DecodingOptions(masked=(3,))), trace)


def test_empty_traces_have_no_scores_and_unknown_symbols_are_scored() -> None:
    transducer = made()
    empty = attribute(transducer, transducer.predict([""])[0])
    assert empty.occlusion.shape == (0, 0) and empty.occlusion_correlation is None
    strange = attribute(transducer, traces_of(transducer, [("a?", "vé")])[0])
    assert np.isfinite(strange.occlusion).all() and np.isfinite(strange.gradient).all()


@pytest.mark.parametrize("kind", ["gru", "none"])
def test_correlation_is_the_mean_over_the_rows(kind: str) -> None:
    transducer = made(kind)
    for trace in traces_of(transducer, PAIRS):
        found = attribute(transducer, trace)
        if kind == "none" or len(trace.source) == 1:
            assert found.occlusion_correlation is None and found.gradient_correlation is None
            continue
        rows = zip(trace.attention, np.abs(found.occlusion), strict=True)
        expected = np.mean([spearmanr(*row).statistic for row in rows])
        assert found.occlusion_correlation == pytest.approx(expected)


def test_constant_steps_are_left_out() -> None:
    attention = np.array([[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.3, 0.2]])
    other = np.array([[1.0, 2.0, 2.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    tied = spearmanr(attention[0], other[0]).statistic
    assert rank_correlation(attention, other) == pytest.approx((tied + 1) / 2)
    assert (
        rank_correlation(attention[1:2], other[1:2]) is None and rank_correlation(attention, np.zeros((3, 3))) is None
    )
