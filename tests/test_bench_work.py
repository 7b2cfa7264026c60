"""Operations counted from shapes: against a count by hand, and against PyTorch's own."""

import msgspec
import pytest
import torch
from bench_cases import GRU
from small import config_of, network_of, padded, vocabularies
from torch.utils.flop_counter import FlopCounterMode

from pellucid.bench.roofline import Shape, Work, search_work, training_work
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.network import writing
from pellucid.tasks.registry import build_network


def test_an_update_of_a_gru_by_hand() -> None:
    once = 2 * 3 * (4 + 4) + 2 * 2 * 2 + 5 * 3 * 2 + 6 * 2  # both directions, first state, target table, keys
    step = 2 + 3 * 2 * (2 + 2) + 5 * (2 + 2)  # query, gates, logits
    assert training_work(GRU) == Work(
        multiply_adds=3 * (once + 6 * step),
        bends=6 * 2 * 3 + 2 * 2 + 6 * 2 * 3,
        energies=2 * 18,
        exponentials=18 + 6 * 5,
        look_multiply_adds=3 * 18 * 3,
        look_bytes=4 * 18 * (2 * 3 + 2),
        update_bytes=4 * 7 * 10,
    )


def test_an_update_of_an_lstm_by_hand() -> None:
    work = training_work(msgspec.structs.replace(GRU, gates=4))
    once = 2 * 4 * (4 + 4) + 2 * 2 * 2 * 2 + 5 * 4 * 2 + 6 * 2
    assert work.multiply_adds == 3 * (once + 6 * (2 + 4 * 2 * 4 + 20))
    assert work.bends == 6 * 2 * 5 + 2 * 2 + 6 * 2 * 5


def test_a_beam_of_two_by_hand() -> None:
    work = search_work(msgspec.structs.replace(GRU, beam=2))
    assert work == Work(
        multiply_adds=98 + 10 * 46,
        bends=40 + 10 * 2 * 3,
        energies=30,
        exponentials=30 + 10 * 5,
        look_multiply_adds=30 * 3,
        look_bytes=4 * 3 * 6 * 3,
        update_bytes=0,
    )


def test_greedy_search_is_a_third_of_the_products_of_an_update() -> None:
    assert 3 * search_work(GRU).multiply_adds == training_work(GRU).multiply_adds
    assert search_work(GRU).operations < training_work(GRU).operations / 2


@pytest.mark.parametrize(("cell", "gates"), [("gru", 3), ("lstm", 4)])
def test_a_step_has_the_products_that_pytorch_counts(cell: str, gates: int) -> None:
    sizes = {"cell": cell, "embedding_size": 3}
    config = config_of(
        {"encoder": {**sizes, "hidden_size": 2}, "decoder": {**sizes, "hidden_size": 5}, "attention": {"size": 7}}
    )
    network = network_of(config, 1, torch.float32)
    rows, length, symbols = 6, 8, len(vocabularies().target)
    with torch.inference_mode(), disable_kernels():
        memory = network.encoder(padded([length] * rows, 1), torch.full((rows,), length))
        state, attendable = network.decoder.start(memory), network.decoder.prepare(memory)
        with FlopCounterMode(display=False) as counter:
            network.decoder.step(torch.full((rows,), 4), state, attendable)
    shape = Shape(rows, float(rows * length), 1.0, 3, 5, 2, 7, gates, 1, symbols, 1)
    longer = msgspec.structs.replace(shape, steps=2.0)
    products = search_work(longer).multiply_adds - search_work(shape).multiply_adds
    contexts = rows * length * 4
    energies = rows * length * 7
    projected = rows * 3 * gates * 5  # a single step projects its symbols, not the table
    counted = counter.get_total_flops() / 2
    assert counted in (products + contexts + projected, products + contexts + projected + energies)


def test_the_encoder_and_the_keys_are_counted_as_they_are_built() -> None:
    network = writing(
        build_network(config_of({"encoder": {"hidden_size": 3}, "decoder": {"hidden_size": 6}}), vocabularies())
    )
    cell = network.encoder.forward_cells[0]
    shape = Shape(1, 9.0, 0.0, 16, 6, 3, 32, 3, 9, 0, 0)
    recurrent = 2 * 8 * cell.hidden_weight.numel() + 2 * 9 * cell.input_weight.numel()
    bridge = network.decoder.bridge
    assert bridge is not None
    keys = 9 * 6 * 32
    assert training_work(shape).multiply_adds == 3 * (recurrent + bridge.weight.numel() + keys)
