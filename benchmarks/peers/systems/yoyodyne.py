"""yoyodyne 0.5.27."""

import csv
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.cases import DECODING_BATCH_SIZE, NUM_DIGITS, Task
from benchmarks.peers.data import write_sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, Network, System, write_yaml

QUIET = {"accelerator": "cpu", "devices": 1, "enable_progress_bar": False, "log_every_n_steps": 1_000_000}


class Yoyodyne(System):
    """yoyodyne, which projects keys and query together at every step and whose beam consists of Python objects."""

    name, title = "yoyodyne", "yoyodyne 0.5.27"
    # torchvision and torchaudio are dependencies, but unused, and fail with a CPU build of PyTorch.
    pip = (("install", "yoyodyne==0.5.27"), ("uninstall", "-y", "torchvision", "torchaudio"))
    relative_speed: ClassVar[Mapping[Task, float]] = {"train": 0.5, "greedy": 0.6, "beam": 0.25}
    parameters_pattern = r"Trainable parameters: ([\d,]+)"
    updates_pattern = r"`max_steps=(\d+)` reached"
    notes = (
        "attention of the decoder's size; its data loader is a second process, whose time is included; outputs have at "
        "most 20 symbols, and a minimum length cannot be set"
    )

    def probe_command(self, python: Path) -> list[str]:
        """Return a command that prints the help of the system.

        Args:
            python: Python interpreter of the system's environment.
        """
        return [str(python.parent / "yoyodyne"), "--help"]

    def train_command(self, job: Job, updates: int) -> Command:
        """Write the configuration of a training without validation.

        Args:
            job: The network.
            updates: Number of updates.

        Returns:
            The command of the training.
        """
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        (job.folder / "model").mkdir(parents=True)
        trainer: dict[str, Any] = {
            "max_steps": updates,
            "max_epochs": -1,
            "limit_val_batches": 0,
            "num_sanity_val_steps": 0,
        }
        trainer |= {"gradient_clip_val": CLIP_NORM, "logger": logger_settings(job.folder / "model"), **QUIET}
        checkpoint = {"dirpath": str(job.folder / "model"), "filename": "last", "every_n_train_steps": updates}
        data = _data(job) | {"train": str(job.data.train.tsv), "batch_size": job.case.batch_size}
        settings = {"trainer": trainer, "checkpoint": checkpoint, "model": network_settings(job.network), "data": data}
        path = write_yaml(job.folder / "train.yaml", {"seed_everything": 1, **settings})
        return Command([str(job.python.parent / "yoyodyne"), "fit", "--config", str(path)], job.folder)

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
        trainer = {"logger": logger_settings(job.folder / "model"), **QUIET}
        predict: dict[str, Any] = {
            "predict": str(write_sources(job.data, count).tsv),
            "batch_size": DECODING_BATCH_SIZE,
            "target_col": 0,
        }
        settings: dict[str, Any] = {
            "trainer": trainer,
            "model": network_settings(job.network, beam),
            "data": _data(job) | predict,
        }
        settings |= {"prediction": {"path": str(output)}, "ckpt_path": str(job.folder / "model" / "last.ckpt")}
        path = write_yaml(job.folder / f"decode-{beam}.yaml", settings)
        return Command([str(job.python.parent / "yoyodyne"), "predict", "--config", str(path)], job.folder)

    def read_outputs(self, path: Path) -> list[str]:
        """Return the first column; with beam search a line has all hypotheses with their scores.

        Args:
            path: File of the outputs.
        """
        with path.open(encoding="utf-8", newline="") as file:
            return [row[0] if row else "" for row in csv.reader(file, delimiter="\t")]


def logger_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the logger, which is required.

    Args:
        folder: Folder of the model.
    """
    return {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": str(folder)}}


def _data(job: Job) -> dict[str, Any]:
    """Return the data settings of training and decoding; each vocabulary has its own part of the embedding table."""
    lengths = {"max_source_length": 128, "max_target_length": NUM_DIGITS}
    return {"model_dir": str(job.folder / "model"), "tie_embeddings": False, **lengths}


def network_settings(network: Network, beam: int = 1) -> dict[str, Any]:
    """Return the network settings, with the loss and the optimizer.

    Args:
        network: Sizes and dropout.
        beam: Beam size.
    """
    kind = "GRU" if network.cell == "gru" else "LSTM"
    encoder: dict[str, Any] = {"embedding_size": network.embedding_size, "hidden_size": network.hidden_size // 2}
    encoder |= {"layers": network.encoder_layers, "bidirectional": True, "dropout": network.dropout}
    return {
        "class_path": f"yoyodyne.models.SoftAttention{kind}Model",
        "init_args": {
            "source_encoder": {"class_path": f"yoyodyne.models.modules.{kind}Encoder", "init_args": encoder},
            "embedding_size": network.embedding_size,
            "decoder_hidden_size": network.hidden_size,
            "decoder_layers": 1,
            "decoder_dropout": network.dropout,
            "label_smoothing": network.label_smoothing,
            "compute_accuracy": False,
            "beam_width": beam,
            "optimizer": {"class_path": "yoyodyne.optimizers.Adam", "init_args": {"lr": LEARNING_RATE}},
        },
    }
