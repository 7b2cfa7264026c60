"""Copying, against loops over its definition: padding, batches, steps, kernels, search and training.

B batch, K steps, S source positions, T target positions, V vocabulary.
"""

from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import SCORES, SEEDS, alone, config_of, few, near, shake, vocabularies
from torch import Tensor
from trained_runs import train_to_end, write_pairs

from pellucid.config.settings import Config
from pellucid.data.batches import Batch, collate
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_extended
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL, UNK
from pellucid.decoding.constraints import load_lexicon
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling import SamplingConfig
from pellucid.decoding.transducer import Transducer, require_transducer
from pellucid.errors import ConfigError, InputError
from pellucid.kernels.dispatch import disable_kernels, use_kernel
from pellucid.model.memory import Memory, Seq2SeqOutput
from pellucid.model.network import EncoderDecoder, require_seq2seq, shift_right
from pellucid.model.pointer_generator import BY_POSITION, NEVER_COPIED, copied_ids, mix_distributions
from pellucid.tasks.registry import build_network
from pellucid.training.run_folder import load
from pellucid.training.training_data import TrainingFiles

KNOWN = vocabularies("abcde", "abxyz", ["t"])
V, N = NUM_SPECIAL + 5, NUM_SPECIAL + 5 + NUM_SPECIAL + 1
LOOKING = [score for score in SCORES if score != "none"]
EXAMPLES = st.lists(
    st.tuples(st.text("abcdeQR", min_size=1, max_size=6), st.text("abxyzcQR", min_size=1, max_size=5)),
    min_size=1,
    max_size=4,
)


def copy_config(score: str = "additive", cell: str = "gru") -> Config:
    sizes = {"hidden_size": 2, "embedding_size": 3}
    decoder = {"cell": cell, "hidden_size": 4, "embedding_size": 3, "pointer_generator": True}
    data = {"features_column": "3"}
    return config_of({"encoder": sizes, "decoder": decoder, "attention": {"type": score, "size": 3}, "data": data})


def network_of(config: Config, seed: int, dtype: torch.dtype = torch.float64) -> EncoderDecoder:
    network = require_seq2seq(build_network(config, KNOWN)).to(dtype).eval()
    shake(network, seed)
    return network


def batch_of(pairs: list[tuple[str, str]], tag: str = "") -> Batch:
    examples = [Example(source, target, tag) for source, target in pairs]
    encoded = encode_extended(examples, build_tokenizers(copy_config().data), KNOWN)
    return collate(encoded, torch.arange(len(pairs)).numpy())


def network_outputs(network: EncoderDecoder, batch: Batch) -> Seq2SeqOutput:
    unrolled: Seq2SeqOutput = network(batch)
    return unrolled


@few
@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.booleans())
def test_the_mixture_equals_its_definition_and_sums_to_one(seed: int, rows: int, positions: int, lost: bool) -> None:
    """The loop computes p_gen P_vocab(w) + (1 − p_gen) Σ α_i; weight on positions that are not copied generates."""
    generator = torch.Generator().manual_seed(seed)
    logits, weights, gate = (
        torch.randn(1, rows, size, generator=generator, dtype=torch.float64) for size in (V, positions, 1)
    )
    weights = weights.softmax(dim=2)
    places = torch.randint(V + positions, (1, positions), generator=generator)
    if lost:
        places[0, 0] = NEVER_COPIED
    found = mix_distributions(logits, weights, gate, places).exp()
    for row in range(rows):
        own, chosen = logits[0, row].softmax(dim=0), torch.sigmoid(gate[0, row, 0])
        copied = [0.0] * (V + positions)
        kept = 1.0
        for position, position_id in enumerate(places[0].tolist()):
            if position_id == NEVER_COPIED:
                kept -= float(weights[0, row, position])
            else:
                copied[position_id] += float((1 - chosen) * weights[0, row, position])
        for symbol in range(V + positions):
            share = chosen if kept == 1.0 else 1 - (1 - chosen) * kept
            expected = (float(share * own[symbol]) if symbol < V else 0.0) + copied[symbol]
            assert float(found[0, row, symbol]) == pytest.approx(expected, abs=1e-12)
    near(found.sum(dim=2), torch.ones(1, rows, dtype=torch.float64))


