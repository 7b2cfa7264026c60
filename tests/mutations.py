"""Fuzzing of run folders: one file of a valid run folder is changed at random, and every subcommand reads the folder.

The same seed makes the same change. `test_mutations.py` tries a few seeds. To try the seeds FIRST to LAST - 1:

    python tests/mutations.py FIRST LAST
"""

import contextlib
import io
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from task_cases import task_run
from trained_runs import (
    DataFiles,
    TrainedRun,
    copy_task_run,
    make_copy_examples,
    make_small_config,
    shared_folder,
    train_to_end,
    write_copy_files,
    write_pairs,
)

from pellucid.cli import evaluate, look, predict, score
from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.errors import InputError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.run_folder.run_files import ENSEMBLE
from pellucid.training import corpus_cache
from pellucid.training.events import FileSaved
from pellucid.training.session import train_run

TIMEOUT_SECONDS = 60
"""CPU seconds that a subcommand may take on one of these small runs."""
EXTREME_VALUES: Sequence[object] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**20, 2**31, 2**53, 2**63, 2**64, 10**30, -(10**30)),
    *(0.5, -0.5, 1e-30, 1e6, 1e30, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
    *("", "a", "\0", "\x1b[31m\u202e", "../..", "/", "a" * 5000, "1", "nan", "\u0301", "日", "1e30", "one-hot", "tag"),
    *([], {}, [[]], [1], [""], ["a", "a"], {"a": 1}, [None], {"": {}}, [1e308]),
)
"""Values that replace any other value."""


class TimeLimitError(Exception):
    """A subcommand exceeded its CPU time limit."""


class MutatedRun(NamedTuple):
    """A run folder with one changed file, and the run of which it is a copy."""

    trained: TrainedRun
    folder: Path
    file: Path
    change: str


@cache
def train_run_of_kind(kind: str) -> TrainedRun:
    """Return a valid run of one of `RUN_KINDS`, trained once."""
    if kind in ("tag", "classify", "point"):
        return task_run(kind)
    if kind == "finished":
        return copy_task_run()
    folder = shared_folder() / f"mutated {kind}"
    if kind == "ensemble":
        files, config = copy_task_run().files, copy_task_run().config
        for name in ("a", "b"):
            shutil.copytree(copy_task_run().run, folder / "run" / name)
        (folder / "run" / ENSEMBLE).write_text('{"members": ["a", "b"]}')
        return TrainedRun(files, folder / "run", config)
    files, config = write_copy_files(folder, 24, 6), make_small_config({"epochs": 2})
    if kind == "subwords":
        config = make_small_config({"epochs": 1}, data={"source_symbols": "subwords", "target_symbols": "subwords"})
    if kind == "features":
        examples = [
            example._replace(features="x;y" if index % 2 else "x")
            for index, example in enumerate(make_copy_examples(30, seed=1))
        ]
        files = DataFiles(
            write_pairs(folder / "train.tsv", examples),
            write_pairs(folder / "dev.tsv", [*examples[-8:-2], Example("a", "b", "x")]),
        )
        config = _with_pointer_generator(make_small_config({"epochs": 1}, data={"features_column": "3"}))
    if kind == "unfinished":
        return _train_to_first_checkpoint(files, folder / "run", config)
    train_to_end(files, folder / "run", config)
    return TrainedRun(files, folder / "run", config)


RUN_KINDS = ("finished", "unfinished", "ensemble", "tag", "classify", "point", "features", "subwords")


def _with_pointer_generator(config: Config) -> Config:
    """Return the configuration with a pointer-generator decoder."""
    from msgspec.structs import replace

    return replace(config, decoder=replace(config.decoder, pointer_generator=True))


def _train_to_first_checkpoint(files: DataFiles, run: Path, config: Config) -> TrainedRun:
    """Return a run that was interrupted after its first checkpoint and stores its examples in a corpus file."""
    min_corpus_symbols, corpus_cache.MIN_CORPUS_SYMBOLS = corpus_cache.MIN_CORPUS_SYMBOLS, 1
    try:
        events = train_run(files, run, config)
        next(event for event in events if isinstance(event, FileSaved) and not event.is_best_model)
        events.close()
    finally:
        corpus_cache.MIN_CORPUS_SYMBOLS = min_corpus_symbols
    assert (run / "corpus.arrow").exists()
    return TrainedRun(files, run, config)


