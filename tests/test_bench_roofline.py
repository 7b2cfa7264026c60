"""Lower bound of the time of a step: work and floor."""

import msgspec
import pytest
import torch
from bench_cases import GRU_SHAPE, MACHINE_RATES
from small_networks import make_config, make_network, make_padded_ids, make_vocabularies
from torch.utils.flop_counter import FlopCounterMode

from pellucid.bench.roofline import StepShape, StepWork, compute_floor, search_work, training_work
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.network import require_encoder_decoder
from pellucid.tasks.registry import build_network


def test_work_of_a_gru_update_counted_by_hand() -> None:
    per_source = 2 * 3 * (4 + 4) + 2 * 2 * 2 + 5 * 3 * 2 + 6 * 2  # both directions, first state, target table, keys
    step = 2 + 3 * 2 * (2 + 2) + 5 * (2 + 2)  # query, gates, logits
    assert training_work(GRU_SHAPE) == StepWork(
        multiply_adds=3 * (per_source + 6 * step),
        activations=6 * 2 * 3 + 2 * 2 + 6 * 2 * 3,
        energies=2 * 18,
        exponentials=18 + 6 * 5,
        attention_multiply_adds=3 * 18 * 3,
        attention_bytes=4 * 18 * (2 * 3 + 2),
        update_bytes=4 * 7 * 10,
    )


def test_work_of_an_lstm_update_counted_by_hand() -> None:
    work = training_work(msgspec.structs.replace(GRU_SHAPE, gates=4, states=2))
    per_source = 2 * 4 * (4 + 4) + 2 * 2 * 2 * 2 + 5 * 4 * 2 + 6 * 2
    assert work.multiply_adds == 3 * (per_source + 6 * (2 + 4 * 2 * 4 + 20))
    assert work.activations == 6 * 2 * 5 + 2 * 2 + 6 * 2 * 5


def test_work_of_beam_size_two_counted_by_hand() -> None:
    work = search_work(msgspec.structs.replace(GRU_SHAPE, beam=2))
    assert work == StepWork(
        multiply_adds=98 + 10 * 46,
        activations=40 + 10 * 2 * 3,
        energies=30,
        exponentials=30 + 10 * 5,
        attention_multiply_adds=30 * 3,
        attention_bytes=4 * 3 * 6 * 3,
        update_bytes=0,
    )


def test_greedy_search_has_a_third_of_the_products_of_an_update() -> None:
    assert 3 * search_work(GRU_SHAPE).multiply_adds == training_work(GRU_SHAPE).multiply_adds
    assert search_work(GRU_SHAPE).operations < training_work(GRU_SHAPE).operations / 2


@pytest.mark.parametrize(("cell", "gates"), [("gru", 3), ("lstm", 4)])
def test_products_of_a_step_agree_with_the_count_of_pytorch(cell: str, gates: int) -> None:
    sizes = {"cell": cell, "embedding_size": 3}
    config = make_config(
        {"encoder": {**sizes, "hidden_size": 2}, "decoder": {**sizes, "hidden_size": 5}, "attention": {"size": 7}}
    )
    network = make_network(config, 1, torch.float32)
    rows, length, symbols = 6, 8, len(make_vocabularies().target)
    with torch.inference_mode(), disable_kernels():
        memory = network.encoder(make_padded_ids([length] * rows, 1), torch.full((rows,), length))
        state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
        with FlopCounterMode(display=False) as counter:
            network.decoder.step(torch.full((rows,), 4), state, cache)
    shape = StepShape(rows, float(rows * length), 1.0, 3, 5, 2, 7, gates, 1, symbols, 1)
    two_steps = msgspec.structs.replace(shape, steps=2.0)
    products = search_work(two_steps).multiply_adds - search_work(shape).multiply_adds
    contexts = rows * length * 4
    energies = rows * length * 7
    projections = rows * 3 * gates * 5  # a single step projects its symbols, not the table
    counted = counter.get_total_flops() / 2
    assert counted in (products + contexts + projections, products + contexts + projections + energies)


def test_products_of_encoder_and_keys_agree_with_the_network() -> None:
    network = require_encoder_decoder(
        build_network(make_config({"encoder": {"hidden_size": 3}, "decoder": {"hidden_size": 6}}), make_vocabularies())
    )
    cell = network.encoder.forward_cells[0]
    shape = StepShape(1, 9.0, 0.0, 16, 6, 3, 32, 3, 9, 0, 0)
    recurrent = 2 * 8 * cell.hidden_weight.numel() + 2 * 9 * cell.input_weight.numel()
    bridge = network.decoder.bridge
    assert bridge is not None
    keys = 9 * 6 * 32
    assert training_work(shape).multiply_adds == 3 * (recurrent + bridge.weight.numel() + keys)


WORK = StepWork(
    multiply_adds=3e9,
    activations=1_000,
    energies=2_000,
    exponentials=4_000,
    attention_multiply_adds=1e6,
    attention_bytes=1_000,
    update_bytes=5_000,
)


def test_each_part_of_the_floor_is_work_divided_by_rate() -> None:
    floor = compute_floor(WORK, MACHINE_RATES)
    parts = (floor.products_ms, floor.activations_ms, floor.attention_ms, floor.softmax_ms, floor.update_ms)
    assert parts == pytest.approx((3000, 1, 2 + 1, 4, 5))
    assert floor.total_ms == pytest.approx(sum(parts))


def test_attention_time_is_the_longer_of_reading_and_computing() -> None:
    slow = msgspec.structs.replace(MACHINE_RATES, row_bytes=1e5)
    assert compute_floor(WORK, slow).attention_ms == pytest.approx(10)
    assert compute_floor(WORK, slow).total_ms == pytest.approx(compute_floor(WORK, MACHINE_RATES).total_ms + 7)


def test_floor_of_no_work_is_zero() -> None:
    assert compute_floor(StepWork(0, 0, 0, 0, 0, 0, 0), MACHINE_RATES).total_ms == 0
