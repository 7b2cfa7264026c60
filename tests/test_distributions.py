"""Distributions at each step of a trace, and entropy and divergence compared with their definitions."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from small_networks import SEEDS
from untrained_models import MODEL_SETTINGS, PAIRS, make_traces, make_transducer

from pellucid.data.vocabulary import EOS, UNK
from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.errors import ArgumentError
from pellucid.inspection.distributions import entropy, kl_divergence, step_distributions


@pytest.mark.parametrize("kind", [*MODEL_SETTINGS])
def test_distributions_sum_to_one_and_contain_the_candidates_of_the_trace(kind: str) -> None:
    transducer = make_transducer(kind)
    traces = [*make_traces(transducer, PAIRS), *transducer.predict(["abc", "", "cab"])]
    for trace, result in zip(traces, step_distributions(transducer, traces), strict=True):
        assert result.shape == (len(trace.target), 9 + (kind == "copying"))
        np.testing.assert_allclose(np.exp(result).sum(axis=1), 1, rtol=1e-6)
        ids = [*transducer.vocabularies.target.encode([s for s in trace.target if s != "⟨end⟩"])]
        ids += [EOS] * (len(trace.target) - len(ids))
        for t, identity in enumerate(ids):
            if identity == UNK:  # a copied symbol; the last column is the sum over all copies
                assert result[t, -1] >= trace.log_probabilities[t] - 1e-5
            else:
                assert result[t, identity] == pytest.approx(trace.log_probabilities[t], abs=1e-5)
        assert np.isneginf(result[:, [0, 1, 3]]).all()


def test_ensemble_distributions_are_the_mean_of_the_models() -> None:
    models = [make_transducer(), make_transducer("lstm", 4)]
    combined = combine_transducers(models, ["a", "b"])
    traces = make_traces(combined, PAIRS)
    by_model = [step_distributions(model, traces) for model in models]
    for first, second, result in zip(*by_model, step_distributions(combined, traces), strict=True):
        np.testing.assert_allclose(np.exp(result), (np.exp(first) + np.exp(second)) / 2, atol=1e-6)


def test_forced_attention_changes_the_distributions_from_its_step_on() -> None:
    transducer = make_transducer()
    trace = make_traces(transducer, [("abc", "vwx")])[0]
    forced = transducer.with_options(DecodingOptions(forced_attention=(ForcedAttention(2, (1.0, 0.0, 0.0)),)))
    before, after = (step_distributions(model, [trace])[0] for model in (transducer, forced))
    change = kl_divergence(before, after)
    assert change[:2].max() < 1e-9 and change[2:].min() > 1e-6
    assert np.array_equal(kl_divergence(before, step_distributions(transducer, [trace])[0]), np.zeros(4))


@given(st.integers(1, 9), st.integers(1, 4), SEEDS)
def test_entropy_and_divergence_equal_their_definitions(symbols: int, steps: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    before_probabilities, after_probabilities = (generator.dirichlet(np.full(symbols, 0.3), steps) for _ in range(2))
    after_probabilities = after_probabilities + 1e-12
    with np.errstate(divide="ignore"):
        before, after = np.log(before_probabilities), np.log(after_probabilities)
    np.testing.assert_allclose(entropy(before), scipy_entropy(before_probabilities, base=2, axis=1), atol=1e-9)
    expected = [
        sum(p * math.log2(p / q) for p, q in zip(*rows, strict=True) if p > 0)
        for rows in zip(before_probabilities, after_probabilities, strict=True)
    ]
    np.testing.assert_allclose(kl_divergence(before, after), np.maximum(expected, 0), atol=1e-9)


def test_zero_probabilities_have_their_limits() -> None:
    certain, other = np.array([[0.0, -np.inf]]), np.array([[-np.inf, 0.0]])
    assert entropy(certain).tolist() == [0] and entropy(np.log([[0.5, 0.5]])).tolist() == [1]
    assert kl_divergence(certain, other).tolist() == [np.inf] and kl_divergence(certain, certain).tolist() == [0]
    with pytest.raises(ValueError, match=r"^after: expected an array of shape \(1, 2\)"):
        kl_divergence(certain, other[:, :1])


@pytest.mark.parametrize(
    ("logits", "place", "total"),
    [
        ([-1.0, -1.0], "", "0.7358"),
        ([[np.log(0.5), np.log(0.5)], [-0.1, -0.2]], r"\[1\]", "1.724"),
        ([[[np.log(0.5), np.log(0.5)], [-np.inf, -np.inf]]], r"\[0, 1\]", "0"),
        (np.zeros((1, 0)), r"\[0\]", "0"),
    ],
)
def test_rows_that_are_no_distribution_are_refused(logits: Any, place: str, total: str) -> None:  # noqa: ANN401
    """Regression test: logits gave an entropy and a divergence without meaning."""
    rows = np.array(logits)
    valid = np.full(rows.shape, -np.log(rows.shape[-1] or 1))
    message = rf"{place}: expected log-probabilities of a distribution, .* got a sum of {total};"
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("log_probabilities", (entropy, rows)),
        ("before", (kl_divergence, rows, rows)),
        *([("after", (kl_divergence, valid, rows))] if rows.size else []),
    ]
    for name, (function, *arguments) in calls:
        with pytest.raises(ArgumentError, match=f"^{name}{message}"):
            function(*arguments)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounded_distributions_are_accepted(dtype: type[np.floating[Any]]) -> None:
    rows = np.random.default_rng(1).normal(size=(3, 50_000)).astype(np.float64)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    rounded = rows.astype(dtype)
    assert entropy(rounded) == pytest.approx(entropy(rows), rel=0.01) and entropy(np.zeros((0, 3))).shape == (0,)
    assert kl_divergence(rounded, rows) == pytest.approx(np.zeros(3), abs=0.01)
