"""Constraints: every output of every search satisfies them, and impossible ones are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import SEEDS, VOCABULARY_SIZE, batches, few_examples, make_vocabulary
from small_searches import (
    HYPOTHESIS_SCORERS,
    NETWORK_KINDS,
    SYMBOL_IDS,
    SearchCase,
    enumerate_outputs,
    make_small_network,
    run_search,
    score_by_definition,
    score_outputs,
)
from test_transducer import PLAIN, transducer_of

from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer
from pellucid.data.vocabulary import EOS
from pellucid.decoding import options
from pellucid.decoding.beam_search import beam_search_stepwise
from pellucid.decoding.beam_steps import BeamConfig
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.hypothesis_scorer import HypothesisScorer
from pellucid.decoding.inference import encode_and_initialize
from pellucid.decoding.options import DecodingOptions, build_constraints
from pellucid.decoding.outputs import BatchLengthLimits
from pellucid.decoding.sampling import sample
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.errors import ConfigError, ConstraintError, InputError

KIND = st.sampled_from(NETWORK_KINDS)
MAX_LENGTH = 5


@st.composite
def draw_constraints(draw: st.DrawFn, sources: int = 5) -> Constraints:
    """Draw constraints of all kinds that do not contradict each other."""
    forbidden = draw(st.lists(st.sampled_from(SYMBOL_IDS), max_size=2, unique=True))
    allowed = st.sampled_from([symbol for symbol in SYMBOL_IDS if symbol not in forbidden])
    required = draw(st.lists(allowed, max_size=2, unique=True))
    prefixes = draw(st.lists(st.lists(allowed, max_size=3).map(tuple), min_size=sources, max_size=sources))
    return Constraints(np.array(forbidden, np.int64), np.array(required, np.int64), tuple(prefixes))


def satisfies(ids: list[int], constraints: Constraints, row: int) -> bool:
    """Return whether an output satisfies all constraints of its row."""
    prefix = constraints.prefixes[row]
    has_prefix = tuple(ids[: len(prefix)]) == prefix
    return has_prefix and not {*ids} & {*constraints.forbidden.tolist()} and {*constraints.required.tolist()} <= {*ids}


@few_examples
@given(KIND, batches(), SEEDS, HYPOTHESIS_SCORERS, st.integers(1, 4), draw_constraints())
def test_constraints_hold_in_every_output_of_a_beam(
    kind: tuple[str, str], batch: Batch, seed: int, score: HypothesisScorer, beam_size: int, constraints: Constraints
) -> None:
    network = make_small_network(kind, seed)
    for row, result in enumerate(
        run_search(network, batch, SearchCase(0, MAX_LENGTH, beam_size, beam_size, score, constraints))
    ):
        assert result
        for each, rescored in zip(
            result,
            score_outputs(network, batch, row, [hypothesis.decoded.ids.tolist() for hypothesis in result]),
            strict=True,
        ):
            ids = each.decoded.ids.tolist()
            assert satisfies(ids, constraints, row) and (ids[-1] == EOS or len(ids) == MAX_LENGTH)
            np.testing.assert_allclose(each.decoded.log_probabilities, rescored.log_probabilities, atol=1e-5)


@few_examples
@given(KIND, batches(), SEEDS, draw_constraints())
def test_constraints_hold_in_every_sample(
    kind: tuple[str, str], batch: Batch, seed: int, constraints: Constraints
) -> None:
    network, count = make_small_network(kind, seed), len(batch.source)
    limits = BatchLengthLimits(np.zeros(count, np.int64), np.full(count, MAX_LENGTH))
    sampling = SamplingConfig(samples=3, top_p=0.8)
    with torch.inference_mode():
        inference = encode_and_initialize(network, batch.source, batch.source_lengths)
        outputs = sample(inference, batch.source_lengths, np.arange(count), limits, constraints, sampling)
    assert all(
        satisfies(each.decoded.ids.tolist(), constraints, row)
        for row, samples in enumerate(outputs)
        for each in samples
    )


@few_examples
@given(KIND, batches(), SEEDS, draw_constraints())
def test_an_exhaustive_beam_finds_the_best_constrained_output(
    kind: tuple[str, str], batch: Batch, seed: int, constraints: Constraints
) -> None:
    network, max_length = make_small_network(kind, seed), 2
    row = next((row for row in range(len(batch.source)) if constraints.min_length(row) <= max_length), None)
    if row is None:
        return
    allowed_outputs = [ids for ids in enumerate_outputs(max_length) if satisfies([*ids], constraints, row)]
    best = max(
        score_by_definition(each, HypothesisScorer()) for each in score_outputs(network, batch, row, allowed_outputs)
    )
    result = run_search(network, batch, SearchCase(0, max_length, 5**3 + 5**2 + 6, 1, constraints=constraints))[row]
    assert result[0].score == pytest.approx(best, abs=1e-4)


@few_examples
@given(KIND, batches(), SEEDS, st.data())
def test_length_limits_by_ratio_hold(kind: tuple[str, str], batch: Batch, seed: int, data: st.DataObject) -> None:
    network, count = make_small_network(kind, seed), len(batch.source)
    maximum = np.array(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))
    minimum = np.minimum(data.draw(st.integers(0, 4)), maximum)
    beam_config = BeamConfig(BatchLengthLimits(minimum, maximum), 2, 2)
    with torch.inference_mode():
        actual = beam_search_stepwise(
            encode_and_initialize(network, batch.source, batch.source_lengths), batch.source_lengths, beam_config
        )
    for row, outputs in enumerate(actual):
        expected = run_search(network, batch, SearchCase(int(minimum[row]), int(maximum[row]), 2, 2))[row]
        assert [each.decoded.ids.tolist() for each in outputs] == [each.decoded.ids.tolist() for each in expected]
        for each in outputs:
            ids = each.decoded.ids.tolist()
            assert minimum[row] <= len(ids) - (ids[-1:] == [EOS]) <= maximum[row]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(KIND, batches(), SEEDS, HYPOTHESIS_SCORERS, st.integers(1, 4), draw_constraints(), st.booleans(), st.data())
def test_other_sources_and_the_search_tree_change_no_output(
    kind: tuple[str, str],
    batch: Batch,
    seed: int,
    score: HypothesisScorer,
    beam_size: int,
    constraints: Constraints,
    search_tree: bool,
    data: st.DataObject,
) -> None:
    """A source alone has the outputs and the tree of the batch, whatever the limits, prefixes and beams of others."""
    network, count = make_small_network(kind, seed), len(batch.source)
    lengths = st.integers(max(constraints.min_length(row) for row in range(count)), 8)
    maximum = np.array(data.draw(st.lists(lengths, min_size=count, max_size=count)))
    limits = BatchLengthLimits(np.zeros(count, np.int64), maximum)

    def search(rows: list[int], search_tree: bool) -> list[list[Hypothesis]]:
        own = BatchLengthLimits(*(limit[rows] for limit in limits))
        config = BeamConfig(own, beam_size, beam_size, score, constraints.take(np.array(rows)), search_tree)
        with torch.inference_mode():
            sources, source_lengths = batch.source[rows], batch.source_lengths[rows]
            return beam_search_stepwise(encode_and_initialize(network, sources, source_lengths), source_lengths, config)

    for row, together in enumerate(search(list(range(count)), search_tree)):
        (alone,) = search([row], True)
        assert [each.decoded.ids.tolist() for each in together] == [each.decoded.ids.tolist() for each in alone]
        for each, other in zip(together, alone, strict=True):
            assert each.score == pytest.approx(other.score, abs=1e-5)
            if each.tree is not None and other.tree is not None:
                assert (each.tree.ids.tolist(), each.tree.statuses) == (other.tree.ids.tolist(), other.tree.statuses)


CHARACTERS, LETTERS = Tokenizer("characters", "none"), make_vocabulary("vwxyz")


def test_prefixes_and_symbols_become_ids() -> None:
    result = build_constraints(DecodingOptions("", ("v",), ("x", "x")), ["wx", ""], CHARACTERS, LETTERS)
    assert (result.forbidden.tolist(), result.required.tolist(), result.prefixes) == ([4], [6], ((5, 6), ()))
    assert not build_constraints(DecodingOptions(), ["", ""], CHARACTERS, LETTERS).any
    assert len(LETTERS) == VOCABULARY_SIZE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DecodingOptions(forbidden=("q",)), "forbidden: the model never writes the symbol 'q'"),
        (DecodingOptions(required=("vw",)), "required: the model never writes the symbol 'vw'"),
        (DecodingOptions(prefix="vé"), "prefix: the model never writes the symbol 'é'"),
        (DecodingOptions(prefix="vw", forbidden=("w",)), "prefix: the symbol 'w' is forbidden"),
        (DecodingOptions(required=("w",), forbidden=("w",)), "required: the symbol 'w' is forbidden"),
    ],
)
def test_invalid_constraint_symbols_are_reported(options: DecodingOptions, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        build_constraints(options, [options.prefix], CHARACTERS, LETTERS)


def test_no_suggestion_is_made_for_a_very_long_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of a long symbol with every symbol of the vocabulary would be slow."""
    base_letter, lengths = options._base_letter, list[int]()

    def record_length(symbol: str) -> str:
        lengths.append(len(symbol))
        return base_letter(symbol)

    monkeypatch.setattr(options, "_base_letter", record_length)
    for symbol in ("é" * 10**4, "Ä"):
        with pytest.raises(ConstraintError, match="the model never writes the symbol"):
            build_constraints(DecodingOptions(required=(symbol,)), [], CHARACTERS, LETTERS)
    assert max(lengths) == 1


