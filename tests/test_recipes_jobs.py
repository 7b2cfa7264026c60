"""Parallel jobs of the recipes report their progress."""

from pathlib import Path
from typing import NamedTuple

import pytest

from pellucid.recipes.jobs import SampleProgress, run_jobs
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.progress import multi_progress
from pellucid.worker_pool import ProgressCallback


class CountingJob(NamedTuple):
    """A job that counts to a number."""

    number: int


def count_to(job: CountingJob, report: ProgressCallback) -> int:
    """Report progress at half of the count and at its end."""
    report(SampleProgress(job.number // 2, job.number, "half"))
    report("finished")
    return job.number


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [[8], [4, 6, 8]])
def test_progress_of_jobs_is_reported_with_their_number(jobs: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    with multi_progress() as progress:
        request = RecipeRequest(Path("unused"), progress=progress)
        results = list(run_jobs(count_to, [(f"to {number}", CountingJob(number)) for number in jobs], request))
    output = capsys.readouterr().err
    assert results == jobs and output.count("half") == output.count("finished") == len(jobs)
    if len(jobs) > 1:
        assert "to 4 (1 of 3): 2 of 4 samples · half\n" in output and "to 8 (3 of 3): finished\n" in output
    else:
        assert output == "to 8: 4 of 8 samples · half\nto 8: finished\n"
