"""Run folders as nobody would write them: files of a sound one, changed at random, and every verb tried on them.

The same seed makes the same changes. To try more of them than the tests do, a part at a time:

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

from tasks import task_run
from trained_runs import Trained, copies, copies_run, copy_files, shared_folder, small_config, train_to_end, write_pairs

from pellucid.cli import evaluate, look, predict, score
from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.errors import InputError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.training import training_data as reading
from pellucid.training.run_folder import ENSEMBLE
from pellucid.training.session import FileSaved, train_run
from pellucid.training.training_data import TrainingFiles

SECONDS = 60
"""Of the processor, that a verb may take on one of these tiny runs."""
EXTREMES: Sequence[object] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**20, 2**31, 2**53, 2**63, 2**64, 10**30, -(10**30)),
    *(0.5, -0.5, 1e-30, 1e6, 1e30, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
    *("", "a", "\0", "\x1b[31m\u202e", "../..", "/", "a" * 5000, "1", "nan", "\u0301", "日", "1e30", "one-hot", "tag"),
    *([], {}, [[]], [1], [""], ["a", "a"], {"a": 1}, [None], {"": {}}, [1e308]),
)
"""Values that may stand in the place of any other."""


class SlowError(Exception):
    """A verb took too long."""


class Case(NamedTuple):
    """A run folder with one file that was changed, and what it was made from."""

    trained: Trained
    folder: Path
    file: Path
    change: str


@cache
def made(kind: str) -> Trained:
    """A sound run of a kind."""
    if kind in ("tag", "classify", "point"):
        return task_run(kind)
    if kind == "finished":
        return copies_run()
    folder = shared_folder() / f"mutated {kind}"
    if kind == "ensemble":
        files, config = copies_run().files, copies_run().config
        for name in ("a", "b"):
            shutil.copytree(copies_run().run, folder / "run" / name)
        (folder / "run" / ENSEMBLE).write_text('{"members": ["a", "b"]}')
        return Trained(files, folder / "run", config)
    files, config = copy_files(folder, 24, 6), small_config({"epochs": 2})
    if kind == "subwords":
        config = small_config({"epochs": 1}, data={"source_symbols": "subwords", "target_symbols": "subwords"})
    if kind == "features":
        odd = [each._replace(features="x;y" if at % 2 else "x") for at, each in enumerate(copies(30, seed=1))]
        files = TrainingFiles(
            write_pairs(folder / "train.tsv", odd),
            write_pairs(folder / "dev.tsv", [*odd[-8:-2], Example("a", "b", "x")]),
        )
        config = _with_copying(small_config({"epochs": 1}, data={"features_column": "3"}))
    if kind == "unfinished":
        return _unfinished(files, folder / "run", config)
    train_to_end(files, folder / "run", config)
    return Trained(files, folder / "run", config)


KINDS = ("finished", "unfinished", "ensemble", "tag", "classify", "point", "features", "subwords")


def _with_copying(config: Config) -> Config:
    """The same, copying from its source."""
    from msgspec.structs import replace

    return replace(config, decoder=replace(config.decoder, pointer_generator=True))


def _unfinished(files: TrainingFiles, run: Path, config: Config) -> Trained:
    """A run that was interrupted after its first checkpoint, its examples kept in a corpus."""
    kept, reading.MIN_CORPUS_SYMBOLS = reading.MIN_CORPUS_SYMBOLS, 1
    try:
        events = train_run(files, run, config)
        next(event for event in events if isinstance(event, FileSaved) and not event.best)
        events.close()
    finally:
        reading.MIN_CORPUS_SYMBOLS = kept
    assert (run / "corpus.arrow").exists()
    return Trained(files, run, config)


def case_of(number: int, to: Path) -> Case:
    """The case of a number."""
    choose = random.Random(number)
    trained = made(choose.choice(KINDS))
    shutil.copytree(trained.run, to / "run")
    files = sorted(path for path in (to / "run").rglob("*") if path.is_file() and path.name != ".lock")
    file = choose.choice(files)
    content = file.read_bytes()
    changes: list[Callable[[random.Random, bytes], bytes]] = [_bytes]
    changes += {
        ".json": [_json],
        ".jsonl": [_lines],
        ".toml": [_toml],
        ".safetensors": [_header, _notes, _numbers],
    }.get(file.suffix, [])
    change = choose.choice([*changes, *changes[1:], *changes[1:]])
    file.write_bytes(change(choose, content))
    return Case(trained, to / "run", file, f"{change.__name__} of {file.relative_to(to)}")


def _bytes(choose: random.Random, content: bytes) -> bytes:
    """Some bytes are others, or are not there."""
    changed, size = bytearray(content), max(len(content), 1)
    at, length = choose.randrange(size), choose.choice([1, 2, 8, 100, size])
    match choose.randrange(7):
        case 0:
            return bytes(changed[:at])
        case 1:
            del changed[at : at + length]
        case 2:
            changed[at:at] = choose.randbytes(length)
        case 3:
            changed[at:at] = changed[at : at + length]
        case 4:
            changed[at : at + 8] = choose.choice([b"\xff", b"\0", b"\x80", b"9", b"["]) * 8
        case 5:
            changed[at : at + length] = b"[" * 20_000
        case _:
            for _ in range(choose.choice([1, 1, 3, 10])):
                if changed:
                    changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
    return bytes(changed)


def _changed(choose: random.Random, value: Any) -> Any:  # noqa: ANN401 (any JSON)
    """The same value, but for one part of it that is another."""
    if choose.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return choose.choice(EXTREMES)
    kept: Any = value.copy()
    key = choose.choice(list(value) if isinstance(value, dict) else range(len(value)))
    match choose.randrange(8):
        case 0:
            del kept[key]
        case 1 if isinstance(kept, dict):
            kept[str(choose.choice(EXTREMES))] = kept.pop(key)
        case 2 if isinstance(kept, list):
            kept.insert(key, kept[key])
        case 3:
            kept[key] = value
        case _:
            kept[key] = _changed(choose, value[key])
    return kept


def _json(choose: random.Random, content: bytes) -> bytes:
    """One value is another."""
    return json.dumps(_changed(choose, json.loads(content))).encode()


def _lines(choose: random.Random, content: bytes) -> bytes:
    """One line is another."""
    lines = content.splitlines()
    at = choose.randrange(len(lines))
    lines[at] = _json(choose, lines[at])
    return b"\n".join(lines) + b"\n"


def _toml(choose: random.Random, content: bytes) -> bytes:
    """One setting is another, occurs twice, or is in another table."""
    lines = content.decode().split("\n")
    at = choose.choice([at for at, line in enumerate(lines) if " = " in line and not line.startswith("#")])
    key = lines[at].partition(" = ")[0]
    choices = re.findall(r"[a-z][a-z-]+", lines[at - 1])
    value = choose.choice([*EXTREMES, *choices, *choices])
    match choose.randrange(8):
        case 0:
            lines.insert(choose.randrange(len(lines)), lines[at])
        case 1:
            lines[at] = f"{json.dumps(str(value))} = 1"
        case _:
            told = "{}" if isinstance(value, dict) or value is None else json.dumps(value)
            lines[at] = f"{key} = {told.replace('Infinity', 'inf').replace('NaN', 'nan')}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and its tensors."""
    length = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    return header, content[8 + length :]


