"""JoeyNMT 2.3.0."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import DECODING_BATCH, DIGITS
from benchmarks.peers.data import beside, sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System, write_yaml


class JoeyNMT(System):
    """Keys are projected once a batch in training, at every step in decoding; no choice of attention units."""

    name, title = "joeynmt", "JoeyNMT 2.3.0"
    pip = (("install", "joeynmt==2.3.0", "importlib_metadata"),)
    parameters_told = r"Total params: (\d+)"
    updates_told = r"Step: +(\d+)"
    notes = "attention as wide as the decoder; input feeding"

    def probe(self, python: Path) -> list[str]:
        """Its help."""
        return [str(python), "-m", "joeynmt", "--help"]

    def train(self, job: Job, updates: int) -> Command:
        """Training without validation: it writes its checkpoint at the end."""
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        settings = _settings(job) | {"training": _training(job, updates), "testing": {}}
        path = write_yaml(job.folder / "train.yaml", settings)
        return Command([str(job.python), "-m", "joeynmt", "train", str(path), "--skip-test"], job.folder)

    def decode(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Translation of standard input: its option for a file of outputs fails."""
        lengths = {"min_output_length": DIGITS, "max_output_length": DIGITS}
        testing = lengths | {"beam_size": beam, "batch_size": DECODING_BATCH, "batch_type": "sentence"}
        testing |= {"load_model": str(job.folder / "model" / "latest.ckpt")}
        vocabularies = {side: str(job.folder / "model" / f"{side}_vocab.txt") for side in ("src", "trg")}
        settings = _settings(job) | {"training": _training(job, 1), "testing": testing}
        for side, file in vocabularies.items():
            settings["data"][side]["voc_file"] = file
        path = write_yaml(job.folder / f"decode-{beam}.yaml", settings)
        given = beside(sources(job.data, count).plain, "src")
        arguments = [str(job.python), "-m", "joeynmt", "translate", str(path)]
        return Command(arguments, job.folder, stdin=given, stdout=output)


def _settings(job: Job) -> dict[str, Any]:
    """What training and decoding have in common."""
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
    """The network."""
    embeddings = {"embedding_dim": job.case.embedding, "scale": False, "dropout": 0.0}
    both: Mapping[str, Any] = {"rnn_type": job.cell, "embeddings": embeddings, "dropout": 0.0, "num_layers": 1}
    encoder = {"type": "recurrent", "hidden_size": job.case.hidden // 2, "bidirectional": True}
    decoder = {"type": "recurrent", "hidden_size": job.case.hidden, "attention": "bahdanau"}
    decoder |= {"input_feeding": True, "init_hidden": "bridge", "hidden_dropout": 0.0}
    return {"encoder": {**encoder, **both}, "decoder": {**decoder, **both}}


def _training(job: Job, updates: int) -> dict[str, Any]:
    """How it is trained. Without a schedule it stops with an error: this one leaves the rate as it is."""
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
