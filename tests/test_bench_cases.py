"""What is measured, and which words name it."""

import pytest
from bench_cases import small

from pellucid.bench.cases import BEAM, CASES, CELLS, TASKS, Asked, config_of, wanted
from pellucid.config.settings import memory_size
from pellucid.errors import InputError


def test_all_is_every_task_case_and_cell() -> None:
    assert wanted("all", (), ()) == (TASKS, tuple(CASES), CELLS)
    assert wanted("beam", ("large", "tiny", "large"), ("lstm",)) == (("beam",), ("large", "tiny"), ("lstm",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trian", (), ()), "there is no task 'trian'; did you mean 'train'?"),
        (("train", ("medum",), ()), "there is no case 'medum'; did you mean 'medium'?"),
        (("train", (), ("rnn",)), "there is no cell 'rnn' (gru, lstm)"),
    ],
)
def test_other_words_are_refused(words: tuple[str, tuple[str, ...], tuple[str, ...]], message: str) -> None:
    with pytest.raises(InputError) as refused:
        wanted(*words)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("name", CASES)
def test_both_directions_together_are_as_large_as_the_decoder(name: str) -> None:
    config = config_of(Asked("train", name, CASES[name], "lstm"))
    assert memory_size(config.encoder) == config.decoder.hidden_size == CASES[name].hidden
    assert (config.encoder.bidirectional, config.attention.type) == (True, "additive")
    assert (config.encoder.cell, config.decoder.cell) == ("lstm", "lstm")


def test_outputs_are_forced_to_as_many_symbols_as_there_are_digits() -> None:
    search = config_of(small("beam")).search
    assert (search.min_length, search.max_length, search.beam_size) == (3, 3, BEAM)
    assert config_of(small("greedy")).search.beam_size == 1