def _joined(header: object, tensors: bytes) -> bytes:
    """A file of both."""
    told = json.dumps(header).encode()
    return len(told).to_bytes(8, "little") + told + tensors


def _header(choose: random.Random, content: bytes) -> bytes:
    """One value of the header is another: a name, a type, a size, a place."""
    header, tensors = _split(content)
    names = [name for name in header if name != "__metadata__"]
    one, other = choose.choice(names), choose.choice(names)
    match choose.randrange(6):
        case 0:
            header[one], header[other] = header[other], header[one]
        case 1:
            header[one]["dtype"] = choose.choice(
                ["F64", "F16", "BF16", "I32", "I64", "U8", "BOOL", "F8_E4M3", "C64", "x"]
            )
        case 2:
            header[one]["shape"] = header[one]["shape"][::-1]
        case 3:
            header[one]["data_offsets"] = [at + choose.choice([-8, -1, 1, 8]) for at in header[one]["data_offsets"]]
        case _:
            return _joined(_changed(choose, header), tensors)
    return _joined(header, tensors)


def _notes(choose: random.Random, content: bytes) -> bytes:
    """One value of what stands beside the tensors is another."""
    header, tensors = _split(content)
    notes: dict[str, str] = header["__metadata__"]
    key = choose.choice(sorted(notes))
    with contextlib.suppress(ValueError):
        notes[key] = json.dumps(_changed(choose, json.loads(notes[key])))
    return _joined(header, tensors)


