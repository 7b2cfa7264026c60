"""What a page may ask of its models."""

from typing import Literal, get_args

import msgspec
import numpy as np
import pytest
from trained_runs import digits_run
from viewed import chained, digits_shown
from viewed_kinds import sounds_shown

from pellucid.decoding.trace import END
from pellucid.decoding.trace_schema import decode_array
from pellucid.errors import InputError
from pellucid.training.run_folder import load
from pellucid.viewer.handlers import decode, gathered, kept, neighbours, what_if
from pellucid.viewer.schema import Asked, Changed, Nearby, Painted
from pellucid.viewer.states import point, spacing

Side = Literal["encoder", "decoder"]
SHOWN = digits_shown
PLAIN = Asked(text="nine two")


def test_a_prefix_begins_the_output_and_is_told_as_forced() -> None:
    item = decode(SHOWN(), Asked(text="nine two", prefix=["4"]))
    assert item.traces[0].target[0] == "4" and item.traces[0].forced == [0]


def test_a_prefix_with_its_end_is_scored_and_nothing_is_searched() -> None:
    (trace,) = decode(SHOWN(), Asked(text="nine two", prefix=["4", END])).traces
    assert trace.origin == "given" and trace.output == "4" and trace.target == ["4", END]
    assert trace.forced == [0, 1]


def test_a_painted_row_is_where_the_model_looked() -> None:
    row = [0.0] * 7 + [3.0]
    (trace,) = decode(SHOWN(), Asked(text="nine two", painted=[Painted(step=0, weights=row)])).traces
    np.testing.assert_allclose(decode_array(trace.attention)[0], [0] * 7 + [1], atol=1e-6)
    assert trace.painted == [0]


def test_a_hidden_position_is_not_looked_at() -> None:
    (trace,) = decode(SHOWN(), Asked(text="nine two", masked=[0, 5])).traces
    assert (decode_array(trace.attention)[:, [0, 5]] == 0).all()


def test_all_outputs_of_a_beam_with_one_lattice() -> None:
    item = decode(SHOWN(), Asked(text="nine two", beam_size=4, outputs=4, lattice=True))
    assert [trace.rank for trace in item.traces] == [1, 2, 3, 4]
    assert item.traces[0].lattice is not None and item.traces[1].lattice is None
    assert sum(trace.probability or 0 for trace in item.traces) == pytest.approx(1)


def test_states_lie_in_the_plane_of_the_corpus() -> None:
    (trace,) = decode(SHOWN(), Asked(text="nine two", states=True, gates=True)).traces
    states = trace.states
    assert states is not None and states.encoder_plane is not None and states.gates
    assert states.encoder.shape[0] == 8 and sorted(states.encoder_order) == list(range(states.encoder.shape[1]))
    item = SHOWN().contents.items[0]
    (again,) = decode(SHOWN(), Asked(text=item.text, states=True)).traces
    shown = item.traces[0].states
    assert shown is not None and again.states is not None
    for one, other in (
        (shown.encoder_plane, again.states.encoder_plane),
        (shown.decoder_plane, again.states.decoder_plane),
    ):
        assert one is not None and other is not None
        np.testing.assert_allclose(decode_array(one), decode_array(other), atol=1e-4)


def test_an_empty_source_has_an_empty_output() -> None:
    item = decode(SHOWN(), Asked(text="", evidence=True, states=True))
    assert item.traces[0].target == [] and item.traces[0].states is None


def test_nothing_changed_changes_nothing() -> None:
    same = what_if(SHOWN(), Changed(before=PLAIN, after=PLAIN))
    assert msgspec.json.encode(same.before) == msgspec.json.encode(same.after)
    assert (decode_array(same.divergence) == 0).all()
    for item in (same.before, same.after):
        assert item.traces[0].log_probabilities == same.same.log_probabilities
        assert item.traces[0].attention == same.same.attention


def test_a_changed_source_costs_the_output_before() -> None:
    told = what_if(SHOWN(), Changed(before=PLAIN, after=Asked(text="one two")))
    assert told.same.output == told.before.traces[0].output and told.same.source == list("one two")
    assert told.same.score < told.before.traces[0].score
    assert decode_array(told.divergence).shape == (len(told.before.traces[0].target),)
    assert decode_array(told.divergence)[0] > 0.5


def test_painted_attention_shows_in_the_divergence() -> None:
    row = [0.0] * 7 + [1.0]
    changed = Changed(before=PLAIN, after=Asked(text="nine two", painted=[Painted(step=0, weights=row)]))
    bits = decode_array(what_if(SHOWN(), changed).divergence)
    assert bits[0] > 0 and (bits >= -1e-6).all()


def test_a_forced_beginning_is_compared_along_its_own_output() -> None:
    told = what_if(SHOWN(), Changed(before=PLAIN, after=Asked(text="nine two", prefix=["4"])))
    before, after, bits = told.before.traces[0], told.after.traces[0], decode_array(told.divergence)
    assert told.along == "after" and before.target[0] != "4" == after.target[0] == told.same.target[0]
    assert told.same.log_probabilities == after.log_probabilities and told.same.attention == after.attention
    given = np.exp(decode_array(after.log_probabilities)[0])
    likely = dict(decode(SHOWN(), PLAIN).traces[0].top[0])
    assert given < 0.5 and ("4" not in likely or given == pytest.approx(np.exp(likely["4"]), rel=1e-4))
    assert len(bits) == min(len(before.target), len(after.target)) and bits[0] == 0 < bits[1]


