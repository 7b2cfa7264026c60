"""The training loss: each setting adds its term, and nothing at zero."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    ATTENTION_TYPES,
    SEEDS,
    assert_tensors_close,
    batches,
    few_examples,
    make_config,
    make_network,
    make_vocabularies,
)
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import EOS
from pellucid.errors import ConfigError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.losses import coverage_loss, cross_entropy, symmetric_kl
from pellucid.model.memory import NetworkOutput
from pellucid.model.network import EncoderDecoder, require_encoder_decoder
from pellucid.tasks.registry import build_network, get_task
from pellucid.training.gradients import GradientComputer

BATCH = Batch(
    torch.tensor([[4, 5, 6], [7, 8, 0]]),
    torch.tensor([3, 2]),
    torch.tensor([[4, 4, 5, 6, EOS], [7, 8, EOS, 0, 0]]),
    torch.tensor([5, 3]),
)


def build_config(training: dict[str, Any], dropout: float = 0.0, **decoder: bool) -> Config:
    sizes: dict[str, Any] = {"hidden_size": 4, "embedding_size": 3, "dropout": dropout}
    return make_config({"encoder": sizes, "decoder": {**sizes, **decoder}, "training": training})


def compute_loss_and_gradients(
    config: Config, seed: int, sampling_probability: float = 0.0
) -> tuple[float, list[Tensor]]:
    """Return loss and gradients of the same network with the same random numbers."""
    network = require_encoder_decoder(build_network(config, make_vocabularies())).train()
    torch.manual_seed(seed)
    loss, gradients = GradientComputer(network, config).compute(BATCH, sampling_probability)
    return loss.item(), [each for each in gradients if each is not None]


@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize(
    ("training", "sampling_probability"),
    [({"coverage_loss": 1.0}, 0.0), ({"rdrop_alpha": 1.0}, 0.0), ({}, 0.9)],
    ids=str,
)
def test_each_setting_changes_loss_and_gradients(
    training: dict[str, Any], sampling_probability: float, copying: bool
) -> None:
    base, gradients = compute_loss_and_gradients(build_config({}, 0.3, pointer_generator=copying), 1)
    loss, changed = compute_loss_and_gradients(
        build_config(training, 0.3, pointer_generator=copying), 1, sampling_probability
    )
    assert loss != base and any(not torch.equal(*pair) for pair in zip(gradients, changed, strict=True))
    repeated_loss, repeated_gradients = compute_loss_and_gradients(
        build_config(training, 0.3, pointer_generator=copying), 1, sampling_probability
    )
    assert repeated_loss == loss and all(torch.equal(*pair) for pair in zip(changed, repeated_gradients, strict=True))


def test_terms_with_weight_zero_change_no_bit() -> None:
    base, gradients = compute_loss_and_gradients(build_config({}, 0.3), 1)
    settings = {"coverage_loss": 0.0, "rdrop_alpha": 0.0, "sampling_probability": 0.9, "ema_decay": 0.5}
    loss, changed = compute_loss_and_gradients(build_config(settings, 0.3), 1)
    assert loss == base and all(torch.equal(*pair) for pair in zip(gradients, changed, strict=True))


@few_examples
@given(batches(), SEEDS, st.sampled_from([score for score in ATTENTION_TYPES if score != "none"]), st.booleans())
def test_coverage_is_added_with_its_weight_with_and_without_copying(
    batch: Batch, seed: int, score: str, copying: bool
) -> None:
    settings: dict[str, Any] = {
        "encoder": {"hidden_size": 2},
        "decoder": {"hidden_size": 4, "pointer_generator": copying},
    }
    config = make_config({**settings, "attention": {"type": score}, "training": {"coverage_loss": 0.7}})
    network = make_network(config, seed)
    unrolled = network(batch)
    expected = compute_expected_loss(network, unrolled, batch) + 0.7 * coverage_loss(unrolled.weights, batch.target)
    assert_tensors_close(GradientComputer(network, config).loss(batch), expected)


def compute_expected_loss(network: EncoderDecoder, unrolled: NetworkOutput, batch: Batch) -> Tensor:
    """Return the loss; with copying it is the mean of the losses of the mixture and of the generator."""
    loss = get_task("transduce").loss(network, unrolled, batch, 0.1)
    if network.decoder.copying is None:
        return loss
    assert unrolled.vocabulary_logits is not None
    return (loss + cross_entropy(unrolled.vocabulary_logits, batch.target, 0.1)) / 2


@pytest.mark.parametrize("context", [nullcontext, disable_kernels])
def test_the_generator_loss_includes_copied_symbols(
    context: Callable[[], AbstractContextManager[None]],
) -> None:
    """The generator's logits equal those of a network without copying; its weights have gradients at a gate of zero."""
    config = build_config({"label_smoothing": 0.0}, pointer_generator=True)
    network = make_network(config, 2, torch.float32)
    generator = require_encoder_decoder(build_network(build_config({"label_smoothing": 0.0}), make_vocabularies()))
    with torch.no_grad():
        generator.load_state_dict(
            {name: value for name, value in network.state_dict().items() if "copying" not in name}
        )
        assert network.decoder.copying is not None
        network.decoder.copying.gate.bias.fill_(-50)
    with context():
        unrolled = network(BATCH)
        assert unrolled.vocabulary_logits is not None and generator.eval()(BATCH).vocabulary_logits is None
        torch.testing.assert_close(unrolled.vocabulary_logits, generator(BATCH).logits, rtol=1e-4, atol=1e-5)
        head = [name for name, _ in network.named_parameters()].index("decoder.head.projection.weight")
        gradient = GradientComputer(network, config).compute(BATCH).gradients[head]
    assert gradient is not None and gradient.abs().max() > 1e-3


