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

from pellucid.config.settings import Config, TaskName
from pellucid.config.toml import validate_config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import NUM_SPECIAL, Vocabularies
from pellucid.errors import InputError
from pellucid.model.labeling_networks import Classifier, LabelingNetwork, Pointer, Tagger, TaggingClassifier
from pellucid.model.network import EncoderDecoder, Network, require_encoder_decoder
from pellucid.tasks.registry import build_network


def make_task_config(config: Config, task: TaskName) -> Config:
    data = replace(
        config.data,
        equal_length=True,
        class_first=task == "tag-and-classify",
        target_symbols={"classify": "whole", "point": "position"}.get(task, "words"),
    )
    score = config.attention.type
    attention = replace(
        config.attention,
        type="additive" if task in ("point", "tag-and-classify") and score in ("none", "monotonic") else score,
    )
    decoder = replace(config.decoder, num_hops=3)
    return validate_config(replace(config, task=task, data=data, attention=attention, decoder=decoder))


def vocabularies_of_task(task: TaskName) -> Vocabularies:
    """Return vocabularies whose five target symbols are three classes and four tags, of which two are both."""
    vocabularies = make_vocabularies()
    symbols = vocabularies.target.symbols
    labels = {"classes": symbols[:3], "tags": symbols[1:]} if task == "tag-and-classify" else {}
    return replace(vocabularies, **labels)


def build_reader(config: Config, seed: int) -> LabelingNetwork:
    network = build_network(config, vocabularies_of_task(config.task)).double().eval()
    randomize_parameters(network, seed)
    assert isinstance(network, LabelingNetwork)
    return network


def assert_logits_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that logits are equal, also those that are −∞."""
    assert torch.equal(actual == -torch.inf, expected == -torch.inf)
    assert_tensors_close(actual.masked_fill(actual == -torch.inf, 0), expected.masked_fill(expected == -torch.inf, 0))


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
@few_examples
@given(configs(), batches(), SEEDS)
def test_outputs_are_independent_of_batch_and_padding(task: TaskName, config: Config, batch: Batch, seed: int) -> None:
    network = build_reader(make_task_config(config, task), seed)
    many = network(batch)
    padded_batch = batch._replace(source=randomize_padding(batch.source, batch.source_lengths, seed, 3))
    for row in range(len(batch.source)):
        one, other = network(extract_unpadded_row(batch, row)), network(padded_batch)
        steps = one.logits.shape[1]
        width = one.logits.shape[2]
        length = int(batch.source_lengths[row])
        assert steps == {"tag": length, "tag-and-classify": 1 + length}.get(task, 1)
        for output in (many, other):
            assert_logits_close(output.logits[row : row + 1, :steps, :width], one.logits)
            assert (output.logits[row, :steps, width:] == -torch.inf).all()


@few_examples
@given(configs(), batches(), SEEDS)
def test_a_pointer_gives_a_distribution_over_positions(config: Config, batch: Batch, seed: int) -> None:
    output = build_reader(make_task_config(config, "point"), seed)(batch)
    probabilities = output.logits.exp()[:, 0]
    assert_tensors_close(probabilities[:, NUM_SPECIAL:], output.weights[:, 0])
    assert_tensors_close(probabilities.sum(dim=1), torch.ones(len(probabilities), dtype=torch.float64))
    assert not probabilities[:, :NUM_SPECIAL].any()


@few_examples
@given(configs(), batches(), SEEDS)
def test_a_classifier_returns_the_weights_of_its_last_hop(config: Config, batch: Batch, seed: int) -> None:
    network = build_reader(make_task_config(config, "classify"), seed)
    output = network(batch)
    assert output.hop_weights is not None and output.hop_weights.shape[1] == 3
    assert_tensors_close(output.weights[:, 0], output.hop_weights[:, -1])


def test_each_task_has_its_network() -> None:
    kinds: dict[TaskName, type[LabelingNetwork]] = {
        **{"tag": Tagger, "classify": Classifier, "point": Pointer},
        "tag-and-classify": TaggingClassifier,
    }
    for task, kind in kinds.items():
        network = build_network(make_task_config(make_config({}), task), vocabularies_of_task(task))
        assert isinstance(network, kind) and network.vocabulary_size == NUM_SPECIAL + 5


def test_encoder_only_networks_are_no_encoder_decoder() -> None:
    for task in CLASSIFICATION_TASKS:
        network = build_reader(make_task_config(make_config({}), task), 1)
        assert isinstance(network, Network) and not isinstance(network, EncoderDecoder)
        assert hasattr(network, "decoder") == (task == "classify")
        with pytest.raises(InputError, match=rf"symbol by symbol, which a {type(network).__name__} does not produce"):
            require_encoder_decoder(network)
