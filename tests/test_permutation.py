"""The effect of permuted attention weights equals that of forcing the permuted row."""

import numpy as np
import pytest
import torch
from untrained_models import KINDS_WITH_ATTENTION, make_traces, make_transducer

from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.errors import InputError
from pellucid.inspection.distributions import step_distributions
from pellucid.inspection.permutation import permute_attention, row_and_permutations


@pytest.mark.parametrize("kind", ["gru", "lstm", "stacked", "luong", "location", "copying"])
def test_the_change_equals_that_of_forcing_the_shuffled_row(kind: str) -> None:
    transducer = make_transducer(kind)
    trace = make_traces(transducer, [("abca", "vw")])[0]
    result, generator = permute_attention(transducer, trace, permutations=5, seed=7), np.random.default_rng(7)
    before = np.exp(step_distributions(transducer, [trace])[0])
    for t, row in enumerate(trace.attention):
        rows = [row[generator.permutation(4)] for _ in range(5)]
        changes = []
        for weights in rows:
            forced = transducer.with_options(
                DecodingOptions(forced_attention=(ForcedAttention(t, tuple(weights.tolist())),))
            )
            after = np.exp(step_distributions(forced, [trace])[0])
            changes.append(np.abs(after[t] - before[t]).sum() / 2)
        if kind == "copying":  # its distributions merge all copied symbols that the vocabulary lacks
            assert result.change[t] >= np.median(changes) - 1e-5
        else:
            assert result.change[t] == pytest.approx(np.median(changes), abs=1e-5)
    np.testing.assert_allclose(result.max_weights, trace.attention.max(axis=1), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS_WITH_ATTENTION)
def test_the_change_is_between_0_and_1_and_reproducible(kind: str) -> None:
    transducer = make_transducer(kind)
    trace = transducer.predict(["abcab"])[0]
    one, two = (permute_attention(transducer, trace, permutations=20) for _ in range(2))
    assert one.change.shape == (len(trace.target),) and np.array_equal(one.change, two.change)
    assert (one.change >= 0).all() and (one.change <= 1).all()


def test_one_position_or_uniform_weights_cannot_change() -> None:
    transducer = make_transducer()
    assert permute_attention(transducer, make_traces(transducer, [("a", "vw")])[0]).change.max() < 1e-12
    uniform = tuple(ForcedAttention(step, (1.0, 1.0, 1.0)) for step in range(3))
    uniform_transducer = transducer.with_options(DecodingOptions(forced_attention=uniform))
    assert permute_attention(uniform_transducer, make_traces(transducer, [("abc", "vw")])[0]).change.max() < 1e-12


def test_ensembles_are_permuted_and_models_without_attention_are_refused() -> None:
    transducer = make_transducer()
    trace = make_traces(transducer, [("abc", "vw")])[0]
    change = permute_attention(combine_transducers([transducer, transducer], ["a", "b"]), trace, 10)
    np.testing.assert_allclose(change.change, permute_attention(transducer, trace, 10).change, atol=1e-6)
    with pytest.raises(InputError, match="whose weights can be permuted"):
        permute_attention(make_transducer("none"), trace)


def test_rows_keep_their_weights() -> None:
    rows = row_and_permutations(torch.tensor([0.1, 0.2, 0.7]), 50, np.random.default_rng(1))
    assert rows.shape == (51, 3) and rows[0].tolist() == pytest.approx([0.1, 0.2, 0.7])
    assert torch.equal(rows.sort(dim=1).values, rows[:1].expand(51, -1)) and len(set(map(tuple, rows.tolist()))) == 6
