"""A transducer returns one trace per source, in order, and learns a small task completely."""

import dataclasses
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import few_examples, make_config, make_vocabularies, output_projection, randomize_parameters
from torch import Tensor

import pellucid.decoding.transducer as module
from pellucid.config.settings import MAX_SEQUENCE_LENGTH, SearchConfig
from pellucid.config.toml import build_config
from pellucid.data.encoding import encode_examples
from pellucid.data.examples import Example
from pellucid.data.vocabulary import EOS, SPECIAL_NAMES, learn_vocabularies
from pellucid.decoding import preprocessing as reading
from pellucid.decoding.constraints import NO_CONSTRAINTS
from pellucid.decoding.derived_traces import outputs_to_top_mass
from pellucid.decoding.greedy import greedy
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.length_limits import max_output_length
from pellucid.decoding.outputs import LengthLimits
from pellucid.decoding.preprocessing import ChunkConfig
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import END, Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ConfigError, ConstraintError, DataError, InputError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.network import EncoderDecoder, require_encoder_decoder
from pellucid.tasks.registry import build_network
from pellucid.training.loop import fit
from pellucid.training.optimizer import build_optimizer
from pellucid.training.training_state import TrainingState


def transducer_of(settings: dict[str, Any], target: str = "vwxyz", features: Sequence[str] = ()) -> Transducer:
    """Return an untrained transducer of sources from "abc", whose outputs have different lengths."""
    config, known = make_config(settings), make_vocabularies("abc", target, features=features)
    network = require_encoder_decoder(build_network(config, known)).double().eval()
    randomize_parameters(network, 3)
    return Transducer(config, known, network)


PLAIN = transducer_of({"search": {"max_length": 6}})
TAGGED = transducer_of({"data": {"features_column": "3"}, "search": {"max_length": 6}}, features="VN")
TEXTS = st.lists(st.text(alphabet="abc?é ", max_size=7), max_size=9)


def assert_same_trace(one: Trace, two: Trace) -> None:
    assert (one.text, one.source, one.target, one.output) == (two.text, two.source, two.target, two.output)
    np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one.attention, two.attention, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@few_examples
@given(TEXTS, st.integers(1, 4))
def test_every_source_has_one_trace_in_order_for_any_batch_size(texts: list[str], size: int) -> None:
    search = msgspec.structs.replace(PLAIN.config.search, batch_size=size)
    other = Transducer(msgspec.structs.replace(PLAIN.config, search=search), PLAIN.vocabularies, PLAIN.network)
    traces = PLAIN.predict(texts)
    assert [trace.text for trace in traces] == texts
    for trace, again, text in zip(traces, other.predict(texts), texts, strict=True):
        assert_same_trace(trace, again)
        assert_same_trace(trace, PLAIN.predict([text])[0])


def test_long_nbest_lists_use_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["abc", "", "ab", "cabca", "a", "bca"]
    whole = PLAIN.nbest(texts, 30)
    monkeypatch.setattr(reading, "MAX_HYPOTHESES", 60)
    assert (
        ChunkConfig(30, 30, NO_CONSTRAINTS).batch_size(128) == 2
        and ChunkConfig(61, 1, NO_CONSTRAINTS).batch_size(128) == ChunkConfig(90, 1, NO_CONSTRAINTS).batch_size(9) == 1
    )
    for one, two in zip(whole, PLAIN.nbest(texts, 30), strict=True):
        for trace, again in zip(one, two, strict=True):
            assert_same_trace(trace, again)
    with pytest.raises(InputError, match=r"^count: expected a whole number of at most 1024, got 1025$"):
        PLAIN.nbest(["a"], 1025)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_outputs_respect_the_length_limits(beam_size: int) -> None:
    transducer = transducer_of({"search": {"min_length": 3, "max_length": 4, "beam_size": beam_size}})
    for trace in transducer.predict(["abc", "a", "", "aaaa"]):
        assert not trace.source or 3 <= len(trace.target) - trace.finished <= 4
    with pytest.raises(ConfigError, match=r"search\.min_length = 99 exceeds the maximum length, \d+ \(.*max_length"):
        transducer_of({"search": {"min_length": 99}}).predict(["a"])


@cache
def ending_transducer(float32: bool, copying: bool) -> Transducer:
    """Return an untrained transducer whose outputs end early without a minimum length."""
    transducer = transducer_of({"decoder": {"pointer_generator": copying}})
    with torch.no_grad():
        output_projection(require_encoder_decoder(transducer.network).decoder).bias[EOS] += 6.0
    if float32:
        transducer.network.float()
    return transducer


