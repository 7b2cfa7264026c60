"""Measurements in worker processes."""

import msgspec
import pytest
from bench_cases import make_small_request

from pellucid.bench.child import run_measurement, run_profile
from pellucid.errors import RunError


@pytest.mark.slow
def test_profile_runs_in_a_worker_process() -> None:
    assert sum(stage.wall_share for stage in run_profile(make_small_request())) == pytest.approx(1)


@pytest.mark.slow
def test_failure_of_the_child_is_reported() -> None:
    broken = msgspec.structs.replace(
        make_small_request(), case=msgspec.structs.replace(make_small_request().case, units=0)
    )
    with pytest.raises(RunError, match=r"measuring train tiny gru failed: .*attention\.size"):
        run_measurement(broken)
