"""Small data sets, small runs that are trained once per test process, and comparisons of run folders."""

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

import safetensors.torch
import torch
from safetensors import safe_open

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits
from pellucid.recipes.jobs import progress_callback
from pellucid.recipes.recipe import RecipeRequest
from pellucid.run_folder.lock import lock_run_folder
from pellucid.run_folder.model_file import parameter_file
from pellucid.run_folder.run_files import CONFIDENCE, ENSEMBLE
from pellucid.run_folder.tensor_file import open_tensors
from pellucid.training.ensemble_fitting import fit_ensemble
from pellucid.training.events import RunEvent, UpdateCompleted
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import ProgressCallback

SMALL_SIZES: Mapping[str, Mapping[str, Any]] = {
    "encoder": {"hidden_size": 6, "embedding_size": 6},
    "attention": {"size": 8},
    "decoder": {"hidden_size": 12, "embedding_size": 6},
}
"""Sizes with which an update takes a few milliseconds."""
SNAPSHOTS_FOLDER = "snapshots/"
RUN_FILES = [
    *("card.md", "confidence.json", "config.toml", "log.jsonl", "model.safetensors", "training.safetensors"),
    "vocabulary.json",
]
"""Files of a finished run, without its snapshots."""


class DataFiles(TrainingFiles):
    """Training files whose validation set is a file."""

    valid: Path


class TrainedRun(NamedTuple):
    """Folder of a finished run, its training files and its configuration."""

    files: DataFiles
    run: Path
    config: Config


def make_small_config(
    training: Mapping[str, Any] | None = None, dropout: float = 0.0, data: Mapping[str, Any] | None = None
) -> Config:
    """Return a configuration of the smallest sizes."""
    tables = {name: dict(table) for name, table in SMALL_SIZES.items()}
    tables["encoder"]["dropout"] = tables["decoder"]["dropout"] = dropout
    settings = {
        "size": "tiny",
        **tables,
        "training": {"batch_size": 8, "pair_ngram": False, **(training or {})},
        "data": dict(data or {}),
    }
    return build_config(settings, origin="test")


