"""Embeddings: learned, frozen and one-hot."""

import pytest
import torch
from torch import Tensor, nn

from pellucid.config.settings import Embedding as EmbeddingKind
from pellucid.model.embedding import Embedding

KINDS: list[EmbeddingKind] = ["learned", "frozen", "one-hot"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1,), (3, 4), (2, 1, 5)])
def test_ids_of_any_shape_select_rows_of_the_table(kind: EmbeddingKind, shape: tuple[int, ...]) -> None:
    table = Embedding(kind, 6, 3, 0.0)
    ids = torch.randint(6, shape)
    vectors = table(ids)
    assert vectors.shape == (*shape, table.size)
    for symbol, vector in zip(ids.flatten().tolist(), vectors.flatten(0, -2), strict=True):
        assert torch.equal(vector, table.weight[symbol])


def test_a_learned_table_is_a_parameter() -> None:
    table = Embedding("learned", 6, 3, 0.0)
    assert isinstance(table.weight, nn.Parameter)
    assert table.weight.requires_grad
    assert table.size == 3


def test_a_frozen_table_is_saved_but_never_trained() -> None:
    table = Embedding("frozen", 6, 3, 0.0)
    assert list(table.parameters()) == []
    assert list(table.state_dict()) == ["weight"]
    assert not table(torch.tensor([1])).requires_grad
    assert table.size == 3


def test_a_one_hot_table_is_the_identity_and_not_saved() -> None:
    table = Embedding("one-hot", 4, 99, 0.0)
    assert table(torch.arange(4)).tolist() == torch.eye(4).tolist()
    assert table.size == 4
    assert list(table.parameters()) == []
    assert table.state_dict() == {}


@pytest.mark.parametrize("kind", ["learned", "frozen"])
@pytest.mark.parametrize("size", [1, 4, 64])
def test_vectors_have_about_unit_length(kind: EmbeddingKind, size: int) -> None:
    torch.manual_seed(1)
    weight = Embedding(kind, 20_000, size, 0.0).weight.detach()
    assert float(weight.square().sum(dim=1).mean()) == pytest.approx(1, abs=0.05)
    assert abs(float(weight.mean())) < 0.05


def test_the_gradient_counts_the_occurrences_of_a_symbol() -> None:
    table = Embedding("learned", 5, 2, 0.0)
    table(torch.tensor([[1, 3, 1], [1, 0, 3]])).sum().backward()
    gradient = table.weight.grad
    assert gradient is not None
    assert gradient.tolist() == [[1, 1], [3, 3], [0, 0], [2, 2], [0, 0]]


def equal_ids_have_equal_vectors(vectors: Tensor, ids: Tensor) -> bool:
    """Return whether equal ids have equal vectors."""
    return all(len({tuple(vector) for vector in vectors[ids == i].tolist()}) == 1 for i in set(ids.flatten().tolist()))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_applied_to_the_table_in_training_only(kind: EmbeddingKind) -> None:
    torch.manual_seed(1)
    table = Embedding(kind, 8, 16, 0.5)
    ids = torch.randint(8, (20, 30))
    dropped = table.train()(ids)
    assert equal_ids_have_equal_vectors(dropped, ids)
    nonzero = dropped != 0
    assert torch.equal(dropped[nonzero], 2 * table.weight[ids][nonzero])
    assert 0 < int(nonzero.sum()) < int((table.weight[ids] != 0).sum())
    assert not torch.equal(table(ids), dropped)
    assert torch.equal(table.eval()(ids), table.weight[ids])
