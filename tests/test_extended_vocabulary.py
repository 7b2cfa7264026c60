"""The pointer-generator, compared with loops over its definition: padding, batches, steps, kernels, search, training.

B batch, K steps, S source positions, T target positions, V vocabulary.
"""

import time
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    ATTENTION_TYPES,
    SEEDS,
    assert_tensors_close,
    extract_unpadded_row,
    few_examples,
    make_config,
    make_vocabularies,
    randomize_parameters,
)
from torch import Tensor
from trained_runs import train_to_end, write_pairs

from pellucid.config.settings import Config
from pellucid.data.batches import Batch, collate
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import BY_POSITION, NEVER_COPIED, encode_extended, target_ids_of_source_ids
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL, UNK
from pellucid.decoding.lexicon import load_lexicon
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.transducer import Transducer, require_transducer
from pellucid.errors import ConfigError, InputError
from pellucid.kernels.dispatch import disable_kernels, use_kernel
from pellucid.model.memory import Memory, NetworkOutput
from pellucid.model.network import EncoderDecoder, require_encoder_decoder, shift_right
from pellucid.model.pointer_generator import mix_distributions
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_network
from pellucid.training.training_data import TrainingFiles

VOCABULARIES = make_vocabularies("abcde", "abxyz", ["t"])
V = NUM_SPECIAL + 5
ATTENTION_SCORES = [score for score in ATTENTION_TYPES if score != "none"]
EXAMPLES = st.lists(
    st.tuples(st.text("abcdeQR", min_size=1, max_size=6), st.text("abxyzcQR", min_size=1, max_size=5)),
    min_size=1,
    max_size=4,
)


def build_copy_config(score: str = "additive", cell: str = "gru") -> Config:
    sizes = {"hidden_size": 2, "embedding_size": 3}
    decoder = {"cell": cell, "hidden_size": 4, "embedding_size": 3, "pointer_generator": True}
    data = {"features_column": "3"}
    return make_config({"encoder": sizes, "decoder": decoder, "attention": {"type": score, "size": 3}, "data": data})


def build_copy_network(config: Config, seed: int, dtype: torch.dtype = torch.float64) -> EncoderDecoder:
    network = require_encoder_decoder(build_network(config, VOCABULARIES)).to(dtype).eval()
    randomize_parameters(network, seed)
    return network


def build_batch(pairs: list[tuple[str, str]], tag: str = "") -> Batch:
    examples = [Example(source, target, tag) for source, target in pairs]
    encoded = encode_extended(examples, build_tokenizers(build_copy_config().data), VOCABULARIES)
    return collate(encoded, torch.arange(len(pairs)).numpy())


def run_network(network: EncoderDecoder, batch: Batch) -> NetworkOutput:
    output: NetworkOutput = network(batch)
    return output


@few_examples
@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.booleans())
def test_the_mixture_equals_its_definition_and_sums_to_one(
    seed: int, rows: int, positions: int, has_uncopied: bool
) -> None:
    """The loop computes p_gen P_vocab(w) + (1 − p_gen) Σ α_i; the weight of positions never copied goes to P_vocab."""
    generator = torch.Generator().manual_seed(seed)
    logits, weights, gate = (
        torch.randn(1, rows, size, generator=generator, dtype=torch.float64) for size in (V, positions, 1)
    )
    weights = weights.softmax(dim=2)
    copy_ids = torch.randint(V + positions, (1, positions), generator=generator)
    if has_uncopied:
        copy_ids[0, 0] = NEVER_COPIED
    actual = mix_distributions(logits, weights, gate, copy_ids).exp()
    for row in range(rows):
        generated, p_gen = logits[0, row].softmax(dim=0), torch.sigmoid(gate[0, row, 0])
        copied = [0.0] * (V + positions)
        copied_mass = 1.0
        for position, position_id in enumerate(copy_ids[0].tolist()):
            if position_id == NEVER_COPIED:
                copied_mass -= float(weights[0, row, position])
            else:
                copied[position_id] += float((1 - p_gen) * weights[0, row, position])
        for symbol in range(V + positions):
            gate_share = p_gen if copied_mass == 1.0 else 1 - (1 - p_gen) * copied_mass
            expected = (float(gate_share * generated[symbol]) if symbol < V else 0.0) + copied[symbol]
            assert float(actual[0, row, symbol]) == pytest.approx(expected, abs=1e-12)
    assert_tensors_close(actual.sum(dim=2), torch.ones(1, rows, dtype=torch.float64))