def test_a_beginning_that_was_written_anyway_changes_nothing() -> None:
    told = what_if(SHOWN(), Changed(before=PLAIN, after=Asked(text="nine two", prefix=["9"])))
    assert (decode_array(told.divergence) == 0).all()
    assert told.before.traces[0].attention == told.same.attention


def test_a_what_if_asks_one_model_about_something() -> None:
    with pytest.raises(InputError, match="one"):
        what_if(SHOWN(), Changed(before=PLAIN, after=Asked(text="one", rival=0)))
    with pytest.raises(InputError, match="empty"):
        what_if(SHOWN(), Changed(before=PLAIN, after=Asked(text="")))


def test_a_rival_is_asked_by_its_place() -> None:
    own, rival = decode(SHOWN(), PLAIN), decode(SHOWN(), Asked(text="nine two", rival=0))
    assert own.traces[0].output == rival.traces[0].output
    with pytest.raises(InputError, match="rival: expected −1 to 0, got 1"):
        decode(SHOWN(), Asked(text="one", rival=1))
    alone = SHOWN()._replace(models=SHOWN().models[:1])
    with pytest.raises(InputError, match="rival: the page shows one run alone: expected −1, got 0"):
        decode(alone, Asked(text="one", rival=0))


def test_a_painted_step_that_no_output_reaches_is_refused() -> None:
    far = Asked(text="nine two", painted=[Painted(step=99, weights=[1.0] * 8)])
    words = "painted: there is no step 99: the output has 0 to 2"
    with pytest.raises(InputError, match=words):
        decode(SHOWN(), far)
    with pytest.raises(InputError, match=words):
        what_if(SHOWN(), Changed(before=PLAIN, after=far))
    with pytest.raises(InputError, match=words):
        what_if(SHOWN(), Changed(before=far, after=PLAIN))


def test_a_painted_step_that_another_change_cuts_off_is_kept() -> None:
    row = Painted(step=2, weights=[1.0] * 8)
    after = Asked(text="nine two", prefix=["4", END], painted=[row])
    told = what_if(SHOWN(), Changed(before=PLAIN, after=after))
    assert len(told.before.traces[0].target) == 3 and told.after.traces[0].painted == []


def test_rows_are_given_one_after_another_to_the_output_that_came_of_the_last() -> None:
    place, rows = chained()
    shown = digits_shown(beam=3)
    item = shown.contents.items[place]
    before = Asked(text=item.text, beam_size=len(item.traces))
    lengths = list[int]()
    for count in range(1, len(rows) + 1):
        after = msgspec.structs.replace(before, painted=sorted(rows[:count], key=lambda row: row.step))
        now = what_if(shown, Changed(before=before, after=after)).after.traces[0]
        assert now.painted == [row.step for row in after.painted if row.step < len(now.target)]
        lengths.append(len(now.target))
    last = rows[1]
    assert last.step in range(len(item.traces[0].target), lengths[0]) and lengths[2] <= last.step
    with pytest.raises(InputError, match=f"painted: there is no step {last.step}"):
        what_if(shown, Changed(before=before, after=msgspec.structs.replace(before, painted=[last])))


def test_the_nearest_states_are_of_the_file_and_not_the_one_asked_for() -> None:
    shown = SHOWN()
    item = shown.contents.items[3]
    trace = item.traces[0]
    among = gathered(shown)
    sides: list[tuple[Side, list[str]]] = [("encoder", trace.source), ("decoder", trace.target)]
    for side, symbols in sides:
        nearby = Nearby(text=item.text, target=trace.target, side=side, position=1, count=7)
        told = neighbours(shown, among, nearby)
        similarities = [each.similarity for each in told.neighbours]
        assert len(similarities) == 7 and similarities == sorted(similarities, reverse=True)
        assert not any(each.point.item == 3 and each.point.position == 1 for each in told.neighbours)
        assert told.searched == sum(
            len(getattr(each, "source" if side == "encoder" else "target")) for each in shown.traces
        )
        assert sum(count for _, count in told.following) == sum(bool(each.following) for each in told.neighbours)
        assert symbols[1]
    for each in told.neighbours:
        if each.point.item >= 0 and each.following:
            target = shown.contents.items[each.point.item].traces[0].target
            assert target[each.point.position + 1] == each.following


def test_decoding_equals_the_runs_own_to_the_bit() -> None:
    (trace,) = load(digits_run().run).predict(["nine two"])
    (told,) = decode(SHOWN(), PLAIN).traces
    np.testing.assert_array_equal(decode_array(told.attention), trace.attention)


def test_neighbours_are_all_told_with_spaces_or_all_without() -> None:
    shown = SHOWN()
    for side in get_args(Side):
        assert spacing(shown.models[0].ready, side) == ""
    assert point(["d͡z", "ɑ", END], 1, 0, " ").text == "d͡z‹ɑ›⟨end⟩"
    assert point(["v", "ɔ", "ɾ", END], 1, 0, " ").text == "v‹ɔ›ɾ ⟨end⟩"
    assert spacing(sounds_shown().models[0].ready, "encoder") == ""
    assert spacing(sounds_shown().models[0].ready, "decoder") == " "


def test_what_is_kept_is_what_a_file_holds() -> None:
    items = kept(SHOWN()).items
    alone = digits_shown(served=False).contents.items[: len(items)]
    assert len(items) == min(20, len(SHOWN().contents.items)) and items == alone
    assert items[0].traces[0].evidence is not None and SHOWN().contents.items[0].traces[0].evidence is None
