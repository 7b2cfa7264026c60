"""Small networks, Hypothesis strategies of their configurations and batches, and comparisons of tensors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace
from torch import Tensor, nn

from pellucid.config.settings import Config
from pellucid.config.toml import build_config, validate_config
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.data.vocabulary import EOS, NUM_SPECIAL, PAD, Vocabularies, Vocabulary
from pellucid.decoding.outputs import DecodedOutput
from pellucid.model import cells
from pellucid.model.attention import ATTENTIONS
from pellucid.model.decoder import Decoder
from pellucid.model.network import EncoderDecoder, require_encoder_decoder
from pellucid.model.output_layers import OutputLayer
from pellucid.tasks.registry import build_network

SOURCE_SYMBOLS, TARGET_SYMBOLS = "abcde", "vwxyz"
VOCABULARY_SIZE = NUM_SPECIAL + len(SOURCE_SYMBOLS)
"""V of the source and of the target: both have the same number of symbols."""

few_examples = settings(max_examples=25, deadline=None)
"""Settings of tests that build a network for each example."""

SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 4)
LAYER_COUNTS = st.sampled_from([1, 1, 2, 3])
CELLS = st.sampled_from(["gru", "lstm"])
EMBEDDINGS = st.sampled_from(["learned", "frozen", "one-hot"])
ATTENTION_TYPES = [*ATTENTIONS]
ENCODER_SETTINGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "cell": CELLS,
        "hidden_size": SIZES,
        "num_layers": LAYER_COUNTS,
        "bidirectional": st.booleans(),
        "merge": st.sampled_from(["concatenate", "sum", "product"]),
        "embedding": EMBEDDINGS,
        "embedding_size": SIZES,
    }
)
DECODER_SETTINGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "cell": CELLS,
        "hidden_size": SIZES,
        "num_layers": LAYER_COUNTS,
        "init_hidden": st.sampled_from(["zero", "final", "mean"]),
        "embedding": st.sampled_from(["learned", "frozen", "one-hot", "none"]),
        "embedding_size": SIZES,
        "output_layer_inputs": st.sampled_from(["state", "context", "state-and-context"]),
    }
)
TEXTS = st.text(
    st.sampled_from("abAB é\u0301\u0323ệÅ\u1100\u1161각𝒳😀ﬁ;|\t\n\x1c\x85\u3000\ud800\0"), max_size=6
) | st.text(max_size=6).filter(lambda text: "⟨" not in text)  # the mark of a reserved name
"""Texts with characters that normalization changes, astral characters, lone surrogates and unusual white space."""
EXAMPLES = st.lists(st.builds(Example, TEXTS, TEXTS, st.sampled_from(["", "", "V;PST", "V", ";"]) | TEXTS), max_size=9)
RANDOM_TOKENIZER = st.builds(
    Tokenizer,
    st.sampled_from(["characters", "ipa", "words", " ", ";", "ab"]),
    st.sampled_from(["none", "nfc", "nfd"]),
    st.none(),
)
RANDOM_TOKENIZERS = st.builds(Tokenizers, RANDOM_TOKENIZER, RANDOM_TOKENIZER, RANDOM_TOKENIZER)
LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def make_config(settings: Mapping[str, Any]) -> Config:
    """Return the configuration of the size "tiny", changed by these settings."""
    return build_config({"size": "tiny", **settings}, origin="a test")


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Draw a small configuration; hidden sizes agree if the attention type compares states by a dot product."""
    encoder, decoder = draw(ENCODER_SETTINGS), draw(DECODER_SETTINGS)
    attention_type = draw(st.sampled_from(ATTENTION_TYPES))
    if attention_type in ("dot", "scaled-dot"):
        concatenates = encoder["bidirectional"] and encoder["merge"] == "concatenate"
        decoder["hidden_size"] = encoder["hidden_size"] * (2 if concatenates else 1)
    attention = {"type": attention_type, "size": draw(SIZES), "filters": draw(SIZES), "filter_radius": draw(SIZES) - 1}
    return make_config({"encoder": encoder, "decoder": decoder, "attention": attention})


