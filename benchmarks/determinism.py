"""Equality to the bit: what changes the parameters of a training and the predictions of a run, and by how much.

    python benchmarks/determinism.py DATA --run FOLDER [--flags "--size tiny --training.epochs 3"] [--only trainings]

DATA is a folder with `train.tsv`, `dev.tsv` and `test.tsv`. A reference is trained with one thread, then each variation
in a process of its own; then the reference decodes the test sources, in two processes. A finished training is not
repeated. One line of JSON is printed for each comparison:

trainings     equal: whether all parameters are equal to the bit; parameter: largest difference of one;
              validation_loss: difference of the lowest loss
predictions   equal: whether outputs, log-probabilities and confidences are equal to the bit; outputs: number of equal
              outputs; log_probability and confidence: largest difference, over equal outputs
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from pellucid.decoding.base_predictor import BasePredictor

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
PLAIN = {"PELLUCID_PLAIN": "1"}
"""PyTorch without compiled kernels."""


class TrainingCase(NamedTuple):
    """A training: its name, the run that it is compared with, further flags, and changes of the environment."""

    name: str
    reference: str = "reference"
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


TRAININGS = (
    TrainingCase("reference"),
    TrainingCase("other-hash-seed", environment={"PYTHONHASHSEED": "1"}),
    TrainingCase("without-kernels", environment=PLAIN),
    TrainingCase("two-threads", flags=("--threads", "2")),
    TrainingCase("two-threads-again", "two-threads", ("--threads", "2"), {"PYTHONHASHSEED": "1"}),
)


class PredictionCase(NamedTuple):
    """A prediction: its name, the one that it is compared with, and how the sources are decoded."""

    name: str
    reference: str = "torch"
    backend: str = "torch"
    batch_size: int = 0
    reverse: bool = False
    threads: int = 1
    hash_seed: str = "0"


PREDICTIONS = (
    PredictionCase("torch"),
    PredictionCase("torch, another process", hash_seed="1"),
    PredictionCase("torch, one source per batch", batch_size=1),
    PredictionCase("torch, 7 sources per batch", batch_size=7),
    PredictionCase("torch, reversed order", reverse=True),
    PredictionCase("torch, two threads", threads=2),
    PredictionCase("kernels", backend="kernels"),
    PredictionCase("kernels, another process", "kernels", backend="kernels", hash_seed="1"),
    PredictionCase("kernels, 7 sources per batch", "kernels", backend="kernels", batch_size=7),
    PredictionCase("kernels, reversed order", "kernels", backend="kernels", reverse=True),
    PredictionCase("numpy", backend="numpy"),
    PredictionCase("numpy, another process", "numpy", backend="numpy", hash_seed="1"),
    PredictionCase("numpy, 7 sources per batch", "numpy", backend="numpy", batch_size=7),
    PredictionCase("numpy, reversed order", "numpy", backend="numpy", reverse=True),
)
Prediction = tuple[str, float, float | None]
"""Output, log-probability and confidence."""


def train(case: TrainingCase, data: Path, folder: Path, flags: Sequence[str]) -> Path:
    """Train, unless the run is finished; return its folder."""
    run = folder / case.name
    files = (str(data / "train.tsv"), "--valid", str(data / "dev.tsv"), "--run", str(run))
    command = [sys.executable, "-m", "pellucid", "train", *files, *flags, *case.flags]
    subprocess.run(
        command, env={**os.environ, **ENVIRONMENT, **case.environment}, stderr=subprocess.DEVNULL, check=True
    )
    return run


def lowest_loss(run: Path) -> float:
    """Return the lowest validation loss in the log of a run."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    return min(record["loss"] for record in records if record["event"] == "validated")


def compare_trainings(case: TrainingCase, run: Path, reference: Path) -> dict[str, Any]:
    """Compare the parameters of two runs."""
    one, other = (load_file(folder / "model.safetensors") for folder in (run, reference))
    return {
        "training": case.name,
        "reference": case.reference,
        "equal": all(one[name].tobytes() == other[name].tobytes() for name in other),
        "parameter": max(float(np.max(np.abs(one[name] - other[name]))) for name in other),
        "validation_loss": abs(lowest_loss(run) - lowest_loss(reference)),
    }


