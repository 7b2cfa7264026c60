"""Training of the Spanish networks has the loss and clipping of the post, and is reproducible."""

import numpy as np
import pytest
import torch
from spanish_cases import CORPUS, SMALL_ARCHITECTURE, TENSORS, make_small_network
from torch import nn

from pellucid.recipes.spanish.networks import (
    SpanishArchitecture,
)
from pellucid.recipes.spanish.sentences import (
    PAD,
    PAIRS,
    SPECIAL,
)
from pellucid.recipes.spanish.training import (
    MAX_GRADIENT_NORM,
    SentenceBatch,
    SpanishExperiment,
    attention_on_padding,
    clip_global_norm,
    run_experiment,
    sentence_loss,
    slice_rows,
    tensor_shapes,
    translate,
)


def test_loss_is_the_mean_over_sentences_of_sums_over_words() -> None:
    logits, targets = torch.randn(2, 4, 9), torch.tensor([[5, 6, 2, 0], [7, 2, 0, 0]])
    probabilities = logits.log_softmax(dim=2)
    expected = (
        -sum(float(probabilities[b, t, int(targets[b, t])]) for b in (0, 1) for t in range(4) if targets[b, t]) / 2
    )
    assert float(sentence_loss(logits, targets)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("norm", "expected"), [(50.0, MAX_GRADIENT_NORM), (3.0, 3.0)])
def test_global_gradient_norm_is_at_most_five(norm: float, expected: float) -> None:
    layer = nn.Linear(2, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter) * norm / 6**0.5
    clip_global_norm(layer)
    clipped = sum(float(p.grad.square().sum()) for p in layer.parameters() if p.grad is not None) ** 0.5
    assert clipped == pytest.approx(expected, rel=1e-5)


def test_shapes_are_those_of_the_post_except_for_its_convolution() -> None:
    network = make_small_network()
    letters = {"N": 4, "H": 8, "C": len(CORPUS.target_vocabulary.words), "1": 1}
    for shape in tensor_shapes(network, slice_rows(TENSORS, 0, 4)):
        for letter, size in zip(filter(None, shape.symbolic.split(", ")), shape.sizes, strict=True):
            if letter in letters:
                assert size == letters[letter], shape.name
    features = next(
        shape for shape in tensor_shapes(network, slice_rows(TENSORS, 0, 4)) if shape.name.startswith("features")
    )
    assert features.sizes == (4, 32, 1, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture",
    [
        SMALL_ARCHITECTURE,
        SMALL_ARCHITECTURE._replace(decoder="plain"),
        SMALL_ARCHITECTURE._replace(cell="lstm", embedding=5),
    ],
)
def test_short_training_learns_and_is_reproducible(architecture: SpanishArchitecture) -> None:
    first, again = (run_experiment(SpanishExperiment("short", architecture, seed=2, epochs=4)) for _ in range(2))
    assert first.curve == again.curve and len(first.curve) == 4
    assert first.curve[-1].training < first.curve[0].training
    assert (first.attention_on_padding is None) == (architecture.decoder == "plain")


def test_translation_has_attention_on_padding() -> None:
    network = make_small_network()
    trace = translate(network, CORPUS, PAIRS[0][0])
    assert len(trace.source) == 32 and trace.source[-1] == SPECIAL[PAD]
    assert trace.attention.shape == (len(trace.target), 32)
    np.testing.assert_allclose(trace.attention.sum(axis=1), 1, rtol=1e-5)
    masked = make_small_network(SMALL_ARCHITECTURE._replace(padding="masked"))
    assert attention_on_padding(network, TENSORS) > 0.05 and attention_on_padding(masked, TENSORS) == 0


def test_batches_have_the_columns_of_the_corpus() -> None:
    assert SentenceBatch._fields == type(CORPUS.data)._fields
