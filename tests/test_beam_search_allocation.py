"""Beam allocation by the number of met required symbols, and lengths of constrained outputs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from trained_runs import digits_run

from pellucid.decoding.beam_steps import allocate_beam, constrained_beam_size
from pellucid.decoding.constraints import NO_CONSTRAINTS, Constraints
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.run_folder.predictor_loader import load

SOURCES = ["one two", "nine", "three three one", "five two six", "eight"]


def allocation_pattern(continuable: str, met: str, required: int, beam_size: int) -> str:
    """Return which candidates get a slot, as a string of 0 and 1. Candidates are in descending order of score."""
    rows = np.array([[each == "1" for each in continuable]]), np.array([[*map(int, met)]])
    return "".join(map(str, allocate_beam(*rows, required, beam_size)[0].astype(int)))


def test_slots_are_split_over_counts_and_the_rest_goes_to_the_best() -> None:
    assert allocation_pattern("111111", "000011", 1, 4) == "110011"
    assert (
        allocation_pattern("111111", "000011", 1, 3) == "100011"
    )  # the remaining slot goes to candidates with more met symbols
    assert allocation_pattern("111111", "000001", 1, 4) == "111001"  # unused slots of a count go to the others
    assert allocation_pattern("111101", "000011", 1, 4) == "111001"  # a suppressed candidate has no slot
    assert allocation_pattern("111111", "001122", 2, 3) == "101010"
    assert allocation_pattern("111111", "222222", 2, 3) == "111000"
    assert allocation_pattern("110", "010", 1, 5) == "110"


@given(st.integers(1, 3), st.integers(1, 9), st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=20))
def test_every_slot_is_used_exactly_once(required: int, beam_size: int, candidates: list[tuple[bool, int]]) -> None:
    continuable, met = (
        np.array([[is_continuable for is_continuable, _ in candidates]], bool),
        np.array([[min(num_met, required) for _, num_met in candidates]], np.int64),
    )
    allocated = allocate_beam(continuable, met, required, beam_size)
    assert not (allocated & ~continuable).any() and allocated.sum() == min(beam_size, continuable.sum())
    for count in range(required + 1):
        of_count = continuable & (met == count)
        assert allocated[of_count].sum() >= min(of_count.sum(), beam_size // (required + 1))
        assert not (np.diff(allocated[of_count].astype(int)) > 0).any()  # the best candidates of a count come first


def test_constrained_beam_has_a_slot_for_each_count() -> None:
    assert constrained_beam_size(1, NO_CONSTRAINTS) == 1 and constrained_beam_size(7, NO_CONSTRAINTS) == 7
    constraints = Constraints(required=np.array([4, 5]))
    assert (constrained_beam_size(1, constraints), constrained_beam_size(9, constraints)) == (3, 9)


def test_narrow_beams_end_soon_after_the_symbol_is_met() -> None:
    model = load(digits_run().run)
    unconstrained = model.predict(SOURCES)
    for beam_size in (1, 2, 5):
        result = model.with_beam(beam_size).with_options(DecodingOptions(required=("7",))).predict(SOURCES)
        assert all("7" in trace.output and trace.finished for trace in result)
        assert all(
            len(trace.output) <= len(free_trace.output) + 2
            for trace, free_trace in zip(result, unconstrained, strict=True)
        )
    traces = model.with_options(DecodingOptions(required=("7", "4"))).predict(SOURCES)
    assert all({"7", "4"} <= {*trace.output} and len(trace.output) <= 5 for trace in traces)


def test_samples_contain_the_required_symbol_instead_of_an_early_eos() -> None:
    model = load(digits_run().run).with_options(DecodingOptions(required=("7",)))
    for traces in model.sample(SOURCES, SamplingConfig(samples=5, top_k=1)):
        for trace in traces:
            assert trace.output.count("7") == 1 and len(trace.output) <= 5
