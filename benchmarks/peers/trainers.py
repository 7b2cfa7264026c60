"""Trainings of pronunciations by Pellucid, yoyodyne and JoeyNMT through their command lines.

The peers have networks of the sizes of Pellucid's preset for the number of pairs: GRUs, a bidirectional encoder, a
decoder of one layer with additive attention. Dropout, label smoothing, schedule and choice of the checkpoint are those
of the peers' own configurations:

* yoyodyne: the configurations of its tests of grapheme-to-phoneme conversion (dropout 0.2, label smoothing 0.1, batches
  of 100, gradients clipped at 3) and of its folder `configs` (the checkpoint of the highest validation accuracy).
* JoeyNMT: its configurations of recurrent networks `iwslt_deen_bahdanau` and `rnn_reverse` (batches of 64, dropout 0.2,
  gradients clipped at 1, the checkpoint of the highest BLEU), and the label smoothing of 0.1 of `wmt17_ende_bpe`. The
  schedule of the former, which halves the learning rate on a plateau, fails with a current PyTorch.

Both have Adam with a learning rate of 0.001 and the schedule of their own that is called "warmup inverse square root",
with one epoch of warm-up: later, the rate is divided by the square root of the number of epochs.
"""

import math
import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from benchmarks.peers.cases import BEAM_SIZE, DECODING_BATCH_SIZE
from benchmarks.peers.data import append_suffix, write_lines
from benchmarks.peers.measure import Command
from benchmarks.peers.systems import joeynmt, pellucid, yoyodyne
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Network, System, write_yaml
from pellucid.config.presets import PRESETS, default_size
from pellucid.data.examples import Example

DROPOUT = 0.2
LABEL_SMOOTHING = 0.1
MAX_PHONES = 64
"""Maximum number of phones of an output."""


class PronunciationFiles(NamedTuple):
    """Files of the same pairs in several formats, and the test words."""

    train: Path
    """Training pairs of words, tabs and phones; words in FILE.src and phones in FILE.trg, too."""
    valid: Path
    """Validation pairs in the same formats."""
    words: Path
    """Test words, one per line."""
    num_pairs: int
    """Number of training pairs."""


class TrainingJob(NamedTuple):
    """One training of one system: network, data and folder of its files."""

    network: Network
    files: PronunciationFiles
    folder: Path
    python: Path
    """Python interpreter of the system's environment."""
    seed: int
    validations: int = 1
    """Validations of a peer per epoch."""

    @property
    def model(self) -> Path:
        """Return the folder of the model."""
        return self.folder / "model"

    @property
    def outputs(self) -> Path:
        """Return the file of the outputs for the test words."""
        return self.folder / "outputs"


def write_files(
    folder: Path, train: Sequence[Example], valid: Sequence[Example], words: Sequence[str]
) -> PronunciationFiles:
    """Write the pairs in the formats of every system.

    Args:
        folder: Folder of the files.
        train: Training pairs.
        valid: Validation pairs.
        words: Test words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = PronunciationFiles(folder / "train.tsv", folder / "valid.tsv", folder / "words.txt", len(train))
    for path, pairs in ((files.train, train), (files.valid, valid)):
        write_lines(path, [f"{pair.source}\t{pair.target}" for pair in pairs])
        write_lines(append_suffix(path, "src"), [pair.source for pair in pairs])
        write_lines(append_suffix(path, "trg"), [pair.target for pair in pairs])
    write_lines(files.words, words)
    return files


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of outputs.

    Args:
        path: The file.
    """
    return path.read_text("utf-8").splitlines()


def peer_network(num_pairs: int) -> Network:
    """Return the network of the peers, which has the sizes of Pellucid's preset for a number of training pairs.

    Args:
        num_pairs: Number of training pairs.
    """
    preset = PRESETS[default_size(num_pairs)]
    encoder, decoder = preset["encoder"], preset["decoder"]
    layers = encoder.get("num_layers", 1)
    return Network("gru", decoder["hidden_size"], decoder["embedding_size"], layers, DROPOUT, LABEL_SMOOTHING)


class PeerTrainer(ABC):
    """Training of a peer, which runs until it is stopped, and decoding with one of its checkpoints."""

    system: ClassVar[System]

    @abstractmethod
    def train_command(self, job: TrainingJob) -> Command:
        """Write the configuration of a training that validates and saves its best checkpoint.

        Args:
            job: The training.

        Returns:
            The command of the training.
        """

    @abstractmethod
    def find_best(self, job: TrainingJob) -> Path | None:
        """Return the best checkpoint so far; None before the first validation.

        Args:
            job: The training.
        """

    @abstractmethod
    def decode_command(self, job: TrainingJob, checkpoint: Path) -> Command:
        """Write the configuration of decoding the test words with beam search.

        Args:
            job: The training.
            checkpoint: The checkpoint.

        Returns:
            The command of decoding.
        """

    def read_outputs(self, path: Path) -> list[str]:
        """Return the phones of every word, with spaces between.

        Args:
            path: File of the outputs.
        """
        return read_lines(path)