def test_kernels_have_the_gradient_of_the_attention_weights() -> None:
    """The gradient of the coverage loss alone is equal through the kernel and through PyTorch."""
    network = make_network(build_config({}), 2, torch.float32)
    parameters = list(network.parameters())

    def compute_gradients() -> tuple[Tensor | None, ...]:
        loss = coverage_loss(network(BATCH).weights, BATCH.target)
        return torch.autograd.grad(loss, parameters, allow_unused=True)

    with disable_kernels():
        expected = compute_gradients()
    for one, other in zip(compute_gradients(), expected, strict=True):
        assert (one is None or not one.any()) == (other is None or not other.any())
        if one is not None and other is not None:
            assert_tensors_close(one, other, 1e-4)


@pytest.mark.parametrize("copying", [False, True])
def test_the_rdrop_term_is_half_of_that_of_the_paper(copying: bool) -> None:
    config = build_config({"rdrop_alpha": 3.0}, 0.4, pointer_generator=copying)
    network = require_encoder_decoder(build_network(config, make_vocabularies())).double().train()
    torch.manual_seed(3)
    loss = GradientComputer(network, config).loss(BATCH)
    torch.manual_seed(3)
    one, two = network(BATCH), network(BATCH)
    losses = [compute_expected_loss(network, each, BATCH) for each in (one, two)]
    assert_tensors_close(loss, 0.5 * (sum(losses) + 1.5 * symmetric_kl(one.logits, two.logits, BATCH.target)))
    assert losses[0] != losses[1]


def test_invalid_combinations_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"training\.coverage_loss = .* needs attention weights, which attention\.type = 'none' does not have",
    ):
        make_config({"attention": {"type": "none"}, "training": {"coverage_loss": 1.0}})
    with pytest.raises(ConfigError, match=r"training\.scheduled_sampling = 'linear' needs cuda_graphs = false"):
        make_config({"device": "cuda", "cuda_graphs": True, "training": {"scheduled_sampling": "linear"}})