def draw_layer_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the options of an encoder or a decoder: dropout, layer normalization, residual connections."""
    return {
        "dropout": draw(st.sampled_from([0.0, 0.5])),
        "dropout_mask": draw(st.sampled_from(["step", "sequence"])),
        "embedding_dropout": draw(st.sampled_from([0.0, 0.5])),
        "recurrent_dropout": draw(st.sampled_from([0.0, 0.5])),
        "recurrent_dropout_on": draw(st.sampled_from(["weights", "states"])),
        "layer_normalization": draw(st.sampled_from(["none", "outputs", "cells"])),
        "residual": draw(st.booleans()),
    }


@st.composite
def configs_with_options(draw: st.DrawFn) -> Config:
    """Draw a small configuration with any combination of the options of the architecture."""
    config = draw(configs())
    heads = draw(st.integers(1, 3)) if config.attention.type == "additive" else 1
    attention = replace(config.attention, num_heads=heads, size=heads * config.attention.size)
    order = draw(st.sampled_from(["attend-then-step", "step-then-attend"]))
    decoder = replace(
        config.decoder,
        **draw_layer_options(draw),
        order=order,
        input_feeding=order == "step-then-attend" and draw(st.booleans()),
        tie_embeddings=config.decoder.embedding in ("learned", "frozen") and draw(st.booleans()),
    )
    return validate_config(
        replace(
            config, encoder=replace(config.encoder, **draw_layer_options(draw)), attention=attention, decoder=decoder
        )
    )


def make_vocabulary(symbols: Iterable[str]) -> Vocabulary:
    """Return the vocabulary of these symbols in this order, each with the count 1."""
    ordered = tuple(symbols)
    return Vocabulary(ordered, (1,) * len(ordered))


def make_vocabularies(
    source: str = SOURCE_SYMBOLS, target: str = TARGET_SYMBOLS, features: Sequence[str] = ()
) -> Vocabularies:
    """Return vocabularies of single characters; the longest training source and target have 6 symbols."""
    return Vocabularies(make_vocabulary(source), make_vocabulary(target), make_vocabulary(features), 6, 6)


def randomize_parameters(module: nn.Module, seed: int) -> None:
    """Add normal noise to every parameter, because a bias of zero would hide errors in its use."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2)


def make_network(config: Config, seed: int, dtype: torch.dtype = torch.float64) -> EncoderDecoder:
    """Return a network with random parameters in evaluation mode."""
    network = require_encoder_decoder(build_network(config, make_vocabularies())).to(dtype).eval()
    randomize_parameters(network, seed)
    return network


def make_padded_ids(lengths: Sequence[int], seed: int) -> Tensor:
    """Return rows of random ids with these lengths, followed by PAD."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(NUM_SPECIAL, VOCABULARY_SIZE, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        ids[row, length:] = PAD
    return ids


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Draw a batch of 1 to 5 rows of different lengths."""
    lengths = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), min_size=1, max_size=5))
    source_lengths, target_lengths = [pair[0] for pair in lengths], [pair[1] for pair in lengths]
    seed = draw(SEEDS)
    return Batch(
        make_padded_ids(source_lengths, seed),
        torch.tensor(source_lengths),
        make_padded_ids(target_lengths, seed + 1),
        torch.tensor(target_lengths),
    )


def extract_unpadded_row(batch: Batch, row: int) -> Batch:
    """Return a batch of one row without padding."""
    source_length, target_length = int(batch.source_lengths[row]), int(batch.target_lengths[row])
    rows = slice(row, row + 1)
    return Batch(
        batch.source[rows, :source_length],
        batch.source_lengths[rows],
        batch.target[rows, :target_length],
        batch.target_lengths[rows],
    )


def randomize_padding(ids: Tensor, lengths: Tensor, seed: int, extra_columns: int) -> Tensor:
    """Return ids whose padding, and `extra_columns` further columns, are random ids."""
    generator = torch.Generator().manual_seed(seed)
    result = torch.randint(VOCABULARY_SIZE, (ids.shape[0], ids.shape[1] + extra_columns), generator=generator)
    for row, length in enumerate(lengths.tolist()):
        result[row, :length] = ids[row, :length]
    return result


def assert_tensors_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Assert that two tensors are equal except for rounding errors."""
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def collect_attributes(module: nn.Module) -> dict[str, object]:
    """Return all attributes of a module and its submodules, to show that a call stores nothing in them."""
    return {
        f"{name}.{key}": dict(value) if isinstance(value, dict) else value
        for name, submodule in module.named_modules()
        for key, value in vars(submodule).items()
    }


def make_network_with_eos_bias(config: Config, seed: int) -> EncoderDecoder:
    """Return a network with a raised bias of EOS, so that the outputs of a batch end at different steps."""
    network = make_network(config, seed)
    with torch.no_grad():
        output_projection(network.decoder).bias[EOS] += 1
    return network


def output_projection(decoder: Decoder) -> nn.Linear:
    """Return the output projection of a decoder without tied embeddings."""
    assert isinstance(decoder.head, OutputLayer)
    return decoder.head.projection


def assert_outputs_close(actual: DecodedOutput, expected: DecodedOutput) -> None:
    """Assert that two outputs have equal ids and equal arrays, except for rounding to float32."""
    assert actual.ids.tolist() == expected.ids.tolist()
    for actual_field, expected_field in zip(actual, expected, strict=True):
        assert_arrays_close(actual_field, expected_field, rtol=1e-5, atol=1e-6)


def assert_arrays_close(actual: np.ndarray | None, expected: np.ndarray | None, rtol: float, atol: float) -> None:
    """Assert that two arrays are close, or that both are None."""
    if actual is None or expected is None:
        assert actual is expected
    else:
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def gru_step(inputs: Tensor, recurrent: Tensor, hidden: Tensor) -> Tensor:
    """Return h' of a GRU from W x + b, U h + c and h."""
    return cells.CELLS["gru"].step(inputs, recurrent, cells.LayerState(hidden, None)).hidden


def lstm_step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return h' and c' of an LSTM from the preactivations of its gates and c."""
    state = cells.CELLS["lstm"].step(gates, torch.zeros_like(gates), cells.LayerState(cell, cell))
    assert state.cell_state is not None
    return state.hidden, state.cell_state
