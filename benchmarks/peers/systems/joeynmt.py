"""JoeyNMT 2.3.0."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import DECODING_BATCH, DIGITS
from benchmarks.peers.data import append_suffix, write_sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System, write_yaml


class JoeyNMT(System):
    """JoeyNMT, which projects the keys once per batch in training and at every step in decoding.

    It has no setting for the attention size.
    """

    name, title = "joeynmt", "JoeyNMT 2.3.0"
    pip = (("install", "joeynmt==2.3.0", "importlib_metadata"),)
    parameters_pattern = r"Total params: (\d+)"
    updates_pattern = r"Step: +(\d+)"
    notes = "attention of the decoder's size; input feeding"

    def probe_command(self, python: Path) -> list[str]:
        """Return a command that prints the help of the system.

        Args:
            python: Python interpreter of the system's environment.
        """
        return [str(python), "-m", "joeynmt", "--help"]

    def train_command(self, job: Job, updates: int) -> Command:
        """Write the configuration of a training without validation.

        Args:
            job: The network.
            updates: Number of updates.

        Returns:
            The command of the training.
        """
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        settings = _settings(job) | {"training": _training(job, updates), "testing": {}}
        path = write_yaml(job.folder / "train.yaml", settings)
        return Command([str(job.python), "-m", "joeynmt", "train", str(path), "--skip-test"], job.folder)

    def decode_command(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Write the configuration of decoding.

        The sources are standard input, since the option for an output file fails.

        Args:
            job: The network.
            count: Number of sources.
            beam: Beam size.
            output: File of the outputs.

        Returns:
            The command of decoding.
        """
        lengths = {"min_output_length": DIGITS, "max_output_length": DIGITS}
        testing = lengths | {"beam_size": beam, "batch_size": DECODING_BATCH, "batch_type": "sentence"}
        testing |= {"load_model": str(job.folder / "model" / "latest.ckpt")}
        vocabularies = {side: str(job.folder / "model" / f"{side}_vocab.txt") for side in ("src", "trg")}
        settings = _settings(job) | {"training": _training(job, 1), "testing": testing}
        for side, file in vocabularies.items():
            settings["data"][side]["voc_file"] = file
        path = write_yaml(job.folder / f"decode-{beam}.yaml", settings)
        source_file = append_suffix(write_sources(job.data, count).plain, "src")
        arguments = [str(job.python), "-m", "joeynmt", "translate", str(path)]
        return Command(arguments, job.folder, stdin=source_file, stdout=output)


def _settings(job: Job) -> dict[str, Any]:
    """Return the settings that training and decoding share."""
    side = {"level": "char", "lowercase": False, "max_length": 200, "voc_min_freq": 1}
    return {
        "name": "peers",
        "joeynmt_version": "2.3.0",
        "model_dir": str(job.folder / "model"),
        "use_cuda": False,
        "num_workers": 0,
        "random_seed": 1,
        "data": {
            "train": str(job.data.train.plain),
            "dev": str(job.data.dev.plain),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "trg", **side},
        },
        "model": _model(job),
    }


def _model(job: Job) -> dict[str, Any]:
    """Return the network settings."""
    embeddings = {"embedding_dim": job.case.embedding, "scale": False, "dropout": 0.0}
    shared: Mapping[str, Any] = {"rnn_type": job.cell, "embeddings": embeddings, "dropout": 0.0, "num_layers": 1}
    encoder = {"type": "recurrent", "hidden_size": job.case.hidden // 2, "bidirectional": True}
    decoder = {"type": "recurrent", "hidden_size": job.case.hidden, "attention": "bahdanau"}
    decoder |= {"input_feeding": True, "init_hidden": "bridge", "hidden_dropout": 0.0}
    return {"encoder": {**encoder, **shared}, "decoder": {**decoder, **shared}}


def _training(job: Job, updates: int) -> dict[str, Any]:
    """Return the training settings; a schedule is required, and this one keeps the learning rate constant."""
    return {
        "optimizer": "adam",
        "learning_rate": LEARNING_RATE,
        "learning_rate_min": 0.0,
        "scheduling": "exponential",
        "decrease_factor": 1.0,
        "clip_grad_norm": CLIP_NORM,
        "batch_size": job.case.batch,
        "batch_type": "sentence",
        "normalization": "batch",
        "label_smoothing": 0.0,
        "epochs": 1_000_000,
        "updates": updates,
        "logging_freq": job.case.block,
        "validation_freq": job.case.block * 1_000_000,
        "early_stopping_metric": "loss",
        "shuffle": True,
        "overwrite": True,
    }