def make_mutated_run(seed: int, folder: Path) -> MutatedRun:
    """Copy a run to `folder`, and change one of its files; the seed selects the run, the file and the change."""
    generator = random.Random(seed)
    trained = train_run_of_kind(generator.choice(RUN_KINDS))
    shutil.copytree(trained.run, folder / "run")
    files = sorted(path for path in (folder / "run").rglob("*") if path.is_file() and path.name != ".lock")
    file = generator.choice(files)
    content = file.read_bytes()
    changes: list[Callable[[random.Random, bytes], bytes]] = [_change_bytes]
    changes += {
        ".json": [_change_json],
        ".jsonl": [_change_json_line],
        ".toml": [_change_toml],
        ".safetensors": [_change_header, _change_metadata, _change_tensor],
    }.get(file.suffix, [])
    change = generator.choice([*changes, *changes[1:], *changes[1:]])
    file.write_bytes(change(generator, content))
    return MutatedRun(trained, folder / "run", file, f"{change.__name__} of {file.relative_to(folder)}")


def _change_bytes(generator: random.Random, content: bytes) -> bytes:
    """Change, insert or remove some bytes."""
    changed, size = bytearray(content), max(len(content), 1)
    start, length = generator.randrange(size), generator.choice([1, 2, 8, 100, size])
    match generator.randrange(7):
        case 0:
            return bytes(changed[:start])
        case 1:
            del changed[start : start + length]
        case 2:
            changed[start:start] = generator.randbytes(length)
        case 3:
            changed[start:start] = changed[start : start + length]
        case 4:
            changed[start : start + 8] = generator.choice([b"\xff", b"\0", b"\x80", b"9", b"["]) * 8
        case 5:
            changed[start : start + length] = b"[" * 20_000
        case _:
            for _ in range(generator.choice([1, 1, 3, 10])):
                if changed:
                    changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def _change_value(generator: random.Random, value: Any) -> Any:  # noqa: ANN401 (any JSON)
    """Return a JSON value of which one part is changed, removed, repeated or renamed."""
    if generator.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return generator.choice(EXTREME_VALUES)
    changed: Any = value.copy()
    key = generator.choice(list(value) if isinstance(value, dict) else range(len(value)))
    match generator.randrange(8):
        case 0:
            del changed[key]
        case 1 if isinstance(changed, dict):
            changed[str(generator.choice(EXTREME_VALUES))] = changed.pop(key)
        case 2 if isinstance(changed, list):
            changed.insert(key, changed[key])
        case 3:
            changed[key] = value
        case _:
            changed[key] = _change_value(generator, value[key])
    return changed


def _change_json(generator: random.Random, content: bytes) -> bytes:
    """Change one value of a JSON file."""
    return json.dumps(_change_value(generator, json.loads(content))).encode()


def _change_json_line(generator: random.Random, content: bytes) -> bytes:
    """Change one line of a JSON Lines file."""
    lines = content.splitlines()
    index = generator.randrange(len(lines))
    lines[index] = _change_json(generator, lines[index])
    return b"\n".join(lines) + b"\n"


def _change_toml(generator: random.Random, content: bytes) -> bytes:
    """Change, repeat or move one setting of a TOML file."""
    lines = content.decode().split("\n")
    index = generator.choice([index for index, line in enumerate(lines) if " = " in line and not line.startswith("#")])
    key = lines[index].partition(" = ")[0]
    words_of_comment = re.findall(r"[a-z][a-z-]+", lines[index - 1])
    value = generator.choice([*EXTREME_VALUES, *words_of_comment, *words_of_comment])
    match generator.randrange(8):
        case 0:
            lines.insert(generator.randrange(len(lines)), lines[index])
        case 1:
            lines[index] = f"{json.dumps(str(value))} = 1"
        case _:
            literal = "{}" if isinstance(value, dict) or value is None else json.dumps(value)
            lines[index] = f"{key} = {literal.replace('Infinity', 'inf').replace('NaN', 'nan')}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _split_safetensors(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the tensors of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    return header, content[8 + length :]


def _join_safetensors(header: object, tensors: bytes) -> bytes:
    """Return a safetensors file of a header and tensors."""
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + tensors


def _change_header(generator: random.Random, content: bytes) -> bytes:
    """Change one value of the header: a name, a type, a shape or an offset."""
    header, tensors = _split_safetensors(content)
    names = [name for name in header if name != "__metadata__"]
    first, second = generator.choice(names), generator.choice(names)
    match generator.randrange(6):
        case 0:
            header[first], header[second] = header[second], header[first]
        case 1:
            header[first]["dtype"] = generator.choice(
                ["F64", "F16", "BF16", "I32", "I64", "U8", "BOOL", "F8_E4M3", "C64", "x"]
            )
        case 2:
            header[first]["shape"] = header[first]["shape"][::-1]
        case 3:
            header[first]["data_offsets"] = [
                offset + generator.choice([-8, -1, 1, 8]) for offset in header[first]["data_offsets"]
            ]
        case _:
            return _join_safetensors(_change_value(generator, header), tensors)
    return _join_safetensors(header, tensors)


