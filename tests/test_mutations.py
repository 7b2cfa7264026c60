"""Run folders with one file changed at random: every subcommand reads them or refuses them with an error for users."""

import signal

import pytest
from mutations import run_subcommands

SEEDS = range(6)
"""Few seeds, for each change of the code; `python tests/mutations.py FIRST LAST` tries any number."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the limit of CPU time needs an interval timer")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_run_folder_is_read_or_refused(seed: int) -> None:
    case, results = run_subcommands(seed)
    faults = {name: result for name, result in results.items() if result not in ("done", "refused")}
    assert results and not faults, f"{case.change} ({case.trained.config.task})"