def test_symbols_have_their_target_id_or_their_first_position() -> None:
    """Symbols are known on both sides, on one side, or on none; tags and padding are never copied."""
    expected = [NEVER_COPIED] * 4 + [4, 5] + [BY_POSITION] * 3 + [NEVER_COPIED] * 5
    assert target_ids_of_source_ids(VOCABULARIES) == expected
    batch = build_batch([("acxcQRQ", "QcaxR?"), ("a", "b")], tag="t")
    network = build_copy_network(build_copy_config(), 1)
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    copy_ids = network.decoder.build_cache(memory).copy_ids
    assert copy_ids is not None
    assert copy_ids.tolist() == [
        [NEVER_COPIED, 4, V + 2, 6, V + 2, V + 5, V + 6, V + 5],
        [NEVER_COPIED, 4] + [NEVER_COPIED] * 6,
    ]
    assert batch.target.tolist()[0] == [V + 5, V + 2, 4, 6, V + 6, UNK, EOS]


@pytest.mark.slow
@few_examples
@given(EXAMPLES, st.sampled_from(ATTENTION_SCORES), st.sampled_from(["gru", "lstm"]), SEEDS)
def test_probabilities_sum_to_one_alone_and_in_a_batch(
    pairs: list[tuple[str, str]], score: str, cell: str, seed: int
) -> None:
    network, batch = build_copy_network(build_copy_config(score, cell), seed), build_batch(pairs)
    batched = run_network(network, batch)
    assert_tensors_close(batched.logits.exp().sum(dim=2), torch.ones(batch.target.shape, dtype=torch.float64))
    for row, (source, target) in enumerate(pairs):
        single = run_network(network, extract_unpadded_row(batch, row))
        assert_tensors_close(single.logits[0], batched.logits[row, : len(target) + 1, : V + len(source)])
        assert (batched.logits[row, :, V + len(source) :] == -torch.inf).all()


def decode_step_by_step(network: EncoderDecoder, batch: Batch, hypotheses: int = 1) -> Tensor:
    """Return log-probabilities computed step by step, for several equal hypotheses per source."""
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
    rows = torch.arange(len(batch.source)).repeat_interleave(hypotheses)
    state, logits = state.index_select(rows), []
    for symbols in shift_right(batch.target).unbind(dim=1):
        step = network.decoder.step(symbols[rows], state, cache)
        state = step.state
        logits.append(step.logits)
    return torch.stack(logits, dim=1)


@pytest.mark.slow
@few_examples
@given(EXAMPLES, st.sampled_from(ATTENTION_SCORES), st.sampled_from(["gru", "lstm"]), SEEDS, st.integers(1, 3))
def test_steps_equal_unrolled_steps(
    pairs: list[tuple[str, str]], score: str, cell: str, seed: int, hypotheses: int
) -> None:
    network, batch = build_copy_network(build_copy_config(score, cell), seed), build_batch(pairs)
    unrolled = run_network(network, batch).logits
    assert_tensors_close(decode_step_by_step(network, batch, hypotheses), unrolled.repeat_interleave(hypotheses, dim=0))


@pytest.mark.parametrize("score", ["additive", "location", "general"])
def test_kernels_equal_pytorch(score: str) -> None:
    batch = build_batch([("acxcQRQ", "QcaxR?"), ("a", "b"), ("QQe", "Qex")])
    network = build_copy_network(build_copy_config(score), 3, torch.float32)
    parameters = list(network.parameters())
    with disable_kernels():
        expected = run_network(network, batch).logits
        expected_gradients = torch.autograd.grad(
            expected.gather(2, batch.target[:, :, None]).sum(), parameters, allow_unused=True
        )
    actual = run_network(network, batch).logits
    gradients = torch.autograd.grad(actual.gather(2, batch.target[:, :, None]).sum(), parameters, allow_unused=True)
    assert_tensors_close(actual, expected, 1e-5)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert one is not None and other is not None and bool(one.any())
        assert_tensors_close(one, other, 1e-4)
    with torch.no_grad():
        assert_tensors_close(
            decode_step_by_step(network, batch, 2), expected.detach().repeat_interleave(2, dim=0), 1e-5
        )


def test_a_search_that_drops_sources_keeps_their_copy_ids() -> None:
    """Rows are selected from the caches of a kernel and of PyTorch, also before a step with forced weights."""
    batch = build_batch([("acxcQRQ", "Qa"), ("aQ", "bb"), ("QQe", "Qe")])
    network = build_copy_network(build_copy_config(), 3, torch.float32)
    with torch.no_grad():
        memory: Memory = network.encoder(batch.source, batch.source_lengths)
        state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
        assert cache.kernel is not None and not use_kernel(network.decoder.request("greedy", cache))
        symbols, rows = torch.full((3,), BOS), torch.tensor([2, 0])
        full = network.decoder.step(symbols, state, cache)
        for attention_cache in (cache, cache.materialize()):
            selected = network.decoder.step(symbols[rows], state.index_select(rows), attention_cache.index_select(rows))
            assert_tensors_close(selected.logits, full.logits[rows], 1e-5)
        forced = network.decoder.step(
            symbols[rows], state.index_select(rows), cache.index_select(rows), selected.attention.weights
        )
        assert_tensors_close(forced.logits, full.logits[rows], 1e-5)


