"""Measurements in processes of their own."""

import msgspec
import pytest
from bench_cases import small

from pellucid.bench.child import measured, profiled
from pellucid.errors import RunError


def test_stages_come_from_a_process_too() -> None:
    assert sum(stage.wall_share for stage in profiled(small())) == pytest.approx(1)


def test_what_fails_there_is_told_here() -> None:
    broken = msgspec.structs.replace(small(), case=msgspec.structs.replace(small().case, units=0))
    with pytest.raises(RunError, match=r"measuring train tiny gru failed: .*attention\.size"):
        measured(broken)
