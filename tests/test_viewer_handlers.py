"""The request handlers of the page return what the predictor computes."""

from typing import Literal, get_args

import msgspec
import numpy as np
import pytest
from page_data import digits_page_data, find_forced_chain
from page_runs import pronunciation_page_data
from trained_runs import digits_run

from pellucid.decoding.trace import END
from pellucid.decoding.trace_schema import decode_array
from pellucid.errors import InputError
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer.handlers import compare_what_if, decode_source, export_examples, find_neighbors, gather_states
from pellucid.viewer.schema import DecodeRequest, ForcedAttentionRow, NeighborsRequest, WhatIfRequest
from pellucid.viewer.states import state_point, symbol_separator

Side = Literal["encoder", "decoder"]
digits_page = digits_page_data
PLAIN_REQUEST = DecodeRequest(text="nine two")


def test_prefix_starts_the_output_and_is_marked_as_forced() -> None:
    item = decode_source(digits_page(), DecodeRequest(text="nine two", prefix=["4"]))
    assert item.traces[0].target[0] == "4" and item.traces[0].forced == [0]


def test_prefix_with_end_symbol_is_scored_without_search() -> None:
    (trace,) = decode_source(digits_page(), DecodeRequest(text="nine two", prefix=["4", END])).traces
    assert trace.origin == "given" and trace.output == "4" and trace.target == ["4", END]
    assert trace.forced == [0, 1]


def test_forced_attention_is_applied() -> None:
    row = [0.0] * 7 + [3.0]
    (trace,) = decode_source(
        digits_page(), DecodeRequest(text="nine two", forced_attention=[ForcedAttentionRow(step=0, weights=row)])
    ).traces
    np.testing.assert_allclose(decode_array(trace.attention)[0], [0] * 7 + [1], atol=1e-6)
    assert trace.forced_attention == [0]


def test_masked_position_has_no_attention() -> None:
    (trace,) = decode_source(digits_page(), DecodeRequest(text="nine two", masked_positions=[0, 5])).traces
    assert (decode_array(trace.attention)[:, [0, 5]] == 0).all()


def test_beam_request_returns_all_outputs_and_one_search_tree() -> None:
    item = decode_source(digits_page(), DecodeRequest(text="nine two", beam_size=4, num_outputs=4, search_tree=True))
    assert [trace.rank for trace in item.traces] == [1, 2, 3, 4]
    assert item.traces[0].search_tree is not None and item.traces[1].search_tree is None
    assert sum(trace.probability or 0 for trace in item.traces) == pytest.approx(1)


def test_states_are_projected_on_the_corpus_components() -> None:
    (trace,) = decode_source(digits_page(), DecodeRequest(text="nine two", states=True, gates=True)).traces
    states = trace.states
    assert states is not None and states.encoder_pca is not None and states.gates
    assert states.encoder.shape[0] == 8 and sorted(states.encoder_order) == list(range(states.encoder.shape[1]))
    item = digits_page().contents.examples[0]
    (again,) = decode_source(digits_page(), DecodeRequest(text=item.text, states=True)).traces
    shown = item.traces[0].states
    assert shown is not None and again.states is not None
    for one, other in (
        (shown.encoder_pca, again.states.encoder_pca),
        (shown.decoder_pca, again.states.decoder_pca),
    ):
        assert one is not None and other is not None
        np.testing.assert_allclose(decode_array(one), decode_array(other), atol=1e-4)


def test_empty_source_has_an_empty_output() -> None:
    item = decode_source(digits_page(), DecodeRequest(text="", attribution=True, states=True))
    assert item.traces[0].target == [] and item.traces[0].states is None


def test_unchanged_request_has_no_divergence() -> None:
    comparison = compare_what_if(digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=PLAIN_REQUEST))
    assert msgspec.json.encode(comparison.before) == msgspec.json.encode(comparison.after)
    assert (decode_array(comparison.kl_divergence) == 0).all()
    for item in (comparison.before, comparison.after):
        assert item.traces[0].log_probabilities == comparison.rescored.log_probabilities
        assert item.traces[0].attention == comparison.rescored.attention