def assert_equals_forced(trace: Trace, forced: Trace, rounding: float) -> None:
    """Compare an output with its forced decoding, which may have one step more.

    Args:
        trace: The output.
        forced: Its forced decoding.
        rounding: Error of probabilities. With copying, a probability is a sum of which one term has the factor 1 − Σ,
            so that rounding to float32 changes it by some units of 2⁻²⁴, however small it is; log p changes by 1 / p
            of it.
    """
    np.testing.assert_allclose(trace.attention, forced.attention[: len(trace.target)], atol=1e-4)
    for name in ("log_probabilities", "top_log_probabilities"):
        found, expected = getattr(trace, name), getattr(forced, name)[: len(trace.target)]
        assert (np.isneginf(found) == np.isneginf(expected)).all(), name
        possible = ~np.isneginf(expected)
        found, expected = found[possible].astype(np.float64), expected[possible].astype(np.float64)
        assert (np.abs(found - expected) <= 1e-4 + rounding / np.exp(expected)).all(), name


def test_rounding_of_copied_probabilities_is_relative_to_their_sum() -> None:
    """In float32, this difference exceeds 10⁻⁴ for symbols whose probability is about 10⁻³; in float64 it does not."""
    for float32 in (True, False):
        search = {"max_length": 8, "min_length": 5}
        model = ending_transducer(float32, True)
        model = model.with_search(msgspec.structs.replace(model.config.search, **search))
        with disable_kernels():
            for trace in [
                *model.predict(["bcbc"]),
                *model.nbest(["bcbc"], 4)[0],
                *model.sample(["bcbc"], SamplingConfig(samples=3))[0],
            ]:
                (forced,) = model.score_examples([Example("bcbc", "".join(trace.symbols))])
                assert_equals_forced(trace, forced, 8 * 2**-24 if float32 else 0)


