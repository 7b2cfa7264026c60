"""Ensembles of one model, of one model repeated, and of models with different vocabularies."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from small_networks import TARGET_SYMBOLS, make_config, make_vocabularies, make_vocabulary, randomize_parameters
from trained_runs import copy_run_folder, copy_task_run, digits_run, write_old_model

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.ensemble import Ensemble, combine_transducers
from pellucid.decoding.inference import EnsembleInference, SingleModelInference, encode_and_initialize
from pellucid.decoding.labeling_predictor import LabelingPredictor
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.pair_ngram_interpolation import InterpolatedPairNgram
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.topk import suppressed_symbols, symbol_log_probabilities
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, ConfigError, RunError
from pellucid.inspection.attribution import attribute
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_network

TEXTS = ["abc", "a", "", "cab?", "bbbb"]


def build_member(
    seed: int, source: str = "abc", cell: str = "gru", score: str = "additive", beam_size: int = 3
) -> Transducer:
    """Return an untrained transducer."""
    search = {"max_length": 6, "beam_size": beam_size}
    config = make_config({"encoder": {"cell": cell}, "attention": {"type": score}, "search": search})
    return build_untrained_transducer(config, make_vocabularies(source), seed)


def build_untrained_transducer(config: Config, vocabs: Vocabularies, seed: int) -> Transducer:
    network = build_network(config, vocabs).eval()
    randomize_parameters(network, seed)
    return Transducer(config, vocabs, network)


def reorder_targets(model: Transducer, target: str) -> Transducer:
    """Return the same model with its target symbols in another order and its tables permuted accordingly."""
    vocabs = msgspec.structs.replace(model.vocabularies, target=make_vocabulary(target))
    permutation = torch.tensor([*range(4), *model.vocabularies.target.encode(list(target))])
    network = build_network(model.config, vocabs).eval()
    state = dict(model.network.state_dict())
    for name in ("decoder.table.weight", "decoder.head.projection.weight", "decoder.head.projection.bias"):
        state[name] = state[name][permutation]
    network.load_state_dict(state)
    return Transducer(model.config, vocabs, network)


def assert_same_trace(one: Trace, two: Trace) -> None:
    assert (one.source, one.target, one.output, one.unknown) == (two.source, two.target, two.output, two.unknown)
    np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, atol=1e-4)
    np.testing.assert_allclose(one.attention, two.attention, atol=1e-4)
    np.testing.assert_allclose(one.top_log_probabilities, two.top_log_probabilities, atol=1e-3)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize(("cell", "score"), [("gru", "additive"), ("lstm", "location"), ("gru", "none")])
def test_an_ensemble_of_one_model_repeated_equals_the_model(times: int, beam_size: int, cell: str, score: str) -> None:
    single = build_member(3, cell=cell, score=score, beam_size=beam_size)
    combined = combine_transducers([single] * times, ["run"] * times)
    for one, two in zip(single.predict(TEXTS), combined.predict(TEXTS), strict=True):
        assert_same_trace(one, two)
    for options in (DecodingOptions(forbidden=("v",)), DecodingOptions(required=("w",), prefix="x")):
        pairs = zip(
            single.with_options(options).predict(TEXTS), combined.with_options(options).predict(TEXTS), strict=True
        )
        for one, two in pairs:
            assert_same_trace(one, two)
    for lists in zip(single.nbest(TEXTS, 3), combined.nbest(TEXTS, 3), strict=True):
        assert [trace.output for trace in lists[0]] == [trace.output for trace in lists[1]]
    sampling = SamplingConfig(samples=2)
    for lists in zip(single.sample(TEXTS, sampling), combined.sample(TEXTS, sampling), strict=True):
        assert [trace.output for trace in lists[0]] == [trace.output for trace in lists[1]]


def test_probabilities_and_attention_are_the_members_means() -> None:
    models = [build_member(3), build_member(4, cell="lstm"), build_member(5, score="location")]
    combined_model, source = combine_transducers(models, ["a", "b", "c"]), torch.tensor([[4, 5, 6], [6, 4, 0]])
    lengths = torch.tensor([3, 2])
    with torch.inference_mode():
        state = combined_model.members.initialize(source, lengths)
        member_states = [encode_and_initialize(model.network, source, lengths) for model in models]
        for symbols in (torch.tensor([1, 1]), torch.tensor([4, 6])):
            combined, outputs = state.step(symbols), [each.step(symbols) for each in member_states]
            suppressed = suppressed_symbols(combined.logits.shape[1])
            mean = torch.stack([symbol_log_probabilities(each.logits, suppressed).exp() for each in outputs]).mean(
                dim=0
            )
            actual = symbol_log_probabilities(combined.logits, suppressed).exp()
            torch.testing.assert_close(actual, mean, rtol=1e-4, atol=1e-6)
            weights = torch.stack([each.weights for each in outputs]).mean(dim=0)
            torch.testing.assert_close(combined.weights, weights, rtol=1e-4, atol=1e-6)
            assert isinstance(combined.after, EnsembleInference)
            state = combined.after
            member_states = [each.after for each in outputs if isinstance(each.after, SingleModelInference)]


def test_index_select_selects_rows_as_torch_does() -> None:
    single, combined = build_member(3), combine_transducers([build_member(3), build_member(4)], ["a", "b"])
    source, lengths, rows = torch.tensor([[4, 5, 6], [6, 4, 0]]), torch.tensor([3, 2]), torch.tensor([1, 0])
    symbols = torch.tensor([4, 6])
    with torch.inference_mode():
        for inference in (
            encode_and_initialize(single.network, source, lengths),
            combined.members.initialize(source, lengths),
        ):
            expected = inference.step(symbols).logits.index_select(0, rows)
            selected = inference.index_select(rows, rows)
            torch.testing.assert_close(selected.step(symbols.index_select(0, rows)).logits, expected)


@pytest.mark.parametrize("copying", [False, True])
def test_members_may_have_target_symbols_in_another_order(copying: bool) -> None:
    """Outputs do not change when the tables of one member or of both are permuted, with and without copying."""
    settings = {"decoder": {"pointer_generator": copying}, "search": {"max_length": 6, "beam_size": 3}}
    config = make_config(settings)
    one, two = (build_untrained_transducer(config, make_vocabularies("abvcw", "vwxyz"), seed) for seed in (3, 4))
    texts, pairs = ["abvc", "w", "", "cab?Q"], [Example("abQ", "vQw"), Example("b", "z")]
    expected = combine_transducers([one, two], ["a", "b"])
    for members in (
        [one, reorder_targets(two, "zxwvy")],
        [reorder_targets(one, "wvzyx"), reorder_targets(two, "zxwvy")],
    ):
        actual = combine_transducers(members, ["a", "b"])
        for lists in zip(expected.nbest(texts, 3), actual.nbest(texts, 3), strict=True):
            for each in zip(*lists, strict=True):
                assert_same_trace(*each)
        for each in zip(expected.score_examples(pairs), actual.score_examples(pairs), strict=True):
            assert_same_trace(*each)
        sampling = SamplingConfig(samples=2, top_k=1)
        for lists in zip(expected.sample(texts, sampling), actual.sample(texts, sampling), strict=True):
            assert [trace.output for trace in lists[0]] == [trace.output for trace in lists[1]]


@pytest.mark.parametrize("copying", [False, True])
def test_an_ensemble_as_a_member_adds_all_its_networks(copying: bool) -> None:
    """Also with other source symbols and other orders of target symbols on both levels, and with copying."""
    settings = {"decoder": {"pointer_generator": copying}, "search": {"max_length": 6, "beam_size": 3}}
    config = make_config(settings)
    one, two, three = (
        build_untrained_transducer(config, make_vocabularies(source, "vwxyz"), seed)
        for source, seed in (("abv", 3), ("cbav", 4), ("dvab", 5))
    )
    two, three = reorder_targets(two, "zxwvy"), reorder_targets(three, "yvzxw")
    texts, pairs = ["abvc", "d", "", "cab?Q"], [Example("abQ", "vQw" if copying else "vw"), Example("b", "z")]
    expected = combine_transducers([one, two, three], ["one", "two", "three"])
    inner = combine_transducers([two, three], ["two", "three"])
    actual = combine_transducers([one, inner], ["one", "inner"])
    assert actual.networks == expected.networks == (one.network, two.network, three.network)
    assert actual.vocabularies == expected.vocabularies
    for lists in zip(expected.nbest(texts, 3), actual.nbest(texts, 3), strict=True):
        for each in zip(*lists, strict=True):
            assert_same_trace(*each)
    for each in zip(expected.score_examples(pairs), actual.score_examples(pairs), strict=True):
        assert_same_trace(*each)
    repeated = combine_transducers([inner], ["inner"])
    assert repeated.networks == inner.networks
    for each in zip(inner.score_examples(pairs), repeated.score_examples(pairs), strict=True):
        assert_same_trace(*each)


def test_members_encode_sources_with_their_own_vocabulary() -> None:
    """A member encodes symbols outside its own vocabulary as unknown; the ensemble knows the union."""
    one, two = build_member(3, "abc"), build_member(4, "cbad")
    combined = combine_transducers([one, two], ["one", "two"])
    assert [trace.unknown for trace in combined.predict(["abd?"])] == [(3,)]
    pairs = [Example("abd", "vw")]
    weights = np.mean([model.score_examples(pairs)[0].attention for model in (one, two)], axis=0)
    np.testing.assert_allclose(combined.score_examples(pairs)[0].attention, weights, atol=1e-5)


def test_first_member_with_a_pair_ngram_model_may_have_fewer_source_symbols() -> None:
    one, two = build_member(3, "abc"), build_member(4, "cbad")
    pairs = [Example("ab", "vw"), Example("ca", "xv")] * 3
    fitted = fit_pair_ngram_predictor(pairs, one.tokenizers, one.vocabularies)
    assert fitted is not None
    ranked = replace(one, pair_ngram=InterpolatedPairNgram(fitted.model, 0.5, 0))
    combined = combine_transducers([ranked, two], ["one", "two"])
    assert combined.pair_ngram is not None and combined.pair_ngram.model == fitted.model
    assert [trace.source for trace in combined.predict(["abd", "ca"])] == [("a", "b", "d"), ("c", "a")]
    other = fit_pair_ngram_predictor(pairs, one.tokenizers, make_vocabularies("abcdefgh"))
    assert other is not None
    with pytest.raises(ArgumentError, match=r"^pair_ngram: expected a model of 8 source"):
        replace(combined, pair_ngram=InterpolatedPairNgram(other.model, 0.5, 0))


@pytest.mark.parametrize("nested", [False, True])
def test_members_copy_symbols_that_only_other_members_know(nested: bool) -> None:
    """Such a symbol has a target id of the member ("v"), or is copied by its first position ("8", "9")."""
    config = make_config({"decoder": {"pointer_generator": True}, "search": {"max_length": 6, "beam_size": 3}})
    models = [
        build_untrained_transducer(config, make_vocabularies(source, "vwxyz"), seed)
        for source, seed in (("ab9", 3), ("abv", 4), ("8ab", 5))
    ]
    models[1] = reorder_targets(models[1], "zxwvy")
    combined = combine_transducers(models[:2], ["0", "1"])
    combined = combine_transducers([combined, models[2]] if nested else models, ["01", "2"] if nested else list("012"))
    pairs = [Example("a98v9", "9v8"), Example("v?9", "9?v"), Example("ab", "w")]
    alone = [model.score_examples(pairs) for model in models]
    for index, trace in enumerate(combined.score_examples(pairs)):
        probabilities = [np.exp(traces[index].log_probabilities) for traces in alone]
        np.testing.assert_allclose(trace.log_probabilities, np.log(np.mean(probabilities, axis=0)), atol=1e-4)
        assert trace.unknown_target == ()


def test_attribution_of_an_ensemble_that_copies_is_finite() -> None:
    """Symbols that no member can write at a position have a probability of zero, whose gradient is zero."""
    config = make_config({"decoder": {"pointer_generator": True}, "search": {"max_length": 6, "beam_size": 3}})
    one, two = (build_untrained_transducer(config, make_vocabularies("abvcw", "vwxyz"), seed) for seed in (3, 4))
    for models in ([one], [one, two]):
        combined = combine_transducers(models, [str(index) for index in range(len(models))])
        for source in ("aa", "va", "bcb"):
            assert np.isfinite(attribute(combined, combined.predict([source])[0]).input_x_gradient).all()


def test_scores_of_given_pairs_are_the_means_of_the_members() -> None:
    """The probability of a symbol is the mean over members, each normalized over the symbols that search can output."""
    models, pairs = [build_member(3), build_member(4, cell="lstm")], [Example("abc", "vw"), Example("b", "")]
    for index, trace in enumerate(combine_transducers(models, ["a", "b"]).score_examples(pairs)):
        probabilities = [np.exp(model.score_examples(pairs)[index].log_probabilities) for model in models]
        np.testing.assert_allclose(trace.log_probabilities, np.log(np.mean(probabilities, axis=0)), atol=1e-5)


def test_an_ensemble_keeps_the_training_mode_of_its_members() -> None:
    models = [build_member(3), build_member(4)]
    models[1].network.train()
    combine_transducers(models, ["a", "b"]).predict(["abc"])
    assert [model.network.training for model in models] == [False, True]


def test_equally_many_other_target_symbols_are_refused(tmp_path: Path) -> None:
    first = copy_task_run().run
    other = copy_run_folder(first, tmp_path / "other")
    content = json.loads((other / "vocabulary.json").read_text("utf-8"))
    replaced, content["target"]["symbols"][1] = content["target"]["symbols"][1], "ж"
    (other / "vocabulary.json").write_text(json.dumps(content), "utf-8")
    write_old_model(other)  # it does not record its vocabulary
    message = rf"{first} writes the symbol '{replaced}', which {other} does not: members of an ensemble have the same"
    with pytest.raises(RunError, match=message):
        load([first, other])
    models = build_member(3), build_untrained_transducer(build_member(3).config, make_vocabularies("abc", "vwxyu"), 3)
    assert len(models[0].vocabularies.target) == len(models[1].vocabularies.target)
    with pytest.raises(RunError, match=r"^a writes the symbol 'z', which b does not: members of "):
        combine_transducers(models, ["a", "b"])


def test_incompatible_runs_are_named() -> None:
    digits, copies = digits_run().run, copy_task_run().run
    with pytest.raises(RunError, match=rf"{digits} writes the symbol '\d' \(and 9 more\), which {copies} does not"):
        load([digits, copies])
    transducer = build_member(3)
    larger = build_untrained_transducer(transducer.config, make_vocabularies("abc", TARGET_SYMBOLS + "u"), 3)
    for pair, names in (([transducer, larger], "ba"), ([larger, transducer], "ab")):
        message = f"^{names[0]} writes the symbol 'u', which {names[1]} does not: members of an ensemble"
        with pytest.raises(RunError, match=message):
            combine_transducers(pair, ["a", "b"])
    settings = msgspec.structs.replace(transducer.config.encoder, feature_merge="sum")
    summed = Transducer(
        msgspec.structs.replace(transducer.config, encoder=settings), transducer.vocabularies, transducer.network
    )
    with pytest.raises(RunError, match=r"a and b differ in encoder\.feature_merge"):
        combine_transducers([transducer, summed], ["a", "b"])
    copying_config = make_config({"decoder": {"pointer_generator": True}})
    copying = Transducer(
        copying_config, transducer.vocabularies, build_network(copying_config, transducer.vocabularies).eval()
    )
    for pair in ([transducer, copying], [copying, transducer]):
        with pytest.raises(
            RunError, match=r"a and b differ in decoder\.pointer_generator: members of an ensemble need"
        ):
            combine_transducers(pair, ["a", "b"])
    word_config = make_config({"data": {"source_symbols": "words"}})
    with pytest.raises(RunError, match=r"a and b differ in data\.source_symbols"):
        combine_transducers(
            [transducer, Transducer(word_config, transducer.vocabularies, transducer.network)], ["a", "b"]
        )
    with pytest.raises(ArgumentError, match=r"^run: expected a path or a list of one path at least, got \[\]$"):
        load([])
    with pytest.raises(RunError, match="one model at least"):
        combine_transducers([], [])
    with pytest.raises(ArgumentError, match=r"^members: expected one model at least, got none$"):
        Ensemble(transducer.config, transducer.vocabularies, transducer.network)


@pytest.mark.parametrize(
    ("members", "names", "message"),
    [
        (1, [], r"^names: expected as many as members has \(1\), got 0$"),
        (1, ["a", "b"], r"^names: expected as many as members has \(1\), got 2$"),
        (2, "ab", r"^names: expected "),
        (None, ["a"], r"^members\[0\]: expected "),
    ],
)
def test_wrong_members_and_names_are_refused(members: int | None, names: str | list[str], message: str) -> None:
    given = [None] if members is None else [build_member(3)] * members
    with pytest.raises(ArgumentError, match=message):
        combine_transducers(given, names)  # type: ignore[arg-type]


def test_members_may_be_an_iterator() -> None:
    members: Any = iter([build_member(3), build_member(4)])
    assert len(combine_transducers(members, ["a", "b"]).networks) == 2


def test_config_vocabularies_and_network_must_agree() -> None:
    model, larger = build_member(3), build_member(3, "abcd")
    targets = msgspec.structs.replace(model.vocabularies, target=make_vocabulary("v"))
    tag_config = make_config({"task": "tag"})
    tagger = build_network(tag_config, model.vocabularies)
    advice = "; config, vocabularies and network must be those of one model$"
    with pytest.raises(ArgumentError, match="^vocabularies: expected 7 source ids and 0 of features, as .*" + advice):
        Transducer(model.config, larger.vocabularies, model.network)
    with pytest.raises(ArgumentError, match="^vocabularies: expected target symbols for the 9 ids .*, got 5" + advice):
        Transducer(model.config, targets, model.network)
    with pytest.raises(ArgumentError, match="^network: a Transducer cannot use the class Tagger" + advice):
        Transducer(model.config, model.vocabularies, tagger)
    with pytest.raises(ArgumentError, match="^config: a Transducer cannot have the task 'tag'" + advice):
        Transducer(tag_config, model.vocabularies, model.network)
    with pytest.raises(
        ArgumentError, match="^network: a LabelingPredictor cannot use the class EncoderDecoder" + advice
    ):
        LabelingPredictor(tag_config, model.vocabularies, model.network)
    tags = LabelingPredictor(tag_config, model.vocabularies, tagger)
    with pytest.raises(ConfigError, match=r"^members: expected outputs written symbol by symbol"):
        combine_transducers([tags], ["tags"])
    with pytest.raises(ArgumentError, match=r"^vocabularies: expected target symbols for the 9 ids"):
        Ensemble(model.config, targets, model.network, members=combine_transducers([model], ["a"]).members)


def test_an_ensemble_of_one_folder_twice_equals_the_run(tmp_path: Path) -> None:
    run = digits_run().run
    texts = ["one two", "nine", "three four five"]
    combined = load([run, run])
    assert [trace.output for trace in combined.predict(texts)] == [trace.output for trace in load(run).predict(texts)]
    assert torch.is_grad_enabled() and combined.max_length == load(run).max_length
