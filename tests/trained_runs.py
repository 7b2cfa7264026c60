"""What the tests of training and of the command line share: tiny data, small runs made once, and real processes."""

import atexit
import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits
from pellucid.recipes.jobs import progress_callback
from pellucid.recipes.recipe import RecipeRequest
from pellucid.training.session import RunEvent, train_run
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import ProgressCallback

SMALL: Mapping[str, Mapping[str, Any]] = {
    "encoder": {"hidden_size": 6, "embedding_size": 6},
    "attention": {"size": 8},
    "decoder": {"hidden_size": 12, "embedding_size": 6},
}
"""Sizes at which an update takes a few milliseconds."""
SNAPSHOTS = "snapshots/"
RUN_FILES = ["card.md", "config.toml", "log.jsonl", "model.safetensors", "training.safetensors", "vocabulary.json"]
"""Of a finished run, beside its snapshots."""


class Trained(NamedTuple):
    """A finished run and what it was made from."""

    files: TrainingFiles
    run: Path
    config: Config


def small_config(
    training: Mapping[str, Any] | None = None, dropout: float = 0.0, data: Mapping[str, Any] | None = None
) -> Config:
    """A configuration of the smallest sizes."""
    parts = {name: dict(part) for name, part in SMALL.items()}
    parts["encoder"]["dropout"] = parts["decoder"]["dropout"] = dropout
    given = {"size": "tiny", **parts, "training": {"batch_size": 8, **(training or {})}, "data": dict(data or {})}
    return build_config(given, origin="test")


def write_pairs(path: Path, examples: Iterable[Example]) -> Path:
    """Pairs as TSV, the features in a third column where there are any."""
    lines = ("\t".join((e.source, e.target, e.features) if e.features else (e.source, e.target)) for e in examples)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def copies(count: int, seed: int) -> list[Example]:
    """Pairs of one to three letters whose source is their target."""
    generator = random.Random(seed)
    texts = ["".join(generator.choices("abcd", k=generator.randint(1, 3))) for _ in range(count)]
    return [Example(text, text) for text in texts]


def copy_files(folder: Path, training: int = 40, development: int = 10) -> TrainingFiles:
    """Copies: a training and a development file."""
    folder.mkdir(parents=True, exist_ok=True)
    return TrainingFiles(
        write_pairs(folder / "train.tsv", copies(training, seed=1)),
        write_pairs(folder / "dev.tsv", copies(development, seed=2)),
    )


def digit_files(folder: Path, training: int = 60, development: int = 20, digits: int = 2) -> TrainingFiles:
    """Spelled digits: a training and a development file."""
    folder.mkdir(parents=True, exist_ok=True)
    return TrainingFiles(
        write_pairs(folder / "train.tsv", spelled_digits(training, 1, digits, seed=1)),
        write_pairs(folder / "dev.tsv", spelled_digits(development, 1, digits, seed=2)),
    )


def train_to_end(files: TrainingFiles, folder: Path, config: Config) -> list[RunEvent]:
    """All events of a training that nobody disturbs."""
    torch.set_num_threads(1)
    return list(train_run(files, folder, config))


@cache
def shared_folder() -> Path:
    """A folder that lives as long as the tests."""
    folder = Path(tempfile.mkdtemp(prefix="pellucid-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def digits_run() -> Trained:
    """A model that has learned one to three spelled digits, nearly. Read it; copy it to change it."""
    files = digit_files(shared_folder() / "digits", training=300, development=40, digits=3)
    training = {"epochs": 10, "batch_size": 20, "learning_rate": 0.02, "label_smoothing": 0.0, "eval_interval": 2}
    config = build_config({"size": "tiny", "training": training}, origin="test")
    run = shared_folder() / "digits" / "run"
    train_to_end(files, run, config)
    return Trained(files, run, config)


@cache
def copies_run() -> Trained:
    """A small finished run with dropout: 5 updates an epoch, a validation every second or third."""
    files = copy_files(shared_folder() / "copies")
    config = small_config({"epochs": 3, "eval_interval": 0.5}, dropout=0.4)
    run = shared_folder() / "copies" / "run"
    train_to_end(files, run, config)
    return Trained(files, run, config)


def copy_of(run: Path, to: Path) -> Path:
    """A run folder to spoil."""
    return Path(shutil.copytree(run, to))


def flags(config: Config) -> list[str]:
    """The flags that make the command line train a small configuration."""
    values = {
        f"--{part}.{name}": getattr(getattr(config, part), name)
        for part, names in {
            "encoder": ("hidden_size", "embedding_size", "dropout"),
            "attention": ("size",),
            "decoder": ("hidden_size", "embedding_size", "dropout"),
            "training": ("epochs", "batch_size", "learning_rate", "eval_interval"),
        }.items()
        for name in names
    }
    return ["--size", config.size, *(text for flag, value in values.items() for text in (flag, str(value)))]


def records(run: Path) -> list[dict[str, Any]]:
    """The log without what tells the time and of how training was begun."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    timeless = [{k: v for k, v in line.items() if k not in ("seconds", "time")} for line in lines]
    return [line for line in timeless if line["event"] not in ("started", "compiling")]


def tensors(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Every tensor of a safetensors file with its type and shape, as bytes, and the notes."""
    with safe_open(path, framework="pt") as file:
        read = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        told = {name: f"{tensor.dtype} {tuple(tensor.shape)} ".encode() for name, tensor in read.items()}
        return {name: told[name] + read[name].numpy().tobytes() for name in read}, file.metadata() or {}


def shot(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """A snapshot: its vectors to the bit, and what the probes came to to four digits.

    How a probe is decoded may differ in the last bit from process to process, by where its numbers lie in memory.
    """
    vectors, notes = tensors(path)
    inexact = re.compile(r'(?<=\.\d{4})\d+|"sha256":"[^"]*",')
    return vectors, {name: inexact.sub("", note) for name, note in notes.items()}


def outcome(run: Path) -> dict[str, Any]:
    """All that two trainings to the same bits must have alike: every file of the run, but for the time it took."""
    moments, notes = tensors(run / "training.safetensors")
    progress = {key: value for key, value in json.loads(notes.pop("progress")).items() if key != "seconds"}
    kept: dict[str, Any] = {
        name: (run / name).read_bytes() for name in ("model.safetensors", "config.toml", "vocabulary.json")
    }
    card = re.sub(r"[\d,]+ seconds", "", (run / "card.md").read_text("utf-8"))
    kept |= {path.name: shot(path) for path in sorted((run / SNAPSHOTS).glob("*"))}
    return {**kept, "moments": moments, "progress": progress, "log": records(run), "card": card}


def assert_same_outcome(one: Path, other: Path) -> None:
    """Two runs agree to the bit, part by part."""
    first, second = outcome(one), outcome(other)
    assert first.keys() == second.keys()
    for part in first:
        assert first[part] == second[part], part


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder, its bytes and when it was written, the lock left out."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def own_files(run: Path) -> list[str]:
    """The files of a run folder, its snapshots left out, of which there is one at least."""
    names = sorted(contents(run))
    assert any(name.startswith(SNAPSHOTS) for name in names)
    return [name for name in names if not name.startswith(SNAPSHOTS)]


def right_here(
    task: Callable[[Any, ProgressCallback], Any], jobs: Sequence[tuple[str, Any]], request: RecipeRequest
) -> Iterator[Any]:
    """As `validation_metrics`: the jobs one after the other, in this process."""
    return (task(job, progress_callback(request, name)) for name, job in jobs)
