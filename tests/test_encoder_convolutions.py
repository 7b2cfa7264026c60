import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import LENGTHS, SEEDS, assert_tensors_close, few_examples

from pellucid.model.encoder import Convolutions


@few_examples
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), LENGTHS, SEEDS)
def test_padding_changes_nothing(widths: list[int], lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    layer = Convolutions(widths, 3, 4).double()
    vectors = torch.randn(len(lengths), max(lengths) + 2, 4, dtype=torch.float64)
    found = layer(vectors, torch.tensor(lengths))
    assert found.shape == (len(lengths), max(lengths) + 2, 3 * len(widths)) and layer.size == 3 * len(widths)
    for row, length in enumerate(lengths):
        assert_tensors_close(
            found[row : row + 1, :length], layer(vectors[row : row + 1, :length], torch.tensor([length]))
        )
        assert not found[row, length:].any()


def test_a_filter_reads_its_neighbors() -> None:
    layer = Convolutions([3], 1, 1)
    with torch.no_grad():
        layer.layers[0].weight.copy_(torch.tensor([[[1.0, 10.0, 100.0]]]))  # type: ignore[operator]
    found = layer(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([3]))
    assert found[0, :, 0].tolist() == [210.0, 321.0, 32.0]
