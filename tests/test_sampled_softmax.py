"""Sampled softmax: its probabilities, its loss beside a plain reference, its expected gradient, and its updates.

V vocabulary, C sampled symbols.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import SEEDS, assert_tensors_close, few_examples, make_config, make_network, make_vocabularies
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.batches import Batch, collate
from pellucid.data.examples import read_examples
from pellucid.data.vocabulary import NUM_SPECIAL, PAD
from pellucid.errors import ConfigError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.losses import coverage_loss, cross_entropy, sampled_cross_entropy
from pellucid.model.memory import DecoderState, NetworkOutput
from pellucid.model.network import EncoderDecoder, require_encoder_decoder
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_network, get_task
from pellucid.training.events import ValidationCompleted
from pellucid.training.gradients import GradientComputer
from pellucid.training.optimizer import Adam
from pellucid.training.sampled_softmax import SymbolSampler, inclusion_probabilities
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles

WORDS = 40


def sampled_config(num_sampled: int, training: dict[str, Any] | None = None, **decoder: bool | int | str) -> Config:
    """Return a configuration with a sampled softmax of this expected number of symbols."""
    sizes: dict[str, Any] = {"hidden_size": 4, "embedding_size": 3, "dropout": 0.0}
    return make_config(
        {
            "encoder": sizes,
            "decoder": {**sizes, **decoder},
            "training": {"sampled_softmax": num_sampled, **(training or {})},
        }
    )


@given(st.integers(NUM_SPECIAL + 1, 3000), st.data())
def test_the_expected_number_of_sampled_symbols_is_the_setting(vocabulary_size: int, data: st.DataObject) -> None:
    num_sampled = data.draw(st.integers(NUM_SPECIAL + 1, vocabulary_size))
    inclusion = inclusion_probabilities(vocabulary_size, num_sampled)
    assert float(inclusion.sum()) == pytest.approx(num_sampled)
    assert bool((inclusion[:NUM_SPECIAL] == 1).all())
    assert bool((inclusion <= 1).all()) and bool((inclusion[NUM_SPECIAL:].diff() <= 0).all())
    rare = inclusion[NUM_SPECIAL:][inclusion[NUM_SPECIAL:] < 1]
    weights = torch.log1p(1 / (torch.arange(vocabulary_size)[-len(rare) :] + 1.0)) if len(rare) else rare
    assert_tensors_close((rare / weights).float(), (rare / weights).mean().expand(len(rare)).float(), 1e-5)


def test_samples_have_their_probabilities_and_are_sorted() -> None:
    torch.manual_seed(1)
    sampler, counts, draws = SymbolSampler(200, 60), torch.zeros(200), 4000
    for _ in range(draws):
        symbols = sampler.sample()
        assert bool((symbols.diff() > 0).all())
        counts[symbols] += 1
    deviation = (sampler.inclusion * (1 - sampler.inclusion) / draws).sqrt()
    assert bool(((counts / draws - sampler.inclusion).abs() <= 4.5 * deviation).all())


def logits_output(logits: Tensor, target: Tensor, symbols: Tensor) -> NetworkOutput:
    """Return the output of a network with these logits of all symbols, of which a sample is computed."""
    target_logits = logits.gather(2, target[:, :, None])[:, :, 0]
    return NetworkOutput(
        logits[:, :, symbols], logits[:, :, :0], DecoderState(logits[:, :1, :0]), target_logits=target_logits
    )


def reference_loss(
    logits: Tensor, target: Tensor, symbols: Tensor, log_inclusion: Tensor, label_smoothing: float
) -> Tensor:
    """Return the loss of a sampled softmax by loops over positions and symbols."""
    scores = logits - log_inclusion
    weights = {k: 1 / math.exp(float(log_inclusion[k])) for k in symbols.tolist()}
    losses: list[Tensor] = []
    for row in range(target.shape[0]):
        for position in range(target.shape[1]):
            gold, at = int(target[row, position]), scores[row, position]
            if gold == PAD:
                continue

            def loss_of(symbol: int, at: Tensor = at) -> Tensor:
                candidates = sorted({*symbols.tolist(), symbol})
                return -at[candidates].log_softmax(dim=0)[candidates.index(symbol)]

            uniform = sum(weights[k] * loss_of(k) for k in weights) / sum(weights.values())
            losses.append((1 - label_smoothing) * loss_of(gold) + label_smoothing * uniform)
    return torch.stack(losses).mean()


@few_examples
@given(SEEDS, st.integers(NUM_SPECIAL, 12), st.sampled_from([0.0, 0.1, 0.5]))
def test_the_loss_and_its_gradient_equal_a_plain_reference(seed: int, num_sampled: int, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(3, 4, 12, generator=generator, dtype=torch.float64)).requires_grad_()
    target = torch.randint(12, (3, 4), generator=generator)
    target[0, 0] = 5
    torch.manual_seed(seed)
    sampler = SymbolSampler(12, num_sampled)
    symbols, log_inclusion = sampler.sample(), sampler.inclusion.log()
    loss = sampled_cross_entropy(logits_output(logits, target, symbols), target, symbols, log_inclusion, smoothing)
    expected = reference_loss(logits, target, symbols, log_inclusion, smoothing)
    assert_tensors_close(loss, expected)
    assert_tensors_close(torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0])


@few_examples
@given(SEEDS, st.sampled_from([0.0, 0.1, 0.5]))
def test_with_all_symbols_sampled_the_loss_is_the_full_cross_entropy(seed: int, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 4, 12, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.randint(12, (3, 4), generator=generator)
    target[0, 0] = 5
    sampler = SymbolSampler(12, 12)
    symbols = sampler.sample()
    assert symbols.tolist() == list(range(12)) and not sampler.log_inclusion.any()
    loss = sampled_cross_entropy(
        logits_output(logits, target, symbols), target, symbols, sampler.inclusion.log(), smoothing
    )
    expected = cross_entropy(logits, target, smoothing)
    assert_tensors_close(loss, expected)
    assert_tensors_close(torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0])


def mean_gradient(logits: Tensor, target: Tensor, num_sampled: int, draws: int) -> Tensor:
    """Return the mean gradient of the logits over many samples of symbols."""
    sampler, total = SymbolSampler(logits.shape[2], num_sampled), torch.zeros_like(logits)
    for _ in range(draws):
        symbols = sampler.sample()
        output = logits_output(logits, target, symbols)
        loss = sampled_cross_entropy(output, target, symbols, sampler.inclusion.log(), 0.0)
        total += torch.autograd.grad(loss, logits)[0]
    return total / draws


def test_the_expected_gradient_approaches_that_of_the_full_softmax() -> None:
    torch.manual_seed(2)
    target = torch.randint(1, WORDS, (64, 1))
    logits = torch.randn(64, 1, WORDS, dtype=torch.float64).requires_grad_()
    full = torch.autograd.grad(cross_entropy(logits, target, 0.0), logits)[0]
    errors = [
        float((mean_gradient(logits, target, number, 600) - full).norm() / full.norm()) for number in (10, 20, 36)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05 and errors[0] < 0.4


def test_the_expected_gradient_of_the_true_distribution_is_zero() -> None:
    """Over samples and targets of the model's own distribution, which the gradient of the full softmax leaves too."""
    torch.manual_seed(3)
    logits = (2 * torch.randn(WORDS, dtype=torch.float64)).sort(descending=True).values
    logits[PAD] = -torch.inf
    probabilities = logits.softmax(dim=0)
    target = torch.multinomial(probabilities, 200_000, replacement=True)[None]
    expected = torch.zeros(WORDS, dtype=torch.float64)
    sampler, draws = SymbolSampler(WORDS, 12), 200
    for chunk in target.chunk(draws, dim=1):
        leaf = logits.clone().requires_grad_()
        symbols = sampler.sample()
        output = logits_output(leaf.expand(1, chunk.shape[1], WORDS), chunk, symbols[1:])
        loss = sampled_cross_entropy(output, chunk, symbols[1:], sampler.inclusion.log(), 0.0)
        expected += torch.autograd.grad(loss, leaf)[0] / draws
    assert float(expected.abs().max()) < 0.02
    # Without the correction by log Q, frequent symbols, which are sampled more often, would be pushed down.
    assert float(expected[4:].abs().sum()) < 0.1


