"""Pellucid, as it is in this checkout."""

import shutil
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import tomli_w

from benchmarks.peers.cases import DECODING_BATCH, DIGITS, Task
from benchmarks.peers.data import TRAINING, sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System

ROOT = Path(__file__).parents[3]
HERE = {"PYTHONPATH": str(ROOT)}
CLOCKED = {"PEERS_UPDATES": "pellucid.training.loop:UpdateCompleted.__new__"}
"""The event of an update; it comes whatever the optimiser."""


class Pellucid(System):
    """Runs in the environment that runs the benchmark."""

    name, title = "pellucid", "Pellucid"
    pace: ClassVar[Mapping[Task, float]] = {"train": 4.0, "greedy": 5.0, "beam": 10.0}
    parameters_told = r"([\d,]+) parameters"
    updates_told = r"best at update (\d+)"
    short_file = 1024  # fewer than 500 would be decoded without its kernels, which take a second to load

    def probe(self, python: Path) -> list[str]:
        """Its help."""
        return [str(python), "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pellucid.api"]

    def train(self, job: Job, updates: int) -> Command:
        """Training with the one validation at its end, of two examples, without which there is no model."""
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        job.folder.mkdir(parents=True, exist_ok=True)
        path = job.folder / "train.toml"
        path.write_text(tomli_w.dumps(_settings(job, updates)), "utf-8")
        files = [str(job.data.train.tsv), "--valid", str(job.data.dev.tsv), "--run", str(job.folder / "model")]
        arguments = [str(job.python), "-m", "pellucid", "train", *files, "--config", str(path)]
        return Command(arguments, job.folder, HERE | CLOCKED)

    def decode(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Prediction of a file."""
        arguments = [str(job.python), "-m", "pellucid", "predict", str(job.folder / "model")]
        given = str(sources(job.data, count).tsv)
        return Command(
            [*arguments, given, "--input-format", "tsv", "--beam-size", str(beam)], job.folder, HERE, stdout=output
        )


def _settings(job: Job, updates: int) -> dict[str, Any]:
    """Every size, and the search: the preset decides nothing that matters."""
    both = {"cell": job.cell, "embedding_size": job.case.embedding, "dropout": 0.0, "num_layers": 1}
    return {
        "threads": 1,
        "encoder": {"hidden_size": job.case.hidden // 2, "bidirectional": True, **both},
        "attention": {"type": "additive", "size": job.case.units},
        "decoder": {"hidden_size": job.case.hidden, **both},
        "training": {
            "epochs": updates / ceil(TRAINING / job.case.batch),
            "eval_interval": 1_000_000.0,
            "batch_size": job.case.batch,
            "learning_rate": LEARNING_RATE,
            "lr_schedule": "constant",
            "warmup_ratio": 0.0,
            "clip_norm": CLIP_NORM,
            "label_smoothing": 0.0,
        },
        "search": {
            "min_length": DIGITS,
            "max_length": DIGITS,
            "batch_size": DECODING_BATCH,
        },
    }