@few_examples
@given(
    st.lists(st.text(alphabet="abc", min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from([{"min_length": 5}, {"min_length_ratio": 1.0, "min_length_offset": 1}]),
    st.sampled_from([1, 3]),
    st.sampled_from(["none", "average"]),
    st.booleans(),
    st.booleans(),
)
def test_outputs_of_a_minimum_length_have_the_log_probabilities_of_forced_decoding(
    texts: list[str], limit: dict[str, Any], beam_size: int, normalization: str, float32: bool, copying: bool
) -> None:
    """EOS keeps its probability before the minimum length, in PyTorch and in the kernels (float32)."""
    search = {
        "max_length": 8,
        **limit,
        "beam_size": beam_size,
        "length_normalization": normalization if beam_size > 1 else "none",
    }
    transducer = ending_transducer(float32, copying).with_search(
        msgspec.structs.replace(ending_transducer(float32, copying).config.search, **search)
    )
    lists = [[trace] for trace in transducer.predict(texts)]
    lists += transducer.nbest(texts, 4)
    lists += transducer.sample(texts, SamplingConfig(samples=3))
    num_early_ends = 0
    decoded = [trace for traces in lists for trace in traces]
    scored = transducer.score_examples([Example(trace.text, "".join(trace.symbols)) for trace in decoded])
    for trace, forced in zip(decoded, scored, strict=True):
        length = len(trace.target) - trace.finished
        assert length >= limit.get("min_length", len(trace.source) + 1)
        assert_equals_forced(trace, forced, 8 * 2**-24 if float32 and copying else 0)
        num_early_ends += sum(symbols[0] == END for symbols in trace.top_symbols[:-1])
    assert num_early_ends or copying  # without the limit, the model ends an output earlier


def test_sources_of_similar_lengths_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch_lengths: list[list[int]] = []

    def record_lengths(
        network: EncoderDecoder, source: Tensor, lengths: Tensor, limit: LengthLimits, characters: None
    ) -> list[Hypothesis]:
        batch_lengths.append(lengths.tolist())
        return greedy(network, source, lengths, limit, characters)

    monkeypatch.setattr(module, "greedy", record_lengths)
    transducer = transducer_of({"search": {"batch_size": 2, "beam_size": 1}})
    texts = ["abc", "a", "", "aaaa", "b", "ab"]
    assert [trace.text for trace in transducer.predict(texts)] == texts
    assert batch_lengths == [[1, 1], [2, 3], [4]]


@few_examples
@given(TEXTS)
def test_the_fields_of_a_trace_are_consistent(texts: list[str]) -> None:
    for trace in PLAIN.with_beam(1).predict(texts):
        T, S = len(trace.target), len(trace.source)
        assert trace.source == tuple(trace.text)
        assert trace.attention.shape == (T, S)
        assert trace.log_probabilities.shape == (T,)
        assert [len(symbols) for symbols in trace.top_symbols] == [trace.top_log_probabilities.shape[1]] * T
        np.testing.assert_allclose(trace.attention.sum(axis=1), np.ones(T), atol=1e-5)
        written = trace.target[:-1] if trace.target and trace.finished else trace.target
        assert trace.output == "".join(written)
        assert not {*SPECIAL_NAMES} & {*written}
        assert trace.finished == (not trace.text or trace.target[-1] == END)
        assert len(written) == 6 or trace.finished
        assert [symbols[0] for symbols in trace.top_symbols] == list(trace.target)
        assert json.loads(trace.to_json())["output"] == trace.output


def test_an_output_is_cut_at_the_maximum_length_and_unfinished() -> None:
    transducer = transducer_of({"search": {"max_length": 3}})
    with torch.no_grad():
        output_projection(require_encoder_decoder(transducer.network).decoder).bias[2] = -1e4
    trace = transducer.predict(["ab"])[0]
    assert not trace.finished
    assert len(trace.target) == len(trace.output) == 3


def test_the_default_maximum_length_follows_from_the_training_targets() -> None:
    assert PLAIN.max_length == 6
    assert transducer_of({}).max_length == 9 + 10


@pytest.mark.parametrize(("transducer", "tags"), [(PLAIN, None), (TAGGED, ["V;N"])])
def test_an_empty_source_has_an_empty_output(transducer: Transducer, tags: list[str] | None) -> None:
    trace = transducer.predict([""], tags)[0]
    assert (trace.source, trace.target, trace.output, trace.num_features, trace.unknown) == ((), (), "", 0, ())
    assert trace.finished
    assert trace.attention.shape == (0, 0)
    assert trace.score == 0
    assert PLAIN.predict([]) == []


@pytest.mark.parametrize("tags", [None, ["V"]])
def test_a_source_without_a_symbol_is_empty_too(tags: list[str] | None) -> None:
    transducer = transducer_of({"data": {"source_symbols": "words", "features_column": "3"}}, features="VN")
    trace = transducer.predict([" \t"], tags)[0]
    assert (trace.text, trace.source, trace.output) == (" \t", (), "")


def test_unknown_symbols_are_listed_by_position() -> None:
    assert [trace.unknown for trace in PLAIN.predict(["?a?", "abc", "é"])] == [(0, 2), (), (0,)]
    trace = TAGGED.predict(["a?c"], ["N;X;V"])[0]
    assert trace.source == ("N", "X", "V", "a", "?", "c")
    assert trace.num_features == 3
    assert trace.unknown == (1, 4)
    assert trace.attention.shape[1] == 6


def test_features_differ_from_source_symbols_of_the_same_spelling() -> None:
    transducer = transducer_of({"data": {"features_column": "3"}}, features="abc")
    plain, one, two = transducer.predict(["c"] * 3, ["", "a", "b"])
    assert plain.log_probabilities[0] != one.log_probabilities[0] != two.log_probabilities[0]
    spelled = transducer.predict(["ac"], [""])[0]
    assert spelled.source == one.source
    assert spelled.log_probabilities[0] != one.log_probabilities[0]


@pytest.mark.parametrize("tags", [[], ["V"], ["V", "N", "V"]])
def test_features_must_match_the_sources_in_number(tags: list[str]) -> None:
    with pytest.raises(DataError, match=f"2 sources, got {len(tags)}"):
        TAGGED.predict(["a", "b"], tags)


def test_features_for_a_model_without_them_are_a_data_error() -> None:
    assert PLAIN.predict(["a"], [""])[0].source == ("a",)
    with pytest.raises(DataError, match="features"):
        PLAIN.predict(["a"], ["V"])


def test_a_source_may_be_as_long_as_the_limit_but_not_longer_and_features_do_not_count() -> None:
    """The limit for lines of a file also counts only the source."""
    transducer = transducer_of({"data": {"max_sequence_length": 4, "features_column": "3"}}, features="VN")
    assert transducer.predict(["abca"], ["V;N"])[0].source == ("V", "N", "a", "b", "c", "a")
    with pytest.raises(DataError, match=r"source 2 has 5 symbols; data\.max_sequence_length is 4"):
        transducer.predict(["a", "abcab"], ["", ""])


@pytest.mark.parametrize("training", [True, False])
def test_prediction_disables_dropout_and_restores_the_mode(training: bool) -> None:
    transducer = transducer_of({"encoder": {"dropout": 0.9}, "decoder": {"dropout": 0.9}})
    expected = transducer.predict(["abc"])[0]
    transducer.network.train(training)
    assert_same_trace(transducer.predict(["abc"])[0], expected)
    assert transducer.network.training == require_encoder_decoder(transducer.network).decoder.table.training == training
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(require_encoder_decoder(transducer.network).decoder, "init_state", lambda memory: 1 / 0)
        transducer.predict(["abc"])
    assert transducer.network.training == require_encoder_decoder(transducer.network).decoder.table.training == training


def test_symbols_are_joined_by_the_configured_tokenizer() -> None:
    transducer = transducer_of({"data": {"target_symbols": "words"}, "search": {"max_length": 6}})
    for trace in transducer.predict(["a", "abc", "ccba"]):
        assert trace.output == " ".join(symbol for symbol in trace.target if symbol != END)


def make_copy_pairs(count: int, seed: int) -> list[Example]:
    """Return pairs whose target equals the source of one to five letters."""
    generator = np.random.default_rng(seed)
    generated = ("".join(generator.choice(list("abcde"), size=generator.integers(1, 6))) for _ in range(count))
    return [Example(word, word) for word in generated]


@pytest.mark.slow
def test_copying_is_learned_and_attention_is_the_diagonal() -> None:
    sizes = {"cell": "gru", "hidden_size": 16, "embedding_size": 8}
    training = {"epochs": 10, "eval_interval": 10, "learning_rate": 0.01, "label_smoothing": 0.0}
    config = make_config(
        {"encoder": sizes, "decoder": {**sizes, "hidden_size": 32}, "attention": {"size": 16}, "training": training}
    )
    pairs, transducer = make_copy_pairs(1200, 1), transducer_of({})
    known = learn_vocabularies(pairs, transducer.tokenizers, 1)
    transducer = Transducer(config, known, require_encoder_decoder(build_network(config, known)))
    encoded = encode_examples(pairs, transducer.tokenizers, known)
    optimizer = build_optimizer(transducer.network, config.training)
    for _ in fit(TrainingState(transducer, optimizer, encoded, make_copy_pairs(10, 2))):
        pass
    sources = [example.source for example in make_copy_pairs(200, 3)]
    traces = transducer.predict(sources)
    assert [trace.output for trace in traces] == sources
    is_diagonal = np.concatenate(
        [trace.attention[:-1].argmax(axis=1) == np.arange(len(trace.output)) for trace in traces]
    )
    assert is_diagonal.mean() > 0.97


@pytest.mark.parametrize("settings", [{}, {"beam_size": 4}, {"length_normalization": "gnmt", "coverage_penalty": 0.2}])
def test_the_probabilities_of_an_nbest_list_sum_to_one(settings: dict[str, Any]) -> None:
    transducer = transducer_of({"search": {"max_length": 6, **settings}})
    texts = ["abc", "a", "", "bca"]
    lists = transducer.nbest(texts, 4)
    assert [len(traces) for traces in lists] == [4, 4, 1, 4]
    for traces, text in zip(lists, texts, strict=True):
        probabilities = [trace.nbest_probability for trace in traces]
        assert sum(probability or 0 for probability in probabilities) == pytest.approx(1)
        assert [trace.rank for trace in traces] == list(range(1, len(traces) + 1))
        assert all(trace.attention.shape == (len(trace.target), len(text)) for trace in traces)
        assert [trace.search_score is None for trace in traces] == [len(settings) < 2 or not text] * len(traces)
        scores = [trace.score if trace.search_score is None else trace.search_score for trace in traces]
        shares = np.exp(np.array(scores) - max(scores))
        assert probabilities == pytest.approx((shares / shares.sum()).tolist(), rel=1e-5)
    for traces, most_probable in zip(lists, transducer.nbest(texts, 4, top_mass=0.6), strict=True):
        assert [trace.output for trace in most_probable] == [trace.output for trace in traces[: len(most_probable)]]
        mass = sum(trace.nbest_probability or 0 for trace in most_probable)
        assert mass >= 0.6 and mass - (most_probable[-1].nbest_probability or 0) < 0.6


def test_a_top_mass_of_one_keeps_outputs_of_negligible_probability() -> None:
    trace = PLAIN.predict(["a"])[0]
    log_probabilities = [np.full_like(trace.log_probabilities, value) for value in (-1e-6, -50.0, -60.0)]
    traces = [dataclasses.replace(trace, log_probabilities=values) for values in log_probabilities]
    assert len(outputs_to_top_mass(traces, 1.0)) == 3 and len(outputs_to_top_mass(traces, 0.999)) == 1


def test_length_ratios_are_relative_to_the_source() -> None:
    search = {
        "max_length_ratio": 1.5,
        "max_length_offset": -1,
        "min_length_ratio": 1.0,
        "min_length_offset": 1,
        "beam_size": 2,
    }
    with pytest.warns(UserWarning, match="the maximum is used"):
        result = transducer_of({"search": {**search, "max_length": 9}}).predict(["aaaa", "abcabc", "ab", "a"])
    for trace in result:
        max_length = max(int(1.5 * len(trace.text)) - 1, 1)
        length = len(trace.target) - trace.finished
        assert min(len(trace.text) + 1, max_length) <= length <= max_length


def test_each_source_may_have_its_own_prefix() -> None:
    traces = PLAIN.predict(["abc", "a", "b"], prefixes=["vw", "", "zzz"])
    assert [trace.output[:3] for trace in traces][2] == "zzz" and traces[0].output.startswith("vw")
    assert traces[1].output == PLAIN.predict(["a"])[0].output
    with pytest.raises(DataError, match="one prefix for each of 2 sources, got 1"):
        PLAIN.predict(["a", "b"], prefixes=["v"])
    with pytest.raises(ConstraintError, match=r"take 7 symbols, but search\.max_length is 6"):
        PLAIN.predict(["a"], prefixes=["vvvvvvv"])


def test_scored_targets_have_a_maximum_length() -> None:
    """The maximum is the length limit of the training data or of outputs, whichever is larger."""
    transducer = transducer_of({"data": {"max_sequence_length": 30}})
    max_length = max(30, transducer.max_length)
    assert len(transducer.score_examples([Example("a", "v" * max_length)])[0].symbols) == max_length
    with pytest.raises(
        DataError, match=rf"^target 2 has {max_length + 1} symbols; at most {max_length} can be scored$"
    ):
        transducer.score_examples([Example("a", "v"), Example("a", "v" * (max_length + 1))])
    long_transducer = transducer.with_search(msgspec.structs.replace(transducer.config.search, max_length=200))
    assert len(long_transducer.score_examples([Example("a", "v" * 200)])[0].symbols) == 200
    with pytest.raises(DataError, match=r"^target 1 has 100,000 symbols; at most 200 can be scored$"):
        long_transducer.score_examples([Example("a", "v" * 100_000)])


def test_the_warning_about_length_limits_names_the_line_of_the_caller() -> None:
    model = transducer_of({"search": {"max_length": 3, "min_length_ratio": 2.0}})
    with pytest.warns(UserWarning, match="^the minimum output length of some sources exceeds the maximum") as caught:
        model.predict(["abca"])
    assert [warning.filename for warning in caught] == [__file__]


def test_scoring_a_given_target_gives_no_warning_about_length_limits() -> None:
    model = transducer_of({"search": {"max_length": 3, "min_length_ratio": 2.0}})
    (trace,) = model.score_examples([Example("abca", "v")])
    assert trace.output == "v" and trace.finished


def test_an_output_has_a_maximum_length_whatever_the_vocabulary_says() -> None:
    """Regression test: a vocabulary from a stranger made the search of one source take hours."""
    vocabularies = msgspec.structs.replace(PLAIN.vocabularies, longest_target=MAX_SEQUENCE_LENGTH)
    assert max_output_length(SearchConfig(), vocabularies) == MAX_SEQUENCE_LENGTH
    assert max_output_length(SearchConfig(max_length=20), vocabularies) == 20
    with pytest.raises(ConfigError, match=r"search\.max_length"):
        build_config({"search": {"max_length": MAX_SEQUENCE_LENGTH + 1}}, "test")