def random_batch(seed: int, rows: int = 3) -> Batch:
    """Return a batch of random sources and targets, with padding."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (rows,), generator=generator)
    lengths[0] = 5
    source, target = (torch.randint(NUM_SPECIAL, 9, (rows, 5), generator=generator) for _ in range(2))
    target = target.masked_fill(torch.arange(5) >= lengths[:, None], PAD)
    return Batch(source, torch.full((rows,), 5), target, lengths)


def compute_reference(network: EncoderDecoder, config: Config, batch: Batch, seed: int) -> tuple[Tensor, list[Tensor]]:
    """Return loss and gradients by the logits of all symbols, of which the loss reads a sample."""
    torch.manual_seed(seed)
    sampler = SymbolSampler(network.vocabulary_size, config.training.sampled_softmax)
    symbols, unrolled = sampler.sample(), network(batch)
    output = logits_output(unrolled.logits, batch.target, symbols)
    log_inclusion, smoothing = sampler.log_inclusion, config.training.label_smoothing
    loss = sampled_cross_entropy(output, batch.target, symbols, log_inclusion, smoothing)
    if config.training.coverage_loss:
        loss = loss + config.training.coverage_loss * coverage_loss(unrolled.weights, batch.target)
    return loss, list(torch.autograd.grad(loss, [each for each in network.parameters() if each.requires_grad]))


DECODERS: list[dict[str, Any]] = [
    {},
    {"tie_embeddings": True},
    {"tie_embeddings": True, "embedding": "frozen"},
    {"embedding": "one-hot"},
    {"embedding": "none"},
    {"order": "step-then-attend", "input_feeding": True},
    {"cell": "lstm", "num_layers": 2, "output_layer_inputs": "state"},
]


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize("training", [{}, {"label_smoothing": 0.0}, {"coverage_loss": 0.5}], ids=str)
@pytest.mark.parametrize("context", [nullcontext, disable_kernels])
def test_loss_and_gradients_equal_those_by_the_logits_of_all_symbols(
    decoder: dict[str, Any], training: dict[str, Any], context: Callable[[], AbstractContextManager[None]]
) -> None:
    config = sampled_config(6, training, **decoder)
    network, batch = make_network(config, 4, torch.float32).train(), random_batch(1)
    computer = GradientComputer(network, config)
    with context():
        expected, expected_gradients = compute_reference(network, config, batch, 5)
        torch.manual_seed(5)
        loss, gradients = computer.compute(batch)
        torch.manual_seed(5)
        with_graph = computer.loss(batch)
        dense_gradients = torch.autograd.grad(with_graph, computer.parameters)
    assert_tensors_close(loss, expected.detach(), 1e-5)
    assert_tensors_close(with_graph, expected, 1e-5)
    for one, two, three in zip(gradients, dense_gradients, expected_gradients, strict=True):
        assert one is not None
        assert_tensors_close(one.to_dense() if one.is_sparse else one, three, 1e-5)
        assert_tensors_close(two, three, 1e-5)
    names = [name for name, each in network.named_parameters() if each.requires_grad]
    sparse = {name for name, each in zip(names, gradients, strict=True) if each is not None and each.is_sparse}
    expected_names = {f"decoder.{name}" for name in network.decoder.vocabulary_tensors()}
    assert sparse == expected_names.intersection(names) and sparse


@pytest.mark.parametrize("decoder", [{}, {"tie_embeddings": True}], ids=str)
def test_with_all_symbols_sampled_an_update_equals_that_of_the_full_softmax(decoder: dict[str, Any]) -> None:
    sampled, full = sampled_config(9, **decoder), sampled_config(0, **decoder)
    batch, results = random_batch(2), []
    for config in (sampled, full):
        network = make_network(config, 4, torch.float32).train()
        loss, gradients = GradientComputer(network, config).compute(batch)
        optimizer = Adam(network)
        optimizer.update(gradients, 0.01, clip_value=0.2, clip_norm=0.5)
        results.append((loss, [parameter.detach() for parameter in network.parameters()]))
    assert_tensors_close(results[0][0], results[1][0], 1e-5)
    for one, two in zip(results[0][1], results[1][1], strict=True):
        assert_tensors_close(one, two, 1e-4)


def test_the_sample_depends_on_the_seed_and_not_on_the_batch() -> None:
    samples = []
    for seed, batch in ((1, random_batch(1)), (1, random_batch(2, rows=7)), (2, random_batch(1))):
        torch.manual_seed(seed)
        reduced = SymbolSampler(60, 20).reduce_batch(batch)
        assert torch.equal(reduced.vocabulary[reduced.batch.target], batch.target)
        assert reduced.vocabulary[:NUM_SPECIAL].tolist() == list(range(NUM_SPECIAL))
        samples.append(reduced.vocabulary[reduced.symbols].tolist())
    assert samples[0] == samples[1] != samples[2]


def test_an_update_changes_only_the_rows_of_the_batch_and_the_sample() -> None:
    vocabularies = make_vocabularies(target="".join(map(chr, range(0x4E00, 0x4E00 + 200))))
    config = sampled_config(20, tie_embeddings=True)
    network = require_encoder_decoder(build_network(config, vocabularies)).train()
    optimizer, batch = Adam(network), random_batch(3)
    for update in range(3):
        torch.manual_seed(update)
        reduced = SymbolSampler(204, 20).reduce_batch(batch)
        before = network.decoder.table.weight.detach().clone()
        torch.manual_seed(update)
        gradients = GradientComputer(network, config).compute(batch).gradients
        optimizer.update(gradients, 0.01)
        changed = (network.decoder.table.weight.detach() != before).any(dim=1).nonzero()[:, 0]
        assert set(changed.tolist()) <= set(reduced.vocabulary.tolist()) and len(changed) > 10


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({"task": "tag"}, "task = 'transduce'"),
        ({"task": "classify"}, "task = 'transduce'"),
        ({"task": "point"}, "task = 'transduce'"),
        ({"decoder": {"pointer_generator": True}}, "decoder.pointer_generator = false"),
        ({"training": {"rdrop_alpha": 1.0}}, "training.rdrop_alpha = 0"),
        ({"training": {"scheduled_sampling": "linear"}}, "training.scheduled_sampling = 'none'"),
        ({"device": "cuda", "cuda_graphs": True}, "cuda_graphs = false"),
    ],
    ids=str,
)
def test_settings_that_need_all_symbols_are_refused(settings: dict[str, Any], needed: str) -> None:
    training = {**settings.get("training", {}), "sampled_softmax": 100}
    with pytest.raises(ConfigError) as caught:
        make_config({**settings, "training": training})
    assert f"training.sampled_softmax = 100 needs {needed}" in str(caught.value)


@pytest.mark.slow
def test_a_training_with_sampled_words_learns_and_validates_with_the_full_softmax(tmp_path: Path) -> None:
    """Words of 100 are translated one by one; the validation loss is the cross-entropy over all words."""
    words = [f"w{number}" for number in range(100)]
    generator = np.random.default_rng(1)
    lines = [" ".join(generator.choice(words, 2)) for _ in range(650)]
    pairs = [f"{line}\t{line.replace('w', 'v')}\n" for line in lines]
    (tmp_path / "train.tsv").write_text("".join(pairs[:600]), "utf-8")
    (tmp_path / "dev.tsv").write_text("".join(pairs[600:]), "utf-8")
    config = make_config(
        {
            "data": {"source_symbols": "words", "target_symbols": "words"},
            "encoder": {"hidden_size": 32, "embedding_size": 32},
            "decoder": {"hidden_size": 64, "embedding_size": 32, "tie_embeddings": True},
            "training": {
                **{"epochs": 12, "batch_size": 16, "sampled_softmax": 24, "pair_ngram": False, "label_smoothing": 0.0},
                **{"learning_rate": 0.01, "snapshots": False, "eval_interval": 12.0},
            },
        }
    )
    files = TrainingFiles(tmp_path / "train.tsv", tmp_path / "dev.tsv")
    validation = [e for e in train_run(files, tmp_path / "run", config) if isinstance(e, ValidationCompleted)][-1]
    predictor = load(tmp_path / "run")
    network = require_encoder_decoder(predictor.network)
    encoded = get_task("transduce").encode_examples(
        read_examples(tmp_path / "dev.tsv", config.data).examples, predictor.tokenizers, predictor.vocabularies, config
    )
    batch = collate(encoded, np.arange(50))
    with torch.no_grad():
        loss = cross_entropy(network(batch).logits, batch.target, 0.0)
    assert validation.metrics["loss"] == pytest.approx(float(loss), rel=1e-4)
    assert validation.metrics["loss"] < 1.0 and validation.metrics["exact_match"] > 50
