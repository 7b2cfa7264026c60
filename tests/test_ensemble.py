"""Ensembles of one model, of a model with itself, and of models with different vocabularies."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from small_networks import TARGET_SYMBOLS, make_config, make_vocabularies, make_vocabulary, randomize_parameters
from trained_runs import copy_task_run, digits_run

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.ensemble import Ensemble, ensemble
from pellucid.decoding.inference import EnsembleInference, SingleModelInference, encode_and_initialize
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.outputs import suppressed_symbols, symbol_log_probabilities
from pellucid.decoding.sampling import SamplingConfig
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, RunError
from pellucid.tasks.registry import build_network
from pellucid.training.run_folder import load

TEXTS = ["abc", "a", "", "cab?", "bbbb"]


def member(seed: int, source: str = "abc", cell: str = "gru", score: str = "additive", width: int = 3) -> Transducer:
    """An untrained transducer."""
    search = {"max_length": 6, "beam_size": width}
    config = make_config({"encoder": {"cell": cell}, "attention": {"type": score}, "search": search})
    return untrained_transducer(config, make_vocabularies(source), seed)


def untrained_transducer(config: Config, known: Vocabularies, seed: int) -> Transducer:
    network = build_network(config, known).eval()
    randomize_parameters(network, seed)
    return Transducer(config, known, network)


def with_reordered_targets(model: Transducer, target: str) -> Transducer:
    """The very same model, its target symbols numbered in another order: its tables permuted by hand."""
    known = msgspec.structs.replace(model.vocabularies, target=make_vocabulary(target))
    numbers = torch.tensor([*range(4), *model.vocabularies.target.encode(list(target))])
    network = build_network(model.config, known).eval()
    state = dict(model.network.state_dict())
    for name in ("decoder.table.weight", "decoder.head.projection.weight", "decoder.head.projection.bias"):
        state[name] = state[name][numbers]
    network.load_state_dict(state)
    return Transducer(model.config, known, network)


def assert_same_trace(one: Trace, two: Trace) -> None:
    assert (one.source, one.target, one.output, one.unknown) == (two.source, two.target, two.output, two.unknown)
    np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, atol=1e-4)
    np.testing.assert_allclose(one.attention, two.attention, atol=1e-4)
    np.testing.assert_allclose(one.top_log_probabilities, two.top_log_probabilities, atol=1e-3)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(("cell", "score"), [("gru", "additive"), ("lstm", "location"), ("gru", "none")])
def test_an_ensemble_of_a_model_with_itself_is_the_model(times: int, width: int, cell: str, score: str) -> None:
    alone = member(3, cell=cell, score=score, width=width)
    together = ensemble([alone] * times, ["run"] * times)
    for one, two in zip(alone.predict(TEXTS), together.predict(TEXTS), strict=True):
        assert_same_trace(one, two)
    for options in (DecodingOptions(forbidden=("v",)), DecodingOptions(required=("w",), prefix="x")):
        pairs = zip(
            alone.with_options(options).predict(TEXTS), together.with_options(options).predict(TEXTS), strict=True
        )
        for one, two in pairs:
            assert_same_trace(one, two)
    for lists in zip(alone.nbest(TEXTS, 3), together.nbest(TEXTS, 3), strict=True):
        assert [trace.output for trace in lists[0]] == [trace.output for trace in lists[1]]
    drawing = SamplingConfig(samples=2)
    for lists in zip(alone.sample(TEXTS, drawing), together.sample(TEXTS, drawing), strict=True):
        assert [trace.output for trace in lists[0]] == [trace.output for trace in lists[1]]


def test_probabilities_and_attention_are_the_members_means() -> None:
    models = [member(3), member(4, cell="lstm"), member(5, score="location")]
    both, source = ensemble(models, ["a", "b", "c"]), torch.tensor([[4, 5, 6], [6, 4, 0]])
    lengths = torch.tensor([3, 2])
    with torch.inference_mode():
        together = both.members.initialize(source, lengths)
        apart = [encode_and_initialize(model.network, source, lengths) for model in models]
        for symbols in (torch.tensor([1, 1]), torch.tensor([4, 6])):
            seen, own = together.step(symbols), [each.step(symbols) for each in apart]
            closed = suppressed_symbols(seen.logits.shape[1])
            mean = torch.stack([symbol_log_probabilities(each.logits, closed).exp() for each in own]).mean(dim=0)
            found = symbol_log_probabilities(seen.logits, closed).exp()
            torch.testing.assert_close(found, mean, rtol=1e-4, atol=1e-6)
            weights = torch.stack([each.weights for each in own]).mean(dim=0)
            torch.testing.assert_close(seen.weights, weights, rtol=1e-4, atol=1e-6)
            assert isinstance(seen.after, EnsembleInference)
            together, apart = seen.after, [each.after for each in own if isinstance(each.after, SingleModelInference)]


@pytest.mark.parametrize("copying", [False, True])
def test_members_may_have_target_symbols_in_another_order(copying: bool) -> None:
    """Nothing changes when a member's tables are permuted, whoever comes first; with copying neither."""
    settings = {"decoder": {"pointer_generator": copying}, "search": {"max_length": 6, "beam_size": 3}}
    config = make_config(settings)
    one, two = (untrained_transducer(config, make_vocabularies("abvcw", "vwxyz"), seed) for seed in (3, 4))
    texts, pairs = ["abvc", "w", "", "cab?Q"], [Example("abQ", "vQw"), Example("b", "z")]
    expected = ensemble([one, two], ["a", "b"])
    for members in (
        [one, with_reordered_targets(two, "zxwvy")],
        [with_reordered_targets(one, "wvzyx"), with_reordered_targets(two, "zxwvy")],
    ):
        found = ensemble(members, ["a", "b"])
        for alike in zip(expected.nbest(texts, 3), found.nbest(texts, 3), strict=True):
            for each in zip(*alike, strict=True):
                assert_same_trace(*each)
        for each in zip(expected.force(pairs), found.force(pairs), strict=True):
            assert_same_trace(*each)
        drawing = SamplingConfig(samples=2, top_k=1)
        for alike in zip(expected.sample(texts, drawing), found.sample(texts, drawing), strict=True):
            assert [trace.output for trace in alike[0]] == [trace.output for trace in alike[1]]