class YoyodyneTrainer(PeerTrainer):
    """Training of yoyodyne until it is stopped."""

    system: ClassVar[System] = yoyodyne.Yoyodyne()

    def train_command(self, job: TrainingJob) -> Command:
        """Write the configuration of a training that validates and saves its best checkpoint.

        Args:
            job: The training.

        Returns:
            The command of the training.
        """
        shutil.rmtree(job.model, ignore_errors=True)
        job.model.mkdir(parents=True)
        trainer: dict[str, Any] = {"max_epochs": -1, "num_sanity_val_steps": 0, "gradient_clip_val": 3.0}
        trainer |= {"val_check_interval": 1 / job.validations}
        trainer |= {"logger": yoyodyne.logger_settings(job.model), **yoyodyne.QUIET}
        checkpoint = {"dirpath": str(job.model), "filename": "{epoch}-{step}", "monitor": "val_accuracy", "mode": "max"}
        data = _yoyodyne_data(job) | {"train": str(job.files.train), "val": str(job.files.valid), "batch_size": 100}
        settings = {"trainer": trainer, "checkpoint": checkpoint, "model": _yoyodyne_network(job), "data": data}
        path = write_yaml(job.folder / "train.yaml", {"seed_everything": job.seed, **settings})
        return Command([str(job.python.parent / "yoyodyne"), "fit", "--config", str(path)], job.folder)

    def find_best(self, job: TrainingJob) -> Path | None:
        """Return the newest checkpoint: one is saved only if it is the best so far, and the last one is removed.

        Args:
            job: The training.
        """
        checkpoints = sorted(job.model.glob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns)
        return checkpoints[-1] if checkpoints else None

    def decode_command(self, job: TrainingJob, checkpoint: Path) -> Command:
        """Write the configuration of decoding the test words with beam search.

        Args:
            job: The training.
            checkpoint: The checkpoint.

        Returns:
            The command of decoding.
        """
        trainer = {"logger": yoyodyne.logger_settings(job.model), **yoyodyne.QUIET}
        predict = {"predict": str(job.files.words), "batch_size": DECODING_BATCH_SIZE, "target_col": 0}
        settings: dict[str, Any] = {"trainer": trainer, "model": _yoyodyne_network(job, BEAM_SIZE)}
        settings |= {"data": _yoyodyne_data(job) | predict, "prediction": {"path": str(job.outputs)}}
        path = write_yaml(job.folder / "decode.yaml", settings | {"ckpt_path": str(checkpoint)})
        return Command([str(job.python.parent / "yoyodyne"), "predict", "--config", str(path)], job.folder)

    def read_outputs(self, path: Path) -> list[str]:
        """Return the first of the hypotheses of every word.

        Args:
            path: File of the outputs.
        """
        return self.system.read_outputs(path)


def _yoyodyne_data(job: TrainingJob) -> dict[str, Any]:
    """Return the data settings of training and decoding; each vocabulary has its own part of the embedding table."""
    return {
        "model_dir": str(job.model),
        "tie_embeddings": False,
        "target_sep": " ",
        "max_source_length": 128,
        "max_target_length": MAX_PHONES,
    }


def _yoyodyne_network(job: TrainingJob, beam: int = 1) -> dict[str, Any]:
    """Return the network settings with the schedule of the learning rate."""
    settings = yoyodyne.network_settings(job.network, beam)
    schedule = {"class_path": "yoyodyne.schedulers.WarmupInverseSquareRoot", "init_args": {"warmup_epochs": 1}}
    settings["init_args"] |= {"compute_accuracy": True, "scheduler": schedule}
    return settings


