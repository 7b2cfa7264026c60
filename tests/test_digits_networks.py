"""The networks of the 2016 notebook: parameters, initialization, padding."""

import numpy as np
import pytest
import torch

from pellucid.data.synthetic import draw_digits
from pellucid.kernels.dispatch import disable_kernels
from pellucid.recipes.digits.networks import DigitsArchitecture, SpelledDigitsNetwork, parameter_shapes


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        (DigitsArchitecture("repeat"), 1891),
        (DigitsArchitecture("attention"), 2551),
        (DigitsArchitecture("initialize"), 1591),
        (DigitsArchitecture(embedding="learned"), 1891 + 27 * 27),
    ],
)
def test_number_of_parameters_equals_that_of_the_notebook(architecture: DigitsArchitecture, count: int) -> None:
    torch.manual_seed(1)
    assert sum(int(np.prod(shape)) for _, shape in parameter_shapes(SpelledDigitsNetwork(architecture))) == count


def test_initial_weights_have_the_distribution_of_the_notebook() -> None:
    torch.manual_seed(1)
    network = SpelledDigitsNetwork(DigitsArchitecture("attention"))
    for name, parameter in network.named_parameters():
        if "bias" in name:
            assert not parameter.any(), name
        elif not name.startswith("output") and parameter.numel() > 100:
            assert float(parameter.detach().std()) == pytest.approx(0.1, rel=0.25), name


@pytest.mark.parametrize(
    "architecture",
    [
        DigitsArchitecture("repeat"),
        DigitsArchitecture("initialize"),
        DigitsArchitecture("attention"),
        DigitsArchitecture("attention", "lstm"),
    ],
)
def test_kernels_and_plain_pytorch_agree(architecture: DigitsArchitecture) -> None:
    torch.manual_seed(2)
    network = SpelledDigitsNetwork(architecture)
    samples = draw_digits(6, 1, 4, np.random.default_rng(1))
    inputs, lengths = torch.from_numpy(samples.inputs).long(), torch.from_numpy(samples.lengths)
    with_kernels = network(inputs, lengths, 5)
    with disable_kernels():
        without_kernels = network(inputs, lengths, 5)
    torch.testing.assert_close(with_kernels.logits, without_kernels.logits, rtol=1e-4, atol=1e-6)


def test_attention_includes_padding_only_as_in_the_notebook() -> None:
    torch.manual_seed(3)
    samples = draw_digits(4, 1, 6, np.random.default_rng(1))
    inputs, lengths = torch.from_numpy(samples.inputs).long(), torch.from_numpy(samples.lengths)
    is_padding = torch.from_numpy(samples.input_masks) == 0
    assert is_padding.any()
    for attends in (True, False):
        attention = SpelledDigitsNetwork(DigitsArchitecture("attention", attends_padding=attends))(
            inputs, lengths, 3
        ).attention
        assert attention is not None
        assert bool((attention.transpose(1, 2)[is_padding] > 0).all()) is attends
        torch.testing.assert_close(attention.sum(dim=2), torch.ones(4, 3))
