"""OpenNMT-py 3.5.1."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import DECODING_BATCH_SIZE, NUM_DIGITS
from benchmarks.peers.data import append_suffix, write_sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System, corpus_settings, write_yaml

PICKLE_ENVIRONMENT = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
"""Environment variables with which PyTorch loads the checkpoints, which contain pickled objects."""


class OpenNMT(System):
    """OpenNMT-py, which projects the keys at every step and has no setting for the attention size."""

    name, title = "opennmt", "OpenNMT-py 3.5.1"
    # The package requires torch < 2.3, so it is installed without dependencies, and these are installed explicitly.
    pip = (
        ("install", "torch"),
        ("install", "--no-deps", "OpenNMT-py==3.5.1"),
        ("install", "configargparse", "pyyaml", "sacrebleu", "tensorboard", "spacy", "ctranslate2", "pyonmttok"),
        ("install", "rapidfuzz", "pyahocorasick", "six", "setuptools", "flask", "waitress", "fasttext-wheel"),
    )
    parameters_pattern = r"\* number of parameters: (\d+)"
    updates_pattern = r"Step +(\d+)/"
    notes = "attention of the decoder's size; input feeding"

    def probe_command(self, python: Path) -> list[str]:
        """Return a command that prints the help of the system.

        Args:
            python: Python interpreter of the system's environment.
        """
        return [str(python.parent / "onmt_train"), "-h"]

    def prepare_commands(self, job: Job) -> list[Command]:
        """Return the command that builds the vocabularies.

        Args:
            job: The network.
        """
        path = write_yaml(job.folder / "vocabulary.yaml", corpus_settings(job))
        arguments = [str(job.python.parent / "onmt_build_vocab"), "-config", str(path), "-n_sample", "-1"]
        return [Command([*arguments, "-overwrite"], job.folder)]

    def train_command(self, job: Job, updates: int) -> Command:
        """Write the configuration of a training without validation.

        Args:
            job: The network.
            updates: Number of updates.

        Returns:
            The command of the training.
        """
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        path = write_yaml(job.folder / "train.yaml", corpus_settings(job) | _model(job) | _training(job, updates))
        return Command([str(job.python.parent / "onmt_train"), "-config", str(path)], job.folder)

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
        source_file = append_suffix(write_sources(job.data, count).symbols, "src")
        (model,) = (job.folder / "model").glob("m_step_*.pt")
        files = ["-model", str(model), "-src", str(source_file), "-output", str(output), "-gpu", "-1"]
        lengths = ["-min_length", str(NUM_DIGITS), "-max_length", str(NUM_DIGITS)]
        search = ["-beam_size", str(beam), "-batch_size", str(DECODING_BATCH_SIZE), "-batch_type", "sents"]
        arguments = [str(job.python.parent / "onmt_translate"), *files, *lengths, *search]
        return Command(arguments, job.folder, PICKLE_ENVIRONMENT)


def _model(job: Job) -> dict[str, Any]:
    """Return the network settings."""
    return {
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "rnn_type": job.cell.upper(),
        "layers": 1,
        "hidden_size": job.case.hidden_size,
        "word_vec_size": job.case.embedding_size,
        "global_attention": "mlp",
        "input_feed": 1,
        "dropout": [0.0],
    }


def _training(job: Job, updates: int) -> dict[str, Any]:
    """Return the training settings. The bucket, which is read and tokenized ahead, is one block of updates."""
    return {
        "save_model": str(job.folder / "model" / "m"),
        "keep_checkpoint": 1,
        "save_checkpoint_steps": updates,
        "train_steps": updates,
        "valid_steps": 100_000_000,
        "report_every": job.case.updates_per_block,
        "optim": "adam",
        "learning_rate": LEARNING_RATE,
        "max_grad_norm": CLIP_NORM,
        "batch_size": job.case.batch_size,
        "batch_type": "sents",
        "bucket_size": job.case.updates_per_block * job.case.batch_size,
        "num_workers": 0,
        "label_smoothing": 0.0,
        "world_size": 1,
        "seed": 1,
    }