def _numbers(choose: random.Random, content: bytes) -> bytes:
    """Some numbers are as large, as small, or as little numbers as there are."""
    import numpy as np

    header, tensors = _split(content)
    info = header[choose.choice([name for name in header if name != "__metadata__"])]
    first, last = info["data_offsets"]
    kind = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}[info["dtype"]]
    values = np.frombuffer(tensors[first:last], kind).copy()
    greatest = np.iinfo(kind).max if kind == "<i8" else np.finfo(kind).max
    extremes = [greatest, -greatest, 0, 1, -1, *([] if kind == "<i8" else [np.nan, np.inf, 1e4, greatest / 1e3])]
    value = choose.choice(extremes)
    if choose.random() < 0.5:
        values[:] = value
    elif len(values):
        values[choose.randrange(len(values))] = value
    return _joined(header, tensors[:first] + values.tobytes() + tensors[last:])


def verbs(case: Case) -> Mapping[str, Callable[[], object]]:
    """What is done with a run folder."""
    run, dev = str(case.folder), str(case.trained.files.valid)
    page = str(case.folder.parent / "page.html")
    short = ["--search.max-length", "20"] if case.trained.config.task == "transduce" else []
    found: dict[str, Callable[[], object]] = {
        "predict": lambda: predict.main([run, dev, "--output-format", "jsonl"]),
        "beam": lambda: predict.main([run, dev, "--nbest", "2", *short]),
        "score": lambda: score.main([run, dev]),
        "evaluate": lambda: evaluate.main([run, dev, "--json"]),
        "look": lambda: look.main([run, dev, "--export", page]),
        "train": lambda: list(train_run(case.trained.files, case.folder, case.trained.config)),
    }
    if case.trained.config.task != "transduce":
        found["beam"] = found.pop("predict")
    return found


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """`SlowError` where the block takes more of the processor's time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SlowError(f"more than {seconds} seconds of the processor")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def attempt(number: int) -> tuple[Case, dict[str, str]]:
    """What each verb came to in the case of a number: "done", "refused", or what it must not.

    What is written is no nan.
    """
    with tempfile.TemporaryDirectory() as folder:
        case = case_of(number, Path(folder))
        results = {name: _tried(verb) for name, verb in verbs(case).items()}
    return case, results


def _tried(verb: Callable[[], object]) -> str:
    """What one verb came to."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with limited(SECONDS), disable_kernels(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            verb()
    except InputError as error:
        return "refused" if len(str(error)) < 20_000 else f"a message of {len(str(error)):,} characters"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "a number that is none" if re.search(r"\bnan\b|NaN", out.getvalue()) else "done"


def main(first: int, last: int) -> int:
    """Try the cases of these numbers, and tell what must not be."""
    counts: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    for number in range(first, last):
        case, results = attempt(number)
        for verb, result in results.items():
            counts[result if result in ("done", "refused") else "WRONG"] += 1
            if result not in ("done", "refused"):
                print(f"{number} {case.change} ({case.trained.config.task}): {verb}: {result[:300]}", flush=True)
    print(f"cases {first} to {last - 1}: {dict(counts)}")
    return int(counts["WRONG"] > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
