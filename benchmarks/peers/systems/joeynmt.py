"""JoeyNMT 2.3.0."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import DECODING_BATCH_SIZE, NUM_DIGITS
from benchmarks.peers.data import append_suffix, write_sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, Network, System, write_yaml


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
        lengths = {"min_output_length": NUM_DIGITS, "max_output_length": NUM_DIGITS}
        testing = lengths | {"beam_size": beam, "batch_size": DECODING_BATCH_SIZE, "batch_type": "sentence"}
        testing |= {"load_model": str(job.folder / "model" / "latest.ckpt")}
        settings = _settings(job, job.folder / "model") | {"training": _training(job, 1), "testing": testing}
        path = write_yaml(job.folder / f"decode-{beam}.yaml", settings)
        source_file = append_suffix(write_sources(job.data, count).plain, "src")
        arguments = [str(job.python), "-m", "joeynmt", "translate", str(path)]
        return Command(arguments, job.folder, stdin=source_file, stdout=output)


def _settings(job: Job, vocabularies: Path | None = None) -> dict[str, Any]:
    """Return the settings that training and decoding share."""
    files = {"train": str(job.data.train.plain), "dev": str(job.data.dev.plain)}
    return {
        **shared_settings(job.folder / "model", seed=1),
        "data": files | data_settings("char", vocabularies),
        "model": network_settings(job.network),
    }


def shared_settings(folder: Path, seed: int) -> dict[str, Any]:
    """Return the settings that every command needs.

    Args:
        folder: Folder of the model.
        seed: Random seed.
    """
    settings = {"name": "peers", "joeynmt_version": "2.3.0", "model_dir": str(folder)}
    return settings | {"use_cuda": False, "num_workers": 0, "random_seed": seed}


def data_settings(target_level: str, vocabularies: Path | None = None) -> dict[str, Any]:
    """Return the settings of two plain text files, of which the sources are split into characters.

    Args:
        target_level: "char", or "word" for symbols between spaces.
        vocabularies: Folder of a trained model with its vocabularies; None in training.
    """
    settings: dict[str, Any] = {"dataset_type": "plain"}
    for side, level in (("src", "char"), ("trg", target_level)):
        settings[side] = {"lang": side, "level": level, "lowercase": False, "max_length": 200, "voc_min_freq": 1}
        if vocabularies:
            settings[side]["voc_file"] = str(vocabularies / f"{side}_vocab.txt")
    return settings


def network_settings(network: Network) -> dict[str, Any]:
    """Return the network settings.

    Args:
        network: Sizes and dropout.
    """
    embeddings = {"embedding_dim": network.embedding_size, "scale": False, "dropout": 0.0}
    shared: Mapping[str, Any] = {"rnn_type": network.cell, "embeddings": embeddings, "dropout": network.dropout}
    encoder = {"type": "recurrent", "hidden_size": network.hidden_size // 2, "bidirectional": True}
    decoder = {"type": "recurrent", "hidden_size": network.hidden_size, "attention": "bahdanau", "num_layers": 1}
    decoder |= {"input_feeding": True, "init_hidden": "bridge", "hidden_dropout": network.dropout}
    return {"encoder": {**encoder, "num_layers": network.encoder_layers, **shared}, "decoder": {**decoder, **shared}}


def _training(job: Job, updates: int) -> dict[str, Any]:
    """Return the training settings; a schedule is required, and this one keeps the learning rate constant."""
    return {
        "optimizer": "adam",
        "learning_rate": LEARNING_RATE,
        "learning_rate_min": 0.0,
        "scheduling": "exponential",
        "decrease_factor": 1.0,
        "clip_grad_norm": CLIP_NORM,
        "batch_size": job.case.batch_size,
        "batch_type": "sentence",
        "normalization": "batch",
        "label_smoothing": 0.0,
        "epochs": 1_000_000,
        "updates": updates,
        "logging_freq": job.case.updates_per_block,
        "validation_freq": job.case.updates_per_block * 1_000_000,
        "early_stopping_metric": "loss",
        "shuffle": True,
        "overwrite": True,
    }
