"""States in which a loss of power may leave a run folder, each resumed and compared with an undisturbed training.

    python benchmarks/power_loss.py [--seed 1] [--states 300] [--runs train ...] [--folder DIR]

The preloaded library of `write_faults.c` records every system call of an undisturbed training that writes below a
folder, with its data. First the order of the calls is checked for every file that is renamed into its place: all its
writes and its mode are flushed before the renaming, and the folder after it. Then states after a loss of power are
built. After each call, what was flushed is there; of what was not, each state has all, nothing, the first part of the
data (all sizes, the rest lost or zero), the renamings and removals without the data, or a random part. The entries of
folders are lost from the last on, as on file systems with a journal, or in a random part of each folder. Each different
state gets the same command, and must end with the same bits. A line for each run has the numbers of states, failures,
repeated updates and lost bytes; each failure has a line, and its folder stays below DIR/failed. Linux; needs a C
compiler.
"""

import argparse
import hashlib
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crash_faults import CALL_KINDS, TEMPORARY, CommandRunner, Fault, compare, list_temporaries, preload
from benchmarks.crashes import RUNS, CrashDriver

HEADER = struct.Struct("<6q")
SECTOR = 512
"""Bytes that a disk writes whole."""
STRATEGIES = ("flushed", "all", "names", "data", "torn", "zeros", "random", "random", "random folder")
"""What a state has of the calls that were not flushed."""
Tree = dict[str, bytes | None]
"""Content of each file below a folder, by path; None for a folder."""


class Call(NamedTuple):
    """A recorded system call."""

    kind: str
    inode: int
    """File or folder that it changes or flushes."""
    offset: int
    data: bytes
    size: int
    path: str
    other: str
    """New path of a renaming."""


def read_calls(path: Path) -> list[Call]:
    """Return the recorded calls.

    Args:
        path: File that the library wrote.
    """
    content, position, calls = path.read_bytes(), 0, list[Call]()
    while position < len(content):
        kind, inode, offset, size, length, other = HEADER.unpack_from(content, position)
        position += HEADER.size
        first = content[position : position + length].decode()
        second = content[position + length : position + length + other].decode()
        position += length + other
        data = content[position : position + size] if CALL_KINDS[kind] == "write" else b""
        position += len(data)
        calls.append(Call(CALL_KINDS[kind], inode, offset, data, size, first, second))
    return calls


def check_order(calls: Sequence[Call]) -> tuple[dict[str, int], list[str]]:
    """Check that each file is flushed before it is renamed into its place, and its folder after that.

    Args:
        calls: Calls of an undisturbed training.

    Returns:
        Number of renamings of each file, by its name without numbers, and the problems.
    """
    renamed, problems = dict[str, int](), list[str]()
    unflushed, pending = dict[int, str](), dict[str, str]()
    for call in calls:
        match call.kind:
            case "write" | "chmod" | "truncate":
                unflushed[call.inode] = f"{call.kind} of {call.path}"
            case "fsync":
                unflushed.pop(call.inode, None)
                pending = {name: folder for name, folder in pending.items() if folder != call.path}
            case "rename":
                name = os.path.basename(call.other)
                if call.inode in unflushed:
                    problems.append(f"{unflushed[call.inode]} is not flushed before the renaming to {name}")
                problems += [f"the folder of {other} is not flushed before {name} is renamed" for other in pending]
                pending = {name: os.path.dirname(call.other)}
                shown = "snapshots/*" if "snapshots" in call.other else name
                renamed[shown] = renamed.get(shown, 0) + 1
    problems += [f"the folder of {name} is never flushed" for name in pending]
    problems += [f"{what} is never flushed" for what in unflushed.values() if not TEMPORARY.search(what)]
    return renamed, problems


@dataclass
class _Inode:
    """Content of a file: what is flushed, and the writes since."""

    flushed: bytes = b""
    pending: list[tuple[int, bytes]] = field(default_factory=list)


