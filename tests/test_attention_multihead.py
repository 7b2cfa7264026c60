"""Multi-head attention: each head is an additive attention.

B batch, S source positions, N heads, D memory, H hidden units of the query, U units of a head.
"""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    LENGTHS,
    SEEDS,
    assert_tensors_close,
    few_examples,
    make_config,
    make_network,
    make_padded_ids,
    make_vocabularies,
    randomize_parameters,
)
from torch import Tensor

from pellucid.data.examples import Example
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ConfigError
from pellucid.model.attention import AdditiveAttention, MultiHeadAttention
from pellucid.model.memory import AttentionOutput, DecoderState, Memory

H, D, U = 2, 3, 2


def make_attention(heads: int, lengths: list[int], seed: int) -> tuple[MultiHeadAttention, Memory, Tensor]:
    torch.manual_seed(seed)
    attention = MultiHeadAttention(H, D, heads * U, heads).double()
    randomize_parameters(attention, seed)
    states = torch.randn(len(lengths), max(lengths), D, dtype=torch.float64)
    return (
        attention,
        Memory(states, torch.tensor(lengths), DecoderState(states[:, :1])),
        torch.randn(len(lengths), H).double(),
    )


def single_head(attention: MultiHeadAttention, head: int) -> AdditiveAttention:
    """Return one head as an additive attention."""
    head_attention, rows = AdditiveAttention(H, D, U).double(), slice(head * U, (head + 1) * U)
    head_attention.query_projection.weight.data = attention.query_projection.weight.data[rows]
    head_attention.key_projection.weight.data = attention.key_projection.weight.data[rows]
    head_attention.key_projection.bias.data = attention.key_projection.bias.data[rows]
    head_attention.energy.data = attention.energy.data[head]
    return head_attention


@few_examples
@given(st.integers(1, 4), LENGTHS, SEEDS)
def test_each_head_is_an_additive_attention(heads: int, lengths: list[int], seed: int) -> None:
    attention, memory, query = make_attention(heads, lengths, seed)
    attention_output: AttentionOutput = attention(query, attention.build_cache(memory), None)
    head_attentions = [single_head(attention, head) for head in range(heads)]
    outputs: list[AttentionOutput] = [
        head_attention(query, head_attention.build_cache(memory), None) for head_attention in head_attentions
    ]
    assert attention_output.heads is not None
    assert_tensors_close(attention_output.heads, torch.stack([output.weights for output in outputs], dim=1))
    assert_tensors_close(attention_output.weights, attention_output.heads.mean(dim=1))
    contexts = torch.cat([output.context for output in outputs], dim=1)
    assert_tensors_close(attention_output.context, contexts @ attention.context_projection.weight.T)


def test_gradients_equal_finite_differences() -> None:
    attention, memory, query = make_attention(2, [3, 1], 1)

    def attend_once(states: Tensor, query: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(attention(query, attention.build_cache(memory._replace(states=states)), None)[:2])

    assert torch.autograd.gradcheck(
        attend_once, (memory.states.requires_grad_(), query.requires_grad_(), *attention.parameters())
    )


@few_examples
@given(LENGTHS, SEEDS, st.integers(2, 3))
def test_several_queries_of_a_source_equal_repeated_sources(lengths: list[int], seed: int, num_queries: int) -> None:
    attention, memory, _ = make_attention(2, lengths, seed)
    rows = torch.arange(len(lengths)).repeat_interleave(num_queries)
    query = torch.randn(len(rows), H, dtype=torch.float64)
    grouped: AttentionOutput = attention(query, attention.build_cache(memory), None)
    separate: AttentionOutput = attention(query, attention.build_cache(memory).index_select(rows), None)
    assert_tensors_close(grouped.context, separate.context)
    assert grouped.heads is not None and separate.heads is not None
    assert_tensors_close(grouped.heads, separate.heads)


def test_override_applies_to_every_head() -> None:
    attention, memory, query = make_attention(2, [3, 2], 1)
    forced_weights = torch.eye(3, dtype=torch.float64)[[1, 0]]
    attention_output: AttentionOutput = attention(query, attention.build_cache(memory), None, forced_weights)
    assert attention_output.heads is not None and torch.equal(attention_output.weights, forced_weights)
    assert torch.equal(attention_output.heads, forced_weights[:, None].expand(2, 2, 3))
    contexts = memory.states[[0, 1], [1, 0]].repeat(1, 2)
    assert_tensors_close(attention_output.context, contexts @ attention.context_projection.weight.T)


def test_units_are_split_across_heads_of_a_network() -> None:
    network = make_network(make_config({"attention": {"num_heads": 4, "size": 8}}), 1)
    memory: Memory = network.encoder(make_padded_ids([3, 2], 1), torch.tensor([3, 2]))
    unrolled = network.decoder.unroll(
        torch.tensor([[1, 4], [1, 5]]), network.decoder.init_state(memory), network.decoder.build_cache(memory)
    )
    assert unrolled.heads is not None and unrolled.heads.shape == (2, 2, 4, 3)
    assert_tensors_close(unrolled.heads.sum(dim=-1), torch.ones(2, 2, 4, dtype=torch.float64))
    assert not unrolled.heads[1, :, :, 2:].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 3, "size": 32}, r"attention\.num_heads = 3 does not divide attention\.size = 32"),
        ({"num_heads": 2, "type": "location"}, r"attention\.num_heads = 2 needs attention\.type = 'additive'"),
    ],
)
def test_invalid_number_of_heads_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config({"attention": settings})


@pytest.mark.parametrize("order", ["attend-then-step", "step-then-attend"])
def test_traces_contain_the_weights_of_each_head(order: str) -> None:
    config = make_config({"attention": {"num_heads": 2}, "decoder": {"order": order}, "search": {"max_length": 5}})
    network = make_network(config, 3, torch.float32)
    transducer = Transducer(config, make_vocabularies(), network)
    texts = ["abc", "a", "", "ba"]
    greedy = transducer.predict(texts)
    trace_lists = [*transducer.nbest(texts, 3), *transducer.sample(texts, SamplingConfig(samples=2)), greedy]
    forced = transducer.score_examples(
        [Example(trace.text, trace.output) for trace in greedy if trace.finished and trace.text]
    )
    traces = [trace for trace_list in [*trace_lists, forced] for trace in trace_list]
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
    single, batched = transducer.predict(["a"])[0].heads, greedy[1].heads
    assert single is not None and batched is not None
    np.testing.assert_allclose(single, batched, atol=1e-6)


def test_traces_of_one_head_have_no_head_weights() -> None:
    transducer = Transducer(make_config({}), make_vocabularies(), make_network(make_config({}), 3, torch.float32))
    trace = transducer.predict(["abc"])[0]
    assert trace.heads is None and "heads" not in json.loads(trace.to_json())
