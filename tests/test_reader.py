import pytest
import torch
from hypothesis import given
from msgspec.structs import replace
from small_networks import (
    SEEDS,
    assert_tensors_close,
    batches,
    configs,
    extract_unpadded_row,
    few_examples,
    make_config,
    make_vocabularies,
    randomize_padding,
    randomize_parameters,
)
from task_cases import CLASSIFICATION_TASKS

from pellucid.config.settings import Config, Task
from pellucid.config.toml import validate_config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.errors import InputError
from pellucid.model.network import EncoderDecoder, Network, require_seq2seq
from pellucid.model.reader import Classifier, EncoderOnlyModel, Pointer, Tagger
from pellucid.tasks.registry import build_network


def config_of_task(config: Config, task: Task) -> Config:
    data = replace(
        config.data, aligned=True, target_symbols={"classify": "whole", "point": "position"}.get(task, "words")
    )
    score = config.attention.type
    attention = replace(
        config.attention, type="additive" if task == "point" and score in ("none", "monotonic") else score
    )
    decoder = replace(config.decoder, num_hops=3)
    return validate_config(replace(config, task=task, data=data, attention=attention, decoder=decoder))


def reader_of(config: Config, seed: int) -> EncoderOnlyModel:
    network = build_network(config, make_vocabularies()).double().eval()
    randomize_parameters(network, seed)
    assert isinstance(network, EncoderOnlyModel)
    return network


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
@few_examples
@given(configs(), batches(), SEEDS)
def test_a_batch_of_one_is_the_same_in_a_batch_of_many(task: Task, config: Config, batch: Batch, seed: int) -> None:
    network = reader_of(config_of_task(config, task), seed)
    many = network(batch)
    strewn = batch._replace(source=randomize_padding(batch.source, batch.source_lengths, seed, 3))
    for row in range(len(batch.source)):
        one, other = network(extract_unpadded_row(batch, row)), network(strewn)
        answers = one.logits.shape[1]
        width = one.logits.shape[2]
        assert answers == (int(batch.source_lengths[row]) if task == "tag" else 1)
        for output in (many, other):
            assert_tensors_close(output.logits[row : row + 1, :answers, :width], one.logits)
            assert (output.logits[row, :answers, width:] == -torch.inf).all()


@few_examples
@given(configs(), batches(), SEEDS)
def test_a_pointer_gives_a_distribution_over_positions(config: Config, batch: Batch, seed: int) -> None:
    output = reader_of(config_of_task(config, "point"), seed)(batch)
    chances = output.logits.exp()[:, 0]
    assert_tensors_close(chances[:, NUM_SPECIAL:], output.weights[:, 0])
    assert_tensors_close(chances.sum(dim=1), torch.ones(len(chances), dtype=torch.float64))
    assert not chances[:, :NUM_SPECIAL].any()


@few_examples
@given(configs(), batches(), SEEDS)
def test_a_classifier_returns_the_weights_of_its_last_hop(config: Config, batch: Batch, seed: int) -> None:
    network = reader_of(config_of_task(config, "classify"), seed)
    output = network(batch)
    assert output.hop_weights is not None and output.hop_weights.shape[1] == 3
    assert_tensors_close(output.weights[:, 0], output.hop_weights[:, -1])


def test_each_task_has_its_network() -> None:
    kinds: dict[Task, type[EncoderOnlyModel]] = {"tag": Tagger, "classify": Classifier, "point": Pointer}
    for task, kind in kinds.items():
        network = build_network(config_of_task(make_config({}), task), make_vocabularies())
        assert isinstance(network, kind) and network.vocabulary_size == NUM_SPECIAL + 5


def test_other_networks_are_no_encoder_decoder() -> None:
    for task in CLASSIFICATION_TASKS:
        network = reader_of(config_of_task(make_config({}), task), 1)
        assert isinstance(network, Network) and not isinstance(network, EncoderDecoder)
        assert hasattr(network, "decoder") == (task == "classify")
        with pytest.raises(InputError, match=rf"symbol by symbol, which a {type(network).__name__} has not"):
            require_seq2seq(network)
