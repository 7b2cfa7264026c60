"""Predictions in NumPy: traces equal those of PyTorch for every kind of network, search and constraint."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_networks import make_config, make_vocabularies, randomize_parameters
from untrained_models import MODEL_SETTINGS

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.ensemble import Ensemble, combine_transducers
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.pair_ngram_interpolation import InterpolatedPairNgram
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.search_tree import SearchTree
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor
from pellucid.runtime.inference import RuntimeNetwork
from pellucid.runtime.parameters import build_network_arrays
from pellucid.runtime.predictor import RuntimePredictor, join_predictors
from pellucid.runtime.support import UnsupportedError
from pellucid.tasks.registry import build_network
from pellucid.training.pair_ngram_training import choose_pair_ngram_weight

OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "convolutions": {"encoder": {"convolutions": (2, 3), "filters": 5}},
    "one-hot": {"encoder": {"embedding": "one-hot"}, "decoder": {"embedding": "one-hot"}},
    "no embedding": {"decoder": {"embedding": "none", "init_hidden": "mean"}},
    "tied": {"decoder": {"tie_embeddings": True, "init_hidden": "zero"}},
    "sum of features": {"encoder": {"merge": "sum", "feature_merge": "sum"}, "data": {"features_column": "3"}},
    "product": {"encoder": {"merge": "product", "num_layers": 2}, "decoder": {"output_layer_inputs": "state"}},
    "dot": {"attention": {"type": "dot"}, "encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 16}},
    "scaled": {
        "attention": {"type": "scaled-dot"},
        "encoder": {"hidden_size": 8, "cell": "lstm", "num_layers": 2, "layer_normalization": "cells"},
        "decoder": {"hidden_size": 16, "cell": "lstm", "order": "step-then-attend", "num_layers": 2},
    },
    "luong copying": {
        "decoder": {
            "order": "step-then-attend",
            "input_feeding": True,
            "pointer_generator": True,
            "output_layer_inputs": "state",
        }
    },
}
SETTINGS = MODEL_SETTINGS | OTHER_SETTINGS
SOURCES = ["abc", "a", "", "cabba", "bb?b", "c"]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4},
    "average": {"beam_size": 3, "length_normalization": "average", "min_length": 2},
    "gnmt": {"beam_size": 3, "length_normalization": "gnmt", "coverage_penalty": 0.2, "max_length_ratio": 1.0},
}
TOLERANCE = 1e-5


def make_pair(
    settings: dict[str, Any], vocabularies: Vocabularies | None = None, seed: int = 3
) -> tuple[Transducer, RuntimePredictor]:
    """Return predictors of one network of random parameters, in PyTorch and in NumPy."""
    config = make_config({"search": {"max_length": 6}, **settings})
    vocabularies = vocabularies or make_vocabularies("abc", features=("F", "G"))
    network = build_network(config, vocabularies).eval()
    randomize_parameters(network, seed)
    return Transducer(config, vocabularies, network), make_runtime(config, vocabularies, network.state_dict())


def make_runtime(config: Config, vocabularies: Vocabularies, tensors: dict[str, Any]) -> RuntimePredictor:
    """Return the predictor in NumPy of the parameters of a network."""
    arrays = build_network_arrays(config, vocabularies, lambda name, _: tensors[name].numpy())
    return RuntimePredictor(config, vocabularies, (RuntimeNetwork(config, arrays),))


def assert_traces_close(actual: Sequence[Trace], expected: Sequence[Trace]) -> None:
    """Assert that traces have equal outputs, and numbers that differ by at most `TOLERANCE`."""
    assert [(trace.output, trace.target, trace.rank) for trace in actual] == [
        (trace.output, trace.target, trace.rank) for trace in expected
    ]
    for one, other in zip(actual, expected, strict=True):
        assert (one.finished, one.unknown, one.origin, one.forced) == (
            other.finished,
            other.unknown,
            other.origin,
            other.forced,
        )
        for name in (
            "log_probabilities",
            "attention",
            "heads",
            "score",
            "search_score",
            "nbest_probability",
            "confidence",
        ):
            values, others = getattr(one, name), getattr(other, name)
            if values is None or others is None:
                assert values is others, name
            else:
                np.testing.assert_allclose(values, others, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def assert_equal_predictions(torch_predictor: Transducer, runtime: RuntimePredictor, nbest: int = 3) -> None:
    """Assert that predictions, n-best lists and scores of both predictors are equal."""
    assert_traces_close(runtime.predict(SOURCES), torch_predictor.predict(SOURCES))
    pairs = zip(runtime.nbest(SOURCES, nbest), torch_predictor.nbest(SOURCES, nbest), strict=True)
    for actual, expected in pairs:
        assert_traces_close(actual, expected)
    targets = ["vwx", "", "y", "zzv", "w?"]
    examples = [Example(source, target) for source, target in zip(filter(None, SOURCES), targets, strict=True)]
    assert_traces_close(runtime.score_examples(examples), torch_predictor.score_examples(examples))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_network_gives_the_traces_of_pytorch(settings: dict[str, Any]) -> None:
    assert_equal_predictions(*make_pair(settings))


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_every_search_gives_the_traces_of_pytorch(search: dict[str, Any]) -> None:
    torch_predictor, runtime = make_pair({})
    assert_equal_predictions(torch_predictor.with_search(search), runtime.with_search(search))


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(prefix="vw"),
        DecodingOptions(forbidden=("v", "z")),
        DecodingOptions(lexicon=Lexicon({"abc": ("vvv", "w")})),
        DecodingOptions(search_tree=True),
    ],
    ids=["prefix", "forbidden", "lexicon", "search_tree"],
)
def test_constraints_give_the_traces_of_pytorch(options: DecodingOptions) -> None:
    torch_predictor, runtime = (each.with_options(options) for each in make_pair({}))
    actual, expected = runtime.predict(SOURCES), torch_predictor.predict(SOURCES)
    assert_traces_close(actual, expected)
    for one, other in zip(actual, expected, strict=True):
        assert (one.search_tree is None) == (other.search_tree is None)
        assert (one.search_tree is not None) == (options.search_tree and one.text != "")
        if one.search_tree is not None and other.search_tree is not None:
            assert_search_trees_close(one.search_tree, other.search_tree)


def assert_search_trees_close(actual: SearchTree, expected: SearchTree) -> None:
    """Assert that two search trees have equal nodes, and numbers that differ by at most `TOLERANCE`."""
    assert (actual.symbols, actual.statuses, actual.leaf) == (expected.symbols, expected.statuses, expected.leaf)
    for name in ("parents", "attention_rows"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name), err_msg=name)
    for name in ("log_probabilities", "scores", "attention"):
        values, others = getattr(actual, name), getattr(expected, name)
        np.testing.assert_allclose(values, others, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def test_own_prefixes_and_features_give_the_traces_of_pytorch() -> None:
    torch_predictor, runtime = make_pair({"data": {"features_column": "3"}})
    examples = [Example("abc", "", "F;G"), Example("a", "", ""), Example("bb", "", "X")]
    prefixes = ["v", "", "xy"]
    assert_traces_close(
        runtime.predict_examples(examples, prefixes), torch_predictor.predict_examples(examples, prefixes)
    )


@pytest.mark.parametrize("copies", [False, True])
def test_ensembles_with_other_symbols_give_the_traces_of_pytorch(copies: bool) -> None:
    settings = {"decoder": {"pointer_generator": copies}}
    orders = [make_vocabularies("abc", "vwxyz"), make_vocabularies("bad", "zyxwv")]
    pairs = [make_pair(settings, vocabularies, seed) for seed, vocabularies in enumerate(orders)]
    names = ["one", "two"]
    torch_ensemble = combine_transducers([pair[0] for pair in pairs], names)
    runtime = join_predictors([pair[1] for pair in pairs], names)
    assert runtime.is_ensemble and runtime.num_networks == 2 and runtime.name == torch_ensemble.name
    assert runtime.vocabularies == torch_ensemble.vocabularies
    assert_equal_predictions(torch_ensemble, runtime)


def test_ensembles_have_the_pair_ngram_model_of_any_member() -> None:
    """The ids of the second member are others than those of the ensemble."""
    orders = [make_vocabularies("abc", "vwxyz"), make_vocabularies("bad", "zyxwv")]
    (one, runtime_one), (two, runtime_two) = (make_pair({}, orders[seed], seed) for seed in range(2))
    examples = [Example("ab", "vw"), Example("ba", "wv"), Example("dab", "xvw"), Example("d", "x"), Example("b", "w")]
    fitted = fit_pair_ngram_predictor(examples, two.tokenizers, two.vocabularies)
    assert fitted is not None
    member = InterpolatedPairNgram(fitted.model, 0.8, 0)
    two, runtime_two = replace(two, pair_ngram=member), replace(runtime_two, pair_ngram=member)
    alone = combine_transducers([two], ["two"])
    ensembles = [
        combine_transducers([one, two], ["one", "two"]),
        combine_transducers([two, one], ["two", "one"]),
        combine_transducers([one, alone], ["one", "two"]),
        join_predictors([runtime_one, runtime_two], ["one", "two"]),
        join_predictors([runtime_two, runtime_one], ["two", "one"]),
    ]
    assert [each.pair_ngram and each.pair_ngram[1:3] for each in ensembles] == [(0.4, n) for n in (1, 0, 1, 1, 0)]
    sources = [Example(source, "") for source in ("dab", "abc", "bb?", "d")]
    found = [[ranked_outputs(traces) for traces in each.ranked_outputs(sources)] for each in ensembles]
    assert "xvw" in found[0][0] and all(each == found[0] for each in found)
    aligned = [each.align_by_pair_ngram([*examples, Example("ac", "vz")]) for each in ensembles]
    assert all(each == two.align_by_pair_ngram([*examples, Example("ac", "vz")]) for each in aligned)
    weighted = [
        choose_pair_ngram_weight(each, each.pair_ngram, examples)
        for each in ensembles
        if isinstance(each, Ensemble) and each.pair_ngram is not None
    ]
    assert weighted[0].weight > 0 and weighted == [weighted[0]] * 3
    with pytest.raises(ArgumentError, match=r"^pair_ngram\.network_index: expected less than 1, got 1"):
        replace(two, pair_ngram=member._replace(network_index=1))


def ranked_outputs(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return the outputs in order, with their rounded scores by the pair n-gram model."""
    scores = [trace.pair_ngram_score for trace in traces]
    rounded = [None if score is None or score == -np.inf else round(score, 6) for score in scores]
    return dict(zip([trace.output for trace in traces], rounded, strict=True))


def test_a_wide_vocabulary_is_ranked_as_in_pytorch() -> None:
    symbols = "".join(map(chr, range(0x4E00, 0x4E00 + 400)))
    assert_equal_predictions_without_scores(*make_pair({}, make_vocabularies("abc", symbols)))


def assert_equal_predictions_without_scores(torch_predictor: Transducer, runtime: RuntimePredictor) -> None:
    """Assert that predictions of both predictors are equal."""
    assert_traces_close(runtime.predict(SOURCES), torch_predictor.predict(SOURCES))


def test_options_that_need_pytorch_are_named() -> None:
    _, runtime = make_pair({})
    for options in (DecodingOptions(required=("v",)), DecodingOptions(masked_positions=(0,))):
        with pytest.raises(UnsupportedError, match=r"does not support (required symbols|attention that is)"):
            runtime.with_options(options).predict(SOURCES)
    with pytest.raises(UnsupportedError, match="attention that is forced"):
        forced = DecodingOptions(forced_attention=(ForcedAttention(0, (1.0,)),))
        runtime.with_options(forced).score_examples([Example("a", "v")])
    with pytest.raises(UnsupportedError, match="does not support sampling"):
        runtime.sample(SOURCES, SamplingConfig(samples=2))