def test_symbols_have_their_target_id_or_their_first_position() -> None:
    """Symbols are known on both sides, on one, or on none; tags and padding are never copied."""
    assert copied_ids(KNOWN).tolist() == [NEVER_COPIED] * 4 + [4, 5] + [BY_POSITION] * 3 + [NEVER_COPIED] * 5
    batch = batch_of([("acxcQRQ", "QcaxR?"), ("a", "b")], tag="t")
    network = network_of(copy_config(), 1)
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    places = network.decoder.prepare(memory).copy_ids
    assert places is not None
    assert places.tolist() == [
        [NEVER_COPIED, 4, V + 2, 6, V + 2, V + 5, V + 6, V + 5],
        [NEVER_COPIED, 4] + [NEVER_COPIED] * 6,
    ]
    assert batch.target.tolist()[0] == [V + 5, V + 2, 4, 6, V + 6, UNK, EOS]


@few
@given(EXAMPLES, st.sampled_from(LOOKING), st.sampled_from(["gru", "lstm"]), SEEDS)
def test_probabilities_sum_to_one_alone_and_in_a_batch(
    pairs: list[tuple[str, str]], score: str, cell: str, seed: int
) -> None:
    network, batch = network_of(copy_config(score, cell), seed), batch_of(pairs)
    many = network_outputs(network, batch)
    near(many.logits.exp().sum(dim=2), torch.ones(batch.target.shape, dtype=torch.float64))
    for row, (source, target) in enumerate(pairs):
        one = network_outputs(network, alone(batch, row))
        near(one.logits[0], many.logits[row, : len(target) + 1, : V + len(source)])
        assert (many.logits[row, :, V + len(source) :] == -torch.inf).all()


def stepped(network: EncoderDecoder, batch: Batch, hypotheses: int = 1) -> Tensor:
    """Return log-probabilities step by step, for several equal hypotheses a source."""
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    state, cache = network.decoder.init_state(memory), network.decoder.prepare(memory)
    rows = torch.arange(len(batch.source)).repeat_interleave(hypotheses)
    state, found = state.index_select(rows), []
    for symbols in shift_right(batch.target).unbind(dim=1):
        step = network.decoder.step(symbols[rows], state, cache)
        state = step.state
        found.append(step.logits)
    return torch.stack(found, dim=1)


@few
@given(EXAMPLES, st.sampled_from(LOOKING), st.sampled_from(["gru", "lstm"]), SEEDS, st.integers(1, 3))
def test_steps_equal_unrolled_steps(
    pairs: list[tuple[str, str]], score: str, cell: str, seed: int, hypotheses: int
) -> None:
    network, batch = network_of(copy_config(score, cell), seed), batch_of(pairs)
    many = network_outputs(network, batch).logits
    near(stepped(network, batch, hypotheses), many.repeat_interleave(hypotheses, dim=0))


@pytest.mark.parametrize("score", ["additive", "location", "general"])
def test_kernels_equal_pytorch(score: str) -> None:
    batch = batch_of([("acxcQRQ", "QcaxR?"), ("a", "b"), ("QQe", "Qex")])
    network = network_of(copy_config(score), 3, torch.float32)
    parameters = list(network.parameters())
    with disable_kernels():
        expected = network_outputs(network, batch).logits
        wanted = torch.autograd.grad(expected.gather(2, batch.target[:, :, None]).sum(), parameters, allow_unused=True)
    found = network_outputs(network, batch).logits
    gradients = torch.autograd.grad(found.gather(2, batch.target[:, :, None]).sum(), parameters, allow_unused=True)
    near(found, expected, 1e-5)
    for one, other in zip(gradients, wanted, strict=True):
        assert one is not None and other is not None and bool(one.any())
        near(one, other, 1e-4)
    with torch.no_grad():
        near(stepped(network, batch, 2), expected.detach().repeat_interleave(2, dim=0), 1e-5)


def test_a_search_that_drops_sources_keeps_their_copy_ids() -> None:
    """Rows are selected from the caches of a kernel and of PyTorch, also before a step with forced weights."""
    batch = batch_of([("acxcQRQ", "Qa"), ("aQ", "bb"), ("QQe", "Qe")])
    network = network_of(copy_config(), 3, torch.float32)
    with torch.no_grad():
        memory: Memory = network.encoder(batch.source, batch.source_lengths)
        state, cache = network.decoder.init_state(memory), network.decoder.prepare(memory)
        assert cache.kernel is not None and not use_kernel(network.decoder.request("greedy", cache))
        symbols, rows = torch.full((3,), BOS), torch.tensor([2, 0])
        whole = network.decoder.step(symbols, state, cache)
        for kept in (cache, cache.materialize()):
            taken = network.decoder.step(symbols[rows], state.index_select(rows), kept.index_select(rows))
            near(taken.logits, whole.logits[rows], 1e-5)
        forced = network.decoder.step(
            symbols[rows], state.index_select(rows), cache.index_select(rows), taken.attention.weights
        )
        near(forced.logits, whole.logits[rows], 1e-5)


