"""Vectors of words from their characters, compared with an independent implementation on single words."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import assert_tensors_close, make_config, randomize_parameters
from torch import Tensor, nn
from torch.nn import functional

from pellucid.config.settings import Config
from pellucid.data.characters import WordCharacters, collate_characters
from pellucid.data.encoding import to_ragged
from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL, UNK
from pellucid.errors import ArgumentError
from pellucid.model.character_encoder import CharacterConvolution, empty_words
from pellucid.model.encoder import Encoder

NUM_WORDS, NUM_CHARACTERS = 9, 11
SINGLE_WORDS = (5, 7)
SPELLINGS: tuple[list[int], ...] = ([], [4], [5, 6], [4, 4, 4, 7, 8, 9, 10], [UNK, 5], [6, 5, 4])
"""Characters of words, without their marks."""
SENTENCES = ((1, 2, 3), (0, 4), (5, 3, 1, 2, 4))
"""Words of each source, as indices of `SPELLINGS`."""


def make_characters_config(encoder: Mapping[str, Any] | None = None) -> Config:
    """Return a small configuration with characters."""
    data = {"source_symbols": "words"}
    return make_config({"data": data, "encoder": {"characters": "convolution", "character_size": 5, **(encoder or {})}})


def make_encoder(config: Config, features: int = 0) -> Encoder:
    """Return an encoder with random parameters in double precision."""
    encoder = Encoder(config.encoder, NUM_WORDS + features, NUM_WORDS, NUM_CHARACTERS, SINGLE_WORDS).double()
    randomize_parameters(encoder, 4)
    return encoder


def make_sources() -> tuple[Tensor, Tensor, WordCharacters]:
    """Return ids, lengths and characters of the sources; the id of a word is unknown for words 0 and 4."""
    ids = [[UNK if word in (0, 4) else NUM_SPECIAL + word - 1 for word in sentence] for sentence in SENTENCES]
    spelled = [[id for word in sentence for id in [BOS, *SPELLINGS[word], EOS]] for sentence in SENTENCES]
    rows = np.arange(len(SENTENCES))
    source, lengths = map(torch.from_numpy, to_ragged(ids).pad(rows))
    characters = WordCharacters(*map(torch.from_numpy, collate_characters(to_ragged(spelled), rows)))
    return source, lengths, characters


def convolve_word(module: CharacterConvolution, spelling: list[int]) -> Tensor:
    """Return the vector of one word: a convolution of PyTorch over its characters, then the maximum."""
    weight = module.filters.weight.view(3, module.size, -1).permute(1, 2, 0)
    vectors = module.table.weight[[BOS, *spelling, EOS]]
    return functional.conv1d(vectors.T[None], weight, module.bias, padding=1)[0].amax(dim=1)


def test_a_word_is_its_vector_and_the_convolution_of_its_characters() -> None:
    encoder = make_encoder(make_characters_config()).eval()
    source, _, characters = make_sources()
    assert isinstance(encoder.characters, CharacterConvolution)
    vectors = encoder.embed(source, characters).to_dense()
    for row, sentence in enumerate(SENTENCES):
        for position, word in enumerate(sentence):
            spelled = convolve_word(encoder.characters, SPELLINGS[word])
            expected = torch.cat([encoder.table.weight[source[row, position]], spelled])
            assert_tensors_close(vectors[row, position], expected, 1e-12)


def test_gradients_equal_those_of_single_words() -> None:
    encoder = make_encoder(make_characters_config()).eval()
    _, _, characters = make_sources()
    module = encoder.characters
    assert isinstance(module, CharacterConvolution)
    weights = torch.rand(3, 5, module.size, dtype=torch.float64)
    batched = (module(characters) * weights)[[0, 0, 1, 2], [0, 2, 1, 4]].sum()
    single = sum(
        (convolve_word(module, SPELLINGS[SENTENCES[row][position]]) * weights[row, position]).sum()
        for row, position in ((0, 0), (0, 2), (1, 1), (2, 4))
    )
    parameters = list(module.parameters())
    for one, other in zip(
        torch.autograd.grad(batched, parameters), torch.autograd.grad(torch.as_tensor(single), parameters), strict=True
    ):
        assert_tensors_close(one, other, 1e-12)


@pytest.mark.parametrize("settings", [{}, {"convolutions": [2, 3], "filters": 4}, {"num_layers": 2, "residual": True}])
def test_padding_and_batch_composition_change_nothing(settings: dict[str, Any]) -> None:
    encoder = make_encoder(make_characters_config(settings)).eval()
    source, lengths, characters = make_sources()
    batched = encoder(source, lengths, characters)
    for row, length in enumerate(lengths.tolist()):
        distinct = characters.word_rows[row, :length].unique()
        ids = characters.ids[distinct, : int(characters.lengths[distinct].max())]
        words = torch.searchsorted(distinct, characters.word_rows[row : row + 1, :length].contiguous())
        alone = WordCharacters(ids, characters.lengths[distinct], words)
        single = encoder(source[row : row + 1, :length], lengths[row : row + 1], alone)
        assert_tensors_close(single.states[0], batched.states[row, :length], 1e-12)


def test_unknown_words_differ_by_their_characters() -> None:
    encoder = make_encoder(make_characters_config()).eval()
    source, _, characters = make_sources()
    vectors = encoder.embed(source, characters).to_dense()
    assert source[1].tolist()[:2] == [UNK, UNK] and not torch.equal(vectors[1, 0], vectors[1, 1])
    assert torch.equal(vectors[1, 0, : encoder.table.size], vectors[1, 1, : encoder.table.size])


def test_words_that_occur_once_are_read_as_unknown_in_training() -> None:
    config = make_characters_config({"word_dropout": 0.5, "dropout": 0.0})
    encoder, size = make_encoder(config).train(), config.encoder.embedding_size
    source = torch.tensor([[4, 5, 6, 7]]).expand(400, -1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        vectors = encoder.embed(source, empty_words(source)).to_dense()
    is_unknown = (vectors[:, :, :size] == encoder.table.weight[UNK]).all(dim=2)
    shares = is_unknown.double().mean(dim=0).tolist()
    assert shares[0] == shares[2] == 0 and all(0.4 < shares[place] < 0.6 for place in (1, 3))
    spelled = vectors[:, :, size:]
    assert torch.equal(spelled, spelled[:1, :1].expand_as(spelled))
    known = encoder.eval().embed(source, empty_words(source)).to_dense()[:, :, :size]
    assert torch.equal(known, encoder.table.weight[source])


def test_features_have_no_characters() -> None:
    encoder = make_encoder(make_characters_config(), features=2).eval()
    source = torch.tensor([[NUM_WORDS, NUM_WORDS + 1, 5]])
    vectors = encoder.embed(source, empty_words(source)).to_dense()[0, :, encoder.table.size :]
    assert not vectors[:2].any() and vectors[2].any()


def test_an_encoder_with_characters_needs_them() -> None:
    encoder = make_encoder(make_characters_config())
    source, lengths, characters = make_sources()
    for wrong in (None, characters.index_select([0])):
        with pytest.raises(ArgumentError, match=r"^characters: expected the word at each position of 3 sources"):
            encoder(source, lengths, wrong)
    plain = Encoder(make_config({}).encoder, NUM_WORDS)
    assert plain.characters is None and [name for name, _ in plain.named_buffers()] == []


def test_dropout_of_characters_is_drawn_in_training_only() -> None:
    encoder = make_encoder(make_characters_config({"dropout": 0.5}))
    source, _, characters = make_sources()
    one, other = (encoder.embed(source, characters).to_dense() for _ in range(2))
    assert not torch.equal(one, other)
    encoder.eval()
    one, other = (encoder.embed(source, characters).to_dense() for _ in range(2))
    assert torch.equal(one, other) and isinstance(encoder, nn.Module)
