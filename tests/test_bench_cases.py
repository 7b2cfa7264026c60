"""Selection of benchmark cases and their configurations."""

import pytest
from bench_cases import make_small_request

from pellucid.bench.cases import BEAM_SIZE, CASES, CELLS, TASKS, BenchRequest, bench_config, select_cases
from pellucid.config.settings import memory_size
from pellucid.errors import InputError


def test_all_selects_every_task_case_and_cell() -> None:
    assert select_cases("all", (), ()) == (TASKS, tuple(CASES), CELLS)
    assert select_cases("beam", ("large", "tiny", "large"), ("lstm",)) == (("beam",), ("large", "tiny"), ("lstm",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trian", (), ()), "there is no task 'trian'; did you mean 'train'?"),
        (("train", ("medum",), ()), "there is no case 'medum'; did you mean 'medium'?"),
        (("train", (), ("rnn",)), "there is no cell 'rnn' (gru, lstm)"),
    ],
)
def test_unknown_names_are_rejected(arguments: tuple[str, tuple[str, ...], tuple[str, ...]], message: str) -> None:
    with pytest.raises(InputError) as error:
        select_cases(*arguments)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("name", CASES)
def test_encoder_states_have_the_size_of_the_decoder(name: str) -> None:
    config = bench_config(BenchRequest("train", name, CASES[name], "lstm"))
    assert memory_size(config.encoder) == config.decoder.hidden_size == CASES[name].hidden
    assert (config.encoder.bidirectional, config.attention.type) == (True, "additive")
    assert (config.encoder.cell, config.decoder.cell) == ("lstm", "lstm")


def test_outputs_are_forced_to_the_number_of_digits() -> None:
    search = bench_config(make_small_request("beam")).search
    assert (search.min_length, search.max_length, search.beam_size) == (3, 3, BEAM_SIZE)
    assert bench_config(make_small_request("greedy")).search.beam_size == 1
