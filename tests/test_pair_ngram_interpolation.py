"""decoding/pair_ngram_interpolation.py and its use in searches: candidates of both models, ranked by both scores."""

from collections import defaultdict
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trained_runs import digits_run

from pellucid.data.examples import Example, read_examples
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.decoding.constraints import NO_CONSTRAINTS
from pellucid.decoding.ensemble import Ensemble, combine_transducers
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.outputs import DecodedOutput, LengthLimits, batch_length_limits
from pellucid.decoding.pair_ngram_interpolation import (
    NUM_OUTPUTS,
    WEIGHTS,
    CandidateScores,
    InterpolatedPairNgram,
    NetworkIds,
    best_candidate_edits,
    choose_weight,
    interpolate,
    propose_outputs,
    rank_by_interpolation,
)
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, ConfigError, RunError
from pellucid.pair_ngram.model import PairNgram
from pellucid.pair_ngram.predictor import PairNgramPredictor, fit_pair_ngram_predictor
from pellucid.run_folder.predictor_loader import load


@pytest.fixture(scope="module")
def transducer() -> Transducer:
    """Return a trained transducer without a pair n-gram model."""
    predictor = load(digits_run().run)
    assert isinstance(predictor, Transducer) and predictor.pair_ngram is None
    return predictor.with_beam(3)


@pytest.fixture(scope="module")
def pair_ngram(transducer: Transducer) -> PairNgramPredictor:
    """Return the pair n-gram model of its training file."""
    examples = read_examples(digits_run().files.train, transducer.config.data).examples
    predictor = fit_pair_ngram_predictor(examples, transducer.tokenizers, transducer.vocabularies)
    assert predictor is not None
    return predictor


@pytest.fixture(scope="module")
def examples(transducer: Transducer) -> list[Example]:
    """Return the validation examples, and one with a symbol outside the vocabulary."""
    return [*read_examples(digits_run().files.valid, transducer.config.data).examples, Example("four§", "")]


def with_weight(transducer: Transducer, pair_ngram: PairNgramPredictor, weight: float) -> Transducer:
    return replace(transducer, pair_ngram=InterpolatedPairNgram(pair_ngram.model, weight, 0))


def outputs_of(lists: list[list[Trace]]) -> list[list[str]]:
    return [[trace.output for trace in traces] for traces in lists]


def search_score(trace: Trace) -> float:
    assert trace.search_score is not None
    return trace.search_score


def make_hypothesis(score: float) -> Hypothesis:
    empty = np.zeros((0, 0), np.float32)
    return Hypothesis(DecodedOutput(np.zeros(0, np.int64), np.zeros(0, np.float32), empty, empty, empty), score)


def test_an_output_without_an_alignment_has_one_score_in_all_lists(
    transducer: Transducer, pair_ngram: PairNgramPredictor
) -> None:
    """Regression test: its score was 10 less than the lowest of the other candidates, and 0 without another one."""
    options, model = DecodingOptions(prefix="1234567"), pair_ngram.model
    source, target = (
        vocabulary.encode(text)
        for vocabulary, text in ((transducer.vocabularies.source, "x"), (transducer.vocabularies.target, "1234567"))
    )
    assert model.log_probability(source, target) == -np.inf
    assert model.score(source, target) == 8 * model.table.unseen_log_probability < model.score(source, target[:4])
    predictor = with_weight(transducer, pair_ngram, 0.6).with_options(options)
    scores = defaultdict[str, list[float]](list)
    for beam_size, nbest in ((1, 1), (3, 1), (3, 3), (8, 8)):
        traces = predictor.with_beam(beam_size).nbest(["x"], nbest)[0]
        assert all(trace.pair_ngram_score is not None for trace in traces)
        for trace in traces:
            expected = 0.4 * trace.score + 0.6 * model.score(
                source, transducer.vocabularies.target.encode(trace.symbols)
            )
            assert search_score(trace) == pytest.approx(expected, abs=1e-4)
            scores[trace.output].append(search_score(trace))
    assert max(map(len, scores.values())) > 1
    assert all(each == pytest.approx([each[0]] * len(each), abs=1e-4) for each in scores.values())