def write_pairs(path: Path, examples: Iterable[Example]) -> Path:
    """Write pairs as TSV, with the features, if there are any, in a third column; return the path."""
    lines = (
        "\t".join(
            (example.source, example.target, example.features) if example.features else (example.source, example.target)
        )
        for example in examples
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def make_copy_examples(count: int, seed: int) -> list[Example]:
    """Return pairs of one to three letters whose target equals their source."""
    generator = random.Random(seed)
    texts = ["".join(generator.choices("abcd", k=generator.randint(1, 3))) for _ in range(count)]
    return [Example(text, text) for text in texts]


def write_copy_files(folder: Path, num_training: int = 40, num_validation: int = 10) -> DataFiles:
    """Write a training and a validation file of pairs whose target equals their source."""
    folder.mkdir(parents=True, exist_ok=True)
    return DataFiles(
        write_pairs(folder / "train.tsv", make_copy_examples(num_training, seed=1)),
        write_pairs(folder / "dev.tsv", make_copy_examples(num_validation, seed=2)),
    )


def write_digit_files(folder: Path, num_training: int = 60, num_validation: int = 20, max_digits: int = 2) -> DataFiles:
    """Write a training and a validation file of spelled digits."""
    folder.mkdir(parents=True, exist_ok=True)
    return DataFiles(
        write_pairs(folder / "train.tsv", spelled_digits(num_training, 1, max_digits, seed=1)),
        write_pairs(folder / "dev.tsv", spelled_digits(num_validation, 1, max_digits, seed=2)),
    )


def train_to_end(files: TrainingFiles, folder: Path, config: Config) -> list[RunEvent]:
    """Train without an interruption; return all events."""
    torch.set_num_threads(1)
    return list(train_run(files, folder, config))


def fit_folder(files: TrainingFiles, folder: Path, config: Config) -> list[RunEvent]:
    """Fit a finished ensemble, whose folder is locked meanwhile; return all events."""
    with lock_run_folder(folder, (ENSEMBLE, CONFIDENCE)) as lock:
        return list(fit_ensemble(files, lock, config))


@cache
def shared_folder() -> Path:
    """Return a temporary folder that all tests of this process share."""
    folder = Path(tempfile.mkdtemp(prefix="pellucid-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def digits_run() -> TrainedRun:
    """Return a run that has nearly learned one to three spelled digits. Tests copy it before they change it."""
    files = write_digit_files(shared_folder() / "digits", num_training=300, num_validation=40, max_digits=3)
    training = {"epochs": 10, "batch_size": 20, "learning_rate": 0.02, "label_smoothing": 0.0, "eval_interval": 2}
    training["pair_ngram"] = False
    config = build_config({"size": "tiny", "training": training}, origin="test")
    run = shared_folder() / "digits" / "run"
    train_to_end(files, run, config)
    return TrainedRun(files, run, config)


@cache
def copy_task_run() -> TrainedRun:
    """Return a small finished run with dropout, 5 updates per epoch and two validations per epoch."""
    files = write_copy_files(shared_folder() / "copies")
    config = make_small_config({"epochs": 3, "eval_interval": 0.5}, dropout=0.4)
    run = shared_folder() / "copies" / "run"
    train_to_end(files, run, config)
    return TrainedRun(files, run, config)


def copy_run_folder(run: Path, destination: Path) -> Path:
    """Copy a run folder, so that a test can change it; return the copy."""
    return Path(shutil.copytree(run, destination))


def write_old_model(run: Path) -> None:
    """Write the model file as earlier versions did, without the identity of its run."""
    path = run / "model.safetensors"
    path.write_bytes(parameter_file(safetensors.torch.load(path.read_bytes())))
    with open_tensors(path) as stored:
        assert sorted(stored.metadata) == ["format", "sha256"]


def training_flags(config: Config) -> list[str]:
    """Return the flags that set a small configuration on the command line."""
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
    no_pair_ngram = [] if config.training.pair_ngram else ["--no-pair-ngram"]
    return [
        "--size",
        config.size,
        *no_pair_ngram,
        *(text for flag, value in values.items() for text in (flag, str(value))),
    ]


def comparable_log_records(run: Path) -> list[dict[str, Any]]:
    """Return the records of the log without times, starts and compilations, which differ between equal runs."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    records = [{key: value for key, value in line.items() if key not in ("seconds", "time")} for line in lines]
    return [record for record in records if record["event"] not in ("started", "compiling")]


def read_tensors(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the type, shape and data of each tensor of a safetensors file as bytes, and the metadata."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        headers = {name: f"{tensor.dtype} {tuple(tensor.shape)} ".encode() for name, tensor in tensors.items()}
        return {name: headers[name] + tensors[name].numpy().tobytes() for name in tensors}, file.metadata() or {}


def read_snapshot(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the exact tensors of a snapshot, and its metadata with numbers of four decimals.

    The last bits of the decoded probes depend on the alignment of arrays in memory, which differs between processes.
    """
    tensors, metadata = read_tensors(path)
    inexact = re.compile(r'(?<=\.\d{4})\d+|"sha256":"[^"]*",')
    return tensors, {name: inexact.sub("", value) for name, value in metadata.items()}


def comparable_run_contents(run: Path) -> dict[str, Any]:
    """Return the content of every file of a run, without the training time.

    Two runs that are reproducible bit for bit have equal contents.
    """
    moments, metadata = read_tensors(run / "training.safetensors")
    progress = {key: value for key, value in json.loads(metadata.pop("progress")).items() if key != "seconds"}
    files: dict[str, Any] = {
        name: (run / name).read_bytes() for name in ("model.safetensors", "config.toml", "vocabulary.json")
    }
    card = re.sub(r"[\d,]+ seconds?", "", (run / "card.md").read_text("utf-8"))
    files |= {path.name: read_snapshot(path) for path in sorted((run / SNAPSHOTS_FOLDER).glob("*"))}
    pair_ngram = run / "pair_ngram.safetensors"
    files |= {pair_ngram.name: pair_ngram.read_bytes()} if pair_ngram.exists() else {}
    files["confidence.json"] = (run / "confidence.json").read_bytes()
    return {**files, "moments": moments, "progress": progress, "log": comparable_log_records(run), "card": card}


def assert_runs_identical(actual: Path, expected: Path) -> None:
    """Assert that two runs are equal bit for bit."""
    actual_contents, expected_contents = comparable_run_contents(actual), comparable_run_contents(expected)
    assert actual_contents.keys() == expected_contents.keys()
    for name in actual_contents:
        assert actual_contents[name] == expected_contents[name], name


def assert_training_resumes(files: TrainingFiles, config: Config, folder: Path, update: int) -> None:
    """Assert that a training that is interrupted after an update equals an uninterrupted one bit for bit."""
    train_to_end(files, folder / "uninterrupted", config)
    events = train_run(files, folder / "interrupted", config)
    for event in events:
        if isinstance(event, UpdateCompleted) and event.progress.update == update:
            break
    events.close()
    train_to_end(files, folder / "interrupted", config)
    assert_runs_identical(folder / "uninterrupted", folder / "interrupted")


def read_folder_state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and the modification time of every file below a folder, except the lock."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def list_run_files(run: Path) -> list[str]:
    """Return the files of a run folder without its snapshots, and assert that there is a snapshot."""
    names = sorted(read_folder_state(run))
    assert any(name.startswith(SNAPSHOTS_FOLDER) for name in names)
    return [name for name in names if not name.startswith(SNAPSHOTS_FOLDER)]


def run_jobs_serially(
    task: Callable[[Any, ProgressCallback], Any], jobs: Sequence[tuple[str, Any]], request: RecipeRequest
) -> Iterator[Any]:
    """Yield the results of the jobs, run one after another in this process instead of a worker pool."""
    return (task(job, progress_callback(request, name)) for name, job in jobs)