def test_copied_symbols_are_fed_back_as_unknown() -> None:
    network, batch = build_copy_network(build_copy_config(), 1), build_batch([("acQ", "Qab")])
    assert int(batch.target[0, 0]) == V + 2
    other = batch._replace(target=torch.tensor([[UNK, 4, 5, EOS]]))
    assert_tensors_close(run_network(network, batch).logits, run_network(network, other).logits)


def test_copying_needs_attention() -> None:
    with pytest.raises(
        ConfigError,
        match=r"decoder\.pointer_generator = true needs attention weights, which attention\.type = 'none' does not",
    ):
        build_copy_config("none")


def make_rare_pairs(count: int, seed: int, letters: str) -> list[Example]:
    """Return pairs of equal texts: letters, and one character that occurs once or twice in all texts."""
    generator = Random(seed)
    texts = ["".join(generator.choices(letters, k=4)) + chr(0x4E00 + generator.randrange(4000)) for _ in range(count)]
    return [Example(text, text) for text in texts]


@pytest.fixture(scope="module")
def pointer_model(tmp_path_factory: pytest.TempPathFactory) -> Transducer:
    """Train a model on pairs whose last characters are too rare for the vocabulary."""
    folder = tmp_path_factory.mktemp("copying")
    files = TrainingFiles(
        write_pairs(folder / "train.tsv", make_rare_pairs(300, 1, "abc")),
        write_pairs(folder / "dev.tsv", make_rare_pairs(40, 2, "abc")),
    )
    training = {"epochs": 14, "learning_rate": 0.01, "eval_interval": 7, "metric": "loss", "label_smoothing": 0.1}
    config = make_config({"decoder": {"pointer_generator": True}, "training": training, "data": {"min_count": 5}})
    train_to_end(files, folder / "run", config)
    return require_transducer(load(folder / "run"), "the test")


def test_unseen_symbols_are_copied_with_their_text(pointer_model: Transducer) -> None:
    model = pointer_model
    traces = model.predict(["abca𝒳", "ccbb\u4dff"])
    assert len(model.vocabularies.target.symbols) == len(model.vocabularies.source.symbols) == 3
    assert [trace.output for trace in traces] == ["abca𝒳", "ccbb\u4dff"]
    assert traces[0].target == ("a", "b", "c", "a", "𝒳", "⟨end⟩") and traces[0].unknown == (4,)
    assert model.with_beam(3).predict(["abca𝒳"])[0].output == "abca𝒳"
    single, batched = model.predict(["a𝒳"])[0], model.predict(["abcabcabca𝒳", "a𝒳"])[1]
    assert single.top_symbols == batched.top_symbols


def test_a_prefix_may_contain_copied_symbols(pointer_model: Transducer, tmp_path: Path) -> None:
    sources = ["ab𝒳c", "c\u4dffa", "", "abc"]
    traces = pointer_model.predict(sources, prefixes=["𝒳", "a\u4dff\u4dff", "𝒳", "c"])
    assert [trace.output[:3] for trace in traces][1] == "a\u4dff\u4dff" and traces[0].output.startswith("𝒳")
    assert traces[0].target[0] == "𝒳" and traces[0].forced == (0,) and traces[1].forced == (0, 1, 2)
    assert traces[2].output == "" and traces[3].output[0] == "c"
    assert pointer_model.with_beam(3).predict(sources[:1], prefixes=["𝒳"])[0].output.startswith("𝒳")
    samples = pointer_model.sample_examples([Example(sources[0], "")], SamplingConfig(samples=3), prefixes=["b𝒳"])
    assert all(trace.output.startswith("b𝒳") for trace in samples[0])
    with pytest.raises(InputError, match="prefix of source 1: the model never writes the symbol '𝒴'"):
        pointer_model.predict(sources[:1], prefixes=["𝒴"])
    with pytest.raises(InputError, match="can only copy is allowed in a prefix only"):
        pointer_model.with_options(DecodingOptions(required=("𝒳",))).predict(sources[:1])
    lexicon_file = write_pairs(tmp_path / "known.tsv", [Example("ab𝒳c", "𝒳yes"), Example("ab𝒳c", "no")])
    constrained = pointer_model.with_options(
        DecodingOptions(prefix="𝒳", lexicon=load_lexicon(lexicon_file, pointer_model.config.data))
    )
    assert constrained.predict(sources[:1])[0].output == "𝒳yes"


def test_a_long_source_takes_linear_time() -> None:
    text = "".join(chr(0x4E00 + number) for number in range(20_000))
    start = time.process_time()
    encoded = encode_extended([Example(text, text)], build_tokenizers(build_copy_config().data), VOCABULARIES)
    assert encoded.target.values[:3].tolist() == [V, V + 1, V + 2] and time.process_time() - start < 5.0