class Disk:
    """Model of a file system: what is flushed, and the calls since, of one folder and all below it."""

    def __init__(self, folder: Path) -> None:
        """Begin with an empty folder.

        Args:
            folder: The folder, which is on the disk.
        """
        self.folder = str(folder)
        self.folders = {self.folder}
        self.inodes: dict[int, _Inode] = {}
        self.names: dict[str, int | None] = {}
        """Flushed entries: inode by path; None for a folder."""
        self.changes: list[Call] = []
        """Changes of entries since, in order."""

    def apply(self, call: Call) -> None:
        """Apply a call.

        Args:
            call: The call.
        """
        match call.kind:
            case "write":
                self.inodes.setdefault(call.inode, _Inode()).pending.append((call.offset, call.data))
            case "fsync" if call.path in self.folders:
                flushed = [change for change in self.changes if _parent(change) == call.path]
                for change in flushed:
                    _change_names(self.names, change)
                self.changes = [change for change in self.changes if _parent(change) != call.path]
            case "fsync":
                inode = self.inodes.setdefault(call.inode, _Inode())
                inode.flushed, inode.pending = _written(inode.flushed, inode.pending), []
            case "open" | "rename" | "unlink" | "mkdir" | "rmdir":
                if call.kind == "open":
                    self.inodes[call.inode] = _Inode()  # a number may be used again
                if call.kind == "mkdir":
                    self.folders.add(call.path)
                self.changes.append(call)

    def state(self, strategy: str, generator: random.Random) -> Tree:
        """Return the folder as a loss of power may leave it now.

        Args:
            strategy: One of `STRATEGIES`.
            generator: Source of the random choices.
        """
        names = dict(self.names)
        number = {"flushed": 0, "data": 0}.get(strategy, len(self.changes))
        if strategy == "random":
            number = generator.randint(0, len(self.changes))
        for change in self.changes[:number]:
            if strategy != "random folder" or generator.random() < 0.5:
                _change_names(names, change)
        tree: Tree = {}
        for path, inode in names.items():
            if path.startswith(f"{self.folder}/") and all(parent in names for parent in self._parents(path)):
                content = None if inode is None else self._content(inode, strategy, generator)
                tree[os.path.relpath(path, self.folder)] = content
        return tree

    def _parents(self, path: str) -> Iterator[str]:
        """Yield the folders of a path, below that of the disk."""
        while (path := os.path.dirname(path)) != self.folder:
            yield path

    def _content(self, number: int, strategy: str, generator: random.Random) -> bytes:
        """Return the content of a file after a loss of power."""
        inode = self.inodes.get(number, _Inode())
        if not inode.pending or strategy in ("flushed", "names"):
            return inode.flushed
        written = _written(inode.flushed, inode.pending)
        if strategy in ("all", "data"):
            return written
        size = generator.randint(min(len(inode.flushed), len(written)), len(written))
        if strategy == "torn":
            return written[:size]
        kept = bytearray(written)
        for start in range(0, len(written), SECTOR):
            lost = start >= size if strategy == "zeros" else generator.random() < 0.5
            end = min(start + SECTOR, len(written))
            if lost and end > len(inode.flushed):
                start = max(start, len(inode.flushed))
                kept[start:end] = bytes(end - start)
        return bytes(kept)


def _parent(change: Call) -> str:
    """Return the folder whose entries a call changes."""
    return os.path.dirname(change.other or change.path)


