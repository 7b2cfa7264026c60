"""Embeddings: learned, frozen and one-hot."""

import pytest
import torch
from torch import Tensor, nn

from pellucid.config.settings import Embedding as EmbeddingKind
from pellucid.model.embedding import MIN_GATHERED_TABLE, Embedding

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


def large_table(dropout: float = 0.0, embedding_dropout: float = 0.0) -> Embedding:
    """Return a table of which a small batch reads the rows of its own symbols alone."""
    return Embedding("learned", MIN_GATHERED_TABLE + 500, 4, dropout, embedding_dropout)


def test_a_batch_reads_only_its_rows_of_a_large_table() -> None:
    table, ids = large_table().train(), torch.tensor([[1400, 7, 1400], [0, 7, 9]])
    inputs = table.embed(ids, None)
    assert len(inputs.vectors) == 4
    assert torch.equal(inputs.to_dense(), table.weight[ids])
    (gradient,) = torch.autograd.grad(inputs.to_dense().sum(), table.weight)
    assert gradient[[1400, 7, 0, 9, 8]].tolist() == [[2] * 4, [2] * 4, [1] * 4, [1] * 4, [0] * 4]


def test_a_table_with_fewer_rows_than_positions_is_read_whole() -> None:
    table = large_table().eval()
    assert len(table.embed(torch.zeros(2, len(table.weight), dtype=torch.long), None).vectors) == len(table.weight)
    assert len(Embedding("learned", MIN_GATHERED_TABLE, 2, 0.0).embed(torch.tensor([[3]]), None).vectors) > 1


def test_dropout_of_a_large_table_drops_the_same_units_of_a_symbol() -> None:
    torch.manual_seed(1)
    table, ids = large_table(dropout=0.5).train(), torch.randint(6, (20, 30))
    dense = table.embed(ids, None).to_dense()
    assert equal_ids_have_equal_vectors(dense, ids)
    nonzero = dense != 0
    assert torch.equal(dense[nonzero], 2 * table.weight[ids][nonzero]) and 0 < int(nonzero.sum()) < dense.numel()


def test_dropped_symbols_of_a_large_table_are_zero_in_their_sequence() -> None:
    torch.manual_seed(1)
    table, ids = large_table(embedding_dropout=0.5).train(), torch.randint(6, (20, 30))
    dropped = table.draw_dropped_symbols(20)
    assert dropped is not None
    is_dropped = dropped.gather(1, ids)
    dense = table.embed(ids, dropped).to_dense()
    assert torch.equal(dense, (table.weight[ids] / 0.5).masked_fill(is_dropped[:, :, None], 0)) and is_dropped.any()
