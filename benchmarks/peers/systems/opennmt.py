"""OpenNMT-py 3.5.1."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import DECODING_BATCH, DIGITS
from benchmarks.peers.data import beside, sources
from benchmarks.peers.measure import Command
from benchmarks.peers.systems.system import CLIP_NORM, LEARNING_RATE, Job, System, write_yaml

PICKLES = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
"""Its checkpoints hold objects, which PyTorch does not read unless it is told to."""


class OpenNMT(System):
    """Projects the keys at every step; no choice of attention units."""

    name, title = "opennmt", "OpenNMT-py 3.5.1"
    # It asks for torch < 2.3: installed without what it asks for, which is then installed by hand.
    pip = (
        ("install", "torch"),
        ("install", "--no-deps", "OpenNMT-py==3.5.1"),
        ("install", "configargparse", "pyyaml", "sacrebleu", "tensorboard", "spacy", "ctranslate2", "pyonmttok"),
        ("install", "rapidfuzz", "pyahocorasick", "six", "setuptools", "flask", "waitress", "fasttext-wheel"),
    )
    parameters_told = r"\* number of parameters: (\d+)"
    updates_told = r"Step +(\d+)/"
    notes = "attention as wide as the decoder; input feeding"

    def probe(self, python: Path) -> list[str]:
        """Its help."""
        return [str(python.parent / "onmt_train"), "-h"]

    def prepare(self, job: Job) -> list[Command]:
        """Its vocabularies."""
        path = write_yaml(job.folder / "vocabulary.yaml", _data(job))
        arguments = [str(job.python.parent / "onmt_build_vocab"), "-config", str(path), "-n_sample", "-1"]
        return [Command([*arguments, "-overwrite"], job.folder)]

    def train(self, job: Job, updates: int) -> Command:
        """Training without validation: it writes its checkpoint at the end."""
        shutil.rmtree(job.folder / "model", ignore_errors=True)
        path = write_yaml(job.folder / "train.yaml", _data(job) | _model(job) | _training(job, updates))
        return Command([str(job.python.parent / "onmt_train"), "-config", str(path)], job.folder)

    def decode(self, job: Job, count: int, beam: int, output: Path) -> Command:
        """Translation of a file."""
        given = beside(sources(job.data, count).cut, "src")
        (model,) = (job.folder / "model").glob("m_step_*.pt")
        files = ["-model", str(model), "-src", str(given), "-output", str(output), "-gpu", "-1"]
        lengths = ["-min_length", str(DIGITS), "-max_length", str(DIGITS)]
        search = ["-beam_size", str(beam), "-batch_size", str(DECODING_BATCH), "-batch_type", "sents"]
        arguments = [str(job.python.parent / "onmt_translate"), *files, *lengths, *search]
        return Command(arguments, job.folder, PICKLES)


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
    }


def _model(job: Job) -> dict[str, Any]:
    """The network."""
    return {
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "rnn_type": job.cell.upper(),
        "layers": 1,
        "hidden_size": job.case.hidden,
        "word_vec_size": job.case.embedding,
        "global_attention": "mlp",
        "input_feed": 1,
        "dropout": [0.0],
    }


def _training(job: Job, updates: int) -> dict[str, Any]:
    """How it is trained. The bucket is what it reads and cuts ahead: one block of updates."""
    return {
        "save_model": str(job.folder / "model" / "m"),
        "keep_checkpoint": 1,
        "save_checkpoint_steps": updates,
        "train_steps": updates,
        "valid_steps": 100_000_000,
        "report_every": job.case.block,
        "optim": "adam",
        "learning_rate": LEARNING_RATE,
        "max_grad_norm": CLIP_NORM,
        "batch_size": job.case.batch,
        "batch_type": "sents",
        "bucket_size": job.case.block * job.case.batch,
        "num_workers": 0,
        "label_smoothing": 0.0,
        "world_size": 1,
        "seed": 1,
    }
