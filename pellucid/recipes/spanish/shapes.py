"""The shape of every tensor on the way from ids to the loss, as the post analyses them, read off a network at work."""

from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.recipes.spanish.networks import SpanishNetwork
from pellucid.recipes.spanish.training import Tensors, summed_cost


class Shape(NamedTuple):
    """A tensor: what it is, the letters the post gives it, and its sizes here."""

    name: str
    post: str
    sizes: tuple[int, ...]


@torch.no_grad()
def shapes_of(network: SpanishNetwork, batch: Tensors) -> list[Shape]:
    """N sentences, H units, C Spanish words; max_len is S of the source and T of the target. Needs attention."""
    assert network.attention is not None, "the plain decoder has no attention to analyse"
    encoded = network.encode(batch.source, batch.lengths)
    carried, features = network.begin(encoded)
    assert features is not None
    embedded = network.target_embedding[batch.given[:, 0]]
    step = network.step(embedded, carried, features)
    looked, attention = step.carried.looked, network.attention
    query = attention.queries[0](step.carried.state)
    written = network(encoded, batch.given)
    logits = network.softmax(written.outputs).flatten(0, 1)
    four = encoded.outputs[:, :, None]
    told: list[tuple[str, str, Tensor]] = [
        ("encoder inputs", "N, max_len", batch.source),
        ("lengths", "N", batch.lengths),
        ("encoder inputs, embedded", "N, max_len, H", network.source_embedding[batch.source]),
        ("encoder outputs = attention states", "N, max_len, H", encoded.outputs),
        ("encoder state = first decoder state", "N, H", encoded.state),
        ("decoder inputs", "N, max_len", batch.given),
        ("decoder inputs, time-major, one of a list of max_len", "N", batch.given[:, 0]),
        ("one decoder input, embedded", "N, H", embedded),
        ("attention states in four dimensions", "N, max_len, 1, H", four),
        ("filter of the 1×1 convolution", "1, 1, H, H", attention.projections[0][None, None]),
        ("features (the post: N, height', 3, H)", "N, max_len, 1, H", features.keys[0][:, :, None]),
        ("context before the first step, of each head", "N, H", carried.looked.contexts[:, 0]),
        ("input and context merged", "N, H", step.merged),
        ("cell output", "N, H", step.cell_output),
        ("new state", "N, H", step.carried.state),
        ("query after its MLP", "N, H", query),
        ("query in four dimensions", "N, 1, 1, H", query[:, None, None]),
        ("scores e", "N, max_len", attention.scores(step.carried.state, features)[:, 0]),
        ("weights α", "N, max_len, 1, 1", looked.weights[:, 0, :, None, None]),
        ("context c", "N, H", looked.contexts[:, 0]),
        ("decoder output of one step", "N, H", step.output),
        ("all outputs", "max_len, N, H", written.outputs.transpose(0, 1)),
        ("all outputs, flattened", "N·max_len, H", written.outputs.flatten(0, 1)),
        ("logits", "N·max_len, C", logits),
        ("targets, flattened", "N·max_len", batch.targets.flatten()),
        ("loss", "", summed_cost(logits.unflatten(0, batch.targets.shape), batch.targets)),
    ]
    return [Shape(name, post, tuple(tensor.shape)) for name, post, tensor in told]
