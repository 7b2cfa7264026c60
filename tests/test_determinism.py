"""What docs/guides/reproducing.md lists as equal to the bit is so; other differences keep within its bounds.

Other files test resuming (test_resume.py, test_killed.py), `--jobs` of ensembles (test_ensemble_training.py) and audits
(test_cli_audit.py), tables in memory (test_in_memory.py) and prefetched batches (test_loop.py).
"""

import hashlib
import itertools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from command_line import build_command, build_environment
from msgspec.structs import replace
from trained_runs import (
    TrainedRun,
    assert_runs_identical,
    copy_task_run,
    digits_run,
    make_small_config,
    train_to_end,
    training_flags,
    write_digit_files,
)

from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.trace import Trace
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.recipes.jobs import run_jobs
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.progress import multi_progress
from pellucid.run_folder.predictor_loader import load
from pellucid.runtime.loader import load as load_runtime
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import ProgressCallback

MAX_DIFFERENCE = 1e-5
"""Bound of the page for differences of log-probabilities of one output: ten times the largest measured one."""

DURATION = re.compile(r"decoded in .*")


def run_process(*arguments: object, hash_seed: int, folder: Path) -> str:
    """Run a command in a new process, whose sets have another order for each `hash_seed`; return its output."""
    environment = build_environment({"PYTHONHASHSEED": str(hash_seed)})
    result = subprocess.run(build_command(*arguments), env=environment, cwd=folder, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


@pytest.fixture(scope="module")
def hash_seed_runs(tmp_path_factory: pytest.TempPathFactory) -> list[TrainedRun]:
    """Train twice with a pair n-gram model: in processes of other hash seeds, with flags in another order."""
    trained = list[TrainedRun]()
    for hash_seed in (1, 2):
        folder = tmp_path_factory.mktemp(f"hash-seed-{hash_seed}")
        files = write_digit_files(folder)
        config = make_small_config({"epochs": 2, "pair_ngram": True}, dropout=0.2)
        names = training_flags(config)[2:]
        flags = [*zip(names[::2], names[1::2], strict=True), ("--size", config.size), ("--run", "run")]
        ordered = itertools.chain.from_iterable(flags[:: 1 if hash_seed == 1 else -1])
        run_process("train", "train.tsv", "--valid", "dev.tsv", *ordered, hash_seed=hash_seed, folder=folder)
        trained.append(TrainedRun(files, folder / "run", config))
    return trained


def test_two_processes_train_the_same_model(hash_seed_runs: list[TrainedRun]) -> None:
    """Neither the order of sets, of flags nor the name of the folder changes a file of the run."""
    one, two = hash_seed_runs
    assert (one.run / "pair_ngram.safetensors").exists()
    assert_runs_identical(two.run, one.run)


@pytest.mark.slow
def test_two_processes_print_the_same_predictions_and_scores(hash_seed_runs: list[TrainedRun]) -> None:
    run = hash_seed_runs[0].run
    for arguments in (("predict", run, "dev.tsv", "--output-format", "csv"), ("evaluate", run, "dev.tsv")):
        one, two = (run_process(*arguments, hash_seed=seed, folder=run.parent) for seed in (1, 2))
        assert DURATION.sub("", two) == DURATION.sub("", one)


@pytest.mark.slow
def test_a_training_with_two_threads_repeats_to_the_bit(tmp_path: Path) -> None:
    write_digit_files(tmp_path)
    flags = (*training_flags(make_small_config({"epochs": 1})), "--threads", 2)
    for hash_seed in (1, 2):
        run = f"run-{hash_seed}"
        run_process(
            "train", "train.tsv", "--valid", "dev.tsv", "--run", run, *flags, hash_seed=hash_seed, folder=tmp_path
        )
    assert_runs_identical(tmp_path / "run-1", tmp_path / "run-2")


class SmallJob(NamedTuple):
    """A training of a recipe: its files, folder and seed."""

    files: TrainingFiles
    folder: Path
    seed: int


def train_small(job: SmallJob, report: ProgressCallback) -> str:
    """Train; return the checksum of the model."""
    report("started")
    train_to_end(job.files, job.folder, replace(make_small_config({"epochs": 1}), seed=job.seed))
    return hashlib.sha256((job.folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
def test_worker_processes_of_a_recipe_train_the_models_of_one_process(tmp_path: Path) -> None:
    files = copy_task_run().files
    jobs = [SmallJob(files, tmp_path / f"worker-{seed}", seed) for seed in (1, 2)]
    with multi_progress() as progress:
        request = RecipeRequest(tmp_path, progress=progress)
        in_workers = list(run_jobs(train_small, [(f"seed {job.seed}", job) for job in jobs], request))
    alone = [train_small(job._replace(folder=tmp_path / f"alone-{job.seed}"), print) for job in reversed(jobs)]
    assert in_workers == alone[::-1] and len(set(alone)) == 2


def read_sources() -> list[str]:
    """Return sources of one to three digits, some of them twice."""
    lines = digits_run().files.valid.read_text("utf-8").splitlines()
    return [line.split("\t")[0] for line in lines]


def load_backend(backend: str) -> BasePredictor:
    """Return a predictor whose requests the backend computes; PyTorch is left to the caller."""
    if backend == "kernels":
        assert load_kernels()
    return load_runtime(digits_run().run) if backend == "numpy" else load(digits_run().run)


def predict(backend: str, sources: Sequence[str], batch_size: int = 64) -> list[Trace]:
    """Return the predictions of a backend."""
    predictor = load_backend(backend).with_search({"batch_size": batch_size})
    if backend == "torch":
        with disable_kernels():
            return predictor.predict(list(sources))
    return predictor.predict(list(sources))


def assert_close(traces: Sequence[Trace], expected: Sequence[Trace]) -> None:
    """Assert equal outputs, and log-probabilities and attention weights that differ within the bound of the page."""
    assert [trace.output for trace in traces] == [trace.output for trace in expected]
    for one, other in zip(traces, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=MAX_DIFFERENCE, rel=0)
        assert np.abs(one.attention - other.attention).max(initial=0) <= MAX_DIFFERENCE


@pytest.mark.parametrize("backend", ["torch", "kernels", "numpy"])
def test_the_same_call_gives_the_same_bits(backend: str) -> None:
    sources = read_sources()
    one, two = (predict(backend, sources) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert (first.output, first.score) == (second.output, second.score)
        assert first.attention.tobytes() == second.attention.tobytes()


@pytest.mark.parametrize("backend", ["torch", "kernels", "numpy"])
@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_other_batches_change_no_output(backend: str, batch_size: int) -> None:
    sources = read_sources()
    assert_close(predict(backend, sources, batch_size), predict(backend, sources))


@pytest.mark.parametrize("backend", ["torch", "kernels", "numpy"])
def test_another_order_of_the_sources_changes_no_output(backend: str) -> None:
    sources = read_sources()
    assert_close(predict(backend, sources[::-1], 3)[::-1], predict(backend, sources, 3))


@pytest.mark.parametrize("backend", ["kernels", "numpy"])
def test_another_backend_changes_no_output(backend: str) -> None:
    sources = read_sources()
    assert_close(predict(backend, sources), predict("torch", sources))
