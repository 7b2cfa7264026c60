"""The network and the data of the typo post equal their definitions."""

import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typo_cases import write_word_list

from pellucid.data.synthetic import Typo, read_words
from pellucid.recipes.typos.training import (
    PADDING,
    TypoNetworkSizes,
    WrongLetterNetwork,
    encode_words,
    make_typo_data,
    position_probabilities,
    predict_positions,
    rank_positions,
)

DecoderState = tuple[torch.Tensor, torch.Tensor]
"""Hidden state and cell of one layer for one word."""


def step_lstm_cell(weights: list[torch.Tensor], vector: torch.Tensor, state: DecoderState) -> DecoderState:
    """Compute TensorFlow's LSTMCell with forget bias one (gates i, j, f, o) from PyTorch's weights (i, f, g, o)."""
    preactivations = weights[0] @ vector + weights[1] @ state[0] + weights[2]
    input_gate, forget_gate, candidate, output_gate = preactivations.chunk(4)
    new_cell = torch.sigmoid(forget_gate) * state[1] + torch.sigmoid(input_gate) * torch.tanh(candidate)
    return torch.sigmoid(output_gate) * torch.tanh(new_cell), new_cell


def test_network_equals_the_equations_of_the_post() -> None:
    torch.manual_seed(1)
    network = WrongLetterNetwork(TypoNetworkSizes(hidden=3, max_length=5))

    def step_layers(module: nn.LSTM, vector: torch.Tensor, states: list[DecoderState]) -> torch.Tensor:
        for layer in range(3):
            names = ("weight_ih", "weight_hh", "bias_ih")
            states[layer] = step_lstm_cell(
                [getattr(module, f"{name}_l{layer}") for name in names], vector, states[layer]
            )
            vector = states[layer][0]
        return vector

    with torch.no_grad():
        states: list[DecoderState] = [(torch.zeros(3), torch.zeros(3))] * 3
        word = encode_words(["cab"], 5)[0]
        assert word.tolist() == [2, 0, 1, PADDING, PADDING]
        outputs = [step_layers(network.encoder, network.embedding.weight[symbol], states) for symbol in word]
        read_out = (torch.cat(outputs) * network.read_out_weight).sum() + network.read_out_bias
        logits = network.output(step_layers(network.decoder, read_out[None], states))
        assert torch.allclose(network(word[None])[0], logits, atol=1e-5)


def test_initial_parameters_are_those_of_tensorflow() -> None:
    torch.manual_seed(1)
    network = WrongLetterNetwork(TypoNetworkSizes(hidden=32, max_length=16))
    first = dict(network.encoder.named_parameters())
    bias, hidden_bias = first["bias_ih_l0"], first["bias_hh_l0"]
    assert bias.tolist() == [0.0] * 32 + [1.0] * 32 + [0.0] * 64
    assert not hidden_bias.any() and not hidden_bias.requires_grad
    bound = (6 / (2 + 32 + 4 * 32)) ** 0.5
    assert first["weight_ih_l0"].abs().max() <= bound < 1.1 * first["weight_hh_l0"].abs().max()
    assert float(network.read_out_weight.detach().std()) == pytest.approx(
        1, abs=0.15
    ) and network.embedding.weight.shape == (28, 2)
    assert float(network.read_out_bias.detach()) == 0 and not network.output.bias.any()


def test_padding_is_encoded_and_may_be_predicted() -> None:
    torch.manual_seed(1)
    network = WrongLetterNetwork(TypoNetworkSizes(hidden=8, max_length=8))
    with torch.no_grad():
        assert not torch.allclose(network(encode_words(["cab"], 8)), network(encode_words(["cab-"], 8)), atol=1e-6)
    predictions = predict_positions(partial(position_probabilities, network), [Typo("cab", 3, "cat")])
    probabilities = predictions.probabilities
    assert probabilities.shape == (1, 8) and probabilities.sum() == pytest.approx(1) and probabilities[0, 7] > 0


def test_rank_counts_more_probable_positions() -> None:
    probabilities = np.array([[0.5, 0.2, 0.3], [0.2, 0.4, 0.4]])
    assert rank_positions(probabilities, [Typo("abc", 2, ""), Typo("abc", 3, "")]).tolist() == [3, 1]


def test_training_set_excludes_tested_forms_and_post_words(tmp_path: Path) -> None:
    data = make_typo_data(read_words(write_word_list(tmp_path / "words"), max_length=18), 1)
    words = [{typo.right for typo in split} for split in data]
    assert all(not first & second for first, second in itertools.combinations(words, 2))
    assert not {typo.wrong for typo in data.train} & {typo.wrong for typo in (*data.dev, *data.test)}
    assert not {"bank", "table", "parental", "bookcase"} & set(itertools.chain(*words)) and len(data.test) > 30