def test_changed_source_lowers_the_original_output() -> None:
    comparison = compare_what_if(
        digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=DecodeRequest(text="one two"))
    )
    assert comparison.rescored.output == comparison.before.traces[0].output and comparison.rescored.source == list(
        "one two"
    )
    assert comparison.rescored.score < comparison.before.traces[0].score
    lengths = [len(item.traces[0].target) for item in (comparison.before, comparison.after)]
    assert decode_array(comparison.kl_divergence).shape == (min(lengths),)
    assert decode_array(comparison.kl_divergence)[0] > 0.5


def test_forced_attention_changes_the_divergence() -> None:
    row = [0.0] * 7 + [1.0]
    changed = WhatIfRequest(
        before=PLAIN_REQUEST,
        after=DecodeRequest(text="nine two", forced_attention=[ForcedAttentionRow(step=0, weights=row)]),
    )
    bits = decode_array(compare_what_if(digits_page(), changed).kl_divergence)
    assert bits[0] > 0 and (bits >= -1e-6).all()


def test_forced_prefix_is_compared_along_its_own_output() -> None:
    comparison = compare_what_if(
        digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=DecodeRequest(text="nine two", prefix=["4"]))
    )
    before, after, bits = (
        comparison.before.traces[0],
        comparison.after.traces[0],
        decode_array(comparison.kl_divergence),
    )
    assert (
        comparison.compared_output == "after"
        and before.target[0] != "4" == after.target[0] == comparison.rescored.target[0]
    )
    assert (
        comparison.rescored.log_probabilities == after.log_probabilities
        and comparison.rescored.attention == after.attention
    )
    forced_probability = np.exp(decode_array(after.log_probabilities)[0])
    top_log_probabilities = dict(decode_source(digits_page(), PLAIN_REQUEST).traces[0].top[0])
    assert forced_probability < 0.5 and (
        "4" not in top_log_probabilities
        or forced_probability == pytest.approx(np.exp(top_log_probabilities["4"]), rel=1e-4)
    )
    assert len(bits) == min(len(before.target), len(after.target)) and bits[0] == 0 < bits[1]


def test_prefix_of_the_same_output_changes_nothing() -> None:
    comparison = compare_what_if(
        digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=DecodeRequest(text="nine two", prefix=["9"]))
    )
    assert (decode_array(comparison.kl_divergence) == 0).all()
    assert comparison.before.traces[0].attention == comparison.rescored.attention


def test_what_if_requires_one_run_and_nonempty_sources() -> None:
    with pytest.raises(InputError, match="same run"):
        compare_what_if(digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=DecodeRequest(text="one", run=1)))
    with pytest.raises(InputError, match="empty"):
        compare_what_if(digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=DecodeRequest(text="")))


def test_compared_run_is_requested_by_its_index() -> None:
    first, second = (
        decode_source(digits_page(), PLAIN_REQUEST),
        decode_source(digits_page(), DecodeRequest(text="nine two", run=1)),
    )
    assert first.traces[0].output == second.traces[0].output
    with pytest.raises(InputError, match="run: expected 0 to 1, got 2"):
        decode_source(digits_page(), DecodeRequest(text="one", run=2))
    one_run = digits_page()._replace(runs=digits_page().runs[:1])
    with pytest.raises(InputError, match="run: the page shows one run, expected 0, got 1"):
        decode_source(one_run, DecodeRequest(text="one", run=1))


def test_forced_attention_beyond_the_output_is_refused() -> None:
    request = DecodeRequest(text="nine two", forced_attention=[ForcedAttentionRow(step=99, weights=[1.0] * 8)])
    message = "forced_attention: no step 99: the output has 0 to 2"
    with pytest.raises(InputError, match=message):
        decode_source(digits_page(), request)
    with pytest.raises(InputError, match=message):
        compare_what_if(digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=request))
    with pytest.raises(InputError, match=message):
        compare_what_if(digits_page(), WhatIfRequest(before=request, after=PLAIN_REQUEST))