def decode(run: str, sources: Sequence[str], case: PredictionCase) -> list[Prediction]:
    """Decode sources in this process, in the given way; return the predictions in the order of the sources."""
    import torch

    from pellucid.kernels.dispatch import disable_kernels
    from pellucid.kernels.kernel_loader import load_kernels
    from pellucid.run_folder.predictor_loader import load as load_torch
    from pellucid.runtime.loader import load as load_runtime

    torch.set_num_threads(case.threads)
    assert case.backend != "kernels" or load_kernels()
    predictor: BasePredictor = (load_runtime if case.backend == "numpy" else load_torch)(run)
    if case.batch_size:
        predictor = predictor.with_search({"batch_size": case.batch_size})
    with disable_kernels() if case.backend == "torch" else nullcontext():
        traces = predictor.predict(sources[::-1] if case.reverse else sources)
    predictions = [(trace.output, trace.score, trace.confidence) for trace in traces]
    return predictions[::-1] if case.reverse else predictions


def predict(cases: Sequence[PredictionCase], run: Path, sources: Sequence[str], hash_seed: str) -> list[Any]:
    """Decode sources in a new process, in several ways."""
    result = subprocess.run(
        [sys.executable, __file__, "--worker"],
        input=json.dumps([str(run), sources, cases]),
        env={**os.environ, **ENVIRONMENT, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    content: list[Any] = json.loads(result.stdout)
    return content


def compare_predictions(case: PredictionCase, one: list[Prediction], other: list[Prediction]) -> dict[str, Any]:
    """Compare two predictions of the same sources."""
    same = [(first, second) for first, second in zip(one, other, strict=True) if first[0] == second[0]]
    confidences = [
        abs(first[2] - second[2]) for first, second in same if first[2] is not None and second[2] is not None
    ]
    return {
        "prediction": case.name,
        "reference": case.reference,
        "equal": one == other,
        "outputs": len(same),
        "of": len(one),
        "log_probability": max((abs(first[1] - second[1]) for first, second in same), default=0.0),
        "confidence": max(confidences, default=None),
    }


def compare_all(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the records of all comparisons."""
    flags = shlex.split(args.flags)
    runs = dict[str, Path]()
    for training in TRAININGS if args.only != "predictions" else TRAININGS[:1]:
        runs[training.name] = train(training, args.data, args.run, flags)
        if training.name != training.reference:
            yield compare_trainings(training, runs[training.name], runs[training.reference])
    lines = (args.data / "test.tsv").read_text("utf-8").splitlines()
    sources = [line.split("\t")[0] for line in lines][: args.lines]
    predictions = dict[str, list[Prediction]]()
    for hash_seed in ("0", "1") if args.only != "trainings" else ():
        cases = [case for case in PREDICTIONS if case.hash_seed == hash_seed]
        names = [case.name for case in cases]
        predictions |= zip(names, predict(cases, runs["reference"], sources, hash_seed), strict=True)
        for case in cases:
            if case.name != case.reference:
                yield compare_predictions(case, predictions[case.name], predictions[case.reference])


def main() -> None:
    """Parse the arguments and print the records, or decode as a worker."""
    if sys.argv[1:] == ["--worker"]:
        run, sources, cases = json.load(sys.stdin)
        print(json.dumps([decode(run, sources, PredictionCase(*case)) for case in cases]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train.tsv, dev.tsv and test.tsv")
    parser.add_argument("--run", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--flags", default="--size tiny --training.epochs 3", help="flags of all trainings")
    parser.add_argument("--lines", type=int, default=200, help="number of test sources")
    parser.add_argument("--only", choices=("trainings", "predictions"), help="leave out the other comparisons")
    for record in compare_all(parser.parse_args()):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