def test_only_searches_have_a_search_tree() -> None:
    model = PLAIN.with_options(DecodingOptions(search_tree=True))
    assert model.predict(["abc"])[0].search_tree is not None and model.nbest(["abc"], 2)[0][0].search_tree is not None
    with pytest.raises(ConfigError, match=r"options\.search_tree: sampling has no search tree"):
        model.sample(["abc"], SamplingConfig())
    with pytest.raises(ConfigError, match=r"options\.search_tree: scoring given targets has no search tree"):
        model.score_examples([Example("abc", "v")])


@pytest.mark.parametrize("limit", [{"min_length": 2}, {"min_length_ratio": 1.0}])
def test_impossible_constraints_are_refused_by_every_decoding(limit: dict[str, Any]) -> None:
    forbidden = DecodingOptions(forbidden=tuple("vwxyz"))
    unlimited = transducer_of({"search": {"max_length": 4}}).with_options(forbidden)
    for traces in (
        unlimited.predict(["abc"]),
        *unlimited.nbest(["abc"], 3),
        *unlimited.sample(["abc"], SamplingConfig(samples=2)),
    ):
        assert all(trace.output == "" and trace.finished for trace in traces)
    limited = transducer_of({"search": {"max_length": 4, **limit}}).with_options(forbidden)
    decodings: tuple[Callable[[], object], ...] = (
        lambda: limited.predict(["abc"]),
        lambda: limited.with_beam(3).predict(["abc"]),
        lambda: limited.nbest(["abc"], 3),
        lambda: limited.sample(["abc"], SamplingConfig(samples=2)),
    )
    for decode in decodings:
        with pytest.raises(
            InputError, match=r"^forbidden: all 5 symbols .* but (the output of source 1 has|outputs have) at least"
        ):
            decode()
    with_allowed_symbol = limited.with_options(DecodingOptions(forbidden=tuple("vwxy")))
    assert set(with_allowed_symbol.predict(["abc"])[0].output) == {"z"}


def test_copied_symbols_are_not_forbidden() -> None:
    settings = {"decoder": {"pointer_generator": True}, "search": {"max_length": 4, "min_length": 2}}
    model = transducer_of(settings).with_options(DecodingOptions(forbidden=tuple("vwxyz")))
    assert set(model.predict(["abc"])[0].output) <= set("abc")
