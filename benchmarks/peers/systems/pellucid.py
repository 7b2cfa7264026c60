"""Pellucid in the version of this checkout."""

import shutil
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import tomli_w

from benchmarks.peers.cases import DECODING_BATCH_SIZE, NUM_DIGITS, Task
from benchmarks.peers.data import TRAIN_PAIRS, write_sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
UPDATE_HOOK = {"PEERS_UPDATES": "pellucid.training.events:UpdateCompleted.__new__"}
"""Event of a completed update, which does not depend on the optimizer."""


class Pellucid(System):
    """Pellucid, which runs in the environment of the benchmark."""

    name, title = "pellucid", "Pellucid"
    relative_speed: ClassVar[Mapping[Task, float]] = {"train": 4.0, "greedy": 5.0, "beam": 10.0}
    parameters_pattern = r"([\d,]+) parameters"
    updates_pattern = r"best at update (\d+)"
    short_file = 1024  # kernels, which take a second to load, are not used for fewer than 500 sentences

    def probe_command(self, python: Path) -> list[str]:
        """Return a command that imports the package.

        Args:
            python: Python interpreter of the benchmark.
        """
        return [str(python), "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pellucid.api"]

    def train_command(self, job: Job, updates: int) -> Command:
        """Write the configuration of a training with one validation at its end.

        The validation, on two examples, is required for a model.

        Args:
            job: The network.
            updates: Number of updates.

        Returns:
            The command of the training.
        """
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        job.folder.mkdir(parents=True, exist_ok=True)
        path = job.folder / "train.toml"
        path.write_text(tomli_w.dumps(_settings(job, updates)), "utf-8")
        files = [str(job.data.train.tsv), "--valid", str(job.data.dev.tsv), "--run", str(job.folder / "model")]
        arguments = [str(job.python), "-m", "pellucid", "train", *files, "--config", str(path)]
        return Command(arguments, job.folder, ENVIRONMENT | UPDATE_HOOK)

    def decode_command(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Write the configuration of decoding.

        Args:
            job: The network.
            count: Number of sources.
            beam: Beam size.
            output: File of the outputs.

        Returns:
            The command of decoding.
        """
        arguments = [str(job.python), "-m", "pellucid", "predict", str(job.folder / "model")]
        source_file = str(write_sources(job.data, count).tsv)
        return Command(
            [*arguments, source_file, "--input-format", "tsv", "--beam-size", str(beam)],
            job.folder,
            ENVIRONMENT,
            stdout=output,
        )


def _settings(job: Job, updates: int) -> dict[str, Any]:
    """Return the settings: all sizes and search settings, so that the preset has no effect."""
    shared = {"cell": job.cell, "embedding_size": job.case.embedding_size, "dropout": 0.0, "num_layers": 1}
    return {
        "threads": 1,
        "encoder": {"hidden_size": job.case.hidden_size // 2, "bidirectional": True, **shared},
        "attention": {"type": "additive", "size": job.case.attention_size},
        "decoder": {"hidden_size": job.case.hidden_size, **shared},
        "training": {
            "epochs": updates / ceil(TRAIN_PAIRS / job.case.batch_size),
            "eval_interval": 1_000_000.0,
            "batch_size": job.case.batch_size,
            "learning_rate": LEARNING_RATE,
            "lr_schedule": "constant",
            "warmup_ratio": 0.0,
            "clip_norm": CLIP_NORM,
            "label_smoothing": 0.0,
        },
        "search": {
            "min_length": NUM_DIGITS,
            "max_length": NUM_DIGITS,
            "batch_size": DECODING_BATCH_SIZE,
        },
    }
