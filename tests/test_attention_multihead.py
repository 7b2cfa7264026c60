"""Multi-head attention: each head is an additive attention.

B batch, S source positions, N heads, D memory, H hidden units of the query, U units of a head.
"""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import LENGTHS, SEEDS, config_of, few, near, network_of, padded, shake, vocabularies
from torch import Tensor

from pellucid.data.examples import Example
from pellucid.decoding.sampling import SamplingConfig
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ConfigError
from pellucid.model.attention import AdditiveAttention, MultiHeadAttention
from pellucid.model.memory import AttentionOutput, Memory, State

H, D, U = 2, 3, 2


def random_attention(heads: int, lengths: list[int], seed: int) -> tuple[MultiHeadAttention, Memory, Tensor]:
    torch.manual_seed(seed)
    attention = MultiHeadAttention(H, D, heads * U, heads).double()
    shake(attention, seed)
    states = torch.randn(len(lengths), max(lengths), D, dtype=torch.float64)
    return attention, Memory(states, torch.tensor(lengths), State(states[:, :1])), torch.randn(len(lengths), H).double()


def single_head(attention: MultiHeadAttention, head: int) -> AdditiveAttention:
    """Return one head as an additive attention."""
    alone, own = AdditiveAttention(H, D, U).double(), slice(head * U, (head + 1) * U)
    alone.query_projection.weight.data = attention.query_projection.weight.data[own]
    alone.key_projection.weight.data = attention.key_projection.weight.data[own]
    alone.key_projection.bias.data = attention.key_projection.bias.data[own]
    alone.energy.data = attention.energy.data[head]
    return alone


@few
@given(st.integers(1, 4), LENGTHS, SEEDS)
def test_each_head_is_an_additive_attention(heads: int, lengths: list[int], seed: int) -> None:
    attention, memory, query = random_attention(heads, lengths, seed)
    attended: AttentionOutput = attention(query, attention.prepare(memory), None)
    each = [single_head(attention, head) for head in range(heads)]
    outputs: list[AttentionOutput] = [alone(query, alone.prepare(memory), None) for alone in each]
    assert attended.heads is not None
    near(attended.heads, torch.stack([output.weights for output in outputs], dim=1))
    near(attended.weights, attended.heads.mean(dim=1))
    joined = torch.cat([output.context for output in outputs], dim=1)
    near(attended.context, joined @ attention.context_projection.weight.T)


def test_gradients_equal_finite_differences() -> None:
    attention, memory, query = random_attention(2, [3, 1], 1)

    def attend_once(states: Tensor, query: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(attention(query, attention.prepare(memory._replace(states=states)), None)[:2])

    assert torch.autograd.gradcheck(
        attend_once, (memory.states.requires_grad_(), query.requires_grad_(), *attention.parameters())
    )


@few
@given(LENGTHS, SEEDS, st.integers(2, 3))
def test_several_queries_equal_as_many_sources(lengths: list[int], seed: int, each: int) -> None:
    attention, memory, _ = random_attention(2, lengths, seed)
    rows = torch.arange(len(lengths)).repeat_interleave(each)
    query = torch.randn(len(rows), H, dtype=torch.float64)
    together: AttentionOutput = attention(query, attention.prepare(memory), None)
    apart: AttentionOutput = attention(query, attention.prepare(memory).index_select(rows), None)
    near(together.context, apart.context)
    assert together.heads is not None and apart.heads is not None
    near(together.heads, apart.heads)


def test_an_override_forces_every_head() -> None:
    attention, memory, query = random_attention(2, [3, 2], 1)
    forced = torch.eye(3, dtype=torch.float64)[[1, 0]]
    attended: AttentionOutput = attention(query, attention.prepare(memory), None, forced)
    assert attended.heads is not None and torch.equal(attended.weights, forced)
    assert torch.equal(attended.heads, forced[:, None].expand(2, 2, 3))
    twice = memory.states[[0, 1], [1, 0]].repeat(1, 2)
    near(attended.context, twice @ attention.context_projection.weight.T)


def test_heads_share_the_units_and_all_are_used() -> None:
    network = network_of(config_of({"attention": {"num_heads": 4, "size": 8}}), 1)
    memory: Memory = network.encoder(padded([3, 2], 1), torch.tensor([3, 2]))
    unrolled = network.decoder.unroll(
        torch.tensor([[1, 4], [1, 5]]), network.decoder.init_state(memory), network.decoder.prepare(memory)
    )
    assert unrolled.heads is not None and unrolled.heads.shape == (2, 2, 4, 3)
    near(unrolled.heads.sum(dim=-1), torch.ones(2, 2, 4, dtype=torch.float64))
    assert not unrolled.heads[1, :, :, 2:].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 3, "size": 32}, r"attention\.num_heads = 3 does not divide attention\.size = 32"),
        ({"num_heads": 2, "type": "location"}, r"attention\.num_heads = 2 needs attention\.type = 'additive'"),
    ],
)
def test_indivisible_units_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of({"attention": settings})


@pytest.mark.parametrize("order", ["attend-then-step", "step-then-attend"])
def test_traces_contain_the_weights_of_each_head(order: str) -> None:
    config = config_of({"attention": {"num_heads": 2}, "decoder": {"order": order}, "search": {"max_length": 5}})
    network = network_of(config, 3, torch.float32)
    transducer = Transducer(config, vocabularies(), network)
    texts = ["abc", "a", "", "ba"]
    greedy = transducer.predict(texts)
    lists = [*transducer.nbest(texts, 3), *transducer.sample(texts, SamplingConfig(samples=2)), greedy]
    forced = transducer.force([Example(trace.text, trace.output) for trace in greedy if trace.finished and trace.text])
    traces = [trace for each in [*lists, forced] for trace in each]
    assert len(traces) > 20
    for trace in traces:
        if trace.text:
            assert trace.heads is not None and trace.heads.shape == (2, *trace.attention.shape)
            np.testing.assert_allclose(trace.heads.mean(axis=0), trace.attention, atol=1e-6)
            np.testing.assert_allclose(trace.heads.sum(axis=2), 1, atol=1e-5)
            assert np.array(json.loads(trace.to_json())["heads"]).shape == trace.heads.shape
            assert len(trace.source) < 2 or np.abs(trace.heads[0] - trace.heads[1]).max() > 1e-4
        else:
            assert trace.heads is None
    alone, again = transducer.predict(["a"])[0].heads, greedy[1].heads
    assert alone is not None and again is not None
    np.testing.assert_allclose(alone, again, atol=1e-6)


def test_traces_of_one_head_have_no_head_weights() -> None:
    transducer = Transducer(config_of({}), vocabularies(), network_of(config_of({}), 3, torch.float32))
    trace = transducer.predict(["abc"])[0]
    assert trace.heads is None and "heads" not in json.loads(trace.to_json())
