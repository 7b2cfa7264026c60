"""eole 0.6.4."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import DECODING_BATCH, DIGITS
from benchmarks.peers.data import beside, sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System, write_yaml


class Eole(System):
    """Projects the keys at every step and reads padding as if it were text; no choice of attention units."""

    name, title = "eole", "eole 0.6.4"
    pip = (("install", "eole==0.6.4", "aiohttp"),)
    parameters_told = r"\* number of parameters: ([\d,]+)"
    updates_told = r"Step +(\d+)/"
    notes = "attention as wide as the decoder; input feeding; does not mask the padding in its encoder"

    def probe(self, python: Path) -> list[str]:
        """Its help."""
        return [str(python.parent / "eole"), "--help"]

    def prepare(self, job: Job) -> list[Command]:
        """Its vocabularies."""
        path = write_yaml(job.folder / "vocabulary.yaml", _data(job))
        arguments = [str(job.python.parent / "eole"), "build_vocab", "--config", str(path), "--n_sample", "-1"]
        return [Command(arguments, job.folder)]

    def train(self, job: Job, updates: int) -> Command:
        """Training without validation: it writes its checkpoint at the end."""
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        settings = _data(job) | {"model": _model(job), "training": _training(job, updates)}
        settings |= {"report_every": job.case.block, "seed": 1}
        path = write_yaml(job.folder / "train.yaml", settings)
        return Command([str(job.python.parent / "eole"), "train", "--config", str(path)], job.folder)

    def decode(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Prediction of a file."""
        settings = {
            "model_path": [str(job.folder / "model")],
            "src": str(beside(sources(job.data, count).cut, "src")),
            "output": str(output),
            "beam_size": beam,
            "batch_size": DECODING_BATCH,
            "batch_type": "sents",
            "min_length": DIGITS,
            "max_length": DIGITS,
            "max_length_ratio": 0,
            "gpu_ranks": [],
            "world_size": 1,
        }
        path = write_yaml(job.folder / f"decode-{beam}.yaml", settings)
        return Command([str(job.python.parent / "eole"), "predict", "--config", str(path)], job.folder)


def _data(job: Job) -> dict[str, Any]:
    """Corpora and vocabularies."""
    train, dev = job.data.train.cut, job.data.dev.cut
    return {
        "data": {
            "corpus_1": {"path_src": str(beside(train, "src")), "path_tgt": str(beside(train, "trg"))},
            "valid": {"path_src": str(beside(dev, "src")), "path_tgt": str(beside(dev, "trg"))},
        },
        "save_data": str(job.folder / "data"),
        "src_vocab": str(job.folder / "vocabulary.src"),
        "tgt_vocab": str(job.folder / "vocabulary.trg"),
        "vocab_size_multiple": 1,
        "overwrite": True,
    }


def _model(job: Job) -> dict[str, Any]:
    """The network: a custom one, as its architecture "rnn" reads sources forward only."""
    kind = {"rnn_type": job.cell.upper(), "layers": 1, "hidden_size": job.case.hidden}
    decoder = {"decoder_type": "rnn", "global_attention": "mlp", "bidirectional_encoder": True}
    return {
        "architecture": "custom",
        "hidden_size": job.case.hidden,
        "layers": 1,
        "input_feed": 1,
        "embeddings": {
            "word_vec_size": job.case.embedding,
            "src_word_vec_size": job.case.embedding,
            "tgt_word_vec_size": job.case.embedding,
            "position_encoding_type": None,
        },
        "encoder": {"encoder_type": "brnn", "src_word_vec_size": job.case.embedding, **kind},
        "decoder": {"tgt_word_vec_size": job.case.embedding, **decoder, **kind},
    }


def _training(job: Job, updates: int) -> dict[str, Any]:
    """How it is trained. The bucket is what it reads and cuts ahead: one block of updates."""
    return {
        "model_path": str(job.folder / "model"),
        "keep_checkpoint": 1,
        "save_checkpoint_steps": updates,
        "train_steps": updates,
        "valid_steps": 100_000_000,
        "optim": "adam",
        "learning_rate": LEARNING_RATE,
        "max_grad_norm": CLIP_NORM,
        "batch_size": job.case.batch,
        "batch_type": "sents",
        "bucket_size": job.case.block * job.case.batch,
        "num_workers": 0,
        "dropout": [0.0],
        "attention_dropout": [0.0],
        "label_smoothing": 0.0,
        "log_attention_entropy": False,
        "compute_dtype": "fp32",
        "gpu_ranks": [],
        "world_size": 1,
    }