def _change_metadata(generator: random.Random, content: bytes) -> bytes:
    """Change one value of the metadata."""
    header, tensors = _split_safetensors(content)
    metadata: dict[str, str] = header["__metadata__"]
    key = generator.choice(sorted(metadata))
    with contextlib.suppress(ValueError):
        metadata[key] = json.dumps(_change_value(generator, json.loads(metadata[key])))
    return _join_safetensors(header, tensors)


def _change_tensor(generator: random.Random, content: bytes) -> bytes:
    """Set one number or all numbers of a tensor to an extreme value."""
    import numpy as np

    header, tensors = _split_safetensors(content)
    entry = header[generator.choice([name for name in header if name != "__metadata__"])]
    start, end = entry["data_offsets"]
    dtype = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}[entry["dtype"]]
    values = np.frombuffer(tensors[start:end], dtype).copy()
    maximum = np.iinfo(dtype).max if dtype == "<i8" else np.finfo(dtype).max
    extremes = [maximum, -maximum, 0, 1, -1, *([] if dtype == "<i8" else [np.nan, np.inf, 1e4, maximum / 1e3])]
    value = generator.choice(extremes)
    if generator.random() < 0.5:
        values[:] = value
    elif len(values):
        values[generator.randrange(len(values))] = value
    return _join_safetensors(header, tensors[:start] + values.tobytes() + tensors[end:])


def subcommand_calls(case: MutatedRun) -> Mapping[str, Callable[[], object]]:
    """Return the calls of all subcommands on a run folder, by name."""
    run, valid = str(case.folder), str(case.trained.files.valid)
    page = str(case.folder.parent / "page.html")
    length_limit = ["--search.max-length", "20"] if case.trained.config.task == "transduce" else []
    calls: dict[str, Callable[[], object]] = {
        "predict": lambda: predict.main([run, valid, "--output-format", "jsonl"]),
        "beam": lambda: predict.main([run, valid, "--nbest", "2", *length_limit]),
        "score": lambda: score.main([run, valid]),
        "evaluate": lambda: evaluate.main([run, valid, "--json"]),
        "look": lambda: look.main([run, valid, "--export", page]),
        "train": lambda: list(train_run(case.trained.files, case.folder, case.trained.config)),
    }
    if case.trained.config.task != "transduce":
        calls["beam"] = calls.pop("predict")
    return calls


@contextlib.contextmanager
def limit_cpu_time(seconds: int) -> Iterator[None]:
    """Raise `TimeLimitError` if the block takes more CPU seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeLimitError(f"more than {seconds} CPU seconds")

    previous_handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous_handler)


def run_subcommands(seed: int) -> tuple[MutatedRun, dict[str, str]]:
    """Run all subcommands on the mutated run of a seed.

    Returns:
        The mutated run, and the result of each subcommand: "done", "refused", or a description of a fault.
    """
    with tempfile.TemporaryDirectory() as folder:
        case = make_mutated_run(seed, Path(folder))
        results = {name: _run_subcommand(call) for name, call in subcommand_calls(case).items()}
    return case, results


def _run_subcommand(call: Callable[[], object]) -> str:
    """Return the result of one subcommand: "done", "refused", or a description of a fault."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            limit_cpu_time(TIMEOUT_SECONDS),
            disable_kernels(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            call()
    except InputError as error:
        return "refused" if len(str(error)) < 20_000 else f"a message of {len(str(error)):,} characters"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "NaN in the output" if re.search(r"\bnan\b|NaN", out.getvalue()) else "done"


def main(first: int, last: int) -> int:
    """Run all subcommands on the mutated runs of these seeds, and print the faults."""
    counts: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    for seed in range(first, last):
        case, results = run_subcommands(seed)
        for name, result in results.items():
            counts[result if result in ("done", "refused") else "WRONG"] += 1
            if result not in ("done", "refused"):
                print(f"{seed} {case.change} ({case.trained.config.task}): {name}: {result[:300]}", flush=True)
    print(f"seeds {first} to {last - 1}: {dict(counts)}")
    return int(counts["WRONG"] > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