def test_copied_symbols_are_fed_back_as_unknown() -> None:
    network, batch = network_of(copy_config(), 1), batch_of([("acQ", "Qab")])
    assert int(batch.target[0, 0]) == V + 2
    other = batch._replace(target=torch.tensor([[UNK, 4, 5, EOS]]))
    near(network_outputs(network, batch).logits, network_outputs(network, other).logits)


def test_copying_needs_attention() -> None:
    with pytest.raises(
        ConfigError, match=r"decoder\.pointer_generator = true needs attention, but attention\.type is 'none'"
    ):
        copy_config("none")


def rare(count: int, seed: int, letters: str) -> list[Example]:
    """Return pairs of equal texts, of letters and of signs that occur once or twice each."""
    generator = Random(seed)
    texts = ["".join(generator.choices(letters, k=4)) + chr(0x4E00 + generator.randrange(4000)) for _ in range(count)]
    return [Example(text, text) for text in texts]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Transducer:
    """Train a model to which all signs of its examples are unknown."""
    folder = tmp_path_factory.mktemp("copying")
    files = TrainingFiles(
        write_pairs(folder / "train.tsv", rare(300, 1, "abc")), write_pairs(folder / "dev.tsv", rare(40, 2, "abc"))
    )
    training = {"epochs": 14, "learning_rate": 0.01, "eval_interval": 7, "metric": "loss", "label_smoothing": 0.1}
    config = config_of({"decoder": {"pointer_generator": True}, "training": training, "data": {"min_count": 5}})
    train_to_end(files, folder / "run", config)
    return require_transducer(load(folder / "run"), "the test")


def test_unseen_symbols_are_copied_with_their_text(trained: Transducer) -> None:
    model = trained
    traces = model.predict(["abca𝒳", "ccbb\u4dff"])
    assert len(model.vocabularies.target.symbols) == len(model.vocabularies.source.symbols) == 3
    assert [trace.output for trace in traces] == ["abca𝒳", "ccbb\u4dff"]
    assert traces[0].target == ("a", "b", "c", "a", "𝒳", "⟨end⟩") and traces[0].unknown == (4,)
    assert model.with_beam(3).predict(["abca𝒳"])[0].output == "abca𝒳"
    lonely, among = model.predict(["a𝒳"])[0], model.predict(["abcabcabca𝒳", "a𝒳"])[1]
    assert lonely.top_symbols == among.top_symbols


def test_a_prefix_may_contain_copied_symbols(trained: Transducer, tmp_path: Path) -> None:
    sources = ["ab𝒳c", "c\u4dffa", "", "abc"]
    found = trained.predict(sources, prefixes=["𝒳", "a\u4dff\u4dff", "𝒳", "c"])
    assert [trace.output[:3] for trace in found][1] == "a\u4dff\u4dff" and found[0].output.startswith("𝒳")
    assert found[0].target[0] == "𝒳" and found[0].forced == (0,) and found[1].forced == (0, 1, 2)
    assert found[2].output == "" and found[3].output[0] == "c"
    assert trained.with_beam(3).predict(sources[:1], prefixes=["𝒳"])[0].output.startswith("𝒳")
    drawn = trained.samples([Example(sources[0], "")], SamplingConfig(samples=3), prefixes=["b𝒳"])
    assert all(trace.output.startswith("b𝒳") for trace in drawn[0])
    with pytest.raises(InputError, match="prefix of source 1: the model never writes the symbol '𝒴'"):
        trained.predict(sources[:1], prefixes=["𝒴"])
    with pytest.raises(InputError, match="can only copy is allowed in a prefix only"):
        trained.with_options(DecodingOptions(required=("𝒳",))).predict(sources[:1])
    known = write_pairs(tmp_path / "known.tsv", [Example("ab𝒳c", "𝒳yes"), Example("ab𝒳c", "no")])
    looked = trained.with_options(DecodingOptions(prefix="𝒳", lexicon=load_lexicon(known, trained.config.data)))
    assert looked.predict(sources[:1])[0].output == "𝒳yes"
