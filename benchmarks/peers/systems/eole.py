"""eole 0.6.4."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import DECODING_BATCH_SIZE, NUM_DIGITS
from benchmarks.peers.data import append_suffix, write_sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System, corpus_settings, write_yaml


class Eole(System):
    """eole, which projects the keys at every step, encodes padding, and has no setting for the attention size."""

    name, title = "eole", "eole 0.6.4"
    pip = (("install", "eole==0.6.4", "aiohttp"),)
    parameters_pattern = r"\* number of parameters: ([\d,]+)"
    updates_pattern = r"Step +(\d+)/"
    notes = "attention of the decoder's size; input feeding; the encoder does not mask padding"

    def probe_command(self, python: Path) -> list[str]:
        """Return a command that prints the help of the system.

        Args:
            python: Python interpreter of the system's environment.
        """
        return [str(python.parent / "eole"), "--help"]

    def prepare_commands(self, job: Job) -> list[Command]:
        """Return the command that builds the vocabularies.

        Args:
            job: The network.
        """
        path = write_yaml(job.folder / "vocabulary.yaml", _data(job))
        arguments = [str(job.python.parent / "eole"), "build_vocab", "--config", str(path), "--n_sample", "-1"]
        return [Command(arguments, job.folder)]

    def train_command(self, job: Job, updates: int) -> Command:
        """Write the configuration of a training without validation.

        Args:
            job: The network.
            updates: Number of updates.

        Returns:
            The command of the training.
        """
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        settings = _data(job) | {"model": _model(job), "training": _training(job, updates)}
        settings |= {"report_every": job.case.updates_per_block, "seed": 1}
        path = write_yaml(job.folder / "train.yaml", settings)
        return Command([str(job.python.parent / "eole"), "train", "--config", str(path)], job.folder)

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
        settings = {
            "model_path": [str(job.folder / "model")],
            "src": str(append_suffix(write_sources(job.data, count).symbols, "src")),
            "output": str(output),
            "beam_size": beam,
            "batch_size": DECODING_BATCH_SIZE,
            "batch_type": "sents",
            "min_length": NUM_DIGITS,
            "max_length": NUM_DIGITS,
            "max_length_ratio": 0,
            "gpu_ranks": [],
            "world_size": 1,
        }
        path = write_yaml(job.folder / f"decode-{beam}.yaml", settings)
        return Command([str(job.python.parent / "eole"), "predict", "--config", str(path)], job.folder)


def _data(job: Job) -> dict[str, Any]:
    """Return the corpus and vocabulary settings."""
    return corpus_settings(job) | {"vocab_size_multiple": 1, "overwrite": True}


def _model(job: Job) -> dict[str, Any]:
    """Return the network settings; the architecture is "custom", since "rnn" has a unidirectional encoder."""
    kind = {"rnn_type": job.cell.upper(), "layers": 1, "hidden_size": job.case.hidden_size}
    decoder = {"decoder_type": "rnn", "global_attention": "mlp", "bidirectional_encoder": True}
    return {
        "architecture": "custom",
        "hidden_size": job.case.hidden_size,
        "layers": 1,
        "input_feed": 1,
        "embeddings": {
            "word_vec_size": job.case.embedding_size,
            "src_word_vec_size": job.case.embedding_size,
            "tgt_word_vec_size": job.case.embedding_size,
            "position_encoding_type": None,
        },
        "encoder": {"encoder_type": "brnn", "src_word_vec_size": job.case.embedding_size, **kind},
        "decoder": {"tgt_word_vec_size": job.case.embedding_size, **decoder, **kind},
    }


def _training(job: Job, updates: int) -> dict[str, Any]:
    """Return the training settings. The bucket, which is read and tokenized ahead, is one block of updates."""
    return {
        "model_path": str(job.folder / "model"),
        "keep_checkpoint": 1,
        "save_checkpoint_steps": updates,
        "train_steps": updates,
        "valid_steps": 100_000_000,
        "optim": "adam",
        "learning_rate": LEARNING_RATE,
        "max_grad_norm": CLIP_NORM,
        "batch_size": job.case.batch_size,
        "batch_type": "sents",
        "bucket_size": job.case.updates_per_block * job.case.batch_size,
        "num_workers": 0,
        "dropout": [0.0],
        "attention_dropout": [0.0],
        "label_smoothing": 0.0,
        "log_attention_entropy": False,
        "compute_dtype": "fp32",
        "gpu_ranks": [],
        "world_size": 1,
    }