def test_ids_of_a_network_are_mapped_without_copied_symbols_and_features() -> None:
    assert NetworkIds().map_source([4, 9, 5, 6, -1], 6) == [4, 5], "regression test: left to the callers"
    ids = NetworkIds(np.array([0, 1, 2, 3, 7, 4, 5]), np.array([0, 1, 2, 3, 6, 4, 5]))
    assert ids.map_source([5, 9, 4, 6, -1], 6) == [4, 5]
    assert ids.map_target((4, 5)) == (6, 4) and NetworkIds().map_target([4]) == NetworkIds().unmap_target([4]) == (4,)


def test_the_map_of_target_ids_is_inverted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the whole vocabulary was sorted for each output."""
    ids, sort, sorts = NetworkIds(target=np.array([0, 1, 2, 3, 6, 4, 5])), np.argsort, list[int]()

    def count_sort(values: np.ndarray) -> np.ndarray:
        sorts.append(len(values))
        return sort(values)

    monkeypatch.setattr(np, "argsort", count_sort)
    assert [ids.unmap_target(ids.map_target((4, symbol))) for symbol in (4, 5, 6)] == [(4, 4), (4, 5), (4, 6)]
    assert sorts == [7]


def test_outputs_of_probability_zero_come_last() -> None:
    for weight in (0.0, 0.5, 1.0):
        scores = interpolate(np.array([-np.inf, -2.0]), np.array([-1.0, -30.0]), weight)
        assert scores[0] == -np.inf and np.isfinite(scores[1])


def test_hypotheses_are_ranked_by_the_interpolated_score() -> None:
    hypotheses = [make_hypothesis(score) for score in (-1.0, -2.0, -9.0)]
    ranked = rank_by_interpolation(hypotheses, [-8.0, -4.0, -9.5], 0.5, 2)
    assert [hypothesis.score for hypothesis in ranked] == [-3.0, -4.5]
    assert [hypothesis.pair_ngram_score for hypothesis in ranked] == [-4.0, -8.0]


@given(
    st.lists(
        st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0), st.integers(0, 2)), min_size=1, max_size=4),
        min_size=1,
        max_size=6,
    )
)
def test_the_weight_has_the_most_correct_outputs_and_the_fewest_edits_near_it(
    rows: list[list[tuple[float, float, int]]],
) -> None:
    candidates = [
        CandidateScores(
            np.array([row[0] for row in source]), np.array([row[1] for row in source]), np.ones(len(source), np.bool_)
        )
        for source in rows
    ]
    edits = [[row[2] for row in source] for source in rows]
    best_edits = [best_candidate_edits(candidates, edits, weight) for weight in WEIGHTS]
    scores = [(counts.count(0), -sum(counts)) for counts in best_edits]

    def smoothed(number: int) -> tuple[int, int]:
        last = len(WEIGHTS) - 1
        near = [scores[max(number - 1, 0)], scores[number], scores[min(number + 1, last)]]
        return sum(one[0] for one in near), sum(one[1] for one in near)

    chosen = WEIGHTS.index(choose_weight(candidates, edits))
    best = max(range(len(WEIGHTS)), key=smoothed)  # of equal ones the first
    assert chosen == (best if scores[best] > scores[0] else 0)


def test_a_weight_that_is_no_better_than_the_network_alone_is_not_chosen() -> None:
    """Regression test: 0.15 was chosen, whose neighbors have as many correct outputs, unlike that of 0."""
    by_network, by_pair_ngram = (
        CandidateScores(np.array(network), np.array(pair_ngram), np.ones(2, np.bool_))
        for network, pair_ngram in (([-1.0, -2.0], [-51.0, -2.0]), ([-2.0, -9.0], [-102.0, -2.0]))
    )  # the first source is right up to the weight 0.02, the second from 0.065 on
    candidates, edits = [by_network, by_pair_ngram], [[0, 1], [1, 0]]
    assert [best_candidate_edits(candidates, edits, weight).count(0) for weight in WEIGHTS] == [1, 0, *[1] * 19]
    assert choose_weight(candidates, edits) == 0
    assert choose_weight([], []) == 0


def test_if_no_output_is_correct_fewer_edits_decide() -> None:
    """Regression test: the weight was 0 if nine sources decided, of which neither model had one right."""
    scores = CandidateScores(np.array([-1.0, -2.0]), np.array([-9.0, -2.0]), np.ones(2, np.bool_))
    assert choose_weight([scores], [[5, 1]]) > 0
    assert choose_weight([scores], [[1, 5]]) == choose_weight([scores], [[3, 3]]) == 0


def test_weight_zero_is_the_network_alone_if_its_outputs_are_cut() -> None:
    """Regression test: finished outputs of the pair n-gram model counted as those of the network alone."""
    finished = np.array([False, True])
    scores = CandidateScores(np.array([-1.0, -20.0]), np.array([-50.0, -2.0]), finished)
    assert [scores.best(weight) for weight in (0.0, 0.05, 1.0)] == [0, 1, 1]
    assert choose_weight([scores], [[7, 0]]) == 0.1  # the first whose neighbors have the finished output too


def test_weight_zero_gives_the_outputs_of_the_network(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    alone = transducer.nbest([example.source for example in examples], 3)
    both = with_weight(transducer, pair_ngram, 0.0).ranked_outputs(examples)
    assert outputs_of(alone) == [outputs[: len(own)] for outputs, own in zip(outputs_of(both), alone, strict=True)]


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_scores_are_those_of_both_models(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example], weight: float
) -> None:
    lists = with_weight(transducer, pair_ngram, weight).ranked_outputs(examples)
    given_outputs = [Example(trace.text, trace.output) for traces in lists for trace in traces if trace.finished]
    scored = iter(transducer.score_examples(given_outputs))
    for traces in lists:
        assert 3 <= len(traces) <= 3 + NUM_OUTPUTS and len({trace.output for trace in traces}) == len(traces)
        assert [trace.rank for trace in traces] == list(range(1, len(traces) + 1))
        scores = [search_score(trace) for trace in traces]
        assert weight == 0 or scores == sorted(scores, reverse=True)
        for trace in traces:
            if trace.finished:
                assert trace.score == pytest.approx(next(scored).score, abs=1e-4)
            if trace.pair_ngram_score is not None:
                expected = (1 - weight) * trace.score + weight * trace.pair_ngram_score
                assert trace.search_score == pytest.approx(expected, abs=1e-4)
            assert Trace.from_json(trace.to_json(compact=True)).pair_ngram_score == trace.pair_ngram_score


def test_weight_one_gives_the_best_output_of_the_pair_ngram_model(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    model, vocabularies = pair_ngram.model, transducer.vocabularies
    traces = with_weight(transducer, pair_ngram, 1.0).predict_examples(examples)
    for example, trace, best in zip(examples, traces, pair_ngram.nbest(examples, 1), strict=True):
        ids = vocabularies.source.encode(example.source)
        score, best_score = (
            model.log_probability(ids, vocabularies.target.encode(symbols)) for symbols in (trace.symbols, best[0])
        )
        assert trace.pair_ngram_score == pytest.approx(score) and search_score(trace) >= best_score


def test_batch_composition_changes_nothing(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    predictor = with_weight(transducer, pair_ngram, 0.5)
    together = predictor.nbest_examples(examples, 4)
    alone = [predictor.nbest_examples([example], 4)[0] for example in examples]
    assert outputs_of(together) == outputs_of(alone)
    np.testing.assert_allclose(
        [search_score(trace) for traces in together for trace in traces],
        [search_score(trace) for traces in alone for trace in traces],
        atol=1e-4,
    )
    streamed = list(predictor.nbest_examples(iter(examples), 4))
    assert outputs_of(streamed) == outputs_of(together)


def test_the_list_of_an_ensemble_of_one_is_that_of_its_member(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    member = with_weight(transducer, pair_ngram, 0.4)
    ensemble = combine_transducers([member], ["member"])
    assert outputs_of(ensemble.nbest_examples(examples, 3)) == outputs_of(member.nbest_examples(examples, 3))
    for pair in ([member, transducer], [transducer, member]):
        joined = combine_transducers(pair, ["one", "two"])
        assert joined.pair_ngram is not None and joined.pair_ngram.weight == pytest.approx(0.2)


def test_an_ensemble_of_ensembles_has_the_weight_of_the_same_members_in_one_list(
    transducer: Transducer, pair_ngram: PairNgramPredictor
) -> None:
    one, two, three = (with_weight(transducer, pair_ngram, weight) for weight in (0.6, 0.3, 0.1))

    def join(*members: Transducer) -> Ensemble:
        return combine_transducers(members, [str(number) for number in range(len(members))])

    weight = join(one, two, transducer, three).pair_ngram_weight
    assert weight == pytest.approx(0.25)
    nested = [join(join(one, two), transducer, three), join(one, join(two, transducer), three)]
    nested += [join(one, join(two, join(transducer, three))), join(join(join(one, two), transducer), three)]
    assert [each.pair_ngram_weight for each in nested] == [weight] * 4
    assert join(join(transducer, one), two).pair_ngram_weight == pytest.approx(0.3)
    assert replace(join(one, two), pair_ngram=None).pair_ngram_weight == 0
    assert join(replace(join(one, two), pair_ngram=None), three).pair_ngram_weight == pytest.approx(0.1 / 3)
    changed = replace(join(one, two), pair_ngram=InterpolatedPairNgram(pair_ngram.model, 0.9, 0))
    assert join(changed, transducer).pair_ngram_weight == pytest.approx(0.6)


def test_the_pair_ngram_model_alone_gives_its_best_outputs(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    """Also in an ensemble, whose ids may be others, and with any weight and lexicon."""
    expected = [nbest[0] for nbest in pair_ngram.nbest(examples, 1)]
    member = with_weight(transducer, pair_ngram, 0.3)
    assert member.predict_by_pair_ngram(examples) == expected
    assert member.predict_by_pair_ngram([Example("", "")]) == [()]
    lexicon = member.with_options(DecodingOptions(lexicon=Lexicon({examples[0].source: ("999",)})))
    assert lexicon.predict_by_pair_ngram(examples[:1]) == expected[:1]
    vocabularies = transducer.vocabularies
    source, target = (
        msgspec.structs.replace(vocabulary, symbols=vocabulary.symbols[::-1], counts=vocabulary.counts[::-1])
        for vocabulary in (vocabularies.source, vocabularies.target)
    )
    other = replace(transducer, vocabularies=msgspec.structs.replace(vocabularies, source=source, target=target))
    joined = combine_transducers([other, member], ["other", "member"])
    assert joined.vocabularies.target.symbols == target.symbols
    assert joined.predict_by_pair_ngram(examples) == expected
    with pytest.raises(ConfigError, match="no pair n-gram model"):
        transducer.predict_by_pair_ngram(examples)


def test_outputs_are_proposed_without_a_network(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    """Regression test: only a predictor, with its network, could tell which outputs become candidates."""
    ids = [transducer.vocabularies.source.encode(example.source) for example in examples[:2]]
    lengths = np.array([len(row) for row in ids])
    source = np.zeros((2, lengths.max()), np.int64)
    for row, values in enumerate(ids):
        source[row, : len(values)] = values
    batch, limits = SourceBatch(np.arange(2), source, lengths, lengths), batch_length_limits(LengthLimits(0, 10), 2)
    best = [pair_ngram.model.search(row, NUM_OUTPUTS) for row in ids]
    found = [[make_hypothesis(-1.0)], [make_hypothesis(-1.0)]]  # empty outputs
    member = InterpolatedPairNgram(pair_ngram.model, 0.5, 0)
    proposed = propose_outputs(member, NetworkIds(), batch, found, limits, NO_CONSTRAINTS)
    assert proposed.added == [(row, output.target) for row in (0, 1) for output in best[row]]
    for row in (0, 1):
        expected = [pair_ngram.model.score(ids[row], target) for target in ((), *(each.target for each in best[row]))]
        assert proposed.scores[row] == pytest.approx(expected)
    forbidden = NO_CONSTRAINTS._replace(forbidden=np.array([best[0][0].target[0]]))
    assert all(
        best[0][0].target[0] not in target
        for _, target in propose_outputs(member, NetworkIds(), batch, found, limits, forbidden).added
    )


def test_outputs_of_the_pair_ngram_model_satisfy_constraints(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    predictor = with_weight(transducer, pair_ngram, 1.0)
    forbidden = predictor.with_options(DecodingOptions(forbidden=("1",)))
    assert not any("1" in trace.output for traces in forbidden.ranked_outputs(examples) for trace in traces)
    prefixed = predictor.with_options(DecodingOptions(prefix="2"))
    assert all(trace.output.startswith("2") for trace in prefixed.predict_examples(examples[:-1]))
    lexicon = predictor.with_options(DecodingOptions(lexicon=Lexicon({examples[0].source: ("999",)})))
    assert lexicon.predict_examples(examples[:1])[0].output == "999"


@pytest.mark.parametrize(
    "options", [DecodingOptions(masked_positions=(0,)), DecodingOptions(forced_attention=(ForcedAttention(0, (1.0,)),))]
)
def test_options_that_change_attention_show_the_network_alone(
    transducer: Transducer, pair_ngram: PairNgramPredictor, options: DecodingOptions
) -> None:
    sources = [Example("a", "")] if options.forced_attention else [Example("five", "")]
    alone = transducer.with_options(options).predict_examples(sources)
    both = with_weight(transducer, pair_ngram, 0.9).with_options(options).predict_examples(sources)
    assert [trace.to_json() for trace in both] == [trace.to_json() for trace in alone]


def test_search_settings_disable_the_pair_ngram_model(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    alone = [trace.to_json() for trace in transducer.predict_examples(examples)]
    predictor = with_weight(transducer, pair_ngram, 0.9)
    assert [
        trace.to_json() for trace in predictor.with_search({"pair_ngram": False}).predict_examples(examples)
    ] == alone
    normalized = {"length_normalization": "average"}
    expected = [trace.to_json() for trace in transducer.with_search(normalized).predict_examples(examples)]
    assert [trace.to_json() for trace in predictor.with_search(normalized).predict_examples(examples)] == expected


def test_a_search_tree_is_shared_by_all_outputs(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    predictor = with_weight(transducer, pair_ngram, 0.5).with_options(DecodingOptions(search_tree=True))
    traces = predictor.ranked_outputs(examples[:5])
    for candidates in traces:
        assert all(trace.search_tree is not None for trace in candidates)
        for trace in candidates:
            assert trace.search_tree is not None
            path = [trace.search_tree.symbols[node] for node in trace.search_tree.path()]
            assert path == list(trace.target) or trace.search_tree.leaf == -1


def check_fields(original: Transducer | PairNgram, **changes: object) -> None:
    """Check the fields of a copy with changes, whose types no constructor has seen."""
    copy = object.__new__(type(original))
    for field in fields(original):
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(original, field.name)))
    copy.__post_init__()


@pytest.mark.parametrize(
    "value",
    [
        *(1.5, b"12", "1984"),
        InterpolatedPairNgram(1, 0.5, 0),  # type: ignore[arg-type]
        InterpolatedPairNgram(None, 0.5, 0),  # type: ignore[arg-type]
    ],
)
def test_other_types_are_refused(transducer: Transducer, value: object) -> None:
    with pytest.raises(ArgumentError, match=r"^pair_ngram"):
        check_fields(transducer, pair_ngram=value)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "0.5"])
def test_weights_out_of_range_are_refused(
    transducer: Transducer, pair_ngram: PairNgramPredictor, weight: float
) -> None:
    with pytest.raises(ArgumentError, match=r"^pair_ngram\.weight"):
        with_weight(transducer, pair_ngram, weight)


def test_models_of_other_arrays_are_refused(pair_ngram: PairNgramPredictor) -> None:
    model = pair_ngram.model
    for changes in (
        {"graphones": model.graphones[::-1]},
        {"graphones": model.graphones.astype(np.int32)},
        {"graphones": None},
        {"numbering": (1, 2)},
        {"model": None},
        {"model": model.model._replace(token=model.model.token[:-1])},
        {"model": model.model._replace(suffix=model.model.suffix + 1)},
        {"model": model.model._replace(backoff=model.model.backoff + np.float32(np.nan))},
    ):
        with pytest.raises(ArgumentError):
            check_fields(model, **changes)


def test_the_share_of_an_output_falls_with_its_rank(
    transducer: Transducer, pair_ngram: PairNgramPredictor, examples: list[Example]
) -> None:
    """The share is that of the score that ranks, so the first output is never the less probable one."""
    lists = with_weight(transducer, pair_ngram, 0.6).nbest_examples(examples, 3)
    assert any(traces[0].score < traces[1].score for traces in lists if len(traces) > 1), "the network prefers another"
    for traces in lists:
        shares = [trace.nbest_probability or 0.0 for trace in traces]
        assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1)


def test_predictors_with_a_pair_ngram_model_are_hashable(
    transducer: Transducer, pair_ngram: PairNgramPredictor
) -> None:
    predictor = with_weight(transducer, pair_ngram, 0.5)
    assert predictor in {predictor} and predictor == replace(predictor)


@pytest.mark.parametrize("factor", [1e38, float("inf"), float("nan")])
def test_networks_of_non_finite_numbers_are_named(
    pair_ngram: PairNgramPredictor, examples: list[Example], factor: float
) -> None:
    """With 1e38, parameters are finite, and the scores of symbols are not. With 1e30, only the inputs of gates are
    infinite. Whether these sums are +∞, where gates have their limits, or NaN depends on their order, so on the
    library and the number of rows."""
    transducer = load(digits_run().run)
    assert isinstance(transducer, Transducer)
    with torch.no_grad():
        for parameter in transducer.network.parameters():
            parameter.mul_(factor)
    for beam_size in (1, 3):
        predictor = with_weight(transducer.with_beam(beam_size), pair_ngram, 0.5)
        with pytest.raises(RunError, match=str(digits_run().run)):
            predictor.predict([example.source for example in examples])


def test_networks_without_parameters_are_refused() -> None:
    predictor = load(digits_run().run)
    predictor.network.to("meta")
    with pytest.raises(RunError, match="on the device 'meta'"):
        predictor.predict(["one"])


def test_the_model_of_another_run_is_refused(transducer: Transducer) -> None:
    pairs = [Example("ab", "xy")] * 3
    vocabularies = learn_vocabularies(pairs, transducer.tokenizers, 1)
    other = fit_pair_ngram_predictor(pairs, transducer.tokenizers, vocabularies)
    assert other is not None
    with pytest.raises(ArgumentError, match=r"^pair_ngram: expected a model of \d+ source and \d+ target ids"):
        replace(transducer, pair_ngram=InterpolatedPairNgram(other.model, 0.5, 0))


def test_cut_outputs_follow_finished_ones(transducer: Transducer, pair_ngram: PairNgramPredictor) -> None:
    """Short outputs have better scores by both models, but are no answers if the maximum length has cut them."""
    predictor = replace(transducer, pair_ngram=InterpolatedPairNgram(pair_ngram.model, 0.5, 0))
    found = predictor.with_search({"max_length": 2}).nbest(["one two three four", "seven"], 5)
    for traces in found:
        finished = [trace.finished for trace in traces]
        assert finished == sorted(finished, reverse=True)
    assert any(not trace.finished for traces in found for trace in traces)
