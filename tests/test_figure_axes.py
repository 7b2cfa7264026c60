from hypothesis import given
from hypothesis import strategies as st

from pellucid.evaluation.metrics import GroupAccuracy
from pellucid.reporting.figures import accuracy_axis_limits, format_number, round_up


@given(st.floats(1e-6, 1e9))
def test_rounded_axis_ends_are_close_to_the_maximum(value: float) -> None:
    assert value * (1 - 1e-6) <= round_up(value) <= value * 1.51


def test_axis_numbers_are_formatted() -> None:
    formatted = [format_number(value) for value in (0.0, 0.05, 20.0, 1500.0, 20000.0, 1.5e6, 2e9)]
    assert formatted == ["0", "0.05", "20", "1.5k", "20k", "1.5M", "2G"]
    assert round_up(0.0) == 1.0
    assert accuracy_axis_limits([]) == (0.0, 100.0) and accuracy_axis_limits(
        [GroupAccuracy("1", 99, 100, 95.0, 99.0)]
    ) == (
        80.0,
        100.0,
    )