class JoeyNMTTrainer(PeerTrainer):
    """Training of JoeyNMT until it is stopped."""

    system: ClassVar[System] = joeynmt.JoeyNMT()

    def train_command(self, job: TrainingJob) -> Command:
        """Write the configuration of a training that validates and saves its best checkpoint.

        Args:
            job: The training.

        Returns:
            The command of the training.
        """
        shutil.rmtree(job.model, ignore_errors=True)
        files = {"train": str(job.files.train), "dev": str(job.files.valid)}
        data = files | joeynmt.data_settings("word")
        path = write_yaml(
            job.folder / "train.yaml", _joeynmt_settings(job) | {"data": data, "testing": _joeynmt_search(1)}
        )
        return Command([str(job.python), "-m", "joeynmt", "train", str(path), "--skip-test"], job.folder)

    def find_best(self, job: TrainingJob) -> Path | None:
        """Return the checkpoint to which the link of the best one points.

        Args:
            job: The training.
        """
        link = job.model / "best.ckpt"
        return link.resolve() if link.exists() else None

    def decode_command(self, job: TrainingJob, checkpoint: Path) -> Command:
        """Write the configuration of decoding the test words with beam search.

        Args:
            job: The training.
            checkpoint: The checkpoint.

        Returns:
            The command of decoding.
        """
        files = {"train": str(job.files.train), "dev": str(job.files.valid)}
        settings = _joeynmt_settings(job) | {"data": files | joeynmt.data_settings("word", job.model)}
        settings["testing"] = _joeynmt_search(BEAM_SIZE) | {"load_model": str(checkpoint)}
        path = write_yaml(job.folder / "decode.yaml", settings)
        arguments = [str(job.python), "-m", "joeynmt", "translate", str(path)]
        return Command(arguments, job.folder, stdin=job.files.words, stdout=job.outputs)


def _joeynmt_settings(job: TrainingJob) -> dict[str, Any]:
    """Return the settings that training and decoding share."""
    num_batches = math.ceil(job.files.num_pairs / 64)
    interval = math.ceil(num_batches / job.validations)
    training = {
        "optimizer": "adam",
        "learning_rate": LEARNING_RATE,
        "learning_rate_min": LEARNING_RATE / 10,
        "scheduling": "warmupinversesquareroot",
        "learning_rate_warmup": num_batches,
        "clip_grad_norm": CLIP_NORM,
        "batch_size": 64,
        "batch_type": "sentence",
        "normalization": "tokens",
        "label_smoothing": job.network.label_smoothing,
        "epochs": 1_000_000,
        "logging_freq": interval,
        "validation_freq": interval,
        "early_stopping_metric": "bleu",
        "keep_best_ckpts": 2,
        "shuffle": True,
        "overwrite": True,
    }
    network = {"model": joeynmt.network_settings(job.network)}
    return joeynmt.shared_settings(job.model, job.seed) | network | {"training": training}


def _joeynmt_search(beam: int) -> dict[str, Any]:
    """Return the settings of decoding."""
    settings: dict[str, Any] = {"beam_size": beam, "beam_alpha": 1.0, "max_output_length": MAX_PHONES}
    settings |= {"batch_size": DECODING_BATCH_SIZE, "batch_type": "sentence", "generate_unk": False}
    return settings | {"eval_metrics": ["bleu"], "sacrebleu_cfg": {"tokenize": "none"}}


TRAINERS: Mapping[str, PeerTrainer] = {
    trainer.system.name: trainer for trainer in (YoyodyneTrainer(), JoeyNMTTrainer())
}
"""Trainings of peers by the name of the system."""


def pellucid_train_command(job: TrainingJob, minutes: float) -> Command:
    """Return the command of a training of Pellucid with a time limit and its defaults, in a new run folder.

    Args:
        job: The training; its network has no effect.
        minutes: The time limit.
    """
    shutil.rmtree(job.model, ignore_errors=True)
    job.folder.mkdir(parents=True, exist_ok=True)
    files = [str(job.files.train), "--valid", str(job.files.valid), "--run", str(job.model)]
    settings = ["--target-symbols", "words", "--time", f"{minutes:g}m", "--seed", str(job.seed)]
    return Command([sys.executable, "-m", "pellucid", "train", *files, *settings], job.folder, pellucid.ENVIRONMENT)


def pellucid_decode_command(job: TrainingJob) -> Command:
    """Return the command of decoding the test words with a run of Pellucid and its defaults.

    Args:
        job: The training.
    """
    arguments = [sys.executable, "-m", "pellucid", "predict", str(job.model), str(job.files.words)]
    return Command(arguments, job.folder, pellucid.ENVIRONMENT, stdout=job.outputs)


def pellucid_stop_reason(log: str) -> str:
    """Return why a training of Pellucid ended before its time limit; empty if the limit was reached.

    Args:
        log: Log of the training.
    """
    match = re.search(r"^stopped: (.*?);", log, re.MULTILINE)
    return "" if match is None or "time limit" in match[1] else match[1]
