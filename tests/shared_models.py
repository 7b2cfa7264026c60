"""Runs that tests of sharing share, and comparisons of their outputs."""

from functools import cache
from pathlib import Path

import msgspec
from trained_runs import fit_folder, make_small_config, shared_folder, train_to_end, write_copy_files

import pellucid
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.files import write_json
from pellucid.run_folder.run_files import ENSEMBLE, EnsembleRecord

CONFIG = make_small_config({"epochs": 3, "pair_ngram": True})
SOURCES = ["ab", "dcb", "", "abz"]
CARD = pellucid.CardOptions(
    title="Copies",
    license="cc-by-4.0",
    languages=("en",),
    datasets=("user/copies",),
    intended_use="Copies of letters.",
    example="abc",
)


@cache
def copies_with_pair_ngram() -> Path:
    """Return a run with a pair n-gram model and a confidence."""
    folder = shared_folder() / "shared-copies"
    train_to_end(write_copy_files(folder), folder / "run", CONFIG)
    return folder / "run"


@cache
def ensemble_of_copies() -> Path:
    """Return the folder of an ensemble of two, with a fitted weight and confidence."""
    folder = shared_folder() / "shared-ensemble"
    files, names = write_copy_files(folder), ("seed-1", "seed-2")
    for seed, name in enumerate(names, start=1):
        train_to_end(files, folder / "run" / name, msgspec.structs.replace(CONFIG, seed=seed))
    write_json(folder / "run" / ENSEMBLE, EnsembleRecord(names))
    fit_folder(files, folder / "run", CONFIG)
    return folder / "run"


def outputs(predictor: BasePredictor) -> list[tuple[str, float, float | None, bytes]]:
    """Return output, score, confidence and attention weights of each source."""
    return [
        (trace.output, trace.score, trace.confidence, trace.attention.tobytes()) for trace in predictor.predict(SOURCES)
    ]


def file_names(folder: Path) -> list[str]:
    """Return the paths of all files of a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