def test_forced_attention_beyond_a_truncated_output_is_kept() -> None:
    row = ForcedAttentionRow(step=2, weights=[1.0] * 8)
    after = DecodeRequest(text="nine two", prefix=["4", END], forced_attention=[row])
    comparison = compare_what_if(digits_page(), WhatIfRequest(before=PLAIN_REQUEST, after=after))
    assert len(comparison.before.traces[0].target) == 3 and comparison.after.traces[0].forced_attention == []


@pytest.mark.slow
def test_forced_rows_are_added_one_after_another() -> None:
    index, rows = find_forced_chain()
    shown = digits_page_data(beam_size=3)
    item = shown.contents.examples[index]
    before = DecodeRequest(text=item.text, beam_size=len(item.traces))
    lengths = list[int]()
    for count in range(1, len(rows) + 1):
        after = msgspec.structs.replace(before, forced_attention=sorted(rows[:count], key=lambda row: row.step))
        trace = compare_what_if(shown, WhatIfRequest(before=before, after=after)).after.traces[0]
        assert trace.forced_attention == [row.step for row in after.forced_attention if row.step < len(trace.target)]
        lengths.append(len(trace.target))
    last = rows[1]
    assert last.step in range(len(item.traces[0].target), lengths[0]) and lengths[2] <= last.step
    with pytest.raises(InputError, match=f"forced_attention: no step {last.step}"):
        compare_what_if(
            shown, WhatIfRequest(before=before, after=msgspec.structs.replace(before, forced_attention=[last]))
        )


def test_nearest_states_exclude_the_queried_state() -> None:
    shown = digits_page()
    item = shown.contents.examples[3]
    trace = item.traces[0]
    corpus_states = gather_states(shown)
    sides: list[tuple[Side, list[str]]] = [("encoder", trace.source), ("decoder", trace.target)]
    for side, symbols in sides:
        request = NeighborsRequest(text=item.text, target=trace.target, side=side, position=1, num_neighbors=7)
        response = find_neighbors(shown, corpus_states, request)
        similarities = [each.similarity for each in response.neighbors]
        assert len(similarities) == 7 and similarities == sorted(similarities, reverse=True)
        assert not any(each.point.example == 3 and each.point.position == 1 for each in response.neighbors)
        assert response.num_searched == sum(
            len(getattr(each, "source" if side == "encoder" else "target")) for each in shown.traces
        )
        assert sum(count for _, count in response.next_symbols) == sum(
            bool(each.next_symbol) for each in response.neighbors
        )
        assert symbols[1]
    for each in response.neighbors:
        if each.point.example >= 0 and each.next_symbol:
            target = shown.contents.examples[each.point.example].traces[0].target
            assert target[each.point.position + 1] == each.next_symbol


def test_decode_request_is_bit_for_bit_equal_to_the_predictor() -> None:
    (trace,) = load(digits_run().run).with_beam(1).predict(["nine two"])
    (decoded,) = decode_source(digits_page(), PLAIN_REQUEST).traces
    np.testing.assert_array_equal(decode_array(decoded.attention), trace.attention)


@pytest.mark.slow
def test_neighbor_contexts_are_consistently_separated() -> None:
    shown = digits_page()
    for side in get_args(Side):
        assert symbol_separator(shown.runs[0].loaded_predictor, side) == ""
    assert state_point(["d͡z", "ɑ", END], 1, 0, " ").context == "d͡z‹ɑ›⟨end⟩"
    assert state_point(["v", "ɔ", "ɾ", END], 1, 0, " ").context == "v‹ɔ›ɾ ⟨end⟩"
    assert symbol_separator(pronunciation_page_data().runs[0].loaded_predictor, "encoder") == ""
    assert symbol_separator(pronunciation_page_data().runs[0].loaded_predictor, "decoder") == " "


@pytest.mark.slow
def test_export_response_equals_the_exported_page() -> None:
    items = export_examples(digits_page()).examples
    exported = digits_page_data(served=False).contents.examples[: len(items)]
    assert len(items) == min(20, len(digits_page().contents.examples)) and items == exported
    assert (
        items[0].traces[0].attribution is not None and digits_page().contents.examples[0].traces[0].attribution is None
    )