def test_members_read_with_their_own_symbols() -> None:
    """A member reads what it does not know itself as unknown; together they know what one of them knows."""
    one, two = member(3, "abc"), member(4, "cbad")
    both = ensemble([one, two], ["one", "two"])
    assert [trace.unknown for trace in both.predict(["abd?"])] == [(3,)]
    pairs = [Example("abd", "vw")]
    weights = np.mean([model.force(pairs)[0].attention for model in (one, two)], axis=0)
    np.testing.assert_allclose(both.force(pairs)[0].attention, weights, atol=1e-5)


def test_scores_of_given_pairs_are_the_means_of_the_members() -> None:
    """ln p of every symbol, whatever each member would spend on what no search can write."""
    models, pairs = [member(3), member(4, cell="lstm")], [Example("abc", "vw"), Example("b", "")]
    for at, trace in enumerate(ensemble(models, ["a", "b"]).force(pairs)):
        own = [np.exp(model.force(pairs)[at].log_probabilities) for model in models]
        np.testing.assert_allclose(trace.log_probabilities, np.log(np.mean(own, axis=0)), atol=1e-5)


def test_an_ensemble_keeps_the_training_mode_of_its_members() -> None:
    models = [member(3), member(4)]
    models[1].network.train()
    ensemble(models, ["a", "b"]).predict(["abc"])
    assert [model.network.training for model in models] == [False, True]


def test_incompatible_runs_are_named() -> None:
    digits, copies = digits_run().run, copy_task_run().run
    with pytest.raises(RunError, match=rf"{digits} writes the symbol '\d' \(and 9 more\), which {copies} does not"):
        load([digits, copies])
    words = member(3)
    more = untrained_transducer(words.config, make_vocabularies("abc", TARGET_SYMBOLS + "u"), 3)
    for pair, names in (([words, more], "ba"), ([more, words], "ab")):
        message = f"^{names[0]} writes the symbol 'u', which {names[1]} does not: members of an ensemble"
        with pytest.raises(RunError, match=message):
            ensemble(pair, ["a", "b"])
    added = msgspec.structs.replace(words.config.encoder, features="sum")
    summed = Transducer(msgspec.structs.replace(words.config, encoder=added), words.vocabularies, words.network)
    with pytest.raises(RunError, match=r"a and b differ in encoder\.features"):
        ensemble([words, summed], ["a", "b"])
    cut = make_config({"data": {"source_symbols": "words"}})
    with pytest.raises(RunError, match=r"a and b differ in data\.source_symbols"):
        ensemble([words, Transducer(cut, words.vocabularies, words.network)], ["a", "b"])
    with pytest.raises(ArgumentError, match=r"^run: expected a path or a list of one path at least, got \[\]$"):
        load([])
    with pytest.raises(RunError, match="one model at least"):
        ensemble([], [])
    with pytest.raises(ArgumentError, match=r"^members: expected one model at least, got none$"):
        Ensemble(words.config, words.vocabularies, words.network)


def test_the_same_folder_twice_is_the_run(tmp_path: Path) -> None:
    run = digits_run().run
    texts = ["one two", "nine", "three four five"]
    both = load([run, run])
    assert [trace.output for trace in both.predict(texts)] == [trace.output for trace in load(run).predict(texts)]
    assert torch.is_grad_enabled() and both.max_length == load(run).max_length