def _written(content: bytes, writes: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a content after some writes."""
    result = bytearray(content)
    for offset, data in writes:
        result.extend(bytes(max(0, offset + len(data) - len(result))))
        result[offset : offset + len(data)] = data
    return bytes(result)


def _change_names(names: dict[str, int | None], call: Call) -> None:
    """Apply a change of entries; one whose file is missing, because an earlier change was lost, does nothing."""
    match call.kind:
        case "open":
            names[call.path] = call.inode
        case "mkdir":
            names[call.path] = None
        case "rename":
            if names.pop(call.path, None) is not None:
                names[call.other] = call.inode
        case _:
            names.pop(call.path, None)


def possible_states(calls: Sequence[Call], folder: Path, generator: random.Random) -> dict[str, tuple[Tree, str]]:
    """Return the different states after a loss of power, by their hash, each with the point and the strategy.

    Args:
        calls: Calls of an undisturbed training.
        folder: Folder above that of the run.
        generator: Source of the random choices.
    """
    disk, states = Disk(folder), dict[str, tuple[Tree, str]]()
    for number, call in enumerate(calls, 1):
        disk.apply(call)
        for strategy in STRATEGIES:
            tree = disk.state(strategy, generator)
            key = hashlib.sha256(repr(sorted(tree.items())).encode()).hexdigest()
            states.setdefault(key, (tree, f"{strategy} after call {number} of {len(calls)}, {call.kind}"))
    return states


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a state to a folder.

    Args:
        tree: The state.
        folder: The folder, which is created.
    """
    folder.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)


def resume_states(driver: CrashDriver, run: str, limit: int, seed: int) -> int:
    """Record a run, check its calls, resume the states, and print the totals; return the number of failures.

    Args:
        driver: Driver with the undisturbed runs.
        run: Name of the run.
        limit: Maximum number of states, which are drawn from all.
        seed: Seed of the random choices.
    """
    parent, record = driver.folder / "recorded", driver.folder / "record"
    for path in (parent, record):
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
    parent.mkdir()
    oracle, runner, generator = driver.oracle(run), driver.runner, random.Random(f"{seed} {run}")
    runner.arm(parent, Fault(), record)
    finished = runner.wait(driver.start(run, parent / "run"))
    runner.disarm()
    if finished.code:
        raise SystemExit(finished.message)
    calls = read_calls(record)
    renamed, failures = check_order(calls)
    files = ", ".join(f"{name} {number}" for name, number in sorted(renamed.items()))
    print(f"{run}: {len(calls)} calls; renamings, each flushed before, and its folder after: {files}")
    states = possible_states(calls, parent, generator)
    drawn = generator.sample(sorted(states), min(limit, len(states)))
    redone = lost = 0
    for key in drawn:
        tree, description = states[key]
        folder, before = parent, runner.orders.updates  # the same path: a log may name a file in its folder
        shutil.rmtree(folder)
        write_tree(tree, folder)
        finished = runner.wait(driver.start(run, folder / "run"))
        difference = compare(folder / "run", oracle.contents)
        redone += runner.orders.updates - before
        lost += difference.bytes_lost
        if finished.code or difference.files or list_temporaries(folder):
            failures.append(f"{description}: exit code {finished.code}, differs: {difference.files}")
            failures[-1] += f" {finished.message[-600:]}" if finished.code else ""
            shutil.copytree(folder, driver.folder / "failed" / f"{run}-{key[:8]}", dirs_exist_ok=True)
    for failure in failures:
        print(f"failed: {run}: {failure}", flush=True)
    print(
        f"{run}: {len(states):,} different states, {len(drawn):,} resumed, {len(failures)} failed; updates computed "
        f"{redone:,}, in mean {redone / max(1, len(drawn)):.1f} of {oracle.updates}; bytes lost {lost:,}",
        flush=True,
    )
    return len(failures)


def main() -> int:
    """Resume the states of each run, and return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--states", type=int, default=300, help="maximum number of states of each run")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=[name for name in RUNS if RUNS[name].is_single])
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    folder = args.folder or Path(os.environ.get("CRASHES_FOLDER") or tempfile.mkdtemp(prefix="power-"))
    os.environ["CRASHES_FOLDER"] = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    orders = preload(folder)
    driver = CrashDriver(CommandRunner(orders, folder / "output"), folder, args.seed)
    started_at = time.monotonic()
    failures = sum(resume_states(driver, run, args.states, args.seed) for run in args.runs)
    print(f"seed {args.seed}, {time.monotonic() - started_at:,.0f} s, {time.strftime('%Y-%m-%d')}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
